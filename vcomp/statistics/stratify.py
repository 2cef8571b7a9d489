"""Rows of a complete grid → orthogonal strata, in two passes over its cells."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, IntArray
from vcomp.design import Chunk, TermDesign
from vcomp.design.combine import find_combinations
from vcomp.design.grid import Grid
from vcomp.exceptions import EstimationError
from vcomp.kernels.codes import place_rows
from vcomp.kernels.grid import cell_sums, fill_cells, place_cells, within_cells
from vcomp.linalg.memory import available_bytes, gib
from vcomp.linalg.threads import MANY_ROWS, THREADS
from vcomp.statistics.groupings import Groupings, find_groupings
from vcomp.statistics.split import BLOCK, split_columns
from vcomp.statistics.strata import (
    Cells,
    GroupedColumns,
    Layout,
    Stratum,
    StratumStatistics,
    coefficients,
)

__all__ = [
    "MOST_AXES",
    "layout_of",
    "place_in_grid",
    "split_cells",
    "strata_of",
    "stratify",
]

_NOTHING = 1e-20
"""A column whose square in a stratum is below this share of the whole has no part in it."""

_ROUNDED_MEAN = 1e-12
"""The same for its mean, which centring leaves at the rounding of a number far from zero."""

MOST_AXES = 12
"""With more of them there are too many strata."""


def stratify(
    chunk: Chunk, grid: Grid, groupings: Groupings | None = None
) -> StratumStatistics | None:
    """Return the strata of the rows; None where they are too many.

    Parameters
    ----------
    chunk : all rows, coded
    grid : the complete grid that they fill
    groupings : of its cells by the terms, where they are known already

    Raises
    ------
    EstimationError
        If its tables would not fit into memory.
    """
    if len(grid.axes) > MOST_AXES:
        return None
    if groupings is None:
        groupings = find_groupings(chunk.terms, grid)
    single = groupings.remainder.n_groupings
    tabulate = partial(_tabulate, chunk, grid, groupings)
    layout = layout_of(chunk.terms, chunk.facet_sizes, grid, groupings)
    intercept = not all(_vary(chunk))
    strata = split_cells(tabulate(), layout, groupings, intercept=intercept)
    return replace(strata, cells=tabulate if single in groupings.of_term else None)


def split_cells(
    cells: Cells, layout: Layout, groupings: Groupings, *, intercept: bool
) -> StratumStatistics:
    """Return the strata of the cells of a complete grid, which are not kept.

    Parameters
    ----------
    cells : y and X in the cells, in the order of the groupings
    layout : where the groups of the terms are
    groupings : of the cells by the terms
    intercept : whether a column of X is constant, so that the others and y are centred
    """
    return strata_of(split_columns(cells, groupings), layout, groupings, intercept=intercept)


def strata_of(
    split: dict[tuple[int, ...], GroupedColumns],
    layout: Layout,
    groupings: Groupings,
    *,
    intercept: bool,
) -> StratumStatistics:
    """Return the strata with their columns.

    Parameters
    ----------
    split : y and X in each stratum
    layout, groupings, intercept : as for :func:`split_cells`
    """
    grid = layout.grid
    inside = _columns_inside(split, groupings, intercept=intercept)
    products = _all_products(split, groupings)
    single = groupings.remainder.n_groupings
    strata = []
    for (subset, columns), fixed in zip(split.items(), inside, strict=True):
        strata.append(
            Stratum(
                contrasts=subset,
                multiplicity=prod(grid.shape[f] - 1 for f in subset),
                coefficients=coefficients(
                    grid.shape, groupings.term_axes, groupings.of_term, single, frozenset(subset)
                ),
                fixed=fixed,
                columns=_kept(columns, [0, *(j + 1 for j in fixed)]),
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


# Rows → cells -----------------------------------------------------------------------------------


def _tabulate(chunk: Chunk, grid: Grid, groupings: Groupings) -> Cells:
    _check_memory(chunk, grid)
    places = place_in_grid(chunk, grid, groupings)
    n = grid.cell_n[groupings.order]
    size = grid.n_combinations * grid.n_cells
    vary = _vary(chunk)
    columns = [
        np.ascontiguousarray(x) for x, varies in zip(chunk.X.T, vary, strict=True) if varies
    ]
    within = np.zeros((1 + len(columns), 1 + len(columns)))
    if (n == 1.0).all() or chunk.counts is not None:
        means = [_filled(places, chunk.response, chunk.origin, size)]
        means += [_filled(places, column, 0.0, size) for column in columns]
        if chunk.within is not None:
            rows = [0, *(1 + np.flatnonzero(vary))]
            within = chunk.within[np.ix_(rows, rows)]
    else:
        values = [chunk.y, *columns]
        means = [cell_sums(places, column, size) for column in values]
        counts = np.broadcast_to(n, (grid.n_combinations, grid.n_cells)).ravel()
        means = [m / counts for m in means]
        for i, a in enumerate(values):
            for j in range(i + 1):
                products = within_cells(places, a, values[j], means[i], means[j])
                within[i, j] = within[j, i] = products
    shape = (grid.n_combinations, grid.n_cells)
    tables = [m.reshape(shape) for m in means]
    return _with_constants(chunk.X, vary, grid.shape, n, tables, within)


def _check_memory(chunk: Chunk, grid: Grid) -> None:
    """Refuse tables that would not fit, before they are made."""
    columns = 1 + sum(_vary(chunk))
    n_cells = grid.n_combinations * grid.n_cells
    # A table a column, the places of the rows, and what is worked on at a time.
    needed = 8.0 * columns * (n_cells + 2.0 * BLOCK) + 8.0 * chunk.n
    free = available_bytes()
    if needed > 0.8 * free:
        raise EstimationError(
            f"{columns} columns in {n_cells:,} cells need {gib(needed)}, and {gib(free)} are "
            "free; leave out covariates, or rows"
        )


def _filled(places: Any, values: FloatArray, origin: float, size: int) -> FloatArray:
    """Return the table of cells that have one row each, less the origin."""
    table, n = np.empty(size), places.size
    if n < MANY_ROWS:
        fill_cells(places, values, origin, 0, n, table)
        return table
    with ThreadPoolExecutor(THREADS) as pool:
        ends = [n * k // THREADS for k in range(THREADS + 1)]
        parts = [
            pool.submit(fill_cells, places, values, origin, a, b, table) for a, b in pairwise(ends)
        ]
        for part in parts:
            part.result()
    return table


def place_in_grid(chunk: Chunk, grid: Grid, groupings: Groupings) -> Any:
    """Return the place of each row in a table of combinations of axis levels by cells."""
    n_places = grid.n_combinations * grid.n_cells
    places = np.zeros(chunk.response.size, dtype=np.int32 if n_places < 2**31 else np.int64)
    for axis, size in zip(grid.axes, grid.shape, strict=True):
        place_rows(places, chunk.level_codes(axis), size)
    if grid.rest:
        place_cells(places, _cell_of_rows(chunk, grid), groupings.rank, grid.n_cells)
    return places


def layout_of(
    terms: tuple[TermDesign, ...], n_levels: tuple[int, ...], grid: Grid, groupings: Groupings
) -> Layout:
    """Return where the groups of the terms are in tables of the grid."""
    return Layout(
        terms=terms,
        n_levels=n_levels,
        grid=grid,
        rank=groupings.rank,
        codes=groupings.codes,
        of_term=groupings.of_term,
    )


def _is_constant(column: FloatArray) -> bool:
    return column.strides == (0,) or bool(np.ptp(column) == 0.0)


def _vary(chunk: Chunk) -> list[bool]:
    """Return which columns of X are not the same in all rows; of cells also not within them."""
    inside = np.zeros(1 + chunk.X.shape[1])
    if chunk.within is not None:
        inside = np.diagonal(chunk.within)
    return [not _is_constant(x) or w > 0.0 for x, w in zip(chunk.X.T, inside[1:], strict=True)]


def _with_constants(
    X: FloatArray,
    vary: Sequence[bool],
    shape: tuple[int, ...],
    n: FloatArray,
    tables: list[FloatArray],
    within: FloatArray,
) -> Cells:
    """Put the constant columns, which need no table, back in their places."""
    varying = iter(tables[1:])
    every = [tables[0]]
    rows = [0]
    for j, x in enumerate(X.T, start=1):
        if not vary[j - 1]:
            every.append(np.full((prod(shape), 1), float(x[0])))
        else:
            every.append(next(varying))
            rows.append(j)
    products = np.zeros((len(every), len(every)))
    products[np.ix_(rows, rows)] = within
    return Cells(shape, n, tuple(every), products)


def _cell_of_rows(chunk: Chunk, grid: Grid) -> IntArray:
    """Return the cell of each row among those of the facets that are no axes."""
    (first, _), *joins = grid.joins
    cells = chunk.level_codes(first)
    for facet, keys in joins:
        joined = cells.astype(np.int64) * chunk.facet_sizes[facet] + chunk.level_codes(facet)
        cells = find_combinations(keys, joined)
    return cells


# The fixed part ---------------------------------------------------------------------------------


def _columns_inside(
    split: dict[tuple[int, ...], GroupedColumns], groupings: Groupings, *, intercept: bool
) -> list[tuple[int, ...]]:
    """Return the columns of X that have a part in each stratum."""
    squares = np.array([_squares(columns, groupings) for columns in split.values()])[:, 1:]
    total = squares.sum(axis=0)
    if intercept:
        # Columns were centred then: a mean that is left moves the intercept by rounding only.
        of_means = list(split).index(())
        means = _mean_squares(split[()], groupings)[1:]
        squares[of_means] -= np.where(means < _ROUNDED_MEAN * total, means, 0.0)
    inside = squares > _NOTHING * total
    return [tuple(int(j) for j in np.flatnonzero(row)) for row in inside]


def _all_products(
    split: dict[tuple[int, ...], GroupedColumns], groupings: Groupings
) -> FloatArray:
    """Return the squares and products of y and X over all rows, which strata share out."""
    total = sum(columns.within for columns in split.values())
    if groupings.are_nested:
        n = groupings.remainder.tables.group_n[-1]
        for columns in split.values():
            weighted = n[:, None, None] * columns.means[0]
            total = total + np.einsum("qbr,qdr->bd", weighted, columns.means[0])
    return np.asarray(total)


def _mean_squares(columns: GroupedColumns, groupings: Groupings) -> FloatArray:
    """Return what the mean of every column adds to its sum of squares, in the stratum of means."""
    n = groupings.remainder.tables.group_n[-1 if groupings.are_nested else 0]
    squares: FloatArray = np.square(n @ columns.means[0][:, :, 0]) / n.sum()
    return squares


def _squares(columns: GroupedColumns, groupings: Groupings) -> FloatArray:
    """Return the sum of squares of every column in one stratum."""
    squares: FloatArray = np.diagonal(columns.within).copy()
    if groupings.are_nested:
        n = groupings.remainder.tables.group_n[-1]
        squares += np.einsum("q,qbr,qbr->b", n, columns.means[0], columns.means[0])
    return squares


def _kept(columns: GroupedColumns, positions: list[int]) -> GroupedColumns:
    """Return some of the columns."""
    means = tuple(np.ascontiguousarray(table[:, positions]) for table in columns.means)
    return GroupedColumns(means, columns.within[np.ix_(positions, positions)])
