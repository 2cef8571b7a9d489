"""Cell tables: numbers and means of the scores in every cell, summed from batches of rows.

Tables of parts of the data add up to the table of the whole, eq. (1.1): of batches of a stream, of
files, of partitions on several machines, of new data and old data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.statistics.kernels import add_to_cells, merge_cells

_FIRST_COUNTS = np.uint8

_SPREAD = 8
"""Use a dense table up to this many places per row, from the first place to the last."""


@dataclass(frozen=True, slots=True, eq=False)
class CellTable:
    """The cells of some rows.

    Attributes
    ----------
    places : (m,) of the cells, in order; None for a table of all places there are
    counts : (m,) rows of each cell, whole numbers
    means : (b, m) means of the columns over them, zero where there are none
    within : (b, b) squares and products within cells, summed over all
    """

    places: LongArray | None
    counts: Any
    means: FloatArray
    within: FloatArray

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.counts.sum(dtype=np.int64))

    def __add__(self, other: CellTable) -> CellTable:
        if self.places is None or other.places is None:
            return _added_to_every(*((self, other) if self.places is None else (other, self)))
        places = united(self.places, other.places)
        counts = np.zeros(places.size, np.int64)
        means = np.zeros((self.means.shape[0], places.size))
        within = self.within + other.within
        for part in (self, other):
            assert part.places is not None
            at = np.searchsorted(places, part.places)
            merge_cells(at, part.counts, part.means, counts, means, within)
        return CellTable(places, counts, means, symmetric(within))

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
        table = CellTable(places, self.counts[places], self.means[:, places], self.within)
        return places, table


def united(a: LongArray, b: LongArray) -> LongArray:
    """Return the union of two ordered sets of places, in order.

    A stable sort merges two runs; ``np.union1d`` hashes all places, which takes 50 times as long.
    """
    both = np.concatenate([a, b])
    both.sort(kind="stable")
    either: LongArray = both[np.diff(both, prepend=-1) != 0]
    return either


def _added_to_every(every: CellTable, part: CellTable) -> CellTable:
    counts, means, within = every.counts.astype(np.int64), every.means.copy(), every.within.copy()
    places = np.arange(part.counts.size) if part.places is None else part.places
    merge_cells(places, part.counts, part.means, counts, means, within)
    return CellTable(None, counts, means, symmetric(within + part.within))


def sum_cells(places: LongArray, values: FloatArray) -> CellTable:
    """Return the table of the cells in which some rows are.

    Parameters
    ----------
    places : (n,) of the rows
    values : (b, n) columns
    """
    low, high = (int(places.min()), int(places.max())) if places.size else (0, -1)
    if high - low >= max(_SPREAD * places.size, 1):
        found, at = np.unique(places, return_inverse=True)
        table = EveryCell(found.size, values.shape[0])
        table.add(at, values)
        made = table.made()
    else:  # a table of all places between is faster than putting them in order
        table = EveryCell(high - low + 1, values.shape[0])
        table.add(places - low, values)
        found, made = table.made().filled()
        found = found + low
    return CellTable(found, made.counts.astype(np.int64), made.means, made.within)


class EveryCell:
    """A table of all places, to which rows are added.

    Parameters
    ----------
    size : number of places
    n_columns : of the values
    """

    def __init__(self, size: int, n_columns: int) -> None:
        # In as few bytes as the fullest cell needs: most designs have one row in each.
        self._counts: Any = np.zeros(size, _FIRST_COUNTS)
        self._means = np.zeros((n_columns, size))
        self._within = np.zeros((n_columns, n_columns))

    def add(self, places: LongArray, values: FloatArray) -> None:
        """Add rows.

        Parameters
        ----------
        places : (n,) of the rows
        values : (b, n) columns
        """
        done = 0
        while True:
            done = add_to_cells(places, values, done, self._counts, self._means, self._within)
            if done == places.size:
                return
            wider = np.uint32 if self._counts.dtype == _FIRST_COUNTS else np.int64
            self._counts = self._counts.astype(wider)

    def made(self) -> CellTable:
        """Return the table; no rows can be added after that."""
        return CellTable(None, self._counts, self._means, symmetric(self._within))


def symmetric(lower: FloatArray) -> FloatArray:
    """Return the symmetric matrix with this lower triangle."""
    return np.tril(lower) + np.tril(lower, -1).T


class Addable(Protocol):
    """A value that can be added to others of its type."""

    def __add__(self, other: Self) -> Self: ...


Part = TypeVar("Part", bound=Addable)


def add_up(parts: Iterable[Part]) -> Part | None:
    """Return the sum of the parts; None if there are none.

    Neighbours that are sums of equally many parts are added first, as in a tree, so that what many
    parts share is copied a few times, not once for each part.

    Examples
    --------
    >>> add_up(["a", "b", "c"])
    'abc'
    """
    waiting: list[tuple[int, Part]] = []
    for part in parts:
        level, made = 0, part
        while waiting and waiting[-1][0] == level:
            made = waiting.pop()[1] + made
            level += 1
        waiting.append((level, made))
    if not waiting:
        return None
    (_, whole), *rest = reversed(waiting)
    for _, part in rest:
        whole = part + whole
    return whole
