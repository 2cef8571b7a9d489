"""Tests of fixed effects with variances from the rows, and the products that they need.

They assume neither the components nor normal effects: docs/explanation/mathematics.md, eqs.
(11.10) and (11.11).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.design import Chunk, Design
from vcomp.estimators.likelihood import (
    MatricesLikelihood,
    choose_engine,
    predicted_columns,
    predicting,
)
from vcomp.exceptions import EstimationError
from vcomp.formula import WIDE
from vcomp.inference.hypotheses.fixed_effects import (
    ContrastTest,
    JointTest,
    Satterthwaite,
    WithDegrees,
    rotated,
    squares_of_rows,
    t_tests,
)
from vcomp.inference.intervals import level_products
from vcomp.inference.quantities import LevelVariances
from vcomp.numerics import slices, solve_positive
from vcomp.statistics import Statistics

_LEAST = 0.3
"""Smallest robust variance as a fraction of that of a facet alone; of several contrasts, of the
model's."""

_ROUNDING_OF_SUMS = 1e-10
"""Share of the variance with bounded eigenvalues up to which a robust variance is rounding."""

_ELEMENTS = 2**20
"""Numbers of levels times contrasts whose parts are computed at once."""


@dataclass(frozen=True, slots=True)
class Clustered(WithDegrees):
    """Tests with variances from the rows, which are clustered by the levels of crossed facets.

    Attributes
    ----------
    cov_beta : (p, p) eq. (11.10)
    bounded : (p, p) the same with eigenvalues relative to the model's of at least 0.3
    parts : (m, p, p) the parts of facets with enough levels
    alone : (m, p, p) what each of these facets makes without the others; None with covariates,
        of which all variances are those of `bounded`
    df : (m,) their degrees of freedom if all levels count alike, the numbers of levels − 1
    of_levels : for each of these facets the (levels, p, p) parts of its levels in the covariance
        by the model, or one if all are equal, from which the degrees of freedom of a contrast
        follow; None if those are `df`
    few : the part of facets with few levels, by the model; None without any
    """

    cov_beta: FloatArray
    bounded: FloatArray
    parts: FloatArray
    alone: FloatArray | None
    df: FloatArray
    of_levels: tuple[FloatArray, ...] | None = None
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
        parts, alone, kept = _by_facets(levels)
        df = np.maximum(levels.sizes[kept] - 1.0, 1.0)
        of_levels = None
        if levels.of_groups is not None and max(kept) < len(levels.of_groups):
            of_levels = tuple(t for k in kept if (t := levels.of_groups[k]) is not None)
        cov_beta = parts.sum(axis=0) + (0.0 if few is None else few.cov_beta)
        half = np.linalg.cholesky(solve_positive(levels.information, np.eye(len(cov_beta))))
        relative = np.linalg.solve(half, np.linalg.solve(half, cov_beta).T)
        d, P = np.linalg.eigh(0.5 * (relative + relative.T))
        root = half @ P
        bounded = (root * np.maximum(d, _LEAST)) @ root.T
        return cls(cov_beta, bounded, parts, None if has_covariates else alone, df, of_levels, few)

    def as_known(self) -> Clustered:
        """Return the tests with variances as if known."""
        few = None if self.few is None else Satterthwaite.normal(self.few.cov_beta)
        return replace(self, df=np.full(self.df.size, np.inf), of_levels=None, few=few)

    def test(self, L: FloatArray, estimate: FloatArray) -> ContrastTest:
        """Return t-tests of the rows of `L`; `estimate` is Lβ̂ − c."""
        return t_tests(estimate, np.sqrt(self._variances(L)), self.degrees(L))

    def joint(self, L: FloatArray, estimate: FloatArray, *, is_term: bool = False) -> JointTest:
        """Return the F-test of all rows at once; of one row it is the t-test."""
        if len(L) != 1:
            return rotated(L, estimate, self.bounded, self.degrees, is_term=is_term)
        found = self.test(L, estimate)
        return JointTest(
            float(found.t[0] ** 2), (1.0, float(found.df[0])), float(found.p_value[0])
        )

    def _variances(self, L: FloatArray) -> FloatArray:
        """Return the variances of the rows of `L`, (m,)."""
        if self.alone is None:
            return squares_of_rows(L, self.bounded)
        # Sums over cells, which are subtracted, may exceed those over levels.
        least = _LEAST * squares_of_rows(L, self.alone).max(axis=0)
        own = np.maximum(squares_of_rows(L, self.parts).sum(axis=0), least)
        q = own if self.few is None else own + squares_of_rows(L, self.few.cov_beta)
        # Levels whose rows are all equal, or alike in two levels, do not show an error.
        bounded = squares_of_rows(L, self.bounded)
        return np.where(q > _ROUNDING_OF_SUMS * bounded, q, bounded)

    def degrees(self, L: FloatArray) -> FloatArray:
        """Return ν, eq. (11.11), of each row of `L`, (m,)."""
        of_parts, df = squares_of_rows(L, self.parts), self._of_facets(L)
        own = of_parts.sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.square(own) / (np.square(of_parts) / df).sum(axis=0)
            least = df.min(axis=0)
            found = np.clip(np.where(own > 0.0, found, least), least, df.max(axis=0))
            if self.few is None:
                return np.asarray(found)
            q = own + squares_of_rows(L, self.few.cov_beta)
            assert self.few.slopes is not None
            beyond, uncertainty = self.few.uncertainty(squares_of_rows(L, self.few.slopes))
            both = np.square(q + beyond) / (np.square(own) / found + uncertainty)
        return np.where(q > 0.0, both, least)

    def _of_facets(self, L: FloatArray) -> FloatArray:
        """Return the degrees of freedom of each facet in each row of `L`, eq. (11.11)."""
        df = np.repeat(self.df[:, None], len(L), axis=1)
        for own, table in zip(df, self.of_levels or (), strict=False):
            if len(table) == 1:  # levels that count alike have their number less 1
                continue
            for rows in slices(len(L), max(1, _ELEMENTS // table[..., 0].size)):
                parts = np.abs(squares_of_rows(L[rows], table))
                sums, squares = parts.sum(axis=0), np.square(parts).sum(axis=0)
                alike = np.divide(sums**2, squares, out=own[rows] + 1.0, where=squares > 0.0)
                own[rows] = np.clip(alike - 1.0, 1.0, own[rows])
        return df


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


def _by_facets(levels: LevelVariances) -> tuple[FloatArray, FloatArray, list[int]]:
    """Return the parts of m facets, what each makes alone, and their sets.

    Parts of several facets, and of single rows, are added to that of the facet with the fewest
    levels. What a facet makes alone has the parts of all sets with it.
    """
    own = levels.coarsest()
    kept = sorted(set(own.values()))
    parts = [levels.shared[[m for m in own if own[m] == k]].sum(axis=0) for k in kept]
    alone = [
        levels.shared[[m for m in own if levels.sets[k] <= levels.sets[m]]].sum(axis=0)
        for k in kept
    ]
    return np.array(parts), np.array(alone), kept


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

    Raises
    ------
    EstimationError
        If the contributions do not fit into memory.
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
    return level_products(
        design, total, contributions, information, root, factors, "use cov_type='model'"
    )


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
