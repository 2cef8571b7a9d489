"""Runs: what a file says of one run of one model, as columns."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vcomp._typing import FloatArray, IntArray
from vcomp.exceptions import DataError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("model", "task", "item", "epoch", "prompt", "judge", "metric")
"""Columns of the table before the score, in this order."""

_CHUNK = 1 << 10
"""Samples that are kept as Python objects."""

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
    """Scores of samples that are collected, and become a frame with categories.

    Attributes
    ----------
    of_samples : names of the columns that the scores of a sample share
    of_scores : names of the columns that distinguish them, such as ``metric``
    constant : columns of one value; those without one are left out
    """

    of_samples: tuple[str, ...]
    of_scores: tuple[str, ...] = ()
    constant: Mapping[str, Any] = field(default_factory=dict)
    _samples: list[tuple[Any, ...]] = field(default_factory=list)
    _scores: list[Any] = field(default_factory=list)
    _labels: dict[tuple[tuple[Any, ...], ...], int] = field(default_factory=dict)
    _kinds: list[int] = field(default_factory=list)
    _chunks: list[dict[str, Any]] = field(default_factory=list)
    _numbers: dict[str, dict[Any, int]] = field(default_factory=dict)

    def add(
        self,
        sample: tuple[Any, ...],
        scores: Sequence[Any],
        labels: tuple[tuple[Any, ...], ...] = ((),),
    ) -> None:
        """Add the scores of a sample.

        Parameters
        ----------
        sample : values of the columns of samples, None for missing ones
        scores : values that :func:`number_or_problem` reads
        labels : for each score the values of the columns of scores
        """
        self._kinds.append(self._labels.setdefault(labels, len(self._labels)))
        self._samples.append(sample)
        self._scores += scores
        if len(self._samples) == _CHUNK:
            self._flush()

    def add_together(
        self,
        samples: Sequence[Sequence[Any]],
        scores: FloatArray,
        labels: tuple[tuple[Any, ...], ...],
    ) -> None:
        """Add samples whose scores have the same labels.

        Parameters
        ----------
        samples : columns of samples, arrays of Arrow or sequences
        scores : (samples, labels), nan for missing ones
        labels : for each score the values of the columns of scores
        """
        if self._samples:
            self._flush()
        n, k = scores.shape
        self._chunks.append(self._chunk(samples, k, labels, np.tile(np.arange(k), n)))
        self._add_scores(scores.ravel())

    def _flush(self) -> None:
        """Make columns of the samples; few kinds of them differ in the labels of their scores."""
        sizes, kinds = np.array(list(map(len, self._labels))), np.array(self._kinds)
        repeats = sizes[kinds]
        ends = np.cumsum(repeats)
        places = np.arange(ends[-1])
        places += np.repeat((np.cumsum(sizes) - sizes)[kinds] - (ends - repeats), repeats)
        labels = [label for labels in self._labels for label in labels]
        samples = list(zip(*self._samples, strict=True))
        self._chunks.append(self._chunk(samples, repeats, labels, places))
        self._add_scores(self._scores)
        for some in (self._samples, self._scores, self._labels, self._kinds):
            some.clear()

    def _chunk(
        self,
        samples: Sequence[Sequence[Any]],
        repeats: Any,
        labels: Sequence[tuple[Any, ...]],
        places: IntArray,
    ) -> dict[str, Any]:
        """Return columns of scores: samples by their numbers of scores, labels by their places."""
        flat = zip(self.of_scores, zip(*labels, strict=True), strict=False)
        chunk = {name: self._array(name, values)[places] for name, values in flat}
        for name, values in zip(self.of_samples, samples, strict=False):
            chunk[name] = np.repeat(self._array(name, values), repeats)
        return chunk

    def _add_scores(self, values: Any) -> None:
        scores, problems = numbers_or_problems(values)
        problems = problems or [None] * len(scores)
        self._chunks[-1] |= {"score": scores, "problem": self._array("problem", problems)}

    def _array(self, name: str, values: Sequence[Any]) -> Any:
        if name not in _NUMBERS:
            return _numbered(values, self._numbers.setdefault(name, {}))
        kind, missing = _NUMBERS[name]
        if isinstance(values, np.ndarray):
            return values.astype(kind)
        return np.array([missing if v is None else v for v in values], kind)

    def frame(self) -> pd.DataFrame:
        """Return all rows, without a column of epochs if they have none."""
        import pandas as pd

        if self._samples:
            self._flush()
        names = list(self._chunks[0]) if self._chunks else []
        columns = {name: np.concatenate([c.pop(name) for c in self._chunks]) for name in names}
        self._chunks.clear()
        one = np.zeros(len(columns["score"]) if columns else 0, np.int8)
        found: dict[str, Any] = {
            name: pd.Categorical.from_codes(one, pd.Index([as_text(value)]))
            for name, value in self.constant.items()
            if value is not None and name not in columns
        }
        for name, values in columns.items():
            if name in self._numbers:
                found[name] = _levels(values, self._numbers.pop(name))
            elif name != "epoch":
                found[name] = values
            elif not (without := values == _NO_EPOCH).all():
                found[name] = np.where(without, 1, values)
        return pd.DataFrame(found, copy=False)


_NO_EPOCH = np.iinfo(np.int64).min

_NUMBERS: dict[str, tuple[Any, Any]] = {
    "content": (np.uint64, 0),
    "epoch": (np.int64, _NO_EPOCH),
}
"""Columns of numbers: their kind, and the number stored for None."""

NO_ROWS = SampleRows(())
"""Of a file without rows."""


def _numbered(values: Any, known: dict[Any, int]) -> IntArray:
    """Return the numbers of values; new ones are added to those that are known."""
    if hasattr(values, "dictionary_encode"):
        found = values.dictionary_encode("encode")
        places: IntArray = found.indices.to_numpy()
        return _numbered(found.dictionary.to_pylist(), known)[places]
    try:
        new = dict.fromkeys(values)
    except TypeError:  # lists or objects, which have no hash
        values = [None if v is None else as_text(v) for v in values]
        new = dict.fromkeys(values)
    for value in new:
        known.setdefault(value, len(known))
    if len(new) == 1:
        return np.full(len(values), known[values[0]], np.int32)
    return np.fromiter(map(known.__getitem__, values), np.int32, len(values))


def _levels(numbers: IntArray, known: Mapping[Any, int]) -> pd.Categorical:
    """Return levels that are text from numbers; None is missing, 1 and "1" are one level."""
    import pandas as pd

    if {*map(type, known)} == {int}:  # no two of which are one level
        levels: Any = pd.Index(list(map(str, known)))
        return pd.Categorical.from_codes(numbers, levels, validate=False)
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
            pd.Categorical.from_codes(np.full(n, -1, np.int8), no_levels())
            if part is None
            else part
            for part, n in own
        ]
        distinct = {id(c.categories): c for c in missing if len(c.categories)}
        known = sorted(distinct.values(), key=lambda c: len(c.categories))
        if all(_begins(known[-1].categories, c.categories) for c in known[:-1]):
            # Levels that were numbered as they came have the numbers that they had before.
            united = known[-1].categories if known else no_levels()
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


def no_levels() -> pd.Index:
    """Return an index of text without levels."""
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


class Unscored(NamedTuple):
    """The reason of a missing score, in its place."""

    why: str


def numbers_or_problems(values: Sequence[Any]) -> tuple[FloatArray, list[str | None] | None]:
    """Return scores, and the reason of each missing one; None instead if none is missing."""
    with suppress(OverflowError):  # of a whole number
        if isinstance(values, np.ndarray) or set(map(type, values)) <= {float, int, bool}:
            scores = np.array(values, float)
            if np.isfinite(scores).all():
                return scores, None
    numbers, problems = zip(*map(number_or_problem, values), strict=True)
    return np.array(numbers, float), list(problems) if any(problems) else None


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
    if isinstance(value, Unscored):
        return math.nan, value.why
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
    text = "\x1f".join(map(_as_content, parts))
    return int(content_hashes([text.encode("utf-8", "backslashreplace")])[0])


def _as_content(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, list) and all(isinstance(text, str) for text in part):
        return "\x1e".join(part)
    return "" if part is None else json.dumps(part, sort_keys=True, default=str)


def content_hashes(texts: Iterable[bytes]) -> Any:
    """Return such numbers of texts: parts separated by U+001F, texts of a list by U+001E."""
    digest = partial(hashlib.blake2b, digest_size=8)
    numbers = np.frombuffer(b"".join([digest(text).digest() for text in texts]), ">u8")
    return np.maximum(numbers.astype(np.uint64), 1)


def first_line(text: Any, width: int = 80) -> str:
    """Return the beginning of an error message of a log."""
    lines = str(text).strip().splitlines() or [""]
    return lines[0] if len(lines[0]) <= width else f"{lines[0][:width]}…"
