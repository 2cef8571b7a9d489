"""Designs whose terms are orthogonal: every order of adjustment is the same there.

Where facets are fully crossed with everything and the rest is nested, the projectors on the spaces
of the terms commute, and the product of two is the projector on the term that both are finer than.
If that term is in the model (or is the mean) for every pair, adjusting a term for others takes
away exactly those that it is finer than: Type I and Henderson's Method III are then his Method I,
which needs sums over groups only (Tjur 1984, Analysis of variance models in orthogonal designs).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from vcomp.estimators.anova import ANOVA, AnovaTable, anova_table
from vcomp.estimators.closed_form import fixed_effects, no_variance, point_of
from vcomp.estimators.estimate import Estimate, Point
from vcomp.statistics import Statistics, StratumStatistics

__all__ = ["orthogonal_estimate", "orthogonal_point", "orthogonal_table"]


def orthogonal_table(stats: Statistics, names: tuple[str, ...]) -> AnovaTable | None:
    """Return the analysis of variance of a design with orthogonal terms, None if they are not.

    None too where no degrees of freedom are left for the residual.
    """
    if stats.strata is None or not _is_orthogonal(stats.strata):
        return None
    table = anova_table(stats.group_sums, names)
    return table if (table.df > 0).all() else None


def orthogonal_estimate(method: str, stats: Statistics, names: tuple[str, ...]) -> Estimate:
    """Return Method I's estimates under another name, with generalised least squares.

    Parameters
    ----------
    method : name of the method
    stats : sums of a design with orthogonal terms
    names : components, the residual last
    """
    nothing = no_variance(method, stats, names)
    if nothing is not None:
        return nothing
    estimate = ANOVA().estimate(stats, names)
    fixed = fixed_effects(stats, estimate.values)
    return replace(
        estimate,
        method=method,
        beta=fixed.beta,
        cov_beta=fixed.cov_beta,
        status=estimate.status + fixed.doubt,
        fixed_errors=fixed.errors,
        engine="closed form: sums of squares of orthogonal terms, in any order the same",
    )


def orthogonal_point(stats: Statistics, names: tuple[str, ...]) -> Point:
    """Return the same components with fixed effects, without the work of standard errors."""
    return point_of(stats, ANOVA().point(stats, names).values)


def _is_orthogonal(strata: StratumStatistics) -> bool:
    if strata.remainder.parents is None or not _is_mean_only(strata):
        return False
    terms = set(zip(strata.term_axes, strata.term_groupings, strict=True))
    mean: tuple[frozenset[int], int] = (frozenset(), 0)
    # Groupings are nested in each other, the coarsest first.
    return all((a & b, min(g, h)) in terms | {mean} for (a, g), (b, h) in combinations(terms, 2))


def _is_mean_only(strata: StratumStatistics) -> bool:
    """Whether the fixed part is one constant column."""
    if strata.n_fixed != 1:
        return False
    (means,) = [s for s in strata.strata if not s.contrasts]
    if any(s.fixed for s in strata.strata if s.contrasts):
        return False
    if means.fixed != (0,) or means.columns.within[1, 1] != 0.0:
        return False
    return all(bool(np.ptp(table[:, 1]) == 0.0) for table in means.columns.means)
