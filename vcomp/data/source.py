"""One interface to all containers of data: column names, and columns by name.

The first stage for data, as the parser is for formulas: a ``Source`` is opened, and read later.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import IOBase
from itertools import chain, islice
from numbers import Number
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp.data import containers
from vcomp.data.column_values import is_grouped
from vcomp.data.containers import unite_columns
from vcomp.data.files import CONTAINERS, open_paths
from vcomp.data.parts import Part, from_arrow_array, kind_of
from vcomp.data.written_files import refuse_to_replace
from vcomp.exceptions import DataError, did_you_mean, is_whole
from vcomp.numerics import MANY_ROWS

if TYPE_CHECKING:
    import pandas as pd

_ROWS = 262_144
"""Rows of a batch, so that the columns of a model nearly fit into the processor's caches."""


@dataclass(frozen=True, slots=True)
class Source:
    """Data that were opened, not yet read.

    Attributes
    ----------
    columns : their names; where parts differ, of all of them
    open_parts : returns what is read one after another: files, frames, or all of the data
    part_names : of files and of frames in a list; None for data in one piece. Empty for an
        iterator, whose frames are not known in advance
    n_rows : None if it is not known without reading
    is_repeatable : whether a second pass can be made
    row_labels : of a pandas frame, for what is given back row by row; None where rows are just
        numbered
    files : that are read, as far as they are known
    """

    columns: tuple[str, ...]
    open_parts: Callable[[], Iterable[Part]]
    part_names: tuple[str | None, ...] = ()
    n_rows: int | None = None
    is_repeatable: bool = True
    row_labels: pd.Index | None = None
    files: tuple[Path, ...] = ()

    @property
    def is_one_piece(self) -> bool:
        """Whether the data are one file or frame, which messages need not name."""
        return len(self.part_names) == 1 and len(self.files) < 2

    def read(self, names: Sequence[str]) -> pd.DataFrame:
        """Return some columns of all parts as one pandas frame; nothing else is read.

        Categories of several parts are united: sorted if each part's are, otherwise in the order
        in which they come.

        Parameters
        ----------
        names : of the columns

        Raises
        ------
        DataError
            If a column does not exist (the message names the nearest), its name occurs twice,
            parts disagree on its kind, a file cannot be read, or a stream was read before.
        """
        return self.read_parts(names)[0]

    def read_parts(
        self, names: Sequence[str]
    ) -> tuple[pd.DataFrame, list[tuple[str | None, int]]]:
        """Return what :meth:`read` returns, and the name and number of rows of each part.

        Parameters
        ----------
        names : of the columns

        Raises
        ------
        DataError
            As :meth:`read` does.
        """
        if len(self.part_names) == 1:
            (part,) = self.open_parts()
            for name in names:
                if _counted(part, name) == 0:
                    raise self.no_column(name)
            frame = native(part.read(list(names)))
            return frame, [(part.name, len(frame))]
        agreement, parts = self._agreed(names)
        read, sizes = [], []
        for part in parts:
            agreement.check_part(part)
            columns = {name: _native(c) for name, c in part.read_columns(names).items()}
            n_rows = len(next(iter(columns.values()), ()))
            agreement.check_rows(columns, n_rows, part)
            read.append(columns)
            sizes.append((part.name, n_rows))
        return unite_columns(read, names), sizes

    def batches(
        self, names: Sequence[str], rows: int = _ROWS
    ) -> Iterator[tuple[pd.DataFrame, str | None]]:
        """Read the columns `names` a number of rows at a time, part by part.

        A column is of one kind in all batches, numbers or text. Whole numbers may still come as
        floats in the next part, and categories are those of the batch:
        :func:`vcomp.io.unite_categories` has the rule by which :meth:`read` puts them together.

        Parameters
        ----------
        names : columns to read; nothing else is read
        rows : of a batch at most; a batch is of one part

        Returns
        -------
        iterator of pairs: a pandas frame, and the name of the file or frame that it is from (None
        for data in one piece)

        Raises
        ------
        DataError
            As :meth:`read` does, some of them only when the rows are read; and if `rows` is not a
            whole number of at least 1.

        Examples
        --------
        >>> source = open_source({"sys": ["a", "b", "b"], "score": [0.1, 0.2, 0.3]})
        >>> [(len(frame), part) for frame, part in source.batches(["score"], rows=2)]
        [(2, None), (1, None)]
        """
        if not is_whole(rows) or rows < 1:
            raise DataError(f"rows must be a whole number of at least 1, not {rows!r}")
        agreement, parts = self._agreed(names)
        return _batches(self, list(names), int(rows), agreement, parts)

    def _agreed(self, names: Sequence[str]) -> tuple[Agreement, Iterable[Part]]:
        """Open the parts, and compare what they declare before the first row is read."""
        for name in names:
            if name not in self.columns:
                raise self.no_column(name)
        parts = self.open_parts()
        agreement = Agreement(names)
        for part in parts if isinstance(parts, tuple) else ():
            agreement.check_part(part)
        return agreement, parts

    def rows_to_come(self) -> float:
        """Return the approximate number of rows that reading would bring into memory.

        Rows in memory do not count, nor those of an iterator, whose number is not known. A query
        is run to count its rows.
        """
        if not self.is_repeatable:
            return 0.0
        parts = (part.rows_to_come for part in self.open_parts())
        return sum(count() for count in parts if count is not None)

    def refuse_to_replace(self, path: Path) -> None:
        """Refuse to write to one of the files that the rows are read from.

        Parameters
        ----------
        path : of the file that is to be written

        Raises
        ------
        DataError
            If it is one of these files.
        """
        refuse_to_replace(path, self.files)

    def one_pass_only(self) -> DataError:
        """Return the error for data that cannot be read a second time."""
        return DataError(f"the data can be read only once, and two passes are needed; {_INSTEAD}")

    def no_column(self, name: str) -> DataError:
        """Return the error for a column that does not exist, with those that do.

        Parameters
        ----------
        name : of the column
        """
        if not self.columns:
            return DataError(
                f"there is no column {name!r} in the data, which have no columns", column=name
            )
        shown = ", ".join(map(repr, self.columns[:20])) + (" …" if len(self.columns) > 20 else "")
        return DataError(
            f"there is no column {name!r} in the data{did_you_mean(name, self.columns)}; "
            f"the columns are {shown}",
            column=name,
        )


def _batches(
    source: Source, names: list[str], rows: int, agreement: Agreement, parts: Iterable[Part]
) -> Iterator[tuple[pd.DataFrame, str | None]]:
    """Read part by part; the source is held, and with it a temporary file."""
    for part in parts:
        agreement.check_part(part)
        for piece, file in part.slices(names, rows):
            frame = native(piece)
            agreement.check_rows(frame, len(frame), part)
            yield frame, file or part.name


def native(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with columns of types that pandas can group."""
    changed = {}
    for name, column in frame.items():
        converted = _native(column)
        if converted is not column:
            changed[str(name)] = converted
    return frame.assign(**changed) if changed else frame  # pandas 2 copies what is assigned to


def _native(column: pd.Series) -> pd.Series:
    """Return a column in the machine's byte order, and in a type that pandas can group."""
    import pandas as pd

    dtype = column.dtype
    if isinstance(dtype, np.dtype):
        if dtype.kind == "f" and dtype.itemsize == 2:
            return column.astype(np.float32)
        return column if dtype.isnative else column.astype(dtype.newbyteorder("="))
    if isinstance(dtype, pd.ArrowDtype) and not is_grouped(dtype.pyarrow_dtype):
        return from_arrow_array(str(column.name), column.array).set_axis(column.index)
    return column


def _counted(part: Part, name: str) -> int:
    """Return how many columns of a part have a name: 0 or 1.

    Raises
    ------
    DataError
        If several have it.
    """
    count = part.columns.count(name)
    if count > 1:
        where = "the data have" if part.name is None else f"{part.name!r} has"
        raise DataError(f"{where} {count} columns named {name!r}")
    return count


class Agreement:
    """The kinds of values in the columns of the parts so far, to refuse a part with others."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._first: Part | None = None
        self._seen: dict[str, tuple[str, Part]] = {}

    def check_part(self, part: Part) -> None:
        """Refuse a part whose columns are not those of the first.

        Raises
        ------
        DataError
            If a column does not exist, occurs twice, or is declared as another kind.
        """
        for name in self._names:
            if _counted(part, name) == 0:
                raise self._lacks(part, name)
            self._check_kind(name, part.kinds.get(name, ""), part)
        self._first = self._first or part

    def check_rows(
        self, columns: Mapping[str, pd.Series] | pd.DataFrame, n_rows: int, part: Part
    ) -> None:
        """Refuse rows of one kind where those before were of another.

        Data in one piece may hold values of several types in a column.

        Raises
        ------
        DataError
            If a column holds text in one part and numbers in another, or the like.
        """
        if part.name is None or n_rows == 0:
            return
        for name in self._names:
            if name not in part.kinds:  # which were compared before the first row
                self._check_kind(name, kind_of(columns[name]), part)

    def _check_kind(self, name: str, kind: str, part: Part) -> None:
        if not kind:
            return
        before, where = self._seen.setdefault(name, (kind, part))
        if kind == before or part.is_empty(name):
            return
        if where.is_empty(name):
            self._seen[name] = kind, part
            return
        raise DataError(
            f"column {name!r} holds {kind} in {part.name!r} and {before} in {where.name!r}; "
            "a column is of one kind in all parts of the data",
            column=name,
        )

    def _lacks(self, part: Part, name: str) -> DataError:
        other = self._first if self._first is not None and name in self._first.columns else None
        has = "others have" if other is None else f"{other.name!r} has"
        return DataError(f"{part.name!r} has no column {name!r}, which {has}", column=name)


def refuse_dask(data: Any) -> None:
    """Refuse a Dask collection."""
    if hasattr(data, "__dask_graph__"):
        raise DataError(
            "a Dask collection is accepted by vcomp.fit, vcomp.gstudy and vcomp.accumulate only; "
            "here call .compute() first, or write it to Parquet and give the folder"
        )


def open_source(data: Any) -> Source:
    """Return a source of the rows of `data`, whatever container it comes in; they are read later.

    Parameters
    ----------
    data : pandas frame; mapping of names to one-dimensional arrays; polars DataFrame or LazyFrame;
        pyarrow Table, Dataset or RecordBatchReader; relation of DuckDB; anything else with an
        Arrow stream; a list or iterator of these; or the path of a ``.csv``, ``.tsv`` (also
        ``.csv.gz``) or ``.parquet`` file, of a folder of CSV or Parquet files, at any depth and
        with columns in the names of its folders (``day=3``), a pattern (``runs/*.parquet``), or
        several paths. A :class:`Source` is returned as it is. In a folder, files whose name starts
        with a dot or an underscore, or ends otherwise, are left out

    Raises
    ------
    DataError
        If it is none of these, or a file has another format than its ending says.

    Examples
    --------
    >>> source = open_source({"sys": ["a", "b"], "score": [0.25, 0.5]})
    >>> source.columns
    ('sys', 'score')
    >>> source.read(["score"])["score"].tolist()
    [0.25, 0.5]
    """
    import pandas as pd

    if isinstance(data, Source):
        return data
    if isinstance(data, pd.DataFrame):
        return _of_frame(data)
    if isinstance(data, str | bytes | os.PathLike):
        return _of_parts(open_paths([data]))
    if isinstance(data, Mapping):
        return _of_parts((containers.mapping(data),))
    refuse_dask(data)
    if isinstance(data, pd.Series):
        raise _not_a_table(data)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "collect_schema"):
        return _open_table(data)
    if hasattr(data, "get_fragments"):
        return _of_parts((containers.dataset(data),))
    if isinstance(data, IOBase):
        raise DataError(f"data are an open file, a {type(data).__name__}; give its path")
    if isinstance(data, list | tuple):
        return _open_list(data)
    if isinstance(data, Iterable) and not isinstance(data, set | frozenset | np.ndarray):
        return _open_iterable(data)
    raise DataError(f"data of type {type(data).__name__} cannot be read; give {CONTAINERS}")


def _of_frame(data: pd.DataFrame) -> Source:
    """Return a frame as a source; rows are selected before columns, which copies fewer of them."""
    columns = {str(column): column for column in data.columns}

    def select(frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
        selected = _uncopied(frame, [columns[name] for name in names])
        return selected.set_axis(names, axis=1).reset_index(drop=True)

    def slices(names: list[str], rows: int) -> Iterator[tuple[pd.DataFrame, None]]:
        for first in range(0, len(data), rows):
            yield select(data.iloc[first : first + rows], names), None

    part = Part(
        name=None,
        columns=tuple(map(str, data.columns)),
        read=lambda names: select(data, names),
        slices=slices,
        n_rows=len(data),
        column=lambda name: data[columns[name]],
    )
    return Source(
        columns=part.columns,
        open_parts=lambda: (part,),
        part_names=(None,),
        n_rows=len(data),
        row_labels=data.index,
    )


def _uncopied(frame: pd.DataFrame, columns: list[Any]) -> pd.DataFrame:
    """Return columns of a frame, of many rows without a copy.

    pandas copies them when the frame is changed, as long as what is returned exists. Versions
    before 3 do not, and columns that are strided in memory are slow to read: those are copied.
    """
    import pandas as pd

    if len(frame) < MANY_ROWS or int(pd.__version__.partition(".")[0]) < 3:
        return frame[columns]
    shared = {column: frame[column] for column in columns}
    types = [s for s in shared.values() if isinstance(s.dtype, np.dtype)]
    if any(s.to_numpy().strides != (s.dtype.itemsize,) for s in types):
        return frame[columns]
    return pd.DataFrame(shared, copy=False)


def _of_parts(parts: tuple[Part, ...]) -> Source:
    counts = [part.n_rows for part in parts]
    return Source(
        columns=_columns(parts),
        open_parts=lambda: parts,
        part_names=tuple(part.name for part in parts),
        n_rows=None if None in counts else sum(n for n in counts if n is not None),
        files=tuple(file for part in parts for file in part.files),
    )


def _columns(parts: Sequence[Part]) -> tuple[str, ...]:
    """Return the columns of the first part, then those that only others have."""
    first = parts[0].columns
    return (
        *first,
        *dict.fromkeys(n for part in parts[1:] for n in part.columns if n not in first),
    )


def _not_a_table(data: Any) -> DataError:
    name = type(data).__name__
    return DataError(f"data of type {name} is one column, not a table; give {CONTAINERS}")


def _open_table(data: Any) -> Source:
    import pyarrow as pa

    if isinstance(data, pa.RecordBatchReader):
        part = containers.record_batches(data)
        first = _Once((part,), "a stream of record batches")
        return Source(part.columns, first, (None,), is_repeatable=False)
    library = type(data).__module__.lstrip("_").partition(".")[0]
    if library == "narwhals":
        return open_source(data.to_native())
    if library == "polars" and hasattr(data, "collect"):
        return _of_parts((containers.lazy_polars(data),))
    if library == "duckdb":
        return _of_parts((containers.relation(data),))
    try:
        return _of_parts((containers.arrow_table(data),))
    except pa.ArrowInvalid:
        raise _not_a_table(data) from None


# Several ---------------------------------------------------------------------------------------


_INSTEAD = (
    "give a list of frames, files, or vcomp.io.spool(data), which writes the rows to a temporary "
    "file"
)
_SEVERAL_PASSES = f"where more than one pass is needed {_INSTEAD}"


class _Once:
    """Parts that can be read once; a second call raises a DataError."""

    def __init__(self, parts: Iterable[Part], what: str) -> None:
        self._parts: Iterable[Part] | None = parts
        self._what = what

    def __call__(self) -> Iterable[Part]:
        parts, self._parts = self._parts, None
        if parts is None:
            raise DataError(f"{self._what} can be read only once, and was read; {_SEVERAL_PASSES}")
        return iter(parts)


def _open_list(data: Sequence[Any]) -> Source:
    """Open frames and paths in a list, each a part of the data."""
    if not data:
        raise DataError(f"the {type(data).__name__} of data is empty; give {CONTAINERS}")
    if all(_is_path(item) for item in data):
        return _of_parts(open_paths(data))
    return _of_parts(tuple(chain.from_iterable(_numbered(data, type(data).__name__))))


def _open_iterable(data: Iterable[Any]) -> Source:
    """Open frames that are made one after another; the columns are those of the first."""
    if inspect.isgenerator(data) and inspect.getgeneratorstate(data) != inspect.GEN_CREATED:
        raise DataError(
            "the generator was started before, and its first frames are gone; make a new one"
        )
    what = type(data).__name__
    frames = iter(data)
    start = list(islice(frames, 1))
    if not start:
        raise DataError(f"the {what} gives no frames: it is empty, or was used up before")
    if _is_path(start[0]):
        return _open_list([*start, *frames])
    opened = _numbered(chain(start, frames), what)
    first = next(opened)
    if frames is data:
        parts = _Once(chain(first, chain.from_iterable(opened)), f"a {what} of frames")
        return Source(_columns(first), parts, is_repeatable=False)
    return Source(_columns(first), lambda: chain.from_iterable(_numbered(data, what)))


def _numbered(data: Iterable[Any], what: str) -> Iterator[tuple[Part, ...]]:
    """Open frames one after another, and name each by its number."""
    for number, item in enumerate(data, start=1):
        if _is_row(item):
            raise DataError(
                f"data of type {what} cannot be read: it gives {type(item).__name__}s, not "
                f"frames; rows become a frame by pandas.DataFrame(data). Or give {CONTAINERS}"
            )
        try:
            source = open_source(item)
        except DataError as error:
            raise DataError(f"frame {number}: {error}") from None
        if not source.is_repeatable:
            raise DataError(
                f"frame {number} is a {type(item).__name__}, which can be read only once; "
                "give its table, or the stream by itself"
            )
        yield tuple(
            replace(part, name=part.name or f"frame {number}") for part in source.open_parts()
        )


def _is_row(item: Any) -> bool:
    """Return whether an item of a list is a row or a value, and not a table."""
    if isinstance(item, Mapping):
        columns = [v for v in item.values() if hasattr(v, "__len__") and not _is_path(v)]
        return bool(item) and not columns
    return isinstance(item, list | tuple | Number | NoneType)


def _is_path(item: Any) -> bool:
    return isinstance(item, str | bytes | os.PathLike)
