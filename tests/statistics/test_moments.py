"""Means in cells and products within them against indicator matrices, in blocks of any size."""

import numpy as np
import pytest

from vcomp.statistics.moments import cell_moments, row_blocks


@pytest.mark.parametrize(
    ("n", "p"), [(1, 0), (7, 0), (700, 2), (131_073, 0), (33_000, 3), (16_500, 7), (700, 600)]
)
def test_moments_of_few_and_of_many_rows(n, p):
    """More than 131,072 numbers are summed by a kernel, a block of 32,768 at a time."""
    rng = np.random.default_rng(n + p)
    size = min(n, 5)
    places = rng.permutation(np.arange(n) % size)
    y, X = 1e3 + rng.normal(size=n), rng.normal(size=(n, p)) * (1.0 + places[:, None])
    counts = np.bincount(places).astype(float)
    means, within = cell_moments(places, y, X, counts)
    columns = np.column_stack([y - 1e3, X])
    sums = np.array([np.bincount(places, c, size) for c in columns.T]) / counts
    assert means.flags.c_contiguous
    np.testing.assert_allclose(means[0] - 1e3, sums[0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(means[1:], sums[1:], rtol=0, atol=1e-11)
    away = columns - sums.T[places]
    np.testing.assert_allclose(within, away.T @ away, rtol=1e-10, atol=1e-9 * np.sqrt(n))


@pytest.mark.parametrize(("p", "width"), [(0, 32_768), (3, 8192), (511, 64), (2000, 64)])
def test_blocks_fill_a_cache_and_have_64_rows_at_least(p, width):
    n = 2 * width + 1
    y = np.arange(float(n))
    X = np.broadcast_to(np.arange(float(p)), (n, p))
    found = [(rows, block.copy()) for rows, block in row_blocks(y, X)]
    assert [rows.stop - rows.start for rows, _ in found] == [width, width, 1]
    whole = np.concatenate([block for _, block in found])
    np.testing.assert_array_equal(whole[:, 0], y)
    np.testing.assert_array_equal(whole[:, 1:], X)
    assert not list(row_blocks(y[:0], X[:0]))
