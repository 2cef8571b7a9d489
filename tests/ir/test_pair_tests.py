"""t, Wilcoxon, sign and Tukey tests of pairs against scipy, statsmodels and enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multicomp import pairwise_tukeyhsd

from vcomp.ir.pair_tests import PairOptions
from vcomp.ir.system_comparison import outcome_of

ALTERNATIVES = ("two-sided", "greater", "less")
RNG = np.random.default_rng(2)
SMOOTH = RNG.normal(size=(23, 6)) + np.linspace(0.0, 1.0, 6)
TIED = RNG.integers(0, 5, size=(14, 6)) / 4  # exact differences, many of them zero or tied
PAIRS = [(i, j) for i in range(6) for j in range(i + 1, 6)]


def options(**given):
    return PairOptions(**given)


@pytest.mark.parametrize("alternative", ALTERNATIVES)
def test_t_as_ttest_rel(alternative):
    made = outcome_of(SMOOTH, "t", options(alternative=alternative, alpha=0.1))
    for place, (i, j) in enumerate(PAIRS):
        peer = stats.ttest_rel(SMOOTH[:, i], SMOOTH[:, j], alternative=alternative)
        interval = peer.confidence_interval(0.9)
        np.testing.assert_allclose(made.statistic[place], peer.statistic, rtol=1e-12)
        np.testing.assert_allclose(made.p_values[place], peer.pvalue, rtol=1e-11)
        np.testing.assert_allclose(
            [made.low[place], made.high[place]], [interval.low, interval.high], rtol=1e-11
        )


@pytest.mark.parametrize("alternative", ALTERNATIVES)
@pytest.mark.parametrize("n", [2, 5, 23])
def test_wilcoxon_as_scipy_exact(alternative, n):
    X = SMOOTH[:n]
    made = outcome_of(X, "wilcoxon", options(alternative=alternative))
    assert made.is_exact.all()
    for place, (i, j) in enumerate(PAIRS):
        peer = stats.wilcoxon(X[:, i], X[:, j], alternative=alternative, method="exact")
        np.testing.assert_allclose(made.p_values[place], peer.pvalue, rtol=1e-13)
        if alternative != "two-sided":
            assert made.statistic[place] == peer.statistic


@pytest.mark.parametrize("alternative", ALTERNATIVES)
@pytest.mark.parametrize("zeros", ["pratt", "wilcox", "zsplit"])
def test_wilcoxon_as_scipys_approximation_with_ties_and_zeros(alternative, zeros):
    X = RNG.integers(0, 9, size=(90, 4)) / 8
    # scipy's approximation of zsplit has the variance of zeros that take signs; those of the
    # differences leave half of their ranks in every sum, so that p is that of Pratt's ranks.
    known = "pratt" if zeros == "zsplit" else zeros
    made = outcome_of(X, "wilcoxon", options(alternative=alternative, zeros=zeros))
    assert not made.is_exact.any()
    for place, (i, j) in enumerate((a, b) for a in range(4) for b in range(a + 1, 4)):
        peer = stats.wilcoxon(
            X[:, i], X[:, j], known, alternative=alternative, correction=True, method="asymptotic"
        )
        shift = np.sign(made.statistic[place] - _mean(X[:, i] - X[:, j], zeros))
        if alternative == "two-sided" or (shift > 0) == (alternative == "greater"):
            # scipy corrects towards the mean; so does vcomp, whose tails overlap by one step.
            np.testing.assert_allclose(made.p_values[place], peer.pvalue, rtol=1e-9)


def _mean(d, zeros):
    ranks = stats.rankdata(np.abs(d if zeros != "wilcox" else d[d != 0]))
    return ranks[d != 0].sum() / 2 if zeros == "pratt" else ranks.sum() / 2


STATISTICS = {
    "wilcoxon, pratt": lambda d: stats.rankdata(np.abs(d)) @ (d > 0),
    "wilcoxon, wilcox": lambda d: (
        stats.rankdata(np.abs(d))[d != 0] @ (d[d != 0] > 0) - (d == 0).sum() * (d > 0).sum()
    ),
    "wilcoxon, zsplit": lambda d: stats.rankdata(np.abs(d)) @ (0.5 + 0.5 * np.sign(d)),
    "sign": lambda d: float((d > 0).sum()),
    "permutation": lambda d: d.mean(),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_exact_tests_against_all_signs_of_the_differences(name):
    """Over tables with ties and zeros; d = [0, 0, 0, 1, …, 5] is one whose zeros have no signs."""
    statistic, (test, _, zeros) = STATISTICS[name], name.partition(", ")
    D = np.random.default_rng(11).integers(-3, 5, size=(8, 10)).astype(float)
    D[:, 0] = [0, 0, 0, 1, 2, 3, 4, 5]
    signs = np.array(list(product((-1.0, 1.0), repeat=8)))
    X = np.column_stack([D, np.zeros(8)])
    pairs = (np.arange(10), np.full(10, 10))
    sums = [np.array([statistic(s * d) for s in signs]) for d in D.T]
    for alternative in ALTERNATIVES:
        made = outcome_of(X, test, options(alternative=alternative, zeros=zeros or "pratt"), pairs)
        assert made.is_exact.all()
        for d, of_all, p, least in zip(D.T, sums, made.p_values, made.smallest, strict=True):
            observed = statistic(d)
            above, below = (of_all >= observed - 1e-12).mean(), (of_all <= observed + 1e-12).mean()
            expected = {
                "greater": above,
                "less": below,
                "two-sided": min(1, 2 * min(above, below)),
            }
            assert p == pytest.approx(expected[alternative], rel=1e-13), alternative
            all_up = (of_all >= of_all.max() - 1e-12).mean()
            smallest = min(1, all_up * (2 if alternative == "two-sided" else 1))
            assert least == pytest.approx(smallest), alternative


def test_differences_within_rounding_are_tied_or_zero():
    X = np.array([[0.3, 0.2], [0.4, 0.3], [0.6, 0.7], [0.1 + 0.2, 0.3], [0.9, 0.8]])
    exact = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    for test in ("wilcoxon", "sign"):
        made, whole = (outcome_of(scores, test, options()) for scores in (X, exact))
        assert made.statistic == whole.statistic
        assert made.p_values == whole.p_values


@pytest.mark.parametrize("alternative", ALTERNATIVES)
def test_sign_as_binomtest(alternative):
    made = outcome_of(TIED, "sign", options(alternative=alternative))
    for place, (i, j) in enumerate(PAIRS):
        d = TIED[:, i] - TIED[:, j]
        k, n = int((d > 0).sum()), int((d != 0).sum())
        assert made.statistic[place] == k
        peer = stats.binomtest(k, n, alternative=alternative).pvalue
        np.testing.assert_allclose(made.p_values[place], peer, rtol=1e-12)


@pytest.mark.slow
def test_tukey_as_statsmodels_without_topic_effects():
    """Doubly centred scores: the one-way error has the same sum of squares, other df."""
    n, k = SMOOTH.shape
    made = outcome_of(SMOOTH, "tukey", options(alpha=0.05))
    Z = SMOOTH - SMOOTH.mean(axis=1, keepdims=True)
    residual = Z - Z.mean(axis=0)
    error = np.sqrt((residual**2).sum() / ((n - 1) * (k - 1)) / n)
    i, j = np.triu_indices(k, 1)
    d = SMOOTH.mean(axis=0)[i] - SMOOTH.mean(axis=0)[j]
    df = (n - 1) * (k - 1)
    np.testing.assert_allclose(made.statistic, np.abs(d) / error, rtol=1e-12)
    p = stats.studentized_range.sf(made.statistic, k, df)
    np.testing.assert_allclose(made.p_values, p, rtol=1e-8, atol=1e-13)
    reach = stats.studentized_range.ppf(0.95, k, df) * error
    np.testing.assert_allclose(made.high - made.low, 2 * reach, rtol=1e-7)
    peer = pairwise_tukeyhsd(Z.ravel(order="F"), np.repeat(np.arange(k), n))
    np.testing.assert_allclose(peer.meandiffs, -d, atol=1e-12)
    # The one-way layout has (n − 1) k degrees of freedom for the same sum of squares.
    one_way = np.sqrt((residual**2).sum() / ((n - 1) * k) / n)
    np.testing.assert_allclose(made.statistic * error / one_way, np.abs(d) / one_way, rtol=1e-12)
    np.testing.assert_allclose(peer.std_pairs, one_way, rtol=1e-9)


def test_tukey_of_two_systems_is_the_t_test():
    X = SMOOTH[:, :2]
    tukey, t = outcome_of(X, "tukey", options()), outcome_of(X, "t", options())
    np.testing.assert_allclose(tukey.p_values, t.p_values, rtol=1e-11)
    np.testing.assert_allclose([tukey.low, tukey.high], [t.low, t.high], rtol=1e-9)


@pytest.mark.parametrize("test", ["t", "wilcoxon", "sign", "tukey"])
def test_two_sided_tests_do_not_know_the_order_of_systems(test):
    made = outcome_of(TIED, test, options())
    i, j = np.triu_indices(6, 1)
    turned = outcome_of(TIED, test, options(), (j, i))
    if test == "tukey":
        np.testing.assert_array_equal(made.statistic, turned.statistic)
    np.testing.assert_allclose(made.p_values, turned.p_values, rtol=1e-13)
    np.testing.assert_allclose(made.low, -turned.high, rtol=1e-13)


@pytest.mark.parametrize("test", ["t", "wilcoxon", "sign", "tukey"])
def test_shifted_and_scaled_scores_have_the_same_p_values(test):
    made, other = (outcome_of(X, test, options()) for X in (TIED, 1e6 + 64.0 * TIED))
    np.testing.assert_allclose(made.p_values, other.p_values, rtol=1e-8)


def test_tukey_without_an_error_tells_equal_systems_from_others():
    X = np.array([[1.0, 1.0, 4.0], [3.0, 3.0, 6.0], [8.0, 8.0, 11.0]])
    found = outcome_of(X, "tukey", options())
    np.testing.assert_array_equal(found.p_values, [1.0, 0.0, 0.0])
    np.testing.assert_array_equal(found.statistic, [0.0, np.inf, np.inf])


@pytest.mark.parametrize("test", ["wilcoxon", "sign"])
@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@pytest.mark.parametrize("n", [2, 3, 9])
def test_the_smallest_p_value_is_that_of_differences_of_one_sign(test, alternative, n):
    better = np.arange(1.0, n + 1.0)
    X = np.column_stack([better, np.zeros(n)] if alternative != "less" else [np.zeros(n), better])
    found = outcome_of(X, test, PairOptions(alternative=alternative))
    assert found.smallest.tolist() == found.p_values.tolist()
    assert found.smallest.tolist() == [0.5**n * (2 if alternative == "two-sided" else 1)]


@pytest.mark.parametrize("test", ["wilcoxon", "sign"])
def test_no_p_value_of_systems_that_never_differ_can_be_above_one(test):
    found = outcome_of(np.ones((4, 2)), test, PairOptions())
    assert found.smallest.tolist() == found.p_values.tolist() == [1.0]


def test_an_approximation_may_have_any_p_value():
    X = np.random.default_rng(1).normal(size=(80, 2))
    found = outcome_of(X, "wilcoxon", PairOptions())
    assert (found.smallest.tolist(), found.is_exact.tolist()) == ([0.0], [False])
