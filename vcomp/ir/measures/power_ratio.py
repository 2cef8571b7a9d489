"""Power ratio β: how many differences between systems are significant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vcomp._typing import FloatArray
from vcomp.exceptions import check_alpha
from vcomp.ir.measures.larger_tests import FromSubsets
from vcomp.ir.pair_forecast import (
    PairForecast,
    PairTest,
    Sides,
    check_test,
    significant_pairs,
    two_sided,
)


@dataclass(frozen=True, slots=True)
class OfSignificantPairs(FromSubsets):
    """A measure of pairs of systems whose difference is significant.

    Parameters
    ----------
    alpha, test, sides : see :class:`PowerRatio`
    """

    alpha: float = 0.05
    test: PairTest = "t"
    sides: Sides = 2

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        check_test(self.test, self.sides)

    def forecast(self, X: FloatArray) -> PairForecast:
        """Return the pair forecast from the p-values of the test."""
        return PairForecast.from_scores(X, self.test)


@dataclass(frozen=True, slots=True)
class PowerRatio(OfSignificantPairs):
    """Share of pairs of systems whose difference is significant (Urbano et al., 2013, sec. 2.1).

    The truth is not used: a significant difference counts as evidence that the true difference has
    the same sign. :class:`MinorConflicts` and :class:`MajorConflicts` count how often it has not.

    Parameters
    ----------
    alpha : level of the tests; no correction is made for their number
    test : ``"t"``, as published, or ``"wilcoxon"`` for signed ranks
    sides : 2, as published; or 1 for tests that the system with the larger mean is better

    Raises
    ------
    PlanError
        If `alpha` is not between 0 and 1, or `test` or `sides` has another value.

    Notes
    -----
    Up to the topics of the collection :meth:`estimate` is the mean over random subsets, so that
    the estimate for as many topics is the observed value (Bodoff, 2008, sec. 1.2, argues so
    against extrapolation from halves). Beyond, 1 - β is the observed one times the ratio of what
    the noncentral t expects of n' and of n topics (eq. 15.13 of the mathematics): true
    standardised differences come from a normal distribution with variance σ²(s)/σ²(st), given the
    observed t of each pair; for ``"wilcoxon"`` given the t that has the p-value of its test.

    References
    ----------
    Urbano, J., Marrero, M. and Martín, D. (2013). On the measurement of test collection
    reliability. *Proc. ACM SIGIR*, 393-402.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> round(PowerRatio(alpha=0.1).actual(scores, [0.3, 0.4, 0.2]), 3)
    0.333
    """

    name: ClassVar[str] = "power_ratio"
    symbol: ClassVar[str] = "β"

    def actual_of_scores(self, X: FloatArray, Y: FloatArray) -> float:
        """Return β of the collection `X`, unchecked: for loops. `Y` is not used."""
        return float(significant_pairs(X, self.alpha, self.test, self.sides)[1].mean())

    def expected(self, pairs: PairForecast, n_topics: float) -> float:
        """Return the expected β on n' topics, given the components."""
        return pairs.power(n_topics, two_sided(self.alpha, self.sides))
