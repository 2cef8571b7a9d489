"""Tests of the difference of every two systems: paired t-tests and Wilcoxon's signed ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import PlanError, check_one_of
from vcomp.ir.comparisons import PairOptions, outcome_of
from vcomp.ir.significance import paired_tests, pairs_of, settled

PairTest: TypeAlias = Literal["t", "wilcoxon"]
Sides: TypeAlias = Literal[1, 2]

TESTS: tuple[PairTest, ...] = get_args(PairTest)


def check_test(test: str, sides: int) -> None:
    """Refuse unknown tests.

    Raises
    ------
    PlanError
        If `test` is neither ``"t"`` nor ``"wilcoxon"``, or `sides` neither 1 nor 2.
    """
    check_one_of("test", test, TESTS)
    if isinstance(sides, bool) or sides not in (1, 2):
        raise PlanError(f"sides must be 1 or 2, not {sides!r}")


def two_sided(alpha: float, sides: Sides) -> float:
    """Return the level of the two-sided t-tests that are equivalent to tests with `sides`."""
    return min(alpha * 2 / sides, 1.0 - 1e-12)


@dataclass(frozen=True, slots=True, eq=False)
class PairComparisons:
    """Differences between all systems, and the p-values of their tests.

    Attributes
    ----------
    differences : (n_pairs,) mean of X_i - X_j; exactly zero if smaller than the rounding error
    p_values : (n_pairs,)
    """

    differences: FloatArray
    p_values: FloatArray


def compare_pairs(X: FloatArray, test: PairTest = "t", sides: Sides = 2) -> PairComparisons:
    """Test the difference of every two systems.

    Signed ranks are those of :func:`vcomp.ir.compare_systems`, without zero differences.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing, on at least two topics
    test : ``"t"`` for paired t-tests, ``"wilcoxon"`` for Wilcoxon's signed-rank test
    sides : 2 for two-sided p-values; 1 for those of the alternative that the system with the
        larger mean is better

    Examples
    --------
    >>> X = np.array([[0.3, 0.5], [0.4, 0.5], [0.2, 0.5], [0.9, 0.5]])
    >>> compare_pairs(X, "wilcoxon").p_values
    array([0.875])
    """
    if test == "t":
        tests = paired_tests(X)
        return PairComparisons(tests.differences, tests.p_values * (sides / 2))
    i, j = pairs_of(X.shape[1])
    differences = settled(X.mean(axis=0), i, j)
    # Zero differences have no rank. One-sided tests put the better system of a pair first.
    how = PairOptions("two-sided" if sides == 2 else "greater", zeros="wilcox")
    better, worse = np.where(differences >= 0, (i, j), (j, i))
    return PairComparisons(differences, outcome_of(X, "wilcoxon", how, (better, worse)).p_values)


def significant_pairs(
    X: FloatArray, alpha: float, test: PairTest = "t", sides: Sides = 2
) -> tuple[FloatArray, BoolArray]:
    """Return the differences of all pairs, and a mask of those significant at level `alpha`."""
    if test == "t":
        tests = paired_tests(X)
        return tests.differences, tests.significant(two_sided(alpha, sides))
    tested = compare_pairs(X, test, sides)
    return tested.differences, display.snapped(tested.p_values, alpha) <= alpha
