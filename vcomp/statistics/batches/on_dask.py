"""The passes over a Dask DataFrame: a task for each partition and pass, summed as a tree.

Nothing is shuffled. Rows stay on their workers; only surveys of levels and cells are sent. Tables
of cells that are about as many as the rows are sent to the client once, and added there. If
partitions hold whole cells of a complete grid (documents on which all systems were scored), these
are collapsed into a few numbers for each of their groups before they are sent
(:mod:`vcomp.statistics.batches.collapsed_cells`). The survey of all rows, the largest value that
all tasks need, stays on the workers between the passes: it is the result of a task like any other,
and is computed again if its worker is lost.

If a fixed part depends on all rows together, as ``center(x)`` does, its columns are fetched for
that, one partition after another.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import numpy as np

from vcomp.data import CompleteRows, Reading, RowColumns, Source, open_source, with_coded_text
from vcomp.exceptions import DataError
from vcomp.formula import Formula, names_in
from vcomp.statistics.batches.cell_sums import CellSums, dense_places
from vcomp.statistics.batches.cell_table import CellTable, EveryCell, add_tables
from vcomp.statistics.batches.collapsed_cells import (
    CollapsedGroups,
    CollapsePlan,
    PartSums,
    collapse_plan,
)
from vcomp.statistics.batches.passes import (
    Coder,
    cells_of,
    check_rows,
    check_scores,
    check_total,
    learn_in_passes,
    renamed_part,
)
from vcomp.statistics.batches.row_coding import RowCoding
from vcomp.statistics.batches.survey import Addable, Survey, add_up

if TYPE_CHECKING:
    import pandas as pd

_TOGETHER = 8
"""Number of sums that one task adds."""

_LAST = 24
"""Largest number of sums that the last task adds: each level of the tree costs a wait."""

_ROWS = 2**20
"""Number of rows whose results are fetched together."""

_NOT_HERE = Survey((), {}, 0, np.longdouble(0.0), np.inf, -np.inf)
"""Placeholder of the survey of all rows, which stays on the workers."""

Sum = TypeVar("Sum", bound=Addable)


def source_on_dask(data: Any) -> Source:
    """Return a source with the columns of a Dask DataFrame, from which no row can be read.

    Raises
    ------
    DataError
        If it is another collection of Dask.
    """
    # The module of such a table is already imported.
    frames: Any = sys.modules.get("dask.dataframe")
    if frames is None or not isinstance(data, frames.DataFrame):
        raise DataError(
            f"data are a {type(data).__name__} of Dask, not a table; give a "
            "dask.dataframe.DataFrame"
        )
    return Source(tuple(map(str, data.columns)), tuple)


def gather_on_dask(formula: Formula, data: Any, reading: Reading, *, collapse: bool) -> CellSums:
    """Return the sums of the rows of a Dask DataFrame, made on its workers, and their coding.

    Parameters
    ----------
    formula : names the columns and the random terms
    data : a ``dask.dataframe.DataFrame``; the scheduler is that of the caller, as for ``compute``
    reading, collapse : as for :func:`vcomp.statistics.batches.gather`; complete cells are
        collapsed whenever they may be

    Raises
    ------
    DataError, FormulaError
        If it is another collection of Dask; if the rows cannot be used, or change between the
        passes.
    """
    partitions = _Partitions(formula, data, reading)
    coding = learn_in_passes(formula, partitions, reading, is_final=collapse)
    plan = collapse_plan(coding) if collapse and coding.may_collapse else None
    if plan is not None:
        sums = partitions.collapsed(coding, plan)
        check_rows(coding, sums.n)
        if sums.is_complete and sums.collapsed is not None:
            check_scores(coding, sums.collapsed.total)
            return CellSums(coding, sums.open, sums, partial(_every_cell, partitions, coding))
    table = _table(partitions, coding, powers=not collapse)
    check_rows(coding, table.n)
    check_total(coding, table)
    return CellSums(coding, table)


def parts_on_dask(
    formula: Formula, data: Any, reading: Reading, *, renamed: Mapping[str, str] | None = None
) -> PartsOnDask:
    """Return the rows of a Dask DataFrame, to be read again on its workers.

    Parameters
    ----------
    formula, data, reading : as for :func:`gather_on_dask`
    renamed : new names of columns in the parts
    """
    return PartsOnDask(_Partitions(formula, data, reading), renamed)


@dataclass(frozen=True, slots=True, eq=False)
class PartsOnDask:
    """The rows of a Dask DataFrame, in partitions, with new names of some columns."""

    partitions: _Partitions
    renamed: Mapping[str, str] | None

    def total(self, of: Callable[..., Sum], *known: Any) -> Sum | None:
        """Return the sum of ``of(*known, part)`` over the partitions, in their order."""
        return self.partitions.total_of_one_pass(_of_renamed, self.renamed, of, known)


def _of_renamed(
    renamed: Mapping[str, str] | None,
    of: Callable[..., Any],
    known: tuple[Any, ...],
    part: CompleteRows,
) -> Any:
    return of(*known, renamed_part(part, renamed))


def _table(partitions: _Partitions, coding: RowCoding, *, powers: bool = False) -> CellTable:
    """Return the table of the cells of all rows.

    Cells that are about as many as the rows are added here: sums on workers would be sent twice,
    and the largest fill the memory of one worker.
    """
    places, n = coding.places.size, coding.survey.n
    if coding.sums_plainly and not dense_places(places, n):
        table = add_tables(partitions.each_result(n, _cells, Coder(coding), powers))
    else:
        table = partitions.total(_cells, Coder(coding), powers)
    assert table is not None
    return table


def _every_cell(partitions: _Partitions, coding: RowCoding) -> CellTable:
    """Return the table of all cells."""
    size, n_columns = coding.places.size, coding.n_columns
    return EveryCell(size, n_columns).made() + _table(partitions, coding)


def _cells(coder: Coder, powers: bool, part: CompleteRows) -> CellTable:
    """Sum rows in cells."""
    return cells_of(coder, part, powers=powers)


def _of_fixed_part(formula: Formula, part: CompleteRows) -> pd.DataFrame:
    """Return the columns of the fixed part and of slopes, to be sent."""
    return part.frame[[name for name in part.frame.columns if name in formula.covariates]]


def _collapsed_part(coder: Coder, plan: CollapsePlan, part: CompleteRows) -> _Moving:
    """Sum rows, and collapse the cells that they complete."""
    return _Moving.of(PartSums.of_rows(plan, *coder(part)))


@dataclass(frozen=True, slots=True, eq=False)
class _Moving:
    """Sums as they are sent: without the plan of collapsing, which the receiver has."""

    open: CellTable
    collapsed: CollapsedGroups | None

    @classmethod
    def of(cls, sums: PartSums) -> _Moving:
        return cls(sums.open.packed(), sums.collapsed)

    def arrived(self, plan: CollapsePlan) -> PartSums:
        return PartSums(plan, self.open, self.collapsed)


class _Partitions:
    """The rows of a Dask DataFrame that are complete for a formula, by partition."""

    def __init__(self, formula: Formula, data: Any, reading: Reading) -> None:
        self._formula, source, environment = formula, source_on_dask(data), reading.environment
        names = reading.columns(formula, source)
        for name in names:
            if name not in source.columns:
                raise source.no_column(name)
        # A scope cannot be sent; the values that the formula uses can.
        self._columns = reading.row_columns
        used = (*names_in(formula.response), *formula.covariates, *formula.offset_names)
        wanted = set(used) - set(names)
        self._scope = {
            name: environment.namespace[name] for name in wanted if name in environment.namespace
        }
        self._rows = data[list(dict.fromkeys(names))]
        self._most_bytes = reading.kept_bytes
        self._first: Any = None
        self._kept: list[Any] | None = None

    def each(self) -> Iterator[CompleteRows]:
        """Yield the columns of the fixed part, partition by partition; others are not fetched."""
        dask: Any = import_module("dask")
        work = dask.delayed(self._work(_of_fixed_part, (self._formula,)), traverse=False)
        for frame in _fetched(self._each_by(_of_partition, work)[0]):
            yield CompleteRows.of_fixed_part(frame)

    def each_result(self, n: int, of: Callable[..., Any], *known: Any) -> Iterator[Any]:
        """Yield `of(*known, part)` for each partition of `n` rows in all, after the first pass."""
        dask: Any = import_module("dask")
        waiting = list(dask.persist(*self._results(self._work(of, known))[0]))
        yield from _fetched(waiting, 1 + _ROWS * len(waiting) // (n + 1))

    def total(self, of: Callable[..., Sum], *known: Any) -> Sum | None:
        """Return the sum of ``of(*known, part)`` over the partitions."""
        return self._summed(self._work(of, known))

    def total_of_one_pass(self, of: Callable[..., Sum], *known: Any) -> Sum | None:
        """Return the sum of ``of(*known, part)``, by a pass that needs no survey."""
        dask: Any = import_module("dask")
        work = dask.delayed(self._work(of, known), traverse=False)
        delayed = _tree(*self._each_by(_of_partition, work))
        return None if delayed is None else dask.compute(delayed)[0]

    def collapsed(self, coding: RowCoding, plan: CollapsePlan) -> PartSums:
        """Return the sums of all rows, with complete cells collapsed."""
        moved: _Moving = self._summed(
            replace(self._work(_collapsed_part, (Coder(coding),)), collapses=True)
        )
        return moved.arrived(plan)

    def _work(self, of: Callable[..., Any], known: tuple[Any, ...]) -> _Work:
        return _Work(of, known, self._formula, self._scope, self._columns)

    def _summed(self, work: _Work) -> Any:
        if self._first is None:
            return self._of_first_pass(work)
        return _tree(*self._results(work)).compute()

    def _results(self, work: _Work) -> tuple[list[Any], Any]:
        """Return the delayed results of work that knows the survey, as :meth:`_each_by`."""
        dask: Any = import_module("dask")
        # Values that all tasks need are sent once, not with each task.
        sent = dask.delayed(work.without_survey(), traverse=False)
        return self._each_by(_of_partition, dask.delayed(_Work.completed)(sent, self._first))

    def _of_first_pass(self, work: _Work) -> Any:
        """Return the sum over all rows; few rows are kept on their workers."""
        dask: Any = import_module("dask")
        most = self._most_bytes / max(self._rows.npartitions, 1)
        sent = dask.delayed(replace(work, keeps=most), traverse=False)
        read, known = self._each_by(_read_partition, sent)
        if not read:
            return None
        results = _each_again(_found, read)
        self._first, *kept = dask.persist(_tree(results, known), *read)
        (whole,) = dask.compute(self._first)
        self._kept = kept if whole.are_kept else None
        return whole.sum

    def _each_by(self, function: Callable[..., Any], work: Any) -> tuple[list[Any], Any]:
        """Return the delayed results of a function for each partition and some delayed work.

        A partition is read and summed in one task. Separate tasks would pile up rows that wait for
        the results of the first pass.

        Returns
        -------
        The results, and the work with its key in their graphs.
        """
        dask: Any = import_module("dask")
        if self._kept is not None:
            return _each_again(function, self._kept, work), (work, work.key)
        results: list[Any] = self._rows.map_partitions(
            function, work, meta=(None, object), enforce_metadata=False
        ).to_delayed()
        key = (work.key, 0)
        if not results or key in results[0].__dask_graph__():
            return results, (work, key)
        # Older versions of Dask do not compute the delayed work for map_partitions.
        each = dask.delayed(function)
        return [each(part, work) for part in self._rows.to_delayed()], (work, work.key)


def _each_again(function: Callable[..., Any], parts: list[Any], *known: Any) -> list[Any]:
    """Return the delayed results of a function for delayed parts and other delayed arguments."""
    # The graph is written directly: dask.delayed inspects every argument, half a millisecond each.
    run, keys = uuid4().hex, [one.key for one in known]
    tasks = {
        f"{function.__name__}-{run}-{k}": (function, part.key, *keys)
        for k, part in enumerate(parts)
    }
    return _delayed(tasks, list(tasks), [*parts, *known])


def _tree(results: list[Any], known: tuple[Any, Any]) -> Any:
    """Return the delayed sum of the results of partitions; None without partitions.

    Parameters
    ----------
    results : the delayed results
    known : the delayed work that made them, and its key in their graphs
    """
    if len(results) < 2:
        return results[0] if results else None
    work, known_key = known
    run, level = uuid4().hex, [part.key for part in results]
    tasks: dict[str, tuple[Any, ...]] = {}
    while len(level) > 1:
        size = _LAST if len(level) <= _LAST else _TOGETHER
        parts = [level[k : k + size] for k in range(0, len(level), size)]
        level = [f"_added-{run}-{len(tasks) + k}" for k in range(len(parts))]
        tasks |= {key: (_added, known_key, some) for key, some in zip(level, parts, strict=True)}
    return _delayed(tasks, level, [work, *results])[0]


def _delayed(tasks: Mapping[str, Any], keys: list[str], needed: list[Any]) -> list[Any]:
    graphs: Any = import_module("dask.highlevelgraph")
    layer = uuid4().hex
    graph = graphs.HighLevelGraph.from_collections(layer, tasks, dependencies=needed)
    wrapper: Any = import_module("dask.delayed").Delayed
    return [wrapper(key, graph, layer=layer) for key in keys]


def _fetched(parts: list[Any], together: int = 1) -> Iterator[Any]:
    """Yield results in order, some fetched together; while they are used, the next are computed.

    Results are forgotten here and on the workers as soon as they are used.
    """
    dask: Any = import_module("dask")

    def ahead() -> Future[Any]:
        some = [parts.pop(0) for _ in parts[:together]]
        # The caller's context may set the scheduler.
        return pool.submit(copy_context().run, dask.compute, *some)

    with ThreadPoolExecutor(1) as pool:
        waiting = ahead()
        while parts:
            results, waiting = waiting.result(), ahead()
            yield from results
        yield from waiting.result()


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """The work on the rows of every partition.

    Attributes
    ----------
    of : function of `known` and complete rows; its results can be added
    known : its other arguments
    formula : the formula whose columns complete rows have
    scope : names that the formula uses
    columns : frequencies and offsets, by name
    collapses : whether cells are collapsed; the plan is then the last argument of completed work
    keeps : largest size in bytes of a partition that is kept
    """

    of: Callable[..., Any]
    known: tuple[Any, ...]
    formula: Formula
    scope: Mapping[str, Any]
    columns: RowColumns
    collapses: bool = False
    keeps: float = 0.0

    def without_survey(self) -> _Work:
        """Return the work without the survey, which the workers have."""
        return self._with_survey(_NOT_HERE)

    def _with_survey(self, survey: Survey) -> _Work:
        def with_it(known: Any) -> Any:
            if isinstance(known, Coder):
                return Coder(with_it(known.coding))
            return replace(known, survey=survey) if isinstance(known, RowCoding) else known

        return replace(self, known=tuple(map(with_it, self.known)))

    def completed(self, first: _Found) -> _Work:
        """Return the work with the survey of the first pass."""
        work = self._with_survey(first.sum.survey.of_used_levels())
        if not work.collapses:
            return work
        return replace(work, known=(*work.known, collapse_plan(work.known[0].coding)))


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """The result of the first pass over a partition, with its rows if they are few."""

    sum: Any
    frame: pd.DataFrame | None


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """The sum of the first pass over partitions, and whether the rows of all are kept."""

    sum: Any
    are_kept: bool

    def __add__(self, other: _Found) -> _Found:
        return _Found(self.sum + other.sum, self.are_kept and other.are_kept)


def _read_partition(frame: pd.DataFrame, work: _Work) -> _Read:
    """Return the result of the first pass over a partition, with its rows for later passes."""
    frame = with_coded_text(frame)
    n_bytes = float(frame.memory_usage(index=False, deep=True).sum())
    return _Read(_of_partition(frame, work), frame if n_bytes <= work.keeps else None)


def _found(read: _Read) -> _Found:
    return _Found(read.sum, read.frame is not None)


def _of_partition(frame: Any, work: _Work) -> Any:
    """Return the result of the work on one partition; runs on a worker."""
    from patsy import EvalEnvironment

    if isinstance(frame, _Read):
        frame = frame.frame
    environment = EvalEnvironment([dict(work.scope)])
    source = open_source(frame)
    frame = source.read(source.columns)
    rows = CompleteRows.of_part(work.formula, frame, environment, work.columns)
    return work.of(*work.known, rows)


def _added(work: _Work, parts: list[Any]) -> Any:
    if not work.collapses:
        return add_tables(parts) if isinstance(parts[0], CellTable) else add_up(parts)
    plan = work.known[-1]
    found = add_up(part.arrived(plan) for part in parts)
    assert found is not None
    return _Moving.of(found)
