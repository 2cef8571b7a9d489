"""Sums of rows that are read in batches: one pass for levels and origins, one for the cells.

This is the step from data to statistics for rows that do not fit into memory. Only cells are kept,
unless the rows are few.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.data import CompleteRows, Reading, Source, Tally, no_score_left
from vcomp.design import Centre
from vcomp.exceptions import DataError, FormulaError
from vcomp.formula import WIDE, FixedPart, Formula, RandomTerm
from vcomp.numerics import THREADS, slices
from vcomp.progress import progress_bar
from vcomp.statistics.batches.cell_sums import CellSums, check_table, dense_places, table_bytes
from vcomp.statistics.batches.cell_table import (
    CellTable,
    EveryCell,
    add_tables,
    sum_cells,
    sum_weighted_cells,
)
from vcomp.statistics.batches.collapsed_cells import CollapsePlan, PartSums, collapse_plan
from vcomp.statistics.batches.row_coding import (
    FacetPlaces,
    RowCoding,
    SlopeColumns,
    places_of_rows,
)
from vcomp.statistics.batches.survey import (
    Addable,
    ColumnKinds,
    RegressionSums,
    Survey,
    XSums,
    add_up,
    kinds_of,
    survey_rows,
)

if TYPE_CHECKING:
    import pandas as pd

_BLOCK = 2**20
"""Number of cells in a block of a sum."""

_SAME = (
    "rows must stay the same between the passes: write them to a file, or give "
    "vcomp.io.spool(data)"
)

_PATIENCE = 2.0
"""Seconds before a bar is shown where ``progress=None``."""

Value = TypeVar("Value")

Sum = TypeVar("Sum", bound=Addable)


def gather(
    formula: Formula, source: Source, reading: Reading, *, collapse: bool = False
) -> CellSums:
    """Return the sums of rows that are read in batches, and their coding.

    Parameters
    ----------
    formula : names the columns and the random terms
    source : source of the rows, which are read at least twice
    reading : how the rows are read
    collapse : whether complete cells may be collapsed, and a fixed part be subtracted that dwarfs
        the rest, after which sums of other rows cannot be added; they are if the table of all
        cells would be large. If not, the powers of the scores in cells are summed, since the sums
        may have to replace the rows

    Raises
    ------
    DataError, FormulaError
        If the rows cannot be used, or change between the passes.
    EstimationError
        If the cells would not fit into memory.
    """
    batches = Batches(formula, source, reading, keep=True)
    coding = learn_in_passes(formula, batches, reading, is_final=collapse)
    tabulated = partial(_tabulate, coding, batches, reading, powers=not collapse)
    is_large = reading.is_large(table_bytes(coding.places.size, coding.n_columns))
    if collapse and coding.may_collapse and is_large:
        plan = collapse_plan(coding)
        sums = None if plan is None else _collapsed(coding, plan, batches)
        if sums is not None:
            return CellSums(coding, sums.open, sums, tabulated)
    table = tabulated()
    check_rows(coding, table.n)
    if not batches.are_kept:
        check_total(coding, table)
    return CellSums(coding, table)


def check_total(coding: RowCoding, table: CellTable) -> None:
    """Refuse cells whose scores changed between the passes.

    Parameters
    ----------
    coding : of the first pass
    table : of all cells; their means with weights say nothing about the sum of the scores

    Raises
    ------
    DataError
    """
    if table.weights is None:
        blocks = slices(table.counts.size, _BLOCK)
        total = (float(table.counts[block] @ table.means[0, block]) for block in blocks)
        check_scores(coding, math.fsum(total))


def check_scores(coding: RowCoding, total: float) -> None:
    """Refuse data whose scores changed between the passes.

    Parameters
    ----------
    coding : of the first pass
    total : sum of the centred scores in the last pass

    Raises
    ------
    DataError
        If the sum differs from that of the first pass by more than rounding.
    """
    survey, origin = coding.survey, coding.centre.origin
    expected = float(survey.total - survey.n * np.longdouble(origin))
    away = max(survey.high - origin, origin - survey.low)
    # The survey sums scores that are not centred.
    rounding = 1e-9 * away + 1e-13 * max(abs(survey.high), abs(survey.low))
    if abs(total - expected) > rounding * survey.n:
        raise DataError(
            f"the scores changed between the passes (their mean is now "
            f"{origin + total / survey.n:g}, and was {survey.mean:g}); {_SAME}"
        )


def check_rows(coding: RowCoding, n: int) -> None:
    """Refuse data whose number of rows changed between the passes.

    Raises
    ------
    DataError
        If `n` is not the number of rows of the first pass.
    """
    if n != coding.survey.n:
        raise DataError(
            f"the first pass read {coding.survey.n:,} rows, and a later one {n:,}; {_SAME}"
        )


_ROWS = 2**20
"""Rows of the largest part for which a matrix X is made."""


Part = TypeVar("Part", bound=Addable)


class Passes(Protocol):
    """Rows in parts, which can be read several times."""

    def total(self, of: Callable[..., Part], *known: Any) -> Part | None:
        """Return the sum of ``of(*known, part)`` over the parts; None without parts."""

    def each(self) -> Iterable[CompleteRows]:
        """Return the parts one by one."""


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
    survey = survey_rows(part.y, facets)
    # The first of the levels is the one that the others are compared with, if it occurs or not.
    columns = part.fixed_columns_with_all_levels(formula)
    kinds = kinds_of(columns, dict(zip(facets, survey.facets, strict=True)))
    if part.weights is not None and part.y.size:
        survey = replace(survey, squares=float(np.square(part.y - survey.mean).sum()))
    if part.offset is not None:
        survey = replace(survey, offset=float(part.offset.sum()))
    return FirstPass(survey, kinds, part.tally)


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
        fixed = coding_in_cells(coding, reading.environment)
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


def coding_in_cells(coding: RowCoding, environment: Any) -> FixedPart | None:
    """Return the coding of a fixed part of facets alone, which is constant in the cells.

    None if it has other columns, or depends on how often levels occur.

    Parameters
    ----------
    coding : with an intercept in place of the fixed part
    environment : the calling scope of the formula
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

    def columns() -> Iterable[dict[str, Any]]:
        for rows in passes.each():
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


class Batches:
    """The rows of a source that are complete for a formula, in batches.

    Parameters
    ----------
    formula, source, reading : as for :func:`gather`
    keep : whether to keep the rows of the first pass for the next ones if they are few
    renamed : new names of columns in the parts
    """

    def __init__(
        self,
        formula: Formula,
        source: Source,
        reading: Reading,
        *,
        keep: bool = False,
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        self._formula, self._source, self._reading = formula, source, reading
        self._names = reading.columns(formula, source)
        self._renamed, self._passes = renamed, 0
        self._kept = _Kept(reading.bytes_to_keep() if keep else 0.0)

    @property
    def are_kept(self) -> bool:
        """Whether later passes use the rows of the first one, and do not read them again."""
        return self._kept.of_last_pass() is not None

    def each(self) -> Iterator[CompleteRows]:
        """Yield the parts one after another."""
        for read in self._parts():
            yield renamed_part(read(), self._renamed)

    def _parts(self) -> Iterator[Callable[[], CompleteRows]]:
        """Yield for each part a function that makes it, or returns the kept part."""
        self._passes += 1
        kept = self._kept.of_last_pass()
        label, total = f"pass {self._passes}", self._source.n_rows
        with progress_bar(
            self._reading.progress, total, label, unit=" rows", delay=_PATIENCE
        ) as bar:
            if kept is not None:
                for part in kept:
                    yield partial(_itself, part)
                    bar(part.keep.size)
                return
            rows = self._reading.rows_of_batch(len(self._names))
            for number, (frame, name) in enumerate(self._source.batches(self._names, rows)):
                yield partial(self._complete, frame, name, number)
                bar(len(frame))

    def _complete(self, frame: pd.DataFrame, name: str | None, number: int) -> CompleteRows:
        try:
            part = CompleteRows.of_part(
                self._formula, frame, self._reading.environment, self._reading.row_columns
            )
        except DataError as error:
            if name is None:
                raise
            raise DataError(f"{name}: {error}") from None
        if not self._source.is_one_piece:
            part = replace(part, tally=part.tally.named(name))
        self._kept.put(number, part)
        return part

    @property
    def files(self) -> tuple[Path, ...]:
        """The files from which the rows are read."""
        return self._source.files

    def mapped(self, work: Callable[[CompleteRows], Value]) -> Iterator[Value]:
        """Yield the results of a function for the parts, in order; threads work ahead."""

        def completed(read: Callable[[], CompleteRows]) -> Value:
            return work(renamed_part(read(), self._renamed))

        waiting: deque[Future[Value]] = deque()
        with ThreadPoolExecutor(THREADS) as pool:
            try:
                for read in self._parts():
                    waiting.append(pool.submit(completed, read))
                    if len(waiting) > THREADS:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:  # after an interruption or an error
                    future.cancel()

    def total(self, of: Callable[..., Sum], *known: Any) -> Sum | None:
        """Return the sum of ``of(*known, part)`` over the parts."""
        return add_up(self.mapped(partial(of, *known)))


def renamed_part(part: CompleteRows, names: Mapping[str, str] | None) -> CompleteRows:
    """Return rows with other names of some columns, by their present names."""
    return replace(part, frame=part.frame.rename(columns=names)) if names else part


class _Kept:
    """The rows of a pass, as long as they need no more than some bytes."""

    def __init__(self, n_bytes: float) -> None:
        self._left = n_bytes
        self._parts: dict[int, CompleteRows] | None = {}
        self._lock = Lock()

    def put(self, number: int, part: CompleteRows) -> None:
        """Keep the part with this number, or drop all parts if they become too large."""
        if self._left <= 0.0:
            self._parts = None
            return
        size = float(part.frame.memory_usage(index=False, deep=True).sum() + part.y.nbytes)
        with self._lock:
            self._left -= size
            if self._parts is not None and self._left > 0:
                self._parts[number] = part
            else:
                self._parts = None

    def of_last_pass(self) -> list[CompleteRows] | None:
        """Return the parts in order; None if there was no pass, or they were too large."""
        if not self._parts:
            return None
        return [self._parts[number] for number in sorted(self._parts)]


def _itself(part: CompleteRows) -> CompleteRows:
    return part


def _tabulate(coding: RowCoding, batches: Batches, reading: Reading, *, powers: bool) -> CellTable:
    places = coding.places
    if not (
        coding.sums_plainly and dense_places(places.size, coding.survey.n, reading.dense_cells)
    ):
        found = add_tables(batches.mapped(partial(cells_of, Coder(coding), powers=powers)))
        assert found is not None
        return found
    check_table(places.size, coding.n_columns)
    table = EveryCell(places.size, coding.n_columns, powers=powers)
    for part in batches.mapped(Coder(coding)):
        table.add(*part)
    return table.made()


def cells_of(coder: Coder, part: CompleteRows, *, powers: bool = False) -> CellTable:
    """Return the table of the cells of some rows.

    Parameters
    ----------
    powers : whether to sum the powers of the scores, if the rows count alike; rows in cells
        that are mostly single, and too many to fill a grid, are otherwise rows still
    """
    coding = coder.coding
    if coding.sums_plainly:
        repeats = not powers and not dense_places(coding.places.size, coding.survey.n)
        return sum_cells(*coder(part), powers=powers, repeats=repeats)
    return sum_weighted_cells(*coder(part), part.weights, products=coding.has_blocks)


def _collapsed(coding: RowCoding, plan: CollapsePlan, batches: Batches) -> PartSums | None:
    """Return the sums with all cells collapsed; None if some cells stay incomplete."""
    code = Coder(coding)

    def sums_of(part: CompleteRows) -> PartSums:
        return PartSums.of_rows(plan, *code(part))

    whole: PartSums | None = None
    for part in batches.mapped(sums_of):
        whole = part if whole is None else whole + part
    assert whole is not None
    check_rows(coding, whole.n)
    if not whole.is_complete:
        return None
    if whole.collapsed is not None and not batches.are_kept:
        check_scores(coding, whole.collapsed.total)
    return whole


class Coder:
    """Coder of rows: their cells, and the centred values to be summed in them.

    Its tables of levels are made at the first use, and are not sent to other processes.
    """

    def __init__(self, coding: RowCoding) -> None:
        self.coding = coding

    def __reduce__(self) -> tuple[Any, ...]:
        return Coder, (self.coding,)

    @cached_property
    def _facets(self) -> list[FacetPlaces]:
        return list(map(FacetPlaces, self.coding.facets, self.coding.places.steps))

    def __call__(self, part: CompleteRows) -> tuple[LongArray, FloatArray]:
        """Return the (n,) places of rows, and the (b, n) columns that vary."""
        columns = {facet.name: part.frame[facet.name] for facet in self._facets}
        return places_of_rows(self._facets, columns), self._values(part)

    def _values(self, part: CompleteRows) -> FloatArray:
        coding = self.coding
        y = part.y - coding.centre.origin
        if not coding.varying.any():
            return y[None, :]
        X = matrix_of(coding, part) - coding.x_origin
        beta_origin = coding.centre.beta_origin
        if isinstance(beta_origin, np.ndarray):
            y -= X[:, : beta_origin.size] @ beta_origin
        return np.vstack([y, X[:, coding.varying].T])
