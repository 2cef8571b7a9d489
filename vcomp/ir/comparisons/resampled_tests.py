"""Tests of differences between systems by resampling: permutation, bootstrap, randomised Tukey."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.inference.pairwise import Pairs
from vcomp.ir.agreement import rounding
from vcomp.ir.comparisons.pair_tests import (
    Alternative,
    Outcome,
    PairOptions,
    ends_of,
    mean_differences,
    parts_of_pairs,
)
from vcomp.ir.kernels import means_of_sets, shuffled_ranges
from vcomp.numerics import check_memory, limited_blas, stream
from vcomp.numerics.kernels import at_once

_BLOCK = 250
"""Replicates that share a stream of random numbers."""

_SECONDS = 3e-7
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
    ranges = at_once(shuffled_ranges, how.n * Z.size * _SECONDS)

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
