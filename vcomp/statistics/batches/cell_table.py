"""Cell tables: numbers and means of the scores in every cell, summed from batches of rows.

Tables of parts of the data add up to the table of the whole, eq. (1.1): of batches of a stream, of
files, of partitions on several machines, of new data and old data.

Complete cells can be collapsed: replaced by the sums of their innermost groups. In p × a × (d:i) a
document is complete once every person and assessor has a score on it. No later row concerns it:
the strata need only means within its topic, and squares about them. So data of any length need
memory only for the documents that are not complete yet, and parts of the data that hold whole
documents are reduced to a few numbers for each topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.design import Grid, TermDesign, find_terms
from vcomp.exceptions import DesignError
from vcomp.statistics.batches.row_coding import RowCoding
from vcomp.statistics.groupings import (
    Groupings,
    find_groupings,
    group_means,
    split_axes,
    split_means,
    squares_within,
)
from vcomp.statistics.kernels import add_to_cells, cells_that_occur, merge_cells, renumber_cells
from vcomp.statistics.strata import Cells, GroupedColumns
from vcomp.statistics.stratification import MOST_AXES

_FIRST_COUNTS = np.uint8

_SPREAD = 8
"""Largest number of places per row, from the first place to the last, of a dense table."""


@dataclass(frozen=True, slots=True, eq=False)
class CellTable:
    """The cells of some rows.

    Attributes
    ----------
    places : (m,) of the cells, in order; None for a table of all places there are
    counts : (m,) rows of each cell, whole numbers
    means : (b, m) means of the columns over them, zero where there are none
    within : (b, b) squares and products within cells, summed over all
    powers : (3, m) sums of the squares, cubes and fourth powers of the first column about its mean
        in each cell; (3, 0) if no cell has two rows; None if they are not known
    """

    places: LongArray | None
    counts: Any
    means: FloatArray
    within: FloatArray
    powers: FloatArray | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.counts.sum(dtype=np.int64))

    def as_scores(self) -> tuple[LongArray, FloatArray, FloatArray] | None:
        """Return weighted scores with the same first four moments as those of each cell.

        They are at most three in a cell, eq. (10.21).

        Returns
        -------
        cells : (n,) position of the cell of each
        scores : (n,) values of the first column
        weights : (n,) how many rows each stands for; those of a cell add up to its rows
        None if the moments are not known.
        """
        if self.powers is None:
            return None
        n, cells = self.counts.astype(float), np.arange(self.counts.size)
        powers = self.powers if self.powers.shape[1] else np.zeros((3, n.size))
        several = powers[0] > 0.0
        second, third, fourth = powers[:, several] / n[several]
        half = 0.5 * third / second
        q = np.maximum(fourth / second - 4.0 * half * half, second)
        far = half + np.copysign(np.sqrt(half * half + q), half)
        away = np.zeros((3, n.size))
        share = np.array([np.ones(n.size), away[0], away[0]])
        away[1, several], away[2, several] = far, -q / far
        distance = far + q / far
        share[0, several] = 1.0 - second / q
        share[1, several] = second / (far * distance)
        share[2, several] = second * far / (q * distance)
        kept = share > 0.0
        scores = (self.means[0] + away)[kept]
        return np.tile(cells, (3, 1))[kept], scores, (share * n)[kept]

    def __add__(self, other: CellTable) -> CellTable:
        if self.places is None or other.places is None:
            return _added_to_every(*((self, other) if self.places is None else (other, self)))
        places = united(self.places, other.places)
        counts = np.zeros(places.size, np.int64)
        means = np.zeros((self.means.shape[0], places.size))
        within = self.within + other.within
        known = self.powers is not None and other.powers is not None
        powers = np.zeros((3, places.size if known else 0))
        for part in (self, other):
            assert part.places is not None
            at, own = np.searchsorted(places, part.places), part._powers_of_all(known)
            merge_cells(at, part.counts, part.means, own, counts, means, within, powers)
        return _made(places, counts, means, within, powers if known else None)

    def _powers_of_all(self, known: bool) -> FloatArray:
        """Return the (3, m) powers, also where no cell has two rows; (3, 0) if not known."""
        if self.powers is not None and self.powers.shape[1] and known:
            return self.powers
        return np.zeros((3, self.counts.size if known else 0))

    def packed(self) -> CellTable:
        """Return the same with counts in as few bytes as the fullest cell needs."""
        most = int(self.counts.max(initial=0))
        return replace(self, counts=self.counts.astype(np.min_scalar_type(most)))

    def filled(self) -> tuple[LongArray, CellTable]:
        """Return the places of the cells that have rows, and their table."""
        if self.places is not None:
            return self.places, self
        places = np.flatnonzero(self.counts)
        if places.size == self.counts.size:
            return places, self
        powers = self.powers
        if powers is not None and powers.shape[1]:
            powers = powers[:, places]
        table = CellTable(places, self.counts[places], self.means[:, places], self.within, powers)
        return places, table


def united(a: LongArray, b: LongArray) -> LongArray:
    """Return the union of two ordered sets of places, in order.

    A stable sort merges two runs; ``np.union1d`` hashes all places and takes 50 times as long.
    """
    both = np.concatenate([a, b])
    both.sort(kind="stable")
    return both[np.diff(both, prepend=-1) != 0]


def _added_to_every(every: CellTable, part: CellTable) -> CellTable:
    counts, means, within = every.counts.astype(np.int64), every.means.copy(), every.within.copy()
    places = np.arange(part.counts.size) if part.places is None else part.places
    known = every.powers is not None and part.powers is not None
    powers, own = every._powers_of_all(known).copy(), part._powers_of_all(known)
    merge_cells(places, part.counts, part.means, own, counts, means, within, powers)
    return _made(None, counts, means, within + part.within, powers if known else None)


def _made(
    places: LongArray | None,
    counts: Any,
    means: FloatArray,
    within: FloatArray,
    powers: FloatArray | None,
) -> CellTable:
    if powers is not None and int(counts.max(initial=0)) <= 1:
        powers = np.zeros((3, 0))
    return CellTable(places, counts, means, symmetric(within), powers)


def sum_cells(places: LongArray, values: FloatArray, *, powers: bool = False) -> CellTable:
    """Return the table of the cells of some rows.

    Parameters
    ----------
    places : (n,) of the rows
    values : (b, n) columns
    powers : whether to sum the powers of the first column
    """
    low, high = (int(places.min()), int(places.max())) if places.size else (0, -1)
    if high - low >= max(_SPREAD * places.size, 1):
        occupied, at = np.unique(places, return_inverse=True)
        table = EveryCell(occupied.size, values.shape[0], powers=powers)
        table.add(at, values)
        cells = table.made()
    else:  # a table of all places in their range is faster than sorting them
        table = EveryCell(high - low + 1, values.shape[0], powers=powers)
        table.add(places - low, values)
        occupied, cells = table.made().filled()
        occupied = occupied + low
    return replace(cells, places=occupied, counts=cells.counts.astype(np.int64))


class EveryCell:
    """A table of all places, to which rows can be added.

    Parameters
    ----------
    size : number of places
    n_columns : of the values
    powers : whether to sum the powers of the first column
    """

    def __init__(self, size: int, n_columns: int, *, powers: bool = False) -> None:
        # Few bytes suffice for the counts: most designs have one row in each cell.
        self._counts: Any = np.zeros(size, _FIRST_COUNTS)
        self._means = np.zeros((n_columns, size))
        self._within = np.zeros((n_columns, n_columns))
        self._sums_powers, self._powers = powers, np.zeros((3, size if powers else 0))

    def add(self, places: LongArray, values: FloatArray) -> None:
        """Add rows.

        Parameters
        ----------
        places : (n,) of the rows
        values : (b, n) columns
        """
        done = 0
        while True:
            done = add_to_cells(
                places, values, done, self._counts, self._means, self._within, self._powers
            )
            if done == places.size:
                return
            wider = np.uint32 if self._counts.dtype == _FIRST_COUNTS else np.int64
            self._counts = self._counts.astype(wider)

    def made(self) -> CellTable:
        """Return the table; no rows can be added after that."""
        powers = self._powers if self._sums_powers else None
        return _made(None, self._counts, self._means, self._within, powers)


def symmetric(lower: FloatArray) -> FloatArray:
    """Return the symmetric matrix with this lower triangle."""
    return np.tril(lower) + np.tril(lower, -1).T


@dataclass(frozen=True, slots=True, eq=False)
class CollapsePlan:
    """The grid whose complete cells are collapsed, and the groups that they are collapsed into.

    Attributes
    ----------
    grid : the grid that the rows are expected to fill
    terms : the random terms
    groupings : groupings of the grid's cells
    """

    grid: Grid
    terms: tuple[TermDesign, ...]
    groupings: Groupings

    @property
    def n_axes(self) -> int:
        """Number of combinations of axis levels."""
        return self.grid.n_combinations

    def by_cell(self, places: LongArray) -> LongArray:
        """Return places in a table with all combinations of axis levels of a cell side by side.

        Parameters
        ----------
        places : of rows, ``combination * M + cell``
        """
        combination, cell = np.divmod(places, self.grid.n_cells)
        return cell * self.n_axes + combination


def collapse_plan(coding: RowCoding) -> CollapsePlan | None:
    """Return the plan of collapsing cells; None if the data do not fill a grid of nested groups.

    The survey has the numbers of rows of every level, which have to be those of such a grid. Only
    the sums show whether a cell is filled twice while another is empty.
    """
    places, survey = coding.places, coding.survey
    if places.n_bound != 1 or not 0 < len(places.free) - 1 <= MOST_AXES:
        return None
    *axes, finest = places.free
    shape = tuple(places.n_levels[f] for f in axes)
    per_cell, uneven = np.divmod(survey.facets[finest].counts, prod(shape))
    if uneven.any() or any(np.ptp(survey.facets[f].counts) for f in axes):
        return None
    levels = {finest: np.arange(places.n_levels[finest], dtype=np.int32)}
    levels |= {f: of_inner for f, (_, of_inner) in places.determined.items()}
    grid = Grid.of_cells(axes, [finest], levels, places.n_levels, per_cell.astype(float))
    try:
        terms = find_terms(coding.formula, (), places.n_levels, grid, survey.n)
    except DesignError:
        return None  # reported when the design is described
    groupings = find_groupings(terms, grid)
    return CollapsePlan(grid, terms, groupings) if groupings.are_nested else None


@dataclass(frozen=True, slots=True, eq=False)
class CollapsedGroups:
    """Complete cells by their innermost groups.

    Attributes
    ----------
    shape : numbers of levels of the axes
    groups : (q,) of the innermost grouping, in order
    n : (q,) rows that their cells have for each combination of axis levels
    means : for each column the (R, q) means
    within : for each set of axes the (b, b) squares and products within groups in that stratum
    """

    shape: tuple[int, ...]
    groups: LongArray
    n: FloatArray
    means: tuple[FloatArray, ...]
    within: FloatArray

    @classmethod
    def of(cls, cells: Cells, groups: IntArray) -> CollapsedGroups:
        """Return the groups of complete cells, which are in the order of their groups."""
        distinct, inner = np.unique(groups, return_inverse=True)
        codes = inner.astype(np.int32)
        means = tuple(group_means(table, cells.n, codes) for table in cells.tables)
        within = squares_within(cells, means, codes, _strata(cells.shape))
        n = np.bincount(codes, weights=cells.n).astype(float)
        return cls(cells.shape, distinct.astype(np.int64), n, means, within)

    @property
    def total(self) -> float:
        """Sum of the first column over all rows."""
        return float(self.n @ self.means[0].sum(axis=0))

    def __add__(self, other: CollapsedGroups) -> CollapsedGroups:
        groups = united(self.groups, other.groups)
        at = [np.searchsorted(groups, part.groups) for part in (self, other)]
        n = np.zeros((2, groups.size))
        n[0, at[0]], n[1, at[1]] = self.n, other.n
        total = n.sum(axis=0)
        means = []
        away = []
        for mine, theirs in zip(self.means, other.means, strict=True):
            both = np.zeros((2, len(mine), groups.size))
            both[0][:, at[0]], both[1][:, at[1]] = mine, theirs
            difference = np.where(n.all(axis=0), both[1] - both[0], 0.0)
            start = np.where(n[0] > 0, both[0], both[1])
            means.append(start + difference * (n[1] / total))
            away.append(difference * np.sqrt(n[0] * n[1] / total))
        within = self.within + other.within
        if any(a.any() for a in away):
            parts = [split_axes(a, self.shape) for a in away]
            for s, contrasts in enumerate(_strata(self.shape)):
                flat = np.stack([part[contrasts].ravel() for part in parts])
                within[s] += flat @ flat.T
        return CollapsedGroups(self.shape, groups, total, tuple(means), within)

    def columns(
        self, constants: Sequence[float | None], within_cells: FloatArray
    ) -> dict[tuple[int, ...], GroupedColumns]:
        """Return the columns of every stratum.

        Parameters
        ----------
        constants : for y and each column of X its value in all rows, None if it varies
        within_cells : squares and products within cells of the columns that vary
        """
        varying = iter(self.means)
        q = self.groups.size
        tables = [
            next(varying) if c is None else np.full((prod(self.shape), q), c) for c in constants
        ]
        rows = [k for k, c in enumerate(constants) if c is None]
        by_stratum = {}
        for s, (contrasts, means) in enumerate(split_means(tables, self.shape).items()):
            within = np.zeros((len(tables), len(tables)))
            within[np.ix_(rows, rows)] = self.within[s] + (within_cells if s == 0 else 0.0)
            by_stratum[contrasts] = GroupedColumns((means,), within)
        return by_stratum


def _strata(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the sets of axes in the order in which tables are split."""
    return list(split_axes(np.zeros((prod(shape), 1)), shape))


@dataclass(frozen=True, slots=True, eq=False)
class PartSums:
    """The sums of some rows: of cells that are complete, and of others.

    Attributes
    ----------
    plan : how cells are collapsed
    open : cells that are not complete
    collapsed : groups of the complete cells; None if there are none
    """

    plan: CollapsePlan
    open: CellTable
    collapsed: CollapsedGroups | None

    @classmethod
    def of(cls, plan: CollapsePlan, table: CellTable) -> PartSums:
        """Return the sums of a table whose complete cells are not collapsed yet.

        Parameters
        ----------
        table : at places by cell
        """
        return cls(plan, table, None)._collapsed()

    @classmethod
    def of_rows(
        cls,
        plan: CollapsePlan,
        places: LongArray,
        values: FloatArray,
        *,
        spread: float = 2,
    ) -> PartSums:
        """Return the sums of some rows.

        Parameters
        ----------
        places : (n,) of the rows, ``combination * M + cell``; they are overwritten
        values : (b, n) columns
        spread : places per row up to which a table of all combinations is made
        """
        R, n_cells = plan.n_axes, plan.grid.n_cells
        occurs = cells_that_occur(places, n_cells)
        cells = np.flatnonzero(occurs)
        if not places.size or R * cells.size > spread * places.size:
            return cls.of(plan, sum_cells(plan.by_cell(places), values))
        # A table of all combinations of the cells that occur needs no sorting.
        numbers = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
        renumber_cells(places, n_cells, numbers, cells.size)
        every = EveryCell(R * cells.size, len(values))
        every.add(places, values)
        return _parted(plan, cells, every.made())

    @property
    def n(self) -> int:
        """Number of rows."""
        if self.collapsed is None:
            return self.open.n
        return self.open.n + self.plan.n_axes * round(float(self.collapsed.n.sum()))

    @property
    def is_complete(self) -> bool:
        """Whether all cells are complete."""
        return self.open.n == 0

    def __add__(self, other: PartSums) -> PartSums:
        parts = [part.collapsed for part in (self, other) if part.collapsed is not None]
        collapsed = parts[0] + parts[1] if len(parts) == 2 else next(iter(parts), None)
        return replace(self, open=self.open + other.open, collapsed=collapsed)._collapsed()

    def _collapsed(self) -> PartSums:
        """Return the same sums with complete cells collapsed."""
        table, plan = self.open, self.plan
        assert table.places is not None
        if not table.places.size:
            return self
        R, n = plan.n_axes, plan.grid.cell_n
        cell = table.places // R
        starts = np.flatnonzero(np.diff(cell, prepend=-1))
        cells = cell[starts]
        sizes = np.diff(np.append(starts, cell.size))
        expected = n[cells]
        full = np.minimum.reduceat(table.counts, starts) == expected
        full &= (np.maximum.reduceat(table.counts, starts) == expected) & (sizes == R)
        if not full.any():
            return self
        away = np.repeat(full, sizes)
        tables = [np.ascontiguousarray(row[away].reshape(-1, R).T) for row in table.means]
        collapsed = _groups_of(plan, cells[full], tables)
        rest = CellTable(
            table.places[~away], table.counts[~away], table.means[:, ~away], table.within
        )
        return replace(
            self,
            open=rest,
            collapsed=collapsed if self.collapsed is None else self.collapsed + collapsed,
        )


def _parted(plan: CollapsePlan, cells: LongArray, table: CellTable) -> PartSums:
    """Return the sums of some cells, the complete ones collapsed.

    Parameters
    ----------
    table : at places ``combination * m + k`` for the k-th of these m cells
    """
    R, n = plan.n_axes, plan.grid.cell_n[cells]
    counts = table.counts.reshape(R, -1)
    full = (counts.min(axis=0) == n) & (counts.max(axis=0) == n)
    means = [row.reshape(R, -1) for row in table.means]
    b = len(means)
    if full.all():
        nothing = CellTable(
            np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((b, 0)), table.within
        )
        return PartSums(plan, nothing, _groups_of(plan, cells, means))
    open_counts = counts[:, ~full].T.ravel().astype(np.int64)
    filled = np.flatnonzero(open_counts)
    places = (cells[~full, None] * R + np.arange(R)).ravel()[filled]
    open_means = np.stack([row[:, ~full].T.ravel()[filled] for row in means])
    rest = CellTable(places, open_counts[filled], open_means, table.within)
    if not full.any():
        return PartSums(plan, rest, None)
    return PartSums(plan, rest, _groups_of(plan, cells[full], [row[:, full] for row in means]))


def _groups_of(plan: CollapsePlan, cells: LongArray, tables: list[FloatArray]) -> CollapsedGroups:
    """Return the groups of complete cells.

    Parameters
    ----------
    tables : for each column the (R, m) means of the cells
    """
    groups = plan.groupings.codes[-1][plan.groupings.rank[cells]]
    n = plan.grid.cell_n[cells]
    if (np.diff(groups) < 0).any():
        order = np.argsort(groups, kind="stable")
        groups, n, tables = groups[order], n[order], [row[:, order] for row in tables]
    nothing = np.zeros((len(tables), len(tables)))
    return CollapsedGroups.of(Cells(plan.grid.shape, n, tuple(tables), nothing), groups)
