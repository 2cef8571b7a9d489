"""Paired tests of all pairs against scipy's, one by one, and bins of differences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from vcomp.exceptions import PlanError
from vcomp.ir.pair_forecast import compare_pairs, significant_pairs
from vcomp.ir.significance import (
    between,
    check_bin,
    critical_t,
    paired_tests,
    pairs_of,
    settled,
    signs,
)


def test_pairs_cannot_be_changed():
    """They are made once and used by all."""
    for of in pairs_of(23):
        with pytest.raises(ValueError, match="read-only"):
            of[0] = 1


@pytest.mark.parametrize(("n", "k"), [(2, 2), (5, 4), (30, 7)])
@pytest.mark.parametrize("origin", [0.0, -4.0, 1e6])
def test_all_pairs_have_the_test_of_scipy(n, k, origin):
    rng = np.random.default_rng(n)
    X = origin + rng.normal(size=(n, 1)) + rng.normal(size=(n, k)) * rng.uniform(0.5, 2.0, k)
    found = paired_tests(X)
    pairs = list(itertools.combinations(range(k), 2))
    assert [tuple(int(s) for s in pair) for pair in zip(*pairs_of(k), strict=True)] == pairs
    expected = [stats.ttest_rel(X[:, i], X[:, j]) for i, j in pairs]
    rtol = 1e-9 if origin < 1e3 else 1e-6
    np.testing.assert_allclose(found.t, [e.statistic for e in expected], rtol=rtol)
    np.testing.assert_allclose(found.p_values, [e.pvalue for e in expected], rtol=10 * rtol)
    deviations = [(X[:, i] - X[:, j]).std(ddof=1) / np.sqrt(n) for i, j in pairs]
    np.testing.assert_allclose(found.std_errors, deviations, rtol=rtol)
    np.testing.assert_allclose(
        found.differences, [(X[:, i] - X[:, j]).mean() for i, j in pairs], atol=1e-9
    )
    assert found.df == n - 1
    for alpha in (0.01, 0.3):
        p = np.array([e.pvalue for e in expected])
        np.testing.assert_array_equal(found.significant(alpha), p < alpha)
    some = paired_tests(X, (np.array([k - 1]), np.array([0])))
    assert some.t == pytest.approx([-found.t[k - 2]], rel=rtol)


def test_differences_that_do_not_vary():
    x = np.array([0.1, 0.7, 0.4])
    found = paired_tests(np.column_stack([x, x, x + 0.2, x - 0.3]))
    assert found.t.tolist() == [0.0, -np.inf, np.inf, -np.inf, np.inf, np.inf]
    assert found.std_errors.tolist() == [0.0] * 6
    assert found.p_values.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert found.significant(0.05).tolist() == [False, True, True, True, True, True]


@pytest.mark.parametrize(("alpha", "df"), [(0.05, 1), (0.05, 49), (0.5, 7)])
def test_critical_values(alpha, df):
    assert critical_t(alpha, df) == pytest.approx(stats.t.isf(alpha / 2, df), rel=1e-10)


def test_signs_of_means_and_of_scores():
    means = np.array([0.3, 0.1 + 0.2, 0.5, -0.7])
    expected = [0, -1, 1, -1, 1, 1]
    assert signs(means).tolist() == expected
    assert signs(np.array([means - 1.0, means + 1.0])).tolist() == expected
    i, j = pairs_of(4)
    assert settled(means, i, j)[0] == 0.0
    assert settled(means, i, j)[1] == pytest.approx(-0.2)


def test_a_bin_has_its_lower_bound_but_for_rounding():
    d = np.array([0.0, 0.3 - 0.2, -(0.3 - 0.2), 0.1, 0.2, 0.15, 0.0999, 0.1999, 0.3])
    assert (0.3 - 0.2) < 0.1
    assert between(d, 0.1, 0.2).tolist() == [False, True, True, True, False, True, False, True,
                                            False]  # fmt: skip
    assert between(d, 0.0, np.inf).tolist() == [False] + [True] * 8
    for unit in (1e-6, 1e-13, 1e13):  # rounding errors are relative
        found = between(d * unit, 0.1 * unit, 0.2 * unit)
        assert found.tolist() == between(d, 0.1, 0.2).tolist()
    nearly = 0.2 - 1e-15
    assert between(np.array([nearly]), 0.1, 0.2).tolist() == [False]
    assert between(np.array([nearly]), 0.2, 0.3).tolist() == [True]
    assert between(np.empty(0), 0.1, 0.2).size == 0


@pytest.mark.parametrize(
    ("lower", "upper"),
    [(-0.1, 1), (0.2, 0.2), (0.3, 0.2), (True, 2), (0, True), ("0", 1), (0, None)],
)
def test_bins_that_are_none(lower, upper):
    with pytest.raises(PlanError, match="lower"):
        check_bin(lower, upper)


def test_bins():
    check_bin(0, 1e-9)
    check_bin(0.2, np.inf)
    check_bin(np.float64(0.0), np.int64(3))


def test_a_p_value_of_alpha_is_significant():
    """Of five differences of one sign the exact p-value is 2/32, of one-sided tests 1/32.

    A test of level α rejects where p ≤ α (Lehmann & Romano 2005, section 3.3): P(p ≤ α) ≤ α.
    """
    X = np.array([[1.0, 0.0], [2.0, 0.5], [3.0, 0.7], [4.0, 0.1], [5.0, 0.2]])
    for sides in (1, 2):
        assert compare_pairs(X, "wilcoxon", sides).p_values.tolist() == [sides / 32]
        for alpha, expected in ((sides / 32, True), (sides / 33, False)):
            assert significant_pairs(X, alpha, "wilcoxon", sides)[1].tolist() == [expected]


def test_of_systems_with_the_same_mean_the_first_comes_first():
    X = np.array([[3.0, 0.0], [0.0, 1.0], [0.0, 1.5], [0.0, 0.5]])
    expected = stats.wilcoxon(*X.T, alternative="greater").pvalue
    assert expected != stats.wilcoxon(*X.T[::-1], alternative="greater").pvalue
    assert compare_pairs(X, "wilcoxon", 1).p_values == pytest.approx(expected, rel=1e-12)
