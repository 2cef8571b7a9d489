"""Each kernel against its twin in numpy: any sizes, empty rows, levels and columns included."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.helpers import kernel_twins as reference
from vcomp.numerics.kernels import weighted_gram
from vcomp.numerics.kernels.codes import (
    ONCE,
    add_group_sums,
    centre_groups,
    group_sums,
    pair_counts,
)
from vcomp.numerics.kernels.ldl import mirror_lower

numbers = st.floats(-1e3, 1e3).map(lambda v: round(v, 3))


@st.composite
def codes(draw, n=None, max_levels=6):
    """Return codes and a number of levels, of which some may not occur."""
    n_levels = draw(st.integers(1, max_levels))
    n = draw(st.integers(0, 20)) if n is None else n
    values = draw(st.lists(st.integers(0, n_levels - 1), min_size=n, max_size=n))
    return np.array(values, dtype=np.int32), n_levels


def matrices(rows, cols):
    return arrays.arrays(float, (rows, cols), elements=numbers)


@st.composite
def sparse_matrices(draw):
    """Return a dense matrix with zeros, whole rows of them among others."""
    shape = draw(st.tuples(st.integers(0, 6), st.integers(0, 5)))
    values = draw(arrays.arrays(float, shape, elements=st.one_of(st.just(0.0), numbers)))
    return values


@settings(deadline=None)
@given(codes(), st.integers(0, 3), st.data())
def test_group_sums(coded, n_columns, data):
    groups, n_levels = coded
    values = data.draw(matrices(groups.size, n_columns))
    sums = group_sums(groups, values, n_levels)
    assert sums.shape == (n_levels, n_columns)
    np.testing.assert_allclose(sums, reference.group_sums(groups, values, n_levels), atol=1e-9)


@settings(deadline=None)
@given(codes(), st.integers(0, 3), st.data())
def test_sums_of_blocks_of_rows_and_rows_less_their_means(coded, n_columns, data):
    groups, n_levels = coded
    values = data.draw(matrices(groups.size, n_columns))
    sums = np.full((n_levels, n_columns), 3.0)
    add_group_sums(groups, values, sums)
    expected = reference.group_sums(groups, values, n_levels)
    np.testing.assert_allclose(sums, 3.0 + expected, atol=1e-9)
    centred = values.copy()
    centre_groups(groups, sums, centred)
    np.testing.assert_array_equal(centred, values - sums[groups])


@settings(deadline=None)
@given(codes(), st.data())
def test_pair_counts(coded, data):
    rows, n_rows = coded
    cols, n_cols = data.draw(codes(n=rows.size))
    indptr, indices, counts = pair_counts(rows, cols, n_rows, n_cols, ONCE)
    expected = reference.pair_counts(rows, cols, n_rows, n_cols)
    np.testing.assert_array_equal(reference.dense(indptr, indices, counts, n_cols), expected)
    # No zero is stored, and columns are sorted within rows: each pair stands once.
    assert counts.size == indices.size == np.count_nonzero(expected)
    for row in range(n_rows):
        within = indices[indptr[row] : indptr[row + 1]]
        assert (np.diff(within) > 0).all()
    # Squares of counts are exact in one byte below 16, in four to 4,096.
    most = counts.max(initial=0)
    in_bytes = np.uint8 if most < 16 else np.float32 if most <= 4096 else np.float64
    assert (indptr.dtype, indices.dtype, counts.dtype) == (np.int64, np.int32, in_bytes)


@settings(deadline=None)
@given(sparse_matrices(), st.data())
def test_weighted_gram(B, data):
    weights = data.draw(arrays.arrays(float, len(B), elements=numbers))
    gram = weighted_gram(*reference.sparse(B), weights, B.shape[1])
    assert gram.shape == (B.shape[1], B.shape[1])
    np.testing.assert_allclose(gram, reference.weighted_gram(B, weights), rtol=1e-9, atol=1e-3)
    np.testing.assert_array_equal(gram, gram.T)


@pytest.mark.parametrize("n", [0, 1, 2, 127, 128, 129, 300])
def test_the_lower_triangle_is_mirrored_by_tiles(n):
    matrix = np.random.default_rng(n).normal(size=(n, n))
    lower = np.tril(matrix)
    mirror_lower(matrix)
    np.testing.assert_array_equal(matrix, lower + np.tril(lower, -1).T)
