"""The iteration: bounds, certificates, limits, hard starts."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from designs import DESIGNS, balanced, unbalanced

import vcomp
from vcomp.estimators.blocked import BlockedLikelihood
from vcomp.estimators.maximise import maximise


@pytest.mark.parametrize("name", sorted(DESIGNS))
@pytest.mark.parametrize("factor", [1e-4, 1e-2, 1.0, 1e3])
def test_any_start_leads_to_the_same_maximum(name, factor):
    formula, data = unbalanced(name, seed=11)
    model = vcomp.VarianceComponentsModel(formula, data)
    likelihood = BlockedLikelihood(model.stats, reml=True)
    sizes = np.array([*model.stats.sizes, model.nobs], dtype=float)
    start = np.full(sizes.size, factor)
    found = maximise(likelihood, start, sizes)
    expected = model.fit()
    assert found.converged
    assert found.loglike == pytest.approx(expected.llf, rel=1e-11)
    scale = expected.vcomp.sum()
    np.testing.assert_allclose(found.v, expected.vcomp, rtol=1e-7, atol=1e-9 * scale)


@pytest.mark.parametrize("name", sorted(DESIGNS))
def test_the_end_is_quadratic(name):
    """Each of the last Newton decrements is about the square of the one before."""
    formula, data = unbalanced(name, seed=11)
    model = vcomp.VarianceComponentsModel(formula, data)
    decrements = []
    for limit in range(12):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", vcomp.VcompWarning)
            shown = model.fit("ml", max_iter=limit).certificate
        decrements.append(shown.newton_decrement)
        if decrements[-1] < 1e-11:
            break
    near = [(a, b) for a, b in pairwise(decrements) if 1e-6 < a < 1e-2]
    assert decrements[-1] < 1e-9
    # The factor is the relative third derivative; 10 covers a component just above its bound.
    assert all(b < 10.0 * a**2 + 1e-10 for a, b in near)


def test_limit_of_steps_is_said_and_warned_of():
    formula, data = unbalanced("three facets")
    with pytest.warns(vcomp.VcompWarning, match="limit of 1 steps was reached; raise max_iter"):
        res = vcomp.fit(formula, data, method="ml", max_iter=1)
    assert not res.converged
    assert res.status.startswith("Not converged")
    assert "NOT CONVERGED" in str(res.summary())


def test_a_component_at_its_bound_is_an_ordinary_answer():
    """Without an effect of a, and with means of a closer than chance, σ²(a) is 0."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"a": np.repeat(range(8), 6), "y": rng.normal(size=48)})
    data["y"] -= data.groupby("a")["y"].transform("mean")
    res = vcomp.fit("y ~ (1|a)", data)
    assert res.converged
    assert res.vcomp["a"] == 0.0
    assert res.certificate.bounded == ("a",)
    assert res.certificate.bound_scores["a"] < 0.0
    assert "σ²(a) is estimated at its bound 0 (score there" in res.status
    assert np.isnan(res.bse_vcomp["a"])
    # What is left is a sample with one mean: SS/(n − 1), and its variance 2σ⁴/(n − 1).
    s2 = data["y"].var()
    # The iteration ends within 1e-10 standard errors.
    assert res.vcomp["Residual"] == pytest.approx(s2, rel=1e-10)
    assert res.bse_vcomp["Residual"] == pytest.approx(s2 * np.sqrt(2 / 47), rel=1e-10)
    score = vcomp.VarianceComponentsModel("y ~ (1|a)", data).score(res.vcomp)
    assert score[0] == pytest.approx(res.certificate.bound_scores["a"])


@pytest.mark.parametrize("ratio", [1e-6, 1e-3, 1e3, 1e6])
def test_components_decades_apart(ratio):
    """One-way balanced: the closed form, whatever the ratio of the variances."""
    rng = np.random.default_rng(4)
    a, n = 30, 5
    effects = np.sqrt(ratio) * rng.normal(size=a)
    data = pd.DataFrame({"a": np.repeat(range(a), n)})
    data["y"] = effects[data["a"]] + rng.normal(size=a * n)
    means = data.groupby("a")["y"].mean()
    within = (data["y"] - means[data["a"]].to_numpy()).pow(2).sum() / (a * (n - 1))
    between = n * means.var()
    res = vcomp.fit("y ~ (1|a)", data)
    interior = between > within
    expected = [(between - within) / n, within] if interior else [0.0, data["y"].var()]
    np.testing.assert_allclose(res.vcomp, expected, rtol=1e-7)


@pytest.mark.parametrize("name", ["crossed", "three facets"])
def test_unbalanced_fit_with_large_crossing_effects(name):
    """A residual four decades below the rest is found as well."""
    formula, data = balanced(name, seed=2, scale=100.0)
    data = data[np.random.default_rng(0).random(len(data)) > 0.2]
    res = vcomp.fit(formula, data)
    assert res.converged
    assert res.certificate.kkt_residual < 1e-6
