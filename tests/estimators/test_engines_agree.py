"""Estimates by orthogonal strata and by cross-products are the same, to the digits of rounding."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.dense_likelihood import DenseLikelihood
from tests.helpers.designs import GRIDS, balanced, gridded
from tests.helpers.reference_frames import formula_of, frame_of
from vcomp.statistics.statistics import Statistics

WITH_STRATA = [
    "CA19_9_P1", "Glucose", "HugeData", "adhoc3", "brennan_synthetic1",
    "brennan_synthetic2_unbal", "brennan_synthetic3", "brennan_synthetic4", "dataEP05A2_1_unbal",
    "dataEP05A3_MS_1", "dyestuff2", "narayanan2010", "novelty_small", "pastes", "penicillin",
    "sleepstudy_ri", "web2010p20",
]  # fmt: skip
WITHOUT = ["adhoc3_unbal", "brennan_missing_pxi", "penicillin_unbal", "novelty_small_missing"]

CLOSE = {"rtol": 1e-9, "atol": 0.0}


METHODS = dict(
    alternately([*WITH_STRATA, *(f"simulated: {name}" for name in GRIDS)], "reml", "ml")
)


@pytest.fixture(scope="module", params=METHODS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def model(name, reference, shared_data):
    if name.startswith("simulated: "):
        return vcomp.VarianceComponentsModel(*gridded(name.removeprefix("simulated: ")))
    stored = reference(f"lme4_{name}")
    return vcomp.VarianceComponentsModel(formula_of(stored), frame_of(stored, shared_data))


def by_cross_products(model):
    """Return the same model with statistics that know of no grid."""
    statistics = Statistics.from_rows(model.statistics.rows, None)
    data = replace(model._data, statistics=statistics)
    return vcomp.VarianceComponentsModel(model.formula, data)


def test_likelihood_estimates(name, model):
    method = METHODS[name]
    strata = model.fit(method, engine="strata")
    blocked = model.fit(method, engine="blocked")
    assert strata.converged
    assert blocked.converged
    assert strata.certificate.engine.startswith("strata")
    scale = blocked.vcomp.sum()
    # A component that is almost nothing beside the others has their rounding in it.
    np.testing.assert_allclose(strata.vcomp, blocked.vcomp, rtol=1e-9, atol=1e-13 * scale)
    assert (strata.vcomp == 0.0).equals(blocked.vcomp == 0.0)
    assert strata.llf == pytest.approx(blocked.llf, rel=1e-12)
    np.testing.assert_allclose(strata.fe_params, blocked.fe_params, **CLOSE)
    np.testing.assert_allclose(strata.bse_fe, blocked.bse_fe, **CLOSE)
    for kind in ("observed", "expected", "average"):
        ours, theirs = strata.cov_vcomp(kind).to_numpy(), blocked.cov_vcomp(kind).to_numpy()
        atol = 1e-9 * np.nanmax(np.abs(theirs), initial=0.0)
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=atol, err_msg=kind)


@pytest.fixture(scope="module")
def analyses(model):
    """Return the analyses of variance by strata and by cross-products, if there are any."""
    if not model.design.formula.intercept_only:
        return None
    with warnings.catch_warnings():
        # That Method I is a poor one for partly crossed data does not matter here.
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        return model.fit("anova"), by_cross_products(model).fit("anova")


def test_analyses_of_variance(analyses):
    if analyses is None:
        return
    strata, summed = analyses
    scale = np.abs(summed.vcomp).max()
    np.testing.assert_allclose(strata.vcomp, summed.vcomp, rtol=1e-9, atol=1e-12 * scale)
    ours, theirs = strata.cov_vcomp().to_numpy(), summed.cov_vcomp().to_numpy()
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12 * np.abs(theirs).max())
    np.testing.assert_allclose(strata.fe_params, summed.fe_params, rtol=1e-12)
    np.testing.assert_allclose(strata.bse_fe, summed.bse_fe, rtol=1e-9)
    squares = summed.anova_table()["sum_sq"].abs().max()
    pd.testing.assert_frame_equal(
        strata.anova_table(), summed.anova_table(), rtol=1e-10, atol=1e-13 * squares
    )


def test_generalizability_studies(model, analyses):
    if analyses is None or len(model.design.facets) < 2:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        found, expected = (res.dstudy().table for res in analyses)
    pd.testing.assert_frame_equal(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("without", WITHOUT)
def test_what_is_no_grid(without, reference, shared_data):
    stored = reference(f"lme4_{without}")
    model = vcomp.VarianceComponentsModel(formula_of(stored), frame_of(stored, shared_data))
    assert model.design.grid is None
    assert model.statistics.strata is None


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_estimates_without_bounds_are_those_of_the_expected_information(method):
    """A facet whose means are equal has a component of zero."""
    formula, data = balanced("crossed")
    data["y"] -= data.groupby("b")["y"].transform("mean")
    found = []
    for engine in ("strata", "blocked"):
        res = vcomp.fit(formula, data, method=method, engine=engine)
        assert res.vcomp["b"] == 0.0
        found.append(res._record.estimate.without_bounds)
    for strata, blocked in zip(*found, strict=True):
        np.testing.assert_allclose(strata, blocked, rtol=1e-6, atol=1e-12)
    model, dense_at = res.model, np.array(res.vcomp)
    expected = DenseLikelihood(model, reml=method == "reml").expected(dense_at)
    np.testing.assert_allclose(found[0][1], np.linalg.inv(expected), rtol=1e-6, atol=1e-12)
