"""Variance components in the words of a field: gauge studies, precision of laboratories.

Functions of a result: the same components, summed and named as engineers and laboratories do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcomp.exceptions import PlanError
from vcomp.inference import Projected
from vcomp.model import (
    GaugeStudy,
    IntervalMethod,
    Precision,
    VarianceComponentsResults,
    gauge_study,
    precision_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "GaugeStudy",
    "Precision",
    "gauge_rr",
    "precision",
]


def gauge_rr(
    res: VarianceComponentsResults,
    part: str,
    operator: str,
    *,
    tolerance: float | None = None,
    process_sd: float | None = None,
    multiplier: float = 6.0,
    alpha: float = 0.05,
    negative: Projected = "zero",
    interval: IntervalMethod = "auto",
) -> GaugeStudy:
    """Return a gauge R&R study: how much of the variation is the measurement's own.

    Repeatability is the residual; reproducibility all else that is not of parts alone:
    operators, their interaction with parts, days, laboratories. Parts may be crossed with
    operators, or nested in them (where measuring destroys the part); what else parts are
    nested in, such as batches, counts as part-to-part variation.

    Parameters
    ----------
    res : the fit
    part, operator : facets of the random part
    tolerance : width of the specification, its upper less its lower limit, in units of the
        scores
    process_sd : standard deviation of the process from elsewhere, to compare with
    multiplier : number of standard deviations that make up the width of a distribution: 6, or
        5.15 (99 %)
    alpha : intervals have confidence 1 − alpha
    negative : ``"zero"`` sets negative components to zero, ``"keep"`` uses them as estimated
    interval : how intervals are made, as in
        :meth:`vcomp.VarianceComponentsResults.conf_int`

    Returns
    -------
    GaugeStudy
        with ``table``, ``categories``, ``precision_to_tolerance``, ``summary()``, ``plot()``

    Raises
    ------
    PlanError
        If part or operator is no facet or has no component, or a number is not one above 0.
    EstimationError
        If the interval is not known, or has no intervals of shares.

    References
    ----------
    AIAG (2010), Measurement Systems Analysis, 4th ed., chapter III, section B (analysis of
    variance); Burdick, Borror and Montgomery (2003), A review of methods for measurement
    systems capability analysis, Journal of Quality Technology 35, 342-354.

    Examples
    --------
    >>> import vcomp
    >>> data = {
    ...     "part": [p for p in range(4) for _ in range(6)],
    ...     "operator": ["A", "A", "B", "B", "C", "C"] * 4,
    ...     "mm": [
    ...         20.1, 20.3, 20.6, 20.7, 20.0, 20.2, 24.2, 24.0, 24.9, 24.6, 23.8, 24.1,
    ...         19.4, 19.6, 19.9, 20.3, 19.5, 19.3, 22.0, 22.3, 22.9, 22.6, 22.1, 21.8,
    ...     ],
    ... }
    >>> res = vcomp.fit("mm ~ (1|part) + (1|operator) + (1|part:operator)", data)
    >>> study = vcomp.presets.gauge_rr(res, "part", "operator", tolerance=10)
    >>> study.table["percent_study_variation"].round(1).head(3)
    source
    total gauge R&R    19.2
    repeatability       7.5
    reproducibility    17.7
    Name: percent_study_variation, dtype: float64
    >>> study.categories, round(study.precision_to_tolerance, 3)
    (7.0, 0.244)
    """
    _check_result(res, "gauge_rr")
    return gauge_study(
        res,
        part,
        operator,
        tolerance=tolerance,
        process_sd=process_sd,
        multiplier=multiplier,
        alpha=alpha,
        negative=negative,
        source=res.interval_source(interval, negative),
    )


def precision(
    res: VarianceComponentsResults,
    *,
    laboratory: str | None = None,
    labels: Mapping[str, str] | None = None,
    alpha: float = 0.05,
    negative: Projected = "zero",
    interval: IntervalMethod = "satterthwaite",
) -> Precision:
    """Return the precision of a measurement method, as CLSI EP05 and ISO 5725 name it.

    From replicate measurements of one sample on several days, in several runs, at several
    sites: the standard deviation of results under the same conditions (repeatability), within
    a run, a day, a laboratory, and between laboratories (reproducibility). Each is a sum of
    components: under a condition all effects vary but those of what is held.

    Parameters
    ----------
    res : the fit
    laboratory : the facet of laboratories. If None it is the one that is called ``site``,
        ``lab`` or ``laboratory``; without one all that varies is within one laboratory
    labels : other words for the conditions, ``{"within-day": "intermediate precision"}``
    alpha : intervals have confidence 1 − alpha
    negative : ``"zero"`` sets negative components to zero, ``"keep"`` uses them as estimated
    interval : how the intervals of standard deviations are made, as in
        :meth:`vcomp.VarianceComponentsResults.conf_int`; Satterthwaite's
        is the one of CLSI EP05 and of R's VCA

    Returns
    -------
    Precision
        with ``table`` (conditions), ``sources`` (between days, …), ``summary()``

    Raises
    ------
    PlanError
        If the laboratory is no facet, a label is for no condition of the design, or alpha is
        not between 0 and 1.
    EstimationError
        If the interval is not known, or there is none for this fit.

    References
    ----------
    CLSI (2014), Evaluation of Precision of Quantitative Measurement Procedures, EP05-A3; ISO
    5725-2 and 5725-3 (1994), ISO 5725-6 (1994), 4.1, for the factor 2.8; Schuetzenmeister and
    Dufey (2022), VCA: Variance Component Analysis, R package.

    Examples
    --------
    >>> import vcomp
    >>> data = {
    ...     "day": [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4],
    ...     "run": [1, 1, 2, 2] * 4,
    ...     "mmol": [
    ...         5.1, 5.2, 4.9, 5.0, 5.4, 5.5, 5.3, 5.1, 4.8, 4.9, 5.0, 4.8, 5.2, 5.3, 5.2, 5.0,
    ...     ],
    ... }
    >>> res = vcomp.fit("mmol ~ (1|day/run)", data)
    >>> vcomp.presets.precision(res).table[["sd", "cv", "df", "limit"]].round(3)
                          sd     cv     df  limit
    condition
    repeatability      0.103  2.019  8.000  0.289
    within-day         0.146  2.855  6.737  0.408
    within-laboratory  0.223  4.365  5.353  0.624
    """
    _check_result(res, "precision")
    return precision_of(
        res,
        laboratory=laboratory,
        labels=labels,
        alpha=alpha,
        negative=negative,
        source=res.interval_source(interval, negative),
    )


def _check_result(res: object, function: str) -> None:
    if not isinstance(res, VarianceComponentsResults):
        raise PlanError(
            f"{function}() is of a result, such as vcomp.fit() returns, not of a "
            f"{type(res).__name__}"
        )
