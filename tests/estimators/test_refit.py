"""``negative="refit"``: the estimate of what is left is that of the formula without the terms."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import balanced, simulate

METHODS = ("anova", "type1", "henderson3", "minque")
TERMS = ["(1|a)", "(1|b)", "(1|c)", "(1|a:b)", "(1|a:c)", "(1|b:c)"]


def three_facets(seed):
    """Return data without main effects, of which some estimates are negative, a row missing."""
    frame = simulate("", {"a": 5, "b": 4, "c": 3}, 1, (), seed, scale=0.0)
    return frame.drop(index=7)


def fit(formula, data, **options):
    with warnings.catch_warnings():
        # That Method I is a poor one for partly crossed data does not matter here.
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        return vcomp.fit(formula, data, **options)


@pytest.mark.parametrize(("method", "seed"), alternately(METHODS, 0, 2))
def test_it_is_the_fit_without_the_terms(seed, method):
    """The most negative one goes first, until there is none."""
    data, kept = three_facets(seed), list(TERMS)
    expected = fit(f"y ~ {' + '.join(kept)}", data, method=method)
    whole, dropped = expected, []
    while expected.vcomp.iloc[:-1].min() < 0.0 and len(kept) > 1:
        worst = expected.vcomp.iloc[:-1].idxmin()
        dropped.append(worst)
        kept.remove(f"(1|{worst})")
        expected = fit(f"y ~ {' + '.join(kept)}", data, method=method)
    res = fit(whole.formula, data, method=method, negative="refit")
    if expected.vcomp.iloc[:-1].min() < 0.0:
        assert (res.vcomp.iloc[:-1] == 0.0).all()
        return
    names = list(expected.vcomp.index)
    np.testing.assert_allclose(res.vcomp[names], expected.vcomp, rtol=1e-9)
    np.testing.assert_allclose(res.bse_vcomp[names], expected.bse_vcomp, rtol=1e-7)
    np.testing.assert_allclose(res.fe_params, expected.fe_params, rtol=1e-10)
    np.testing.assert_allclose(res.bse_fe, expected.bse_fe, rtol=1e-8)
    assert list(res.vcomp.index) == list(whole.vcomp.index)
    assert (res.vcomp[dropped] == 0.0).all()
    assert res.bse_vcomp[dropped].isna().all()
    at = [res.status.index(f"σ²({name}) (was -") for name in dropped]
    assert at == sorted(at)


def test_nothing_negative_changes_nothing():
    formula, data = balanced("crossed", seed=1)
    one, other = (fit(formula, data, method="anova", negative=n) for n in ("keep", "refit"))
    pd.testing.assert_series_equal(one.vcomp, other.vcomp, check_exact=True)
    assert one.status == other.status


@pytest.mark.parametrize("method", METHODS)
def test_without_any_term_it_is_the_sample_variance(method):
    data = {"g": list("aabbccdd"), "y": [1.0, 3.0, 1.1, 2.8, 0.9, 3.2, 1.2, 3.1]}
    res = fit("y ~ (1|g)", data, method=method, negative="refit")
    s2, n = np.var(data["y"], ddof=1), 8
    assert res.vcomp.tolist() == [0.0, pytest.approx(s2, rel=1e-12)]
    assert res.bse_vcomp["Residual"] == pytest.approx(s2 * np.sqrt(2 / (n - 1)), rel=1e-12)
    assert res.fe_params["Intercept"] == pytest.approx(np.mean(data["y"]), rel=1e-12)
    assert res.bse_fe["Intercept"] == pytest.approx(np.sqrt(s2 / n), rel=1e-12)
    assert "σ²(g) (was -0.9796)" in res.status
    assert res.converged
    assert np.isnan(res.llf)
    # It is there for D-studies, predictions and storage as any other result.
    assert res.dstudy(object="g", replicate=2).table["Erho2"].item() == 0.0
    assert (res.random_effects["g"]["estimate"] == 0.0).all()
    again = vcomp.VarianceComponentsResults.from_json(res.to_json())
    assert str(again.summary()) == str(res.summary())
    if method == "anova":  # needs a constant mean
        return
    # Ordinary least squares with a covariate.
    data["x"] = [0.1, 0.5, -0.3, 0.2, 0.7, 0.3, -0.2, 0.4]
    X = np.column_stack([np.ones(n), data["x"]])
    res = fit("y ~ x + (1|g)", data, method=method, negative="refit")
    beta, rss = np.linalg.lstsq(X, np.array(data["y"]))[:2]
    assert res.vcomp.tolist() == [0.0, pytest.approx(rss[0] / (n - 2), rel=1e-12)]
    assert res.bse_vcomp["Residual"] == pytest.approx(rss[0] * np.sqrt(2 / (n - 2) ** 3))
    np.testing.assert_allclose(res.fe_params, beta, rtol=1e-10)
    covariance = np.linalg.inv(X.T @ X) * rss[0] / (n - 2)
    np.testing.assert_allclose(res.bse_fe, np.sqrt(np.diagonal(covariance)), rtol=1e-10)


def test_policies_that_cannot_be():
    formula, data = balanced("crossed", seed=1)
    with pytest.raises(vcomp.EstimationError, match="it is 'keep' or 'refit'"):
        fit(formula, data, method="anova", negative="zero")
    with pytest.raises(vcomp.EstimationError, match="'reml' never estimates a component below"):
        fit(formula, data, negative="refit")


def test_an_estimate_of_exactly_zero_is_not_negative():
    """Mean squares between and within are both 25: it keeps its standard error."""
    data = {"g": ["a", "a", "b", "b"], "y": [0.0, 6.0, 4.0, 12.0]}
    one, other = (fit("y ~ (1|g)", data, method="anova", negative=n) for n in ("keep", "refit"))
    assert one.vcomp["g"] == 0.0
    assert other.bse_vcomp["g"] == one.bse_vcomp["g"] > 0.0
    assert other.status == one.status
