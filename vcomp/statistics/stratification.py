"""Rows of a complete grid → orthogonal strata, in two passes over its cells.

Strata are the preferred statistics: every estimator is fast if a design has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.design import (
    Chunk,
    Grid,
    PartialGrid,
    TermDesign,
    find_combinations,
    number_combinations,
)
from vcomp.numerics import MANY_ROWS, THREADS, MixedColumns, available_bytes, check_memory, slices
from vcomp.numerics.kernels import group_sums, place_rows
from vcomp.statistics.cross_products import cell_moments
from vcomp.statistics.groupings import (
    BLOCKS,
    Groupings,
    find_groupings,
    split_columns,
    split_combinations,
)
from vcomp.statistics.strata import (
    Cells,
    GroupedColumns,
    GroupPlaces,
    Stratum,
    StratumStatistics,
    coefficients,
    find_axis_columns,
    has_wide_factor,
)

_NOTHING = 1e-20
"""Share of a column's squared norm below which its part in a stratum is zero."""

_ROUNDED_MEAN = 1e-12
"""The same share for the mean of a centred column, which is rounding error."""


_BLOCK = 2**16
"""Rows that are processed at once, so that they stay in a core's cache."""

MOST_AXES = 12
"""Largest number of axes: k axes make 2^k strata."""


def stratify(
    chunk: Chunk,
    grid: Grid,
    groupings: Groupings | None = None,
    *,
    most_axes: int = MOST_AXES,
    most_wide: float = 2e7,
    free_bytes: Callable[[], float] = available_bytes,
) -> StratumStatistics | None:
    """Return the strata of the rows; None if there are too many.

    Parameters
    ----------
    chunk : all rows, coded
    grid : the complete grid that they fill
    groupings : groupings of its cells by the terms, if they are known already
    most_axes : largest number of axes
    most_wide : elements of the tables of sparse columns up to which they are split
    free_bytes : returns the free memory

    Raises
    ------
    EstimationError
        If its tables would not fit into memory.
    """
    if len(grid.axes) > most_axes:
        return None
    along = None
    if isinstance(chunk.columns, MixedColumns):
        along = find_axis_columns(chunk, grid)
        size = float(grid.n_combinations) * grid.n_cells * chunk.n_fixed
        # Sparse columns would become tables much larger than they are; and a factor with many
        # levels has a sparse elimination of its own.
        if along is None and (size > most_wide or has_wide_factor(chunk)):
            return None
    if groupings is None:
        groupings = find_groupings(chunk.terms, grid)
    single = groupings.remainder.n_groupings
    tabled = chunk if along is None else along.without(chunk)
    vary = _vary(tabled)
    tabulate = partial(_tabulate, tabled, grid, groupings, vary, free_bytes)
    layout = layout_of(chunk.terms, chunk.facet_sizes, grid, groupings)
    if grid.n_cells == 1 and grid.axes:
        split, present = _split_axes_alone(tabled, grid, groupings, vary, free_bytes)
    else:
        split, present = split_columns(tabulate(), groupings), None
    if along is not None and present is not None:
        split, present = along.added(split, present, grid.shape)
    strata = strata_of(split, layout, groupings, intercept=not all(vary), present=present)
    return replace(strata, cells=tabulate if single in groupings.of_term else None)


def _split_axes_alone(
    chunk: Chunk,
    grid: Grid,
    groupings: Groupings,
    vary: Sequence[bool],
    free_bytes: Callable[[], float],
) -> tuple[dict[tuple[int, ...], GroupedColumns], dict[tuple[int, ...], list[int]]]:
    """Return the columns of every stratum where all facets are axes, and which of [y X] each has.

    Constant columns are in the stratum of the mean alone. The table of a cell is one number: the
    table of all combinations is split in place.
    """
    tables, products = _means_of_cells(chunk, grid, groupings, vary, free_bytes)
    first = _first_row(chunk)
    varying = np.flatnonzero([True, *vary])
    within = np.zeros((1 + len(vary), 1 + len(vary)))
    within[np.ix_(varying, varying)] = products
    nothing = np.zeros_like(products)
    split = {
        contrasts: GroupedColumns((means,), nothing if contrasts else within)
        for contrasts, means in split_combinations(tables, grid.shape, first, vary).items()
    }
    every, some = list(range(1 + len(vary))), varying.tolist()
    return split, {contrasts: some if contrasts else every for contrasts in split}


def strata_of(
    split: dict[tuple[int, ...], GroupedColumns],
    layout: GroupPlaces,
    groupings: Groupings,
    *,
    intercept: bool,
    present: Mapping[tuple[int, ...], Sequence[int]] | None = None,
) -> StratumStatistics:
    """Return the strata with their columns.

    Parameters
    ----------
    split : y and X in each stratum
    present : the columns of [y X] that each stratum has, others being zero in it; None for all
    layout : where the groups of the terms are
    groupings : of the cells by the terms
    intercept : whether a column of X is constant, so that the others and y are centred
    """
    grid, nested = layout.grid, groupings.are_nested
    n = groupings.remainder.tables.group_n[-1]
    b = len(split[()].within)
    if present is None:
        present = dict.fromkeys(split, range(b))
    of_strata = {}
    for subset, columns in split.items():
        own = columns.within
        if nested:
            own = own + _weighted_products(columns, n)
        of_strata[subset] = np.zeros((b, b))
        of_strata[subset][np.ix_(present[subset], present[subset])] = own
    inside = _columns_inside(split, of_strata, groupings, intercept=intercept)
    single = groupings.remainder.n_groupings
    products = np.sum(list(of_strata.values()), axis=0)
    strata = []
    for (subset, columns), fixed in zip(split.items(), inside, strict=True):
        kept = [present[subset].index(j) for j in (0, *(j + 1 for j in fixed))]
        strata.append(
            Stratum(
                contrasts=subset,
                multiplicity=prod(grid.shape[f] - 1 for f in subset),
                coefficients=coefficients(
                    grid.shape, groupings.term_axes, groupings.of_term, single, frozenset(subset)
                ),
                fixed=fixed,
                columns=columns.of_columns(kept),
            )
        )
    return StratumStatistics(
        n=grid.n_combinations * round(float(grid.cell_n.sum())),
        sizes=tuple(term.size for term in layout.terms),
        shape=grid.shape,
        term_axes=groupings.term_axes,
        term_groupings=groupings.of_term,
        remainder=groupings.remainder,
        strata=tuple(strata),
        XX=products[1:, 1:],
        Xy=products[1:, 0],
        yy=float(products[0, 0]),
        layout=layout,
        cells=None,
    )


def _weighted_products(columns: GroupedColumns, n: FloatArray) -> FloatArray:
    """Return Σ n m m' of the means (q, b, r) of the innermost groups, of n rows each."""
    if n.size == 1:  # many columns need no copy
        return n[0] * columns.products_of_means
    means = columns.means[0]
    flat = means.transpose(1, 0, 2).reshape(means.shape[1], -1)
    return (flat * np.repeat(n, means.shape[2])) @ flat.T


# Rows → cells -----------------------------------------------------------------------------------


def _tabulate(
    chunk: Chunk,
    grid: Grid,
    groupings: Groupings,
    vary: Sequence[bool],
    free_bytes: Callable[[], float] = available_bytes,
) -> Cells:
    means, within = _means_of_cells(chunk, grid, groupings, vary, free_bytes)
    tables = list(means.reshape((len(means), grid.n_combinations, grid.n_cells)))
    first, n = _first_row(chunk), grid.cell_n[groupings.order]
    return _with_constants(first, vary, grid.shape, n, tables, within)


def _first_row(chunk: Chunk) -> FloatArray:
    """Return the first row of X, (p,)."""
    row = chunk.columns[:1]
    return (row.toarray() if isinstance(row, MixedColumns) else row)[0]


def _means_of_cells(
    chunk: Chunk,
    grid: Grid,
    groupings: Groupings,
    vary: Sequence[bool],
    free_bytes: Callable[[], float],
) -> tuple[FloatArray, FloatArray]:
    """Return the means of y and of the columns that vary in cells, and their squares within these.

    Returns
    -------
    (1 + v, cells) and (1 + v, 1 + v)
    """
    size = grid.n_combinations * grid.n_cells
    n = grid.cell_n[groupings.order]
    kept = [0, *(1 + np.flatnonzero(vary))]
    is_single = chunk.counts is not None or bool((n == 1.0).all())
    # Each column needs its rows and a table, both twice for means of rows, and two work blocks.
    copies = 1 if is_single else 2
    check_memory(
        8.0 * len(kept) * (copies * (size + float(chunk.response.size)) + 2 * BLOCKS.values),
        f"{len(kept)} columns in {size:,} cells need",
        "leave out covariates, or rows",
        free_bytes=free_bytes,
    )
    places = place_in_grid(chunk, grid, groupings)
    if is_single:
        within = np.zeros((len(kept), len(kept)))
        if chunk.within is not None:
            within = chunk.within[np.ix_(kept, kept)]
        X = chunk.X
        columns = [np.ascontiguousarray(X[:, j - 1]).__getitem__ for j in kept[1:]]
        return _filled(places, [chunk.centred, *columns], size), within
    counts = np.broadcast_to(n, (grid.n_combinations, grid.n_cells)).ravel()
    if len(kept) > 1:
        means, products = cell_moments(places, chunk.y, chunk.columns, counts)
        return means[kept], products[np.ix_(kept, kept)]
    mean = group_sums(places, chunk.y[:, None], size)[:, 0] / counts
    squares = [
        float(np.square(chunk.centred(rows) - mean[places[rows]]).sum())
        for rows in slices(places.size, _BLOCK)
    ]
    return mean[None], np.array([[sum(squares)]])


def _filled(
    places: Any, columns: Sequence[Callable[[slice], FloatArray]], size: int
) -> FloatArray:
    """Return the (b, size) tables of columns in cells of one row each.

    Parameters
    ----------
    columns : each returns the values of some rows
    """
    tables, n = np.empty((len(columns), size)), places.size

    def fill(rows: slice) -> None:
        for table, values in zip(tables, columns, strict=True):
            table[places[rows]] = values(rows)

    threads = 1 if n < MANY_ROWS else THREADS
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(fill, slices(n, _BLOCK)))
    return tables


def place_in_grid(chunk: Chunk, grid: Grid, groupings: Groupings) -> Any:
    """Return the place of each row in a table of combinations of axis levels by cells."""
    n_places = grid.n_combinations * grid.n_cells
    places = np.zeros(chunk.response.size, dtype=np.int32 if n_places < 2**31 else np.int64)
    for axis, size in zip(grid.axes, grid.shape, strict=True):
        place_rows(places, chunk.level_codes(axis), size)
    if grid.rest:
        place_rows(places, groupings.rank[_cell_of_rows(chunk, grid)], grid.n_cells)
    return places


def layout_of(
    terms: tuple[TermDesign, ...], n_levels: tuple[int, ...], grid: Grid, groupings: Groupings
) -> GroupPlaces:
    """Return the positions of the terms' groups in tables of the grid."""
    return GroupPlaces(
        terms=terms,
        n_levels=n_levels,
        grid=grid,
        rank=groupings.rank,
        codes=groupings.codes,
        of_term=groupings.of_term,
    )


_FIRST_ROWS = 256
"""Rows of the first search for two different values of a column."""


def _vary(chunk: Chunk) -> list[bool]:
    """Return which columns of X vary between rows, or within cells."""
    if chunk.is_mean:
        return [False]
    if isinstance(chunk.columns, MixedColumns):
        low, high, _ = chunk.columns.ends()
        vary = low != high
    else:
        first = chunk.columns[:_FIRST_ROWS]
        vary = (first != first[:1]).any(axis=0)
        same = np.flatnonzero(~vary)  # most columns that vary do so in the first rows
        vary[same] = (chunk.columns[:, same] != first[:1, same]).any(axis=0)
    if chunk.within is not None:
        vary = vary | (np.diagonal(chunk.within)[1:] > 0.0)
    return vary.tolist()


def _with_constants(
    first: FloatArray,
    vary: Sequence[bool],
    shape: tuple[int, ...],
    n: FloatArray,
    tables: list[FloatArray],
    within: FloatArray,
) -> Cells:
    """Return cells with the constant columns, which need no table, in their positions."""
    varying = iter(tables[1:])
    every = [tables[0]]
    rows = [0]
    for j, x in enumerate(first.tolist(), start=1):
        if not vary[j - 1]:
            every.append(np.full((prod(shape), 1), x))
        else:
            every.append(next(varying))
            rows.append(j)
    products = np.zeros((len(every), len(every)))
    products[np.ix_(rows, rows)] = within
    return Cells(shape, n, tuple(every), products)


def _cell_of_rows(chunk: Chunk, grid: Grid) -> IntArray:
    """Return the cell of each row among the cells of the facets that are not axes."""
    (first, _), *joins = grid.joins
    cells = chunk.level_codes(first)
    for facet, keys in joins:
        joined = cells.astype(np.int64) * chunk.facet_sizes[facet] + chunk.level_codes(facet)
        cells = find_combinations(keys, joined)
    return cells


# The fixed part ---------------------------------------------------------------------------------


def _columns_inside(
    split: dict[tuple[int, ...], GroupedColumns],
    of_strata: dict[tuple[int, ...], FloatArray],
    groupings: Groupings,
    *,
    intercept: bool,
) -> list[tuple[int, ...]]:
    """Return the columns of X that are not zero in each stratum.

    Parameters
    ----------
    of_strata : squares and products (1 + p, 1 + p) of y and X in each stratum
    """
    squares = np.array([np.diagonal(products)[1:] for products in of_strata.values()])
    total = squares.sum(axis=0)
    if intercept:
        # Columns are centred: the mean is rounding error, absorbed by the intercept.
        of_means = list(split).index(())
        n = groupings.remainder.tables.group_n[-1 if groupings.are_nested else 0]
        means = (np.square(n @ split[()].means[0][:, :, 0]) / n.sum())[1:]
        squares[of_means] -= np.where(means < _ROUNDED_MEAN * total, means, 0.0)
    inside = squares > _NOTHING * total
    return [tuple(int(j) for j in np.flatnonzero(row)) for row in inside]


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
    layout: GroupPlaces
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
    if not groupings.are_nested or len(grid.axes) > 6:
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
