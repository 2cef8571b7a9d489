"""Tests of fixed effects with estimated components, and their degrees of freedom.

Satterthwaite's degrees of freedom of a contrast are docs/explanation/mathematics.md, eq. (11.5)
(Giesbrecht & Burns 1985); several contrasts are tested by rotation (Fai & Cornelius 1996), as in
lmerTest. Kenward and Roger (1997) also correct Cov(β̂) for the error of the components and scale F,
eqs. (11.6) to (11.8). Held components are treated as known, and by Satterthwaite's method those at
their bound unless asked otherwise, as in lmerTest; by Kenward and Roger's they are not, as in
pbkrtest.
Standard errors that assume neither the components nor normal effects are eqs. (11.10) and (11.11).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.design import Chunk, Design
from vcomp.estimators import Estimate, FixedErrors
from vcomp.estimators.likelihood import (
    FixedForms,
    MatricesLikelihood,
    choose_engine,
    errors_of_fixed,
    predicted_columns,
    predicting,
)
from vcomp.exceptions import EstimationError
from vcomp.formula import WIDE
from vcomp.inference.intervals import level_products, normal_quantile
from vcomp.inference.quantities import LevelVariances
from vcomp.numerics import congruent, is_positive, solve_positive
from vcomp.statistics import Statistics

_SAME_DF = 1e-8
"""Relative difference below which degrees of freedom are equal."""

_ROUNDING = 1e-15
"""Of eigenvalues of correlations, per row: of rows that depend on others they are smaller."""

_LEAST = 0.3
"""Smallest robust variance as a fraction of that of a facet alone; of several contrasts, of the
model's."""

_ROUNDING_OF_SUMS = 1e-10
"""Share of the variance with bounded eigenvalues below which a robust variance is zero."""


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


class _WithDegrees:
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
        return _rotated(L, estimate, self.cov_beta, self.degrees, is_term=is_term)


@dataclass(frozen=True, slots=True)
class Satterthwaite(_WithDegrees):
    """Tests with Satterthwaite's degrees of freedom.

    Attributes
    ----------
    cov_beta : (p, p) Φ
    slopes : (k + 1, p, p) ∂Φ/∂σ²_t; None if `cov_beta` computes those of contrasts
    covariance : (k + 1, k + 1) of the components
    known : (k + 1,) components that are treated as known
    """

    cov_beta: Any
    slopes: FloatArray | None
    covariance: FloatArray
    known: BoolArray

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
        """Return ν, eq. (11.5), of each row of `L`, (m,).

        ∞ if all components are known, nan if their covariance is not known.
        """
        free = ~self.known
        if self.slopes is None:
            return self._degrees(_squares(L, self.cov_beta), self.cov_beta.slopes(L)[free])
        return self._degrees(_squares(L, self.cov_beta), _squares(L, self.slopes[free]))

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

    def uncertainty(self, L: FloatArray) -> FloatArray:
        """Return the sampling variances of the variances of the rows of `L`, (m,)."""
        assert self.slopes is not None
        free = ~self.known
        g = _squares(L, self.slopes[free])
        return np.einsum("ti,tu,ui->i", g, self.covariance[np.ix_(free, free)], g)


@dataclass(frozen=True, slots=True)
class Clustered(_WithDegrees):
    """Tests with variances from the rows, which are clustered by the levels of crossed facets.

    Attributes
    ----------
    cov_beta : (p, p) eq. (11.10)
    bounded : (p, p) the same with eigenvalues relative to the model's of at least 0.3
    parts : (m, p, p) the parts of facets with enough levels
    alone : (m, p, p) what each of these facets makes without the others; None with covariates,
        of which all variances are those of `bounded`
    df : (m,) their degrees of freedom, the numbers of levels − 1
    few : the part of facets with few levels, by the model; None without any
    """

    cov_beta: FloatArray
    bounded: FloatArray
    parts: FloatArray
    alone: FloatArray | None
    df: FloatArray
    few: Satterthwaite | None = None

    @classmethod
    def of(
        cls,
        levels: LevelVariances,
        facets: Sequence[frozenset[str]],
        values: FloatArray,
        model: Satterthwaite | None,
        has_covariates: bool = False,
    ) -> Clustered:
        """Return the tests from the contributions of the rows.

        Rows that share a level of a facet with few levels are correlated as in the model.

        Parameters
        ----------
        levels : products of the contributions
        facets : of each component of a term, with those that they are nested in
        values : of these components, no variance negative
        model : tests by the model; None if its slopes are not known
        has_covariates : whether columns of X are not of factors alone

        Raises
        ------
        EstimationError
            If a facet has few levels and the slopes are not known.
        """
        few = _part_of_few(levels, facets, values, model)
        parts, alone, df = _by_facets(levels)
        cov_beta = parts.sum(axis=0) + (0.0 if few is None else few.cov_beta)
        half = np.linalg.cholesky(solve_positive(levels.information, np.eye(len(cov_beta))))
        relative = np.linalg.solve(half, np.linalg.solve(half, cov_beta).T)
        d, P = np.linalg.eigh(0.5 * (relative + relative.T))
        root = half @ P
        bounded = (root * np.maximum(d, _LEAST)) @ root.T
        return cls(cov_beta, bounded, parts, None if has_covariates else alone, df, few)

    def as_known(self) -> Clustered:
        """Return the tests with variances as if known."""
        few = None if self.few is None else Satterthwaite.normal(self.few.cov_beta)
        return replace(self, df=np.full(self.df.size, np.inf), few=few)

    def test(self, L: FloatArray, estimate: FloatArray) -> ContrastTest:
        """Return t-tests of the rows of `L`; `estimate` is Lβ̂ − c."""
        return t_tests(estimate, np.sqrt(self._variances(L)), self.degrees(L))

    def joint(self, L: FloatArray, estimate: FloatArray, *, is_term: bool = False) -> JointTest:
        """Return the F-test of all rows at once; of one row it is the t-test."""
        if len(L) != 1:
            return _rotated(L, estimate, self.bounded, self.degrees, is_term=is_term)
        found = self.test(L, estimate)
        return JointTest(
            float(found.t[0] ** 2), (1.0, float(found.df[0])), float(found.p_value[0])
        )

    def _variances(self, L: FloatArray) -> FloatArray:
        """Return the variances of the rows of `L`, (m,)."""
        if self.alone is None:
            return _squares(L, self.bounded)
        # Sums over cells, which are subtracted, may exceed those over levels.
        least = _LEAST * _squares(L, self.alone).max(axis=0)
        own = np.maximum(_squares(L, self.parts).sum(axis=0), least)
        q = own if self.few is None else own + _squares(L, self.few.cov_beta)
        return np.where(q > _ROUNDING_OF_SUMS * _squares(L, self.bounded), q, 0.0)

    def degrees(self, L: FloatArray) -> FloatArray:
        """Return ν, eq. (11.11), of each row of `L`, (m,)."""
        of_parts = _squares(L, self.parts)
        own = of_parts.sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.square(own) / (np.square(of_parts) / self.df[:, None]).sum(axis=0)
            least = self.df.min()
            found = np.clip(np.where(own > 0.0, found, least), least, self.df.max())
            if self.few is None:
                return np.asarray(found)
            q = own + _squares(L, self.few.cov_beta)
            both = np.square(q) / (np.square(own) / found + 0.5 * self.few.uncertainty(L))
        return np.where(q > 0.0, both, least)


def _part_of_few(
    levels: LevelVariances,
    facets: Sequence[frozenset[str]],
    values: FloatArray,
    model: Satterthwaite | None,
) -> Satterthwaite | None:
    """Return the part of the model in facets with few levels; arguments as of :class:`Clustered`.

    Facets of the fixed part, which are no sample, are not in the sets.
    """
    sampled = frozenset[str]().union(*levels.sets)
    few = [s for s in levels.sets if s <= levels.few.keys()]
    if not few:
        return None
    if model is None or model.slopes is None:
        facet = min(few[0])
        raise EstimationError(
            f"facet {facet!r} has too few levels for cov_type='robust', and this fit has no "
            "derivatives of its covariance matrix to replace them",
            column=facet,
        )
    of_few = np.array([used & sampled in few for used in facets], dtype=bool)
    slopes = np.zeros_like(model.slopes)
    slopes[: len(facets)][of_few] = model.slopes[: len(facets)][of_few]
    cov_beta = np.tensordot(values, slopes[: len(facets)], 1)
    return replace(model, cov_beta=cov_beta, slopes=slopes)


def _by_facets(levels: LevelVariances) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the parts of m facets, what each makes alone, and their degrees of freedom.

    Parts of several facets, and of single rows, are added to that of the facet with the fewest
    levels. What a facet makes alone has the parts of all sets with it.
    """
    enough = [m for m, chosen in enumerate(levels.sets) if not chosen <= levels.few.keys()]
    order = sorted(enough, key=lambda m: levels.sizes[m])
    own = {m: next(u for u in order if levels.sets[u] <= levels.sets[m]) for m in enough}
    kept = sorted(set(own.values()))
    parts = [levels.shared[[m for m in enough if own[m] == k]].sum(axis=0) for k in kept]
    alone = [
        levels.shared[[m for m in enough if levels.sets[k] <= levels.sets[m]]].sum(axis=0)
        for k in kept
    ]
    return np.array(parts), np.array(alone), np.maximum(levels.sizes[kept] - 1.0, 1.0)


@predicting()
def fixed_level_variances(
    design: Design,
    stats: Statistics,
    total: Callable[..., Any],
    v: FloatArray,
    *,
    means: bool = False,
) -> LevelVariances:
    """Return the products of the contributions of rows to the fixed effects, by shared levels.

    The contributions of the residuals y − Xβ̂ are corrected for the estimation of β̂: if the model
    is correct, their products have the expectation Cov(β̂), eq. (11.10).

    Parameters
    ----------
    design, stats : of the data
    total : ``total(of, *known)`` is the sum of ``of(*known, chunk)`` over parts of the coded rows
    v : (k + 1,) components, no variance negative, the residuals positive
    means : whether β̂ is the mean of all rows, not that by generalised least squares
    """
    if stats.wide is not None and stats.wide.n_fixed > WIDE.formed:
        raise EstimationError(
            f"cov_type='robust' needs matrices of the {stats.wide.n_fixed:,} columns of the fixed "
            "part, which are not formed for a factor of so many levels; use cov_type='model'"
        )
    T = design.transform
    residuals = v[v.size - (1 if stats.blocks is None else stats.blocks.n_residuals) :]
    if stats.blocks is None:
        beta, cov = choose_engine(stats).fixed_effects(v)
        effects = predicted_columns(stats, v)
    else:
        likelihood = MatricesLikelihood(stats, reml=True)
        beta, cov = likelihood.fixed_effects(likelihood.matrices_of(v))
        effects = likelihood.predicted_columns(v)
    phi: FloatArray = cov if isinstance(cov, np.ndarray) else cov.toarray()
    half: FloatArray = np.linalg.cholesky(phi).astype(float)
    if means:
        beta, effects = stats.Xy / stats.n, tuple(np.zeros_like(e) for e in effects)
        residuals = np.ones(1)
    to_beta = (np.eye(1) / stats.n if means else phi) @ T.T
    contributions = _Contributions(beta, effects, residuals, to_beta, half)
    information = solve_positive(T @ phi @ T.T, np.eye(len(phi)))
    factors, has_covariates = design.fixed.factor_columns
    # Of a covariate single levels may determine much, and products alone are a poor covariance.
    root = None if has_covariates else T @ half
    return level_products(design, total, contributions, information, root, factors)


@dataclass(frozen=True, slots=True, eq=False)
class _Contributions:
    """Contributions of rows to the fixed effects, eq. (11.10); sent to Dask's workers.

    Attributes
    ----------
    beta : (p,) estimate
    effects : for each term C_t of V⁻¹X = R⁻¹(X − Σ Z_tC_t), by group
    residuals : residual variances
    to_beta : (p, p) matrix from weighted residuals to the estimate
    half : (p, p) Cholesky factor of Cov(β̂)
    """

    beta: FloatArray
    effects: tuple[FloatArray, ...]
    residuals: FloatArray
    to_beta: FloatArray
    half: FloatArray

    def __call__(self, chunk: Chunk) -> tuple[FloatArray, FloatArray]:
        weights = np.array(chunk.X)
        columns = chunk.effects or (None,) * len(self.effects)
        for codes, of_term, z in zip(chunk.codes, self.effects, columns, strict=True):
            weights -= of_term[codes] if z is None else of_term[codes] * z[:, None]
        of_rows = 0 if chunk.residual_codes is None else chunk.residual_codes
        precision = np.ones(1) if chunk.weights is None else chunk.weights
        weights = (weights * (precision / self.residuals[of_rows])[:, None]) @ self.to_beta
        return weights, np.column_stack([chunk.y - chunk.X @ self.beta, chunk.X @ self.half])


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
        variances = _squares(L, self.cov_beta)
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
    return np.sqrt(np.maximum(_squares(L, cov_beta), 0.0))


def t_tests(estimate: FloatArray, se: FloatArray, df: FloatArray) -> ContrastTest:
    """Return two-sided t-tests; if df is nan the normal distribution is used."""
    from scipy.special import ndtr, stdtr

    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(se > 0.0, estimate / se, np.nan)
    known = np.isfinite(df)
    tail = np.where(known, stdtr(np.where(known, df, 1.0), -np.abs(t)), ndtr(-np.abs(t)))
    return ContrastTest(estimate, se, df, t, 2.0 * tail)


def _squares(L: FloatArray, A: FloatArray) -> FloatArray:
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


def _rotated(
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


def satterthwaite_of(estimate: Estimate, *, bounds: bool = True) -> Satterthwaite | None:
    """Return Satterthwaite's tests of a fit, None if the slopes are not known.

    Parameters
    ----------
    estimate : with its fixed effects
    bounds : as of :func:`uncertain_components`
    """
    errors = estimate.fixed_errors
    if errors is None or (errors.slopes is None and isinstance(estimate.cov_beta, np.ndarray)):
        return None
    return Satterthwaite(
        estimate.cov_beta, errors.slopes, *uncertain_components(estimate, bounds=bounds)
    )


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
