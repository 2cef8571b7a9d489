"""Rankings drawn as they may truly be, and as new tests may give them: intervals of τ and τ_AP."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.dstudy.paired import PairedDifferences
from vcomp.dstudy.shrinkage import error_share

__all__ = ["RankDraws"]


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
        from vcomp.linalg.threads import limited_blas

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
            as of :func:`vcomp.kernels.rank_draws.drawn_agreement`
        """
        from vcomp.kernels.rank_draws import drawn_agreement

        if n_topics is None:
            counts: FloatArray = drawn_agreement(self.at_hand, self.truth, threshold)
            return counts
        means = self.truth + self.errors / np.sqrt(n_topics)
        counts = drawn_agreement(means, self.truth, threshold)
        return counts

    def expected(self, n_topics: float, threshold: float) -> FloatArray:
        """Return what to expect of these counts in new tests, in each draw."""
        from vcomp.kernels.rank_draws import drawn_expectation

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
