"""The study of random parts of the data, as a user asks for it."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import f

import vcomp
from tests.helpers.designs import balanced, unbalanced
from vcomp.display import counted
from vcomp.model.row_access import fitted_again
from vcomp.studies.subsample import Subsets
from vcomp.studies.subsample_result import quantile, span_of

FORMULA = "y ~ (1|a) + (1|b)"
SIZES = {"a": [3, 5], "b": [4, 9]}


@pytest.fixture(scope="module")
def frame():
    return balanced("crossed", 4)[1]


@pytest.fixture(scope="module")
def study(frame):
    return vcomp.subsample_study(FORMULA, frame, sizes=SIZES, trials=15, rng=3, dstudy={"b": 20})


def test_every_size_has_its_subsets(study):
    rows = study.frame
    assert rows.columns.tolist() == [
        "a", "b", "trial", "var(a)", "var(b)", "var(Residual)", "Erho2", "Phi", "n_Erho2", "n_Phi",
    ]  # fmt: skip
    assert len(rows) == 4 * 15
    counts = rows.groupby(["a", "b"]).size()
    assert counts.to_dict() == {(3, 4): 15, (3, 9): 15, (5, 4): 15, (5, 9): 15}
    assert repr(study) == "<SubsampleStudy: 15 subsets of each of 4 sizes of a, b>"


def test_coefficients_and_sizes_are_those_of_a_d_study(study):
    """Every subset by the formulas of Urbano et al. (2013), eq. (4) to (7)."""
    rows = study.frame
    s, q, e = (rows[f"var({c})"].clip(lower=0.0) for c in ("a", "b", "Residual"))
    np.testing.assert_allclose(rows["Erho2"], s / (s + e / 20), rtol=1e-12)
    np.testing.assert_allclose(rows["Phi"], s / (s + (q + e) / 20), rtol=1e-12)
    with np.errstate(divide="ignore"):
        needed = np.ceil(0.95 * e / (s * 0.05)), np.ceil(0.95 * (q + e) / (s * 0.05))
    np.testing.assert_array_equal(rows["n_Erho2"], np.maximum(needed[0], 1.0))
    np.testing.assert_array_equal(rows["n_Phi"], np.maximum(needed[1], 1.0))


def test_the_table_says_how_they_lie(study, frame):
    table, rows = study.table, study.frame
    res = vcomp.fit(FORMULA, frame, method="anova")
    full = res.dstudy(b=20)
    for quantity in ("Erho2", "Phi"):
        own = table[table["quantity"] == quantity]
        for row in own.to_dict("records"):
            values = rows[(rows["a"] == row["a"]) & (rows["b"] == row["b"])][quantity]
            assert row["full"] == pytest.approx(full.table[quantity].item(), rel=1e-12)
            assert row["mean"] == pytest.approx(values.mean(), rel=1e-12)
            assert row["sd"] == pytest.approx(values.std(), rel=1e-9)
            low, middle, high = np.quantile(values, [0.025, 0.5, 0.975])
            assert (row["low"], row["median"], row["high"]) == pytest.approx((low, middle, high))
            assert row["span"] == pytest.approx(high - low)
            assert row["within"] == np.mean(np.abs(values - row["full"]) <= 0.05)
            assert row["n"] == 15
    components = table[table["quantity"] == "a"]
    assert components["full"].unique() == pytest.approx(res.vcomp["a"])
    assert components[["within", "covers"]].isna().all(axis=None)
    needed = table[table["quantity"] == "n_Erho2"]
    assert set(needed["full"]) == {full.required(0.95, "Erho2").n}


def ends_by_f(anova, n_s, n_q, tail):
    """Return an end of Eρ² and of Φ of 20 levels: Urbano et al. (2013), eq. (8) to (11).

    The second quantile in the denominator of eq. (9) has the degrees of freedom of q.
    """
    M_s, M_q, M_e = anova["mean_sq"]
    df_s, df_q = n_s - 1, n_q - 1
    F_e, F_q, F_inf = (f.isf(tail, df_s, df) for df in (df_s * df_q, df_q, 1e15))
    zeta = max((M_s / (M_e * F_e) - 1) / n_q, 0.0)
    L = M_s**2 - F_inf * M_s * M_e + (F_inf - F_e) * F_e * M_e**2
    L = max(L / (df_s * F_inf * M_s * M_e + F_q * M_s * M_q), 0.0)
    share = n_s * L / (n_s * L + n_q)
    return {"Erho2": 20 * zeta / (1 + 20 * zeta), "Phi": 20 * share / (1 + 19 * share)}


@pytest.mark.slow
def test_covered_by_the_intervals_of_the_subsets(study, frame):
    """Against fits of the rows of every subset, and F quantiles from scipy.stats."""
    fit, design = fitted_again(study.results)
    subsets = Subsets.of(fit, design, study.results.components, ("a", "b"))
    for place, (n_a, n_b) in enumerate(study.cells.tolist()):
        held = {"Erho2": [], "Phi": []}
        for trial in range(study.trials):
            seeds = np.random.SeedSequence(3, spawn_key=(n_a, n_b, trial))
            rng = np.random.Generator(np.random.PCG64(seeds))
            sample = subsets.drawn({"a": n_a, "b": n_b}, rng)
            part = vcomp.fit(FORMULA, frame.iloc[sample.rows], method="anova")
            values = study.replicates.values[place * study.trials + trial]
            np.testing.assert_allclose(values, part.vcomp, rtol=1e-9, atol=1e-12)
            low, high = (ends_by_f(part.anova_table(), n_a, n_b, t) for t in (0.025, 0.975))
            for name, found in held.items():
                found.append(low[name] <= study.full(name) <= high[name])
        own = study.table.query(f"a == {n_a} and b == {n_b}").set_index("quantity")
        for name, found in held.items():
            assert own.loc[name, "covers"] == np.mean(found)


@pytest.mark.parametrize("method", ["anova", "ml"])
def test_the_numbers_do_not_depend_on_workers(frame, method):
    made = [
        vcomp.subsample_study(
            FORMULA, frame, sizes=SIZES, trials=3, rng=3, method=method, workers=workers
        ).frame
        for workers in (1, 3)
    ]
    pd.testing.assert_frame_equal(*made)


def test_a_size_has_the_same_subsets_whatever_others_there_are(study, frame):
    alone = vcomp.subsample_study(
        FORMULA, frame, sizes={"a": 5, "b": 4}, trials=10, rng=3, dstudy={"b": 20}
    )
    both = study.frame.query("a == 5 and b == 4 and trial < 10").reset_index(drop=True)
    pd.testing.assert_frame_equal(alone.frame, both)
    other = vcomp.subsample_study(FORMULA, frame, sizes={"a": 5, "b": 4}, trials=10, rng=4)
    assert not np.allclose(other.frame["var(a)"], alone.frame["var(a)"])


def test_all_levels_are_all_the_data(frame):
    found = vcomp.subsample_study(FORMULA, frame, sizes={"a": 7, "b": 9}, trials=3)
    res = vcomp.fit(FORMULA, frame, method="anova")
    np.testing.assert_allclose(found.replicates.values, [res.vcomp] * 3, rtol=1e-10)
    assert found.table.set_index("quantity")["span"].max() == 0.0


def test_each_facet_by_itself(frame):
    found = vcomp.subsample_study(FORMULA, frame, sizes=SIZES, grid="each", trials=5)
    assert found.cells.tolist() == [[3, 9], [5, 9], [7, 4], [7, 9]]


@pytest.mark.clock
def test_it_is_continued_from_a_file(frame, tmp_path):
    path = tmp_path / "subsets.npz"
    whole = vcomp.subsample_study(FORMULA, frame, sizes=SIZES, trials=5, rng=1)
    with pytest.warns(vcomp.VcompWarning, match="time limit of .* ended the work"):
        vcomp.subsample_study(
            FORMULA, frame, sizes=SIZES, trials=5, rng=1, path=path, time_limit=1e-9
        )
    # One batch of subsets is made at most; here some are there already.
    some = whole.replicates.first(7)
    some.save(path)
    again = vcomp.subsample_study(FORMULA, frame, sizes=SIZES, trials=5, rng=1, path=path)
    np.testing.assert_array_equal(again.replicates.values, whole.replicates.values)
    with pytest.raises(vcomp.DataError, match="seed"):
        vcomp.subsample_study(FORMULA, frame, sizes=SIZES, trials=5, rng=2, path=path)
    with pytest.raises(vcomp.DataError, match="their sizes is"):
        vcomp.subsample_study(FORMULA, frame, sizes={"a": 4, "b": 4}, trials=5, rng=1, path=path)


def test_another_plan_needs_no_other_fits(study):
    other = study.with_plan({"b": 50}, goal=0.9, alpha=0.2)
    assert other.replicates is study.replicates
    rows = other.frame
    s, e = (rows[f"var({c})"].clip(lower=0.0) for c in ("a", "Residual"))
    np.testing.assert_allclose(rows["Erho2"], s / (s + e / 50), rtol=1e-12)
    wide, narrow = (x.table.query("quantity == 'a'")["span"] for x in (study, other))
    assert (wide.to_numpy() > narrow.to_numpy()).all()
    turned = study.with_plan({"object": "b", "a": 10})
    assert turned.required_facet == "a"
    r = turned.frame
    q, e = (r[f"var({c})"].clip(lower=0.0) for c in ("b", "Residual"))
    np.testing.assert_allclose(r["Erho2"], q / (q + e / 10), rtol=1e-12)


def test_a_result_brings_its_data_and_method(frame):
    res = vcomp.fit(FORMULA, frame)
    found = vcomp.subsample_study(res, sizes={"a": 4}, trials=10)
    assert found.results is res
    direct = vcomp.subsample_study(FORMULA, frame, sizes={"a": 4}, trials=10, method="reml")
    pd.testing.assert_frame_equal(found.frame, direct.frame)
    # Intervals of estimates at their bound are not those of the mean squares they are made of.
    assert found.table["covers"].isna().all()
    with pytest.raises(vcomp.DataError, match="a result has its data"):
        vcomp.subsample_study(res, frame, sizes={"a": 4})
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    with pytest.raises(vcomp.DataError, match="loaded without its rows"):
        vcomp.subsample_study(loaded, sizes={"a": 4})


def test_names_in_the_formula_are_those_of_the_caller(frame):
    double, plan = 2.0, {"sizes": {"a": 3}, "trials": 2, "rng": 1}
    assert double
    one = vcomp.subsample_study("y ~ (1|a) + (1|b)", frame, **plan)
    two = vcomp.subsample_study("I(double * y) ~ (1|a) + (1|b)", frame, **plan)
    np.testing.assert_allclose(two.replicates.values, 4.0 * one.replicates.values, rtol=1e-12)


def test_nested_facets_and_several_sizes():
    formula, data = balanced("crossed and nested", 2)
    found = vcomp.subsample_study(
        formula, data, sizes={"b": [2, 3], "c": 2}, trials=8, dstudy={"b": 10, "c": 3}
    )
    assert found.required_facet is None
    assert "n_Phi" not in found.quantities
    named = found.with_plan({"b": 10, "c": 3}, facet="b")
    assert named.full("n_Phi") == found.results.dstudy(b=10, c=3).required(0.95, "Phi", "b").n
    assert "needed for 0.95" in str(named)
    assert np.isnan(found.table["covers"]).all()
    with pytest.raises(vcomp.EstimationError, match="number of levels in each b, not 4"):
        vcomp.subsample_study(formula, data, sizes={"c": 4})


def test_unbalanced_data_by_a_likelihood():
    formula, data = unbalanced("crossed", 1)
    found = vcomp.subsample_study(formula, data, sizes={"a": 5}, trials=4, method="reml")
    assert np.isfinite(found.replicates.values).all()
    assert len(found.dstudy.plan) == 1


def test_what_cannot_be_fitted_is_said():
    data = balanced("crossed", 1)[1]
    data = data[(data["a"] == 0) | (data["b"] != 0)]
    with pytest.warns(vcomp.VcompWarning, match="subsets could not be fitted"):
        found = vcomp.subsample_study(
            FORMULA, data, sizes={"a": 3, "b": 9}, trials=12, method="reml"
        )
    failed = int((~found.replicates.converged).sum())
    assert found.table["n"].unique().tolist() == [12 - failed]
    assert found.frame["Erho2"].isna().sum() == failed
    assert f"{counted(failed, 'subset')} gave no estimates" in str(found)
    assert found.span("Erho2", 0).length >= 0.0


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({}, "sizes must be a mapping"),
        ([5], "sizes must be a mapping"),
        ({"aa": 5}, r"'aa' is not a facet .*did you mean 'a'"),
        ({"a": []}, "no size is given for 'a'"),
        ({"a": 1}, "sizes of 'a' must be between 2 and 7"),
        ({"a": [3, 8]}, "the number of levels, not 8"),
        ({"a": 2.5}, "whole numbers, not 2.5"),
        ({"a": True}, "whole numbers, not True"),
        ({"a": "5"}, "whole numbers, not '5'"),
    ],
)
def test_sizes_that_cannot_be(frame, sizes, message):
    with pytest.raises(vcomp.EstimationError, match=message):
        vcomp.subsample_study(FORMULA, frame, sizes=sizes)


def test_sizes_of_numpy(frame):
    found = vcomp.subsample_study(
        FORMULA, frame, sizes={"a": np.int64(4), "b": np.arange(3, 7, 2)}, trials=2
    )
    assert found.cells.tolist() == [[4, 3], [4, 5]]
    scalar = vcomp.subsample_study(FORMULA, frame, sizes={"a": np.array(4)}, trials=2)
    assert scalar.cells.tolist() == [[4]]


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"trials": 0}, vcomp.EstimationError, "trials must be a whole number of at least 1"),
        ({"workers": 0}, vcomp.EstimationError, "workers"),
        ({"grid": "every"}, vcomp.PlanError, "grid must be 'all' or 'each'"),
        ({"rng": "x"}, vcomp.EstimationError, "rng"),
        ({"time_limit": 0}, vcomp.EstimationError, "time_limit"),
        ({"method": "lasso"}, vcomp.EstimationError, "lasso"),
        ({"dstudy": 50}, vcomp.PlanError, "dstudy must be a mapping"),
        ({"options": 50}, vcomp.EstimationError, "options must be a mapping"),
        ({"path": 50}, vcomp.DataError, "path must be the name of a file"),
        ({"dstudy": {"b": [10, 20]}}, vcomp.PlanError, "dstudy= has 2"),
        ({"dstudy": {"c": 10}}, vcomp.PlanError, "unknown facet 'c'"),
        ({"goal": 1.5}, vcomp.PlanError, "between 0 and 1"),
        ({"facet": "c"}, vcomp.PlanError, "'c' has no size"),
        ({"alpha": 0}, vcomp.PlanError, "alpha"),
    ],
)
def test_options_that_cannot_be(frame, changed, error, message):
    with pytest.raises(error, match=message):
        vcomp.subsample_study(FORMULA, frame, **{"sizes": {"a": 4}, "trials": 2, **changed})


def test_quantities_that_are_not_there(study):
    with pytest.raises(vcomp.PlanError, match="did you mean 'Erho2'"):
        study.values("Erho")
    with pytest.raises(vcomp.PlanError, match="was not estimated"):
        study.full("sys")


def test_the_summary(study):
    text = str(study)
    assert "15 random subsets of each size" in text
    assert "of a test with b = 20" in text
    assert max(map(len, text.splitlines())) <= 95
    assert "<table" in study._repr_html_()


def test_spans_with_infinite_values():
    values = np.array([5.0, np.inf, 1.0, np.nan, 3.0, np.inf])
    span = span_of(values, 0.5)
    assert (span.low, span.median, span.high) == (3.0, 5.0, np.inf)
    assert (span.mean, span.endless, span.length) == (np.inf, 0.4, np.inf)
    assert np.isnan(span.sd)
    nothing = span_of(np.array([np.nan]), 0.05)
    assert np.isnan(nothing.median)
    endless = span_of(np.array([np.inf, np.inf]), 0.05)
    assert endless.length == 0.0
    alone = span_of(np.array([2.0]), 0.05)
    assert (alone.low, alone.high, alone.length) == (2.0, 2.0, 0.0)
    assert np.isnan(alone.sd)
    assert span_of(np.array([1.0, np.nan, 3.0]), 0.05).sd == pytest.approx(np.sqrt(2.0))


def test_quantiles_are_those_of_numpy():
    values = np.sort(np.random.default_rng(1).normal(size=17))
    for q in np.linspace(0.0, 1.0, 41):
        assert quantile(values, q) == pytest.approx(np.quantile(values, q), rel=1e-12)


def test_warnings_of_the_fit_are_the_users(frame):
    data = frame.copy()
    data.loc[3, "y"] = np.nan
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        vcomp.subsample_study(FORMULA, data, sizes={"a": 4}, trials=2, method="reml")
    assert any("1 of 63 rows have a missing value" in str(w.message) for w in heard)
    assert all(w.filename == __file__ for w in heard)


@pytest.mark.parametrize(
    ("method", "negative", "values", "agrees"),
    [
        ("anova", "keep", [-1.0, -0.5, 2.0], True),
        ("anova", "refit", [1.0, 0.0, 2.0], True),
        ("anova", "refit", [-1.0, 0.5, 2.0], False),
        ("anova", "refit", [1.0, -0.5, 2.0], False),
        ("anova", "refit", [1.0, 0.5, -2.0], True),  # the residual is no term
        ("reml", "keep", [1.0, 0.5, 2.0], True),
        ("reml", "keep", [1.0, 0.0, 2.0], False),
        ("reml", "keep", [1.0, 0.5, 0.0], False),
    ],
)
def test_methods_agree_with_the_analysis_of_variance_above_zero(method, negative, values, agrees):
    recipe = SimpleNamespace(estimator=SimpleNamespace(name=method), negative=negative)
    of = SimpleNamespace(fit=SimpleNamespace(recipe=recipe))
    assert Subsets._agrees(of, np.array(values)) == agrees
