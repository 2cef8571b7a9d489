"""Cross-products of sparse matrices as dense symmetric matrices."""

from __future__ import annotations

import numpy as np
from numba import njit

from vcomp._typing import FloatArray, IntArray, LongArray

_TILE = 64


@njit(cache=True, nogil=True)
def mirror_lower(matrix: FloatArray) -> None:
    """Copy the lower triangle of a square matrix to its upper triangle, tile by tile."""
    n = matrix.shape[0]
    for top in range(0, n, _TILE):
        for left in range(0, top + 1, _TILE):
            for i in range(top, min(top + _TILE, n)):
                for j in range(left, min(left + _TILE, i)):
                    matrix[j, i] = matrix[i, j]


@njit(cache=True, nogil=True)
def tail_gram(
    tail_ptr: LongArray,
    tail_cols: IntArray,
    first: LongArray,
    rows: IntArray,
    values: FloatArray,
    cut: int,
) -> FloatArray:
    """Return Σ l l' over the leading columns of L, l their rows in the dense part; symmetric.

    Parameters
    ----------
    tail_ptr, tail_cols : for each row of the dense part the columns of L with an entry there
    first : start of the dense part in each column
    rows, values : entries of L in compressed columns
    cut : first row of the dense part
    """
    m = tail_ptr.size - 1
    gram = np.zeros((m, m))
    following = first.copy()
    for i in range(m):
        for t in range(tail_ptr[i], tail_ptr[i + 1]):
            k = tail_cols[t]
            end = following[k]
            for p in range(first[k], end + 1):
                gram[i, rows[p] - cut] += values[end] * values[p]
            following[k] = end + 1
    mirror_lower(gram)
    return gram


@njit(cache=True, nogil=True)
def weighted_gram(
    indptr: LongArray, indices: IntArray, data: FloatArray, weights: FloatArray, n_cols: int
) -> FloatArray:
    """Return ``B' diag(w) B`` as a dense symmetric matrix, by a sparse outer product for each row.

    Parameters
    ----------
    indptr, indices, data : B in compressed sparse rows, columns sorted
    weights : (rows,) w
    n_cols : number of columns of B
    """
    gram = np.zeros((n_cols, n_cols))
    for g in range(weights.size):
        for i in range(indptr[g], indptr[g + 1]):
            row = indices[i]
            for j in range(indptr[g], i + 1):
                gram[row, indices[j]] += weights[g] * data[j] * data[i]
    mirror_lower(gram)
    return gram
