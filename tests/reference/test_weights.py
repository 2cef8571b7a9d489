"""Weights, known variances and offsets against lme4, emmeans and metafor (``weights.R``)."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.reference.tables import VALUES

STORED = json.loads((VALUES / "weights.json").read_text(encoding="utf-8"))
WEIGHTED = STORED["weighted"]

# lme4 has its optimum to about the square root of the digits of its deviance; a Newton step on
# Richardson derivatives leaves 1e-7 of the components where they are far from zero.
CLOSE = 2e-7


@cache
def weighted(name, method):
    case = WEIGHTED[name]
    frame = pd.DataFrame(case["data"])
    return vcomp.fit(case["formula"], frame, weights=case["weights"], method=method)


@pytest.fixture(params=[(n, m) for n in WEIGHTED for m in ("reml", "ml")], ids="-".join)
def case(request):
    name, method = request.param
    return WEIGHTED[name][method], weighted(name, method)


def in_r_order(res, stored):
    """Return the components in the order of lme4's table."""
    found, groups = [], stored["components"]
    for group, one, two in zip(groups["group"], groups["one"], groups["two"], strict=True):
        effects = [x for x in (one, two) if x not in (None, "NA")]
        names = {
            name: frozenset(name.partition("[")[0].split(":"))
            for name in res.vcomp.index
            if ("[" in name) == (effects != ["(Intercept)"] and group != "Residual")
            and ("," in name) == (len(effects) == 2)
        }
        (own,) = [n for n, facets in names.items() if facets == frozenset(group.split(":"))]
        found.append(res.vcomp[own])
    return found


def test_components_are_lme4s(case):
    stored, res = case
    np.testing.assert_allclose(in_r_order(res, stored), stored["components"]["value"], rtol=CLOSE)


def test_log_likelihoods_are_lme4s(case):
    stored, res = case
    assert res.llf == pytest.approx(stored["llf"], abs=1e-8)


def test_fixed_effects_are_lme4s(case):
    stored, res = case
    np.testing.assert_allclose(res.fe_params, stored["beta"], rtol=1e-6)
    np.testing.assert_allclose(res.bse_fe, stored["se"], rtol=CLOSE)


def test_degrees_of_freedom_are_lmertests(case):
    stored, res = case
    # lmerTest has them by numerical derivatives of the deviance.
    if res.method == "reml":
        np.testing.assert_allclose(res.df_fe, np.atleast_1d(stored["df"]), rtol=1e-4)


def test_fitted_values_and_residuals_are_lme4s(case):
    stored, res = case
    scale = np.ptp(stored["fitted"])
    np.testing.assert_allclose(res.fittedvalues, stored["fitted"], atol=1e-6 * scale)
    np.testing.assert_allclose(res.resid, stored["resid"], atol=1e-6 * scale)


def test_predicted_effects_are_lme4s(case):
    stored, res = case
    if len(stored["effects"]) == 1:
        (effects,) = stored["effects"].values()
        (name,) = [n for n in res.random_effects if "[" not in n]
        found = res.random_effects[name]["estimate"]
        found = found.rename(index=str)[list(map(str, effects["level"]))]
        size = np.abs(effects["value"]).max()
        np.testing.assert_allclose(found, effects["value"], atol=1e-6 * size)


@pytest.mark.parametrize("name", ["penicillin", "pastes"])
def test_engines_have_one_value(name):
    res = weighted(name, "reml")
    frame = pd.DataFrame(WEIGHTED[name]["data"])
    for engine in ("levels", "blocked"):
        other = vcomp.fit(
            WEIGHTED[name]["formula"], frame, weights=WEIGHTED[name]["weights"], engine=engine
        )
        assert engine in other.engine
        np.testing.assert_allclose(other.vcomp, res.vcomp, rtol=1e-8)
        assert other.llf == pytest.approx(res.llf, abs=1e-9)


OFFSET = STORED["offset"]


@pytest.fixture(scope="module", params=["formula", "column"])
def with_offset(request):
    frame = pd.DataFrame(OFFSET["data"])
    if request.param == "formula":
        return vcomp.fit(OFFSET["formula"], frame)
    return vcomp.fit(OFFSET["formula"].replace(" + offset(z)", ""), frame, offset="z")


def test_fits_with_offsets_are_lme4s(with_offset):
    np.testing.assert_allclose(
        in_r_order(with_offset, OFFSET), OFFSET["components"]["value"], rtol=CLOSE
    )
    np.testing.assert_allclose(with_offset.fe_params, OFFSET["beta"], rtol=1e-7)
    assert with_offset.llf == pytest.approx(OFFSET["llf"], abs=1e-8)
    np.testing.assert_allclose(with_offset.fittedvalues, OFFSET["fitted"], rtol=1e-8)
    np.testing.assert_allclose(with_offset.resid, OFFSET["resid"], atol=1e-5)


def test_predictions_with_offsets_are_lme4s(with_offset):
    new = pd.DataFrame(OFFSET["new"])
    np.testing.assert_allclose(with_offset.predict(new), OFFSET["predicted"], rtol=1e-8)


def test_marginal_means_with_offsets_are_emmeans(with_offset):
    means, stored = with_offset.marginal_means("half").table, OFFSET["means"]
    np.testing.assert_allclose(means["mean"], stored["value"], rtol=1e-7)
    np.testing.assert_allclose(means["std_error"], stored["se"], rtol=1e-6)


BCG = STORED["metafor"]["bcg"]


@cache
def relative_risks(name):
    frame = pd.DataFrame(BCG["data"])
    method, _, moderator = name.partition("_")
    fixed = f"{moderator} + " * bool(moderator)
    return vcomp.fit(f"yi ~ {fixed}(1|trial)", frame, known_variance="vi", method=method)


@pytest.mark.parametrize("name", list(BCG["fits"]))
def test_meta_analysis_is_metafors(name):
    stored, res = BCG["fits"][name], relative_risks(name)
    assert res.vcomp["trial"] == pytest.approx(stored["tau2"], rel=1e-9)
    se = np.sqrt(res.cov_vcomp("expected").loc["trial", "trial"])
    assert se == pytest.approx(stored["se_tau2"], rel=1e-8)
    np.testing.assert_allclose(res.fe_params, stored["beta"], rtol=1e-9)
    np.testing.assert_allclose(res.bse_fe, stored["se"], rtol=1e-9)
    effects = res.random_effects["trial"]
    np.testing.assert_allclose(effects["estimate"], stored["u"], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(effects["se"], stored["u_se"], rtol=1e-8)


@pytest.mark.parametrize("name", list(BCG["fits"]))
def test_log_likelihood_is_metafors(name):
    stored, res = BCG["fits"][name], relative_risks(name)
    X = res.model.exog
    # metafor adds ½ log|X'X| to the restricted log-likelihood, which lme4 and vcomp do not.
    more = 0.5 * np.linalg.slogdet(X.T @ X)[1] if res.method == "reml" else 0.0
    assert res.llf + more == pytest.approx(stored["llf"], abs=1e-9)


SCHOOLS = STORED["metafor"]["schools"]


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_three_levels_are_metafors(method):
    # Konstantopoulos (2011), Research Synthesis Methods 2, 61-76
    stored, frame = SCHOOLS["fits"][method], pd.DataFrame(SCHOOLS["data"])
    res = vcomp.fit("yi ~ (1|district/school)", frame, known_variance="vi", method=method)
    # nlminb ends where its steps are below 1e-6.
    np.testing.assert_allclose(res.vcomp.iloc[:2], stored["sigma2"], rtol=2e-6)
    np.testing.assert_allclose(res.fe_params, stored["beta"], rtol=1e-6)
    np.testing.assert_allclose(res.bse_fe, stored["se"], rtol=1e-6)
    more = 0.5 * np.log(len(frame)) if method == "reml" else 0.0
    assert res.llf + more == pytest.approx(stored["llf"], abs=1e-9)
