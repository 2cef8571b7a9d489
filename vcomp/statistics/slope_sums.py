"""Cross-products of rows with columns of effects: Z has their values in place of ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from vcomp._typing import FloatArray
from vcomp.design import Chunk
from vcomp.numerics.kernels import ONCE, group_counts, group_sums, pair_counts
from vcomp.statistics.cross_products import CrossProducts, PairTable


def accumulate_slopes(chunk: Chunk) -> CrossProducts:
    """Sum rows whose effects are multiplied by columns: Z has these in place of ones.

    Parameters
    ----------
    chunk : all rows, with their columns of effects
    """
    assert chunk.effects is not None
    effects = chunk.effects
    y, X, codes, sizes = chunk.y, chunk.X, chunk.codes, chunk.sizes
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
    )


def resum_slopes(stats: CrossProducts, chunk: Chunk) -> CrossProducts:
    """Return the cross-products of the same rows with slopes and the response of `chunk`.

    Parameters
    ----------
    stats : of the rows, with another response
    chunk : the rows
    """
    assert chunk.effects is not None
    y = chunk.y
    return replace(
        stats,
        Zy=tuple(
            group_sums(chunk.codes[t], (y if z is None else y * z)[:, None], chunk.sizes[t])[:, 0]
            for t, z in enumerate(chunk.effects)
        ),
        Xy=chunk.X.T @ y,
        yy=float(y @ y),
    )


def _product(a: FloatArray | None, b: FloatArray | None) -> FloatArray | None:
    """Return the products of two columns; None is a column of ones."""
    if a is None or b is None:
        return b if a is None else a
    return a * b


def _ones_or(z: FloatArray | None, n: int) -> FloatArray:
    return np.ones(n) if z is None else z
