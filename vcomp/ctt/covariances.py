"""What the coefficients need of the covariances of items, without the k × k matrix where it goes.

Sums over the matrix S of the covariances are sums over objects: 1'S1 is the variance of the
totals, S1 the covariances with it, and Σ_j s_ij² = d_i'(DD')d_i/(n − 1)², in which DD' has as many
rows as there are objects. S itself is made where there are no more items than objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.ctt.matrix import ItemScores
from vcomp.exceptions import DataError
from vcomp.linalg.memory import available_bytes, gib

__all__ = ["NO_VARIANCE", "ItemCovariances", "from_complete", "from_pairs", "pair_counts"]

_FEW = 16
"""The matrix of so many items is made in any case."""

_EXACT = 1 << 24

NO_VARIANCE = 64 * float(np.finfo(float).eps)
"""A sum of covariances below this, relative to the variances, is rounding."""

_CONSTANT = NO_VARIANCE
"""Standard deviations below this, relative to the largest score of the item, are rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class ItemCovariances:
    """Sums over the covariances s_ij of k items.

    Attributes
    ----------
    variances : (k,) s_ii, 0 for an item whose scores are equal but for rounding
    with_total : (k,) Σ_j s_ij, the covariance with the total
    total : Σ_ij s_ij, the variance of the total
    correlations : Σ_ij r_ij; nan where an item has no variance
    squares : (k,) Σ_j s_ij²; None where neither matrix would fit into memory
    matrix : (k, k) S; None where it is not made
    """

    variances: FloatArray
    with_total: FloatArray
    total: float
    correlations: float
    squares: FloatArray | None
    matrix: FloatArray | None

    @property
    def k(self) -> int:
        """Number of items."""
        return self.variances.size

    @property
    def mean_correlation(self) -> float:
        """Mean correlation of two different items."""
        return (self.correlations - self.k) / (self.k * (self.k - 1))


def from_complete(X: FloatArray) -> ItemCovariances:
    """Return the sums of a matrix without missing cells.

    Parameters
    ----------
    X : (n, k) scores
    """
    n, k = X.shape
    D = X - X.mean(axis=0)
    variances = np.einsum("ij,ij->j", D, D) / (n - 1)
    constant = is_constant(variances, np.abs(X).max(axis=0))
    variances[constant] = 0.0
    D[:, constant] = 0.0
    totals = D.sum(axis=1)
    correlations = np.nan
    if not constant.any():
        standard = D @ (1.0 / np.sqrt(variances))
        correlations = float(standard @ standard) / (n - 1)
    matrix, squares = None, None
    if min(n, k) ** 2 * 8.0 < available_bytes() / 4.0:
        if k <= max(n, _FEW):
            matrix = D.T @ D / (n - 1)
            squares = np.square(matrix).sum(axis=0)
        else:
            squares = np.einsum("ij,ij->j", D @ D.T @ D, D) / (n - 1) ** 2
    return ItemCovariances(
        variances=variances,
        with_total=D.T @ totals / (n - 1),
        total=float(totals @ totals) / (n - 1),
        correlations=correlations,
        squares=squares,
        matrix=matrix,
    )


def is_constant(variances: FloatArray, largest: FloatArray) -> BoolArray:
    """Return which items have no variance but that of rounding.

    Parameters
    ----------
    variances : (k,) of the items
    largest : (k,) their largest scores, without sign
    """
    return np.asarray(variances <= np.square(_CONSTANT * largest))


def pair_counts(X: FloatArray) -> FloatArray:
    """Return how many objects have a score on both of two items, (k, k).

    Parameters
    ----------
    X : (n, k) scores, nan where there is none

    Raises
    ------
    DataError
        If the matrices of pairs would not fit into memory.
    """
    k = X.shape[1]
    if 8.0 * 4.0 * k * k > available_bytes() / 2.0:
        raise DataError(
            f"the covariances of {k:,} items would take {gib(32.0 * k * k)}, more than there is"
        )
    # whole numbers of this size are exact in single precision, which is twice as fast
    single = len(X) < _EXACT
    there: Any = (~np.isnan(X)).astype(np.float32 if single else np.float64)
    counts: FloatArray = (there.T @ there).astype(np.float64)
    return counts


def from_pairs(matrix: ItemScores, counts: FloatArray) -> ItemCovariances:
    """Return the sums of covariances, each of the objects that have both items.

    Parameters
    ----------
    matrix : scores, nan where there is none
    counts : of :func:`pair_counts`, all of them at least 2

    Raises
    ------
    DataError
        If two items have fewer than two objects in common; the message names them.
    """
    few = np.argwhere(counts < 2)
    if few.size:
        i, j = few[0]
        raise DataError(
            f"items {str(matrix.items[i])!r} and {str(matrix.items[j])!r} have "
            f"{int(counts[i, j])} objects in common, and a covariance needs two"
        )
    X = matrix.values
    there = ~np.isnan(X)
    mean = np.nansum(X, axis=0) / np.diagonal(counts)
    D = np.where(there, X - mean, 0.0)
    # Σ (x − x̄)(y − ȳ) of the objects of the pair, whose means are not those of the items
    sums = D.T @ there.astype(float)
    S = (D.T @ D - sums * sums.T / counts) / (counts - 1)
    constant = is_constant(np.diagonal(S), np.nanmax(np.abs(X), axis=0))
    S[constant] = 0.0
    S[:, constant] = 0.0
    variances = np.diagonal(S).copy()
    correlations = np.nan
    if not constant.any():
        correlations = float((S / np.sqrt(np.outer(variances, variances))).sum())
    total = float(S.sum())
    return ItemCovariances(
        variances=variances,
        with_total=S.sum(axis=0),
        total=total if total > NO_VARIANCE * len(S) * variances.sum() else min(total, 0.0),
        correlations=correlations,
        squares=np.square(S).sum(axis=0),
        matrix=S,
    )
