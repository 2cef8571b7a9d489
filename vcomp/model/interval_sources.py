"""The source of the intervals of a fit: components, a likelihood, or replicates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from vcomp._typing import FloatArray
from vcomp.exceptions import EstimationError
from vcomp.formula import RESIDUAL
from vcomp.inference import Projected, VarianceComponents, resampling
from vcomp.inference.intervals import (
    LOCAL_INTERVALS,
    Combined,
    IntervalName,
    IntervalSource,
    check_interval,
    check_source,
    plugged_source,
)
from vcomp.model.record import FitRecord
from vcomp.model.row_access import RowAccess, require_rows

IntervalMethod: TypeAlias = "IntervalName | IntervalSource | resampling.Replicates"
"""The name of a way to make intervals, or a source of them, such as bootstrap replicates."""

_REPLICATES = 1000
"""Number of replicates for ``interval="bootstrap"``."""

_OF_FACETS = {
    "jackknife": "jackknife",
    "resample": "resample",
    "facet bootstrap": "resample",
    "facet_bootstrap": "resample",
}


def _is_profiled(record: FitRecord) -> bool:
    """Whether the likelihood is profiled by default: a residual that is held has no mean square.

    Limits from approximate mean squares would cover a component near zero too seldom. Covariance
    matrices next to held components have no profile.
    """
    estimate = record.estimate
    known = RESIDUAL in estimate.held and estimate.converged and not estimate.monte_carlo
    return known and not record.components.matrices


POOLED = ("auto", "robust", "mls", "log", "wald")
"""Intervals of components in which several residual variances are pooled."""


def source_of(
    record: FitRecord,
    rows: RowAccess | None,
    interval: IntervalMethod,
    negative: Projected = "keep",
    bootstrap_type: resampling.BootstrapType = "percentile",
) -> IntervalSource:
    """Return the source of the intervals of a fit.

    Parameters
    ----------
    record : of the fit
    rows : of the fit; None after loading
    interval : a name, replicates, or a source itself
    negative : how negative components are used
    bootstrap_type : of intervals from replicates

    Raises
    ------
    EstimationError
        If the interval is not known, or not available for this fit.
    DataError
        If it needs the rows, and the result was loaded without them.
    """
    if interval == "auto" and rows is not None and _is_profiled(record):
        interval = "profile"
    if interval == "profile":
        from vcomp.model.profiling import (  # deferred for start-up time
            FromProfile,
            MaximisedLikelihood,
        )

        return FromProfile(MaximisedLikelihood.of(require_rows(rows)))
    if interval == "bootstrap":
        interval = resampling.parametric_bootstrap(require_rows(rows).generating(), _REPLICATES)
    if (
        not isinstance(interval, str)
        and isinstance(interval, resampling.Replicates)
        and not isinstance(interval, resampling.Jackknife)
    ):
        _check_own(interval, record.estimate.names)
        fitted = record.estimate.values, record.estimate.beta
        return resampling.FromReplicates(interval, *fitted, bootstrap_type, negative)
    if bootstrap_type != "percentile":
        raise EstimationError(
            f"bootstrap_type={bootstrap_type!r} applies to intervals from bootstrap replicates, "
            f"not to {interval!r}"
        )
    if not isinstance(interval, str):
        return check_source(interval)
    if interval in _OF_FACETS:
        raise EstimationError(
            f"interval={interval!r} needs a facet; pass "
            f"interval=res.{_OF_FACETS[interval]}({record.structure.facets[0]!r})"
        )
    if interval not in LOCAL_INTERVALS:
        plugged = plugged_source(interval, record.tables.components)
        if plugged is not None:
            return plugged
    check_interval(interval)
    return record.of_components(interval, negative)


def mean_residual(components: VarianceComponents) -> tuple[VarianceComponents, FloatArray]:
    """Return the components with the mean of several residual variances, and A of their Aσ².

    Parameters
    ----------
    components : of the fit
    """
    return components.with_one_residual(), components.pooling()


def pooled_source(
    record: FitRecord,
    rows: RowAccess | None,
    interval: IntervalMethod,
    negative: Projected,
    pooled: Callable[[VarianceComponents], tuple[VarianceComponents, FloatArray]] = mean_residual,
) -> IntervalSource:
    """Return the source of intervals of linear combinations of the components of a fit.

    Parameters
    ----------
    record, rows, interval, negative : as of :func:`source_of`
    pooled : returns the combinations, and A of their values Aσ²

    Raises
    ------
    EstimationError
        If the interval is for models with one residual variance.
    DataError
        If it needs the rows, and the result was loaded without them.
    """
    if interval in POOLED:
        source = record.of_components(interval, negative)
        return replace(source, components=pooled(source.components)[0])
    if interval in LOCAL_INTERVALS:
        raise EstimationError(
            f"interval={interval!r} is for models with one variance a term and one residual "
            "variance; use interval='mls', 'log', 'wald', 'profile' or 'bootstrap'"
        )
    whole = source_of(record, rows, interval, negative)
    return Combined(whole, pooled(record.tables.components)[1])


def _check_own(replicates: resampling.Replicates, names: tuple[str, ...]) -> None:
    if replicates.names != names:
        raise EstimationError(
            f"these replicates are of {', '.join(replicates.names)}, and the fit has "
            f"{', '.join(names)}; resample this fit"
        )
