"""Conjugate gradients and their quadrature against dense algebra."""

import numpy as np
import pytest

from vcomp.numerics.sparse.sparse_table import conjugate_gradients, log_quadrature


def system(m=40, width=5, seed=0):
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(m, m))
    scale = np.exp(rng.normal(size=m))
    S = scale[:, None] * (half @ half.T / m + np.eye(m)) * scale
    return S, rng.normal(size=(m, width))


def solve(S, b, start=None, **options):
    return conjugate_gradients(lambda x: S @ x, np.diagonal(S).copy(), b, start, **options)


def test_solution_and_residual():
    S, b = system()
    solved = solve(S, b, tol=1e-13)
    assert solved.converged
    exact = np.linalg.solve(S, b)
    np.testing.assert_allclose(solved.x, exact, rtol=1e-9, atol=1e-11 * np.abs(exact).max())
    np.testing.assert_allclose(solved.residual, b - S @ solved.x, atol=1e-11)


def test_tolerance_is_of_the_preconditioned_residual():
    S, b = system()
    D = np.diagonal(S)[:, None]
    solved = solve(S, b, tol=1e-4)
    r = b - S @ solved.x
    assert (np.sqrt((r * r / D).sum(axis=0)) <= 1.001e-4 * np.sqrt((b * b / D).sum(axis=0))).all()
    assert solved.iterations < solve(S, b, tol=1e-10).iterations
    # One product less is not enough.
    r = solve(S, b, tol=1e-4, max_iter=solved.iterations - 1).residual
    assert (np.sqrt((r * r / D).sum(axis=0)) > 1e-4 * np.sqrt((b * b / D).sum(axis=0))).any()


def test_every_column_may_have_a_diagonal_of_its_own():
    """As if each were solved alone with its own."""
    S, b = system(m=6, width=6)
    D = np.random.default_rng(2).uniform(0.5, 2.0, size=b.shape)
    together = conjugate_gradients(lambda x: S @ x, D, b, tol=1e-9)
    for c in range(b.shape[1]):
        alone = conjugate_gradients(lambda x: S @ x, D[:, c], b[:, c : c + 1], tol=1e-9)
        np.testing.assert_allclose(together.x[:, c], alone.x[:, 0], rtol=1e-9, atol=1e-12)


def test_start_at_the_solution_needs_no_product():
    S, b = system()
    again = solve(S, b, solve(S, b, tol=1e-12).x, tol=1e-8)
    assert again.iterations == 0
    assert again.converged


def test_columns_of_zeros_are_solved():
    S, b = system()
    b[:, 1] = 0.0
    solved, plain = solve(S, b, tol=1e-10), solve(S, np.delete(b, 1, axis=1), tol=1e-10)
    assert solved.converged
    assert solved.iterations == plain.iterations
    np.testing.assert_array_equal(solved.x[:, 1], 0.0)
    nothing = solve(S, np.zeros_like(b), tol=1e-10)
    assert nothing.converged
    assert nothing.iterations == 0


def test_columns_are_independent():
    S, b = system()
    b[:, 2] = 0.0
    together = solve(S, b, tol=1e-9)
    np.testing.assert_array_equal(together.x[:, 2], 0.0)
    for c in range(b.shape[1]):
        alone = solve(S, b[:, c : c + 1], tol=1e-9)
        np.testing.assert_allclose(together.x[:, c], alone.x[:, 0], rtol=1e-9, atol=1e-12)


def test_limit_of_products():
    S, b = system()
    solved = solve(S, b, tol=1e-12, max_iter=3)
    assert solved.iterations == 3
    assert not solved.converged


def test_indefinite_matrix_is_refused():
    S, b = system()
    S = S - 2.0 * np.linalg.eigvalsh(S)[5] * np.eye(len(S))
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        conjugate_gradients(lambda x: S @ x, np.ones(len(S)), b)
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        conjugate_gradients(lambda x: 0.0 * x, np.ones(len(S)), b)


def test_log_quadrature():
    S, _ = system(m=25)
    root = np.sqrt(np.diagonal(S))
    scaled = S / np.outer(root, root)
    values, vectors = np.linalg.eigh(scaled)
    log = (vectors * np.log(values)) @ vectors.T
    # All unit vectors: together they give the determinant.
    logs, firsts = log_quadrature(solve(S, np.diag(root), tol=1e-13))
    np.testing.assert_allclose(logs, np.diagonal(log), atol=1e-12)
    np.testing.assert_allclose(firsts, 1.0, rtol=1e-13)
    np.testing.assert_allclose(logs.sum(), np.linalg.slogdet(scaled)[1], atol=1e-11)
    w = np.random.default_rng(1).choice([-1.0, 1.0], size=(25, 3)) / 5.0
    logs, firsts = log_quadrature(solve(S, root[:, None] * w, tol=1e-13))
    np.testing.assert_allclose(logs, np.einsum("ij,ik,kj->j", w, log, w), atol=1e-12)
    np.testing.assert_allclose(firsts, np.einsum("ij,ik,kj->j", w, scaled, w), rtol=1e-12)


def test_quadrature_of_a_diagonal_matrix():
    logs, firsts = log_quadrature(solve(np.diag([1.0, 4.0]), np.array([[1.0], [2.0]])))
    np.testing.assert_allclose(logs, 0.0, atol=1e-15)
    np.testing.assert_allclose(firsts, 1.0)
    logs, firsts = log_quadrature(solve(np.zeros((0, 0)), np.zeros((0, 2))))
    np.testing.assert_array_equal([logs, firsts], [[0.0, 0.0], [1.0, 1.0]])
