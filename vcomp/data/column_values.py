"""Values of columns: levels and their codes, numbers, text for them, types of Arrow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.exceptions import DataError, warn
from vcomp.numerics.kernels import count_levels, count_values, determined_levels

if TYPE_CHECKING:
    import pandas as pd


EXACT = 2**53
"""Integers up to this size are exact as floats."""

_DIRECT = 65_536
"""Number of possible levels up to which a table is made, whatever the number of rows."""


def as_levels(name: str, column: pd.Series) -> pd.Series:
    """Return the column as categories that all occur, in an order that does not depend on rows.

    Categories keep the order that they have; other values are sorted.

    Raises
    ------
    DataError
        If the column holds values that cannot be levels (lists, dicts).
    """
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype):
        return _without_unused(column)
    whole = _whole_numbers(column)
    if whole is None:
        coded = _as_categories(name, column)
    else:
        if whole.of_levels.size < whole.counts.size:
            numbers = np.cumsum(whole.counts > 0, dtype=np.int32) - np.int32(1)
            whole.codes[...] = numbers[whole.codes]
        coded = pd.Categorical.from_codes(whole.codes, categories=whole.levels, validate=False)
    return pd.Series(coded, column.index, name=name, copy=False)


def united_levels(a: pd.Index, b: pd.Index) -> tuple[pd.Index, IntArray, IntArray]:
    """Return the united levels of two parts of the data, and the positions of each part's levels.

    They are sorted, unless categories have an order of their own. This order is kept, and levels
    of the second part alone come last.

    Raises
    ------
    DataError
        If whole numbers of one part would be rounded beside the numbers of the other.

    Examples
    --------
    >>> import pandas as pd
    >>> united, in_a, in_b = united_levels(pd.Index(["b", "d"]), pd.Index(["a", "b"]))
    >>> united.tolist(), in_a.tolist(), in_b.tolist()
    (['a', 'b', 'd'], [1, 2], [0, 1])
    >>> united_levels(pd.Index(["low", "high"]), pd.Index(["mid", "low"]))[0].tolist()
    ['low', 'high', 'mid']
    """
    if a.equals(b) and a.dtype == b.dtype:
        same = np.arange(len(a), dtype=np.int32)
        return a, same, same
    are_numbers = isinstance(a.dtype, np.dtype) and a.dtype == b.dtype and a.dtype.kind in "iu"
    if are_numbers and not (_has_own_order(a) or _has_own_order(b)):
        return _united_numbers(a, b)
    known = a.get_indexer(b)
    is_new = known < 0
    both = a.append(b[is_new])
    if a.dtype != b.dtype and not both.is_unique:
        raise DataError(
            "levels are whole numbers beyond 2**53 in some parts of the data, and numbers of "
            f"another type in others ({a.tolist()[0]!r} and {b.tolist()[0]!r}); as one type they "
            "would be rounded: write them the same way in all parts"
        )
    if _has_own_order(a) or _has_own_order(b):
        levels, order = both, np.arange(len(both))
    else:
        levels, order = _sorted(both)
    place = np.empty(order.size, np.int32)
    place[order] = np.arange(order.size, dtype=np.int32)
    of_b = np.where(is_new, len(a) - 1 + np.cumsum(is_new), known)
    return levels, place[: len(a)], place[of_b]


def _has_own_order(levels: pd.Index) -> bool:
    """Return whether levels are not sorted; levels of several types have no order."""
    try:
        return not bool((levels[:-1] <= levels[1:]).all())
    except TypeError:
        return False


def _united_numbers(a: pd.Index, b: pd.Index) -> tuple[pd.Index, IntArray, IntArray]:
    """Return united integer levels and positions by sorting, many times faster than by hashing."""
    import pandas as pd

    parts = [part.to_numpy() for part in (a, b)]
    both = np.sort(np.concatenate(parts), kind="stable")
    levels = both[np.append(True, both[1:] != both[:-1])]
    return pd.Index(levels), *(np.searchsorted(levels, p).astype(np.int32) for p in parts)


@dataclass(frozen=True, eq=False)
class CodedLevels:
    """A grouping column as codes.

    Attributes
    ----------
    codes : (n,) of the rows, −1 for a missing value
    levels : in order; of categories also those that do not occur
    of_levels : the code of each level; of whole numbers that are close together the distance from
        the smallest
    counts : how often each code occurs
    """

    codes: IntArray
    levels: pd.Index
    of_levels: LongArray
    counts: LongArray

    @property
    def level_counts(self) -> LongArray:
        """How often each level occurs."""
        return self.counts[self.of_levels]

    @cached_property
    def n_occurring(self) -> int:
        """Number of levels that occur."""
        return int(np.count_nonzero(self.counts))

    def levels_within(self, outer: CodedLevels) -> IntArray | None:
        """Return the level of `outer` that each level is nested in, −1 for one without rows.

        Returns
        -------
        None if some level occurs with several levels of `outer`
        """
        if self.n_occurring < outer.n_occurring:
            return None
        if outer.n_occurring == 1:
            only = np.int32(np.flatnonzero(outer.level_counts)[0])
            return np.where(self.level_counts > 0, only, np.int32(-1))
        code = determined_levels(self.codes, outer.codes, self.counts.size)
        if not code.size:
            return None
        level = np.full(outer.counts.size + 1, -1, np.int32)  # the last for codes without rows
        level[outer.of_levels] = np.arange(outer.of_levels.size, dtype=np.int32)
        return level[code[self.of_levels]]


def code_levels(name: str, column: pd.Series) -> CodedLevels:
    """Return the codes and levels of a grouping column, counted.

    Raises
    ------
    DataError
        If the column holds values that cannot be levels (lists, dicts).
    """
    whole = _whole_numbers(column)
    if whole is not None:
        return whole
    coded = _as_categories(name, column)
    codes, size = np.asarray(coded.codes, dtype=np.int32), len(coded.categories)
    return CodedLevels(codes, coded.categories, np.arange(size), count_levels(codes, size))


def _as_categories(name: str, column: pd.Series) -> Any:
    """Return the column as a ``pandas.Categorical``; of categories it keeps those not used."""
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype):
        if column.cat.categories.dtype == object:
            _check_names(name, column.cat.categories)
        return column.array
    # Not the column itself, whose tuples would become a MultiIndex.
    values: Any = column.to_numpy() if isinstance(column.dtype, np.dtype) else column.array
    try:
        codes, distinct = pd.factorize(values)
    except (TypeError, ArithmeticError) as error:  # unhashable
        raise DataError(
            f"facet {name!r} holds values that cannot be levels: {error}", column=name
        ) from None
    if column.dtype == object:
        _warn_of_equal(name, values, distinct)
        _check_names(name, distinct)
    # Without `tupleize_cols=False` levels that are tuples become a MultiIndex.
    found: Any = pd.Index(distinct, tupleize_cols=False)
    levels, order = _sorted(found)
    position = np.empty(len(levels), dtype=np.int64)
    position[order] = np.arange(len(levels))
    return pd.Categorical.from_codes(position[codes], categories=levels)


def _warn_of_equal(name: str, values: Any, distinct: Any) -> None:
    """Warn of truth values and equal numbers in one column, which become one level."""
    for found in distinct:
        if not isinstance(found, bool | int | float | np.bool_ | np.number) or found not in (0, 1):
            continue
        same: dict[type, Any] = {
            bool: None,
            float: None,
        }  # of each kind a value, in the order of rows
        for value in values:
            if isinstance(value, bool | np.bool_) and value == found:
                same[bool] = value
            elif isinstance(value, int | float | np.number) and value == found:
                same[float] = value
            if None not in same.values():
                warn(
                    f"column {name!r} has {bool(same[bool])} and {same[float]!r}, which are equal "
                    "and count as one level; make them text if they are different"
                )
                break


def _check_names(name: str, levels: Any) -> None:
    """Refuse levels that cannot be written: half of a character, numbers of thousands of digits.

    Raises
    ------
    DataError
    """
    for level in levels:
        try:
            str(level).encode()
        except UnicodeEncodeError:
            raise no_text(name, level) from None
        except ValueError:
            raise DataError(
                f"column {name!r} holds a number of thousands of digits, which cannot be a level",
                column=name,
            ) from None


def _whole_numbers(column: pd.Series) -> CodedLevels | None:
    """Return a column of whole numbers; None of others, and of those far from each other.

    A table of the values is several times faster than a hash of the rows.
    """
    import pandas as pd

    if not (isinstance(column.dtype, np.dtype) and column.dtype.kind in "iu" and len(column)):
        return None
    values = column.to_numpy()
    low, high = int(values.min()), int(values.max())
    width = high - low + 1
    if width > max(_DIRECT, 4 * values.size) or high >= 2**63:
        return None
    plain = values.view(np.int64) if values.dtype == np.uint64 else values
    codes, counts = count_values(plain, np.int64(low), width)
    occurring = np.flatnonzero(counts)
    levels = pd.Index((occurring + low).astype(values.dtype))
    return CodedLevels(codes, levels, occurring, counts)


def _without_unused(column: pd.Series) -> pd.Series:
    import pandas as pd

    codes, categories = column.cat.codes.to_numpy(), column.cat.categories
    used = np.bincount(codes, minlength=len(categories)) > 0
    if used.all():
        return column
    position = np.cumsum(used) - 1
    coded = pd.Categorical.from_codes(position[codes], categories=categories[used])
    return pd.Series(coded, column.index, name=column.name)


def _sorted(found: Any) -> tuple[Any, Any]:
    """Return the levels in order, and the position of each in `found`."""
    import pandas as pd

    if _are_whole(found):
        # Whole numbers that a missing value elsewhere in the column had turned into floats.
        found = found.astype(np.int64)
    try:
        order = found.argsort()
    except TypeError:
        # Values of several types have no order among them; their names do.
        names = [(type(v).__name__, str(v)) for v in found]
        order = np.array(sorted(range(len(names)), key=names.__getitem__))
    return pd.Index(found.take(order), tupleize_cols=False), order


def _are_whole(levels: Any) -> bool:
    if levels.dtype.kind != "f":
        return False
    return bool((levels == np.floor(levels)).all() and np.abs(levels).max() < EXACT)


_MISSING = frozenset(
    {".", "NA", "N/A", "#N/A", "NULL", "NONE", "MISSING", "-", "--", "?", "*", ""}
)
"""Marks of missing values, in capitals: R's NA, SAS's point, and others."""

_GROUPED = re.compile(
    r"[+-]?[1-9]\d{0,2}(?P<mark>[,.' _\u00a0\u202f])\d{3}(?:(?P=mark)\d{3})*"
    r"(?:(?P<point>[.,])\d*)?"
)
"""A number whose thousands are set off."""

_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")


def text_for_numbers(values: Any, code: str = "y") -> str:
    """Return a description of values that are not numbers, with the call that reads them.

    Parameters
    ----------
    values : (n,) an array of another type than numbers
    code : the column
    """
    column = f"data[{code!r}]"
    if values.dtype.kind == "M":
        seconds = f"({column} - {column}.min()).dt.total_seconds()"
        return f"{values.dtype}; give the seconds since the first of them, as in {seconds}"
    if values.dtype.kind == "m":
        return f"{values.dtype}; give seconds, as in {column}.dt.total_seconds()"
    texts = [value for value in values if isinstance(value, str)]
    if not texts:
        return str(values.dtype)
    words = [text for text in texts if not _is_number(text)]
    whole = not words and all(text.strip().lstrip("+-").isdecimal() for text in texts)
    if whole and any(abs(float(text)) >= EXACT for text in texts):
        return (
            f"whole numbers as text, such as {texts[0]!r}; read them as Python's, which keep all "
            f"digits: numbers = {column}.map(int), and give numbers - numbers.min()"
        )
    if not words:
        return f"text, such as {texts[0]!r}; convert it with pandas.to_numeric"
    others = [word for word in words if word.strip().upper() not in _MISSING]
    marks = f"na_values={sorted(set(words) - set(others))}"
    if others:
        more = f", {marks}" if len(others) < len(words) else ""
        return f"{others[0]!r}{_separators(others, texts, more)}"
    return (
        f"{words[0]!r} in {len(words)} of {len(values)} rows; if that marks a missing value, read "
        f"it with {_read_csv(marks)} and give the frame"
    )


def labels_of_files(columns: Sequence[str]) -> str:
    """Return how columns are read in which NA is a label, such as the initials of a rater."""
    types = f"dtype={dict.fromkeys(columns, 'str')}, keep_default_na=False"
    return f"for labels of these names read them with {_read_csv(types)} and give the frame"


def _read_csv(options: str) -> str:
    return f"pandas.read_csv(path, sep=None, engine='python', {options})"


def _separators(words: Sequence[str], texts: Sequence[str], more: str) -> str:
    """Return the advice on decimal commas and on marks between thousands; empty if it is neither.

    Parameters
    ----------
    words : those that are not numbers
    texts : all of them
    more : options that are needed as well
    """
    grouped = [_GROUPED.fullmatch(word.strip()) for word in words]
    marks = {match["mark"] for match in grouped if match}
    points = {match["point"] for match in grouped if match and match["point"]}
    plain = [word for word, match in zip(words, grouped, strict=True) if not match]
    decimal, are_commas = "decimal=','", all(map(_is_decimal_comma, plain))
    if plain and marks == {"."} and are_commas:
        points.add(",")
    if len(marks) == 1 and not points & marks and (not plain or "," in points):
        (mark,) = marks
        thousands = f"thousands={mark!r}"
        # One group after a comma may be three decimals.
        if all(map(_is_decimal_comma, words)) and not any("." in text for text in texts):
            return (
                f"; if the comma separates thousands, read it with {_read_csv(thousands + more)}; "
                f"if it is the decimal mark, with {decimal} in place of {thousands}; and give the "
                "frame"
            )
        options = f"{thousands}, {decimal}" if "," in points else thousands
        return f"; read it with {_read_csv(options + more)} and give the frame"
    if all(map(_is_decimal_comma, words)):
        return f"; read it with {_read_csv(decimal + more)} and give the frame"
    return ""


def _is_decimal_comma(word: str) -> bool:
    return bool(_DECIMAL_COMMA.fullmatch(word.strip()))


def _is_number(text: str) -> bool:
    try:
        float(text.replace("_", "?"))  # Python reads 1_000, data programs do not
    except ValueError:
        return False
    return True


def is_grouped(kind: Any) -> bool:
    """Return whether pandas can sort and group arrays of one of Arrow's types."""
    from pyarrow import types

    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    is_text = types.is_string(kind) or types.is_large_string(kind)
    is_other = types.is_boolean(kind) or types.is_temporal(kind) or types.is_null(kind)
    return (is_number and kind != "halffloat") or is_text or (is_other and not _is_interval(kind))


def _is_interval(kind: Any) -> bool:
    return str(kind) == "month_day_nano_interval"


def in_known_types(table: Any) -> Any:
    """Return a table without runs, half floats, and types that extend Arrow's."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for position, column in enumerate(table.schema):
        kind, values = column.type, table.column(position)
        if isinstance(kind, pa.BaseExtensionType) and kind.extension_name != "arrow.uuid":
            stored = [chunk.storage for chunk in values.chunks]
            values = pa.chunked_array(stored, type=kind.storage_type)
            if kind.extension_name == "arrow.bool8":
                values = values.cast(pa.bool_())
        elif pa.types.is_run_end_encoded(kind):
            decoded = [pc.run_end_decode(chunk) for chunk in values.chunks]
            values = pa.chunked_array(decoded, type=kind.value_type)
        elif pa.types.is_float16(kind):
            values = values.cast(pa.float32())
        else:
            continue
        table = table.set_column(position, column.name, values)
    return table


def no_text(name: str, value: Any) -> DataError:
    """Return the DataError for text that cannot be written, such as half of a character."""
    return DataError(
        f"column {name!r} holds {value!a}, which is not valid Unicode text; read it with the "
        "encoding that it was written in",
        column=name,
    )


def exact_floats(name: str | None, numbers: Any) -> FloatArray:
    """Return numbers as floats, nan where missing.

    Parameters
    ----------
    name : of the column, for messages; None for a matrix of scores
    numbers : an array or a column, of numbers only

    Raises
    ------
    DataError
        If a whole number or a decimal fraction has more digits than a float, and loses some.

    Examples
    --------
    >>> import pandas as pd
    >>> exact_floats("y", pd.Series([1, None], dtype="Int64"))
    array([ 1., nan])
    """
    import pandas as pd

    # In one dimension: a column of pandas has types that hold missing values.
    column = numbers if isinstance(numbers, pd.Series) else pd.Series(np.ravel(numbers))
    kind = column.dtype.kind
    try:
        # pandas 2 copies where a value for missing ones is given.
        plain = isinstance(column.dtype, np.dtype) and kind == "f"
        whole = column.to_numpy() if plain else column.to_numpy(dtype=float, na_value=np.nan)
        floats: FloatArray = np.asarray(whole, dtype=float)
    except OverflowError:
        raise _too_large(name, list(column)) from None
    if kind == "O" or (kind in "iu" and getattr(column.dtype, "itemsize", 8) > 4):
        for place in np.flatnonzero((np.abs(floats) >= EXACT) & np.isfinite(floats)):
            value, number = column.iloc[place], int(floats[place])
            if isinstance(value, int | np.integer) and int(value) != number:
                raise _too_long(name, str(value), str(number))
    if kind == "O":
        decimals = [v for v in column if isinstance(v, Decimal) and v.is_finite()]
        if np.isinf(list(map(float, decimals))).any():
            raise _too_large(name, list(column))
        _check_decimals(name, decimals)
    return floats if column is numbers else floats.reshape(np.shape(numbers))


_ROUNDED = 1e-12
"""Rounding errors below this share of the range of all numbers change no result: the smallest
residual that counts, 1e-6 of the range, changes by a millionth."""


def _check_decimals(name: str | None, decimals: list[Decimal]) -> None:
    """Refuse decimals whose rounding errors as floats are large relative to their differences."""
    if not decimals:
        return
    low, high = min(decimals), max(decimals)
    least = _ROUNDED * float(high - low)
    if least == 0.0 or 2.0**-53 * max(abs(float(low)), abs(float(high))) <= least:
        return
    value = max(decimals, key=lambda v: abs(v - Decimal(float(v))))
    if abs(value - Decimal(float(value))) > least:
        raise _too_long(name, str(value), repr(float(value)))


def _too_large(name: str | None, values: list[Any]) -> DataError:
    what, code = _in_words(name)
    numbers = [Decimal(v) for v in values if isinstance(v, int | Decimal)]
    largest = max((v for v in numbers if v.is_finite()), key=abs)
    power = largest.adjusted()
    advice = "leave such scores out"
    if len(numbers) == len(values):  # a float cannot be divided by a number beyond floats
        advice += f", or divide all by a power of ten, as in {code} / 10**{power}"
    return DataError(f"{what} holds {largest:.3e}, which as a float would be infinite: {advice}")


def _in_words(name: str | None) -> tuple[str, str]:
    """Return what holds scores, for messages, and code for it."""
    return ("the matrix", "scores") if name is None else (f"column {name!r}", f"data[{name!r}]")


def _too_long(name: str | None, value: str, rounded: str) -> DataError:
    what, code = _in_words(name)
    return DataError(
        f"{what} holds {value}, which as a float would be {rounded}: numbers of so many digits "
        "lose the last ones. Subtract the smallest from all of them before they are given, as in "
        f"{code} - {code}.min(), or round them yourself, as in {code}.astype(float)"
    )
