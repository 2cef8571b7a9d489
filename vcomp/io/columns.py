"""Columns of every kind, in a form that pandas groups and patsy reads, with nothing lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["from_arrow", "native", "one_column"]


def one_column(name: str, values: Any) -> Any:
    """Return an array without an index; of a list what pandas makes of its values."""
    import pandas as pd

    array = _as_array(values)
    if array.ndim != 1:
        what = f"has {array.ndim} dimensions" if array.ndim else f"is a {_kind(array)}"
        raise DataError(f"column {name!r} {what}; it needs one value a row, in a list or an array")
    if array.dtype.kind == "S":
        array = array.astype(object)
    return array.array if isinstance(array, pd.Series | pd.Index) else array


def _as_array(values: Any) -> Any:
    """Return something with dimensions and a type, in which nothing missing is lost."""
    import pandas as pd

    if isinstance(values, pd.Series | pd.Index | pd.api.extensions.ExtensionArray):
        return values
    if isinstance(values, np.ma.MaskedArray):
        present = values.data.astype(object)
        present[np.ma.getmaskarray(values)] = None
        return _from_list(present) if values.ndim == 1 else present
    if hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__"):
        return _from_arrow_column(values)
    is_list = isinstance(values, list | tuple | range) and len(values)
    if is_list and not isinstance(values[0], list | np.ndarray):
        return _from_list(values)
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


def _from_list(values: Any) -> pd.Series:
    """Return the values in the type they have; numpy makes text of [1, "a"] and ["a", nan]."""
    import pandas as pd
    from pandas.api.types import infer_dtype

    objects = pd.Series(np.fromiter(values, dtype=object, count=len(values)), dtype=object)
    column = objects.infer_objects()
    # As floats, long integers beside a missing value would become equal.
    rounded = column.dtype.kind == "f" and infer_dtype(objects, skipna=True) == "integer"
    return objects if rounded else column


def _kind(scalar: Any) -> str:
    return type(scalar.item()).__name__


def native(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with the machine's byte order, which pandas cannot group without."""
    swapped = {
        name: dtype.newbyteorder("=")
        for name, dtype in frame.dtypes.items()
        if isinstance(dtype, np.dtype) and not dtype.isnative
    }
    return frame.astype(swapped) if swapped else frame


def from_arrow(table: Any) -> pd.DataFrame:
    """Convert; text becomes categories inside Arrow, which is far cheaper than in Python."""
    import pandas as pd
    import pyarrow as pa

    kept = _with_own_order(table.schema)
    for position, field in enumerate(table.schema):
        encoded = _encoded(table.column(position))
        if encoded is not None:
            table = table.set_column(position, field.name, encoded)
    # Integers with a null would become floats, and long ones among them equal.
    gaps = any(pa.types.is_integer(c.type) and c.null_count for c in table.columns)
    # A column that was an index of pandas is a column like any other: no metadata.
    frame: pd.DataFrame = table.to_pandas(
        ignore_metadata=True, types_mapper=_nullable_integer if gaps else None
    )
    for name in frame.columns:
        if isinstance(frame[name].dtype, pd.CategoricalDtype) and name not in kept:
            frame[name] = _in_order(frame[name])
    return frame


def _with_own_order(schema: Any) -> set[str]:
    """Return the dictionaries whose order means something: declared so, or pandas categories.

    Others, polars' Categorical among them, have their values in the order of the rows.
    """
    import pyarrow as pa

    metadata = schema.pandas_metadata or {"columns": []}
    of_pandas = {c["name"] for c in metadata["columns"] if c["pandas_type"] == "categorical"}
    declared = {f.name for f in schema if pa.types.is_dictionary(f.type) and f.type.ordered}
    return of_pandas | declared


def _in_order(column: pd.Series) -> pd.Series:
    """Return the categories sorted, as those of text from pandas are."""
    try:
        return column.cat.set_categories(column.cat.categories.sort_values())
    except TypeError:
        return column  # values of several types have no order


def _encoded(column: Any) -> Any:
    """Return text, and dictionaries that pandas would refuse, as a proper dictionary."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return pc.dictionary_encode(column)
    if column.type == pa.string_view():
        return pc.dictionary_encode(column.cast(pa.large_string()))
    if pa.types.is_dictionary(column.type):
        dictionaries = [chunk.dictionary for chunk in column.chunks]
        if any(d.null_count or len(d.unique()) < len(d) for d in dictionaries):
            return pc.dictionary_encode(column.cast(column.type.value_type))
        if pa.types.is_unsigned_integer(column.type.index_type):
            # pandas did not take the unsigned indices of polars before pyarrow 20.
            return column.cast(pa.dictionary(pa.int32(), column.type.value_type))
    return None


def _nullable_integer(kind: Any) -> Any:
    import pandas as pd
    import pyarrow as pa

    if not pa.types.is_integer(kind):
        return None
    return pd.api.types.pandas_dtype(str(kind).replace("uint", "UInt").replace("int", "Int"))
