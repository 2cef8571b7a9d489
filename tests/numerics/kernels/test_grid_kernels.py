"""Kernels of codes and grids against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcomp.numerics.kernels.codes import (
    count_values,
    determined_levels,
    place_rows,
)

rows = st.tuples(st.integers(0, 10**6), st.integers(0, 30))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8])
def test_values_and_their_counts(dtype):
    ends = np.iinfo(dtype)
    for low in (ends.min, 3, ends.max - 5):
        values = np.array([low + 5, low, low + 2, low, low + 5, low], dtype=dtype)
        codes, counts = count_values(values, np.int64(values.min()), 6)
        assert codes.dtype == np.int32
        assert codes.tolist() == [5, 0, 2, 0, 5, 0]
        assert counts.tolist() == [3, 0, 1, 0, 0, 2]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_values_of_the_whole_range(dtype):
    ends = np.iinfo(dtype)
    values = np.array([ends.max, ends.min, 0], dtype=dtype)
    width = int(ends.max) - int(ends.min) + 1
    codes, counts = count_values(values, np.int64(values.min()), width)
    np.testing.assert_array_equal(codes, values.astype(int) - int(ends.min))
    expected = np.bincount(values.astype(int) - int(ends.min), minlength=width)
    np.testing.assert_array_equal(counts, expected)


@settings(deadline=None)
@given(rows, st.integers(1, 6), st.integers(1, 3))
def test_determined_levels(drawn, n_inner, n_outer):
    seed, n = drawn
    rng = np.random.default_rng(seed)
    inner = rng.integers(0, n_inner, n).astype(np.int32)
    outer = rng.integers(0, n_outer, n).astype(np.int32)
    above = {i: set(outer[inner == i].tolist()) for i in range(n_inner)}
    found = determined_levels(inner, outer, n_inner)
    if any(len(levels) > 1 for levels in above.values()):
        assert found.size == 0
        return
    # A level that does not occur has none above it.
    expected = [min(above[i], default=-1) for i in range(n_inner)]
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.int32


@settings(deadline=None)
@given(rows, st.sampled_from([np.int32, np.int64]))
def test_places(drawn, dtype):
    seed, n = drawn
    rng = np.random.default_rng(seed)
    shape = (3, 4, 5)
    codes = [rng.integers(0, q, n).astype(np.int32) for q in shape]
    places = np.zeros(n, dtype=dtype)
    for c, q in zip(codes, shape, strict=True):
        place_rows(places, c, q)
    expected = np.ravel_multi_index(codes, shape)
    np.testing.assert_array_equal(places, expected)
    assert places.dtype == dtype
