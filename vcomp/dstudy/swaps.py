"""How likely a test is to rank each pair of systems as they truly are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.dstudy.paired import PairedDifferences
from vcomp.dstudy.rank_options import RankMethod
from vcomp.dstudy.shrinkage import error_share

__all__ = ["Swaps"]


@dataclass(frozen=True, slots=True, eq=False)
class Swaps:
    """What a test of n' topics makes of each pair, for any n'.

    Attributes
    ----------
    differences : (pairs,) what the true differences are taken for
    deviations : (pairs,) standard deviation over topics of each difference
    df : (pairs,) degrees of freedom of these; empty if they are taken for the true ones
    threshold : largest difference of equal systems
    """

    differences: FloatArray
    deviations: FloatArray
    df: LongArray
    threshold: float

    @classmethod
    def of(
        cls, pairs: PairedDifferences, method: RankMethod, threshold: float, at_hand: bool = False
    ) -> Swaps:
        """Return what is needed of the differences.

        Parameters
        ----------
        pairs : the differences between systems
        method : ``"shrunken"`` or ``"urbano"``
        threshold : largest difference of equal systems
        at_hand : whether the test itself is asked for, rather than new ones
        """
        deviations = np.sqrt(pairs.variances)
        if method == "urbano":
            return cls(pairs.differences, deviations, np.empty(0, dtype=np.int64), threshold)
        shrunken = np.sqrt(1.0 - error_share(pairs).mean) * pairs.differences
        # With missing cells the order of means may contradict that on common topics. It is what
        # the test at hand says, but new tests are held against the likelier order.
        differences = shrunken if at_hand else np.abs(shrunken)
        return cls(differences, deviations, pairs.n_common - 1, threshold)

    @property
    def unequal(self) -> BoolArray:
        """Which pairs are truly not equal: with a threshold of zero, all."""
        return (np.abs(self.differences) > self.threshold) | (self.threshold == 0.0)

    def probabilities(self, n_topics: float) -> tuple[FloatArray, FloatArray]:
        """Return the probabilities that i is ahead of j by more than the threshold, and behind."""
        behind = self._tail(-self.differences - self.threshold, n_topics)
        if self.threshold == 0.0:
            return 1.0 - behind, behind
        return self._tail(self.differences - self.threshold, n_topics), behind

    def _tail(self, x: FloatArray, n_topics: float) -> FloatArray:
        """Return the probability that error, with deviation s/√n', is below x."""
        z = np.sqrt(n_topics) * x
        varies = self.deviations > 0.0
        if varies.all():
            z /= self.deviations
        else:
            # What does not vary and is right at the threshold is equal; without one half swapped.
            edge = 0.0 if self.threshold == 0.0 else -np.inf
            limit = np.where(x == 0.0, edge, np.copysign(np.inf, x))
            z = np.divide(z, self.deviations, out=limit, where=varies)
        if not self.df.size:
            from scipy.special import ndtr

            return np.asarray(ndtr(z))
        return _student(z, self.df)


def _student(z: FloatArray, df: LongArray) -> FloatArray:
    from vcomp.kernels.rank_draws import student_cdf

    out = np.empty(z.size)
    for nu in np.unique(df):
        of = df == nu
        out[of] = student_cdf(z[of], int(nu))
    return out
