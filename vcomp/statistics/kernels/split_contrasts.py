"""Cells of a grid → squares of their means and contrasts along its axes."""

from __future__ import annotations

import numpy as np

from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.numerics.kernels import njit

_WORK = 32_768
"""Size of a working block in numbers: it fits into a core's second cache."""


@njit(cache=True, nogil=True)
def squares_in_strata(
    table: FloatArray,
    centres: FloatArray,
    groups: IntArray,
    weights: FloatArray,
    shape: LongArray,
    first: int,
    last: int,
) -> FloatArray:
    """Return the squares about the centres in every stratum, summed over ``first .. last − 1``.

    Parameters
    ----------
    table : (R, M) values of the cells for each combination of axis levels, R = Π shape
    centres : (R, q) origin of each group of cells
    groups : (M,) group of each cell, in order
    weights : (M,) of the cells
    shape : (k,) numbers of levels of the axes

    Returns
    -------
    (2^k,) sums; bit f of a position is set for contrasts of axis f, not its mean
    """
    place, stratum, step = _rows_of_strata(shape)
    is_mean = _means_of_levels(stratum.size, step, shape)
    n_rows = stratum.size
    width = max(8, min(256, _WORK // n_rows))
    # Each axis has one more row, for its mean, before its levels: n × m become (n + 1) × (m + 1).
    parts = np.zeros((n_rows, width))
    sums = np.empty((1 << shape.size, width))
    squares = np.zeros(1 << shape.size)
    for start in range(first, last, width):
        m = min(width, last - start)
        _fill(parts, table, centres, groups, place, start, m)
        for f in range(shape.size):
            for head in range(n_rows):
                if is_mean[f, head]:
                    _split(parts, head, step[f], shape[f], m)
        sums[:] = 0.0
        for row in range(n_rows):
            into, part = sums[stratum[row]], parts[row]
            for j in range(m):
                into[j] += part[j] * part[j]
        for s in range(squares.size):
            total = 0.0
            for j in range(m):
                total += sums[s, j] * weights[start + j]
            squares[s] += total
    return squares


@njit(cache=True, nogil=True)
def _rows_of_strata(shape: LongArray) -> tuple[LongArray, LongArray, LongArray]:
    """Return the row of each combination of levels, the rows' strata, and the axes' steps."""
    step = np.ones(shape.size, np.int64)
    for f in range(shape.size - 2, -1, -1):
        step[f] = step[f + 1] * (shape[f + 1] + 1)
    n_rows = step[0] * (shape[0] + 1) if shape.size else 1
    stratum = np.zeros(n_rows, np.int64)
    place = np.empty(np.prod(shape), np.int64)
    n_placed = 0
    for row in range(n_rows):
        for f in range(shape.size):
            if (row // step[f]) % (shape[f] + 1):
                stratum[row] |= 1 << f
        if stratum[row] == (1 << shape.size) - 1:
            place[n_placed] = row
            n_placed += 1
    return place, stratum, step


@njit(cache=True, nogil=True)
def _means_of_levels(n_rows: int, step: LongArray, shape: LongArray) -> BoolArray:
    """Return for each axis the rows of means along it, at levels of the later axes."""
    is_mean = np.ones((shape.size, n_rows), np.bool_)
    for axis in range(shape.size):
        for row in range(n_rows):
            for f in range(axis, shape.size):
                if ((row // step[f]) % (shape[f] + 1) == 0) != (f == axis):
                    is_mean[axis, row] = False
    return is_mean


@njit(cache=True, nogil=True)
def _fill(
    parts: FloatArray,
    table: FloatArray,
    centres: FloatArray,
    groups: IntArray,
    place: LongArray,
    start: int,
    m: int,
) -> None:
    are_one = groups[start] == groups[start + m - 1]
    for r in range(place.size):
        row, values = parts[place[r]], table[r]
        if are_one:
            centre = centres[r, groups[start]]
            for j in range(m):
                row[j] = values[start + j] - centre
        else:
            for j in range(m):
                row[j] = values[start + j] - centres[r, groups[start + j]]


@njit(cache=True, nogil=True)
def _split(parts: FloatArray, head: int, step: int, n: int, m: int) -> None:
    """Split n rows into their mean, scaled to keep lengths, and deviations from it."""
    mean = parts[head]
    for j in range(m):
        mean[j] = 0.0
    for level in range(1, n + 1):
        row = parts[head + level * step]
        for j in range(m):
            mean[j] += row[j]
    for j in range(m):
        mean[j] /= n
    for level in range(1, n + 1):
        row = parts[head + level * step]
        for j in range(m):
            row[j] -= mean[j]
    scale = np.sqrt(n)
    for j in range(m):
        mean[j] *= scale
