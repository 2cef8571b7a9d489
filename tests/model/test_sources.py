"""Intervals of a fit by every method, through tables, D-studies and single quantities."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.exceptions import DataError, EstimationError
from vcomp.inference.quantities import Quantities
from vcomp.inference.resampling.replicates import FromReplicates
from vcomp.model.profiling import MaximisedLikelihood


@pytest.fixture(scope="module")
def res():
    return vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))


def test_the_profile_of_tables_is_that_of_the_curves(res):
    names = list(res.vcomp.index)
    expected = res.profile(names).conf_int(0.1)
    found = res.conf_int(0.1, interval="profile").iloc[1:]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-15)
    table = res.gstudy(0.1, interval="profile")
    np.testing.assert_allclose(table[["low", "high"]], expected, rtol=1e-9, atol=1e-15)


def test_profiles_go_with_monotone_functions(res):
    ratio = res.quantity("sys / Residual", interval="profile")
    share = res.quantity("sys / (sys + Residual)", interval="profile")
    sd, var = res.quantity("sd(sys)", interval="profile"), res.quantity("sys", interval="profile")
    np.testing.assert_allclose(
        [share.low, share.high], [r / (1 + r) for r in (ratio.low, ratio.high)], rtol=1e-7
    )
    np.testing.assert_allclose([sd.low**2, sd.high**2], [var.low, var.high], rtol=1e-9)
    erho2 = res.quantity("Erho2", topic=6, interval="profile")
    np.testing.assert_allclose(
        [erho2.low, erho2.high], [6 * r / (1 + 6 * r) for r in (ratio.low, ratio.high)], rtol=1e-7
    )
    function = res.quantity(lambda v: v["sys"] / v["Residual"], interval="profile", alpha=0.5)
    half = res.quantity("sys / Residual", interval="profile", alpha=0.5)
    np.testing.assert_allclose([function.low, function.high], [half.low, half.high], rtol=1e-6)


def test_curves_of_quantities(res):
    profile = res.profile(["sys", "sys / (sys + Residual)", "sys + topic"])
    assert list(profile.curves) == ["sys", "sys / (sys + Residual)", "sys + topic"]
    assert profile.frame.index.tolist() == list(range(len(profile.frame)))
    for name in profile.curves:
        expected = res.quantity(name, interval="profile")
        found = profile.conf_int().loc[name]
        np.testing.assert_allclose(found, [expected.low, expected.high], rtol=1e-8)
        assert profile.curves[name].estimate == pytest.approx(expected.estimate, rel=1e-9)
    with pytest.raises(EstimationError, match=r"nor a quantity of its components.*did you mean"):
        res.profile("sis")
    with pytest.raises(EstimationError, match="is a root: profile the variance instead"):
        res.profile("sd(sys)")


def test_curves_have_points_on_both_sides():
    data = vcomp.datasets.load("docsearch")
    for curve in vcomp.fit("score ~ (1|sys*topic)", data).profile().curves.values():
        inside = np.abs(curve.z) <= 1.96
        gaps = np.diff(np.sort(np.append(curve.z[inside], [-1.96, 1.96])))
        assert gaps.max() < 1.0


def test_required_sizes_by_profile(res):
    """n(target) is a monotone function of σ²_sys/σ²_e."""
    ratio = res.quantity("sys / Residual", interval="profile")
    found = res.dstudy(topic=6, interval="profile").required(0.8)
    assert (found.low, found.high) == (np.ceil(4 / ratio.high), np.ceil(4 / ratio.low))


def test_replicates_serve_everywhere(res):
    boot = res.bootstrap(100, rng=3)
    found = res.conf_int(interval=boot).iloc[1:]
    np.testing.assert_allclose(found.T, np.quantile(boot.values, [0.025, 0.975], axis=0))
    study = res.dstudy(topic=[3, 6], interval=boot)
    coefficient = boot.values[:, 0] / (boot.values[:, 0] + boot.values[:, 2] / 6)
    expected = np.quantile(coefficient, [0.025, 0.975])
    row = study.table.iloc[1]
    np.testing.assert_allclose([row["Erho2_low"], row["Erho2_high"]], expected)
    assert "percentile of 100 parametric replicates" in study.interval_methods["Erho2"]
    basic = res.interval_source(boot, bootstrap_type="basic")
    own = FromReplicates(boot, res.vcomp.to_numpy(), res.fe_params.to_numpy(), "basic")
    assert res.quantity("sys", interval=basic) == res.quantity("sys", interval=own)
    with pytest.raises(
        EstimationError,
        match="bootstrap_type='basic' applies to intervals from bootstrap replicates",
    ):
        res.interval_source("mls", bootstrap_type="basic")
    with pytest.raises(EstimationError, match="bootstrap_type='bca' is not known"):
        res.interval_source(boot, bootstrap_type="bca")
    assert "basic of 100" in res.quantity("Residual", interval=basic).interval_method
    assert "percentile of 100" in str(res.summary(interval=boot))


def test_the_bootstrap_by_name_is_a_thousand_replicates_from_seed_0():
    data = vcomp.datasets.load("bodoff2007_alpha")
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", data, method="anova")
    by_name = res.conf_int(interval="bootstrap")
    pd.testing.assert_frame_equal(by_name, res.conf_int(interval=res.bootstrap(1000, rng=0)))


def test_what_is_resampled_belongs_to_its_fit(res):
    other = vcomp.fit("score ~ (1|sys)", vcomp.datasets.load("bodoff2007_alpha"))
    with pytest.raises(EstimationError, match="replicates are of sys, Residual, and the fit has"):
        res.conf_int(interval=other.bootstrap(10))


def test_without_rows(res):
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    pd.testing.assert_frame_equal(loaded.conf_int(), res.conf_int())
    for method in ("profile", "bootstrap"):
        with pytest.raises(DataError, match="without its rows"):
            loaded.conf_int(interval=method)


def test_a_bound_travels(shared_data):
    res = vcomp.fit("Yield ~ (1|Batch)", shared_data("Dyestuff2.csv"))
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    pd.testing.assert_frame_equal(loaded.conf_int(), res.conf_int())
    row = loaded.conf_int().loc["var(Batch)"]
    assert row[0] == 0.0 < row[1]


def test_errors(res):
    with pytest.raises(EstimationError, match=r"'profil' is not known; .*'profile', 'bootstrap'"):
        res.conf_int(interval="profil")
    with pytest.raises(EstimationError, match=r"pass interval=res.jackknife\('sys'\)"):
        res.conf_int(interval="jackknife")
    anova = vcomp.fit(
        "score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"), method="anova"
    )
    with pytest.raises(EstimationError, match="does not maximise a likelihood"):
        anova.conf_int(interval="profile")


@pytest.mark.parametrize("interval", [None, 3, True, {}])
def test_what_gives_no_intervals_is_refused(res, interval):
    for ask in (res.conf_int, res.gstudy, res.tidy, res.summary):
        with pytest.raises(EstimationError, match="interval must be the name of an interval, or"):
            ask(interval=interval)
    with pytest.raises(EstimationError, match="sizes="):
        res.dstudy(interval=interval)


@pytest.mark.parametrize("form", ["linear", "root", "ratio", "share"])
def test_multiples_of_a_quantity_share_one_profile(res, form, monkeypatch):
    a = np.array([[1.0, 0.0, 0.0], [0.25, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    b = np.array([[0.0, 0.5, 0.5], [0.0, 0.5, 0.5], [0.0, 1 / 30, 1 / 30], [0.0, 0.0, 1.0]])
    quantities = Quantities(form, a, b if form in ("ratio", "share") else None)
    source = res.interval_source("profile")
    alone = [source.limits(quantities.take(slice(j, j + 1)), 0.05) for j in range(4)]
    profiles = []
    profile = MaximisedLikelihood.profile_ratio

    def counted(*arguments, **options):
        profiles.append(1)
        return profile(*arguments, **options)

    monkeypatch.setattr(MaximisedLikelihood, "profile_ratio", counted)
    together = source.limits(quantities, 0.05)
    assert len(profiles) == 2
    np.testing.assert_allclose(together.low, [one.low[0] for one in alone], rtol=1e-7)
    np.testing.assert_allclose(together.high, [one.high[0] for one in alone], rtol=1e-7)
