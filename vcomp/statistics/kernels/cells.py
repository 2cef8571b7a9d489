"""Rows → cells of any table: means, and squares within cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from vcomp._typing import FloatArray
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
    b, wanted = means.shape[0], powers.shape[1] > 0
    away = np.empty(b)
    for c in range(places.size):
        place = places[c]
        n, m = float(counts[place]), float(other_counts[c])
        if m == 0.0:
            continue
        counts[place] += other_counts[c]
        if n == 0.0:
            for j in range(b):
                means[j, place] = other_means[j, c]
            if wanted:
                for j in range(3):
                    powers[j, place] = other_powers[j, c]
            continue
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
