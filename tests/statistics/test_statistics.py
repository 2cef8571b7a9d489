"""Sums over rows: against dense matrices, and the same from parts as from the whole."""

from functools import reduce
from operator import add

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from patsy import EvalEnvironment

from tests.helpers.examples import examples
from vcomp.data.reading import Reading
from vcomp.data.rows import Rows
from vcomp.design import learn
from vcomp.formula import parse
from vcomp.statistics.cross_products import CrossProducts, accumulate
from vcomp.statistics.groupings import product_group_sums
from vcomp.statistics.roll_up import PairTable
from vcomp.statistics.two_term_tables import tabulate

FORMULA = "y ~ x + (1|a) + (1|b) + (1|a:c)"


@st.composite
def problems(draw):
    """Return a design, its rows, and a number to draw more at random from."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    n = draw(st.integers(10, 40))
    sizes = {"a": 4, "b": 5, "c": 3}
    table = {f: np.array([0, 1, *rng.integers(0, m, n - 2)]) for f, m in sizes.items()}
    assume(len(set(zip(table["a"], table["c"], strict=True))) < n)
    table |= {"y": rng.normal(3.0, 2.0, n), "x": rng.normal(-7.0, 1.0, n)}
    scope = EvalEnvironment([{}])
    rows = Rows.select(parse(FORMULA), pd.DataFrame(table), Reading(scope))
    return learn(parse(FORMULA), rows, scope), rows, rng


def some(rows, chosen):
    return Rows(
        rows.y[chosen],
        {name: column.iloc[chosen] for name, column in rows.facets.items()},
        {name: column[chosen] for name, column in rows.fixed.items()},
        rows.labels[chosen],
    )


def indicator(codes, size):
    return np.eye(size)[codes]


@settings(max_examples=examples(40), deadline=None)
@given(problems())
def test_cross_products(problem):
    design, rows, _ = problem
    chunk = design.encode(rows)
    stats = accumulate(chunk)
    Z = [indicator(c, q) for c, q in zip(chunk.codes, chunk.sizes, strict=True)]
    X = np.column_stack([np.ones(len(rows)), rows.fixed["x"] - np.mean(rows.fixed["x"])])
    y = rows.y - rows.y.mean()
    close = {"rtol": 1e-9, "atol": 1e-9}
    assert (stats.n, stats.n_terms, stats.n_fixed) == (len(rows), 3, 2)
    assert stats.sizes == tuple(z.shape[1] for z in Z)
    for t in range(3):
        np.testing.assert_array_equal(stats.group_n[t], Z[t].sum(axis=0))
        np.testing.assert_allclose(stats.Zy[t], Z[t].T @ y, **close)
        np.testing.assert_allclose(stats.ZX[t], Z[t].T @ X, **close)
        for u in range(3):
            np.testing.assert_array_equal(stats.gram(t, u).toarray(), Z[t].T @ Z[u])
            if t < u:
                assert stats.pairs[t, u].shape == (Z[t].shape[1], Z[u].shape[1])
    np.testing.assert_allclose(stats.XX, X.T @ X, **close)
    np.testing.assert_allclose(stats.Xy, X.T @ y, **close)
    assert stats.yy == pytest.approx(y @ y)


def parts_of(rng, n, n_parts):
    """Return the rows of each part: random, so that most parts miss levels; one may be a row."""
    owner = rng.integers(0, n_parts, n)
    return [np.flatnonzero(owner == k) for k in range(n_parts) if (owner == k).any()]


@settings(max_examples=examples(40), deadline=None)
@given(problems(), st.integers(1, 8))
def test_chunks_add_up(problem, n_parts):
    design, rows, rng = problem
    chunks = [design.encode(some(rows, p)) for p in parts_of(rng, len(rows), n_parts)]
    total = reduce(add, map(accumulate, chunks))
    assert_same(total, accumulate(design.encode(rows)))
    assert_same(reduce(add, map(accumulate, chunks[::-1])), total)


def assert_same(a: CrossProducts, b: CrossProducts):
    close = {"rtol": 1e-9, "atol": 1e-9}
    assert a.n == b.n
    assert a.pairs.keys() == b.pairs.keys()
    for key, table in a.pairs.items():
        # Not only the same matrix: the same storage, sorted and without zeros.
        np.testing.assert_array_equal(table.indptr, b.pairs[key].indptr)
        np.testing.assert_array_equal(table.indices, b.pairs[key].indices)
        np.testing.assert_array_equal(table.counts, b.pairs[key].counts)
        assert table.indices.dtype == np.int32
        assert table.indptr.dtype == np.int64
    for t in range(a.n_terms):
        np.testing.assert_array_equal(a.group_n[t], b.group_n[t])
        np.testing.assert_allclose(a.Zy[t], b.Zy[t], **close)
        np.testing.assert_allclose(a.ZX[t], b.ZX[t], **close)
    np.testing.assert_allclose(a.XX, b.XX, **close)
    np.testing.assert_allclose(a.Xy, b.Xy, **close)
    assert a.yy == pytest.approx(b.yy)


@settings(max_examples=examples(40), deadline=None)
@given(problems(), st.integers(1, 4))
def test_cell_tables(problem, n_parts):
    design, rows, rng = problem
    frame = pd.DataFrame({f: rows.facets[f] for f in "ab"}).assign(y=rows.y - rows.y.mean())
    sums = frame.pivot_table(index="a", columns="b", values="y", aggfunc="sum", fill_value=0.0)
    counts = pd.crosstab(frame["a"], frame["b"])
    parts = [some(rows, p) for p in parts_of(rng, len(rows), n_parts)]
    chunks = [design.encode(p) for p in parts]
    for rows_, columns, transposed in ((0, 1, False), (1, 0, True)):
        table = reduce(add, (tabulate(chunk, rows_, columns) for chunk in chunks))
        expected = (sums.T, counts.T) if transposed else (sums, counts)
        np.testing.assert_allclose(table.sums, expected[0], atol=1e-9)
        np.testing.assert_array_equal(table.counts, expected[1])


@settings(max_examples=examples(40), deadline=None)
@given(problems(), st.integers(0, 2))
def test_inverse_effective_n(problem, term):
    design, rows, _ = problem
    chunk = design.encode(rows)
    # The mean of an object carries of each component the sum of squared shares of its groups.
    shares = []
    for codes in (*chunk.codes, np.arange(len(rows))):
        per_object = []
        for level in range(chunk.sizes[term]):
            within = codes[chunk.codes[term] == level]
            _, counts = np.unique(within, return_counts=True)
            per_object.append(np.sum((counts / within.size) ** 2))
        shares.append(np.mean(per_object))
    np.testing.assert_allclose(product_group_sums(accumulate(chunk)).inverse_n[term], shares)


def test_effective_n_of_a_balanced_design_is_its_sizes():
    grid = np.indices((3, 4, 2)).reshape(3, -1)
    data = {"y": np.arange(24.0), **dict(zip("abc", grid, strict=True))}
    formula, scope = parse("y ~ (1|a) + (1|b) + (1|a:b)"), EvalEnvironment([{}])
    rows = Rows.select(formula, data, Reading(scope))
    stats = accumulate(learn(formula, rows, scope).encode(rows))
    # Of a itself 1; over 4 levels of b; over 4 cells; over 8 scores.
    np.testing.assert_allclose(product_group_sums(stats).inverse_n[0], [1.0, 1 / 4, 1 / 4, 1 / 8])


def test_pair_table_of_any_sparse_matrix():
    from scipy.sparse import coo_array

    # Unsorted, with a pair that stands twice.
    matrix = coo_array(([1.0, 2.0, 3.0], ([1, 0, 1], [2, 1, 2])), shape=(2, 4))
    table = PairTable.from_matrix(matrix)
    np.testing.assert_array_equal(table.matrix.toarray(), [[0, 2, 0, 0], [0, 0, 4, 0]])
    assert table.counts.size == 2
    assert table.shape == (2, 4)
