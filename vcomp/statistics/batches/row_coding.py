"""The coding of rows in batches: levels, origins, and the places of cells in a flat table.

Rows that are read in batches are summed at these places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.data import NO_COLUMNS, CompleteRows, Reading, RowColumns, Tally, no_score_left
from vcomp.design import Centre, CodedBar, Facet, Grid, JoinedLevels, finest_facets
from vcomp.exceptions import DataError, EstimationError, FormulaError
from vcomp.formula import INTERCEPT, WIDE, FixedPart, Formula, RandomTerm
from vcomp.numerics import slices
from vcomp.numerics.kernels import add_places
from vcomp.statistics.batches.survey import (
    Addable,
    ColumnKinds,
    RegressionSums,
    Survey,
    XSums,
    kinds_of,
    survey_rows,
)

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

    def codes(self, places: LongArray) -> tuple[IntArray, ...]:
        """Return the level in each facet of the cells at some places."""
        _, levels = self.digits.levels(places, np.int32)
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


_ROWS = 2**20
"""Rows of the largest part for which a matrix X is made."""

Part = TypeVar("Part", bound=Addable)


class Passes(Protocol):
    """Rows in parts, which can be read several times."""

    def total(self, of: Callable[..., Part], *known: Any) -> Part | None:
        """Return the sum of ``of(*known, part)`` over the parts; None without parts."""

    def each(self, why: str) -> Iterable[CompleteRows]:
        """Return the parts one by one.

        Raises
        ------
        DataError
            If they cannot be read here; `why` says what they are needed for.
        """


@dataclass(frozen=True, slots=True, eq=False)
class FirstPass:
    """Results of the first pass over some rows: survey, kinds of columns, missing values."""

    survey: Survey
    kinds: ColumnKinds
    tally: Tally

    def __add__(self, other: FirstPass) -> FirstPass:
        return FirstPass(
            self.survey + other.survey, self.kinds + other.kinds, self.tally + other.tally
        )


def _first(formula: Formula, part: CompleteRows) -> FirstPass:
    facets = {f: part.frame[f] for f in formula.level_columns}
    kinds = kinds_of(_with_all_categories(part.fixed_columns(formula), part))
    survey = survey_rows(part.y, facets)
    if part.weights is not None and part.y.size:
        survey = replace(survey, squares=float(np.square(part.y - survey.mean).sum()))
    if part.offset is not None:
        survey = replace(survey, offset=float(part.offset.sum()))
    return FirstPass(survey, kinds, part.tally)


def _with_all_categories(columns: dict[str, Any], part: CompleteRows) -> dict[str, Any]:
    """Return factors with all their categories, also those that do not occur in these rows.

    The first of the levels is the one that the others are compared with.
    """
    import pandas as pd

    return {
        name: part.frame[name].array
        if isinstance(column, pd.Categorical)
        and isinstance(part.frame[name].dtype, pd.CategoricalDtype)
        else column
        for name, column in columns.items()
    }


def matrix_of(coding: RowCoding, part: CompleteRows) -> FloatArray:
    """Return X of some rows and the columns of slopes, (n, p + k), not centred."""
    columns = coding.kinds.recoded(part.fixed_columns(coding.formula))
    X = coding.fixed.matrix(columns, part.y.size)
    if coding.slopes is None:
        return X
    return np.hstack([X, *coding.slopes.matrix(columns, part.y.size)])


def learn_in_passes(
    formula: Formula, passes: Passes, reading: Reading, *, is_final: bool = False
) -> RowCoding:
    """Return the coding of rows, by one pass; with a fixed part by two or three passes.

    Parameters
    ----------
    formula : the parsed formula
    passes : passes over the rows
    reading : the calling scope, and the treatment of missing values
    is_final : whether no sums of other rows are added, whose fixed part would be another

    Raises
    ------
    DataError, FormulaError
        If the rows cannot be used.
    """
    whole = passes.total(_first, formula)
    if whole is None:
        raise DataError("the data have no rows")
    whole.tally.check(formula, reading.missing)
    if not whole.survey.n:
        raise no_score_left()
    survey = whole.survey.of_used_levels()
    ends, intercept = (survey.low, survey.high, survey.mean), ("Intercept",)
    coding = RowCoding(
        formula=formula,
        survey=survey,
        centre=Centre.of(formula, intercept, np.ones(1), ends),
        fixed=FixedPart(intercept),
        kinds=whole.kinds,
        varying=np.zeros(1, dtype=bool),
        constants=np.ones(1),
        of_rows=reading.row_columns,
    )
    if not coding.sums_plainly:
        one = np.ones(1)
        coding = replace(coding, sums=XSums(survey.n, one, np.zeros((1, 1)), one, one))
    if formula.intercept_only and not formula.has_slopes:
        return coding
    if is_final and coding.sums_plainly:
        fixed = _coding_in_cells(coding, reading.environment)
        if fixed is not None:
            return replace(coding, fixed=fixed, fixed_in_cells=True)

    def coded(term: RandomTerm | None = None) -> FixedPart:
        part = formula if term is None else formula.slope_part(term)
        return _coding(formula, part, whole.kinds, passes, reading.environment)

    coding = replace(coding, fixed=coded())
    if formula.has_slopes:
        parts = tuple(None if term.is_intercept else coded(term) for term in formula.random)
        coding = replace(coding, slopes=SlopeColumns(parts))
    return _with_columns(coding, passes, is_final=is_final)


def _coding_in_cells(coding: RowCoding, environment: Any) -> FixedPart | None:
    """Return the coding of a fixed part of facets alone, which is constant in the cells.

    None if it has other columns, or depends on how often levels occur.
    """
    formula, facets = coding.formula, coding.survey.facets
    if not set(coding.kinds.levels) or not set(coding.kinds.levels) <= set(formula.facets):
        return None
    every = np.arange(max(len(facet.levels) for facet in facets), dtype=np.int32)
    columns = coding.fixed_columns([every % len(facet.levels) for facet in facets])
    try:
        fixed = FixedPart.of_rows(formula, lambda: [columns], environment, _ROWS, WIDE.factor)
        fixed.check_by_row(columns)
    except (FormulaError, DataError):  # if all rows raise it as well, they say so
        return None
    return None if fixed.is_stateful else fixed


def _coding(
    formula: Formula, part: Formula, kinds: ColumnKinds, passes: Passes, environment: Any
) -> FixedPart:
    """Return the coding of a fixed part, from levels alone or, if necessary, from all rows.

    Parameters
    ----------
    formula : of the rows
    part : with the fixed part
    """
    fixed = FixedPart.of_few_rows(part, kinds.few_rows(), environment, _ROWS)
    if not fixed.depends_on_rows(kinds.numbers):
        return fixed
    of = "the fixed part" if part is formula else "a random slope"
    why = f"{of} ({' + '.join(part.fixed)}) depends on all rows together"

    def columns() -> Iterable[dict[str, Any]]:
        for rows in passes.each(why):
            if rows.y.size:
                yield kinds.recoded(rows.fixed_columns(formula))

    return FixedPart.of_rows(part, columns, environment, _ROWS)


def _x_sums(coding: RowCoding, part: CompleteRows) -> RegressionSums:
    columns = coding.kinds.recoded(part.fixed_columns(coding.formula))
    slopes = () if coding.slopes is None else coding.slopes.parts
    for coded in (coding.fixed, *slopes):
        if coded is not None:
            coded.check_by_row(columns)
    return RegressionSums.of(matrix_of(coding, part), part.y)


def _away(coding: RowCoding, constant: FloatArray, part: CompleteRows) -> _Largest:
    X = matrix_of(coding, part)[:, : constant.size]
    return _Largest(float(np.abs(X @ constant - 1.0).max(initial=0.0)))


@dataclass(frozen=True, slots=True)
class _Largest:
    value: float

    def __add__(self, other: _Largest) -> _Largest:
        return _Largest(max(self.value, other.value))


def _with_columns(coding: RowCoding, passes: Passes, *, is_final: bool) -> RowCoding:
    """Return the coding with the origins of the columns of X and of slopes."""
    names, survey = coding.fixed.names, coding.survey
    both = passes.total(_x_sums, coding)
    assert both is not None
    every = both.columns
    sums, _ = every.split(len(names))
    constant = sums.constant(names)
    if constant.any() and "Intercept" not in names:
        # Sums of squares have too few digits to recognise a constant.
        away = passes.total(_away, coding, constant)
        if away is None or not Centre.is_one(away.value):
            constant = np.zeros(constant.size)
    y, X = (survey.low, survey.high, survey.mean), (sums.low, sums.high, sums.mean)
    centre = Centre.of(coding.formula, names, constant, y, X)
    if is_final and constant.any():
        beta = both.dominant(len(names))
        if beta is not None:
            # The fixed part that is subtracted has the mean 0.
            beta -= constant * float((sums.mean - centre.x_origin) @ beta)
            centre = replace(centre, beta_origin=beta)
            coding = replace(coding, survey=replace(survey, squares=both.squares))
    coding = replace(
        coding,
        centre=centre,
        varying=every.low < every.high,
        sums=None if coding.sums_plainly else every,
    )
    return replace(coding, constants=every.low - coding.x_origin)
