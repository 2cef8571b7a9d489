"""Rows → cells, some rows at a time: numbers, means, and squares within cells."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from vcomp._typing import FloatArray


@njit(cache=True, nogil=True)
def add_to_cells(
    places: Any, values: FloatArray, first: int, counts: Any, means: FloatArray, within: FloatArray
) -> int:
    """Take rows into their cells, from row `first` on, by Welford's recurrence, in place.

    Parameters
    ----------
    places : (n,) cell of each row
    values : (b, n) columns of the rows
    counts : (M,) rows of each cell so far, whole numbers of any size
    means : (b, M) means of the columns over them
    within : (b, b) squares and products within cells, summed over all

    Returns
    -------
    n, or the row whose cell has as many rows as its number in `counts` can say
    """
    b, n = means.shape[0], places.size
    most = np.int64(np.iinfo(counts.dtype).max)
    if b == 1:
        return int(_add_one_column(places, values[0], first, most, counts, means[0], within))
    before, block = np.empty(b), np.empty((b, b))
    for start in range(first, n, 256):
        block[:] = 0.0
        # Sums of blocks are summed: rounding grows with the number of blocks, not of rows.
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
                for k in range(j + 1):
                    block[j, k] += before[j] * (values[k, i] - means[k, place])
        _add_block(within, block)
    return int(n)


@njit(cache=True, nogil=True)
def _add_block(within: FloatArray, block: FloatArray) -> None:
    """Add a matrix to another, in place; as an expression of arrays it takes long to compile."""
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
    """Do the same with one column, which most data have, at three times the speed."""
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
def merge_cells(
    places: Any,
    other_counts: Any,
    other_means: FloatArray,
    counts: Any,
    means: FloatArray,
    within: FloatArray,
) -> None:
    """Take the cells of other rows in, in place; see Chan, Golub and LeVeque (1983).

    Parameters
    ----------
    places : (m,) where each of the other cells belongs
    other_counts : (m,) their rows
    other_means : (b, m) means over them
    counts, means, within : as for :func:`add_to_cells`
    """
    b = means.shape[0]
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
            continue
        for j in range(b):
            away[j] = other_means[j, c] - means[j, place]
            for k in range(j + 1):
                within[j, k] += away[j] * away[k] * (n * m / (n + m))
        for j in range(b):
            means[j, place] += away[j] * (m / (n + m))
