"""The only road from rows to statistics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vcomp.design import Chunk
from vcomp.kernels.groups import group_counts, group_sums
from vcomp.statistics.cross_products import CrossProducts
from vcomp.statistics.rollup import RollUp
from vcomp.statistics.score_table import ScoreTable

__all__ = ["accumulate", "resum", "tabulate"]


def accumulate(chunk: Chunk) -> CrossProducts:
    """Sum the rows of one chunk; the statistics of several chunks add up with ``+``.

    Parameters
    ----------
    chunk : rows coded by one :class:`~vcomp.design.Design`, centred at its origin
    """
    y, rolled = chunk.y, RollUp(chunk)
    is_mean = chunk.X.shape[1] == 1 and chunk.X.strides[0] == 0
    X = np.ascontiguousarray(chunk.X[:0] if is_mean else chunk.X)
    # Of cells every mean counts as often as it has scores.
    total_y = y if chunk.counts is None else y * chunk.counts
    total_X = X if chunk.counts is None or is_mean else X * chunk.counts[:, None]
    within = np.zeros((1 + chunk.X.shape[1],) * 2) if chunk.within is None else chunk.within
    return CrossProducts(
        n=chunk.n,
        group_n=rolled.group_n,
        pairs=rolled.pairs(),
        Zy=tuple(s[:, 0] for s in rolled.sums(total_y[:, None])),
        # The one column of a mean adds up to the size of each group.
        ZX=tuple(n[:, None] for n in rolled.group_n) if is_mean else rolled.sums(total_X),
        XX=np.array([[float(chunk.n)]]) if is_mean else X.T @ total_X + within[1:, 1:],
        Xy=np.array([total_y.sum()]) if is_mean else X.T @ total_y + within[1:, 0],
        yy=float(y @ total_y) + float(within[0, 0]),
    )


def resum(stats: CrossProducts, chunk: Chunk, rolled: RollUp) -> CrossProducts:
    """Return the cross-products of the same rows with the response of `chunk`.

    Only what the response has a part in is summed.

    Parameters
    ----------
    stats : of the rows, with another response
    chunk : the rows
    rolled : how their terms are summed from each other
    """
    y = chunk.y
    is_mean = chunk.X.shape[1] == 1 and chunk.X.strides[0] == 0
    total_y = y if chunk.counts is None else y * chunk.counts
    within = np.zeros((1 + chunk.X.shape[1],) * 2) if chunk.within is None else chunk.within
    return replace(
        stats,
        Zy=tuple(s[:, 0] for s in rolled.sums(total_y[:, None])),
        Xy=np.array([total_y.sum()]) if is_mean else chunk.X.T @ total_y + within[1:, 0],
        yy=float(y @ total_y) + float(within[0, 0]),
    )


def tabulate(chunk: Chunk, rows: int, columns: int) -> ScoreTable:
    """Sum the scores in the cells of two facets, given by their positions in the design.

    The cells of both together have to be few enough for a dense table.
    """
    n_rows, n_columns = chunk.facet_sizes[rows], chunk.facet_sizes[columns]
    cells = chunk.level_codes(rows) * np.int32(n_columns) + chunk.level_codes(columns)
    y, counts = chunk.y, group_counts(cells, n_rows * n_columns)
    if chunk.counts is not None:
        y = y * chunk.counts
        counts = group_sums(cells, chunk.counts[:, None], n_rows * n_columns)[:, 0]
    sums = group_sums(cells, y[:, None], n_rows * n_columns)
    shape = (n_rows, n_columns)
    return ScoreTable(sums.reshape(shape), counts.reshape(shape))
