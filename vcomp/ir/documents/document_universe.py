"""The documents of each topic: what systems retrieved, and what assessors found relevant.

References
----------
Bodoff, D. (2008). Test theory for evaluating reliability of IR test collections. *Information
Processing & Management*, 44(3), 1117-1145. Section 5.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vcomp._typing import BoolArray, IntArray, LongArray
from vcomp.exceptions import DataError
from vcomp.ir.documents.assessors import shown

if TYPE_CHECKING:
    import pandas as pd

UniverseOf = Literal["topic", "assessor", "all"]
"""Whose documents a system is scored on, see :func:`vcomp.ir.document_universe`."""


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
    scored : (A, D) whether systems are scored on it by the judgements of the assessor
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
        """Number of scores: a row a system, assessor and document."""
        return len(self.systems) * sum(int(b.scored.sum()) for b in self.blocks())

    def blocks(self) -> Iterator[TopicBlock]:
        """Yield topic after topic."""
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
            If there is no such number; see :meth:`topic_number`.
        """
        if not 0 <= topic < len(self.topics):
            raise DataError(f"topics are numbered from 0 to {len(self.topics) - 1}, not {topic!r}")
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
        """Return a row a system, assessor and document, with its score.

        Parameters
        ----------
        scores : what the four cases are worth, see :func:`vcomp.ir.document_scores`

        Returns
        -------
        pandas.DataFrame
            with the columns ``system``, ``assessor``, ``topic`` and ``document`` (categories) and
            ``score``, topic by topic: what ``vcomp.gstudy(frame, "system x assessor x
            (document:topic)", "score")`` takes

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
        from vcomp.ir.documents.perdoc import document_scores

        return document_scores(self, scores)

    def set_measures(self, *, beta: float = 1.0, scores: Any = "utility") -> pd.DataFrame:
        """Return a row a system, assessor and topic, with measures of the retrieved set.

        See :func:`vcomp.ir.set_measures`.

        Parameters
        ----------
        beta, scores : as for :func:`vcomp.ir.set_measures`
        """
        from vcomp.ir.documents.perdoc import set_measures

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
                f"universe, {shown(self.topics[0])} to {shown(self.topics[-1])}"
            )
        return int(found[0])

    def __repr__(self) -> str:
        sizes = (
            f"{len(part):,} {name}"
            for name, part in (
                ("systems", self.systems),
                ("assessors", self.assessors),
                ("topics", self.topics),
                ("documents", self.documents),
            )
        )
        return f"<DocumentUniverse: {', '.join(sizes)}>"


def check_universe(universe: object, caller: str) -> None:
    """Refuse what is no universe.

    Raises
    ------
    DataError
        Saying what makes one.
    """
    if not isinstance(universe, DocumentUniverse):
        raise DataError(
            f"{caller}() takes a universe, such as vcomp.ir.document_universe() returns, not "
            f"{type(universe).__name__}"
        )


def _pairs(
    starts: LongArray, members: IntArray, first: int, last: int
) -> tuple[LongArray, IntArray]:
    """Return document and member of the pairs of documents `first` to `last`, from 0 on."""
    counts = np.diff(starts[first : last + 1])
    document = np.repeat(np.arange(last - first), counts)
    return document, members[starts[first] : starts[last]]
