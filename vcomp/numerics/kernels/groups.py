"""Sums over the rows of each group."""

from __future__ import annotations

import numpy as np
from numba import njit

from vcomp._typing import FloatArray, IntArray


@njit(cache=True, nogil=True)
def group_sums(codes: IntArray, values: FloatArray, n_levels: int) -> FloatArray:
    """Return ``Z'v`` for the indicator matrix ``Z`` that `codes` stands for.

    Parameters
    ----------
    codes : (n,) level of each row, in ``0 .. n_levels - 1``
    values : (n, m) columns to add up within levels
    """
    n, m = values.shape
    sums = np.zeros((n_levels, m))
    for i in range(n):
        g = codes[i]
        for j in range(m):
            sums[g, j] += values[i, j]
    return sums


@njit(cache=True, nogil=True)
def group_counts(codes: IntArray, n_levels: int) -> FloatArray:
    """Return how many rows each level has, as floats that can be divided by."""
    counts = np.zeros(n_levels)
    for i in range(codes.size):
        counts[codes[i]] += 1.0
    return counts
