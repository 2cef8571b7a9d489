"""Numbers of groups behind influences, and sums of influences over groups of levels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vcomp.inference.intervals.kernels import add_level_sums, write_constants, write_slopes
from vcomp.inference.intervals.level_passes import (
    _add_few,
    _write_constants,
    _write_slopes,
    write_pulls,
)


@pytest.mark.parametrize("has_finer", [False, True])
def test_groups_without_rows_have_nothing(has_finer):
    finer = np.ones(3) if has_finer else None
    pulls = np.full((3, 4), np.nan)
    write_pulls(pulls, np.zeros(3), np.ones(3), np.ones(3), None, finer, finer, 0.2, 0.7)
    np.testing.assert_array_equal(pulls[:, 1:], 0.0)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 300),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.3, 0.0]),
)
@example(seed=1, q=1, has_variances=True, has_finer=True, scale=0.3)
@settings(deadline=None)
def test_arrays_prepare_groups_as_the_kernels_do(seed, q, has_variances, has_finer, scale):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, q).astype(float)
    u, effects, left = rng.normal(size=(3, q))
    variances = rng.uniform(0.0, 0.3, q) if has_variances else np.zeros(0)
    within = rng.uniform(0.0, 2.0, q) if has_finer else np.zeros(0)
    left = left if has_finer else np.zeros(0)
    found = []
    for write, finish in ((_write_slopes, _write_constants), (write_slopes, write_constants)):
        pulls = np.full((q, 4), np.nan)
        sums = write(pulls, counts, u, effects, variances, within, 0.2, 0.7)
        share = pulls[:, 3].copy()
        finish(pulls, counts, u, left, 0.2, 0.7, scale)
        # Where squares say nothing there is no share of an expectation.
        np.testing.assert_array_equal(pulls[:, 3], 0.2 * share if scale else 0.0)
        found.append((pulls, sums))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12, atol=1e-12)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-12)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 3),
    st.integers(1, 3),
    st.integers(0, 600),
    st.integers(0, 3),
)
@settings(deadline=None)
def test_arrays_do_what_the_kernel_does(seed, k, m, n, n_sorted):
    """Blocks of few rows are summed by arrays, others by the kernel: the same sums.

    In rows that are sorted by a facet the kernel has blocks with one level of it.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, 3)
    codes = rng.integers(0, sizes[:, None], (3, n)).astype(np.int32)
    codes[:n_sorted].sort(axis=1)
    check(rng, k, m, sizes, codes)


@pytest.mark.parametrize("change", [1, 100, 255, 256, 257, 300, 511, 512])
def test_a_block_may_begin_as_the_one_before_it_ended(change):
    """Blocks have 256 rows; the level of one facet changes at a row."""
    codes = np.zeros((3, 600), dtype=np.int32)
    codes[1, change:] = 1
    check(np.random.default_rng(change), 3, 2, np.array([2, 2, 2]), codes)


def check(rng, k, m, sizes, codes):
    """Compare the sums by arrays and by the kernel for random terms, sets and weights."""
    n, groups = codes.shape[1], int(sizes.prod())
    by_level = np.array([sizes[1] * sizes[2], sizes[2], 1])
    steps = by_level * rng.integers(0, 2, (k, 3))
    set_steps = by_level * rng.integers(0, 2, (m, 3))
    known = (
        rng.normal(size=n), codes, steps, groups * np.arange(k), rng.normal(size=(groups * k, 4)),
        np.triu(rng.integers(0, 2, (k, k)), 1).astype(float), rng.normal(size=2), set_steps,
        groups * np.arange(m),
    )  # fmt: skip
    for weights in (np.zeros(0), 3.0 * rng.random(n)):
        found = []
        for add in (_add_few, add_level_sums):
            sums, products = np.ones((groups * m, k + 2)), np.ones((k + 3, k + 2))
            add(*known, sums, products, weights)
            found.append((sums, np.tril(products[:-1]), products[-1]))
        for by_arrays, by_kernel in zip(*found, strict=True):
            np.testing.assert_allclose(by_arrays, by_kernel, rtol=1e-11, atol=1e-11)
