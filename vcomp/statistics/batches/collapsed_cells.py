"""Complete cells that are collapsed: replaced by the sums of their innermost groups.

In p × a × (d:i) a document is complete once every person and assessor has a score on it. No later
row concerns it: the strata need only means within its topic, and squares about them. So data of
any length need memory only for the documents that are not complete yet, and parts of the data that
hold whole documents are reduced to a few numbers for each topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.design import Grid, TermDesign, find_terms
from vcomp.exceptions import DesignError
from vcomp.numerics import slices
from vcomp.statistics.batches.cell_table import CellTable, EveryCell, sum_cells, united
from vcomp.statistics.batches.row_coding import RowCoding
from vcomp.statistics.groupings import (
    Groupings,
    find_groupings,
    group_means,
    split_axes,
    split_means,
    squares_within,
)
from vcomp.statistics.strata import Cells, GroupedColumns
from vcomp.statistics.stratification import MOST_AXES

_BLOCK = 2**16
"""Rows that are processed at once, so that they stay in a core's cache."""


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
        occurs = np.zeros(n_cells, dtype=bool)
        for rows in slices(places.size, _BLOCK):
            # A remainder by division takes twice the time.
            occurs[places[rows] - places[rows] // n_cells * n_cells] = True
        cells = np.flatnonzero(occurs)
        if not places.size or R * cells.size > spread * places.size:
            return cls.of(plan, sum_cells(plan.by_cell(places), values))
        # A table of all combinations of the cells that occur needs no sorting.
        numbers = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
        for rows in slices(places.size, _BLOCK):
            combinations = places[rows] // n_cells
            within = places[rows] - combinations * n_cells
            places[rows] = combinations * cells.size + numbers[within]
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
