"""Sums over the covariances of items, by loops over pairs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from vcomp.exceptions import DataError
from vcomp.studies.alpha_coefficients import (
    best_split,
    coefficients_of,
    feldt_limits,
    from_complete,
    from_pairs,
    pair_counts,
)
from vcomp.studies.item_scores import read_scores


def scores(seed, n=14, k=5, missing=0.0):
    rng = np.random.default_rng(seed)
    X = 3.0 + rng.normal(size=(n, 1)) + rng.normal(size=(n, k)) * rng.uniform(0.3, 3.0, k)
    X[rng.random((n, k)) < missing] = np.nan
    return X


def covariances(X):
    """Return the covariance of each two items, over the objects that have both."""
    k = X.shape[1]
    S = np.empty((k, k))
    for i, j in itertools.product(range(k), repeat=2):
        both = ~np.isnan(X[:, i]) & ~np.isnan(X[:, j])
        a, b = X[both, i], X[both, j]
        S[i, j] = ((a - a.mean()) * (b - b.mean())).sum() / (both.sum() - 1)
    return S


def check(found, S, rtol=1e-11):
    k = len(S)
    np.testing.assert_allclose(found.variances, np.diagonal(S), rtol=rtol)
    np.testing.assert_allclose(found.with_total, S.sum(axis=0), rtol=rtol, atol=1e-12)
    assert found.total == pytest.approx(S.sum(), rel=rtol)
    R = S / np.sqrt(np.outer(np.diagonal(S), np.diagonal(S)))
    assert found.correlations == pytest.approx(R.sum(), rel=rtol)
    off = R[~np.eye(k, dtype=bool)]
    assert found.mean_correlation == pytest.approx(off.mean(), rel=1e-9)
    if found.squares is not None:
        np.testing.assert_allclose(found.squares, (S**2).sum(axis=0), rtol=rtol)
    if found.matrix is not None:
        np.testing.assert_allclose(found.matrix, S, rtol=rtol, atol=1e-12)


@pytest.mark.parametrize(("n", "k"), [(14, 5), (3, 5), (4, 16), (4, 17), (30, 30), (29, 30)])
def test_complete_scores(n, k):
    X = scores(n + k, n, k)
    found = from_complete(X)
    check(found, covariances(X))
    assert (found.matrix is None) == (k > max(n, 16))
    # A quarter of the memory has to be left, of the smaller of the two matrices.
    needed = 4 * 8 * min(n, k) ** 2
    full = from_complete(X, free_bytes=lambda: needed)
    assert full.squares is None
    assert full.matrix is None
    check(full, covariances(X))
    assert from_complete(X, free_bytes=lambda: needed + 1).squares is not None


@pytest.mark.parametrize("missing", [0.0, 0.2, 0.35])
def test_pairs_of_incomplete_scores(missing):
    X = scores(3, 16, 5, missing)
    counts = pair_counts(X)
    there = ~np.isnan(X)
    expected = [[int((there[:, i] & there[:, j]).sum()) for j in range(5)] for i in range(5)]
    np.testing.assert_array_equal(counts, expected)
    assert counts.min() >= 2
    check(from_pairs(read_scores(X), counts), covariances(X))


def test_two_objects_in_common_are_enough():
    X = np.array([[1.0, 2.0], [3.0, 5.0], [2.0, np.nan], [np.nan, 4.0]])
    found = from_pairs(read_scores(X), pair_counts(X))
    assert found.matrix[0, 1] == pytest.approx(3.0)
    X[1, 1] = np.nan
    with pytest.raises(DataError, match="'0' and '1' have 1 objects in common"):
        from_pairs(read_scores(X), pair_counts(X))


def test_pairs_that_do_not_fit_into_memory():
    X = scores(1, 10, 6)
    # Four matrices of 8 bytes a number, in 80 % of the memory.
    assert pair_counts(X, free_bytes=lambda: 1_440.1).shape == (6, 6)
    with pytest.raises(DataError, match="the covariances of 6 items need"):
        pair_counts(X, free_bytes=lambda: 1_439.9)


@pytest.mark.parametrize("incomplete", [False, True])
def test_constant_items_have_no_correlations(incomplete):
    X = scores(5)
    X[:, 2] = 0.1 + 0.2
    if incomplete:
        X[3, 0] = np.nan
        found = from_pairs(read_scores(X), pair_counts(X))
    else:
        found = from_complete(X)
    assert found.variances[2] == 0.0
    assert np.isnan(found.correlations)
    kept = np.delete(X, 2, axis=1)
    assert found.total == pytest.approx(covariances(kept).sum(), rel=1e-12)
    coefficients, reasons = coefficients_of(found, 14)
    assert np.isnan(coefficients["standardised_alpha"])
    assert reasons["standardised_alpha"].startswith("1 of 5 items have no variance")


@pytest.mark.parametrize("k", [2, 3, 5, 8])
def test_coefficients_by_their_formulas(k):
    X = scores(k, 20, k)
    S = covariances(X)
    V, off = S.sum(), ~np.eye(k, dtype=bool)
    found, reasons = coefficients_of(from_complete(X), 20)
    assert reasons == {}
    one = 1.0 - np.trace(S) / V
    squares = np.where(off, S**2, 0.0)
    assert found["lambda1"] == pytest.approx(one, rel=1e-12)
    assert found["alpha"] == pytest.approx(k / (k - 1) * one, rel=1e-12)
    two = one + np.sqrt(k / (k - 1) * squares.sum()) / V
    assert found["lambda2"] == pytest.approx(two, rel=1e-12)
    five = one + 2 * np.sqrt(squares.sum(axis=0).max()) / V
    assert found["lambda5"] == pytest.approx(five, rel=1e-12)
    r = found["mean_correlation"]
    assert found["standardised_alpha"] == pytest.approx(k * r / (1 + (k - 1) * r), rel=1e-12)
    halves = []
    for sign in itertools.product((0, 1), repeat=k):
        first = np.array(sign, dtype=bool)
        halves.append(4.0 * S[np.ix_(first, ~first)].sum() / V)
    assert found["lambda4"] == pytest.approx(max(halves), rel=1e-12)
    assert best_split(S) == pytest.approx(max(halves), rel=1e-12)
    unpredicted = 0.0
    for i in range(k):
        D = X - X.mean(axis=0)
        others = np.delete(D, i, axis=1)
        left = D[:, i] - others @ np.linalg.lstsq(others, D[:, i], rcond=None)[0]
        unpredicted += left @ left / 19.0
    assert found["lambda6"] == pytest.approx(1.0 - unpredicted / V, rel=1e-10)


@pytest.mark.parametrize(("k", "is_there"), [(16, True), (17, False)])
def test_all_splits_of_up_to_sixteen_items(k, is_there):
    found, reasons = coefficients_of(from_complete(scores(k, 40, k)), 40)
    assert np.isnan(found["lambda4"]) != is_there
    assert ("lambda4" in reasons) != is_there


def test_limits_of_alpha_cover_it():
    """(1 − α)/(1 − α̂) is F with n − 1 and (n − 1)(k − 1) degrees of freedom."""
    from scipy.stats import f

    low, high = feldt_limits(0.7, 12, 4, 0.1)
    assert f.cdf((1 - low) / 0.3, 11, 33) == pytest.approx(0.95, rel=1e-12)
    assert f.cdf((1 - high) / 0.3, 11, 33) == pytest.approx(0.05, rel=1e-12)
