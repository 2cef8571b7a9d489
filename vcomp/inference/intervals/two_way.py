"""Intervals of coefficients from the mean squares of a complete two-way table."""

from __future__ import annotations

import math

from vcomp._typing import FloatArray
from vcomp.inference.components import TwoWayMeanSquares

__all__ = [
    "ARTEAGA",
    "FELDT",
    "arteaga_interval",
    "erho2_of",
    "feldt_interval",
    "phi_of",
]


FELDT = "exact F of the mean squares (Feldt 1965)"
ARTEAGA = "approximate F of the mean squares (Arteaga, Jeyaratnam and Franklin 1982)"


def feldt_interval(table: TwoWayMeanSquares, alpha: float) -> tuple[float, float]:
    """Return the exact interval of ζ = σ²_s/σ²_e, of which Eρ² = n'ζ/(1 + n'ζ).

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
        return (ratio / _f_quantile(tail, df_s, df_s * df_q) - 1) / table.n_columns

    return bound(alpha / 2), bound(1 - alpha / 2)


def arteaga_interval(table: TwoWayMeanSquares, alpha: float) -> tuple[float, float]:
    """Return an interval of Λ = σ²_s/(σ²_s + σ²_q + σ²_e), cut at 0.

    Φ = n'Λ/(1 + (n' − 1)Λ) has the interval of the same ends.

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

    def bound(tail: float) -> float:
        F_inf = _f_quantile(tail, df_s, math.inf)
        F_e = _f_quantile(tail, df_s, df_s * df_q)
        F_q = _f_quantile(tail, df_s, df_q)
        top = M_s**2 - F_inf * M_s * M_e + (F_inf - F_e) * F_e * M_e**2
        L = top / (df_s * F_inf * M_s * M_e + F_q * M_s * M_q)
        # below -n_q/n_s the ratio would jump to the other side; a share of variance ends at 0
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
    >>> import numpy as np
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
    >>> import numpy as np
    >>> phi_of(0.1, np.array([1.0, 9.0]))
    array([0.1, 0.5])
    """
    positive = max(lambda_, 0.0)
    return n * positive / (1 + (n - 1) * positive)


def _f_quantile(tail: float, df_1: float, df_2: float) -> float:
    """Return the value that F exceeds with probability `tail`."""
    # scipy.stats gives the same numbers and takes a second to import
    from scipy.special import chdtri, fdtri

    if math.isinf(df_2):
        return float(chdtri(df_1, tail)) / df_1
    return float(fdtri(df_1, df_2, 1 - tail))
