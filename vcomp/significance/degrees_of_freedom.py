"""Degrees of freedom that a fit keeps for its fixed effects."""

from __future__ import annotations

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.choose import choose_engine
from vcomp.estimators.estimate import Estimate
from vcomp.estimators.fixed_errors import FixedErrors, errors_of_fixed
from vcomp.exceptions import EstimationError
from vcomp.significance.fixed_effects import Satterthwaite
from vcomp.statistics import Statistics

__all__ = ["degrees_of_freedom", "fixed_errors_of", "known_components_of", "satterthwaite_of"]


def known_components_of(estimate: Estimate) -> BoolArray:
    """Return which components count as known: held, at their bound, or estimated below zero."""
    held = np.array([name in estimate.held for name in estimate.names])
    return held | ~(estimate.values > 0.0)


def degrees_of_freedom(estimate: Estimate) -> FloatArray:
    """Return Satterthwaite's degrees of freedom of the coefficients, nan where there are none."""
    errors = estimate.fixed_errors
    return np.full(estimate.beta.size, np.nan) if errors is None else errors.df


def satterthwaite_of(estimate: Estimate) -> Satterthwaite | None:
    """Return what gives Satterthwaite's degrees of freedom, None where slopes are not known."""
    errors = estimate.fixed_errors
    if errors is None or errors.slopes is None:
        return None
    covariance = next(iter(estimate.covariances.values()))
    known = known_components_of(estimate)
    return Satterthwaite(estimate.cov_beta, errors.slopes, covariance, known)


def fixed_errors_of(
    stats: Statistics, estimate: Estimate, transform: FloatArray, cov_beta: FloatArray
) -> FixedErrors | None:
    """Return slopes and degrees of freedom on the scale of the data.

    Parameters
    ----------
    stats : sums of the data
    estimate : on the centred scale, with slopes of that scale if it is one of a likelihood
    transform : (p, p) T, so that β = T b for coefficients b of the centred columns
    cov_beta : (p, p) on the scale of the data

    Returns
    -------
    None where there are no fixed effects, or no slopes in the memory that is free.
    """
    slopes = _slopes(stats, estimate)
    if slopes is None:
        return None
    slopes = transform @ slopes @ transform.T
    covariance = next(iter(estimate.covariances.values()))
    known = known_components_of(estimate)
    found = Satterthwaite(cov_beta, slopes, covariance, known)
    return FixedErrors(slopes, found.degrees(np.eye(cov_beta.shape[0])))


def _slopes(stats: Statistics, estimate: Estimate) -> FloatArray | None:
    """Return ∂Cov(β̂)/∂σ²_t, (k + 1, p, p), on the centred scale."""
    if estimate.fixed_errors is not None:
        return estimate.fixed_errors.slopes
    if not estimate.beta.size or not np.isfinite(estimate.cov_beta).all():
        return None
    if estimate.method == "anova":
        # The mean of all scores has the variance Σ σ² Σ n_g²/N².
        n = float(stats.n)
        return np.array([*stats.group_sums.squares, n])[:, None, None] / n**2
    v = np.maximum(estimate.values, 0.0)
    if not v[-1] > 0.0:
        return None
    try:
        errors = errors_of_fixed(choose_engine(stats, reml=True), v)
    except (EstimationError, np.linalg.LinAlgError):
        return None
    return None if errors is None else errors.slopes
