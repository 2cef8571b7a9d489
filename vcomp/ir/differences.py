"""The differences between systems, from whatever holds their scores."""

from __future__ import annotations

from vcomp.dstudy.paired import PairedDifferences
from vcomp.ir.scores import ScoresLike, as_score_matrix

__all__ = ["paired_differences"]


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
