"""Agreement of rankings, many at a time, against matrices of signs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from tests.helpers.kernel_twins import above_in_both as above_by_signs
from tests.helpers.kernel_twins import mean_share_above as share_by_signs
from tests.helpers.kernel_twins import pair_agreement as agreement_by_signs
from tests.helpers.kernel_twins import smallest_safe_difference as smallest_by_search
from vcomp.ir.kernels.rank_agreement import (
    above_in_both,
    falling_order,
    mean_share_above,
    ordinal_ranks,
    pair_agreement,
    swaps,
    swaps_by_arrays,
)
from vcomp.ir.kernels.safe_differences import smallest_by_arrays, smallest_safe_difference

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


def safe_difference(*arguments):
    """Return the differences by the kernel, which are those by arrays to the last bit."""
    found = smallest_safe_difference(*arguments)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(found, smallest_by_arrays(*arguments))
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


@settings(deadline=None, max_examples=examples(200))
@given(cases, st.sampled_from([0.0, 0.05, 0.3, 0.6]), st.booleans())
def test_smallest_safe_difference(case, rate, relative):
    x, y, ex, ey = rankings(case)
    expected = [smallest_by_search(*row, rate, relative) for row in zip(x, y, ex, ey, strict=True)]
    by = orders(x, y)
    for swapped in (np.full(len(x), -1), swapped_pairs(x, y, ex, ey, *by)[0]):
        got = safe_difference(x, y, ex, ey, swapped, *by, rate, relative)
        np.testing.assert_allclose(got, expected, rtol=1e-9)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_differences_that_are_equal_but_for_rounding(relative, seed):
    """Of systems without ties, in the same order as the truth or with one pair swapped."""
    rng = np.random.default_rng(seed)
    x = 0.1 * rng.permutation(np.arange(1.0, 8.0))[None, :]
    y = x**2
    if seed % 2:
        order = np.argsort(x[0])
        y[0, order[[2, 3]]] = y[0, order[[3, 2]]]
    zero, by = np.zeros(1), orders(x, y)
    swapped = swapped_pairs(x, y, zero, zero, *by)[0]
    assert swapped.tolist() == [seed % 2]
    expected = smallest_by_search(x[0], y[0], 0.0, 0.0, 0.0, relative)
    for known in (swapped, np.array([-1])):
        found = safe_difference(x, y, zero, zero, known, *by, 0.0, relative)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("k", [60, 150])
@pytest.mark.parametrize("relative", [False, True])
def test_many_pairs_share_few_bins(k, relative):
    rng = np.random.default_rng(k)
    truth = rng.uniform(0.1, 0.5, k)
    x = truth + 0.03 * rng.normal(size=(3, k))
    x[2] = x[2].round(2)
    y = np.broadcast_to(truth, x.shape).copy()
    tolerances = np.full(3, 1e-12)
    by = orders(x, y)
    swapped, _ = swapped_pairs(x, y, tolerances, tolerances, *by)
    assert (swapped < 0).tolist() == [False, False, True]
    got = safe_difference(x, y, tolerances, tolerances, swapped, *by, 0.05, relative)
    expected = [smallest_by_search(row, truth, 1e-12, 1e-12, 0.05, relative) for row in x]
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    assert np.isfinite(got).all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_has_no_smallest_difference(wrong):
    x, y = np.arange(4.0)[None], np.arange(4.0)[None].copy()
    x[0, 2] = wrong
    none, swapped = np.zeros(1), np.zeros(1, np.int64)
    for relative in (False, True):
        for means in (x, 0 * y):
            by = orders(means, y)
            found = safe_difference(means, y, none, none, swapped, *by, 0.05, relative)
            assert np.isnan(found).all()


@settings(deadline=None, max_examples=examples(200))
@given(
    st.integers(0, 10**6),
    st.integers(2, 40),
    st.sampled_from([0.0, 0.01, 0.05, 0.2]),
    st.sampled_from([0.05, 0.3, 1.0]),
    st.booleans(),
)
def test_positive_means_without_ties(seed, k, rate, noise, relative):
    """Ranks 1, …, k of systems: many differences are the same; shaken, none is."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(k) + 1.0
    ranks = np.argsort(np.argsort(truth + k * noise * rng.normal(size=(2, k)), axis=1), axis=1)
    means = ranks + 1.0
    means[1] = np.exp(0.1 * means[1] + 0.09 * rng.uniform(size=k))
    y, none = np.tile(truth, (2, 1)), np.zeros(2)
    by = orders(means, y)
    swapped, _ = swapped_pairs(means, y, none, none, *by)
    got = safe_difference(means, y, none, none, swapped, *by, rate, relative)
    expected = [smallest_by_search(x, truth, 0.0, 0.0, rate, relative) for x in means]
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
def test_differences_at_the_ends_of_bins(rate):
    """By whole numbers: places on the grid of 36 bits at multiples of 2²⁸, and one beside them.

    Of several rankings at once each is searched from where the one before suggests.
    """
    rng, none = np.random.default_rng(7), np.zeros(30)
    near = (2**28 * np.arange(1, 8)[:, None] + [-1, 0, 1]).ravel()
    i, j = np.triu_indices(12, 1)
    x, y, expected = np.empty((30, 12)), np.empty((30, 12)), []
    for row in range(30):
        places = rng.permutation([0, 2**36, *rng.choice(near, 10, replace=False)])
        noise = rng.choice([0.3, 1.0, 3.0]) * 2**28
        truth = np.argsort(np.argsort(places + noise * rng.normal(size=12)))
        d, swapped = places[i] - places[j], (places[i] > places[j]) != (truth[i] > truth[j])
        fine = [e for e in np.abs(d) if swapped[np.abs(d) >= e].mean() <= rate]
        expected.append(min(fine, default=np.nan) / 2.0**36)
        x[row], y[row] = places / 2.0**36, truth
    by = orders(x, y)
    for known in (swapped_pairs(x, y, none, none, *by)[0], np.full(30, -1)):
        found = safe_difference(x, y, none, none, known, *by, rate, False)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("relative", [False, True])
def test_the_smallest_difference_may_be_next_to_nothing(relative):
    """Of three systems in the right order every difference is safe."""
    x = np.array([[1.0, 1e-20, 0.0]]) + (1e-200 if relative else 0.0)
    y, none = np.array([[3.0, 2.0, 1.0]]), np.zeros(1)
    expected = 1.0 if relative else 1e-20
    for swapped in (-1, 0):
        known = np.array([swapped])
        found = safe_difference(x, y, none, none, known, *orders(x, y), 0.0, relative)
        assert found == pytest.approx([expected], rel=1e-12)
