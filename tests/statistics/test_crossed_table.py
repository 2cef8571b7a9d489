"""Tables of two crossed facets against their numbers of scores, written out as a matrix."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.examples import examples
from vcomp.statistics import CrossedTable, find_crossed_table

CLOSE = {"rtol": 1e-11, "atol": 1e-11}
FORMULA = "y ~ (1|a) + (1|b)"


def filled(a, b, kept, seed):
    """Return which cells have a score: every row and every column has at least one."""
    rng = np.random.default_rng(seed)
    F = rng.random((a, b)) < kept
    F[np.arange(a), rng.integers(0, b, a)] = True
    F[rng.integers(0, a, b), np.arange(b)] = True
    return F, rng


def scores(F, rng):
    rows, columns = np.nonzero(F)
    frame = pd.DataFrame({"a": rows, "b": columns, "x": rng.normal(size=rows.size)})
    frame["y"] = rng.normal(5.0, 1.0, rows.size) + rows - 2.0 * columns
    return frame.sample(frac=1.0, random_state=1)


def chunk_of(formula, frame):
    return vcomp.VarianceComponentsModel(formula, frame).statistics.rows


def check(table, chunk):
    """Compare sums by level and cross-products with those of indicators."""
    columns = np.column_stack([chunk.y, chunk.X])
    Z = [np.eye(q)[c] for c, q in zip(chunk.codes, chunk.sizes, strict=True)]
    assert (table.n, table.sizes, table.n_terms) == (len(columns), chunk.sizes, 2)
    assert table.n_fixed == chunk.n_fixed
    for t, z in enumerate(Z):
        np.testing.assert_array_equal(table.counts[t], z.sum(axis=0))
        np.testing.assert_allclose(table.sums[t], z.T @ columns, **CLOSE)
        assert table.group_squares(t) == np.square(z.sum(axis=0)).sum()
        for u, w in enumerate(Z):
            meets = ((z.T @ w) > 0.0).sum(axis=1)
            assert table.is_finer(t, u) == bool((meets == 1).all())
    gram = columns.T @ columns
    np.testing.assert_allclose(table.gram, gram, **CLOSE)
    np.testing.assert_allclose(table.XX, gram[1:, 1:], **CLOSE)
    np.testing.assert_allclose(table.Xy, gram[1:, 0], **CLOSE)
    assert table.yy == pytest.approx(gram[0, 0], rel=1e-12)


@settings(deadline=None, max_examples=examples(40))
@given(
    st.integers(2, 9),
    st.integers(2, 9),
    st.floats(0.3, 1.0),
    st.sampled_from(
        [FORMULA, "y ~ (1|b) + (1|a)", "y ~ x + (1|a) + (1|b)", "y ~ 0 + (1|a) + (1|b)"]
    ),
    st.integers(0, 10**6),
)
def test_sums_of_any_table(a, b, kept, formula, seed):
    F, rng = filled(a, b, kept, seed)
    assume(F.sum() > max(a, b, 6))  # more rows than parameters, and than levels
    frame = scores(F, rng)
    chunk = chunk_of(formula, frame)
    table = find_crossed_table(chunk)
    check(table, chunk)
    assert chunk.sizes[table.longer] == max(a, b)
    again = chunk.with_response(rng.normal(size=len(frame)))
    check(table.with_response(again), again)
    other = rng.normal(size=(1 + chunk.n_fixed, 3))
    found, columns = table.recombined(other), np.column_stack([chunk.y, chunk.X]) @ other
    assert found.n_fixed == 2
    np.testing.assert_allclose(found.gram, columns.T @ columns, rtol=1e-10, atol=1e-10)
    for t, (codes, q) in enumerate(zip(chunk.codes, chunk.sizes, strict=True)):
        np.testing.assert_allclose(
            found.sums[t], np.eye(q)[codes].T @ columns, rtol=1e-9, atol=1e-9
        )
    if formula == FORMULA:
        matrix = np.zeros(F.shape)
        matrix[frame["a"], frame["b"]] = chunk.y
        check(CrossedTable.of_matrix(matrix, ~F), chunk)


@settings(deadline=None, max_examples=examples(60))
@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.sampled_from([0.0, 0.3, 0.6, 0.97, 1.0]),
    st.integers(0, 10**6),
)
def test_products_with_the_numbers_of_scores(a, b, kept, seed):
    F, rng = filled(a, b, kept, seed)
    table = CrossedTable.of_matrix(rng.normal(size=F.shape) * F, ~F)
    F = F.astype(float) if a >= b else F.T.astype(float)
    long, short = F.shape
    x, z = rng.normal(size=(short, 2)), rng.normal(size=(long, 2))
    np.testing.assert_allclose(table.times(x), F @ x, **CLOSE)
    np.testing.assert_allclose(table.transposed_times(z), F.T @ z, **CLOSE)
    extended = np.longdouble
    for found, expected in (
        (table.extended(x.astype(extended), transposed=False), F @ x.astype(extended)),
        (table.extended(z.astype(extended), transposed=True), F.T @ z.astype(extended)),
    ):
        assert found.dtype == extended
        # Some machines have no longer numbers.
        close = max(1e-15, 100.0 * float(np.finfo(extended).eps))
        np.testing.assert_allclose(found, expected, rtol=close, atol=0.1 * close)
    weights = rng.choice([0.0, 0.5, 2.0], long)
    np.testing.assert_allclose(table.weighted(weights), F.T @ (weights[:, None] * F), **CLOSE)
    half = rng.normal(size=(short, short))
    T = half + half.T
    np.testing.assert_allclose(table.forms(T), np.diagonal(F @ T @ F.T), rtol=1e-10, atol=1e-10)


def test_large_tables_are_laid_out_in_slabs():
    F, rng = filled(23, 5, 0.6, 3)
    table = CrossedTable.of_matrix(rng.normal(size=F.shape) * F, ~F)
    F, weights, T = F.astype(float), rng.random(23), np.diag(np.arange(5.0)) + 1.0
    expected = F.T @ (weights[:, None] * F)
    for slab in (1, 10, 29):
        np.testing.assert_allclose(table.weighted(weights, slab), expected, **CLOSE)
        np.testing.assert_allclose(table.forms(T, slab), np.diagonal(F @ T @ F.T), **CLOSE)


@pytest.mark.slow
def test_a_table_of_one_slab_is_kept_and_larger_ones_are_not():
    for shape, is_kept in (((40, 30), True), ((2_049, 2_048), False)):
        F, rng = filled(*shape, 0.5, 3)
        table = CrossedTable.of_matrix(rng.normal(size=F.shape) * F, ~F)
        assert (table._whole is not None) == is_kept
        x = rng.normal(size=(shape[1], 2))
        np.testing.assert_allclose(table.times(x), F @ x, rtol=1e-10, atol=1e-10)
    F, rng = filled(40, 30, 0.99, 3)  # by holes the table is not needed
    assert CrossedTable.of_matrix(rng.normal(size=F.shape) * F, ~F)._whole is None


def test_few_holes_are_counted_by_holes_and_many_by_cells():
    """A product of two holes takes as long as some thirty cells: 1e-9 and 3.5e-11 seconds."""
    F = np.ones((40, 30), dtype=bool)
    F[:, :4] = np.arange(40)[:, None] % 10 == 0  # 36 rows with 4 holes
    few = CrossedTable.of_matrix(F.astype(float), ~F)
    assert few.is_by_holes
    assert few.seconds == pytest.approx(36 * 16 * 1e-9, rel=1e-12)
    F[:, :12] = np.arange(40)[:, None] % 10 == 0  # 36 rows with 12 holes
    many = CrossedTable.of_matrix(F.astype(float), ~F)
    assert not many.is_by_holes
    assert many.seconds == pytest.approx(40 * 30**2 * 3.5e-11, rel=1e-12)


def test_what_is_no_table_of_two_crossed_facets():
    F, rng = filled(8, 6, 0.6, 2)
    frame = scores(F, rng)
    chunk = chunk_of(FORMULA, frame)
    assert find_crossed_table(chunk) is not None
    twice = pd.concat([frame, frame.iloc[[3]]])
    for formula in ("y ~ (1|a)", "y ~ (1|a) + (1|a:b)", "y ~ (1|a) + (1|b) + (1|a:b)"):
        terms = chunk_of(formula, twice).terms
        assert find_crossed_table(replace(chunk, terms=terms)) is None
    assert find_crossed_table(chunk_of(FORMULA, twice)) is None
    assert find_crossed_table(replace(chunk, terms=(chunk.terms[0],) * 2)) is None
    ones = np.ones(len(frame))
    assert find_crossed_table(replace(chunk, counts=ones)) is not None
    assert find_crossed_table(replace(chunk, counts=ones * np.where(frame["a"] > 0, 1, 2))) is None
    assert find_crossed_table(replace(chunk, within=np.zeros((2, 2)))) is None


def test_a_table_has_a_quarter_of_its_cells_filled():
    rows = np.arange(8)
    frame = pd.DataFrame({"a": np.tile(rows, 2), "b": np.append(rows, (rows + 1) % 8)})
    frame["y"] = np.random.default_rng(1).normal(size=16)
    assert find_crossed_table(chunk_of(FORMULA, frame)) is not None  # 16 of 64
    assert find_crossed_table(chunk_of(FORMULA, frame[1:])) is None


def test_a_table_fits_into_half_of_the_memory():
    F, rng = filled(9, 7, 0.5, 5)
    chunk = chunk_of("y ~ x + (1|a) + (1|b)", scores(F, rng))
    needed = 63 + 16.0 * F.sum() * 3  # a byte for each cell, and y and X twice
    assert find_crossed_table(chunk, free_bytes=lambda: 2.0 * needed) is not None
    assert find_crossed_table(chunk, free_bytes=lambda: 2.0 * needed - 1.0) is None


def test_the_shorter_facet_has_a_limit():
    F, rng = filled(9, 7, 0.5, 5)
    chunk = chunk_of(FORMULA, scores(F, rng))
    assert find_crossed_table(chunk, most_levels=7) is not None
    assert find_crossed_table(chunk, most_levels=6) is None
