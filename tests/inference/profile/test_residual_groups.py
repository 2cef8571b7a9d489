"""Profiles with residual variances by level, against dense likelihoods maximised by scipy."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.stats import chi2

import vcomp
from vcomp.estimators.likelihood import MatricesLikelihood, VanishedResidualError

NAMES = ["sys", "topic", *(f"Residual[sys=s{i}]" for i in range(4))]


@cache
def rows():
    rng = np.random.default_rng(7)
    sys, topic = (a.ravel() for a in np.indices((4, 11)))
    e = rng.normal(size=sys.size) * np.array([0.4, 0.5, 1.2, 2.0])[sys]
    y = 1.5 * rng.normal(size=4)[sys] + rng.normal(size=11)[topic] + e
    return pd.DataFrame({"y": y, "sys": [f"s{i}" for i in sys], "topic": topic}).iloc[:-2]


@cache
def fitted(method="reml"):
    model = vcomp.VarianceComponentsModel("y ~ (1|sys) + (1|topic)", rows(), residual="sys")
    return model.fit(method)


@cache
def parts():
    columns = [rows()[name].to_numpy()[:, None] for name in ("sys", "topic")]
    Z = [(column == np.unique(column)).astype(float) for column in columns]
    return np.array([z @ z.T for z in Z] + [np.diag(column) for column in Z[0].T])


def dense(v, *, reml):
    """Return the log-likelihood of a general mean from V, and its derivatives."""
    V, y = np.tensordot(v, parts(), 1), rows()["y"].to_numpy()
    L = np.linalg.cholesky(V)
    b, a = np.linalg.solve(L, np.column_stack([y, np.ones(y.size)])).T
    r = b - a * (a @ b) / (a @ a)
    logs = 2.0 * np.log(np.diag(L)).sum() + reml * np.log(a @ a)
    white = np.linalg.inv(L)
    Wr = white.T @ r
    Wa = white.T @ a
    W = white.T @ white - reml * np.outer(Wa, Wa) / (a @ a)
    score = 0.5 * (np.tensordot(parts(), np.outer(Wr, Wr) - W, 2))
    return -0.5 * (logs + r @ r + (y.size - reml) * np.log(2.0 * np.pi)), score


def highest(place, theta, *, reml):
    """Return the highest log-likelihood with a component at θ."""
    others = [i for i in range(len(NAMES)) if i != place]

    def components(x):
        v = np.empty(len(NAMES))
        v[others], v[place] = np.exp(x), theta
        return v

    def drop(x):
        v = components(np.maximum(x, -25.0))
        value, score = dense(v, reml=reml)
        return -value, -np.where(x > -25.0, (score * v)[others], 0.0)

    x = np.log(fitted("reml" if reml else "ml").vcomp.to_numpy()[others])
    for _ in range(3):
        x = minimize(drop, x, method="BFGS", jac=True, options={"gtol": 1e-7}).x
    return -drop(x)[0]


@pytest.mark.parametrize(
    ("method", "name"),
    [("reml", "sys"), ("ml", "topic"), ("ml", "Residual[sys=s2]"), ("reml", "Residual[sys=s3]")],
)
def test_likelihood_at_the_ends(method, name):
    res, reml = fitted(method), method == "reml"
    low, high = res.profile(name).conf_int().loc[name]
    for end in (low, high):
        drop = res.llf - highest(NAMES.index(name), end, reml=reml)
        assert 2.0 * drop == pytest.approx(chi2.ppf(0.95, 1), rel=1e-6)


@pytest.mark.parametrize("name", ["Residual[sys=s0]", "Residual[sys=s1]"])
def test_a_residual_that_other_effects_may_replace(name):
    """Effects of topics reproduce the scores of one system, whose residual may then be zero."""
    curve = fitted().profile(name).curves[name]
    place = NAMES.index(name)
    assert curve.low == 0.0
    assert "do not exclude 0" in curve.notes[0]
    assert 2.0 * (fitted().llf - highest(place, 1e-7, reml=True)) < chi2.ppf(0.95, 1)
    drop = fitted().llf - highest(place, curve.high, reml=True)
    # Next to the upper end another residual is zero, where the dense V is nearly singular.
    assert 2.0 * drop == pytest.approx(chi2.ppf(0.95, 1), rel=1e-5)


@pytest.mark.parametrize("topic", [0.5, 2.0, 8.0])
def test_a_residual_below_the_limit_of_the_likelihood_has_vanished(topic):
    """Where the likelihood cannot be computed a climb does not follow a slope of rounding."""
    model = vcomp.VarianceComponentsModel("y ~ (1|sys) + (1|topic)", rows(), residual="sys")
    likelihood = MatricesLikelihood(model.statistics, reml=True)
    S = likelihood.matrices_of(np.array([4.0, topic, 0.6, 9e-9, 1.6, 1.6]))
    assert likelihood.loglike(S) == -np.inf
    with pytest.raises(VanishedResidualError) as error:
        likelihood.gradient(S)
    assert error.value.group == 1


def test_quantities_have_the_same_intervals():
    res = fitted()
    low, high = res.profile("Residual[sys=s2]").conf_int().iloc[0]
    alone = res.quantity("Residual[sys=s2]", interval="profile")
    root = res.quantity("sd(Residual[sys=s2])", interval="profile")
    np.testing.assert_allclose([alone.low, alone.high], [low, high], rtol=1e-7)
    np.testing.assert_allclose([root.low**2, root.high**2], [low, high], rtol=1e-7)
    ratio = res.quantity("Residual[sys=s3] / Residual[sys=s2]", interval="profile")
    turned = res.quantity("Residual[sys=s2] / Residual[sys=s3]", interval="profile")
    np.testing.assert_allclose([turned.low, turned.high], [1 / ratio.high, 1 / ratio.low], 1e-6)


def test_groups_and_slopes():
    """Two groups of equal variance in a model of slopes have its likelihood at equal variances."""
    rng = np.random.default_rng(5)
    g, x = np.repeat(np.arange(10), 8), rng.normal(size=80)
    u = rng.multivariate_normal([0.0, 0.0], [[2.0, 0.4], [0.4, 0.8]], size=10)
    half = np.where(np.arange(80) % 2, "a", "b")
    y = u[g, 0] + u[g, 1] * x + rng.normal(size=80) * np.where(half == "a", 1.0, 1.6)
    data = pd.DataFrame({"y": y, "x": x, "g": g, "half": half})
    res = vcomp.fit("y ~ x + (x|g)", data, residual="half")
    model = res.model
    for name in ("g", "Residual[half=a]"):
        curve = res.profile(name).curves[name]
        near = [np.argmin(np.abs(curve.theta - end)) for end in (curve.low, curve.high)]
        for k in near:
            found = res.llf - model.loglike(curve.components[k])
            assert found == pytest.approx(0.5 * curve.z[k] ** 2, rel=1e-9)
            # Along the profile the slopes of the other components are zero.
            score = model.score(curve.components[k])
            score[list(res.vcomp.index).index(name)] = 0.0
            errors = np.sqrt(np.diagonal(res.cov_vcomp()))
            assert np.abs(score * errors).max() < 1e-5


def test_dstudies_have_profile_intervals():
    res, v = fitted(), fitted().vcomp
    phi = res.quantity("Phi", object="sys", topic=4, interval="profile")
    mean = " + ".join(f"Residual[sys=s{i}]/16" for i in range(4))
    wanted = res.quantity(f"sys / (sys + topic/4 + {mean})", interval="profile")
    assert phi.estimate == pytest.approx(v["sys"] / (v["sys"] + (v["topic"] + v[2:].mean()) / 4))
    np.testing.assert_allclose([phi.low, phi.high], [wanted.low, wanted.high], rtol=1e-7)


def test_dstudies_have_bootstrap_intervals():
    res = fitted()
    with pytest.warns(vcomp.VcompWarning, match="a residual variance went to zero"):
        draws = res.bootstrap(12, rng=1)
    study = res.dstudy(object="sys", topic=4, interval=draws)
    usable = draws.values[draws.converged]
    for values, own in ((usable[:, 2:].mean(axis=1), study), (usable[:, 4], study.by_level["s2"])):
        phi = usable[:, 0] / (usable[:, 0] + (usable[:, 1] + values) / 4)
        ends = own.table.loc[0, ["Phi_low", "Phi_high"]].to_numpy(dtype=float)
        wanted = np.quantile(phi, [0.025, 0.975])
        np.testing.assert_allclose(ends, wanted, rtol=1e-12)
