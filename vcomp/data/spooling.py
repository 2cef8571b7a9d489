"""Parquet files that are written: rows that can be read only once, and results row by row."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp.data.parts import Part, reason
from vcomp.data.source import Source, open_source
from vcomp.data.written_files import path_of, removed_on_termination, renamed, target_of
from vcomp.display import count
from vcomp.exceptions import DataError, guarded

if TYPE_CHECKING:
    import pandas as pd

_SPOOLED = "path= on a disk with more room, or fewer columns, columns="
"""Advice for a full disk."""


@guarded
def spool(
    data: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    columns: Sequence[str] | None = None,
) -> Source:
    """Write rows to a Parquet file a batch at a time, and open it.

    Data that can be read only once (an iterator of frames, a RecordBatchReader) can then be
    read as often as needed, and never has to be in memory as a whole.

    Parameters
    ----------
    data : what :func:`vcomp.io.open_source` opens
    path : of the file, which stays, ending in ``.parquet``; one that is there is replaced once
        all rows are written. None for a temporary file, which is removed when the returned source
        is no longer used, at the latest when Python ends
    columns : those to write; None for all

    Returns
    -------
    Source

    Raises
    ------
    DataError
        If `data` cannot be read, a column does not exist, occurs twice, or holds values that
        a file cannot store (of several types), the path does not end in ``.parquet``, or the file
        cannot be written, as on a full disk. No unfinished file is left.

    Examples
    --------
    >>> import pandas as pd
    >>> runs = (pd.DataFrame({"sys": ["a", "b"], "score": [0.1 * i, 0.2]}) for i in range(3))
    >>> source = spool(runs)
    >>> source.n_rows
    6
    >>> len(source.read(["score"])) == len(source.read(["score"]))
    True
    """
    source = open_source(data)
    names = list(source.columns if columns is None else columns)
    if isinstance(columns, str) or len(set(names)) < len(names) or not names:
        raise DataError(f"columns={columns!r} is not known; it is a list of names, each once")
    if path is not None:
        target = parquet_path(path)
        _write(source, names, target)
        return open_source(target)
    folder = tempfile.mkdtemp(prefix="vcomp-")
    try:
        target = Path(folder, "rows.parquet")
        with removed_on_termination(Path(folder)):
            _write(source, names, target)
        opened = open_source(target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    parts = _Temporary(opened.open_parts)
    weakref.finalize(parts, shutil.rmtree, folder, ignore_errors=True)
    return replace(opened, open_parts=parts)


def parquet_path(
    path: str | os.PathLike[str], option: str = "path", files: Iterable[Path] = ()
) -> Path:
    """Return the path of a Parquet file that is to be written.

    Parameters
    ----------
    option : that gives it, for the message
    files : of the data, none of which is to be replaced

    Raises
    ------
    DataError
        If it is not a path, has another ending, is a folder or one of `files`, or there is no
        folder for it.
    """
    target = target_of(path, files)
    if path_of(path).suffix.lower() not in (".parquet", ".pq"):
        raise DataError(
            f"{option}={str(path)!r} does not end in .parquet; give it the ending of a Parquet "
            "file"
        )
    return target


class _Temporary:
    """Opens a temporary file, which exists as long as this object."""

    def __init__(self, open_parts: Callable[[], Iterable[Part]]) -> None:
        self._open_parts = open_parts

    def __call__(self) -> Iterable[Part]:
        return self._open_parts()


def _write(source: Source, names: list[str], target: Path) -> None:
    write_parquet((frame for frame, _ in source.batches(names)), target, _SPOOLED)


def write_parquet(frames: Iterable[pd.DataFrame], target: Path, instead: str) -> None:
    """Write frames to a file of another name, which is renamed when it is complete.

    Parameters
    ----------
    frames : with the same columns; each becomes a row group
    target : path of the file
    instead : what to give where the disk is full, for the message

    Raises
    ------
    DataError
        If it cannot be written, or values cannot be stored. No file is left then.
    """
    with renamed(target) as unfinished:
        writer = _Writer(unfinished, target, instead)
        try:
            for frame in frames:
                writer.add(frame)
            writer.finish()
        finally:
            writer.abandon()


class _Writer:
    """A Parquet file to which frames are added; its types widen when a frame needs it."""

    def __init__(self, unfinished: Path, target: Path, instead: str) -> None:
        self._unfinished, self._target, self._instead = unfinished, target, instead
        self._file: Any = None
        self._schema: Any = None

    def add(self, frame: pd.DataFrame) -> None:
        """Write the rows as a row group, categories with all of their dictionary."""
        import pyarrow as pa

        arrays = {str(name): _array(str(name), frame[name]) for name in frame.columns}
        schema = pa.schema({name: array.type for name, array in arrays.items()})
        before = self._schema
        self._schema = schema if before is None else _widened(before, schema)
        try:
            if before is None:
                self._file = self._opened(self._unfinished)
            elif self._schema != before:
                self._rewrite()
            self._file.write_table(_table(arrays, self._schema))
        except OSError as error:
            raise self._cannot(error) from None

    def _opened(self, path: Path) -> Any:
        from pyarrow.parquet import ParquetWriter

        try:
            # By default categories of more than a MiB would be written out row by row.
            return ParquetWriter(path, self._schema, dictionary_pagesize_limit=1 << 30)
        except NotImplementedError as error:
            bad = next((f.name for f in self._schema if str(f.type) in str(error)), None)
            raise _no_place(bad, error) from None

    def _rewrite(self) -> None:
        """Write the rows so far again, in the wider types."""
        from pyarrow.parquet import ParquetFile

        self._file.close()
        narrow = self._unfinished.with_suffix(".narrow")
        os.replace(self._unfinished, narrow)
        try:
            self._file = self._opened(self._unfinished)
            with ParquetFile(narrow, pre_buffer=False) as file:
                for batch in file.iter_batches(batch_size=1 << 18):
                    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                    self._file.write_table(_table(columns, self._schema))
        finally:
            narrow.unlink()

    def finish(self) -> None:
        """Close the file."""
        if self._file is None:
            raise DataError("the data have no rows")
        try:
            self._file.close()
        except OSError as error:
            raise self._cannot(error) from None

    def abandon(self) -> None:
        """Close the file if it was not finished."""
        if self._file is not None:
            with suppress(OSError):  # the disk is full still
                self._file.close()

    def _cannot(self, error: OSError) -> DataError:
        why = os.strerror(error.errno) if error.errno else reason(error)
        what = f"cannot write {str(self._target)!r}: {why}"
        try:
            written = self._unfinished.stat().st_size
            free = shutil.disk_usage(self._target.parent).free + written
        except OSError:
            return DataError(what)
        return DataError(
            f"{what}, after {_mib(written)} of rows where {_mib(free)} were free. Nothing is left "
            f"of them; give {self._instead}"
        )


def _mib(n_bytes: int) -> str:
    return f"{count(round(n_bytes / 2**20))} MiB"


def _no_place(name: str | None, error: Exception) -> DataError:
    which = "a column" if name is None else f"column {name!r}"
    return DataError(
        f"{which} cannot be stored in a Parquet file: {reason(error)}; give its values one type, "
        "text for instance"
    )


def _array(name: str, column: pd.Series) -> Any:
    """Return the column in Arrow's form, text and categories as dictionaries."""
    import pandas as pd
    import pyarrow as pa

    try:
        if not isinstance(column.dtype, pd.CategoricalDtype):
            array = pa.array(column, from_pandas=True)
            is_text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
            return array.cast(pa.large_string()).dictionary_encode() if is_text else array
        values = pa.array(column.cat.categories)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise _no_place(name, error) from None
    codes = column.cat.codes.to_numpy()
    indices = pa.array(codes.astype(np.int32), mask=codes < 0)
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return values.take(indices)  # in a Parquet file only text is stored as categories
    in_order = column.cat.categories.is_monotonic_increasing
    values = values.cast(pa.large_string())
    return pa.DictionaryArray.from_arrays(indices, values, ordered=not in_order)


def _widened(before: Any, new: Any) -> Any:
    """Return types that hold the values written before and the new ones."""
    import pyarrow as pa

    fields = []
    for field in before:
        kinds = [field.type, new.field(field.name).type]
        known = [kind for kind in kinds if not pa.types.is_null(kind)] or kinds
        try:
            fields.append(pa.field(field.name, _wider(known[0], known[-1])))
        except pa.ArrowException:
            first, later = ("text" if pa.types.is_dictionary(k) else k for k in known)
            raise DataError(
                f"column {field.name!r} is of type {first} first and {later} later; "
                "a file has one type for all rows",
                column=field.name,
            ) from None
    return pa.schema(fields)


def _wider(one: Any, other: Any) -> Any:
    """Return a type for both; of categories the first, which says whether they have an order."""
    import pyarrow as pa

    coded = [pa.types.is_dictionary(kind) for kind in (one, other)]
    if all(coded) or one == other:
        return one
    if any(coded):
        raise pa.ArrowTypeError("text and something else")
    schemas = [pa.schema([("column", kind)]) for kind in (one, other)]
    return pa.unify_schemas(schemas, promote_options="permissive").field(0).type


def _table(arrays: Mapping[str, Any], schema: Any) -> Any:
    import pyarrow as pa

    columns = []
    for field in schema:
        try:
            columns.append(_cast(arrays[field.name], field.type))
        except pa.ArrowException as error:
            raise DataError(
                f"column {field.name!r} cannot be written as {field.type}, the type of other "
                f"rows: {reason(error)}",
                column=field.name,
            ) from None
    return pa.table(columns, schema=schema)


def _cast(array: Any, kind: Any) -> Any:
    import pyarrow as pa

    if array.type == kind:
        return array
    if not pa.types.is_dictionary(kind):
        return array.cast(kind)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    values = array.dictionary.cast(kind.value_type)
    return pa.DictionaryArray.from_arrays(
        array.indices.cast(pa.int32()), values, ordered=kind.ordered
    )
