"""What to write for names that results have in lme4, nlme, statsmodels and linearmodels."""

from __future__ import annotations

import copy
import pickle
import re

import matplotlib as mpl
import numpy as np
import pytest

import vcomp
from vcomp.model.other_names import _EXPRESSIONS, _TASKS

mpl.use("Agg")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    g, h = rng.integers(0, 8, 120), rng.integers(0, 5, 120)
    x, f = rng.normal(size=120), rng.choice(list("abc"), 120)
    return {"y": rng.normal(size=8)[g] + x + rng.normal(size=120), "x": x, "f": f, "g": g, "h": h}


@pytest.fixture(scope="module")
def res(data):
    return vcomp.fit("y ~ x + f + (1|g) + (1|h)", data)


def refused(res, name):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'") as caught:
        getattr(res, name)
    assert caught.value.name == name
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("VarCorr", "write res.varcorr() (res is the result)"),
        ("ranef", "write res.random_effects (res is the result)"),
        ("fixef", "write res.fe_params (res is the result)"),
        ("logLik", "write res.llf (res is the result)"),
        ("AIC", "write res.aic (res is the result)"),
        ("lrtest", "vcomp.compare(smaller, res) is the likelihood-ratio test"),
        ("nothing", "has no attribute 'nothing'"),
    ],
)
def test_the_message_has_what_to_write(res, name, expected):
    assert expected in refused(res, name)


@pytest.mark.parametrize("name", sorted(_EXPRESSIONS))
def test_expressions_are_of_this_result(res, name):
    code = _EXPRESSIONS[name]
    assert f"write {code} (res" in refused(res, name)
    if code == "res.bootstrap()":
        code = "res.bootstrap(2)"
    eval(code, {"res": res})


@pytest.mark.parametrize("name", sorted(_TASKS))
def test_calls_in_sentences_run(res, data, name, tmp_path):
    sentence = refused(res, name)
    path = tmp_path / "res.json"
    res.to_json(path)
    smaller = vcomp.fit("y ~ x + f + (1|g)", data)
    names = {
        "res": res, "smaller": smaller, "vcomp": vcomp, "data": data, "path": path,
        "formula": "y ~ x + (1|g)", "len": len,
    }  # fmt: skip
    calls = re.findall(r"(?:len\()?(?:vcomp|res)\.[\w.]+(?:\([^)]*\))?\)?", sentence)
    assert calls
    for call in calls:
        if "to_json" not in call:
            eval(call, names)


def test_numbers_are_those_of_the_other_library(res):
    """As statsmodels defines them."""
    sigma = eval(_EXPRESSIONS["sigma"], {"res": res})
    assert sigma**2 == pytest.approx(res.vcomp["Residual"], rel=1e-15)
    assert eval(_EXPRESSIONS["deviance"], {"res": res}) == -2.0 * res.llf


def test_results_without_such_names_copy_and_ask(res):
    assert not hasattr(res, "ranef")
    assert getattr(res, "ranef", 1) == 1
    for again in (copy.copy(res), copy.deepcopy(res), pickle.loads(pickle.dumps(res))):
        assert again.vcomp.equals(res.vcomp)


def test_errors_of_properties_are_their_own():
    class Broken(vcomp.VarianceComponentsResults):
        @property
        def deviance(self):
            return {}.missing

    with pytest.raises(AttributeError, match="'dict' object has no attribute 'missing'"):
        Broken(None).deviance  # noqa: B018
