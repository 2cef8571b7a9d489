"""Rankings drawn as they may truly be, and as new tests may give them: intervals of τ and τ_AP."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.ir.rank.paired import PairedDifferences

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


@dataclass(frozen=True, slots=True, eq=False)
class RankDraws:
    """True means of all systems as they may be, given their scores, and errors of new tests.

    Attributes
    ----------
    truth : (draws, k) true means, each draw in descending order
    order : (draws, k) which systems these are
    errors : (draws, k) errors of a test of one topic, in this order
    scales : (draws,) what estimated standard deviations are multiplied by
    at_hand : (draws, k) mean scores in the test at hand, in this order
    precision : (k, k) 1 / (√2 s), s the standard deviation of the difference between two systems
    """

    truth: FloatArray
    order: LongArray
    errors: FloatArray
    scales: FloatArray
    at_hand: FloatArray
    precision: FloatArray

    @classmethod
    def of(cls, pairs: PairedDifferences, draws: int, seed: int) -> RankDraws:
        """Draw true means, and errors of new tests that vary and covary as those of this one.

        Notes
        -----
        With g standard normal and Z the residuals of systems, Zᵀg/√(n - 1) has the covariance S of
        the systems, which need not be formed, nor have full rank.
        """
        from vcomp.numerics import limited_blas

        rng = np.random.default_rng(seed)
        n, n_scores = pairs.n_topics, pairs.n_scores
        B = error_share(pairs).quantile(rng.random(draws))[:, np.newaxis]
        scales = np.sqrt((n - 1.0) / rng.chisquare(n - 1.0, draws))
        # One thread: sums in another order differ in the last bit.
        with limited_blas(0):
            own, new = (rng.standard_normal((draws, n)) @ pairs.residuals for _ in range(2))
        own *= scales[:, np.newaxis] / np.sqrt(n_scores * (n_scores - 1.0))
        new *= scales[:, np.newaxis] / np.sqrt(n_scores - 1.0)
        truth = (1.0 - B) * pairs.centres + np.sqrt(1.0 - B) * own
        order = np.argsort(-truth, axis=1, kind="stable")
        return cls(
            truth=np.take_along_axis(truth, order, axis=1),
            order=order,
            errors=np.take_along_axis(new, order, axis=1),
            scales=scales,
            at_hand=pairs.effects[order],
            precision=_precision(pairs),
        )

    def realised(self, n_topics: float | None, threshold: float) -> FloatArray:
        """Count how tests agree with the truth, in each draw.

        Parameters
        ----------
        n_topics : of new tests; None for the test at hand
        threshold : largest difference of equal systems

        Returns
        -------
        (draws, 4) array
            as of :func:`vcomp.ir.kernels.drawn_ranks.drawn_agreement`
        """
        from vcomp.ir.kernels import drawn_agreement

        if n_topics is None:
            counts: FloatArray = drawn_agreement(self.at_hand, self.truth, threshold)
            return counts
        means = self.truth + self.errors / np.sqrt(n_topics)
        counts = drawn_agreement(means, self.truth, threshold)
        return counts

    def expected(self, n_topics: float, threshold: float) -> FloatArray:
        """Return what to expect of these counts in new tests, in each draw."""
        from vcomp.ir.kernels import drawn_expectation

        scales = np.sqrt(n_topics) / self.scales
        counts: FloatArray = drawn_expectation(
            self.truth, self.order, self.precision, scales, threshold
        )
        return counts


def _precision(pairs: PairedDifferences) -> FloatArray:
    """Return 1 / (√2 s) of each two systems, infinite where s is zero."""
    k = pairs.n_systems
    i, j = np.triu_indices(k, 1)
    deviations = np.sqrt(2.0 * pairs.variances)
    out = np.full((k, k), np.inf)
    out[i, j] = np.divide(
        1.0, deviations, out=np.full(deviations.size, np.inf), where=deviations > 0.0
    )
    out[j, i] = out[i, j]
    return out
