"""Tables of cells, split into the strata of the axes of a grid: contrasts, means, squares.

Every axis is split into its mean and the contrasts of its levels (docs/explanation/mathematics.md,
eq. (3.1)), in place, and groups of cells have sums of squares within.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod

import numpy as np

from vcomp._typing import FloatArray, IntArray
from vcomp.numerics import THREADS
from vcomp.statistics.groupings import Groupings
from vcomp.statistics.kernels import squares_in_strata
from vcomp.statistics.strata import Cells, GroupedColumns


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of cells in which squares and products are summed.

    Attributes
    ----------
    values : values of a column in a block: as many as a core's second cache holds
    of_one_column : values in a block of one thread where only one column varies
    threads : number of threads; the sums do not depend on it
    """

    values: int = 65_536
    of_one_column: int = 524_288
    threads: int = THREADS


BLOCKS = Blocks()


def split_axes(table: FloatArray, shape: tuple[int, ...]) -> dict[tuple[int, ...], FloatArray]:
    """Split a table along its axes into means and contrasts, each scaled to keep lengths.

    Parameters
    ----------
    table : (R, ...) with R = Π shape; it is written to

    Returns
    -------
    For each set of axes the (r, ...) contrasts of these in the means of the others, r the product
    of their numbers of levels.
    """
    trailing = table.shape[1:]
    parts: dict[tuple[int, ...], FloatArray] = {(): table.reshape((*shape, *trailing))}
    for axis, size in enumerate(shape):
        halved: dict[tuple[int, ...], FloatArray] = {}
        for contrasts, part in parts.items():
            along = len(contrasts)
            mean = part.mean(axis=along, keepdims=True)
            part -= mean
            halved[contrasts] = np.sqrt(size) * mean.squeeze(axis=along)
            halved[*contrasts, axis] = part
        parts = halved
    return {c: part.reshape((-1, *trailing)) for c, part in parts.items()}


def split_columns(
    cells: Cells, groupings: Groupings, blocks: Blocks = BLOCKS
) -> dict[tuple[int, ...], GroupedColumns]:
    """Return the columns of every stratum: means in groups, squares and products within them."""
    nested = groupings.are_nested
    wanted = groupings.codes[-1:] if nested else groupings.codes
    raw = [[group_means(t, cells.n, g) for t in cells.tables] for g in wanted]
    means: dict[tuple[int, ...], list[FloatArray]] = {}
    for grouping in raw:
        for contrasts, part in split_means(grouping, cells.shape).items():
            means.setdefault(contrasts, []).append(part)
    centres = raw[0] if nested else [np.zeros((t.shape[0], 1)) for t in cells.tables]
    inner = groupings.codes[-1] if nested else np.zeros(cells.n.size, np.int32)
    within = squares_within(cells, centres, inner, list(means), blocks)
    within[0] += cells.within
    return {
        contrasts: GroupedColumns(tuple(tables), within[s])
        for s, (contrasts, tables) in enumerate(means.items())
    }


def split_means(
    tables: Sequence[FloatArray], shape: tuple[int, ...]
) -> dict[tuple[int, ...], FloatArray]:
    """Return for every stratum the (q, b, r) parts of b tables (R, q) of means in groups."""
    found: dict[tuple[int, ...], FloatArray] = {}
    for b, table in enumerate(tables):
        for contrasts, part in split_axes(table.copy(), shape).items():
            if contrasts not in found:
                r, q = part.shape
                found[contrasts] = np.empty((q, len(tables), r))
            found[contrasts][:, b] = part.T
    return found


def split_combinations(
    tables: FloatArray, shape: tuple[int, ...], first: FloatArray, vary: Sequence[bool]
) -> dict[tuple[int, ...], FloatArray]:
    """Return for every stratum the (1, b, r) parts of y and X where all facets are axes.

    Constant columns have a part in the mean only, and are left out of the other strata.

    Parameters
    ----------
    tables : (v, R) means of y and of the columns that vary; overwritten by their contrasts
    shape : numbers of levels of the axes
    first : (p,) a row of X
    vary : (p,) which columns of X vary
    """
    found: dict[tuple[int, ...], FloatArray] = {}
    axes = tuple(range(len(shape)))
    for k, table in enumerate(tables):
        for contrasts, part in split_axes(table[:, None], shape).items():
            if contrasts not in found:
                n_values = 0 if contrasts == axes else part.shape[0]
                found[contrasts] = np.empty((1, len(tables), n_values))
            if contrasts != axes:
                found[contrasts][0, k] = part[:, 0]
    found[axes] = tables[None]  # split in place
    means = np.concatenate([[0.0], first])[None, :, None] * np.sqrt(prod(shape))
    means[:, [True, *vary]] = found[()]
    return found | {(): means}


def group_means(table: FloatArray, n: FloatArray, groups: IntArray) -> FloatArray:
    """Return the (R, q) means of a table of cells (R, M) in groups of cells."""
    q = int(groups.max()) + 1
    if n.size == table.shape[1] and (groups[1:] > groups[:-1]).all():
        return table  # each cell is a group
    if table.shape[1] == 1:
        return np.repeat(table, q, axis=1)
    group_n = np.bincount(groups, weights=n, minlength=q)
    weighted = table if (n == 1.0).all() else table * n
    if (np.diff(groups) >= 0).all():
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        sums: FloatArray = np.add.reduceat(weighted, starts, axis=1) / group_n
        return sums
    from scipy.sparse import csr_array

    indicator = csr_array(
        (np.ones(groups.size), (groups, np.arange(groups.size))), shape=(q, groups.size)
    )
    means: FloatArray = np.ascontiguousarray((indicator @ weighted.T).T) / group_n
    return means


def squares_within(
    cells: Cells,
    centres: Sequence[FloatArray],
    inner: IntArray,
    strata: Sequence[tuple[int, ...]],
    blocks: Blocks = BLOCKS,
) -> FloatArray:
    """Return for every stratum the squares and products of the columns less their centres.

    Parameters
    ----------
    cells : the columns
    centres : for each column the (R, q) values that are subtracted in each group of cells
    inner : (M,) group of each cell, in order
    strata : sets of axes
    blocks : in which the cells are summed
    """
    away = [
        b
        for b, (table, centre) in enumerate(zip(cells.tables, centres, strict=True))
        if table.shape[1] > 1 or (centre != table).any()
    ]
    # A constant column is its own centre: mostly only y is left.
    within = np.zeros((len(strata), len(centres), len(centres)))
    # The kernel's compilation takes a second.
    is_large = prod(cells.shape) * cells.n.size > blocks.values
    if is_large and len(away) == 1 and cells.tables[away[0]].shape[1] == cells.n.size:
        b = away[0]
        within[:, b, b] = _squares_of(cells.tables[b], centres[b], cells, inner, strata, blocks)
    elif away:
        within[np.ix_(range(len(strata)), away, away)] = _products_of(
            [(cells.tables[b], centres[b]) for b in away], cells, inner, strata, blocks
        )
    return within


def _squares_of(
    table: FloatArray,
    centres: FloatArray,
    cells: Cells,
    inner: IntArray,
    strata: Sequence[tuple[int, ...]],
    blocks: Blocks,
) -> FloatArray:
    shape = np.array(cells.shape, np.int64)
    known = (np.ascontiguousarray(table), centres, inner, cells.n, shape)

    def work(block: slice) -> FloatArray:
        squares: FloatArray = squares_in_strata(*known, block.start, block.stop)
        return squares

    every = _over_blocks(work, cells, blocks.of_one_column, blocks.threads)
    return every[[sum(1 << axis for axis in contrasts) for contrasts in strata]]


def _products_of(
    columns: Sequence[tuple[FloatArray, FloatArray]],
    cells: Cells,
    inner: IntArray,
    strata: Sequence[tuple[int, ...]],
    blocks: Blocks,
) -> FloatArray:
    weights = None if cells.are_single else cells.n

    def work(block: slice) -> FloatArray:
        parts = [
            split_axes(_block(table, block) - centre[:, inner[block]], cells.shape)
            for table, centre in columns
        ]
        return np.array([_products([p[s] for p in parts], weights, block) for s in strata])

    return _over_blocks(work, cells, blocks.values, blocks.threads)


def _over_blocks(
    work: Callable[[slice], FloatArray], cells: Cells, size: int, threads: int
) -> FloatArray:
    """Return the sum of the results for blocks of `size` values, added in their order."""
    n_cells = cells.n.size
    width = max(size // prod(cells.shape), 1)
    blocks = [slice(s, min(s + width, n_cells)) for s in range(0, n_cells, width)]
    if len(blocks) == 1:  # threads take longer to start
        return work(blocks[0])
    with ThreadPoolExecutor(threads) as pool:
        # Summed in the order of the blocks, whichever is done first.
        total: FloatArray = np.array(list(pool.map(work, blocks))).sum(axis=0)
    return total


def _block(table: FloatArray, block: slice) -> FloatArray:
    if table.shape[1] == 1:
        return np.repeat(table, block.stop - block.start, axis=1)
    return table[:, block]


def _products(
    columns: Sequence[FloatArray], weights: FloatArray | None, block: slice
) -> FloatArray:
    """Return the sums of squares and products of columns (r, cells) over a block of cells."""
    if len(columns) == 1:
        left = columns[0] if weights is None else columns[0] * weights[block]
        return np.array([[np.vdot(left, columns[0])]])
    flat = np.stack([column.ravel() for column in columns])
    if weights is None:
        return flat @ flat.T
    products: FloatArray = (flat * np.tile(weights[block], columns[0].shape[0])) @ flat.T
    return products
