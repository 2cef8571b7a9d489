"""Conjugate gradients and their quadrature against dense algebra."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from vcomp.numerics.sparse.sparse_table import (
    SparseTable,
    conjugate_gradients,
    log_quadrature,
    solve_reduced,
)


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


def reduced_system(q=30, sizes=(25, 12), *, weighted, seed=1):
    """Return S = diag(tail) + K − B'A⁻¹B as a matrix, and what solve_reduced needs of it."""
    rng, m = np.random.default_rng(seed), sum(sizes)
    B = (rng.random((q, m)) < 0.3) * (rng.integers(1, 4, (q, m)) if weighted else 1.0)
    K = np.zeros((m, m))
    K[: sizes[0], sizes[0] :] = rng.random(sizes) < 0.2 if len(sizes) > 1 else 0.0
    K += K.T
    lead, tail = B.sum(axis=1) + 1.0, B.sum(axis=0) + K.sum(axis=0) + 1.0
    S = np.diag(tail) + K - B.T @ (B / lead[:, None])
    rest = np.hstack([B.T, K]) if K.any() else B.T
    return S, (table_of(B), table_of(rest), 1.0 / lead, tail, np.diagonal(S).copy())


def solved_by(parts, b, start=None, **options):
    """Return the solution, which takes the place of neither `b` nor `start`."""
    return solve_reduced(*parts, b.copy(), None if start is None else start.copy(), **options)


def table_of(matrix):
    csr = csr_array(matrix)
    parts = csr.indptr.astype(np.int64), csr.indices.astype(np.int32), csr.data.astype(float)
    return SparseTable.of(*parts, matrix.shape[1])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sizes", [(37,), (25, 12)])
@pytest.mark.parametrize("width", [1, 8, 19])
def test_columns_of_reduced_equations(width, sizes, weighted):
    """As by dense algebra, from zero and from a start, with the steps of the general iteration."""
    S, parts = reduced_system(sizes=sizes, weighted=weighted)
    b = np.random.default_rng(width).normal(size=(len(S), width))
    solved, exact = solved_by(parts, b, tol=1e-13), np.linalg.solve(S, b)
    assert solved.converged
    np.testing.assert_allclose(solved.x, exact, atol=1e-11 * np.abs(exact).max())
    np.testing.assert_allclose(solved.residual, b - S @ solved.x, atol=1e-11)
    rough, general = solved_by(parts, b, tol=1e-4), solve(S, b, tol=1e-4)
    assert rough.iterations == general.iterations < solved.iterations
    np.testing.assert_allclose(rough.x, general.x, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(rough.alphas, general.alphas, rtol=1e-7)
    np.testing.assert_allclose(rough.betas, general.betas, rtol=1e-6)
    again = solved_by(parts, b, rough.x, tol=1e-13)
    np.testing.assert_allclose(again.x, exact, atol=1e-11 * np.abs(exact).max())
    np.testing.assert_allclose(again.residual, b - S @ again.x, atol=1e-11)
    assert solved_by(parts, b, solved.x, tol=1e-12).iterations == 0
    in_place, start = b.copy(), rough.x.copy()
    placed = solve_reduced(*parts, in_place, start, tol=1e-13)
    assert placed.x is start
    assert placed.residual is in_place
    np.testing.assert_array_equal(start, again.x)
    np.testing.assert_array_equal(in_place, again.residual)


def test_tolerances_of_columns():
    S, parts = reduced_system(weighted=False)
    b = np.random.default_rng(5).normal(size=(len(S), 10))
    b[:, 3] = 0.0
    tol = np.geomspace(1e-2, 1e-11, 10)
    solved, D = solved_by(parts, b, tol=tol), np.diagonal(S)[:, None]
    reached = np.sqrt((solved.residual**2 / D).sum(axis=0))
    limit = tol * np.sqrt((b**2 / D).sum(axis=0))
    assert (reached <= limit).all()
    assert (reached[:3] > 1e-3 * limit[:3]).all()
    np.testing.assert_array_equal(solved.x[:, 3], 0.0)


def test_threads_change_nothing():
    S, parts = reduced_system(weighted=True)
    coupling = replace(parts[0], fewest=1)
    b = np.random.default_rng(5).normal(size=(len(S), 40))
    one, four = (solved_by((coupling, *parts[1:]), b, threads=n) for n in (1, 4))
    np.testing.assert_array_equal(one.x, four.x)
    np.testing.assert_array_equal(one.alphas, four.alphas)


def test_ends_of_reduced_iterations():
    S, parts = reduced_system(weighted=False)
    b = np.random.default_rng(5).normal(size=(len(S), 9))
    few = solved_by(parts, b, max_iter=3)
    assert not few.converged
    assert few.iterations == 3
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        solved_by((*parts[:2], 50.0 * parts[2], *parts[3:]), b)
    nothing = solved_by(parts, b[:, :0])
    assert nothing.converged
    assert (nothing.iterations, nothing.x.shape) == (0, (len(S), 0))


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
