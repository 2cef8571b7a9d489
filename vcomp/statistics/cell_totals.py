"""Sums and numbers of scores in the cells of two facets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray
from vcomp.design import Chunk
from vcomp.numerics.kernels import count_levels, group_sums


@dataclass(frozen=True, slots=True)
class CellTotals:
    """Sums and numbers of scores in the cells of two facets; tables of chunks add up.

    Attributes
    ----------
    sums : (n_rows, n_columns) sums of the centred scores of each cell
    counts : (n_rows, n_columns) their numbers, 0 where a cell is empty
    """

    sums: FloatArray
    counts: FloatArray

    def __add__(self, other: CellTotals) -> CellTotals:
        return CellTotals(self.sums + other.sums, self.counts + other.counts)


def tabulate(chunk: Chunk, rows: int, columns: int) -> CellTotals:
    """Sum the scores in the cells of two facets, given by their positions in the design.

    The cells of both together have to be few enough for a dense table.
    """
    n_rows, n_columns = chunk.facet_sizes[rows], chunk.facet_sizes[columns]
    cells = chunk.level_codes(rows) * np.int32(n_columns) + chunk.level_codes(columns)
    y, counts = chunk.y, count_levels(cells, n_rows * n_columns).astype(float)
    if chunk.counts is not None:
        y = y * chunk.counts
        counts = group_sums(cells, chunk.counts[:, None], n_rows * n_columns)[:, 0]
    sums = group_sums(cells, y[:, None], n_rows * n_columns)
    shape = (n_rows, n_columns)
    return CellTotals(sums.reshape(shape), counts.reshape(shape))
