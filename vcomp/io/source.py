"""One interface over the containers that hold data: column names, and columns by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vcomp.exceptions import DataError, did_you_mean
from vcomp.io.columns import from_arrow, native, one_column
from vcomp.io.files import CONTAINERS, open_path

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Source", "open_source"]


@dataclass(frozen=True, slots=True)
class Source:
    """Data that were opened, not yet read."""

    columns: tuple[str, ...]
    read_columns: Callable[[list[str]], pd.DataFrame]
    row_labels: pd.Index | None = None
    """Of a pandas frame, for what is given back row by row; None where rows are just numbered."""

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
        return native(self.read_columns(list(names)))

    def no_column(self, name: str) -> DataError:
        """Return the error that says that a column is not there, and which are."""
        if not self.columns:
            return DataError(f"there is no column {name!r} in the data, which have no columns")
        shown = ", ".join(map(repr, self.columns[:20])) + (" …" if len(self.columns) > 20 else "")
        return DataError(
            f"there is no column {name!r} in the data{did_you_mean(name, self.columns)}; "
            f"the columns are {shown}"
        )


def open_source(data: Any) -> Source:
    """Open `data` whatever container it comes in.

    Parameters
    ----------
    data : pandas frame, mapping of names to one-dimensional arrays, anything with an Arrow stream
        (polars frame, pyarrow Table), or the path of a ``.csv``, ``.tsv``, ``.csv.gz`` or
        ``.parquet`` file; what was opened before stays as it is

    Raises
    ------
    DataError
        If it is none of these, or the file cannot be read as what its name says.
    """
    import pandas as pd

    if isinstance(data, Source):
        return data
    if isinstance(data, pd.DataFrame):
        names = tuple(map(str, data.columns))
        return Source(names, lambda wanted: _from_pandas(data, wanted), data.index)
    if isinstance(data, str | os.PathLike):
        return Source(*open_path(os.fspath(data)))
    if isinstance(data, Mapping):
        return Source(tuple(map(str, data)), lambda names: _from_mapping(data, names))
    if isinstance(data, pd.Series):
        raise _not_a_table(data)
    if hasattr(data, "__arrow_c_stream__"):
        return _open_arrow(data)
    hint = "; call .collect() first" if type(data).__name__ == "LazyFrame" else ""
    raise DataError(f"data of type {type(data).__name__} cannot be read{hint}; give {CONTAINERS}")


def _from_pandas(data: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    columns = {str(column): column for column in data.columns}
    frame = data[[columns[name] for name in names]]
    return frame.set_axis(names, axis=1).reset_index(drop=True)


def _from_mapping(data: Mapping[Any, Any], names: list[str]) -> pd.DataFrame:
    import pandas as pd

    keys = {str(key): key for key in data}  # a value may be read from a file when it is asked for
    columns = {name: one_column(name, data[keys[name]]) for name in names}
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(
            "the columns differ in length: " + ", ".join(f"{k!r} {n}" for k, n in lengths.items())
        )
    return pd.DataFrame(columns, copy=False)


def _not_a_table(data: Any) -> DataError:
    name = type(data).__name__
    return DataError(f"data of type {name} is one column, not a table; give {CONTAINERS}")


def _open_arrow(data: Any) -> Source:
    import pyarrow as pa

    try:
        table = data if isinstance(data, pa.Table) else pa.table(data)
    except pa.ArrowInvalid:
        raise _not_a_table(data) from None
    return Source(tuple(table.column_names), lambda names: from_arrow(table.select(names)))
