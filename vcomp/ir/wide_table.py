"""From a wide table, a row a topic and a column a system, to a matrix and its names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from numbers import Real
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["names_of", "read_wide"]

_TOPICS = frozenset({"topic", "topics", "query", "qid"})
"""Columns that no one means as a system; numbered topics would pass for scores."""


def read_wide(table: Any) -> tuple[FloatArray, tuple[str, ...], tuple[str, ...]]:
    """Return the scores, nan where there is none, the topics and the systems.

    Parameters
    ----------
    table : pandas frame, another table that speaks Arrow, a 2-D array or nested lists. A column
        called topic, topics, query or qid names the topics; else the index of a pandas frame does

    Returns
    -------
    (n_topics, n_systems) array, and the names of topics and systems: numbers from 0 on where the
    table has none

    Raises
    ------
    DataError
        If it is no such table, a column does not hold numbers, several name topics, or a topic or
        system has no name.
    """
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        return _from_frame(table)
    if hasattr(table, "__arrow_c_stream__"):
        return _from_frame(_through_arrow(table))
    return _from_array(table)


def names_of(labels: Iterable[object]) -> tuple[str, ...]:
    """Return names as text."""
    return tuple(str(label) for label in labels)


def _through_arrow(table: Any) -> pd.DataFrame:
    import pyarrow as pa

    try:
        frame: pd.DataFrame = pa.table(table).to_pandas()
    except (TypeError, ValueError) as error:
        kind = type(table).__name__
        raise DataError(f"scores must be a topic × system table, not a {kind}") from error
    return frame


def _from_frame(frame: pd.DataFrame) -> tuple[FloatArray, tuple[str, ...], tuple[str, ...]]:
    topics = [name for name in frame.columns if str(name).lower() in _TOPICS]
    if len(topics) > 1:
        raise DataError(f"topics have one column, not {', '.join(map(repr, topics))}; drop others")
    if topics:
        frame = frame.set_index(topics[0])
    for place, name in enumerate(frame.columns):
        if not _holds_numbers(frame.iloc[:, place]):
            raise DataError(
                f"column {str(name)!r} is not a system's scores: call it 'topic' if it names "
                "topics, or drop it. (ScoreMatrix.from_long reads a long frame, a row a score.)"
            )
    for labels, what in ((frame.index, "topic in row"), (frame.columns, "system in column")):
        if labels.nlevels == 1 and labels.isna().any():
            raise DataError(f"the {what} {int(labels.isna().argmax())} has no name")
    values = frame.to_numpy(dtype=float, na_value=np.nan)
    return values, names_of(frame.index), names_of(frame.columns)


def _holds_numbers(column: pd.Series) -> bool:
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    if column.dtype == object:
        return all(isinstance(score, Real | Decimal | np.bool_) for score in column.dropna())
    return bool(is_numeric_dtype(column.dtype) and not is_complex_dtype(column.dtype))


def _from_array(scores: object) -> tuple[FloatArray, tuple[str, ...], tuple[str, ...]]:
    if isinstance(scores, str | PurePath | Mapping) or hasattr(scores, "collect"):
        raise DataError(
            "scores must be a topic × system matrix: a wide frame, an array or nested lists, not "
            f"a {type(scores).__name__}. ScoreMatrix.from_long reads files and dicts of columns, "
            "a row a score"
        )
    if isinstance(scores, np.ma.MaskedArray):
        scores = np.ma.filled(scores.astype(float), np.nan)
    try:
        raw = np.asarray(scores)
        values = raw.astype(float) if raw.dtype.kind in "biufO" else None
    except (TypeError, ValueError) as error:
        raise DataError(f"scores must be a topic × system matrix of numbers: {error}") from error
    if values is None:
        raise DataError(f"scores must be numbers; they are {raw.dtype.name}")
    if values.ndim != 2:
        raise DataError(
            "scores must be a matrix, topics down and systems across; "
            f"it has {values.ndim} dimension(s)"
        )
    n_topics, n_systems = values.shape
    return values, names_of(range(n_topics)), names_of(range(n_systems))
