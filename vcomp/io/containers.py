"""Tables in memory and queries that make them, as parts that can be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from vcomp.exceptions import DataError
from vcomp.io.columns import one_column
from vcomp.io.parts import Part, ReadTable, arrow_part

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "arrow_table",
    "dataset",
    "lazy_polars",
    "mapping",
    "pandas_frame",
    "record_batches",
    "relation",
]


def pandas_frame(data: pd.DataFrame) -> Part:
    """Return a frame as a part; rows are selected before columns, which copies no more of them."""
    columns = {str(column): column for column in data.columns}

    def select(frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
        selected = frame[[columns[name] for name in names]]
        return selected.set_axis(names, axis=1).reset_index(drop=True)

    def slices(names: list[str], rows: int) -> Iterator[pd.DataFrame]:
        for first in range(0, len(data), rows):
            yield select(data.iloc[first : first + rows], names)

    return Part(
        name=None,
        columns=tuple(map(str, data.columns)),
        read=lambda names: select(data, names),
        slices=slices,
        n_rows=len(data),
    )


def mapping(data: Mapping[Any, Any]) -> Part:
    """Return arrays by name as a part; one is looked up only when it is asked for."""
    keys = {str(key): key for key in data}

    def arrays(names: list[str]) -> dict[str, Any]:
        columns = {name: one_column(name, data[keys[name]]) for name in names}
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(
                "the columns differ in length: "
                + ", ".join(f"{name!r} {length}" for name, length in lengths.items())
            )
        return columns

    def read(names: list[str]) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(arrays(names), copy=False)

    def slices(names: list[str], rows: int) -> Iterator[pd.DataFrame]:
        import pandas as pd

        columns = arrays(names)
        for first in range(0, len(next(iter(columns.values()), ())), rows):
            part = {name: values[first : first + rows] for name, values in columns.items()}
            yield pd.DataFrame(part, copy=False)

    return Part(None, tuple(map(str, data)), read, slices)


def arrow_table(data: Any) -> Part:
    """Return anything with an Arrow stream as a part: a table, or a frame of another library.

    Raises
    ------
    pyarrow.ArrowInvalid
        If it is a column and no table.
    """
    import pyarrow as pa

    if type(data).__module__.startswith("polars") and hasattr(data, "select"):
        columns = tuple(data.columns)
        return _table(columns, lambda names: pa.table(data.select(names)), len(data))
    table = data if isinstance(data, pa.Table) else pa.table(data)
    return _table(table.column_names, table.select, table.num_rows, table.schema)


def _table(columns: Iterable[str], select: ReadTable, n_rows: int, schema: Any = None) -> Part:
    def batches(names: list[str], rows: int) -> Iterable[Any]:
        batches: Iterable[Any] = select(names).to_batches(max_chunksize=rows)
        return batches

    return arrow_part(None, columns, select, batches, n_rows=n_rows, schema=schema)


def lazy_polars(data: Any) -> Part:
    """Return a LazyFrame of polars as a part: only the columns asked for are collected."""
    import pyarrow as pa

    def batches(names: list[str], rows: int) -> Iterator[Any]:
        query = data.select(names)
        if not hasattr(query, "collect_batches"):  # before polars 1.34
            yield from pa.table(query.collect()).to_batches()
            return
        for frame in query.collect_batches(chunk_size=rows, maintain_order=True):
            yield from pa.table(frame).to_batches()

    def count() -> float:
        import polars

        return float(data.select(polars.len()).collect().item())

    return arrow_part(
        None,
        data.collect_schema().names(),
        lambda names: pa.table(data.select(names).collect()),
        batches,
        rows_to_come=count,
    )


def relation(data: Any) -> Part:
    """Return a relation of DuckDB as a part: a query for the columns runs when they are read."""
    import pyarrow as pa

    def stream(names: list[str]) -> Any:
        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
        return pa.RecordBatchReader.from_stream(data.project(quoted))

    return arrow_part(
        None,
        data.columns,
        lambda names: stream(names).read_all(),
        lambda names, rows: stream(names),
        rows_to_come=lambda: float(data.count("*").fetchone()[0]),
    )


def dataset(data: Any) -> Part:
    """Return a Dataset of pyarrow as a part; few of its batches are read ahead."""

    def batches(names: list[str], rows: int) -> Iterable[Any]:
        found: Iterable[Any] = data.to_batches(
            columns=names, batch_size=rows, batch_readahead=2, fragment_readahead=1
        )
        return found

    return arrow_part(
        None,
        data.schema.names,
        lambda names: data.to_table(columns=names),
        batches,
        schema=data.schema,
        rows_to_come=lambda: float(data.count_rows()),
    )


def record_batches(data: Any) -> Part:
    """Return a RecordBatchReader as a part, of which only one pass can be made."""

    def batches(names: list[str], rows: int) -> Iterator[Any]:
        positions = [data.schema.get_field_index(name) for name in names]
        n_read = 0
        for batch in data:
            n_read += batch.num_rows
            yield batch.select(positions)
        if not n_read:
            raise DataError("the stream gave no rows: it is empty, or was read before")

    def read(names: list[str]) -> Any:
        import pyarrow as pa

        schema = pa.schema([data.schema.field(name) for name in names])
        return pa.Table.from_batches(list(batches(names, 0)), schema=schema)

    return arrow_part(None, data.schema.names, read, batches, schema=data.schema)
