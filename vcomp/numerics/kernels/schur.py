"""Loops over the sparse rows that couple an eliminated diagonal block to the rest."""

from __future__ import annotations

import numpy as np
from numba import njit

from vcomp._typing import FloatArray, IntArray, LongArray

_TILE = 64


@njit(cache=True, nogil=True)
def mirror_upper(matrix: FloatArray) -> None:
    """Copy the upper triangle of a square matrix onto its lower one, tile by tile, in place."""
    n = matrix.shape[0]
    for top in range(0, n, _TILE):
        for left in range(0, top + 1, _TILE):
            for i in range(top, min(top + _TILE, n)):
                for j in range(left, min(left + _TILE, i)):
                    matrix[i, j] = matrix[j, i]


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
            for j in range(i, indptr[g + 1]):
                gram[row, indices[j]] += scaled * data[j]
    mirror_upper(gram)
    return gram
