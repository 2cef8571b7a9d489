"""Topic × system matrix of scores, the input of every measure in :mod:`vcomp.ir`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from vcomp._typing import FloatArray
from vcomp.data import ORIENTATIONS
from vcomp.exceptions import DataError, did_you_mean, guarded, is_real
from vcomp.formula import REPLICATE, RESIDUAL
from vcomp.markup import encodable

if TYPE_CHECKING:
    import pandas as pd

_QUANTILE_FUZZ = 8 * float(np.finfo(float).eps)
"""Tolerance, relative to the largest mean, within which a mean equals the quantile."""

_LARGEST = 1e150
"""Largest score whose square does not overflow."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ScoreMatrix:
    """Scores of systems on topics, with the labels of both.

    All functions of :mod:`vcomp.ir` and :mod:`vcomp.ctt` accept it; in the latter systems are the
    objects of measurement and topics the items.

    Attributes
    ----------
    scores : (n_topics, n_systems) numbers; nan where there is none
    topics : (n_topics,) names
    systems : (n_systems,) names
    judged : (n_topics, n_systems) share of the documents behind each score that were judged, of
        runs that :func:`score_runs` scored; else None
    facets : words for a system and a topic in printed results: the columns of a long table

    Examples
    --------
    >>> ScoreMatrix(np.array([[0.1, 0.4], [0.2, 0.5]]), ("401", "402"), ("a", "b"))
    ScoreMatrix(2 topics × 2 systems)
    """

    scores: FloatArray
    topics: tuple[str, ...]
    systems: tuple[str, ...]
    judged: FloatArray | None = None
    facets: tuple[str, str] = ("system", "topic")

    @classmethod
    def from_long(
        cls, data: Any, *, system: str = "system", topic: str = "topic", score: str = "score"
    ) -> ScoreMatrix:
        """Return the matrix of a long table, one row per score.

        Parameters
        ----------
        data : pandas or polars frame, pyarrow table, dict of arrays, or the path of a CSV or
            Parquet file
        system, topic, score : names of its columns

        Returns
        -------
        ScoreMatrix
            Systems and topics in the order in which they first come; cells without a row, or with
            a missing score, are missing.

        Raises
        ------
        DataError
            If a column is not in the table, scores are not numbers or infinite, a system or topic
            has no name, a system has several scores on a topic, or there are fewer than two
            systems or two topics.

        Examples
        --------
        >>> long = {"run": ["a", "a", "b"], "qid": [401, 402, 402], "map": [0.1, 0.2, 0.5]}
        >>> ScoreMatrix.from_long(long, system="run", topic="qid", score="map").to_frame()
        system    a    b
        topic
        401     0.1  NaN
        402     0.2  0.5
        """
        return as_score_matrix(data, system=system, topic=topic, score=score)

    def __repr__(self) -> str:
        missing = int(np.isnan(self.scores).sum())
        holes = f", {missing:,} missing" if missing else ""
        text = f"ScoreMatrix({self.n_topics:,} topics × {self.n_systems:,} systems{holes})"
        return encodable(text)

    def _part(self, rows: Sequence[int], columns: Sequence[int]) -> ScoreMatrix:
        """Return the scores of these topics and systems."""
        cells = np.ix_(rows, columns)
        return ScoreMatrix(
            self.scores[cells],
            tuple(self.topics[row] for row in rows),
            tuple(self.systems[column] for column in columns),
            None if self.judged is None else self.judged[cells],
            self.facets,
        )

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
            If `fraction` is out of range, a system has no score, or fewer than two are left.

        Examples
        --------
        >>> as_score_matrix([[1, 2, 3, 4], [1, 3, 5, 7]]).drop_worst(0.25).systems
        ('1', '2', '3')
        """
        if not is_real(fraction) or not 0 <= fraction < 1:
            raise DataError(f"drop_worst must be at least 0 and less than 1, not {fraction!r}")
        if fraction == 0:
            return self
        empty = np.isnan(self.scores).all(axis=0)
        if empty.any():
            raise DataError(
                f"system {self.systems[int(empty.argmax())]!r} has no score",
                level=self.systems[int(empty.argmax())],
            )
        means = np.nanmean(self.scores, axis=0)
        slack = _QUANTILE_FUZZ * np.abs(means).max()
        keep = np.flatnonzero(means >= np.quantile(means, fraction) - slack)
        if keep.size < 2:
            raise DataError(
                f"drop_worst={fraction!r} leaves {self.systems[keep[0]]!r} alone of "
                f"{self.n_systems} systems, and two are needed",
                level=self.systems[keep[0]],
            )
        return self._part(range(self.n_topics), keep.tolist())

    def select(
        self,
        *,
        systems: Iterable[object] | None = None,
        topics: Iterable[object] | None = None,
    ) -> ScoreMatrix:
        """Return some of the systems and topics, in the requested order.

        Parameters
        ----------
        systems, topics : names; all of them by default

        Returns
        -------
        ScoreMatrix

        Raises
        ------
        DataError
            If a name is not there or given twice, or fewer than two systems or topics are left.

        Examples
        --------
        >>> matrix = as_score_matrix([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
        >>> matrix.select(systems=[2, 0], topics=["1", "2"]).scores.tolist()
        [[6.0, 4.0], [9.0, 7.0]]
        """
        rows = _places(self.topics, topics, "topic")
        columns = _places(self.systems, systems, "system")
        return check_matrix(self._part(rows, columns))

    def common_topics(self) -> ScoreMatrix:
        """Return the topics on which all systems have a score.

        Returns
        -------
        ScoreMatrix

        Raises
        ------
        DataError
            If there are fewer than two such topics.

        Examples
        --------
        >>> as_score_matrix([[1, 2], [3, None], [5, 6]]).common_topics().topics
        ('0', '2')
        """
        missing = np.isnan(self.scores)
        keep = np.flatnonzero(~missing.any(axis=1))
        if keep.size < 2:
            lacking = missing.sum(axis=0)
            worst = int(lacking.argmax())
            raise DataError(
                f"the systems have {keep.size} topics in common, and two are needed; system "
                f"{self.systems[worst]!r} lacks most, {lacking[worst]:,} of {self.n_topics:,}",
                level=self.systems[worst],
            )
        return self._part(keep.tolist(), range(self.n_systems))

    def to_frame(self) -> pd.DataFrame:
        """Return a wide frame, one row per topic and one column per system; nan for missing cells.

        Examples
        --------
        >>> as_score_matrix([[1, 2], [3, 4]]).to_frame()
        system    0    1
        topic
        0       1.0  2.0
        1       3.0  4.0
        """
        import pandas as pd

        return pd.DataFrame(
            self.scores.copy(),
            index=pd.Index(self.topics, name="topic", dtype=object),
            columns=pd.Index(self.systems, name="system", dtype=object),
        )

    def to_long(self) -> pd.DataFrame:
        """Return a long frame with columns ``system``, ``topic`` and ``score``: one row per score.

        The share of judged documents, if it is known, is a fourth column, ``judged``. Missing
        cells have no row. What :func:`vcomp.fit` reads:
        ``vcomp.fit("score ~ (1|system) + (1|topic)", matrix.to_long())``.

        Examples
        --------
        >>> as_score_matrix([[1, 2], [3, None]]).to_long()
          system topic  score
        0      0     0    1.0
        1      0     1    3.0
        2      1     0    2.0
        """
        import pandas as pd

        column, row = np.nonzero(~np.isnan(self.scores.T))
        columns = {
            "system": np.array(self.systems, dtype=object)[column],
            "topic": np.array(self.topics, dtype=object)[row],
            "score": self.scores[row, column],
        }
        if self.judged is not None:
            columns["judged"] = self.judged[row, column]
        return pd.DataFrame(columns)


ScoresLike: TypeAlias = (
    "ArrayLike | pd.DataFrame | ScoreMatrix | Mapping[str, Any] | str | os.PathLike[str]"
)
"""Types that :func:`as_score_matrix` reads."""

TruthLike: TypeAlias = "ScoresLike | pd.Series | Mapping[str, float] | ArrayLike"
"""Scores of the same systems on other topics, or a true mean of each system."""


@guarded
def as_score_matrix(
    scores: ScoresLike,
    *,
    system: str | None = None,
    topic: str | None = None,
    score: str | None = None,
) -> ScoreMatrix:
    """Return scores as a topic × system matrix: **one row per topic, one column per system**.

    Parameters
    ----------
    scores : one of

        * a long table, one row per score, with its columns named by `system`, `topic` and `score`:
          a pandas or polars frame, pyarrow table, dict of arrays, or the path of a CSV or Parquet
          file;
        * a :class:`ScoreMatrix`, returned as it is once checked;
        * a wide pandas frame, a column for each system, topics in the index or in a column called
          topic, topics, query or qid;
        * another table that exports Arrow (polars, pyarrow), topics in such a column if they have
          names;
        * a 2-D array or nested lists, whose systems and topics are named ``"0"``, ``"1"``, …

        Missing values are missing cells.
    system, topic, score : columns of a long table. If one of them is given, each other is the
        column of its own name, ``"system"``, ``"topic"`` or ``"score"``

    Returns
    -------
    ScoreMatrix
        Systems and topics of a long table are in the order in which they first come.

    Raises
    ------
    DataError
        If `scores` is not a matrix, looks transposed by its labels, or is a long table whose
        columns are not named; if it has fewer than two topics or two systems, two systems or
        topics of one name or one without, several scores of a system on a topic, a column that
        does not hold numbers, or a score that is infinite or beyond 1e150.

    Examples
    --------
    >>> import pandas as pd
    >>> long = {"sys": ["a", "a", "b", "b"], "topic": [1, 2, 1, 2], "score": [0.1, 0.2, 0.3, 0.5]}
    >>> as_score_matrix(long, system="sys")
    ScoreMatrix(2 topics × 2 systems)
    >>> wide = pd.DataFrame({"topic": ["401", "402"], "bm25": [0.2, 0.3], "rm3": [0.3, None]})
    >>> matrix = as_score_matrix(wide)
    >>> matrix.topics, matrix.systems
    (('401', '402'), ('bm25', 'rm3'))
    >>> as_score_matrix(wide.set_index("topic").add_prefix("my-")).systems
    ('my-bm25', 'my-rm3')
    """
    names = {"system": system, "topic": topic, "score": score}
    if isinstance(scores, ScoreMatrix) and not any(names.values()):
        return check_matrix(scores)
    if _is_plain(scores) and not any(names.values()):
        values: FloatArray = np.array(scores)
        n, k = values.shape
        return _check_values(ScoreMatrix(values, _numbers(n), _numbers(k)))
    table = ORIENTATIONS["system"].read(scores, names)
    for labels, what in ((table.rows, "topic in row"), (table.columns, "system in column")):
        if labels.nlevels == 1 and labels.hasnans:
            raise DataError(f"the {what} {int(labels.isna().argmax())} has no name")
    rows, columns = names_of(table.rows), names_of(table.columns)
    facets = (system or "system", topic or "topic") if any(names.values()) else ("system", "topic")
    if any(":" in facet or facet in _RESERVED for facet in facets):
        facets = ("system", "topic")
    return check_matrix(ScoreMatrix(table.values, rows, columns, facets=facets))


_RESERVED = (RESIDUAL, REPLICATE, "score", "judged")
"""Names that facets cannot have: those of other components and of columns of scores."""


def _is_plain(scores: Any) -> bool:
    """Whether scores are a plain matrix, rather than a long table of three or four columns."""
    is_plain = type(scores) is np.ndarray and scores.dtype == float and scores.ndim == 2
    return is_plain and scores.shape[1] not in (3, 4)


@lru_cache(maxsize=8)
def _numbers(n: int) -> tuple[str, ...]:
    """Return default labels of topics or systems: their numbers from 0."""
    return tuple(map(str, range(n)))


def names_of(labels: Iterable[object]) -> tuple[str, ...]:
    """Return labels as text."""
    return tuple(str(label) for label in labels)


def _places(names: tuple[str, ...], wanted: Iterable[object] | None, what: str) -> list[int]:
    """Return the places of the wanted names."""
    if wanted is None:
        return list(range(len(names)))
    if isinstance(wanted, str) or not isinstance(wanted, Iterable):
        raise DataError(f"{what}s are given as a list of names, not {wanted!r}")
    place = {name: k for k, name in enumerate(names)}
    places = []
    for name in names_of(wanted):
        if name not in place:
            raise DataError(f"there is no {what} {name!r}{did_you_mean(name, names)}")
        places.append(place[name])
    if len(set(places)) < len(places):
        twice = next(names[k] for k in places if places.count(k) > 1)
        raise DataError(f"{what} {twice!r} is given twice")
    return places


def check_matrix(matrix: ScoreMatrix) -> ScoreMatrix:
    """Return the matrix if measures can be computed from it.

    Raises
    ------
    DataError
        If the shape of the array is not that of the names, there are fewer than two topics or two
        systems, two of one name, or a score that is infinite or whose square would be.
    """
    for names, what in ((matrix.systems, "systems"), (matrix.topics, "topics")):
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"there are several {what} called {twice!r}")
    return _check_values(matrix)


def _check_values(matrix: ScoreMatrix) -> ScoreMatrix:
    """Return the matrix if measures can be computed from its scores, whatever its labels."""
    scores = matrix.scores
    shape = (matrix.n_topics, matrix.n_systems)
    if not isinstance(scores, np.ndarray) or scores.dtype != float or scores.shape != shape:
        raise DataError(
            "scores of a ScoreMatrix are a float64 array, one row per topic and one column per "
            f"system, {shape[0]} × {shape[1]} for these names"
        )
    if min(shape) < 2:
        raise DataError(
            "scores need at least two topics (rows) and two systems (columns); "
            f"there are {shape[0]} × {shape[1]}"
        )
    beyond = np.argwhere(np.abs(scores) > _LARGEST)
    if beyond.size:
        topic, system = beyond[0]
        too_large = "infinite" if np.isinf(scores[topic, system]) else "too large to be squared"
        raise DataError(
            f"the score of system {matrix.systems[system]!r} on topic {matrix.topics[topic]!r} "
            f"is {too_large}",
            level=matrix.systems[system],
        )
    return matrix


def complete(matrix: ScoreMatrix, what: str = "scores") -> FloatArray:
    """Return the scores of a matrix without missing cells.

    Raises
    ------
    DataError
        Naming a missing score.
    """
    missing = np.argwhere(np.isnan(matrix.scores))
    if missing.size:
        topic, system = missing[0]
        raise DataError(
            f"{what}: {len(missing):,} of {matrix.scores.size:,} are missing, that of system "
            f"{matrix.systems[system]!r} on topic {matrix.topics[topic]!r} among them; keep the "
            "topics that all systems have, with as_score_matrix(...).common_topics()",
            level=matrix.systems[system],
        )
    return matrix.scores


def read_truth(truth: TruthLike, X: ScoreMatrix, columns: Mapping[str, str | None]) -> FloatArray:
    """Return the truth as an array, with the systems in the order of `X`.

    Parameters
    ----------
    truth : scores on other topics, or a true mean of each system
    X : scores of the collection
    columns : of these scores, by role, if they were a long table; the truth may be one too

    Raises
    ------
    DataError
        If it cannot be read, or has other systems.
    """
    names = {name or role for role, name in columns.items()}
    if any(columns.values()) and names <= set(getattr(truth, "columns", ())):
        truth = as_score_matrix(truth, **columns)
    means = _true_means(truth)
    systems: tuple[str, ...] | None
    if means is None:
        try:
            matrix = as_score_matrix(truth)
        except DataError as error:
            raise DataError(f"truth: {error}") from error
        is_named = isinstance(truth, ScoreMatrix) or hasattr(truth, "columns")
        values, systems = complete(matrix, "truth"), matrix.systems if is_named else None
    else:
        values, systems = means
    if systems is not None:
        return values[..., _order(systems, X.systems)]
    _as_many(values.shape[-1], X.n_systems)
    return values


def _true_means(truth: TruthLike) -> tuple[FloatArray, tuple[str, ...] | None] | None:
    """Return true means, and their systems if named; None if the truth is a matrix."""
    import pandas as pd

    if isinstance(truth, Mapping):
        truth = pd.Series(dict(truth))
    names = tuple(map(str, truth.index)) if isinstance(truth, pd.Series) else None
    if isinstance(truth, np.ma.MaskedArray):
        truth = np.ma.filled(truth.astype(float), np.nan)
    try:
        raw = np.asarray(truth)
        if raw.ndim != 1:
            return None
        values = raw.astype(float) if raw.dtype.kind in "iufO" else None
    except (TypeError, ValueError) as error:
        raise DataError(f"truth must hold numbers: {error}") from error
    if values is None:
        raise DataError(f"truth must hold numbers; it is {raw.dtype.name}")
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        name = names[wrong[0]] if names else str(wrong[0])
        raise DataError(f"the true mean of system {name!r} is {values[wrong[0]]}", level=name)
    return values, names


def _order(systems: tuple[str, ...], wanted: tuple[str, ...]) -> list[int]:
    """Return the places in `systems` of the systems of the collection."""
    if len(set(systems)) < len(systems):
        twice = next(s for s in systems if systems.count(s) > 1)
        raise DataError(f"truth has several systems called {twice!r}")
    place = {system: k for k, system in enumerate(systems)}
    numbers = tuple(map(str, range(len(wanted))))
    if set(systems) != set(wanted) and (
        wanted == numbers or systems == tuple(map(str, range(len(systems))))
    ):
        _as_many(len(systems), len(wanted))
        return list(range(len(wanted)))
    for one, other, where in ((wanted, systems, "truth"), (systems, wanted, "scores")):
        lost = [s for s in one if s not in set(other)]
        if lost:
            more = f" and {len(lost) - 1:,} more" if len(lost) > 1 else ""
            raise DataError(
                f"no system {lost[0]!r}{more} in {where}{did_you_mean(lost[0], other)}; both must "
                "have the same systems",
                level=lost[0],
            )
    return [place[s] for s in wanted]


def _as_many(n_true: int, n_systems: int) -> None:
    """Refuse a truth with another number of systems."""
    if n_true != n_systems:
        raise DataError(f"truth has {n_true} systems, and scores have {n_systems}")
