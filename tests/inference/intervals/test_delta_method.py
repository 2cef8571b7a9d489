"""Standard errors and intervals of the delta method, and Satterthwaite's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from vcomp.inference.intervals.closed_forms import (
    logit_interval,
    satterthwaite_interval,
    standard_errors,
)


def test_standard_errors_of_constants_are_zero_and_of_negative_variances_unknown():
    cov = np.diag([4.0, 0.0, -1.0])
    gradient = np.array([[3.0, 0, 0], [0, 0, 0], [0, 2, 0], [0, 0, 1], [1, 1, 0]])
    expected = np.array([6.0, 0.0, 0.0, np.nan, 2.0])
    np.testing.assert_array_equal(standard_errors(gradient, cov), expected)
    unsure = np.array([False, True, False])
    expected[2] = np.nan
    np.testing.assert_array_equal(standard_errors(gradient, cov, unsure), expected)


def test_shares_at_or_beyond_their_ends_have_no_interval_on_the_logit_scale():
    low, high = logit_interval(np.array([0.0, 1.0, -0.1, 1.1, 0.5]), np.full(5, 0.1), 0.05)
    assert np.isnan([low[:4], high[:4]]).all()
    ends = special.expit(stats.norm.isf(0.025) * 0.4 * np.array([-1.0, 1.0]))
    assert (low[4], high[4]) == pytest.approx(tuple(ends), rel=1e-12)


def test_satterthwaite_intervals_grow_with_confidence():
    value, se = np.array([1.0, 1.0, 1.0, 1.0]), np.array([0.1, 1.0, 5.0, 30.0])
    previous = value, value
    for alpha in (0.9, 0.5, 0.2, 0.05, 0.001):
        low, high = satterthwaite_interval(value, se, alpha)
        assert (low <= previous[0]).all()
        assert (high >= previous[1]).all()
        previous = low, high


@pytest.mark.parametrize("alpha", [0.05, 0.32])
def test_satterthwaite_intervals_are_quantiles_of_chi_square(alpha):
    value, se = np.array([3.0, 0.2, 50.0, 1e-8]), np.array([0.9, 0.05, 40.0, 4e-9])
    df = 2.0 * (value / se) ** 2
    low, high = satterthwaite_interval(value, se, alpha)
    np.testing.assert_allclose(low, df * value / stats.chi2.ppf(1.0 - alpha / 2.0, df), rtol=1e-11)
    np.testing.assert_allclose(high, df * value / stats.chi2.ppf(alpha / 2.0, df), rtol=1e-11)


def test_satterthwaite_intervals_of_what_is_hardly_estimated():
    """Nothing of a negative estimate or one without an error; [0, ∞] of one that is mostly so."""
    value = np.array([-1.0, 0.0, 1.0, np.nan, 1.0, 2.0])
    se = np.array([0.5, 0.5, 0.0, 1.0, np.nan, 40.0])
    low, high = satterthwaite_interval(value, se, 0.05)
    assert np.isnan(low[:5]).all()
    assert np.isnan(high[:5]).all()
    assert (low[5], high[5]) == (0.0, np.inf)
    # With 0.13 degrees of freedom the upper limit is finite only at a low level.
    df = 2.0 * (1.0 / 3.9) ** 2
    low, high = satterthwaite_interval(np.array([1.0]), np.array([3.9]), 0.05)
    assert low[0] == pytest.approx(df / stats.chi2.ppf(0.975, df), rel=1e-9)
    assert high[0] == np.inf
    assert df / stats.chi2.ppf(0.025, df) > 1e6
    high = satterthwaite_interval(np.array([1.0]), np.array([3.9]), 0.8)[1]
    assert high[0] == pytest.approx(df / stats.chi2.ppf(0.4, df), rel=1e-9)
