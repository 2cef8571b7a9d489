"""Type I: sequential sums of squares in the order of the formula, after the fixed part.

Each term is adjusted for the fixed part and for the terms before it, all of them as fixed, and the
expected mean squares come by synthesis (Hartley 1967; Goodnight & Speed 1978): what R's VCA and
SAS's TYPE1 do. Where data are not balanced the order matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vcomp.estimators.anova import AnovaTable
from vcomp.estimators.closed_form import estimate_from, point_from
from vcomp.estimators.estimate import Estimate, Point
from vcomp.estimators.orthogonal import orthogonal_estimate, orthogonal_point, orthogonal_table
from vcomp.estimators.reductions import Adjustment, Reductions
from vcomp.statistics import CrossProducts, Statistics

__all__ = ["Type1", "type1_table"]

_ADVICE = (
    "with method='type1' the order of the formula decides; write coarser terms before finer ones, "
    "or use method='reml'"
)


@dataclass(frozen=True, slots=True)
class Type1:
    """Analysis of variance by sequential sums of squares; takes any fixed part."""

    name: ClassVar[str] = "type1"

    def estimate(self, stats: Statistics, names: tuple[str, ...]) -> Estimate:
        """Return the estimate from the statistics alone; components may be negative.

        Raises
        ------
        EstimationError
            If nothing is left of a term after those before it, or nothing for the residual; or if
            that cannot be computed in memory.
        """
        if _is_coarser_first(stats) and orthogonal_table(stats, names) is not None:
            return orthogonal_estimate("type1", stats, names)
        reductions = _sequential(stats.cross_products)
        reductions.refuse_nothing_left(names, _ADVICE)
        return estimate_from("type1", stats, reductions, names)

    def point(self, stats: Statistics, names: tuple[str, ...]) -> Point:
        """Return components and fixed effects alone, without the work of their standard errors.

        Raises
        ------
        EstimationError
            As :meth:`estimate`.
        """
        if _is_coarser_first(stats) and orthogonal_table(stats, names) is not None:
            return orthogonal_point(stats, names)
        reductions = _sequential(stats.cross_products)
        reductions.refuse_nothing_left(names, _ADVICE)
        return point_from(stats, reductions)


def type1_table(stats: Statistics, names: tuple[str, ...]) -> AnovaTable:
    """Return the sequential analysis of variance in the order of the terms."""
    table = orthogonal_table(stats, names) if _is_coarser_first(stats) else None
    return table or _sequential(stats.cross_products).table(names)


def _is_coarser_first(stats: Statistics) -> bool:
    """Whether no term comes after a finer one, as far as strata say it."""
    strata, terms = stats.strata, range(stats.n_terms)
    return strata is not None and not any(
        strata.is_finer(before, t) for t in terms for before in range(t)
    )


def _sequential(stats: CrossProducts) -> Reductions:
    return Reductions(stats, [Adjustment(t, frozenset(range(t))) for t in range(stats.n_terms)])
