"""What to write for names that results have in lme4, nlme, statsmodels and linearmodels."""

from __future__ import annotations

import copy
import pickle
import re

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.printed_tables import printed_columns
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
        ("fit", "vcomp.fit(formula, data) fits another model"),
        ("condVar", "write res.random_effects_cov('g', conditional=True)"),
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


def test_fits_are_singular_whose_covariance_matrix_is():
    rng = np.random.default_rng(2)
    g, h, x = np.repeat(np.arange(15), 8), np.tile(np.arange(8), 15), rng.normal(size=120)
    found = []
    for slope, formula in (
        (0.0, "y ~ x + (1|g)"),
        (0.0, "y ~ x + (1|g) + (1|h)"),
        (-0.5, "y ~ x + (x|g)"),
        (1.0, "y ~ x + (x|g)"),
    ):
        u = rng.normal(size=(2, 15))
        slopes = (u[1] if slope == 1.0 else slope * u[0])[g]
        y = u[0][g] + slopes * x + 0.3 * rng.normal(size=120)
        frame = pd.DataFrame({"g": g, "h": h, "x": x, "y": y})
        frame["y"] -= frame.groupby("h")["y"].transform("mean") if "h" in formula else 0.0
        res = vcomp.fit(formula, frame)
        smallest = np.linalg.eigvalsh(res.cov_re)[0] / np.max(res.cov_re)
        found.append(bool(eval(_EXPRESSIONS["issingular"], {"res": res})))
        assert found[-1] is bool(smallest < 1e-9)
    assert found == [False, True, True, False]


def test_numbers_are_those_of_the_other_library(res):
    """As statsmodels defines them."""
    sigma = eval(_EXPRESSIONS["sigma"], {"res": res})
    assert sigma**2 == pytest.approx(res.vcomp["Residual"], rel=1e-15)
    assert eval(_EXPRESSIONS["deviance"], {"res": res}) == -2.0 * res.llf


def test_names_of_statsmodels_have_its_numbers(res, data):
    """They agree as far as its optimiser converges."""
    import statsmodels.formula.api as smf

    one = vcomp.fit("y ~ x + f + (1|g)", data)
    there = smf.mixedlm("y ~ x + f", pd.DataFrame(data), groups="g").fit()
    assert one.scale == pytest.approx(there.scale, rel=1e-3)
    np.testing.assert_allclose(one.cov_re, there.cov_re, rtol=1e-3)
    np.testing.assert_allclose(one.fe_params, there.fe_params, rtol=1e-3)
    ours = one.random_effects_cov("g", conditional=True)
    for level, theirs in there.random_effects_cov.items():
        np.testing.assert_allclose(ours.loc[level], theirs, rtol=1e-3)
    assert one.scale == one.vcomp["Residual"]
    assert list(res.cov_re.columns) == list(res.cov_re.index) == ["g", "h"]
    np.testing.assert_array_equal(res.cov_re, np.diag(res.vcomp[:2]))


@pytest.mark.parametrize("contrasts", ["x = 0", "f[T.b] = 0, f[T.c] = 1", "x = 1, 2*x = 2"])
def test_the_wald_test_is_the_quadratic_form(res, contrasts):
    from patsy import DesignInfo
    from scipy.stats import chi2

    test = res.wald_test(contrasts)
    given = DesignInfo(list(res.fe_params.index)).linear_constraint(contrasts)
    n = np.linalg.matrix_rank(given.coefs)
    L, c = given.coefs[:n], given.constants[:n, 0]
    cov = res.cov_params().iloc[:4, :4].to_numpy()
    distance = L @ res.fe_params - c
    expected = distance @ np.linalg.solve(L @ cov @ L.T, distance)
    assert test.statistic == pytest.approx(expected, rel=1e-9)
    assert test.df == (n,)
    assert test.p_value == pytest.approx(chi2.sf(expected, n), rel=1e-9)
    assert f"χ² = {expected:.4g}" in str(test)


def test_summary_col_of_statsmodels(res, data):
    """Columns of results side by side, with the standard errors of their summaries."""
    from statsmodels.iolib.summary2 import summary_col

    other = vcomp.fit("y ~ x + (1|g)", data)
    table = summary_col([res, other], model_names=["both", "one"], stars=True).tables[0]
    assert list(table.columns) == ["both", "one"]
    for name in ("x", "var(h)"):
        place = list(table.index).index(name)
        assert table["both"].iloc[place].rstrip("*") == f"{res.params[name]:.4f}"
        assert table["both"].iloc[place + 1] == f"({res.bse[name]:.4f})"
    assert table["one"].iloc[list(table.index).index("var(h)")] == ""
    printed = [e.replace("–", "nan") for e in printed_columns(res.summary(), 1)["std. err."]]
    np.testing.assert_allclose(np.array(printed, dtype=float), res.bse[-3:], rtol=0.01)


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
