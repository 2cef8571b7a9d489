"""Counts and numbers of codes: as numpy and loops have them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcomp.kernels.codes import count_levels, look_up


@settings(deadline=None)  # the first call compiles
@given(codes=st.lists(st.integers(0, 6), max_size=11), dtype=st.sampled_from(["int8", "int32"]))
def test_rows_of_every_level(codes, dtype):
    found = count_levels(np.array(codes, dtype=dtype), 7)
    assert found.tolist() == [codes.count(level) for level in range(7)]


@pytest.mark.parametrize("dtype", ["int8", "int64"])
def test_values_outside_of_a_table_have_no_number(dtype):
    values = np.array([-3, -2, 0, 1, 2, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype=dtype)
    found = look_up(values, np.int64(-2), np.array([7, -1, 4, 9], dtype=np.int32))
    assert found.tolist() == [-1, 7, 4, 9, -1, -1, -1]
