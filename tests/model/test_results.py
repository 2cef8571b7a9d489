"""The public contract of a result, against formulas written out here."""

from __future__ import annotations

import json
import math
from pathlib import Path
from time import perf_counter

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vcomp
from tests.helpers.designs import balanced, unbalanced
from vcomp.inference.intervals.closed_forms import satterthwaite_interval


@pytest.fixture(scope="module")
def two_way():
    formula, data = balanced("crossed", seed=1)
    return data, vcomp.fit(formula, data)


def mean_squares(data):
    """Return the classical mean squares of a two-way table with one score a cell."""
    table = data.pivot(index="a", columns="b", values="y").to_numpy()
    n_a, n_b = table.shape
    rows, columns, mean = table.mean(axis=1), table.mean(axis=0), table.mean()
    rest = table - rows[:, None] - columns + mean
    ms_a = n_b * np.sum((rows - mean) ** 2) / (n_a - 1)
    ms_b = n_a * np.sum((columns - mean) ** 2) / (n_b - 1)
    return ms_a, ms_b, np.sum(rest**2) / ((n_a - 1) * (n_b - 1)), n_a, n_b


def test_components_of_a_balanced_design(two_way):
    data, res = two_way
    ms_a, ms_b, ms_e, n_a, n_b = mean_squares(data)
    expected = [(ms_a - ms_e) / n_b, (ms_b - ms_e) / n_a, ms_e]
    np.testing.assert_allclose(res.vcomp, expected, rtol=1e-9)
    assert list(res.vcomp.index) == ["a", "b", "Residual"]
    # Var(MS) = 2 E(MS)²/df; independent mean squares.
    var_a, var_b = 2 * ms_a**2 / (n_a - 1), 2 * ms_b**2 / (n_b - 1)
    var_e = 2 * ms_e**2 / ((n_a - 1) * (n_b - 1))
    by_anova = vcomp.fit("y ~ (1|a) + (1|b)", data, method="anova")
    expected_se = [np.sqrt(var_a + var_e) / n_b, np.sqrt(var_b + var_e) / n_a, np.sqrt(var_e)]
    np.testing.assert_allclose(by_anova.bse_vcomp, expected_se, rtol=1e-9)


def test_params_bse_and_covariance_go_together(two_way):
    _, res = two_way
    assert list(res.params.index) == ["Intercept", "var(a)", "var(b)", "var(Residual)"]
    np.testing.assert_allclose(np.sqrt(np.diagonal(res.cov_params())), res.bse)
    np.testing.assert_allclose(res.params.iloc[1:], res.vcomp)
    assert (res.cov_params().loc["Intercept", "var(a)":] == 0.0).all()
    assert res.df_resid == res.nobs - 1
    n_parameters = 4
    assert res.aic == pytest.approx(-2 * res.llf + 2 * n_parameters)
    assert res.bic == pytest.approx(-2 * res.llf + n_parameters * np.log(res.nobs))


def test_intervals(two_way):
    _, res = two_way
    interval = res.conf_int(0.1, interval="satterthwaite")
    assert list(interval.columns) == [0, 1]
    estimate, se = res.vcomp["a"], res.bse_vcomp["a"]
    df = 2 * (estimate / se) ** 2
    expected = df * estimate / stats.chi2.ppf([0.95, 0.05], df)
    np.testing.assert_allclose(interval.loc["var(a)"], expected, rtol=1e-10)
    # The variance of the mean is (MS_a + MS_b − MS_e)/N, with Satterthwaite's df.
    table = res.anova_table()
    parts = table["mean_sq"] * [1.0, 1.0, -1.0]
    df = parts.sum() ** 2 / (parts**2 / table["df"]).sum()
    t = stats.t.ppf(0.95, df)
    mean, se_mean = res.fe_params["Intercept"], res.bse_fe["Intercept"]
    np.testing.assert_allclose(interval.loc["Intercept"], [mean - t * se_mean, mean + t * se_mean])
    wald = res.conf_int(0.1, interval="wald").loc["var(a)"]
    half = stats.norm.ppf(0.95) * se
    np.testing.assert_allclose(wald, [estimate - half, estimate + half])
    with pytest.raises(vcomp.EstimationError, match="'bootstrapp' is not known"):
        res.conf_int(interval="bootstrapp")
    with pytest.raises(vcomp.VcompError, match="between 0 and 1, not 5"):
        res.conf_int(5)


def test_satterthwaite_is_exact_for_the_residual(two_way):
    """ν σ̂²/σ² is χ² with the residual's own degrees of freedom in balanced data."""
    data, _ = two_way
    *_, ms_e, n_a, n_b = mean_squares(data)
    df = (n_a - 1) * (n_b - 1)
    res = vcomp.fit("y ~ (1|a) + (1|b)", data, method="anova")
    expected = df * ms_e / stats.chi2.ppf([0.975, 0.025], df)
    for interval in ("satterthwaite", "mls"):
        found = res.conf_int(interval=interval).loc["var(Residual)"]
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_an_estimate_that_says_nothing():
    """With next to no degrees of freedom Satterthwaite's limits would both lie above it."""
    values, se = np.array([0.01, 0.1, 1.0, -1.0]), np.array([1.0, 1.0, 0.5, 0.5])
    low, high = satterthwaite_interval(values, se, 0.05)
    assert (low[0], high[0]) == (0.0, np.inf)
    assert 0.0 < low[1] < 0.1 < high[1] == np.inf
    assert 0.0 < low[2] < 1.0 < high[2] < np.inf
    assert np.isnan([low[3], high[3]]).all()


def test_gstudy_shares(two_way):
    _, res = two_way
    table = res.gstudy()
    assert list(table.columns) == ["estimate", "se", "low", "high", "percent"]
    np.testing.assert_allclose(table["percent"], 100 * res.vcomp / res.vcomp.sum())


def test_shares_with_a_negative_component(shared_data):
    res = vcomp.fit("Yield ~ (1|Batch)", shared_data("Dyestuff2.csv"), method="anova")
    assert res.vcomp["Batch"] < 0.0
    assert res.gstudy()["percent"].tolist() == [0.0, 100.0]
    assert "σ²(Batch) is estimated below zero and kept as estimated" in res.status
    assert np.isnan(res.llf)


def test_tables_have_fixed_columns(two_way):
    _, res = two_way
    assert list(res.tidy()) == ["term", "kind", "estimate", "std_error", "conf_low", "conf_high"]
    assert res.tidy()["kind"].tolist() == ["fixed", "variance", "variance", "variance"]
    assert list(res.glance()) == [
        "method", "nobs", "df_resid", "llf", "aic", "bic", "converged", "status",
    ]  # fmt: skip
    assert list(res.augment()) == ["y", "a", "b", "fitted", "resid"]
    assert list(res.anova_table())[:3] == ["df", "sum_sq", "mean_sq"]


def test_covariance_kinds(two_way):
    _, res = two_way
    pd.testing.assert_frame_equal(res.cov_vcomp(), res.cov_vcomp("observed"))
    np.testing.assert_allclose(
        np.linalg.inv(res.cov_vcomp("expected")),
        res.model.information(res.vcomp, information="expected"),
        rtol=1e-8,
        atol=1e-15,
    )
    with pytest.raises(vcomp.EstimationError, match="no 'sampling' covariance; it has 'observed'"):
        res.cov_vcomp("sampling")


def test_predicted_effects_have_the_levels_as_index():
    formula, data = unbalanced("nested")
    res = vcomp.fit(formula, data)
    effects = res.random_effects
    assert list(effects) == ["a", "a:b"]
    assert effects["a"].index.name == "a"
    assert effects["a:b"].index.names == ["a", "b"]
    assert set(effects["a:b"].index) == set(zip(data["a"], data["b"], strict=True))
    assert list(effects["a"]) == ["estimate", "se", "conditional_se"]


def test_prediction_for_new_rows():
    _, data = unbalanced("crossed")
    data["x"] = np.random.default_rng(0).normal(size=len(data))
    res = vcomp.fit("y ~ x + (1|a) + (1|b)", data)
    new = pd.DataFrame({"a": [0, 99, 99], "b": [3, 3, 99], "x": [0.0, 1.0, 2.0]})
    fixed = res.fe_params["Intercept"] + res.fe_params["x"] * new["x"]
    a, b = res.random_effects["a"]["estimate"], res.random_effects["b"]["estimate"]
    expected = [fixed[0] + a[0] + b[3], fixed[1] + b[3], fixed[2]]
    np.testing.assert_allclose(res.predict(new, new_levels="zero"), expected)
    with pytest.raises(vcomp.DataError, match="no column 'x'"):
        res.predict(new.drop(columns="x"))
    with pytest.raises(vcomp.DataError, match="missing values: column 'x' has some"):
        res.predict(new.assign(x=np.nan))


TEXT = pd.DataFrame(
    {
        "y": np.random.default_rng(3).normal(size=24) + np.repeat([0.0, 2.0], 12),
        "g": np.repeat(list("ZABC"), 6),
        "sex": np.tile(["m", "f", "m"], 8),
    }
)


@pytest.mark.parametrize("fixed", ["sex", "C(sex)", "C(sex, Treatment('m'))"])
def test_prediction_with_a_text_column(fixed):
    """Rows of one level, categories in another order or unused: all are coded as in the fit."""
    import polars as pl

    res = vcomp.fit(f"y ~ {fixed} + (1|g)", TEXT)
    men = TEXT[TEXT["sex"] == "m"]
    expected = res.fittedvalues[men.index]
    turned = men.assign(sex=pd.Categorical(men["sex"], categories=["m", "x", "f"]))
    for rows in (men, turned, men.astype({"sex": "category"}), men.to_dict("list")):
        np.testing.assert_allclose(res.predict(rows), expected)
    np.testing.assert_allclose(res.predict(pl.from_pandas(men)), expected)
    with pytest.raises(
        vcomp.DataError, match="column 'sex' has 'd', which did not occur in the fit"
    ):
        res.predict(men.assign(sex="d"))


def test_prediction_says_when_no_level_is_known():
    formula, data = unbalanced("crossed")
    res = vcomp.fit(formula, data)
    with pytest.warns(vcomp.VcompWarning, match="no level of facet 'a' occurred in the fit"):
        res.predict(data.astype({"a": str}), new_levels="zero")


@pytest.mark.parametrize("method", ["reml", "anova"])
def test_the_stages_of_a_fit_take_no_longer_than_it(method):
    formula, data = balanced("crossed", seed=1)
    begun = perf_counter()
    res = vcomp.fit(formula, data, method=method)
    elapsed = perf_counter() - begun
    stages = res.seconds
    assert {"read", "check"} < set(stages)
    assert min(stages.values()) >= 0.0
    assert sum(stages.values()) <= elapsed


def test_levels_are_stored_as_they_are_written():
    formula, data = balanced("crossed", seed=1)
    res = vcomp.fit(formula, data.assign(a="Prüfer " + data["a"].astype(str)))
    text = res.to_json()
    assert "Prüfer 0" in text
    assert "\\u" not in text


def test_models_cannot_be_stored(two_way):
    import pickle

    _, res = two_way
    with pytest.raises(vcomp.VcompError, match="cannot be stored; store its result"):
        pickle.dumps(res.model)


def test_copies_keep_their_rows(two_way):
    import copy

    _, res = two_way
    for other in (copy.copy(res), copy.deepcopy(res)):
        pd.testing.assert_series_equal(other.fittedvalues, res.fittedvalues)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (
            "estimate.method",
            "bayes",
            "method 'bayes' is not known; the methods are reml, ml",
        ),
        ("estimate.values", [1.0], r"estimate.values has the shape \(1,\), and \(3,\) belongs"),
        ("components.cov", [[1.0]], r"components.cov has the shape \(1, 1\), and \(3, 3\)"),
        ("components.names", ["a"], "components.names contradict each other"),
        ("components.inverse_n.a.a", 0.0, "components.inverse_n contradict each other"),
        ("structure.n_rows", "text", "damaged at 'structure.n_rows': 'text' is not of the type"),
        ("structure.facets", 3, "damaged at 'structure.facets': 3 is not a list"),
    ],
)
def test_what_is_wrong_with_a_stored_result_is_named(two_way, place, value, words):
    _, res = two_way
    whole = json.loads(res.to_json())
    *parts, last = place.split(".")
    inner = whole
    for part in parts:
        inner = inner[part]
    inner[last] = value
    with pytest.raises(vcomp.DataError, match=words):
        vcomp.VarianceComponentsResults.from_json(json.dumps(whole))


@pytest.mark.parametrize("places", [[[0, 2], [2]], [[0, 2], [1, 1]], [[0, 9], [9, 1]], [[0]]])
def test_stored_matrices_have_the_places_of_components(places):
    data = vcomp.datasets.load("bodoff2007_alpha").assign(x=np.arange(15.0) % 4)
    whole = json.loads(vcomp.fit("score ~ x + (x|topic)", data).to_json())
    assert whole["components"]["matrices"][0]["places"] == [[0, 2], [2, 1]]
    whole["components"]["matrices"][0]["places"] = places
    with pytest.raises(vcomp.DataError, match=r"components\.matrices contradict each other"):
        vcomp.VarianceComponentsResults.from_json(json.dumps(whole))


def test_damaged_results(two_way):
    _, res = two_way
    whole = json.loads(res.to_json())
    for key in ("estimate", "structure", "components", "table"):
        damaged = {name: value for name, value in whole.items() if name != key}
        with pytest.raises(vcomp.DataError, match="incomplete or damaged"):
            vcomp.VarianceComponentsResults.from_json(json.dumps(damaged))
    for change in (
        lambda r: r["structure"]["terms"].update(a=[]),
        lambda r: r["structure"]["terms"].update(a=[" "]),
        lambda r: r["structure"]["terms"].pop("Residual"),
        lambda r: r["estimate"]["fixed_errors"].update(df=[]),
        lambda r: r["structure"].update(n_rows=10**400),
        lambda r: r["structure"].update(n_levels=[10**400 for _ in r["structure"]["n_levels"]]),
    ):
        damaged = json.loads(res.to_json())
        change(damaged)
        with pytest.raises(vcomp.DataError, match=r"contradict each other|has the shape"):
            vcomp.VarianceComponentsResults.from_json(json.dumps(damaged))
    formula, data = unbalanced("crossed")
    data["x"] = np.arange(len(data)) % 3
    twice = json.loads(vcomp.fit(formula.replace("~", "~ x +"), data).to_json())
    twice["exog_names"] = ["x", "x"]
    with pytest.raises(vcomp.DataError, match="contradict each other"):
        vcomp.VarianceComponentsResults.from_json(json.dumps(twice))
    for source, message in ((5, "not int"), ("", "is empty")):
        with pytest.raises(vcomp.DataError, match=message):
            vcomp.VarianceComponentsResults.from_json(source)
    whole["estimate"]["llf"] = 10**30  # a whole number may stand for one with a point
    assert "log-likelihood" in str(
        vcomp.VarianceComponentsResults.from_json(json.dumps(whole)).summary()
    )


def shorter(values):
    return values[:-1]


def narrower(matrix):
    return [row[:-1] for row in matrix]


@pytest.mark.parametrize(
    ("place", "change"),
    [
        *(
            (place, change)
            for place in (
                "estimate.cov_beta", "estimate.covariances.observed", "components.cov",
                "estimate.fixed_errors.slopes", "table.expected", "cells.means",
                "levels.information", "levels.shared", "fixed_levels.information",
            )
            for change in (shorter, narrower)
        ),
        *(
            (place, shorter)
            for place in (
                "estimate.values", "components.values", "estimate.beta", "estimate.names",
                "estimate.fixed_errors.df", "table.df", "table.sum_sq", "components.facets",
                "levels.sizes", "fixed_levels.sizes", "structure.facets", "structure.n_levels",
            )
        ),
        ("estimate.fixed_errors.slopes", lambda x: [narrower(rows) for rows in x]),
        ("levels.shared", lambda x: [narrower(rows) for rows in x]),
        ("estimate.values", lambda v: [math.nan, *v[1:]]),
        ("components.values", lambda v: [math.nan, *v[1:]]),
        ("estimate.covariances", lambda _: {}),
        ("estimate.method", lambda _: 3),
        ("estimate.names", lambda names: [*names[::-1]]),
        ("exog_names", lambda names: [*names[:-1], names[0]]),
        ("structure.n_rows", lambda _: 0),
        ("structure.n_rows", lambda _: 2**53),
        ("structure.n_levels", lambda n: [0, *n[1:]]),
        ("structure.facets", lambda facets: [facets[0]] * len(facets)),
        ("structure.nested_in", lambda nested: {"a": nested["a"]}),
        ("structure.nested_in", lambda nested: {**nested, "b": ["q"]}),
        ("structure.nested_in", lambda nested: {**nested, "q": []}),
        ("components.nested_in", lambda nested: {**nested, "b": ["q"]}),
        ("components.nested_in", lambda nested: {**nested, "q": []}),
        ("structure.partly_crossed", lambda _: [["a", "q"]]),
        ("structure.fully_crossed", lambda _: [["q", "b"]]),
        ("structure.sizes", lambda sizes: {**sizes, "a": 0.0}),
        ("components.sizes", lambda sizes: {**sizes, "b": -1.0}),
        ("components.inverse_n", lambda of: {**of, "a": {"a": 1.0}}),
    ],
)  # fmt: skip
def test_stored_numbers_that_contradict_each_other(one_of_each, place, change):
    document = json.loads(one_of_each)
    inner = document
    *parts, last = place.split(".")
    for part in parts:
        inner = inner[part]
    inner[last] = change(inner[last])
    with pytest.raises(vcomp.DataError, match=r"contradict each other|incomplete or damaged"):
        vcomp.VarianceComponentsResults.from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("structure", "sizes", "a"), 1.0),
        (("components", "sizes", "b"), 0.5),
        (("structure", "n_levels", 0), 1),
        (("structure", "n_rows"), 2**53 - 1),
        (("estimate", "fixed_errors", "slopes"), None),
        (("estimate", "fixed_errors"), None),
        (("components", "cov"), None),
        (("components", "nested_in", "replicate"), ["a", "b"]),
        (("structure", "nested_in", "b"), ["a"]),
        (("structure", "nested_in", "replicate"), ["a", "b"]),
        (("table",), None),
        (("cells",), None),
        (("levels",), None),
        (("fixed_levels",), None),
    ],
)
def test_stored_numbers_that_may_be(one_of_each, place, value):
    document = json.loads(one_of_each)
    inner = document
    *parts, last = place
    for part in parts:
        inner = inner[part]
    inner[last] = value
    vcomp.VarianceComponentsResults.from_json(json.dumps(document))


@pytest.fixture(scope="module")
def one_of_each():
    """A stored result with an analysis of variance, cells, and two fixed effects."""
    formula, data = unbalanced("crossed")
    data = data.assign(x=np.arange(len(data)) % 3)
    res = vcomp.fit(formula, data)
    document = json.loads(res.to_json())
    other = json.loads(vcomp.fit(formula.replace("~", "~ x +"), data).to_json())
    for name in ("exog_names", "fixed_levels"):
        document[name] = other[name]
    for name in ("beta", "cov_beta", "fixed_errors"):
        document["estimate"][name] = other["estimate"][name]
    return json.dumps(document)


def test_the_response_of_a_model_cannot_be_written_to(two_way):
    _, res = two_way
    with pytest.raises(ValueError, match="read-only"):
        res.model.endog[0] = 0.0


def test_default_sizes_of_an_unbalanced_nested_facet():
    """Topics with 2, 2, 2, 2 and 40 documents: the harmonic mean, and a note that says so."""
    documents = [(t, f"d{t}.{d}") for t, n in enumerate([2, 2, 2, 2, 40]) for d in range(n)]
    rng = np.random.default_rng(0)
    effects = {d: rng.normal() for _, d in documents}
    rows = [
        (s, t, d, 0.3 * s + effects[d] + rng.normal()) for s in range(20) for t, d in documents
    ]
    data = pd.DataFrame(rows, columns=["sys", "topic", "doc", "y"])
    res = vcomp.fit("y ~ (1|sys) + (1|topic) + (1|doc) + (1|sys:topic)", data)
    harmonic = 5 / (4 / 2 + 1 / 40)
    assert res.components.sizes == pytest.approx({"sys": 20, "topic": 5, "doc": harmonic})
    planned = res.dstudy(topic=5)
    assert planned.table["doc"].item() == pytest.approx(harmonic)
    assert any("harmonic means" in note for note in planned.notes)
    # Its own plan has the exact effective numbers: Σ n²/N² over topics, 1/48 over documents.
    own = res.dstudy()
    squares = (4 * 2**2 + 40**2) / 48**2
    assert own.table["topic"].item() == pytest.approx(1 / squares)
    assert own.table["doc"].item() == pytest.approx(48 * squares)
    assert any("exact effective size" in note for note in own.notes)
    # What more topics would bring holds documents at their number a topic, not at the effective
    # number of the largest: it does not matter which plan is asked.
    for coefficient in ("Erho2", "Phi"):
        of_own = own.required(0.95, coefficient, "topic")
        of_planned = planned.required(0.95, coefficient, "topic")
        assert (of_own.n, of_own.low, of_own.high) == (
            of_planned.n, of_planned.low, of_planned.high,
        )  # fmt: skip
        assert of_own.held == pytest.approx({"doc": harmonic})


def test_published_components_may_be_a_series(two_way):
    _, res = two_way
    again = vcomp.from_components(res.vcomp, cov=res.cov_vcomp())
    ours = again.dstudy(b=[3, 9]).table
    theirs = res.dstudy(b=[3, 9], interval="mls").table  # without rows
    same = ["b", "Erho2", "Phi", "rel_err_var_se", "Erho2_se", "Phi_se"]
    pd.testing.assert_frame_equal(ours[same], theirs[same])


def test_rows_keep_their_labels():
    """Of a pandas frame its own index, without the rows that were left out."""
    formula, data = unbalanced("crossed")
    labelled = data.set_axis([f"row {k}" for k in range(len(data))]).astype({"y": float})
    labelled.loc["row 3", "y"] = np.nan
    with pytest.warns(vcomp.VcompWarning, match="1 of 54 rows"):
        res = vcomp.fit(formula, labelled)
    kept = labelled.dropna()
    for given in (res.fittedvalues, res.resid, res.augment(), res.predict(kept)):
        pd.testing.assert_index_equal(given.index, kept.index)
    np.testing.assert_allclose(res.fittedvalues + res.resid, kept["y"])
    # Labels that stand twice do not multiply rows.
    doubled = data.set_axis(np.arange(len(data)) // 2)
    assert len(vcomp.fit(formula, doubled).augment()) == len(data)


def test_stateful_transforms_are_remembered():
    _, data = unbalanced("crossed")
    data["x"] = np.random.default_rng(0).normal(size=len(data)) + 5.0
    res = vcomp.fit("y ~ center(x) + (1|a) + (1|b)", data)
    few = data.iloc[:5]
    np.testing.assert_allclose(res.predict(few), res.fittedvalues.iloc[:5])


def test_anova_table_needs_a_constant_mean():
    _, data = unbalanced("crossed")
    data["x"] = np.arange(len(data))
    res = vcomp.fit("y ~ x + (1|a) + (1|b)", data)
    with pytest.raises(vcomp.EstimationError, match=r"a constant mean.*Intercept \+ x"):
        res.anova_table()
    with pytest.raises(vcomp.EstimationError, match="use method='reml' or 'ml'"):
        vcomp.fit("y ~ x + (1|a) + (1|b)", data, method="anova")


def test_stored_results(two_way, tmp_path):
    _, res = two_way
    path = tmp_path / "fit.json"
    text = res.to_json(path)
    assert json.loads(text)["format"] == 2
    renamed = vcomp.fit(
        "noté ~ (1|sys)", vcomp.datasets.load("bodoff2007_alpha").rename(columns={"score": "noté"})
    )
    assert "noté ~ (1|sys)" in renamed.to_json()
    for source in (text, path, str(path)):
        loaded = vcomp.VarianceComponentsResults.from_json(source)
        pd.testing.assert_series_equal(loaded.vcomp, res.vcomp, check_exact=True)
        pd.testing.assert_frame_equal(loaded.expected_tau(b=5), res.expected_tau(b=5))
        assert loaded.model is None
    broken = {
        "this is not JSON that vcomp wrote": "{nonsense",
        "not a result that vcomp stored": '{"a": 1}',
        "cannot read": str(tmp_path / "absent.json"),
        "format 99, and this version": json.dumps(json.loads(text) | {"format": 99}),
    }
    for message, source in broken.items():
        with pytest.raises(vcomp.DataError, match=message):
            vcomp.VarianceComponentsResults.from_json(source)


def test_results_of_the_first_format_are_read():
    """Stored before held components, iterations and seconds were."""
    path = Path(__file__).parent / "format_1.json"
    assert json.loads(path.read_text(encoding="utf-8"))["format"] == 1
    loaded = vcomp.VarianceComponentsResults.from_json(path)
    now = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
    pd.testing.assert_series_equal(loaded.vcomp, now.vcomp, rtol=1e-12)
    pd.testing.assert_frame_equal(loaded.cov_params(), now.cov_params(), rtol=1e-9)
    pd.testing.assert_frame_equal(
        loaded.dstudy(topic=6).table, now.dstudy(topic=6).table, rtol=1e-9
    )
    # Degrees of freedom of the fixed effects were not stored then.
    assert np.isnan(loaded.df_fe).all()
    assert "as it was not stored with this result" in " ".join(str(loaded.summary()).split())
    parts = [str(res.summary()).partition("P>|") for res in (loaded, now)]
    assert parts[0][0].splitlines()[:-2] == parts[1][0].splitlines()[:-2]
    assert loaded.held == ()
    assert loaded.iterations.empty
    assert loaded.seconds == {}
    assert loaded.certificate.at_maximum
    assert "At a maximum" in str(loaded.certificate)
    # What is written again has the new format.
    again = vcomp.VarianceComponentsResults.from_json(loaded.to_json())
    assert again.certificate == loaded.certificate


def test_everything_is_stored():
    """Held components, a bound, the log, seconds and the certificate: as they were."""
    formula, data = unbalanced("three facets", seed=2)
    res = vcomp.fit(formula, data, hold={"c": 0.25}, start={"a:b": 50.0})
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    assert loaded.certificate == res.certificate
    assert loaded.certificate.bounded
    assert repr(loaded.certificate) == repr(res.certificate)
    pd.testing.assert_frame_equal(loaded.iterations, res.iterations, check_exact=True)
    assert loaded.seconds == res.seconds
    assert loaded.held == ("c",)
    assert loaded.aic == res.aic
    assert loaded.components.held == ("c",)
    pd.testing.assert_frame_equal(
        loaded.dstudy(object="a", b=9).table, res.dstudy(object="a", b=9).table, check_exact=True
    )
    assert str(loaded.summary()) == str(res.summary())


def test_stored_results_are_small(two_way):
    formula, data = balanced("three facets")
    res = vcomp.fit(formula, data)
    # Components, covariances, products by shared levels, a table: no rows, however many.
    assert len(res.to_json(scores=False)) < 25_000
    # And of each level of the six terms the scores, their errors and those of differences.
    assert len(res.to_json()) < 60_000


def test_what_rank_accuracy_needs(two_way):
    data, res = two_way
    matrix = data.pivot(index="b", columns="a", values="y")
    pd.testing.assert_frame_equal(
        res.expected_tau(b=[5, 9]), vcomp.ir.expected_tau(matrix, [5, 9]), rtol=1e-10
    )
    # Without a size the formula's first facet is ranked over the other, as many as there were.
    pd.testing.assert_frame_equal(res.expected_tau(), vcomp.ir.expected_tau(matrix), rtol=1e-10)
    pd.testing.assert_frame_equal(res.expected_tau(), res.expected_tau(b=None))
    # The other way round.
    pd.testing.assert_frame_equal(
        res.expected_tau(a=7, variant="ap"),
        vcomp.ir.expected_tau(matrix.T, 7, variant="ap"),
        rtol=1e-10,
    )
    with pytest.raises(vcomp.PlanError, match="unknown facet 'c'; the G-study has a, b"):
        res.expected_tau(c=5)
    formula, data = balanced("three facets")
    table = vcomp.fit(formula, data).expected_tau(b=5, c=None)
    assert table.columns[:3].tolist() == ["b", "c", "estimate"]


def test_rank_accuracy_of_replicated_cells_uses_their_means():
    formula, data = balanced("crossed, replicated")
    res = vcomp.fit(formula, data)
    means = data.pivot_table(index="b", columns="a", values="y", aggfunc="mean")
    pd.testing.assert_frame_equal(
        res.expected_tau(b=4), vcomp.ir.expected_tau(means, 4), rtol=1e-10
    )


def test_feldts_interval_of_replicated_cells():
    """Mean squares of the cell means give the exact interval for the same n' of replicates."""
    formula, data = balanced("crossed, replicated", scale=3.0)
    res = vcomp.fit(formula, data)
    means = data.groupby(["a", "b"], as_index=False)["y"].mean()
    ms_a, _, ms_e, n_a, n_b = mean_squares(means)
    row = res.dstudy(object="a", b=n_b, interval="f").table.iloc[0]
    ratio = ms_a / ms_e / stats.f.ppf([0.975, 0.025], n_a - 1, (n_a - 1) * (n_b - 1))
    np.testing.assert_allclose([row["Erho2_low"], row["Erho2_high"]], np.maximum(1 - 1 / ratio, 0))


def test_the_model_follows_statsmodels_protocol():
    _, data = unbalanced("crossed")
    data["x"] = np.arange(len(data)) % 5
    model = vcomp.VarianceComponentsModel.from_formula("y ~ x + (1|a) + (1|b)", data)
    np.testing.assert_array_equal(model.endog, data["y"])
    np.testing.assert_array_equal(model.exog, np.column_stack([np.ones(len(data)), data["x"]]))
    assert model.endog_names == "y"
    assert model.exog_names == ["Intercept", "x"]
    assert model.nobs == len(data)
    res = model.fit()
    assert res.model is model
    assert res.method == "reml"
    assert model.loglike(res.vcomp) == pytest.approx(res.llf)
    np.testing.assert_allclose(model.score(res.vcomp), 0.0, atol=1e-6)


def test_statsmodels_mixedlm_agrees(shared_data):
    """One grouping factor with a covariate: the case that MixedLM fits as well."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import statsmodels.formula.api as smf

        data = pd.read_csv(shared_data("sleepstudy.csv"))
        theirs = smf.mixedlm("Reaction ~ Days", data, groups="Subject").fit(reml=True)
    ours = vcomp.fit("Reaction ~ Days + (1|Subject)", data)
    assert ours.llf == pytest.approx(theirs.llf, abs=1e-6)
    # MixedLM's optimiser stops at about 1e-5.
    assert ours.vcomp["Subject"] == pytest.approx(theirs.cov_re.iloc[0, 0], rel=1e-4)
    assert ours.vcomp["Residual"] == pytest.approx(theirs.scale, rel=1e-4)
    np.testing.assert_allclose(ours.bse_fe, theirs.bse_fe, rtol=1e-4)


def test_the_last_of_confounded_terms_is_named():
    a, b = np.indices((5, 4)).reshape(2, -1)
    data = {"y": np.random.default_rng(0).normal(size=20), "a": a, "b": b, "c": 3 - b}
    with pytest.raises(vcomp.DesignError, match="terms 'b' and 'c' are confounded"):
        vcomp.fit("y ~ (1|a) + (1|b) + (1|c)", data)
