"""Rows → means and squares of y and X in cells, with one matrix product for all columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.numerics import MixedColumns, slices
from vcomp.numerics.kernels import FEW_ROWS, add_group_sums, centre_groups, group_sums

_VALUES = 32_768
"""Numbers of a block of rows, which the cache of a core holds."""


def cell_moments(
    places: Any, y: FloatArray, X: FloatArray | MixedColumns, counts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the means of y and X in cells, and their squares and products within them.

    Columns are centred before they are multiplied, a block of rows at a time.

    Parameters
    ----------
    places : (n,) cell of each row
    y, X : (n,) the response and (n, p) the columns
    counts : (q,) rows of each cell, none of them 0

    Returns
    -------
    (1 + p, q) means, y's first, and (1 + p, 1 + p) squares and products
    """
    if isinstance(X, MixedColumns):
        return X.within(y, places, counts)
    n, p = X.shape
    is_small = n * (1 + p) <= FEW_ROWS
    if is_small:
        sums = group_sums(places, np.column_stack([y, X]), counts.size)
    else:
        sums = np.zeros((counts.size, 1 + p))
        for rows, block in row_blocks(y, X):
            add_group_sums(places[rows], block, sums)
    means = sums / counts[:, None]
    within = np.zeros((1 + p, 1 + p))
    for rows, block in row_blocks(y, X):
        if is_small:
            block -= means[places[rows]]
        else:
            centre_groups(places[rows], means, block)
        within += block.T @ block
    return np.ascontiguousarray(means.T), within


def row_blocks(y: FloatArray, X: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
    """Yield blocks of rows of [y X], which the cache holds; each overwrites the one before.

    Parameters
    ----------
    y : (n,) the response
    X : (n, p) the columns, in any order in memory
    """
    n, p = X.shape
    width = max(64, _VALUES // (1 + p))
    buffer = np.empty((min(width, n), 1 + p))
    for rows in slices(n, width):
        block = buffer[: rows.stop - rows.start]
        block[:, 0], block[:, 1:] = y[rows], X[rows]
        yield rows, block
