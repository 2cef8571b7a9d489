"""Scores in any form: a matrix, a wide or long table, or a ``ScoreMatrix``.

:mod:`vcomp.ir` and :mod:`vcomp.ctt` read scores by :data:`ORIENTATIONS`. A bare matrix has the
orientation of its field; a wide table whose labels contradict it, and a long table whose columns
are not named, are refused with an error that shows what to pass instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.data.column_values import EXACT, as_levels, exact_floats
from vcomp.data.several_scores import several_scores
from vcomp.data.source import open_source, refuse_dask
from vcomp.display import memory
from vcomp.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd

_SYSTEM = frozenset({"system", "systems", "sys", "run", "runs", "runid"})
_TOPIC = frozenset({"topic", "topics", "query", "queries", "qid"})
_PERSON = frozenset(
    {"object", "objects", "person", "persons", "student", "students", "participant", "examinee"}
)
_ITEM = frozenset({"item", "items"})
_RATER = frozenset({"rater", "raters", "judge", "judges", "assessor", "assessors"})
_SCORE = ("score", "response", "rating", "value")
_OTHERS = frozenset(
    {
        "subject", "subjects", "respondent", "respondents", "candidate", "candidates", "pupil",
        "patient", "model", "models", "prompt", "prompts", "question", "questions", "task",
        "tasks", "occasion", "session", "document", "doc", "documents", "part", "operator",
    }
)  # fmt: skip
"""Further names of columns of labels."""

_IDENTIFIERS = _SYSTEM, _TOPIC, _PERSON, _ITEM, _RATER, *({name} for name in sorted(_OTHERS))

_MOST_COLUMNS = 6
"""Largest number of columns of a table that is recognised as long by its values."""

_FEWEST_ROWS = 6
"""Smallest number of rows for which a grid of labels in two columns is not due to chance."""

_FEWEST_NUMBERED = 10
"""Smallest number of rows for which distinct whole numbers, on a scale twice as wide as that of
all others, are labels of rows."""


@dataclass(frozen=True, slots=True)
class Orientation:
    """The facets of the rows and columns of a matrix, by the convention of a field.

    Attributes
    ----------
    row, column : their names, which are those of the parameters for long tables, too
    row_names, column_names : names of columns and axes that identify them, in lower case
    first : whether `row` or `column` is measured; its parameter is the first in signatures
    index_names : columns of a wide table that hold the labels of its rows
    as_text : whether labels are text
    from_files : whether wide tables may be files or mappings of columns
    """

    row: str
    column: str
    row_names: frozenset[str]
    column_names: frozenset[str]
    first: str
    index_names: frozenset[str] = frozenset()
    as_text: bool = False
    from_files: bool = True

    @property
    def roles(self) -> tuple[str, str, str]:
        """The parameters for the columns of a long table, in the order of signatures."""
        return self.first, self.row if self.first == self.column else self.column, "score"

    def read(self, scores: Any, names: Mapping[str, str | None]) -> LabelledScores:
        """Return scores of any form as a matrix with labels.

        Parameters
        ----------
        scores : a matrix (2-D array, nested lists), a wide table (pandas, or another that exports
            Arrow), a :class:`vcomp.ir.ScoreMatrix`, or a long table, a row a score, in any
            container that :func:`vcomp.fit` reads
        names : the columns of a long table by role. If one is given, each other role has the
            column of its own name

        Raises
        ------
        DataError
            If `scores` has none of these forms, looks transposed by its labels, is a long table
            whose columns are not named, contains values that are not numbers, or has several
            scores in a cell.
        """
        refuse_dask(scores)
        is_matrix = _is_score_matrix(scores)
        if any(name is not None for name in names.values()):
            if is_matrix:
                given = ", ".join(f"{role}=" for role, name in names.items() if name is not None)
                raise DataError(
                    f"{given} names columns of long tables; a ScoreMatrix has its own labels"
                )
            return _from_long(scores, self, names)
        if is_matrix:
            return _from_score_matrix(scores, self)
        return _from_wide(scores, self)


ORIENTATIONS = {
    "system": Orientation(
        "topic",
        "system",
        _TOPIC,
        _SYSTEM,
        "system",
        frozenset({"topic", "topics", "query", "qid"}),
        as_text=True,
        from_files=False,
    ),
    "item": Orientation("object", "item", _PERSON | _SYSTEM, _ITEM | _TOPIC, "object"),
    "rater": Orientation("object", "rater", _PERSON | _SYSTEM | _TOPIC | _ITEM, _RATER, "object"),
}
"""Conventions of rows × columns: topics × systems in :mod:`vcomp.ir`, objects × items in
:mod:`vcomp.ctt`, objects × raters for intraclass correlations."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelledScores:
    """Scores with the labels of their rows and columns.

    Attributes
    ----------
    values : (n_rows, n_columns) numbers; nan where there is none
    rows, columns : labels, in the order of the data
    """

    values: FloatArray
    rows: pd.Index
    columns: pd.Index

    def in_order(self) -> LabelledScores:
        """Return the table with its labels in order: categories in theirs, others sorted."""
        rows, row_order = _in_order(self.rows)
        columns, column_order = _in_order(self.columns)
        return LabelledScores(self.values[np.ix_(row_order, column_order)], rows, columns)


def _in_order(labels: pd.Index) -> tuple[pd.Index, LongArray]:
    import pandas as pd

    levels = as_levels("labels", pd.Series(labels)).cat
    order = np.argsort(levels.codes.to_numpy(), kind="stable")
    return pd.Index(levels.categories, tupleize_cols=False), order


# A ScoreMatrix --------------------------------------------------------------------------------


def _is_score_matrix(scores: Any) -> bool:
    """Return whether scores are a ``ScoreMatrix``, whose class is above this module."""
    labels = (getattr(scores, name, None) for name in ("topics", "systems"))
    return all(isinstance(label, tuple) for label in labels)


def _from_score_matrix(matrix: Any, orientation: Orientation) -> LabelledScores:
    """Return topics × systems, or systems × topics where systems are the objects."""
    import pandas as pd

    values = exact_floats(None, np.asarray(matrix.scores))
    topics, systems = (
        pd.Index(labels, dtype=object) for labels in (matrix.topics, matrix.systems)
    )
    if values.shape != (len(topics), len(systems)):
        raise DataError(
            f"the scores of a ScoreMatrix have a row for each of its {len(topics)} topics and a "
            f"column for each of its {len(systems)} systems; their shape is {values.shape}"
        )
    if orientation.row == "topic":
        return LabelledScores(values, topics, systems)
    return LabelledScores(np.ascontiguousarray(values.T), systems, topics)


# A matrix or a wide table ---------------------------------------------------------------------


def _from_wide(scores: Any, orientation: Orientation) -> LabelledScores:
    import pandas as pd

    if isinstance(scores, str | os.PathLike | Mapping) or hasattr(scores, "collect"):
        if not orientation.from_files:
            raise DataError(
                f"scores must be a {orientation.row} × {orientation.column} matrix: a wide frame, "
                f"an array or nested lists, not a {type(scores).__name__}. "
                f"{_name_columns(orientation)}"
            )
        source = open_source(scores)
        scores = source.read(source.columns)
    elif not isinstance(scores, pd.DataFrame) and hasattr(scores, "__arrow_c_stream__"):
        scores = _through_arrow(scores, orientation)
    if isinstance(scores, pd.DataFrame):
        return _from_frame(scores, orientation)
    values = _numbers(scores, orientation)
    n, k = values.shape
    _refuse_long(pd.DataFrame(values), orientation)
    return LabelledScores(values, pd.RangeIndex(n), pd.RangeIndex(k))


def _name_columns(orientation: Orientation, found: Mapping[str, str] | None = None) -> str:
    """Return the end of a message: how to name the columns of a long table."""
    shown = {role: repr(name) for role, name in (found or {}).items()}
    pairs = ", ".join(f"{role}={shown.get(role, '...')}" for role in orientation.roles)
    return f"Of a long table, a row a score, name the columns: {pairs}"


def _through_arrow(table: Any, orientation: Orientation) -> pd.DataFrame:
    import pyarrow as pa

    from vcomp.data.parts import from_arrow

    try:
        arrow = pa.table(table)
    except (TypeError, ValueError) as error:
        kind = type(table).__name__
        raise DataError(
            f"scores must be a {orientation.row} × {orientation.column} table, not a {kind}"
        ) from error
    return from_arrow(arrow)


def _from_frame(frame: pd.DataFrame, orientation: Orientation) -> LabelledScores:
    row, column = orientation.row, orientation.column
    _refuse_identifiers(frame, orientation)
    labels = [name for name in frame.columns if str(name).lower() in orientation.index_names]
    if len(labels) > 1:
        raise DataError(f"{row}s have one column, not {', '.join(map(repr, labels))}; drop others")
    if labels:
        frame = frame.set_index(labels[0])
    for place, dtype in enumerate(frame.dtypes):
        if _is_number(dtype) or _holds_numbers(frame.iloc[:, place]):
            continue
        remedy = f"call it {row!r}" if orientation.index_names else "set it as the index"
        raise DataError(
            f"column {str(frame.columns[place])!r} does not hold numbers, the scores of one "
            f"{column}: {remedy} if it names {row}s, or drop it. {_name_columns(orientation)}",
            column=frame.columns[place],
        )
    exact = [place for place, dtype in enumerate(frame.dtypes) if dtype.kind in "iuO"]
    for place in exact:
        exact_floats(str(frame.columns[place]), frame.iloc[:, place])
    return LabelledScores(frame.to_numpy(dtype=float, na_value=np.nan), frame.index, frame.columns)


def _refuse_identifiers(frame: pd.DataFrame, orientation: Orientation) -> None:
    """Refuse a long table, and a wide one that looks transposed by its labels."""
    row, column = orientation.row, orientation.column
    rows = _among(frame.columns, orientation.row_names)
    columns = _among(frame.columns, orientation.column_names)
    if rows and columns:
        found = {row: rows[0], column: columns[0]}
        scores = _among(frame.columns, _SCORE)
        if scores:
            found["score"] = scores[0]
        raise DataError(
            "scores look like a long table, a row a score, by their columns "
            f"{rows[0]!r} and {columns[0]!r}. {_name_columns(orientation, found)}"
        )
    _refuse_long(frame, orientation)
    whose = None
    if _among([frame.index.name], orientation.column_names):
        whose = f"the rows are called {str(frame.index.name)!r}"
    elif _among([frame.columns.name], orientation.row_names):
        whose = f"the columns are called {str(frame.columns.name)!r}"
    elif columns:
        whose = f"column {columns[0]!r} looks like the labels of {column}s"
    elif _are_numbered(frame.index, orientation.column_names):
        whose = f"rows have labels such as {str(frame.index[0])!r}"
    elif _are_numbered(frame.columns, orientation.row_names):
        whose = f"columns have names such as {str(frame.columns[0])!r}"
    if whose is not None:
        raise DataError(
            f"scores look transposed: {whose}. Pass scores.T, with a row for each {row} and a "
            f"column for each {column}, or a ScoreMatrix, which has names for both"
        )
    if not orientation.index_names:
        rows = rows or [name for name in frame.columns if _is_number_of_row(name, frame)]
        numbered = None if rows else _numbers_objects(frame)
        if numbered is not None:
            raise DataError(
                f"column {str(numbered)!r} has another whole number in each row, far beyond the "
                f"scale of the other columns: it looks like numbers of {row}s, not like scores. "
                "Set it as the index, or drop it; if it holds scores, pass the values without "
                "names, scores.to_numpy()",
                column=numbered,
            )
    if rows and not orientation.index_names:
        raise DataError(
            f"column {rows[0]!r} looks like the labels of {row}s, not like scores: set it as the "
            "index",
            column=rows[0],
        )


def _is_number_of_row(name: Any, frame: pd.DataFrame) -> bool:
    """Return whether a column is called an identifier, and has another value in each row."""
    written = str(name).lower()
    is_named = written in ("id", "uid", "pid", "nr", "no", "#") or re.search(r"[_ .-]id$", written)
    return bool(is_named) and int((frame.columns == name).sum()) == 1 and frame[name].is_unique


def _numbers_objects(frame: pd.DataFrame) -> Any:
    """Return the column of distinct whole numbers among scores on a small scale, or None."""
    n, k = frame.shape
    if n < _FEWEST_NUMBERED or k < 3 or not all(map(_is_number, frame.dtypes)):
        return None
    values = frame.to_numpy(dtype=float, na_value=np.nan)
    if not np.isfinite(values).any(axis=0).all() or np.isinf(values).any():
        return None
    span = np.nanmax(values, axis=0) - np.nanmin(values, axis=0)
    numbers = values[:, span.argmax()]
    if not (numbers == np.round(numbers)).all() or np.unique(numbers).size < n:
        return None
    others = np.delete(values, span.argmax(), axis=1)
    scale = np.unique(others[~np.isnan(others)])
    far = n > scale.size and span.max() >= 2.0 * np.ptp(scale)
    return frame.columns[span.argmax()] if far else None


def _refuse_long(frame: pd.DataFrame, orientation: Orientation) -> None:
    """Refuse a long table by the names of its columns, or by two that are a grid of labels."""
    import pandas as pd

    if len(frame.columns) > _MOST_COLUMNS:
        return
    if not isinstance(frame.index, pd.RangeIndex) and frame.index.nlevels == 1:
        name = "index" if frame.index.name is None else frame.index.name
        frame = frame.set_axis(range(len(frame))).assign(**{str(name): frame.index})
    # Two names of the same facet, such as topic and qid, do not make a long table.
    by_facet = [_among(frame.columns, names)[:1] for names in _IDENTIFIERS]
    named = sorted((name for names in by_facet for name in names), key=list(frame.columns).index)
    why = "their names"
    if len(named) < 2:
        named = [str(name) for name in _grid_of_labels(frame)]
        why = "their values, which are the labels of a grid"
    if len(named) < 2:
        return
    wanted = [role for role in orientation.roles if role != "score"]
    found = dict(zip(wanted, named, strict=False))
    scores = [str(name) for name in frame.columns if str(name) not in named]
    if scores:
        found["score"] = next((name for name in scores if name.lower() in _SCORE), scores[-1])
    raise DataError(
        f"scores look like a long table, a row a score, by columns {named[0]!r} and "
        f"{named[1]!r} and {why}. {_name_columns(orientation, found)}. If each column holds the "
        "scores of one "
        f"{orientation.column}, pass a vcomp.ir.ScoreMatrix",
        column=named[0],
    )


def _grid_of_labels(frame: pd.DataFrame) -> list[Any]:
    """Return two columns of labels whose pairs are distinct and cover most of a grid, or none."""
    n = len(frame)
    if not 3 <= len(frame.columns) <= _MOST_COLUMNS - 2 or n < _FEWEST_ROWS:
        return []
    coded = {}
    for place, name in enumerate(frame.columns):
        values = frame.iloc[:, place]
        if values.isna().any() or not _are_labels(values):
            continue
        codes, levels = values.factorize()
        if 2 <= len(levels) <= n // 2:
            coded[name] = codes.astype(np.int64), len(levels)
    for (one, (a, n_a)), (other, (b, n_b)) in combinations(coded.items(), 2):
        cells = n_a * n_b
        is_full = cells == n or (n >= 20 and cells <= 1.5 * n)
        if is_full and np.unique(a * n_b + b).size == n:
            return [one, other]
    return []


def _are_labels(values: pd.Series) -> bool:
    if not _is_number(values.dtype) or values.dtype == bool:
        return values.dtype != bool
    return bool((np.floor(values.to_numpy(dtype=float)) == values).all())


def _are_numbered(labels: pd.Index, known: frozenset[str]) -> bool:
    """Whether all labels are one of some words with a number, such as ``topic 401``."""
    if not len(labels):
        return False
    words = {
        match.group(1).lower() if (match := re.fullmatch(r"([A-Za-z]+)[ _-]?\d+", str(x))) else ""
        for x in labels
    }
    return words <= known


def _among(names: Iterable[Any], known: Iterable[str]) -> list[str]:
    return [name for name in names if isinstance(name, str) and name.lower() in known]


def _holds_numbers(column: pd.Series) -> bool:
    if column.dtype == object:
        return all(isinstance(score, Real | Decimal | np.bool_) for score in column.dropna())
    return _is_number(column.dtype)


def _is_number(dtype: Any) -> bool:
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(dtype) and not is_complex_dtype(dtype))


def _numbers(scores: Any, orientation: Orientation) -> FloatArray:
    """Return an array of numbers with two dimensions."""
    row, column = orientation.row, orientation.column
    if hasattr(scores, "gstudy"):
        raise DataError(
            "scores are a table or a matrix, and this is the result of a fit: call its own "
            "methods, such as res.accuracy() and res.expected_tau()"
        )
    if isinstance(scores, np.ma.MaskedArray):
        scores = np.ma.filled(scores.astype(object), np.nan)
    try:
        raw = np.asarray(scores)
        if raw.dtype.kind == "f" and raw is not scores:  # long integers beside fractions
            raw = np.asarray(scores, dtype=object) if (np.abs(raw) >= EXACT).any() else raw
        values = exact_floats(None, raw) if raw.dtype.kind in "biufO" else None
    except DataError:
        raise
    except (TypeError, ValueError) as error:
        raise DataError(f"scores must be a {row} × {column} matrix of numbers: {error}") from error
    if values is None:
        raise DataError(
            f"scores must be a {row} × {column} matrix of numbers: they are {raw.dtype.name}"
        )
    if values.ndim != 2:
        raise DataError(
            f"scores must be a matrix, a row for each {row} and a column for each {column}; it "
            f"has {values.ndim} dimension(s). {_name_columns(orientation)}"
        )
    return values


# A long table ---------------------------------------------------------------------------------


def _from_long(
    data: Any, orientation: Orientation, names: Mapping[str, str | None]
) -> LabelledScores:
    import pandas as pd

    source = open_source(data)
    chosen = _columns_of(source, orientation, names)
    frame = source.read(list(chosen.values()))
    measured, on, score = (chosen[role] for role in orientation.roles)
    for name in (measured, on):
        empty = frame[name].isna().to_numpy()
        if empty.any():
            raise DataError(
                f"column {name!r} is missing in {int(empty.sum())} of {len(frame)} rows, first "
                f"in row {int(empty.argmax())}",
                column=name,
            )
    if not _holds_numbers(frame[score]):
        raise DataError(
            f"column {score!r} does not hold numbers; it is {frame[score].dtype}. score= is the "
            "column of the scores",
            column=score,
        )
    place, rows = _levels(frame[chosen[orientation.row]], orientation.as_text)
    across, columns = _levels(frame[chosen[orientation.column]], orientation.as_text)
    n, k = len(rows), len(columns)
    _check_memory(n, k, orientation)
    cells = place.astype(np.int64) * k + across
    counts = np.bincount(cells, minlength=0)
    if counts.size and counts.max() > 1:
        labels = dict(zip((orientation.row, orientation.column),
                          (rows[int(counts.argmax()) // k], columns[int(counts.argmax()) % k]),
                          strict=True))  # fmt: skip
        one, other = (str(labels[role]) for role in orientation.roles[:2])
        text = f"there are {counts.max()} scores of {measured} {one!r} on {on} {other!r}"
        if min(n, k) < 2:
            raise DataError(f"{text}; {measured} and {on} need two levels each")
        whole = source.read(list(source.columns)) if source.is_repeatable else frame
        is_compared = orientation.column == "system"
        raise several_scores(whole, (measured, on, score), text, is_compared=is_compared)
    values = np.full(n * k, np.nan)
    values[cells] = exact_floats(score, frame[score])
    return LabelledScores(
        values.reshape(n, k),
        pd.Index(rows, tupleize_cols=False),
        pd.Index(columns, tupleize_cols=False),
    )


def _columns_of(
    source: Any, orientation: Orientation, names: Mapping[str, str | None]
) -> dict[str, str]:
    """Return the column of each role; without a name it is the column named like the role."""
    chosen: dict[str, Any] = {}
    for role in orientation.roles:
        name = names.get(role)
        if name is None and role not in source.columns:
            shown = ", ".join(map(repr, source.columns[:20]))
            listed = ", ".join(f"{r}=" for r in orientation.roles)
            raise DataError(
                f"a long table has three columns, {listed}; {role}= is missing, and there is no "
                f"column {role!r}; the columns are {shown}",
                column=role,
            )
        chosen[role] = role if name is None else name
    hashable = [name for name in chosen.values() if isinstance(name, Hashable)]
    if len(set(hashable)) < len(chosen):
        listed = ", ".join(f"{role}=" for role in orientation.roles)
        raise DataError(f"{listed} are three different columns, not {list(chosen.values())}")
    return chosen


def _levels(column: pd.Series, as_text: bool) -> tuple[Any, Any]:
    """Return the code of the label of each row, and the labels in order of appearance."""
    import pandas as pd

    values: Any = column.astype(str) if as_text else column
    try:
        return pd.factorize(values)
    except TypeError as error:
        raise DataError(
            f"column {column.name!r} does not hold labels: {error}", column=column.name
        ) from None


def _check_memory(n: int, k: int, orientation: Orientation) -> None:
    from vcomp.numerics import available_bytes

    if 8.0 * n * k > available_bytes() / 4.0:
        raise DataError(
            f"the matrix of {n:,} {orientation.row}s by {k:,} {orientation.column}s would need "
            f"{memory(8.0 * n * k)}, more than is free; vcomp.fit estimates components from long "
            "data"
        )
