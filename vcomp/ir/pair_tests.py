"""Tests of pairs of systems by their differences on each topic.

By t, Wilcoxon and sign tests, by resampling (permutation, bootstrap, randomised Tukey), and by
Tukey's test of all pairs from the two-way analysis of variance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.inference.pairwise import Pairs, range_of_normals, simultaneous
from vcomp.ir.agreement import rounding
from vcomp.ir.kernels.pair_differences import (
    DROPPED,
    PRATT,
    SPLIT,
    means_of_sets,
    shuffled_ranges,
    signed_ranks,
)
from vcomp.ir.significance import mean_squares, paired_tests, settled
from vcomp.numerics import check_memory, limited_blas, run, slices, stream
from vcomp.numerics.kernels import at_once

Alternative: TypeAlias = Literal["two-sided", "greater", "less"]
Zeros: TypeAlias = Literal["pratt", "wilcox", "zsplit"]

ZEROS = {"pratt": PRATT, "wilcox": DROPPED, "zsplit": SPLIT}

_EXACT_UP_TO = 50
"""Largest number of topics with an exact Wilcoxon distribution: counts stay below 2**53."""

_CELLS = 2**20
"""Largest number of differences in memory at a time."""

_RANK_SECONDS = 5e-7
"""Seconds for the signed ranks of a pair in Python, per cubed number of topics."""


@dataclass(frozen=True, slots=True)
class PairOptions:
    """Options of tests of pairs, under their names in :func:`vcomp.ir.compare_systems`.

    Attributes
    ----------
    alternative : the hypothesis that a small p-value speaks for
    alpha : intervals have confidence 1 − alpha
    zeros : Wilcoxon's treatment of differences of zero
    n : replicates of resampling tests
    seed : of these
    workers : threads
    progress : whether to show a bar
    """

    alternative: Alternative = "two-sided"
    alpha: float = 0.05
    zeros: Zeros = "pratt"
    n: int = 10_000
    seed: int = 0
    workers: int = 1
    progress: bool | None = None

    def of_blocks(
        self, work: Callable[[int], FloatArray], n: int, what: str, axis: int = 0
    ) -> FloatArray:
        """Run `work` on `n` blocks and join the results in order."""
        results = run(
            lambda: work,
            range(n),
            workers=self.workers,
            progress=self.progress,
            label=f"blocks of {what}",
        )
        return np.concatenate([results[number] for number in range(n)], axis=axis)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Test results of m pairs of systems.

    Attributes
    ----------
    statistic, p_values : (m,)
    low, high : (m,) ends of intervals of the mean difference; nan where the test has none
    smallest : (m,) smallest p-value that the test can have; zero if there is none
    is_exact : (m,) whether the null distribution was enumerated
    """

    statistic: FloatArray
    p_values: FloatArray
    low: FloatArray
    high: FloatArray
    smallest: FloatArray
    is_exact: BoolArray

    @classmethod
    def of(
        cls,
        statistic: FloatArray,
        p_values: FloatArray,
        ends: tuple[FloatArray, FloatArray] | None = None,
        smallest: FloatArray | float = 0.0,
        *,
        is_exact: BoolArray | bool = False,
    ) -> Outcome:
        """Return an outcome; without ends, the intervals are nan."""
        m = p_values.shape
        low, high = (np.full(m, np.nan),) * 2 if ends is None else ends
        least = np.broadcast_to(np.asarray(smallest, dtype=float), m)
        exact = np.broadcast_to(np.asarray(is_exact, dtype=bool), m)
        return cls(statistic, p_values, low, high, least, exact)


def t_tests(X: FloatArray, pairs: Pairs, how: PairOptions) -> Outcome:
    """Test mean differences by paired t-tests (Student, 1908).

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing
    pairs : the systems i and j of each pair
    how : options
    """
    from scipy.special import stdtr, stdtrit

    tests = paired_tests(X, pairs)
    if how.alternative == "two-sided":
        p = 2.0 * stdtr(tests.df, -np.abs(tests.t))
    else:
        p = stdtr(tests.df, -tests.t if how.alternative == "greater" else tests.t)
    tails = 2.0 if how.alternative == "two-sided" else 1.0
    reach = float(stdtrit(tests.df, 1.0 - how.alpha / tails)) * tests.std_errors
    return Outcome.of(tests.t, p, ends_of(tests.differences, reach, how.alternative))


def ends_of(
    differences: FloatArray, reach: FloatArray, alternative: Alternative
) -> tuple[FloatArray, FloatArray]:
    """Return differences ∓ reach as interval ends; one-sided tests have one infinite end."""
    low, high = differences - reach, differences + reach
    if alternative == "greater":
        high = np.full_like(high, np.inf)
    if alternative == "less":
        low = np.full_like(low, -np.inf)
    return low, high


def wilcoxon_tests(X: FloatArray, pairs: Pairs, how: PairOptions) -> Outcome:
    """Test by Wilcoxon's signed ranks whether differences are symmetric about zero.

    Up to 50 differences with a sign the null distribution is exact, also with ties: that of random
    signs given the ranks (Pratt, 1959). Beyond, it is normal, with the variance of these ranks and
    a correction for continuity. The statistic is the sum of the ranks of positive differences.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing
    pairs : the systems i and j of each pair
    how : options
    """
    from scipy.special import ndtr

    i, j = pairs
    columns = np.ascontiguousarray(X.T)
    tolerance = float(rounding(X.ravel()))
    parts = parts_of_pairs(i.size, len(X))

    def work(number: int) -> FloatArray:
        of = parts[number]
        D = columns[i[of]] - columns[j[of]]
        order = np.argsort(np.abs(D), axis=1)
        kernel = at_once(signed_ranks, D.size * len(X) ** 2 * _RANK_SECONDS)
        return np.asarray(kernel(D, order, ZEROS[how.zeros], tolerance, _EXACT_UP_TO))

    ranks = how.of_blocks(work, len(parts), "pairs")
    total, mean, variance, signed, up_to, from_on = ranks.T
    many = np.isnan(up_to)
    off, root = (total - mean)[many], np.sqrt(variance[many])
    up_to[many], from_on[many] = ndtr((off + 0.5) / root), ndtr((0.5 - off) / root)
    least = np.where(many, 0.0, 0.5**signed)
    return _of_tails(total, up_to, from_on, least, how.alternative, ~many)


def sign_tests(X: FloatArray, pairs: Pairs, how: PairOptions) -> Outcome:
    """Test by a binomial distribution whether differences of both signs are equally likely.

    Differences of zero do not count. The statistic is the number of positive differences.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing
    pairs : the systems i and j of each pair
    how : options
    """
    from scipy.special import bdtr

    i, j = pairs
    tolerance = float(rounding(X.ravel()))
    plus, minus = np.empty((2, i.size), dtype=np.int64)
    for of in parts_of_pairs(i.size, len(X)):
        D = X[:, i[of]] - X[:, j[of]]
        D[np.abs(D) <= tolerance] = 0.0
        plus[of], minus[of] = (D > 0.0).sum(axis=0), (D < 0.0).sum(axis=0)
    n = plus + minus
    up_to, from_on = bdtr(plus, n, 0.5), bdtr(minus, n, 0.5)
    exact = np.ones(i.size, dtype=bool)
    least = np.power(0.5, n.astype(float))
    return _of_tails(plus.astype(float), up_to, from_on, least, how.alternative, exact)


def tukey_tests(X: FloatArray, pairs: Pairs, how: PairOptions) -> Outcome:
    """Test all pairs by Tukey's honestly significant differences in the two-way layout.

    The error is the mean square of the interaction of systems and topics. p-values and intervals
    are of all pairs at once, so that `pairs` must be all of them.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing
    pairs : the systems i and j of each pair
    how : options
    """
    n, k = X.shape
    df = (n - 1.0) * (k - 1.0)
    error = float(np.sqrt(mean_squares(X)[2] / n))
    d = mean_differences(X, pairs)
    limit = np.where(d == 0.0, 0.0, np.inf)
    q = np.divide(np.abs(d), error, out=limit, where=np.full(d.shape, error > 0.0))
    p, critical = simultaneous(q, np.full(d.shape, df), range_of_normals(k), how.alpha)
    reach = critical * error
    return Outcome.of(q, p, (d - reach, d + reach))


def mean_differences(X: FloatArray, pairs: Pairs) -> FloatArray:
    """Return the mean differences of pairs; exactly zero if smaller than the rounding error."""
    return settled(X.mean(axis=0), *pairs)


def _of_tails(
    statistic: FloatArray,
    up_to: FloatArray,
    from_on: FloatArray,
    least: FloatArray,
    alternative: Alternative,
    exact: BoolArray,
) -> Outcome:
    """Return the outcome of a test from its tail probabilities."""
    if alternative == "greater":
        return Outcome.of(statistic, from_on, smallest=least, is_exact=exact)
    if alternative == "less":
        return Outcome.of(statistic, up_to, smallest=least, is_exact=exact)
    p = np.minimum(2.0 * np.minimum(up_to, from_on), 1.0)
    return Outcome.of(statistic, p, smallest=np.minimum(2.0 * least, 1.0), is_exact=exact)


def parts_of_pairs(m: int, n: int) -> list[slice]:
    """Return slices of m pairs with n differences each, small enough for memory."""
    return list(slices(m, max(1, _CELLS // n)))


_BLOCK = 250
"""Replicates that share a stream of random numbers."""

_SHUFFLE_SECONDS = 3e-7
"""Seconds per score and replicate in Python."""


def permutation_tests(X: FloatArray, pairs: Pairs, how: PairOptions) -> Outcome:
    """Test mean differences by random signs of the differences of each topic (Fisher, 1935).

    Under the null hypothesis the two scores of a topic are exchangeable, so that each difference
    has either sign. All pairs share the random signs. If there are no more combinations of signs
    than `how.n`, all of them are used, and the p-value is their share; else it is
    (1 + b)/(1 + n), where b of n replicates reach the observed difference.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing
    pairs : the systems i and j of each pair
    how : options
    """
    n = len(X)
    Z = X - X.mean(axis=1, keepdims=True)
    is_exact = 2**n <= how.n
    if is_exact:
        bits = np.arange(2**n)[:, None] >> np.arange(n) & 1
        with limited_blas(0):
            means = np.ascontiguousarray((Z.T @ (1.0 - 2.0 * bits).T) / n)
    else:

        def draw(size: int, rng: np.random.Generator) -> FloatArray:
            signs = 1.0 - 2.0 * rng.integers(0, 2, size=(size, n), dtype=np.int8)
            return np.asarray(Z.T @ signs.T / n)

        means = _replicates(draw, X, how)
    d = mean_differences(X, pairs)
    slack = float(rounding(X.ravel()))
    p = _p_values(means, pairs, d, slack, how, is_exact=is_exact)
    if not is_exact:
        return Outcome.of(d, p, None, 1.0 / (how.n + 1))
    # All signs include the observed ones; their reverses reach as far; zeros have no sign.
    signed = np.array(
        [(np.abs(X[:, i] - X[:, j]) > slack).sum() for i, j in zip(*pairs, strict=True)]
    )
    tails = 2.0 if how.alternative == "two-sided" else 1.0
    return Outcome.of(d, p, None, np.minimum(tails * 0.5**signed, 1.0), is_exact=True)


def bootstrap_tests(X: FloatArray, pairs: Pairs, how: PairOptions) -> Outcome:
    """Test mean differences by topics drawn with replacement, shifted to the null hypothesis.

    The distribution of d* − d, where d* is the mean difference of the topics drawn, stands for
    that of d under the null hypothesis (the shift method of Noreen, 1989; Smucker et al., 2007).
    The interval has the differences that the same draws would not reject.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing
    pairs : the systems i and j of each pair
    how : options
    """
    n = len(X)
    Z = np.ascontiguousarray(X - X.mean(axis=1, keepdims=True))
    Z -= Z.mean(axis=0)

    def draw(size: int, rng: np.random.Generator) -> FloatArray:
        return np.asarray(means_of_sets(Z, rng.integers(0, n, size=(size, n))).T)

    means = _replicates(draw, X, how)
    d = mean_differences(X, pairs)
    p = _p_values(means, pairs, d, float(rounding(X.ravel())), how, is_exact=False)
    reach = np.empty(d.size)
    for of in parts_of_pairs(d.size, how.n):
        D = _turned(means[pairs[0][of]] - means[pairs[1][of]], how.alternative)
        reach[of] = np.quantile(D, 1.0 - how.alpha, axis=1)
    return Outcome.of(d, p, ends_of(d, reach, how.alternative), 1.0 / (how.n + 1))


def randomised_tukey_tests(X: FloatArray, pairs: Pairs, how: PairOptions) -> Outcome:
    """Test all pairs at once by shuffling the scores of each topic (Carterette, 2012).

    Under the null hypothesis all systems are alike. The largest difference between the means of
    any two systems after shuffling is the null distribution of every difference, so that p-values
    are of all pairs at once.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing
    pairs : the systems i and j of each pair
    how : options
    """
    n, k = X.shape
    Z = np.ascontiguousarray(X - X.mean(axis=1, keepdims=True))
    ranges = at_once(shuffled_ranges, how.n * Z.size * _SHUFFLE_SECONDS)

    def draw(size: int, rng: np.random.Generator) -> FloatArray:
        return np.asarray(ranges(Z, rng.random((size, n, k - 1)))[None])

    largest = np.sort(_replicates(draw, X[:, :1], how)[0])
    d = mean_differences(X, pairs)
    below = np.searchsorted(largest, np.abs(d) - float(rounding(X.ravel())))
    p = (1.0 + how.n - below.astype(float)) / (1.0 + how.n)
    reach = np.full(d.shape, np.quantile(largest, 1.0 - how.alpha))
    return Outcome.of(d, p, (d - reach, d + reach), 1.0 / (how.n + 1))


def _replicates(
    draw: Callable[[int, np.random.Generator], FloatArray], X: FloatArray, how: PairOptions
) -> FloatArray:
    """Return the replicates of all blocks, (k, n); the same for any number of workers."""
    check_memory(
        16.0 * X.shape[1] * how.n,
        f"{how.n:,} replicates of {X.shape[1]:,} systems need",
        "use fewer replicates (n=), or fewer systems",
    )
    starts = range(0, how.n, _BLOCK)

    def work(number: int) -> FloatArray:
        return draw(min(_BLOCK, how.n - starts[number]), stream(how.seed, number))

    return how.of_blocks(work, len(starts), "replicates", axis=1)


def _p_values(
    means: FloatArray,
    pairs: Pairs,
    d: FloatArray,
    slack: float,
    how: PairOptions,
    *,
    is_exact: bool,
) -> FloatArray:
    """Return p-values: the share of replicates at least as extreme as each difference."""
    limits = _turned(d, how.alternative) - slack
    reached: LongArray = np.empty(d.size, dtype=np.int64)
    for of in parts_of_pairs(d.size, means.shape[1]):
        D = _turned(means[pairs[0][of]] - means[pairs[1][of]], how.alternative)
        reached[of] = (limits[of, None] <= D).sum(axis=1)
    observed = 0.0 if is_exact else 1.0
    return (observed + reached) / (observed + means.shape[1])


def _turned(D: FloatArray, alternative: Alternative) -> FloatArray:
    """Return the differences transformed so that large values support the alternative."""
    if alternative == "two-sided":
        return np.abs(D)
    return D if alternative == "greater" else -D
