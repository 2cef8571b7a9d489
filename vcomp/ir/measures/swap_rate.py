"""Swap rate of differences of a given size (Voorhees and Buckley, 2002)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import check_alpha
from vcomp.ir.measures.larger_tests import FromSubsets
from vcomp.ir.pair_forecast import PairForecast
from vcomp.ir.significance import between, check_bin, paired_tests, signs


@dataclass(frozen=True, slots=True)
class SwapRate(FromSubsets):
    """Share of pairs of systems whose true order is reversed.

    Of the pairs whose mean scores differ by at least `lower` and less than `upper`, and, if
    `alpha` is given, significantly so (Sanderson and Zobel, 2005). :func:`vcomp.ir.swap_rates` has
    all bins of differences at once, over many splits of the topics.

    Parameters
    ----------
    lower, upper : the bin of differences, in the units of the scores
    alpha : level of two-sided paired t-tests in the collection; by default all differences count

    Raises
    ------
    PlanError
        If the bin is empty, or `alpha` is not between 0 and 1.

    Notes
    -----
    Pairs with equal means in the collection have no order and do not count; those with equal true
    means count and are not swapped. Up to half of the topics :meth:`estimate` is the mean over
    random pairs of disjoint subsets; beyond, it is that of half of the topics times the ratio of
    what the components expect of n' topics and of half of them (see :class:`PowerRatio`).
    Undefined (nan) where no pair is in the bin.

    References
    ----------
    Voorhees, E. M. and Buckley, C. (2002). The effect of topic set size on retrieval experiment
    error. *Proc. ACM SIGIR*, 316-323.

    Sanderson, M. and Zobel, J. (2005). Information retrieval system evaluation: effort,
    sensitivity, and reliability. *Proc. ACM SIGIR*, 162-169.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> SwapRate(upper=0.1).actual(scores, [0.2, 0.4, 0.3])
    1.0
    >>> SwapRate(lower=0.1).actual(scores, [0.2, 0.4, 0.3])
    0.0
    """

    lower: float = 0.0
    upper: float = np.inf
    alpha: float | None = None

    n_sets: ClassVar[int] = 2
    name: ClassVar[str] = "swap_rate"
    symbol: ClassVar[str] = "swap rate"
    larger_is_better: ClassVar[bool] = False
    undefined: ClassVar[str] = "no pair of systems differs by that much"

    def __post_init__(self) -> None:
        check_bin(self.lower, self.upper)
        if self.alpha is not None:
            check_alpha(self.alpha)

    def actual_of_scores(self, X: FloatArray, Y: FloatArray) -> float:
        """Return the swap rate of a collection, unchecked: for loops."""
        tests = paired_tests(X)
        counted = between(tests.differences, self.lower, self.upper)
        if self.alpha is not None:
            counted &= tests.significant(self.alpha)
        if not counted.any():
            return np.nan
        swapped = np.sign(tests.differences) * signs(Y) < 0
        return float(swapped[counted].mean())

    def expected(self, pairs: PairForecast, n_topics: float) -> float:
        """Return the expected swap rate of two collections of n' topics, given the components."""
        bounds = np.array([self.lower, self.upper])
        share, swapped, _ = pairs.by_difference(n_topics, bounds, self.alpha)[:, 0]
        return float(swapped / share) if share > 0 else np.nan
