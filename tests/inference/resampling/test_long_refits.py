"""Refits that would take long one by one are refused with their time, and with what to pass."""

import re

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.inference.resampling.collection import check_refits, with_number
from vcomp.inference.resampling.parametric import drawn_refits, parametric_bootstrap


@pytest.fixture(scope="module")
def fitted():
    """Return a fit of a facet with six levels, whose component varies too much for a surface."""
    rng = np.random.default_rng(1)
    codes = {name: rng.integers(size, size=900) for name, size in (("a", 80), ("b", 6))}
    y = rng.normal(size=80)[codes["a"]] + rng.normal(size=6)[codes["b"]] + rng.normal(size=900)
    return vcomp.fit("y ~ (1|a) + (1|b)", pd.DataFrame(codes | {"y": y}), engine="iterative")


def test_a_bootstrap_of_hours_is_refused_with_its_time(fitted):
    with pytest.raises(vcomp.EstimationError, match="one by one, take about") as caught:
        fitted.bootstrap(10_000_000)
    few, limit = re.search(
        r"at most n=(\d+), or pass time_limit=(\d+)", str(caught.value)
    ).groups()
    assert int(limit) > 600
    assert int(few) < 10_000_000
    with pytest.warns(vcomp.VcompWarning, match="the time limit"):
        found = fitted.bootstrap(10_000_000, time_limit=0.2)
    assert 0 < len(found) < 10_000_000


def test_as_many_as_the_refusal_names_are_made(fitted):
    fit = fitted._row_access.generating()
    with pytest.raises(vcomp.EstimationError, match="request at most") as caught:
        parametric_bootstrap(fit, 99, patience=0.1)
    few = int(re.search(r"n=(\d+),", str(caught.value))[1])
    found, limited = (
        parametric_bootstrap(fit, few, **{name: 0.1 if name == "patience" else 1e3})
        for name in ("patience", "time_limit")
    )
    np.testing.assert_array_equal(found.values, limited.values)


@pytest.fixture(scope="module")
def crossed():
    """Return a fit of two facets of 20,000 levels, by conjugate gradients."""
    rng = np.random.default_rng(1)
    codes = {name: rng.integers(20_000, size=100_000) for name in "ab"}
    y = rng.normal(size=100_000) + sum(rng.normal(size=20_000)[c] for c in codes.values())
    return vcomp.fit("y ~ (1|a) + (1|b)", pd.DataFrame(codes | {"y": y}))


@pytest.mark.parametrize("name", ["jackknife", "influence"])
def test_fits_without_each_of_many_levels_are_refused_with_their_time(crossed, name):
    pattern = r"fits of these data, one by one, take about \S+ seconds.*facet with at most"
    with pytest.raises(vcomp.EstimationError, match=pattern):
        getattr(crossed, name)("a")


@pytest.mark.parametrize("name", ["jackknife", "influence"])
def test_expected_seconds_of_fits_without_each_level_are_what_may_pass(fitted, name):
    """Estimated times are far above 1e-9 seconds, and below those that the refusal names."""
    with pytest.raises(vcomp.EstimationError, match="time_limit must be a positive number"):
        getattr(fitted, name)("b", time_limit=0)
    with pytest.raises(vcomp.EstimationError, match="at most 1 level, or pass time_l") as caught:
        getattr(fitted, name)("b", time_limit=1e-9)
    limit = int(re.search(r"time_limit=(\d+)", str(caught.value))[1])
    found, usual = (getattr(fitted, name)("b", time_limit=t) for t in (limit, None))
    assert repr(found) == repr(usual)


def test_resamples_of_hours_are_refused_with_their_time(crossed):
    with pytest.raises(vcomp.EstimationError, match=r"one by one, take.*or pass time_limit="):
        crossed.resample("a", 100_000)
    with pytest.warns(vcomp.VcompWarning, match="the time limit"):
        found = crossed.resample("a", 100_000, time_limit=0.1)
    assert 0 < len(found) < 100_000


def test_simulated_tests_of_hours_are_refused_with_their_time(fitted):
    stats = fitted._row_access.data.statistics
    recipes = [fitted._row_access.recipe()]
    with pytest.raises(vcomp.EstimationError, match=r"request at most n=\d+") as caught:
        drawn_refits(stats, recipes, fitted.vcomp.to_numpy(), 10_000_000)
    few = int(re.search(r"n=(\d+)", str(caught.value))[1])
    assert few < 10_000_000


@pytest.mark.parametrize("seconds", [2.0, 0.0])
def test_as_many_as_take_that_long_are_not_refused(seconds):
    check_refits(seconds, 10, with_number, 20.0)
    if seconds:
        with pytest.raises(vcomp.EstimationError) as caught:
            check_refits(seconds, 11, with_number, 20.0)
        assert "11 fits of these data, one by one, take about 22 seconds" in str(caught.value)
        assert str(caught.value).endswith("; request at most n=10")
