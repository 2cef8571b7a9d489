"""Agreement of rankings, many at a time, against matrices of signs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.kernel_twins import above_in_both as above_by_signs
from tests.helpers.kernel_twins import mean_share_above as share_by_signs
from tests.helpers.kernel_twins import pair_agreement as agreement_by_signs
from vcomp.ir.kernels.rank_agreement import (
    above_in_both,
    falling_order,
    mean_share_above,
    ordinal_ranks,
    pair_agreement,
    swaps,
    swaps_by_arrays,
)

# Words of bits wrap around on purpose, of which plain numpy warns where kernels are not compiled.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in scalar:RuntimeWarning")

cases = st.tuples(st.integers(0, 10**6), st.integers(1, 4), st.integers(2, 12), st.booleans())


def rankings(case):
    seed, m, k, coarse = case
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(m, k))
    means = truth + 0.7 * rng.normal(size=(m, k))
    if coarse:  # differences of tenths are equal but for rounding
        unit = rng.choice([1.0, 10.0], size=(m, 1))
        means, truth = means.round() / unit, truth.round() / unit
    tolerances = rng.choice([0.0, 0.25], size=(2, m))
    return means, truth, *tolerances


def orders(means, truth):
    return falling_order(means), falling_order(truth)


def swapped_pairs(*arguments):
    """Return the swaps by the kernel, which are those by arrays to the last bit."""
    found = swaps(*arguments)
    with np.errstate(invalid="ignore"):  # as where arrays are used
        for one, other in zip(found, swaps_by_arrays(*arguments), strict=True):
            np.testing.assert_array_equal(one, other)
    return found


@settings(deadline=None)
@given(cases)
def test_counts_of_pairs(case):
    x, y, ex, ey = rankings(case)
    expected = [agreement_by_signs(*row) for row in zip(x, y, ex, ey, strict=True)]
    assert pair_agreement(x, y, ex, ey).tolist() == np.array(expected).tolist()


@settings(deadline=None)
@given(cases)
def test_counts_of_systems_above(case):
    x, y, ex, ey = rankings(case)
    expected = [above_by_signs(*row) for row in zip(x, y, ex, ey, strict=True)]
    got = above_in_both(x, y, ex, ey).transpose(1, 0, 2)
    assert got.tolist() == np.array(expected).tolist()


@settings(deadline=None)
@given(cases)
def test_shares_of_systems_above(case):
    x, y, ex, ey = rankings(case)
    ex, ey = np.zeros_like(ex), np.zeros_like(ey)  # being tied is transitive
    expected = [share_by_signs(*row) for row in zip(x, y, ex, ey, strict=True)]
    np.testing.assert_allclose(mean_share_above(x, y, ex, ey), expected, rtol=1e-13, atol=1e-14)


@settings(deadline=None)
@given(cases)
def test_swaps_of_rankings_without_ties(case):
    x, y, ex, ey = rankings(case)
    pairs, shares = swapped_pairs(x, y, ex, ey, *orders(x, y))
    for row in range(len(x)):
        agreement, untied_x, untied_y = agreement_by_signs(x[row], y[row], ex[row], ey[row])
        k = x.shape[1]
        most = k * (k - 1) // 2
        if untied_x < most or untied_y < most:
            assert pairs[row] == -1
            assert np.isnan(shares[:, row]).all()
            continue
        assert pairs[row] == (most - agreement) / 2
        by_means = k - 1 - share_by_signs(y[row], x[row], 0.0, 0.0)
        by_truth = k - 1 - share_by_signs(x[row], y[row], 0.0, 0.0)
        np.testing.assert_allclose(shares[:, row], [by_means, by_truth], rtol=0, atol=1e-13)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_has_no_swaps(wrong):
    x, y = np.array([[wrong, 1.0, 2.0]]), np.array([[3.0, 1.0, 2.0]])
    tolerance = 1e-12 * np.abs(x).max(axis=1)
    for one, other in ((x, y), (y, x)):
        pairs, shares = swapped_pairs(one, other, tolerance, tolerance, *orders(one, other))
        assert pairs.tolist() == [-1]
        assert np.isnan(shares).all()


def test_one_system_has_no_swaps():
    one, tolerance = np.ones((2, 1)), np.zeros(2)
    pairs, shares = swapped_pairs(one, one, tolerance, tolerance, *orders(one, one))
    assert pairs.tolist() == [-1, -1]
    assert np.isnan(shares).all()


@settings(deadline=None)
@given(cases)
def test_ordinal_ranks(case):
    x, *_ = rankings(case)
    got = ordinal_ranks(x, np.zeros(len(x)))
    order = np.argsort(-x, axis=1, kind="stable")
    np.testing.assert_array_equal(np.argsort(got, axis=1), order)
    assert (np.sort(got, axis=1) == np.arange(1, x.shape[1] + 1)).all()
