"""Two passes over rows that come in batches: levels and origin, then cells.

Nothing is kept of the rows but their cells.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.data import CompleteRows, Missing, Source, complete_rows, used_columns
from vcomp.display import progress_bar
from vcomp.exceptions import DataError
from vcomp.formula import Formula
from vcomp.numerics import THREADS, available_bytes, bytes_of_rows, slices
from vcomp.statistics.batches.addable import Addable, add_up
from vcomp.statistics.batches.cell_index import FacetPlaces, places_of_rows
from vcomp.statistics.batches.cell_sums import CellSums, check_table, dense_places, table_bytes
from vcomp.statistics.batches.cell_table import CellTable, EveryCell, sum_cells
from vcomp.statistics.batches.collapsed import PartSums, Sealing, sealing_of
from vcomp.statistics.batches.first_pass import Learned, learn_in_passes, matrix_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BATCH",
    "KEPT_BYTES",
    "Batches",
    "Coder",
    "check_rows",
    "check_scores",
    "check_streams",
    "gather",
    "should_stream",
    "total_of",
]


_LARGE = 0.25
"""Share of the memory that rows may take before they are read in batches, and a table of all
cells before complete ones are put away."""

BATCH = 2**20
"""Rows of a batch, where memory allows it."""

_FEWEST = 2**14
"""Rows of a batch, whatever the memory."""

_IN_WORK = 0.125
"""Share of the memory that all batches may take that are being worked on."""

KEPT_BYTES = 2.0**28
"""Of rows that are kept between the passes, so that they are read once."""

_KEPT = 0.0625
"""Share of the memory that they may take."""

_BLOCK = 2**20
"""Cells that are looked at a time."""

_SAME = (
    "they have to stay the same between the passes: write them to a file, or give "
    "vcomp.io.spool(data)"
)

_PATIENCE = 2.0
"""Seconds before a bar is shown that nobody asked for."""

Value = TypeVar("Value")

Sum = TypeVar("Sum", bound=Addable)


def should_stream(source: Source, n_columns: int, asked: bool | None) -> bool:
    """Whether the rows of a source should be read in batches.

    Parameters
    ----------
    n_columns : that would be read
    asked : what the user wants; None leaves it to the sizes

    Raises
    ------
    DataError
        If it is something else, or the source can be read only once.
    """
    check_streams(asked)
    if asked:
        if not source.is_repeatable:
            raise source.one_pass_only()
        return True
    if asked is False:
        return False
    return bytes_of_rows(source.rows_to_come(), n_columns) > _LARGE * available_bytes()


def check_streams(asked: bool | None) -> None:
    """Refuse what is neither True, False nor None.

    Raises
    ------
    DataError
    """
    if asked is not None and not isinstance(asked, bool):
        raise DataError(f"stream={asked!r} is not known; it is True, False or None")


def gather(
    formula: Formula,
    source: Source,
    environment: Any,
    missing: Missing,
    *,
    seal: bool = False,
    progress: bool | None = False,
) -> CellSums:
    """Learn the design of rows that come in batches, and sum them.

    Parameters
    ----------
    formula : what is wanted of them
    source : of the rows, which are read twice or more
    environment : patsy's ``EvalEnvironment`` of the caller
    missing : ``"drop"`` rows with a missing value and warn, or ``"raise"``
    seal : whether cells may be forgotten once they are complete, so that sums of other rows cannot
        be added any more; it is done where the table of all cells would be large
    progress : whether to show a bar for each pass; None for one on long runs on a terminal

    Raises
    ------
    DataError, FormulaError
        If the rows cannot be used, or change between the passes.
    EstimationError
        If the cells would not fit into memory.
    """
    batches = Batches(formula, source, environment, progress, keep=True)
    learned = learn_in_passes(formula, batches, environment, missing)
    if seal and table_bytes(learned.places.size, learned.n_columns) > _LARGE * available_bytes():
        sealing = sealing_of(learned)
        found = None if sealing is None else _sealed(learned, sealing, batches)
        if found is not None:
            return CellSums(learned, found.open, found, partial(_tabulate, learned, batches))
    table = _tabulate(learned, batches)
    check_rows(learned, table.n)
    if not batches.are_kept:
        check_scores(learned, total_of(table))
    return CellSums(learned, table)


def total_of(table: CellTable) -> float:
    """Return the sum of the centred scores of all cells."""
    blocks = slices(table.counts.size, _BLOCK)
    return math.fsum(float(table.counts[block] @ table.means[0, block]) for block in blocks)


def check_scores(learned: Learned, total: float) -> None:
    """Refuse data with as many rows as before, and other scores.

    Parameters
    ----------
    total : of the scores that were summed, centred

    Raises
    ------
    DataError
    """
    survey, origin = learned.survey, learned.centre.origin
    expected = float(survey.total - survey.n * np.longdouble(origin))
    away = max(survey.high - origin, origin - survey.low)
    # The sum of the survey is of scores that are not centred.
    rounding = 1e-9 * away + 1e-13 * max(abs(survey.high), abs(survey.low))
    if abs(total - expected) > rounding * survey.n:
        raise DataError(
            f"the rows have other scores now than when they were read first (their mean is "
            f"{origin + total / survey.n:g}, and was {survey.mean:g}); {_SAME}"
        )


def check_rows(learned: Learned, n: int) -> None:
    """Refuse data that changed between the passes.

    Raises
    ------
    DataError
    """
    if n != learned.survey.n:
        raise DataError(
            f"{learned.survey.n:,} rows were read first, and {n:,} when they were read again; "
            f"{_SAME}"
        )


class Batches:
    """The rows of a source that have all that a formula needs, some at a time.

    Parameters
    ----------
    formula, source, environment, progress : as for :func:`gather`
    keep : whether to keep the rows of the first pass for the next ones, as long as they are few
    """

    def __init__(
        self,
        formula: Formula,
        source: Source,
        environment: Any,
        progress: bool | None = False,
        *,
        keep: bool = False,
    ) -> None:
        self._formula, self._source, self._environment = formula, source, environment
        self._names = used_columns(formula, source, environment)
        self._progress, self._passes = progress, 0
        self._kept = _Kept(min(KEPT_BYTES, _KEPT * available_bytes()) if keep else 0.0)

    @property
    def are_kept(self) -> bool:
        """Whether later passes go over the same rows, and do not read them again."""
        return self._kept.of_last_pass() is not None

    def each(self, why: str = "") -> Iterator[CompleteRows]:
        """Yield the parts one after another."""
        for read in self._parts():
            yield read()

    def _parts(self) -> Iterator[Callable[[], CompleteRows]]:
        """Yield what makes each part, or gives it again."""
        self._passes += 1
        kept = self._kept.of_last_pass()
        label, total = f"pass {self._passes}", self._source.n_rows
        with progress_bar(self._progress, total, label, unit=" rows", delay=_PATIENCE) as bar:
            if kept is not None:
                for part in kept:
                    yield partial(_itself, part)
                    bar(part.keep.size)
                return
            rows = _batch_rows(len(self._names))
            for number, (frame, name) in enumerate(self._source.batches(self._names, rows)):
                yield partial(self._complete, frame, name, number)
                bar(len(frame))

    def _complete(self, frame: pd.DataFrame, name: str | None, number: int) -> CompleteRows:
        try:
            part = complete_rows(self._formula, frame, self._environment)
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
        """Those that the rows are read from."""
        return self._source.files

    def mapped(self, work: Callable[[CompleteRows], Value]) -> Iterator[Value]:
        """Yield what a function gives of each part, in order; it works ahead on the next ones."""

        def completed(read: Callable[[], CompleteRows]) -> Value:
            return work(read())

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
                for future in waiting:  # left over when the user or an error ends the work
                    future.cancel()

    def total(self, of: Callable[..., Sum], *known: Any) -> Sum | None:
        """Return the sum of ``of(*known, part)`` over the parts."""
        return add_up(self.mapped(partial(of, *known)))


class _Kept:
    """The rows of a pass, while they take no more than some bytes."""

    def __init__(self, n_bytes: float) -> None:
        self._left = n_bytes
        self._parts: dict[int, CompleteRows] | None = {}
        self._lock = Lock()

    def put(self, number: int, part: CompleteRows) -> None:
        """Keep the part of this number, or forget all of them if that would be too much."""
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
        """Return the parts in order; None if there was no pass, or they were too many."""
        if not self._parts:
            return None
        return [self._parts[number] for number in sorted(self._parts)]


def _itself(part: CompleteRows) -> CompleteRows:
    return part


def _batch_rows(n_columns: int) -> int:
    """Return how many rows a batch should have."""
    # One is read while the others are worked on; what is made of them takes as much again.
    of_a_row = (THREADS + 2) * 2.0 * bytes_of_rows(1, max(n_columns, 1))
    return min(BATCH, max(_FEWEST, int(_IN_WORK * available_bytes() / of_a_row)))


def _tabulate(learned: Learned, batches: Batches) -> CellTable:
    places = learned.places
    coded = batches.mapped(Coder(learned))
    if not dense_places(places.size, learned.survey.n):
        found = add_up(sum_cells(*part) for part in coded)
        assert found is not None
        return found
    check_table(places.size, learned.n_columns)
    table = EveryCell(places.size, learned.n_columns)
    for part in coded:
        table.add(*part)
    return table.made()


def _sealed(learned: Learned, sealing: Sealing, batches: Batches) -> PartSums | None:
    """Return the sums of complete cells; None if some never are, and all have to be kept."""
    code = Coder(learned)

    def sums_of(part: CompleteRows) -> PartSums:
        return PartSums.of_rows(sealing, *code(part))

    whole: PartSums | None = None
    for part in batches.mapped(sums_of):
        whole = part if whole is None else whole + part
    assert whole is not None
    check_rows(learned, whole.n)
    if not whole.is_complete:
        return None
    if whole.sealed is not None and not batches.are_kept:
        check_scores(learned, whole.sealed.total)
    return whole


class Coder:
    """Finds the cells of rows, and the centred values that are summed in them."""

    def __init__(self, learned: Learned) -> None:
        self._learned = learned
        steps = learned.places.steps
        self._facets = list(map(FacetPlaces, learned.facets, steps))

    def __call__(self, part: CompleteRows) -> tuple[LongArray, FloatArray]:
        """Return the (n,) places of rows, and the (b, n) columns that vary."""
        columns = {facet.name: part.frame[facet.name] for facet in self._facets}
        return places_of_rows(self._facets, columns), self._values(part)

    def _values(self, part: CompleteRows) -> FloatArray:
        learned = self._learned
        y = part.y - learned.centre.origin
        if not learned.varying.any():
            return y[None, :]
        X = matrix_of(learned, part) - learned.centre.x_origin
        return np.vstack([y, X[:, learned.varying].T])
