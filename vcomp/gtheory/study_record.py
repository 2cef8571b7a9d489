"""The record of a D-study: error variances and coefficients of every plan, with limits and notes.

Tables, summaries, pictures and allocations are functions of :class:`StudyRecord`;
:class:`~vcomp.gtheory.study.DStudy` is the record with these functions as methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray, Json
from vcomp.codec import Format, from_plain, stored, to_plain
from vcomp.display import SYMBOLS
from vcomp.exceptions import PlanError, check_alpha
from vcomp.formula import REPLICATE, in_formula
from vcomp.gtheory.plan import DStudyPlan
from vcomp.gtheory.projection import (
    QUANTITIES,
    planned_limits,
    planned_quantity,
    quantities,
    weights,
)
from vcomp.gtheory.requirement import (
    NO_MEAN,
    MeanOfScores,
    Requirement,
    check_requirement,
    required_size,
)
from vcomp.gtheory.universe import check_columns
from vcomp.inference import (
    LevelVariances,
    Projected,
    Quantities,
    UsedComponents,
    VarianceComponents,
)
from vcomp.inference.intervals import Combined, FromComponents, IntervalSource

if TYPE_CHECKING:
    import pandas as pd


def _local_name(source: IntervalSource) -> str | Json:
    """Return the method of intervals from components, with its further inputs.

    Raises
    ------
    PlanError
        If they are from replicates or a profile, which a D-study does not hold.
    """
    if not isinstance(source, FromComponents):
        raise PlanError(
            f"intervals of the kind {source.interval!r} need more than a D-study holds, and JSON "
            "would lose them; store its table, or a D-study with interval='auto'"
        )
    levels, reason = source.components.levels, source.reason
    if levels is None and not reason:
        return source.interval
    return {"interval": source.interval, "levels": to_plain(levels), "reason": reason}


def _of_components(stored_source: Any, plain: Json) -> IntervalSource:
    """Return intervals from the stored components."""
    components = from_plain(VarianceComponents, plain["components"])
    name, reason = stored_source, ""
    if isinstance(stored_source, dict):
        name, levels, reason = (stored_source[key] for key in ("interval", "levels", "reason"))
        if levels is not None:
            components = replace(components, levels=from_plain(LevelVariances, levels))
    elif name == "robust":  # of a version that did not store influences
        name = "mls"
    mean = NO_MEAN if plain["mean"] is None else from_plain(MeanOfScores, plain["mean"])
    return FromComponents(components, name, plain["negative"], mean.beta, mean.cov_beta, reason)


def _notes(notes: list[str], plain: Json) -> tuple[str, ...]:
    """Return stored notes, and what a version that did not store influences has to add."""
    if plain["source"] != "robust":
        return tuple(notes)
    return (*notes, "Intervals of other plans treat effects as normal: no influences were stored.")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StudyRecord:
    """A plan, the components that it starts from, and the projected quantities.

    Attributes
    ----------
    plan : design, object of measurement and sizes
    components : of the G-study, as estimated
    alpha : intervals have confidence 1 − alpha
    negative : how negative components are used, ``"zero"`` or ``"keep"``
    columns : name of the quantity → (m,) values, one a plan
    interval_methods : quantity → how its interval was made
    notes : what a reader should know of these numbers
    source : of the intervals
    mean : of the scores; None where it is not known
    residuals : the components with the residual variance of each level, whose mean is the residual
        of `components`; None with one residual variance
    """

    plan: DStudyPlan
    components: VarianceComponents
    alpha: float
    negative: Projected
    columns: Mapping[str, FloatArray]
    interval_methods: Mapping[str, str]
    notes: tuple[str, ...] = field(metadata=stored(read=_notes))
    source: IntervalSource = field(metadata=stored(write=_local_name, read=_of_components))
    mean: MeanOfScores | None = None
    residuals: VarianceComponents | None = None

    _FORMAT: ClassVar[Format] = Format("DStudy", 1, "a D-study")

    def _check(self) -> None:
        """Raise a ValueError if shapes contradict each other."""
        m, k = len(self.plan), len(self.components.names)
        agree = [
            self.plan.sizes.shape == (m, len(self.plan.facets)),
            all(values.shape == (m,) for values in self.columns.values()),
            self.components.values.shape == (k,),
            self.components.cov is None or self.components.cov.shape == (k, k),
        ]
        if not all(agree):
            raise ValueError("its values contradict each other")

    def projected(self, name: str, plan: DStudyPlan | None = None) -> Quantities:
        """Return a quantity of every plan as a function of the components.

        Parameters
        ----------
        name : one of :data:`~vcomp.gtheory.projection.PLANNED`
        plan : whose sizes are used; that of the study if None
        """
        return planned_quantity(
            weights(self.components, self.plan if plan is None else plan), name
        )


S = TypeVar("S", bound=StudyRecord)


def study_table(study: StudyRecord) -> pd.DataFrame:
    """Return one row per plan: its sizes and columns; see :attr:`DStudy.table`."""
    return sizes_table(study.plan, study.columns)


def sizes_table(
    plan: DStudyPlan, columns: Mapping[str, Any] = MappingProxyType({}), rows: int = 1
) -> pd.DataFrame:
    """Return the sizes of the facets, and other columns, in rows per plan.

    Parameters
    ----------
    plan : of the D-study
    columns : the other columns, each with the rows of the first plan before those of the second
    rows : number of rows per plan

    Raises
    ------
    PlanError
        If a facet has the name of one of them.
    """
    import pandas as pd

    check_columns(columns, plan.facets)
    labels = None if plan.labels is None else pd.Index(plan.labels).repeat(rows)
    sized = zip(plan.facets, plan.sizes.T, strict=True)
    sizes = {facet: _whole(of_plans).repeat(rows) for facet, of_plans in sized}
    # In one step: each column that is added to a table takes as long as a small table.
    return pd.DataFrame(
        sizes | dict(columns), pd.RangeIndex(len(plan) * rows) if labels is None else labels
    )


def _whole(sizes: FloatArray) -> Any:
    """Return sizes as integers if all are whole and not too large, otherwise as floats."""
    whole = (sizes == np.floor(sizes)) & (sizes < 2.0**53)
    return sizes.astype(np.int64) if whole.all() else sizes.astype(float)


def project(
    of: type[S],
    components: VarianceComponents,
    plan: DStudyPlan,
    *,
    alpha: float = 0.05,
    negative: Projected = "zero",
    source: IntervalSource | None = None,
) -> S:
    """Return the error variances and coefficients of every plan, with standard errors and limits.

    Parameters
    ----------
    of : class of the record
    components : of the G-study
    plan : of the D-study
    alpha : intervals have confidence 1 − alpha
    negative : ``"zero"`` or ``"keep"``
    source : of the intervals; the components and their covariance if None

    Raises
    ------
    PlanError
        The G-study cannot support the design, or `alpha` or `negative` is not allowed.

    References
    ----------
    Brennan (2001), Generalizability Theory, chap. 4.
    """
    check_alpha(alpha)
    source = FromComponents(components, negative=negative) if source is None else source
    local = FromComponents.beside(source, components, negative)
    projected = quantities(weights(components, plan))
    columns = {name: q.values(local.used.values) for name, q in projected.items()}
    methods: dict[str, str] = {}
    said: list[str] = []
    for name in QUANTITIES:
        limits = planned_limits(name, projected[name], components, plan, source, alpha)
        columns |= {
            f"{name}_se": local.standard_errors(projected[name]),
            f"{name}_low": limits.low,
            f"{name}_high": limits.high,
        }
        if limits.interval_method:
            methods[name] = limits.interval_method
        said += [note for note in limits.notes if note not in said]
    notes = study_notes(components, local.used, plan, columns)
    notes += tuple(f"Intervals: {note}." for note in said)
    return of(plan, components, alpha, negative, columns, methods, notes, source)


def of_other_plan(study: S, plan: DStudyPlan, source: IntervalSource | None) -> S:
    """Return the D-study of the same components with another plan.

    Parameters
    ----------
    study : of the components
    plan : of the other D-study
    source : of its intervals; the components and their covariance if None
    """
    projected = project(
        type(study),
        study.components,
        plan,
        alpha=study.alpha,
        negative=study.negative,
        source=source,
    )
    return replace(projected, residuals=study.residuals)


def of_level(study: S, level: int) -> S:
    """Return the D-study in which all scores have the residual variance of one level.

    Parameters
    ----------
    study : with several residual variances
    level : number of the level
    """
    assert study.residuals is not None
    own, source = study.residuals.with_one_residual(level), study.source
    if isinstance(source, FromComponents):
        source = replace(source, components=own)
    elif isinstance(source, Combined):
        source = replace(source, A=study.residuals.pooling(level))
    found = project(
        type(study), own, study.plan, alpha=study.alpha, negative=study.negative, source=source
    )
    return replace(found, mean=study.mean)


def every_requirement(
    study: StudyRecord, goal: float, coefficient: str, facet: str | None
) -> Requirement:
    """Return the size that the first plan needs, with those of further plans.

    Parameters
    ----------
    study, goal, coefficient, facet : as for :func:`requirement_of`
    """
    chosen = check_requirement(study.plan, goal, coefficient, facet)
    first = requirement_of(study, goal, coefficient, chosen)
    plans = study.plan.by_other_sizes(chosen)
    further = (requirement_of(study, goal, coefficient, chosen, plan) for plan in plans[1:])
    return replace(first, further=tuple(further))


def requirement_of(
    study: StudyRecord,
    goal: float,
    coefficient: str,
    facet: str | None,
    plan: DStudyPlan | None = None,
) -> Requirement:
    """Return the size of a facet that a coefficient needs; see :meth:`DStudy.required`.

    Parameters
    ----------
    study : with components, policy and intervals
    goal : of the coefficient, between 0 and 1
    coefficient : ``"Erho2"`` or ``"Phi"``
    facet : may be None where only one has a size
    plan : whose first row has the sizes of the other facets; that of the study if None
    """
    return required_size(
        study.components,
        study.source,
        study.plan if plan is None else plan,
        negative=study.negative,
        goal=goal,
        coefficient=coefficient,
        facet=facet,
        alpha=study.alpha,
    )


_UNSHARED = (
    "Where objects have different levels, their differences contain the effects of these levels, "
    "which σ²(δ) omits."
)


def study_notes(
    components: VarianceComponents,
    used: UsedComponents,
    plan: DStudyPlan,
    columns: Mapping[str, FloatArray],
) -> tuple[str, ...]:
    """Return the notes on a D-study.

    Parameters
    ----------
    components : as estimated
    used : components as the D-study uses them
    plan : of the D-study
    columns : the quantities, by name

    Examples
    --------
    >>> from vcomp.gtheory import from_components
    >>> study = from_components({"p": 0.5, "i": -0.2, "Residual": 1.0}).dstudy(i=10)
    >>> print(study.notes[0])
    σ²(i) = -0.2 is replaced by 0 (negative="keep" would use it as estimated).
    """
    notes = [*_on_negative(components, used), *_on_coefficients(plan, columns)]
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
    if used.cov is None:
        notes.append(
            "The covariance matrix of the components is not known: there are no standard errors, "
            "nor intervals that need them."
        )
    else:
        at_bound = dict(zip(components.names, components.values == 0.0, strict=True))
        bounded = [name for name in used.bounded if at_bound[name]]
        others = [name for name in used.bounded if not at_bound[name]]
        notes += _on_known(bounded, "estimated at the bound")
        notes += _on_known(others, "of a sampling variance that is not known or not positive")
        notes += _on_known(components.held, "held")
    return tuple(notes)


def _on_known(names: Sequence[str], why: str) -> list[str]:
    if not names:
        return []
    known = ", ".join(f"σ²({name})" for name in names)
    verb, them = ("has", "it") if len(names) == 1 else ("have", "them")
    note = (
        f"{known} {verb} no standard error, being {why}; standard errors of other quantities "
        f"treat {them} as known."
    )
    return [note]


def _on_negative(components: VarianceComponents, used: UsedComponents) -> list[str]:
    notes = []
    for name, value in zip(components.names, components.values, strict=True):
        symbol = f"σ²({name}) = {display.number(value)}"
        if name in used.zeroed:
            notes.append(f'{symbol} is replaced by 0 (negative="keep" would use it as estimated).')
        elif value < 0:
            notes.append(f'{symbol} is negative and used as estimated (negative="keep").')
    return notes


def _on_omitted_interaction(components: VarianceComponents) -> list[str]:
    """Return a note that the residual of replicates may contain an omitted interaction."""
    facets = frozenset(components.facet_names)
    if REPLICATE not in facets or facets - {REPLICATE} in components.facets:
        return []
    named = ":".join(f for f in components.facet_names if f != REPLICATE)
    return [omitted_interaction(named, REPLICATE)]


def omitted_interaction(named: str, averaging: str) -> str:
    """Return a note that the residual of several scores may contain an omitted interaction.

    Parameters
    ----------
    named : the interaction
    averaging : what averages the residual out
    """
    return (
        f"The cells hold several scores and the model has no term {named}: what varies from cell "
        f"to cell counts as error of single scores, which {averaging} averages out. Errors are "
        f"too small if there is such variation: include {named}, in a formula as "
        f"(1|{in_formula(named)})."
    )


def _on_coefficients(plan: DStudyPlan, columns: Mapping[str, FloatArray]) -> list[str]:
    undefined = [s for c, s in SYMBOLS.items() if np.isnan(columns[c]).any()]
    outside = [s for c, s in SYMBOLS.items() if ((columns[c] < 0.0) | (columns[c] > 1.0)).any()]
    universe = columns["universe_var"][0]
    notes = []
    if universe == 0:
        notes.append(
            f"The universe-score variance σ²({plan.object}) is 0: these data do not "
            f"distinguish {display.levels_of(plan.object)}, whatever the size of the test."
        )
    if undefined:
        notes.append(
            f"{' and '.join(undefined)} {'is' if len(undefined) == 1 else 'are'} not defined "
            "(nan) where universe-score and error variance do not add up to more than zero."
        )
    if outside:
        notes.append(
            f"{' and '.join(outside)}: not between 0 and 1 where negative components make "
            'universe-score or error variance negative; negative="zero" replaces them by 0.'
        )
    return notes


def _equal_sizes(components: VarianceComponents, plan: DStudyPlan) -> bool:
    exact = weights(components, plan).absolute
    nominal = weights(components, replace(plan, inverse_n=None)).absolute
    return bool(np.allclose(exact, nominal, rtol=1e-9, atol=0))
