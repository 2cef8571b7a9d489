"""Variance components of a topic × system matrix, for D-studies."""

from __future__ import annotations

import numpy as np

from vcomp.components import RESIDUAL, TwoWayMeanSquares, VarianceComponents
from vcomp.design import encode, learn, select_rows
from vcomp.estimators import get_estimator
from vcomp.estimators.identify import check_terms
from vcomp.exceptions import DataError, DesignError, EstimationError, warn
from vcomp.formula import caller_environment, parse
from vcomp.ir.measures.anova import mean_squares
from vcomp.ir.scores import ScoreMatrix
from vcomp.statistics import Statistics

__all__ = ["SYSTEM", "TOPIC", "two_way_components"]

SYSTEM, TOPIC = "system", "topic"
"""The facets of a bare matrix."""


def two_way_components(matrix: ScoreMatrix) -> VarianceComponents:
    """Return the components of system, topic and residual.

    Those of a complete matrix are of its analysis of variance, as in :class:`TwoWay` but negative
    ones as estimated; those of a matrix with holes are by REML. The numbers are those of
    ``vcomp.fit("score ~ (1|system) + (1|topic)", matrix.to_long())`` by these methods.

    Parameters
    ----------
    matrix : scores, nan where there is none

    Raises
    ------
    DataError
        If all scores are equal, or the components cannot be told apart with these cells.

    Warns
    -----
    VcompWarning
        If REML did not converge.

    Examples
    --------
    >>> from vcomp.ir import as_score_matrix
    >>> matrix = as_score_matrix([[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]])
    >>> two_way_components(matrix).values.round(4)
    array([0.0128, 0.0017, 0.0094])
    """
    rows, columns = np.nonzero(~np.isnan(matrix.scores))
    scores = matrix.scores[rows, columns]
    if scores.size == 0 or np.ptp(scores) == 0.0:
        what = "no system has a score" if scores.size == 0 else "all scores are equal"
        raise DataError(f"{what}, so that there is no variance to share out")
    complete = scores.size == matrix.scores.size
    data = {"score": scores, SYSTEM: columns, TOPIC: rows}
    environment = caller_environment(0, 0)
    parsed = parse(f"score ~ (1|{SYSTEM}) + (1|{TOPIC})")
    selected = select_rows(parsed, data, environment, "raise")
    try:
        design = learn(parsed, selected, environment)
        stats = Statistics(encode(design, selected), design.grid, design.partial_grid)
        check_terms(stats, (SYSTEM, TOPIC))
        estimator = get_estimator("anova" if complete else "reml")
        estimate = estimator.estimate(stats, (SYSTEM, TOPIC, RESIDUAL))
    except (DesignError, EstimationError) as error:
        raise DataError(
            f"variance components cannot be estimated from the scores that are there: {error}"
        ) from error
    if not estimate.converged:
        warn(estimate.status)
    return VarianceComponents(
        names=estimate.names,
        facets=(frozenset({SYSTEM}), frozenset({TOPIC}), frozenset({SYSTEM, TOPIC})),
        values=estimate.values,
        cov=next(iter(estimate.covariances.values())),
        sizes={SYSTEM: float(matrix.n_systems), TOPIC: float(matrix.n_topics)},
        mean_squares=_mean_squares(matrix) if complete else None,
        without_bounds=estimate.without_bounds,
    )


def _mean_squares(matrix: ScoreMatrix) -> TwoWayMeanSquares:
    ms_s, ms_t, ms_e = mean_squares(matrix.scores)
    return TwoWayMeanSquares(SYSTEM, TOPIC, matrix.n_systems, matrix.n_topics, ms_s, ms_t, ms_e)
