"""Components of crossed facets from a table of scores, for what needs nothing else of a fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vcomp._typing import FloatArray, LongArray
from vcomp.data import Reading, Rows
from vcomp.estimators import check_identified, get_estimator
from vcomp.exceptions import warn
from vcomp.formula import REPLICATE, RESIDUAL, caller_environment, parse
from vcomp.inference import LevelVariances, VarianceComponents
from vcomp.inference.intervals import level_variances
from vcomp.statistics import sum_rows
from vcomp.statistics.batches import few_values


def crossed_components(
    scores: FloatArray, levels: Mapping[str, LongArray], method: str
) -> tuple[VarianceComponents, Callable[[], LevelVariances]]:
    """Return the components of crossed facets and of the residual, and what robust ones need.

    Parameters
    ----------
    scores : (n,) the scores that there are
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
    check_identified(stats, terms, design.fixed.names, design.x_origin)
    estimate = get_estimator(method).estimate(stats, (*terms, RESIDUAL))
    if not estimate.converged:
        warn(estimate.status)
    everything = frozenset(terms) if len(terms) > 1 else frozenset({*terms, REPLICATE})
    components = VarianceComponents(
        names=estimate.names,
        facets=(*(frozenset({term}) for term in terms), everything),
        values=estimate.values,
        cov=next(iter(estimate.covariances.values())),
        without_bounds=estimate.without_bounds,
        response_values=few_values(scores),
    )

    def influences() -> LevelVariances:
        return level_variances(design, stats, summed.total, estimate.values)

    return components, influences
