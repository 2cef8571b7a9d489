"""The topic × system matrix of scores that every measure in :mod:`vcomp.ir` starts from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from vcomp._typing import FloatArray
from vcomp.dstudy.paired import PairedDifferences
from vcomp.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ScoreMatrix", "ScoresLike", "as_score_matrix", "paired_differences"]

_QUANTILE_FUZZ = 8 * float(np.finfo(float).eps)
"""A mean this close to the quantile, relative to the largest, is the quantile but for rounding."""

_NOT_SYSTEMS = frozenset({"topic", "topics", "query", "qid"})
"""Columns that no one means as a system; numbered topics would pass for scores."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoreMatrix:
    """Scores of systems on topics.

    Attributes
    ----------
    scores : (n_topics, n_systems) numbers; nan where there is none
    topics : (n_topics,) names
    systems : (n_systems,) names

    Examples
    --------
    >>> ScoreMatrix(np.array([[0.1, 0.4], [0.2, 0.5]]), ("401", "402"), ("a", "b")).n_systems
    2
    """

    scores: FloatArray
    topics: tuple[str, ...]
    systems: tuple[str, ...]

    @property
    def n_topics(self) -> int:
        """Number of topics."""
        return len(self.topics)

    @property
    def n_systems(self) -> int:
        """Number of systems."""
        return len(self.systems)

    def drop_worst(self, fraction: float) -> ScoreMatrix:
        """Return the matrix without the worst systems.

        Systems stay whose mean over their topics is at least the `fraction` quantile of the means
        (type 7 of Hyndman and Fan, 1996, as in R and numpy). Bodoff (2008, sec. 2.2) and
        Urbano (2016, sec. 5.3) leave out the worst quarter, where the faulty systems are.

        Parameters
        ----------
        fraction : share of the systems to leave out, at least 0 and less than 1

        Returns
        -------
        ScoreMatrix

        Raises
        ------
        DataError
            If `fraction` is out of range, or a system has no score.

        Examples
        --------
        >>> as_score_matrix([[1, 2, 3, 4], [1, 3, 5, 7]]).drop_worst(0.25).systems
        ('1', '2', '3')
        """
        if not 0 <= fraction < 1:
            raise DataError(f"drop_worst must be at least 0 and less than 1, not {fraction!r}")
        if fraction == 0:
            return self
        empty = np.isnan(self.scores).all(axis=0)
        if empty.any():
            raise DataError(f"system {self.systems[int(empty.argmax())]!r} has no score")
        means = np.nanmean(self.scores, axis=0)
        slack = _QUANTILE_FUZZ * np.abs(means).max()
        keep = means >= np.quantile(means, fraction) - slack
        systems = tuple(s for s, kept in zip(self.systems, keep, strict=True) if kept)
        return ScoreMatrix(self.scores[:, keep], self.topics, systems)


ScoresLike: TypeAlias = "ArrayLike | pd.DataFrame | ScoreMatrix"
"""What :func:`as_score_matrix` reads."""


def as_score_matrix(scores: ScoresLike) -> ScoreMatrix:
    """Read a topic × system matrix: **a row a topic, a column a system**.

    Parameters
    ----------
    scores : one of

        * a wide pandas frame, topics in the index and a column for each system;
        * another table that speaks Arrow (polars, pyarrow), all columns of which are systems;
        * a 2-D array or nested lists, whose systems and topics are named ``"0"``, ``"1"``, …;
        * a :class:`ScoreMatrix`, returned as it is.

        Missing values are missing cells.

    Returns
    -------
    ScoreMatrix

    Raises
    ------
    DataError
        If `scores` is not a matrix, has fewer than two topics or two systems, two systems of one
        name, a column that does not hold numbers, or an infinite score.

    Examples
    --------
    >>> import pandas as pd
    >>> wide = pd.DataFrame({"topic": ["401", "402"], "bm25": [0.2, 0.3], "rm3": [0.3, None]})
    >>> as_score_matrix(wide)
    Traceback (most recent call last):
    ...
    vcomp.exceptions.DataError: column 'topic' is not a system's scores: set it as the index ...
    >>> as_score_matrix(wide.set_index("topic")).topics
    ('401', '402')
    """
    import pandas as pd

    if isinstance(scores, ScoreMatrix):
        return scores
    if isinstance(scores, pd.DataFrame):
        matrix = _from_frame(scores)
    elif hasattr(scores, "__arrow_c_stream__"):
        matrix = _from_frame(_through_arrow(scores))
    else:
        matrix = _from_array(scores)
    _check(matrix)
    return matrix


def paired_differences(scores: ScoresLike, drop_worst: float = 0.0) -> PairedDifferences:
    """Return the differences between every two systems, which rank accuracy is estimated from.

    Parameters
    ----------
    scores : see :func:`as_score_matrix`
    drop_worst : see :meth:`ScoreMatrix.drop_worst`

    Returns
    -------
    PairedDifferences

    Raises
    ------
    DataError
        If the scores cannot be read, or two systems have fewer than two topics in common.
    """
    kept = as_score_matrix(scores).drop_worst(drop_worst)
    return PairedDifferences.from_scores(kept.scores, kept.systems)


def _through_arrow(table: Any) -> pd.DataFrame:
    import pyarrow as pa

    try:
        frame: pd.DataFrame = pa.table(table).to_pandas()
    except (TypeError, ValueError) as error:
        kind = type(table).__name__
        raise DataError(f"scores must be a topic × system table, not a {kind}") from error
    return frame


def _from_frame(frame: pd.DataFrame) -> ScoreMatrix:
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    for name, dtype in zip(frame.columns, frame.dtypes, strict=True):
        numeric = is_numeric_dtype(dtype) and not is_complex_dtype(dtype)
        if not numeric or str(name).lower() in _NOT_SYSTEMS:
            raise DataError(
                f"column {str(name)!r} is not a system's scores: set it as the index of a pandas "
                "frame, or drop it. (A long frame, a row a score, is to be pivoted first: topics "
                "down, systems across.)"
            )
    values = frame.to_numpy(dtype=float, na_value=np.nan)
    return ScoreMatrix(values, _names(frame.index), _names(frame.columns))


def _names(labels: Iterable[object]) -> tuple[str, ...]:
    return tuple(str(label) for label in labels)


def _from_array(scores: object) -> ScoreMatrix:
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
    return ScoreMatrix(values, _names(range(n_topics)), _names(range(n_systems)))


def _check(matrix: ScoreMatrix) -> None:
    n_topics, n_systems = matrix.scores.shape
    if n_topics < 2 or n_systems < 2:
        raise DataError(
            "scores need at least two topics (rows) and two systems (columns); "
            f"there are {n_topics} × {n_systems}"
        )
    if len(set(matrix.systems)) < n_systems:
        twice = next(s for s in matrix.systems if matrix.systems.count(s) > 1)
        raise DataError(f"there are several systems called {twice!r}")
    infinite = np.argwhere(np.isinf(matrix.scores))
    if infinite.size:
        topic, system = infinite[0]
        raise DataError(
            f"the score of system {matrix.systems[system]!r} on topic {matrix.topics[topic]!r} "
            "is infinite"
        )
