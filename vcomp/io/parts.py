"""Parts that data come in: files, frames, or one table; what they have to agree on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from vcomp.exceptions import DataError
from vcomp.io.columns import KnownDictionaries, from_arrow

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Agreement",
    "Part",
    "ReadSlices",
    "ReadTable",
    "arrow_part",
    "declared_kinds",
    "guarded",
    "kind_of",
    "reason",
]

ReadTable: TypeAlias = "Callable[[list[str]], Any]"
"""Columns → a pyarrow Table."""

ReadBatches: TypeAlias = "Callable[[list[str], int], Iterable[Any]]"
"""Columns and a number of rows → Arrow record batches, of about so many rows."""

ReadSlices: TypeAlias = "Callable[[list[str], int], Iterator[tuple[pd.DataFrame, str | None]]]"
"""Columns and a number of rows → pandas frames, each with the name of its file if it has one."""


@dataclass(frozen=True, slots=True)
class Part:
    """What is read by itself: a file, a frame, or all of the data.

    Attributes
    ----------
    name : what messages call it; None if the data are one piece without a name
    columns : their names
    read : reads some of the columns into a pandas frame
    slices : reads them a number of rows at a time, each with the name of the file that it is from
        where that is not the part itself
    n_rows : None if it is not known before reading
    kinds : what the columns hold, of those whose type is declared
    rows_to_come : about how many rows reading would bring into memory; None of those that are
        there already
    files : that it is read from
    """

    name: str | None
    columns: tuple[str, ...]
    read: Callable[[list[str]], pd.DataFrame]
    slices: ReadSlices
    n_rows: int | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)
    rows_to_come: Callable[[], float] | None = None
    files: tuple[Path, ...] = ()


def arrow_part(
    name: str | None,
    columns: Iterable[str],
    read: ReadTable,
    batches: ReadBatches,
    *,
    n_rows: int | None = None,
    schema: Any = None,
    rows_to_come: Callable[[], float] | None = None,
    files: Iterable[Path] = (),
) -> Part:
    """Return a part that comes in Arrow's form.

    Parameters
    ----------
    schema : declares its types, if it is known
    batches : of a Dataset pairs of a batch and the name of its file
    """

    def slices(names: list[str], rows: int) -> Iterator[tuple[pd.DataFrame, str | None]]:
        known: KnownDictionaries = {}
        for file, of_file in groupby(map(_with_file, batches(names, rows)), itemgetter(1)):
            for table in _regrouped((batch for batch, _ in of_file), rows):
                yield from_arrow(table, known), file

    return Part(
        name=name,
        columns=tuple(columns),
        read=lambda names: from_arrow(read(names)),
        slices=slices,
        n_rows=n_rows,
        kinds={} if schema is None else declared_kinds(schema),
        rows_to_come=rows_to_come,
        files=tuple(files),
    )


def _with_file(batch: Any) -> tuple[Any, str | None]:
    return batch if isinstance(batch, tuple) else (batch, None)


def _regrouped(batches: Iterable[Any], rows: int) -> Iterator[Any]:
    """Yield tables of `rows` rows, but for the last, whatever the batches have."""
    import pyarrow as pa

    waiting: list[Any] = []
    n_waiting = 0
    for batch in batches:
        first = 0
        while first < batch.num_rows:
            piece = batch.slice(first, rows - n_waiting)
            waiting.append(piece)
            first += piece.num_rows
            n_waiting += piece.num_rows
            if n_waiting == rows:
                yield pa.Table.from_batches(waiting)
                waiting, n_waiting = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def guarded(
    batches: Iterable[Any],
    refuse: Callable[[BaseException], DataError],
    *others: type[Exception],
) -> Iterator[Any]:
    """Yield the batches; an error on the way is said in words of the file's.

    Parameters
    ----------
    refuse : says it
    *others : errors that are of the file besides those of Arrow and of the machine
    """
    import pyarrow as pa

    iterator = iter(batches)
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            return
        except DataError:
            raise
        except (pa.ArrowException, ValueError, OSError, *others) as error:
            raise refuse(error) from None
        yield batch


def reason(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


# Kinds of columns ------------------------------------------------------------------------------


def declared_kinds(schema: Any) -> dict[str, str]:
    """Return what the columns of an Arrow schema hold, in the words of messages."""
    kinds = {f.name: _declared_kind(f.type) for f in schema}
    return {name: kind for name, kind in kinds.items() if kind}


def _declared_kind(kind: Any) -> str:
    from pyarrow import types

    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _declared_kind(kind.value_type)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "numbers"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_boolean(kind):
        return "truth values"
    if types.is_timestamp(kind):
        return _TIMES if kind.tz is None else _ZONED
    if types.is_binary(kind) or types.is_large_binary(kind):
        return "bytes"
    named = {"date": "dates", "time": "times of day", "dura": "durations"}
    return named.get(str(kind)[:4], "")


_TIMES, _ZONED = "times without a zone", "times with a zone"


def kind_of(column: Any) -> str:
    """Return what a pandas column or index holds; nothing if all is missing, or several kinds."""
    import pandas as pd
    from pandas.api.types import infer_dtype, is_bool_dtype, is_numeric_dtype

    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return kind_of(dtype.categories) if len(dtype.categories) else ""
    if is_bool_dtype(dtype):
        return "truth values"
    if is_numeric_dtype(dtype):
        floats = isinstance(dtype, np.dtype) and dtype.kind == "f"
        return "" if floats and np.isnan(column.to_numpy()).all() else "numbers"
    found = infer_dtype(column, skipna=True)
    if found not in ("datetime", "datetime64"):
        return _KINDS.get(found, "")
    there = column.notna()
    if not there.any():
        return ""
    return _TIMES if column[there.argmax()].tzinfo is None else _ZONED


_KINDS = {
    "string": "text",
    "bytes": "bytes",
    "integer": "numbers",
    "floating": "numbers",
    "decimal": "numbers",
    "mixed-integer-float": "numbers",
    "boolean": "truth values",
    "date": "dates",
    "time": "times of day",
    "timedelta": "durations",
    "timedelta64": "durations",
}
"""What pandas calls values, in the words of messages."""


class Agreement:
    """What the parts so far had in their columns, to refuse a part that has something else."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._first: Part | None = None
        self._seen: dict[str, tuple[str, str | None]] = {}

    def check_part(self, part: Part) -> None:
        """Refuse a part whose columns are not those of the first.

        Raises
        ------
        DataError
            If a column is not there, stands twice, or is declared as another kind.
        """
        for name in self._names:
            count = part.columns.count(name)
            if count > 1:
                where = "the data have" if part.name is None else f"{part.name!r} has"
                raise DataError(f"{where} {count} columns named {name!r}")
            if not count:
                raise self._lacks(part, name)
            self._check_kind(name, part.kinds.get(name, ""), part.name)
        self._first = self._first or part

    def check_frame(self, frame: pd.DataFrame, part: Part) -> None:
        """Refuse rows of one kind where those before were of another.

        Data in one piece may hold values of several types in a column.

        Raises
        ------
        DataError
            If a column holds text in one part and numbers in another, or the like.
        """
        if part.name is None or len(frame) == 0:
            return
        for name in self._names:
            if name not in part.kinds:  # which were compared before the first row
                self._check_kind(name, kind_of(frame[name]), part.name)

    def _check_kind(self, name: str, kind: str, part: str | None) -> None:
        if not kind:
            return
        before, where = self._seen.setdefault(name, (kind, part))
        if kind != before:
            raise DataError(
                f"column {name!r} holds {kind} in {part!r} and {before} in {where!r}; "
                "a column is of one kind in all parts of the data"
            )

    def _lacks(self, part: Part, name: str) -> DataError:
        other = self._first if self._first is not None and name in self._first.columns else None
        has = "others have" if other is None else f"{other.name!r} has"
        return DataError(f"{part.name!r} has no column {name!r}, which {has}")
