"""One interface over the containers that hold data: column names, and columns by name."""

from __future__ import annotations

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
                raise DataError(
                    f"there is no column {name!r} in the data{nearest(name, self.columns)}; "
                    f"the columns are {', '.join(map(repr, self.columns[:20]))}"
                    + (" …" if len(self.columns) > 20 else "")
                )
            if self.columns.count(name) > 1:
                raise DataError(f"the data have {self.columns.count(name)} columns named {name!r}")
        return self.read_columns(list(names))


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
    if isinstance(data, str | Path):
        return _open_path(Path(data))
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

    by_name = {str(key): values for key, values in data.items()}
    columns: dict[str, Any] = {}
    for name in names:
        values = by_name[name]
        if not isinstance(values, pd.Series | pd.Categorical | pd.Index):
            values = np.asarray(values)
        if values.ndim != 1:
            raise DataError(f"column {name!r} has {values.ndim} dimensions; it needs one")
        columns[name] = values.array if isinstance(values, pd.Series | pd.Index) else values
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(
            "the columns differ in length: " + ", ".join(f"{k!r} {n}" for k, n in lengths.items())
        )
    return pd.DataFrame(columns, copy=False)


def _open_arrow(data: Any) -> Source:
    import pyarrow as pa

    table = data if isinstance(data, pa.Table) else pa.table(data)
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
    frame: pd.DataFrame = table.to_pandas()
    return frame


def _open_path(path: Path) -> Source:
    if any(mark in str(path) for mark in "*?["):
        raise DataError(f"{str(path)!r} is a pattern; one file at a time can be read")
    if not path.exists():
        raise DataError(f"there is no file {str(path)!r}")
    if path.is_dir():
        raise DataError(f"{str(path)!r} is a folder; give the path of one CSV or Parquet file")
    suffixes = [s.lower() for s in path.suffixes]
    kind = next((s for s in reversed(suffixes) if s not in (".gz", ".bz2", ".xz", ".zst")), "")
    if kind in (".parquet", ".pq"):
        return _open_parquet(path)
    if kind in (".csv", ".tsv", ".txt"):
        return _open_csv(path)
    raise DataError(
        f"cannot tell what {path.name!r} is; files end in .csv, .tsv (also .gz) or .parquet"
    )


def _open_parquet(path: Path) -> Source:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = tuple(pq.read_schema(path).names)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path.name!r} is not a Parquet file: {_first_line(error)}") from None
    return Source(names, lambda wanted: _from_arrow(pq.read_table(path, columns=wanted)))


def _open_csv(path: Path) -> Source:
    import pandas as pd

    separator = "\t" if ".tsv" in path.suffixes else ","

    def read(**options: Any) -> pd.DataFrame:
        try:
            frame: pd.DataFrame = pd.read_csv(path, sep=separator, **options)
        except (ValueError, OSError, EOFError) as error:  # ParserError and UnicodeError are values
            message = f"{path.name!r} cannot be read as CSV: {_first_line(error)}"
            raise DataError(message) from None
        return frame

    header = read(nrows=0)
    if header.shape[1] == 1:
        # A lone column is usually a file with another separator; its name then holds it.
        found = [mark for mark in (";", "\t", "|") if mark in str(header.columns[0])]
        if found:
            separator = found[0]
            header = read(nrows=0)
    if any("\x00" in str(name) for name in header.columns):
        raise DataError(f"{path.name!r} is not a CSV file: it holds binary data")
    names = tuple(map(str, header.columns))
    return Source(names, lambda wanted: read(usecols=wanted, low_memory=False)[wanted])


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
