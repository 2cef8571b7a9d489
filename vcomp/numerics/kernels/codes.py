"""Loops over columns of codes: counts of levels, nesting, places in grids, and sums by level.

Pair tables ``Z_a'Z_b`` count pairs of groups of two terms, without zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.numerics.kernels.compilation import njit
from vcomp.numerics.parallel import slices

FEW_ROWS = 2**17
"""Rows up to which NumPy is used, so that nothing is compiled. Both count and sum in the order of
rows, and give the same bits."""

_BLOCK = 2**16
"""Rows that are processed at once, so that they stay in a core's cache."""


def count_values(values: Any, low: Any, width: int) -> tuple[IntArray, LongArray]:
    """Return ``v - low`` of every whole number v, and counts of the values ``0 .. width - 1``."""
    if values.size <= FEW_ROWS:
        codes = (values.astype(np.int64) - low).astype(np.int32)
        return codes, np.bincount(codes, minlength=width)
    return _count_values(values, low, width)


@njit(cache=True, nogil=True)
def _count_values(values: Any, low: Any, width: int) -> tuple[IntArray, LongArray]:
    counts = np.zeros(width, np.int64)
    codes = np.empty(values.size, np.int32)
    for i in range(values.size):
        code = values[i] - low
        codes[i] = code
        counts[code] += 1
    return codes, counts


def count_levels(codes: Any, n_levels: int) -> LongArray:
    """Return the number of rows of each level."""
    if codes.size <= FEW_ROWS:
        return np.bincount(codes, minlength=n_levels)
    return _count_levels(codes, n_levels)


@njit(cache=True, nogil=True)
def _count_levels(codes: Any, n_levels: int) -> LongArray:
    counts = np.zeros(n_levels, np.int64)
    for i in range(codes.size):
        counts[codes[i]] += 1
    return counts


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
    for some in slices(places.size, _BLOCK):
        places[some] *= n_levels
        places[some] += codes[some]


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


def group_sums(codes: Any, values: FloatArray, n_levels: int) -> FloatArray:
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
    sums = np.zeros((n_levels, values.shape[1]))
    add_group_sums(codes, values, sums)
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


ONCE = np.zeros(0)
"""Empty weights: each observation counts once."""


def pair_counts(
    rows: IntArray, cols: IntArray, n_rows: int, n_cols: int, weights: FloatArray
) -> tuple[LongArray, IntArray, FloatArray]:
    """Return ``Z_a'Z_b`` in compressed sparse rows, columns sorted within each row.

    Two stable counting sorts, by column and then by row, make equal pairs adjacent, in O(n + q).

    Parameters
    ----------
    rows, cols : (n,) group of each observation in the two terms
    n_rows, n_cols : numbers of groups
    weights : (n,) weight of each observation; empty for ones

    Returns
    -------
    indptr, indices, counts : (n_rows + 1,), (nnz,), (nnz,); numbers of observations, not weights,
        have the type with the fewest bytes in which their squares are exact
    """
    if rows.size <= FEW_ROWS:
        return _few_pair_counts(rows, cols, n_rows, n_cols, weights)
    return _many_pair_counts(rows, cols, n_rows, n_cols, weights)


def _many_pair_counts(
    rows: IntArray, cols: IntArray, n_rows: int, n_cols: int, weights: FloatArray
) -> tuple[LongArray, IntArray, FloatArray]:
    counts: Any = np.empty(rows.size, np.float64 if weights.size else np.uint32)
    indptr, indices = _pair_counts(rows, cols, n_rows, n_cols, weights, counts)
    nnz = indptr[-1]
    if nnz < _MOSTLY * rows.size:
        indices, counts = indices[:nnz].copy(), counts[:nnz].copy()
    indices, counts = indices[:nnz], counts[:nnz]
    return indptr, indices, counts if weights.size else _narrowest(counts)


def _narrowest(counts: Any) -> Any:
    """Return whole numbers in the type with the fewest bytes that has their squares."""
    most = int(counts.max(initial=0))
    if most < 2**4:
        return counts.astype(np.uint8)
    return counts.astype(np.float32 if most <= 2**12 else float)


_SPARSE = 8
"""Cells a row of a table of pairs from which on sorting the pairs is faster than a table."""

_MOSTLY = 0.9
"""Share of an array that is used, above which it is not copied."""


def _few_pair_counts(
    rows: IntArray, cols: IntArray, n_rows: int, n_cols: int, weights: FloatArray
) -> tuple[LongArray, IntArray, FloatArray]:
    pairs, n = rows.astype(np.int64) * n_cols + cols, n_rows * n_cols
    place = pairs
    if n <= _SPARSE * rows.size:
        found = np.flatnonzero(np.bincount(pairs, minlength=n))
    else:
        found, place = np.unique(pairs, return_inverse=True)
        n = found.size
    counts: Any = np.bincount(place, weights if weights.size else None, n)
    if found.size < n:
        counts = counts[found]
    counts = counts if weights.size else _narrowest(counts)
    by_row = np.bincount(found // max(n_cols, 1), minlength=n_rows)
    indptr = np.concatenate([[0], np.cumsum(by_row)]).astype(np.int64)
    return indptr, (found % max(n_cols, 1)).astype(np.int32), counts


@njit(cache=True, nogil=True)
def _pair_counts(
    rows: IntArray, cols: IntArray, n_rows: int, n_cols: int, weights: FloatArray, counts: Any
) -> tuple[LongArray, IntArray]:
    """Return `indptr` and (n,) `indices`, the last of them unused; write to `counts`."""
    n, weighted = rows.size, weights.size > 0
    place = np.zeros(n_cols + 1, np.int64)
    for i in range(n):
        place[cols[i] + 1] += 1
    for j in range(n_cols):
        place[j + 1] += place[j]
    rows_by_col = np.empty(n, np.int32)
    weights_by_col = np.empty(weights.size)
    for i in range(n):
        at = place[cols[i]]
        place[cols[i]] += 1
        rows_by_col[at] = rows[i]
        if weighted:
            weights_by_col[at] = weights[i]

    # Now `place` has the ends of the columns, and then `indptr` has those of the rows.
    indptr = np.zeros(n_rows + 1, np.int64)
    for i in range(n):
        indptr[rows[i] + 1] += 1
    for g in range(n_rows):
        indptr[g + 1] += indptr[g]
    indices = np.empty(n, np.int32)
    sorted_weights = np.empty(weights.size)
    i = 0
    for j in range(n_cols):
        while i < place[j]:
            g = rows_by_col[i]
            at = indptr[g]
            indptr[g] += 1
            indices[at] = j
            if weighted:
                sorted_weights[at] = weights_by_col[i]
            i += 1

    nnz = i = 0
    for g in range(n_rows):
        end, indptr[g] = indptr[g], nnz
        previous = -1
        while i < end:
            if indices[i] != previous:
                previous = indices[i]
                indices[nnz] = previous  # read already
                counts[nnz] = 0
                nnz += 1
            counts[nnz - 1] += sorted_weights[i] if weighted else 1
            i += 1
    indptr[n_rows] = nnz
    return indptr, indices


def connected_sets(
    tables: Sequence[tuple[LongArray, IntArray, int]], n: int
) -> tuple[int, LongArray]:
    """Return how many sets there are of levels that are connected, and the set of each level.

    Sets are in the order of their first levels.

    Parameters
    ----------
    tables : `indptr` and `indices` of tables of pairs of levels in compressed sparse rows, and the
        number of the first of the columns' levels among all; rows begin with level 0
    n : number of levels
    """
    if sum(indices.size for _, indices, _ in tables) <= FEW_ROWS:
        return _few_connected_sets(tables, n)
    return _many_connected_sets(tables, n)


def _few_connected_sets(
    tables: Sequence[tuple[LongArray, IntArray, int]], n: int
) -> tuple[int, LongArray]:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    none = np.zeros(0, np.int64)
    rows = [np.repeat(np.arange(indptr.size - 1), np.diff(indptr)) for indptr, _, _ in tables]
    columns = [indices + np.int64(offset) for _, indices, offset in tables]
    both = np.concatenate([none, *rows]), np.concatenate([none, *columns])
    graph = coo_array((np.ones(both[0].size), both), shape=(n, n))
    n_sets, of_each = connected_components(graph, directed=False)
    return int(n_sets), of_each.astype(np.int64)


def _many_connected_sets(
    tables: Sequence[tuple[LongArray, IntArray, int]], n: int
) -> tuple[int, LongArray]:
    roots = np.arange(n, dtype=np.int32)
    for indptr, indices, offset in tables:
        _join_sets(indptr, indices, offset, roots)
    while (roots[roots] != roots).any():
        roots = roots[roots]
    number = np.cumsum(roots == np.arange(n))
    return int(number[-1]) if n else 0, number[roots] - 1


@njit(cache=True, nogil=True)
def _join_sets(indptr: LongArray, indices: IntArray, offset: int, roots: IntArray) -> None:
    """Join the sets of all levels that occur together.

    Parameters
    ----------
    indptr, indices : table of pairs of levels in compressed sparse rows
    offset : number of the first of the columns' levels among all levels; rows begin at 0
    roots : (n,) for each level another one of its set with a smaller number, or itself; changed
    """
    for g in range(indptr.size - 1):
        for e in range(indptr[g], indptr[g + 1]):
            a, b = g, indices[e] + offset
            while roots[a] != a:
                roots[a] = roots[roots[a]]
                a = roots[a]
            while roots[b] != b:
                roots[b] = roots[roots[b]]
                b = roots[b]
            roots[max(a, b)] = min(a, b)
