"""Splits of tables along axes against projections written as matrices."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from vcomp.statistics.axis_splits import (
    Blocks,
    group_means,
    split_axes,
    split_means,
    squares_within,
)
from vcomp.statistics.strata import Cells

CLOSE = {"rtol": 1e-11, "atol": 1e-11}


def subsets(n):
    return [c for r in range(n + 1) for c in combinations(range(n), r)]


def projection(shape, contrasts):
    """Return the matrix onto the contrasts of some axes in the means of the others."""
    found = np.ones((1, 1))
    for axis, size in enumerate(shape):
        mean = np.full((size, size), 1.0 / size)
        found = np.kron(found, np.eye(size) - mean if axis in contrasts else mean)
    return found


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (3, 1, 2), (2, 3, 2, 2)])
def test_parts_have_the_products_of_their_projections(shape):
    table = np.random.default_rng(1).normal(size=(int(np.prod(shape, dtype=int)), 4))
    parts = split_axes(table.copy(), shape)
    assert set(parts) == set(subsets(len(shape)))
    for contrasts, part in parts.items():
        P = projection(shape, contrasts)
        assert part.shape == (np.prod([shape[a] for a in contrasts], dtype=int), 4)
        np.testing.assert_allclose(part.T @ part, table.T @ P @ table, **CLOSE)
        # The contrasts of a column of a row alone: what is left of it along the other axes.
        whole = (P @ table).reshape(*shape, 4) * np.sqrt(
            np.prod([n for a, n in enumerate(shape) if a not in contrasts])
        )
        here = tuple(slice(None) if a in contrasts else 0 for a in range(len(shape)))
        np.testing.assert_allclose(part, whole[here].reshape(part.shape), **CLOSE)
    two = split_means([table, 2.0 * table], shape)
    for contrasts, part in parts.items():
        np.testing.assert_allclose(two[contrasts][:, 0], part.T, **CLOSE)
        np.testing.assert_allclose(two[contrasts][:, 1], 2.0 * part.T, **CLOSE)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=9),
    st.sampled_from(["any", "sorted", "single"]),
    st.booleans(),
    st.sampled_from([0.0, 1.0, 2.0]),
    st.integers(0, 10**6),
)
@example([0, 1, 0, 1, 1], "any", False, 2.0, 1)
def test_means_in_groups_of_cells(groups, kind, constant, equal, seed):
    rng = np.random.default_rng(seed)
    groups = np.unique(groups, return_inverse=True)[1].astype(np.int32)
    if kind == "sorted":
        groups = np.sort(groups)
    if kind == "single":
        groups = np.arange(groups.size, dtype=np.int32)
    M = groups.size
    n = np.full(M, equal) if equal else rng.integers(1, 4, M).astype(float)
    table = rng.normal(size=(3, 1 if constant else M))
    Z = np.eye(groups.max() + 1)[groups]
    whole = np.broadcast_to(table, (3, M))
    expected = ((whole * n) @ Z) / (n @ Z)
    np.testing.assert_allclose(group_means(table, n, groups), expected, **CLOSE)


@settings(deadline=None, max_examples=examples(60))
@given(
    st.sampled_from([(), (3,), (2, 3)]),
    st.integers(1, 3),
    st.integers(1, 7),
    st.sampled_from([0.0, 1.0, 2.0]),
    st.sampled_from([1, 7, 12, 10**6]),
    st.integers(0, 10**6),
)
def test_squares_about_centres_in_blocks_of_any_size(shape, b, M, equal, values, seed):
    """Columns may be constant in all cells; one that varies is summed by a kernel."""
    rng = np.random.default_rng(seed)
    R = int(np.prod(shape, dtype=int))
    q = int(rng.integers(1, M + 1))
    inner = np.sort(rng.permutation(np.arange(M) % q)).astype(np.int32)
    n = np.full(M, equal) if equal else rng.integers(1, 4, M).astype(float)
    tables, centres = [], []
    for _ in range(b):
        is_constant = rng.random() < 0.4
        table = rng.normal(size=(R, 1 if is_constant else M))
        own = is_constant and rng.random() < 0.5
        tables.append(table)
        centres.append(np.repeat(table, q, axis=1) if own else rng.normal(size=(R, q)))
    cells = Cells(shape, n, tuple(tables), np.zeros((b, b)))
    strata = subsets(len(shape))
    away = [np.broadcast_to(t, (R, M)) - c[:, inner] for t, c in zip(tables, centres, strict=True)]
    expected = [
        [[np.sum((projection(shape, s) @ x) * y * n) for y in away] for x in away] for s in strata
    ]
    for threads in (1, 2):
        blocks = Blocks(values=values, of_one_column=values, threads=threads)
        found = squares_within(cells, centres, inner, strata, blocks)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
