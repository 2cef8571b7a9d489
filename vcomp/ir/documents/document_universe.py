"""Universe of documents of each topic, with their scores and set-based measures.

See section 15.6 of the mathematics.

References
----------
Bodoff, D. (2008). Test theory for evaluating reliability of IR test collections. *Information
Processing & Management*, 44(3), 1117-1145. Section 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.display import memory
from vcomp.exceptions import DataError, check_known, did_you_mean, guarded, is_real, warn
from vcomp.ir.documents.assessors import shown
from vcomp.numerics import available_bytes

if TYPE_CHECKING:
    import pandas as pd

UniverseOf = Literal["topic", "assessor", "all"]
"""Scope of the documents that a system is scored on: see :func:`vcomp.ir.document_universe`."""

_SHOWN = 5
"""Largest number of names in a message."""


@dataclass(frozen=True, slots=True, eq=False)
class TopicBlock:
    """One topic: P systems, D documents and the A assessors that judged it.

    Attributes
    ----------
    topic : its number
    documents : its places among the documents of all topics
    assessors : (A,) numbers of the assessors
    retrieved : (P, D) whether the system retrieved the document
    relevant : (A, D) whether the assessor found it relevant
    scored : (A, D) whether the assessor's judgement of the document scores systems
    """

    topic: int
    documents: slice
    assessors: IntArray
    retrieved: BoolArray
    relevant: BoolArray
    scored: BoolArray


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DocumentUniverse:
    """The documents that systems are scored on, topic by topic.

    Pairs are kept, not tables of all systems by all documents: ``retrieved_systems`` of document j
    are those from ``retrieved_starts[j]`` to ``retrieved_starts[j + 1]``, and so on.

    Attributes
    ----------
    systems, assessors, topics : labels
    documents : (D,) labels, by topic; where one label is in several topics, all have the topic
        before them, as ``topic/document``
    starts : (T + 1,) the first document of each topic
    retrieved_starts, retrieved_systems : the systems that retrieved each document
    relevant_starts, relevant_assessors : the assessors that found it relevant
    judged_starts, judged_assessors : the assessors that judged each topic
    universe : whose documents count: ``"topic"``, ``"assessor"`` or ``"all"``

    See Also
    --------
    vcomp.ir.document_universe : makes one
    """

    systems: pd.Index
    assessors: pd.Index
    topics: pd.Index
    documents: pd.Index
    starts: LongArray
    retrieved_starts: LongArray
    retrieved_systems: IntArray
    relevant_starts: LongArray
    relevant_assessors: IntArray
    judged_starts: LongArray
    judged_assessors: IntArray
    universe: UniverseOf

    @property
    def n_rows(self) -> int:
        """Number of scores: one row per system, assessor and document."""
        return len(self.systems) * sum(int(b.scored.sum()) for b in self.blocks())

    def blocks(self) -> Iterator[TopicBlock]:
        """Yield the tables of each topic, one topic at a time.

        Yields
        ------
        TopicBlock
        """
        for topic in range(len(self.topics)):
            yield self.block(topic)

    def block(self, topic: int) -> TopicBlock:
        """Return the tables of one topic.

        Parameters
        ----------
        topic : its number, from 0

        Raises
        ------
        DataError
            If there is no topic of this number; see :meth:`topic_number`.
        """
        if not 0 <= topic < len(self.topics):
            raise DataError(
                f"topics are numbered from 0 to {len(self.topics) - 1}, not {topic!r}", level=topic
            )
        first, last = int(self.starts[topic]), int(self.starts[topic + 1])
        assessors = self.judged_assessors[
            self.judged_starts[topic] : self.judged_starts[topic + 1]
        ]
        retrieved = np.zeros((len(self.systems), last - first), dtype=bool)
        document, system = _pairs(self.retrieved_starts, self.retrieved_systems, first, last)
        retrieved[system, document] = True
        relevant = np.zeros((assessors.size, last - first), dtype=bool)
        document, assessor = _pairs(self.relevant_starts, self.relevant_assessors, first, last)
        relevant[np.searchsorted(assessors, assessor), document] = True
        if self.universe == "assessor":
            scored = relevant | retrieved.any(axis=0)
        else:
            scored = np.ones_like(relevant)
        return TopicBlock(topic, slice(first, last), assessors, retrieved, relevant, scored)

    def scores(self, scores: Any = "utility") -> pd.DataFrame:
        """Return one row per system, assessor and document, with its score.

        Parameters
        ----------
        scores : score of each of the four cases, see :func:`vcomp.ir.score_table`

        Returns
        -------
        pandas.DataFrame
            with the columns ``system``, ``assessor``, ``topic`` and ``document`` (categories) and
            ``score``, topic by topic, for ``vcomp.gstudy("system x assessor x
            (document:topic)", frame, "score")``

        Raises
        ------
        DataError
            If `scores` are not of the four cases, or the frame does not fit into memory;
            :func:`vcomp.ir.write_per_document` writes it topic by topic.

        Examples
        --------
        >>> import vcomp
        >>> retrieved = {"system": ["a", "a", "b"], "topic": [1, 1, 1], "document": [7, 8, 8]}
        >>> judged = {"assessor": ["x", "x"], "topic": [1, 1], "document": [8, 9],
        ...           "relevant": [1, 1]}
        >>> vcomp.ir.document_universe(retrieved, judged).scores()
          system assessor topic document  score
        0      a        x     1        7   -1.0
        1      a        x     1        8    1.0
        2      a        x     1        9   -1.0
        3      b        x     1        7    0.0
        4      b        x     1        8    1.0
        5      b        x     1        9   -1.0
        """
        return document_scores(self, scores)

    def set_measures(self, *, beta: float = 1.0, scores: Any = "utility") -> pd.DataFrame:
        """Return one row per system, assessor and topic, with measures of the retrieved set.

        See :func:`vcomp.ir.set_measures`.

        Parameters
        ----------
        beta, scores : as for :func:`vcomp.ir.set_measures`
        """
        return set_measures(self, beta=beta, scores=scores)

    def topic_number(self, topic: object) -> int:
        """Return the number of a topic.

        Parameters
        ----------
        topic : its label

        Raises
        ------
        DataError
            If there is no such topic.
        """
        found = np.flatnonzero(np.asarray(self.topics == topic))
        if not found.size:
            raise DataError(
                f"there is no topic {shown(topic)} among the {len(self.topics):,} of the "
                f"universe, {shown(self.topics[0])} to {shown(self.topics[-1])}",
                level=topic,
            )
        return int(found[0])

    def __repr__(self) -> str:
        sizes = (
            f"{len(part):,} {name}{'s' * (len(part) != 1)}"
            for name, part in (
                ("system", self.systems),
                ("assessor", self.assessors),
                ("topic", self.topics),
                ("document", self.documents),
            )
        )
        return f"<DocumentUniverse: {', '.join(sizes)}>"


def check_universe(universe: object, caller: str) -> None:
    """Refuse an object that is not a universe of documents.

    Raises
    ------
    DataError
        Naming the function that makes one.
    """
    if not isinstance(universe, DocumentUniverse):
        raise DataError(
            f"{caller}() needs a DocumentUniverse, as vcomp.ir.document_universe() returns, not "
            f"{type(universe).__name__}"
        )


def _pairs(
    starts: LongArray, members: IntArray, first: int, last: int
) -> tuple[LongArray, IntArray]:
    """Return (document, member) pairs of documents `first` to `last`, numbered from zero."""
    counts = np.diff(starts[first : last + 1])
    document = np.repeat(np.arange(last - first), counts)
    return document, members[starts[first] : starts[last]]


CASES = ("nonrelevant_left", "nonrelevant_retrieved", "relevant_missed", "relevant_retrieved")
"""Cases of a document; the index is 2 · relevant + retrieved."""

SCORES: Mapping[str, Mapping[str, float]] = {
    "utility": dict(zip(CASES, (0.0, -1.0, -1.0, 1.0), strict=True)),
    "accuracy": dict(zip(CASES, (1.0, 0.0, 0.0, 1.0), strict=True)),
}
"""Bodoff's (2008, sec. 5.2) per-document measure, and accuracy of classification."""

_BYTES_A_ROW = 32.0
"""Bytes per row of the frame: a score and four codes, with temporaries."""


def score_table(scores: Any) -> FloatArray:
    """Return the score of a document in each of the four :data:`CASES`.

    Parameters
    ----------
    scores : ``"utility"``, which is +1 for a relevant document that is retrieved, -1 for one that
        is missed or a nonrelevant one that is retrieved, and else 0; ``"accuracy"``, 1 for a
        correct decision and 0 for a wrong one; or a mapping of all four cases to numbers

    Returns
    -------
    (4,) numbers

    Raises
    ------
    DataError
        If a case is missing or unknown, a number is not finite, or retrieving a document makes no
        difference to its score.

    Examples
    --------
    >>> score_table("utility")
    array([ 0., -1., -1.,  1.])
    """
    if isinstance(scores, str):
        if scores not in SCORES:
            raise DataError(
                f"scores={scores!r} is not known{did_you_mean(scores, SCORES)}; it is "
                f"{' or '.join(map(repr, SCORES))}, or a mapping of the four cases to numbers"
            )
        scores = SCORES[scores]
    if not isinstance(scores, Mapping):
        raise DataError(
            f"scores= is 'utility', 'accuracy' or a mapping of the four cases {', '.join(CASES)} "
            f"to numbers, not {scores!r}"
        )
    for case in scores:
        check_known(case, CASES, "{} is not a case; the cases are", DataError)
    missing = [case for case in CASES if case not in scores]
    if missing:
        raise DataError(f"scores= lacks {', '.join(missing)}")
    try:
        table = np.array([float(scores[case]) for case in CASES])
    except (TypeError, ValueError):
        raise DataError(f"scores= are numbers, not {dict(scores)!r}") from None
    if not np.isfinite(table).all():
        raise DataError(f"scores= are finite numbers, not {dict(scores)!r}")
    if table[0] == table[1] and table[2] == table[3]:
        raise DataError(
            "with these scores= it makes no difference whether a document is retrieved"
        )
    return table


def document_scores(
    universe: DocumentUniverse,
    scores: Any = "utility",
    *,
    free_bytes: Callable[[], float] = available_bytes,
) -> pd.DataFrame:
    """Return one row per system, assessor and document; see :meth:`DocumentUniverse.scores`.

    Parameters
    ----------
    universe, scores : as there
    free_bytes : returns the free memory
    """
    import pandas as pd

    table = score_table(scores)
    n_rows = universe.n_rows
    needed = _BYTES_A_ROW * n_rows
    if needed > free_bytes() / 2.0:
        raise DataError(
            f"the scores have {n_rows:,} rows, which need {memory(needed)} with temporaries; "
            "vcomp.ir.write_per_document(universe, path) writes them topic by topic"
        )
    values = np.empty(n_rows)
    labels = label_columns(universe)
    codes = {name: np.empty(n_rows, dtype=_small(len(of))) for name, of in labels.items()}
    first = 0
    for block in universe.blocks():
        for part in score_rows(block, table):
            last = first + part["score"].size
            values[first:last] = part["score"]
            for name, column in codes.items():
                column[first:last] = part[name]
            first = last
    columns: dict[str, Any] = {
        name: pd.Categorical.from_codes(codes[name], categories=of, validate=False)
        for name, of in labels.items()
    }
    return pd.DataFrame({**columns, "score": values}, copy=False)


def score_rows(block: TopicBlock, table: FloatArray) -> Iterator[dict[str, Any]]:
    """Yield, for each assessor, the columns of scores by system and document."""
    n_systems = block.retrieved.shape[0]
    for number, assessor in enumerate(block.assessors):
        own = np.flatnonzero(block.scored[number])
        cases = 2 * block.relevant[number, own] + block.retrieved[:, own]
        yield {
            "system": np.repeat(np.arange(n_systems, dtype=np.int32), own.size),
            "assessor": np.full(cases.size, assessor, dtype=np.int32),
            "topic": np.full(cases.size, block.topic, dtype=np.int32),
            "document": np.tile((own + block.documents.start).astype(np.int32), n_systems),
            "score": table[cases].ravel(),
        }


def label_columns(universe: DocumentUniverse) -> dict[str, pd.Index]:
    """Return the labels of the columns of a table of scores."""
    return {
        "system": universe.systems,
        "assessor": universe.assessors,
        "topic": universe.topics,
        "document": universe.documents,
    }


def _small(n_labels: int) -> type[np.signedinteger[Any]]:
    """Return the integer type that pandas uses for codes of so many labels."""
    return np.int8 if n_labels < 127 else np.int16 if n_labels < 32_767 else np.int32


SET_MEASURES = (
    "precision", "recall", "F", "utility", "normalized_utility", "scaled_utility", "mean_score",
)  # fmt: skip
"""Measure columns of :func:`set_measures`."""

NORMALIZED = ("normalized_utility", "scaled_utility")
"""Measures that are undefined without relevant documents."""

_WORST = -0.5
"""Lower bound of normalised utilities: MinNU of TREC 2002."""


@guarded
def set_measures(
    universe: DocumentUniverse, *, beta: float = 1.0, scores: Any = "utility"
) -> pd.DataFrame:
    """Return one row per system, assessor and topic, with measures of the retrieved set.

    Parameters
    ----------
    universe : of :func:`vcomp.ir.document_universe`
    beta : of F: recall counts `beta` times as much as precision
    scores : score of a document in each of the four cases, see :func:`vcomp.ir.score_table`

    Returns
    -------
    pandas.DataFrame
        The columns ``system``, ``assessor`` and ``topic`` (categories), the counts
        ``n_retrieved``, ``n_relevant``, ``n_relevant_retrieved`` and ``n_documents`` (that the
        system is scored on), and

        ``precision``, ``recall``, ``F``
            (1 + β²) R₊ / (retrieved + β² relevant); all are 0 where their denominator is 0
        ``utility``
            linear utility: the sum over retrieved documents of their score less the score that
            they would have if not retrieved. With the published scores 2 R₊ - N₊, with R₊
            relevant and N₊ nonrelevant documents (T11U)
        ``normalized_utility``
            utility divided by that of retrieving exactly the relevant documents, 2 R (T11NU);
            nan if nothing is relevant
        ``scaled_utility``
            the same, but at least -0.5, scaled to [0, 1] (T11SU)
        ``mean_score``
            mean score of the documents, nan if there is none. Multiplied by `n_documents` it
            differs from the utility by a constant for all systems, so both rank systems alike

    Raises
    ------
    DataError
        If `universe` is not a universe, `beta` is not positive, `scores` are not of the four
        cases, or a relevant document scores no more if it is retrieved.

    Warns
    -----
    VcompWarning
        If an assessor finds nothing relevant for a topic.

    References
    ----------
    Robertson and Soboroff (2002), The TREC 2002 filtering track report; Bodoff, D. (2008).
    *Information Processing & Management*, 44(3), 1117-1145. Section 5.

    Examples
    --------
    >>> import vcomp
    >>> retrieved = {"system": ["a", "a", "b"], "topic": [1, 1, 1], "document": [7, 8, 8]}
    >>> judged = {"assessor": ["x", "x"], "topic": [1, 1], "document": [8, 9], "relevant": [1, 1]}
    >>> table = vcomp.ir.document_universe(retrieved, judged).set_measures()
    >>> table[["system", "F", "utility", "normalized_utility", "mean_score"]].round(3)
      system      F  utility  normalized_utility  mean_score
    0      a  0.500      1.0                0.25      -0.333
    1      b  0.667      2.0                0.50       0.000
    """
    check_universe(universe, "set_measures")
    frame = measured_sets(universe, beta=beta, scores=scores)
    n_systems = len(universe.systems)
    nothing = int((frame["n_relevant"] == 0).sum()) // n_systems
    if nothing:
        warn(
            f"nothing is relevant by {nothing:,} of the {len(frame) // n_systems:,} judgements of "
            "a topic by an assessor: utilities are not normalised there, and nan"
        )
    return frame


def measured_sets(
    universe: DocumentUniverse, *, beta: float = 1.0, scores: Any = "utility"
) -> pd.DataFrame:
    """Return the table of :func:`set_measures`, without its warning."""
    import pandas as pd

    if not is_real(beta) or not 0.0 < beta < np.inf:
        raise DataError(f"beta is positive, not {beta!r}")
    credit = score_table(scores)
    if credit[3] <= credit[2]:
        raise DataError(
            "with these scores= a relevant document that is retrieved is worth no more than one "
            "that is missed: utilities cannot be normalised by their largest value"
        )
    parts = [_counts(block) for block in universe.blocks()]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    labels = {"system": universe.systems, "assessor": universe.assessors, "topic": universe.topics}
    columns: dict[str, Any] = {
        name: pd.Categorical.from_codes(joined[name], categories=of) for name, of in labels.items()
    }
    for name in ("n_retrieved", "n_relevant", "n_relevant_retrieved", "n_documents"):
        columns[name] = joined[name]
    return pd.DataFrame({**columns, **_measures(joined, float(beta), credit)})


def _counts(block: TopicBlock) -> dict[str, Any]:
    """Return the counts of one topic, by assessor and system."""
    n_systems, n_assessors = block.retrieved.shape[0], block.assessors.size
    retrieved = block.retrieved.sum(axis=1)
    # Counts below 2⁵³ are exact as floats, and float products are faster.
    both = block.relevant.astype(float) @ block.retrieved.T.astype(float)
    return {
        "system": np.tile(np.arange(n_systems), n_assessors),
        "assessor": np.repeat(block.assessors, n_systems),
        "topic": np.full(both.size, block.topic),
        "n_retrieved": np.tile(retrieved, n_assessors),
        "n_relevant": np.repeat(block.relevant.sum(axis=1), n_systems),
        "n_relevant_retrieved": both.ravel().astype(np.int64),
        "n_documents": np.repeat(block.scored.sum(axis=1), n_systems),
    }


def _measures(counts: dict[str, Any], beta: float, credit: FloatArray) -> dict[str, FloatArray]:
    """Return the measures from the counts (see :func:`set_measures`)."""
    hits, found = counts["n_relevant_retrieved"], counts["n_retrieved"]
    relevant, documents = counts["n_relevant"], counts["n_documents"]
    wrong = found - hits
    utility = hits * (credit[3] - credit[2]) + wrong * (credit[1] - credit[0])
    normalized = _over(utility, relevant * (credit[3] - credit[2]), np.nan)
    left = credit[2] * relevant + credit[0] * (documents - relevant)
    return {
        "precision": _over(hits, found, 0.0),
        "recall": _over(hits, relevant, 0.0),
        "F": _over((1.0 + beta**2) * hits, found + beta**2 * relevant, 0.0),
        "utility": utility,
        "normalized_utility": normalized,
        "scaled_utility": (np.maximum(normalized, _WORST) - _WORST) / (1.0 - _WORST),
        "mean_score": _over(utility + left, documents, np.nan),
    }


def _over(above: Any, below: Any, otherwise: float) -> FloatArray:
    quotient: FloatArray = np.full(np.shape(below), otherwise)
    np.divide(above, below, out=quotient, where=np.asarray(below) != 0)
    return quotient


def listed(labels: pd.Index) -> str:
    """Return the first labels for a message.

    Parameters
    ----------
    labels : of topics, documents or systems
    """
    shown = ", ".join(repr(label) for label in labels[:_SHOWN].tolist())
    return shown + (", …" if len(labels) > _SHOWN else "")
