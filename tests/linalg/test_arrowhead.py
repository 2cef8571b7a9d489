"""Blocked elimination against dense numpy on random arrow-shaped matrices."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from vcomp.linalg.arrowhead import Arrowhead, factorise, inverse_blocks
from vcomp.linalg.dense import solve, solve_positive


@dataclass
class Problem:
    """An arrowhead with ridges, and the same matrix dense."""

    matrix: Arrowhead
    lead_ridge: float
    tail_ridge: np.ndarray
    C: np.ndarray
    q: int
    m: int
    p: int

    @property
    def factor(self):
        return factorise(self.matrix, self.lead_ridge, self.tail_ridge)


@st.composite
def problems(draw):
    """Return [Z X]'[Z X] of a random design plus ridges, as the likelihood builds it."""
    q, m, p = draw(st.tuples(st.integers(0, 7), st.integers(0, 5), st.integers(0, 3)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = 12
    Z1 = np.eye(max(q, 1))[rng.integers(0, max(q, 1), n)][:, :q]
    Z2 = np.eye(max(m, 1))[rng.integers(0, max(m, 1), n)][:, :m]
    W = np.hstack([Z1, Z2, rng.normal(size=(n, p))])
    C = W.T @ W
    lead_ridge = draw(st.floats(0.1, 10.0))
    # The columns of X have no ridge.
    tail_ridge = np.concatenate([rng.uniform(0.1, 10.0, m), np.zeros(p)])
    coupling = csr_array(C[:q, q : q + m])
    matrix = Arrowhead(
        lead=np.diagonal(C)[:q].copy(),
        indptr=coupling.indptr.astype(np.int64),
        indices=coupling.indices.astype(np.int32),
        data=coupling.data.astype(float),
        dense=np.ascontiguousarray(C[:q, q + m :]),
        tail=C[q:, q:].copy(),
        n_sparse=m,
    )
    ridged = C + np.diag(np.concatenate([np.full(q, lead_ridge), tail_ridge]))
    return Problem(matrix, lead_ridge, tail_ridge, ridged, q, m, p)


CLOSE = {"rtol": 1e-7, "atol": 1e-9}


def log_determinant(matrix):
    return np.linalg.slogdet(matrix)[1] if matrix.size else 0.0


@settings(deadline=None)
@given(problems())
def test_log_determinants(problem):
    random = problem.q + problem.m
    whole, leading = log_determinant(problem.C), log_determinant(problem.C[:random, :random])
    np.testing.assert_allclose(
        problem.factor.log_determinants(), [leading, whole - leading], rtol=1e-7, atol=1e-7
    )


@settings(deadline=None)
@given(problems(), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_solve(problem, n_columns, seed):
    b = np.random.default_rng(seed).normal(size=(len(problem.C), n_columns))
    lead, tail = problem.factor.solve(b[: problem.q], b[problem.q :])
    np.testing.assert_allclose(np.vstack([lead, tail]), np.linalg.solve(problem.C, b), **CLOSE)


@settings(deadline=None)
@given(problems(), st.booleans(), st.integers(0, 2**32 - 1))
def test_half_solve(problem, with_x, seed):
    order = problem.m + (problem.p if with_x else 0)
    size = problem.q + order
    b = np.random.default_rng(seed).normal(size=(len(problem.C), 2))
    half = problem.factor.half_solve(b[: problem.q], b[problem.q :], order)
    a = np.diagonal(problem.C)[: problem.q, None]
    found = np.square(b[: problem.q] / np.sqrt(a)).sum(axis=0) + np.square(half).sum(axis=0)
    leading, right = problem.C[:size, :size], b[:size]
    expected = (right * np.linalg.solve(leading, right)).sum(axis=0)
    np.testing.assert_allclose(found, expected, **CLOSE)


@settings(deadline=None)
@given(problems(), st.booleans(), st.data())
def test_blocks_of_the_inverse(problem, with_x, data):
    q, order = problem.q, problem.m + (problem.p if with_x else 0)
    inverse = np.linalg.inv(problem.C[: q + order, : q + order])
    blocks = inverse_blocks(problem.factor, order)
    np.testing.assert_allclose(blocks.tail, inverse[q:, q:], **CLOSE)
    np.testing.assert_array_equal(blocks.tail, blocks.tail.T)
    assert blocks.lead_trace() == pytest.approx(np.trace(inverse[:q, :q]), rel=1e-7, abs=1e-9)
    np.testing.assert_allclose(blocks.lead_diagonal(), np.diagonal(inverse)[:q], **CLOSE)
    cut = data.draw(st.integers(0, problem.m))
    slices = [slice(0, cut), slice(cut, problem.m)]
    whole = [slice(0, q), *(slice(q + s.start, q + s.stop) for s in slices)]
    expected = [[np.square(inverse[r, c]).sum() for c in whole] for r in whole]
    np.testing.assert_allclose(blocks.squared_norms(slices), expected, rtol=1e-6, atol=1e-9)


@settings(deadline=None)
@given(problems(), st.integers(0, 2**32 - 1))
def test_products_with_the_coupling(problem, seed):
    rng = np.random.default_rng(seed)
    q, m, p = problem.q, problem.m, problem.p
    B, matrix = problem.C[:q, q:], problem.matrix
    x, z, w = rng.normal(size=(m + p, 2)), rng.normal(size=(q, 2)), rng.normal(size=q)
    np.testing.assert_allclose(matrix.coupling_times(x), B @ x, **CLOSE)
    np.testing.assert_allclose(matrix.coupling_transposed_times(z), B.T @ z, **CLOSE)
    for order in (m, m + p):
        part = B[:, :order]
        np.testing.assert_allclose(
            matrix.coupling_gram(w, order), part.T @ (w[:, None] * part), **CLOSE
        )
        M = rng.normal(size=(order, order))
        M = M + M.T
        expected = np.einsum("ij,jk,ik->i", part, M, part)
        np.testing.assert_allclose(matrix.row_quadratics(M), expected, **CLOSE)


@settings(deadline=None)
@given(problems())
def test_factoring_changes_nothing(problem):
    tail = problem.matrix.tail.copy()
    first, second = problem.factor, problem.factor
    np.testing.assert_array_equal(problem.matrix.tail, tail)
    np.testing.assert_array_equal(first.L, second.L)
    L = first.L.copy()
    for order in (problem.m, problem.m + problem.p):
        inverse_blocks(first, order)
        np.testing.assert_array_equal(first.L, L)


def test_a_matrix_that_is_not_positive_definite():
    matrix = Arrowhead(
        lead=np.array([1.0]),
        indptr=np.array([0, 1]),
        indices=np.array([0], dtype=np.int32),
        data=np.array([2.0]),
        dense=np.zeros((1, 0)),
        tail=np.array([[1.0]]),
        n_sparse=1,
    )
    with pytest.raises(np.linalg.LinAlgError, match="pivot 1 is not positive"):
        factorise(matrix, 0.0, np.zeros(1))


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
