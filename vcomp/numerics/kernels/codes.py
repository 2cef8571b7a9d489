"""Loops over columns of codes: counts of levels, nesting, places in grids, and sums by level."""

from __future__ import annotations

from typing import Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.numerics.kernels.compilation import njit

FEW_ROWS = 2**17
"""Rows up to which NumPy is used, so that nothing is compiled. Both count and sum in the order of
rows, and give the same bits."""

_FEW = 65_536
"""Number of levels up to which several tables of counts are used; with more, the tables would take
more time and memory than the rows."""


@njit(cache=True, nogil=True)
def _tables(n_levels: int) -> LongArray:
    """Return zero counts, in several tables if there are few levels.

    Consecutive rows go to different tables, so that rows of equal levels need not wait for each
    other's count.
    """
    return np.zeros((n_levels, 4 if n_levels <= _FEW else 1), np.int64)


@njit(cache=True, nogil=True)
def _added(counts: LongArray) -> LongArray:
    """Return the counts of all tables; ``counts.sum(axis=1)`` takes two seconds to compile."""
    totals = np.zeros(len(counts), np.int64)
    for k in range(len(counts)):
        for table in range(counts.shape[1]):
            totals[k] += counts[k, table]
    return totals


def count_values(values: Any, low: Any, width: int) -> tuple[IntArray, LongArray]:
    """Return ``v - low`` of every whole number v, and counts of the values ``0 .. width - 1``."""
    if values.size <= FEW_ROWS:
        codes = (values.astype(np.int64) - low).astype(np.int32)
        return codes, np.bincount(codes, minlength=width)
    return _count_values(values, low, width)


@njit(cache=True, nogil=True)
def _count_values(values: Any, low: Any, width: int) -> tuple[IntArray, LongArray]:
    counts = _tables(width)
    last = counts.shape[1] - 1
    codes = np.empty(values.size, np.int32)
    for i in range(values.size):
        code = values[i] - low
        codes[i] = code
        counts[code, i & last] += 1
    totals: LongArray = _added(counts)
    return codes, totals


def renumber(codes: Any, numbers: IntArray) -> None:
    """Replace every code c by ``numbers[c]``, in place."""
    if codes.size <= FEW_ROWS:
        codes[...] = numbers[codes]
        return
    _renumber(codes, numbers)


@njit(cache=True, nogil=True)
def _renumber(codes: Any, numbers: IntArray) -> None:
    for i in range(codes.size):
        codes[i] = numbers[codes[i]]


def count_levels(codes: Any, n_levels: int) -> LongArray:
    """Return the number of rows of each level."""
    if codes.size <= FEW_ROWS:
        return np.bincount(codes, minlength=n_levels)
    return _count_levels(codes, n_levels)


@njit(cache=True, nogil=True)
def _count_levels(codes: Any, n_levels: int) -> LongArray:
    counts = _tables(n_levels)
    last = counts.shape[1] - 1
    for i in range(codes.size):
        counts[codes[i], i & last] += 1
    return _added(counts)


def determined_levels(inner: IntArray, outer: IntArray, n_inner: int) -> IntArray:
    """Return the outer level that each inner level is nested in; empty if one has several.

    The search stops at the first contradicting row, which comes early if facets are crossed.
    """
    if inner.size <= FEW_ROWS:
        level = np.full(n_inner, -1, np.int32)
        level[inner] = outer
        return level if np.array_equal(level[inner], outer) else level[:0]
    return _determined_levels(inner, outer, n_inner)


@njit(cache=True, nogil=True)
def _determined_levels(inner: IntArray, outer: IntArray, n_inner: int) -> IntArray:
    level = np.full(n_inner, -1, np.int32)
    for i in range(inner.size):
        known = level[inner[i]]
        if known < 0:
            level[inner[i]] = outer[i]
        elif known != outer[i]:
            return level[:0]
    return level


def place_rows(places: Any, codes: IntArray, n_levels: int) -> None:
    """Add an axis to a grid: replace the place of each row by that in the larger grid."""
    if places.size <= FEW_ROWS:
        places *= n_levels
        places += codes
        return
    _place_rows(places, codes, n_levels)


@njit(cache=True, nogil=True)
def _place_rows(places: Any, codes: IntArray, n_levels: int) -> None:
    for i in range(places.size):
        places[i] = places[i] * n_levels + codes[i]


@njit(cache=True, nogil=True)
def add_places(places: LongArray, values: Any, low: Any, table: LongArray) -> bool:
    """Add ``table[v - low]`` to the place of each row; return whether all values are known.

    If a value is outside the table or its entry is negative, the places are invalid.
    """
    high = low + (table.size - 1)
    are_known = True
    for i in range(places.size):
        value = np.int64(values[i])  # compared first: `value - low` may overflow
        step = table[value - low] if low <= value <= high else -1
        are_known &= step >= 0
        places[i] += step
    return are_known


def fill_counts(places: Any, n_cells: int) -> IntArray:
    """Return the number of rows of each cell of a grid."""
    if places.size <= FEW_ROWS:
        return np.bincount(places, minlength=n_cells).astype(np.int32)
    return _fill_counts(places, n_cells)


@njit(cache=True, nogil=True)
def _fill_counts(places: Any, n_cells: int) -> IntArray:
    counts = np.zeros(n_cells, np.int32)
    for i in range(places.size):
        counts[places[i]] += 1
    return counts


def group_sums(codes: IntArray, values: FloatArray, n_levels: int) -> FloatArray:
    """Return ``Z'v`` for the indicator matrix ``Z`` of `codes`: sums within levels.

    Parameters
    ----------
    codes : (n,) level of each row, in ``0 .. n_levels - 1``
    values : (n, m) columns v
    """
    if values.size <= FEW_ROWS:
        sums = np.empty((n_levels, values.shape[1]))
        for j in range(values.shape[1]):
            sums[:, j] = np.bincount(codes, values[:, j], n_levels)
        return sums
    return _group_sums(codes, values, n_levels)


@njit(cache=True, nogil=True)
def _group_sums(codes: IntArray, values: FloatArray, n_levels: int) -> FloatArray:
    n, m = values.shape
    sums = np.zeros((n_levels, m))
    for i in range(n):
        g = codes[i]
        for j in range(m):
            sums[g, j] += values[i, j]
    return sums


@njit(cache=True, nogil=True)
def add_group_sums(codes: Any, values: FloatArray, sums: FloatArray) -> None:
    """Add the sums within levels of a block of rows (n, m) to those of others (levels, m)."""
    n, m = values.shape
    for i in range(n):
        g = codes[i]
        for j in range(m):
            sums[g, j] += values[i, j]


@njit(cache=True, nogil=True)
def centre_groups(codes: Any, means: FloatArray, values: FloatArray) -> None:
    """Subtract the means of their levels (levels, m) from a block of rows (n, m), in place."""
    n, m = values.shape
    for i in range(n):
        g = codes[i]
        for j in range(m):
            values[i, j] -= means[g, j]


def group_counts(codes: IntArray, n_levels: int) -> FloatArray:
    """Return the number of rows of each level, as floats."""
    if codes.size <= FEW_ROWS:
        return np.bincount(codes, minlength=n_levels).astype(float)
    return _group_counts(codes, n_levels)


@njit(cache=True, nogil=True)
def _group_counts(codes: IntArray, n_levels: int) -> FloatArray:
    counts = np.zeros(n_levels)
    for i in range(codes.size):
        counts[codes[i]] += 1.0
    return counts
