"""Responses drawn row by row: effects of every term, then residuals in blocks of rows.

Where rows were summed in cells the means of the cells are drawn, whose residuals have variance
σ²_e/n, and the squares and products within them: with W the products of the columns of X there,
N scores and m cells

    X'e = σ_e F z,  F F' = W,   e'e = σ²_e (z'z + χ²(N − m − rank W))
"""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray
from vcomp.design import Chunk
from vcomp.resampling.strata_draws import factor_of
from vcomp.statistics import Statistics

__all__ = ["RowDraws", "draw_errors"]

_BLOCK = 262_144
"""Rows that are worked on together; how many does not change the numbers."""


class RowDraws:
    """Draws the statistics of any design by way of its rows or cells; the fixed part is zero.

    Pair tables, groups and whatever else the response has no part in are those of the data.

    Parameters
    ----------
    stats : of the data, with their rows or cells
    """

    def __init__(self, stats: Statistics) -> None:
        self._stats, self._rows = stats, stats.cells
        self._inside = None if self._rows.within is None else _Inside(self._rows)

    def draw(self, v: FloatArray, rng: np.random.Generator) -> Statistics:
        """Return statistics of a response drawn at the components `v`, (k + 1,), and no mean."""
        y = draw_errors(self._rows, v, rng)
        within = None if self._inside is None else self._inside.draw(v[-1], rng)
        return self._stats.with_response(y, within)


class _Inside:
    """Draws squares and products within cells.

    Parameters
    ----------
    cells : with several scores each, or some of them
    """

    def __init__(self, cells: Chunk) -> None:
        assert cells.within is not None
        self._within = cells.within
        df = cells.n - cells.response.size
        self._factor = factor_of(self._within[1:, 1:])
        self._factor = self._factor[:, -df:] if df else self._factor[:, :0]
        self._left = df - self._factor.shape[1]

    def draw(self, variance: float, rng: np.random.Generator) -> FloatArray:
        """Return the products of a new y and X, (1 + p, 1 + p)."""
        within = self._within.copy()
        z: FloatArray = rng.standard_normal((self._factor.shape[1],))
        within[0, 1:] = within[1:, 0] = np.sqrt(variance) * (self._factor @ z)
        rest = rng.chisquare(self._left) if self._left > 0 else 0.0
        within[0, 0] = variance * (z @ z + rest)
        return within


def draw_errors(rows: Chunk, v: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return Σ Z_t u_t + e, (n,), normal with the components `v`, the residual last.

    Of cells these are means. Terms whose component is zero take nothing from the stream of random
    numbers.

    Parameters
    ----------
    rows : coded, or cells
    v : (k + 1,) not negative
    rng : a stream of its own for each response
    """
    n = rows.response.size
    errors = np.zeros(n)
    for t, size in enumerate(rows.sizes):
        if v[t] > 0.0:
            effects = rng.standard_normal(size) * np.sqrt(v[t])
            for first in range(0, n, _BLOCK):
                block = slice(first, first + _BLOCK)
                errors[block] += effects[rows.codes[t][block]]
    if v[-1] > 0.0:
        for first in range(0, n, _BLOCK):
            part = errors[first : first + _BLOCK]
            e = rng.standard_normal(part.size) * np.sqrt(v[-1])
            part += e if rows.counts is None else e / np.sqrt(rows.counts[first : first + _BLOCK])
    return errors
