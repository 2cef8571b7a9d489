"""Differences between every two columns, against the differences themselves."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from vcomp.ir.kernels.drawn_ranks import all_pairs


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 9), st.integers(2, 12))
def test_means_and_variances_of_differences(seed, n, k):
    X = np.random.default_rng(seed).normal(size=(n, k))
    means, variances, doubtful = all_pairs(np.cov(X, rowvar=False), X.mean(axis=0), 1e-6)
    D = np.stack([X[:, i] - X[:, j] for i in range(k) for j in range(i + 1, k)])
    np.testing.assert_allclose(means, D.mean(axis=1), rtol=0, atol=1e-14)
    np.testing.assert_allclose(variances, D.var(axis=1, ddof=1), rtol=0, atol=1e-13)
    assert not doubtful[D.var(axis=1, ddof=1) > 1e-4].any()


def test_variances_that_cancel_are_doubtful():
    S = np.array([[1.0, 1.0 - 1e-8, 0.5], [1.0 - 1e-8, 1.0, 0.5], [0.5, 0.5, 1.0]])
    _, variances, doubtful = all_pairs(S, np.zeros(3), 1e-6)
    assert doubtful.tolist() == [True, False, False]
    np.testing.assert_allclose(variances, [2e-8, 1.0, 1.0], rtol=1e-7)
