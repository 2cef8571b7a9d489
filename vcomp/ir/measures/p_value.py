"""Average p-value of the differences between systems (Bodoff and Li, 2007)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.ir.measures.larger_tests import FromSubsets
from vcomp.ir.pair_forecast import PairForecast, PairTest, Sides, check_test, compare_pairs
from vcomp.ir.significance import between, check_bin


@dataclass(frozen=True, slots=True)
class AveragePValue(FromSubsets):
    """Mean p-value of tests between systems that differ by a given amount.

    A swap rate that needs no second set of topics (Bodoff and Li, 2007, sec. 1; Bodoff, 2008,
    sec. 1.2): of the pairs whose mean scores differ by at least `lower` and less than `upper`, the
    mean p-value. The truth is not used.

    Parameters
    ----------
    lower, upper : the bin of differences, in the units of the scores
    test : ``"t"`` for paired t-tests, as in figure 1 of both papers, or ``"wilcoxon"`` for signed
        ranks, which Bodoff (2008, sec. 1.2) names as the non-parametric alternative
    sides : 2, the default, for two-sided p-values; 1 for one-sided ones, half as large, that a
        difference this large in favour of the better system is due to chance. The papers do not
        say which they average; that 1 - p be the probability that the better system is better
        (Bodoff, 2008, sec. 1.2) speaks for one-sided ones

    Raises
    ------
    PlanError
        If the bin is empty, or `test` or `sides` has another value.

    Notes
    -----
    Pairs with equal means have no better system and do not count, as for :class:`SwapRate`.
    Differences that are the same on all topics have p-value zero. Undefined (nan) where no pair is
    in the bin.

    Up to the topics of the collection :meth:`estimate` is the mean over random subsets, beyond the
    observed value times the ratio of what the noncentral t expects of n' and of n topics: see
    :class:`PowerRatio`. :func:`vcomp.ir.average_p_values` has all bins and sizes at once.

    References
    ----------
    Bodoff, D. and Li, P. (2007). Test theory for assessing IR test collections. *Proc. ACM SIGIR*,
    367-374.

    Bodoff, D. (2008). Test theory for evaluating reliability of IR test collections. *Information
    Processing and Management*, 44(3), 1117-1145.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> round(AveragePValue(lower=0.1).actual(scores, [0.3, 0.4, 0.2]), 3)
    0.096
    """

    lower: float = 0.0
    upper: float = np.inf
    sides: Sides = 2
    test: PairTest = "t"

    name: ClassVar[str] = "p_value"
    symbol: ClassVar[str] = "average p-value"
    larger_is_better: ClassVar[bool] = False
    undefined: ClassVar[str] = "no pair of systems differs by that much"

    def __post_init__(self) -> None:
        check_bin(self.lower, self.upper)
        check_test(self.test, self.sides)

    def actual_of_scores(self, X: FloatArray, Y: FloatArray) -> float:
        """Return the mean p-value in `X`, unchecked: for loops. `Y` is not used."""
        tested = compare_pairs(X, self.test, self.sides)
        counted = between(tested.differences, self.lower, self.upper)
        return float(tested.p_values[counted].mean()) if counted.any() else np.nan

    def expected(self, pairs: PairForecast, n_topics: float) -> float:
        """Return the expected mean p-value on n' topics, given the components."""
        bounds = np.array([self.lower, self.upper])
        share, _, p = pairs.by_difference(n_topics, bounds)[:, 0]
        return float(p / share) * self.sides / 2 if share > 0 else np.nan
