"""Counts and numbers of codes: as numpy and loops have them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcomp.numerics.kernels.codes import add_places, count_levels, count_values


@settings(deadline=None)  # the first call compiles
@given(codes=st.lists(st.integers(0, 6), max_size=11), dtype=st.sampled_from(["int8", "int32"]))
def test_rows_of_every_level(codes, dtype):
    found = count_levels(np.array(codes, dtype=dtype), 7)
    assert found.tolist() == [codes.count(level) for level in range(7)]


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
    codes = np.array([0, n_levels - 1, 5, 5, n_levels - 1, 5, 5], dtype=np.int32)
    expected = np.bincount(codes, minlength=n_levels)
    np.testing.assert_array_equal(count_levels(codes, n_levels), expected)
    found, counts = count_values(codes + np.int32(7), np.int64(7), n_levels)
    np.testing.assert_array_equal(found, codes)
    np.testing.assert_array_equal(counts, expected)
