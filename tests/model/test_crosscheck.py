"""Whether the estimators agree: where they must, may differ, and must differ."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.designs import balanced, unbalanced
from vcomp.estimators.registry import METHODS

COLUMNS = ["method", "estimate", "difference", "expected", "std_error", "z", "differs"]


def groups(seed, sd_of_large):
    """Return many small groups and a few large ones, whose effects may vary more."""
    rng = np.random.default_rng(seed)
    n = np.r_[np.full(40, 2), np.full(6, 40)]
    sd = np.where(n > 10, sd_of_large, 1.0)
    a = np.repeat(np.arange(n.size), n)
    y = (sd * rng.normal(size=n.size))[a] + rng.normal(size=a.size)
    return pd.DataFrame({"a": a, "y": y})


@pytest.fixture(scope="module")
def nested():
    formula, data = unbalanced("nested", seed=2)
    res = vcomp.fit(formula, data)
    return formula, data, res, res.crosscheck(n=25)


def test_estimates_are_those_of_the_other_methods(nested):
    formula, data, res, check = nested
    assert list(check.table) == ["component", *COLUMNS]
    assert list(check.fixed_effects) == ["coefficient", *COLUMNS]
    assert set(check.table["method"]) == set(METHODS) - {"reml"}
    for table in (check.table, check.fixed_effects):
        assert table.index.tolist() == list(range(len(table)))
    for method, part in check.table.groupby("method"):
        other = vcomp.fit(formula, data, method=method)
        part = part.set_index("component")
        np.testing.assert_allclose(part["estimate"], other.vcomp[part.index], rtol=1e-9)
        difference = other.vcomp - res.vcomp
        np.testing.assert_allclose(part["difference"], difference[part.index], atol=1e-9)
        fixed = check.fixed_effects.set_index("method").loc[method]
        assert fixed["estimate"] == pytest.approx(other.fe_params["Intercept"], rel=1e-9)
    assert check.excluded == {}


@pytest.mark.parametrize(("name", "seed"), [("one way", 1), ("crossed", 1), ("nested", 2)])
def test_balanced_data_above_zero_show_no_difference(name, seed):
    formula, data = balanced(name, seed=seed, scale=4.0)
    res = vcomp.fit(formula, data)
    assert (res.vcomp > 0.0).all()
    check = res.crosscheck(n=25)
    of_others = check.table[check.table["method"] != "ml"]
    np.testing.assert_allclose(of_others["difference"], 0.0, atol=1e-7 * res.vcomp.sum())
    assert (of_others["z"] == 0.0).all()
    of_mean = check.fixed_effects  # the mean of the scores, by all of them
    size = res.fixed_effects()["std_error"].iloc[0]
    np.testing.assert_allclose(of_mean[["expected", "std_error"]], 0.0, atol=1e-9 * size)
    # ML is biased, which is shown and expected.
    of_ml = check.table[check.table["method"] == "ml"].iloc[:-1]
    assert (of_ml["expected"].abs() > 1e-3 * res.vcomp.iloc[:-1].to_numpy()).any()
    assert check.agrees


def test_data_of_the_model_are_rarely_pointed_at():
    """Of 20 data sets with three methods none is, though all their estimates differ."""
    farthest = []
    for seed in range(20):
        check = vcomp.fit("y ~ (1|a)", groups(seed, 1.0)).crosscheck(["anova", "ml"], n=30, rng=1)
        assert check.agrees
        assert (check.table["difference"] != 0.0).all()
        farthest.append(check.table["z"].abs().max())
    assert np.mean(np.array(farthest) > 2.5) <= 0.1


@pytest.mark.parametrize("seed", range(4))
def test_variances_that_go_with_the_size_of_groups_are_pointed_at(seed):
    """Method I weighs groups by their scores, likelihoods by what these tell: they fall apart."""
    check = vcomp.fit("y ~ (1|a)", groups(seed, 5.0)).crosscheck(["anova"], n=60)
    assert not check.agrees
    row = check.table.set_index("component").loc["a"]
    assert row["differs"]
    assert row["z"] > 3.0
    text = str(check)
    assert "* σ²(a) by anova differs by" in text
    assert "More than sampling error explains" in text


def test_the_standard_error_of_a_difference():
    """Linearised REML is uncorrelated with what other unbiased estimators err by beside it.

    Var(other − REML) = Var(other) − Var(REML), at the same components (Hausman 1978). The groups
    are many, so that linear is near enough, and the ratio of two standard errors has a Monte Carlo
    error of 1/√(2·400) = .035; four of these are allowed.
    """
    rng = np.random.default_rng(0)
    a = np.repeat(np.arange(300), rng.integers(1, 9, 300))
    data = pd.DataFrame({"a": a, "y": rng.normal(size=300)[a] + rng.normal(size=a.size)})
    res = vcomp.fit("y ~ (1|a)", data)
    check = res.crosscheck(["anova"], n=400).table.set_index("component")
    # The sampling covariance of Method I at REML's estimates, by dense quadratic forms.
    Z = np.eye(300)[a]
    N, n = len(a), Z.sum(axis=0)
    V = res.vcomp["a"] * Z @ Z.T + res.vcomp["Residual"] * np.eye(N)
    A = [Z / n @ Z.T - 1.0 / N, np.eye(N) - 1.0 / N]
    parts = [form @ V for form in A]
    of_T = 2.0 * np.array([[np.sum(x * y.T) for y in parts] for x in parts])
    K = np.array([[np.sum(form * (Z @ Z.T)), np.trace(form)] for form in A])
    of_anova = np.linalg.solve(K, np.linalg.solve(K, of_T).T)
    expected = np.sqrt(np.diagonal(of_anova - res.cov_vcomp("expected")))
    np.testing.assert_allclose(check["std_error"], expected, rtol=4 / np.sqrt(800))


def test_methods_that_do_not_apply_are_listed():
    _, data = unbalanced("crossed", seed=4)
    data["x"] = np.random.default_rng(0).normal(size=len(data))
    check = vcomp.fit("y ~ x + (1|a) + (1|b)", data).crosscheck(["anova", "ml"], n=20)
    assert check.excluded == {"anova": "does not apply: it needs a constant mean."}
    assert set(check.table["method"]) == {"ml"}
    assert check.fixed_effects["coefficient"].tolist() == ["Intercept", "x"]
    assert "anova: does not apply: it needs a constant mean" in str(check)
    held = vcomp.fit("y ~ x + (1|a) + (1|b)", data, hold={"a": 1.0})
    check = held.crosscheck(["ml", "henderson3"], n=20)
    assert check.excluded == {"henderson3": "does not apply: it cannot hold a."}
    assert check.table.set_index("component").loc["a", "estimate"] == 1.0


def test_fixed_effects_are_those_of_the_columns_as_given():
    _, data = unbalanced("crossed", seed=4)
    data["x"] = np.random.default_rng(0).normal(50.0, 1.0, len(data))
    formula = "y ~ x + (1|a) + (1|b)"
    check = vcomp.fit(formula, data).crosscheck("henderson3", n=20)
    other = vcomp.fit(formula, data, method="henderson3").fe_params
    np.testing.assert_allclose(check.fixed_effects["estimate"], other, rtol=1e-9)
    own = vcomp.fit(formula, data).fe_params
    np.testing.assert_allclose(
        check.fixed_effects["difference"], other - own, rtol=1e-6, atol=1e-9
    )


def test_no_method_is_left():
    _, data = unbalanced("one way")
    data["x"] = np.arange(len(data)) % 3
    check = vcomp.fit("y ~ x + (1|a)", data).crosscheck("anova")
    assert check.table.empty
    assert check.agrees
    assert check.n == 0
    assert "anova: does not apply" in str(check)


def test_numbers_do_not_depend_on_workers(nested):
    _, _, res, _ = nested
    first = res.crosscheck(["ml", "anova"], n=20, rng=3)
    second = res.crosscheck(["ml", "anova"], n=20, rng=3, workers=2)
    pd.testing.assert_frame_equal(first.table, second.table, check_exact=True)
    other = res.crosscheck(["ml", "anova"], n=20, rng=4)
    assert (first.table["std_error"] != other.table["std_error"]).all()
    assert (first.seed, first.n) == (3, 20)


def test_few_drawn_data_give_no_standard_error(nested):
    _, _, res, _ = nested
    check = res.crosscheck("ml", n=5)
    assert check.table["std_error"].isna().all()
    assert not check.table["differs"].any()
    assert check.agrees is None
    assert "is not known: at least 20 drawn data sets are needed" in " ".join(str(check).split())


def test_what_cannot_be_checked(nested):
    formula, data, res, _ = nested
    for options, message in (
        ({"methods": "lasso"}, "method='lasso' is not known"),
        ({"n": 0}, "n must be a whole number of at least 1"),
        ({"rng": "a"}, "rng must be a seed"),
        ({"time_limit": -1}, "time_limit must be a positive number"),
    ):
        with pytest.raises(vcomp.EstimationError, match=message):
            res.crosscheck(**options)
    with pytest.warns(vcomp.VcompWarning, match="the response is constant"):
        constant = vcomp.fit(formula, data.assign(y=1.0))
    with pytest.raises(
        vcomp.EstimationError, match="all components are 0: the methods cannot differ"
    ):
        constant.crosscheck()
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    with pytest.raises(vcomp.DataError, match="loaded without its rows"):
        loaded.crosscheck()
