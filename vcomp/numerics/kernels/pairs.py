"""Pair tables ``Z_a'Z_b``: counts of pairs of groups of two terms, without zeros."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.numerics.kernels.codes import FEW_ROWS
from vcomp.numerics.kernels.compilation import njit

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
    indptr, indices, counts : (n_rows + 1,), (nnz,), (nnz,)
    """
    if rows.size <= FEW_ROWS:
        return _few_pair_counts(rows, cols, n_rows, n_cols, weights)
    return _pair_counts(rows, cols, n_rows, n_cols, weights)


def _few_pair_counts(
    rows: IntArray, cols: IntArray, n_rows: int, n_cols: int, weights: FloatArray
) -> tuple[LongArray, IntArray, FloatArray]:
    pairs = rows.astype(np.int64) * n_cols + cols
    found, place = np.unique(pairs, return_inverse=True)
    counts = np.bincount(place, weights if weights.size else None, found.size).astype(float)
    by_row = np.bincount(found // max(n_cols, 1), minlength=n_rows)
    indptr = np.concatenate([[0], np.cumsum(by_row)]).astype(np.int64)
    return indptr, (found % max(n_cols, 1)).astype(np.int32), counts


@njit(cache=True, nogil=True)
def _pair_counts(
    rows: IntArray, cols: IntArray, n_rows: int, n_cols: int, weights: FloatArray
) -> tuple[LongArray, IntArray, FloatArray]:
    n = rows.size
    start = np.zeros(n_cols + 1, np.int64)
    for i in range(n):
        start[cols[i] + 1] += 1
    for j in range(n_cols):
        start[j + 1] += start[j]
    weighted = weights.size > 0
    rows_by_col = np.empty(n, np.int32)
    cols_by_col = np.empty(n, np.int32)
    weights_by_col = np.empty(weights.size)
    for i in range(n):
        place = start[cols[i]]
        start[cols[i]] += 1
        rows_by_col[place] = rows[i]
        cols_by_col[place] = cols[i]
        if weighted:
            weights_by_col[place] = weights[i]

    start = np.zeros(n_rows + 1, np.int64)
    for i in range(n):
        start[rows[i] + 1] += 1
    for j in range(n_rows):
        start[j + 1] += start[j]
    fill = start[:-1].copy()
    sorted_cols = np.empty(n, np.int32)
    sorted_weights = np.empty(weights.size)
    for i in range(n):
        place = fill[rows_by_col[i]]
        fill[rows_by_col[i]] += 1
        sorted_cols[place] = cols_by_col[i]
        if weighted:
            sorted_weights[place] = weights_by_col[i]

    indptr = np.zeros(n_rows + 1, np.int64)
    indices = np.empty(n, np.int32)
    counts = np.empty(n, np.float64)
    nnz = 0
    for g in range(n_rows):
        previous = -1
        for i in range(start[g], start[g + 1]):
            weight = sorted_weights[i] if weighted else 1.0
            if sorted_cols[i] == previous:
                counts[nnz - 1] += weight
            else:
                previous = sorted_cols[i]
                indices[nnz] = previous
                counts[nnz] = weight
                nnz += 1
        indptr[g + 1] = nnz
    if nnz < n:
        indices, counts = indices[:nnz].copy(), counts[:nnz].copy()
    return indptr, indices, counts


@njit(cache=True, nogil=True)
def _root(above: IntArray, node: int) -> int:
    """Return the root of a node, with path compression."""
    root = node
    while above[root] != root:
        root = above[root]
    while above[node] != root:
        above[node], node = root, above[node]
    return root


def join_pairs(above: IntArray, indptr: LongArray, indices: IntArray, offset: int) -> None:
    """Join the nodes that a pair table connects, in place.

    Parameters
    ----------
    above : (nodes,) parent of each node, which is not after it; initially itself
    indptr, indices : of the table; its rows are the first nodes, its columns follow from `offset`
    """
    if indices.size > FEW_ROWS:
        _join_pairs(above, indptr, indices, offset)
        return
    rows = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    above[:] = _roots(above)
    while True:
        # Of the roots of a pair the later one is put below the earliest that it meets.
        ends = above[rows], above[indices + offset]
        apart = ends[0] != ends[1]
        if not apart.any():
            return
        np.minimum.at(above, np.maximum(*ends)[apart], np.minimum(*ends)[apart])
        above[:] = _roots(above)
        rows, indices = rows[apart], indices[apart]


@njit(cache=True, nogil=True)
def _join_pairs(above: IntArray, indptr: LongArray, indices: IntArray, offset: int) -> None:
    """Join by union-find (Galler & Fischer 1964)."""
    for g in range(indptr.size - 1):
        for i in range(indptr[g], indptr[g + 1]):
            a, b = _root(above, g), _root(above, offset + indices[i])
            above[max(a, b)] = min(a, b)


def _roots(above: IntArray) -> IntArray:
    """Return the root of every node."""
    root = above
    while ((higher := root[root]) != root).any():
        root = higher
    return root


def number_parts(above: IntArray) -> IntArray:
    """Return the number of each node's part, with parts numbered in the order of first nodes."""
    root = _roots(above)
    numbers = np.cumsum(root == np.arange(root.size)) - 1
    return numbers[root].astype(np.int32)


def squared_counts(
    indptr: LongArray, indices: IntArray, counts: FloatArray, n_cols: int
) -> tuple[FloatArray, FloatArray]:
    """Return the sums of squared counts of each row and of each column of a pair table."""
    if indices.size <= FEW_ROWS:
        squares, of = counts * counts, np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
        by_row = np.bincount(of, squares, indptr.size - 1).astype(float)
        return by_row, np.bincount(indices, squares, n_cols).astype(float)
    return _squared_counts(indptr, indices, counts, n_cols)


@njit(cache=True, nogil=True)
def _squared_counts(
    indptr: LongArray, indices: IntArray, counts: FloatArray, n_cols: int
) -> tuple[FloatArray, FloatArray]:
    by_row = np.zeros(indptr.size - 1)
    by_col = np.zeros(n_cols)
    for g in range(by_row.size):
        total = 0.0
        for i in range(indptr[g], indptr[g + 1]):
            square = counts[i] * counts[i]
            total += square
            by_col[indices[i]] += square
        by_row[g] = total
    return by_row, by_col
