"""How much of the differences between systems is error: what they are shrunk by.

Observed differences are wider than true ones, as they hold error as well. How much wider is told
by the mean square between systems, F times that of error: of a normal model with a flat prior of
σ²(s), the variance of true means, the share of error B = 1 - Eρ² has the density

    p(B | F) ∝ B^(ν/2 - 2) (1 + ν F B / ν')^(-(ν + ν')/2),    0 < B ≤ 1

with ν and ν' degrees of freedom between systems and of error (Box and Tiao, 1973, sec. 5.2;
Morris, 1983). Its mean is about (ν - 2)/(ν F), Stein's, but never above one.

References
----------
Box, G. E. P. and Tiao, G. C. (1973). *Bayesian Inference in Statistical Analysis*. Addison-Wesley.

Morris, C. N. (1983). Parametric empirical Bayes inference: theory and applications. *Journal of
the American Statistical Association*, 78, 47-55.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray
from vcomp.dstudy.paired import PairedDifferences

__all__ = ["ErrorShare", "error_share"]

_TINY = 1e-280
"""Below it the incomplete beta function is about to underflow."""


@dataclass(frozen=True, slots=True)
class ErrorShare:
    """The distribution of B = 1 - Eρ², the share of error in the variance of mean scores.

    Attributes
    ----------
    F : mean square between systems over mean square of error
    df : effective degrees of freedom between systems, ν
    df_error : those of error, ν'

    Notes
    -----
    With two effective degrees of freedom or fewer there is no such distribution: as with Stein's
    estimator nothing is known of the spread of true means, and B is taken as zero.

    Examples
    --------
    >>> share = ErrorShare(F=4.0, df=10.0, df_error=490.0)
    >>> round(share.mean, 3), share.quantile([0.025, 0.5, 0.975]).round(3)
    (0.2, array([0.054, 0.183, 0.442]))
    """

    F: float
    df: float
    df_error: float

    @property
    def is_known(self) -> bool:
        """Whether the systems suffice to tell error from true differences."""
        return self.df > 2.0 and bool(np.isfinite(self.F))

    @property
    def mean(self) -> float:
        """Mean of B; zero where nothing is known."""
        from scipy.special import betainc, betaln

        if not self.is_known:
            return 0.0
        a, b, c, x = self._beta()
        if self._is_near_one():
            slope = self._slope()
            return slope / (slope + 1.0)
        ratio = np.exp(betaln(a + 1.0, b - 1.0) - betaln(a, b)) / c
        return min(float(ratio * betainc(a + 1.0, b - 1.0, x) / betainc(a, b, x)), 1.0)

    def quantile(self, q: FloatArray | list[float]) -> FloatArray:
        """Return quantiles of B; zero where nothing is known."""
        from scipy.special import betainc, betaincinv

        q = np.asarray(q, dtype=float)
        if not self.is_known:
            return np.zeros(q.shape)
        if self._is_near_one():
            return np.asarray(q ** (1.0 / self._slope()))
        a, b, c, x = self._beta()
        y = np.minimum(betaincinv(a, b, q * betainc(a, b, x)), x)
        B: FloatArray = np.minimum(y / ((1.0 - y) * c), 1.0)
        return B

    def _beta(self) -> tuple[float, float, float, float]:
        """Return a, b, c and x: c B/(1 + c B) is beta(a, b), cut off at x."""
        a = self.df / 2.0 - 1.0
        c = max(self.df * self.F / self.df_error, _TINY)
        return a, self.df_error / 2.0 + 1.0, c, c / (1.0 + c)

    def _is_near_one(self) -> bool:
        """Whether F is so small that all of the density is next to one."""
        from scipy.special import betainc

        a, b, _, x = self._beta()
        return bool(betainc(a, b, x) < _TINY)

    def _slope(self) -> float:
        """Return how steep the logarithm of the density of log B is at one."""
        a, b, _, x = self._beta()
        return a - (a + b) * x


def error_share(pairs: PairedDifferences) -> ErrorShare:
    """Return the share of error in the differences between systems.

    The mean of D̄² over pairs is twice the mean square between systems over n, that of s² twice
    the mean square of error. With missing cells each pair has its own n.

    Examples
    --------
    >>> scores = [[3, 5, 1, 2], [4, 5, 4, 1], [2, 5, 3, 1], [3, 6, 3, 2]]
    >>> share = error_share(PairedDifferences.from_scores(scores, "abcd"))
    >>> round(share.F, 3), round(share.df, 3)
    (14.04, 3.0)
    """
    error = float((pairs.variances / pairs.n_common).mean())
    observed = float((pairs.differences**2).mean())
    F = observed / error if error > 0.0 else np.inf
    df = pairs.df
    return ErrorShare(F, df, df * (float(pairs.n_common.mean()) - 1.0))
