"""From components and plans to a D-study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError, check_alpha, did_you_mean
from vcomp.formula import REPLICATE
from vcomp.gtheory.exact_limits import planned_limits
from vcomp.gtheory.plan import DStudyPlan, make_plans
from vcomp.gtheory.planned_quantity import NO_MEAN, phi_lambda, read_cuts
from vcomp.gtheory.projection import PLANNED, QUANTITIES, planned_quantity, quantities, weights
from vcomp.gtheory.study import DStudy
from vcomp.gtheory.universe import all_sizes
from vcomp.inference import UsedComponents, VarianceComponents
from vcomp.inference.intervals import (
    FromComponents,
    IntervalSource,
    check_source,
    unbiased_covariance,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "dstudy",
    "phi_lambda_table",
    "project",
    "quantity_table",
    "study_notes",
]


_UNSHARED = (
    "Where objects meet different levels, their differences hold the effects of these levels too, "
    "which σ²(δ) leaves out."
)


def study_notes(
    components: VarianceComponents,
    taken: UsedComponents,
    plan: DStudyPlan,
    columns: Mapping[str, FloatArray],
) -> tuple[str, ...]:
    """Return the notes on a D-study.

    Parameters
    ----------
    components : as estimated
    taken : as the D-study takes them
    plan : of the D-study
    columns : the quantities, by name

    Examples
    --------
    >>> from vcomp.gtheory import from_components
    >>> study = from_components({"p": 0.5, "i": -0.2, "Residual": 1.0}).dstudy(i=10)
    >>> print(study.notes[0])
    σ²(i) = -0.2 is taken as 0 (negative="keep" would take it as estimated).
    """
    notes = [*_on_negative(components, taken), *_on_coefficients(plan, columns)]
    whole = bool((plan.sizes == np.round(plan.sizes)).all())
    if plan.labels is not None:
        notes.append(
            "Each component is divided by its exact effective size in the layout, of which n "
            "shows the facet's."
        )
    elif plan.inverse_n is not None and not (whole and _equal_sizes(components, plan)):
        notes.append(
            "The G-study is unbalanced: each component is divided by its exact effective size, of "
            f"which n shows the facet's. {_UNSHARED}"
        )
    elif not whole:
        notes.append(
            "Sizes that are not whole numbers are harmonic means of the unbalanced G-study, "
            "unless they were given."
        )
    notes += _on_omitted_interaction(components)
    if taken.cov is None:
        notes.append(
            "The covariance matrix of the components is not known: there are no standard errors, "
            "nor intervals that need them."
        )
    else:
        notes += _on_known(taken.bounded, "estimated at the bound")
        notes += _on_known(components.held, "held")
    return tuple(notes)


def _on_known(names: Sequence[str], why: str) -> list[str]:
    if not names:
        return []
    known = ", ".join(f"σ²({name})" for name in names)
    verb, them = ("has", "it") if len(names) == 1 else ("have", "them")
    note = (
        f"{known} {verb} no standard error, being {why}; standard errors of other quantities take "
        f"{them} as known."
    )
    return [note]


def _on_negative(components: VarianceComponents, taken: UsedComponents) -> list[str]:
    notes = []
    for name, value in zip(components.names, components.values, strict=True):
        symbol = f"σ²({name}) = {display.number(value)}"
        if name in taken.zeroed:
            notes.append(f'{symbol} is taken as 0 (negative="keep" would take it as estimated).')
        elif value < 0:
            notes.append(f'{symbol} is negative and taken as estimated (negative="keep").')
    return notes


def _on_omitted_interaction(components: VarianceComponents) -> list[str]:
    """Warn that the residual of repeated scores hides an interaction, and is divided too much."""
    facets = frozenset(components.facet_names)
    if REPLICATE not in facets or facets - {REPLICATE} in components.facets:
        return []
    named = ":".join(f for f in components.facet_names if f != REPLICATE)
    note = (
        f"The cells hold several scores and the model has no term {named}: what varies from cell "
        f"to cell is taken as error of single scores, which {REPLICATE} averages out. Errors are "
        f"too small if there is such variation; add (1|{named}) to the formula."
    )
    return [note]


def _on_coefficients(plan: DStudyPlan, columns: Mapping[str, FloatArray]) -> list[str]:
    undefined = [s for s, c in (("Eρ²", "Erho2"), ("Φ", "Phi")) if np.isnan(columns[c]).any()]
    universe = columns["universe_var"][0]
    notes = []
    if universe == 0:
        notes.append(
            f"The universe-score variance σ²({plan.object}) is 0: these data do not tell "
            f"{plan.object} apart, and no size of the test makes up for it."
        )
    if undefined:
        notes.append(
            f"{' and '.join(undefined)} {'is' if len(undefined) == 1 else 'are'} not defined "
            "(nan) where universe-score and error variance do not add up to more than zero."
        )
    return notes


def _equal_sizes(components: VarianceComponents, plan: DStudyPlan) -> bool:
    exact = weights(components, plan).absolute
    nominal = weights(components, replace(plan, inverse_n=None)).absolute
    return bool(np.allclose(exact, nominal, rtol=1e-9, atol=0))


def dstudy(
    components: VarianceComponents,
    design: str | None = None,
    *,
    object: str | Sequence[str] | None = None,  # noqa: A002 - the word of the field
    fixed: str | Sequence[str] = (),
    universe: Mapping[str, float] | None = None,
    within: str | Sequence[str] = (),
    layout: Any = None,
    sizes: Mapping[str, Any] | None = None,
    alpha: float = 0.05,
    negative: str = "zero",
    method: str | IntervalSource = "auto",
    **n: Any,
) -> DStudy:
    """Return what planned measurements would be worth.

    Parameters
    ----------
    components : of the G-study
    design : in Brennan's notation, such as ``"p x (a:i)"``; the G-study's own if None
    object : the object of measurement: a facet, or several (``"doctor:patient"``); if None, the
        first facet of `design` without a size, see :func:`~vcomp.gtheory.make_plans`
    fixed : facets whose planned levels are the whole universe of generalization: what they add to
        differences between objects is universe score
    universe : N' of facets with finite universes, ``{"topic": 500}``; of all others it is infinite
    within : facets of the object (``"school"`` of ``"school:pupil"``) within whose levels objects
        are compared: what all objects of a level share tells no objects apart
    layout : instead of sizes the planned observations of every object, a row each, as a table
        with a column for every facet but the object's; or several tables by name. Unbalanced
        designs of any kind are given so, and every component is divided exactly. Where objects
        have rows of their own (the table has their columns), σ²(δ) holds what they differ by for
        having met other levels
    sizes : like `n`, for facets whose names are no Python names or those of other parameters
    alpha : intervals have confidence 1 − alpha
    negative : ``"zero"`` takes negative components as zero and says so, ``"keep"`` as estimated
    method : of the intervals. ``"mls"``: modified large sample; ``"f"``: F quantiles of a complete
        two-way table (Feldt for Eρ², Arteaga et al. for Φ); ``"log"``: the delta method on the log
        or logit scale; ``"wald"``: on the natural scale; ``"auto"``: F where it can be, else
        modified large sample. Or what else gives intervals, such as bootstrap replicates
    **n : one size or several for each facet; of a nested facet within those it is nested in, or
        :class:`~vcomp.gtheory.Counts` where these differ. All combinations are planned. A facet
        without a size takes the G-study's

    Raises
    ------
    PlanError
        The plan is not one that can be, or the G-study cannot support it.

    References
    ----------
    Bodoff and Li (2007), SIGIR, eq. (2)-(6), pp. 370-371, whose components the example has;
    Brennan (2001), Generalizability Theory, chap. 4 and 5.

    Examples
    --------
    >>> from vcomp.gtheory import from_components
    >>> published = {"p": .00751, "i": .01596, "a": 0, "pi": .01258, "pa": .00002, "ia": .00143,
    ...              "pia": .00176}
    >>> study = dstudy(from_components(published).components, i=20, a=3)
    >>> study.table[["i", "a", "abs_err_var", "Erho2", "Phi"]].round(5)
        i  a  abs_err_var    Erho2      Phi
    0  20  3      0.00149  0.91865  0.83474

    The same three assessors for good, and a topic judged by an assessor of its own:

    >>> fixed = dstudy(from_components(published).components, i=20, a=3, fixed="a")
    >>> fixed.table[["universe_var", "Erho2", "Phi"]].round(5)
       universe_var    Erho2      Phi
    0       0.00752  0.91947  0.83548
    >>> dstudy(from_components(published).components, "p x (a:i)", i=20, a=1).table["Phi"].round(5)
    0    0.8255
    Name: Phi, dtype: float64
    """
    plan = make_plans(
        components,
        design,
        object,
        all_sizes(sizes, n),
        fixed=fixed,
        universe=universe,
        within=within,
        layout=layout,
    )
    source: IntervalSource
    if isinstance(method, str):
        source = FromComponents(components, method, negative)
    else:
        source = check_source(method)
    return project(components, plan, alpha=alpha, negative=negative, source=source)


def project(
    components: VarianceComponents,
    plan: DStudyPlan,
    *,
    alpha: float = 0.05,
    negative: str = "zero",
    source: IntervalSource | None = None,
) -> DStudy:
    """Divide each component by the sizes of its facets, sort it, and say how well all is known.

    Parameters
    ----------
    components : of the G-study
    plan : of the D-study
    alpha : intervals have confidence 1 − alpha
    negative : ``"zero"`` or ``"keep"``
    source : of the intervals; the components and their covariance if None

    Raises
    ------
    PlanError
        The G-study cannot support the design, or `alpha` or `negative` is not one that can be.

    References
    ----------
    Brennan (2001), Generalizability Theory, chap. 4.

    Examples
    --------
    >>> from vcomp.gtheory import from_components, make_plans
    >>> g = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).components
    >>> project(g, make_plans(g, n={"i": 10})).columns["Erho2"].round(4)
    array([0.8333])
    """
    check_alpha(alpha)
    local = FromComponents(components, negative=negative)
    source = local if source is None else source
    made = quantities(weights(components, plan))
    columns = {name: q.values(local.used.values) for name, q in made.items()}
    methods: dict[str, str] = {}
    said: list[str] = []
    for name in QUANTITIES:
        found = planned_limits(name, made[name], components, plan, source, alpha)
        columns |= {
            f"{name}_se": local.standard_errors(made[name]),
            f"{name}_low": found.low,
            f"{name}_high": found.high,
        }
        if found.method:
            methods[name] = found.method
        said += [note for note in found.notes if note not in said]
    notes = study_notes(components, local.used, plan, columns)
    notes += tuple(f"Intervals: {note}." for note in said)
    return DStudy(plan, components, alpha, negative, columns, methods, notes, source)


def quantity_table(study: DStudy, name: str, kind: str | None) -> pd.DataFrame:
    """Return one quantity of every plan; see :meth:`DStudy.quantity`.

    Parameters
    ----------
    study : the D-study
    name : of the quantity
    kind : of the standard errors, ``"unbiased"`` or None
    """
    if not isinstance(name, str) or name not in PLANNED:
        raise PlanError(
            f"unknown quantity {name!r}{did_you_mean(str(name), PLANNED)}; a D-study has "
            f"{', '.join(PLANNED)}"
        )
    q = planned_quantity(weights(study.components, study.plan), name)
    if kind not in (None, "unbiased"):
        raise PlanError(f"the kind of standard errors is None or 'unbiased', not {kind!r}")
    components = study.components
    if kind == "unbiased":
        components = replace(components, cov=_unbiased(components), without_bounds=None)
    local = FromComponents(components, negative=study.negative)
    found = planned_limits(name, q, study.components, study.plan, study.source, study.alpha)
    estimates = {
        "estimate": local.values(q),
        "se": local.standard_errors(q),
        "low": found.low,
        "high": found.high,
    }
    return study.sizes_table(estimates).assign(**estimates)


def _unbiased(components: VarianceComponents) -> FloatArray:
    covariance = unbiased_covariance(components)
    if covariance is None:
        raise PlanError(
            "unbiased standard errors rest on mean squares, which are made from the covariance "
            "matrix of the components, which is not known"
        )
    return covariance


def phi_lambda_table(study: DStudy, cut: Any) -> pd.DataFrame:
    """Return Φ(λ) of every plan and cut score; see :meth:`DStudy.phi_lambda`.

    Parameters
    ----------
    study : the D-study
    cut : λ, one or several
    """
    cuts, mean = read_cuts(cut), study.mean or NO_MEAN
    w = weights(study.components, study.plan)
    beta = (mean.beta, mean.cov_beta)
    local = FromComponents(study.components, "auto", study.negative, *beta)
    source = local if isinstance(study.source, FromComponents) else study.source
    rows = []
    for plan in range(len(study.plan)):
        for one in cuts:
            made = phi_lambda(w.universe[plan], w.absolute[plan], mean, one)
            found = source.limits(made, study.alpha)
            ends = (float(found.low[0]), float(found.high[0]))
            rows.append(
                (one, float(local.values(made)[0]), float(local.standard_errors(made)[0]), *ends)
            )
    columns = ("cut", "estimate", "se", "low", "high")
    table = study.sizes_table(columns)
    repeated = table.loc[table.index.repeat(len(cuts))]
    if study.plan.labels is None:
        repeated = repeated.reset_index(drop=True)
    values = dict(zip(columns, zip(*rows, strict=True), strict=True))
    return repeated.assign(**{name: list(column) for name, column in values.items()})
