"""Rows → cells of a grid."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from vcomp._typing import FloatArray, IntArray


@njit(cache=True, nogil=True)
def place_cells(places: Any, cells: IntArray, order: IntArray, n_cells: int) -> None:
    """Add the last axis of a grid to the place of each row, its cells in a new order, in place."""
    for i in range(places.size):
        places[i] = places[i] * n_cells + order[cells[i]]


@njit(cache=True, nogil=True)
def cell_sums(places: Any, values: FloatArray, n_cells: int) -> FloatArray:
    """Return the sums of the values in each cell."""
    sums = np.zeros(n_cells)
    for i in range(places.size):
        sums[places[i]] += values[i]
    return sums


@njit(cache=True, nogil=True)
def fill_cells(
    places: Any, values: FloatArray, origin: float, first: int, last: int, table: FloatArray
) -> None:
    """Put each value less the origin into its cell, for rows ``first .. last - 1``.

    Every cell has one row, so that several threads can fill a table.
    """
    for i in range(first, last):
        table[places[i]] = values[i] - origin


@njit(cache=True, nogil=True)
def within_cells(
    places: Any, a: FloatArray, b: FloatArray, mean_a: FloatArray, mean_b: FloatArray
) -> float:
    """Return Σ (a − ā)(b − b̄) over the rows, with the means of their cells."""
    total = 0.0
    for start in range(0, places.size, 256):
        # Sums of blocks are summed: rounding grows with the number of blocks, not of rows.
        block = 0.0
        for i in range(start, min(start + 256, places.size)):
            block += (a[i] - mean_a[places[i]]) * (b[i] - mean_b[places[i]])
        total += block
    return total
