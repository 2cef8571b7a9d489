"""Rows → means and squares of y and X in cells, with one matrix product for all columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.numerics import MixedColumns, slices
from vcomp.numerics.kernels import group_sums

_BLOCK = 4096
"""Rows whose columns are centred at once, in the cache."""


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
    of_X = group_sums(places, np.ascontiguousarray(X), counts.size)
    of_y = group_sums(places, y[:, None], counts.size)
    means = np.concatenate([of_y, of_X], axis=1) / counts[:, None]
    within, buffer = np.zeros((1 + p, 1 + p)), np.empty((min(_BLOCK, n), 1 + p))
    for rows in slices(n, _BLOCK):
        away = buffer[: rows.stop - rows.start]
        away[:, 0], away[:, 1:] = y[rows], X[rows]
        away -= means[places[rows]]
        within += away.T @ away
    return np.ascontiguousarray(means.T), within
