"""Two-way analysis of variance of a complete topic × system matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray
from vcomp.ir.agreement import complete
from vcomp.ir.scores import ScoresLike, as_score_matrix

_ROUNDING = 64 * float(np.finfo(float).eps)


def mean_squares(X: FloatArray) -> tuple[float, float, float]:
    """Return the mean squares of systems, topics and their interaction.

    Effects are subtracted before anything is squared. Mean squares within rounding error of zero
    are zero.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing; at least two of each

    Examples
    --------
    >>> mean_squares(np.array([[0.0, 2.0], [1.0, 3.0], [2.0, 7.0]]))
    (13.5, 6.5, 1.5)
    """
    n, k = X.shape
    system, topic = X.mean(axis=0), X.mean(axis=1)
    mean = system.mean()
    residual = X - system - (topic - mean)[:, None]
    sums = (
        n * np.square(system - mean).sum() / (k - 1),
        k * np.square(topic - mean).sum() / (n - 1),
        np.square(residual).sum() / ((n - 1) * (k - 1)),
    )
    nothing = X.size * (_ROUNDING * np.abs(X).max()) ** 2
    ms_s, ms_t, ms_e = (float(s) if s > nothing else 0.0 for s in sums)
    return ms_s, ms_t, ms_e


@dataclass(frozen=True, slots=True)
class TwoWay:
    """Variance components by the ANOVA method (Urbano, 2016, eqs. 26-28).

    Attributes
    ----------
    system, topic : zero where the estimate is negative
    residual : of the interaction and error
    """

    system: float
    topic: float
    residual: float

    @classmethod
    def from_scores(cls, scores: ScoresLike) -> TwoWay:
        """Return the components of a matrix, one row per topic and one column per system.

        Raises
        ------
        DataError
            If `scores` cannot be read as a matrix, or a score is missing.
        """
        X = complete(as_score_matrix(scores), "scores")
        n, k = X.shape
        ms_s, ms_t, ms_e = mean_squares(X)
        return cls(max(0.0, (ms_s - ms_e) / n), max(0.0, (ms_t - ms_e) / k), ms_e)
