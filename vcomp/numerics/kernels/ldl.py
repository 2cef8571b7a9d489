"""Sparse LDL' of a symmetric matrix whose last columns are dense.

The first c columns are factored one after the other, each from the earlier ones that have an entry
in its row (Davis 2006, Direct Methods for Sparse Linear Systems, section 4.8). Their Schur
complement in the last m columns is summed column by column into a dense matrix, which LAPACK
factors. L is stored in compressed columns with ascending rows; rows from c on belong to the dense
part. All entries that a column needs are on the pattern of a few others, which stay in the cache.

Where a fit waits for a kernel's compilation, arrays are made outside of it: each ``np.zeros`` or
copy within a kernel takes a tenth of a second to compile.
"""

from __future__ import annotations

import numpy as np

from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.numerics.kernels.compilation import njit


def fill_pattern(
    indptr: LongArray, indices: IntArray, parent: IntArray, counts: LongArray, cut: int
) -> tuple[LongArray, IntArray, LongArray]:
    """Return the pattern of the first `cut` columns of L in compressed columns.

    Parameters
    ----------
    indptr, indices : rows of the strictly lower triangle of the matrix
    parent : elimination tree
    counts : entries below the diagonal of each column of L

    Returns
    -------
    ptr, rows : the pattern
    places : position in it of each entry of the matrix; any number for entries of later columns
    """
    ptr = np.concatenate([[0], np.cumsum(counts[:cut])]).astype(np.int64)
    rows, seen = np.empty(ptr[cut], np.int32), np.full(indptr.size - 1, -1, np.int32)
    places = np.empty(indices.size, np.int64)
    _fill_rows(indptr, indices, parent, ptr[:cut].copy(), seen, rows, places)
    return ptr, rows, places


@njit(cache=True, nogil=True)
def _fill_rows(
    indptr: LongArray,
    indices: IntArray,
    parent: IntArray,
    following: LongArray,
    seen: IntArray,
    rows: IntArray,
    places: LongArray,
) -> None:
    cut = following.size
    for i in range(seen.size):
        seen[i] = i
        for p in range(indptr[i], indptr[i + 1]):
            k = indices[p]
            while k < cut and seen[k] != i:
                rows[following[k]] = i
                following[k] += 1
                seen[k] = i
                k = parent[k]
            if indices[p] < cut:  # the last entry of its column so far
                places[p] = following[indices[p]] - 1


@njit(cache=True, nogil=True)
def _row_pattern(
    i: int,
    indptr: LongArray,
    indices: IntArray,
    parent: IntArray,
    cut: int,
    seen: IntArray,
    stack: IntArray,
) -> int:
    """Write the columns of row i of L to the end of `stack`, each before its parent.

    Return the position of the first.
    """
    top = stack.size
    for p in range(indptr[i], indptr[i + 1]):
        k = indices[p]
        length = 0
        while k < cut and seen[k] != i:
            stack[length] = k
            length += 1
            seen[k] = i
            k = parent[k]
        while length > 0:
            length -= 1
            top -= 1
            stack[top] = stack[length]
    return top


def factor(
    ptr: LongArray,
    rows: IntArray,
    first: LongArray,
    heads: tuple[LongArray, IntArray, LongArray],
    diagonal: FloatArray,
    values: FloatArray,
    corner: FloatArray,
) -> tuple[FloatArray, int]:
    """Compute L and D of the leading columns, and the Schur complement of the dense part.

    Parameters
    ----------
    ptr, rows : pattern of the leading columns of L
    first : start of the dense part in each of them
    heads : for each leading row the columns of L with an entry there, and its positions
    diagonal : (n,) of the matrix
    values : entries of the matrix on the pattern, replaced by L
    corner : (m, m) lower triangle of the matrix in the dense part, replaced by the Schur
        complement

    Returns
    -------
    pivots : D
    failed : 0, or the number of the first pivot that is not positive, from 1
    """
    pivots, where = diagonal[: ptr.size - 1].copy(), np.empty(diagonal.size, np.int64)
    failed: int = _factor(ptr, rows, first, *heads, values, pivots, where, corner)
    return pivots, failed


@njit(cache=True, nogil=True)
def _factor(
    ptr: LongArray,
    rows: IntArray,
    first: LongArray,
    head_ptr: LongArray,
    head_cols: IntArray,
    head_at: LongArray,
    values: FloatArray,
    pivots: FloatArray,
    where: LongArray,
    corner: FloatArray,
) -> int:
    cut = pivots.size
    for j in range(cut):
        begin, end, pivot = ptr[j], ptr[j + 1], pivots[j]
        if head_ptr[j] < head_ptr[j + 1]:
            for p in range(begin, end):
                where[rows[p]] = p
        for h in range(head_ptr[j], head_ptr[j + 1]):
            k, at = head_cols[h], head_at[h]
            entry = values[at] * pivots[k]
            pivot -= values[at] * entry
            for p in range(at + 1, ptr[k + 1]):
                values[where[rows[p]]] -= values[p] * entry
        if not pivot > 0.0:
            return j + 1
        pivots[j] = pivot
        for p in range(begin, end):
            values[p] /= pivot
        for p in range(first[j], end):
            i, entry = rows[p] - cut, values[p] * pivot
            for r in range(first[j], p + 1):
                corner[i, rows[r] - cut] -= entry * values[r]
    return 0


@njit(cache=True, nogil=True)
def forward(ptr: LongArray, rows: IntArray, values: FloatArray, x: FloatArray) -> None:
    """Replace columns x by L⁻¹x, for the leading columns of L."""
    for k in range(ptr.size - 1):
        for p in range(ptr[k], ptr[k + 1]):
            i, entry = rows[p], values[p]
            for c in range(x.shape[1]):
                x[i, c] -= entry * x[k, c]


@njit(cache=True, nogil=True)
def backward(
    ptr: LongArray, rows: IntArray, values: FloatArray, pivots: FloatArray, x: FloatArray
) -> None:
    """Replace columns x by L'⁻¹D⁻¹x, for the leading columns of L: each row is visited once."""
    for k in range(ptr.size - 2, -1, -1):
        shrink = 1.0 / pivots[k]
        for c in range(x.shape[1]):
            x[k, c] *= shrink
        for p in range(ptr[k], ptr[k + 1]):
            i, entry = rows[p], values[p]
            for c in range(x.shape[1]):
                x[k, c] -= entry * x[i, c]


@njit(cache=True, nogil=True)
def sparse_quadratics(
    b_ptr: LongArray,
    b_indices: IntArray,
    b_data: FloatArray,
    parent: IntArray,
    ptr: LongArray,
    rows: IntArray,
    values: FloatArray,
    pivots: FloatArray,
    inverse: FloatArray,
) -> FloatArray:
    """Return b'C⁻¹b for every sparse row b, with a sparse L⁻¹b.

    Parameters
    ----------
    b_ptr, b_indices, b_data : the b in compressed rows
    inverse : (m, m) the inverse of the dense part, full
    """
    cut, n = pivots.size, pivots.size + inverse.shape[0]
    quadratics = np.zeros(b_ptr.size - 1)
    y = np.zeros(n)
    seen = np.full(n, -1, np.int32)
    stack = np.empty(n, np.int32)
    touched = np.empty(inverse.shape[0], np.int32)
    for g in range(quadratics.size):
        top = _row_pattern(g, b_ptr, b_indices, parent, cut, seen, stack)
        n_touched, total = 0, 0.0
        for p in range(b_ptr[g], b_ptr[g + 1]):
            i = b_indices[p]
            y[i] = b_data[p]
            if i >= cut:
                touched[n_touched] = i
                n_touched += 1
                seen[i] = g
        for place in range(top, n):
            k = stack[place]
            entry = y[k]
            y[k] = 0.0
            total += entry * entry / pivots[k]
            for p in range(ptr[k], ptr[k + 1]):
                i = rows[p]
                y[i] -= values[p] * entry
                if i >= cut and seen[i] != g:
                    touched[n_touched] = i
                    n_touched += 1
                    seen[i] = g
        for a in range(n_touched):
            i = touched[a]
            inner = 0.0
            for b in range(a):
                inner += inverse[i - cut, touched[b] - cut] * y[touched[b]]
            total += y[i] * (2.0 * inner + inverse[i - cut, i - cut] * y[i])
        for a in range(n_touched):
            y[touched[a]] = 0.0
        quadratics[g] = total
    return quadratics


def factor_derivative(
    parent: IntArray,
    ptr: LongArray,
    rows: IntArray,
    first: LongArray,
    heads: tuple[LongArray, IntArray, LongArray],
    values: FloatArray,
    pivots: FloatArray,
    slope: FloatArray,
    d_values: FloatArray,
    d_corner: FloatArray,
) -> FloatArray:
    """Return the derivative of D, and write those of L and of the Schur complement.

    The columns that change are those with a slope and their ancestors in the elimination tree.

    Parameters
    ----------
    parent, ptr, rows, first, heads, values, pivots : as for :func:`factor`
    slope : (n,) derivative of the diagonal of the matrix
    d_values : that of its entries on the pattern of L, replaced by that of L
    d_corner : lower triangle of its dense part, replaced by that of the Schur complement
    """
    cut = pivots.size
    d_pivots, changes = slope[:cut].copy(), slope[:cut] != 0.0
    if d_values.any():
        changes |= np.bincount(np.repeat(np.arange(cut), np.diff(ptr)), d_values != 0.0, cut) > 0.0
    where = np.empty(slope.size, np.int64)
    factored = ptr, rows, first, *heads, values, pivots
    _differentiate(parent, *factored, where, d_values, d_pivots, d_corner, changes)
    return d_pivots


@njit(cache=True, nogil=True)
def _differentiate(
    parent: IntArray,
    ptr: LongArray,
    rows: IntArray,
    first: LongArray,
    head_ptr: LongArray,
    head_cols: IntArray,
    head_at: LongArray,
    values: FloatArray,
    pivots: FloatArray,
    where: LongArray,
    d_values: FloatArray,
    d_pivots: FloatArray,
    d_corner: FloatArray,
    changes: BoolArray,
) -> None:
    cut = pivots.size
    for j in range(cut):
        if not changes[j]:
            continue
        if parent[j] < cut:
            changes[parent[j]] = True
        begin, end, d_pivot = ptr[j], ptr[j + 1], d_pivots[j]
        if head_ptr[j] < head_ptr[j + 1]:
            for p in range(begin, end):
                where[rows[p]] = p
        for h in range(head_ptr[j], head_ptr[j + 1]):
            k, at = head_cols[h], head_at[h]
            if not changes[k]:
                continue
            entry = values[at] * pivots[k]
            d_entry = d_values[at] * pivots[k] + values[at] * d_pivots[k]
            d_pivot -= d_values[at] * entry + values[at] * d_entry
            for p in range(at + 1, ptr[k + 1]):
                d_values[where[rows[p]]] -= d_values[p] * entry + values[p] * d_entry
        d_pivots[j] = d_pivot
        for p in range(begin, end):
            d_values[p] = (d_values[p] - values[p] * d_pivot) / pivots[j]
        for p in range(first[j], end):
            i, entry = rows[p] - cut, values[p] * pivots[j]
            d_entry = d_values[p] * pivots[j] + values[p] * d_pivot
            for r in range(first[j], p + 1):
                d_corner[i, rows[r] - cut] -= d_entry * values[r] + entry * d_values[r]


# Cross-products of sparse matrices as dense symmetric matrices ----------------------------------

_TILE = 128
"""Rows and columns that are copied together."""


def mirror_lower(matrix: FloatArray) -> None:
    """Copy the lower triangle of a square matrix to its upper triangle, tile by tile."""
    n = matrix.shape[0]
    for top in range(0, n, _TILE):
        rows = slice(top, top + _TILE)
        for left in range(0, top, _TILE):
            cols = slice(left, left + _TILE)
            matrix[cols, rows] = matrix[rows, cols].T
        corner = matrix[rows, rows]
        np.copyto(corner, corner.T.copy(), where=np.tri(len(corner), k=-1, dtype=bool).T)


def inverse_by_factor(corner: FloatArray) -> FloatArray:
    """Return the full inverse from a lower Cholesky factor in C order, which is not changed."""
    if corner.size <= 1:
        return np.square(1.0 / corner)
    from scipy.linalg.lapack import dpotri

    upper, _ = dpotri(np.array(corner.T, order="F"), lower=0, overwrite_c=1)
    lower: FloatArray = upper.T
    mirror_lower(lower)
    return lower


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
    _add_tail_gram(tail_ptr, tail_cols, first, rows, values, cut, first.copy(), gram)
    mirror_lower(gram)
    return gram


@njit(cache=True, nogil=True)
def _add_tail_gram(
    tail_ptr: LongArray,
    tail_cols: IntArray,
    first: LongArray,
    rows: IntArray,
    values: FloatArray,
    cut: int,
    following: LongArray,
    gram: FloatArray,
) -> None:
    for i in range(gram.shape[0]):
        for t in range(tail_ptr[i], tail_ptr[i + 1]):
            k = tail_cols[t]
            end = following[k]
            for p in range(first[k], end + 1):
                gram[i, rows[p] - cut] += values[end] * values[p]
            following[k] = end + 1


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
    _add_weighted_gram(indptr, indices, data, weights, gram)
    mirror_lower(gram)
    return gram


@njit(cache=True, nogil=True)
def _add_weighted_gram(
    indptr: LongArray, indices: IntArray, data: FloatArray, weights: FloatArray, gram: FloatArray
) -> None:
    for g in range(weights.size):
        for i in range(indptr[g], indptr[g + 1]):
            row = indices[i]
            for j in range(indptr[g], i + 1):
                gram[row, indices[j]] += weights[g] * data[j] * data[i]
