"""Counts and numbers of codes: as numpy and loops have them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcomp.kernels.codes import add_places, count_levels


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
