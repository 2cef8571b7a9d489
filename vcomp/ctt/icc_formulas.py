"""Intraclass correlations from mean squares.

All are ω/(1 + ω) of odds ω, the variance of the objects over that of the error of one rating. With
the mean squares of objects R, raters C, residual E, and W within objects, of n objects and k
raters

    ICC(1):   ω = (R − W)/(kW)      ICC(C,1): ω = (R − E)/(kE)      ICC(A,1): ω = (R − E)/(kW)

where nW = C + (n − 1)E. The mean of m ratings has m times the odds, which is the Spearman-Brown
formula: so have the limits, and averages need no formulae of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Coefficient", "RatingMeanSquares", "agreement", "consistency", "one_way"]


@dataclass(frozen=True, slots=True)
class RatingMeanSquares:
    """Mean squares of complete ratings of n objects (rows) by k raters (columns)."""

    n: int
    k: int
    rows: float
    columns: float
    residual: float

    @property
    def within(self) -> float:
        """Mean square within objects: of raters and residual together."""
        return (self.columns + (self.n - 1) * self.residual) / self.n


@dataclass(frozen=True, slots=True)
class Coefficient:
    """An intraclass correlation of one rating, as odds.

    Attributes
    ----------
    odds, low, high : the estimate and the ends of its interval; ∞ where there is no error
    F, df1, df2, p_value : test of the null value, one-sided: whether the coefficient is larger
    """

    odds: float
    low: float
    high: float
    F: float
    df1: float
    df2: float
    p_value: float


def one_way(ms: RatingMeanSquares, null_odds: float, alpha: float) -> Coefficient:
    """Return ICC(1): raters of one object are not those of another.

    Parameters
    ----------
    ms : mean squares
    null_odds : of the null hypothesis
    alpha : the interval has confidence 1 − alpha

    References
    ----------
    McGraw and Wong (1996), Tables 4, 7 and 8, case 1: exact.
    """
    df = (ms.n - 1.0, ms.n * (ms.k - 1.0))
    return _exact(ms.rows, ms.within, ms.k, df, null_odds, alpha)


def consistency(ms: RatingMeanSquares, null_odds: float, alpha: float) -> Coefficient:
    """Return ICC(C,1): differences between raters do not matter.

    References
    ----------
    McGraw and Wong (1996), Tables 4, 7 and 8, cases 2 and 3: exact.
    """
    df = (ms.n - 1.0, (ms.n - 1.0) * (ms.k - 1.0))
    return _exact(ms.rows, ms.residual, ms.k, df, null_odds, alpha)


def agreement(ms: RatingMeanSquares, null_odds: float, alpha: float) -> Coefficient:
    """Return ICC(A,1): differences between raters are error.

    The degrees of freedom v are Satterthwaite's of aC + bE: at the estimate for the interval, at
    the null value for the test. (irr::icc in R up to 0.84.1 takes those of the estimate for both.)
    They are of sums, which aC + bE with a negative a is none: of an estimate below 0 they are
    those at 0, where the printed formula would put upper limits below the estimate.

    References
    ----------
    McGraw and Wong (1996), Tables 4, 7 and 8, cases 2 and 3: approximate; after Fleiss, J. L. and
    Shrout, P. E. (1978), *Psychometrika*, 43(2), 259-262.
    """
    n, k, R, C, E = ms.n, ms.k, ms.rows, ms.columns, ms.residual
    W, df1 = ms.within, n - 1.0

    def degrees(a: float) -> float:
        """Return v for a, and b = 1 + (n − 1)a."""
        both = [(a * C, k - 1.0), ((1.0 + (n - 1.0) * a) * E, (n - 1.0) * (k - 1.0))]
        below = sum(x**2 / df for x, df in both)
        if below == 0.0:  # neither counts: as if the raters did not
            return (n - 1.0) * (k - 1.0)
        return sum(x for x, _ in both) ** 2 / below

    a0 = k * null_odds / n
    below, df2 = a0 * C + (1.0 + (n - 1.0) * a0) * E, degrees(a0)
    F = _ratio(R, below)
    p_value = _upper_tail(F, df1, df2)
    if W == 0.0:
        return Coefficient(math.inf, math.inf, math.inf, F, df1, df2, p_value)
    odds = (R - E) / (k * W)
    v = degrees(max(R - E, 0.0) / (n * W))
    low = (R / _quantile(1.0 - alpha / 2.0, df1, v) - E) / (k * W)
    high = (R * _quantile(1.0 - alpha / 2.0, v, df1) - E) / (k * W)
    return Coefficient(odds, low, high, F, df1, df2, p_value)


def _exact(
    above: float, below: float, k: int, df: tuple[float, float], null_odds: float, alpha: float
) -> Coefficient:
    ratio = _ratio(above, below)
    ends = (_quantile(tail, *df) for tail in (1.0 - alpha / 2.0, alpha / 2.0))
    odds, low, high = ((F - 1.0) / k for F in (ratio, *(ratio / end for end in ends)))
    F = ratio / (1.0 + k * null_odds)
    return Coefficient(odds, low, high, F, *df, _upper_tail(F, *df))


def _ratio(above: float, below: float) -> float:
    if below > 0.0:
        return above / below
    return math.inf if above > 0.0 else math.nan


def _quantile(tail: float, df1: float, df2: float) -> float:
    from scipy.special import fdtri

    return float(fdtri(df1, df2, tail))


def _upper_tail(F: float, df1: float, df2: float) -> float:
    from scipy.special import fdtrc

    return 0.0 if math.isinf(F) else float(fdtrc(df1, df2, F))
