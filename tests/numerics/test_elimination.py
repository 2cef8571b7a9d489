"""The factor of a matrix, leading columns sparse and the rest dense, against dense numpy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import block_array, csr_array, tril

from vcomp.numerics.kernels.ordering import elimination_tree, minimum_degree
from vcomp.numerics.sparse.elimination import Direction, Factor, Pattern, span_of
from vcomp.numerics.sparse.elimination_order import (
    EliminationOrder,
    LeafPairs,
    _is_sparse_beyond,
    _minimum_degree,
    _seconds,
    plan_elimination,
)


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
    ones = [np.bincount(np.arange(len(C))[b], minlength=len(C)).astype(float) for b in blocks]
    directions = [Direction(diagonal) for diagonal in ones]
    np.testing.assert_allclose(factor.inverse.squares(directions), expected, **CLOSE)


@settings(deadline=None)
@given(problems(), st.integers(0, 2**32 - 1))
def test_derivatives_along_matrices_on_the_pattern(problem, seed):
    """Also where entries change from one factor to the next, as with blocks of slopes."""
    C, _, factor = problem
    pattern, rng = factor.pattern, np.random.default_rng(seed)
    order = np.arange(len(C)) if pattern.order is None else pattern.order
    lower = np.tril(C[np.ix_(order, order)] - np.diag(np.diagonal(C)[order]), -1)
    at = np.nonzero(lower)
    scaled = lower[at] * rng.uniform(0.5, 1.0, at[0].size)
    factor = Factor(pattern.with_entries(scaled), np.diagonal(C).copy())

    def whole(diagonal, data):
        made = np.zeros_like(C)
        made[order[at[0]], order[at[1]]] = data
        return made + made.T + np.diag(diagonal)

    inverse = np.linalg.inv(whole(np.diagonal(C), scaled))
    parts = [(rng.normal(size=len(C)), rng.normal(size=at[0].size)) for _ in range(2)]
    dense, directions = [whole(*p) for p in parts], [Direction(*p) for p in parts]
    traces = [np.trace(inverse @ D) for D in dense]
    np.testing.assert_allclose(factor.inverse.traces(directions), traces, **CLOSE)
    squares = [[np.trace(inverse @ D @ inverse @ E) for D in dense] for E in dense]
    np.testing.assert_allclose(factor.inverse.squares(directions), squares, **CLOSE)


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


def test_a_matrix_that_loses_no_digits_is_eliminated_by_pairs():
    C = equations([6, 4], 20, 0, False)
    factor = factor_of(C, None, 6, by_pairs=True)
    assert factor.pattern.pairs is not None
    assert factor.pairs is factor.pattern.pairs
    assert factor.log_determinant() == pytest.approx(np.linalg.slogdet(C)[1], rel=1e-12)


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


@pytest.mark.slow
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
    # A sum of 1,200 logarithms, whose numbers come in another order.
    assert values[0] == pytest.approx(values[1], rel=1e-12)


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


# The choice of an order and a cut ---------------------------------------------------------------


def couplings(n, density, seed):
    """Return a random symmetric matrix without its diagonal."""
    rng = np.random.default_rng(seed)
    A = np.triu(rng.random((n, n)) < density, 1)
    return csr_array((A + A.T).astype(float))


def filled(A, order, cut):
    """Return the numbers of entries of L below the diagonal, by elimination of a graph."""
    own = np.arange(A.shape[0]) if order is None else order
    pattern = A.toarray()[np.ix_(own, own)] != 0.0
    counts = []
    for k in range(cut):
        below = np.flatnonzero(pattern[k + 1 :, k]) + k + 1
        counts.append(below.size)
        pattern[np.ix_(below, below)] = True
    return np.array(counts, dtype=float)


def seconds_of(counts, n, cut):
    """Return the estimated time, with the figures that 47 shapes gave."""
    sparse = counts[:cut]
    dense = n - cut
    columns = 2e-9 * sparse**2 + 8.6e-8 * sparse + 4.7e-7
    return 4.4e-4 + columns.sum() + 1.6e-11 * dense**3 + 3.0e-8 * dense**2


@pytest.mark.parametrize("density", [0.001, 0.01, 0.05, 0.5])
def test_the_cut_is_the_cheapest_or_the_end_of_a_block_that_is_nearly_as_cheap(density):
    n, sizes = 500, [150, 100, 250]
    A = couplings(n, density, 3)
    for first in (A, None):
        if first is None:  # as the first block is without entries
            A = A.tolil()
            A[:150, :150] = 0.0
            A = csr_array(A)
        plan = plan_elimination(A, sizes, good_enough=np.inf)
        assert plan.order is None
        counts = filled(A, None, n)
        seconds = [seconds_of(counts, n, cut) for cut in range(n + 1)]
        assert plan.seconds == pytest.approx(seconds[plan.cut], rel=1e-12)
        end = min([0, 150, 250, 500], key=lambda e: seconds[e])
        near = seconds[end] <= 1.2 * min(seconds) + 1e-3
        assert plan.cut == (end if near else int(np.argmin(seconds)))
        np.testing.assert_array_equal(plan.counts, counts[: plan.cut])
        assert plan.n_dense == n - plan.cut
        entries, m = counts[: plan.cut].sum(), n - plan.cut
        products = 0.0
        if plan.pairs:
            # Of each two entries of a leading column, and the entries of the rest.
            own = counts[: plan.cut]
            products = 12.0 * (
                (own * (own + 1) // 2).sum() + tril(A[plan.cut :, plan.cut :], -1).nnz
            )
        assert plan.bytes_for_traces == 36.0 * entries + 24.0 * m**2 + products
        assert plan.bytes_for_norms == 56.0 * entries + 40.0 * m**2 + products
        assert set(plan.parent[plan.parent < n]) <= set(range(n))


def test_another_order_is_used_if_it_is_a_fifth_faster():
    """The hubs of stars come first, so that the original order fills up."""
    rng = np.random.default_rng(0)
    n, hubs = 1500, 30
    rows = np.arange(hubs, n)
    cols = rng.integers(0, hubs, rows.size)
    A = csr_array((np.ones(rows.size), (rows, cols)), shape=(n, n))
    A = csr_array(A + A.T)
    plan = plan_elimination(A, [hubs, n - hubs], good_enough=0.0)
    original = plan_elimination(A, [hubs, n - hubs], good_enough=np.inf)
    counts = filled(A, plan.order, plan.cut)
    np.testing.assert_array_equal(plan.counts, counts)
    assert plan.seconds == pytest.approx(seconds_of(counts, n, plan.cut), rel=1e-12)
    assert plan.order is not None
    assert plan.seconds < 0.8 * original.seconds
    # A tree: no order has fewer entries than it has edges.
    assert counts.sum() <= rows.size
    solved = Factor(Pattern.of(plan), np.full(n, 40.0))
    b = rng.normal(size=(n, 2))
    np.testing.assert_allclose((A @ solved.solve(b)) + 40.0 * solved.solve(b), b, atol=1e-10)


def test_too_many_entries_have_no_plan_or_that_of_the_leading_block():
    A = csr_array(np.ones((60, 60)) - np.eye(60))
    assert plan_elimination(A, [60], most_entries=60 * 59 // 2) is not None
    # Rungs of a ladder: 20 entries of the leading block, and more of all columns.
    rungs = np.arange(20)
    one, other = (
        np.concatenate([rungs, rungs[1:] + 20]),
        np.concatenate([rungs + 20, rungs[:-1] + 20]),
    )
    ladder = csr_array((np.ones(39), (one, other)), shape=(40, 40))
    ladder = csr_array(ladder + ladder.T)
    whole = plan_elimination(ladder, [20, 20], most_entries=39)
    np.testing.assert_array_equal(whole.counts, filled(ladder, None, 40)[: whole.cut])
    assert filled(ladder, None, 40).sum() == 39
    leading = plan_elimination(ladder, [20, 20], most_entries=20, good_enough=np.inf)
    assert leading.cut in (0, 20)
    assert plan_elimination(ladder, [20, 20], most_entries=19) is None
    # What a factor may take limits what is counted, but a million entries are.
    assert plan_elimination(A, [60], most_seconds=1e-9) is not None


@pytest.mark.parametrize("n", [0, 1, 40])
def test_entries_are_counted_up_to_a_limit(n):
    A = couplings(n, 0.2, 1)
    lower = tril(A, -1, format="csr")
    lower.sort_indices()
    ptr, indices = lower.indptr.astype(np.int64), lower.indices.astype(np.int32)
    counts = filled(A, None, n)
    total = int(counts.sum())
    parent, found = elimination_tree(ptr, indices, n, total)
    np.testing.assert_array_equal(found, counts)
    if total:
        assert elimination_tree(ptr, indices, n, total - 1)[1].size == 0
    # The parent is the first row below the diagonal.
    pattern = A.toarray() != 0.0
    for k in range(n):
        below = np.flatnonzero(pattern[k + 1 :, k]) + k + 1
        assert parent[k] == (below[0] if below.size else -1)
        pattern[np.ix_(below, below)] = True


@pytest.mark.parametrize("places", [[], [3], [3, 4, 5], [3, 5, 7], [5, 4, 3], [2, 3, 5]])
def test_places_side_by_side_need_no_copy(places):
    places = np.array(places, dtype=np.int64)
    rows = np.arange(9.0)
    found = rows[span_of(places)]
    np.testing.assert_array_equal(found, rows[places])
    side_by_side = places.size > 0 and places.tolist() == list(range(places[0], places[-1] + 1))
    assert np.shares_memory(found, rows) == side_by_side


@pytest.mark.parametrize(
    ("n", "neighbours", "is_crowded"),
    [(36, 32, False), (36, 33, True), (100, 40, False), (100, 41, True), (144, 48, False)],
)
def test_unknowns_with_very_many_neighbours_come_last(n, neighbours, is_crowded):
    """More than 32, and than four times the root of their number."""
    hub = 5
    others = [k for k in range(n) if k != hub][:neighbours]
    A = np.zeros((n, n))
    A[hub, others] = A[others, hub] = 1.0
    # A path through all others: the ends of a star would make the hub the last in any case.
    path = [k for k in range(n) if k != hub]
    A[path[:-1], path[1:]] = A[path[1:], path[:-1]] = 1.0
    order, last = _minimum_degree(csr_array(A), 3.0)
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    assert last == (n - 1 if is_crowded else n)
    if is_crowded:
        assert order[-1] == hub


def test_the_search_for_an_order_ends_in_time():
    """A visit of an entry takes 1e-8 seconds."""
    A = couplings(60, 0.08, 2)
    whole = _minimum_degree(A, 3.0)[1]
    after = [_minimum_degree(A, 1e-8 * visits)[1] for visits in (0, 20, 100, 300)]
    assert after[0] <= 2
    assert sorted(set(after)) == after
    assert after[-1] < whole


@pytest.mark.parametrize(("n_rows", "sparse"), [(6_000, True), (60_000, False)])
def test_pairs_are_not_formed_where_a_later_cut_is_cheaper(n_rows, sparse):
    """The test before has to be on the safe side of the exact numbers of filled entries."""
    rng = np.random.default_rng(1)
    sizes = [n_rows // 2, 600, 20]
    first, *others = (rng.integers(0, q, n_rows) for q in sizes)
    others[0] = rng.integers(0, sizes[1], sizes[0])[first] if sparse else others[0]
    Z = [
        csr_array((np.ones(n_rows), codes, np.arange(n_rows + 1)), shape=(n_rows, q))
        for q, codes in zip(sizes, (first, *others), strict=True)
    ]
    C = [[None if a is b else (a.T @ b).tocsr() for b in Z] for a in Z]
    lower = tril(block_array(C), -1, format="csr")
    lower.sort_indices()
    assert _is_sparse_beyond(lower, sizes[0]) is sparse
    pairs = LeafPairs.of(lower, sizes[0])
    counts = np.diff(pairs.leading.indptr)
    least = _seconds(np.concatenate([counts, pairs.filled()]), sum(sizes), [0, sizes[0]])
    if sparse:
        assert least[sizes[0]] > 1.2 * least.min() + 1e-3
    plan = plan_elimination(block_array(C).tocsr(), sizes)
    assert (plan.pairs is None) is sparse


def test_pairs_are_not_formed_where_dense_is_cheapest_without_them(monkeypatch):
    """Where nearly all levels of 300, 100 and 5 meet, they took as long as the fit."""
    rng, sizes = np.random.default_rng(2), [300, 100, 5]
    n = sum(sizes)
    A = (rng.random((n, n)) < 0.99).astype(float)
    for end, size in zip(np.cumsum(sizes), sizes, strict=True):
        A[end - size : end, end - size : end] = 0.0
    A = csr_array(np.triu(A) + np.triu(A).T)
    cuts, of = [], LeafPairs.of
    monkeypatch.setattr(LeafPairs, "of", lambda lower, cut: cuts.append(cut) or of(lower, cut))
    plan = plan_elimination(A, sizes)
    assert (plan.order, plan.cut, cuts) == (None, 0, [0])
    assert plan.seconds == pytest.approx(seconds_of(np.zeros(0), n, 0), rel=1e-12)
    assert (plan.parent.size, plan.counts.size, plan.n_dense) == (0, 0, n)


def test_other_blocks_stay_dense_where_their_norms_take_more_than_the_cube_saves():
    """Of two facets with three scores a level, some levels of the second could be sparse."""
    rng, size = np.random.default_rng(12), 1_700
    cells = rng.integers(size, size=(2, 3 * size))
    both = csr_array((np.ones(3 * size), (cells[0], cells[1])), (size, size))
    plan = plan_elimination(block_array([[None, both], [both.T, None]], format="csr"), [size] * 2)
    assert plan is not None
    assert plan.cut == size


@pytest.mark.parametrize("density", [0.002, 0.02, 0.3])
def test_entries_of_scattered_and_of_many_products(density):
    rng, m, n_leaves = np.random.default_rng(13), 150, 60
    B = (rng.random((m, n_leaves)) < density) * 1.0
    rest = np.tril((rng.random((m, m)) < density / 10) * 1.0, -1)
    whole = np.zeros((n_leaves + m, n_leaves + m))
    whole[n_leaves:, :n_leaves], whole[n_leaves:, n_leaves:] = B, rest
    pairs = LeafPairs.of(csr_array(whole), n_leaves)
    wanted = np.tril((B @ B.T + rest) != 0.0, -1)
    assert pairs.filled().tolist() == wanted.sum(axis=0).tolist()
