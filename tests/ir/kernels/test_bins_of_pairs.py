"""p-values from a table against SciPy's, and pairs that have to be computed directly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import stdtr

from vcomp.ir.kernels.bins_of_pairs import _tail, tail_table
from vcomp.ir.rank.kernels.drawn_ranks import student_cdf
from vcomp.ir.significance import _counts, paired_tests, signs


@pytest.mark.parametrize("df", [1, 2, 3, 24, 49, 250, 2001])
def test_p_values_are_those_of_student(df):
    t = np.concatenate([[0.0], np.geomspace(1e-8, 30.0, 300)])
    square = t**2 / (df + t**2)
    found = [
        _tail(z, s, df, tail_table(df)) for z, s in zip(df / (df + t**2), square, strict=True)
    ]
    # SciPy's loses digits near 0, where the finite sums of Abramowitz and Stegun do not.
    wanted = np.where(t < 1.0, 2.0 * student_cdf(-t, df), 2.0 * stdtr(df, -t))
    np.testing.assert_allclose(found, wanted, rtol=2e-12, atol=0.0)


@pytest.mark.parametrize("alpha", [None, 0.2])
def test_bins_of_all_pairs_are_those_of_the_tests_pair_by_pair(alpha):
    rng = np.random.default_rng(4)
    X, Y = rng.normal(size=(2, 8, 30)) + np.linspace(0.0, 2.0, 30)
    X[:, 3] = X[:, 5]  # no difference
    X[:, 7] = X[:, 9] + 0.5  # a difference without variance
    X[:, 11] = X[:, 13] + 1e-7 * rng.normal(size=8)  # whose variance cancels
    Y[:, 2] = Y[:, 4]
    bounds = np.array([0.1, 0.4, 1.0, 2.0])
    found, tests = _counts(X, Y, bounds, alpha), paired_tests(X)
    size = np.abs(tests.differences)
    counted = np.ones(size.size, bool) if alpha is None else tests.significant(alpha)
    swapped = tests.differences * signs(Y) < 0
    for b in range(3):
        inside = counted & (size >= bounds[b]) & (size < bounds[b + 1])
        assert found[0, b] == inside.sum() > 0
        assert found[1, b] == (inside & swapped).sum()
        assert found[2, b] == pytest.approx(tests.p_values[inside].sum(), rel=1e-11)
