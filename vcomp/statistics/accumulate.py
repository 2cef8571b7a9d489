"""The only road from rows to statistics."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray, IntArray
from vcomp.design import Chunk
from vcomp.kernels.groups import group_counts, group_sums
from vcomp.kernels.pairs import pair_counts
from vcomp.statistics.cross_products import CrossProducts, PairTable
from vcomp.statistics.score_table import ScoreTable

__all__ = ["accumulate", "tabulate"]


def accumulate(chunk: Chunk) -> CrossProducts:
    """Sum the rows of one chunk; the statistics of several chunks add up with ``+``.

    Parameters
    ----------
    chunk : rows coded by one :class:`~vcomp.design.Design`, centred at its origin
    """
    X, y = chunk.X, chunk.y
    columns = np.ascontiguousarray(np.column_stack([y, X]))
    sums = [group_sums(c, columns, q) for c, q in zip(chunk.codes, chunk.sizes, strict=True)]
    return CrossProducts(
        n=y.size,
        group_n=tuple(group_counts(c, q) for c, q in zip(chunk.codes, chunk.sizes, strict=True)),
        pairs={
            (t, u): _pairs(chunk.codes[t], chunk.codes[u], chunk.sizes[t], chunk.sizes[u])
            for u in range(len(chunk.codes))
            for t in range(u)
        },
        Zy=tuple(np.ascontiguousarray(s[:, 0]) for s in sums),
        ZX=tuple(np.ascontiguousarray(s[:, 1:]) for s in sums),
        XX=X.T @ X,
        Xy=X.T @ y,
        yy=float(y @ y),
    )


def tabulate(chunk: Chunk, rows: int, columns: int) -> ScoreTable:
    """Sum the scores in the cells of two facets, given by their positions in the design."""
    n_rows, n_columns = chunk.facet_sizes[rows], chunk.facet_sizes[columns]
    cells = chunk.facet_codes[rows].astype(np.int64) * n_columns + chunk.facet_codes[columns]
    shape = (n_rows, n_columns)
    sums = group_sums(cells.astype(np.int32), chunk.y[:, None], n_rows * n_columns)[:, 0]
    counts = group_counts(cells.astype(np.int32), n_rows * n_columns)
    return ScoreTable(_reshaped(sums, shape), _reshaped(counts, shape))


def _pairs(a: IntArray, b: IntArray, n_a: int, n_b: int) -> PairTable:
    indptr, indices, counts = pair_counts(a, b, n_a, n_b)
    return PairTable(indptr, indices, counts, n_b)


def _reshaped(values: FloatArray, shape: tuple[int, int]) -> FloatArray:
    return values.reshape(shape)
