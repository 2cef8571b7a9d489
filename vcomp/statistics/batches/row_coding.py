"""The coding of rows in batches: levels, origins, and the places of cells in a flat table.

Rows that are read in batches are summed at these places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.data import NO_COLUMNS, RowColumns
from vcomp.design import Centre, CodedBar, Facet, Grid, JoinedLevels, finest_facets
from vcomp.exceptions import DataError, EstimationError
from vcomp.formula import INTERCEPT, FixedPart, Formula
from vcomp.numerics import slices
from vcomp.numerics.kernels import add_places
from vcomp.statistics.batches.survey import ColumnKinds, Survey, XSums

if TYPE_CHECKING:
    import pandas as pd


_DIRECT = 2**20
"""Range of values up to which levels are looked up in a table, however few they are."""

_SPARSE = 8
"""Values per level up to which a larger table is made."""

_ABSENT = -1
"""Entry of a table for a value that is not a level of the facet."""

_BLOCK = 2**15
"""Rows of a block, whose places stay in a core's second cache while facets are added."""


@dataclass(frozen=True, slots=True, eq=False)
class CellPlaces:
    """The place of each combination of levels.

    Facets in which others are nested are redundant: a document determines its topic.

    Attributes
    ----------
    n_levels : numbers of levels of all facets
    free : the non-redundant facets; first those that are crossed with all others
    n_bound : number of facets among `free`, the last ones, that are nested in others
    determined : for each redundant facet one of `free` that is nested in it, and the outer level
        of each level of that facet
    """

    n_levels: tuple[int, ...]
    free: tuple[int, ...]
    n_bound: int
    determined: Mapping[int, tuple[int, IntArray]]

    @classmethod
    def of(cls, survey: Survey, names: Sequence[str]) -> CellPlaces:
        """Return the places of the levels in a survey of all rows.

        Raises
        ------
        EstimationError
            If there are too many to be numbered.
        """
        n_levels = tuple(len(facet.levels) for facet in survey.facets)
        every = range(len(n_levels))
        rest = finest_facets(every, survey.determined)
        determined = {}
        for outer in every:
            if outer not in rest:
                inner = next(f for f in rest if (f, outer) in survey.determined)
                determined[outer] = inner, survey.determined[inner, outer]
        binding = {inner for inner, _ in determined.values()}
        free = (*(f for f in rest if f not in binding), *(f for f in rest if f in binding))
        if prod(n_levels[f] for f in free) > 2**62:
            shown = " × ".join(display.sized(n_levels[f], names[f]) for f in free)
            raise EstimationError(f"{shown} are too many cells to be numbered; leave a facet out")
        return cls(n_levels, free, len(binding), determined)

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of levels of the non-redundant facets."""
        return tuple(self.n_levels[f] for f in self.free)

    @property
    def size(self) -> int:
        """Number of places."""
        return prod(self.shape)

    @property
    def digits(self) -> JoinedLevels:
        """The levels of the non-redundant facets, joined."""
        return JoinedLevels(self.free, self.shape)

    @property
    def steps(self) -> LongArray:
        """Distance between the places of neighbouring levels; zero for redundant facets."""
        return self.digits.steps(len(self.n_levels))

    def of_rows(self, codes: Sequence[IntArray]) -> LongArray:
        """Return the place of each row.

        Parameters
        ----------
        codes : (n,) level of each row in each facet
        """
        places: LongArray = self.digits.numbers(codes)
        return places

    def codes(self, places: LongArray | None) -> tuple[IntArray, ...]:
        """Return the level in each facet of the cells at some places, or at all if None."""
        size = self.size if places is None else places.size
        levels = {f: np.empty(size, np.int32) for f in self.free}
        for block in slices(size, _BLOCK):  # there may be as many cells as rows
            every = np.arange(block.start, block.stop)
            at = every if places is None else places[block]
            for f, level in self.digits.levels(at)[1].items():
                levels[f][block] = level
        for facet, (inner, outer_level) in self.determined.items():
            levels[facet] = outer_level[levels[inner]]
        return tuple(levels[f] for f in range(len(self.n_levels)))

    def may_cross(self, places: LongArray) -> bool:
        """Whether a facet may be crossed with all others: its levels have equally many cells.

        Parameters
        ----------
        places : of the cells that have rows
        """
        codes = self.codes(places)
        cells = (np.bincount(codes[f]) for f in self.free[: len(self.free) - self.n_bound])
        return any(bool((n == n[:1]).all()) for n in cells)

    def grid(self, counts: Any, *, terms_are_nested: bool) -> Grid | None:
        """Return the complete grid that the rows fill, with as many axes as they allow.

        Parameters
        ----------
        counts : (size,) rows of each cell
        terms_are_nested : whether the random terms are nested in each other; only then does a grid
            without axes exist
        """
        table = counts.reshape(self.shape)
        candidates = range(len(self.free) - self.n_bound)
        # Facets that are each crossed with all others are also crossed jointly.
        positions = [k for k in candidates if _is_constant_along(table, k)]
        if not positions and not terms_are_nested:
            return None
        rest = [k for k in range(len(self.free)) if k not in positions]
        inside = table[tuple(0 if k in positions else slice(None) for k in range(table.ndim))]
        filled = np.flatnonzero(inside)
        cell_n: FloatArray = inside.ravel()[filled].astype(float)
        axes = sorted(self.free[k] for k in positions)
        finest = [self.free[k] for k in rest]
        levels = np.unravel_index(filled, inside.shape) if rest else ()
        codes = {f: level.astype(np.int32) for f, level in zip(finest, levels, strict=True)}
        for facet, (inner, outer_level) in self.determined.items():
            codes[facet] = outer_level[codes[inner]]
        return Grid.of_cells(axes, finest, codes, self.n_levels, cell_n)


def _is_constant_along(table: Any, axis: int) -> bool:
    first = np.take(table, [0], axis=axis)
    return bool((table == first).all())


class FacetPlaces:
    """The contribution of a facet's levels to the places of rows.

    Levels that are whole numbers in a small range are looked up in a table, which for many batches
    is several times faster than hashing them.

    Parameters
    ----------
    facet : the facet with its levels
    step : distance between the places of neighbouring levels
    """

    def __init__(self, facet: Facet, step: int) -> None:
        self._facet = facet
        self.name = facet.name
        self._steps = np.arange(facet.size, dtype=np.int64) * step
        self._low, self._table = 0, None
        self._texts: pd.Index | None = None
        levels = facet.levels
        if len(levels) and isinstance(levels.dtype, np.dtype) and levels.dtype.kind in "iu":
            low, high = int(levels.min()), int(levels.max())
            if high - low < max(_DIRECT, _SPARSE * len(levels)) and high < 2**63:
                table = np.full(high - low + 1, _ABSENT, np.int64)
                table[levels.to_numpy().astype(np.int64) - low] = self._steps
                self._low, self._table = low, table

    def looked_up(self, column: pd.Series) -> tuple[Any, Any, LongArray]:
        """Return (n,) whole numbers, the first number of a table, and the table of contributions.

        Numbers outside the table are not levels of the facet.
        """
        import pandas as pd

        dtype = column.dtype
        if isinstance(dtype, pd.CategoricalDtype):
            return column.cat.codes.to_numpy(), np.int64(0), self._of_categories(dtype.categories)
        plain = isinstance(dtype, np.dtype) and dtype.kind in "iu" and dtype != np.uint64
        if self._table is not None and plain:
            return column.to_numpy(), np.int64(self._low), self._table
        return self._facet.codes(column), np.int64(0), self._steps

    def _of_categories(self, categories: pd.Index) -> LongArray:
        """Return the contribution of each category."""
        import pandas as pd

        levels = self._facet.levels
        if categories is levels:
            return self._steps
        if isinstance(levels.dtype, pd.StringDtype):
            # Arrow's text would be converted to objects for every batch.
            if self._texts is None:
                self._texts = levels.astype(object)
            levels = self._texts
        positions = levels.get_indexer(categories)
        return np.where(positions < 0, _ABSENT, self._steps[positions])


def places_of_rows(
    facets: Sequence[FacetPlaces], columns: Mapping[str, pd.Series], *, block: int = _BLOCK
) -> LongArray:
    """Return the (n,) places of rows: sums of the contributions of their levels.

    Parameters
    ----------
    facets : non-redundant facets, with steps that make all sums different
    columns : (n,) levels of each facet
    block : number of rows to which one facet after another is added

    Raises
    ------
    DataError
        If a level was not found in the first pass.
    """
    known = [facet.looked_up(columns[facet.name]) for facet in facets]
    places = np.zeros(known[0][0].size, np.int64)
    for rows in slices(places.size, block):
        for facet, (values, low, table) in zip(facets, known, strict=True):
            if not add_places(places[rows], values[rows], low, table):
                raise DataError(
                    f"facet {facet.name!r} has a level that the first pass did not read; rows "
                    "must stay the same between the passes",
                    column=facet.name,
                )
    return places


@dataclass(frozen=True, slots=True, eq=False)
class SlopeColumns:
    """The k columns of random slopes, those of all bars side by side.

    Attributes
    ----------
    parts : for each bar how its columns are coded; None for an intercept alone
    """

    parts: tuple[FixedPart | None, ...]

    def matrix(self, columns: Mapping[str, Any], n_rows: int) -> list[FloatArray]:
        """Return the columns of some rows, a matrix for each bar with slopes."""
        return [
            part.matrix(columns, n_rows)[:, are_slopes(part)]
            for part in self.parts
            if part is not None
        ]

    @property
    def n_columns(self) -> int:
        """Number of columns, k."""
        return sum(int(are_slopes(part).sum()) for part in self.parts if part is not None)

    @property
    def places(self) -> tuple[LongArray | None, ...]:
        """For each bar the places of its columns among the k, −1 for an intercept."""
        found: list[LongArray | None] = []
        n = 0
        for part in self.parts:
            at = None
            if part is not None:
                slopes = are_slopes(part)
                at = np.where(slopes, n - 1 + np.cumsum(slopes), -1)
                n += int(slopes.sum())
            found.append(at)
        return tuple(found)


def are_slopes(part: FixedPart) -> BoolArray:
    """Return which columns of a bar are slopes."""
    return np.array([name != INTERCEPT for name in part.names], dtype=bool)


@dataclass(frozen=True, slots=True, eq=False)
class RowCoding:
    """The coding of rows, determined before they are summed in cells.

    Attributes
    ----------
    formula : the parsed formula
    survey : survey of all rows, with the levels that occur
    centre : origins of the response and of the columns of X
    fixed : coding of the fixed part
    kinds : contents of its columns
    varying : (p + k,) which columns of X, and of slopes, vary between rows
    constants : (p + k,) centred values of the other columns
    slopes : the k columns of random slopes; None without
    of_rows : weights, frequencies and offsets, by name
    sums : of the columns of X and of slopes, each row counted once; None where sums are plain
    fixed_in_cells : whether the columns of X follow from the levels of a cell, and are not summed;
        `centre` and `constants` are then those of an intercept
    """

    formula: Formula
    survey: Survey
    centre: Centre
    fixed: FixedPart
    kinds: ColumnKinds
    varying: BoolArray
    constants: FloatArray
    slopes: SlopeColumns | None = None
    of_rows: RowColumns = NO_COLUMNS
    sums: XSums | None = None
    fixed_in_cells: bool = False

    @property
    def facets(self) -> tuple[Facet, ...]:
        """The grouping columns with their levels; those of residual variances alone come last."""
        pairs = zip(self.formula.level_columns, self.survey.facets, strict=True)
        return tuple(Facet(name, facet.levels) for name, facet in pairs)

    @property
    def facets_of_terms(self) -> tuple[Facet, ...]:
        """The grouping columns of the random terms."""
        return self.facets[: len(self.formula.facets)]

    @property
    def sums_plainly(self) -> bool:
        """Whether all rows count alike, and squares need not be known of single cells."""
        return not self.has_blocks and not self.of_rows.variances

    @property
    def may_collapse(self) -> bool:
        """Whether complete cells may be collapsed: none of them is needed for X or for squares."""
        return self.sums_plainly and not self.fixed_in_cells

    @property
    def has_blocks(self) -> bool:
        """Whether there are random slopes or several residual variances."""
        return self.formula.has_slopes or self.formula.groups is not None

    @property
    def x_origin(self) -> FloatArray:
        """Origins of the columns of X and of slopes, (p + k,)."""
        origin = self.centre.x_origin
        return origin if self.sums is None else np.append(origin, self.sums.mean[origin.size :])

    def fixed_columns(self, codes: Sequence[IntArray]) -> dict[str, Any]:
        """Return the columns of the fixed part of cells, in a form that patsy reads.

        Parameters
        ----------
        codes : (m,) level of each cell in each facet
        """
        names = self.formula.level_columns
        facets = zip(names, codes, self.survey.facets, strict=True)
        return {
            name: self.kinds.of_levels(name, facet.levels, levels)
            for name, levels, facet in facets
            if name in self.kinds.levels
        }

    def bars(self) -> list[CodedBar | None]:
        """Return for each bar its columns, with their moments; None for an intercept alone."""
        if self.slopes is None or self.sums is None:
            return [None] * len(self.formula.random)
        _, sums = self.sums.split(len(self.fixed.names))
        found: list[CodedBar | None] = []
        for part, at in zip(self.slopes.parts, self.slopes.places, strict=True):
            if part is None or at is None:
                found.append(None)
                continue
            slopes, of_sums = np.flatnonzero(at >= 0), at[at >= 0]
            mean, cov = np.ones(at.size), np.zeros((at.size, at.size))
            mean[slopes] = sums.mean[of_sums]
            cov[np.ix_(slopes, slopes)] = sums.gram[np.ix_(of_sums, of_sums)] / sums.n
            found.append(CodedBar(part, mean, cov))
        return found

    @property
    def places(self) -> CellPlaces:
        """Places of the cells."""
        return CellPlaces.of(self.survey, self.formula.level_columns)

    @property
    def columns(self) -> tuple[float | None, ...]:
        """Value of y and of each column of X if it is the same in all rows, else None."""
        of_x = zip(self.varying, self.constants, strict=True)
        return (None, *(None if varies else float(value) for varies, value in of_x))

    @property
    def n_columns(self) -> int:
        """Number of columns whose cell means are needed: y, and other columns that vary."""
        return 1 + int(self.varying.sum())

    def products(self, within: FloatArray) -> FloatArray:
        """Return squares and products of y and all columns, zero for constant ones.

        Parameters
        ----------
        within : (b, b) or (b, b, m) of y and the columns that vary
        """
        rows = [0, *(1 + np.flatnonzero(self.varying))]
        every = np.zeros((1 + self.varying.size,) * 2 + within.shape[2:])
        every[np.ix_(rows, rows)] = within
        return every
