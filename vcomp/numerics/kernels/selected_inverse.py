"""Entries of the inverse on the pattern of L, for a sparse LDL' whose last columns are dense.

They are computed from the last column of L to the first (docs/explanation/mathematics.md, eq.
(7.9); Takahashi, Fagan & Chin 1973; Erisman & Tinney 1975). The factor is that of
:mod:`vcomp.numerics.kernels.ldl`.
"""

from __future__ import annotations

import numpy as np

from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.numerics.kernels.compilation import njit


def leaf_diagonal(
    tail_ptr: LongArray,
    tail_cols: IntArray,
    first: LongArray,
    rows: IntArray,
    values: FloatArray,
    cut: int,
    inverse: FloatArray,
) -> FloatArray:
    """Return l'Zl for every leading column, with l its rows in the dense part.

    Parameters
    ----------
    tail_ptr, tail_cols : for each row of the dense part the columns of L with an entry there
    first : start of the dense part in each column
    inverse : (m, m) Z, the inverse of the dense part, full
    """
    diagonal = np.zeros(cut)
    _add_leaves(tail_ptr, tail_cols, first, rows, values, inverse, first.copy(), diagonal)
    return diagonal


@njit(cache=True, nogil=True)
def _add_leaves(
    tail_ptr: LongArray,
    tail_cols: IntArray,
    first: LongArray,
    rows: IntArray,
    values: FloatArray,
    inverse: FloatArray,
    following: LongArray,
    diagonal: FloatArray,
) -> None:
    cut = diagonal.size
    for i in range(tail_ptr.size - 1):
        for t in range(tail_ptr[i], tail_ptr[i + 1]):
            k = tail_cols[t]
            end = following[k]
            total = 0.0
            for p in range(first[k], end):
                total += inverse[i, rows[p] - cut] * values[p]
            diagonal[k] += values[end] * (2.0 * total + inverse[i, i] * values[end])
            following[k] = end + 1


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
    """Add Z l to `work` on the pattern of the column l = L_j, from the columns of Z after j."""
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
    leaf : leaves of the elimination tree: no earlier column needs their entries below the
        diagonal, which are left at zero
    leaf_part : result of :func:`leaf_diagonal`
    inverse : (m, m) the inverse of the dense part, full
    """
    entries = np.zeros(values.size)
    if leaf.all():  # then no entry is needed, and there is nothing to compile
        return entries, 1.0 / pivots + leaf_part
    n, diagonal = pivots.size + inverse.shape[0], np.zeros(pivots.size)
    work = np.full(n, -1, np.int32), np.zeros(n)
    _select(ptr, rows, values, pivots, leaf, leaf_part, inverse, entries, diagonal, *work)
    return entries, diagonal


@njit(cache=True, nogil=True)
def _select(
    ptr: LongArray,
    rows: IntArray,
    values: FloatArray,
    pivots: FloatArray,
    leaf: BoolArray,
    leaf_part: FloatArray,
    inverse: FloatArray,
    entries: FloatArray,
    diagonal: FloatArray,
    where: IntArray,
    work: FloatArray,
) -> None:
    for j in range(pivots.size - 1, -1, -1):
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
            # `work` has no products among rows of the dense part: they are in leaf_part.
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
    """Add the products of the dense part's row k = rows[p] with itself and the rows after it.

    Those of Z l go to `work`, those of dZ l + Z dl to `d_work`.
    """
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
    """Return the derivative of the inverse's diagonal, for the leading columns.

    Parameters
    ----------
    entries, diagonal : result of :func:`selected_inverse`
    inverse, d_inverse : (m, m) the inverse of the dense part and its derivative, full
    d_values, d_pivots, changes : result of :func:`vcomp.numerics.kernels.ldl.factor_derivative`
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
