"""Differences between systems in designs with several random facets.

The difference of two mean scores has twice the relative error variance of the plan, σ²(δ), times
how much the scores of this pair vary compared with those of others (section 15.3a of the
mathematics). So a plan is a test of size 1/σ²(δ), and everything that follows from differences is
that of :mod:`vcomp.ir.rank.correlation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.exceptions import DataError
from vcomp.ir.rank.paired import (
    best_first,
    check_systems,
    corrected_lengths,
    effective_df,
    mean_error_ratio,
)

_MOST_CELLS = 10**8
"""Largest number of cells of all systems: arrays of 0.8 GB, several at once."""

_KNOWN = 1e12
"""Degrees of freedom of a variance that is treated as known."""


@dataclass(frozen=True, slots=True, eq=False)
class ErrorEffect:
    """An effect that distinguishes systems and is error in the design of the scores.

    Attributes
    ----------
    groups : (n,) group of each score in the effect's facets without the systems; None where one of
        these facets is nested in the systems, so that systems have no levels in common
    variance : its part of the relative error variance of the mean scores
    """

    groups: LongArray | None
    variance: float


@dataclass(frozen=True, eq=False)
class FacetedDifferences:
    """Differences between systems, with covariances of their errors over several random facets.

    Attributes
    ----------
    systems : (k,) names, the best first
    effects : (k,) mean score of each system less the grand mean
    centres : (k,) least squares estimates of the systems' effects beside those of the cells; the
        same as `effects` where no cell is missing
    pattern : (m, k) vectors whose products are the covariances of errors of a test of size one,
        for which the mean variance of a pair is two
    pattern_df : degrees of freedom of the variance of a pair about their mean
    error_variance : σ²(δ) of the mean scores
    variance_df : degrees of freedom of its estimate, for each degree between systems
    loadings : (m, 2) standard deviations of the logarithms of the estimates of σ²(δ) of new tests,
        for one degree between systems: with that of σ²(δ) of the scores, and apart from it
    """

    systems: tuple[str, ...]
    effects: FloatArray
    centres: FloatArray
    pattern: FloatArray
    pattern_df: float
    error_variance: float
    variance_df: float
    loadings: FloatArray

    @classmethod
    def of(
        cls,
        y: FloatArray,
        system: LongArray,
        cells: LongArray,
        systems: Sequence[str],
        errors: Sequence[ErrorEffect],
        variance_df: float,
        counts: FloatArray | None = None,
        loadings: FloatArray | None = None,
    ) -> FacetedDifferences:
        """Return the differences between systems from single scores.

        Parameters
        ----------
        y : (n,) scores
        system : (n,) system of each score
        cells : (n,) cell of each score: the combination of all facets whose levels systems share
        systems : (k,) names
        errors : the effects that are error in the design of these scores
        variance_df : degrees of freedom of the estimate of their sum, for each degree between
            systems
        counts : (n,) number of scores that each of them stands for; one if None
        loadings : (m, 2) of the estimates of the error variances of new tests; if None they are as
            those of these scores

        Returns
        -------
        FacetedDifferences

        Raises
        ------
        DataError
            If there are fewer than two systems, too many systems or cells, or systems that no
            chain of common cells connects.

        Notes
        -----
        Each effect has its own covariances of systems. Products of the means of residuals by its
        groups estimate them with as many degrees of freedom as it has groups, less one. Few groups
        (three assessors) give estimates that are hardly better than none, so covariances of all
        effects are taken to be proportional, and estimated by the mean over effects, weighed by
        their part of the error variance times d/(d + k - 1) with d degrees of freedom.

        Examples
        --------
        >>> scores = np.array([[3.0, 5, 1], [4, 5, 4], [2, 5, 3]])  # topics × systems
        >>> topic, system = np.indices(scores.shape)
        >>> topics = ErrorEffect(topic.ravel(), 0.4)
        >>> made = FacetedDifferences.of(
        ...     scores.ravel(), system.ravel(), topic.ravel(), "abc", [topics], 2.0
        ... )
        >>> made.systems, made.differences, made.variances.mean().round(3)
        (('b', 'a', 'c'), array([2.        , 2.33333333, 0.33333333]), np.float64(2.0))
        """
        k, n_cells = len(systems), int(cells.max()) + 1
        check_systems(k)
        if k * n_cells > _MOST_CELLS:
            raise DataError(
                f"{k:,} systems in {n_cells:,} cells of the other facets are more than fit into "
                "memory; use fewer systems, or fewer levels of a facet"
            )
        weights = np.ones(y.size) if counts is None else counts
        y = y - np.average(y, weights=weights)
        effects = _means(system, k, y, weights)
        flat = cells * k + system
        n = np.bincount(flat, weights, n_cells * k)
        means = np.bincount(flat, y * weights, n_cells * k) / np.maximum(n, 1.0)
        filled = (n > 0).reshape(n_cells, k)
        centres, residuals = _centred(means.reshape(n_cells, k), filled, systems)
        cell_of = np.zeros(n_cells, dtype=np.int64)
        within = _within(y - means[flat], system, k, n) if counts is None else (np.ones(k), 0.0)
        blocks = []
        for effect in errors:
            if effect.groups is None:
                blocks.append((np.diag(np.sqrt(within[0])), within[1], effect.variance))
                continue
            cell_of[cells] = effect.groups
            blocks.append((*_group_means(residuals, filled, cell_of), effect.variance))
        pattern, df = _pattern(blocks, k)
        order, ranked = best_first(effects, 64 * np.finfo(float).eps * float(np.abs(y).max()))
        return cls(
            systems=tuple(str(systems[s]) for s in order),
            effects=ranked,
            centres=centres[order],
            pattern=pattern[:, order],
            pattern_df=df,
            error_variance=float(sum(effect.variance for effect in errors)),
            variance_df=variance_df,
            loadings=np.array([[np.sqrt(2.0 / variance_df), 0.0]])
            if loadings is None
            else loadings,
        )

    @property
    def n_systems(self) -> int:
        """Number of systems."""
        return len(self.systems)

    @property
    def n_residuals(self) -> int:
        """Number of vectors from which errors are drawn."""
        return len(self.pattern)

    @cached_property
    def differences(self) -> FloatArray:
        """(k(k-1)/2,) estimated difference of each pair, ordered as the upper triangle."""
        i, j = np.triu_indices(self.n_systems, 1)
        return np.asarray(self.centres[i] - self.centres[j])

    @cached_property
    def variances(self) -> FloatArray:
        """(k(k-1)/2,) error variance of each difference in a test of size one."""
        i, j = np.triu_indices(self.n_systems, 1)
        squares: FloatArray = ((self.pattern[:, i] - self.pattern[:, j]) ** 2).sum(axis=0)
        squares[squares <= (64 * np.finfo(float).eps) ** 2] = 0.0
        return squares

    @property
    def mean_error(self) -> float:
        """Mean over pairs of the squared standard error of their difference: 2σ²(δ)."""
        return 2.0 * self.error_variance

    @property
    def df(self) -> float:
        """Effective degrees of freedom between systems, ν, at least 1 (eq. 15.8)."""
        return self._effective_df[1]

    @cached_property
    def _effective_df(self) -> tuple[float, float]:
        """Effective degrees of freedom of the sample covariances, raw and bias-corrected."""
        return effective_df(self.pattern.T @ self.pattern, self.pattern_df + 1.0)

    @property
    def error_df(self) -> float:
        """Effective degrees of freedom of the mean error variance, ν'."""
        return min(self.df * self.variance_df, _KNOWN)

    @property
    def swap_df(self) -> FloatArray:
        """(1,) degrees of freedom of the error variance of a pair (eq. 15.8b).

        Its relative variance is the sum of those of its ratio to the mean and of the mean.
        """
        share = (1.0 - 1.0 / self.df) / self.pattern_df
        return np.array([1.0 / (share + 1.0 / self.error_df)])

    def drawn_errors(
        self, draws: int, rng: np.random.Generator, share: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Draw errors of means in the observed test and in a test of size one, with scales.

        Parameters
        ----------
        draws : number of draws
        rng : random numbers
        share : (draws,) normal scores of the shares of error, which is large if errors are

        Returns
        -------
        own, new : (draws, k)
        scales : (m, draws) what estimated standard deviations of errors of new tests are
            multiplied by
        """
        own, new = (
            corrected_lengths(
                rng.standard_normal((draws, len(self.pattern))) @ self.pattern,
                float((self.pattern**2).sum()),
                *self._effective_df,
            )
            for _ in range(2)
        )
        g = rng.standard_normal((2, draws))
        # B is c²/F times a mean square with ν degrees of freedom; c² has ν'.
        part = self.df / (self.df + self.error_df)
        g[0] = np.sqrt(part) * share + np.sqrt(1.0 - part) * g[0]
        ratio = mean_error_ratio(float(self.swap_df[0]))
        scales = ratio * np.exp(self.loadings @ g / (2.0 * np.sqrt(self.df)))
        spread = ratio * np.exp(g[0] / np.sqrt(2.0 * self.error_df))
        own *= spread[:, np.newaxis] * np.sqrt(self.error_variance)
        return own, new, scales


def _means(codes: LongArray, n: int, y: FloatArray, weights: FloatArray) -> FloatArray:
    return np.asarray(np.bincount(codes, y * weights, n) / np.bincount(codes, weights, n))


def _centred(
    means: FloatArray, filled: BoolArray, systems: Sequence[str]
) -> tuple[FloatArray, FloatArray]:
    """Return least squares effects of systems, summing to zero, and residuals of filled cells.

    Parameters
    ----------
    means : (n_cells, k) mean score of each system in each cell, zero where there is none
    filled : (n_cells, k) whether there is one
    systems : their names
    """
    k = means.shape[1]
    per_cell = np.maximum(filled.sum(axis=1), 1)
    if filled.all():
        residuals = means - means.mean(axis=1, keepdims=True)
        effects = residuals.mean(axis=0)
        return effects, residuals - effects
    M = filled.astype(float)
    laplacian = np.diag(M.sum(axis=0)) - M.T @ (M / per_cell[:, np.newaxis])
    left_out = np.where(filled, means - (means.sum(axis=1) / per_cell)[:, np.newaxis], 0.0)
    values, vectors = np.linalg.eigh(laplacian)
    zero = values <= 1e-9 * values[-1]
    if zero[1]:
        constant = vectors[:, zero]  # within connected sets of systems
        apart = (np.abs(constant - constant[0]) > 1e-6).any(axis=1)
        raise DataError(
            f"systems {str(systems[0])!r} and {str(systems[int(np.argmax(apart))])!r} are not "
            "connected by cells of the other facets that systems have in common, so that their "
            "difference cannot be estimated; leave systems out",
            level=systems[0],
        )
    # Adding 1/k 1 1' makes the matrix regular and the solution zero on average.
    effects = np.linalg.solve(laplacian + 1.0 / k, left_out.sum(axis=0))
    remaining = np.where(filled, means - effects, 0.0)
    cell_effects = remaining.sum(axis=1) / per_cell
    return effects, np.where(filled, remaining - cell_effects[:, np.newaxis], 0.0)


def _within(
    deviations: FloatArray, system: LongArray, k: int, n: FloatArray | LongArray
) -> tuple[FloatArray, float]:
    """Return variances of systems within cells, scaled to mean one, and their degrees of freedom.

    Parameters
    ----------
    deviations : (n,) scores less the means of their system in their cell
    system : (n,) of each score
    k : number of systems
    n : (n_cells k,) scores in each cell of each system
    """
    df = np.maximum(n.reshape(-1, k) - 1.0, 0.0).sum(axis=0)
    squares = np.bincount(system, deviations**2, k)
    if df.min() < 1.0 or not squares.any():
        return np.ones(k), 0.0
    variances = squares / df
    return variances / variances.mean(), float(1.0 / (1.0 / df).mean())


def _group_means(
    residuals: FloatArray, filled: BoolArray, groups: LongArray
) -> tuple[FloatArray, float]:
    """Return the mean residuals of systems by group, and the degrees of freedom of groups."""
    n_groups = int(groups.max()) + 1
    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], np.arange(n_groups))
    sums = np.add.reduceat(residuals[order], starts, axis=0)
    n = np.add.reduceat(filled[order].astype(float), starts, axis=0)
    return sums / np.maximum(n, 1.0), n_groups - 1.0


def _pattern(
    blocks: Sequence[tuple[FloatArray, float, float]], k: int
) -> tuple[FloatArray, float]:
    """Return vectors whose products are error covariances with mean pair variance two, and df.

    Parameters
    ----------
    blocks : of each effect its vectors, degrees of freedom and variance
    k : number of systems
    """
    known = []
    for vectors, df, variance in blocks:
        centred = vectors - vectors.mean(axis=1, keepdims=True)
        square = float((centred**2).sum())
        if df > 0.0 and variance > 0.0 and square > 0.0:
            weight = variance * df / (df + k - 1.0)
            known.append((centred * np.sqrt((k - 1.0) / square), df, weight))
    if not known:
        return np.eye(k) - 1.0 / k, _KNOWN
    total = sum(weight for _, _, weight in known)
    rows = np.concatenate([vectors * np.sqrt(weight / total) for vectors, _, weight in known])
    df = 1.0 / sum((weight / total) ** 2 / df for _, df, weight in known)
    if len(rows) <= k:
        return rows, df
    # QR of the vectors: in their products equal systems would differ by √ of a rounding error.
    return np.asarray(np.linalg.qr(rows, mode="r")), df
