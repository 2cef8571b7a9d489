"""The factor of a matrix, leading columns sparse and the rest dense, against dense numpy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import block_array, csr_array, tril

from vcomp.numerics.kernels.ordering import elimination_tree, minimum_degree
from vcomp.numerics.sparse.elimination import EliminationOrder, Factor, Pattern, plan_elimination
from vcomp.numerics.sparse.leaf_pairs import LeafPairs


def equations(sizes, n_rows, seed, nested=False):
    """Return Z'Z of a random design with ridges."""
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, max(q, 1), n_rows) for q in sizes]
    if nested and len(sizes) > 1:
        # Each level of the first term within one level of the second.
        codes[1] = rng.integers(0, sizes[1], sizes[0])[codes[0]]
    Z = np.hstack([np.eye(q)[c] for q, c in zip(sizes, codes, strict=True)])
    C = Z.T @ Z
    return C + np.diag(rng.uniform(0.1, 5.0, C.shape[0]))


def plan_of(C, order, cut, by_pairs=False):
    """Return a plan with any order and cut; by pairs if all leading columns are leaves."""
    own = np.arange(C.shape[0]) if order is None else order
    off = C - np.diag(np.diagonal(C))
    lower = tril(csr_array(off[np.ix_(own, own)]), -1, format="csr")
    lower.sort_indices()
    parent, counts = elimination_tree(
        lower.indptr.astype(np.int64), lower.indices.astype(np.int32), cut, 10**9
    )
    parent = np.where(parent < 0, C.shape[0], parent).astype(np.int32)
    pairs = LeafPairs.of(lower, cut) if by_pairs else None
    return EliminationOrder(order, cut, lower, parent, counts, 0.0, pairs)


def factor_of(C, order, cut, by_pairs=False):
    return Factor(Pattern.of(plan_of(C, order, cut, by_pairs)), np.diagonal(C).copy())


@st.composite
def problems(draw):
    """Return a matrix, the sizes of its blocks, and its factor in any order with any cut."""
    sizes = draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))
    seed = draw(st.integers(0, 2**32 - 1))
    C = equations(sizes, draw(st.integers(0, 25)), seed, draw(st.booleans()))
    n = C.shape[0]
    order = draw(st.sampled_from([None, np.random.default_rng(seed).permutation(n)]))
    cut = draw(st.sampled_from([0, sizes[0], sum(sizes[:2]), n, n // 2]))
    return C, sizes, factor_of(C, order, cut, draw(st.booleans()))


CLOSE = {"rtol": 1e-9, "atol": 1e-11}


@settings(deadline=None)
@given(problems(), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_determinant_and_solution(problem, n_columns, seed):
    C, _, factor = problem
    assert factor.log_determinant() == pytest.approx(np.linalg.slogdet(C)[1], rel=1e-12, abs=1e-11)
    right = np.random.default_rng(seed).normal(size=(C.shape[0], n_columns))
    kept = right.copy()
    np.testing.assert_allclose(factor.solve(right), np.linalg.solve(C, right), **CLOSE)
    np.testing.assert_array_equal(right, kept)


@settings(deadline=None)
@given(problems())
def test_inverse(problem):
    C, sizes, factor = problem
    inverse = np.linalg.inv(C)
    np.testing.assert_allclose(factor.inverse.diagonal, np.diagonal(inverse), **CLOSE)
    blocks = [slice(a, b) for a, b in pairwise(np.cumsum([0, *sizes]))]
    expected = [[np.square(inverse[r, c]).sum() for c in blocks] for r in blocks]
    np.testing.assert_allclose(factor.inverse.squared_norms(blocks), expected, **CLOSE)


@settings(deadline=None)
@given(problems(), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_quadratic_forms_of_sparse_rows(problem, n_rows, seed):
    C, _, factor = problem
    rng = np.random.default_rng(seed)
    b = rng.normal(size=(n_rows, C.shape[0])) * (rng.random((n_rows, C.shape[0])) < 0.3)
    expected = (b * np.linalg.solve(C, b.T).T).sum(axis=1)
    rows = csr_array(b)
    np.testing.assert_allclose(factor.quadratics(rows), expected, **CLOSE)
    np.testing.assert_array_equal(rows.toarray(), b)


@settings(deadline=None)
@given(problems())
def test_pattern_is_that_of_the_factor(problem):
    C, _, factor = problem
    pattern = factor.pattern
    own = np.arange(pattern.n) if pattern.order is None else pattern.order
    L = np.linalg.cholesky(C[np.ix_(own, own)])
    for k in range(pattern.cut):
        rows = pattern.rows[pattern.ptr[k] : pattern.ptr[k + 1]]
        assert (np.diff(rows) > 0).all()
        outside = np.setdiff1d(np.arange(k + 1, pattern.n), rows)
        np.testing.assert_allclose(L[outside, k], 0.0, atol=1e-12)
        used = factor.values[pattern.ptr[k] : pattern.ptr[k + 1]] * L[k, k]
        np.testing.assert_allclose(used, L[rows, k], **CLOSE)


@pytest.mark.parametrize("by_pairs", [False, True])
@pytest.mark.parametrize("cut", [0, 2, 3])
def test_a_matrix_that_is_not_positive_definite(cut, by_pairs):
    C = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0], [2.0, 0.0, 1.0]])
    with pytest.raises(np.linalg.LinAlgError, match="pivot 3 is not positive"):
        factor_of(C, None, cut, by_pairs)
    with pytest.raises(np.linalg.LinAlgError, match="pivot 2 is not positive"):
        factor_of(C - np.diag([0.0, 1.0, 0.0]), None, 2, by_pairs)


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(0, 8), st.integers(0, 2**32 - 1))
def test_sums_over_leaves(n_leaves, m, seed):
    """The complement, the products of L and the forms, against the dense formulas."""
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(m, n_leaves)) * (rng.random((m, n_leaves)) < 0.5)
    rest = rng.normal(size=(m, m)) * (rng.random((m, m)) < 0.5)
    whole = np.zeros((n_leaves + m, n_leaves + m))
    whole[n_leaves:, :n_leaves], whole[n_leaves:, n_leaves:] = B, np.tril(rest, -1)
    lower = csr_array(whole)
    pairs = LeafPairs.of(lower, n_leaves)
    pivots, diagonal = rng.uniform(0.5, 2.0, n_leaves), rng.uniform(0.5, 2.0, m)
    L, lowest = B / pivots, {"rtol": 1e-13, "atol": 1e-13}
    complement = np.tril(rest, -1) + np.diag(diagonal) - np.tril(L * pivots @ L.T)
    np.testing.assert_allclose(pairs.complement(pivots, diagonal), complement, **lowest)
    np.testing.assert_allclose(pairs.gram(pivots), np.tril(L @ L.T), **lowest)
    Z = rng.normal(size=(m, m))
    Z += Z.T
    forms = np.einsum("ik,ij,jk->k", L, Z, L)
    np.testing.assert_allclose(pairs.forms(pivots, Z), forms, rtol=1e-12, atol=1e-12)
    filled = np.tril(((B != 0.0) @ (B != 0.0).T) | (rest != 0.0), -1)
    assert pairs.filled().tolist() == filled.sum(axis=0).tolist()
    n_pairs = (
        sum(c * (c + 1) // 2 for c in (B != 0.0).sum(axis=0))
        + np.tril(rest, -1).astype(bool).sum()
    )
    assert LeafPairs.of(lower, n_leaves, int(n_pairs)) is not None
    assert LeafPairs.of(lower, n_leaves, int(n_pairs) - 1) is None


def test_columns_that_depend_on_others_have_no_pairs():
    lower = csr_array(np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
    assert LeafPairs.of(lower, 1) is not None
    assert LeafPairs.of(lower, 2) is None


def test_crossed_blocks_are_cut_after_the_first():
    """The others fill up, whatever they look like: no elimination tree is needed."""
    C = equations([900, 300], 20_000, 0)
    plan = plan_elimination(csr_array(C - np.diag(np.diagonal(C))), [900, 300])
    assert (plan.order, plan.cut) == (None, 900)
    assert plan.pairs is not None
    tree = plan_of(C, None, 900)
    assert plan.parent.tolist() == tree.parent.tolist()
    assert plan.counts.tolist() == tree.counts.tolist()
    factors = [factor_of(C, None, 900, by_pairs) for by_pairs in (False, True)]
    values = [f.log_determinant() for f in factors]
    assert values[0] == pytest.approx(values[1], rel=1e-14)


@settings(deadline=None)
@given(st.integers(1, 40), st.floats(0.0, 0.4), st.floats(0.1, 1.0), st.integers(0, 2**32 - 1))
def test_minimum_degree_is_an_order(n, density, share, seed):
    rng = np.random.default_rng(seed)
    A = np.triu(rng.random((n, n)) < density, 1)
    A = csr_array((A + A.T).astype(float))
    order, last = minimum_degree(
        A.indptr.astype(np.int64), A.indices.astype(np.int32), share, np.inf
    )
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    assert 0 <= last <= n


def test_minimum_degree_of_a_tree_fills_nothing():
    rng = np.random.default_rng(0)
    n = 500
    above = np.array([rng.integers(0, i) for i in range(1, n)])
    A = np.zeros((n, n))
    A[np.arange(1, n), above] = A[above, np.arange(1, n)] = -1.0
    matrix = csr_array(A)
    order, last = minimum_degree(matrix.indptr.astype(np.int64), matrix.indices, 0.6, np.inf)
    assert last == n
    counts = plan_of(A + 5.0 * np.eye(n), order, n).counts
    assert counts.sum() == n - 1


def test_nested_blocks_are_eliminated_as_sparse():
    """Students within schools, crossed with items: the items alone are dense."""
    rng = np.random.default_rng(0)
    students, schools, items = 6000, 1500, 30
    school = rng.integers(0, schools, students)
    student = np.repeat(np.arange(students), 10)
    codes = [student, school[student], rng.integers(0, items, student.size)]
    sizes = [students, schools, items]
    Z = [csr_array((np.ones(c.size), (np.arange(c.size), c)), shape=(c.size, q))
         for c, q in zip(codes, sizes, strict=True)]  # fmt: skip
    gram = block_array([[a.T @ b if a is not b else None for b in Z] for a in Z]).tocsr()
    plan = plan_elimination(gram, sizes)
    assert (plan.order, plan.cut, plan.n_dense) == (None, students + schools, items)
