"""Runs: what a file says of one run of one model, as columns."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import IntArray
from vcomp.exceptions import DataError, did_you_mean
from vcomp.numerics import slices

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("model", "task", "item", "epoch", "prompt", "judge", "metric")
"""Columns of the table before the score, in this order."""

_CHUNK = 1 << 10
"""Rows that are kept as Python objects."""

NOT_SCORED = "not scored"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Columns that users ask for or rename.

    Attributes
    ----------
    metadata : keys of the data of a sample that become columns
    columns : our name of a column → its name there
    """

    metadata: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """Scores of one run.

    Attributes
    ----------
    file : its name
    format : of the file
    rows : a row for each score; ``score`` is nan where ``problem`` says why there is none;
        ``content`` is a hash of the item's content, 0 if none is known
    identity : equal in copies of the run and in its retries; empty if rows may recur
    order : runs of an identity are sorted by it; scores of later ones count
    samples, failed : numbers of samples, and of those that ended with an error
    duplicates : samples that were written again in the same file, and are not in the rows
    missing : samples that the results of the run count, and its log does not have
    unreadable : places of samples that cannot be read, with the reason
    notes : sentences on what was not read, or is not known
    names : name of a column in the file → our name
    """

    file: str
    format: str
    rows: pd.DataFrame
    identity: str = ""
    order: str = ""
    samples: int = 0
    failed: int = 0
    duplicates: int = 0
    missing: int = 0
    unreadable: Sequence[str] = ()
    notes: Sequence[str] = ()
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class SampleRows:
    """Rows that are collected, and become a frame with categories.

    Attributes
    ----------
    names : of the columns, among them ``score``
    constant : columns of one value; those without one are left out
    """

    names: tuple[str, ...]
    constant: Mapping[str, Any] = field(default_factory=dict)
    _rows: list[tuple[Any, ...]] = field(default_factory=list)
    _chunks: list[list[Any]] = field(default_factory=list)
    _numbers: dict[str, dict[Any, int]] = field(default_factory=dict)

    def add(self, *values: Any) -> None:
        """Add a row, with None for missing values."""
        self._rows.append(values)
        if len(self._rows) == _CHUNK:
            self._flush()

    def _flush(self) -> None:
        columns = zip(self.names, zip(*self._rows, strict=True), strict=False)
        self._chunks.append([self._array(name, values) for name, values in columns])
        self._rows.clear()

    def _array(self, name: str, values: Sequence[Any]) -> Any:
        if name not in _NUMBERS:
            return _numbered(values, self._numbers.setdefault(name, {}))
        kind, missing = _NUMBERS[name]
        return np.array([missing if v is None else v for v in values], kind)

    def frame(self) -> pd.DataFrame:
        """Return all rows, without a column of epochs if they have none."""
        import pandas as pd

        if self._rows:
            self._flush()
        parts = zip(*self._chunks, strict=True)
        columns = dict(zip(self.names, map(np.concatenate, parts), strict=False))
        self._chunks.clear()
        one = np.zeros(len(columns["score"]) if columns else 0, np.int8)
        found: dict[str, Any] = {
            name: pd.Categorical.from_codes(one, pd.Index([as_text(value)]))
            for name, value in self.constant.items()
            if value is not None and name not in columns
        }
        for name, values in columns.items():
            if name not in _NUMBERS:
                found[name] = _levels(values, self._numbers.pop(name))
            elif name != "epoch":
                found[name] = values
            elif not (without := values == _NO_EPOCH).all():
                found[name] = np.where(without, 1, values)
        return pd.DataFrame(found, copy=False)


_NO_EPOCH = np.iinfo(np.int64).min

_NUMBERS: dict[str, tuple[Any, Any]] = {
    "score": (np.float64, math.nan),
    "content": (np.uint64, 0),
    "epoch": (np.int64, _NO_EPOCH),
}
"""Columns of numbers: their kind, and the number stored for None."""

NO_ROWS = SampleRows(())
"""Of a file without rows."""


def _numbered(values: Sequence[Any], known: dict[Any, int]) -> IntArray:
    """Return the numbers of values; new ones are added to those that are known."""
    try:
        new = dict.fromkeys(values)
    except TypeError:  # lists or objects, which have no hash
        values = [None if v is None else as_text(v) for v in values]
        new = dict.fromkeys(values)
    for value in new:
        known.setdefault(value, len(known))
    return np.fromiter(map(known.__getitem__, values), np.int32, len(values))


def _levels(numbers: IntArray, known: Mapping[Any, int]) -> pd.Categorical:
    """Return levels that are text from numbers; None is missing, 1 and "1" are one level."""
    import pandas as pd

    texts: dict[Any, int] = {}
    places = [
        -1 if v is None or v != v else texts.setdefault(as_text(v), len(texts)) for v in known
    ]
    codes = np.array(places, np.int32)[numbers]
    return pd.Categorical.from_codes(codes, pd.Index(list(texts)), validate=False)


def joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return frames below each other, with united categories; missing columns are missing."""
    import pandas as pd
    from pandas.api.types import union_categoricals

    frames = [frame for frame in frames if len(frame)]
    if not frames:
        return pd.DataFrame()
    if len(frames) == 1:
        (frame,) = frames
        kinds = {"score": float} if "score" in frame else {}
        return frame.astype(kinds)
    names = list(dict.fromkeys(str(name) for frame in frames for name in frame))
    sizes = [len(frame) for frame in frames]
    parts = {
        name: [frame[name].array if name in frame else None for frame in frames] for name in names
    }
    del frames  # of columns that are joined no second copy stays in memory
    columns: dict[str, Any] = {}
    for name in names:
        own = zip(parts.pop(name), sizes, strict=True)
        if name in ("score", "content", "epoch", "number"):
            empty = np.nan if name == "score" else int(name == "epoch")
            columns[name] = np.concatenate(
                [np.full(n, empty) if part is None else np.asarray(part) for part, n in own],
                dtype=float if name == "score" else None,
            )
            continue
        missing = [
            pd.Categorical.from_codes(np.full(n, -1, np.int8), _no_levels())
            if part is None
            else part
            for part, n in own
        ]
        distinct = {id(c.categories): c for c in missing if len(c.categories)}
        known = sorted(distinct.values(), key=lambda c: len(c.categories))
        if all(_begins(known[-1].categories, c.categories) for c in known[:-1]):
            # Levels that were numbered as they came have the numbers that they had before.
            united = known[-1].categories if known else _no_levels()
            codes = [c.codes for c in missing]
        else:
            united = union_categoricals(list(distinct.values())).categories
            codes = [
                _recoded(c, united) if len(c.categories) else np.full(len(c), -1, np.int32)
                for c in missing
            ]
        whole = np.concatenate(codes)
        columns[name] = pd.Categorical.from_codes(whole, united, validate=False)
    return pd.DataFrame(columns, copy=False)


def _begins(whole: pd.Index, levels: pd.Index) -> bool:
    return bool(whole[: len(levels)].equals(levels))


_DIRECT = 2**20
"""Range of whole numbers that are looked up in a table, however few they are."""

_BLOCK = 2**15
"""Values that are looked up at once, so that they stay in a core's cache."""


class _Growing:
    """Values that are added in batches, in memory that grows where it is.

    Parameters
    ----------
    kind : of the values, which becomes wider if later ones need it
    missing : value of rows without one
    size : expected number of rows
    """

    def __init__(self, kind: Any, missing: Any, size: int) -> None:
        self._values: Any = np.empty(size, kind)
        self._missing, self._n = missing, 0

    def add(self, values: Any) -> None:
        """Add a batch of numbers."""
        self._room(len(values), values.dtype)[:] = values

    def fill(self, n: int) -> None:
        """Let the rows up to a number, if they have no value, be missing ones."""
        self._room(n - self._n, self._values.dtype)[:] = self._missing

    def made(self, n: int) -> Any:
        """Return the values of n rows; none can be added after that."""
        self.fill(n)
        self._values.resize(n, refcheck=False)
        return self._values

    def _room(self, n: int, kind: Any) -> Any:
        """Return memory of the next n values."""
        wider, end = np.promote_types(self._values.dtype, kind), self._n + n
        if wider != self._values.dtype:
            before, self._values = self._values, np.empty(self._values.size, wider)
            self._values[: self._n] = before[: self._n]
        if end > self._values.size:
            self._values.resize(max(end, self._values.size * 3 // 2), refcheck=False)
        room, self._n = self._values[self._n : end], end
        return room


class GrowingLevels(_Growing):
    """Levels that are text, numbered as they come; missing values and empty text have none.

    Parameters
    ----------
    size : expected number of rows
    """

    def __init__(self, size: int = 0) -> None:
        super().__init__(np.int8, -1, size)
        self._number: dict[str, int] = {}
        self._table = 0, np.zeros(0, np.int32)  # the first whole number, and numbers of levels
        self._known: dict[str, tuple[pd.Index, IntArray]] = {}

    def add(self, values: Any) -> None:
        """Add a batch of values.

        Parameters
        ----------
        values : a Series, whose levels are text, numbers or anything that :func:`as_text` names
        """
        import pandas as pd

        if isinstance(values.dtype, np.dtype) and values.dtype.kind == "i" and len(values):
            self._add_integers(values.to_numpy())
            return
        if isinstance(values.dtype, pd.CategoricalDtype):
            codes, distinct = values.cat.codes.to_numpy(), values.cat.categories
        else:
            try:
                codes, distinct = pd.factorize(values)
            except TypeError:  # lists or objects, which have no hash
                codes, distinct = np.arange(len(values)), values
        if pd.api.types.infer_dtype(distinct, skipna=False) == "string":
            numbers = self._places("string", pd.Index(distinct))
        else:
            numbers = self._numbers(distinct.tolist())
        self._look_up(codes, -1, np.append(np.int32(-1), numbers))

    def made(self, n: int) -> pd.Categorical:
        """Return the levels of n rows; none can be added after that."""
        import pandas as pd

        levels = pd.Index(list(self._number)) if self._number else _no_levels()
        return pd.Categorical.from_codes(super().made(n), levels, validate=False)

    def _look_up(self, values: IntArray, first: int, numbers: IntArray) -> Any:
        """Add values by a table of the numbers of their levels; return these."""
        # pandas stores codes in the same bytes.
        kind = np.min_scalar_type(-len(self._number) - 2)
        room = self._room(values.size, kind)
        numbers = numbers.astype(room.dtype, copy=False)
        for some in slices(values.size, _BLOCK):
            at = np.subtract(values[some], first, dtype=np.intp)
            np.take(numbers, at, out=room[some], mode="clip")
        return room

    def _add_integers(self, values: IntArray) -> None:
        """Add whole numbers, by a table if their range is small."""
        import pandas as pd

        start, table = self._table
        low, end = int(values.min()), int(values.max()) + 1
        if table.size:
            low, end = min(low, start), max(end, start + table.size)
        if end - low > max(_DIRECT, values.size):
            super().add(self._places("integer", pd.Index(values)))
            return
        if end - low > table.size:
            wider = np.full(end - low, -1, np.int32)
            wider[start - low :][: table.size] = table
            start, table = self._table = low, wider
        found = self._look_up(values, start, table)
        if found.min() < 0:
            new = pd.unique(values[found < 0])
            table[new.astype(np.int64) - start] = self._numbers(new.tolist())
            self._n -= values.size
            self._look_up(values, start, table)

    def _places(self, kind: str, values: pd.Index) -> IntArray:
        """Return the numbers of values of a kind; most of them are known already."""
        known, numbers = self._known.get(kind, (values[:0], np.zeros(0, np.int32)))
        places = known.get_indexer(values)
        is_new = places < 0
        if is_new.any():
            new = values[is_new].unique()
            known = known.append(new)
            numbers = np.append(numbers, self._numbers(new.tolist()))
            self._known[kind] = known, numbers
            places = known.get_indexer(values)
        return numbers[places]

    def _numbers(self, values: Sequence[Any]) -> IntArray:
        texts, number = map(_text_or_none, values), self._number
        return np.array(
            [-1 if text is None else number.setdefault(text, len(number)) for text in texts],
            dtype=np.int32,
        )


class GrowingRows:
    """Rows that are added in batches, and become a frame with categories.

    Parameters
    ----------
    size : expected number of rows
    """

    def __init__(self, size: int) -> None:
        self._size, self._n = size, 0
        self._columns: dict[str, _Growing] = {}

    def add(self, n: int, columns: Mapping[str, Any]) -> None:
        """Add rows; columns that they lack are missing, and an epoch is 1.

        Parameters
        ----------
        n : number of rows
        columns : numbers of ``score`` and ``epoch``, and a Series of the levels of each other one
        """
        if not n:
            return
        for name, values in columns.items():
            if name not in self._columns:
                numbers = {"score": (float, np.nan), "epoch": (np.int16, 1)}.get(name)
                self._columns[name] = (
                    _Growing(*numbers, self._size) if numbers else GrowingLevels(self._size)
                )
            self._columns[name].fill(self._n)
            self._columns[name].add(values)
        self._n += n

    def frame(self) -> pd.DataFrame:
        """Return all rows; none can be added after that."""
        import pandas as pd

        columns = {name: column.made(self._n) for name, column in self._columns.items()}
        return pd.DataFrame(columns, copy=False)


def _text_or_none(value: Any) -> str | None:
    is_missing = value is None or (isinstance(value, float) and value != value)
    return None if is_missing or (isinstance(value, str) and not value) else as_text(value)


def renamed(table: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """Return a table with other names of columns.

    Parameters
    ----------
    table : of scores
    columns : our name of a column → its name there; a column of our name goes if it is constant

    Raises
    ------
    DataError
        If there is no such column, or one of our name that varies.
    """
    for ours, theirs in columns.items():
        if theirs not in table:
            known = [str(name) for name in table if name not in ("content", "number", "problem")]
            raise DataError(
                f"no column {theirs!r}{did_you_mean(theirs, known)}, given as {ours!r}; the "
                f"columns are {', '.join(map(repr, known))}",
                column=str(theirs),
            )
        if ours == theirs:
            continue
        if ours in table and len(table[ours].dropna().unique()) > 1:
            raise DataError(
                f"column {ours!r} exists and varies: {theirs!r} cannot become it", column=ours
            )
        table = table.drop(columns=ours, errors="ignore").rename(columns={theirs: ours})
    return table


def named_within(table: pd.DataFrame, outer: str, inner: str, rows: Any) -> pd.Categorical:
    """Return the levels of a column, in some rows with the level of another before them.

    Parameters
    ----------
    table : of scores
    outer, inner : columns
    rows : which rows, without missing values
    """
    import pandas as pd

    codes, levels = pd.factorize(table[inner].astype(object))
    pairs = pd.MultiIndex.from_frame(table.loc[rows, [outer, inner]].astype(object))
    nested, found = pairs.factorize()
    labels = pd.Index([f"{name}/{item}" for name, item in found])
    if not labels.append(pd.Index(levels)).is_unique:
        labels = pd.Index([f"{name!r}/{item!r}" for name, item in found])
    codes[rows] = nested + len(levels)
    found = pd.Categorical.from_codes(codes, pd.Index(levels).append(labels))
    return found.remove_unused_categories()


def _no_levels() -> pd.Index:
    import pandas as pd

    return pd.Index(["x"])[:0]


def _recoded(values: Any, categories: pd.Index) -> Any:
    places = categories.get_indexer(values.categories)
    return np.append(places, -1).astype(np.int32)[values.codes]  # the last of missing ones


# Values ----------------------------------------------------------------------------------------


def as_text(value: Any) -> str:
    """Return a value of a log as the name of a level."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True)
    return str(value)


def number_or_problem(value: Any) -> tuple[float, str | None]:
    """Return a score, or nan and the reason; True is 1, also as text.

    Examples
    --------
    >>> number_or_problem(True), number_or_problem("0.5")
    ((1.0, None), (0.5, None))
    >>> number_or_problem(None), number_or_problem("good")
    ((nan, 'not scored'), (nan, "not a number: 'good'"))
    """
    if type(value) is float and math.isfinite(value):
        return value, None
    if isinstance(value, str):
        text = value.strip().lower()
        if text in ("true", "false"):
            return float(text == "true"), None
        try:
            value = float(text) if text else None
        except ValueError:
            return math.nan, f"not a number: {value[:60]!r}"
    if value is None:
        return math.nan, NOT_SCORED
    if isinstance(value, bool | int | float | np.number | np.bool_):
        try:
            number = float(value)
        except OverflowError:
            return math.nan, "not a number: it is too large"
        if math.isnan(number):
            return math.nan, NOT_SCORED
        return (number, None) if math.isfinite(number) else (math.nan, f"not finite: {number}")
    return math.nan, f"not a number but a {type(value).__name__}"


def within(value: Any, *keys: str) -> Any:
    """Return what nested objects hold at these keys, or None.

    Examples
    --------
    >>> within({"spec": {"model": "m"}}, "spec", "model"), within(None, "spec")
    ('m', None)
    """
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def content_hash(*parts: Any) -> int:
    """Return a number made of the content of an item, equal for equal content and never 0."""
    digest = hashlib.blake2b(_IN_ASCII(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") or 1


_IN_ASCII = json.JSONEncoder(sort_keys=True, default=str).encode


def first_line(text: Any, width: int = 80) -> str:
    """Return the beginning of an error message of a log."""
    lines = str(text).strip().splitlines() or [""]
    return lines[0] if len(lines[0]) <= width else f"{lines[0][:width]}…"
