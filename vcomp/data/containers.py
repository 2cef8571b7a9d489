"""Tables in memory, queries and streams as parts of the data; columns of several parts united."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from os.path import commonpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.data.column_values import EXACT
from vcomp.data.parts import Part, ReadTable, arrow_part, from_list, one_column, reason, refusing
from vcomp.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd


def mapping(data: Mapping[Any, Any]) -> Part:
    """Return arrays by name as a part; one is looked up only when it is read."""
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

    def slices(names: list[str], rows: int) -> Iterator[tuple[pd.DataFrame, None]]:
        import pandas as pd

        columns = arrays(names)
        for first in range(0, len(next(iter(columns.values()), ())), rows):
            part = {name: values[first : first + rows] for name, values in columns.items()}
            yield pd.DataFrame(part, copy=False), None

    return Part(None, tuple(map(str, data)), read, slices)


def arrow_table(data: Any) -> Part:
    """Return anything with an Arrow stream as a part: a table, or a frame of another library.

    Raises
    ------
    pyarrow.ArrowInvalid
        If it is a column and no table.
    DataError
        If the name of a column is not Unicode, as in a damaged file.
    """
    import pyarrow as pa

    if type(data).__module__.startswith("polars") and hasattr(data, "select"):
        return _table(data.columns, lambda names: _of_polars(data.select(names)), len(data))
    table = data if isinstance(data, pa.Table) else pa.table(data)
    try:
        names = table.column_names
    except UnicodeDecodeError as error:
        raise DataError(
            f"the name of a column of the table is not text in UTF-8 ({error}); rename the "
            "columns by table.rename_columns"
        ) from None
    return _table(names, table.select, table.num_rows, table.schema)


def _table(columns: Iterable[str], select: ReadTable, n_rows: int, schema: Any = None) -> Part:
    def batches(names: list[str], rows: int) -> Iterable[Any]:
        return select(names).to_batches(max_chunksize=rows)

    return arrow_part(None, columns, select, batches, n_rows=n_rows, schema=schema)


def _of_polars(frame: Any) -> Any:
    """Return the table of a polars frame.

    Raises
    ------
    DataError
        If Arrow has no such type; of Python's objects polars gives the addresses.
    """
    import polars
    import pyarrow as pa

    for name, kind in frame.schema.items():
        try:
            if kind == polars.Object:
                raise pa.ArrowInvalid
            pa.table(frame.select(name).head(0))
        except pa.ArrowException:
            raise DataError(
                f"column {name!r} is of the type {kind} of polars, which Arrow lacks; cast it "
                "to numbers or text",
                column=name,
            ) from None
    return pa.table(frame)


def lazy_polars(data: Any) -> Part:
    """Return a LazyFrame of polars as a part: only the columns that are read are collected.

    Raises
    ------
    DataError
        If polars cannot say what its columns are; when rows are read, if the query fails.
    """
    import polars

    errors = polars.exceptions.PolarsError
    refuse = _refusing("the query of polars")

    def frames(names: list[str], rows: int) -> Iterator[Any]:
        query = data.select(names)
        if not hasattr(query, "collect_batches"):  # before polars 1.34
            yield query.collect()
            return
        yield from query.collect_batches(chunk_size=rows, maintain_order=True)

    def batches(names: list[str], rows: int) -> Iterator[Any]:
        with refusing(refuse, errors):
            for frame in frames(names, rows):
                yield from _of_polars(frame).to_batches()

    def read(names: list[str]) -> Any:
        with refusing(refuse, errors):
            frame = data.select(names).collect()
        return _of_polars(frame)

    def count() -> float:
        with refusing(refuse, errors):
            return float(data.select(polars.len()).collect().item())

    with refusing(refuse, errors):
        columns = data.collect_schema().names()
    return arrow_part(None, columns, read, batches, rows_to_come=count)


def relation(data: Any) -> Part:
    """Return a relation of DuckDB as a part: a query for the columns runs when they are read.

    Raises
    ------
    DataError
        If its connection is closed; when rows are read, if the query fails.
    """
    import duckdb
    import pyarrow as pa

    refuse = _refusing("the query of DuckDB")

    def stream(names: list[str]) -> Any:
        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
        return pa.RecordBatchReader.from_stream(data.project(quoted))

    def read(names: list[str]) -> Any:
        with refusing(refuse, duckdb.Error):
            return stream(names).read_all()

    def batches(names: list[str], rows: int) -> Iterator[Any]:
        with refusing(refuse, duckdb.Error):
            yield from stream(names)

    def count() -> float:
        with refusing(refuse, duckdb.Error):
            return float(data.count("*").fetchall()[0][0])

    with refusing(refuse, duckdb.Error):
        columns = data.columns
    return arrow_part(None, columns, read, batches, rows_to_come=count)


def dataset(data: Any) -> Part:
    """Return a Dataset of pyarrow as a part; few of its batches are read ahead."""
    files = list(getattr(data, "files", ()))
    above = f"{commonpath(files)}/" if len(files) > 1 else ""

    def name_of(fragment: Any) -> str | None:
        path = getattr(fragment, "path", None)
        return None if path is None else str(path).removeprefix(above)

    def refused(names: list[str]) -> Callable[[BaseException], DataError]:
        def refuse(error: BaseException) -> DataError:
            damaged = (f for f in data.get_fragments() if not _is_readable(f, names, data.schema))
            name = next(map(name_of, damaged), None)
            which = "the Dataset" if name is None else repr(name)
            return DataError(f"{which} cannot be read: {reason(error)}; it may be damaged")

        return refuse

    def read(names: list[str]) -> Any:
        with refusing(refused(names)):
            return data.to_table(columns=names)

    def batches(names: list[str], rows: int) -> Iterator[Any]:
        with refusing(refused(names)):
            scanner = data.scanner(
                columns=names, batch_size=rows, batch_readahead=2, fragment_readahead=1
            )
            for batch in scanner.scan_batches():
                yield batch.record_batch, name_of(batch.fragment)

    def count() -> float:
        with refusing(refused([])):
            return float(data.count_rows())

    return arrow_part(
        None,
        data.schema.names,
        read,
        batches,
        schema=data.schema,
        rows_to_come=count,
        files=[Path(file) for file in files],
    )


def _is_readable(fragment: Any, names: list[str], schema: Any) -> bool:
    """Return whether a file of a Dataset can be read, to find the damaged one."""
    import pyarrow as pa

    try:
        for _ in fragment.to_batches(columns=names, schema=schema):
            pass
    except (pa.ArrowException, OSError):
        return False
    return True


def _refusing(what: str) -> Callable[[BaseException], DataError]:
    def refuse(error: BaseException) -> DataError:
        return DataError(f"{what} failed: {reason(error)}")

    return refuse


def record_batches(data: Any) -> Part:
    """Return a RecordBatchReader as a part that can be read once."""

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


def unite_categories(several: Sequence[pd.Index]) -> pd.Index:
    """Return all categories, each once.

    They are sorted if those of each part are; otherwise they are in the order of appearance.

    Parameters
    ----------
    several : categories of each part

    Examples
    --------
    >>> import pandas as pd
    >>> unite_categories([pd.Index(["a", "c"]), pd.Index(["b", "c"])]).tolist()
    ['a', 'b', 'c']
    >>> unite_categories([pd.Index(["low", "high"]), pd.Index(["low", "top"])]).tolist()
    ['low', 'high', 'top']
    """
    first = several[0]
    if all(other is first or other.equals(first) for other in several):
        return first
    united = first
    for other in several[1:]:
        united = united.append(other[united.get_indexer(other) < 0])
    if all(_is_sorted(index) for index in several):
        try:
            return united.sort_values()
        except TypeError:  # values of several types have no order
            return united
    return united


def _is_sorted(index: pd.Index) -> bool:
    return bool(index.is_monotonic_increasing)


def unite_columns(parts: list[dict[str, pd.Series]], names: Sequence[str]) -> pd.DataFrame:
    """Return the rows of all parts, whose memory is freed column by column.

    Raises
    ------
    DataError
        If whole numbers of one part would be rounded beside fractions of another.
    """
    import pandas as pd

    if len(parts) == 1:
        return pd.DataFrame({name: column.array for name, column in parts[0].items()}, copy=False)
    columns = {}
    for name in names:
        columns[name] = _united(name, [part.pop(name) for part in parts])
    return pd.DataFrame(columns, copy=False)


def _united(name: str, columns: list[pd.Series]) -> Any:
    import pandas as pd

    nonempty = [column for column in columns if len(column)]
    if not nonempty:
        return columns[0].array
    if any(isinstance(column.dtype, pd.CategoricalDtype) for column in nonempty):
        return _united_categories(nonempty)
    dtypes = {column.dtype for column in nonempty}
    if len(dtypes) == 1:
        if nonempty[0].dtype.kind in "iufb" and isinstance(nonempty[0].dtype, np.dtype):
            return np.concatenate([column.to_numpy() for column in nonempty])
        return pd.concat(nonempty, ignore_index=True).array
    if all(_is_number(c.dtype) or c.isna().all() for c in nonempty):
        return _united_numbers(name, nonempty)
    if all(_is_number(c.dtype) or _are_decimals(c) for c in nonempty):
        return _united_decimals(name, nonempty)
    return _united_objects(nonempty)


def _united_categories(columns: list[pd.Series]) -> pd.Categorical:
    import pandas as pd

    coded = [_as_category(column) for column in columns]
    known = [c.categories for c in coded if len(c.categories)]
    categories = unite_categories(known) if known else coded[0].categories
    codes = np.empty(sum(map(len, coded)), np.min_scalar_type(-max(len(categories), 1)))
    first = 0
    for column in coded:
        place = np.append(categories.get_indexer(column.categories), -1).astype(codes.dtype)
        codes[first : first + len(column)] = place[column.codes]
        first += len(column)
    ordered = all(c.ordered for c in coded)
    dtype = pd.CategoricalDtype(categories, ordered=ordered)
    return pd.Categorical.from_codes(codes, dtype=dtype, validate=False)


def _as_category(column: pd.Series) -> pd.Categorical:
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.array
    return pd.Categorical(column.astype(object) if column.isna().all() else column)


def _is_number(dtype: Any) -> bool:
    from pandas.api.types import is_bool_dtype, is_complex_dtype, is_numeric_dtype

    odd = is_bool_dtype(dtype) or is_complex_dtype(dtype)
    return bool(is_numeric_dtype(dtype)) and not odd


def _are_decimals(column: pd.Series) -> bool:
    from pandas.api.types import infer_dtype

    return column.dtype == object and infer_dtype(column, skipna=True) in ("decimal", "empty")


def _united_numbers(name: str, columns: list[pd.Series]) -> Any:
    """Return integers if all values are integers or missing, otherwise floats."""
    import pandas as pd

    whole = [c for c in columns if c.dtype.kind in "iu"]
    rest = [c for c in columns if c.dtype.kind not in "iu" and not c.isna().all()]
    if rest:
        return _as_floats(name, columns, whole)
    signed = all(_largest(column) < 2**63 for column in whole)
    plain = all(isinstance(c.dtype, np.dtype) for c in whole) and len(whole) == len(columns)
    if plain and signed:
        return np.concatenate([c.to_numpy(dtype=np.int64) for c in columns])
    kind = pd.Int64Dtype() if signed else object
    arrays = [
        pd.Series(c, dtype=kind)
        if c.dtype.kind in "iu"
        else pd.Series([pd.NA] * len(c), dtype=kind)
        for c in columns
    ]
    return pd.concat(arrays, ignore_index=True).array


def _united_decimals(name: str, columns: list[pd.Series]) -> Any:
    """Return floats if there are any; otherwise decimals, which are exact.

    Python's arithmetic has no sum of a decimal and a float.
    """
    exact = [column for column in columns if column.dtype.kind != "f"]
    if len(exact) < len(columns):
        return _as_floats(name, columns, exact)
    from pandas import isna

    return from_list([v if isna(v) else Decimal(v) for c in columns for v in c.tolist()]).array


def _as_floats(name: str, columns: list[pd.Series], exact: list[pd.Series]) -> FloatArray:
    if any(_largest(column) >= EXACT for column in exact):
        raise DataError(
            f"column {name!r} holds whole numbers beyond 2**53 in one part and fractions in "
            "another; as one type they would be rounded: write them the same way in all parts",
            column=name,
        )
    return np.concatenate([c.to_numpy(dtype=float, na_value=np.nan) for c in columns])


def _largest(column: pd.Series) -> int:
    present = column.dropna()
    return max(abs(int(present.max())), abs(int(present.min()))) if len(present) else 0


def _united_objects(columns: list[pd.Series]) -> Any:
    """Return Python objects; the type of a column without values is ignored."""
    import pandas as pd

    nonempty = [c for c in columns if not c.isna().all()]
    if len({c.dtype for c in nonempty}) == 1 and not isinstance(nonempty[0].dtype, np.dtype):
        kind = nonempty[0].dtype
        gaps = [c if c.dtype == kind else pd.Series([None] * len(c), dtype=kind) for c in columns]
        return pd.concat(gaps, ignore_index=True).array
    values = np.concatenate([c.to_numpy(dtype=object) for c in columns])
    return from_list(values).array
