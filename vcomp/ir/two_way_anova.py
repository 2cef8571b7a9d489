"""Two-way analysis of variance of a topic × system matrix: mean squares and components."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, DesignError, EstimationError
from vcomp.formula import RESIDUAL
from vcomp.gtheory import crossed_components
from vcomp.inference import LevelVariances, TwoWayMeanSquares, VarianceComponents
from vcomp.inference.intervals import two_way_level_variances
from vcomp.ir.scores import ScoreMatrix, ScoresLike, as_score_matrix, complete
from vcomp.statistics.batches import few_values

SYSTEM, TOPIC = "system", "topic"
"""Facets of a matrix without a fit."""


def mean_squares(X: FloatArray) -> tuple[float, float, float]:
    """Return the mean squares of systems, topics and their interaction.

    Those within rounding error of zero are zero.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing; at least two of each

    Examples
    --------
    >>> mean_squares(np.array([[0.0, 2.0], [1.0, 3.0], [2.0, 7.0]]))
    (13.5, 6.5, 1.5)
    """
    table = TwoWayMeanSquares.of(X, TOPIC, SYSTEM)
    return table.ms_columns, table.ms_rows, table.ms_residual


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
        return cls.of(complete(as_score_matrix(scores)))

    @classmethod
    def of(cls, X: FloatArray) -> TwoWay:
        """Return the components of complete scores, (n_topics, n_systems)."""
        n, k = X.shape
        ms_s, ms_t, ms_e = mean_squares(X)
        return cls(max(0.0, (ms_s - ms_e) / n), max(0.0, (ms_t - ms_e) / k), ms_e)


_FEWEST_SCORES = 4
"""A mean and three components leave nothing to estimate from this number of scores."""


def two_way_components(
    matrix: ScoreMatrix,
) -> tuple[VarianceComponents, Callable[[], LevelVariances]]:
    """Return the components of system, topic and residual, and influences for robust intervals.

    Those of a complete matrix are of its analysis of variance, as in :class:`TwoWay` but negative
    ones as estimated; those of a matrix with holes are by REML. The numbers are those of
    ``vcomp.fit("score ~ (1|system) + (1|topic)", matrix.to_long())`` by these methods.

    Parameters
    ----------
    matrix : scores, nan where there is none

    Returns
    -------
    components, influences : as of :func:`~vcomp.gtheory.crossed_components`

    Raises
    ------
    DataError
        If all scores are equal, or the components cannot be distinguished with these cells.

    Warns
    -----
    VcompWarning
        If REML did not converge.

    Examples
    --------
    >>> from vcomp.ir import as_score_matrix
    >>> matrix = as_score_matrix([[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]])
    >>> found, _ = two_way_components(matrix)
    >>> found.values.round(4)
    array([0.0128, 0.0017, 0.0094])
    """
    known = ~np.isnan(matrix.scores)
    scores = matrix.scores[known]
    if scores.size == 0 or np.ptp(scores) == 0.0:
        what = "no system has a score" if scores.size == 0 else "all scores are equal"
        raise DataError(f"{what}, so that there is no variance to divide into components")
    sizes = {SYSTEM: float(matrix.n_systems), TOPIC: float(matrix.n_topics)}
    if known.all() and scores.size > _FEWEST_SCORES:
        return _of_complete(matrix.scores, sizes)
    rows, columns = np.nonzero(known)
    try:
        components, influences = crossed_components(scores, {SYSTEM: columns, TOPIC: rows}, "reml")
    except (DesignError, EstimationError) as error:
        raise DataError(
            f"variance components cannot be estimated from the available scores: {error}"
        ) from error
    return replace(components, sizes=sizes), influences


def _of_complete(
    X: FloatArray, sizes: dict[str, float]
) -> tuple[VarianceComponents, Callable[[], LevelVariances]]:
    """Return the components of a complete matrix in closed form, eqs. (2.4) and (2.6)."""
    n, k = X.shape
    table = TwoWayMeanSquares.of(X, TOPIC, SYSTEM).oriented(SYSTEM)
    squares = np.array([table.ms_rows, table.ms_columns, table.ms_residual])
    df = np.array([k - 1.0, n - 1.0, (k - 1.0) * (n - 1.0)])
    of_squares = np.array([[1.0 / n, 0.0, -1.0 / n], [0.0, 1.0 / k, -1.0 / k], [0.0, 0.0, 1.0]])
    values = of_squares @ squares
    components = VarianceComponents(
        names=(SYSTEM, TOPIC, RESIDUAL),
        facets=(frozenset({SYSTEM}), frozenset({TOPIC}), frozenset({SYSTEM, TOPIC})),
        values=values,
        cov=of_squares * (2.0 * squares**2 / df) @ of_squares.T,
        sizes=sizes,
        mean_squares=table,
        response_values=few_values(X.ravel()),
    )
    return components, lambda: two_way_level_variances(X.T, (SYSTEM, TOPIC), values)
