"""Products with sparse tables against dense matrices: empty rows and tables of ones."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from vcomp.numerics.kernels import sparse_products as kernels
from vcomp.numerics.sparse import SparseTable

numbers = st.floats(-1e3, 1e3).map(lambda v: round(v, 3))
counts = st.sampled_from([0.0, 0.0, 1.0, 2.0, 5.0])


def sparse(dense, *, ones):
    """Return the parts of a table; a table of ones has no weights."""
    rows, cols = np.nonzero(dense)
    indptr = np.searchsorted(rows, np.arange(dense.shape[0] + 1)).astype(np.int64)
    weights = np.zeros(0) if ones else np.ascontiguousarray(dense[rows, cols])
    return indptr, cols.astype(np.int32), weights


@st.composite
def tables(draw):
    """Return a dense matrix with its sparse parts."""
    rows, cols = draw(st.integers(0, 6)), draw(st.integers(0, 5))
    ones = draw(st.booleans())
    dense = draw(arrays.arrays(float, (rows, cols), elements=counts))
    if ones:
        dense = (dense > 0.0).astype(float)
    return dense, sparse(dense, ones=ones)


def columns(data, rows, width):
    return data.draw(arrays.arrays(float, (rows, width), elements=numbers))


@settings(deadline=None)
@given(tables(), st.integers(0, 9), st.data())
def test_products(table, width, data):
    B, parts = table
    x = columns(data, B.shape[1], width)
    found = SparseTable(*parts, B.shape[1]).times(x)
    np.testing.assert_allclose(found, B @ x, atol=1e-9)


@settings(deadline=None)
@given(tables(), st.integers(0, 3), st.data())
def test_gather_squares(table, width, data):
    """Entries of one place count together."""
    B, (indptr, indices, weights) = table
    x, out = columns(data, B.shape[1], width), np.full((B.shape[0], width), 7.0)
    kernels.gather_squares(indptr, indices, weights, x, out)
    np.testing.assert_allclose(out, B**2 @ x, atol=1e-9)
    twice = np.repeat(indices, 2), np.repeat(weights, 2)
    kernels.gather_squares(2 * indptr, *twice, x, out)
    np.testing.assert_allclose(out, 4.0 * B**2 @ x, atol=1e-9)


@pytest.mark.parametrize("ones", [True, False])
def test_rows_are_added(ones):
    """Entries of a row may have any order, and a row none."""
    rng, n_rows, n_cols = np.random.default_rng(3), 5, 40
    indptr = np.array([0, 4, 4, 9, 20, 30])
    indices = rng.integers(0, n_cols, 30).astype(np.int32)
    weights = np.zeros(0) if ones else rng.integers(1, 4, 30).astype(float)
    x, out = rng.normal(size=(n_cols, kernels.WIDTH)), np.ones((n_rows, kernels.WIDTH))
    kernels.add_rows(indptr, indices, weights, x, out)
    by_entry = x[indices] * (1.0 if ones else weights[:, None])
    expected = [1.0 + by_entry[a:b].sum(axis=0) for a, b in pairwise(indptr)]
    np.testing.assert_allclose(out, expected, rtol=1e-13)


@settings(deadline=None)
@given(tables())
def test_transpose(table):
    B, (indptr, indices, weights) = table
    turned = SparseTable(indptr, indices, weights, B.shape[1]).transposed()
    expected = sparse(B.T, ones=weights.size == 0)
    for mine, theirs in zip(
        (turned.indptr, turned.indices, turned.weights), expected, strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)
        assert mine.dtype == theirs.dtype
