"""Components of crossed facets from a table of scores, without the rest of a fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.data import Reading, Rows
from vcomp.estimators import Estimate, check_identified, get_estimator
from vcomp.exceptions import VcompError, warn
from vcomp.formula import REPLICATE, RESIDUAL, caller_environment, parse
from vcomp.inference import LevelVariances, VarianceComponents
from vcomp.inference.intervals import level_variances
from vcomp.statistics import (
    LEAST_FILLED,
    MOST_LEVELS,
    CrossedTable,
    CrossProducts,
    Statistics,
    sum_rows,
)
from vcomp.statistics.batches import few_values


def crossed_components(
    scores: FloatArray, levels: Mapping[str, LongArray], method: str
) -> tuple[VarianceComponents, Callable[[], LevelVariances]]:
    """Return the components of crossed facets and of the residual, with influences by level.

    Parameters
    ----------
    scores : (n,) the available scores
    levels : facet → (n,) number of the level of each score. With one facet the residual is that of
        replicates
    method : of estimation, such as ``"reml"``

    Returns
    -------
    components : estimates with their covariance
    influences : sums the influences of the scores by level, for robust intervals; as
        :func:`~vcomp.inference.intervals.level_variances`

    Raises
    ------
    DesignError
        If the components cannot be distinguished with these cells, or nothing is left for the
        residual.
    EstimationError
        If the method has no estimate.

    Warns
    -----
    VcompWarning
        If the estimation did not converge.

    Examples
    --------
    >>> import numpy as np
    >>> topic, system = (a.ravel() for a in np.indices((3, 3)))
    >>> scores = np.array([0.3, 0.5, 0.1, 0.4, 0.5, 0.4, 0.2, 0.5, 0.3])
    >>> found, _ = crossed_components(scores, {"system": system, "topic": topic}, "anova")
    >>> found.values.round(4)
    array([0.0128, 0.0017, 0.0094])
    """
    terms = tuple(levels)
    reading = Reading(caller_environment(0, 0), "raise")
    parsed = parse("score ~ " + " + ".join(f"(1|{term})" for term in terms))
    selected = Rows.select(parsed, {"score": scores, **levels}, reading)
    summed = sum_rows(parsed, selected, reading)
    stats, design = summed.statistics, summed.design
    parsed.check_parameters(stats.n, len(design.fixed.names))
    check_identified(stats, terms, design.fixed.names, design.x_origin)
    estimate = get_estimator(method).estimate(stats, (*terms, RESIDUAL))
    if not estimate.converged:
        warn(estimate.status)
    components = _components(estimate, terms, scores)

    def influences() -> LevelVariances:
        return level_variances(design, stats, summed.total, estimate.values)

    return components, influences


def matrix_components(
    scores: FloatArray, facets: tuple[str, ...], *, many_cells: int = 200_000
) -> VarianceComponents | None:
    """Return the components by REML of a large matrix with few missing cells.

    They are those of :func:`crossed_components`, in a few passes over the matrix. None if the
    matrix is small, if it has no cells missing or too many of them, or if the estimation did not
    succeed: rows then tell why, or lose fewer digits.

    Parameters
    ----------
    scores : (rows, columns), nan where there is none
    facets : names of rows and columns; of the rows alone, if columns are replicates
    many_cells : smallest number of cells of a large matrix

    Examples
    --------
    >>> matrix_components(np.array([[0.3, 0.5], [np.nan, 0.1]]), ("system", "topic")) is None
    True
    """
    if scores.size < many_cells:
        return None
    empty = np.isnan(scores)
    n = scores.size - int(np.count_nonzero(empty))
    if min(scores.shape) > MOST_LEVELS or not LEAST_FILLED * scores.size <= n < scores.size:
        return None
    centred = scores - np.nanmean(scores)
    centred[empty] = 0.0
    table = CrossedTable.of_matrix(centred, empty)
    del centred
    if min(counts.min() for counts in table.counts) < 1.0:  # some level has no scores
        return None
    stats = Statistics.from_crossed(table) if len(facets) > 1 else _of_rows(table)
    names = (*facets, RESIDUAL)
    try:
        check_identified(stats, facets, ("Intercept",), np.zeros(1))
        estimate = get_estimator("reml").estimate(stats, names)
    except VcompError:
        return None
    values = estimate.values
    if not estimate.converged or values[-1] < _LEAST_RESIDUAL * values.sum():
        return None
    return _components(estimate, facets, scores[~empty])


_LEAST_RESIDUAL = 1e-4
"""Share of the residual below which sums of squares about the general mean lose digits."""


def _of_rows(table: CrossedTable) -> Statistics:
    """Return the statistics of the rows of a table, with columns as replicates."""
    products = CrossProducts(
        n=table.n,
        group_n=table.counts[:1],
        pairs={},
        Zy=(table.sums[0][:, 0],),
        ZX=(table.sums[0][:, 1:],),
        XX=table.XX,
        Xy=table.Xy,
        yy=table.yy,
    )
    return Statistics.from_cross_products(products)


def _components(
    estimate: Estimate, terms: tuple[str, ...], scores: FloatArray
) -> VarianceComponents:
    everything = frozenset(terms) if len(terms) > 1 else frozenset({*terms, REPLICATE})
    return VarianceComponents(
        names=estimate.names,
        facets=(*(frozenset({term}) for term in terms), everything),
        values=estimate.values,
        cov=next(iter(estimate.covariances.values())),
        without_bounds=estimate.without_bounds,
        response_values=few_values(scores),
    )
