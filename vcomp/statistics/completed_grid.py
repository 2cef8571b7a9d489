"""Completed grids: the cells of a whole grid that rows nearly fill, and its holes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.design import Chunk, PartialGrid, number_combinations
from vcomp.numerics import available_bytes
from vcomp.statistics.groupings import Groupings, find_groupings
from vcomp.statistics.strata import Layout, coefficients
from vcomp.statistics.stratification import layout_of, place_in_grid

_MAX_AXES = 6


@dataclass(frozen=True, slots=True)
class Holes:
    """The empty cells.

    Attributes
    ----------
    combination, cell : (h,) their combination of axis levels, and their cell in the tables' order
    axis_level : for each axis the (h,) level
    alike : for each set of axes a number for the pair (level of these axes, cell) of each hole,
        and the number of such pairs: holes with the same pair are summed together
    """

    combination: LongArray
    cell: IntArray
    axis_level: tuple[LongArray, ...]
    alike: dict[tuple[int, ...], tuple[IntArray, int]]

    @property
    def n(self) -> int:
        """Number of empty cells."""
        return int(self.cell.size)

    def place(self, contrasts: tuple[int, ...], shape: tuple[int, ...]) -> LongArray:
        """Return the combination of levels of some axes for each hole."""
        places = np.zeros(self.n, dtype=np.int64)
        for axis in contrasts:
            places = places * shape[axis] + self.axis_level[axis]
        return places


@dataclass(frozen=True, slots=True)
class CompletedGrid:
    """The columns y and X on a grid with holes.

    Attributes
    ----------
    n : number of rows
    sizes : numbers of groups of the terms, of those that have rows
    shape : numbers of levels of the axes
    tables : (b, R, M) y and the columns of X, zero in the holes
    groupings : of the cells, nested in each other
    coefficients : for each set of axes the coefficients of the model's components in that stratum
    layout : positions of the terms' groups
    holes : the empty cells
    """

    n: int
    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    tables: FloatArray
    groupings: Groupings
    coefficients: dict[tuple[int, ...], FloatArray]
    layout: Layout
    holes: Holes


def complete(
    chunk: Chunk, partial: PartialGrid, *, free_bytes: Callable[[], float] = available_bytes
) -> CompletedGrid | None:
    """Return the columns on the grid; None if memory is short or the groupings are not nested.

    Parameters
    ----------
    chunk : all rows, coded
    partial : the grid that they nearly fill
    free_bytes : returns the free memory
    """
    grid = partial.grid
    groupings = find_groupings(chunk.terms, grid)
    if not groupings.are_nested or len(grid.axes) > _MAX_AXES:
        return None
    n_cells, n_columns = grid.n_combinations * grid.n_cells, 1 + chunk.X.shape[1]
    # The engine fills a copy of the tables.
    if 2.2 * 8.0 * n_columns * n_cells + 8.0 * chunk.n > 0.8 * free_bytes():
        return None
    places = place_in_grid(chunk, grid, groupings)
    columns = [chunk.y, *chunk.X.T]
    tables = np.zeros((n_columns, n_cells))
    for table, column in zip(tables, columns, strict=True):
        table[places] = column
    single = groupings.remainder.n_groupings
    subsets = [
        c for r in range(len(grid.shape) + 1) for c in combinations(range(len(grid.shape)), r)
    ]
    return CompletedGrid(
        n=chunk.n,
        sizes=chunk.sizes,
        shape=grid.shape,
        tables=tables.reshape(len(columns), grid.n_combinations, grid.n_cells),
        groupings=groupings,
        coefficients={
            c: coefficients(
                grid.shape, groupings.term_axes, groupings.of_term, single, frozenset(c)
            )
            for c in subsets
        },
        layout=layout_of(chunk.terms, chunk.facet_sizes, grid, groupings),
        holes=_holes(partial, groupings, subsets),
    )


def refill(known: CompletedGrid, chunk: Chunk, partial: PartialGrid) -> CompletedGrid:
    """Return the same grid with the response of `chunk`, the same rows.

    Parameters
    ----------
    known : with another response
    chunk : the rows, coded
    partial : the grid that they nearly fill
    """
    tables = known.tables.copy()
    places = place_in_grid(chunk, partial.grid, known.groupings)
    tables.reshape(len(tables), -1)[0, places] = chunk.y  # holes stay zero
    return replace(known, tables=tables)


def _holes(partial: PartialGrid, groupings: Groupings, subsets: list[tuple[int, ...]]) -> Holes:
    grid = partial.grid
    combination, unordered = np.divmod(partial.holes, grid.n_cells)
    cell = groupings.rank[unordered]
    # Ordered by cell, so that the holes of a block of cells are neighbours.
    order = np.argsort(cell, kind="stable")
    combination, cell = combination[order], cell[order]
    levels = np.unravel_index(combination, grid.shape) if grid.shape else ()
    alike = {}
    for subset in subsets:
        codes, size = cell, grid.n_cells
        for axis in subset:
            level = levels[axis].astype(np.int32)
            keys, codes = number_combinations(codes, size, level, grid.shape[axis])
            size = keys.size
        keys, codes = number_combinations(codes, size, np.zeros_like(codes), 1)
        alike[subset] = codes, keys.size
    return Holes(combination, cell, tuple(np.asarray(x) for x in levels), alike)
