"""Sparse LDL' of a symmetric matrix whose last columns are dense, and its inverse where L is.

The first c columns are factored one sparse row at a time (Davis 2005, "Algorithm 849: a concise
sparse Cholesky factorization package"); what they leave of the last m is gathered row by row into
a dense matrix, which is LAPACK's. L is kept in compressed columns with ascending rows, of which
those from c on belong to the dense part. Entries of the inverse on the pattern of L follow from
the last column to the first (Takahashi, Fagan & Chin 1973; Erisman & Tinney 1975).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray

__all__ = [
    "backward",
    "factor",
    "factor_derivative",
    "fill_pattern",
    "forward",
    "inverse_derivative",
    "leaf_diagonal",
    "mirror_lower",
    "selected_inverse",
    "sparse_quadratics",
    "tail_gram",
]


_TILE = 64


@njit(cache=True, nogil=True)
def mirror_lower(matrix: FloatArray) -> None:
    """Copy the lower triangle of a square matrix onto its upper one, tile by tile, in place."""
    n = matrix.shape[0]
    for top in range(0, n, _TILE):
        for left in range(0, top + 1, _TILE):
            for i in range(top, min(top + _TILE, n)):
                for j in range(left, min(left + _TILE, i)):
                    matrix[j, i] = matrix[i, j]


@njit(cache=True, nogil=True)
def fill_pattern(
    indptr: LongArray, indices: IntArray, parent: IntArray, counts: LongArray, cut: int
) -> tuple[LongArray, IntArray]:
    """Return the pattern of the first `cut` columns of L in compressed columns.

    Parameters
    ----------
    indptr, indices : rows of the strictly lower triangle of the matrix
    parent : elimination tree
    counts : entries below the diagonal of each column of L
    """
    n = indptr.size - 1
    ptr = np.zeros(cut + 1, np.int64)
    for k in range(cut):
        ptr[k + 1] = ptr[k] + counts[k]
    rows = np.empty(ptr[cut], np.int32)
    following = ptr[:cut].copy()
    seen = np.full(n, -1, np.int32)
    for i in range(n):
        seen[i] = i
        for p in range(indptr[i], indptr[i + 1]):
            k = indices[p]
            while k < cut and seen[k] != i:
                rows[following[k]] = i
                following[k] += 1
                seen[k] = i
                k = parent[k]
    return ptr, rows


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
    """Put the columns of row i of L on the end of `stack`, each before its parent."""
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


@njit(cache=True, nogil=True)
def factor(
    indptr: LongArray,
    indices: IntArray,
    data: FloatArray,
    diagonal: FloatArray,
    parent: IntArray,
    ptr: LongArray,
    rows: IntArray,
    values: FloatArray,
    pivots: FloatArray,
    tail: FloatArray,
) -> int:
    """Factor the leading columns into `values`, `pivots`; the Schur complement into `tail`.

    Parameters
    ----------
    indptr, indices, data : rows of the strictly lower triangle
    diagonal : (n,) the diagonal
    parent : elimination tree
    ptr, rows : pattern of the leading columns of L
    values, pivots : filled with L and D
    tail : (m, m) its lower triangle is filled

    Returns
    -------
    0, or the number of the first pivot that is not positive
    """
    n, cut = diagonal.size, pivots.size
    y = np.zeros(n)
    seen = np.full(n, -1, np.int32)
    stack = np.empty(n, np.int32)
    following = ptr[:cut].copy()
    for i in range(n):
        seen[i] = i
        top = _row_pattern(i, indptr, indices, parent, cut, seen, stack)
        for p in range(indptr[i], indptr[i + 1]):
            y[indices[p]] = data[p]
        pivot = diagonal[i]
        for place in range(top, n):
            k = stack[place]
            entry = y[k]
            y[k] = 0.0
            end = following[k]
            for p in range(ptr[k], end):
                y[rows[p]] -= values[p] * entry
            scaled = entry / pivots[k]
            pivot -= scaled * entry
            values[end] = scaled
            following[k] = end + 1
        if i < cut:
            if not pivot > 0.0:
                return i + 1
            pivots[i] = pivot
        else:
            row = i - cut
            tail[row, :row] = y[cut:i]
            tail[row, row] = pivot
            y[cut:i] = 0.0
    return 0


@njit(cache=True, nogil=True)
def forward(ptr: LongArray, rows: IntArray, values: FloatArray, x: FloatArray) -> None:
    """Replace columns x by those of L⁻¹x as far as the leading columns go, in place."""
    for k in range(ptr.size - 1):
        for p in range(ptr[k], ptr[k + 1]):
            for c in range(x.shape[1]):
                x[rows[p], c] -= values[p] * x[k, c]


@njit(cache=True, nogil=True)
def backward(ptr: LongArray, rows: IntArray, values: FloatArray, x: FloatArray) -> None:
    """Replace columns x by those of L'⁻¹x as far as the leading columns go, in place."""
    for k in range(ptr.size - 2, -1, -1):
        for p in range(ptr[k], ptr[k + 1]):
            for c in range(x.shape[1]):
                x[k, c] -= values[p] * x[rows[p], c]


@njit(cache=True, nogil=True)
def leaf_diagonal(
    tail_ptr: LongArray,
    tail_cols: IntArray,
    first: LongArray,
    rows: IntArray,
    values: FloatArray,
    cut: int,
    inverse: FloatArray,
) -> FloatArray:
    """Return l'Zl for the part l of every leading column that lies in the dense part.

    Parameters
    ----------
    tail_ptr, tail_cols : for each row of the dense part the columns of L with an entry there
    first : where the dense part begins in each column
    inverse : (m, m) Z, the inverse of the dense part, full
    """
    diagonal = np.zeros(cut)
    following = first.copy()
    for i in range(tail_ptr.size - 1):
        for t in range(tail_ptr[i], tail_ptr[i + 1]):
            k = tail_cols[t]
            end = following[k]
            total = 0.0
            for p in range(first[k], end):
                total += inverse[i, rows[p] - cut] * values[p]
            diagonal[k] += values[end] * (2.0 * total + inverse[i, i] * values[end])
            following[k] = end + 1
    return diagonal


@njit(cache=True, nogil=True)
def tail_gram(
    tail_ptr: LongArray,
    tail_cols: IntArray,
    first: LongArray,
    rows: IntArray,
    values: FloatArray,
    cut: int,
) -> FloatArray:
    """Return Σ l l' over the parts of the leading columns in the dense part, full."""
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
def _inner(
    j: int,
    ptr: LongArray,
    rows: IntArray,
    values: FloatArray,
    entries: FloatArray,
    diagonal: FloatArray,
    inverse: FloatArray,
    where: IntArray,
    work: FloatArray,
    dense_too: bool,
) -> None:
    """Add Z l to `work` on the pattern of column l = L_j, from the columns of Z that follow j."""
    cut = diagonal.size
    for p in range(ptr[j], ptr[j + 1]):
        k = rows[p]
        if k >= cut:
            if not dense_too:
                break
            for r in range(p, ptr[j + 1]):
                z = inverse[k - cut, rows[r] - cut]
                work[k] += z * values[r]
                if r > p:
                    work[rows[r]] += z * values[p]
            continue
        work[k] += diagonal[k] * values[p]
        for r in range(ptr[k], ptr[k + 1]):
            i = rows[r]
            if where[i] >= 0:
                work[i] += entries[r] * values[p]
                work[k] += entries[r] * values[where[i]]


@njit(cache=True, nogil=True)
def selected_inverse(
    ptr: LongArray,
    rows: IntArray,
    values: FloatArray,
    pivots: FloatArray,
    leaf: BoolArray,
    leaf_part: FloatArray,
    inverse: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return the entries of the inverse on the pattern of L, and its diagonal.

    Parameters
    ----------
    leaf : columns that no earlier column refers to: their entries below the diagonal are not
        needed, and left at zero
    leaf_part : what :func:`leaf_diagonal` returns
    inverse : (m, m) the inverse of the dense part, full
    """
    cut, n = pivots.size, pivots.size + inverse.shape[0]
    entries, diagonal = np.zeros(values.size), np.zeros(cut)
    where, work = np.full(n, -1, np.int32), np.zeros(n)
    for j in range(cut - 1, -1, -1):
        begin, end = ptr[j], ptr[j + 1]
        for p in range(begin, end):
            where[rows[p]] = p
        _inner(
            j,
            ptr,
            rows,
            values,
            entries,
            diagonal,
            inverse,
            where,
            work,
            not leaf[j],
        )
        total = leaf_part[j] if leaf[j] else 0.0
        if leaf[j]:
            # Rows of the dense part count once here: their products are in leaf_part.
            for p in range(begin, end):
                total += work[rows[p]] * values[p]
        else:
            for p in range(begin, end):
                entries[p] = -work[rows[p]]
                total -= entries[p] * values[p]
        diagonal[j] = 1.0 / pivots[j] + total
        for p in range(begin, end):
            where[rows[p]] = -1
            work[rows[p]] = 0.0
    return entries, diagonal


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
    """Return b'C⁻¹b for every sparse row b, whose solution with L stays sparse.

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


@njit(cache=True, nogil=True)
def factor_derivative(
    indptr: LongArray,
    indices: IntArray,
    parent: IntArray,
    ptr: LongArray,
    rows: IntArray,
    values: FloatArray,
    pivots: FloatArray,
    slope: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
    """Return the derivatives of L, D and of the dense part's matrix (lower triangle).

    The last of what is returned are the columns of L that change: those of the slope, and what
    is above them in the tree.

    Parameters
    ----------
    indptr, indices : rows of the strictly lower triangle of the matrix
    values, pivots : L and D
    slope : (n,) derivative of the diagonal of the matrix
    """
    n, cut = slope.size, pivots.size
    d_values, d_pivots = np.zeros(values.size), np.zeros(cut)
    d_tail = np.zeros((n - cut, n - cut))
    changes = np.zeros(cut, np.bool_)
    for k in range(cut):
        changes[k] |= slope[k] != 0.0
        if changes[k] and parent[k] < cut:
            changes[parent[k]] = True
    dy = np.zeros(n)
    seen = np.full(n, -1, np.int32)
    stack = np.empty(n, np.int32)
    following = ptr[:cut].copy()
    for i in range(n):
        seen[i] = i
        d_pivot = slope[i]
        for place in range(_row_pattern(i, indptr, indices, parent, cut, seen, stack), n):
            k = stack[place]
            end = following[k]
            following[k] = end + 1
            if not changes[k]:
                continue
            scaled, d_entry = values[end], dy[k]
            entry = scaled * pivots[k]
            dy[k] = 0.0
            for p in range(ptr[k], end):
                dy[rows[p]] -= d_values[p] * entry + values[p] * d_entry
            d_scaled = (d_entry - scaled * d_pivots[k]) / pivots[k]
            d_pivot -= d_scaled * entry + scaled * d_entry
            d_values[end] = d_scaled
        if i < cut:
            d_pivots[i] = d_pivot
        else:
            d_tail[i - cut, : i - cut] = dy[cut:i]
            d_tail[i - cut, i - cut] = d_pivot
            dy[cut:i] = 0.0
    return d_values, d_pivots, d_tail, changes


@njit(cache=True, nogil=True)
def _add_dense_part(
    p: int,
    end: int,
    cut: int,
    rows: IntArray,
    values: FloatArray,
    inverse: FloatArray,
    d_values: FloatArray,
    d_inverse: FloatArray,
    work: FloatArray,
    d_work: FloatArray,
) -> None:
    """Add Z l and dZ l + Z dl of the dense part's row k = rows[p] and what follows it."""
    k = rows[p]
    of_k, d_of_k = 0.0, 0.0
    for r in range(p, end):
        i = rows[r]
        z, d_z = inverse[k - cut, i - cut], d_inverse[k - cut, i - cut]
        of_k += z * values[r]
        d_of_k += d_z * values[r] + z * d_values[r]
        if r > p:
            work[i] += z * values[p]
            d_work[i] += d_z * values[p] + z * d_values[p]
    work[k] += of_k
    d_work[k] += d_of_k


@njit(cache=True, nogil=True)
def inverse_derivative(
    ptr: LongArray,
    rows: IntArray,
    values: FloatArray,
    pivots: FloatArray,
    entries: FloatArray,
    diagonal: FloatArray,
    inverse: FloatArray,
    d_values: FloatArray,
    d_pivots: FloatArray,
    changes: BoolArray,
    d_inverse: FloatArray,
) -> FloatArray:
    """Return the derivative of the diagonal of the inverse, of its leading part.

    Parameters
    ----------
    entries, diagonal : what :func:`selected_inverse` returns
    inverse, d_inverse : (m, m) the inverse of the dense part and its derivative, full
    """
    cut, n = pivots.size, pivots.size + inverse.shape[0]
    d_entries, d_diagonal = np.zeros(values.size), np.zeros(cut)
    where, work, d_work = np.full(n, -1, np.int32), np.zeros(n), np.zeros(n)
    for j in range(cut - 1, -1, -1):
        begin, end = ptr[j], ptr[j + 1]
        for p in range(begin, end):
            where[rows[p]] = p
        if not changes[j]:
            _inner(j, ptr, rows, values, d_entries, d_diagonal, d_inverse, where, d_work, True)
            end = begin
        for p in range(begin, end):
            k = rows[p]
            if k >= cut:
                _add_dense_part(
                    p, end, cut, rows, values, inverse, d_values, d_inverse, work, d_work
                )
                continue
            work[k] += diagonal[k] * values[p]
            d_work[k] += d_diagonal[k] * values[p] + diagonal[k] * d_values[p]
            for r in range(ptr[k], ptr[k + 1]):
                i = rows[r]
                o = where[i]
                if o >= 0:
                    z, d_z = entries[r], d_entries[r]
                    work[i] += z * values[p]
                    work[k] += z * values[o]
                    d_work[i] += d_z * values[p] + z * d_values[p]
                    d_work[k] += d_z * values[o] + z * d_values[o]
        total = 0.0
        for p in range(begin, ptr[j + 1]):
            i = rows[p]
            d_entries[p] = -d_work[i]
            total += d_values[p] * work[i] + values[p] * d_work[i]
            where[i] = -1
            work[i] = 0.0
            d_work[i] = 0.0
        d_diagonal[j] = total - d_pivots[j] / pivots[j] ** 2
    return d_diagonal
