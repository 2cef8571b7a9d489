"""How the rows of one analysis are read: the options of the caller, checked once.

The pipe is formula → design → statistics → estimate → result → D-study. :class:`Reading` stands
at its beginning: ``fit``, ``gstudy`` and ``accumulate`` make one, and functions that read rows
pass it on. :class:`Tally` counts rows and missing values, which are reported once for all parts of
the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.data.column_values import labels_of_files
from vcomp.data.row_columns import NO_COLUMNS, RowColumns
from vcomp.data.source import Source, open_source
from vcomp.display import memory
from vcomp.exceptions import DataError, VcompError, warn
from vcomp.formula import Formula, absent_name, names_in, quoted
from vcomp.numerics import THREADS, available_bytes

_SHOWN = 5
"""Largest number of parts of the data that a message names."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Numbers of rows and of missing values; the tallies of parts add up.

    Attributes
    ----------
    n : number of rows
    incomplete : number of rows with a missing value
    missing : number of missing values in each column, in the response under ``None``
    infinite : number of complete rows with an infinite response
    parts : incomplete and infinite rows of the files or frames that have any
    """

    n: int
    incomplete: int
    missing: Mapping[str | None, int]
    infinite: int
    parts: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def named(self, part: str | None) -> Tally:
        """Return the tally of a part of this name."""
        if part is None or not (self.incomplete or self.infinite):
            return self
        return replace(self, parts={part: (self.incomplete, self.infinite)})

    def by_part(
        self, keep: BoolArray, y: FloatArray, sizes: Sequence[tuple[str | None, int]]
    ) -> Tally:
        """Return the tally with the numbers of incomplete and infinite rows of each file or frame.

        Parameters
        ----------
        keep : which of all rows are complete
        y : the response of these
        sizes : name of each part, and its number of rows
        """
        if not (self.incomplete or self.infinite):
            return self
        infinite = np.zeros(keep.size, dtype=bool)
        infinite[keep] = np.isinf(y)
        parts, end = {}, 0
        for name, size in sizes:
            rows = slice(end, end := end + size)
            counts = int((~keep[rows]).sum()), int(infinite[rows].sum())
            if name is not None and any(counts):
                parts[name] = counts
        return replace(self, parts=parts)

    def __add__(self, other: Tally) -> Tally:
        names = dict.fromkeys([*self.missing, *other.missing])
        return Tally(
            self.n + other.n,
            self.incomplete + other.incomplete,
            {name: self.missing.get(name, 0) + other.missing.get(name, 0) for name in names},
            self.infinite + other.infinite,
            _added(self.parts, other.parts),
        )

    def check(self, formula: Formula, missing: Missing, files: Sequence[Path] = ()) -> None:
        """Warn of rows that were left out, and refuse data that cannot be used.

        Raises
        ------
        DataError
            If there is no row, or none is complete; if the response is infinite somewhere; or if
            rows are incomplete and ``missing="raise"``.
        """
        if self.n == 0:
            raise DataError("the data have no rows")
        if self.missing[None] == self.n:
            raise DataError(
                f"the response {formula.response!r} is missing in every row",
                column=formula.response,
            )
        if self.incomplete:
            self._report(formula, missing, files)
        if self.infinite:
            parts = self._by_part(1)
            which = f" ({parts})" if parts else ""
            raise DataError(
                f"the response {formula.response!r} is infinite in {self.infinite} of "
                f"{self.n - self.incomplete} rows{which}",
                column=formula.response,
            )

    def _report(self, formula: Formula, missing: Missing, files: Sequence[Path]) -> None:
        # A response that is a column is counted there already.
        named = [
            (f"response {formula.response}" if name is None else name, count)
            for name, count in self.missing.items()
            if count and (name is not None or formula.response not in self.missing)
        ]
        per_column = ", ".join(f"{name} {count}" for name, count in named)
        parts = self._by_part(0)
        which = f" ({parts})" if parts else ""
        where = f"{self.incomplete} of {self.n} rows{which} have a missing value ({per_column})"
        labels = [f for f in formula.facets if self.missing.get(f)]
        is_text = any(path.suffix.lower() != ".parquet" for path in files)
        if labels and is_text:
            where += f"; in files NA and NULL are missing: {labels_of_files(labels)}"
        if missing == "raise":
            raise DataError(f"{where}; missing='drop' leaves them out")
        if self.incomplete == self.n:
            raise DataError(f"no row is complete: {where}")
        warn(
            f"{where}; they were left out" if labels and is_text else f"{where} and were left out"
        )

    def _by_part(self, which: int) -> str:
        """Return in which parts rows are incomplete (0) or infinite (1), and how many."""
        affected = {part: counts[which] for part, counts in self.parts.items() if counts[which]}
        shown = [f"{count} in {part!r}" for part, count in islice(affected.items(), _SHOWN)]
        more = [f"and in {len(affected) - _SHOWN} more"] if len(affected) > _SHOWN else []
        return ", ".join([*shown, *more])


def _added(
    one: Mapping[str, tuple[int, int]], other: Mapping[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    total = dict(one)
    for part, (incomplete, infinite) in other.items():
        before = total.get(part, (0, 0))
        total[part] = before[0] + incomplete, before[1] + infinite
    return total


Missing = Literal["drop", "raise"]


@dataclass(frozen=True, slots=True)
class Reading:
    """Options of reading rows: scope of names, treatment of missing values, memory or batches.

    Attributes
    ----------
    environment : patsy's ``EvalEnvironment`` of the caller
    missing : ``"drop"`` rows with a missing value and warn, or ``"raise"``
    stream : True to read rows in batches and keep none of them, False to keep them in memory; None
        reads in batches what is not in memory yet and would take more than `large_share` of it
    progress : whether to show a bar of the rows that are read in batches; None shows it on long
        runs on a terminal
    batch_rows, least_batch_rows : rows of a batch, at most where memory is plenty and at least
        where it is short
    batch_share : share of the free memory that all batches in work may take
    kept_bytes, kept_share : bytes, and share of the free memory, up to which rows are kept between
        the passes, so that they are read once
    large_share : share of the free memory that rows may take before they are read in batches, and
        a table of all cells before complete cells are collapsed
    dense_cells : possible cells up to which a table of all of them is made, however few have rows
    free_bytes : returns the free memory
    row_columns : weights, frequencies, known variances and offsets of rows

    Raises
    ------
    DataError
        If `missing`, `stream` or `progress` is not one of these values.
    """

    environment: Any = None
    missing: Missing = "drop"
    stream: bool | None = None
    progress: bool | None = None
    batch_rows: int = 2**20
    least_batch_rows: int = 2**14
    batch_share: float = 0.125
    kept_bytes: float = 2.0**28
    kept_share: float = 0.0625
    large_share: float = 0.25
    dense_cells: int = 2**22
    free_bytes: Callable[[], float] = available_bytes
    row_columns: RowColumns = NO_COLUMNS

    def __post_init__(self) -> None:
        check_progress(self.progress)
        if self.stream is not None and not isinstance(self.stream, bool):
            raise DataError(f"stream={self.stream!r} is not known; it is True, False or None")
        if self.missing not in ("drop", "raise"):
            raise DataError(f"missing={self.missing!r} is not known; it is 'drop' or 'raise'")

    def open(self, formula: Formula, data: Any) -> Source:
        """Return the data as a source; of None the variables of the calling scope.

        Parameters
        ----------
        data : as of :func:`vcomp.io.open_source`, or None

        Raises
        ------
        DataError
            If `data` cannot be read, or a variable does not exist.
        """
        if data is None:
            return _caller_source(formula, self.environment, self.row_columns.names)
        return open_source(data)

    def columns(self, formula: Formula, source: Source, *, response: bool = True) -> list[str]:
        """Return the columns of a source to read; other names must be in the calling scope.

        Parameters
        ----------
        response : whether the response is needed

        Raises
        ------
        DataError
            If a name is neither a column nor in the calling scope.
        """
        used = list(formula.level_columns)
        slopes = (effect for term in formula.random for effect in term.effects)
        alone = {formula.response, *formula.fixed, *slopes}
        for name in formula.names(response=response):
            if name in used:
                continue
            if name in source.columns:
                used.append(name)
            elif not _is_known(name, self.environment, as_column=name in alone):
                raise self._unknown(name, formula, source)
        for name in self.row_columns.names if response else ():
            if name not in source.columns:
                raise source.no_column(name)
            if name not in used:
                used.append(name)
        return used

    def _unknown(self, name: str, formula: Formula, source: Source) -> VcompError:
        """Return the error for a name that is not known, with what to write in its place."""
        written = (formula.response, *formula.expressions, *formula.offsets, *formula.slopes)
        for code in written:
            if name in names_in(code):
                error = absent_name(name, code, source.columns)
                if error is not None:
                    return error
        return source.no_column(name)

    def is_on_dask(self, data: Any) -> bool:
        """Return whether data are a Dask collection, which is read on its workers.

        Raises
        ------
        DataError
            If a bar was requested for one; or numbers of rows are given as arrays.
        """
        if not hasattr(data, "__dask_graph__"):
            return False
        check_progress(self.progress, on_dask=True)
        self.row_columns.check_in_parts("on Dask")
        return True

    def in_batches(self, source: Source, n_columns: int) -> bool:
        """Return whether the rows of a source are to be read in batches.

        Parameters
        ----------
        n_columns : number of columns that would be read

        Raises
        ------
        DataError
            If batches were requested, and the source can be read only once; or if numbers of rows
            that are read in batches are given as arrays.
        """
        if self.stream and not source.is_repeatable:
            raise source.one_pass_only()
        n_rows = source.rows_to_come() if self.stream is None else 0.0
        found = n_rows > 0.0 and self.is_large(_bytes_of_rows(n_rows, n_columns))
        if self.stream or found:
            self.row_columns.check_in_parts("read in batches")
        return bool(self.stream or found)

    def is_large(self, n_bytes: float) -> bool:
        """Return whether something takes more than `large_share` of the free memory."""
        return n_bytes > self.large_share * self.free_bytes()

    def rows_of_batch(self, n_columns: int) -> int:
        """Return the number of rows of a batch."""
        # One batch is read while another is processed, whose values take as much again.
        of_a_row = (THREADS + 2) * 2.0 * _bytes_of_rows(1, max(n_columns, 1))
        fitting = int(self.batch_share * self.free_bytes() / of_a_row)
        return min(self.batch_rows, max(self.least_batch_rows, fitting))

    def bytes_to_keep(self) -> float:
        """Return the number of bytes of rows to keep between the passes."""
        return min(self.kept_bytes, self.kept_share * self.free_bytes())

    @staticmethod
    def memory_of_rows(n_rows: float, n_columns: int) -> str:
        """Return the approximate memory of rows as text.

        Examples
        --------
        >>> Reading.memory_of_rows(1e9, 5), Reading.memory_of_rows(1000, 5)
        ('111.8 GiB', '0.1 MiB')
        """
        return memory(_bytes_of_rows(n_rows, n_columns))


def _bytes_of_rows(n_rows: float, n_columns: int) -> float:
    """Return the approximate memory of rows and of intermediate values computed from them."""
    # Bytes of one value of a row: as read, as category, and as code with its sums
    return 24.0 * n_rows * n_columns


def check_progress(progress: bool | None, *, on_dask: bool = False) -> None:
    """Refuse a value other than True, False and None, and a progress bar for work on Dask.

    Raises
    ------
    DataError
    """
    if progress is not None and not isinstance(progress, bool):
        raise DataError(f"progress={progress!r} is not known; it is True, False or None")
    if progress and on_dask:
        raise DataError(
            "progress=True shows rows that are read here; Dask shows its own bar, on its "
            "dashboard or inside dask.diagnostics.ProgressBar()"
        )


def level_columns(data: Any) -> tuple[str, ...]:
    """Return the columns of a table in memory, levels first and scores last; else nothing.

    They are for examples in messages: nothing is read, and columns of fractions count as scores.
    """
    if hasattr(data, "collect"):  # a query, whose columns cost something
        return ()
    try:
        columns = data if isinstance(data, Mapping) else getattr(data, "columns", ())
        names = [name for name in columns if isinstance(name, str)]
        types = {name: str(getattr(data[name], "dtype", "")) for name in names}
    except Exception:  # whatever the data are, a message follows
        return ()
    are_scores = {name: "float" in types[name].lower() for name in names}
    # Of each the names first, or last, that need no quotes.
    return tuple(sorted(names, key=lambda n: (are_scores[n], are_scores[n] == (quoted(n) == n))))


def _caller_source(formula: Formula, environment: Any, further: tuple[str, ...]) -> Source:
    """Return the variables of the calling scope that the formula may name."""
    variables = {}
    for name in (*formula.names(), *further):
        try:
            variables[name] = environment.namespace[name]
        except KeyError:
            continue
    wanted = (*formula.level_columns, *names_in(formula.response))
    absent = [name for name in wanted if name not in variables]
    if absent:
        raise DataError(
            f"no data were given, and there is no variable {absent[0]!r} where fit was called",
            column=absent[0],
        )
    arrays = {k: v for k, v in variables.items() if _is_column(v)}
    for name in (*formula.level_columns, formula.response):
        if name in variables and name not in arrays:
            raise DataError(
                f"no data were given, and the variable {name!r} where fit was called is "
                f"{type(variables[name]).__name__}, not a column of values",
                column=name,
            )
    return open_source(arrays)


def _is_column(value: Any) -> bool:
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return is_sequence or (hasattr(value, "__len__") and getattr(value, "ndim", 0) == 1)


def _is_known(name: str, environment: Any, *, as_column: bool) -> bool:
    """Return whether the caller has something of this name; as a term of its own, a column."""
    import builtins

    from patsy import builtins as patsy_builtins

    here = name in environment.namespace
    if as_column:
        return here and _is_column(environment.namespace[name])
    return here or name in patsy_builtins.__all__ or hasattr(builtins, name)
