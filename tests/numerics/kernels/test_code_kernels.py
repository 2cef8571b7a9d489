"""Counts and numbers of codes: as numpy and loops have them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcomp.numerics.kernels import codes
from vcomp.numerics.kernels.codes import (
    FEW_ROWS,
    ONCE,
    add_places,
    count_levels,
    count_values,
    pair_counts,
)
from vcomp.numerics.sparse import SparseTable


@settings(deadline=None)  # the first call compiles
@given(rows=st.lists(st.integers(0, 6), max_size=11), dtype=st.sampled_from(["int8", "int32"]))
def test_rows_of_every_level(rows, dtype):
    found = count_levels(np.array(rows, dtype=dtype), 7)
    assert found.tolist() == [rows.count(level) for level in range(7)]


@pytest.mark.parametrize("dtype", ["int8", "int64"])
def test_values_outside_of_a_table_have_no_place(dtype):
    table = np.array([70, -1, 40, 90])
    values = np.array([-2, 1, 0, -2], dtype=dtype)
    places = np.array([1, 2, 3, 4])
    assert add_places(places, values, np.int64(-2), table)
    assert places.tolist() == [71, 92, 43, 74]
    for wrong in (-3, -1, 2, np.iinfo(dtype).max, np.iinfo(dtype).min):
        values[2] = wrong
        assert not add_places(places, values, np.int64(-2), table)


@pytest.mark.parametrize("n_levels", [65_536, 65_537])
def test_few_and_many_levels_are_counted_alike(n_levels):
    rows = np.array([0, n_levels - 1, 5, 5, n_levels - 1, 5, 5], dtype=np.int32)
    expected = np.bincount(rows, minlength=n_levels)
    np.testing.assert_array_equal(count_levels(rows, n_levels), expected)
    found, counts = count_values(rows + np.int32(7), np.int64(7), n_levels)
    np.testing.assert_array_equal(found, rows)
    np.testing.assert_array_equal(counts, expected)


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=4), st.integers(0, 7), st.integers(0, 1000)
)
def test_levels_that_occur_together_are_in_one_set(sizes, n, seed):
    """Few pairs and many: what others can be reached, by powers of the table of neighbours."""
    rng, tables, offset = np.random.default_rng(seed), [], sizes[0]
    near = np.eye(sum(sizes), dtype=bool)
    for size in sizes[1:]:
        rows, cols = (rng.integers(0, q, n).astype(np.int32) for q in (sizes[0], size))
        near[rows, offset + cols] = near[offset + cols, rows] = True
        tables.append((*pair_counts(rows, cols, sizes[0], size, ONCE)[:2], offset))
        offset += size
    first = np.argmax(np.linalg.matrix_power(near.astype(float), len(near)) > 0.0, axis=1)
    different, expected = np.unique(first, return_inverse=True)
    for found in (codes._few_connected_sets, codes._many_connected_sets):
        n_sets, of_each = found(tables, len(near))
        assert n_sets == different.size
        assert of_each.tolist() == expected.tolist()


@pytest.mark.parametrize("most", [1, 15, 16, 4096, 4097])
def test_numbers_of_rows_have_exact_squares_in_few_bytes(most):
    """A pair of levels that occurs `most` times, among many that occur once."""
    n = FEW_ROWS + 1
    rows = np.append(np.arange(n, dtype=np.int32), np.zeros(most - 1, np.int32))
    indptr, indices, counts = pair_counts(rows, np.zeros_like(rows), n, 1, ONCE)
    assert counts.tolist() == [most, *[1] * (n - 1)]
    table = SparseTable.of(indptr, indices, counts, 1)
    one = np.ones((1, 1))
    assert table.times(one)[:2, 0].tolist() == [most, 1]
    assert table.squared_times(one)[:2, 0].tolist() == [most**2, 1]
    other = np.array([[2.0], *[[1.0]] * (n - 1)])
    assert table.transposed().squared_times(other).item() == 2 * most**2 + n - 1
