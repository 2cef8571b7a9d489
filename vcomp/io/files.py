"""CSV and Parquet files: what they are, their columns, and columns by name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from vcomp.exceptions import DataError
from vcomp.io.columns import from_arrow

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CONTAINERS", "open_path"]

CONTAINERS = (
    "a pandas or polars DataFrame, a pyarrow Table, a dict of arrays, "
    "or the path of a CSV or Parquet file"
)

_EXACT = 2.0**53
"""Whole numbers from here on are not all floats."""

Opened: TypeAlias = "tuple[tuple[str, ...], Callable[[list[str]], pd.DataFrame]]"
"""Names of the columns, and what reads some of them."""


def open_path(name: str | bytes) -> Opened:
    """Find out what the file `name` is, and its columns; rows are read later.

    Raises
    ------
    DataError
        If there is no such file, or it is not what its name says.
    """
    text = os.fsdecode(name)
    if not text:
        raise DataError(f"the path of the data is empty; give {CONTAINERS}")
    if "://" in text:
        raise DataError(f"{text!r} is an address; download the file first")
    path = Path(text).expanduser()
    if os.path.isdir(path):
        raise DataError(f"{str(path)!r} is a folder; give the path of one CSV or Parquet file")
    if not os.path.exists(path):
        if any(mark in str(path) for mark in "*?["):
            raise DataError(f"{str(path)!r} is a pattern; one file at a time can be read")
        shown = str(path) if len(str(path)) <= 200 else f"{str(path)[:200]} …"
        raise DataError(f"there is no file {shown!r}")
    suffixes = [s.lower() for s in path.suffixes]
    kind = next((s for s in reversed(suffixes) if s not in (".gz", ".bz2", ".zst")), "")
    if kind in (".parquet", ".pq"):
        return _open_parquet(path)
    if kind in (".csv", ".tsv", ".tab", ".txt"):
        return _open_csv(path, "\t" if kind in (".tsv", ".tab") else ",")
    raise DataError(
        f"cannot tell what {path.name!r} is; files end in .csv, .tsv (also .gz) or .parquet"
    )


def _open_parquet(path: Path) -> Opened:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def read(wanted: list[str]) -> pd.DataFrame:
        try:
            # A file by itself: a folder called day=3 above it adds no column.
            table = pq.ParquetFile(path).read(columns=wanted)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path.name!r} cannot be read: {_first_line(error)}") from None
        return from_arrow(table)

    try:
        names = tuple(pq.read_schema(path).names)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path.name!r} is not a Parquet file: {_first_line(error)}") from None
    return names, read


def _open_csv(path: Path, separator: str) -> Opened:
    """Open with Arrow's reader, which takes no row that is longer or shorter than the header."""
    separator = _separator(path, separator)
    names = _csv_names(path, separator)

    def read(wanted: list[str]) -> pd.DataFrame:
        table = _read_csv(path, separator, wanted)
        rounded = _rounded_integers(table)
        if rounded:
            table = _read_csv(path, separator, wanted, as_text=rounded)
        if any(str(field.type) == "binary" for field in table.schema):
            raise _not_text(path)
        return from_arrow(table)

    return names, read


def _separator(path: Path, usual: str) -> str:
    """Return what separates the names in the first line, whatever the file is called."""
    import pyarrow as pa

    try:
        with pa.input_stream(str(path)) as stream:
            start = stream.read(1 << 16)
    except (ValueError, OSError) as error:
        raise _not_csv(path, error) from None
    if b"\x00" in start:
        raise _not_text(path)
    unquoted = re.sub(rb'"[^"]*"', b"", start.lstrip().split(b"\n", 1)[0])
    return next(
        (mark for mark in (usual, ",", ";", "\t", "|") if mark.encode() in unquoted), usual
    )


def _csv_names(path: Path, separator: str) -> tuple[str, ...]:
    """Return the names of the header; nothing below the first block is read."""
    from pyarrow.csv import ParseOptions, open_csv

    options = ParseOptions(delimiter=separator, newlines_in_values=True)
    try:
        with open_csv(path, parse_options=options) as reader:
            return tuple(reader.schema.names)
    except UnicodeDecodeError:
        raise _not_text(path) from None
    except (ValueError, OSError) as error:  # ArrowInvalid is a ValueError
        raise _not_csv(path, error) from None


def _read_csv(path: Path, separator: str, wanted: list[str], as_text: Sequence[str] = ()) -> Any:
    import pyarrow as pa
    from pyarrow.csv import ConvertOptions, ParseOptions, read_csv

    try:
        return read_csv(
            path,
            parse_options=ParseOptions(delimiter=separator, newlines_in_values=True),
            convert_options=ConvertOptions(
                include_columns=wanted,
                strings_can_be_null=True,
                column_types=dict.fromkeys(as_text, pa.string()),
            ),
        )
    except (ValueError, OSError) as error:
        raise _not_csv(path, error) from None


def _rounded_integers(table: Any) -> list[str]:
    """Return the columns of whole numbers too long for 64 bits: as floats, levels would merge."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rounded = []
    for position, field in enumerate(table.schema):
        if pa.types.is_float64(field.type) and len(table):
            column = table.column(position)
            largest = pc.max(pc.abs(column)).as_py()
            if largest is not None and _EXACT <= largest < np.inf:
                whole = pc.all(pc.equal(column, pc.floor(column))).as_py()
                rounded += [field.name] if whole else []
    return rounded


def _not_csv(path: Path, error: BaseException) -> DataError:
    reason = _first_line(error).removeprefix("CSV parse error: ")
    if "Empty CSV" in reason:
        return DataError(f"{path.name!r} is empty: it has no header, or a header and nothing else")
    if "\ufffd" in str(error) or not "".join(str(error).split()).isprintable():
        return _not_text(path)
    return DataError(f"{path.name!r} cannot be read as CSV: {reason}")


def _not_text(path: Path) -> DataError:
    return DataError(
        f"{path.name!r} is not text in UTF-8; if it is a table in another encoding, read it with "
        "pandas.read_csv(path, encoding='latin-1') and give the frame"
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
