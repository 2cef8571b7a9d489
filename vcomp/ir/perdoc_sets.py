"""Measures of the set of documents that a system retrieved for a topic.

References
----------
Robertson, S., & Soboroff, I. (2002). The TREC 2002 filtering track report. *TREC 2002*, NIST SP
500-251: T11U, T11NU, T11SU and T11F.
"""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, warn
from vcomp.ir.documents import DocumentUniverse, TopicBlock, check_universe
from vcomp.ir.perdoc import score_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NORMALIZED", "SET_MEASURES", "measured_sets", "set_measures"]

SET_MEASURES = (
    "precision", "recall", "F", "utility", "normalized_utility", "scaled_utility", "mean_score",
)  # fmt: skip
"""The columns of :func:`set_measures` that are measures."""

NORMALIZED = ("normalized_utility", "scaled_utility")
"""Those of them that are not defined where nothing is relevant."""

_WORST = -0.5
"""Normalised utilities below are as bad as this one: MinNU of TREC 2002."""


def set_measures(
    universe: DocumentUniverse, *, beta: float = 1.0, scores: Any = "utility"
) -> pd.DataFrame:
    """Return a row a system, assessor and topic, with measures of the retrieved set.

    Parameters
    ----------
    universe : of :func:`vcomp.ir.document_universe`
    beta : of F: recall counts `beta` times as much as precision
    scores : what the four cases of a document are worth, see :func:`vcomp.ir.score_table`

    Returns
    -------
    pandas.DataFrame
        The columns ``system``, ``assessor`` and ``topic`` (categories), the counts
        ``n_retrieved``, ``n_relevant``, ``n_relevant_retrieved`` and ``n_documents`` (that the
        system is scored on), and

        ``precision``, ``recall``, ``F``
            (1 + β²) R₊ / (retrieved + β² relevant); all are 0 where their denominator is 0
        ``utility``
            linear utility: a credit for every document that is retrieved, which is what its score
            differs by from that of the same document when it is not. With the published scores
            2 R₊ - N₊, R₊ relevant and N₊ nonrelevant ones (T11U)
        ``normalized_utility``
            this over the utility of retrieving just what is relevant, 2 R (T11NU); nan where
            nothing is relevant
        ``scaled_utility``
            the same, cut at -.5 from below and taken to 0 .. 1 (T11SU)
        ``mean_score``
            mean score of the documents, nan if there is none. Over `n_documents` it is the utility
            less a number that all systems share, so that systems have the same order by both

    Raises
    ------
    DataError
        If `universe` is none, `beta` is not positive, `scores` are not of the four cases, or
        retrieving what is relevant gains nothing by them.

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
    """Return what :func:`set_measures` does, without its warning."""
    import pandas as pd

    if isinstance(beta, bool) or not isinstance(beta, Real) or not 0.0 < beta < np.inf:
        raise DataError(f"beta is positive, not {beta!r}")
    credit = score_table(scores)
    if credit[3] <= credit[2]:
        raise DataError(
            "with these scores= a relevant document that is retrieved is worth no more than one "
            "that is missed: utilities have no largest value to be compared with"
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
    # Counts below 2⁵³ are exact as floats, whose product is the fast one.
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
