"""Parts of the data (files, frames or one table), and how Arrow's tables become frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from vcomp.data.column_values import EXACT, in_known_types, no_text
from vcomp.exceptions import DataError
from vcomp.numerics import MANY_ROWS, THREADS

if TYPE_CHECKING:
    import pandas as pd


def one_column(name: str, values: Any) -> Any:
    """Return the values of a column as an array without an index."""
    import pandas as pd

    try:
        array = _as_array(values)
    except UnicodeEncodeError as error:
        raise no_text(name, error.object) from None
    if array.ndim != 1:
        what = f"has {array.ndim} dimensions" if array.ndim else f"is a {_kind(array)}"
        raise DataError(
            f"column {name!r} {what}; it needs one value a row, in a list or an array", column=name
        )
    if array.dtype.kind == "S":
        array = array.astype(object)
    return array.array if isinstance(array, pd.Series | pd.Index) else array


def _as_array(values: Any) -> Any:
    """Return values as an array with a type, in which missing values are kept."""
    import pandas as pd

    if isinstance(values, pd.Series | pd.Index | pd.api.extensions.ExtensionArray):
        return values
    if isinstance(values, np.ma.MaskedArray):
        present = values.data.astype(object)
        present[np.ma.getmaskarray(values)] = None
        return from_list(present) if values.ndim == 1 else present
    if hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__"):
        return _from_arrow_column(values)
    is_list = isinstance(values, list | tuple | range) and len(values)
    if is_list and not isinstance(values[0], list | np.ndarray):
        return from_list(values)
    try:
        return np.asarray(values)
    except ValueError:  # lists of different lengths
        return np.empty((0, 0))


def _from_arrow_column(values: Any) -> Any:
    import pyarrow as pa

    streams = hasattr(values, "__arrow_c_stream__")
    column = pa.chunked_array(values) if streams else pa.array(values)
    if pa.types.is_struct(column.type):  # a table in the place of a column
        return np.empty((0, 0))
    return from_arrow(pa.table({"column": column}))["column"]


def from_arrow_array(name: str, values: Any) -> pd.Series:
    """Return an array of pandas that holds one of Arrow as a column, as a table's.

    Raises
    ------
    DataError
        If it cannot be converted.
    """
    import pyarrow as pa

    return from_arrow(pa.table({name: values.__arrow_array__()}))[name]


def from_list(values: Any) -> pd.Series:
    """Return a list as a column of its own type; numpy makes text of [1, "a"] and ["a", nan]."""
    import pandas as pd
    from pandas.api.types import infer_dtype

    objects = pd.Series(np.fromiter(values, dtype=object, count=len(values)), dtype=object)
    column = objects.infer_objects()
    # As floats, long integers beside a missing value or a fraction would become equal.
    kind = infer_dtype(objects, skipna=True) if column.dtype.kind == "f" else ""
    rounded = kind == "mixed-integer-float" and bool((column.abs() >= EXACT).any())
    return objects if rounded or kind == "integer" else column


def _kind(scalar: Any) -> str:
    return type(scalar.item()).__name__


def from_arrow(
    table: Any,
    known: KnownDictionaries | None = None,
    *,
    name: str | None = None,
    many_rows: int = MANY_ROWS,
) -> pd.DataFrame:
    """Return a table as a frame; text becomes categories in Arrow, far cheaper than in Python.

    Parameters
    ----------
    table : a pyarrow Table
    known : categories of the dictionaries of earlier batches; it is updated
    name : of the file, for messages

    Raises
    ------
    DataError
        If a value cannot be converted, as text that is not valid Unicode.
    """
    import pyarrow as pa

    try:
        return _converted(table, known, many_rows)
    except (pa.ArrowException, UnicodeDecodeError, TypeError) as error:
        raise _unreadable(table, name, error) from None


def with_coded_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose text in Arrow's form is coded as categories.

    Later passes look up these few categories, and not the text of every row.

    Raises
    ------
    DataError
        If text is not valid Unicode.
    """
    import pandas as pd

    text = [
        name
        for name, kind in frame.dtypes.items()
        if isinstance(kind, pd.StringDtype) and kind.storage != "python"
    ]
    if not text:
        return frame
    import pyarrow as pa

    coded = from_arrow(pa.table({name: pa.array(frame[name].array) for name in text}))
    coded.index = frame.index
    columns = {name: coded[name] if name in text else frame[name] for name in frame}
    return pd.DataFrame(columns, copy=False)


def _unreadable(table: Any, name: str | None, error: Exception) -> DataError:
    """Return the DataError for a table that cannot be converted, which names the column."""
    import pyarrow as pa

    where = "" if name is None else f" of {name!r}"
    for column in table.column_names:
        try:
            _converted(table.select([column]), None, MANY_ROWS)
        except UnicodeDecodeError:
            break
        except (pa.ArrowException, TypeError):
            kind = table.schema.field(column).type
            values = kind.value_type if pa.types.is_dictionary(kind) else kind
            if pa.types.is_string(values) or pa.types.is_large_string(values):
                break
            return DataError(
                f"column {column!r}{where} has the type {kind}, whose values are neither numbers "
                "nor levels; make them numbers or text",
                column=column,
            )
    else:
        column = "?"
    return DataError(
        f"column {column!r}{where} cannot be read: {reason(error)}; its text may not be valid "
        "UTF-8",
        column=column,
    )


def _converted(table: Any, known: KnownDictionaries | None, many_rows: int) -> pd.DataFrame:
    import pandas as pd
    import pyarrow as pa

    if all(_is_plain(column) for column in table.columns):
        # Arrow parses the metadata of pandas, which may be damaged, even where it ignores them.
        table = table.replace_schema_metadata(None)
        return table.to_pandas(ignore_metadata=True, split_blocks=True)
    table = in_known_types(table)
    kept = _with_own_order(table.schema)
    table = table.replace_schema_metadata(None)
    known = {} if known is None else known
    encoded = dict(zip(table.column_names, map(_encoded, table.columns), strict=True))
    coded = {name: column for name, column in encoded.items() if column is not None}
    found = _all_categorical(coded, kept, known, many_rows)
    rest = table.select([name for name in encoded if name not in coded])
    # Integers with a null would become floats, and long ones among them equal.
    gaps = any(pa.types.is_integer(c.type) and c.null_count for c in rest.columns)
    # A column that was an index of pandas is a column like any other: no metadata.
    frame: pd.DataFrame = rest.to_pandas(
        ignore_metadata=True, split_blocks=True, types_mapper=_nullable_integer if gaps else None
    )
    if not coded:
        return frame
    columns = {name: found[name] if name in coded else frame[name] for name in encoded}
    return pd.DataFrame(columns, copy=False)


def _is_plain(column: Any) -> bool:
    """Return whether a column holds numbers that need no conversion."""
    from pyarrow import types

    is_whole = types.is_integer(column.type) and not column.null_count
    return is_whole or (types.is_floating(column.type) and not types.is_float16(column.type))


def _all_categorical(
    columns: dict[str, Any], kept: set[str], known: KnownDictionaries, many_rows: int
) -> dict[str, pd.Series]:
    """Return the columns as categories; of many rows two columns at a time."""

    def convert(name: str) -> pd.Series:
        return _categorical(name, columns[name], kept, known)

    if len(columns) < 2 or len(next(iter(columns.values()))) < many_rows:
        return {name: convert(name) for name in columns}
    with ThreadPoolExecutor(THREADS) as pool:
        return dict(zip(columns, pool.map(convert, columns), strict=True))


def _with_own_order(schema: Any) -> set[str]:
    """Return the dictionaries with a meaningful order: declared so, or pandas categories.

    Others, polars' Categorical among them, have their values in the order of the rows.
    """
    import pyarrow as pa

    try:
        about = schema.pandas_metadata or {"columns": []}
        columns = [(c["name"], c["pandas_type"]) for c in about["columns"]]
        of_pandas = {name for name, kind in columns if kind == "categorical"}
    except (ValueError, LookupError, TypeError, RecursionError):  # damaged, and not needed
        of_pandas = set()
    declared = {f.name for f in schema if pa.types.is_dictionary(f.type) and f.type.ordered}
    return of_pandas | declared


def _encoded(column: Any) -> Any:
    """Return text and dictionaries as dictionaries; None for other columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.type == pa.string_view():
        return pc.dictionary_encode(column.cast(pa.large_string()))
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return pc.dictionary_encode(column)
    if not pa.types.is_dictionary(column.type):
        return None
    if column.type.value_type == pa.string_view():
        return column.cast(pa.dictionary(column.type.index_type, pa.large_string()))
    return column


def _categorical(name: str, column: Any, kept: set[str], known: KnownDictionaries) -> pd.Series:
    """Return categories: those of all chunks, in order of value unless they have their own."""
    import pandas as pd

    dictionaries: list[Any] = []
    for chunk in column.chunks:
        if not dictionaries or not chunk.dictionary.equals(dictionaries[-1]):
            dictionaries.append(chunk.dictionary)
    before = known.get(name)
    one = dictionaries[0] if len(dictionaries) == 1 else None
    if before is None or one is None or not one.equals(before.dictionary):
        # A dictionary with the values of the last, in another order, needs no sorting again.
        again = None if before is None or one is None else before.placing(one)
        before = again or _Known.of(column.type, dictionaries, in_order=name not in kept)
    if one is not None:
        known[name] = before
    codes = np.empty(len(column), dtype=before.places[0].dtype if dictionaries else np.int8)
    first, which = 0, 0
    for chunk in column.chunks:
        if not chunk.dictionary.equals(dictionaries[which]):
            which += 1
        part = codes[first : first + len(chunk)]
        _place(chunk.indices, before.places[which], part)
        first += len(chunk)
    coded = pd.Categorical.from_codes(codes, dtype=before.dtype, validate=False)
    return pd.Series(coded, copy=False)


def _place(indices: Any, places: Any, codes: Any) -> None:
    """Write the code of every index; the last place is the code of missing values."""
    if indices.null_count:
        indices = indices.cast("int64").fill_null(len(places) - 1)
    np.take(places, indices.to_numpy(zero_copy_only=False), out=codes, mode="clip")


@dataclass(frozen=True, slots=True)
class _Known:
    """Dictionaries, their values as Arrow and pandas have them, and the code of each value."""

    dictionary: Any
    values: Any
    dtype: pd.CategoricalDtype
    places: list[Any]

    @classmethod
    def of(cls, kind: Any, dictionaries: list[Any], *, in_order: bool) -> _Known:
        """Return the union of dictionaries, which may hold missing or repeated values."""
        import pandas as pd
        import pyarrow as pa

        values = pa.chunked_array(dictionaries, type=kind.value_type).unique().drop_null()
        categories = pd.Index(values.to_pandas(), tupleize_cols=False)
        if in_order:
            try:
                order = categories.argsort()
            except TypeError:  # values of several types have no order
                order = np.arange(len(categories))
            values, categories = values.take(pa.array(order)), categories.take(order)
        dtype = pd.CategoricalDtype(categories, ordered=kind.ordered)
        places = [_places(dictionary, values) for dictionary in dictionaries]
        return cls(dictionaries[0] if dictionaries else None, values, dtype, places)

    def placing(self, dictionary: Any) -> _Known | None:
        """Return the same categories for another dictionary; None if it has other values."""
        if dictionary.type != self.values.type or dictionary.null_count:
            return None
        places = _places(dictionary, self.values)
        if (places[:-1] < 0).any():
            return None
        return replace(self, dictionary=dictionary, places=[places])


def _places(dictionary: Any, values: Any) -> Any:
    """Return the code of every value of the dictionary, and last the code of missing values."""
    import pyarrow.compute as pc

    codes = pc.index_in(dictionary, value_set=values).fill_null(-1).to_numpy()
    return np.append(codes, -1).astype(np.min_scalar_type(-max(len(values), 1)))


KnownDictionaries: TypeAlias = "dict[str, _Known]"
"""By column, the last dictionary and its categories."""


def _nullable_integer(kind: Any) -> Any:
    import pandas as pd
    import pyarrow as pa

    if not pa.types.is_integer(kind):
        return None
    return pd.api.types.pandas_dtype(str(kind).replace("uint", "UInt").replace("int", "Int"))


ReadTable: TypeAlias = "Callable[[list[str]], Any]"
"""Columns → a pyarrow Table."""

ReadBatches: TypeAlias = "Callable[[list[str], int], Iterable[Any]]"
"""Columns and a number of rows → Arrow record batches, of about so many rows."""

ReadSlices: TypeAlias = "Callable[[list[str], int], Iterator[tuple[pd.DataFrame, str | None]]]"
"""Columns and a number of rows → pandas frames, each with the name of its file if it has one."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the data that is read by itself: a file, a frame, or all of them.

    Attributes
    ----------
    name : used in messages; None if the data are one piece without a name
    columns : their names
    read : reads some of the columns into a pandas frame
    slices : reads them a number of rows at a time, each with the name of the file that it is from
        where that is not the part itself
    n_rows : None if it is not known before reading
    kinds : the kind of values of each column whose type is declared
    rows_to_come : about how many rows reading would bring into memory; None if they are in
        memory already
    files : that it is read from
    column : returns a column that is in memory already; None if there are none
    """

    name: str | None
    columns: tuple[str, ...]
    read: Callable[[list[str]], pd.DataFrame]
    slices: ReadSlices
    n_rows: int | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)
    rows_to_come: Callable[[], float] | None = None
    files: tuple[Path, ...] = ()
    column: Callable[[str], pd.Series] | None = None

    def is_empty(self, name: str) -> bool:
        """Return whether a column of a file has no values: its declared type means nothing then.

        Such columns are often written as floats, whatever they hold in other files. They are read
        until there is a value: statistics in the footer of a damaged file can end the process.
        """
        if not self.files:
            return False
        # Rows that are read at a time to look for a value
        return all(frame[name].isna().all() for frame, _ in self.slices([name], 65_536))

    def read_columns(self, names: Sequence[str]) -> dict[str, pd.Series]:
        """Return some of the columns, of a frame without making another one."""
        if self.column is not None:
            return {name: self.column(name) for name in names}
        frame = self.read(list(names))
        return {name: frame[name] for name in names}


def arrow_part(
    name: str | None,
    columns: Iterable[str],
    read: ReadTable,
    batches: ReadBatches,
    *,
    n_rows: int | None = None,
    schema: Any = None,
    rows_to_come: Callable[[], float] | None = None,
    files: Iterable[Path] = (),
) -> Part:
    """Return a part that is read as Arrow tables and record batches.

    Parameters
    ----------
    schema : declares its types, if it is known
    batches : of a Dataset pairs of a batch and the name of its file
    """

    def slices(names: list[str], rows: int) -> Iterator[tuple[pd.DataFrame, str | None]]:
        known: KnownDictionaries = {}
        for file, of_file in groupby(map(_with_file, batches(names, rows)), itemgetter(1)):
            for table in _regrouped((batch for batch, _ in of_file), rows):
                yield from_arrow(table, known, name=file or name), file

    return Part(
        name=name,
        columns=tuple(columns),
        read=lambda names: from_arrow(read(names), name=name),
        slices=slices,
        n_rows=n_rows,
        kinds={} if schema is None else declared_kinds(schema),
        rows_to_come=rows_to_come,
        files=tuple(files),
    )


def _with_file(batch: Any) -> tuple[Any, str | None]:
    return batch if isinstance(batch, tuple) else (batch, None)


def _regrouped(batches: Iterable[Any], rows: int) -> Iterator[Any]:
    """Yield tables of `rows` rows, but for the last, whatever the batches have."""
    import pyarrow as pa

    waiting: list[Any] = []
    n_waiting = 0
    for batch in batches:
        first = 0
        while first < batch.num_rows:
            piece = batch.slice(first, rows - n_waiting)
            waiting.append(piece)
            first += piece.num_rows
            n_waiting += piece.num_rows
            if n_waiting == rows:
                yield pa.Table.from_batches(waiting)
                waiting, n_waiting = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


@contextmanager
def refusing(
    refuse: Callable[[BaseException], DataError], *others: type[Exception]
) -> Iterator[None]:
    """Turn errors of Arrow and of the system into a DataError.

    Parameters
    ----------
    refuse : makes the DataError
    *others : further types of errors
    """
    import pyarrow as pa

    try:
        yield
    except DataError:
        raise
    except (pa.ArrowException, ValueError, OSError, *others) as error:
        raise refuse(error) from None


def reason(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


# Kinds of columns ------------------------------------------------------------------------------


def declared_kinds(schema: Any) -> dict[str, str]:
    """Return the kinds of values in the columns of an Arrow schema, in the words of messages."""
    kinds = {f.name: _declared_kind(f.type) for f in schema}
    return {name: kind for name, kind in kinds.items() if kind}


def _declared_kind(kind: Any) -> str:
    from pyarrow import types

    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _declared_kind(kind.value_type)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "numbers"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_boolean(kind):
        return "truth values"
    if types.is_timestamp(kind):
        return _TIMES if kind.tz is None else _ZONED
    if types.is_binary(kind) or types.is_large_binary(kind):
        return "bytes"
    named = {"date": "dates", "time": "times of day", "dura": "durations"}
    return named.get(str(kind)[:4], "")


_TIMES, _ZONED = "times without a zone", "times with a zone"


def plain_label(level: Any) -> Any:
    """Return a level as Python shows it: 7, not np.int64(7)."""
    return level.item() if isinstance(level, np.generic) else level


def of_other_kind(column: Any, levels: Any) -> str:
    """Return a clause on values of another kind than the levels; empty if the kinds agree.

    Examples
    --------
    >>> import pandas as pd
    >>> of_other_kind(pd.Series(["308"]), pd.Index([308, 309]))
    ': they are text here and numbers in the fit, such as 308; make them of one kind'
    """
    kinds = kind_of(column), kind_of(levels)
    if not all(kinds) or kinds[0] == kinds[1]:
        return ""
    return (
        f": they are {kinds[0]} here and {kinds[1]} in the fit, such as "
        f"{plain_label(levels[0])!r}; make them of one kind"
    )


def kind_of(column: Any) -> str:
    """Return the kind of values of a column or index; empty if all are missing, or of several."""
    import pandas as pd
    from pandas.api.types import infer_dtype, is_bool_dtype, is_numeric_dtype

    dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "iu":  # pandas takes longer to say so
        return "numbers"
    if isinstance(dtype, pd.CategoricalDtype):
        return kind_of(dtype.categories) if len(dtype.categories) else ""
    if is_bool_dtype(dtype):
        return "truth values"
    if is_numeric_dtype(dtype):
        floats = isinstance(dtype, np.dtype) and dtype.kind == "f"
        return "" if floats and np.isnan(column.to_numpy()).all() else "numbers"
    inferred = infer_dtype(column, skipna=True)
    if inferred not in ("datetime", "datetime64"):
        return _KINDS.get(inferred, "")
    present = column.notna()
    if not present.any():
        return ""
    return _TIMES if next(iter(column[present])).tzinfo is None else _ZONED


_KINDS = {
    "string": "text",
    "bytes": "bytes",
    "integer": "numbers",
    "floating": "numbers",
    "decimal": "numbers",
    "mixed-integer-float": "numbers",
    "boolean": "truth values",
    "date": "dates",
    "time": "times of day",
    "timedelta": "durations",
    "timedelta64": "durations",
}
"""Kinds of values in the words of messages, by their names in pandas."""
