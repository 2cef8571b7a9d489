"""A pickled result keeps its predicted effects, and passes between processes and files."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import balanced, unbalanced
from tests.helpers.drawn_axes import drawn_text

FORMULA = "score ~ (1|sys) + (1|topic)"


def by_pickle(res):
    return pickle.loads(pickle.dumps(res))


def by_cloudpickle(res):
    cloudpickle = pytest.importorskip("cloudpickle", reason="cloudpickle comes with Dask")
    return cloudpickle.loads(cloudpickle.dumps(res))


def assert_same_effects(other, res):
    assert other.model is None
    effects = other.random_effects
    assert list(effects) == list(res.random_effects)
    for term, frame in res.random_effects.items():
        pd.testing.assert_frame_equal(effects[term], frame, check_exact=True)


@pytest.mark.parametrize(
    ("case", "travel"),
    alternately(
        [
            ("one way", "1", "anova"),
            ("crossed", "1", "minque"),
            ("crossed", "x", "reml"),
            ("crossed, replicated", "C(half)", "henderson3"),
            ("deeply nested", "0", "ml"),
            ("crossed and nested", "1", "reml"),
        ],
        *(by_pickle, by_cloudpickle),
    ),
)
def test_a_pickle_keeps_predicted_effects(case, travel):
    design, fixed, method = case
    formula, data = unbalanced(design)
    formula = formula.replace("~", f"~ {fixed} +")
    data["x"] = np.random.default_rng(1).normal(size=len(data))
    data["half"] = np.arange(len(data)) % 2
    res = vcomp.fit(formula, data, method=method)
    other = travel(res)
    assert_same_effects(other, res)
    assert_same_effects(travel(other), res)  # and so does the pickle of what was unpickled
    assert_same_effects(copy.deepcopy(other), res)


def test_effects_of_levels_that_are_not_text():
    days = pd.date_range("2024-01-01", periods=6)
    frame = pd.DataFrame([(d, k) for d in days for k in range(5)], columns=["day", "assay"])
    frame["score"] = np.random.default_rng(3).normal(size=30) + frame.day.dt.day
    res = vcomp.fit("score ~ (1|day) + (1|assay)", frame)
    other = by_pickle(res)
    assert_same_effects(other, res)
    assert other.random_effects["day"].index.equals(pd.Index(days, name="day"))


def test_the_effects_in_a_pickle_are_not_changed_by_who_reads_them():
    formula, data = balanced("crossed", seed=1)
    res = vcomp.fit(formula, data)
    other = by_pickle(res)
    frame = other.random_effects["a"]
    frame["estimate"] = 0.0
    assert_same_effects(other, res)


def test_effects_are_drawn_after_pickling():
    formula, data = balanced("crossed", seed=1)
    res = vcomp.fit(formula, data)
    drawn, again = (r.plot("effects", term="a") for r in (res, by_pickle(res)))
    assert drawn_text(again) == drawn_text(drawn)
    assert again.get_xlabel() == drawn.get_xlabel()


def test_rows_are_not_in_the_pickle():
    rng = np.random.default_rng(5)
    frame = pd.DataFrame([(a, b) for a in range(5) for b in range(4_000)], columns=["a", "b"])
    frame["y"] = rng.normal(size=len(frame)) + rng.normal(size=5)[frame.a]
    res = vcomp.fit("y ~ (1|a)", frame)
    assert len(pickle.dumps(res)) < 8 * len(frame) / 4  # the response alone takes 8 bytes a row
    other = by_pickle(res)
    for needs_rows in ("fittedvalues", "resid"):
        with pytest.raises(vcomp.DataError, match="loaded without its rows"):
            getattr(other, needs_rows)
    with pytest.raises(vcomp.DataError, match="loaded without its rows"):
        other.predict(frame.head(3))


@pytest.mark.parametrize(("n_c", "kept"), [(20, True), (21, False)])
def test_effects_that_are_larger_than_the_data_are_left_out(n_c, kept):
    # 22 rows with a response and two facets are 66 numbers; 2 + n_c effects are 3 (2 + n_c).
    n_rows = 22
    frame = pd.DataFrame({"a": np.arange(n_rows) % 2, "c": np.arange(n_rows) % n_c})
    frame["y"] = np.random.default_rng(2).normal(size=n_rows)
    # Nearly as many effects as rows: there is a maximum if the residual is held.
    res = vcomp.fit("y ~ (1|a) + (1|c)", frame, hold={"Residual": 1.0})
    other = by_pickle(res)
    assert len(res.random_effects["c"]) == n_c
    if kept:
        assert_same_effects(other, res)
        return
    told = "its 23 predicted effects, each with two standard errors, would have been larger"
    for effects in (lambda: other.random_effects, lambda: other.plot("effects", term="c")):
        with pytest.raises(vcomp.DataError, match=told):
            effects()


def test_the_reason_why_effects_are_missing_travels():
    frame = pd.DataFrame({"a": list("aabbccdd"), "y": [1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 7.0, 7.0]})
    res = vcomp.fit("y ~ (1|a)", frame, method="anova")
    assert res.vcomp["Residual"] == 0.0
    other = by_pickle(res)
    with pytest.raises(vcomp.DataError, match="residual variance is estimated at 0"):
        _ = other.random_effects
    assert other.vcomp.equals(res.vcomp)


def test_json_has_no_effects():
    formula, data = balanced("crossed", seed=1)
    res = vcomp.VarianceComponentsResults.from_json(vcomp.fit(formula, data).to_json())
    with pytest.raises(vcomp.DataError, match="loaded without its rows"):
        _ = res.random_effects
    with pytest.raises(vcomp.DataError, match="loaded without its rows"):
        _ = by_pickle(res).random_effects


def test_results_of_batches_and_of_sums_keep_their_effects(tmp_path):
    formula, data = balanced("crossed", seed=1)
    whole = vcomp.fit(formula, data)
    parts = [data.iloc[:40], data.iloc[40:]]
    streamed = vcomp.fit(formula, parts, stream=True)
    assert_same_effects(by_pickle(streamed), streamed)
    first, second = (vcomp.accumulate(formula, part) for part in parts)
    summed = (first + second).fit()
    assert_same_effects(by_pickle(summed), summed)
    for term, frame in by_pickle(summed).random_effects.items():
        np.testing.assert_allclose(frame, whole.random_effects[term].loc[frame.index], rtol=1e-6)


@pytest.mark.slow
def test_a_result_comes_back_from_another_process():
    data = vcomp.datasets.load("bodoff2007_alpha")
    res = vcomp.fit(FORMULA, data)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        there = pool.submit(vcomp.fit, FORMULA, data).result()
        back = pool.submit(copy.copy, res).result()  # there and back
    for other in (there, back):
        pd.testing.assert_series_equal(other.params, res.params, check_exact=True)
        assert_same_effects(other, res)
        assert str(other.dstudy(topic=[10, 50])) == str(res.dstudy(topic=[10, 50]))
