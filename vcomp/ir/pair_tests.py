"""Tests of the difference of every two systems: paired t-tests and Wilcoxon's signed ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.exceptions import PlanError, check_one_of
from vcomp.ir.agreement import rounding
from vcomp.ir.kernels import signed_rank_sums
from vcomp.ir.significance import critical_t, paired_tests, pairs_of, settled
from vcomp.numerics.kernels import at_once

PairTest: TypeAlias = Literal["t", "wilcoxon"]
Sides: TypeAlias = Literal[1, 2]

TESTS: tuple[PairTest, ...] = get_args(PairTest)

_EXACT = 50
"""Topics up to which the distribution of signed ranks is exact, if there are no ties."""

_SECONDS = 2e-6
"""What a topic of a pair takes in Python."""


def check_test(test: str, sides: int) -> None:
    """Refuse tests that there are not.

    Raises
    ------
    PlanError
        If `test` is neither ``"t"`` nor ``"wilcoxon"``, or `sides` neither 1 nor 2.
    """
    check_one_of("test", test, TESTS)
    if isinstance(sides, bool) or sides not in (1, 2):
        raise PlanError(f"sides must be 1 or 2, not {sides!r}")


def two_sided(alpha: float, sides: Sides) -> float:
    """Return the level of the two-sided t-tests that find as much as one- or two-sided ones."""
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
    ranks = at_once(signed_rank_sums, X.shape[0] * i.size * _SECONDS)
    tolerance = float(rounding(np.ravel(X)))
    positive, count, ties = ranks(np.ascontiguousarray(X), i, j, tolerance)
    if sides == 1:  # of the better system against the other one
        total = count * (count + 1) / 2
        larger = np.where(differences >= 0, positive, total - positive)
        return PairComparisons(differences, _upper_tail(larger, count, ties))
    total = count * (count + 1) / 2
    farther = np.maximum(positive, total - positive)
    return PairComparisons(differences, np.minimum(1.0, 2.0 * _upper_tail(farther, count, ties)))


def significant_pairs(
    X: FloatArray, alpha: float, test: PairTest = "t", sides: Sides = 2
) -> tuple[FloatArray, BoolArray]:
    """Return differences of all pairs, and which of them are significant at level `alpha`."""
    if test == "t":
        tests = paired_tests(X)
        return tests.differences, np.abs(tests.t) > critical_t(two_sided(alpha, sides), tests.df)
    tested = compare_pairs(X, test, sides)
    return tested.differences, tested.p_values < alpha


def _upper_tail(sums: FloatArray, count: LongArray, ties: FloatArray) -> FloatArray:
    """Return the probability of sums of ranks as large, if signs are random.

    Exact up to :data:`_EXACT` differences without ties; else by the normal distribution with the
    variance of tied ranks, without a correction for continuity. One where nothing differs.
    """
    from scipy.special import ndtr

    p = np.ones(sums.size)
    some = count > 0
    n = count[some].astype(float)
    variance = n * (n + 1) * (2 * n + 1) / 24 - ties[some] / 48
    p[some] = ndtr((n * (n + 1) / 4 - sums[some]) / np.sqrt(variance))
    exact = some & (count <= _EXACT) & (ties == 0)
    for m in np.unique(count[exact]):
        here = exact & (count == m)
        p[here] = _exact_tail(int(m))[np.rint(sums[here]).astype(int)]
    return p


@lru_cache(maxsize=_EXACT)
def _exact_tail(n: int) -> FloatArray:
    """Return P(W ≥ w) for w from 0 on: subsets of the numbers from 1 to n by their sum."""
    shares = np.ones(1)
    for rank in range(1, n + 1):
        more = np.zeros(shares.size + rank)
        more[: shares.size] += shares / 2
        more[rank:] += shares / 2
        shares = more
    return np.asarray(np.cumsum(shares[::-1])[::-1])
