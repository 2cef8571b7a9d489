"""Sums of the signed ranks of the differences between systems (Wilcoxon, 1945)."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.numerics.kernels import njit


@njit(cache=True, nogil=True)
def signed_rank_sums(
    X: FloatArray, i: LongArray, j: LongArray, tolerance: float
) -> tuple[FloatArray, LongArray, FloatArray]:
    """Sum the ranks of topics on which one system is better than another.

    Parameters
    ----------
    X : (n_topics, n_systems) scores
    i, j : (n_pairs,) systems of each pair
    tolerance : differences up to this size are zero, and differences of sizes this close are tied

    Returns
    -------
    positive : (n_pairs,) sum of the ranks of topics with X_i > X_j; tied ones share their mean
    count : (n_pairs,) topics with a difference: others have no rank
    ties : (n_pairs,) sum of t³ - t over groups of t tied differences
    """
    n, m = X.shape[0], i.size
    positive, ties = np.zeros(m), np.zeros(m)
    count = np.zeros(m, np.int64)
    size, above = np.empty(n), np.empty(n)
    for p in range(m):
        end = 0
        for t in range(n):
            d = X[t, i[p]] - X[t, j[p]]
            if abs(d) > tolerance:
                size[end], above[end] = abs(d), 1.0 if d > 0.0 else 0.0
                end += 1
        _sort_together(size, above, end)
        first = 0
        while first < end:
            last = first + 1
            while last < end and size[last] - size[last - 1] <= tolerance:
                last += 1
            rank, tied = 0.5 * (first + last + 1), float(last - first)
            for q in range(first, last):
                positive[p] += rank * above[q]
            ties[p] += tied * (tied * tied - 1.0)
            first = last
        count[p] = end
    return positive, count, ties


@njit(cache=True, nogil=True)
def _sort_together(values: FloatArray, others: FloatArray, count: int) -> None:
    """Sort the first values in place by Shell's method, and others with them."""
    gap = count // 2
    while gap > 0:
        for p in range(gap, count):
            value, other, q = values[p], others[p], p
            while q >= gap and values[q - gap] > value:
                values[q], others[q] = values[q - gap], others[q - gap]
                q -= gap
            values[q], others[q] = value, other
        gap //= 2
