"""Products with sparse tables against dense matrices: empty rows and tables of ones."""

import numpy as np
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
def tables(draw, square=False):
    """Return a dense matrix with its sparse parts, and a row to cut it at."""
    rows = draw(st.integers(0, 6))
    cols = rows if square else draw(st.integers(0, 5))
    ones = draw(st.booleans())
    dense = draw(arrays.arrays(float, (rows, cols), elements=counts))
    if ones:
        dense = (dense > 0.0).astype(float)
    if square:
        dense = np.triu(dense, 1)
    return dense, sparse(dense, ones=ones), draw(st.integers(0, rows))


def columns(data, rows, width):
    return data.draw(arrays.arrays(float, (rows, width), elements=numbers))


def by_parts(kernel, arguments, out, cut, rows):
    """Call a kernel on two blocks of rows."""
    kernel(*arguments, out, 0, cut)
    kernel(*arguments, out, cut, rows)
    return out


@settings(deadline=None)
@given(tables(), st.integers(0, 3), st.data())
def test_gather_and_scatter(table, width, data):
    B, parts, cut = table
    x, w = columns(data, B.shape[1], width), columns(data, B.shape[0], width)
    out = np.full((B.shape[0], width), 7.0)
    kernels.gather(*parts, x, out[:cut], 0, cut)
    kernels.gather(*parts, x, out[cut:], cut, len(B))
    np.testing.assert_allclose(out, B @ x, atol=1e-9)
    out = by_parts(kernels.scatter, (*parts, w), np.ones((B.shape[1], width)), cut, len(B))
    np.testing.assert_allclose(out, 1.0 + B.T @ w, atol=1e-9)


@settings(deadline=None)
@given(tables(), st.integers(0, 3), st.data())
def test_elimination(table, width, data):
    B, parts, cut = table
    inverse = columns(data, B.shape[0], 1)[:, 0]
    x, z = columns(data, B.shape[1], width), columns(data, B.shape[1], width)
    product = B.T @ np.diag(inverse) @ B @ x
    out = np.zeros((B.shape[1], width))
    by_parts(kernels.add_eliminated, (*parts, inverse, x), out, cut, len(B))
    np.testing.assert_allclose(out, product, rtol=1e-11, atol=1e-6)
    forms = by_parts(kernels.row_forms, (*parts, inverse, x, z), np.zeros((1, width)), cut, len(B))
    np.testing.assert_allclose(forms[0], np.sum(z * product, axis=0), rtol=1e-11, atol=1e-3)


@settings(deadline=None)
@given(tables(), st.integers(0, 3), st.data())
def test_diagonals_of_squares(table, width, data):
    B, parts, cut = table
    scales = columns(data, B.shape[0], width)
    out = by_parts(
        kernels.add_squares, (*parts, scales), np.zeros((B.shape[1], width)), cut, len(B)
    )
    np.testing.assert_allclose(out, (B**2).T @ scales, atol=1e-8)


@settings(deadline=None)
@given(tables(square=True), st.integers(0, 3), st.data())
def test_symmetric_product(table, width, data):
    U, parts, cut = table
    x = columns(data, len(U), width)
    out = by_parts(kernels.symmetric_product, (*parts, x), np.zeros_like(x), cut, len(U))
    np.testing.assert_allclose(out, (U + U.T) @ x, atol=1e-9)


@settings(deadline=None)
@given(tables())
def test_transpose(table):
    B, (indptr, indices, weights), _ = table
    turned = SparseTable(indptr, indices, weights, B.shape[1]).transposed()
    expected = sparse(B.T, ones=weights.size == 0)
    for mine, theirs in zip(
        (turned.indptr, turned.indices, turned.weights), expected, strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)
        assert mine.dtype == theirs.dtype


@settings(deadline=None)
@given(st.integers(0, 4), st.integers(0, 3), st.integers(0, 6), st.data())
def test_products_of_sets_of_columns(m, width, rows, data):
    sets = np.stack(
        [columns(data, rows + 2, width) for _ in range(m)] or [np.zeros((rows + 2, 0))]
    )
    out = np.ones((len(sets), len(sets), sets.shape[2]))
    kernels.add_products(sets, rows, out)
    expected = np.einsum("aic,bic->abc", sets[:, :rows], sets[:, :rows])
    lower = np.tril_indices(len(sets))
    np.testing.assert_allclose(out[lower], 1.0 + expected[lower], rtol=1e-12, atol=1e-9)
