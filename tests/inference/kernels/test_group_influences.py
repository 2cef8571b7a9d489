"""Influences of groups."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vcomp.inference.intervals.level_passes import (
    _write_constants,
    _write_slopes,
    write_pulls,
)
from vcomp.inference.kernels.group_influences import write_constants, write_slopes


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
