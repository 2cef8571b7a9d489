"""Paths, patterns and folders of CSV and Parquet files, as parts that can be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vcomp.exceptions import DataError
from vcomp.io.csv_files import csv_file
from vcomp.io.parquet import parquet_file
from vcomp.io.parts import Part
from vcomp.io.paths import DataFile, data_files

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CONTAINERS", "open_paths"]

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
