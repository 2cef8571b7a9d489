"""Universe scores and conditional errors, against formulas written out here."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.designs import balanced, drop_rows, unbalanced
from tests.helpers.examples import examples
from vcomp.gtheory import make_plans
from vcomp.model.universe_scores import Errors, own_term, scores_of_term


def two_way(n_p, n_i, seed):
    rng = np.random.default_rng(seed)
    # Persons differ in how much their scores scatter, items in difficulty.
    scatter = rng.uniform(0.3, 2.0, n_p)
    table = 5.0 + 2.0 * rng.normal(size=(n_p, 1)) + rng.normal(size=n_i)
    table = table + scatter[:, None] * rng.normal(size=(n_p, n_i))
    return table, long_form(table)


def long_form(table):
    p, i = np.divmod(np.arange(table.size), table.shape[1])
    return pd.DataFrame({"p": p, "i": i, "y": table.ravel()})


def fit(formula, data, **options):
    with warnings.catch_warnings():
        # That Method I is a poor one for partly crossed data does not matter here.
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        return vcomp.fit(formula, data, **options)


def test_columns_and_index():
    _, data = two_way(5, 7, 0)
    frame = vcomp.fit("y ~ (1|p) + (1|i)", data).universe_scores()
    assert list(frame) == [
        "n", "mean", "universe_score", "se", "low", "high",
        "sem_rel", "sem_abs", "csem_rel", "csem_abs",
    ]  # fmt: skip
    assert frame.index.name == "p"
    assert frame.index.tolist() == list(range(5))
    assert (frame["n"] == 7).all()


@given(st.integers(2, 9), st.integers(3, 8), st.integers(0, 100))
@settings(max_examples=examples(20), deadline=None)
def test_scores_by_items(n_p, n_i, seed):
    """Brennan (2001), section 5.4, for p × i; his general mean square identities."""
    table, data = two_way(n_p, n_i, seed)
    res = fit("y ~ (1|p) + (1|i)", data, method="anova")
    frame = res.universe_scores("p", negative="keep")
    np.testing.assert_allclose(frame["mean"], table.mean(axis=1), rtol=1e-12)
    s2 = table.var(axis=1, ddof=1)
    np.testing.assert_allclose(frame["csem_abs"] ** 2, s2 / n_i, rtol=1e-9)
    profile = table.mean(axis=0)
    cov = np.array([np.cov(row, profile)[0, 1] for row in table])
    relative = (n_p + 1) / (n_p - 1) * s2 + res.vcomp["i"] - 2 * n_p / (n_p - 1) * cov
    has = relative > 1e-9
    np.testing.assert_allclose(
        frame["csem_rel"][has] ** 2, relative[has] / n_i, rtol=1e-8, atol=1e-10
    )
    # Their averages are the D-study's.
    plan = res.dstudy(object="p", negative="keep").table.iloc[0]
    np.testing.assert_allclose((frame["csem_abs"] ** 2).mean(), plan["abs_err_var"], rtol=1e-9)
    np.testing.assert_allclose(relative.mean() / n_i, plan["rel_err_var"], rtol=1e-9)
    np.testing.assert_allclose(frame["sem_rel"] ** 2, plan["rel_err_var"], rtol=1e-9)


def test_kelleys_equation():
    """In balanced data with all components above zero: μ̂ + Eρ² (X̄ − μ̂)."""
    table, data = two_way(8, 10, 1)
    res = vcomp.fit("y ~ (1|p) + (1|i)", data)
    assert (res.vcomp > 0).all()
    frame = res.universe_scores("p")
    erho2 = res.dstudy(object="p").table["Erho2"].item()
    mean = table.mean()
    kelley = mean + erho2 * (table.mean(axis=1) - mean)
    np.testing.assert_allclose(frame["universe_score"], kelley, rtol=1e-8)
    # Var(û − u) = σ²_p (1 − Eρ²) given μ; with it estimated, and its error, the rest follows.
    p, i, e = res.vcomp
    n_p, n_i = table.shape
    # μ̂ − μ is the mean of everything; μ̂ + û_p − μ − u_p = Eρ² e_p + (1 − Eρ²)(ē − (u_p − ū)).
    var = erho2**2 * e / n_i * (1 - 1 / n_p) + (1 - erho2) ** 2 * p * (1 - 1 / n_p)
    var += e / (n_i * n_p) + i / n_i
    np.testing.assert_allclose(frame["se"] ** 2, var, rtol=1e-7)
    half = 1.6448536269514722 * frame["se"]
    narrow = res.universe_scores("p", alpha=0.1)
    np.testing.assert_allclose(narrow["high"] - narrow["universe_score"], half, rtol=1e-12)
    np.testing.assert_allclose(narrow["universe_score"] - narrow["low"], half, rtol=1e-12)


DESIGNS = {
    # Every interaction has a term, so that the analysis of variance is the classical one.
    "crossed": ("a", "y ~ (1|a) + (1|b)"),
    "crossed, replicated": ("a", "y ~ (1|a*b)"),
    "three facets": ("a", "y ~ (1|a) + (1|b) + (1|c) + (1|a:b) + (1|a:c) + (1|b:c)"),
    "crossed and nested": ("a", "y ~ (1|a) + (1|b/c) + (1|a:b)"),
    "nested": ("a", "y ~ (1|a/b)"),
    "deeply nested": ("a", "y ~ (1|a/b/c)"),
    "one way": ("a", "y ~ (1|a)"),
}


def conditional(res, object_):
    """Return the conditional error variances, also negative ones; the table has their roots."""
    components = res.components
    plan = make_plans(components, object=object_)
    term = own_term(components, plan)
    within = scores_of_term(res._record, res._rows, components, term)[0].within
    errors = Errors(within, components, plan, "keep", plan.inverse_n is not None)
    frame = res.universe_scores(object_, negative="keep")
    for variances, column in zip(errors.conditional(), ("csem_rel", "csem_abs"), strict=True):
        roots = np.sqrt(np.where(variances >= 0.0, variances, np.nan))
        np.testing.assert_array_equal(frame[column], roots)
    return errors.conditional()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("design", sorted(DESIGNS))
def test_averages_of_conditional_errors_are_the_error_variances(design, seed):
    """The analyses within objects add up to that of all scores, kept as estimated."""
    object_, formula = DESIGNS[design]
    _, data = balanced(design, seed)
    res = fit(formula, data, method="anova")
    relative, absolute = conditional(res, object_)
    plan = res.dstudy(object=object_, negative="keep").table.iloc[0]
    np.testing.assert_allclose(absolute.mean(), plan["abs_err_var"], rtol=1e-8)
    np.testing.assert_allclose(relative.mean(), plan["rel_err_var"], rtol=1e-8, atol=1e-10)


def test_facets_nested_in_the_object_are_not_shared():
    """p × i × (o:p): items are shared, occasions are each person's own."""
    rng = np.random.default_rng(0)
    grid = pd.MultiIndex.from_product([range(5), range(4), range(6)], names=["p", "o", "i"])
    data = grid.to_frame(index=False)
    for columns in (["p"], ["i"], ["p", "o"], ["p", "i"]):
        codes = data.groupby(columns).ngroup()
        data["y"] = data.get("y", 0.0) + rng.normal(size=codes.max() + 1)[codes]
    data["y"] += rng.normal(size=len(data))
    res = fit("y ~ (1|p/o) + (1|i) + (1|p:i)", data, method="anova")
    relative, absolute = conditional(res, "p")
    plan = res.dstudy(object="p", negative="keep").table.iloc[0]
    np.testing.assert_allclose(absolute.mean(), plan["abs_err_var"], rtol=1e-8)
    np.testing.assert_allclose(relative.mean(), plan["rel_err_var"], rtol=1e-8)


def test_the_order_of_terms_does_not_matter():
    _, data = two_way(7, 5, 3)
    data = data.drop(index=[3, 8, 21])
    one, other = (
        fit(f"y ~ {terms}", data).universe_scores("p")
        for terms in ("(1|p) + (1|i)", "(1|i) + (1|p)")
    )
    pd.testing.assert_frame_equal(one, other, rtol=1e-7)


def test_an_effect_that_the_model_leaves_out_is_as_one_without_variance():
    rng = np.random.default_rng(5)
    p, i, a = np.indices((6, 4, 3)).reshape(3, -1)
    y = rng.normal(size=6)[p] + rng.normal(size=4)[i] + rng.normal(size=p.size)
    data = pd.DataFrame({"p": p, "i": i, "a": a, "y": y})
    terms = "y ~ (1|p) + (1|i) + (1|i:a) + (1|p:a)"
    without = vcomp.fit(terms, data)
    held = vcomp.fit(f"{terms} + (1|a)", data, hold={"a": 0.0})
    columns = ["csem_rel", "csem_abs", "sem_rel", "sem_abs"]
    np.testing.assert_allclose(
        without.universe_scores("p")[columns], held.universe_scores("p")[columns], rtol=1e-5
    )


def test_errors_of_unbalanced_objects():
    """Each object its own numbers; their squares average to the exact D-study of the design."""
    formula, data = unbalanced("crossed and nested")
    res = fit(formula, data, method="anova")
    frame = res.universe_scores("a")
    plan = res.dstudy(object="a").table.iloc[0]
    np.testing.assert_allclose((frame["sem_abs"] ** 2).mean(), plan["abs_err_var"], rtol=1e-9)
    np.testing.assert_allclose((frame["sem_rel"] ** 2).mean(), plan["rel_err_var"], rtol=1e-9)
    np.testing.assert_allclose(frame["mean"], data.groupby("a")["y"].mean(), rtol=1e-12)
    assert frame["csem_rel"].isna().all()
    assert (
        frame["note"].str.startswith("no csem_rel: objects do not all have the same cells").all()
    )
    # By hand for one of them: Henderson's Method I on its scores alone.
    own = data[data["a"] == frame.index[2]]
    alone = fit("y ~ (1|b)", own, method="anova").vcomp
    n = own.groupby("b").size().to_numpy()
    expected = np.maximum(alone["b"], 0.0) * (n @ n) / n.sum() ** 2 + alone["Residual"] / n.sum()
    np.testing.assert_allclose(frame["csem_abs"].iloc[2] ** 2, expected, rtol=1e-9)


def test_errors_of_other_sizes():
    table, data = two_way(6, 8, 2)
    res = vcomp.fit("y ~ (1|p) + (1|i)", data)
    frame = res.universe_scores("p", i=20)
    plan = res.dstudy(i=20).table.iloc[0]
    np.testing.assert_allclose(frame["sem_abs"] ** 2, plan["abs_err_var"], rtol=1e-10)
    np.testing.assert_allclose(frame["csem_abs"] ** 2, table.var(axis=1, ddof=1) / 20, rtol=1e-9)
    own = res.universe_scores("p")
    np.testing.assert_allclose(frame["csem_rel"] ** 2 * 20, own["csem_rel"] ** 2 * 8, rtol=1e-9)
    with pytest.raises(vcomp.PlanError, match="one size of each facet"):
        res.universe_scores("p", i=[10, 20])
    with pytest.raises(vcomp.PlanError, match="did you mean 'i'"):
        res.universe_scores("p", ii=10)


def test_an_object_with_one_score_has_no_conditional_error():
    _, data = two_way(5, 6, 3)
    data = data[(data["p"] != 2) | (data["i"] == 0)]
    frame = fit("y ~ (1|p) + (1|i)", data).universe_scores("p")
    assert frame["csem_abs"].isna().tolist() == [False, False, True, False, False]
    assert np.isfinite(frame["se"]).all()


def test_a_large_mean_costs_no_digits():
    _, data = two_way(6, 8, 4)
    here = vcomp.fit("y ~ (1|p) + (1|i)", data).universe_scores("p")
    far = vcomp.fit("y ~ (1|p) + (1|i)", data.assign(y=data["y"] + 1e6)).universe_scores("p")
    np.testing.assert_allclose(far["csem_rel"], here["csem_rel"], rtol=1e-6)
    np.testing.assert_allclose(far["universe_score"] - 1e6, here["universe_score"], rtol=1e-7)


def test_scores_at_the_mean_of_covariates():
    _, data = two_way(6, 8, 5)
    data = drop_rows(data.assign(x=np.random.default_rng(0).normal(2.0, 1.0, len(data))), 0.2, 1)
    res = vcomp.fit("y ~ x + (1|p) + (1|i)", data)
    new = pd.DataFrame({"p": range(6), "i": 99, "x": data["x"].mean()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        prediction = res.get_prediction(new, level="p")
    frame = res.universe_scores("p")
    np.testing.assert_allclose(frame["universe_score"], prediction.predicted_mean, rtol=1e-9)
    np.testing.assert_allclose(frame["se"], prediction.se_mean, rtol=1e-9)


def test_what_cannot_be_measured():
    _, data = two_way(5, 6, 6)
    res = vcomp.fit("y ~ (1|p) + (1|i)", data)
    with pytest.raises(vcomp.PlanError, match="unknown facet 'q'"):
        res.universe_scores("q")
    with pytest.raises(vcomp.PlanError, match="alpha must be between"):
        res.universe_scores("p", alpha=1.5)
    with pytest.raises(vcomp.PlanError, match="negative must be 'zero' or 'keep'"):
        res.universe_scores("p", negative="drop")


def pupils(seed, *, unbalanced_by=0.0):
    """Return scores of pupils of classes on items."""
    rng = np.random.default_rng(seed)
    c, p, i = (a.ravel() for a in np.meshgrid(*map(range, (5, 4, 6)), indexing="ij"))
    y = rng.normal(size=5)[c] + rng.normal(size=(5, 4))[c, p] + rng.normal(size=6)[i]
    data = pd.DataFrame({"c": c, "p": c * 4 + p, "i": i, "y": y + rng.normal(size=c.size)})
    return drop_rows(data, unbalanced_by, seed) if unbalanced_by else data


@pytest.mark.parametrize("missing", [0.0, 0.15])
def test_an_object_that_is_nested_has_the_effects_of_both(missing):
    data = pupils(3, unbalanced_by=missing)
    res = vcomp.fit("y ~ (1|c) + (1|c:p) + (1|i) + (1|c:i)", data)
    frame = res.universe_scores("p")
    assert len(frame) == 20
    new = data.drop_duplicates("p").sort_values("p").assign(i=99)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        prediction = res.get_prediction(new, level=["c", "c:p"])
    order = [frame.index.get_loc(key) for key in zip(new["c"], new["p"], strict=True)]
    np.testing.assert_allclose(
        frame["universe_score"].to_numpy()[order], prediction.predicted_mean, rtol=1e-9
    )
    np.testing.assert_allclose(frame["se"].to_numpy()[order], prediction.se_mean, rtol=1e-9)
    study = res.dstudy(object="p").table.iloc[0]
    assert np.mean(frame["sem_abs"] ** 2) == pytest.approx(study["abs_err_var"], rel=1e-9)
    assert np.mean(frame["sem_rel"] ** 2) == pytest.approx(study["rel_err_var"], rel=1e-9)
    assert frame["csem_rel"].isna().all()
    assert (frame["note"] == "no csem_rel: the object has several facets").all()
    assert frame["csem_abs"].notna().all()


def test_an_object_without_a_term_of_its_own_has_no_scores():
    res = vcomp.fit("y ~ (1|c) + (1|i)", pupils(1))
    with pytest.raises(
        vcomp.PlanError, match="the model has no term c:i, the object of measurement"
    ):
        res.universe_scores("c:i")


def test_sizes_of_facets_with_the_names_of_parameters():
    data = vcomp.datasets.load("bodoff2007_alpha").rename(columns={"topic": "alpha"})
    res = vcomp.fit("score ~ (1|sys) + (1|alpha)", data)
    expected = np.sqrt(res.dstudy(sizes={"alpha": 12}).table["abs_err_var"][0])
    found = res.universe_scores("sys", sizes={"alpha": 12})
    np.testing.assert_allclose(found["sem_abs"], expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["fixed", "universe", "within", "layout"])
def test_options_of_d_studies_are_refused_with_where_they_belong(name):
    res = fit("y ~ (1|p) + (1|i)", two_way(6, 4, 1)[1])
    with pytest.raises(vcomp.PlanError, match=rf"has no {name}=.*res\.dstudy\(…, {name}=…\)"):
        res.universe_scores("p", **{name: "i"})
