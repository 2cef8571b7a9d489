"""Intervals in closed form: delta method, Satterthwaite, and F of complete two-way tables.

Eqs. (10.2), (10.3), (10.7) and (10.8) of docs/explanation/mathematics.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.inference.quantities import TwoWayMeanSquares
from vcomp.numerics import f_quantile

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


def correlation_interval(
    value: FloatArray, se: FloatArray, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return the delta method's interval of correlations on the scale of artanh (Fisher's z).

    Parameters
    ----------
    value : (m,) estimates; the interval is nan where they are not between −1 and 1
    se : (m,) their standard errors
    alpha : the interval has confidence 1 − alpha

    Examples
    --------
    >>> low, high = correlation_interval(np.array([0.5]), np.array([0.2]), 0.05)
    >>> low.round(4), high.round(4)
    (array([0.0266]), array([0.7902]))
    """
    low, high = logit_interval(0.5 * (1.0 + value), 0.5 * se, alpha)
    return 2.0 * low - 1.0, 2.0 * high - 1.0


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


FELDT = "exact F of the mean squares (Feldt 1965)"
ARTEAGA = "approximate F of the mean squares (Arteaga, Jeyaratnam and Franklin 1982)"


def feldt_interval(table: TwoWayMeanSquares, alpha: float) -> tuple[float, float]:
    """Return the exact interval of ζ = σ²_s/σ²_e, eq. (10.7); Eρ² = n'ζ/(1 + n'ζ).

    Parameters
    ----------
    table : mean squares with the object of measurement as rows
    alpha : the interval has confidence 1 − alpha

    References
    ----------
    Feldt (1965), Psychometrika 30, 357-370; as eq. (8) of Urbano, Marrero and Martín (2013),
    SIGIR, where alpha is one tail: half of ours.

    Examples
    --------
    >>> trec3 = TwoWayMeanSquares("sys", "topic", 30, 50, 0.150737, 0.852955, 0.0101522)
    >>> low, high = feldt_interval(trec3, 0.05)
    >>> round(low, 4), round(high, 4)
    (0.1671, 0.5187)
    """
    df_s, df_q = table.n_rows - 1, table.n_columns - 1
    ratio = table.ms_rows / table.ms_residual

    def bound(tail: float) -> float:
        return (ratio / _upper_f(tail, df_s, df_s * df_q) - 1) / table.n_columns

    return bound(alpha / 2), bound(1 - alpha / 2)


def arteaga_interval(table: TwoWayMeanSquares, alpha: float) -> tuple[float, float]:
    """Return an interval of Λ = σ²_s/(σ²_s + σ²_q + σ²_e), eq. (10.8), cut at 0.

    The limits of Φ = n'Λ/(1 + (n' − 1)Λ) follow from those of Λ.

    Parameters
    ----------
    table : mean squares with the object of measurement as rows
    alpha : the interval has confidence 1 − alpha

    References
    ----------
    Arteaga, Jeyaratnam and Franklin (1982), Communications in Statistics: Theory and Methods 11,
    1643-1658; as eq. (9) of Urbano, Marrero and Martín (2013), SIGIR. The second quantile in the
    denominator has df_q degrees of freedom: the printed equation says df_e, but only df_q gives
    the intervals of that paper's Table 1.

    Examples
    --------
    >>> trec3 = TwoWayMeanSquares("sys", "topic", 30, 50, 0.150737, 0.852955, 0.0101522)
    >>> low, high = arteaga_interval(trec3, 0.05)
    >>> round(low, 4), round(high, 4)
    (0.0376, 0.1283)
    """
    n_s, n_q = table.n_rows, table.n_columns
    df_s, df_q = n_s - 1, n_q - 1
    M_s, M_q, M_e = table.ms_rows, table.ms_columns, table.ms_residual
    unit = max(M_s, M_q, M_e) or 1.0  # squares of very small or large ones are not numbers
    M_s, M_q, M_e = M_s / unit, M_q / unit, M_e / unit

    def bound(tail: float) -> float:
        F_inf = _upper_f(tail, df_s, math.inf)
        F_e = _upper_f(tail, df_s, df_s * df_q)
        F_q = _upper_f(tail, df_s, df_q)
        top = M_s**2 - F_inf * M_s * M_e + (F_inf - F_e) * F_e * M_e**2
        L = top / (df_s * F_inf * M_s * M_e + F_q * M_s * M_q)
        # below −n_q/n_s the ratio would change sign; a share of variance is at least 0
        return n_s * max(L, 0.0) / (n_s * max(L, 0.0) + n_q)

    return bound(alpha / 2), bound(1 - alpha / 2)


def erho2_of(zeta: float, n: FloatArray) -> FloatArray:
    """Return Eρ² of n levels from ζ = σ²_s/σ²_e; 0 where ζ is negative.

    Parameters
    ----------
    zeta : ratio of variances, or an end of its interval
    n : (m,) levels of the other facet

    References
    ----------
    Urbano, Marrero and Martín (2013), eq. (10).

    Examples
    --------
    >>> erho2_of(0.1, np.array([10.0, 90.0]))
    array([0.5, 0.9])
    """
    odds = n * max(zeta, 0.0)
    return odds / (1 + odds)


def phi_of(lambda_: float, n: FloatArray) -> FloatArray:
    """Return Φ of n levels from Λ = σ²_s/(σ²_s + σ²_q + σ²_e); 0 where Λ is negative.

    Parameters
    ----------
    lambda_ : ratio of variances, or an end of its interval
    n : (m,) levels of the other facet

    References
    ----------
    Urbano, Marrero and Martín (2013), eq. (11).

    Examples
    --------
    >>> phi_of(0.1, np.array([1.0, 9.0]))
    array([0.1, 0.5])
    """
    positive = max(lambda_, 0.0)
    return n * positive / (1 + (n - 1) * positive)


@dataclass(frozen=True, slots=True)
class FInterval:
    """The interval of a coefficient of a complete two-way table from F quantiles.

    Attributes
    ----------
    words : name of the method
    limits : of the ratio of variances or mean squares, from a table and α
    of : the coefficient of n levels at an end of it
    """

    words: str
    limits: Callable[[TwoWayMeanSquares, float], tuple[float, float]]
    of: Callable[[float, FloatArray], FloatArray]


F_INTERVALS = {
    "Erho2": FInterval(FELDT, feldt_interval, erho2_of),
    "Phi": FInterval(ARTEAGA, arteaga_interval, phi_of),
}
"""By the names of the coefficients."""


def _upper_f(tail: float, df_1: float, df_2: float) -> float:
    """Return the value that F exceeds with probability `tail`."""
    from scipy.special import chdtri

    if math.isinf(df_2):
        return float(chdtri(df_1, tail)) / df_1
    return float(f_quantile(1.0 - tail, df_1, df_2))
