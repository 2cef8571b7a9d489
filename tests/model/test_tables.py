"""The tables of a fit beside each other, and information criteria by dense likelihoods."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import stats

import vcomp
from vcomp.exceptions import EstimationError


def scores(seed=3, missing=True):
    rng = np.random.default_rng(seed)
    a, b = np.indices((8, 5)).reshape(2, -1)
    x = rng.normal(size=a.size)
    y = 5 + 0.7 * x + rng.normal(size=8)[a] + 0.5 * rng.normal(size=5)[b]
    y = y + 0.6 * rng.normal(size=a.size)
    kept = np.arange(a.size) % 11 > 0 if missing else np.ones(a.size, dtype=bool)
    return {"a": a[kept], "b": b[kept], "x": x[kept], "y": y[kept]}


@pytest.mark.parametrize("method", ["anova", "reml"])
def test_components_of_equal_scores_have_no_standard_error(method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        res = vcomp.fit("y ~ (1|a) + (1|b)", scores() | {"y": np.ones(36)}, method=method)
    assert res.vcomp.tolist() == [0.0] * 3
    assert res.bse_vcomp.isna().all()


def dense(data, v, reml):
    """Return the log-likelihood and generalised least squares of y ~ x at components."""
    n = data["y"].size
    V = v[2] * np.eye(n)
    for name, variance in zip("ab", v, strict=False):
        V += variance * (data[name][:, None] == data[name])
    X = np.column_stack([np.ones(n), data["x"]])
    W = np.linalg.solve(V, X)
    information = X.T @ W
    beta = np.linalg.solve(information, W.T @ data["y"])
    e = data["y"] - X @ beta
    deviance = np.linalg.slogdet(V)[1] + e @ np.linalg.solve(V, e)
    free = n
    if reml:
        deviance, free = deviance + np.linalg.slogdet(information)[1], n - 2
    return -0.5 * (deviance + free * np.log(2 * np.pi)), beta, np.linalg.inv(information)


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("hold", [{}, {"b": 0.3}])
def test_criteria_and_tables(method, hold):
    data = scores()
    res = vcomp.fit("y ~ x + (1|a) + (1|b)", data, method=method, hold=hold)
    v, n = res.vcomp.to_numpy(), data["y"].size
    llf, beta, cov = dense(data, v, method == "reml")
    assert res.llf == pytest.approx(llf, rel=1e-9)
    npar = 2 + 3 - len(hold)
    assert res.aic == pytest.approx(-2 * llf + 2 * npar, rel=1e-9)
    assert res.bic == pytest.approx(-2 * llf + np.log(n) * npar, rel=1e-9)
    glance = res.glance().iloc[0]
    assert (glance["method"], glance["nobs"], glance["df_resid"]) == (method, n, n - 2)
    assert (glance["llf"], glance["aic"], glance["bic"]) == (res.llf, res.aic, res.bic)
    assert glance["converged"]
    params = res.params
    assert params.index.tolist() == ["Intercept", "x", "var(a)", "var(b)", "var(Residual)"]
    np.testing.assert_allclose(params, [*beta, *v], rtol=1e-8)
    covariance = res.cov_params()
    np.testing.assert_allclose(covariance.iloc[:2, :2], cov, rtol=1e-7)
    assert (covariance.iloc[:2, 2:] == 0.0).all(axis=None)
    tidy = res.tidy()
    assert tidy["term"].tolist() == ["Intercept", "x", "a", "b", "Residual"]
    assert tidy["kind"].tolist() == ["fixed"] * 2 + ["variance"] * 3
    np.testing.assert_array_equal(tidy["estimate"], params)
    np.testing.assert_allclose(tidy["std_error"][:2], np.sqrt(np.diagonal(cov)), rtol=1e-7)
    ends = res.conf_int()
    np.testing.assert_array_equal(tidy[["conf_low", "conf_high"]], ends)
    study = res.gstudy()
    np.testing.assert_array_equal(study["estimate"], v)
    np.testing.assert_array_equal(study["se"], tidy["std_error"][2:])
    np.testing.assert_array_equal(study[["ci_low", "ci_high"]], ends.iloc[2:])
    np.testing.assert_allclose(study["percent"], 100 * v / v.sum(), rtol=1e-14)
    held = study.index.isin(list(hold))
    assert study.loc[held, ["se", "ci_low", "ci_high"]].isna().all(axis=None)
    assert study.loc[~held, ["se", "ci_low", "ci_high"]].notna().all(axis=None)
    assert "mc_error" not in study


def test_shares_of_variance():
    rng = np.random.default_rng(1)
    e = rng.normal(size=(8, 5))
    e -= e.mean(axis=1, keepdims=True)
    a, b = np.indices((8, 5)).reshape(2, -1)
    res = vcomp.fit("y ~ (1|a) + (1|b)", {"a": a, "b": b, "y": e.ravel()}, method="anova")
    v = res.vcomp
    assert v["a"] < 0.0
    positive = v.clip(lower=0.0)
    np.testing.assert_allclose(res.gstudy()["percent"], 100 * positive / positive.sum())
    alone = vcomp.fit("y ~ (1|a)", {"a": a, "y": e.ravel()})
    assert alone.vcomp["a"] == 0.0
    assert alone.gstudy()["percent"].tolist() == [0.0, 100.0]


def test_without_variance_there_are_no_shares():
    a, b = np.indices((4, 5)).reshape(2, -1)
    for y in (np.zeros(20), np.full(20, 7.5)):
        with pytest.warns(vcomp.VcompWarning, match="response is constant"):
            res = vcomp.fit("y ~ (1|a) + (1|b)", {"a": a, "b": b, "y": y})
        table = res.gstudy()
        assert (table["estimate"] == 0.0).all()
        assert table["percent"].isna().all()


def test_the_analysis_of_variance():
    """Sums of squares of a complete table, and expectations with its sizes as coefficients."""
    data = scores(missing=False)
    y = data["y"].reshape(8, 5)
    res = vcomp.fit("y ~ (1|a) + (1|b)", data, method="anova")
    table = res.anova_table()
    rows, columns = y.mean(axis=1), y.mean(axis=0)
    rest = y - rows[:, None] - columns + y.mean()
    squares = [5 * ((rows - y.mean()) ** 2).sum(), 8 * ((columns - y.mean()) ** 2).sum(),
               (rest**2).sum()]  # fmt: skip
    assert table["df"].tolist() == [7, 4, 28]
    np.testing.assert_allclose(table["sum_sq"], squares, rtol=1e-10)
    np.testing.assert_allclose(table["mean_sq"], np.array(squares) / [7, 4, 28], rtol=1e-10)
    expected = table[["E[a]", "E[b]", "E[Residual]"]].to_numpy()
    np.testing.assert_allclose(expected, [[5, 0, 1], [0, 8, 1], [0, 0, 1]], atol=1e-9)
    F = table["mean_sq"]["a"] / table["mean_sq"]["Residual"]
    assert res.test("a", "f").p_value == pytest.approx(stats.f.sf(F, 7, 28), rel=1e-9)
    with pytest.raises(EstimationError, match="the fixed part is Intercept \\+ x"):
        vcomp.fit("y ~ x + (1|a) + (1|b)", data).anova_table()


def test_mean_squares_of_two_levels():
    y = np.random.default_rng(2).normal(size=(2, 6))
    a, b = np.indices(y.shape).reshape(2, -1)
    table = vcomp.fit("y ~ (1|a) + (1|b)", {"a": a, "b": b, "y": y.ravel()}).anova_table()
    assert table["df"].tolist() == [1, 5, 5]
    np.testing.assert_allclose(table["mean_sq"], table["sum_sq"] / [1, 5, 5], rtol=1e-14)
    between = 3 * (y[0].mean() - y[1].mean()) ** 2
    assert table["sum_sq"]["a"] == pytest.approx(between, rel=1e-10)


def test_covariances_of_components_by_their_names():
    res = vcomp.fit("y ~ x + (1|a) + (1|b)", scores())
    with pytest.raises(EstimationError, match="method 'reml' has no 'robust' covariance; it has"):
        res.cov_vcomp("robust")
    first = res.cov_vcomp()
    assert first.index.tolist() == first.columns.tolist() == ["a", "b", "Residual"]
    np.testing.assert_allclose(res.bse_vcomp, np.sqrt(np.diagonal(first)), rtol=1e-14)
