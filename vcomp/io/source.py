"""One interface over the containers that hold data: column names, and columns by name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Source", "nearest", "open_source"]

_CONTAINERS = (
    "a pandas or polars DataFrame, a pyarrow Table, a dict of arrays, "
    "or the path of a CSV or Parquet file"
)

_EXACT = 2.0**53
"""Whole numbers from here on are not all floats."""


@dataclass(frozen=True, slots=True)
class Source:
    """Data that were opened, not yet read."""

    columns: tuple[str, ...]
    read_columns: Callable[[list[str]], pd.DataFrame]

    def read(self, names: Sequence[str]) -> pd.DataFrame:
        """Read the columns `names` into a pandas frame; nothing else is read.

        Raises
        ------
        DataError
            If a column is not there (the message names the nearest), or its name stands twice.
        """
        for name in names:
            if name not in self.columns:
                raise self.no_column(name)
            if self.columns.count(name) > 1:
                raise DataError(f"the data have {self.columns.count(name)} columns named {name!r}")
        return _native(self.read_columns(list(names)))

    def no_column(self, name: str) -> DataError:
        """Return the error that says that a column is not there, and which are."""
        if not self.columns:
            return DataError(f"there is no column {name!r} in the data, which have no columns")
        shown = ", ".join(map(repr, self.columns[:20])) + (" …" if len(self.columns) > 20 else "")
        return DataError(
            f"there is no column {name!r} in the data{nearest(name, self.columns)}; "
            f"the columns are {shown}"
        )


def open_source(data: Any) -> Source:
    """Open `data` whatever container it comes in.

    Parameters
    ----------
    data : pandas frame, mapping of names to one-dimensional arrays, anything with an Arrow stream
        (polars frame, pyarrow Table), or the path of a ``.csv``, ``.tsv``, ``.csv.gz`` or
        ``.parquet`` file

    Raises
    ------
    DataError
        If it is none of these, or the file cannot be read as what its name says.
    """
    import pandas as pd

    if isinstance(data, pd.DataFrame):
        return Source(tuple(map(str, data.columns)), lambda names: _from_pandas(data, names))
    if isinstance(data, str | os.PathLike):
        return _open_path(os.fspath(data))
    if isinstance(data, Mapping):
        return Source(tuple(map(str, data)), lambda names: _from_mapping(data, names))
    if hasattr(data, "__arrow_c_stream__"):
        return _open_arrow(data)
    hint = "; call .collect() first" if type(data).__name__ == "LazyFrame" else ""
    raise DataError(f"data of type {type(data).__name__} cannot be read{hint}; give {_CONTAINERS}")


def nearest(name: str, known: Sequence[str]) -> str:
    """Return ``", did you mean 'topic'?"``, or nothing when no name is near.

    Examples
    --------
    >>> nearest("topc", ["sys", "topic"])
    " (did you mean 'topic'?)"
    """
    by_lower = {k.lower(): k for k in known}
    close = get_close_matches(name.lower(), list(by_lower), n=1)
    return f" (did you mean {by_lower[close[0]]!r}?)" if close else ""


def _from_pandas(data: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    columns = {str(column): column for column in data.columns}
    frame = data[[columns[name] for name in names]]
    return frame.set_axis(names, axis=1).reset_index(drop=True)


def _from_mapping(data: Mapping[Any, Any], names: list[str]) -> pd.DataFrame:
    import pandas as pd

    keys = {str(key): key for key in data}  # a value may be read from a file when it is asked for
    columns = {name: _one_column(name, data[keys[name]]) for name in names}
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(
            "the columns differ in length: " + ", ".join(f"{k!r} {n}" for k, n in lengths.items())
        )
    return pd.DataFrame(columns, copy=False)


def _one_column(name: str, values: Any) -> Any:
    """Return an array without an index; of a list what pandas makes of its values."""
    import pandas as pd

    if isinstance(values, np.ma.MaskedArray):
        present = values.data.astype(object)
        present[np.ma.getmaskarray(values)] = None
        values = pd.Series(present).infer_objects()
    elif isinstance(values, list | tuple | range) and len(values):
        # numpy would turn ["a", nan] and [1, "a"] into text.
        nested = isinstance(values[0], list | np.ndarray)
        values = np.empty((0, 0)) if nested else pd.Series(list(values))
    elif not isinstance(values, pd.Series | pd.Categorical | pd.Index):
        values = np.asarray(values)
    if values.ndim != 1:
        what = f"has {values.ndim} dimensions" if values.ndim else f"is a {_kind(values)}"
        raise DataError(f"column {name!r} {what}; it needs one value a row, in a list or an array")
    if values.dtype.kind == "S":
        values = values.astype(object)
    return values.array if isinstance(values, pd.Series | pd.Index) else values


def _kind(scalar: Any) -> str:
    return type(scalar.item()).__name__


def _native(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with the machine's byte order, which pandas cannot group without."""
    swapped = {
        name: dtype.newbyteorder("=")
        for name, dtype in frame.dtypes.items()
        if isinstance(dtype, np.dtype) and not dtype.isnative
    }
    return frame.astype(swapped) if swapped else frame


def _open_arrow(data: Any) -> Source:
    import pyarrow as pa

    try:
        table = data if isinstance(data, pa.Table) else pa.table(data)
    except pa.ArrowInvalid:
        raise DataError(
            f"data of type {type(data).__name__} is one column, not a table; give {_CONTAINERS}"
        ) from None
    return Source(tuple(table.column_names), lambda names: _from_arrow(table.select(names)))


def _from_arrow(table: Any) -> pd.DataFrame:
    """Convert; text becomes categories inside Arrow, which is far cheaper than in Python."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for position, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            encoded = pc.dictionary_encode(table.column(position))
            table = table.set_column(position, field.name, encoded)
        elif field.type in (pa.string_view(),):
            encoded = pc.dictionary_encode(table.column(position).cast(pa.large_string()))
            table = table.set_column(position, field.name, encoded)
    # A column that was an index of pandas is a column like any other.
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame


def _open_path(name: str | bytes) -> Source:
    text = os.fsdecode(name)
    if not text:
        raise DataError(f"the path of the data is empty; give {_CONTAINERS}")
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


def _open_parquet(path: Path) -> Source:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def read(wanted: list[str]) -> pd.DataFrame:
        try:
            # A file by itself: a folder called day=3 above it adds no column.
            table = pq.ParquetFile(path).read(columns=wanted)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path.name!r} cannot be read: {_first_line(error)}") from None
        return _from_arrow(table)

    try:
        names = tuple(pq.read_schema(path).names)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path.name!r} is not a Parquet file: {_first_line(error)}") from None
    return Source(names, read)


def _open_csv(path: Path, separator: str) -> Source:
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
        return _from_arrow(table)

    return Source(names, read)


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
