"""Small dense systems: any units, and an error where there is no solution."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcomp.numerics.dense import (
    Positive,
    congruent,
    covariance_of_solution,
    is_positive,
    solve,
    solve_positive,
)


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


@pytest.mark.parametrize("n", [0, 1, 2, 63, 64, 65, 128, 131])
def test_parts_of_a_factor_of_any_size_and_unit(n):
    """The inverse is reflected in blocks of 64 rows."""
    rng = np.random.default_rng(n)
    half = rng.normal(size=(n + 3, n))
    plain = half.T @ half + np.diag(rng.uniform(0.5, 2.0, n))
    units = 10.0 ** rng.uniform(-3.0, 3.0, n)
    factor = Positive(plain * np.outer(units, units))
    inverse = factor.inverse()
    np.testing.assert_array_equal(inverse, inverse.T)
    expected = np.linalg.inv(plain)
    close = {"rtol": 1e-9, "atol": 1e-11 * np.abs(expected).max(initial=0.0)}
    np.testing.assert_allclose(inverse * np.outer(units, units), expected, **close)
    determinant = np.linalg.slogdet(plain)[1] + 2.0 * np.log(units).sum()
    assert factor.log_determinant() == pytest.approx(determinant, rel=1e-10, abs=1e-10)
    for rows in (rng.normal(size=(4, n)), rng.normal(size=(1, n)), np.zeros((0, n))):
        white = factor.whitened(rows * units)
        assert white.shape == rows.shape
        np.testing.assert_allclose(white @ white.T, rows @ expected @ rows.T, rtol=1e-9, atol=1e-9)
    b = rng.normal(size=n)
    np.testing.assert_allclose(factor.solve(b * units) * units, expected @ b, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("diagonal", [[1.0, 0.0], [1.0, -1.0], [np.nan, 1.0]])
def test_a_diagonal_that_is_not_positive(diagonal):
    with pytest.raises(np.linalg.LinAlgError, match="diagonal"):
        Positive(np.diag(diagonal))


@settings(deadline=None)
@given(st.integers(0, 5), st.integers(0, 2), st.integers(0, 2**32 - 1))
def test_congruent_matrices(p, changed, seed):
    rng = np.random.default_rng(seed)
    T = np.eye(p)
    rows = rng.permutation(p)[:changed]
    T[rows] = rng.choice([-1.5, 0.0, 1.0, 2.0], (rows.size, p))
    for A in (rng.normal(size=(p, p)), rng.normal(size=(3, p, p))):
        kept = A.copy()
        np.testing.assert_allclose(congruent(T, A), T @ A @ T.T, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(A, kept)


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_covariance_of_a_solution(n, seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, n)) + 3.0 * np.eye(n)
    half = rng.normal(size=(n, n))
    covariance = covariance_of_solution(A, half @ half.T)
    np.testing.assert_array_equal(covariance, covariance.T)
    np.testing.assert_allclose(A @ covariance @ A.T, half @ half.T, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("unit", [1.0, 1e100, 1e-100])
def test_a_matrix_is_positive_by_its_least_eigenvalue_on_a_unit_diagonal(unit):
    units = np.array([1e-6, 1.0, 1e5]) * unit
    correlated = np.array([[1.0, 0.75, 0.0], [0.75, 1.0, 0.0], [0.0, 0.0, 1.0]])
    A = correlated * np.outer(units, units)  # eigenvalues 0.25, 1 and 1.75
    assert is_positive(A, 0.249)
    assert not is_positive(A, 0.251)
    assert is_positive(np.zeros((0, 0)), 0.5)
    assert not is_positive(np.diag([1.0, 0.0]), -1.0)
    assert not is_positive(np.diag([1.0, -1.0]), -1.0)
    endless = np.array([[1.0, np.inf], [np.inf, 1.0]])
    assert not is_positive(endless, 0.0)
    assert not is_positive(np.diag([1.0, np.nan]), 0.0)
    assert is_positive(np.eye(2), 0.999)
    assert not is_positive(np.eye(2), 1.0)
