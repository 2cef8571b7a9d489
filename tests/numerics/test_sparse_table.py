"""Sparse tables: products, and the same bits on any number of cores."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from vcomp.numerics.sparse.sparse_table import SparseTable, stacked


def table_of(matrix, fewest, threads=None):
    csr = csr_array(matrix)
    csr.sort_indices()
    indptr, indices = csr.indptr.astype(np.int64), csr.indices.astype(np.int32)
    table = SparseTable.of(indptr, indices, csr.data.astype(float), csr.shape[1])
    return replace(table, fewest=fewest, threads=threads)


@pytest.fixture(params=[100, 20_000], ids=["blocks", "one block"])
def fewest(request):
    """Fewest entries of a block of rows."""
    return request.param


@pytest.fixture(params=["ones", "nearly ones", "counts"])
def matrix(request):
    found = random_array((300, 12), density=0.4, rng=np.random.default_rng(2)).tocsr()
    counts = np.ceil(found.data * 5.0)
    few = np.where(np.arange(found.nnz) % 20 == 7, counts, 1.0)
    found.data[:] = {"ones": 1.0, "nearly ones": few, "counts": counts}[request.param]
    return found


@pytest.fixture(params=[3, 4, 8, 19])
def x(request):
    return np.random.default_rng(0).normal(size=(12, request.param))


@pytest.fixture
def w():
    return np.random.default_rng(1).normal(size=(300, 3))


def test_products(matrix, fewest, x, w):
    table, B = table_of(matrix, fewest), matrix.toarray()
    assert (table.weights.size == 0) == (matrix.data.mean() < 1.25)
    np.testing.assert_allclose(table.times(x), B @ x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(table.squared_times(x), B**2 @ x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(table.transposed().times(w), B.T @ w, rtol=1e-12, atol=1e-12)


def test_products_do_not_depend_on_the_number_of_cores(matrix, fewest, x):
    found = [table_of(matrix, fewest, cores).times(x) for cores in (1, 2, 3, 7)]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_blocks_are_stacked(matrix, fewest):
    B = matrix.toarray()
    columns = [B[:, :5], (B[:, 5:] > 0.0).astype(float), B[:, :0]]
    parts = [table_of(part, fewest) for part in columns]
    joined = stacked([parts])
    expected = np.hstack([B[:, :5], B[:, 5:] > 0.0])
    assert joined.shape == (300, 12)
    assert joined.fewest == fewest
    np.testing.assert_array_equal(joined.times(np.eye(12)), expected)
    below = stacked([parts, [SparseTable.empty(2, 7), table_of(B[:2, :5], fewest)]])
    np.testing.assert_array_equal(below.times(np.eye(12))[:300], expected)
    np.testing.assert_array_equal(below.times(np.eye(12))[300:, 7:], B[:2, :5])
    assert stacked([parts[:1]]) is parts[0]


def test_products_with_nothing():
    empty = SparseTable.empty(4, 0)
    assert empty.shape == (4, 0)
    np.testing.assert_array_equal(empty.times(np.zeros((0, 2))), np.zeros((4, 2)))
    assert empty.transposed().times(np.ones((4, 1))).shape == (0, 1)


@pytest.mark.parametrize(("fewest", "n_blocks"), [(1, 4), (80, 4), (81, 3), (100, 3), (320, 1)])
def test_blocks_have_about_as_many_entries(fewest, n_blocks):
    """Up to four, of 320 entries."""
    rng = np.random.default_rng(1)
    lengths = rng.permutation(np.repeat([0, 1, 2, 4], [20, 40, 60, 40]))
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    table = SparseTable(indptr, np.zeros(320, np.int32), np.zeros(0), 4, fewest)
    bounds = table._bounds
    assert len(bounds) == n_blocks
    assert [a for a, _ in bounds] == [0, *(b for _, b in bounds[:-1])]
    assert bounds[-1][1] == 160
    entries = [indptr[b] - indptr[a] for a, b in bounds]
    assert max(entries) - min(entries) <= 8
