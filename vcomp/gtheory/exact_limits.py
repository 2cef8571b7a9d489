"""Intervals of Eρ² and Φ from F quantiles, of the plans that the mean squares speak about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.formula import REPLICATE
from vcomp.gtheory.plan import DStudyPlan
from vcomp.inference import Quantities, TwoWayMeanSquares, VarianceComponents
from vcomp.inference.intervals import (
    ARTEAGA,
    FELDT,
    IntervalSource,
    Limits,
    arteaga_interval,
    erho2_of,
    feldt_interval,
    phi_of,
)

__all__ = [
    "FLimits",
    "combined_limits",
    "f_interval",
    "planned_limits",
    "two_way_plans",
    "two_way_table",
]


def two_way_table(components: VarianceComponents, plan: DStudyPlan) -> TwoWayMeanSquares | None:
    """Return the mean squares that give intervals from F quantiles, or None.

    They do when the G-study is a complete two-way table with both main effects in the model, and
    the D-study crosses the same two facets.

    Parameters
    ----------
    components : of the G-study
    plan : of the D-study

    Examples
    --------
    >>> from vcomp.gtheory import from_components, make_plans
    >>> g = from_components({"p": 2.0, "i": 1.0, "Residual": 4.0}).components
    >>> two_way_table(g, make_plans(g, n={"i": 10})) is None
    True
    """
    table = components.mean_squares
    if not plan.universe.is_infinite or len(plan.objects) > 1 or plan.labels is not None:
        return None
    if table is None or min(table.n_rows, table.n_columns) < 2:
        return None
    facets = [f for f in plan.design.facets if f != REPLICATE]
    if {table.rows, table.columns} != set(facets) or any(plan.design.nested_in[f] for f in facets):
        return None
    if any(frozenset({f}) not in components.facets for f in facets):
        return None
    # without residual or without any differences F has no meaning
    if not (table.ms_residual > 0 and table.ms_rows > 0 and table.ms_columns > 0):
        return None
    return table.oriented(plan.object)


def two_way_plans(table: TwoWayMeanSquares | None, plan: DStudyPlan) -> BoolArray:
    """Return which plans the mean squares speak about: those with as many replicates.

    Parameters
    ----------
    table : of :func:`two_way_table`
    plan : of the D-study

    Examples
    --------
    >>> from vcomp.gtheory import from_components, make_plans
    >>> g = from_components({"p": 2.0, "i": 1.0, "Residual": 4.0}).components
    >>> two_way_plans(None, make_plans(g, n={"i": [10, 20]}))
    array([False, False])
    """
    if table is None:
        return np.zeros(len(plan), dtype=bool)
    if REPLICATE not in plan.facets:
        return np.ones(len(plan), dtype=bool)
    replicates = plan.sizes[:, plan.facets.index(REPLICATE)]
    return np.asarray(replicates == table.n_replicates)


@dataclass(frozen=True, slots=True)
class FLimits:
    """Intervals from F quantiles of the plans that the mean squares speak about."""

    low: FloatArray
    high: FloatArray
    interval_method: str
    spoken: BoolArray
    n_replicates: int


def planned_limits(
    name: str,
    q: Quantities,
    components: VarianceComponents,
    plan: DStudyPlan,
    source: IntervalSource,
    alpha: float,
) -> Limits:
    """Return intervals of what a D-study projects: from F quantiles where they can be.

    Parameters
    ----------
    name : of the quantity, see :data:`~vcomp.gtheory.projection.PLANNED`
    q : the quantity in every plan
    components : of the G-study
    plan : of the D-study
    source : of all other intervals
    alpha : intervals have confidence 1 − alpha
    """
    by_f = f_interval(name, components, plan, alpha, source.interval)
    if by_f is not None and by_f.spoken.all():
        return Limits(by_f.low, by_f.high, by_f.interval_method)
    return combined_limits(source.limits(q, alpha), by_f)


def f_interval(
    name: str, components: VarianceComponents, plan: DStudyPlan, alpha: float, interval: str
) -> FLimits | None:
    """Return the intervals of Eρ² or Φ that a complete two-way table gives from F quantiles.

    Parameters
    ----------
    name : of the quantity; none but Eρ² and Φ has these
    components : of the G-study
    plan : of the D-study
    alpha : intervals have confidence 1 − alpha
    interval : that was requested; only ``"auto"`` and ``"f"`` use these
    """
    asked = name in _F_INTERVALS and interval in ("auto", "f")
    table = two_way_table(components, plan) if asked else None
    spoken = two_way_plans(table, plan)
    # Below zero both limits may be; other intervals go on from there.
    if table is None or not spoken.any() or table.ms_rows <= table.ms_residual:
        return None
    limits_of, of, words = _F_INTERVALS[name]
    n = plan.sizes[:, plan.facets.index(table.columns)]
    low, high = (of(end, n) for end in limits_of(table, alpha))
    return FLimits(low, high, words, spoken, table.n_replicates)


_F_INTERVALS: dict[str, tuple[Any, Any, str]] = {
    "Erho2": (feldt_interval, erho2_of, FELDT),
    "Phi": (arteaga_interval, phi_of, ARTEAGA),
}


def combined_limits(other: Limits, by_f: FLimits | None) -> Limits:
    """Return F intervals where there are any, else the others.

    Parameters
    ----------
    other : of all plans
    by_f : of some of them, or None
    """
    if by_f is None:
        return other
    spoken = by_f.spoken
    low = np.where(spoken, by_f.low, other.low)
    high = np.where(spoken, by_f.high, other.high)
    mixed = bool((~spoken & np.isfinite(other.low)).any())
    where = (
        f" where {REPLICATE} = {by_f.n_replicates}, else {other.interval_method}" if mixed else ""
    )
    return Limits(low, high, by_f.interval_method + where, other.notes)
