"""Responses drawn row by row: effects of every term, then residuals in blocks of rows."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray
from vcomp.design import Chunk
from vcomp.statistics import Statistics

__all__ = ["RowDraws", "draw_errors"]

_BLOCK = 262_144
"""Rows that are worked on together; how many does not change the numbers."""


class RowDraws:
    """Draws the statistics of any design by way of its rows; the fixed part is zero.

    Pair tables, groups and whatever else the response has no part in are those of the data.

    Parameters
    ----------
    stats : of the data, with their rows
    """

    def __init__(self, stats: Statistics) -> None:
        self._stats, self._rows = stats, stats.rows

    def draw(self, v: FloatArray, rng: np.random.Generator) -> Statistics:
        """Return statistics of a response drawn at the components `v`, (k + 1,), and no mean."""
        return self._stats.with_response(draw_errors(self._rows, v, rng))


def draw_errors(rows: Chunk, v: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return Σ Z_t u_t + e, (n,), normal with the components `v`, the residual last.

    Terms whose component is zero take nothing from the stream of random numbers.

    Parameters
    ----------
    rows : coded
    v : (k + 1,) not negative
    rng : a stream of its own for each response
    """
    errors = np.zeros(rows.n)
    for t, size in enumerate(rows.sizes):
        if v[t] > 0.0:
            effects = rng.standard_normal(size) * np.sqrt(v[t])
            for first in range(0, rows.n, _BLOCK):
                block = slice(first, first + _BLOCK)
                errors[block] += effects[rows.codes[t][block]]
    if v[-1] > 0.0:
        for first in range(0, rows.n, _BLOCK):
            part = errors[first : first + _BLOCK]
            part += rng.standard_normal(part.size) * np.sqrt(v[-1])
    return errors
