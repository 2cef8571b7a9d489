"""Frames of several parts → one, in which nothing is rounded and categories are united."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError
from vcomp.io.columns import from_list

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["unite_categories", "unite_frames"]

_EXACT = 2**53
"""Whole numbers from here on are not all floats."""


def unite_categories(several: Sequence[pd.Index]) -> pd.Index:
    """Return all categories, each once.

    They are sorted if they were so everywhere; otherwise they keep the order in which they came.

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
    found = first
    for other in several[1:]:
        found = found.append(other[found.get_indexer(other) < 0])
    if all(_is_sorted(index) for index in several):
        try:
            return found.sort_values()
        except TypeError:  # values of several types have no order
            return found
    return found


def _is_sorted(index: pd.Index) -> bool:
    return bool(index.is_monotonic_increasing)


def unite_frames(frames: list[pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    """Return the rows of all frames, which are let go of column by column.

    Raises
    ------
    DataError
        If whole numbers of one part would be rounded beside fractions of another.
    """
    import pandas as pd

    if len(frames) == 1:
        return frames[0]
    columns = {}
    for name in names:
        columns[name] = _united(name, [frame.pop(name) for frame in frames])
    return pd.DataFrame(columns, copy=False)


def _united(name: str, columns: list[pd.Series]) -> Any:
    import pandas as pd

    there = [column for column in columns if len(column)]
    if not there:
        return columns[0].array
    if any(isinstance(column.dtype, pd.CategoricalDtype) for column in there):
        return _united_categories(there)
    dtypes = {column.dtype for column in there}
    if len(dtypes) == 1:
        return pd.concat(there, ignore_index=True).array
    if all(_is_number(c.dtype) or c.isna().all() for c in there):
        return _united_numbers(name, there)
    if all(_is_number(c.dtype) or _are_decimals(c) for c in there):
        return _united_decimals(name, there)
    return _united_objects(there)


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
        categorical: pd.Categorical = column.array
        return categorical
    return pd.Categorical(column.astype(object) if column.isna().all() else column)


def _is_number(dtype: Any) -> bool:
    from pandas.api.types import is_bool_dtype, is_complex_dtype, is_numeric_dtype

    odd = is_bool_dtype(dtype) or is_complex_dtype(dtype)
    return bool(is_numeric_dtype(dtype)) and not odd


def _are_decimals(column: pd.Series) -> bool:
    from pandas.api.types import infer_dtype

    return column.dtype == object and infer_dtype(column, skipna=True) in ("decimal", "empty")


def _united_numbers(name: str, columns: list[pd.Series]) -> Any:
    """Return whole numbers as such if all are, a gap among them included; otherwise floats."""
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
    if any(_largest(column) >= _EXACT for column in exact):
        raise DataError(
            f"column {name!r} holds whole numbers beyond 2**53 in one part and fractions in "
            "another; as one type they would be rounded: write them the same way in all parts"
        )
    return np.concatenate([c.to_numpy(dtype=float, na_value=np.nan) for c in columns])


def _largest(column: pd.Series) -> int:
    present = column.dropna()
    return max(abs(int(present.max())), abs(int(present.min()))) if len(present) else 0


def _united_objects(columns: list[pd.Series]) -> Any:
    """Return Python's objects; a column without any value has no type to keep."""
    import pandas as pd

    there = [c for c in columns if not c.isna().all()]
    if len({c.dtype for c in there}) == 1 and not isinstance(there[0].dtype, np.dtype):
        kind = there[0].dtype
        gaps = [c if c.dtype == kind else pd.Series([None] * len(c), dtype=kind) for c in columns]
        return pd.concat(gaps, ignore_index=True).array
    values = np.concatenate([c.to_numpy(dtype=object) for c in columns])
    return from_list(values).array
