"""Universe scores and comparisons of a result without rows are those of the fit."""

from __future__ import annotations

import json
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import balanced, unbalanced

DESIGNS = ["crossed", "crossed and nested", "deeply nested", "one way"]


def quiet_fit(formula, data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        return vcomp.fit(formula, data)


def by_json(res, **options):
    return vcomp.VarianceComponentsResults.from_json(res.to_json(**options))


def by_pickle(res):
    return pickle.loads(pickle.dumps(res))


def assert_same_scores(other, res):
    for facets in res.components.facets[:-1]:
        object_ = ":".join(sorted(facets))
        pd.testing.assert_frame_equal(
            other.universe_scores(object_), res.universe_scores(object_), check_exact=True
        )


def assert_same_comparison(other, res, *arguments, **options):
    found, expected = (r.compare_levels(*arguments, **options) for r in (other, res))
    # The variance of a difference is found alone or with those of all pairs.
    pd.testing.assert_frame_equal(found.table, expected.table, rtol=1e-12)
    pd.testing.assert_series_equal(found.means, expected.means, check_exact=True)
    assert str(found) == str(expected)


@pytest.mark.parametrize(
    ("design", "how"),
    [
        *alternately(DESIGNS, (balanced, by_json), (balanced, by_pickle)),
        *alternately(DESIGNS, (unbalanced, by_pickle), (unbalanced, by_json)),
    ],
)
def test_universe_scores_of_every_term(design, how):
    made, travel = how
    formula, data = made(design, seed=1)
    res = quiet_fit(formula, data)
    other = travel(res)
    assert other.model is None
    assert_same_scores(other, res)
    assert_same_scores(by_json(other), res)


def test_errors_of_another_measurement():
    data = vcomp.datasets.load("bodoff2007_alpha")
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
    options = {"topic": 25, "alpha": 0.1, "negative": "keep"}
    pd.testing.assert_frame_equal(
        by_json(res).universe_scores("sys", **options),
        res.universe_scores("sys", **options),
        check_exact=True,
    )


@pytest.fixture(scope="module")
def scores():
    """Return unbalanced scores of systems on topics, with a factor and a covariate."""
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(np.indices((4, 12)).reshape(2, -1).T, columns=["sys", "topic"])
    frame = frame.assign(query=rng.choice(["k", "q"], 48), x=rng.normal(size=48))
    frame["score"] = rng.normal(size=48) + rng.normal(size=12)[frame.topic] + frame.sys
    return frame.drop(index=[3, 17, 18])


@pytest.mark.slow
@pytest.mark.parametrize("fixed", ["C(sys) + query + x", "C(sys)*query"])
def test_comparisons_of_a_fixed_factor(scores, fixed):
    res = vcomp.fit(f"score ~ {fixed} + (1|topic)", scores)
    other = by_json(res)
    for facet in ("sys", "C(sys)", "query"):
        assert_same_comparison(other, res, facet)
    assert_same_comparison(other, res, "sys", "tukey")
    assert_same_comparison(other, res, "sys", "tukey", levels=[2, 0, 3], ddf="normal")
    assert_same_comparison(other, res, "sys", "dunnett", baseline=1)
    assert_same_comparison(other, res, "sys", "t", cov_type="robust")
    with pytest.raises(vcomp.DataError, match=r"ddf='kenward-roger' needs.*fit the model again"):
        other.compare_levels("sys", ddf="kenward-roger")
    with pytest.raises(vcomp.PlanError, match="did you mean 'query'"):
        other.compare_levels("quer")


def test_comparisons_of_a_factor_of_many_levels():
    frame = pd.DataFrame(np.indices((120, 4)).reshape(2, -1).T, columns=["sys", "topic"])
    frame["score"] = np.random.default_rng(0).normal(size=480) + frame.topic
    frame["sys"] = "s" + frame["sys"].astype(str)
    res = vcomp.fit("score ~ sys + (1|topic)", frame)
    assert res.model.design.fixed.factor is not None
    levels = ["s3", "s0", "s119"]
    other = by_json(res)
    found, expected = (
        r.compare_levels("sys", levels=levels, ddf="normal").table for r in (other, res)
    )
    # The covariance matrix is formed for the file, and before by solves.
    pd.testing.assert_frame_equal(found, expected, rtol=1e-7)


@pytest.mark.parametrize("travel", [by_json, by_pickle])
def test_comparisons_of_a_random_term(scores, travel):
    res = vcomp.fit("score ~ query + (1|sys) + (1|topic)", scores)
    other = travel(res)
    assert_same_comparison(other, res, "topic")
    assert_same_comparison(other, res, "sys", baseline=2)
    assert_same_comparison(other, res, "topic", levels=[7, 2, 11])
    with pytest.raises(vcomp.PlanError, match="for levels that are fixed, and sys is random"):
        other.compare_levels("sys", "tukey")


@pytest.mark.parametrize(
    "levels",
    [
        [3, 1, 2],
        [0.5, 1.5, 2.0],
        [True, False, True],
        pd.date_range("2024-01-31", periods=3, tz="UTC"),
        pd.Categorical(["é", "b", "a"], ["b", "a", "é"]),
    ],
)
def test_levels_of_every_kind(levels):
    frame = pd.DataFrame({"a": np.repeat(levels, 6), "b": np.tile(range(6), 3)})
    frame["y"] = np.random.default_rng(1).normal(size=18) + np.arange(18) // 6 + frame.b
    res = vcomp.fit("y ~ (1|a) + (1|b)", frame)
    other = by_json(res)
    assert_same_scores(other, res)


def test_the_reason_of_the_fit_is_that_of_the_stored_result():
    frame = pd.DataFrame({"a": list("aabbcc"), "y": [1.0, 2.0, 2.0, 1.0, 1.2, 1.8]})
    res = vcomp.fit("y ~ (1|a)", frame)
    assert res.vcomp["a"] == 0.0
    other = by_json(res)
    assert_same_scores(other, res)
    for one in (res, other):
        with pytest.raises(vcomp.VcompError, match=r"component of a is estimated at zero.*C.a."):
            one.compare_levels("a")


def test_many_levels_are_stored_when_asked():
    n = 2_001
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": np.arange(3 * n) % n, "b": np.arange(3 * n) // n})
    frame["y"] = rng.normal(size=n)[frame.a] + rng.normal(size=3 * n) + frame.b
    res = vcomp.fit("y ~ (1|a) + (1|b)", frame)
    other = by_json(res)
    with pytest.raises(vcomp.DataError, match=r"2,001 levels are more than.*scores=True") as told:
        other.universe_scores("a")
    assert told.value.term == "a"
    assert_same_comparison(other, res, "b")
    whole = by_json(res, scores=True)
    assert_same_scores(whole, res)
    with pytest.raises(vcomp.DataError, match=r"2,001 levels have 2,001,000 differences"):
        whole.compare_levels("a")


def test_results_can_be_stored_without():
    data = vcomp.datasets.load("bodoff2007_alpha")
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
    other = by_json(res, scores=False)
    for asked in (other.universe_scores, lambda: other.compare_levels("sys")):
        with pytest.raises(vcomp.DataError, match="loaded without its rows, and without"):
            asked()
    with pytest.raises(vcomp.DataError, match="loaded without its rows"):
        other.to_json(scores=True)
    assert by_json(by_json(res), scores=False).to_json() == other.to_json()


def test_levels_that_contradict_the_rest_are_refused():
    data = vcomp.datasets.load("bodoff2007_alpha")
    whole = json.loads(vcomp.fit("score ~ (1|sys) + (1|topic)", data).to_json())
    whole["level_values"]["terms"]["sys"]["objects"]["se"].pop()
    with pytest.raises(vcomp.DataError, match="contradict each other"):
        vcomp.VarianceComponentsResults.from_json(json.dumps(whole))


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("levels", "inverse", 1.5),
        ("levels", "inverse", [[1.0]]),
        ("components", "without_bounds", {"values": [1.0], "cov": [[1.0]]}),
        ("estimate", "without_bounds", {"values": [1.0, 2.0, 3.0], "cov": [[1.0]]}),
    ],
)
def test_matrices_of_another_size_are_refused(part, name, value):
    data = vcomp.datasets.load("bodoff2007_alpha")
    whole = json.loads(vcomp.fit("score ~ (1|sys) + (1|topic)", data).to_json())
    assert whole[part][name] is None
    whole[part][name] = value
    with pytest.raises(vcomp.DataError, match="has the shape"):
        vcomp.VarianceComponentsResults.from_json(json.dumps(whole))


def raters(n_models, n_rows=900):
    """Return a fit of scores of models, each on an item by a rater at random."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"item": rng.integers(30, size=n_rows)})
    frame = frame.assign(rater=rng.integers(30, size=n_rows), model=np.arange(n_rows) % n_models)
    frame["score"] = rng.normal(size=n_rows) + rng.normal(size=30)[frame["item"]]
    return vcomp.fit("score ~ C(model) + (1|item) + (1|rater)", frame)


def test_robust_comparisons_need_no_products_of_cells():
    """Tests take degrees of freedom from items and raters; older files have parts of cells."""
    res = raters(3)
    document = json.loads(res.to_json())
    item, rater, cells = document["fixed_levels"]["of_groups"]
    assert (len(item), len(rater), cells) == (30, 30, None)
    n_cells = int(document["fixed_levels"]["sizes"][2])
    for part in (None, [item[0]] * n_cells):
        document["fixed_levels"]["of_groups"][2] = part
        other = vcomp.VarianceComponentsResults.from_json(json.dumps(document))
        assert_same_comparison(other, res, "model", "t", cov_type="robust")
    for part in (None, rater[1:]):
        document["fixed_levels"]["of_groups"][1] = part
        with pytest.raises(vcomp.DataError, match="of_groups"):
            vcomp.VarianceComponentsResults.from_json(json.dumps(document))


def test_parts_of_levels_that_count_alike_are_stored_once():
    """As in complete tables; older files have them of each level."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(np.indices((3, 30)).reshape(2, -1).T, columns=["model", "item"])
    frame["score"] = rng.normal(size=90) + rng.normal(size=30)[frame["item"]]
    res = vcomp.fit("score ~ C(model) + (1|item)", frame)
    document = json.loads(res.to_json())
    (parts,) = document["fixed_levels"]["of_groups"]
    assert len(parts) == 1
    for of_items in (parts, 30 * parts):
        document["fixed_levels"]["of_groups"] = [of_items]
        other = vcomp.VarianceComponentsResults.from_json(json.dumps(document))
        assert_same_comparison(other, res, "model", "t", cov_type="robust")


@pytest.mark.parametrize(("n_models", "is_stored"), [(20, True), (60, False)])
def test_contributions_to_many_columns_are_not_stored(n_models, is_stored):
    """They would take longer than the fit, and a file of their own size."""
    other = by_json(raters(n_models))
    if is_stored:
        other.compare_levels("model", "t", cov_type="robust")
        return
    with pytest.raises(vcomp.DataError, match="stored without them; fit the model again"):
        other.compare_levels("model", "t", cov_type="robust")
