"""Predictions and their variances, against n × n matrices written out here."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.designs import GRIDS, UNBALANCED, balanced, gridded, unbalanced
from tests.helpers.examples import examples
from vcomp.estimators.likelihood import prediction_errors
from vcomp.estimators.likelihood.choose import EngineLimits, blocked_for_variances
from vcomp.estimators.likelihood.prediction_errors import prediction_variances
from vcomp.exceptions import EstimationError
from vcomp.model.located_rows import Located

COMPONENTS = (0.0, 0.3, 2.0)


def model_of(formula, data):
    return vcomp.VarianceComponentsModel(formula, data)


def dense_variances(model, v, groups, X):
    """Return Var(x'β̂ + z'û − x'β − z'u) = z'Gz − w'V⁻¹w + d'(X'V⁻¹X)⁻¹d with w = ZGz."""
    chunk = model.statistics.rows
    Z = [np.eye(q)[c] for c, q in zip(chunk.codes, chunk.sizes, strict=True)]
    V = sum(s * z @ z.T for s, z in zip(v, Z, strict=False)) + v[-1] * np.eye(model.nobs)
    Vi, own = np.linalg.inv(V), np.asarray(chunk.X)
    cov_beta = np.linalg.inv(own.T @ Vi @ own)
    found = []
    for row, x in zip(groups, X, strict=True):
        w, known = np.zeros(model.nobs), 0.0
        for t, g in enumerate(row):
            if g >= 0:
                w += v[t] * Z[t][:, g]
                known += v[t]
        d = x - own.T @ Vi @ w
        found.append(known - w @ Vi @ w + d @ cov_beta @ d)
    return np.array(found)


def some_combinations(model, rng, count=12):
    """Return groups of rows, some of them unknown, and groups that do not go together."""
    rows = rng.integers(model.nobs, size=count)
    groups = np.column_stack([c[rows] for c in model.statistics.rows.codes]).astype(np.int64)
    groups[rng.random(groups.shape) < 0.25] = -1
    other = np.column_stack([rng.integers(q, size=4) for q in model.statistics.rows.sizes])
    groups = np.vstack([groups, other])
    X = np.asarray(model.statistics.rows.X)[rng.integers(model.nobs, size=len(groups))]
    return groups, X


def check(model, v, rng, *limits):
    groups, X = some_combinations(model, rng)
    found = prediction_variances(model.statistics, v, groups, X, *limits)
    # z'Gz − w'V⁻¹w loses the digits that prediction gains.
    np.testing.assert_allclose(
        found, dense_variances(model, v, groups, X), rtol=1e-8, atol=1e-11 * v.sum()
    )


@pytest.mark.parametrize("covariates", ["", "x + xp + xd + "])
@pytest.mark.parametrize("name", sorted(GRIDS))
def test_variances_from_strata(name, covariates):
    formula, data = gridded(name)
    formula = formula.replace("~ ", f"~ {covariates}")
    if covariates:
        # Columns that are alike in small designs would make X singular.
        rng = np.random.default_rng(1)
        data["xp"], data["xd"] = rng.normal(size=(2, len(data)))
    rng = np.random.default_rng(0)
    model = model_of(formula, data)
    v = np.append(rng.choice(COMPONENTS, size=len(model.component_names) - 1), 0.7)
    check(model, v, rng)


@pytest.mark.parametrize("decades", [0, 6, 10, 14])
def test_components_many_decades_apart(decades):
    """Of two crossed facets the variance of a cell's mean is a sum of what each stratum leaves."""
    n_a, n_b, e = 7, 9, 0.7
    _, data = balanced("crossed")
    model = model_of("y ~ (1|a) + (1|b)", data)
    a, b = 10.0**decades, 0.4
    groups, X = np.array([[3, 5], [0, 0]]), np.ones((2, 1))
    found = prediction_variances(model.statistics, np.array([a, b, e]), groups, X)
    expected = a * e / (n_b * a + e) * (1 - 1 / n_a) + b * e / (n_a * b + e) * (1 - 1 / n_b)
    np.testing.assert_allclose(found, expected + e / (n_a * n_b), rtol=1e-7)


@given(UNBALANCED, st.integers(0, 50))
@settings(max_examples=examples(25), deadline=None)
def test_variances_of_any_design(design, seed):
    formula, data = unbalanced(*design)
    rng = np.random.default_rng(seed)
    data["x"] = rng.normal(size=len(data))
    model = model_of(formula.replace("~ ", "~ x + "), data)
    v = np.append(rng.choice(COMPONENTS, size=len(model.component_names) - 1), 0.7)
    check(model, v, rng)


@pytest.mark.parametrize("name", ["crossed", "three facets", "nested", "one way"])
def test_variances_by_iteration(name):
    limits = EngineLimits(for_variances=-1.0)
    formula, data = unbalanced(name)
    data["x"] = np.random.default_rng(1).normal(size=len(data))
    model = model_of(formula.replace("~ ", "~ x + "), data)
    object.__setattr__(model.statistics, "strata", None)
    assert blocked_for_variances(model.statistics, limits) is None
    rng = np.random.default_rng(2)
    for _ in range(3):
        v = np.append(rng.choice(COMPONENTS, size=len(model.component_names) - 1), 0.7)
        check(model, v, rng, limits)
    groups, X = some_combinations(model, rng)
    if name == "one way":  # variances of combinations of one effect are estimated by probes
        return
    # A solve for each takes as long as the pair tables have entries.
    entries, n = float(model.statistics.cross_products.n_entries), len(X)
    for most, said in ((2.5, "2"), (0.5, "1"), (n - 0.01, f"{n - 1}")):
        words = f"of {n} different predictions need .* of at most {said} predictions at a time"
        with pytest.raises(EstimationError, match=words):
            prediction_errors._by_iteration(
                model.statistics.cross_products, v, groups, X, most_entries=most * entries
            )
    prediction_errors._by_iteration(
        model.statistics.cross_products, v, groups, X, most_entries=n * entries
    )


@pytest.mark.parametrize("name", ["crossed", "nested", "crossed and nested"])
@pytest.mark.parametrize("method", ["reml", "ml", "anova"])
def test_errors_of_one_effect_are_those_of_random_effects(name, method):
    """With x = 0 the combination is one effect, whose error random_effects gives."""
    formula, data = unbalanced(name, seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        res = vcomp.fit(formula, data, method=method)
    model, v = res.model, np.maximum(res.vcomp.to_numpy(), 0.0)
    for t, (_, frame) in enumerate(res.random_effects.items()):
        groups = np.full((len(frame), len(v) - 1), -1)
        groups[:, t] = np.arange(len(frame))
        X = np.zeros((len(frame), 1))
        found = prediction_variances(model.statistics, v, groups, X)
        np.testing.assert_allclose(found, frame["se"] ** 2, rtol=1e-8, atol=1e-12 * v.sum())


@pytest.fixture(scope="module")
def crossed():
    _, data = unbalanced("crossed", seed=1)
    data["x"] = np.random.default_rng(0).normal(size=len(data))
    return data, vcomp.fit("y ~ x + (1|a) + (1|b)", data)


NEW = pd.DataFrame({"a": [0, 99, 99, 0], "b": [3, 3, 99, 3], "x": [0.0, 1.0, 2.0, 0.0]})


def test_levels_of_prediction(crossed):
    _, res = crossed
    fixed = res.fe_params["Intercept"] + res.fe_params["x"] * NEW["x"]
    a, b = (res.random_effects[t]["estimate"] for t in "ab")
    of_a, of_b = np.array([a[0], 0, 0, a[0]]), np.array([b[3], b[3], 0, b[3]])
    for level, effects in {
        "population": 0.0,
        "a": of_a,
        ("b",): of_b,
        ("b", "a"): of_a + of_b,
        "all": of_a + of_b,
    }.items():
        expected = fixed + effects
        np.testing.assert_allclose(
            res.predict(NEW, level=level, new_levels="zero"), expected, rtol=1e-12
        )
        mean = res.get_prediction(NEW, level=level, new_levels="zero").predicted_mean
        np.testing.assert_allclose(mean, expected, rtol=1e-12)
    np.testing.assert_allclose(res.predict(level="all"), res.fittedvalues, rtol=1e-12)


def test_variances_of_a_prediction(crossed):
    _, res = crossed
    model, v = res.model, res.vcomp.to_numpy()
    X = np.column_stack([np.ones(4), NEW["x"]]) - model.design.x_origin
    a, b = np.array([0, -1, -1, 0]), np.array([3, 3, -1, 3])
    cases = {
        # Unseen groups count with their variance; so do, for a score, terms that are left out.
        "all": (a, b, v[0] * (a < 0) + v[1] * (b < 0), 0.0),
        "a": (a, np.full(4, -1), v[0] * (a < 0), v[1]),
        "population": (np.full(4, -1), np.full(4, -1), 0.0, v[0] + v[1]),
    }
    for level, (in_a, in_b, unseen, others) in cases.items():
        expected = dense_variances(model, v, np.column_stack([in_a, in_b]), X) + unseen
        given_ = res.get_prediction(NEW, level=level, new_levels="zero")
        np.testing.assert_allclose(given_.se_mean**2, expected, rtol=1e-9)
        np.testing.assert_allclose(given_.se_obs**2, expected + others + v[2], rtol=1e-9)


def test_population_prediction_is_that_of_the_fixed_effects(crossed):
    data, res = crossed
    X = np.column_stack([np.ones(len(data)), data["x"]])
    expected = np.einsum("ij,jk,ik->i", X, res.cov_params().iloc[:2, :2], X)
    se = res.get_prediction(level="population").se_mean
    np.testing.assert_allclose(se**2, expected, rtol=1e-8)
    pd.testing.assert_index_equal(se.index, data.index)


def test_summary_frame(crossed):
    from scipy.stats import norm

    _, res = crossed
    prediction = res.get_prediction(NEW, new_levels="zero", alpha=0.1)
    frame = prediction.summary_frame()
    assert list(frame) == [
        "mean", "mean_se", "mean_ci_lower", "mean_ci_upper", "obs_ci_lower", "obs_ci_upper",
    ]  # fmt: skip
    half = norm.isf(0.05) * prediction.se_mean
    np.testing.assert_allclose(frame["mean_ci_upper"] - frame["mean"], half)
    obs = norm.isf(0.005) * prediction.se_obs
    wide = prediction.summary_frame(alpha=0.01)
    np.testing.assert_allclose(wide["mean"] - wide["obs_ci_lower"], obs)
    with pytest.raises(vcomp.PlanError, match="alpha must be between 0 and 1"):
        prediction.summary_frame(alpha=5)
    with pytest.raises(vcomp.PlanError, match="alpha must be between 0 and 1"):
        res.get_prediction(NEW, alpha=0)


def test_new_levels_are_named(crossed):
    _, res = crossed
    with pytest.raises(vcomp.DataError, match="facet 'a' has 99, which did not occur in the fit"):
        res.predict(NEW, new_levels="raise")
    with pytest.raises(vcomp.DataError, match="facet 'b' has 99, which"):
        res.get_prediction(NEW, level="b", new_levels="raise")
    # Levels of terms that are not asked for do not matter.
    res.predict(NEW, level="population", new_levels="raise")
    with pytest.raises(vcomp.DataError, match="new_levels='drop' is not known"):
        res.predict(NEW, new_levels="drop")


@pytest.mark.parametrize(("n", "whole"), [(60, True), (61, False)])
def test_up_to_sixty_predictions_are_shown(crossed, n, whole):
    _, res = crossed
    new = pd.concat([NEW.head(1)] * n, ignore_index=True)
    page = res.get_prediction(new)._repr_html_()
    assert ("<th>...</th>" in page) is not whole
    assert page.count("<tr") == 61 + (not whole)


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ([95, 96], "has 95, 96, which"),
        ([95, 96, 97], "has 95, 96, 97, which"),
        ([95, 96, 97, 98], "has 95, 96, 97 and 1 more, which"),
        ([95, 96, 97, 98, 97, 99], "has 95, 96, 97 and 2 more, which"),
    ],
)
def test_three_of_the_new_levels_are_shown(crossed, levels, said):
    _, res = crossed
    new = pd.DataFrame({"a": levels, "b": 3, "x": 0.0})
    with pytest.raises(vcomp.DataError, match=said):
        res.predict(new, new_levels="raise")


def test_rows_alike_are_predicted_once():
    rng = np.random.default_rng(4)
    X = np.column_stack([np.ones(90), rng.choice([0.25, -1.5, 7.0], 90)])
    groups = tuple(rng.integers(-1, n, 90) for n in (4, 3, 2))
    first, number = Located(pd.RangeIndex(90), X, groups).combinations
    rows = np.column_stack([*groups, X])
    _, expected = np.unique(rows, axis=0, return_inverse=True)
    np.testing.assert_array_equal(rows[first][number], rows)
    assert len(first) == expected.max() + 1


def test_new_combinations_are_named():
    formula, data = balanced("crossed, replicated")
    held = (data["a"] == 1) & (data["b"] == 2)
    res = vcomp.fit(formula, data[~held])
    with pytest.raises(vcomp.DataError, match=r"term 'a:b' has \(1, 2\), a combination that"):
        res.predict(data[held], new_levels="raise")
    v = res.vcomp
    seen = res.get_prediction(data[held], level=["a", "b"])
    every = res.get_prediction(data[held], new_levels="zero")
    np.testing.assert_allclose(every.se_mean**2, seen.se_mean**2 + v["a:b"])
    np.testing.assert_allclose(every.se_obs, seen.se_obs)


@pytest.mark.parametrize(
    ("level", "message"),
    [
        ("populaton", r"did you mean 'population'\?.*'population', 'all', or terms.*'a', 'b'"),
        (["a", "c"], "level 'c' is not known"),
        (5, "a name or a list of names"),
    ],
)
def test_unknown_levels_of_prediction(crossed, level, message):
    _, res = crossed
    for method in (res.predict, res.get_prediction):
        with pytest.raises(vcomp.DataError, match=message):
            method(NEW, level=level)


def test_a_constant_response_is_known_exactly():
    data = pd.DataFrame({"y": np.ones(12), "a": np.tile(range(4), 3), "b": np.repeat(range(3), 4)})
    with pytest.warns(vcomp.VcompWarning, match="the response is constant"):
        prediction = vcomp.fit("y ~ (1|a) + (1|b)", data).get_prediction()
    assert (prediction.predicted_mean == 1.0).all()
    assert (prediction.se_obs == 0.0).all()


def test_no_rows_are_no_predictions(crossed):
    _, res = crossed
    assert res.get_prediction(NEW.iloc[:0]).summary_frame().shape == (0, 6)


def test_coverage_of_new_scores():
    """Nine in ten new scores lie in their intervals, the components being known."""
    rng = np.random.default_rng(5)
    design = pd.DataFrame({"a": np.tile(range(12), 10), "b": np.repeat(range(10), 12)})
    inside = []
    for _ in range(30):
        a, b = rng.normal(size=12), 2.0 * rng.normal(size=10)
        mean = 1.0 + a[design["a"]] + b[design["b"]]
        y = mean + rng.normal(size=120)
        hold = {"a": 1.0, "b": 4.0, "Residual": 1.0}
        res = vcomp.fit("y ~ (1|a) + (1|b)", design.assign(y=y), hold=hold)
        ends = res.get_prediction(design.iloc[::7], alpha=0.1).conf_int(obs=True)
        new = (mean + rng.normal(size=120))[::7]
        inside.append(((ends["lower"] < new) & (new < ends["upper"])).mean())
    # 540 scores: a standard error of .013 or, as they hang together, somewhat more.
    assert abs(np.mean(inside) - 0.9) < 0.04


def unbalanced_groups():
    rng = np.random.default_rng(2)
    a = np.repeat(range(6), [2, 9, 3, 5, 2, 7])
    return pd.DataFrame({"a": a, "y": rng.normal(size=6)[a] * 2 + rng.normal(size=a.size)})


@pytest.mark.parametrize("method", ["reml", "ml", "anova", "type1", "henderson3", "minque"])
def test_the_population_level_is_the_fixed_part(method):
    """Henderson's Method I has the plain mean, whose standard error is its own."""
    data = unbalanced_groups()
    res = vcomp.fit("y ~ (1|a)", data, method=method)
    mean = res.fe_params.item()
    np.testing.assert_allclose(res.predict(level="population"), mean, rtol=1e-10)
    made = res.get_prediction(level="population")
    np.testing.assert_allclose(made.predicted_mean, mean, rtol=1e-10)
    np.testing.assert_allclose(made.se_mean, res.bse_fe.item(), rtol=1e-8)
    if method == "anova":
        assert mean == pytest.approx(data["y"].mean(), rel=1e-12)


def test_unknown_levels_are_refused_unless_asked_for():
    res = vcomp.fit("y ~ (1|a)", unbalanced_groups())
    rows = pd.DataFrame({"a": [1, 99]})
    for predict in (res.predict, res.get_prediction):
        with pytest.raises(vcomp.DataError, match="'a' has 99, which did not occur in the fit"):
            predict(rows)
        predict(rows, new_levels="zero")
        predict(rows, level="population")


def test_a_residual_of_rounding_errors_predicts_nothing():
    """Henderson III leaves 7e-23 of responses that the groups of b and c reproduce."""
    b = [4, 4, 4, 0, 0, 1, 3, 1, 3, 1, 1, 3, 0, 0]
    c = [5, 1, 5, 1, 4, 5, 0, 2, 7, 1, 1, 0, 2, 5]
    by_level = np.array([-0.00039349, 0.00042071, 0.0, 0.00002254, -0.00011744])
    frame = pd.DataFrame({"b": b, "c": c, "y": by_level[b]})
    res = vcomp.fit("y ~ (1|b:c) + (1|b) + (1|c)", frame, method="henderson3")
    assert res.vcomp["Residual"] == 0.0
    with pytest.raises(EstimationError, match="if the residual variance is estimated at 0"):
        _ = res.random_effects
    with pytest.raises(EstimationError, match="residual"):
        res.conf_int(interval="robust")
    for other in (pickle.loads(pickle.dumps(res)), type(res).from_json(res.to_json())):
        assert other.vcomp.equals(res.vcomp)


def test_predictions_need_the_columns_that_they_use():
    data = unbalanced_groups().assign(
        x=lambda d: np.sin(np.arange(len(d))), b=lambda d: d["y"] > 0
    )
    res = vcomp.fit("y ~ x + (1|a) + (1|b)", data)
    new = pd.DataFrame({"x": [0.0, 1.0]})
    expected = res.fe_params["Intercept"] + res.fe_params["x"] * new["x"]
    np.testing.assert_allclose(res.predict(new, level="population"), expected, rtol=1e-12)
    assert res.get_prediction(new, level="population").predicted_mean.shape == (2,)
    with_a = res.predict(new.assign(a=[0, 3]), level="a")
    np.testing.assert_allclose(
        with_a - expected, res.random_effects["a"].iloc[[0, 3], 0], rtol=1e-9
    )
    with pytest.raises(vcomp.DataError, match="no column 'a'"):
        res.predict(new, level="a")
    mean = vcomp.fit("y ~ (1|a)", data)
    assert mean.predict(new, level="population").tolist() == [mean.fe_params.item()] * 2


def test_labels_of_another_kind_are_named():
    data = unbalanced_groups().assign(a=lambda d: d["a"] + 300, c=lambda d: d["a"] % 2 == 0)
    res = vcomp.fit("y ~ C(c) + (1|a)", data.assign(c=np.where(data["c"], "u", "v")))
    text = pd.DataFrame({"a": ["300"], "c": ["u"]})
    kinds = "they are text here and numbers in the fit, such as 300; make them of one kind"
    zero = "or new_levels='zero' predicts their effects as zero"
    with pytest.raises(vcomp.DataError, match=f"'a' has '300'.*: {kinds}, {zero}"):
        res.predict(text)
    with pytest.warns(vcomp.VcompWarning, match=f"{kinds}; its effects are predicted as zero"):
        res.predict(text, new_levels="zero")
    with pytest.warns(vcomp.VcompWarning, match="such as 300; its effects"):
        res.predict(text.assign(a=99), new_levels="zero")
    with pytest.raises(vcomp.DataError, match=r"'c' has 1, .* numbers here and text in the fit"):
        res.predict(text.assign(a=300, c=1))
    res.predict(text.assign(a=300))
