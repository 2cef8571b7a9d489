"""Curves from coefficients to indicators, and the delta method by differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student

from vcomp.exceptions import DataError, PlanError
from vcomp.ir.reliability_map import ReliabilityMap, feature_values

X = np.array([0.0, 1e-9, 0.2, 0.75, 0.999, 1.0])
PLAIN = ReliabilityMap(
    "tau", "Erho2", 2.3, rises=True, lowest=-1.0, bse=0.4, resid_sd=0.07, nobs=40, n_collections=6,
)  # fmt: skip
ROOT = np.array([[0.2, 0.0, 0.0], [0.1, 0.3, 0.0], [-0.2, 0.05, 0.1]])
FEATURED = replace(
    PLAIN, sd_power=0.6, slopes={"n_topics": 0.3, "topic_share": -0.8},
    centres={"n_topics": np.log(50.0), "topic_share": 0.4}, covariance=ROOT @ ROOT.T,
)  # fmt: skip


def exponent(curve, logs, topics, share):
    """Return a from log a and slopes: topics count by their logarithm."""
    log_a, of_topics, of_share = logs
    return np.exp(log_a + of_topics * (np.log(topics) - np.log(50.0)) + of_share * (share - 0.4))


@pytest.mark.parametrize("rises", [True, False])
def test_an_interval_is_that_of_the_delta_method(rises):
    curve = replace(PLAIN, rises=rises, lowest=-1.0 if rises else 0.0)
    found = curve.predict(X, alpha=0.1)
    for x, row in zip(X, found.itertuples(), strict=True):
        base = x if rises else 1.0 - x
        y = base**2.3
        h = 1e-5
        slope = (base ** (2.3 + h) - base ** (2.3 - h)) / (2.0 * h) if base else 0.0
        assert (row.Erho2, row.estimate) == (x, pytest.approx(y, rel=1e-14))
        of_curve = abs(slope) * 0.4
        half = student.isf(0.05, 5) * of_curve
        assert row.low == pytest.approx(max(y - half, curve.lowest), abs=1e-8)
        assert row.high == pytest.approx(min(y + half, 1.0), abs=1e-8)
        half = student.isf(0.05, 39) * np.hypot(of_curve, 0.07)
        assert row.obs_low == pytest.approx(max(y - half, curve.lowest), abs=1e-8)
        assert row.obs_high == pytest.approx(min(y + half, 1.0), abs=1e-8)
    curve = replace(curve, bse=0.02)
    many = curve.predict(0.5, alpha=0.1)
    for n, df in ((1, 39), (2, 1)):
        few = replace(curve, n_collections=n).predict(0.5, alpha=0.1)
        ratio = (few["high"] - few["estimate"]) / (many["high"] - many["estimate"])
        expected = student.isf(0.05, df) / student.isf(0.05, 5)
        assert ratio.item() == pytest.approx(expected, rel=1e-10)


def test_intervals_are_cut_where_the_indicator_ends():
    wide = replace(PLAIN, bse=20.0, resid_sd=5.0).predict(0.5)
    assert wide[["low", "high", "obs_low", "obs_high"]].to_numpy().tolist() == [[-1, 1, -1, 1]]
    wide = replace(PLAIN, bse=20.0, resid_sd=5.0, lowest=0.0).predict(0.5)
    assert wide[["low", "obs_low"]].to_numpy().tolist() == [[0, 0]]


@pytest.mark.parametrize("name", ["n_topics", "n_systems"])
def test_sizes_are_above_0(name):
    assert feature_values(name, [1e-9, 1.0]).tolist() == [np.log(1e-9), 0.0]
    with pytest.raises(DataError, match=f"{name} must be above 0, not 0"):
        feature_values(name, [[3.0], [0.0]])
    with pytest.raises(DataError, match=f"{name} must be above 0, not -2"):
        feature_values(name, -2)


def test_features_move_the_exponent_and_its_error():
    topics, share, x = np.array([20.0, 50.0, 300.0]), np.array([0.1, 0.4, 0.9]), 0.8
    given = {"n_topics": topics, "topic_share": share}
    logs = np.array([np.log(2.3), 0.3, -0.8])
    a = exponent(FEATURED, logs, topics, share)
    np.testing.assert_allclose(FEATURED.exponents(given), a, rtol=1e-13)
    np.testing.assert_allclose(FEATURED.at(x, given), x**a, rtol=1e-13)
    np.testing.assert_allclose(FEATURED.required(x**a, given), x, rtol=1e-13)
    falling = replace(FEATURED, rises=False)
    np.testing.assert_allclose(falling.at(x, given), (1 - x) ** a, rtol=1e-13)
    np.testing.assert_allclose(falling.required((1 - x) ** a, given), x, rtol=1e-12)
    found = FEATURED.predict(np.full(3, x), features=given, alpha=0.2)
    h = 1e-6
    g = np.array([
        (x ** exponent(FEATURED, logs + h * e, topics, share)
         - x ** exponent(FEATURED, logs - h * e, topics, share)) / (2.0 * h)
        for e in np.eye(3)
    ])  # fmt: skip
    sd = np.sqrt(np.einsum("if,ij,jf->f", g, ROOT @ ROOT.T, g))
    np.testing.assert_allclose(found["estimate"], x**a, rtol=1e-13)
    low = x**a - student.isf(0.1, 5) * sd
    np.testing.assert_allclose(found["low"], low, rtol=1e-7)
    spread = 0.07 * (1.0 - x) ** 0.6
    high = np.minimum(x**a + student.isf(0.1, 39) * np.hypot(sd, spread), 1.0)
    np.testing.assert_allclose(found["obs_high"], high, rtol=1e-7)
    # Those that are left out are at their mean, where the error is that of log a.
    alone = FEATURED.predict(x, alpha=0.2)
    slope = x**2.3 * np.log(x) * 2.3
    assert alone["high"].item() == pytest.approx(
        x**2.3 + student.isf(0.1, 5) * abs(slope) * 0.2, rel=1e-12
    )
    with pytest.raises(PlanError, match=r"no feature 'n_topic' .*did you mean 'n_topics'"):
        FEATURED.at(x, {"n_topic": 3})
    with pytest.raises(PlanError, match="no feature 'n_topics'; its features: none"):
        PLAIN.at(x, {"n_topics": 3})


@pytest.mark.parametrize("rises", [True, False])
def test_a_range_of_exponents(rises):
    curve = ReliabilityMap(
        "tau", "Phi", 2.0, rises=rises, n_collections=9, exponent_range=(3.5, 1.25)
    )
    found = curve.predict([0.3, 0.9], alpha=0.2)  # (9 - 1)/(9 + 1)
    for x, row in zip((0.3, 0.9), found.itertuples(), strict=True):
        base = x if rises else 1.0 - x
        assert (row.Phi, row.estimate) == (x, pytest.approx(base**2.0))
        assert (row.obs_low, row.obs_high) == pytest.approx((base**3.5, base**1.25))
        assert np.isnan([row.low, row.high]).all()
    assert set(found["interval"]) == {"curve of another collection: printed range of 9"}
    with pytest.raises(PlanError, match=r"probability 0\.8: alpha must be at least 0\.2"):
        curve.predict(0.3, alpha=0.199)
    with pytest.raises(PlanError, match="no range of exponents"):
        replace(curve, exponent_range=None).predict(0.3)


@pytest.mark.parametrize("value", [-1e-12, 1.0 + 1e-12, "a", True, 1j, [0.2, 1.5]])
def test_values_out_of_range(value):
    for method in (PLAIN.at, PLAIN.required, PLAIN.predict):
        with pytest.raises(DataError, match="must be"):
            method(value)


def test_shapes_and_unknown_values_are_kept():
    grid = np.array([[0.0, 1.0, np.nan], [0.25, 0.5, 0.75]])
    np.testing.assert_allclose(PLAIN.at(grid), grid**2.3, rtol=1e-14)
    np.testing.assert_allclose(PLAIN.required(grid), grid ** (1 / 2.3), rtol=1e-14)
    assert PLAIN.at(0.5).shape == ()
    with pytest.raises(DataError, match="these have 2 dimensions"):
        PLAIN.predict(grid)
    assert np.isnan(PLAIN.predict([np.nan, 0.5])["estimate"]).tolist() == [True, False]
