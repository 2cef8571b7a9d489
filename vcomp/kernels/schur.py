"""Loops over the sparse rows that couple an eliminated diagonal block to the rest."""

from __future__ import annotations

import numpy as np
from numba import njit

from vcomp._typing import FloatArray, IntArray, LongArray

__all__ = ["row_quadratics", "weighted_gram"]


@njit(cache=True, nogil=True)
def weighted_gram(
    indptr: LongArray, indices: IntArray, data: FloatArray, weights: FloatArray, n_cols: int
) -> FloatArray:
    """Return ``B' diag(w) B`` as a full symmetric matrix, one sparse outer product a row.

    Parameters
    ----------
    indptr, indices, data : B in compressed sparse rows, columns sorted
    weights : (rows,) w
    n_cols : columns of B
    """
    gram = np.zeros((n_cols, n_cols))
    for g in range(weights.size):
        for i in range(indptr[g], indptr[g + 1]):
            scaled = weights[g] * data[i]
            row = indices[i]
            for j in range(indptr[g], i + 1):
                gram[row, indices[j]] += scaled * data[j]
    for i in range(n_cols):
        for j in range(i):
            gram[j, i] = gram[i, j]
    return gram


@njit(cache=True, nogil=True)
def row_quadratics(
    indptr: LongArray, indices: IntArray, data: FloatArray, matrix: FloatArray
) -> FloatArray:
    """Return ``b'Mb`` for every row b of B; M is full and symmetric."""
    values = np.zeros(indptr.size - 1)
    for g in range(values.size):
        total = 0.0
        for i in range(indptr[g], indptr[g + 1]):
            row = indices[i]
            off_diagonal = 0.0
            for j in range(indptr[g], i):
                off_diagonal += matrix[row, indices[j]] * data[j]
            total += data[i] * (2.0 * off_diagonal + matrix[row, row] * data[i])
        values[g] = total
    return values
