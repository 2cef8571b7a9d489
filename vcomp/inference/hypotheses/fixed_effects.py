"""Tests of fixed effects with estimated components, and their degrees of freedom.

Satterthwaite's degrees of freedom of a contrast are docs/explanation/mathematics.md, eq. (11.5)
(Giesbrecht & Burns 1985); several contrasts are tested by rotation (Fai & Cornelius 1996), as in
lmerTest. Those of facets with few levels may be had at upper limits of the components, eq.
(11.16). Kenward and Roger (1997) also correct Cov(β̂) for the error of the components and scale F,
eqs. (11.6) to (11.8). Held components are treated as known, and by Satterthwaite's method those at
their bound unless asked otherwise, as in lmerTest; by Kenward and Roger's they are not, as in
pbkrtest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.design import Design
from vcomp.estimators import Estimate, FixedErrors
from vcomp.estimators.likelihood import (
    FixedForms,
    choose_engine,
    errors_of_fixed,
)
from vcomp.exceptions import EstimationError
from vcomp.inference.intervals import mean_squares, normal_quantile
from vcomp.inference.quantities import VarianceComponents
from vcomp.numerics import congruent, is_positive, solve, solve_positive
from vcomp.statistics import Statistics

_SAME_DF = 1e-8
"""Relative difference below which degrees of freedom are equal."""

_ROUNDING = 1e-15
"""Of eigenvalues of correlations, per row: of rows that depend on others they are smaller."""


_CONFIDENCE = 0.85
"""Of upper limits of components. Higher ones make tests of two models and three prompts
conservative, and with lower ones tests reject too often (error rates of comparisons of models)."""

_KNOWN = 1e6
"""Degrees of freedom from which on a mean square is its expectation."""

_SEVERAL = 0.1
"""Share of a variance that other mean squares than its largest have where it counts as a sum."""

_FEW = 8.0
"""Degrees of freedom of mean squares up to which those at upper limits have their full weight."""


@dataclass(frozen=True, slots=True)
class ContrastTest:
    """Tests of the single rows of Lβ = c.

    Attributes
    ----------
    estimate, std_error, df, t, p_value : (m,); df is ∞ for the normal distribution, and nan if it
        is not known
    """

    estimate: FloatArray
    std_error: FloatArray
    df: FloatArray
    t: FloatArray
    p_value: FloatArray


@dataclass(frozen=True, slots=True)
class JointTest:
    """A test of all rows at once.

    Attributes
    ----------
    statistic : F
    df : of the numerator, the number of independent rows, and of the denominator
    p_value : its upper tail
    scale : factor that the statistic has beyond the mean square over its error
    """

    statistic: float
    df: tuple[float, float]
    p_value: float
    scale: float = 1.0


class WithDegrees:
    """Tests by a covariance matrix, with degrees of freedom of each combination."""

    __slots__ = ()
    cov_beta: Any

    def degrees(self, L: FloatArray) -> FloatArray:
        """Return the degrees of freedom of each row of `L`, (m,)."""
        raise NotImplementedError

    def test(self, L: FloatArray, estimate: FloatArray) -> ContrastTest:
        """Return t-tests of the rows of `L`; `estimate` is Lβ̂ − c."""
        return t_tests(estimate, _standard_errors(L, self.cov_beta), self.degrees(L))

    def joint(self, L: FloatArray, estimate: FloatArray, *, is_term: bool = False) -> JointTest:
        """Return the F-test of all rows at once (Fai & Cornelius 1996; lmerTest's method).

        Parameters
        ----------
        L, estimate : as of :meth:`test`
        is_term : whether the rows have one unit, as contrasts of one factor, and are not put into
            standard errors
        """
        return rotated(L, estimate, self.cov_beta, self.degrees, is_term=is_term)


@dataclass(frozen=True, slots=True)
class Satterthwaite(WithDegrees):
    """Tests with Satterthwaite's degrees of freedom.

    Attributes
    ----------
    cov_beta : (p, p) Φ
    slopes : (k + 1, p, p) ∂Φ/∂σ²_t; None if `cov_beta` computes those of contrasts
    covariance : (k + 1, k + 1) of the components
    known : (k + 1,) components that are treated as known
    components : of which degrees of freedom are those at upper limits, eq. (11.16); None to have
        them at the estimates
    """

    cov_beta: Any
    slopes: FloatArray | None
    covariance: FloatArray
    known: BoolArray
    components: VarianceComponents | None = None

    @classmethod
    def normal(cls, cov_beta: FloatArray) -> Satterthwaite:
        """Return tests with all components treated as known: by the normal distribution and χ²."""
        p = len(cov_beta)
        return cls(cov_beta, np.zeros((0, p, p)), np.zeros((0, 0)), np.ones(0, dtype=bool))

    def of_combinations(self, L: FloatArray) -> Satterthwaite | None:
        """Return tests of the combinations of rows of `L` (m, p), with matrices (m, m).

        None if these are there already, or cannot be held.
        """
        if self.slopes is not None or not hasattr(self.cov_beta, "of_combinations"):
            return None
        made = self.cov_beta.of_combinations(L)
        return None if made is None else replace(self, cov_beta=made[0], slopes=made[1])

    def degrees(self, L: FloatArray) -> FloatArray:
        """Return ν, eq. (11.5) or (11.16), of each row of `L`, (m,).

        ∞ if all components are known, nan if their covariance is not known.
        """
        q = squares_of_rows(L, self.cov_beta)
        if self.slopes is None:
            return self._degrees(q, self.cov_beta.slopes(L)[~self.known])
        g = squares_of_rows(L, self.slopes)
        found = self._degrees(q, g[~self.known])
        components = self.components
        squares = None if components is None else mean_squares(components)
        if components is None or squares is None:
            return found
        expected = squares.basis @ np.maximum(components.values[squares.places], 0.0)
        of_squares = np.maximum(squares.df, 1.0)
        limits = np.maximum(expected, squares.values) * _limit_ratios(of_squares)
        coefficients = np.abs(solve(squares.basis.T, g[squares.places]))
        parts, above = coefficients * squares.values[:, None], coefficients * limits[:, None]
        beyond, uncertainty = self.uncertainty(g)
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = np.minimum((1.0 - parts.max(axis=0) / parts.sum(axis=0)) / _SEVERAL, 1.0)
            fewness = _FEW * (above / of_squares[:, None]).sum(axis=0) / above.sum(axis=0)
            weight *= np.square(np.minimum(fewness, 1.0))
            df = 1.0 / ((1.0 - weight) / found + weight * uncertainty / np.square(q + beyond))
        return np.maximum(np.where(weight > 0.0, df, found), 1.0)

    def degrees_of_each(self) -> FloatArray:
        """Return ν of each coefficient, (p,)."""
        if self.slopes is None:
            of_slopes = self.cov_beta.slopes_of_each()
        else:
            of_slopes = np.diagonal(self.slopes, axis1=1, axis2=2)
        return self._degrees(self.cov_beta.diagonal(), of_slopes[~self.known])

    def _degrees(self, q: FloatArray, g: FloatArray) -> FloatArray:
        """Return ν from the variances (m,) and their derivatives by the free components."""
        free = ~self.known
        if not free.any():
            return np.full(q.size, np.inf)
        variance = np.einsum("ti,tu,ui->i", g, self.covariance[np.ix_(free, free)], g)
        with np.errstate(divide="ignore", invalid="ignore"):
            df = 2.0 * np.square(q) / variance
        return np.where(q > 0.0, df, np.nan)

    def uncertainty(self, g: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return how variances q are uncertain, so that ν = (q + b)²/u.

        Parameters
        ----------
        g : (k + 1, m) their derivatives by the components

        Returns
        -------
        b : (m,) by how much their upper limits are above q; 0 for degrees of freedom at estimates
        u : (m,) halves of their sampling variances, there
        """
        squares = None if self.components is None else mean_squares(self.components)
        if squares is not None:
            g = g[squares.places]
            estimates = solve(squares.basis, squares.values)
            # Two levels have one degree of freedom; observed information may say less.
            df = np.maximum(squares.df, 1.0)
            limits = np.maximum(estimates + squares.values * (_limit_ratios(df) - 1.0), 0.0)
            beyond = g * (limits - np.maximum(estimates, 0.0))[:, None]
            parts = np.square(g * limits[:, None]) / df[:, None]
            return np.sqrt(np.square(beyond).sum(axis=0)), parts.sum(axis=0)
        free = ~self.known
        C = self.covariance[np.ix_(free, free)]
        return np.zeros(g.shape[1]), 0.5 * np.einsum("ti,tu,ui->i", g[free], C, g[free])


@dataclass(frozen=True, slots=True)
class KenwardRoger:
    """Tests with the covariance matrix and degrees of freedom of Kenward and Roger (1997).

    Attributes
    ----------
    forms : quadratic forms of X in V⁻¹, those of second order included
    covariance : (k + 1, k + 1) W, the inverse of the *expected* information of the restricted
        likelihood
    known : (k + 1,) components that are treated as known
    """

    forms: FixedForms
    covariance: FloatArray
    known: BoolArray

    @property
    def cov_beta(self) -> FloatArray:
        """The corrected covariance matrix Φ_A, eq. (11.6)."""
        free = ~self.known
        assert self.forms.second is not None
        W = self.covariance[np.ix_(free, free)]
        P, phi = self.forms.first[free], self.forms.cov_beta
        Q = self.forms.second[np.ix_(free, free)]
        products = (P @ phi) @ np.tensordot(W, P, 1)
        inside = np.tensordot(W, Q, 2) - products.sum(axis=0)
        adjusted: FloatArray = phi + 2.0 * phi @ inside @ phi
        return 0.5 * (adjusted + adjusted.T)

    def test(self, L: FloatArray, estimate: FloatArray) -> ContrastTest:
        """Return t-tests of the rows of `L`; for one row the scale of F is 1."""
        # One row has A1 = A2 = g'Wg/q², with q and g as Satterthwaite's, and df = 2/A2.
        phi = self.forms.cov_beta
        slopes = phi @ self.forms.first @ phi
        df = Satterthwaite(phi, slopes, self.covariance, self.known).degrees(L)
        variances = squares_of_rows(L, self.cov_beta)
        # The correction of an inaccurate Φ may take more than there is.
        se = np.sqrt(np.where(variances > 0.0, variances, np.nan))
        return t_tests(estimate, se, np.where(np.isnan(se), np.nan, df))

    def joint(self, L: FloatArray, estimate: FloatArray, *, is_term: bool = False) -> JointTest:
        """Return the scaled F-test of all rows at once, which must be linearly independent.

        It is the same in any units, and for any rows of the same hypothesis.
        """
        q = L.shape[0]
        if not is_positive(L @ self.cov_beta @ L.T, _ROUNDING * q):
            return JointTest(np.nan, (float(q), np.nan), np.nan)
        df, scale = self._approximation(L)
        wald = estimate @ solve_positive(L @ self.cov_beta @ L.T, estimate) / q
        statistic = float(scale * wald)
        return JointTest(statistic, (float(q), df), _f_tail(statistic, (float(q), df)), scale)

    def _approximation(self, L: FloatArray) -> tuple[float, float]:
        """Return the degrees of freedom m and the scale λ of F, eqs. (11.7) and (11.8)."""
        free, q, phi = ~self.known, L.shape[0], self.forms.cov_beta
        if not free.any():
            return np.inf, 1.0
        W, P = self.covariance[np.ix_(free, free)], self.forms.first[free]
        theta = L.T @ solve_positive(L @ phi @ L.T, L)
        M = theta @ phi @ P @ phi
        traces = np.trace(M, axis1=1, axis2=2)
        A1 = float(traces @ W @ traces)
        A2 = float(np.einsum("tu,tij,uji->", W, M, M))
        if A2 == 0.0:
            return np.inf, 1.0
        if q == 1:
            # Then A1 = A2, E* = 1/(1 − A2) and V* make m = 2/A2 and λ = 1.
            return 2.0 / A2, 1.0
        B = (A1 + 6.0 * A2) / (2.0 * q)
        g = ((q + 1.0) * A1 - (q + 4.0) * A2) / ((q + 2.0) * A2)
        divisor = 3.0 * q + 2.0 * (1.0 - g)
        c1, c2, c3 = g / divisor, (q - g) / divisor, (q + 2.0 - g) / divisor
        rest = 1.0 - A2 / q
        rho = (rest / (1.0 - c2 * B)) ** 2 * (1.0 + c1 * B) / (1.0 - c3 * B) / q
        m = 4.0 + (q + 2.0) / (q * rho - 1.0)
        return float(m), float(m * rest / (m - 2.0))


def t_interval(
    estimate: FloatArray, std_error: FloatArray, df: FloatArray, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return estimate ± t std_error; the normal quantile if df is ∞ or not known (nan).

    Parameters
    ----------
    estimate, std_error, df : (m,)
    alpha : intervals have confidence 1 − alpha
    """
    from scipy.special import stdtrit

    known = np.isfinite(df)
    quantile = stdtrit(np.where(known, df, 1.0), 1.0 - alpha / 2.0)
    half = np.where(known, quantile, normal_quantile(alpha)) * std_error
    return estimate - half, estimate + half


def _standard_errors(L: FloatArray, cov_beta: FloatArray) -> FloatArray:
    return np.sqrt(np.maximum(squares_of_rows(L, cov_beta), 0.0))


def t_tests(estimate: FloatArray, se: FloatArray, df: FloatArray) -> ContrastTest:
    """Return two-sided t-tests; if df is nan the normal distribution is used."""
    from scipy.special import ndtr, stdtr

    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(se > 0.0, estimate / se, np.nan)
    known = np.isfinite(df)
    tail = np.where(known, stdtr(np.where(known, df, 1.0), -np.abs(t)), ndtr(-np.abs(t)))
    return ContrastTest(estimate, se, df, t, 2.0 * tail)


def squares_of_rows(L: FloatArray, A: FloatArray) -> FloatArray:
    """Return l'Al of the rows l of L, for a matrix A or a stack of them."""
    zero = L == 0.0
    k = int((~zero).sum(axis=-1).max(initial=0))
    if not isinstance(A, np.ndarray) or 4 * k > L.shape[-1]:
        return ((L @ A) * L).sum(axis=-1)
    # Differences of levels have two numbers that are not 0 among hundreds.
    places = np.argpartition(zero, max(0, k - 1), axis=-1)[:, :k]
    x = np.take_along_axis(L, places, axis=-1)
    of_rows = A[..., places[:, :, None], places[:, None, :]]
    return np.asarray(np.einsum("mi,...mij,mj->...m", x, of_rows, x))


def rotated(
    L: FloatArray,
    estimate: FloatArray,
    cov_beta: FloatArray,
    degrees: Callable[[FloatArray], FloatArray],
    *,
    is_term: bool,
) -> JointTest:
    """Return the test of all rows of Lβ = c, from rotations of them with independent t."""
    # Of correlations, as eigenvectors of covariances depend on the units of the rows.
    se = _standard_errors(L, cov_beta)
    if not (se > 0.0).all():
        return JointTest(np.nan, (0.0, np.nan), np.nan)
    if is_term:
        se = np.full(se.size, np.sqrt(np.mean(np.square(se))))
    d, P = np.linalg.eigh(L @ cov_beta @ L.T / np.outer(se, se))
    kept = d > _ROUNDING * d.size
    rotated = P[:, kept].T / se
    statistic = float(np.mean(np.square(rotated @ estimate) / d[kept]))
    df = (float(kept.sum()), _joint_degrees(degrees(rotated @ L)))
    return JointTest(statistic, df, _f_tail(statistic, df))


def _joint_degrees(df: FloatArray) -> float:
    """Return the degrees of freedom of a mean of independent t² (Fai & Cornelius 1996)."""
    if not np.isfinite(df).all():
        return np.nan if np.isnan(df).any() else np.inf
    if np.ptp(df) < _SAME_DF * df.max():
        return float(df.mean())
    if (df <= 2.0).any():
        return 2.0
    expectation = float(np.sum(df / (df - 2.0)))
    return 2.0 * expectation / (expectation - df.size)


def _limit_ratios(df: FloatArray) -> FloatArray:
    """Return the upper limits of mean squares in relation to the mean squares."""
    from scipy.special import chdtri

    known = df >= _KNOWN
    return np.where(known, 1.0, df / chdtri(np.where(known, _KNOWN, df), _CONFIDENCE))


def _f_tail(statistic: float, df: tuple[float, float]) -> float:
    from scipy.special import chdtrc, fdtrc

    if np.isfinite(df[1]):
        return float(fdtrc(*df, statistic))
    return float(chdtrc(df[0], df[0] * statistic))


def uncertain_components(
    estimate: Estimate, kind: str | None = None, *, bounds: bool = True
) -> tuple[FloatArray, BoolArray]:
    """Return the covariance matrix of the components for tests of fixed effects.

    Parameters
    ----------
    estimate : of the components
    kind : of information, the first of the estimate if None
    bounds : whether a component at its bound is treated as known. If not, the information on it
        counts as without bounds, eq. (6.3): an estimate of zero from few levels does not make the
        variance known

    Returns
    -------
    covariance : (k + 1, k + 1)
    known : (k + 1,) components that are treated as known: held, set to zero, or at their bound
        without any information
    """
    held: BoolArray = np.array([name in estimate.held for name in estimate.names])
    covariance = estimate.covariances[kind or next(iter(estimate.covariances))]
    # Sparse columns have no slopes of terms at zero.
    has_slopes = isinstance(estimate.cov_beta, np.ndarray)
    if not bounds and has_slopes and estimate.without_bounds is not None:
        return estimate.without_bounds[1], held
    errors = estimate.fixed_errors
    known: BoolArray = ~(estimate.values > 0.0)
    if errors is not None and errors.keeps_negative:
        known = estimate.values == 0.0
    return covariance, np.logical_or(held, known)


def degrees_of_freedom(estimate: Estimate) -> FloatArray:
    """Return Satterthwaite's degrees of freedom of the coefficients, nan if not known."""
    errors = estimate.fixed_errors
    return np.full(estimate.beta.size, np.nan) if errors is None else errors.df


def satterthwaite_of(
    estimate: Estimate, unbounded: VarianceComponents | None = None
) -> Satterthwaite | None:
    """Return Satterthwaite's tests of a fit, None if the slopes are not known.

    Parameters
    ----------
    estimate : with its fixed effects
    unbounded : the components of the fit, to take those at their bound as uncertain, with degrees
        of freedom at upper limits; None to take those at their bound as known
    """
    errors = estimate.fixed_errors
    if errors is None or (errors.slopes is None and isinstance(estimate.cov_beta, np.ndarray)):
        return None
    uncertain = uncertain_components(estimate, bounds=unbounded is None)
    found = Satterthwaite(estimate.cov_beta, errors.slopes, *uncertain)
    if unbounded is None or errors.slopes is None or unbounded.covariance_pairs:
        return found
    return replace(found, components=unbounded)


def fixed_errors_of(
    stats: Statistics, estimate: Estimate, design: Design, cov_beta: Any
) -> FixedErrors | None:
    """Return slopes and degrees of freedom on the scale of the data.

    Parameters
    ----------
    stats : sums of the data
    estimate : on the centred scale, with slopes of that scale for likelihood methods
    design : with the origins of the columns
    cov_beta : (p, p) on the scale of the data

    Returns
    -------
    None if there are no fixed effects, or the slopes do not fit into memory.
    """
    uncertain, errors = uncertain_components(estimate), estimate.fixed_errors
    if not isinstance(cov_beta, np.ndarray):
        return FixedErrors(None, Satterthwaite(cov_beta, None, *uncertain).degrees_of_each())
    slopes = _slopes(stats, estimate)
    if slopes is None:
        return None
    slopes = congruent(design.transform, slopes)
    found = Satterthwaite(cov_beta, slopes, *uncertain)
    keeps = errors is not None and errors.keeps_negative
    return FixedErrors(slopes, found.degrees_of_each(), keeps)


def _slopes(stats: Statistics, estimate: Estimate) -> FloatArray | None:
    """Return ∂Cov(β̂)/∂σ²_t, (k + 1, p, p), on the centred scale."""
    if estimate.fixed_errors is not None:
        return estimate.fixed_errors.slopes
    if not estimate.beta.size or not np.isfinite(estimate.cov_beta).all():
        return None
    if estimate.method == "anova":
        # The variance of the mean of all scores is docs/explanation/mathematics.md, eq. (2.5).
        n = float(stats.n)
        return np.array([*stats.group_sums.squares, n])[:, None, None] / n**2
    v = np.maximum(estimate.values, 0.0)
    if not v[-1] > 0.0:
        return None
    try:
        errors = errors_of_fixed(choose_engine(stats), v)
    except (EstimationError, np.linalg.LinAlgError):
        return None
    return None if errors is None else errors.slopes
