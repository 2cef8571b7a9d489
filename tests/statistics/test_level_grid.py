"""Cells by level of a facet, against indicator matrices of the rows."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.examples import examples
from vcomp.statistics import find_level_grid
from vcomp.statistics.level_grid import added_up

CLOSE = {"rtol": 1e-11, "atol": 1e-11}
TERMS = ("m", "i", "p", "t", "m:i", "m:p", "i:p", "m:t", "t:p", "m:t:p")


def rows_of(seed, kept, times):
    """Return scores of a part of the cells of m × i × p, with i within t; i has most levels."""
    rng = np.random.default_rng(seed)
    m, i, p = rng.integers(1, 4), rng.integers(5, 10), rng.integers(1, 4)
    grid = np.stack(np.meshgrid(np.arange(m), np.arange(i), np.arange(p), indexing="ij"), axis=-1)
    cells = np.repeat(grid.reshape(-1, 3), times, axis=0)
    part = cells[rng.random(len(cells)) < kept]
    # A row of every level, so that there are no fewer of them.
    ends = np.column_stack([rng.integers(0, m, i), np.arange(i), rng.integers(0, p, i)])
    frame = pd.DataFrame(np.concatenate([part, ends]), columns=["m", "i", "p"])
    frame["t"] = (frame["i"] * 3) // i
    frame["x"], frame["y"] = rng.normal(size=(2, len(frame)))
    return frame.sample(frac=1.0, random_state=seed % 1000), rng


def check(grid, chunk):
    """Compare sums, places and products with those of the rows."""
    columns = np.column_stack([chunk.y, chunk.X])
    weights = np.ones(len(columns)) if chunk.counts is None else chunk.counts
    n_levels, n_cells = grid.counts.shape
    C = np.zeros((len(columns), n_levels * n_cells))
    C[np.arange(len(columns)), grid.place] = 1.0
    counts = C.T @ weights
    np.testing.assert_allclose(grid.counts.ravel(), counts, **CLOSE)
    assert grid.n == round(weights.sum())
    assert grid.n_filled == np.count_nonzero(counts)
    assert grid.sizes == chunk.sizes
    assert (grid.n_terms, grid.n_cells) == (len(chunk.terms), n_cells)
    there = counts > 0.0
    assert grid.replicates == (counts.max() if np.ptp(counts[there]) == 0.0 else None)
    np.testing.assert_array_equal(grid.filled.ravel(), there)
    np.testing.assert_array_equal(grid.divisors.ravel(), np.where(there, counts, 1.0))
    means = (C.T @ (weights[:, None] * columns)) / np.where(there, counts, 1.0)[:, None]
    np.testing.assert_allclose(grid.tables.reshape(len(grid.tables), -1), means.T, **CLOSE)
    away = columns - C @ means
    within = away.T @ (weights[:, None] * away)
    if chunk.within is not None:
        within = within + chunk.within
    np.testing.assert_allclose(grid.within, within, **CLOSE)
    gram = within + means.T @ (counts[:, None] * means)
    np.testing.assert_allclose(grid.gram, gram, **CLOSE)
    np.testing.assert_allclose(grid.XX, gram[1:, 1:], **CLOSE)
    np.testing.assert_allclose(grid.Xy, gram[1:, 0], **CLOSE)
    assert grid.yy == pytest.approx(gram[0, 0], rel=1e-12)


def check_terms(grid, chunk, rng):
    """Compare sums over groups, and values of groups in cells."""
    Z = [np.eye(q)[c] for c, q in zip(chunk.codes, chunk.sizes, strict=True)]
    n_levels, n_cells = grid.counts.shape
    C = np.zeros((len(Z[0]), n_levels * n_cells))
    C[np.arange(len(C)), grid.place] = 1.0
    z = rng.normal(size=(2, n_levels, n_cells)) * grid.filled
    inside = (C > 0.0).T.astype(float)
    for t, own in enumerate(Z):
        cell_in_group = (inside @ own) > 0.0
        sums = grid.of_groups(grid.group_sums(z, t), t)
        np.testing.assert_allclose(sums, z.reshape(2, -1) @ cell_in_group, **CLOSE)
        effects = rng.normal(size=(2, chunk.sizes[t]))
        table = np.zeros((2, grid.n_nodes[grid.terms[t].depth], grid.terms[t].size))
        table.reshape(2, -1)[:, grid.terms[t].places] = effects
        found = grid.in_cells(table, t)
        np.testing.assert_allclose(found.reshape(2, -1), effects @ cell_in_group.T, **CLOSE)
        term = grid.terms[t]
        np.testing.assert_array_equal(term.indicator, np.eye(term.size)[term.codes])
        np.testing.assert_array_equal(term.alike, term.indicator @ term.indicator.T)


@settings(deadline=None, max_examples=examples(40))
@given(
    st.integers(0, 10**6),
    st.sampled_from([0.0, 0.4, 1.0]),
    st.integers(1, 2),
    st.sets(st.sampled_from(TERMS), min_size=1, max_size=5),
    st.sampled_from(["", "x + ", "0 + "]),
)
def test_sums_of_any_rows(seed, kept, times, terms, fixed):
    frame, rng = rows_of(seed, kept, times)
    formula = f"y ~ {fixed}" + " + ".join(f"(1|{t})" for t in sorted(terms))
    try:
        chunk = vcomp.VarianceComponentsModel(formula, frame).statistics.rows
    except vcomp.VcompError:
        return  # too few rows, or a term that is the residual
    grid = find_level_grid(chunk)
    check(grid, chunk)
    check_terms(grid, chunk, rng)
    again = chunk.with_response(rng.normal(size=len(frame)))
    check(grid.with_response(again), again)
    other = rng.normal(size=(1 + chunk.n_fixed, 3))
    found = grid.recombined(other)
    assert found.n_fixed == 2
    np.testing.assert_allclose(found.gram, other.T @ grid.gram @ other, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.within, other.T @ grid.within @ other, rtol=1e-9, atol=1e-9)
    # Rows that stand for parts of scores, and for squares within them.
    counts = rng.choice([0.5, 1.5], len(frame))
    counts[0] += np.ceil(counts.sum()) - counts.sum()
    half = rng.normal(size=(1 + chunk.n_fixed,) * 2)
    for within in (None, half @ half.T):
        weighted = replace(chunk, counts=counts, within=within)
        check(find_level_grid(weighted), weighted)


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=9), st.sampled_from([0, 1, -2]))
def test_nodes_are_added_up(parents, axis):
    parents = np.unique(parents, return_inverse=True)[1]
    values = np.random.default_rng(len(parents)).normal(size=(parents.size,) * 3)
    indicator = np.eye(parents.max() + 1)[parents]
    expected = np.moveaxis(np.tensordot(indicator.T, np.moveaxis(values, axis, 0), 1), 0, axis)
    np.testing.assert_allclose(added_up(values, parents, axis), expected, **CLOSE)


@pytest.mark.parametrize(
    ("n", "cells", "is_found"),
    [(150_000, 1024, True), (120_000, 1024, False), (1_060_000, 2049, False)],
)
def test_a_level_has_at_most_2048_cells_and_many_are_filled(n, cells, is_found):
    """Of 1,024 cells an eighth, of 2,048 a quarter."""
    places = np.arange(n)
    frame = pd.DataFrame({"a": places % (cells + 7), "b": places % cells})
    frame["y"] = np.random.default_rng(1).normal(size=n)
    chunk = vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b)", frame).statistics.rows
    assert (find_level_grid(chunk) is not None) == is_found


def test_facets_that_contain_each_other_are_depths_and_no_cells():
    """Items within topics within fields; of two persons each has a cell."""
    places = np.arange(240)
    frame = pd.DataFrame({"g": places % 60 // 20, "t": places % 60 // 5, "i": places % 60})
    frame["p"] = places // 60 % 2
    frame["y"] = np.random.default_rng(2).normal(size=240)
    chunk = vcomp.VarianceComponentsModel(
        "y ~ (1|g) + (1|p) + (1|t) + (1|i)", frame
    ).statistics.rows
    grid = find_level_grid(chunk)
    assert (grid.n_nodes, grid.n_cells) == ((60, 12, 3, 1), 2)
    assert [term.depth for term in grid.terms] == [2, 3, 1, 0]
    np.testing.assert_array_equal(grid.parents[1], np.arange(12) // 4)
    check(grid, chunk)
    check_terms(grid, chunk, np.random.default_rng(3))


@pytest.mark.parametrize(("cells", "is_found"), [(51, True), (52, False)])
def test_a_fiftieth_of_the_cells_is_filled(cells, is_found):
    places = np.arange(200)
    frame = pd.DataFrame({"a": places % 100, "b": places % cells})
    frame["y"] = np.random.default_rng(1).normal(size=200)
    chunk = vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b)", frame).statistics.rows
    # The first 102 rows have all levels of a, two of them twice: 102 of 100 × 51 cells.
    few = replace(
        chunk,
        response=chunk.response[:102],
        columns=chunk.columns[:102],
        compact_codes=tuple(codes[:102] for codes in chunk.compact_codes),
    )
    assert (find_level_grid(few) is not None) == is_found


def test_the_tables_fit_into_half_of_the_memory():
    frame, _ = rows_of(3, 0.7, 1)
    chunk = vcomp.VarianceComponentsModel("y ~ x + (1|i) + (1|m)", frame).statistics.rows
    grid = find_level_grid(chunk)
    # Four tables for each of y, the mean and x, and three for each term.
    needed = 8.0 * grid.counts.size * (4 * 3 + 3 * 2)
    assert find_level_grid(chunk, free_bytes=lambda: 2.0 * needed) is not None
    assert find_level_grid(chunk, free_bytes=lambda: 2.0 * needed - 1.0) is None


def test_without_random_terms_there_are_no_levels():
    frame, _ = rows_of(3, 0.7, 1)
    chunk = vcomp.VarianceComponentsModel("y ~ x + (1|i)", frame).statistics.rows
    assert find_level_grid(replace(chunk, terms=())) is None
