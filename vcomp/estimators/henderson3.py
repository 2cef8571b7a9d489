"""Henderson's Method III: every term adjusted for all others that do not contain it.

SS_t = R(F_t, t) − R(F_t), all terms as fixed, where F_t holds the fixed part and every other term
except those that are finer than t: a term whose groups lie within those of t explains all that t
does, and nothing would be left. In an additive model that is R(full) − R(full without t), each
term last (Henderson 1953); with nested and interaction terms it is the rule of marginality, SAS's
Type II sums of squares. The residual is that of the full model.

In contrast to Type I nothing depends on the order of the terms.
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

__all__ = ["Henderson3", "adjusted", "henderson3_table"]

_ADVICE = "the others explain all that it does; use method='reml', or leave out a term"


@dataclass(frozen=True, slots=True)
class Henderson3:
    """Analysis of variance with every term adjusted for the others; takes any fixed part."""

    name: ClassVar[str] = "henderson3"

    def estimate(self, stats: Statistics, names: tuple[str, ...]) -> Estimate:
        """Return the estimate from the statistics alone; components may be negative.

        Raises
        ------
        EstimationError
            If nothing is left of a term after the others, or nothing for the residual; or if that
            cannot be computed in memory.
        """
        if orthogonal_table(stats, names) is not None:
            return orthogonal_estimate("henderson3", stats, names)
        reductions = adjusted(stats.cross_products)
        reductions.refuse_nothing_left(names, _ADVICE)
        return estimate_from("henderson3", stats, reductions, names)

    def point(self, stats: Statistics, names: tuple[str, ...]) -> Point:
        """Return components and fixed effects alone, without the work of their standard errors.

        Raises
        ------
        EstimationError
            As :meth:`estimate`.
        """
        if orthogonal_table(stats, names) is not None:
            return orthogonal_point(stats, names)
        reductions = adjusted(stats.cross_products)
        reductions.refuse_nothing_left(names, _ADVICE)
        return point_from(stats, reductions)


def henderson3_table(stats: Statistics, names: tuple[str, ...]) -> AnovaTable:
    """Return the analysis of variance with every term adjusted for those not finer than it.

    Its sums of squares need not add up to the total.
    """
    return orthogonal_table(stats, names) or adjusted(stats.cross_products).table(names)


def adjusted(stats: CrossProducts) -> Reductions:
    """Return the reductions with every term adjusted for those that are not finer than it."""
    terms = range(stats.n_terms)
    return Reductions(
        stats,
        [Adjustment(t, frozenset(u for u in terms if not stats.is_finer(u, t))) for t in terms],
    )
