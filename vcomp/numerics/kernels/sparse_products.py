"""Products of a matrix B in compressed sparse rows with many columns at once.

A kernel works on the rows ``first .. last - 1``, so that blocks of rows can run in threads. Empty
`weights` stand for ones: a matrix of ones is read twice as fast, and needs a third of the memory.
"""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.numerics.kernels.compilation import njit


@njit(cache=True, nogil=True)
def gather(
    indptr: LongArray,
    indices: IntArray,
    weights: FloatArray,
    x: FloatArray,
    out: FloatArray,
    first: int,
    last: int,
) -> None:
    """Write rows of ``B x`` into `out`.

    Parameters
    ----------
    indptr, indices, weights : B, (q, m)
    x : (m, c)
    out : (last - first, c)
    """
    width = x.shape[1]
    weighted = weights.size > 0
    for i in range(first, last):
        row = i - first
        for c in range(width):
            out[row, c] = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            w = weights[e] if weighted else 1.0
            for c in range(width):
                out[row, c] += w * x[j, c]


@njit(cache=True, nogil=True)
def scatter(
    indptr: LongArray,
    indices: IntArray,
    weights: FloatArray,
    x: FloatArray,
    out: FloatArray,
    first: int,
    last: int,
) -> None:
    """Add to `out` the contribution of these rows to ``B'x``.

    Parameters
    ----------
    indptr, indices, weights : B, (q, m)
    x : (q, c)
    out : (m, c)
    """
    width = x.shape[1]
    weighted = weights.size > 0
    for i in range(first, last):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            w = weights[e] if weighted else 1.0
            for c in range(width):
                out[j, c] += w * x[i, c]


@njit(cache=True, nogil=True)
def add_eliminated(
    indptr: LongArray,
    indices: IntArray,
    weights: FloatArray,
    inverse: FloatArray,
    x: FloatArray,
    out: FloatArray,
    first: int,
    last: int,
) -> None:
    """Add to `out` the contribution of these rows to ``B'diag(inverse)B x``.

    Each row is gathered and scattered while it is in the cache, without a transposed matrix or an
    intermediate array.

    Parameters
    ----------
    indptr, indices, weights : B, (q, m)
    inverse : (q,)
    x, out : (m, c)
    """
    width = x.shape[1]
    weighted = weights.size > 0
    row = np.empty(width)
    for i in range(first, last):
        begin, end = indptr[i], indptr[i + 1]
        for c in range(width):
            row[c] = 0.0
        if weighted:
            for e in range(begin, end):
                j = indices[e]
                for c in range(width):
                    row[c] += weights[e] * x[j, c]
        else:
            for e in range(begin, end):
                j = indices[e]
                for c in range(width):
                    row[c] += x[j, c]
        for c in range(width):
            row[c] *= inverse[i]
        if weighted:
            for e in range(begin, end):
                j = indices[e]
                for c in range(width):
                    out[j, c] += weights[e] * row[c]
        else:
            for e in range(begin, end):
                j = indices[e]
                for c in range(width):
                    out[j, c] += row[c]


@njit(cache=True, nogil=True)
def add_products(columns: FloatArray, n_rows: int, out: FloatArray) -> None:
    """Add to the lower triangle of `out` the inner products of every two sets, column by column.

    Parameters
    ----------
    columns : (m, at least n_rows, c) m sets of c columns
    out : (m, m, c) sums over rows
    """
    m, _, width = columns.shape
    for i in range(n_rows):
        for a in range(m):
            for b in range(a + 1):
                for c in range(width):
                    out[a, b, c] += columns[a, i, c] * columns[b, i, c]


@njit(cache=True, nogil=True)
def row_forms(
    indptr: LongArray,
    indices: IntArray,
    weights: FloatArray,
    scale: FloatArray,
    x: FloatArray,
    z: FloatArray,
    out: FloatArray,
    first: int,
    last: int,
) -> None:
    """Add to `out` the contribution of these rows to ``z'B'diag(scale)B x``, column by column.

    Parameters
    ----------
    indptr, indices, weights : B, (q, m)
    scale : (q,)
    x, z : (m, c)
    out : (1, c)
    """
    width = x.shape[1]
    weighted = weights.size > 0
    row_x, row_z = np.empty(width), np.empty(width)
    for i in range(first, last):
        for c in range(width):
            row_x[c] = 0.0
            row_z[c] = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            w = weights[e] if weighted else 1.0
            for c in range(width):
                row_x[c] += w * x[j, c]
                row_z[c] += w * z[j, c]
        for c in range(width):
            out[0, c] += scale[i] * row_x[c] * row_z[c]


@njit(cache=True, nogil=True)
def add_squares(
    indptr: LongArray,
    indices: IntArray,
    weights: FloatArray,
    scales: FloatArray,
    out: FloatArray,
    first: int,
    last: int,
) -> None:
    """Add to `out` the contribution of these rows to the diagonals of ``B'diag(scale)B``.

    Parameters
    ----------
    indptr, indices, weights : B, (q, m)
    scales : (q, c), a column for each diagonal
    out : (m, c)
    """
    width = scales.shape[1]
    weighted = weights.size > 0
    for i in range(first, last):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            w = weights[e] if weighted else 1.0
            for c in range(width):
                out[j, c] += w * w * scales[i, c]


@njit(cache=True, nogil=True)
def symmetric_product(
    indptr: LongArray,
    indices: IntArray,
    weights: FloatArray,
    x: FloatArray,
    out: FloatArray,
    first: int,
    last: int,
) -> None:
    """Add to `out` the contribution of these rows of a strict triangle U to ``(U + U')x``.

    Parameters
    ----------
    indptr, indices, weights : U, (m, m)
    x, out : (m, c)
    """
    width = x.shape[1]
    weighted = weights.size > 0
    for i in range(first, last):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            w = weights[e] if weighted else 1.0
            for c in range(width):
                out[i, c] += w * x[j, c]
                out[j, c] += w * x[i, c]
