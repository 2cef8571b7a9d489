"""The only road from rows to statistics."""

from __future__ import annotations

import numpy as np

from vcomp._typing import IntArray
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
    """Sum the scores in the cells of two facets, given by their positions in the design.

    The cells of both together have to be few enough for a dense table.
    """
    n_rows, n_columns = chunk.facet_sizes[rows], chunk.facet_sizes[columns]
    cells = chunk.level_codes(rows) * np.int32(n_columns) + chunk.level_codes(columns)
    sums = group_sums(cells, chunk.y[:, None], n_rows * n_columns)
    counts = group_counts(cells, n_rows * n_columns)
    shape = (n_rows, n_columns)
    return ScoreTable(sums.reshape(shape), counts.reshape(shape))


def _pairs(a: IntArray, b: IntArray, n_a: int, n_b: int) -> PairTable:
    indptr, indices, counts = pair_counts(a, b, n_a, n_b)
    return PairTable(indptr, indices, counts, n_b)
