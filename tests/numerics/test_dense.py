"""Small dense systems: any units, and an error where there is no solution."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcomp.numerics.dense import Positive, solve, solve_positive


@settings(deadline=None)
@given(st.integers(0, 6), st.booleans(), st.integers(0, 2**32 - 1))
def test_solve_positive(n, as_vector, seed):
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(n + 2, n))
    A = half.T @ half
    b = rng.normal(size=n) if as_vector else rng.normal(size=(n, 3))
    x = solve_positive(A, b)
    assert x.shape == b.shape
    np.testing.assert_allclose(A @ x, b, rtol=1e-6, atol=1e-6)


def test_solve_positive_keeps_the_digits_of_columns_of_any_unit():
    # The 4 × 4 Hilbert matrix: its inverse is known and of whole numbers (Hilbert 1894).
    H = 1.0 / (np.arange(4)[:, None] + np.arange(4) + 1.0)
    inverse = [
        [16, -120, 240, -140],
        [-120, 1200, -2700, 1680],
        [240, -2700, 6480, -4200],
        [-140, 1680, -4200, 2800],
    ]
    units = np.array([1e-90, 1.0, 1e20, 1e80])
    found = solve_positive(H * np.outer(units, units), np.eye(4)) * np.outer(units, units)
    np.testing.assert_allclose(found, inverse, rtol=1e-10)


@pytest.mark.parametrize("solver", [solve, solve_positive])
def test_a_singular_matrix(solver):
    with pytest.raises(np.linalg.LinAlgError):
        solver(np.array([[1.0, 2.0], [2.0, 4.0]]), np.ones(2))


@settings(deadline=None)
@given(st.integers(0, 6), st.integers(0, 2**32 - 1))
def test_positive(n, seed):
    half = np.random.default_rng(seed).normal(size=(n + 2, n))
    A = half.T @ half
    factor = Positive(A)
    expected = np.linalg.slogdet(A)[1] if n else 0.0
    assert factor.log_determinant() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(factor.inverse() @ A, np.eye(n), atol=1e-6)
    np.testing.assert_allclose(factor.matrix(), A, atol=1e-13 * np.abs(A).max(initial=0.0))
