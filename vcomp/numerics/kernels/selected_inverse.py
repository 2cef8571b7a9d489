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


def selected_inverse(
    ptr: LongArray,
    rows: IntArray,
    values: FloatArray,
    pivots: FloatArray,
    leaf: BoolArray,
    inverse: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return the entries of the inverse on the pattern of L, and its diagonal.

    Parameters
    ----------
    ptr, rows, values, pivots : L and D
    leaf : leaves of the elimination tree: no earlier column needs their entries below the
        diagonal, which are left at zero
    inverse : (m, m) the inverse of the dense part, full
    """
    entries, diagonal = np.zeros(values.size), 1.0 / pivots
    work = np.zeros(_longest(ptr)), np.zeros(pivots.size + inverse.shape[0], np.int64)
    _select(ptr, rows, values, leaf, inverse, entries, diagonal, *work)
    return entries, diagonal


def _longest(ptr: LongArray) -> int:
    return int(np.diff(ptr).max(initial=0))


@njit(cache=True, nogil=True)
def _select(
    ptr: LongArray,
    rows: IntArray,
    values: FloatArray,
    leaf: BoolArray,
    inverse: FloatArray,
    entries: FloatArray,
    diagonal: FloatArray,
    work: FloatArray,
    where: LongArray,
) -> None:
    """Write the entries, and add what they give to the diagonal, D⁻¹.

    For the column l of L `work` has Zl on its pattern. Its rows after a sparse row k are on the
    pattern of column k; `where` has the places there of the rows of the last such k.
    """
    cut, mapped = diagonal.size, -1
    for j in range(cut - 1, -1, -1):
        begin, end = ptr[j], ptr[j + 1]
        for p in range(begin, end):
            work[p - begin] = 0.0
        for p in range(begin, end):
            k, l = rows[p], values[p]  # noqa: E741 - its letter
            if k < cut:
                if mapped != k:
                    for r in range(ptr[k], ptr[k + 1]):
                        where[rows[r]] = r
                    mapped = k
                of_k = diagonal[k] * l
                for r in range(p + 1, end):
                    z = entries[where[rows[r]]]
                    of_k += z * values[r]
                    work[r - begin] += z * l
            else:
                i = k - cut
                of_k = inverse[i, i] * l
                for r in range(p + 1, end):
                    z = inverse[i, rows[r] - cut]
                    of_k += z * values[r]
                    work[r - begin] += z * l
            work[p - begin] += of_k
        total = 0.0
        for p in range(begin, end):
            total += work[p - begin] * values[p]
            if not leaf[j]:
                entries[p] = -work[p - begin]
        diagonal[j] += total


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
    d_inverse: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return the derivatives of the inverse's entries and diagonal, for the leading columns.

    Parameters
    ----------
    entries, diagonal : result of :func:`selected_inverse`
    inverse, d_inverse : (m, m) the inverse of the dense part and its derivative, full
    d_values, d_pivots : result of :func:`vcomp.numerics.kernels.ldl.factor_derivative`
    """
    d_entries, d_diagonal = np.zeros(values.size), -d_pivots / pivots**2
    longest = _longest(ptr)
    work = np.zeros(longest), np.zeros(longest), np.zeros(pivots.size + len(inverse), np.int64)
    known = ptr, rows, values, entries, diagonal, inverse
    _differentiate(*known, d_values, d_inverse, d_entries, d_diagonal, *work)
    return d_entries, d_diagonal


@njit(cache=True, nogil=True)
def _differentiate(
    ptr: LongArray,
    rows: IntArray,
    values: FloatArray,
    entries: FloatArray,
    diagonal: FloatArray,
    inverse: FloatArray,
    d_values: FloatArray,
    d_inverse: FloatArray,
    d_entries: FloatArray,
    d_diagonal: FloatArray,
    work: FloatArray,
    d_work: FloatArray,
    where: LongArray,
) -> None:
    """Write the derivatives, as :func:`_select` does the entries; `d_work` has dZ l + Z dl."""
    cut, mapped = diagonal.size, -1
    for j in range(cut - 1, -1, -1):
        begin, end = ptr[j], ptr[j + 1]
        for p in range(begin, end):
            work[p - begin] = 0.0
            d_work[p - begin] = 0.0
        for p in range(begin, end):
            k, l, d_l = rows[p], values[p], d_values[p]  # noqa: E741 - its letter
            if k < cut:
                if mapped != k:
                    for r in range(ptr[k], ptr[k + 1]):
                        where[rows[r]] = r
                    mapped = k
                of_k, d_of_k = diagonal[k] * l, d_diagonal[k] * l + diagonal[k] * d_l
                for r in range(p + 1, end):
                    z, d_z = entries[where[rows[r]]], d_entries[where[rows[r]]]
                    of_k += z * values[r]
                    d_of_k += d_z * values[r] + z * d_values[r]
                    work[r - begin] += z * l
                    d_work[r - begin] += d_z * l + z * d_l
            else:
                i = k - cut
                of_k, d_of_k = inverse[i, i] * l, d_inverse[i, i] * l + inverse[i, i] * d_l
                for r in range(p + 1, end):
                    z, d_z = inverse[i, rows[r] - cut], d_inverse[i, rows[r] - cut]
                    of_k += z * values[r]
                    d_of_k += d_z * values[r] + z * d_values[r]
                    work[r - begin] += z * l
                    d_work[r - begin] += d_z * l + z * d_l
            work[p - begin] += of_k
            d_work[p - begin] += d_of_k
        total = 0.0
        for p in range(begin, end):
            d_entries[p] = -d_work[p - begin]
            total += d_values[p] * work[p - begin] + values[p] * d_work[p - begin]
        d_diagonal[j] += total
