"""Whether the estimators agree: where they must, may differ, and must differ."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.designs import balanced, unbalanced
from tests.helpers.printed_tables import printed_columns, printed_words
from vcomp.estimators.registry import METHODS
from vcomp.model.model_checks import CrossCheck, _compared, _comparisons

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
    """Of ten data sets with three methods none is, though all their estimates differ."""
    farthest = []
    for seed in range(10):
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


def drawn(n=40, expected=2.0, spread=0.5):
    """Return differences with this mean and standard deviation, the largest 1.6 of them away."""
    x = np.linspace(-1.0, 1.0, n)
    return (expected + spread * x / x.std(ddof=1))[:, np.newaxis]


def own(n=40, error=1.0):
    return drawn(n, 7.0, error)


def found(difference, apart, beside):
    made = _compared(np.array([difference]), apart, beside)
    return {name: column[0] for name, column in made.items()}


@pytest.mark.parametrize(
    ("z", "differs"),
    [
        (3.01, True),
        (2.99, False),
        (-3.01, True),
        (-2.99, False),
        (0.5, False),
        (5.0, True),
        (-5.0, True),
    ],
)
def test_three_standard_errors_and_beyond_all_draws(z, differs):
    made = found(2.0 + 0.5 * z, drawn(), own())
    assert made["expected"] == pytest.approx(2.0)
    assert made["std_error"] == pytest.approx(0.5)
    assert made["z"] == pytest.approx(z)
    assert made["differs"] == differs
    # One draw that is farther away explains it.
    for far in (2.0 + 0.5 * (z + 0.1), 2.0 + 0.5 * z, 2.0 + 0.5 * (z - 0.1)):
        apart = np.append(drawn(400), [[far]], axis=0)
        beyond = abs(far - 2.0) >= abs(0.5 * z)
        assert found(2.0 + 0.5 * z, apart, own(401))["differs"] == (
            abs(z) > 3 and not beyond and abs((0.5 * z) / apart.std(ddof=1)) > 3
        )


@pytest.mark.parametrize(("away", "differs"), [(0.101, True), (0.099, False)])
def test_little_differences_are_not_marked(away, differs):
    """They are at least a tenth of a standard error of the estimate from the expected one."""
    made = found(2.0 - away, drawn(spread=0.01), own())
    assert abs(made["z"]) > 9.0
    assert made["differs"] == differs


@pytest.mark.parametrize(
    ("difference", "expected", "is_zero"),
    [(0.9e-4, 5.0, True), (1.1e-4, 5.0, False), (5.0 + 0.9e-4, 5.0, True), (5.01, 5.0, False)],
)
def test_methods_agree_to_tolerances(difference, expected, is_zero):
    made = found(difference, drawn(expected=expected, spread=1e-9), own())
    assert (made["z"] == 0.0) == is_zero
    if not is_zero:  # the spread is that of tolerances at least
        assert made["z"] == pytest.approx((difference - expected) / 1e-4, rel=1e-6)


@pytest.mark.parametrize(("failed", "known"), [(20, True), (21, False)])
def test_twenty_drawn_data_sets_are_needed(failed, known):
    apart, beside = drawn(), own()
    apart[:failed] = np.nan
    made = found(9.0, apart, beside)
    assert np.isfinite([made["expected"], made["std_error"], made["z"]]).all() == known
    assert made["differs"] == known
    assert made["difference"] == 9.0
    if known:
        assert made["expected"] == pytest.approx(drawn()[20:].mean())
        assert made["std_error"] == pytest.approx(drawn()[20:].std(ddof=1))


def test_tables_compare_each_method_with_the_fit():
    """Of three methods whose drawn estimates spread far more than those of the fit."""
    rng = np.random.default_rng(3)
    a = np.repeat(np.arange(6), 4)
    x = 7.0 + rng.normal(size=24)
    y = 90.0 + 2.0 * x + rng.normal(size=6)[a] + rng.normal(size=24)
    access = vcomp.fit("y ~ x + (1|a)", {"y": y, "x": x, "a": a})._row_access
    estimate, design = access.estimate, access.model.design
    drawn = rng.normal(size=(60, 4, 4)) * np.array([1.0, 50.0, 200.0, 9.0])[:, None]
    others = []
    for shift, name in ((5e-4, "one"), (-3.0, "two"), (400.0, "three")):
        moved = replace(estimate, values=estimate.values + shift, beta=estimate.beta + shift)
        others.append((SimpleNamespace(estimator=SimpleNamespace(name=name)), moved))
    components, fixed = _comparisons(access, others, drawn)
    # Sums are of the centred covariate and the response less its origin.
    uncentred = np.array([[1.0, -design.x_origin[1]], [0.0, 1.0]])
    for table, part, into, own in (
        (components, slice(0, 2), np.eye(2), estimate.values),
        (fixed, slice(2, 4), uncentred, uncentred @ estimate.beta + [design.origin, 0.0]),
    ):
        assert table["method"].tolist() == ["one"] * 2 + ["two"] * 2 + ["three"] * 2
        for place, (shift, rows) in enumerate(zip((5e-4, -3.0, 400.0), (0, 2, 4), strict=True), 1):
            found = table.iloc[rows : rows + 2]
            apart = (drawn[:, place, part] - drawn[:, 0, part]) @ into.T
            difference = into @ np.full(2, shift)
            np.testing.assert_allclose(found["difference"], difference, rtol=1e-6)
            np.testing.assert_allclose(found["estimate"], own + difference, rtol=1e-9)
            np.testing.assert_allclose(found["expected"], apart.mean(axis=0), rtol=1e-9)
            spread = apart.std(axis=0, ddof=1)
            np.testing.assert_allclose(found["std_error"], spread, rtol=1e-9)
            z = (difference - apart.mean(axis=0)) / spread
            np.testing.assert_allclose(found["z"], z, rtol=1e-6)


def check(table, fixed=None, **more):
    columns = ["coefficient", "method", "estimate", "difference", "expected", "std_error", "z"]
    fixed = pd.DataFrame(columns=[*columns, "differs"]) if fixed is None else fixed
    given = {"excluded": {}, "method": "reml", "n": 1200, "seed": 5} | more
    return CrossCheck(table, fixed.astype({"differs": bool}), **given)


def rows(differs=(False, True, False, False), error=0.25):
    return pd.DataFrame(
        {
            "component": ["a", "Residual", "a", "Residual"],
            "method": ["ml", "ml", "anova", "anova"],
            "estimate": [1.5, 4.0, 2.5, 4.25],
            "difference": [-0.5, 0.125, 0.5, 0.375],
            "expected": [0.1, -0.2, 0.3, 0.4],
            "std_error": [error] * 4,
            "z": [0.5, -3.25, 1.0, 2.0],
            "differs": list(differs),
        }
    )


def test_the_summary_has_all_estimates_and_marks():
    made = check(rows(), excluded={"minque": "does not apply: why."})
    printed, words = printed_columns(made.summary()), printed_words(made.summary())
    assert printed[""] == ["a", "Residual"]
    assert [float(x) for x in printed["reml"]] == [2.0, 3.875]
    assert printed["ml"][1].endswith(" *")
    assert [float(x.rstrip(" *")) for x in printed["ml"]] == [1.5, 4.0]
    assert [float(x) for x in printed["anova"]] == [2.5, 4.25]
    assert (
        "* σ²(Residual) by ml differs by 0.125; expected is -0.2 ± 0.25 (z = -3.2)" in words
        or ("(z = -3.3)" in words)
    )
    assert "More than sampling error explains" in words
    assert "minque: does not apply: why." in words
    assert "from 1,200 data sets drawn from the fit by reml, seed 5." in words
    assert made.agrees is False


def test_agreement_in_words():
    agreed = check(rows(differs=[False] * 4))
    assert agreed.agrees is True
    assert "No method differs by more" in printed_words(agreed.summary())
    unknown = check(rows(differs=[False] * 4, error=np.nan))
    assert unknown.agrees is None
    assert "at least 20 drawn data sets are needed" in printed_words(unknown.summary())
    fixed = rows().rename(columns={"component": "coefficient"}).iloc[1:2]
    of_mean = check(rows(differs=[False] * 4), fixed.assign(coefficient="x"))
    assert of_mean.agrees is False
    assert "* x by ml differs by 0.125" in printed_words(of_mean.summary())
