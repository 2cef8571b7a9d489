"""Compiled loops over many small symmetric matrices, each a part of a larger one."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.numerics.kernels import njit


@njit(cache=True, nogil=True)
def fill_inside(
    matrices: FloatArray, cells: LongArray, pattern: LongArray, node: LongArray, out: FloatArray
) -> None:
    """Write the rows and columns `cells` of symmetric matrices into `out`.

    Parameters
    ----------
    matrices : (nodes, C, C)
    cells : (P, s)
    pattern, node : (pairs,) row of `cells`, and matrix
    out : (pairs, s, s)
    """
    s = cells.shape[1]
    for p in range(pattern.size):
        own, n = pattern[p], node[p]
        for i in range(s):
            row = cells[own, i]
            for j in range(s):
                out[p, i, j] = matrices[n, row, cells[own, j]]


@njit(cache=True, nogil=True)
def add_embedded(
    values: FloatArray,
    of_value: LongArray,
    cells: LongArray,
    pattern: LongArray,
    node: LongArray,
    weights: FloatArray,
    out: FloatArray,
) -> None:
    """Add the lower triangles of symmetric matrices of `cells` to those of `out`.

    Parameters
    ----------
    values : (V, s, s)
    of_value : (pairs,) which of the values
    cells : (P, s), in ascending order
    pattern, node : (pairs,) row of `cells`, and matrix of `out`
    weights : (pairs,) how often each is added
    out : (nodes, C, C)
    """
    s = cells.shape[1]
    for p in range(pattern.size):
        v, own, n, weight = of_value[p], pattern[p], node[p], weights[p]
        for i in range(s):
            row = cells[own, i]
            for j in range(i + 1):
                out[n, row, cells[own, j]] += weight * values[v, i, j]


@njit(cache=True, nogil=True)
def invert_positive(matrices: FloatArray, logs: FloatArray) -> bool:
    """Replace positive definite matrices by their inverses, and add log-determinants to `logs`.

    Returns False if one is not positive definite. The inverse is that of the Cholesky factor L:
    A⁻¹ = L⁻ᵀL⁻¹.

    Parameters
    ----------
    matrices : (P, s, s)
    logs : (P,)
    """
    s = matrices.shape[1]
    for p in range(matrices.shape[0]):
        A = matrices[p]
        for j in range(s):
            pivot = A[j, j]
            for k in range(j):
                pivot -= A[j, k] * A[j, k]
            if not pivot > 0.0:
                return False
            logs[p] += np.log(pivot)
            scale = 1.0 / np.sqrt(pivot)
            for i in range(j + 1, s):
                total = A[i, j]
                for k in range(j):
                    total -= A[i, k] * A[j, k]
                A[i, j] = total * scale
            A[j, j] = scale  # the diagonal of L⁻¹
        for j in range(s):
            for i in range(j + 1, s):
                total = 0.0
                for k in range(j, i):
                    total -= A[i, k] * A[k, j]
                A[i, j] = total * A[i, i]
        for i in range(s):
            for j in range(i + 1):
                total = 0.0
                for k in range(i, s):
                    total += A[k, i] * A[k, j]
                A[i, j] = total
                A[j, i] = total
    return True
