"""Variance components of scores with missing cells, by REML."""

from __future__ import annotations

import numpy as np

from vcomp.components import REPLICATE, RESIDUAL, VarianceComponents
from vcomp.ctt.matrix import ItemScores
from vcomp.design import encode, learn, select_rows
from vcomp.estimators import get_estimator
from vcomp.estimators.identify import check_terms
from vcomp.exceptions import DataError, DesignError, EstimationError, warn
from vcomp.formula import caller_environment, parse
from vcomp.statistics import Statistics

__all__ = ["one_way_components", "two_way_components"]


def two_way_components(matrix: ItemScores) -> VarianceComponents:
    """Return the components of object, item and residual.

    Parameters
    ----------
    matrix : scores, nan where there is none

    Raises
    ------
    DataError
        If all scores are equal, if the components cannot be told apart with these cells, as where
        every object has one score, or if nothing is left for the residual.

    Warns
    -----
    VcompWarning
        If the estimation did not converge.
    """
    return _fit(matrix, "score ~ (1|object) + (1|item)")


def one_way_components(matrix: ItemScores) -> VarianceComponents:
    """Return the components of object and residual, whoever gave the scores; see above."""
    return _fit(matrix, "score ~ (1|object)")


def _fit(matrix: ItemScores, formula: str) -> VarianceComponents:
    rows, columns = np.nonzero(~np.isnan(matrix.values))
    if rows.size == 0:
        raise DataError("no object has a score on any item")
    scores = matrix.values[rows, columns]
    if np.ptp(scores) == 0.0:
        raise DataError("all scores are equal, so there is no variance to share")
    data = {"score": scores, "object": rows, "item": columns}
    environment = caller_environment(0, 0)
    parsed = parse(formula)
    selected = select_rows(parsed, data, environment, "raise")
    try:
        design = learn(parsed, selected, environment)
        stats = Statistics(encode(design, selected), design.grid, design.partial_grid)
        terms = tuple(term.name for term in parsed.random)
        check_terms(stats, terms)
    except DesignError as error:
        raise DataError(
            f"variance components cannot be estimated from the cells that are there: {error}"
        ) from error
    try:
        estimate = get_estimator("reml").estimate(stats, (*terms, RESIDUAL))
    except EstimationError as error:
        raise DataError(
            f"REML has no estimate from the cells that are there: {error}. The objects with all "
            "scores may have one: missing='listwise'"
        ) from error
    if not estimate.converged:
        warn(estimate.status)
    everything = frozenset(terms) if len(terms) > 1 else frozenset({*terms, REPLICATE})
    return VarianceComponents(
        names=estimate.names,
        facets=(*(frozenset({term}) for term in terms), everything),
        values=estimate.values,
        cov=next(iter(estimate.covariances.values())),
        without_bounds=estimate.without_bounds,
    )
