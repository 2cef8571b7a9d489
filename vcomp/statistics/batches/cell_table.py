"""Cell tables: numbers and means of the scores in every cell, summed from batches of rows.

Tables of parts of the data add up to the table of the whole, eq. (1.1): of batches of a stream, of
files, of partitions on several machines, of new data and old data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.numerics.kernels import group_sums
from vcomp.statistics.kernels import add_to_cells, count_repeats, insert_cells, merge_cells

_COUNTS = np.uint8, np.uint32, np.int64

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
    weights : (2, m) sums of the weights of rows, with which means and squares are made, and of
        their logarithms; None if all rows count alike
    products : (b, b, m) squares and products within each cell; None if only `within` is known
    repeats : whether cells at one place may be several, as most have a single row: rows then stay
        rows, and need no numbers
    """

    places: LongArray | None
    counts: Any
    means: FloatArray
    within: FloatArray
    powers: FloatArray | None = None
    weights: FloatArray | None = None
    products: FloatArray | None = None
    repeats: bool = False

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.counts.sum(dtype=np.int64))

    @property
    def may_fill_grid(self) -> bool:
        """Whether grids may be found: of weighted cells, or cells with products, none is used."""
        return self.weights is None and self.products is None

    @property
    def multiplicity(self) -> FloatArray:
        """Factors of the cells in sums, (m,): numbers of rows, or sums of weights."""
        return self.counts.astype(float) if self.weights is None else self.weights[0]

    def as_scores(
        self, cells: Any = slice(None), values: tuple[float, float] | None = None
    ) -> tuple[LongArray, FloatArray, FloatArray] | None:
        """Return weighted scores with the same first four moments as those of each cell.

        They are at most three in a cell, eq. (10.21).

        Parameters
        ----------
        cells : a slice of the cells, or their numbers
        values : the two that all scores have, in order; None if there are others

        Returns
        -------
        at : (n,) position of the cell of each, among these cells
        away : (n,) distances of the first column from its mean in the cell
        weights : (n,) how many rows each stands for; those of a cell add up to its rows
        None if the moments are not known.
        """
        n = self.counts[cells].astype(float)
        if values is not None:
            low, high = (value - self.means[0, cells] for value in values)
            n_high = np.rint(n * (-low / (values[1] - values[0])))
            away, times = np.array([low, high]), np.array([n - n_high, n_high])
        elif self.powers is None:
            return None
        else:
            away, times = _of_powers(n, self.powers[:, cells] if self.powers.shape[1] else None)
        kept = times > 0.0
        at = np.arange(n.size, dtype=np.int32)
        return np.tile(at, (len(times), 1))[kept], away[kept], times[kept]

    def __add__(self, other: CellTable) -> CellTable:
        if self.places is None or other.places is None:
            return _added_to_every(*((self, other) if self.places is None else (other, self)))
        if not self.may_fill_grid:
            return joined(self._beside(other))
        whole = _Run.of(self)
        whole.add(_Run.of(other))
        return whole.made()

    def _beside(self, other: CellTable) -> CellTable:
        """Return the cells of both, also where they are at the same place."""

        def both(a: Any, b: Any) -> Any:
            return None if a is None else np.concatenate([a, b], axis=-1)

        return CellTable(
            both(self.places, other.places),
            both(self.counts, other.counts),
            both(self.means, other.means),
            self.within + other.within,
            None,
            both(self.weights, other.weights),
            both(self.products, other.products),
        )

    def _powers_of_all(self, known: bool) -> FloatArray:
        """Return the (3, m) powers, also where no cell has two rows; (3, 0) if not known."""
        if self.powers is not None and self.powers.shape[1] and known:
            return self.powers
        return np.zeros((3, self.counts.size if known else 0))

    def packed(self) -> CellTable:
        """Return the same with counts in as few bytes as the fullest cell needs."""
        most = int(self.counts.max(initial=0))
        return replace(self, counts=self.counts.astype(_type_of_counts(most)))

    @property
    def is_full(self) -> bool:
        """Whether this is a table of all places there are, and all have rows."""
        return self.places is None and bool(self.counts.all())

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

    def at(self, order: LongArray, places: LongArray) -> CellTable:
        """Return cells at other places, sorted by `order`."""
        powers, weights, products = self.powers, self.weights, self.products
        if powers is not None and powers.shape[1]:
            powers = powers[:, order]
        return CellTable(
            places[order],
            self.counts.astype(np.int64)[order],
            self.means[:, order],
            self.within,
            powers,
            None if weights is None else weights[:, order],
            None if products is None else products[:, :, order],
        )


def _of_powers(n: FloatArray, powers: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Return three distances from the mean of each cell, and how many rows have them, (10.21).

    Parameters
    ----------
    n : (m,) rows of the cells
    powers : (3, m) sums of their squares, cubes and fourth powers; None if all are zero
    """
    away = np.zeros((3, n.size))
    share = np.array([np.ones(n.size), away[0], away[0]])
    if powers is not None:
        several = powers[0] > 0.0
        second, third, fourth = powers[:, several] / n[several]
        half = 0.5 * third / second
        q = np.maximum(fourth / second - 4.0 * half * half, second)
        far = half + np.copysign(np.sqrt(half * half + q), half)
        away[1, several], away[2, several] = far, -q / far
        distance = far + q / far
        share[0, several] = 1.0 - second / q
        share[1, several] = second / (far * distance)
        share[2, several] = second * far / (q * distance)
    return away, share * n


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


def sum_weighted_cells(
    places: LongArray, values: FloatArray, weights: FloatArray | None, *, products: bool
) -> CellTable:
    """Return the table of the cells of rows with weights, or with products in each cell.

    Parameters
    ----------
    places : (n,) of the rows
    values : (b, n) columns
    weights : (n,) of the rows; None if they count alike
    products : whether squares and products are summed in each cell
    """
    b, n = values.shape
    both = None if weights is None else np.stack([weights, np.log(weights)])
    rows = CellTable(places, np.ones(n, np.int64), values, np.zeros((b, b)), None, both)
    return joined(rows, products=products)


def joined(table: CellTable, *, products: bool = False) -> CellTable:
    """Return the table in which cells at equal places, in any order, are one.

    Parameters
    ----------
    products : whether squares and products are summed in each cell, if the cells have none yet
    """
    assert table.places is not None
    found, first, inverse = np.unique(table.places, return_index=True, return_inverse=True)
    at: IntArray = inverse.astype(np.int32)
    (b, _), m = table.means.shape, found.size

    def summed(rows: FloatArray) -> FloatArray:
        return group_sums(at, np.ascontiguousarray(rows.T), m).T

    times = table.multiplicity
    # A column that is constant in a cell has exactly that mean.
    start = table.means[:, first]
    away = table.means - start[:, at]
    apart = summed(away * times) / summed(times[None])
    away -= apart[:, at]
    weighted, within, of_cells = away * times, table.within, None
    if products or table.products is not None:
        of_cells = np.empty((b, b, m))
        for j in range(b):
            for k in range(j + 1):
                inside = away[j] * weighted[k]
                if table.products is not None:
                    inside += table.products[j, k]
                of_cells[j, k] = of_cells[k, j] = np.bincount(at, inside, minlength=m)
        within = of_cells.sum(axis=2)
    else:
        within = symmetric(within + away @ weighted.T)
    return CellTable(
        found,
        np.bincount(at, table.counts, minlength=m).astype(np.int64),
        start + apart,
        within,
        None,
        None if table.weights is None else summed(table.weights),
        of_cells,
    )


def sum_cells(
    places: LongArray, values: FloatArray, *, powers: bool = False, repeats: bool = False
) -> CellTable:
    """Return the table of the cells of some rows.

    Parameters
    ----------
    places : (n,) of the rows
    values : (b, n) columns
    powers : whether to sum the powers of the first column
    repeats : whether rows may stay single if most cells have one
    """
    low, high = (int(places.min()), int(places.max())) if places.size else (0, -1)
    if high - low >= max(_SPREAD * places.size, 1):
        order = np.argsort(places, kind="stable")
        b, n = values.shape
        columns = np.empty((n, b + 3 * powers))
        np.take(values.T, order, axis=0, out=columns[:, :b], mode="clip")
        columns[:, b:] = 0.0
        return _Run(
            places[order], np.ones(n, np.uint8), columns, np.zeros((b, b)), repeats=repeats
        ).made()
    # A table of all places in their range is faster than sorting them.
    table = EveryCell(high - low + 1, values.shape[0], powers=powers)
    table.add(places - low, values)
    occupied, cells = table.made().filled()
    return replace(cells, places=occupied + low)


_REPEATS = 0.01
"""Largest share of cells at the place of another one while single rows stay rows."""


class _Run:
    """Cells in the order of their places, to which others can be added in place.

    Parameters
    ----------
    places, counts : (m,) of the cells
    columns : (m, b) their means, or (m, b + 3) with the powers
    within, repeats : as of :class:`CellTable`
    owned : whether the arrays may be changed
    """

    def __init__(
        self,
        places: LongArray,
        counts: Any,
        columns: FloatArray,
        within: FloatArray,
        *,
        repeats: bool,
        owned: bool = True,
    ) -> None:
        self._places, self._counts, self._columns = places, counts, columns
        self._within, self._repeats, self._owned = within, repeats, owned

    @classmethod
    def of(cls, table: CellTable) -> _Run:
        """Return the cells of a table, which stays as it is."""
        assert table.places is not None
        known, rows = table.powers is not None, [table.means]
        if known:
            rows.append(table._powers_of_all(known))
        columns = np.ascontiguousarray((np.vstack(rows) if known else table.means).T)
        return cls(
            table.places, table.counts, columns, table.within, repeats=table.repeats, owned=False
        )

    @property
    def size(self) -> int:
        """Number of cells."""
        return int(self._places.size)

    def add(self, other: _Run) -> None:
        """Insert other cells, in the memory of these and that of the others."""
        b, n = self._within.shape[0], self.size
        width = min(self._columns.shape[1], other._columns.shape[1])
        if self._columns.shape[1] > width:  # without the powers, which the others do not have
            self._columns = np.ascontiguousarray(self._columns[:, :b])
        wider = np.promote_types(self._counts.dtype, other._counts.dtype)
        self._counts = self._counts.astype(wider, copy=False)
        arrays = self._places, self._counts, self._columns
        grown = [_grown(array, n + other.size, owned=self._owned) for array in arrays]
        self._places, self._counts, self._columns = grown
        counts = other._counts.astype(wider, copy=False)
        insert_cells(*grown, n, other._places, counts, other._columns[:, :width])
        self._within = self._within + other._within
        self._repeats, self._owned = self._repeats and other._repeats, True
        self._join()

    def _join(self) -> None:
        """Join cells at one place, unless they are few and may stay."""
        different, most = count_repeats(self._places, self._counts)
        if self._repeats:
            self._repeats = self.size - different <= _REPEATS * self.size
        if self._repeats or different == self.size:
            return
        b, m = self._within.shape[0], self._columns.shape[1]
        at = np.cumsum(np.diff(self._places, prepend=self._places[0]) != 0)
        counts = np.zeros(different, _type_of_counts(most))
        means, powers = np.zeros((b, different)), np.zeros((3, different if m > b else 0))
        within = np.tril(self._within)
        flat = np.ascontiguousarray(self._columns.T)
        merge_cells(at, self._counts, flat[:b], flat[b:], counts, means, within, powers)
        first = np.flatnonzero(np.diff(self._places, prepend=-1))
        self._places, self._counts, self._within = self._places[first], counts, symmetric(within)
        self._columns = np.ascontiguousarray((np.vstack([means, powers]) if m > b else means).T)
        self._owned = True

    def made(self) -> CellTable:
        """Return the cells as a table; none can be added after that."""
        self._join()
        b = self._within.shape[0]
        powers = None
        if self._columns.shape[1] > b:
            powers = np.ascontiguousarray(self._columns[:, b:].T)
        means = np.ascontiguousarray(self._columns[:, :b].T)
        table = _made(self._places, self._counts, means, self._within, powers)
        return replace(table, repeats=self._repeats)


def _grown(array: Any, size: int, *, owned: bool) -> Any:
    """Return an array with more rows; one that is owned grows where it is."""
    if owned and array.flags.owndata:
        array.resize((size, *array.shape[1:]), refcheck=False)
        return array
    grown = np.empty((size, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


def add_tables(tables: Iterable[CellTable]) -> CellTable | None:
    """Return the sum of tables, added as in a tree in half more than its memory; None of none.

    Cells of one table are added to those of another in place, neighbours of about the same size
    first.
    """
    waiting: list[_Run] = []
    whole: CellTable | None = None
    for table in tables:
        if table.places is None or not table.may_fill_grid:
            whole = table if whole is None else whole + table
            continue
        waiting.append(_Run.of(table))
        while len(waiting) > 1 and waiting[-2].size < 2 * waiting[-1].size:
            last = waiting.pop()
            waiting[-1].add(last)
    while len(waiting) > 1:
        last = waiting.pop()
        waiting[-1].add(last)
    if not waiting:
        return whole
    made = waiting.pop().made()
    return made if whole is None else whole + made


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
        self._counts: Any = np.zeros(size, _COUNTS[0])
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
            self._counts = self._counts.astype(
                _type_of_counts(np.iinfo(self._counts.dtype).max + 1)
            )

    def made(self) -> CellTable:
        """Return the table; no rows can be added after that."""
        powers = self._powers if self._sums_powers else None
        return _made(None, self._counts, self._means, self._within, powers)


def _type_of_counts(most: int) -> Any:
    """Return the type of numbers of rows up to some number, of three types for compiled loops."""
    return next(kind for kind in _COUNTS if most <= np.iinfo(kind).max)


def symmetric(lower: FloatArray) -> FloatArray:
    """Return the symmetric matrix with this lower triangle."""
    return np.tril(lower) + np.tril(lower, -1).T
