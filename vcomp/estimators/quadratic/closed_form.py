"""Type I and Henderson's Method III, and the fixed effects of all closed-form estimators.

Sums of squares are equated to their expectations (docs/explanation/mathematics.md, eqs. (2.9) to
(2.11)); fixed effects follow by generalised least squares at the estimated components, which may
be negative ones that were kept, as by SAS with NOBOUND; or there are many responses of the same
rows, each with its own components.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.estimate import Estimate, FixedErrors, PointEstimate, Points, below_zero
from vcomp.estimators.likelihood import choose_engine, errors_of_fixed, least_squares
from vcomp.estimators.quadratic.anova import (
    ANOVA,
    AnovaTable,
    adjustment,
    anova_table,
    henderson1,
    without_rounding,
)
from vcomp.estimators.quadratic.quadratic_forms import TooLargeError, stratum_quadratic_covariance
from vcomp.estimators.quadratic.reductions import (
    REDUCTION_LIMITS,
    Adjustment,
    ReductionLimits,
    Reductions,
)
from vcomp.estimators.quadratic.sampling import exact_sampling
from vcomp.exceptions import EstimationError
from vcomp.numerics import covariance_of_solution, slices, solve, solve_positive
from vcomp.numerics.sparse import conjugate_gradients
from vcomp.statistics import CrossProducts, Statistics, StratumStatistics

_EXACT_FIT = 1e-13
"""A residual sum of squares below this fraction of y'y is rounding error: X reproduces y."""

DIFFERENCES = 1e-14
"""Share of the largest component below which a residual from differences is rounding error."""

_TOGETHER = 4
"""Smallest number of responses whose fixed effects are solved for together."""

_NO_RESIDUAL = 1e-12
"""A residual below this fraction of the largest component is rounding error: V is singular."""


def estimate_from(
    method: str, stats: Statistics, reductions: Reductions, names: tuple[str, ...]
) -> Estimate:
    """Return the estimate that equates sums of squares to their expectations, eq. (2.10).

    Parameters
    ----------
    method : name of the method
    stats : sums of the data
    reductions : sums of squares, all with degrees of freedom
    names : components, the residual last
    """
    nothing = no_variance(method, stats, names)
    if nothing is not None:
        return nothing
    values = without_rounding(solve(reductions.coefficients, reductions.sum_sq), DIFFERENCES)
    covariance, reason = _covariance(reductions, values)
    fixed = fixed_effects(stats, values)
    return Estimate(
        method=method,
        names=names,
        values=values,
        covariances={"sampling": covariance},
        beta=fixed.beta,
        cov_beta=fixed.cov_beta,
        llf=np.nan,
        converged=True,
        status=f"Closed form{negative_components(names, values)}.{reason}{fixed.doubt}",
        engine="closed form: sums of squares and their expectations",
        fixed_errors=fixed.errors,
    )


def points_of(stats: Sequence[Statistics], values: Sequence[FloatArray]) -> list[PointEstimate]:
    """Return components of several responses with the generalised least squares estimates.

    Parameters
    ----------
    stats : of the same rows
    values : components of each; zeros replace those of a response that X reproduces
    """
    values = [
        np.zeros_like(v) if _is_without_variance(s) else v
        for s, v in zip(stats, values, strict=True)
    ]
    usual = [
        b for b, v in enumerate(values) if v[-1] > _NO_RESIDUAL * v.max() and not (v < 0.0).any()
    ]
    betas: dict[int, FloatArray | None] = {}
    # Orthogonal strata and few responses need no common solve.
    if len(usual) >= _TOGETHER and stats[0].strata is None:
        v = np.maximum([values[b] for b in usual], 0.0)
        solved = fixed_effects_of([stats[b].cross_products for b in usual], v)
        betas = dict(zip(usual, solved, strict=True))
    points = []
    for b, (s, c) in enumerate(zip(stats, values, strict=True)):
        beta = betas.get(b)
        if beta is None:
            beta = fixed_effects(s, c, slopes=False).beta
        points.append(PointEstimate(c, beta))
    return points


def no_variance(method: str, stats: Statistics, names: tuple[str, ...]) -> Estimate | None:
    """Return an estimate of zeros if X reproduces the response, such as a constant; else None."""
    if not _is_without_variance(stats):
        return None
    k, p = len(names), stats.Xy.size
    what = "The response is constant" if stats.yy == 0.0 else "The fixed part fits exactly"
    return Estimate(
        method=method,
        names=names,
        values=np.zeros(k),
        covariances={"sampling": np.zeros((k, k))},
        beta=least_squares(stats)[0],
        cov_beta=np.zeros((p, p)),
        llf=np.nan,
        converged=True,
        status=f"{what}: all components are 0.",
        engine="none: there is nothing to estimate",
    )


def _is_without_variance(stats: Statistics) -> bool:
    return not least_squares(stats)[1] > _EXACT_FIT * stats.yy


def negative_components(names: tuple[str, ...], values: FloatArray) -> str:
    """Return a clause that names the components below zero, empty without any."""
    below = below_zero(names, values)
    return f"; {below} and kept as estimated" if below else ""


@dataclass(frozen=True, slots=True)
class FixedEffects:
    """The fixed effects of a closed-form estimator.

    Attributes
    ----------
    beta, cov_beta : estimates and covariance matrix. If the residual component is not positive,
        ordinary least squares and nan; if the computation does not fit into memory, nan
    doubt : a sentence for the status on these two cases, else empty
    errors : derivatives of the covariance matrix, None if they were not computed
    """

    beta: FloatArray
    cov_beta: FloatArray
    doubt: str = ""
    errors: FixedErrors | None = None


def fixed_effects(stats: Statistics, values: FloatArray, *, slopes: bool = True) -> FixedEffects:
    """Return the generalised least squares estimates at components, negative ones as estimated.

    Where they make no covariance matrix of the scores, or there are too many groups, they are set
    to zero.

    Parameters
    ----------
    stats : sums of the data
    values : (k + 1,) components
    slopes : whether to compute the derivatives of the covariance matrix of the effects
    """
    p = stats.Xy.size
    nothing = np.full((p, p), np.nan)
    v = np.maximum(values, 0.0)
    if p == 0:
        return FixedEffects(np.zeros(0), nothing)
    zero = ""
    if (values[:-1] < 0.0).any() and v[-1] > _NO_RESIDUAL * v.max():
        kept = at_negative_components(stats, values)
        if kept is not None:
            return FixedEffects(*kept[:2], errors=kept[2])
        zero = " Fixed effects and their errors take negative components as zero."
    if v[-1] > _NO_RESIDUAL * v.max():
        try:
            engine = choose_engine(stats, reml=True)
            errors = errors_of_fixed(engine, v) if slopes else None
            beta, cov_beta = engine.fixed_effects(v)
            return FixedEffects(beta, cov_beta, zero, errors)
        except EstimationError:
            return FixedEffects(
                np.full(p, np.nan),
                nothing,
                " No fixed effects: generalised least squares needs more memory than is free.",
            )
        except np.linalg.LinAlgError:
            pass
    return FixedEffects(
        solve_positive(stats.XX, stats.Xy),
        nothing,
        " Fixed effects by ordinary least squares, without standard errors: the estimated "
        "residual variance is not positive.",
    )


def _covariance(reductions: Reductions, values: FloatArray) -> tuple[FloatArray, str]:
    """Return the sampling covariance at the estimates, eq. (2.6), and a sentence if it is nan.

    Negative estimates are not set to zero.
    """
    try:
        quadratic = reductions.covariance(values)
    except TooLargeError:
        nothing = np.full((values.size, values.size), np.nan)
        return nothing, (
            " No standard errors: the covariance of the sums of squares needs too much memory or "
            "time."
        )
    return covariance_of_solution(reductions.coefficients, quadratic), ""


def orthogonal_table(stats: Statistics, names: tuple[str, ...]) -> AnovaTable | None:
    """Return the analysis of variance if the terms are orthogonal (Tjur 1984), else None.

    None also if a term or the residual has no degrees of freedom.
    """
    if stats.strata is None or not _is_orthogonal(stats.strata):
        return None
    table = anova_table(stats.group_sums, names)
    return table if (table.df > 0).all() else None


def orthogonal_estimate(method: str, stats: Statistics, names: tuple[str, ...]) -> Estimate:
    """Return Method I's estimate under another name, with generalised least squares.

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
        engine="closed form: sums of squares of orthogonal terms, the same in any order",
    )


def _is_orthogonal(strata: StratumStatistics) -> bool:
    """Whether the product of any two terms' projectors is that of a term or of the mean."""
    if strata.remainder.parents is None or not _is_mean_only(strata):
        return False
    terms = set(zip(strata.term_axes, strata.term_groupings, strict=True))
    mean: tuple[frozenset[int], int] = (frozenset(), 0)
    # Groupings are nested in each other, the coarsest first: the product of two projectors has the
    # common axes and the coarser grouping.
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


@dataclass(frozen=True, slots=True)
class AdjustedSquares:
    """Base of Type I and Henderson III: each term's sum of squares is adjusted for other terms.

    If terms are orthogonal, the estimates are those of Method I.
    """

    name: ClassVar[str]
    _advice: ClassVar[str]

    def estimate(self, stats: Statistics, names: tuple[str, ...]) -> Estimate:
        """Return the estimate from the statistics alone; components may be negative.

        Raises
        ------
        EstimationError
            If a term or the residual has no degrees of freedom, or the computation does not fit
            into memory.
        """
        if self._orthogonal(stats, names) is not None:
            return orthogonal_estimate(self.name, stats, names)
        reductions = self.reductions(stats.cross_products)
        reductions.refuse_nothing_left(names, self._advice)
        return estimate_from(self.name, stats, reductions, names)

    def prepared(self, stats: Statistics, names: tuple[str, ...]) -> Points:
        """Return the point estimates of responses of these rows, as a function of them.

        What does not depend on the response is computed once.

        Raises
        ------
        EstimationError
            As :meth:`estimate`.
        """
        if self._orthogonal(stats, names) is not None:
            same = ANOVA().prepared(stats, names)
            return lambda responses: points_of(responses, [p.values for p in same(responses)])
        reductions = self.reductions(stats.cross_products)
        reductions.refuse_nothing_left(names, self._advice)

        def of(responses: Sequence[Statistics]) -> list[PointEstimate]:
            squares = [reductions.squares_of(s.cross_products) for s in responses]
            solved = [solve(reductions.coefficients, q) for q in squares]
            return points_of(responses, [without_rounding(v, DIFFERENCES) for v in solved])

        return of

    def table(self, stats: Statistics, names: tuple[str, ...]) -> AnovaTable:
        """Return the analysis of variance; sums of squares need not add up to the total."""
        return self._orthogonal(stats, names) or self.reductions(stats.cross_products).table(names)

    def reductions(
        self, stats: CrossProducts, limits: ReductionLimits = REDUCTION_LIMITS
    ) -> Reductions:
        """Return the reductions in sum of squares of the terms.

        Parameters
        ----------
        stats : cross-products, centred
        limits : sizes up to which matrices are formed
        """
        adjustments = [Adjustment(t, self._before(stats, t)) for t in _terms(stats)]
        return Reductions(stats, adjustments, limits)

    def _orthogonal(self, stats: Statistics, names: tuple[str, ...]) -> AnovaTable | None:
        """Return the analysis of variance if it does not depend on the adjustments, else None."""
        return orthogonal_table(stats, names)

    def _before(self, stats: CrossProducts, term: int) -> frozenset[int]:
        """Return the terms that a term is adjusted for."""
        raise NotImplementedError


class Henderson3(AdjustedSquares):
    """Henderson's Method III: each term adjusted for those not finer than it; any fixed part."""

    name: ClassVar[str] = "henderson3"
    _advice: ClassVar[str] = (
        "they explain all differences between its groups; use method='reml', or leave out a term"
    )

    def _before(self, stats: CrossProducts, term: int) -> frozenset[int]:
        return frozenset(u for u in _terms(stats) if not stats.is_finer(u, term))


class Type1(AdjustedSquares):
    """Analysis of variance by sequential sums of squares (Type I); any fixed part."""

    name: ClassVar[str] = "type1"
    _advice: ClassVar[str] = (
        "with method='type1' the order of the formula decides; write coarser terms before finer "
        "ones, or use method='reml'"
    )

    def _orthogonal(self, stats: Statistics, names: tuple[str, ...]) -> AnovaTable | None:
        return orthogonal_table(stats, names) if _is_coarser_first(stats) else None

    def _before(self, stats: CrossProducts, term: int) -> frozenset[int]:
        return frozenset(range(term))


def _terms(stats: CrossProducts) -> range:
    return range(stats.n_terms)


def _is_coarser_first(stats: Statistics) -> bool:
    """Whether no term comes after a finer one; False if there are no strata."""
    strata, terms = stats.strata, range(stats.n_terms)
    return strata is not None and not any(
        strata.is_finer(before, t) for t in terms for before in range(t)
    )


# Analyses of variance and their covariances ------------------------------------------------------


def analysis_of_variance(method: str, stats: Statistics, names: tuple[str, ...]) -> AnovaTable:
    """Return the analysis of variance of a method; that of Method I for REML, ML and MINQUE."""
    if method == Type1.name:
        return Type1().table(stats, names)
    if method == Henderson3.name:
        return Henderson3().table(stats, names)
    return anova_table(stats.group_sums, names)


def adjusted_analysis(
    stats: Statistics, names: tuple[str, ...]
) -> tuple[AnovaTable, Callable[[FloatArray], FloatArray]]:
    """Return the analysis of variance of Henderson III and a function for its covariance.

    The function returns the covariance matrix of the sums of squares at given components,
    (k + 1, k + 1), and raises :class:`TooLargeError` if that needs too much memory or time.
    """
    table = orthogonal_table(stats, names)
    if table is not None:
        strata = stats.strata
        assert strata is not None
        rows = adjustment(stats.group_sums)

        def covariance(v: FloatArray) -> FloatArray:
            return rows @ stratum_quadratic_covariance(strata, v) @ rows.T

        return table, covariance
    reductions = Henderson3().reductions(stats.cross_products)
    return reductions.table(names), reductions.covariance


def covariance_of_estimates(
    method: str, stats: Statistics, names: tuple[str, ...]
) -> Callable[[FloatArray], FloatArray]:
    """Return a function for the covariance matrix of a method's estimates at given components.

    Parameters
    ----------
    method : ``"anova"``, ``"type1"`` or ``"henderson3"``
    stats : sums of the data
    names : components, the residual last

    Returns
    -------
    Function of (k + 1,) components; it raises :class:`TooLargeError` if the covariance needs too
    much memory or time.
    """
    if method == ANOVA.name or orthogonal_table(stats, names) is not None:
        coefficients = henderson1(stats.group_sums)
        return lambda v: exact_sampling(stats, coefficients, v).covariance
    estimator = Henderson3() if method == Henderson3.name else Type1()
    reductions = estimator.reductions(stats.cross_products)
    return lambda v: covariance_of_solution(reductions.coefficients, reductions.covariance(v))


# Fixed effects by generalised least squares ------------------------------------------------------

_MOST_GROUPS = 2000
"""Number of groups of the terms up to which their equations are solved as a dense matrix."""

_DISTINCT = 1e-10
"""Relative absolute value of an eigenvalue below which its sign is rounding error."""


def at_negative_components(
    stats: Statistics, values: FloatArray
) -> tuple[FloatArray, FloatArray, FixedErrors] | None:
    """Return the fixed effects, their covariance matrix and its derivatives at some components.

    With D = σ²_e/σ²_t for the groups of each term, V⁻¹ = (I − Z (Z'Z + D)⁻¹ Z')/σ²_e. V is
    positive definite if, and only if, Z'Z + D has as many negative eigenvalues as D: the inertia
    of [[I, Z], [Z', −D]] by its two Schur complements (Haynsworth 1968).

    Parameters
    ----------
    stats : sums of the data
    values : (k + 1,) components, some of them negative, the residual positive

    Returns
    -------
    None if V is not positive definite, there are too many groups, or the sums were drawn by
    strata, without their cross-products
    """
    drawn = stats.strata is not None and not stats.strata.by_level
    if drawn or sum(stats.sizes) > _MOST_GROUPS:
        return None
    sums, v = stats.cross_products, values[:-1]
    used, sizes = np.flatnonzero(v), np.array(sums.sizes)
    ratios = np.repeat(values[-1] / v[used], sizes[used])
    gram = [[sums.gram(t, u).toarray() for u in range(v.size)] for t in range(v.size)]
    K = np.block([[gram[t][u] for u in used] for t in used]) + np.diag(ratios)
    eigenvalues = np.linalg.eigvalsh(K)
    if (eigenvalues < 0.0).sum() != (ratios < 0.0).sum():
        return None
    if np.abs(eigenvalues).min() < _DISTINCT * np.abs(eigenvalues).max():
        return None
    ZX = np.vstack([sums.ZX[t] for t in used])
    Zy = np.concatenate([sums.Zy[t] for t in used])
    effects = np.linalg.solve(K, np.column_stack([ZX, Zy]))
    of_X, of_y = effects[:, :-1], effects[:, -1]
    information = (sums.XX - ZX.T @ of_X) / values[-1]
    cov_beta = solve_positive(information, np.eye(len(information)))
    beta = cov_beta @ (sums.Xy - ZX.T @ of_y) / values[-1]
    slopes = np.empty((values.size, *cov_beta.shape))
    for t in range(v.size):
        weighted = sums.ZX[t] - np.hstack([gram[t][u] for u in used]) @ of_X
        half = weighted @ cov_beta / values[-1]
        slopes[t] = half.T @ half
    # Cov(β̂) is homogeneous of degree 1 in the components.
    slopes[-1] = (cov_beta - np.tensordot(v, slopes[:-1], 1)) / values[-1]
    return beta, cov_beta, FixedErrors(slopes, np.zeros(0), keeps_negative=True)


_TOLERANCE, _STEPS = 1e-10, 500
"""Relative residual at which the equations are solved, for about nine digits of β̂; and largest
number of products."""

_ELEMENTS = 4_000_000
"""Elements of the columns in a batch of solves."""


def fixed_effects_of(
    stats: Sequence[CrossProducts], values: FloatArray, *, steps: int = _STEPS
) -> list[FloatArray | None]:
    """Return the generalised least squares estimates; None where the equations did not converge.

    Parameters
    ----------
    stats : of the same rows with several responses
    values : (b, k + 1) components of each, not negative, the residual positive
    steps : largest number of products
    """
    first = stats[0]
    at_once = max(1, _ELEMENTS // max(sum(first.sizes) * first.n_fixed, 1))
    betas: list[FloatArray | None] = []
    for part in slices(len(stats), at_once):
        betas += _solved(stats[part], values[part], steps)
    return betas


def _solved(stats: Sequence[CrossProducts], v: FloatArray, steps: int) -> list[FloatArray | None]:
    first, b, p = stats[0], len(stats), stats[0].n_fixed
    ends = np.cumsum([0, *first.sizes])
    of_term = np.repeat(np.arange(first.n_terms), first.sizes)
    # A term at zero has no effects: its equations are left out of those of this response.
    is_positive = (v[:, :-1] > 0.0).T[of_term]
    with np.errstate(divide="ignore"):
        ridge = (v[:, -1:] / v[:, :-1]).T[of_term]
    diagonal = np.where(is_positive, np.concatenate(first.group_n)[:, None] + ridge, 1.0)
    diagonal, kept = np.repeat(diagonal, p, axis=1), np.repeat(is_positive, p, axis=1)
    ZX = np.concatenate(first.ZX)

    def product(x: FloatArray) -> FloatArray:
        out = diagonal * x
        for t in range(first.n_terms):
            for u in range(first.n_terms):
                if t != u:
                    part = np.ascontiguousarray(x[ends[u] : ends[u + 1]])
                    out[ends[t] : ends[t + 1]] += first.times(t, u, part)
        out *= kept
        return out

    right = np.tile(ZX, b) * kept
    solved = conjugate_gradients(product, diagonal, right, tol=_TOLERANCE, max_iter=steps)
    if not solved.converged:
        return [None] * b
    U = solved.x.reshape(len(ZX), b, p)
    XX = first.XX - np.einsum("mi,mbj->bij", ZX, U)
    Zy = np.stack([np.concatenate(s.Zy) for s in stats])
    Xy = np.stack([s.Xy for s in stats]) - np.einsum("mbj,bm->bj", U, Zy)
    return list(np.linalg.solve(XX, Xy[:, :, None])[:, :, 0])
