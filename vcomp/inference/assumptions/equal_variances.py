"""Residual variances of the levels of a facet, and whether they are equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, LongArray

_ROUNDING = 64 * float(np.finfo(float).eps)
"""Distances that differ by less than this, relative to their size, are equal."""

_FEWEST = 3.0
"""Residual degrees of freedom that a level needs for its variance to count."""


@dataclass(frozen=True, slots=True, eq=False)
class LevelSpread:
    """Residual variances of the levels of a facet.

    Attributes
    ----------
    facet : its name
    labels : (k,) levels
    variances : (k,) residual variances
    df : (k,) their degrees of freedom
    log_sd : standard deviation over levels of the logarithm of the true variance, estimated:
        sampling error, larger with heavy tails, is taken off
    """

    facet: str
    labels: tuple[str, ...]
    variances: FloatArray
    df: FloatArray
    log_sd: float


class LevelStatistic:
    """Brown and Forsythe's statistic of residuals by the levels of a facet, others as blocks.

    Levene's F of distances from the median of the level. Distances from the mean, which is zero,
    depend on its error in the first order if the distribution is skewed, and the test rejects too
    often.

    Parameters
    ----------
    codes : (n,) level of each row
    blocks : for each other facet the level of each row; the distances of its levels are brought to
        one mean first, so that only differences between levels of the facet count

    References
    ----------
    Brown, M. B. and Forsythe, A. B. (1974). Robust tests for the equality of variances. *Journal
    of the American Statistical Association*, 69, 364-367.
    """

    def __init__(self, codes: LongArray, blocks: Sequence[LongArray]) -> None:
        self.codes, self.counts = codes, np.bincount(codes)
        self.order = np.argsort(codes, kind="stable")
        self.matrix = _sums(codes)
        self.blocks = [(block, np.bincount(block), _sums(block)) for block in blocks]

    def __call__(self, e: FloatArray) -> FloatArray:
        """Return the F ratio of each column of residuals, (n, m)."""
        w = np.abs(e - self._medians(e)[self.codes])
        nothing = np.maximum(_ROUNDING**2 * np.square(w).sum(axis=0), 1e-300)
        for codes, counts, matrix in self.blocks:
            w = w - ((matrix @ w) / counts[:, None])[codes]
        means = (self.matrix @ w) / self.counts[:, None]
        total = w.mean(axis=0)
        between = (self.counts[:, None] * (means - total) ** 2).sum(axis=0)
        within = ((w - total) ** 2).sum(axis=0) - between
        k, n = len(self.counts), len(w)
        between = np.where(between > nothing, between, 0.0)
        return np.asarray(
            (between / max(k - 1, 1)) / (np.maximum(within, nothing) / max(n - k, 1))
        )

    def _medians(self, e: FloatArray) -> FloatArray:
        """Return the medians of the levels, (k, m)."""
        if np.ptp(self.counts) == 0:
            parts = self.order.reshape(self.counts.size, -1)
            return _medians_of(e[self.order].T.reshape(e.shape[1], *parts.shape)).T
        starts = np.cumsum(self.counts)[:-1]
        return np.stack([_medians_of(e[part].T) for part in np.split(self.order, starts)])


def _medians_of(samples: FloatArray) -> FloatArray:
    """Return the medians along the last axis: small samples are sorted faster than split."""
    n = samples.shape[-1]
    ordered = np.ascontiguousarray(samples)
    ordered.sort(axis=-1)
    return np.asarray(0.5 * (ordered[..., (n - 1) // 2] + ordered[..., n // 2]))


def permuted(e: FloatArray, groups: LongArray, m: int, rng: np.random.Generator) -> FloatArray:
    """Return residuals in random order within groups of rows, (n, m).

    Parameters
    ----------
    e : (n,) residuals
    groups : (n,) rows of one group exchange their residuals
    m : number of orders
    rng : random numbers
    """
    own = np.argsort(groups, kind="stable")
    order = np.argsort(groups + rng.random((m, e.size)), axis=1)
    out = np.empty((e.size, m))
    out[own] = e[order].T
    return out


def _sums(codes: LongArray) -> Any:
    from scipy.sparse import csr_array

    return csr_array((np.ones(codes.size), (codes, np.arange(codes.size))))


def level_spread(
    facet: str,
    labels: Sequence[str],
    codes: LongArray,
    e: FloatArray,
    df: float,
    kurtosis: float,
) -> LevelSpread:
    """Return the residual variances of the levels of a facet.

    Parameters
    ----------
    facet, labels : names
    codes : (n,) level of each row
    e : (n,) residuals
    df : degrees of freedom of all residuals, shared out by the number of rows
    kurtosis : excess kurtosis of the residuals
    """
    from scipy.special import digamma, polygamma

    counts = np.bincount(codes).astype(float)
    own = counts * (df / e.size)
    variances = np.bincount(codes, e * e) / np.maximum(own, 1e-300)
    enough = (own >= _FEWEST) & (variances > 0.0)
    log_sd = float("nan")
    if enough.sum() >= 2:
        half = 0.5 * own[enough]
        logs = np.log(variances[enough]) - digamma(half) + np.log(half)
        chance = polygamma(1, half) * (1.0 + 0.5 * max(kurtosis, 0.0))
        log_sd = float(np.sqrt(max(logs.var(ddof=1) - float(chance.mean()), 0.0)))
    return LevelSpread(facet, tuple(labels), variances, own, log_sd)
