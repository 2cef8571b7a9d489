"""Loops over columns of codes: counts of levels, nesting, places in grids, and sums by level."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from vcomp._typing import FloatArray, IntArray, LongArray

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


@njit(cache=True, nogil=True)
def count_values(values: Any, low: Any, width: int) -> tuple[IntArray, LongArray]:
    """Return ``v - low`` of every whole number v, and counts of the values ``0 .. width - 1``."""
    counts = _tables(width)
    last = counts.shape[1] - 1
    codes = np.empty(values.size, np.int32)
    for i in range(values.size):
        code = values[i] - low
        codes[i] = code
        counts[code, i & last] += 1
    totals: LongArray = _added(counts)
    return codes, totals


@njit(cache=True, nogil=True)
def renumber(codes: Any, numbers: IntArray) -> None:
    """Replace every code c by ``numbers[c]``, in place."""
    for i in range(codes.size):
        codes[i] = numbers[codes[i]]


@njit(cache=True, nogil=True)
def count_levels(codes: Any, n_levels: int) -> LongArray:
    """Return the number of rows of each level."""
    counts = _tables(n_levels)
    last = counts.shape[1] - 1
    for i in range(codes.size):
        counts[codes[i], i & last] += 1
    totals: LongArray = _added(counts)
    return totals


@njit(cache=True, nogil=True)
def determined_levels(inner: IntArray, outer: IntArray, n_inner: int) -> IntArray:
    """Return the outer level that each inner level is nested in; empty if one has several.

    The search stops at the first contradicting row, which comes early if facets are crossed.
    """
    level = np.full(n_inner, -1, np.int32)
    for i in range(inner.size):
        known = level[inner[i]]
        if known < 0:
            level[inner[i]] = outer[i]
        elif known != outer[i]:
            return level[:0]
    return level


@njit(cache=True, nogil=True)
def place_rows(places: Any, codes: IntArray, n_levels: int) -> None:
    """Add an axis to a grid: replace the place of each row by that in the larger grid."""
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


@njit(cache=True, nogil=True)
def fill_counts(places: Any, n_cells: int) -> IntArray:
    """Return the number of rows of each cell of a grid."""
    counts = np.zeros(n_cells, np.int32)
    for i in range(places.size):
        counts[places[i]] += 1
    return counts


@njit(cache=True, nogil=True)
def group_sums(codes: IntArray, values: FloatArray, n_levels: int) -> FloatArray:
    """Return ``Z'v`` for the indicator matrix ``Z`` of `codes`: sums within levels.

    Parameters
    ----------
    codes : (n,) level of each row, in ``0 .. n_levels - 1``
    values : (n, m) columns v
    """
    n, m = values.shape
    sums = np.zeros((n_levels, m))
    for i in range(n):
        g = codes[i]
        for j in range(m):
            sums[g, j] += values[i, j]
    return sums


@njit(cache=True, nogil=True)
def group_counts(codes: IntArray, n_levels: int) -> FloatArray:
    """Return the number of rows of each level, as floats."""
    counts = np.zeros(n_levels)
    for i in range(codes.size):
        counts[codes[i]] += 1.0
    return counts
