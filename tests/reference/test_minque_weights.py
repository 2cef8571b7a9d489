"""MINQUE at given weights, and iterated, against independent code and refined lme4."""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.reference_frames import LME4, by_name, formula_of, frame_of

LARGE = ("HugeData", "insteval", "insteval_service")


@pytest.fixture(scope="module")
def models(reference, shared_data):
    made = {}

    def get(name):
        if name not in made:
            stored = reference(f"lme4_{name}")
            frame = frame_of(stored, shared_data)
            model = vcomp.VarianceComponentsModel(formula_of(stored), frame)
            made[name] = stored["values"], model
        return made[name]

    return get


@pytest.mark.parametrize(
    ("name", "given"),
    alternately([n for n in LME4 if n not in LARGE], ("mivque0", 0), ("minque1", 1)),
)
def test_given_weights(name, given, models):
    key, weights = given
    values, model = models(name)
    res = model.fit("minque", prior=weights)
    np.testing.assert_allclose(res.vcomp, by_name(values[key], list(res.vcomp.index)), rtol=1e-10)
    assert (res.bse_vcomp > 0.0).all()


@pytest.mark.parametrize("name", [n for n in LME4 if n not in LARGE])
def test_iterated_is_reml_without_its_bound(name, models):
    values, model = models(name)
    res = model.fit("minque", iterated=True)
    expected = values.get("REML_unconstrained", values["REML"])
    names = list(res.vcomp.index)
    np.testing.assert_allclose(res.vcomp, by_name(expected["vc"], names), rtol=1e-10)
    assert res.converged
    if "REML_unconstrained" in values:
        assert "below zero" in res.status
        return
    assert res.status == "Converged."
    se = values["REML"].get("se_vc_expected")
    if se is not None:
        np.testing.assert_allclose(res.bse_vcomp, by_name(se, names), rtol=1e-9)
    fixed = values["REML"]
    np.testing.assert_allclose(res.fe_params, list(fixed["fixef"].values()), rtol=1e-9)
    np.testing.assert_allclose(res.bse_fe, list(fixed["se_fixef"].values()), rtol=1e-9)
