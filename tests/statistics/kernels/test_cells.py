"""Rows in cells against sums over the rows of each cell: any parts, any number of columns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcomp.statistics.kernels import add_to_cells, count_repeats, insert_cells, merge_cells


def nothing(b, M, powers, dtype=np.int64):
    """Return counts, means, products within cells and powers of no rows."""
    return (
        np.zeros(M, dtype),
        np.zeros((b, M)),
        np.zeros((b, b)),
        np.zeros((3, M if powers else 0)),
    )


def by_rows(places, values, M, powers):
    """Return the same over all rows, with the deviations from the means of their cells."""
    Z = np.eye(M)[places]
    counts = Z.sum(axis=0)
    means = (values @ Z) / np.maximum(counts, 1.0)
    away = values - means[:, places]
    of_first = np.array([away[0] ** p @ Z for p in (2, 3, 4)]) if powers else np.zeros((3, 0))
    return counts, means, away @ away.T, of_first


def check(found, expected):
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-12, atol=1e-12)
    lower = np.tril_indices(len(found[2]))  # the upper triangle is not filled
    np.testing.assert_allclose(found[2][lower], expected[2][lower], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found[3], expected[3], rtol=1e-9, atol=1e-9)


@settings(deadline=None)
@given(
    st.sampled_from([0, 1, 2, 9, 40, 255, 256, 257, 600]),
    st.integers(1, 3),
    st.integers(1, 5),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_rows_one_after_the_other_and_parts_merged(n, b, M, powers, seed):
    rng = np.random.default_rng(seed)
    places = rng.integers(0, M, n)
    values = rng.normal(size=(b, n)) + 3.0 * rng.normal(size=M)[places]
    expected = by_rows(places, values, M, powers)
    one = nothing(b, M, powers)
    assert add_to_cells(places, values, 0, *one) == n
    check(one, expected)
    # From any row on, added to what is there.
    cut = int(rng.integers(0, n + 1))
    again = nothing(b, M, powers)
    add_to_cells(places[:cut], values[:, :cut].copy(), 0, *again)
    add_to_cells(places, values, cut, *again)
    check(again, expected)
    # Cells of other rows, some of them empty, in any order.
    rest = nothing(b, M, powers)
    add_to_cells(places, values, cut, *rest)
    into = nothing(b, M, powers)
    add_to_cells(places[:cut], values[:, :cut].copy(), 0, *into)
    order = rng.permutation(M)
    merge_cells(
        order,
        rest[0][order],
        rest[1][:, order].copy(),
        rest[3][:, order if powers else []].copy(),
        *into,
    )
    into[2][:] += rest[2]
    check(into, expected)


@pytest.mark.parametrize("b", [1, 2])
@pytest.mark.parametrize("powers", [True, False])
def test_counts_that_are_full_stop_at_their_row(b, powers):
    """An int8 says up to 127 rows: the next one has to wait for larger numbers."""
    rng = np.random.default_rng(1)
    places = np.zeros(400, dtype=np.int64)
    places[::3] = 1
    values = rng.normal(size=(b, 400))
    found = nothing(b, 2, powers, np.int8)
    row = add_to_cells(places, values, 0, *found)
    assert np.count_nonzero(places[:row] == 0) == 127
    assert places[row] == 0
    check(found, by_rows(places[:row], values[:, :row], 2, powers))
    wider = found[0].astype(np.int64), *found[1:]
    assert add_to_cells(places, values, row, *wider) == 400
    check(wider, by_rows(places, values, 2, powers))


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 9), max_size=9), st.lists(st.integers(0, 9), max_size=9),
    st.integers(1, 3),
)  # fmt: skip
def test_cells_are_inserted_in_order(mine, others, columns):
    """At one place, those that were there come first."""
    n, m = len(mine), len(others)
    at = np.array(sorted(mine) + sorted(others), dtype=np.int64)
    counts, values = np.arange(n + m), np.arange(columns * (n + m), dtype=float)
    values = values.reshape(n + m, columns)
    expected = np.argsort(at, kind="stable")
    places, numbers, rows = (
        np.concatenate([x[:n], np.full_like(x[n:], -7)]) for x in (at, counts, values)
    )
    insert_cells(places, numbers, rows, n, at[n:], counts[n:], values[n:])
    for found, whole in ((places, at), (numbers, counts), (rows, values)):
        np.testing.assert_array_equal(found, whole[expected])


def test_cells_at_one_place_are_counted():
    places, counts = np.array([2, 2, 5, 9, 9, 9]), np.array([3, 4, 1, 200, 50, 50], np.uint8)
    assert count_repeats(places, counts) == (3, 300)
    assert count_repeats(places[:0], counts[:0]) == (0, 0)
