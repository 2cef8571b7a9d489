"""Paths, patterns and folders of CSV and Parquet files, as parts that can be read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp.data.csv_files import csv_file
from vcomp.data.parts import Part, arrow_part, guarded, reason
from vcomp.data.paths import DataFile, data_files
from vcomp.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd
    from pyarrow.parquet import ParquetFile

__all__ = [
    "CONTAINERS",
    "open_paths",
    "parquet_file",
]


_MAGIC = b"PAR1"


def parquet_file(path: Path, name: str) -> Part:
    """Return a Parquet file as a part; only its end, which says what is in it, is read now.

    Raises
    ------
    DataError
        If it is no Parquet file, or one that is cut short.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
            empty = _empty_columns(metadata)
    except (pa.ArrowException, OSError) as error:
        raise _not_parquet(path, name, error) from None

    def refuse(error: BaseException) -> DataError:
        return DataError(f"{name!r} cannot be read: {reason(error)}; it may be damaged")

    def read(names: list[str]) -> Any:
        try:
            # A file by itself: a folder called day=3 above it adds no column.
            with _opened(path, schema, metadata, names) as file:
                return file.read(columns=names).select(names)
        except (pa.ArrowException, OSError) as error:
            raise refuse(error) from None

    def batches(names: list[str], rows: int) -> Iterator[Any]:
        with guarded_open(names) as file:
            yield from guarded(file.iter_batches(batch_size=rows, columns=names), refuse)

    def guarded_open(names: list[str]) -> ParquetFile:
        try:
            return _opened(path, schema, metadata, names, ahead=False)
        except (pa.ArrowException, OSError) as error:
            raise refuse(error) from None

    filled = pa.schema([field for field in schema if field.name not in empty])
    return arrow_part(
        name,
        schema.names,
        read,
        batches,
        n_rows=metadata.num_rows,
        schema=filled,
        rows_to_come=lambda: float(metadata.num_rows),
        files=(path,),
    )


def _empty_columns(metadata: Any) -> set[str]:
    """Return the columns without a value, of which a declared type says nothing.

    What is missing throughout has often become floats, whatever the column holds elsewhere.
    """
    columns = range(metadata.num_columns)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return {
        metadata.schema.column(j).path
        for j in columns
        if all(_is_empty(group.column(j).statistics, group.num_rows) for group in groups)
    }


def _is_empty(statistics: Any, n_rows: int) -> bool:
    known = statistics is not None and statistics.has_null_count
    return n_rows == 0 or (known and statistics.null_count == n_rows)


def _opened(
    path: Path, schema: Any, metadata: Any, names: list[str], *, ahead: bool = True
) -> ParquetFile:
    """Open the file, whose end was read; text is read as the dictionaries that it is stored in.

    Without reading ahead a pass needs the memory of the batch, not that of the row group.
    """
    import pyarrow.parquet as pq
    from pyarrow import types

    text = [n for n in names if types.is_string(t := schema.field(n).type) or _is_large(t)]
    # Checksums of pages, where the writer made some, are all that distinguishes changed numbers.
    options: dict[str, Any] = {
        "metadata": metadata,
        "read_dictionary": text,
        "page_checksum_verification": True,
    }
    if not ahead:
        options |= {"pre_buffer": False, "buffer_size": 1 << 20}
    return pq.ParquetFile(path, **options)


def _is_large(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_large_string(kind))


def _not_parquet(path: Path, name: str, error: BaseException) -> DataError:
    if isinstance(error, OSError) and error.errno:  # the file is gone, or not to be read
        return DataError(f"{name!r} cannot be read: {os.strerror(error.errno)}")
    try:
        with path.open("rb") as file:
            begun = file.read(4) == _MAGIC
    except OSError:
        begun = False
    if begun:
        return DataError(
            f"{name!r} is cut short or damaged: it begins as a Parquet file, and its end, which "
            "says what is in it, cannot be read; copy or write it again"
        )
    return DataError(f"{name!r} is not a Parquet file: {reason(error)}")


CONTAINERS = (
    "a pandas or polars DataFrame, a polars LazyFrame, a pyarrow Table, Dataset or "
    "RecordBatchReader, a DuckDB relation, a dict of arrays, a list or iterator of frames, or the "
    "path of a CSV or Parquet file, of a folder of them, or a pattern such as 'runs/*.parquet'"
)


def open_paths(paths: Iterable[object]) -> tuple[Part, ...]:
    """Find out what the files are, and their columns; rows are read later.

    Raises
    ------
    DataError
        If there is no such file, or one is not what its name says.
    """
    parts = []
    for file in data_files(paths):
        before = _stamp(file)
        open_file = parquet_file if file.kind == "parquet" else csv_file
        part = _as_it_was(open_file(file.path, file.name), file, before)
        parts.append(_in_folders(part, file.folders))
    return tuple(parts)


def _stamp(file: DataFile) -> tuple[int, int]:
    """Return size and time of a file, which change when it does."""
    try:
        found = file.path.stat()
    except OSError as error:
        raise DataError(f"{file.name!r} cannot be read: {error.strerror}") from None
    return found.st_size, found.st_mtime_ns


def _as_it_was(part: Part, file: DataFile, before: tuple[int, int]) -> Part:
    """Return the part, which looks whether the file is still as it was before it is read."""

    def check() -> None:
        if _stamp(file) != before:
            raise DataError(
                f"{file.name!r} is not the file any more that was opened; files are read more "
                "than once, and they have to stay as they were"
            )

    def read(names: list[str]) -> pd.DataFrame:
        check()
        return part.read(names)

    def slices(names: list[str], rows: int) -> Iterator[tuple[pd.DataFrame, str | None]]:
        check()
        yield from part.slices(names, rows)

    return replace(part, read=read, slices=slices)


def _in_folders(part: Part, folders: Mapping[str, int | str | None]) -> Part:
    """Return the part with the columns that its folders are named after; its own come first."""
    added = {name: value for name, value in folders.items() if name not in part.columns}
    if not added:
        return part

    def complete(frame: pd.DataFrame, names: list[str], n_rows: int) -> pd.DataFrame:
        import pandas as pd

        columns = {
            name: _repeated(added[name], n_rows) if name in added else frame[name]
            for name in names
        }
        return pd.DataFrame(columns, copy=False)

    def inside(names: list[str]) -> list[str]:
        # Without any column of the file nobody knows how many rows there are.
        return [name for name in names if name not in added] or [part.columns[0]]

    def read(names: list[str]) -> pd.DataFrame:
        frame = part.read(inside(names))
        return complete(frame, names, len(frame))

    def slices(names: list[str], rows: int) -> Iterator[tuple[pd.DataFrame, str | None]]:
        for frame, file in part.slices(inside(names), rows):
            yield complete(frame, names, len(frame)), file

    kinds = {
        n: "text" if isinstance(v, str) else "numbers" for n, v in added.items() if v is not None
    }
    return replace(
        part,
        columns=(*part.columns, *added),
        read=read,
        slices=slices,
        kinds={**part.kinds, **kinds},
    )


def _repeated(value: int | str | None, n_rows: int) -> object:
    import pandas as pd

    if isinstance(value, int):
        return np.full(n_rows, value)
    codes = np.full(n_rows, -1 if value is None else 0, dtype=np.int8)
    categories: pd.Index = pd.Index([] if value is None else [value])
    return pd.Categorical.from_codes(codes, categories=categories)
