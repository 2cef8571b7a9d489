"""Permutation, bootstrap-shift and randomised Tukey tests against enumeration and scipy."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from scipy import stats

from vcomp.exceptions import VcompError
from vcomp.ir.pair_tests import _BLOCK, PairOptions, _replicates
from vcomp.ir.system_comparison import outcome_of

ALTERNATIVES = ("two-sided", "greater", "less")
RNG = np.random.default_rng(4)
SCORES = (RNG.normal(size=(9, 4)) + np.linspace(0, 1, 4)).round(1)  # sums are tied
PAIRS = [(i, j) for i in range(4) for j in range(i + 1, 4)]


@pytest.mark.parametrize("alternative", ALTERNATIVES)
def test_all_signs_as_scipys_permutation_test(alternative):
    made = outcome_of(SCORES, "permutation", PairOptions(alternative=alternative))
    assert made.is_exact.all()
    for place, (i, j) in enumerate(PAIRS):
        d = SCORES[:, i] - SCORES[:, j]
        peer = stats.permutation_test(
            (d,), np.mean, permutation_type="samples", alternative=alternative, n_resamples=1000
        )
        assert made.p_values[place] == peer.pvalue
        assert made.statistic[place] == pytest.approx(peer.statistic, rel=1e-12)


def test_all_signs_are_used_where_there_are_no_more_than_replicates():
    for n, exact in ((511, False), (512, True), (513, True)):
        made = outcome_of(SCORES, "permutation", PairOptions(n=n))
        assert made.is_exact.all() == exact
        assert (made.smallest == (2 / 512 if exact else 1 / (n + 1))).all()
        one = outcome_of(SCORES, "permutation", PairOptions(n=n, alternative="greater"))
        assert (one.smallest == (1 / 512 if exact else 1 / (n + 1))).all()


def test_all_signs_enumerated():
    d = SCORES[:, 0] - SCORES[:, 3]
    tenths = np.round(10 * d).astype(int)
    sums = np.array([np.dot(s, tenths) for s in product((-1, 1), repeat=9)])
    made = outcome_of(SCORES, "permutation", PairOptions())
    assert made.p_values[2] == (np.abs(sums) >= abs(tenths.sum())).mean()
    assert made.smallest[2] == 2 / 2**9


@pytest.mark.parametrize("alternative", ALTERNATIVES)
def test_random_signs_are_close_to_all_of_them(alternative):
    every = outcome_of(SCORES, "permutation", PairOptions(alternative=alternative))
    some = outcome_of(SCORES, "permutation", PairOptions(alternative=alternative, n=500))
    assert not some.is_exact.any()
    error = np.sqrt(every.p_values * (1 - every.p_values) / 500)
    assert (np.abs(some.p_values - every.p_values) <= 4 * error + 2 / 501).all()
    counts = 501 * some.p_values
    np.testing.assert_allclose(counts, np.round(counts), rtol=1e-12)


@pytest.mark.parametrize("alternative", ALTERNATIVES)
def test_bootstrap_against_all_draws(alternative):
    """All 4⁴ draws of four topics have the probabilities that random draws approach."""
    X = SCORES[:4]
    made = outcome_of(X, "bootstrap", PairOptions(alternative=alternative, n=20_000, alpha=0.1))
    draws = np.array(list(product(range(4), repeat=4)))
    for place, (i, j) in enumerate(PAIRS):
        d = X[:, i] - X[:, j]
        mean = d.mean()
        shifted = d[draws].mean(axis=1) - mean
        reach = {"two-sided": np.abs(shifted), "greater": shifted, "less": -shifted}[alternative]
        limit = {"two-sided": abs(mean), "greater": mean, "less": -mean}[alternative]
        expected = (reach >= limit - 1e-12).mean()
        error = np.sqrt(expected * (1 - expected) / 20_000)
        assert abs(made.p_values[place] - expected) <= 4.5 * error + 1 / 20_001
        ends = (made.low[place], made.high[place])
        length = max(abs(end - mean) for end in ends if np.isfinite(end))
        # The quantile of the draws is that of the distribution, up to Monte Carlo error.
        below = (reach < length - 1e-9).mean()
        up_to = (reach <= length + 1e-9).mean()
        assert below <= 0.91
        assert up_to >= 0.89


def test_randomised_tukey_against_all_shuffles():
    X = SCORES[:3, :3]
    orders = list(permutations(range(3)))
    ranges = []
    for chosen in product(orders, repeat=3):
        means = np.mean([X[t][list(order)] for t, order in enumerate(chosen)], axis=0)
        ranges.append(np.ptp(means))
    made = outcome_of(X, "randomised_tukey", PairOptions(n=20_000))
    means = X.mean(axis=0)
    for place, (i, j) in enumerate([(0, 1), (0, 2), (1, 2)]):
        expected = (np.array(ranges) >= abs(means[i] - means[j]) - 1e-9).mean()
        error = np.sqrt(expected * (1 - expected) / 20_000)
        assert abs(made.p_values[place] - expected) <= 4.5 * error + 1 / 20_001
    # Intervals of all pairs at once reach to the 95 % quantile of the ranges.
    low, high = made.low, made.high
    np.testing.assert_allclose((low + high) / 2, [means[0] - means[1], means[0] - means[2],
                                                  means[1] - means[2]], atol=1e-12)  # fmt: skip
    reach = (high - low) / 2
    np.testing.assert_allclose(reach, reach[0], rtol=1e-12)
    assert (np.array(ranges) > reach[0] + 1e-9).mean() <= 0.06
    assert (np.array(ranges) >= reach[0] - 1e-9).mean() >= 0.04


def test_replicates_that_do_not_fit_into_memory_are_refused():
    n, scores = 10**13, np.tile(SCORES[:, :4], (8, 1))  # signs of few topics are enumerated
    for test, k in (("permutation", 4), ("randomised_tukey", 1)):  # one number of all pairs
        needed = f"10,000,000,000,000 replicates of {k} systems need {16 * k * n / 2**30:,.1f} GiB"
        with pytest.raises(VcompError, match=needed):
            outcome_of(scores, test, PairOptions(n=n))


@pytest.mark.parametrize("n", [1, _BLOCK - 1, _BLOCK, _BLOCK + 1, 3 * _BLOCK - 2])
def test_there_are_as_many_replicates_as_are_wanted(n):
    drawn = _replicates(lambda size, rng: rng.random((2, size)), SCORES[:, :2], PairOptions(n=n))
    assert drawn.shape == (2, n)
    assert np.unique(drawn).size == 2 * n


@pytest.mark.parametrize("test", ["permutation", "bootstrap", "randomised_tukey"])
def test_replicates_do_not_depend_on_workers_and_follow_the_seed(test):
    X = RNG.normal(size=(20, 5))
    one = outcome_of(X, test, PairOptions(n=600, seed=3))
    for same in (PairOptions(n=600, seed=3, workers=2),):
        np.testing.assert_array_equal(one.p_values, outcome_of(X, test, same).p_values)
    assert (one.p_values != outcome_of(X, test, PairOptions(n=600, seed=4)).p_values).any()


@pytest.mark.parametrize("test", ["permutation", "bootstrap", "randomised_tukey"])
def test_large_samples_agree_with_normal_theory(test):
    X = np.random.default_rng(9).normal(size=(200, 2)) + np.array([0.0, 0.15])
    made = outcome_of(X, test, PairOptions(n=4000))
    t = outcome_of(X, "t", PairOptions())
    assert abs(made.p_values[0] - t.p_values[0]) < 0.03


@pytest.mark.parametrize("test", ["permutation", "bootstrap", "randomised_tukey"])
def test_the_smallest_p_value_is_that_of_no_replicate(test):
    far = SCORES + np.array([0.0, 100.0, 200.0, 300.0])
    made = outcome_of(far, test, PairOptions(n=99))
    assert made.smallest.tolist() == [0.01] * 6
    if test != "permutation":  # of nine topics one in 256 signs reaches as far
        assert made.p_values.min() == 0.01
