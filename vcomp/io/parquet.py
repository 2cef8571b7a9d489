"""Parquet files as parts: columns by name, row groups one after another."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcomp.exceptions import DataError
from vcomp.io.parts import Part, arrow_part, guarded, reason

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

__all__ = ["parquet_file"]

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
    # Checksums of pages, where the writer made some, are all that tells changed numbers.
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
