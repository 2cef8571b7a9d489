"""Cross-products of rows with columns of effects: Z has their values in place of ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from vcomp._typing import FloatArray
from vcomp.design import Chunk
from vcomp.numerics.kernels import ONCE, count_levels, group_sums, pair_counts
from vcomp.statistics.cross_products import CrossProducts
from vcomp.statistics.roll_up import PairTable


def accumulate_slopes(chunk: Chunk, mean_weight: float = 1.0) -> CrossProducts:
    """Sum rows whose effects are multiplied by columns: Z has these in place of ones.

    A row of weight w, or a cell of w scores, is multiplied by √w. Effects have a unit in which
    their columns have the size that they have without weights. Cells add their products within.

    Parameters
    ----------
    chunk : all rows, with their columns of effects
    mean_weight : of all rows
    """
    effects = _effects(chunk, mean_weight)
    codes, sizes = chunk.codes, chunk.sizes
    y, X = _scaled(chunk, chunk.y), _scaled(chunk, chunk.X)
    both = np.column_stack([y, X])
    inside = _ProductsInCells(chunk, mean_weight)
    within = inside.of_columns
    Zb = [
        group_sums(codes[t], inside.with_columns(t, both if z is None else both * z[:, None]), n)
        for t, (z, n) in enumerate(zip(effects, sizes, strict=True))
    ]
    pairs = {}
    for u, t in combinations(range(len(effects)), 2):
        z = inside.of_effects(u, t, _product(effects[u], effects[t]))
        if chunk.terms[u].facets == chunk.terms[t].facets:
            at = np.arange(sizes[t], dtype=np.int32)
            diagonal = group_sums(codes[t], _ones_or(z, y.size)[:, None], sizes[t])[:, 0]
            pairs[u, t] = PairTable(np.arange(sizes[t] + 1), at, diagonal, sizes[t])
        else:
            table = pair_counts(codes[u], codes[t], sizes[u], sizes[t], ONCE if z is None else z)
            pairs[u, t] = PairTable(*table, sizes[t])
    return CrossProducts(
        n=chunk.n,
        group_n=tuple(
            count_levels(codes[t], sizes[t]).astype(float)
            if z is None
            else _squares(chunk, inside, t, z)
            for t, z in enumerate(effects)
        ),
        pairs=pairs,
        Zy=tuple(np.ascontiguousarray(s[:, 0]) for s in Zb),
        ZX=tuple(np.ascontiguousarray(s[:, 1:]) for s in Zb),
        XX=X.T @ X + within[1:, 1:],
        Xy=X.T @ y + within[1:, 0],
        yy=float(y @ y) + float(within[0, 0]),
        log_weights=chunk.log_weights,
    )


class _ProductsInCells:
    """The squares and products within cells of y, X and the columns of effects; zero of rows.

    Parameters
    ----------
    chunk : the rows or cells
    mean_weight : of all rows
    """

    def __init__(self, chunk: Chunk, mean_weight: float) -> None:
        self._products, self._first = chunk.products, 1 + chunk.n_fixed
        self._weight = mean_weight

    @property
    def of_columns(self) -> FloatArray:
        """The products of y and X in all cells, (1 + p, 1 + p)."""
        b = self._first
        if self._products is None:
            return np.zeros((b, b))
        return np.asarray(self._products[:b, :b].sum(axis=2))

    def with_columns(self, t: int, between: FloatArray) -> FloatArray:
        """Return products of a column of effects with [y X] or y alone, with those in cells.

        Parameters
        ----------
        t : the term of the column
        between : (n, 1 + p) or (n, 1) products of the means of cells
        """
        if self._products is None:
            return between
        own = self._products[self._first + t, : between.shape[1]]
        return between + own.T / np.sqrt(self._weight)

    def of_effects(self, t: int, u: int, between: FloatArray | None) -> FloatArray | None:
        """Return products (n,) of the columns of two terms, with those in cells."""
        if self._products is None or between is None:
            return between
        return between + self._products[self._first + t, self._first + u] / self._weight


def _squares(chunk: Chunk, inside: _ProductsInCells, t: int, z: FloatArray) -> FloatArray:
    squares = inside.of_effects(t, t, np.square(z))
    assert squares is not None
    return group_sums(chunk.codes[t], squares[:, None], chunk.sizes[t])[:, 0]


def resum_slopes(stats: CrossProducts, chunk: Chunk, mean_weight: float = 1.0) -> CrossProducts:
    """Return the cross-products of the same rows with slopes and the response of `chunk`.

    Parameters
    ----------
    stats : of the rows, with another response
    chunk : the rows
    mean_weight : of all rows
    """
    y, inside = _scaled(chunk, chunk.y)[:, None], _ProductsInCells(chunk, mean_weight)
    within = inside.of_columns
    return replace(
        stats,
        Zy=tuple(
            group_sums(
                chunk.codes[t], inside.with_columns(t, y if z is None else y * z[:, None]), n
            )[:, 0]
            for t, (z, n) in enumerate(zip(_effects(chunk, mean_weight), chunk.sizes, strict=True))
        ),
        Xy=_scaled(chunk, chunk.X).T @ y[:, 0] + within[1:, 0],
        yy=float(y[:, 0] @ y[:, 0]) + float(within[0, 0]),
    )


def _effects(chunk: Chunk, mean_weight: float) -> tuple[FloatArray | None, ...]:
    """Return the columns of effects, multiplied by √w over its mean; None is one of ones."""
    assert chunk.effects is not None
    if chunk.multiplicity is None:
        return chunk.effects
    root = np.sqrt(chunk.multiplicity / mean_weight)
    return tuple(root if z is None else z * root for z in chunk.effects)


def _scaled(chunk: Chunk, columns: FloatArray) -> FloatArray:
    """Return columns of rows, (n,) or (n, p), multiplied by √w."""
    if chunk.multiplicity is None:
        return columns
    return (columns.T * np.sqrt(chunk.multiplicity)).T


def _product(a: FloatArray | None, b: FloatArray | None) -> FloatArray | None:
    """Return the products of two columns; None is a column of ones."""
    if a is None or b is None:
        return b if a is None else a
    return a * b


def _ones_or(z: FloatArray | None, n: int) -> FloatArray:
    return np.ones(n) if z is None else z
