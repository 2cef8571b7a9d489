"""Views of a D-study: tables of quantities, Φ(λ) and effects, the summary, pictures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display, plots
from vcomp._typing import FloatArray
from vcomp.display import SYMBOLS
from vcomp.exceptions import PlanError, check_known, is_whole
from vcomp.formula import REPLICATE
from vcomp.gtheory.plan import DStudyPlan
from vcomp.gtheory.projection import (
    PLANNED,
    composition,
    planned_limits,
    planned_quantity,
    quantities,
    weights,
)
from vcomp.gtheory.requirement import (
    NO_MEAN,
    check_mean,
    mean_in_universe,
    not_below_phi,
    phi_lambda,
    read_cuts,
    source_in_universe,
)
from vcomp.gtheory.study_record import (
    StudyRecord,
    of_other_plan,
    requirement_of,
    sizes_table,
    study_table,
)
from vcomp.inference import VarianceComponents, used_components
from vcomp.inference.intervals import FromComponents, note_on_scores, unbiased_covariance

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.plots import Required

# Tables -----------------------------------------------------------------------------------------


def quantity_table(study: StudyRecord, what: str, se: str) -> pd.DataFrame:
    """Return one quantity of every plan; see :meth:`DStudy.quantity`.

    Parameters
    ----------
    study : the D-study
    what : name of the quantity
    se : ``"delta"`` or ``"unbiased"``
    """
    check_known(what, PLANNED, "unknown quantity {}; a D-study has")
    q = study.projected(what)
    if se not in ("delta", "unbiased"):
        raise PlanError(f"se is 'delta' or 'unbiased', not {se!r}")
    local = FromComponents.beside(study.source, study.components, study.negative)
    if se == "unbiased":
        cov = _unbiased(study.components)
        components = replace(study.components, cov=cov, without_bounds=None)
        local = FromComponents(components, "mls", study.negative)
    limits = planned_limits(what, q, study.components, study.plan, study.source, study.alpha)
    estimates = {
        "estimate": local.values(q),
        "se": local.standard_errors(q),
        "low": limits.low,
        "high": limits.high,
    }
    return sizes_table(study.plan, estimates)


def _unbiased(components: VarianceComponents) -> FloatArray:
    covariance = unbiased_covariance(components)
    if covariance is None:
        raise PlanError(
            "unbiased standard errors need the covariance matrix of the components, which is not "
            "known"
        )
    return covariance


def phi_lambda_table(study: StudyRecord, cut: Any) -> pd.DataFrame:
    """Return Φ(λ) of every plan and cut score; see :meth:`DStudy.phi_lambda`.

    Parameters
    ----------
    study : the D-study
    cut : λ, one or several
    """
    cuts, mean = read_cuts(cut), study.mean or NO_MEAN
    w = weights(study.components, study.plan)
    local = FromComponents.beside(study.source, study.components, study.negative)
    of_components = isinstance(study.source, FromComponents)
    phi = planned_quantity(w, "Phi")
    # Replicates and likelihoods give Φ and Φ(λ) alike.
    of_phi = None
    if of_components:
        of_phi = planned_limits("Phi", phi, study.components, study.plan, local, study.alpha)
    rows = []
    for plan in range(len(study.plan)):
        this = slice(plan, plan + 1)
        universe_mean = mean_in_universe(mean, study.components, study.plan, plan)
        local = replace(local, beta=universe_mean.beta, cov_beta=universe_mean.cov_beta)
        source = source_in_universe(study.source, mean, study.components, study.plan, plan)
        source = local if of_components else source
        for one in cuts:
            index = phi_lambda(w.universe[plan], w.absolute[plan], universe_mean, one)
            limits = source.limits(index, study.alpha)
            if of_phi is not None:
                least = replace(of_phi, low=of_phi.low[this], high=of_phi.high[this])
                limits = not_below_phi(limits, index, phi.take(this), least, local)
            ends = (float(limits.low[0]), float(limits.high[0]))
            rows.append(
                (one, float(local.values(index)[0]), float(local.standard_errors(index)[0]), *ends)
            )
    columns = ("cut", "estimate", "se", "low", "high")
    values = dict(zip(columns, zip(*rows, strict=True), strict=True))
    return sizes_table(study.plan, values, len(cuts))


def effects_table(study: StudyRecord, row: int) -> pd.DataFrame:
    """Return one row per effect of one plan; see :meth:`DStudy.effects`.

    Parameters
    ----------
    study : the D-study
    row : number of the plan

    Raises
    ------
    PlanError
        If there is no such plan.

    References
    ----------
    Brennan (2001), Generalizability Theory, Tables 4.1 to 4.3: D-study variance components and
    the error variances and universe-score variance that they belong to.
    """
    import pandas as pd

    components, plan = study.components, study.plan
    if not is_whole(row) or not 0 <= row < len(plan):
        raise PlanError(f"there is no plan {row!r}: they are 0 to {len(plan) - 1}")
    roles, w = composition(components, plan), weights(components, plan)
    values = used_components(components, study.negative).values
    inverse = 1.0 / plan.sizes[row]
    rows = []
    place = {facet: k for k, facet in enumerate(plan.design.facets)}
    for effect in sorted(set(roles.effects), key=lambda e: (len(e), sorted(place[f] for f in e))):
        parts = np.array([e == effect for e in roles.effects])
        contributions = np.where(parts, values, 0.0)
        divides = roles.divides[parts][0]
        exact = None if plan.inverse_n is None else plan.inverse_n[row]
        n = 1.0 / (inverse[divides].prod() if exact is None else exact[parts][0])
        rows.append(
            {
                "effect": ":".join(f for f in plan.design.facets if f in effect),
                "components": " + ".join(
                    name for name, part in zip(components.names, parts, strict=True) if part
                ),
                "variance": float(contributions.sum()),
                "n": n,
                "universe_var": float(w.universe[row] @ contributions),
                "rel_err_var": float(w.relative[row] @ contributions),
                "abs_err_var": float(w.absolute[row] @ contributions),
            }
        )
    return pd.DataFrame(rows).set_index("effect")


# Summary ----------------------------------------------------------------------------------------


def summary(study: StudyRecord) -> Any:
    """Return a summary: plans with their coefficients, and the required sizes.

    Parameters
    ----------
    study : to print

    Returns
    -------
    statsmodels.iolib.summary.Summary

    Examples
    --------
    >>> from vcomp.gtheory import from_components
    >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=[10, 20])
    >>> print(str(summary(study)).splitlines()[0])
    D-study p × i; object of measurement: p
    """
    columns, confidence = study.columns, display.level(study.alpha)
    cells: dict[str, list[str]] = {}
    if study.plan.labels is not None:
        cells[""] = list(study.plan.labels)
    for facet, sizes in zip(study.plan.facets, study.plan.sizes.T, strict=True):
        cells[facet] = [display.count(n) for n in sizes]
    for name, symbol in SYMBOLS.items():
        cells[symbol] = [display.coefficient(c) for c in columns[name]]
        ends = zip(columns[f"{name}_low"], columns[f"{name}_high"], strict=True)
        intervals = [display.coefficient_interval(low, high) for low, high in ends]
        if any(intervals):
            # headers are keys: an extra space distinguishes those of Eρ² and Φ
            cells[f"{confidence} interval" + " " * (name == "Phi")] = intervals
    for symbol, name in (("σ²(δ)", "rel_err_var"), ("σ²(Δ)", "abs_err_var")):
        cells[symbol] = display.fixed(columns[name], significant=3)
    design = str(study.plan.design).replace(" x ", " × ")
    table = display.column_table(
        cells,
        title=f"D-study {design}; object of measurement: {study.plan.object}",
    )
    tables = [table, *_table_of_levels(study)]
    return display.summary(tables, [*_explanations(study), *study.notes])


_LEVELS_SHOWN = 20
"""Largest number of levels with a residual variance each that a summary shows."""


def _table_of_levels(study: StudyRecord) -> list[Any]:
    """Return the table of the errors at each level that has a residual variance of its own."""
    groups = None if study.residuals is None else study.residuals.groups
    if study.residuals is None or groups is None or len(groups.n) > _LEVELS_SHOWN:
        return []
    plan, columns = study.plan, []
    for level in range(len(groups.n)):
        own = study.residuals.with_one_residual(level)
        values = used_components(own, study.negative).values
        found = quantities(weights(own, plan))
        columns.append({name: q.values(values) for name, q in found.items()})
    cells = {groups.written: [label for label in groups.labels for _ in range(len(plan))]}
    for facet, sizes in zip(plan.facets, plan.sizes.T, strict=True):
        cells[facet + " " * (facet in cells)] = [display.count(n) for n in sizes] * len(columns)
    for name, symbol in SYMBOLS.items():
        cells[symbol] = [display.coefficient(c) for own in columns for c in own[name]]
    for symbol, name in (("√σ²(δ)", "rel_err_var"), ("√σ²(Δ)", "abs_err_var")):
        errors = np.sqrt(np.concatenate([own[name] for own in columns]))
        cells[symbol] = display.fixed(errors, significant=3)
    return [display.column_table(cells, title=f"By residual variance of {groups.written}")]


def _universe_name(study: StudyRecord) -> str:
    """Return the object of measurement with fixed facets as its condition: ``p | o``."""
    given = [f for f in study.plan.facets if f in study.plan.universe.fixed]
    return " | ".join([study.plan.object, ", ".join(given)] if given else [study.plan.object])


def _generalized(study: StudyRecord) -> list[str]:
    """Return notes on fixed facets, finite universes and restricted comparisons."""
    space, facets = study.plan.universe, study.plan.facets
    lines = []
    fixed = [f for f in facets if f in space.fixed]
    if fixed:
        lines.append(f"Fixed: the universe has only the planned levels of {' and '.join(fixed)}.")
    lines += [
        f"The universe of {facet} has {display.count(size)} levels."
        for facet, size in space.sizes.items()
    ]
    if space.within:
        inside = " and ".join(f for f in study.plan.design.facets if f in space.within)
        lines.append(f"Objects are compared within the levels of {inside}.")
    return lines


def _explanations(study: StudyRecord) -> list[str]:
    objects = display.plural(study.plan.object)
    variances = np.unique(study.columns["universe_var"])
    universe = " to ".join(display.number(float(v)) for v in variances[[0, -1][: variances.size]])
    lines = [
        f"Eρ²: how reliable differences between {objects} are (error variance σ²(δ)).",
        f"Φ: how reliable absolute scores of {objects} are (error variance σ²(Δ)).",
        f"Universe-score variance σ²({_universe_name(study)}) = {universe}.",
        *_generalized(study),
    ]
    methods = study.interval_methods
    known = {methods[c]: s for c, s in SYMBOLS.items() if c in methods}
    if known:
        how = [m if len(known) == 1 else f"{s} {m}" for m, s in known.items()]
        lines.append(f"{display.level(study.alpha)} intervals: {'; '.join(how)}.")
    lines += note_on_scores(study.components.response_values, known)
    named = [f for f in study.plan.facets if f not in {REPLICATE, *study.plan.universe.fixed}]
    if len(named) == 1 and study.columns["universe_var"][0] > 0:
        lines += [
            str(requirement_of(study, 0.95, "Erho2", named[0])),
            str(requirement_of(study, 0.95, "Phi", named[0])),
        ]
    return lines


# Pictures ---------------------------------------------------------------------------------------


_POINTS = 100
"""Number of points of a curve; more would not be visible."""


def draw(
    study: StudyRecord,
    x: str | None,
    coefficient: str | Sequence[str],
    ax: Any | None,
    goal: float | None,
) -> Any:
    """Return the axes on which a D-study is drawn; see :meth:`DStudy.plot`.

    Parameters
    ----------
    study : to draw
    x : facet on the horizontal axis, or None
    coefficient : one or several
    ax : matplotlib axes, or None
    goal : of the coefficients, or None
    """
    several = not isinstance(coefficient, str) and isinstance(coefficient, Iterable)
    chosen = tuple(coefficient) if several else (str(coefficient),)
    unknown = [c for c in chosen if c not in list(SYMBOLS)]
    if unknown or not chosen:
        given = repr(unknown[0]) if unknown else "none"
        raise PlanError(f"coefficient is 'Erho2', 'Phi' or both, not {given}")
    plan = study.plan
    facet = _horizontal(plan, x)
    others = [f for f in plan.facets if f != facet]
    required = None if goal is None else _required(study, facet, others, chosen, goal)
    return plots.dstudy(
        study_table(study),
        facet,
        others,
        coefficients=chosen,
        curves=_curves(study, facet, required or {}),
        goal=goal,
        required=required,
        alpha=study.alpha,
        xlabel=_label(plan, facet, others),
        ax=ax,
    )


def draw_phi_lambda(study: StudyRecord, cut: Any, ax: Any | None) -> Any:
    """Return the axes on which Φ(λ) is drawn; see :meth:`DStudy.plot_phi_lambda`.

    Parameters
    ----------
    study : to draw
    cut : scores λ, or None
    ax : matplotlib axes, or None
    """
    scores = check_mean(study.mean)
    mean = float(scores.beta[0])
    if cut is None:
        spread = 3.0 * math.sqrt(max(float(study.columns["universe_var"].max()), 0.0))
        cut = np.linspace(mean - spread, mean + spread, _POINTS)
    table = phi_lambda_table(study, cut)
    sizes = sizes_table(study.plan)
    labels = study.plan.labels or [_sized(row) for row in sizes.to_dict("records")]
    n = len(table) // len(labels)
    curves = {name: table.iloc[k * n : (k + 1) * n] for k, name in enumerate(labels)}
    return plots.cut_scores(curves, mean=mean, alpha=study.alpha, ax=ax)


def _sized(sizes: Mapping[Any, float]) -> str:
    return ", ".join(f"{plots.escaped(f)} = {display.count(n)}" for f, n in sizes.items())


def _horizontal(plan: DStudyPlan, x: str | None) -> str:
    """Return the given facet, or that with the most planned sizes."""
    if not plan.facets:
        raise PlanError("there is no size to draw: the D-study has no facet but its object")
    if x is None:
        named = [f for f in plan.facets if f != REPLICATE] or list(plan.facets)
        return max(named, key=lambda f: len(set(_sizes(plan, f))))
    if x not in plan.facets:
        raise PlanError(
            f"{x!r} has no size in this D-study; x= is one of {list(plan.facets)}", column=x
        )
    return x


def _sizes(plan: DStudyPlan, facet: str) -> list[float]:
    column = plan.facets.index(facet)
    return [float(n) for n in plan.sizes[:, column]]


def _required(
    study: StudyRecord, facet: str, others: Sequence[str], chosen: Sequence[str], goal: float
) -> Mapping[tuple[str, tuple[float, ...]], Required]:
    """Return the sizes that reach the goal at every combination of the other facets' sizes."""
    columns = [study.plan.facets.index(f) for f in others]
    first = {tuple(row[columns].tolist()): row for row in study.plan.sizes[::-1]}
    required = {}
    for (sizes, row), name in itertools.product(first.items(), chosen):
        one = replace(study.plan, sizes=row[None, :])
        needs = requirement_of(study, goal, name, facet, one)
        required[name, sizes] = plots.Required(needs.n, needs.low, needs.high)
    return required


def _curves(study: StudyRecord, facet: str, required: Mapping[Any, Required]) -> Any:
    """Return the D-study at enough sizes of a facet for a smooth line."""
    plan = study.plan
    if plan.inverse_n is not None:
        return None  # the G-study's own effective sizes belong together: there is no other size
    column = plan.facets.index(facet)
    largest = plan.universe.sizes.get(facet, math.inf)
    fine = _fine(np.array(_sizes(plan, facet)), [r.n for r in required.values()], largest)
    sizes = np.repeat(plan.sizes, fine.size, axis=0)
    sizes[:, column] = np.tile(fine, len(plan))
    dense = replace(plan, sizes=np.unique(sizes, axis=0))
    if study.source.interval != "profile":
        return study_table(of_other_plan(study, dense, study.source))
    # A profile needs many maximisations, so only the planned sizes have intervals.
    table = study_table(of_other_plan(study, dense, None))
    ends = [f"{name}_{end}" for name in SYMBOLS for end in ("low", "high")]
    return table.assign(**dict.fromkeys(ends, math.nan))


def _fine(planned: FloatArray, required: Sequence[float], largest: float) -> FloatArray:
    """Return sizes from the smallest to the largest shown, limited by a finite universe."""
    low, high = planned.min(), planned.max()
    if low == high:
        low, high = min(low, max(1.0, low / 4.0)), 2.0 * high
    # Required sizes up to this many times the largest planned one are shown
    near = [n for n in required if math.isfinite(n) and n <= 4.0 * high]
    low, high = min([low, *near]), max([high, *near])
    fine = np.geomspace(low, high, _POINTS)
    return np.union1d(fine[fine < largest], planned)


def _label(plan: DStudyPlan, facet: str, others: Sequence[str]) -> str:
    label = plots.escaped(display.levels_of(facet))
    if facet == REPLICATE:
        label = "scores in each cell"
    elif above := [f for f in plan.design.facets if f in plan.design.nested_in[facet]]:
        label += f" in each {' and '.join(map(plots.escaped, above))}"
    constant = {f: set(_sizes(plan, f)) for f in others}
    held = [
        f"{plots.escaped(f)} = {display.count(s.pop())}"
        for f, s in constant.items()
        if len(s) == 1
    ]
    return f"{label}  (with {', '.join(held)})" if held else label
