"""Cross-products of rows with columns of effects: Z has their values in place of ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from vcomp._typing import FloatArray
from vcomp.design import Chunk
from vcomp.numerics.kernels import ONCE, group_counts, group_sums, pair_counts
from vcomp.statistics.cross_products import CrossProducts, PairTable


def accumulate_slopes(chunk: Chunk, mean_weight: float = 1.0) -> CrossProducts:
    """Sum rows whose effects are multiplied by columns: Z has these in place of ones.

    A row of weight w is multiplied by √w. Effects have a unit in which their columns have the
    size that they have without weights.

    Parameters
    ----------
    chunk : all rows, with their columns of effects
    mean_weight : of all rows
    """
    effects = _effects(chunk, mean_weight)
    codes, sizes = chunk.codes, chunk.sizes
    y, X = _scaled(chunk, chunk.y), _scaled(chunk, chunk.X)
    both = np.column_stack([y, X])
    Zb = [
        group_sums(codes[t], both if z is None else both * z[:, None], sizes[t])
        for t, z in enumerate(effects)
    ]
    pairs = {}
    for u, t in combinations(range(len(effects)), 2):
        z = _product(effects[u], effects[t])
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
            group_counts(codes[t], sizes[t])
            if z is None
            else group_sums(codes[t], np.square(z)[:, None], sizes[t])[:, 0]
            for t, z in enumerate(effects)
        ),
        pairs=pairs,
        Zy=tuple(np.ascontiguousarray(s[:, 0]) for s in Zb),
        ZX=tuple(np.ascontiguousarray(s[:, 1:]) for s in Zb),
        XX=X.T @ X,
        Xy=X.T @ y,
        yy=float(y @ y),
        log_weights=chunk.log_weights,
    )


def resum_slopes(stats: CrossProducts, chunk: Chunk, mean_weight: float = 1.0) -> CrossProducts:
    """Return the cross-products of the same rows with slopes and the response of `chunk`.

    Parameters
    ----------
    stats : of the rows, with another response
    chunk : the rows
    mean_weight : of all rows
    """
    y = _scaled(chunk, chunk.y)
    return replace(
        stats,
        Zy=tuple(
            group_sums(chunk.codes[t], (y if z is None else y * z)[:, None], chunk.sizes[t])[:, 0]
            for t, z in enumerate(_effects(chunk, mean_weight))
        ),
        Xy=_scaled(chunk, chunk.X).T @ y,
        yy=float(y @ y),
    )


def _effects(chunk: Chunk, mean_weight: float) -> tuple[FloatArray | None, ...]:
    """Return the columns of effects, multiplied by √w over its mean; None is one of ones."""
    assert chunk.effects is not None
    if chunk.weights is None:
        return chunk.effects
    root = np.sqrt(chunk.weights / mean_weight)
    return tuple(root if z is None else z * root for z in chunk.effects)


def _scaled(chunk: Chunk, columns: FloatArray) -> FloatArray:
    """Return columns of rows, (n,) or (n, p), multiplied by √w."""
    if chunk.weights is None:
        return columns
    return (columns.T * np.sqrt(chunk.weights)).T


def _product(a: FloatArray | None, b: FloatArray | None) -> FloatArray | None:
    """Return the products of two columns; None is a column of ones."""
    if a is None or b is None:
        return b if a is None else a
    return a * b


def _ones_or(z: FloatArray | None, n: int) -> FloatArray:
    return np.ones(n) if z is None else z
