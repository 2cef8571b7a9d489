"""Conflict ratios α₋ and α₊: significant differences that are swapped on other topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError
from vcomp.ir.measures.power_ratio import OfSignificantPairs
from vcomp.ir.pair_forecast import PairForecast, significant_pairs, two_sided


@dataclass(frozen=True, slots=True)
class _Conflicts(OfSignificantPairs):
    """Share of significant differences that are swapped on other topics, significantly or not."""

    n_sets: ClassVar[int] = 2
    larger_is_better: ClassVar[bool] = False
    undefined: ClassVar[str] = "no difference is significant"
    significantly: ClassVar[bool]

    def actual_of_scores(self, X: FloatArray, Y: FloatArray) -> float:
        """Return the ratio between two collections, unchecked: for loops."""
        if Y.ndim != 2:
            raise PlanError(
                "conflicts need a truth that can be tested: scores on topics, not true means"
            )
        one, significant = significant_pairs(X, self.alpha, self.test, self.sides)
        other, again = significant_pairs(Y, self.alpha, self.test, self.sides)
        n_significant = significant.sum()
        if not n_significant:
            return np.nan
        swapped = np.sign(one) * np.sign(other) < 0
        counted = again == self.significantly
        return float((significant & swapped & counted).sum() / n_significant)

    def expected(self, pairs: PairForecast, n_topics: float) -> float:
        """Return the expected ratio of two collections of n' topics, given the components."""
        level = two_sided(self.alpha, self.sides)
        return pairs.conflicts(n_topics, level, significantly=self.significantly)


@dataclass(frozen=True, slots=True)
class MinorConflicts(_Conflicts):
    """Share of significant differences that are swapped, but not significant, on other topics.

    Minor conflicts are conclusions that other topics do not confirm.
    The truth must be scores on topics, which can be tested; see Urbano et al. (2013, sec. 2.1).

    Parameters
    ----------
    alpha : level of the tests in both collections
    test : ``"t"``, as published, or ``"wilcoxon"`` for signed ranks
    sides : 2, as published; or 1 for tests that the system with the larger mean is better

    Raises
    ------
    PlanError
        If `alpha` is not between 0 and 1, `test` or `sides` has another value, or the truth is
        given as means.

    Notes
    -----
    Up to half of the topics :meth:`estimate` is the mean over random pairs of disjoint subsets.
    Beyond, it is that of half of the topics times the ratio of what the noncentral t expects of
    two collections of n' topics and of two halves (see :class:`PowerRatio`), or what it expects,
    if no half has a conflict.

    Undefined (nan) where no difference is significant in the collection. A difference of exactly
    zero on the other topics is not a swap.

    References
    ----------
    Urbano, J., Marrero, M. and Martín, D. (2013). On the measurement of test collection
    reliability. *Proc. ACM SIGIR*, 393-402.

    Voorhees, E. M. (2009). Topic set size redux. *Proc. ACM SIGIR*, 806-807.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> other = [[0.5, 0.4, 0.1], [0.4, 0.5, 0.2], [0.6, 0.5, 0.2]]
    >>> MinorConflicts(alpha=0.1).actual(scores, other)
    1.0
    """

    name: ClassVar[str] = "minor_conflicts"
    symbol: ClassVar[str] = "α₋"
    significantly: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class MajorConflicts(_Conflicts):
    """Share of significant differences that are swapped and significant on other topics.

    Major conflicts are conclusions that other topics contradict. For the rest see
    :class:`MinorConflicts`.

    Parameters
    ----------
    alpha, test, sides : see :class:`MinorConflicts`

    Raises
    ------
    PlanError
        As :class:`MinorConflicts`.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> other = [[0.9, 0.4, 0.1], [0.8, 0.4, 0.2], [0.9, 0.3, 0.1]]
    >>> MajorConflicts(alpha=0.1).actual(scores, other)
    1.0
    """

    name: ClassVar[str] = "major_conflicts"
    symbol: ClassVar[str] = "α₊"
    significantly: ClassVar[bool] = True
