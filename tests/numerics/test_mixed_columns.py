"""Columns of which some are sparse, against the same matrix written out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from vcomp.exceptions import EstimationError
from vcomp.numerics import MixedColumns, dense_columns

CLOSE = {"rtol": 1e-12, "atol": 1e-12}


@st.composite
def mixtures(draw):
    """Return columns in any order, some of them sparse, and the whole matrix."""
    n, p = draw(st.integers(1, 12)), draw(st.integers(0, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    is_sparse = rng.random(p) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    whole = rng.normal(3.0, 1.0, (n, p))
    # Negative numbers, too: the columns of sum codings have them.
    whole[:, is_sparse] = rng.choice([0.0, 0.0, 0.0, 1.0, -1.0, 2.0], (n, int(is_sparse.sum())))
    dense_at, sparse_at = np.flatnonzero(~is_sparse), np.flatnonzero(is_sparse)
    dense_at, sparse_at = rng.permutation(dense_at), rng.permutation(sparse_at)
    mixed = MixedColumns(whole[:, dense_at], csr_array(whole[:, sparse_at]), dense_at, sparse_at)
    return mixed, whole, rng


@settings(deadline=None)
@given(mixtures())
def test_products_rows_and_ends(drawn):
    mixed, whole, rng = drawn
    n, p = whole.shape
    assert mixed.shape == (n, p)
    np.testing.assert_array_equal(mixed.toarray(), whole)
    np.testing.assert_array_equal(dense_columns(mixed), whole)
    assert dense_columns(whole) is whole
    rows = rng.integers(0, n, 5)
    np.testing.assert_array_equal(mixed[rows].toarray(), whole[rows])
    beta, y = rng.normal(size=p), rng.normal(size=n)
    np.testing.assert_allclose(mixed @ beta, whole @ beta, **CLOSE)
    np.testing.assert_allclose(mixed.transposed_times(y), whole.T @ y, **CLOSE)
    np.testing.assert_allclose(mixed.gram(), whole.T @ whole, **CLOSE)
    np.testing.assert_allclose(mixed.mean(axis=0), whole.mean(axis=0), **CLOSE)
    if p:
        ends = whole.min(axis=0), whole.max(axis=0), whole.mean(axis=0)
        np.testing.assert_allclose(mixed.ends(), ends, **CLOSE)
    origin = rng.normal(size=p)
    origin[mixed.sparse_at] = 0.0
    np.testing.assert_allclose(mixed.minus(origin).toarray(), whole - origin, **CLOSE)


@settings(deadline=None)
@given(mixtures(), st.integers(1, 4))
def test_sums_and_products_within_groups(drawn, size):
    mixed, whole, rng = drawn
    n = len(whole)
    codes = rng.integers(0, size, n)
    Z = np.eye(size)[codes]
    np.testing.assert_allclose(mixed.group_sums(codes, size), Z.T @ whole, **CLOSE)
    sums, of_sparse = mixed.gathered(codes, size)
    np.testing.assert_allclose(sums, Z.T @ whole, **CLOSE)
    np.testing.assert_allclose(of_sparse.toarray(), sums[:, mixed.sparse_at], **CLOSE)
    kinds, codes = np.unique(codes, return_inverse=True)  # no group is empty from here on
    Z, counts = np.eye(kinds.size)[codes], np.bincount(codes).astype(float)
    y = rng.normal(size=n)
    columns = np.column_stack([y, whole])
    means, within = mixed.within(y, codes, counts)
    expected = (Z.T @ columns) / counts[:, None]
    np.testing.assert_allclose(means, expected.T, **CLOSE)
    away = columns - expected[codes]
    np.testing.assert_allclose(within, away.T @ away, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("n_groups", "n_columns"), [(400, 300), (2, 2)])
def test_squares_of_sparse_and_of_dense_sums(n_groups, n_columns):
    """Sums with few entries are multiplied as sparse matrices, others as tables."""
    rng = np.random.default_rng(5)
    n = 600
    codes = rng.permutation(np.arange(n) % n_groups)
    whole = np.eye(n_columns)[rng.permutation(np.arange(n) % n_columns)]
    at = np.arange(n_columns)
    mixed = MixedColumns(np.zeros((n, 0)), csr_array(whole), np.zeros(0, np.int64), at)
    counts, y = np.bincount(codes).astype(float), rng.normal(size=n)
    columns = np.column_stack([y, whole])
    away = columns - (np.eye(n_groups)[codes].T @ columns / counts[:, None])[codes]
    np.testing.assert_allclose(
        mixed.within(y, codes, counts)[1], away.T @ away, rtol=1e-10, atol=1e-10
    )


def test_a_dense_table_that_does_not_fit_is_refused():
    mixed = MixedColumns(np.ones((10, 1)), csr_array(np.eye(10)), np.array([0]), np.arange(1, 11))
    # 80 % of the free memory may be used: 8 bytes × 10 rows × 11 columns.
    assert mixed.toarray(lambda: 1100.0).shape == (10, 11)
    with pytest.raises(EstimationError, match="11 columns of the fixed part in 10 rows need"):
        mixed.toarray(lambda: 1099.0)


@pytest.mark.parametrize("value", [1.0, -2.0])
def test_ends_of_columns_with_one_value(value):
    """Columns of a factor: one is full, one has some rows, one has none."""
    whole = value * np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    mixed = MixedColumns(np.zeros((3, 0)), csr_array(whole), np.arange(0), np.arange(3))
    ends = whole.min(axis=0), whole.max(axis=0), whole.mean(axis=0)
    np.testing.assert_allclose(mixed.ends(), ends, **CLOSE)
