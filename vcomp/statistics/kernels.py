"""Compiled loops from rows to cells: means, squares within cells, and those of contrasts."""

from __future__ import annotations

from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.numerics.kernels import njit


@njit(cache=True, nogil=True)
def add_to_cells(
    places: Any,
    values: FloatArray,
    first: int,
    counts: Any,
    means: FloatArray,
    within: FloatArray,
    powers: FloatArray,
) -> int:
    """Add the rows after the first `first` ones to their cells, in place, by Welford's recurrence.

    Parameters
    ----------
    places : (n,) cell of each row
    values : (b, n) columns of the rows
    counts : (M,) rows of each cell so far, whole numbers of any size
    means : (b, M) means of the columns over them
    within : (b, b) squares and products within cells, summed over all
    powers : (3, M) sums of the squares, cubes and fourth powers of the first column about its mean
        in each cell; (3, 0) if they are not wanted

    Returns
    -------
    n, or the row whose cell holds the largest number of rows that `counts` can store
    """
    b, n = means.shape[0], places.size
    wanted = powers.shape[1] > 0
    most = np.int64(np.iinfo(counts.dtype).max)
    if b == 1 and not wanted:
        return int(_add_one_column(places, values[0], first, most, counts, means[0], within))
    before, block = np.empty(b), np.empty((b, b))
    for start in range(first, n, 256):
        block[:] = 0.0
        # Rounding grows with the number of blocks, not of rows.
        for i in range(start, min(start + 256, n)):
            place = places[i]
            count = np.int64(counts[place])
            if count == most:
                _add_block(within, block)
                return int(i)
            counts[place] = count + 1
            if count == 0:
                for j in range(b):
                    means[j, place] = values[j, i]
                continue
            for j in range(b):
                before[j] = values[j, i] - means[j, place]
                means[j, place] += before[j] / (count + 1)
            if wanted:
                _merge_powers(powers, place, float(count), before[0], 1.0, 0.0, 0.0, 0.0)
            for j in range(b):
                for k in range(j + 1):
                    block[j, k] += before[j] * (values[k, i] - means[k, place])
        _add_block(within, block)
    return int(n)


@njit(cache=True, nogil=True)
def _add_block(within: FloatArray, block: FloatArray) -> None:
    """Add a matrix to another, in place; an array expression would compile slowly."""
    for j in range(len(block)):
        for k in range(j + 1):
            within[j, k] += block[j, k]


@njit(cache=True, nogil=True)
def _add_one_column(
    places: Any,
    values: FloatArray,
    first: int,
    most: int,
    counts: Any,
    means: FloatArray,
    within: FloatArray,
) -> int:
    """Add rows of one column, three times as fast: most data have one."""
    n = places.size
    for start in range(first, n, 256):
        block = 0.0
        for i in range(start, min(start + 256, n)):
            place = places[i]
            count = np.int64(counts[place])
            if count == 0:
                counts[place] = 1
                means[place] = values[i]
                continue
            if count == most:
                within[0, 0] += block
                return int(i)
            counts[place] = count + 1
            before = values[i] - means[place]
            means[place] += before / (count + 1)
            block += before * (values[i] - means[place])
        within[0, 0] += block
    return int(n)


@njit(cache=True, nogil=True)
def _merge_powers(
    powers: FloatArray,
    place: int,
    n: float,
    away: float,
    m: float,
    squares: float,
    cubes: float,
    fourths: float,
) -> None:
    """Merge m rows into the n of a cell, in place; the means differ by `away`.

    Pébay (2008), Formulas for robust, one-pass parallel computation of covariances and
    arbitrary-order statistical moments, SAND2008-6212, eqs. (2.1) to (2.3).
    """
    step, total = away / (n + m), n + m
    a, b = powers[0, place], squares
    powers[2, place] += (
        fourths
        + away * step**3 * n * m * (n * n - n * m + m * m)
        + 6.0 * step**2 * (n * n * b + m * m * a)
        + 4.0 * step * (n * cubes - m * powers[1, place])
    )
    powers[1, place] += cubes + away * step**2 * n * m * (n - m) + 3.0 * step * (n * b - m * a)
    powers[0, place] += b + away * away * (n * m / total)


@njit(cache=True, nogil=True)
def merge_cells(
    places: Any,
    other_counts: Any,
    other_means: FloatArray,
    other_powers: FloatArray,
    counts: Any,
    means: FloatArray,
    within: FloatArray,
    powers: FloatArray,
) -> None:
    """Merge the cells of other rows, in place, by Chan, Golub and LeVeque (1983).

    Parameters
    ----------
    places : (m,) where each of the other cells belongs
    other_counts : (m,) their rows
    other_means : (b, m) means over them
    other_powers : (3, m) powers of them, (3, 0) if `powers` is
    counts, means, within, powers : as for :func:`add_to_cells`
    """
    away = np.empty(means.shape[0])
    for c in range(places.size):
        _merge_cell(
            places[c], other_counts, other_means, other_powers, c,
            counts, means, within, powers, away,
        )  # fmt: skip


@njit(cache=True, nogil=True)
def _merge_cell(
    place: int,
    other_counts: Any,
    other_means: FloatArray,
    other_powers: FloatArray,
    c: int,
    counts: Any,
    means: FloatArray,
    within: FloatArray,
    powers: FloatArray,
    away: FloatArray,
) -> None:
    """Merge cell c of other rows as :func:`merge_cells`; `away` has room for b numbers."""
    b, wanted = means.shape[0], powers.shape[1] > 0
    n, m = float(counts[place]), float(other_counts[c])
    if m == 0.0:
        return
    counts[place] += other_counts[c]
    if n == 0.0:
        for j in range(b):
            means[j, place] = other_means[j, c]
        if wanted:
            for j in range(3):
                powers[j, place] = other_powers[j, c]
        return
    for j in range(b):
        away[j] = other_means[j, c] - means[j, place]
        for k in range(j + 1):
            within[j, k] += away[j] * away[k] * (n * m / (n + m))
    if wanted:
        # Unpacked as a column, the three would take two seconds more to compile.
        squares, cubes = other_powers[0, c], other_powers[1, c]
        _merge_powers(powers, place, n, away[0], m, squares, cubes, other_powers[2, c])
    for j in range(b):
        means[j, place] += away[j] * (m / (n + m))


@njit(cache=True, nogil=True)
def insert_cells(
    places: LongArray,
    counts: Any,
    columns: FloatArray,
    n: int,
    other_places: LongArray,
    other_counts: Any,
    other_columns: FloatArray,
) -> None:
    """Insert m ordered cells among the first n of arrays for n + m, from the end; none are joined.

    Parameters
    ----------
    places, counts, columns : (n + m,), (n + m,) and (n + m, b), overwritten
    n : number of cells so far, in order of their places
    other_places, other_counts, other_columns : (m,), (m,) and (m, b)
    """
    b, i, j = columns.shape[1], n - 1, other_places.size - 1
    while j >= 0:
        k = i + j + 1
        if i >= 0 and places[i] > other_places[j]:
            places[k], counts[k] = places[i], counts[i]
            for c in range(b):
                columns[k, c] = columns[i, c]
            i -= 1
        else:
            places[k], counts[k] = other_places[j], other_counts[j]
            for c in range(b):
                columns[k, c] = other_columns[j, c]
            j -= 1


@njit(cache=True, nogil=True)
def count_repeats(places: LongArray, counts: Any) -> tuple[int, Any]:
    """Return how many different places there are, in order, and the largest number of rows of one.

    Parameters
    ----------
    places, counts : (n,) of cells, several of which may be at one place
    """
    different, most, rows = 0, np.int64(0), np.int64(0)
    for i in range(places.size):
        if i == 0 or places[i] != places[i - 1]:
            different, rows = different + 1, np.int64(0)
        rows += np.int64(counts[i])
        most = max(most, rows)
    return different, most


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
