"""Conflict ratios α₋ and α₊: significant differences that other topics do not bear out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError, check_alpha
from vcomp.ir.measures.base import TopicMeasure
from vcomp.ir.measures.extrapolated import Extrapolated
from vcomp.ir.measures.significance import paired_tests


@dataclass(frozen=True, slots=True)
class _Conflicts(Extrapolated, TopicMeasure):
    """Share of significant differences that are swapped on other topics, significantly or not."""

    alpha: float = 0.05

    larger_is_better: ClassVar[bool] = False
    undefined: ClassVar[str] = "no difference is significant"
    significantly: ClassVar[bool]

    def __post_init__(self) -> None:
        check_alpha(self.alpha)

    def actual_of_scores(self, X: FloatArray, Y: FloatArray) -> float:
        """Return the ratio between two collections, unchecked: for loops."""
        if Y.ndim != 2:
            raise PlanError(
                "conflicts need a truth that can be tested: scores on topics, not true means"
            )
        one, other = paired_tests(X), paired_tests(Y)
        significant = one.significant(self.alpha)
        n_significant = significant.sum()
        if not n_significant:
            return np.nan
        swapped = np.sign(one.differences) * np.sign(other.differences) < 0
        there = other.significant(self.alpha) == self.significantly
        return float((significant & swapped & there).sum() / n_significant)


@dataclass(frozen=True, slots=True)
class MinorConflicts(_Conflicts):
    """Share of significant differences that are swapped, but not significant, on other topics.

    Minor conflicts are conclusions that other topics do not bear out.
    The truth must be scores on topics, which can be tested; see Urbano et al. (2013, sec. 2.1).

    Parameters
    ----------
    alpha : level of the two-sided paired t-tests, in both collections

    Raises
    ------
    PlanError
        If `alpha` is not between 0 and 1, or the truth is given as means.

    Notes
    -----
    Undefined (nan) where no difference is significant in the collection. A difference of exactly
    zero on the other topics is no swap.

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
    alpha : level of the two-sided paired t-tests, in both collections

    Raises
    ------
    PlanError
        If `alpha` is not between 0 and 1, or the truth is given as means.

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
