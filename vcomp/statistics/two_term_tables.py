"""Tables of two crossed facets with their holes, and of their cells.

A pair of levels of two crossed facets has one score, or none in a hole. So products with the table
of these numbers need only sums and products over the holes, and no pass over the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.design import Chunk
from vcomp.numerics import COSTS, MixedColumns, available_bytes, slices
from vcomp.numerics.kernels import count_levels, group_sums, weighted_gram

LEAST_FILLED = 0.25
"""Share of filled cells below which a table of all cells gains nothing."""

MOST_LEVELS = 4_096
"""Largest number of levels of the smaller facet: matrices of this order are factored."""

_SLAB = 2**22
"""Number of cells in a block that is laid out as a dense table."""


@dataclass(frozen=True)
class CrossedTable:
    """Sums of y and the columns of X of two crossed facets, and the holes.

    F, the number of scores of each pair of levels, is 0 in the holes and 1 elsewhere.

    Attributes
    ----------
    n : number of scores
    longer : position of the term with more levels, whose levels are the rows of F
    ends, holes : columns of F without a score, in compressed rows
    counts : for each term the numbers of scores of its levels
    sums : for each term the (q, 1 + p) sums of y and the columns of X within its levels
    gram : (1 + p, 1 + p) cross-products of y and the columns of X
    """

    n: int
    longer: int
    ends: LongArray
    holes: IntArray
    counts: tuple[FloatArray, FloatArray]
    sums: tuple[FloatArray, FloatArray]
    gram: FloatArray

    @classmethod
    def of_matrix(cls, centred: FloatArray, empty: BoolArray) -> CrossedTable:
        """Return the sums of a matrix of scores with a general mean.

        Parameters
        ----------
        centred : (rows, columns) y, zero where there is none
        empty : (rows, columns) where there is none
        """
        longer = 0 if empty.shape[0] >= empty.shape[1] else 1
        ends, holes = _compressed(empty if longer == 0 else empty.T)
        counts = tuple(float(empty.shape[1 - t]) - empty.sum(axis=1 - t) for t in range(2))
        sums = tuple(np.column_stack([centred.sum(axis=1 - t), counts[t]]) for t in range(2))
        n, flat = int(counts[0].sum()), centred.ravel()
        total = float(flat.sum())
        gram = np.array([[float(flat @ flat), total], [total, float(n)]])
        return cls(n, longer, ends, holes, (counts[0], counts[1]), (sums[0], sums[1]), gram)

    def with_response(self, chunk: Chunk) -> CrossedTable:
        """Return the same cells with another response of the same rows."""
        sums, gram = _sums(chunk, self.counts)
        return replace(self, sums=sums, gram=gram)

    def recombined(self, columns: FloatArray) -> CrossedTable:
        """Return the statistics of other columns in place of y and X.

        Parameters
        ----------
        columns : (1 + p, 1 + q) matrix that maps [y X] to them
        """
        first, second = self.sums
        gram = columns.T @ self.gram @ columns
        return replace(self, sums=(first @ columns, second @ columns), gram=gram)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of levels of the terms."""
        return tuple(counts.size for counts in self.counts)

    @property
    def n_terms(self) -> int:
        """Number of random terms, the residual not counted."""
        return 2

    @property
    def n_fixed(self) -> int:
        """Number of columns of X."""
        return len(self.gram) - 1

    @property
    def XX(self) -> FloatArray:
        """Cross-products of the columns of X."""
        return self.gram[1:, 1:]

    @property
    def Xy(self) -> FloatArray:
        """Cross-products of the columns of X with y."""
        return self.gram[1:, 0]

    @property
    def yy(self) -> float:
        """Sum of squares of y."""
        return float(self.gram[0, 0])

    def group_squares(self, term: int) -> float:
        """Return Σ_g n_g² over the levels of a term."""
        return float(self.counts[term] @ self.counts[term])

    def is_finer(self, t: int, u: int) -> bool:
        """Whether every level of term t has scores on one level of term u alone."""
        return t == u or bool((self.counts[t] <= 1.0).all())

    # Products with F ----------------------------------------------------------------------------

    @cached_property
    def _n_holes(self) -> LongArray:
        return np.diff(self.ends)

    @cached_property
    def _ones(self) -> FloatArray:
        return np.ones(self.holes.size)

    @cached_property
    def _row_of_hole(self) -> IntArray:
        return np.repeat(np.arange(self.ends.size - 1, dtype=np.int32), self._n_holes)

    def times(self, x: FloatArray) -> FloatArray:
        """Return F x for columns (levels of the shorter facet, c)."""
        if self._whole is not None:
            return self._whole @ x
        return x.sum(axis=0) - group_sums(self._row_of_hole, x[self.holes], self.ends.size - 1)

    def transposed_times(self, x: FloatArray) -> FloatArray:
        """Return F'x for columns (levels of the longer facet, c)."""
        if self._whole is not None:
            return self._whole.T @ x
        size = self.sizes[1 - self.longer]
        return x.sum(axis=0) - group_sums(self.holes, x[self._row_of_hole], size)

    def extended(self, x: Any, *, transposed: bool) -> Any:
        """Return F x, or F'x, in extended precision."""
        if transposed:
            order, ends = self._by_column
            places = self._row_of_hole[order]
        else:
            places, ends = self.holes, self.ends
        running = np.zeros((places.size + 1, x.shape[1]), dtype=np.longdouble)
        np.cumsum(x[places], axis=0, out=running[1:])
        return x.sum(axis=0) - (running[ends[1:]] - running[ends[:-1]])

    @cached_property
    def _by_column(self) -> tuple[LongArray, LongArray]:
        """The holes sorted by column, and the end of each column's part."""
        n = np.bincount(self.holes, minlength=self.sizes[1 - self.longer])
        ends = np.concatenate([[0], np.cumsum(n)])
        return np.argsort(self.holes, kind="stable"), ends

    @cached_property
    def is_by_holes(self) -> bool:
        """Whether products by the holes of each level take less time than by all cells."""
        return self._seconds_by_holes < self._seconds_of_cells

    @cached_property
    def _whole(self) -> FloatArray | None:
        """F as an array, if dense products take less time and it is one slab; else None."""
        cells = self.sizes[0] * self.sizes[1]
        return (
            None
            if self.is_by_holes or cells > _SLAB
            else self._dense(slice(0, self.ends.size - 1))
        )

    @property
    def _seconds_by_holes(self) -> float:
        return COSTS.crossed.pair * float(self._n_holes.astype(float) @ self._n_holes)

    @property
    def _seconds_of_cells(self) -> float:
        squares = self.sizes[1 - self.longer] ** 2
        return COSTS.crossed.cell * float(self.sizes[self.longer]) * squares

    @property
    def seconds(self) -> float:
        """Expected time of :meth:`weighted` in seconds."""
        return min(self._seconds_by_holes, self._seconds_of_cells)

    @property
    def slab_bytes(self) -> float:
        """Memory of a block of dense rows and of their products with a matrix."""
        return 16.0 * min(_SLAB, float(self.sizes[0]) * self.sizes[1])

    def weighted(self, weights: FloatArray, slab: int = _SLAB) -> FloatArray:
        """Return F' diag(w) F for weights of the levels of the longer facet, not negative."""
        size = self.sizes[1 - self.longer]
        if not self.is_by_holes:
            product = np.zeros((size, size))
            for part in slices(weights.size, max(slab // size, 1)):
                rows = self._dense(part) * np.sqrt(weights[part])[:, None]
                product += rows.T @ rows
            return product
        # (1 − h)(1 − h)' of each level
        missed = group_sums(self.holes, weights[self._row_of_hole][:, None], size)
        both: FloatArray = weighted_gram(self.ends, self.holes, self._ones, weights, size)
        both += weights.sum() - missed - missed.T
        return both

    def forms(self, T: FloatArray, slab: int = _SLAB) -> FloatArray:
        """Return f'T f for every row f of F; T is symmetric."""
        size, values = len(T), np.empty(self.ends.size - 1)
        for part in slices(values.size, max(slab // size, 1)):
            rows = self._dense(part)
            values[part] = np.einsum("ij,ij->i", rows @ T, rows)
        return values

    def _dense(self, part: slice) -> FloatArray:
        """Return some rows of F."""
        whole: FloatArray | None = self.__dict__.get("_whole")
        if whole is not None:
            return np.asarray(whole[part])
        first, last = self.ends[part.start], self.ends[part.stop]
        rows = np.ones((part.stop - part.start, self.sizes[1 - self.longer]))
        rows[self._row_of_hole[first:last] - part.start, self.holes[first:last]] = 0.0
        return rows


def _compressed(empty: BoolArray) -> tuple[LongArray, IntArray]:
    """Return the columns of the empty cells in compressed rows."""
    rows, columns = np.nonzero(empty)
    ends = np.zeros(empty.shape[0] + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=empty.shape[0]), out=ends[1:])
    return ends, columns.astype(np.int32)


def find_crossed_table(
    chunk: Chunk,
    *,
    most_levels: int = MOST_LEVELS,
    free_bytes: Callable[[], float] = available_bytes,
) -> CrossedTable | None:
    """Return the table of two crossed facets with holes; None for other designs.

    Parameters
    ----------
    chunk : the rows
    most_levels : largest number of levels of the smaller facet
    free_bytes : returns the free memory
    """
    sizes, facets = chunk.sizes, [term.facets for term in chunk.terms]
    if (
        len(sizes) != 2
        or any(len(positions) > 1 for positions in facets)
        or facets[0] == facets[1]
    ):
        return None
    n, n_cells = chunk.response.size, float(sizes[0]) * sizes[1]
    if not LEAST_FILLED * n_cells <= n <= n_cells or min(sizes) > most_levels:
        return None
    if n_cells + 16.0 * n * (1 + chunk.n_fixed) > 0.5 * free_bytes():
        return None
    if chunk.within is not None or isinstance(chunk.columns, MixedColumns):
        return None
    if chunk.multiplicity is not None and (chunk.multiplicity != 1.0).any():
        return None
    longer = 0 if sizes[0] >= sizes[1] else 1
    codes = chunk.codes
    empty = np.ones((sizes[longer], sizes[1 - longer]), dtype=bool)
    empty[codes[longer], codes[1 - longer]] = False
    if n_cells - np.count_nonzero(empty) < n:  # several scores in a cell
        return None
    short, long = empty.sum(axis=0), empty.sum(axis=1)
    counts = [sizes[1 - longer] - long.astype(float), sizes[longer] - short.astype(float)]
    if longer == 1:
        counts.reverse()
    ends, holes = _compressed(empty)
    sums, gram = _sums(chunk, (counts[0], counts[1]))
    return CrossedTable(n, longer, ends, holes, (counts[0], counts[1]), sums, gram)


def _sums(
    chunk: Chunk, counts: tuple[FloatArray, FloatArray]
) -> tuple[tuple[FloatArray, FloatArray], FloatArray]:
    """Return the sums of y and the columns of X by level, and their cross-products."""
    y = chunk.y
    if chunk.is_mean:  # one number stands for its column
        of_y = [
            group_sums(c, y[:, None], size)
            for c, size in zip(chunk.codes, chunk.sizes, strict=True)
        ]
        first, second = (np.column_stack([s, n]) for s, n in zip(of_y, counts, strict=True))
        total = float(y.sum())
        return (first, second), np.array([[float(y @ y), total], [total, float(y.size)]])
    columns = np.column_stack([y, chunk.X])
    first, second = (
        group_sums(c, columns, size) for c, size in zip(chunk.codes, chunk.sizes, strict=True)
    )
    return (first, second), columns.T @ columns


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
