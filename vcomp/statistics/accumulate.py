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
    y, codes = chunk.y, list(zip(chunk.codes, chunk.sizes, strict=True))
    group_n = tuple(group_counts(c, q) for c, q in codes)
    is_mean = chunk.X.shape[1] == 1 and chunk.X.strides[0] == 0
    X = np.ascontiguousarray(chunk.X[:0] if is_mean else chunk.X)
    return CrossProducts(
        n=chunk.n,
        group_n=group_n,
        pairs={(t, u): _pairs(*codes[t], *codes[u]) for u in range(len(codes)) for t in range(u)},
        Zy=tuple(group_sums(c, y[:, None], q)[:, 0] for c, q in codes),
        # The one column of a mean adds up to the size of each group.
        ZX=tuple(n[:, None] for n in group_n)
        if is_mean
        else tuple(group_sums(c, X, q) for c, q in codes),
        XX=np.array([[float(chunk.n)]]) if is_mean else X.T @ X,
        Xy=np.array([y.sum()]) if is_mean else X.T @ y,
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


def _pairs(a: IntArray, n_a: int, b: IntArray, n_b: int) -> PairTable:
    indptr, indices, counts = pair_counts(a, b, n_a, n_b)
    return PairTable(indptr, indices, counts, n_b)
