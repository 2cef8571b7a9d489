"""Weights, frequencies, known variances and offsets: identities, dense matrices and refusals."""

from __future__ import annotations

import pickle
import re
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import chi2

import vcomp
from vcomp.estimators import get_estimator
from vcomp.estimators.quadratic.minque import _priors, _solved
from vcomp.inference.resampling.draws import draw_errors
from vcomp.inference.resampling.parametric import drawn_refits
from vcomp.inference.resampling.refits import Recipe, StackedRefits

RNG = np.random.default_rng(12)
N = 70


def made():
    """Return rows of two crossed facets with covariate, weights and offset."""
    a, b = RNG.integers(0, 9, N), RNG.integers(0, 6, N)
    x, w, o = RNG.normal(size=N), RNG.integers(1, 8, N), RNG.normal(size=N)
    u, v = RNG.normal(size=9), 0.6 * RNG.normal(size=6)
    y = 1.0 + 0.5 * x + u[a] + v[b] + RNG.normal(size=N) / np.sqrt(w)
    columns = {"y": y, "x": x, "a": a, "b": b, "w": w.astype(float), "n": w, "o": o}
    return pd.DataFrame(columns | {"v": 1.0 / w, "kind": np.where(x > 0.0, "hi", "lo")})


DATA = made()
MODEL = "y ~ x + (1|a) + (1|b)"


def covariance(data, v, w):
    """Return the dense covariance matrix of the scores."""
    V = np.diag(v[-1] / w)
    for facet, value in zip(("a", "b"), v, strict=False):
        Z = (data[facet].to_numpy()[:, None] == np.unique(data[facet])).astype(float)
        V += value * Z @ Z.T
    return V


@pytest.mark.parametrize("reml", [True, False])
@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9])
def test_the_log_likelihood_is_that_of_dense_matrices(reml, scale):
    w = scale * DATA["w"].to_numpy()
    v = np.array([0.8, 0.3, 1.1 * scale])
    V, X = covariance(DATA, v, w), np.column_stack([np.ones(N), DATA["x"]])
    inverse = np.linalg.inv(V)
    A = X.T @ inverse @ X
    beta = np.linalg.solve(A, X.T @ inverse @ DATA["y"])
    r = DATA["y"] - X @ beta
    dense = np.linalg.slogdet(V)[1] + r @ inverse @ r + (N - 2 * reml) * np.log(2.0 * np.pi)
    dense += np.linalg.slogdet(A)[1] if reml else 0.0
    model = vcomp.VarianceComponentsModel(MODEL, DATA, weights=w)
    assert model.loglike(v, reml=reml) == pytest.approx(-0.5 * dense, abs=1e-9)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
@pytest.mark.parametrize("formula", [MODEL, "y ~ x + (x|a)"])
def test_the_unit_of_weights_is_that_of_the_residual(formula, scale):
    res = vcomp.fit(formula, DATA, weights="w")
    other = vcomp.fit(formula, DATA, weights=scale * DATA["w"])
    expected = res.vcomp * np.where(res.vcomp.index == "Residual", scale, 1.0)
    np.testing.assert_allclose(other.vcomp, expected, rtol=1e-6)
    np.testing.assert_allclose(other.fe_params, res.fe_params, rtol=1e-7)
    np.testing.assert_allclose(other.df_fe, res.df_fe, rtol=1e-5)
    assert other.llf == pytest.approx(res.llf, abs=1e-8)


def test_residual_groups_have_weights():
    res = vcomp.fit("y ~ x + (1|a)", DATA, weights="w", residual="kind", method="ml")
    group = (DATA["kind"] == "lo").to_numpy()
    residuals = [res.vcomp[f"Residual[kind={k}]"] for k in ("hi", "lo")]
    V = np.diag(np.where(group, residuals[1], residuals[0]) / DATA["w"])
    Z = (DATA["a"].to_numpy()[:, None] == np.unique(DATA["a"])).astype(float)
    V += res.vcomp["a"] * Z @ Z.T
    X, inverse = np.column_stack([np.ones(N), DATA["x"]]), np.linalg.inv(V)
    r = DATA["y"] - X @ np.linalg.solve(X.T @ inverse @ X, X.T @ inverse @ DATA["y"])
    dense = np.linalg.slogdet(V)[1] + r @ inverse @ r + N * np.log(2.0 * np.pi)
    assert res.llf == pytest.approx(-0.5 * dense, abs=1e-9)


def test_weights_of_one_change_nothing():
    res = vcomp.fit(MODEL, DATA, engine="blocked")
    other = vcomp.fit(MODEL, DATA, weights=np.ones(N), engine="blocked")
    np.testing.assert_allclose(other.params, res.params, rtol=1e-10)
    assert other.llf == pytest.approx(res.llf, abs=1e-10)
    assert len(res.cov_params()) == len(other.cov_params())


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_means_with_weights_are_their_rows_at_a_known_residual(method):
    rows = DATA.loc[DATA.index.repeat(DATA["n"])].reset_index(drop=True)
    rows["z"] = rows["y"] + RNG.normal(size=len(rows))
    row = np.repeat(np.arange(N), DATA["n"])
    means = DATA.assign(z=np.bincount(row, rows["z"]) / DATA["n"])
    hold = {"Residual": 0.9}
    res = vcomp.fit(MODEL.replace("y", "z"), rows, method=method, hold=hold)
    other = vcomp.fit(MODEL.replace("y", "z"), means, weights="n", method=method, hold=hold)
    np.testing.assert_allclose(other.vcomp, res.vcomp, rtol=1e-7)
    np.testing.assert_allclose(other.fe_params, res.fe_params, rtol=1e-8)
    np.testing.assert_allclose(other.bse_fe, res.bse_fe, rtol=1e-7)
    # The differences from the means have a likelihood of their own, without unknowns.
    within = float(np.square(rows["z"] - means["z"].to_numpy()[row]).sum())
    more = (len(rows) - N) * np.log(2.0 * np.pi * 0.9) + within / 0.9
    more += float(np.log(DATA["n"]).sum())
    assert res.llf == pytest.approx(other.llf - 0.5 * more, abs=1e-8)


def test_a_weighted_model_is_one_of_slopes_of_the_root_of_the_weight():
    root = np.sqrt(DATA["w"])
    slopes = DATA.assign(y=root * DATA["y"], r=root, rx=root * DATA["x"])
    res = vcomp.fit("y ~ x + (1|a)", DATA, weights="w")
    other = vcomp.fit("y ~ 0 + r + rx + (0 + r|a)", slopes)
    np.testing.assert_allclose(other.params, res.params, rtol=1e-6)
    assert res.llf == pytest.approx(other.llf + float(np.log(root).sum()), abs=1e-8)
    for ddf in ("satterthwaite", "kenward-roger"):
        mine = res.f_test("x = 0", ddf=ddf)
        theirs = other.f_test("rx = 0", ddf=ddf)
        assert mine.statistic == pytest.approx(theirs.statistic, rel=1e-6)
        assert mine.df == pytest.approx(theirs.df, rel=1e-6)


def test_slopes_with_weights_are_those_of_dense_matrices():
    model = vcomp.VarianceComponentsModel("y ~ x + (x|a)", DATA, weights="w")
    v = np.array([0.7, 0.4, 0.1, 1.3])
    V = np.diag(v[-1] / DATA["w"])
    Z = (DATA["a"].to_numpy()[:, None] == np.unique(DATA["a"])).astype(float)
    Zx = Z * DATA["x"].to_numpy()[:, None]
    V += v[0] * Z @ Z.T + v[1] * Zx @ Zx.T + v[2] * (Z @ Zx.T + Zx @ Z.T)
    X, inverse = np.column_stack([np.ones(N), DATA["x"]]), np.linalg.inv(V)
    r = DATA["y"] - X @ np.linalg.solve(X.T @ inverse @ X, X.T @ inverse @ DATA["y"])
    dense = np.linalg.slogdet(V)[1] + r @ inverse @ r + N * np.log(2.0 * np.pi)
    assert model.loglike(v, reml=False) == pytest.approx(-0.5 * dense, abs=1e-9)


def test_prediction_errors_are_those_of_henderson():
    res = vcomp.fit(MODEL, DATA, weights="w")
    v, X = res.vcomp.to_numpy(), np.column_stack([np.ones(N), DATA["x"]])
    Z = np.hstack(
        [(DATA[f].to_numpy()[:, None] == np.unique(DATA[f])).astype(float) for f in ("a", "b")]
    )
    T, W = np.hstack([X, Z]), np.diag(DATA["w"] / v[-1])
    sizes = [DATA[f].nunique() for f in ("a", "b")]
    C = T.T @ W @ T + np.diag([0.0, 0.0, *np.repeat(1.0 / v[:-1], sizes)])
    inverse = np.linalg.inv(C)
    found = res.random_effects["a"]
    solution = inverse @ (T.T @ W @ DATA["y"])
    np.testing.assert_allclose(found["estimate"], solution[2 : 2 + sizes[0]], atol=1e-8)
    np.testing.assert_allclose(
        found["se"], np.sqrt(np.diagonal(inverse)[2 : 2 + sizes[0]]), rtol=1e-7
    )
    of_mean = np.einsum("ij,jk,ik->i", T, inverse, T)
    predicted = res.get_prediction()
    np.testing.assert_allclose(predicted.se_mean, np.sqrt(of_mean), rtol=1e-7)
    np.testing.assert_allclose(predicted.se_obs, np.sqrt(of_mean + v[-1] / DATA["w"]), rtol=1e-7)
    # Rows without the column of weights are scores of weight 1.
    new = res.get_prediction(DATA.drop(columns="w"))
    np.testing.assert_allclose(new.se_obs, np.sqrt(of_mean + v[-1]), rtol=1e-7)


def test_intervals_and_tests_of_weighted_fits():
    res = vcomp.fit(MODEL, DATA, weights="w")
    profile = res.conf_int(interval="profile")
    model = res.model
    low = profile.loc["var(a)", 0]
    held = model.fit(hold={"a": low})
    # The likelihood ratio at the end of a profile interval is the quantile of χ².
    assert 2.0 * (res.llf - held.llf) == pytest.approx(3.841458820694124, abs=1e-5)
    assert (res.conf_int()[0] < res.params).all()
    assert 0.0 < res.test("a", test="lrt").p_value < 0.01
    smaller = vcomp.fit("y ~ x + (1|a)", DATA, weights="w")
    assert vcomp.compare(smaller, res).table["p_value"].iloc[1] < 0.5


def test_drawn_residuals_have_the_variance_of_their_weight():
    chunk = vcomp.VarianceComponentsModel(MODEL, DATA, weights="w").statistics.cells
    drawn = draw_errors(chunk, np.array([0.0, 0.0, 2.25]), np.random.default_rng(3))
    plain = 1.5 * np.random.default_rng(3).standard_normal(N)
    np.testing.assert_allclose(drawn, plain / np.sqrt(DATA["w"]), rtol=1e-14)


def test_bootstrap_replicates_estimate_the_components():
    res = vcomp.fit("y ~ (1|a)", DATA, weights="w")
    drawn = res.bootstrap(200, rng=4).frame["var(Residual)"]
    error = float(drawn.std()) / np.sqrt(200)
    assert abs(drawn.mean() - res.scale) < 4.0 * error
    assert res.simulate(3, rng=1).shape == (N, 3)


@pytest.mark.parametrize("form", ["column", "array"])
def test_frequencies_are_repeated_rows(form):
    n = (DATA["n"] - 1).rename("n")
    rows = DATA.loc[DATA.index.repeat(n)]
    res = vcomp.fit(MODEL, rows)
    given = "n" if form == "column" else n.to_numpy()
    other = vcomp.fit(MODEL, DATA.assign(n=n), frequency=given)
    assert other.nobs == n.sum()
    assert str(other.summary()) == str(res.summary())
    assert other.resid.index.equals(res.resid.index)


def test_counts_of_ones_and_zeros_are_their_rows():
    rows = pd.DataFrame({"g": RNG.integers(0, 12, 600)})
    rows["hit"] = (RNG.random(600) < 0.3 + 0.04 * rows["g"]).astype(int)
    counts = rows.value_counts().reset_index(name="count")
    res = vcomp.fit("hit ~ (1|g)", rows, method="anova")
    other = vcomp.fit("hit ~ (1|g)", counts, frequency="count", method="anova")
    pd.testing.assert_series_equal(other.vcomp, res.vcomp, rtol=1e-12)


def test_streams_have_frequencies_and_offsets():
    known = {"frequency": "n", "offset": "o"}
    res = vcomp.fit(MODEL, DATA, **known)
    other = vcomp.fit(MODEL, DATA, stream=True, **known)
    np.testing.assert_allclose(other.params, res.params, rtol=1e-8)
    written = vcomp.fit("y ~ x + offset(o) + (1|a)", DATA, stream=True)
    np.testing.assert_allclose(
        written.params, vcomp.fit("I(y - o) ~ x + (1|a)", DATA).params, rtol=1e-8
    )


def test_gstudies_have_weights():
    res = vcomp.gstudy("a x b", DATA, "y", weights="w")
    assert res.weights.column == "w"
    np.testing.assert_allclose(
        res.vcomp, vcomp.fit(res.formula, DATA, weights="w").vcomp, rtol=1e-9
    )
    assert 0.0 < res.dstudy("a x b", b=5).table["Erho2"].iloc[0] < 1.0


def test_gstudies_of_known_variances_are_refused():
    with pytest.raises(vcomp.DataError, match="fit a formula that has a term for it"):
        vcomp.gstudy("a x b", DATA, "y", known_variance="v")
    vcomp.fit("y ~ (1|a*b)", DATA, known_variance="v")


def test_equal_known_variances_are_a_held_residual():
    res = vcomp.fit(MODEL, DATA, hold={"Residual": 0.25})
    other = vcomp.fit(MODEL, DATA, known_variance=np.full(N, 0.25))
    np.testing.assert_allclose(other.vcomp.iloc[:-1], res.vcomp.iloc[:-1], rtol=1e-7)
    assert other.llf == pytest.approx(res.llf, abs=1e-8)
    assert other.held == ("Residual",)


def test_terms_of_single_rows_differ_from_known_variances():
    rows = DATA.assign(id=range(N))
    res = vcomp.fit("y ~ x + (1|id)", rows, known_variance="v")
    V = np.diag(res.vcomp["id"] + DATA["v"])
    X = np.column_stack([np.ones(N), DATA["x"]])
    inverse = np.linalg.inv(V)
    P = inverse - inverse @ X @ np.linalg.solve(X.T @ inverse @ X, X.T @ inverse)
    # The score of τ² is zero at the estimate.
    assert DATA["y"] @ P @ P @ DATA["y"] == pytest.approx(np.trace(P), rel=1e-8)


@pytest.mark.parametrize(("tau2", "seed"), [(0.0, 9), (0.05, 5)])
def test_intervals_of_heterogeneity_are_ends_of_the_profile(tau2, seed):
    """Where the restricted likelihood of few studies is a χ² quantile lower, at zero one end."""
    rng = np.random.default_rng(seed)
    v = rng.uniform(0.01, 0.06, 25)
    y = 0.3 + rng.normal(size=25) * np.sqrt(v + tau2)
    res = vcomp.fit("y ~ (1|study)", {"y": y, "v": v, "study": range(25)}, known_variance="v")

    def twice(t):
        w = 1.0 / (t + v)
        mean = w @ y / w.sum()
        return -np.log(w).sum() + np.log(w.sum()) + w @ np.square(y - mean)

    found = res.vcomp["study"]
    assert (found == 0.0) == (tau2 == 0.0)
    low, high = res.conf_int().loc["var(study)"]
    assert high == pytest.approx(
        brentq(lambda t: twice(t) - twice(found) - chi2.ppf(0.95, 1), found, 1.0), rel=1e-5
    )
    assert low == 0.0 or twice(low) - twice(found) == pytest.approx(chi2.ppf(0.95, 1), rel=1e-4)


@pytest.mark.parametrize("shift", [0.0, 0.8])
def test_a_residual_that_is_held_has_profile_intervals(shift):
    """With σ² known, the groups of balanced data have −½[(a − 1) log λ + SSA/λ], λ = σ² + nτ²."""
    rng = np.random.default_rng(6)
    g = np.repeat(np.arange(13), 2)
    e = rng.normal(size=26)
    y = e - np.bincount(g, e)[g] / 2.0 + shift * rng.normal(size=13)[g]
    res = vcomp.fit("y ~ (1|g)", {"y": y, "g": g}, hold={"Residual": 1.0})
    means = np.bincount(g, y) / 2.0
    squares = 2.0 * np.square(means - means.mean()).sum()

    def drop(lam):
        best = max(squares / 12.0, 1.0)
        value, top = (-0.5 * (12.0 * np.log(x) + squares / x) for x in (lam, best))
        return 2.0 * (top - value) - chi2.ppf(0.95, 1)

    best = max(squares / 12.0, 1.0)
    high = (brentq(drop, best, 1e3) - 1.0) / 2.0
    low = 0.0 if drop(1.0) < 0.0 else (brentq(drop, 1.0, best) - 1.0) / 2.0
    found = res.conf_int().loc["var(g)"]
    np.testing.assert_allclose(found, [low, high], rtol=1e-6, atol=1e-9)
    assert res.quantity("g").interval_method == "profile likelihood"


@pytest.mark.parametrize("scale", [1.0, 1e-6])
@pytest.mark.parametrize("prior", [0, 1, [0.5, 0.2, 1.0]])
@pytest.mark.parametrize("dense_below", [0, 1500])
def test_minque_of_weighted_scores_solves_the_dense_equations(prior, scale, dense_below):
    """½tr(PVᵢPVⱼ)θ = ½y'PVᵢPy at the prior, with V = ΣθⱼVⱼ and the last Vⱼ = W⁻¹."""
    w = scale * DATA["w"].to_numpy()
    parts = [covariance(DATA, v, w) for v in ([1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0])]
    given = np.array([prior, prior, 1.0]) if np.isscalar(prior) else np.array(prior)
    V = sum(x * part for x, part in zip(given, parts, strict=True))
    X, y, inverse = np.column_stack([np.ones(N), DATA["x"]]), DATA["y"], np.linalg.inv(V)
    P = inverse - inverse @ X @ np.linalg.solve(X.T @ inverse @ X, X.T @ inverse)
    F = [[np.trace(P @ A @ P @ B) for B in parts] for A in parts]
    wanted = np.linalg.solve(F, [y @ P @ A @ P @ y for A in parts])
    if dense_below:
        res = vcomp.fit(MODEL, DATA, weights=w, method="minque", prior=prior)
        np.testing.assert_allclose(res.vcomp, wanted, rtol=1e-10)
        return
    stats = vcomp.VarianceComponentsModel(MODEL, DATA, weights=w).statistics
    solved = _solved(_priors(stats, 0), given, 1)
    np.testing.assert_allclose(solved.values, wanted, rtol=1e-9)


def test_iterated_minque_of_weighted_scores_is_reml():
    res = vcomp.fit(MODEL, DATA, weights="w", method="minque", iterated=True)
    np.testing.assert_allclose(res.vcomp, WEIGHTED.vcomp, rtol=1e-6)
    drawn, replicates = res.simulate(3, rng=2), res.bootstrap(3, rng=2)
    for b in range(3):
        again = vcomp.fit(
            MODEL, DATA.assign(y=drawn[b]), weights="w", method="minque", iterated=True
        )
        np.testing.assert_allclose(replicates.values[b], again.vcomp, rtol=1e-6)
    with pytest.raises(vcomp.EstimationError, match="use method='reml' or 'ml'"):
        vcomp.fit(MODEL, DATA, known_variance="v", method="minque")


def test_dependent_terms_of_known_variances_are_named():
    """Three contrasts of four cells are together the cells, but for their mean."""
    a, b = np.repeat([0, 1], 4), np.tile([0, 1], 4)
    data = {"y": np.arange(8.0) % 3, "a": a, "b": b, "c": a ^ b, "v": np.linspace(0.1, 0.4, 8)}
    with pytest.raises(vcomp.DesignError, match="distinguish the variances of a, b, c, a:b: "):
        vcomp.fit("y ~ (1|a) + (1|b) + (1|c) + (1|a:b)", data, known_variance="v")


def test_summaries_say_what_the_residual_is():
    text = str(vcomp.fit(MODEL, DATA, weights="w").summary())
    assert "Weights: 'w'; the residual variance is that of a score of weight 1." in text
    text = str(vcomp.fit(MODEL, DATA, known_variance="v").summary())
    assert "Scores have known variances, 'v'; the residual is their unit, 1." in " ".join(
        text.split()
    )


def test_an_interaction_in_the_residual_of_weighted_scores_is_named():
    rng = np.random.default_rng(11)
    p, i = (a.ravel() for a in np.indices((12, 10)))
    mean = rng.normal(size=12)[p] + rng.normal(size=10)[i] + rng.normal(size=p.size)
    n = rng.integers(1, 8, p.size)
    data = pd.DataFrame({"p": p, "i": i, "n": n})
    data["score"] = mean + rng.normal(size=p.size) / np.sqrt(n)
    found = vcomp.gstudy("p x i", data, "score", weights="n")
    words = "Residual holds p:i as if a weight reduced it as error"
    for page in (found.summary(), found.dstudy("p x I", i=20).summary()):
        assert words in " ".join(str(page).split())
    apart = vcomp.fit("score ~ (1|p) + (1|i) + (1|p:i)", data, weights="n")
    alike = vcomp.gstudy("p x i", data, "score")
    for other in (apart, alike):
        assert "Residual holds p:i as if" not in " ".join(str(other.summary()).split())
    # With the term, the likelihood is that of dense matrices with p:i in all scores alike.
    Z = [(column[:, None] == np.unique(column)).astype(float) for column in (p, i)]
    v = apart.vcomp.to_numpy()
    V = v[0] * Z[0] @ Z[0].T + v[1] * Z[1] @ Z[1].T + v[2] * np.eye(p.size) + v[3] * np.diag(1 / n)
    W, one = np.linalg.inv(V), np.ones((p.size, 1))
    r = data["score"].to_numpy() - float((one.T @ W @ data["score"])[0] / (one.T @ W @ one)[0, 0])
    logs = np.linalg.slogdet(V)[1] + np.linalg.slogdet(one.T @ W @ one)[1]
    wanted = -0.5 * (logs + float(r @ W @ r) + (p.size - 1) * np.log(2 * np.pi))
    assert apart.llf == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("option", ["weights", "known_variance"])
@pytest.mark.parametrize("hold", [{}, {"b": 0.0}])
def test_many_weighted_data_sets_are_fitted_as_one(option, hold):
    """Drawn data sets of weighted scores that are fitted together have estimates of their own."""
    model = vcomp.VarianceComponentsModel(MODEL, DATA, **{option: "w"})
    held = {**hold, "Residual": 1.0} if option == "known_variance" else hold
    recipes = [
        Recipe(get_estimator("reml", hold=held, engine=engine), model.component_names, once=True)
        for engine in ("auto", "blocked")
    ]
    v = np.array([0.6, 0.3, 1.0])
    assert StackedRefits.of(model.statistics, recipes[0], v) is not None
    assert StackedRefits.of(model.statistics, recipes[1], v) is None
    for together, alone in drawn_refits(model.statistics, recipes, v, 4, rng=2, progress=False):
        np.testing.assert_allclose(together.values, alone.values, rtol=1e-5, atol=1e-9)
        assert together.llf == pytest.approx(alone.llf, abs=1e-8)


def test_stored_results_keep_their_weights():
    res = vcomp.fit(MODEL, DATA, weights="w")
    for other in (
        vcomp.VarianceComponentsResults.from_json(res.to_json()),
        pickle.loads(pickle.dumps(res)),
    ):
        assert other.weights == res.weights
        assert str(other.fixed_effects()) == str(res.fixed_effects())
        with pytest.raises(vcomp.EstimationError, match="weights='w'"):
            other.anova_table()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weights": "m"}, "no column 'm'"),
        ({"weights": [1.0, 2.0]}, "weights= has 2 numbers, and the data have 70 rows"),
        ({"weights": 3.0}, "the name of a column or an array"),
        ({"weights": "kind"}, "must be numbers"),
        ({"weights": DATA["w"] - 1.0}, "above zero: a score of weight 0 says nothing"),
        ({"weights": np.full(N, np.inf)}, "above zero"),
        ({"known_variance": 0.0 * DATA["v"]}, "a score of variance 0 would be exact"),
        ({"known_variance": "x"}, r"leave such rows out, data\[data\['x'\] > 0\]"),
        ({"frequency": "x"}, "whole and not negative"),
        ({"frequency": np.zeros(N)}, "no score is left"),
        ({"offset": np.full(N, np.inf)}, "must be finite"),
        ({"weights": "w", "known_variance": "v"}, "exclude each other"),
        ({"known_variance": "v", "hold": {"Residual": 2.0}}, "exclude each other"),
        ({"weights": "w", "method": "anova"}, "use method='reml' or 'ml'"),
        ({"weights": "w", "method": "type1"}, "use method='reml' or 'ml'"),
        ({"weights": "w", "method": "henderson3"}, "use method='reml' or 'ml'"),
        ({"known_variance": "v", "method": "minque"}, "use method='reml' or 'ml'"),
        ({"frequency": DATA["n"], "stream": True}, "make it a column of the data"),
        ({"weights": "w", "engine": "strata"}, "use engine='auto'"),
    ],
)
def test_what_is_refused(options, words):
    with pytest.raises(vcomp.VcompError, match=words):
        vcomp.fit(MODEL, DATA, **options)


def test_missing_weights_leave_rows_out():
    data = DATA.assign(w=DATA["w"].where(DATA.index > 4))
    with pytest.warns(vcomp.VcompWarning, match=r"\(w 5\) and were left out"):
        res = vcomp.fit(MODEL, data, weights="w")
    assert res.nobs == N - 5
    with pytest.warns(vcomp.VcompWarning, match="weights= 5"):
        other = vcomp.fit(MODEL, DATA, weights=data["w"])
    np.testing.assert_array_equal(other.params, res.params)


WEIGHTED = vcomp.fit(MODEL, DATA, weights="w")
META = vcomp.fit(MODEL, DATA, known_variance="v")


@pytest.mark.parametrize(
    "refused",
    [
        lambda: WEIGHTED.anova_table(),
        lambda: WEIGHTED.crosscheck(n=20),
        lambda: META.dstudy("a x b", b=3),
        lambda: META.quantity("Erho2"),
        lambda: META.r2(),
        lambda: META.icc(),
        lambda: vcomp.compare(vcomp.fit(MODEL, DATA), WEIGHTED),
        lambda: vcomp.compare(vcomp.fit(MODEL, DATA, weights="n"), META),
    ],
)
def test_what_weights_are_refused_for(refused):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        with pytest.raises(vcomp.VcompError, match=r"weights|known_variance"):
            refused()


@pytest.mark.parametrize("frequency", [1e30, 1e300])
def test_a_frequency_that_no_memory_holds_has_few_digits(frequency):
    with pytest.raises(vcomp.VcompError, match=r"e\+3") as caught:
        vcomp.fit(MODEL, DATA, frequency=np.full(N, frequency))
    assert len(str(caught.value)) < 300


def test_dstudies_of_weighted_scores_have_errors():
    assert WEIGHTED.dstudy("a x b", b=3).table["abs_err_var"].notna().all()


def test_scores_and_their_means_are_not_compared():
    scores = vcomp.fit("y ~ (1|a)", DATA)
    cells = DATA.groupby(["a", "b"], as_index=False).agg(y=("y", "mean"), n=("y", "size"))
    means = vcomp.fit("y ~ (1|a)", cells, weights="n")
    with pytest.raises(vcomp.DataError, match="fit both to the scores, or both to the means"):
        vcomp.compare(scores, means)
    assert len(vcomp.compare(means, vcomp.fit("y ~ (1|a) + (1|b)", cells, weights="n")).table) == 2


def test_known_variances_of_new_rows():
    with_column = META.get_prediction(DATA.head(3))
    assert np.isfinite(with_column.se_obs).all()
    assert META.get_prediction(DATA.head(3).drop(columns="v")).se_obs.isna().all()


def test_offsets_of_arrays_are_not_known_of_new_rows():
    res = vcomp.fit(MODEL, DATA, offset=DATA["o"])
    with pytest.raises(vcomp.DataError, match="offset='x'"):
        res.predict(DATA.head(2))
    named = vcomp.fit(MODEL, DATA.assign(x2=DATA["o"]), offset="x2")
    new = DATA.head(2).assign(x2=0.0)
    np.testing.assert_allclose(
        named.predict(new), named.predict()[:2] - DATA["o"].head(2), rtol=1e-12
    )


def test_weights_are_no_term():
    with pytest.raises(vcomp.VcompError, match="weights='w'"):
        vcomp.fit("y ~ x + weights(w) + (1|a)", DATA)
    assert vcomp.fit("y ~ x + (1|a)", DATA, weights="w").weights.column == "w"


def test_several_responses_have_no_offsets():
    with pytest.raises(vcomp.FormulaError, match="no offsets"):
        vcomp.fit_multivariate("y + x ~ offset(o) + (1|a)", DATA)


SHIFTED = DATA.assign(y=DATA["y"] + 5.0, five=5.0)
"""Scores with a known part: with it as offset, means must be those of the scores themselves."""


@pytest.mark.parametrize(
    ("model", "facet"), [("y ~ (1|a)", "a"), ("y ~ kind + (1|a)", "kind"), ("y ~ C(b)", "C(b)")]
)
def test_means_of_levels_have_the_mean_offset(model, facet):
    model = model if "|" in model else f"{model} + (1|a)"
    plain = vcomp.fit(model, SHIFTED)
    res = vcomp.fit(model, SHIFTED, offset="five")
    stored = vcomp.VarianceComponentsResults.from_json(res.to_json())
    streamed = vcomp.fit(model, SHIFTED, offset="five", stream=True)
    expected = plain.compare_levels(facet).means
    for other in (res, stored, streamed):
        found = other.compare_levels(facet)
        pd.testing.assert_series_equal(found.means, expected, rtol=1e-9)
        assert "Means include the mean offset of the rows, 5." in found.notes


def test_pairs_of_marginal_means_have_the_mean_offset():
    plain = vcomp.fit("y ~ kind + (1|a)", SHIFTED).marginal_means("kind")
    found = vcomp.fit("y ~ kind + (1|a)", SHIFTED, offset="five").marginal_means("kind")
    np.testing.assert_allclose(found.table["mean"], plain.table["mean"], rtol=1e-9)
    (compared,), (expected,) = found.comparisons.values(), plain.comparisons.values()
    np.testing.assert_allclose(compared.means, expected.means, rtol=1e-9)


@pytest.mark.parametrize("load", [False, True])
def test_scores_on_the_scale_of_the_response_are_refused_with_offsets(load):
    res = vcomp.fit("y ~ (1|a) + (1|b)", SHIFTED, offset="five")
    if load:
        res = vcomp.VarianceComponentsResults.from_json(res.to_json())
    with pytest.raises(vcomp.PlanError, match="subtract the offset from the response"):
        res.universe_scores("a")
    with pytest.raises(vcomp.PlanError, match="one constant and no offset"):
        res.dstudy(b=5).phi_lambda(5.0)


def test_sums_of_older_versions_have_no_mean_offset():
    sums = vcomp.accumulate("y ~ offset(five) + (1|a)", SHIFTED)
    coding = sums._sums.coding
    assert coding.survey.offset == 5.0 * N
    older = replace(coding, survey=replace(coding.survey, offset=None))
    res = type(sums)(replace(sums._sums, coding=older)).fit()
    with pytest.raises(vcomp.DataError, match="accumulate the rows again"):
        res.compare_levels("a")


def test_fits_with_other_offsets_are_not_compared():
    res = vcomp.fit("y ~ (1|a)", SHIFTED, offset="five", method="ml")
    with pytest.raises(vcomp.DataError, match="have different offsets"):
        vcomp.compare(res, vcomp.fit("y ~ (1|a) + (1|b)", SHIFTED, method="ml"))
    same = vcomp.fit("y ~ offset(five) + (1|a) + (1|b)", SHIFTED, method="ml")
    assert vcomp.compare(res, same).table["p_value"].iloc[1] < 0.5


def test_summaries_say_what_the_offset_is_part_of():
    text = str(vcomp.fit("y ~ (1|a)", SHIFTED, offset="five").summary())
    assert "Fitted values include the offset; the intercept does not." in text


def test_series_have_the_labels_of_the_rows():
    shuffled = DATA.sample(frac=1.0, random_state=1)
    with pytest.raises(vcomp.DataError, match=r"weights=w.to_numpy\(\)"):
        vcomp.fit(MODEL, shuffled, weights=DATA["w"])
    expected = vcomp.fit(MODEL, DATA, weights="w").params
    for given in (shuffled["w"], shuffled["w"].to_numpy()):
        found = vcomp.fit(MODEL, shuffled, weights=given).params
        np.testing.assert_allclose(found, expected, rtol=1e-8)


@pytest.mark.parametrize(
    "given", [pd.Timestamp("2020") + pd.to_timedelta(DATA["n"], "D"), DATA["w"] + 1j]
)
def test_weights_are_no_dates_and_not_complex(given):
    with pytest.raises(vcomp.DataError, match="must be numbers"):
        vcomp.fit(MODEL, DATA, weights=given)


def test_masked_weights_are_missing():
    given = np.ma.array(DATA["w"], mask=DATA.index < 4)
    with pytest.warns(vcomp.VcompWarning, match="weights= 4"):
        res = vcomp.fit(MODEL, DATA, weights=given)
    expected = vcomp.fit(MODEL, DATA[DATA.index >= 4], weights="w").params
    np.testing.assert_array_equal(res.params, expected)


def test_dstudies_say_the_weight_of_a_score():
    study = vcomp.fit("y ~ (1|a) + (1|b)", DATA, weights="w").dstudy(b=5)
    assert "A score is one of weight 1: weights='w'." in study.notes


def _one_score_a_cell(seed):
    rng = np.random.default_rng(seed)
    a, b = (column.ravel() for column in np.indices((8, 7)))
    w = rng.integers(1, 9, a.size).astype(float)
    y = rng.normal(size=8)[a] + rng.normal(size=7)[b] + rng.normal(size=a.size)
    return pd.DataFrame({"a": a, "b": b, "w": w, "y": y})


@pytest.mark.parametrize("engine", ["auto", "iterative"])
@pytest.mark.parametrize("seed", [1, 2, 3, 21, 24])
def test_a_residual_that_goes_to_zero_names_the_term_that_takes_it(seed, engine):
    """Where the variance does not fall with the weight, the interaction is all of it."""
    data = _one_score_a_cell(seed)
    formula = "y ~ (1|a) + (1|b) + (1|a:b)"
    with pytest.raises(vcomp.EstimationError, match="leave out that term and weights=") as info:
        vcomp.fit(formula, data, weights="w", engine=engine)
    assert info.value.term == "a:b"
    advised = vcomp.fit("y ~ (1|a) + (1|b)", data)
    # As the message says: dense matrices with a residual near zero are as likely, others less.
    a, b, interaction = advised.vcomp
    one, y = np.ones(len(data)), data["y"].to_numpy()
    for residual in (1e-9, 1e-3, 1e-2):
        V = covariance(data, np.array([a, b, residual]), data["w"].to_numpy())
        V += (interaction - residual * (1.0 / data["w"]).mean()) * np.eye(len(data))
        inverse = np.linalg.inv(V)
        A = one @ inverse @ one
        r = y - one @ inverse @ y / A
        dense = np.linalg.slogdet(V)[1] + np.log(A) + r @ inverse @ r
        llf = -0.5 * (dense + (len(data) - 1) * np.log(2.0 * np.pi))
        if residual == 1e-9:
            assert llf == pytest.approx(advised.llf, rel=1e-8)
        else:
            assert llf < advised.llf


def test_a_residual_that_weights_show_is_found():
    assert vcomp.fit("y ~ (1|a) + (1|b) + (1|a:b)", _one_score_a_cell(0), weights="w").converged


@pytest.mark.parametrize("option", ["weights", "known_variance", "offset", "frequency"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0, 0.0, 0.5, "abc"])
@pytest.mark.parametrize("is_column", [True, False])
def test_messages_on_numbers_of_rows_name_them(option, bad, is_column):
    """The advice, followed, leaves exactly these rows out."""
    data = DATA.assign(num=np.ones(N)).rename(index=lambda k: 100 + k)
    rows = [103, 105]
    data["num"] = data["num"].astype(object)
    data.loc[rows, "num"] = bad
    if bad != "abc":
        data["num"] = data["num"].astype(float)
    allowed = {"weights": [0.5], "known_variance": [0.5], "frequency": [0.0]}
    given = "num" if is_column else data["num"].to_numpy()
    written = f"{option}='num'" if is_column else f"{option}="
    if bad in allowed.get(option, [-1.0, 0.0, 0.5]):
        vcomp.fit(MODEL, data, **{option: given})
        return
    if isinstance(bad, float) and np.isnan(bad):
        with pytest.warns(vcomp.VcompWarning, match="2 of 70 rows have a missing value"):
            vcomp.fit(MODEL, data, **{option: given})
        return
    with pytest.raises(vcomp.DataError, match=re.escape(written)) as caught:
        vcomp.fit(MODEL, data, **{option: given})
    message = str(caught.value)
    assert caught.value.column == ("num" if is_column else None)
    if bad == "abc":
        assert message.endswith("holds 'abc' (row 103)")
        return
    assert f"2 of 70 rows have other numbers, the first {bad:g} in row 103" in message
    if is_column and option != "frequency":
        kept = eval(message.rpartition("out, ")[2], {"data": data, "np": np})
        assert set(data.index) - set(kept.index) == set(rows)
        vcomp.fit(MODEL, kept, **{option: "num"})


@pytest.mark.parametrize("is_column", [True, False])
def test_known_variances_with_slopes_are_held(is_column):
    """The advised call has the log-likelihood of the dense matrix ZGZ' + diag(v)."""
    v = "v" if is_column else DATA["v"]
    with pytest.raises(vcomp.EstimationError, match="the same model has ") as caught:
        vcomp.fit("y ~ x + (x|a)", DATA, known_variance=v)
    options = str(caught.value).partition("model has ")[2].replace(" and ", ", ")
    given = eval(f"dict({options})", {"data": DATA, "v": v})
    res = vcomp.fit("y ~ x + (x|a)", DATA, method="ml", **given)
    codes = DATA["a"].astype("category").cat.codes.to_numpy()
    x, y = DATA["x"].to_numpy(), DATA["y"].to_numpy()
    levels = (codes[:, None] == np.arange(codes.max() + 1)).astype(float)
    parts = [levels, levels * x[:, None]]
    G = res.cov_re.to_numpy()
    V = np.diag(DATA["v"]) + sum(
        G[i, j] * parts[i] @ parts[j].T for i in range(2) for j in range(2)
    )
    X = np.column_stack([np.ones(N), x])
    W = np.linalg.inv(V)
    beta = np.linalg.solve(X.T @ W @ X, X.T @ W @ y)
    rest = y - X @ beta
    expected = -0.5 * (N * np.log(2 * np.pi) + np.linalg.slogdet(V)[1] + rest @ W @ rest)
    assert res.llf == pytest.approx(expected, rel=1e-10)
    np.testing.assert_allclose(res.fe_params, beta, rtol=1e-8)
    # Matrices next to a held residual have no profile: the default is robust.
    assert "robust" in str(res.summary())
    pd.testing.assert_frame_equal(res.conf_int(), res.conf_int(interval="robust"))
