"""Results of models with random slopes, against independent formulas and their own refits."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2, norm

import vcomp


def _scores(seed=5, n_g=20, n=9, cov=((4.0, 1.5), (1.5, 2.0))):
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(n_g), n)
    x = rng.normal(size=g.size)
    u = rng.multivariate_normal([0.0, 0.0], cov, size=n_g)
    y = 3.0 + 0.5 * x + u[g, 0] + u[g, 1] * x + rng.normal(size=g.size)
    return pd.DataFrame({"y": y, "x": x, "g": g})


DATA = _scores()
NAMES = ["g", "g[x]", "g[(Intercept),x]", "Residual"]


@pytest.fixture(scope="module")
def res():
    return vcomp.fit("y ~ x + (x|g)", DATA)


def _dense(res, data=DATA):
    """Return V⁻¹, X and the effects' columns Z with their covariance matrix, row by row."""
    v = res.vcomp
    G = np.array([[v.iloc[0], v.iloc[2]], [v.iloc[2], v.iloc[1]]])
    levels = data["g"].to_numpy()[:, None] == np.unique(data["g"])
    Z = np.stack([levels, levels * data["x"].to_numpy()[:, None]], axis=2).reshape(len(data), -1)
    D = np.kron(np.eye(levels.shape[1]), G)
    V = Z @ D @ Z.T + v["Residual"] * np.eye(len(data))
    X = np.column_stack([np.ones(len(data)), data["x"]])
    return V, X, Z, D


def test_components_have_names_and_a_matrix(res):
    assert list(res.vcomp.index) == NAMES
    parameters = ["var(g)", "var(g[x])", "cov(g[(Intercept),x])", "var(Residual)"]
    assert res.params.index[-4:].tolist() == res.model.data.param_names[-4:] == parameters
    assert [n for n in res.iterations if "(" in n] == parameters
    assert [n for n in res.bootstrap(2, rng=1).frame if "(" in n] == parameters
    assert res.status == "Converged."


def test_likelihood_effects_and_predictions_are_those_of_dense_matrices(res):
    V, X, Z, D = _dense(res)
    y, W = DATA["y"].to_numpy(), np.linalg.inv(V)
    cov = np.linalg.inv(X.T @ W @ X)
    beta = cov @ X.T @ W @ y
    r = y - X @ beta
    deviance = np.linalg.slogdet(V)[1] - np.linalg.slogdet(cov)[1] + r @ W @ r
    n, p = X.shape
    assert res.llf == pytest.approx(-0.5 * (deviance + (n - p) * np.log(2.0 * np.pi)), rel=1e-12)
    np.testing.assert_allclose(res.fe_params, beta, rtol=1e-9)
    np.testing.assert_allclose(res.bse_fe, np.sqrt(np.diagonal(cov)), rtol=1e-9)
    u = (D @ Z.T @ W @ r).reshape(-1, 2)
    P = W - W @ X @ cov @ X.T @ W
    error = np.sqrt(np.diagonal(D - D @ Z.T @ P @ Z @ D)).reshape(-1, 2)
    known = np.sqrt(np.diagonal(D - D @ Z.T @ W @ Z @ D)).reshape(-1, 2)
    for k, name in enumerate(NAMES[:2]):
        frame = res.random_effects[name]
        np.testing.assert_allclose(frame["estimate"], u[:, k], atol=1e-9)
        np.testing.assert_allclose(frame["se"], error[:, k], rtol=1e-8)
        np.testing.assert_allclose(frame["conditional_se"], known[:, k], rtol=1e-8)
    fitted = X @ beta + Z @ u.ravel()
    np.testing.assert_allclose(res.fittedvalues, fitted, atol=1e-9)
    np.testing.assert_allclose(res.predict(DATA), fitted, atol=1e-9)
    np.testing.assert_allclose(res.predict(DATA, level="population"), X @ beta, atol=1e-9)
    only = X @ beta + Z.reshape(n, -1, 2)[:, :, 1] @ u[:, 1]
    np.testing.assert_allclose(res.predict(DATA, level="g[x]"), only, atol=1e-9)


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("form", ["bar", "double bar", "two bars", "intercepts", "weights"])
def test_covariances_of_effects_are_those_of_dense_matrices(form, conditional):
    rng = np.random.default_rng(3)
    data = DATA.assign(h=rng.integers(0, 4, len(DATA)), k=rng.integers(0, 5, len(DATA)))
    formula = {
        "bar": "y ~ x + (x|g) + (1|h)",
        "double bar": "y ~ x + (x||g) + (1|h)",
        "two bars": "y ~ x + (1|k:h) + (0 + x|h:k) + (1|g)",
        "intercepts": "y ~ x + (1|g) + (1|h)",
        "weights": "y ~ x + (x|g) + (1|h)",
    }[form]
    w = 1.0 + np.arange(len(DATA)) % 3 if form == "weights" else np.ones(len(DATA))
    res = vcomp.fit(formula, data, weights=w if form == "weights" else None)
    term, column = ("k:h", "k") if form == "two bars" else ("g", "g")
    v, names = res.vcomp, ["g", "g[x]"]
    if form == "two bars":
        names = ["k:h", "h:k[x]"]
    elif form == "intercepts":
        names = ["g"]
    z = [data["x"].to_numpy() if name.endswith("[x]") else np.ones(len(data)) for name in names]
    G = np.diag(v[names])
    if "g[(Intercept),x]" in v:
        G[0, 1] = G[1, 0] = v["g[(Intercept),x]"]
    cells = data["k"] * 10 + data["h"] if column == "k" else data["g"]
    other = "g" if column == "k" else "h"
    levels = np.unique(cells)
    Z = np.stack([(cells.to_numpy()[:, None] == levels) * c[:, None] for c in z], axis=2)
    H = (data[other].to_numpy()[:, None] == np.unique(data[other])).astype(float)
    V = np.einsum("nlq,qr,mlr->nm", Z, G, Z) + v[other] * H @ H.T + np.diag(v["Residual"] / w)
    X, W = np.column_stack([np.ones(len(data)), data["x"]]), np.linalg.inv(V)
    Q = W if conditional else W - W @ X @ np.linalg.solve(X.T @ W @ X, X.T @ W)
    found = res.random_effects_cov(term, conditional=conditional)
    assert list(found.columns) == names
    for place, level in enumerate(levels):
        expected = G - G @ Z[:, place].T @ Q @ Z[:, place] @ G
        at = (level // 10, level % 10) if column == "k" else level
        np.testing.assert_allclose(found.loc[at], expected, rtol=1e-8, atol=1e-10)
    again = res.random_effects_cov(names[-1], conditional=conditional)
    assert again.index.names[:-1] == res.random_effects[names[-1]].index.names
    diagonal = found[names[0]].to_numpy()[:: len(names)]
    errors = res.random_effects[names[0]]["conditional_se" if conditional else "se"]
    np.testing.assert_allclose(np.sqrt(diagonal), errors, rtol=1e-9)


def test_covariances_of_effects_are_of_a_random_term(res):
    with pytest.raises(vcomp.EstimationError, match=r"no random term 'x'; terms are g, g\[x\]"):
        res.random_effects_cov("x")


def test_slopes_alone_are_named_by_their_groups_too():
    data = DATA.assign(h=np.arange(len(DATA)) % 4)
    for formula, group in (("y ~ x + (0 + x|g)", "g"), ("y ~ x + (0 + x|g:h) + (1|g)", "g:h")):
        fit = vcomp.fit(formula, data)
        found = fit.random_effects_cov(group)
        assert found.columns.tolist() == [f"{group}[x]"]
        pd.testing.assert_frame_equal(found, fit.random_effects_cov(f"{group}[x]"))
        for given in (group, f"{group}[x]"):
            assert (
                fit.plot("effects", term=given)
                .get_xlabel()
                .startswith(f"predicted effect of {group}[x]")
            )


def test_brackets_of_a_column_are_no_slopes():
    data = DATA.assign(**{"g[1]": DATA["g"]})
    fit = vcomp.fit("y ~ x + (1|`g[1]`)", data)
    with pytest.raises(vcomp.EstimationError, match="no random term 'g'"):
        fit.random_effects_cov("g")
    with pytest.raises(vcomp.DataError, match="'g' has no predicted effects"):
        fit.plot("effects", term="g")


def test_new_levels_have_no_effect(res):
    new = pd.DataFrame({"x": [2.0], "g": [999]})
    with pytest.raises(vcomp.DataError, match="999"):
        res.predict(new)
    expected = res.fe_params["Intercept"] + 2.0 * res.fe_params["x"]
    with pytest.warns(vcomp.VcompWarning, match="no level of facet 'g'"):
        assert res.predict(new, new_levels="zero")[0] == pytest.approx(expected, rel=1e-12)


def test_standard_errors_are_of_the_curvature(res):
    def minus(v):
        V, X, _, _ = _dense(type("", (), {"vcomp": pd.Series(v, NAMES)}))
        y, W = DATA["y"].to_numpy(), np.linalg.inv(V)
        XWX = X.T @ W @ X
        r = y - X @ np.linalg.solve(XWX, X.T @ W @ y)
        return 0.5 * (np.linalg.slogdet(V)[1] + np.linalg.slogdet(XWX)[1] + r @ W @ r)

    v, h = res.vcomp.to_numpy(), 1e-3
    H = np.empty((4, 4))
    for i in range(4):
        for j in range(4):
            a, b = h * np.eye(4)[i], h * np.eye(4)[j]
            H[i, j] = (
                minus(v + a + b) - minus(v + a - b) - minus(v - a + b) + minus(v - a - b)
            ) / (4 * h * h)
    np.testing.assert_allclose(res.cov_vcomp("observed"), np.linalg.inv(H), rtol=1e-3)


def test_moving_and_scaling_the_covariate_changes_the_matrix_as_it_must(res):
    moved = vcomp.fit("y ~ x + (x|g)", DATA.assign(x=1e3 + 10.0 * DATA["x"]))
    A = np.array([[1.0, -1e2], [0.0, 0.1]])  # x = (x' − 1000)/10: intercepts are at x' = 0
    v = res.vcomp
    expected = A @ np.array([[v.iloc[0], v.iloc[2]], [v.iloc[2], v.iloc[1]]]) @ A.T
    found = moved.vcomp
    np.testing.assert_allclose(
        [found.iloc[0], found.iloc[2], found.iloc[1]],
        [expected[0, 0], expected[0, 1], expected[1, 1]],
        rtol=1e-7,
    )
    assert found["Residual"] == pytest.approx(v["Residual"], rel=1e-8)
    # log|X'X| of the restricted likelihood has the column's unit.
    assert moved.llf == pytest.approx(res.llf - np.log(10.0), rel=1e-9)


def test_summary_shows_the_correlation_and_no_share(res):
    text = str(res.summary())
    v = res.vcomp
    assert "corr." in text
    assert "share" not in text
    correlation = v.iloc[2] / np.sqrt(v.iloc[0] * v.iloc[1])
    assert f"{correlation:.3f}" in text
    assert "percent" not in res.gstudy()


def test_a_slope_is_tested_by_a_mixture(res):
    without = vcomp.fit("y ~ x + (1|g)", DATA)
    statistic = 2.0 * (res.llf - without.llf)
    expected = 0.5 * (chi2.sf(statistic, 1) + chi2.sf(statistic, 2))
    found = res.test("g[x]")
    assert found.statistic == pytest.approx(statistic, rel=1e-8)
    assert found.p_value == pytest.approx(expected, rel=1e-8)
    compared = vcomp.compare(without, res)
    assert compared.table["p_value"].iloc[-1] == pytest.approx(expected, rel=1e-8)
    uncorrelated = vcomp.fit("y ~ x + (x||g)", DATA)
    one = 2.0 * (res.llf - uncorrelated.llf)
    table = vcomp.compare(uncorrelated, res).table
    assert table["p_value"].iloc[-1] == pytest.approx(chi2.sf(one, 1), rel=1e-8)
    alone = uncorrelated.test("g")
    slope = vcomp.fit("y ~ x + (0 + x|g)", DATA)
    assert alone.statistic == pytest.approx(2.0 * (uncorrelated.llf - slope.llf), rel=1e-8)


@pytest.mark.parametrize(
    ("term", "words"),
    [
        ("g", "test g\\[x\\]"),
        ("g[(Intercept),x]", "with || in place of |"),
        ("Residual", "residual cannot be tested"),
    ],
)
def test_what_has_no_test_says_why(res, term, words):
    with pytest.raises(vcomp.EstimationError, match=words.replace("|", "\\|")):
        res.test(term)
    with pytest.raises(vcomp.EstimationError, match="use test='lrt'"):
        res.test("g[x]", test="score")


def test_advice_on_effects_of_a_factor_is_not_to_split_them():
    """(c||g) keeps the levels of c correlated: it is the same model as (c|g)."""
    rng = np.random.default_rng(7)
    g, c = np.repeat(np.arange(15), 12), np.tile(list("abc") * 4, 15)
    y = rng.normal(size=15)[g] * np.where(c == "a", 1.0, 1.5) + 0.3 * rng.normal(size=180)
    data = pd.DataFrame({"y": y, "g": g, "c": c, "two": np.where(c == "a", "a", "b")})
    for factor in ("c", "two"):
        fit = vcomp.fit(f"y ~ {factor} + ({factor}|g)", data)
        assert "is singular" in fit.status
        assert "||" not in fit.status
        with pytest.raises(vcomp.EstimationError) as caught:
            vcomp.fit(f"y ~ {factor} + ({factor}|g)", data, hold={"g": 1.0})
        assert "||" not in str(caught.value)
    term = "g[(Intercept),two[T.b]]"
    with pytest.raises(vcomp.EstimationError, match="is a covariance") as caught:
        fit.test(term)
    assert str(caught.value).endswith(f"res.profile({term!r}) has its interval")
    assert term in fit.profile(term).conf_int().index


def test_draws_have_the_covariances_of_the_fit(res):
    drawn = res.simulate(4000, rng=1).to_numpy()
    V = _dense(res)[0]
    found = np.cov(drawn)[:9, :9]
    error = np.sqrt((np.outer(np.diagonal(V), np.diagonal(V)) + V**2)[:9, :9] / 4000)
    assert (np.abs(found - V[:9, :9]) < 5.0 * error).all()


def test_bootstrap_intervals_hold_the_estimates(res):
    replicates = res.bootstrap(64, rng=2)
    assert replicates.values.shape == (64, 4)
    centre, spread = replicates.values.mean(axis=0), replicates.values.std(axis=0)
    np.testing.assert_allclose(spread, res.bse_vcomp, rtol=0.35)
    assert (np.abs(centre - res.vcomp) < 4.0 * spread / 8.0).all()
    intervals = res.conf_int(interval=replicates).iloc[-4:]
    assert ((intervals[0] < res.vcomp.to_numpy()) & (res.vcomp.to_numpy() < intervals[1])).all()


def test_intervals_of_covariances_may_be_negative(res):
    low, high = res.conf_int(interval="wald").loc["cov(g[(Intercept),x])"]
    half = 1.959963984540054 * res.bse_vcomp["g[(Intercept),x]"]
    assert low == pytest.approx(res.vcomp.iloc[2] - half, rel=1e-9)
    assert high == pytest.approx(res.vcomp.iloc[2] + half, rel=1e-9)


def test_stored_results_are_the_same(res):
    for other in (
        vcomp.VarianceComponentsResults.from_json(res.to_json()),
        pickle.loads(pickle.dumps(res)),
    ):
        pd.testing.assert_series_equal(other.vcomp, res.vcomp)
        assert str(other.summary()) == str(res.summary())
        with pytest.raises(vcomp.EstimationError, match="without random slopes"):
            other.dstudy(g=10)
    frames = pickle.loads(pickle.dumps(res)).random_effects
    pd.testing.assert_frame_equal(frames["g[x]"], res.random_effects["g[x]"])


def test_terms_may_be_crossed_with_slopes_of_factors():
    rng = np.random.default_rng(8)
    data = pd.DataFrame({"a": rng.integers(0, 12, 500), "b": rng.integers(0, 9, 500)})
    data["c"] = rng.choice(list("uvw"), 500)
    data["x"] = rng.normal(size=500)
    u = rng.normal(size=(12, 3))
    data["y"] = u[data["a"], data["c"].map({"u": 0, "v": 1, "w": 2})] + rng.normal(size=500)
    data["y"] += 2.0 * rng.normal(size=9)[data["b"]] + rng.normal(size=9)[data["b"]] * data["x"]
    res = vcomp.fit("y ~ c + x + (c|a) + (x||b)", data)
    assert list(res.vcomp.index) == [
        "a",
        "a[c[T.v]]",
        "a[c[T.w]]",
        "b",
        "b[x]",
        "a[(Intercept),c[T.v]]",
        "a[(Intercept),c[T.w]]",
        "a[c[T.v],c[T.w]]",
        "Residual",
    ]
    levels = vcomp.fit("y ~ c + x + (0 + c|a) + (x||b)", data)
    assert levels.llf == pytest.approx(res.llf, rel=1e-9)  # another basis of the same effects
    u, v, w = (levels.vcomp[f"a[c[{k}]]"] for k in "uvw")
    assert u == pytest.approx(res.vcomp["a"], rel=1e-5)
    difference = u + v - 2.0 * levels.vcomp["a[c[u],c[v]]"]
    assert difference == pytest.approx(res.vcomp["a[c[T.v]]"], rel=1e-5)
    assert w > 0.0


@pytest.mark.parametrize(
    ("formula", "change", "words"),
    [
        ("y ~ (x|g)", {"x": 1.0}, "'x', which is constant"),
        ("y ~ (0 + x|g)", {"x": 0.0}, "'x', which is zero in all rows"),
        ("y ~ (x + z|g)", {"z": lambda d: 2.0 * d["x"] + 1.0}, "'x', 'z'.*linearly dependent"),
        ("y ~ (x|h)", {"h": lambda d: np.arange(len(d))}, "that is the residual"),
    ],
)
def test_slopes_that_cannot_be_estimated(formula, change, words):
    with pytest.raises(vcomp.DesignError, match=words):
        vcomp.fit(formula, DATA.assign(**change))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hold": {"g": 1.0}}, r"not g\[x\], g\[\(Intercept\),x\]; hold the whole matrix"),
        ({"hold": {"Residual": 0.0}}, "hold the residual at a positive value"),
        ({"hold": {"g[z]": 0.0}}, "'g\\[z\\]', which is not in the model"),
        ({"hold": {"g": 1.0, "g[x]": 1.0, "g[(Intercept),x]": 2.0}}, "no covariance matrix"),
        ({"hold": {"g": -1.0}}, "a number of at least 0"),
        ({"start": {"g": 1.0, "g[(Intercept),x]": 9.0}}, "no covariance matrix"),
        ({"start": [1.0, 2.0]}, "or 4 numbers in the order"),
        ({"engine": "strata"}, "use engine='auto'"),
        ({"method": "minque"}, "use method='reml' or 'ml'"),
    ],
)
def test_options_without_slopes(options, words):
    with pytest.raises(vcomp.EstimationError, match=words):
        vcomp.fit("y ~ x + (x|g)", DATA, **options)


def test_what_refusals_advise_leads_on(res):
    for interval in ("robust", "mls", "wald", "profile", res.bootstrap(30)):
        low, high = res.conf_int(interval=interval).to_numpy()[-4:].T
        assert ((low < res.vcomp) & (res.vcomp < high)).all()
    for options in ({"stream": True}, {"engine": "auto"}):
        pd.testing.assert_series_equal(
            vcomp.fit("y ~ x + (x|g)", DATA, **options).vcomp, res.vcomp
        )
    held = vcomp.fit("y ~ x + (1|g)", DATA, hold={"g": 1.0})
    assert held.vcomp["g"] == 1.0


@pytest.mark.parametrize("level", ["all", "population", ["g", "g[x]"]])
def test_predictions_have_the_errors_of_dense_matrices(res, level):
    V, X, Z, D = _dense(res)
    new = DATA.iloc[[0, 30, 177]].assign(x=[0.0, 2.5, -1.0])
    levels = new["g"].to_numpy()[:, None] == np.unique(DATA["g"])
    z = np.stack([levels, levels * new["x"].to_numpy()[:, None]], axis=2).reshape(3, -1)
    z_all, x = z, np.column_stack([np.ones(3), new["x"]])
    if level == "population":
        z = np.zeros_like(z)
    W = np.linalg.inv(V)
    cov = np.linalg.inv(X.T @ W @ X)
    B = x - z @ D @ Z.T @ W @ X
    expected = np.einsum("ij,jk,ik->i", z, D - D @ Z.T @ W @ Z @ D, z)
    expected += np.einsum("ij,jk,ik->i", B, cov, B)
    found = res.get_prediction(new, level=level)
    np.testing.assert_allclose(found.se_mean, np.sqrt(expected), rtol=1e-8)
    rest = res.vcomp["Residual"]
    if level == "population":
        rest = rest + np.einsum("ij,jk,ik->i", z_all, D, z_all)
    np.testing.assert_allclose(found.se_obs, np.sqrt(expected + rest), rtol=1e-8)


def test_predictions_for_new_groups_add_their_variance(res):
    new = pd.DataFrame({"x": [2.0], "g": [999]})
    with pytest.warns(vcomp.VcompWarning, match="no level"):
        found = res.get_prediction(new, new_levels="zero")
    population = res.get_prediction(new.assign(g=0), level="population")
    v = res.vcomp
    own = v.iloc[0] + 4.0 * v.iloc[2] + 4.0 * v.iloc[1]
    assert found.se_mean[0] ** 2 == pytest.approx(population.se_mean[0] ** 2 + own, rel=1e-9)
    assert found.se_obs[0] == pytest.approx(population.se_obs[0], rel=1e-9)


def test_predictions_of_some_effects_of_a_bar_are_refused(res):
    with pytest.raises(vcomp.EstimationError, match="all of them or none") as error:
        res.get_prediction(DATA, level="g[x]")
    assert "level=['g', 'g[x]']" in str(error.value)


def test_kenward_and_rogers_errors_are_those_of_dense_matrices(res):
    V, X, Z, _ = _dense(res)
    W = np.linalg.inv(V)
    phi = np.linalg.inv(X.T @ W @ X)
    levels = Z.reshape(len(X), -1, 2)
    a, b = levels[:, :, 0], levels[:, :, 1]
    parts = [a @ a.T, b @ b.T, a @ b.T + b @ a.T, np.eye(len(X))]
    P = W - W @ X @ phi @ X.T @ W
    information = np.array([[0.5 * np.sum(P @ S * (P @ T).T) for S in parts] for T in parts])
    np.testing.assert_allclose(res.cov_vcomp("expected"), np.linalg.inv(information), rtol=1e-7)
    C, inside = np.linalg.inv(information), np.zeros((2, 2))
    first = [X.T @ W @ S @ W @ X for S in parts]
    for i, S in enumerate(parts):
        for j, T in enumerate(parts):
            second = X.T @ W @ S @ W @ T @ W @ X
            inside += C[i, j] * (second - first[i] @ phi @ first[j])
    expected = phi + 2.0 * phi @ inside @ phi
    found = res.fixed_effects(ddf="kenward-roger")
    np.testing.assert_allclose(found["std_error"], np.sqrt(np.diagonal(expected)), rtol=1e-8)
    for k, name in enumerate(["Intercept", "x"]):
        unit = np.eye(2)[k]
        g = np.array([unit @ phi @ Q @ phi @ unit for Q in first])
        df = 2.0 * (unit @ phi @ unit) ** 2 / (g @ C @ g)
        assert found.loc[name, "df"] == pytest.approx(df, rel=1e-7)


def test_the_model_has_the_likelihood_at_any_components(res):
    model = vcomp.VarianceComponentsModel("y ~ x + (x|g)", DATA)
    assert model.loglike(res.vcomp) == pytest.approx(res.llf, rel=1e-13)
    np.testing.assert_allclose(model.score(res.vcomp), 0.0, atol=1e-6)
    for kind in ("observed", "expected", "average"):
        inverse = np.linalg.inv(model.information(res.vcomp, information=kind))
        np.testing.assert_allclose(inverse, res.cov_vcomp(kind), rtol=1e-6)
    elsewhere = np.array([3.0, 1.5, -0.8, 1.2])
    V, X, _, _ = _dense(type("", (), {"vcomp": pd.Series(elsewhere, NAMES)}))
    y, W = DATA["y"].to_numpy(), np.linalg.inv(V)
    r = y - X @ np.linalg.solve(X.T @ W @ X, X.T @ W @ y)
    expected = -0.5 * (np.linalg.slogdet(V)[1] + r @ W @ r + len(y) * np.log(2.0 * np.pi))
    assert model.loglike(elsewhere, reml=False) == pytest.approx(expected, rel=1e-12)
    g = np.unique(DATA["g"]) == DATA["g"].to_numpy()[:, None]
    gx = g * DATA["x"].to_numpy()[:, None]
    parts = [g @ g.T, gx @ gx.T, g @ gx.T + gx @ g.T, np.eye(len(y))]
    slopes = [0.5 * (r @ W @ S @ W @ r - np.sum(W * S)) for S in parts]
    np.testing.assert_allclose(model.score(elsewhere, reml=False), slopes, rtol=1e-9)
    with pytest.raises(vcomp.EstimationError, match="of g are no covariance matrix"):
        model.loglike([1.0, 1.0, 1.5, 1.0])


def test_covariances_of_effects_are_blocks(res):
    v = res.vcomp
    assert res.cov_re.to_numpy().tolist() == [
        [v.iloc[0], v.iloc[2]],
        [v.iloc[2], v.iloc[1]],
    ]
    assert list(res.cov_re.index) == NAMES[:2]


def test_pictures_and_presets_know_slopes(res):
    from matplotlib.figure import Figure

    axes = res.plot("effects", term="g[x]", ax=Figure().subplots())
    assert "g[x]" in axes.get_xlabel()
    assert len(res.plot(ax=Figure().subplots()).get_yticklabels()) == 4
    with pytest.raises(vcomp.DataError, match="no predicted effects"):
        res.plot("effects", term="g[(Intercept),x]")
    with pytest.raises(vcomp.EstimationError, match="without random slopes"):
        vcomp.presets.precision(res)


def test_explained_variance_is_that_of_the_rows(res):
    V, X, _, _ = _dense(res)
    fixed = np.var(X @ res.fe_params.to_numpy(), ddof=1)
    random = np.diagonal(V).mean() - res.vcomp["Residual"]  # the mean of z'Λz
    total = fixed + random + res.vcomp["Residual"]
    expected = [fixed / total, (fixed + random) / total]
    np.testing.assert_allclose(res.r2(), expected, rtol=1e-10)
    table = res.varcorr()
    v = res.vcomp
    correlation = v.iloc[2] / np.sqrt(v.iloc[0] * v.iloc[1])
    assert table["correlation"].iloc[2] == pytest.approx(correlation, rel=1e-12)
    assert table["std_dev"].isna().tolist() == [False, False, True, False]
    with pytest.raises(vcomp.EstimationError, match="see r2\\(\\) and varcorr\\(\\)"):
        res.icc()


def test_whole_terms_of_the_fixed_part_are_tested(res):
    table = res.anova()
    row = res.fixed_effects().loc["x"]
    assert table.loc["x"].to_numpy()[-2] == pytest.approx(row["t"] ** 2, rel=1e-8)


def test_what_depends_on_the_covariate_is_refused(res):
    for name in ("Erho2", "Phi", "universe_var", "abs_sem"):
        with pytest.raises(vcomp.EstimationError, match="without random slopes"):
            res.quantity(name, object="g", replicate=3)
    with pytest.raises(vcomp.EstimationError, match="compare predictions"):
        res.compare_levels("g")
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    with pytest.raises(vcomp.DataError, match="fit the model again"):
        loaded.test("g[x]")


def test_a_covariance_is_no_variance_in_a_quantity():
    turned = vcomp.fit("y ~ x + (x|g)", DATA.assign(x=-DATA["x"]))
    found = turned.quantity("g[(Intercept),x]", negative="zero")
    low, high = turned.conf_int().loc["cov(g[(Intercept),x])"]
    assert found.estimate == turned.vcomp["g[(Intercept),x]"] < 0.0
    assert (found.low, found.high) == (low, high)
    assert turned.tidy()["kind"].tolist()[-4:] == [
        "variance",
        "variance",
        "covariance",
        "variance",
    ]


@pytest.mark.parametrize(
    ("formula", "change", "words"),
    [
        ("y ~ x + (x|g)", {"x": lambda d: d["x"] + 1e4}, "subtract a number near its mean"),
        ("y ~ x + (c|g)", {"c": "a"}, "its factor has one level; write \\(1\\|g\\)"),
        (
            "y ~ x + (x|g) + (1|`g[x]`)",
            {"g[x]": lambda d: np.arange(len(d)) % 7},
            "two components have the name 'g\\[x\\]'",
        ),
    ],
)
def test_designs_of_slopes_that_are_refused(formula, change, words):
    with pytest.raises(vcomp.VcompError, match=words):
        vcomp.fit(formula, DATA.assign(**change))
    if "c" in change:
        vcomp.fit("y ~ x + (1|g)", DATA.assign(**change))


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_a_slope_alone_is_tested_against_least_squares(method):
    alone = vcomp.fit("y ~ x + (0 + x|g)", DATA, method=method)
    held = vcomp.fit("y ~ x + (1|g)", DATA, method=method, hold={"g": 0.0})
    statistic = 2.0 * (alone.llf - held.llf)
    found = alone.test("g[x]")
    assert found.statistic == pytest.approx(statistic, rel=1e-9)
    assert found.p_value == pytest.approx(0.5 * chi2.sf(statistic, 1), rel=1e-8)


@pytest.mark.parametrize(("bar", "shift"), [("(x|g)", 0.0), ("(x||g)", 500.0)])
def test_slopes_of_a_covariate_of_levels_are_variances_that_depend_on_it(bar, shift):
    """V of a level is σ²I + (v₀ + 2cx + v₁x²)J, and the status says that no slope is seen."""
    rng = np.random.default_rng(5)
    g, x = np.repeat(np.arange(25), 4), np.linspace(-1.0, 1.0, 25) + shift
    data = pd.DataFrame({"g": g, "x": x[g]})
    data["y"] = (rng.normal(size=25) * (1.0 + x - shift))[g] + rng.normal(size=100)
    fit = vcomp.fit(f"y ~ x + {bar}", data, method="ml")
    said = "x is constant within each level of g, so that no level shows a slope: g[x] is how the "
    assert f"{said}variance between levels depends on x" in fit.status
    assert said in " ".join(str(fit.summary()).split())
    v = fit.vcomp
    of_levels = v["g"] + 2.0 * x * v.get("g[(Intercept),x]", 0.0) + v["g[x]"] * x**2
    V = np.kron(np.diag(of_levels), np.ones((4, 4))) + v["Residual"] * np.eye(100)
    r = data["y"] - fit.fe_params["Intercept"] - fit.fe_params["x"] * data["x"]
    expected = -0.5 * (np.linalg.slogdet(2.0 * np.pi * V)[1] + r @ np.linalg.solve(V, r))
    assert fit.llf == pytest.approx(expected, rel=1e-6)
    whole = data.assign(x=data["x"] + 1e-3 * rng.normal(size=100))
    assert "constant within" not in vcomp.fit(f"y ~ x + {bar}", whole).status
    diagnosis = fit.diagnose(n=None)
    assert said in " ".join(str(diagnosis).split())
    assert any(sentence.endswith("depends on x.") for sentence in diagnosis.not_tested)
    assert "constant within" not in str(vcomp.fit(f"y ~ x + {bar}", whole).diagnose(n=None))


@pytest.mark.parametrize("first", [8, 12])
@pytest.mark.parametrize("column", ["b", "f"])
def test_a_covariate_of_two_values_has_no_slope_within_its_groups(first, column):
    g = np.repeat(np.arange(24), 5)
    f = np.where(g < first, "s", "t")
    data = pd.DataFrame({"g g": g, "b": (g >= first).astype(float), "f": f})
    rng = np.random.default_rng(4)
    data["y"] = rng.normal(size=24)[g] + rng.normal(size=120)
    with pytest.raises(vcomp.DesignError, match=f"If {column} is constant within") as caught:
        vcomp.fit(f"y ~ {column} + ({column}|Q('g g'))", data)
    advised = str(caught.value).rpartition("write ")[2]
    assert advised == "(1|Q('g g'))"
    assert vcomp.fit(f"y ~ {column} + {advised}", data).converged


def test_no_effect_is_left_above_a_held_residual():
    """Held above the variance of the scores, it leaves least squares of this variance."""
    data = DATA.groupby("g").head(4)
    X = np.column_stack([np.ones(len(data)), data["x"]])
    rest = data["y"] - X @ np.linalg.lstsq(X, data["y"], rcond=None)[0]
    held = 50.0 * data["y"].var()
    res = vcomp.fit("y ~ x + (x|g)", data, method="ml", hold={"Residual": held})
    assert res.converged
    assert (res.vcomp.iloc[:-1] == 0.0).all()
    assert res.llf == pytest.approx(norm.logpdf(rest, scale=held**0.5).sum(), rel=1e-12)


@pytest.mark.parametrize("noise", [1e-4, 1e-5])
def test_a_residual_far_below_the_total_variance_is_not_zero(noise):
    """Of balanced data it is that of least squares within the groups; digits go with its share."""
    rng = np.random.default_rng(7)
    n, m = 12, 6
    g, x = np.repeat(np.arange(n), m), np.tile(np.arange(m) - 2.5, n)
    u = rng.normal(size=(n, 2)) @ np.array([[2.0, 0.5], [0.0, 1.0]])
    y = u[g, 0] + u[g, 1] * x + noise * rng.normal(size=n * m)
    z = np.column_stack([np.ones(m), x[:m]])
    Y = y.reshape(n, m).T
    rest = Y - z @ np.linalg.lstsq(z, Y, rcond=None)[0]
    found = vcomp.fit("y ~ x + (x|g)", pd.DataFrame({"y": y, "x": x, "g": g}))
    expected = np.square(rest).sum() / (n * (m - 2))
    assert found.converged
    assert found.vcomp["Residual"] == pytest.approx(expected, rel=1e-14 / noise**2)
    if noise == 1e-5:
        with pytest.raises(vcomp.EstimationError, match="the residual variance is zero"):
            vcomp.fit("y ~ x + (x|g)", pd.DataFrame({"y": u[g, 0] + u[g, 1] * x, "x": x, "g": g}))


CROSSED = DATA.assign(h=np.arange(len(DATA)) % 9, y=DATA["y"] + np.sin(np.arange(len(DATA)) % 9))
BAR = ["g", "g[x]", "g[(Intercept),x]"]


def test_a_held_matrix_keeps_its_values():
    """The others maximise the likelihood, with standard errors by its second derivatives."""
    whole = vcomp.fit("y ~ x + (x|g) + (1|h)", CROSSED)
    for values in (dict(whole.vcomp[BAR]), {"g": 3.0, "g[x]": 2.0, "g[(Intercept),x]": -1.0}):
        res = vcomp.fit("y ~ x + (x|g) + (1|h)", CROSSED, hold=values)
        assert res.converged
        assert set(res.held) == set(BAR)
        assert dict(res.vcomp[BAR]) == values
        assert res.bse_vcomp[BAR].isna().all()
        free = ["h", "Residual"]
        model = vcomp.VarianceComponentsModel("y ~ x + (x|g) + (1|h)", CROSSED)
        top = model.loglike(res.vcomp)
        assert top == pytest.approx(res.llf, rel=1e-12)
        score = pd.Series(model.score(res.vcomp), index=res.vcomp.index)
        assert (score[free].abs() * res.bse_vcomp[free] < 1e-4).all()
        information = -pd.DataFrame(
            model.hessian(res.vcomp), index=res.vcomp.index, columns=res.vcomp.index
        )
        inverse = np.linalg.inv(information.loc[free, free])
        np.testing.assert_allclose(res.bse_vcomp[free], np.sqrt(np.diagonal(inverse)), rtol=1e-6)
        for interval in ("robust", "mls"):
            limits = res.conf_int(interval=interval).tail(5)
            assert limits.isna().all(axis=1).tolist() == [n in BAR for n in res.vcomp.index]
        assert np.isfinite(res.fixed_effects()["df"]).all()
    assert whole.llf >= res.llf


def test_a_held_matrix_of_zeros_leaves_the_term_out():
    held = vcomp.fit("y ~ x + (x|g) + (1|h)", CROSSED, hold=dict.fromkeys(BAR, 0.0))
    without = vcomp.fit("y ~ x + (1|h)", CROSSED)
    assert held.llf == pytest.approx(without.llf, rel=1e-10)
    np.testing.assert_allclose(held.vcomp[["h", "Residual"]], without.vcomp, rtol=1e-5)


def test_a_residual_and_all_components_can_be_held(res):
    one = vcomp.fit("y ~ x + (x|g)", DATA, hold={"Residual": res.vcomp["Residual"]})
    np.testing.assert_allclose(one.vcomp, res.vcomp, rtol=1e-5)
    every = vcomp.fit("y ~ x + (x|g)", DATA, hold=dict(res.vcomp))
    assert every.converged
    assert every.llf == pytest.approx(res.llf, rel=1e-12)
    np.testing.assert_array_equal(every.vcomp, res.vcomp)
    groups = DATA.assign(part=np.arange(len(DATA)) % 2)
    free = vcomp.fit("y ~ x + (x|g)", groups, residual="part")
    first = {"Residual[part=0]": free.vcomp["Residual[part=0]"]}
    part = vcomp.fit("y ~ x + (x|g)", groups, residual="part", hold=first)
    np.testing.assert_allclose(part.vcomp, free.vcomp, rtol=1e-5)


@pytest.mark.parametrize(
    "start", [{"g": 30.0}, {"g[(Intercept),x]": -0.1, "g": 0.5}, [9.0, 0.1, -0.5, 8.0]], ids=str
)
def test_starts_lead_to_the_same_maximum(res, start):
    found = vcomp.fit("y ~ x + (x|g)", DATA, start=start)
    assert found.converged
    np.testing.assert_allclose(found.vcomp, res.vcomp, rtol=1e-5)
    near = vcomp.fit("y ~ x + (x|g)", DATA, start=res.vcomp)
    assert near.certificate.iterations < res.certificate.iterations


def test_profiles_and_tests_of_fits_with_held_matrices_are_refused(res):
    held = vcomp.fit("y ~ x + (x|g)", DATA, hold={"Residual": 1.0})
    with pytest.raises(vcomp.EstimationError, match="use interval='wald', or fit without hold="):
        held.profile()
    assert held.conf_int(interval="wald").notna().any().any()
    with pytest.raises(vcomp.EstimationError, match="fit without hold=, or compare"):
        held.test("g[x]")
    assert res.test("g[x]").p_value < 1.0
