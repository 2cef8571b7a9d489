"""Confidence intervals of single components and of fixed effects."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import EstimationError, check_alpha

__all__ = ["ComponentInterval", "component_intervals", "wald_intervals"]

_ENDLESS = 1e6

ComponentInterval = Literal["satterthwaite", "wald"]


def component_intervals(
    values: FloatArray, se: FloatArray, alpha: float, method: str
) -> tuple[FloatArray, FloatArray]:
    """Return intervals of variance components, nan where there is no standard error.

    ``"satterthwaite"`` takes ν σ̂²/σ² as χ² with ν = 2 (σ̂²/se)² degrees of freedom (Satterthwaite
    1946), which is exact for the residual of balanced data; a negative estimate has none, and one
    with a standard error several times its size gets [0, ∞]. An upper limit above a million times
    the estimate is none: ∞.
    ``"wald"`` is σ̂² ± z se, which may reach below zero.

    Raises
    ------
    EstimationError
        If the method is not known.
    PlanError
        If alpha is not between 0 and 1.
    """
    from scipy.special import chdtri

    check_alpha(alpha)
    if method not in get_args(ComponentInterval):
        known = ", ".join(map(repr, get_args(ComponentInterval)))
        raise EstimationError(f"method={method!r} is not known; intervals are {known}")
    if method == "wald":
        return wald_intervals(values, se, alpha)
    with np.errstate(divide="ignore", invalid="ignore"):
        usable = (values > 0.0) & (se > 0.0)
        df = np.where(usable, 2.0 * np.square(values / se), np.nan)
        low, high = (df * values / chdtri(df, tail) for tail in (alpha / 2.0, 1.0 - alpha / 2.0))
    # With a small fraction of a degree of freedom even the upper quantile of χ² is below ν, and
    # both limits above the estimate: such an estimate says nothing.
    useless = low > values
    endless = useless | (high > _ENDLESS * values)
    return np.where(useless, 0.0, low), np.where(endless, np.inf, high)


def wald_intervals(
    values: FloatArray, se: FloatArray, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return estimate ± z se."""
    from scipy.special import ndtri

    check_alpha(alpha)
    half = -ndtri(alpha / 2.0) * se
    return values - half, values + half
