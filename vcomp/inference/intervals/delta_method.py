"""Standard errors and intervals from estimates and their covariance matrix, by the delta method.

Eqs. (10.2) and (10.3) of docs/explanation/mathematics.md; Satterthwaite's interval needs the same
numbers.
"""

from __future__ import annotations

import numpy as np

from vcomp._typing import BoolArray, FloatArray

_ENDLESS = 1e6


def standard_errors(
    gradient: FloatArray, cov: FloatArray | None, unsure: BoolArray | None = None
) -> FloatArray:
    """Return standard errors √(g'Cg) by the delta method, nan without a covariance matrix.

    Parameters
    ----------
    gradient : (m, k) one row for each quantity
    cov : (k, k) covariance matrix of the components
    unsure : (k,) components that have no standard error although they are not held; quantities of
        such components only have none either

    References
    ----------
    Searle, Casella and McCulloch (1992), Variance Components, sec. 3.7.

    Examples
    --------
    >>> standard_errors(np.array([[1.0, 1.0]]), np.diag([9.0, 16.0]))
    array([5.])
    """
    if cov is None:
        return np.full(len(gradient), np.nan)
    variance: FloatArray = np.einsum("mk,mk->m", gradient @ cov, gradient)
    se = np.sqrt(np.where(variance >= 0, variance, np.nan))
    if unsure is None:
        return se
    return np.where((se == 0) & (gradient[:, unsure] != 0).any(axis=1), np.nan, se)


def wald_interval(
    value: FloatArray, se: FloatArray, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return estimate ± z se.

    Examples
    --------
    >>> low, high = wald_interval(np.array([2.0]), np.array([0.5]), 0.05)
    >>> low.round(4), high.round(4)
    (array([1.02]), array([2.98]))
    """
    half = normal_quantile(alpha) * se
    return value - half, value + half


def log_interval(value: FloatArray, se: FloatArray, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Return the delta method's interval of variances on the log scale.

    Parameters
    ----------
    value : (m,) estimates; the interval is nan where they are not positive
    se : (m,) their standard errors
    alpha : the interval has confidence 1 − alpha

    Examples
    --------
    >>> low, high = log_interval(np.array([2.0]), np.array([0.5]), 0.05)
    >>> low.round(4), high.round(4)
    (array([1.2253]), array([3.2646]))
    """
    inside = value > 0
    safe = np.where(inside, value, 1.0)
    reach = normal_quantile(alpha) * se / safe
    reach = np.where(inside, reach, np.nan)
    with np.errstate(over="ignore"):
        return safe * np.exp(-reach), safe * np.exp(reach)


def logit_interval(
    value: FloatArray, se: FloatArray, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return the delta method's interval of coefficients on the logit scale.

    Parameters
    ----------
    value : (m,) estimates; the interval is nan where they are not between 0 and 1
    se : (m,) their standard errors
    alpha : the interval has confidence 1 − alpha

    Examples
    --------
    >>> low, high = logit_interval(np.array([0.9]), np.array([0.03]), 0.05)
    >>> low.round(4), high.round(4)
    (array([0.824]), array([0.9453]))
    """
    inside = (value > 0) & (value < 1)
    safe = np.where(inside, value, 0.5)
    reach = np.where(inside, normal_quantile(alpha) * se / (safe * (1 - safe)), np.nan)
    odds_against = (1 - safe) / safe
    with np.errstate(over="ignore"):
        return 1 / (1 + odds_against * np.exp(reach)), 1 / (1 + odds_against * np.exp(-reach))


def satterthwaite_interval(
    value: FloatArray, se: FloatArray, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return Satterthwaite's interval of variances: ν σ̂²/σ² as χ² with ν = 2 (σ̂²/se)².

    It is exact for the residual of balanced data. A negative estimate has no interval (nan), and
    an estimate with a standard error of several times its size has [0, ∞]. An upper limit above a
    million times the estimate is set to ∞.

    References
    ----------
    Satterthwaite (1946), Biometrics Bulletin 2, 110-114.

    Examples
    --------
    >>> low, high = satterthwaite_interval(np.array([2.0]), np.array([0.5]), 0.05)
    >>> low.round(4), high.round(4)
    (array([1.2934]), array([3.499]))
    """
    from scipy.special import chdtri

    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        usable = (value > 0.0) & (se > 0.0)
        df = np.where(usable, 2.0 * np.square(value / se), np.nan)
        low, high = (df * value / chdtri(df, tail) for tail in (alpha / 2.0, 1.0 - alpha / 2.0))
        # With a small fraction of a degree of freedom even upper quantiles of χ² are below ν, and
        # both limits above the estimate: such an estimate has [0, ∞] at any level.
        useless = chdtri(df, 0.025) < df
    endless = useless | (high > _ENDLESS * value)
    low, high = np.where(useless, 0.0, low), np.where(endless, np.inf, high)
    return np.fmin(low, np.where(usable, value, np.nan)), np.fmax(
        high, np.where(usable, value, np.nan)
    )


def normal_quantile(alpha: float) -> float:
    """Return z with P(|Z| > z) = alpha for a standard normal Z."""
    from scipy.special import ndtri

    return float(-ndtri(alpha / 2))
