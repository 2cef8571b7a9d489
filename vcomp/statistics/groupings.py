"""Groupings of the cells of a grid by the terms, sums by group, and the split into strata.

Cells are those of the facets that are not axes of the grid. Every axis is split, in place, into
its mean and the contrasts of its levels (docs/explanation/mathematics.md, eq. (3.1)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

import numpy as np

from vcomp._typing import BoolArray, FloatArray, IntArray
from vcomp.design import Grid, TermDesign, number_combinations
from vcomp.numerics import THREADS
from vcomp.numerics.kernels import pair_counts
from vcomp.statistics.cross_products import CrossProducts
from vcomp.statistics.kernels import squares_in_strata
from vcomp.statistics.roll_up import PairTable
from vcomp.statistics.strata import Cells, GroupedColumns, Remainder, Stratum, StratumStatistics


@dataclass(frozen=True, slots=True)
class Groupings:
    """The groupings of the cells, coarsest first, the first of them with one group.

    Attributes
    ----------
    order : (M,) the cells in an order in which nested groups are contiguous
    rank : (M,) place of each cell in it
    codes : for each grouping the (M,) group of the cells, in that order
    of_term : for each term its grouping, or their number if its groups are single observations
    term_axes : for each term the positions of the axes in it
    remainder : numbers of rows in groups and pairs of groups
    """

    order: IntArray
    rank: IntArray
    codes: tuple[IntArray, ...]
    of_term: tuple[int, ...]
    term_axes: tuple[frozenset[int], ...]
    remainder: Remainder

    @property
    def are_nested(self) -> bool:
        """Whether each grouping is nested in the one before it."""
        return self.remainder.parents is not None


def find_groupings(terms: Sequence[TermDesign], grid: Grid) -> Groupings:
    """Return the different groupings of the cells of a grid by the terms."""
    groupings: list[tuple[IntArray, int]] = [(np.zeros(grid.n_cells, np.int32), 1)]
    places = [_place(term, groupings, grid) for term in terms]
    by_size = sorted(range(len(groupings)), key=lambda g: groupings[g][1])
    position = {g: k for k, g in enumerate(by_size)} | {-1: len(groupings)}
    ordered = [groupings[g] for g in by_size]
    order = np.lexsort([codes for codes, _ in reversed(ordered)])
    rank = np.empty(order.size, dtype=np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    nested = all(
        number_combinations(*coarse, *fine)[0].size == fine[1]
        for coarse, fine in pairwise(ordered)
    )
    codes = tuple(
        # Nested groups are contiguous, and numbered in their order.
        np.cumsum(np.diff(c[order], prepend=c[order[:1]]) != 0, dtype=np.int32)
        if nested
        else np.ascontiguousarray(c[order])
        for c, _ in ordered
    )
    n = grid.cell_n[order]
    return Groupings(
        order=order.astype(np.int32),
        rank=rank,
        codes=codes,
        of_term=tuple(position[p] for p in places),
        term_axes=tuple(
            frozenset(a for a, facet in enumerate(grid.axes) if facet in term.facets)
            for term in terms
        ),
        remainder=_nested_remainder(codes, n) if nested else _crossed_remainder(codes, n),
    )


def _place(term: TermDesign, groupings: list[tuple[IntArray, int]], grid: Grid) -> int:
    """Return the place of a term's grouping among those so far; −1 if its groups are single rows.

    Cells are grouped by the term's facets that are not axes. A new grouping is added to
    `groupings`.
    """
    groups, size = np.zeros(grid.n_cells, np.int32), 1
    for facet, levels in zip(grid.rest, grid.levels, strict=True):
        if facet in term.facets:
            keys, groups = number_combinations(groups, size, levels, int(levels.max()) + 1)
            size = keys.size
    if size == grid.n_cells > 1 and (grid.cell_n == 1.0).all():
        return -1
    for place, (known, n_known) in enumerate(groupings):
        if n_known == size and number_combinations(known, size, groups, size)[0].size == size:
            return place
    groupings.append((groups, size))
    return len(groupings) - 1


def _nested_remainder(codes: tuple[IntArray, ...], n: FloatArray) -> Remainder:
    """Return the tables of nested groupings, which follow from the sizes of the groups."""
    group_n = tuple(np.bincount(c, weights=n).astype(float) for c in codes)
    parents = [_outer_groups(fine, coarse) for coarse, fine in pairwise(codes)]
    pairs = {}
    for u in range(len(codes)):
        for t in range(u):
            outer = _outer_groups(codes[u], codes[t])
            starts = np.searchsorted(outer, np.arange(group_n[t].size + 1))
            inner = np.arange(group_n[u].size, dtype=np.int32)
            pairs[t, u] = PairTable(starts.astype(np.int64), inner, group_n[u], inner.size)
    return Remainder(_tables(group_n, pairs), tuple(parents))


def _outer_groups(fine: IntArray, coarse: IntArray) -> IntArray:
    """Return the coarse group that each fine one lies in."""
    return coarse[np.flatnonzero(np.diff(fine, prepend=-1))]


def _crossed_remainder(codes: tuple[IntArray, ...], n: FloatArray) -> Remainder:
    sizes = [int(c.max()) + 1 for c in codes]
    group_n = tuple(np.bincount(c, weights=n).astype(float) for c in codes)
    pairs = {}
    for u in range(len(codes)):
        for t in range(u):
            indptr, indices, counts = pair_counts(codes[t], codes[u], sizes[t], sizes[u], n)
            pairs[t, u] = PairTable(indptr, indices, counts, sizes[u])
    return Remainder(_tables(group_n, pairs), None)


def _tables(
    group_n: tuple[FloatArray, ...], pairs: dict[tuple[int, int], PairTable]
) -> CrossProducts:
    """Return cross-products of groupings alone, without columns."""
    return CrossProducts(
        n=round(float(group_n[0].sum())),
        group_n=group_n,
        pairs=pairs,
        Zy=tuple(np.zeros(n.size) for n in group_n),
        ZX=tuple(np.zeros((n.size, 0)) for n in group_n),
        XX=np.zeros((0, 0)),
        Xy=np.zeros(0),
        yy=0.0,
    )


@dataclass(frozen=True, slots=True)
class GroupSums:
    """Sums over the groups of the terms and over pairs of groups.

    Attributes
    ----------
    n : number of rows
    total, yy : sum and sum of squares of the centred response
    sizes : numbers of groups
    parts : (m,) sums of squares that add up to T terms; from strata those of disjoint spaces, so
        that small differences of large T terms do not cancel
    holds : (k + 2, m) parts of the T terms, then of the total, then of the mean
    coefficients : (k, k) k_tu, the expectation of T_t for a unit component of term u
    squares : (k,) Σ_g n_g²
    inverse_n : (k, k + 1) 1/n_tu: the share of component u in the variance of the mean of one
        group of t, averaged over groups (Brennan 2001, eq. 7.28); the residual is the last
    finer : (k, k) whether every group of term t lies within one group of term u
    """

    n: int
    total: float
    yy: float
    sizes: tuple[int, ...]
    parts: FloatArray
    holds: FloatArray
    coefficients: FloatArray
    squares: FloatArray
    inverse_n: FloatArray
    finer: BoolArray

    @property
    def n_terms(self) -> int:
        """Number of random terms, the residual not counted."""
        return len(self.sizes)

    @property
    def T(self) -> FloatArray:
        """Uncorrected sums of squares of the group means, (k,)."""
        return self.holds[: self.n_terms] @ self.parts


def product_group_sums(
    stats: CrossProducts, pairs: Iterable[tuple[tuple[int, int], PairTable]] | None = None
) -> GroupSums:
    """Return the sums of general cross-products.

    Parameters
    ----------
    stats : the cross-products
    pairs : their tables of pairs, which are read one by one; those that they keep if None
    """
    k, finer = stats.n_terms, np.eye(stats.n_terms, dtype=bool)
    coefficients, inverse = np.empty((k, k)), np.empty((k, k + 1))
    for t, n in enumerate(stats.group_n):
        _note(coefficients, inverse, (t, t), np.square(n), n)
        inverse[t, k] = np.mean(1.0 / n)
    for (t, u), table in stats.pairs.items() if pairs is None else pairs:
        finer[t, u], finer[u, t] = (table.indices.size == stats.sizes[place] for place in (t, u))
        squares = table.matrix.power(2)
        _note(coefficients, inverse, (t, u), squares.sum(axis=1), stats.group_n[t])
        _note(coefficients, inverse, (u, t), squares.sum(axis=0), stats.group_n[u])
    total, parts = _total_and_parts(stats)
    return GroupSums(
        n=stats.n,
        total=total,
        yy=stats.yy,
        sizes=stats.sizes,
        parts=parts,
        holds=np.eye(k + 2),
        coefficients=coefficients,
        squares=np.array([n @ n for n in stats.group_n]),
        inverse_n=inverse,
        finer=finer,
    )


def _note(
    coefficients: FloatArray,
    inverse: FloatArray,
    place: tuple[int, int],
    shared: FloatArray,
    n: FloatArray,
) -> None:
    """Set the coefficients of two terms, from Σ_h n_gh² of the groups g and their sizes n."""
    coefficients[place] = (shared / n).sum()
    inverse[place] = np.mean(shared / n**2)


def stratum_group_sums(stats: StratumStatistics) -> GroupSums:
    """Return the sums of a design with axes, from the axes' sizes and the remainder's groups."""
    k, shape = stats.n_terms, stats.shape
    coefficients, inverse = np.empty((k, k)), np.empty((k, k + 1))
    squares = np.empty(k)
    pairs = {(a, b) for a in stats.term_groupings for b in stats.term_groupings}
    meetings = {(a, b): _shared(stats, a, b) for a, b in pairs}
    for t, axes in enumerate(stats.term_axes):
        n, times = stats.group_n(t), stats.times(t)
        for u, others in enumerate(stats.term_axes):
            factor = prod(n_f for f, n_f in enumerate(shape) if f in others - axes)
            factor *= prod(n_f for f, n_f in enumerate(shape) if f not in axes | others) ** 2
            shared = factor * meetings[stats.term_groupings[t], stats.term_groupings[u]]
            coefficients[t, u] = times * (shared / n).sum()
            inverse[t, u] = np.mean(shared / n**2)
        inverse[t, k] = np.mean(1.0 / n)
        squares[t] = stats.group_squares(t)
    parts, holds = _parts(stats)
    return GroupSums(
        n=stats.n,
        total=_total(stats),
        yy=stats.yy,
        sizes=stats.sizes,
        parts=parts,
        holds=holds,
        coefficients=coefficients,
        squares=squares,
        inverse_n=inverse,
        finer=np.array([[stats.is_finer(t, u) for u in range(k)] for t in range(k)]),
    )


def resum_groups(known: GroupSums, stats: StratumStatistics | CrossProducts) -> GroupSums:
    """Return the sums of the same groups with another response; their counts are reused.

    Parameters
    ----------
    known : sums of the same strata or cross-products with another response
    stats : the strata or cross-products
    """
    if isinstance(stats, CrossProducts):
        total, parts = _total_and_parts(stats)
    else:
        total, parts = _total(stats), _parts(stats)[0]
    return replace(known, total=total, yy=stats.yy, parts=parts)


def _total_and_parts(stats: CrossProducts) -> tuple[float, FloatArray]:
    """Return the sum of the response, and the T terms, the total and the mean's."""
    T = [(y * y / n).sum() for y, n in zip(stats.Zy, stats.group_n, strict=True)]
    total = float(stats.Zy[0].sum())
    return total, np.array([*T, stats.yy, total**2 / stats.n])


def _shared(stats: StratumStatistics, a: int, b: int) -> FloatArray:
    """Return Σ_h n_gh² for the groups g of one grouping and h of another."""
    single = stats.remainder.n_groupings
    if a == single:
        return np.ones(1)
    if b in (a, single):
        return stats.remainder.tables.group_n[a] ** (1 + (a == b))
    table = stats.remainder.tables.gram(a, b)
    return np.asarray(table.multiply(table).sum(axis=1)).ravel()


def _parts(stats: StratumStatistics) -> tuple[FloatArray, FloatArray]:
    """Return sums of squares of disjoint spaces, and the parts of the T terms, total and mean."""
    k, single = stats.n_terms, stats.remainder.n_groupings
    every = frozenset(range(len(stats.shape)))
    axes = [*stats.term_axes, every, frozenset()]
    groupings = [*stats.term_groupings, single, 0]
    nested = stats.remainder.parents is not None
    # A nested grouping contains the spaces of all coarser ones.
    of_grouping = np.tri(single + 1) if nested else np.eye(single + 1)
    parts, holds = [], []
    for stratum in stats.strata:
        parts.append(_nested_squares(stats, stratum) if nested else _squares(stats, stratum))
        rows = np.zeros((k + 2, single + 1))
        for row, (inside, grouping) in enumerate(zip(axes, groupings, strict=True)):
            if inside.issuperset(stratum.contrasts):
                rows[row] = of_grouping[grouping]
        holds.append(rows)
    return np.concatenate(parts), np.concatenate(holds, axis=1)


def _squares(stats: StratumStatistics, stratum: Stratum) -> FloatArray:
    """Return Σ n m² of the means of y in the groups of every grouping, and Σ y² as the last."""
    tables, columns = stats.remainder.tables, stratum.columns
    pairs = zip(tables.group_n, columns.means, strict=True)
    squares = [n @ np.square(means[:, 0]).sum(axis=1) for n, means in pairs]
    return np.array([*squares, columns.within[0, 0]])


def _nested_squares(stats: StratumStatistics, stratum: Stratum) -> FloatArray:
    """Return Σ n (m − M)² of the means of y about those of the next coarser groups.

    The first element is Σ n m² of the coarsest means, the last is within the innermost groups.
    """
    group_n, parents = stats.remainder.tables.group_n, stats.remainder.parents or ()
    squares = np.empty(len(group_n) + 1)
    squares[-1] = stratum.columns.within[0, 0]
    means = stratum.columns.means[0][:, 0]
    for grouping in range(len(group_n) - 1, 0, -1):
        n, parent = group_n[grouping], parents[grouping - 1]
        starts = np.flatnonzero(np.diff(parent, prepend=-1))
        sums = np.add.reduceat(n[:, None] * means, starts, axis=0)
        coarser = sums / group_n[grouping - 1][:, None]
        squares[grouping] = n @ np.square(means - coarser[parent]).sum(axis=1)
        means = coarser
    squares[0] = group_n[0] @ np.square(means).sum(axis=1)
    return squares


def _total(stats: StratumStatistics) -> float:
    """Return the sum of the response, from the stratum of all means."""
    (means,) = [s.columns.means for s in stats.strata if not s.contrasts]
    n = stats.remainder.tables.group_n[-1]
    return float(np.sqrt(prod(stats.shape)) * (n @ means[-1][:, 0, 0]))


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
    parts: dict[tuple[int, ...], FloatArray] = {}
    for b, table in enumerate(tables):
        for contrasts, part in split_axes(table.copy(), shape).items():
            if contrasts not in parts:
                r, q = part.shape
                parts[contrasts] = np.empty((q, len(tables), r))
            parts[contrasts][:, b] = part.T
    return parts


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
    parts: dict[tuple[int, ...], FloatArray] = {}
    axes = tuple(range(len(shape)))
    for k, table in enumerate(tables):
        for contrasts, part in split_axes(table[:, None], shape).items():
            if contrasts not in parts:
                n_values = 0 if contrasts == axes else part.shape[0]
                parts[contrasts] = np.empty((1, len(tables), n_values))
            if contrasts != axes:
                parts[contrasts][0, k] = part[:, 0]
    parts[axes] = tables[None]  # split in place
    means = np.concatenate([[0.0], first])[None, :, None] * np.sqrt(prod(shape))
    means[:, [True, *vary]] = parts[()]
    return parts | {(): means}


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
        return np.add.reduceat(weighted, starts, axis=1) / group_n
    from scipy.sparse import csr_array

    indicator = csr_array(
        (np.ones(groups.size), (groups, np.arange(groups.size))), shape=(q, groups.size)
    )
    return np.ascontiguousarray((indicator @ weighted.T).T) / group_n


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
    # A constant column equals its centre: mostly only y is left.
    within = np.zeros((len(strata), len(centres), len(centres)))
    # Compiling the kernel takes a second.
    is_large = prod(cells.shape) * cells.n.size > blocks.values
    if is_large and len(away) == 1 and cells.tables[away[0]].shape[1] == cells.n.size:
        b = away[0]
        shape = np.array(cells.shape, np.int64)
        known = (np.ascontiguousarray(cells.tables[b]), centres[b], inner, cells.n, shape)

        def work(block: slice) -> FloatArray:
            return squares_in_strata(*known, block.start, block.stop)

        every = _over_blocks(work, cells, blocks.of_one_column, blocks.threads)
        masks = [sum(1 << axis for axis in contrasts) for contrasts in strata]
        within[:, b, b] = every[masks]
    elif away:
        within[np.ix_(range(len(strata)), away, away)] = _products_of(
            [(cells.tables[b], centres[b]) for b in away], cells, inner, strata, blocks
        )
    return within


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
    if len(blocks) == 1:  # starting threads takes longer
        return work(blocks[0])
    with ThreadPoolExecutor(threads) as pool:
        # Summed in the order of the blocks, whatever the order of completion.
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
    return (flat * np.tile(weights[block], columns[0].shape[0])) @ flat.T
