"""Differences of systems over topics, one pair after another and in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from vcomp.exceptions import DataError
from vcomp.ir.rank.paired import (
    PairedDifferences,
    difference_variances,
    effective_df,
    mean_error_ratio,
)


def exact_variances(X, i, j):
    found = []
    for a, b in zip(i, j, strict=True):
        d = [Fraction(x) - Fraction(y) for x, y in zip(X[:, a], X[:, b], strict=True)]
        mean = sum(d) / len(d)
        found.append(float(sum((x - mean) ** 2 for x in d) / (len(d) - 1)))
    return np.array(found)


@pytest.mark.parametrize("n", [2, 3, 40])
@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e-5, 1e-8])
@pytest.mark.parametrize("unit", [1.0, 1e6])
def test_variances_of_differences_keep_their_digits(n, spread, unit):
    """Of systems that differ much, by little, and by a little constant."""
    rng = np.random.default_rng(n)
    first = rng.uniform(0.2, 0.9, n)
    near = np.column_stack([first, first + spread * rng.normal(size=n), first - spread])
    X = unit * np.column_stack([near, rng.uniform(size=(n, 2))])
    i, j = np.triu_indices(5, 1)
    found = difference_variances(X, (i, j))
    expected = exact_variances(X, i, j)
    least = (64 * np.finfo(float).eps * np.abs(X).max()) ** 2
    certain = expected > 2.0 * least
    assert found[(i == 0) & (j == 2)] == [0.0]
    # A variance of rounding error has none; others lose the digits of their scores.
    np.testing.assert_array_equal(found[~certain], 0.0)
    rtol = np.maximum(1e-9, 8 * np.finfo(float).eps * unit / np.sqrt(expected[certain]))
    assert (np.abs(found[certain] / expected[certain] - 1.0) < rtol).all()


@pytest.mark.parametrize("n", [3.0, 7.5, 50.0])
@pytest.mark.parametrize("k", [2, 5, 9])
def test_effective_degrees_of_freedom(n, k):
    """Box's, of eigenvalues about the mean of all systems, and those of Huynh and Feldt."""
    A = np.random.default_rng(k).normal(size=(k, k + 2)) + np.arange(k)[:, None]
    S, H = A @ A.T, np.eye(k) - 1 / k
    values = np.linalg.eigvalsh(H @ S @ H)
    box = values.sum() ** 2 / (values**2).sum()
    epsilon = box / (k - 1)
    left = n - 1 - (k - 1) * epsilon
    corrected = (n * (k - 1) * epsilon - 2) / ((k - 1) * left) if left > 0 else epsilon
    found = effective_df(S, n)
    assert found[0] == pytest.approx(box, rel=1e-12)
    assert found[1] == pytest.approx(min(max(corrected * (k - 1), box, 1.0), k - 1.0), rel=1e-12)
    assert effective_df(np.full((k, k), 3.0), n) == (k - 1.0, k - 1.0)


def test_scales_of_errors_that_are_none_do_not_vary():
    pairs = PairedDifferences.from_scores(
        np.add.outer(np.arange(6.0), [0.0, 1.0, 2.0, 5.0]), "abcd"
    )
    g = np.random.default_rng(1).normal(size=(4, 6))
    np.testing.assert_array_equal(pairs._drawn_scales(g), mean_error_ratio(5.0))


@pytest.mark.parametrize("df", [2.0, 3.0, 7.5, 100.0])
def test_errors_are_as_large_as_students_distribution_says(df):
    mean = 2.0 * stats.t(df).expect(lambda t: t, lb=0.0)
    assert mean_error_ratio(df) == pytest.approx(mean / np.sqrt(2.0 / np.pi), rel=1e-6)
    assert mean_error_ratio(1.0) == mean_error_ratio(2.0)


def test_degrees_of_freedom_of_error_are_those_of_topics_less_one():
    X = np.random.default_rng(4).normal(size=(9, 4))
    pairs = PairedDifferences.from_scores(X, "abcd")
    assert pairs.error_df == pytest.approx(8.0 * pairs.df, rel=1e-14)
    X[0, 0] = np.nan  # three of six pairs have eight topics in common
    pairs = PairedDifferences.from_scores(X, "abcd")
    assert pairs.error_df == pytest.approx(7.5 * pairs.df, rel=1e-14)


def test_degrees_of_freedom_of_incomplete_scores_pair_by_pair():
    """The covariance of two systems is over the topics that both have."""
    X = np.random.default_rng(3).normal(size=(15, 5)) + 0.3 * np.arange(5.0)
    X[:9, 0], X[2:5, 2] = np.nan, np.nan
    pairs = PairedDifferences.from_scores(X, "abcde")
    Z = pairs.residuals  # zero where a score is missing
    there = Z != 0.0
    assert there.sum() == 75 - 12
    S, n = np.empty((5, 5)), np.empty((5, 5))
    for i in range(5):
        for j in range(5):
            n[i, j] = (there[:, i] & there[:, j]).sum()
            S[i, j] = Z[:, i] @ Z[:, j] / (n[i, j] - 1)
    expected = effective_df(S, n[np.triu_indices(5, 1)].mean())
    assert (pairs.sample_df, pairs.df) == pytest.approx(expected, rel=1e-12)


def test_an_infinite_score_is_told_by_its_system():
    X = np.random.default_rng(3).normal(size=(6, 4))
    X[4, 2] = np.inf
    with pytest.raises(DataError, match="system 'c' has an infinite score"):
        PairedDifferences.from_scores(X, "abcd")


def test_systems_with_missing_scores_are_compared_without_the_means_of_topics():
    """By loops: score less the mean of those there are on its topic, on average of each system."""
    rng = np.random.default_rng(9)
    X = rng.normal(size=(9, 4)) + 5.0 * rng.normal(size=(9, 1)) + np.arange(4.0)
    X[2, 1] = X[5, 3] = X[7, 3] = X[7, 0] = np.nan
    pairs = PairedDifferences.from_scores(X, "abcd")
    for at, name in enumerate(pairs.systems):
        s = "abcd".index(name)
        there = [t for t in range(9) if not np.isnan(X[t, s])]
        off = {t: X[t, s] - np.mean([x for x in X[t] if not np.isnan(x)]) for t in there}
        assert pairs.centres[at] == pytest.approx(np.mean(list(off.values())), rel=1e-12)
        for t in range(9):
            expected = off[t] - pairs.centres[at] if t in off else 0.0
            assert pairs.residuals[t, at] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("unit", [2.0**-60, 2.0**60])
@pytest.mark.parametrize("holes", [False, True])
def test_differences_follow_the_unit(unit, holes):
    X = np.random.default_rng(9).normal(size=(9, 4)) + np.arange(4.0)
    X[:, 2] = X[:, 1]  # equal systems
    if holes:
        X[2, 0] = X[5, 3] = np.nan
    plain, found = (PairedDifferences.from_scores(c * X, "abcd") for c in (1.0, unit))
    assert found.systems == plain.systems
    np.testing.assert_array_equal(found.differences, unit * plain.differences)
    np.testing.assert_array_equal(found.variances, unit**2 * plain.variances)
    assert (found.differences == 0.0).sum() == 1
