"""The D-study as a picture: what of it goes on which axis, and how many sizes a curve needs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import plots
from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError
from vcomp.formula import REPLICATE
from vcomp.gtheory.phi_lambda import check_mean
from vcomp.gtheory.requirement import SYMBOLS
from vcomp.plots import Required

if TYPE_CHECKING:
    from vcomp.gtheory.plan import DStudyPlan
    from vcomp.gtheory.study import DStudy
    from vcomp.inference.intervals import IntervalSource

__all__ = [
    "draw",
    "draw_phi_lambda",
]


_POINTS = 100
"""Points of a curve: more cannot be seen."""

_REACH = 4.0
"""A required size up to this many times the largest planned one is still shown."""


def draw(
    study: DStudy,
    x: str | None,
    coefficient: str | Sequence[str],
    ax: Any | None,
    target: float | None,
) -> Any:
    """Return the axes on which a D-study is drawn; see :meth:`DStudy.plot`.

    Parameters
    ----------
    study : to draw
    x : facet on the horizontal axis, or None
    coefficient : one or several
    ax : matplotlib axes, or None
    target : of the coefficients, or None
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
    required = None if target is None else _required(study, facet, others, chosen, target)
    return plots.dstudy(
        study.table,
        facet,
        others,
        coefficients=chosen,
        curves=_curves(study, facet, required or {}),
        target=target,
        required=required,
        alpha=study.alpha,
        xlabel=_label(plan, facet, others),
        ax=ax,
    )


def draw_phi_lambda(study: DStudy, cut: Any, ax: Any | None) -> Any:
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
    table = study.phi_lambda(cut)
    sizes = study.sizes_table()
    labels = study.plan.labels or [_sized(row) for row in sizes.to_dict("records")]
    n = len(table) // len(labels)
    curves = {name: table.iloc[k * n : (k + 1) * n] for k, name in enumerate(labels)}
    return plots.cut_scores(curves, mean=mean, alpha=study.alpha, ax=ax)


def _sized(sizes: Mapping[Any, float]) -> str:
    from vcomp import display
    from vcomp.plots import escaped

    return ", ".join(f"{escaped(f)} = {display.count(n)}" for f, n in sizes.items())


def _horizontal(plan: DStudyPlan, x: str | None) -> str:
    """Return the facet that is given, or else the one of which most sizes are planned."""
    if not plan.facets:
        raise PlanError("there is no size to draw: the D-study has no facet but its object")
    if x is None:
        named = [f for f in plan.facets if f != REPLICATE] or list(plan.facets)
        return max(named, key=lambda f: len(set(_sizes(plan, f))))
    if x not in plan.facets:
        raise PlanError(f"{x!r} has no size in this D-study; x= is one of {list(plan.facets)}")
    return x


def _sizes(plan: DStudyPlan, facet: str) -> list[float]:
    column = plan.facets.index(facet)
    return [float(n) for n in plan.sizes[:, column]]


def _required(
    study: DStudy, facet: str, others: Sequence[str], chosen: Sequence[str], target: float
) -> Mapping[tuple[str, tuple[float, ...]], Required]:
    """Return what the target needs at every combination of the other facets' sizes."""
    columns = [study.plan.facets.index(f) for f in others]
    first = {tuple(row[columns].tolist()): row for row in study.plan.sizes[::-1]}
    found = {}
    for (sizes, row), name in itertools.product(first.items(), chosen):
        alone = replace(study, plan=replace(study.plan, sizes=row[None, :]))
        needs = alone.required(target, name, facet)
        found[name, sizes] = Required(needs.n, needs.low, needs.high)
    return found


def _curves(study: DStudy, facet: str, required: Mapping[Any, Required]) -> Any:
    """Return the D-study at so many sizes of a facet that its line is smooth."""
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
        return _again(study, dense, study.source).table
    # A profile takes many maximisations: there are intervals at the planned sizes alone.
    table = _again(study, dense, None).table
    ends = [f"{name}_{end}" for name in SYMBOLS for end in ("low", "high")]
    return table.assign(**dict.fromkeys(ends, math.nan))


def _again(study: DStudy, plan: DStudyPlan, source: IntervalSource | None) -> DStudy:
    from vcomp.gtheory.conduct import project

    return project(
        study.components, plan, alpha=study.alpha, negative=study.negative, source=source
    )


def _fine(planned: FloatArray, required: Sequence[float], largest: float) -> FloatArray:
    """Return sizes from the smallest to the largest that are shown, below a finite universe's."""
    low, high = planned.min(), planned.max()
    if low == high:
        low, high = min(low, max(1.0, low / 4.0)), 2.0 * high
    near = [n for n in required if math.isfinite(n) and n <= _REACH * high]
    low, high = min([low, *near]), max([high, *near])
    fine = np.geomspace(low, high, _POINTS)
    return np.union1d(fine[fine < largest], planned)


def _label(plan: DStudyPlan, facet: str, others: Sequence[str]) -> str:
    from vcomp import display
    from vcomp.plots import escaped

    label = f"levels of {escaped(facet)}"
    if facet == REPLICATE:
        label = "scores in each cell"
    elif above := [f for f in plan.design.facets if f in plan.design.nested_in[facet]]:
        label += f" in each {' and '.join(map(escaped, above))}"
    constant = {f: set(_sizes(plan, f)) for f in others}
    held = [f"{escaped(f)} = {display.count(s.pop())}" for f, s in constant.items() if len(s) == 1]
    return f"{label}  (with {', '.join(held)})" if held else label
