"""Measures by name, their options, and what passes for a truth."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import vcomp.ir
from vcomp.exceptions import DataError, PlanError
from vcomp.ir.measures import Extrapolated, MeanMeasure, TopicMeasure, available, get

NAMES = [
    "tau",
    "tau_ap",
    "sens_abs",
    "sens_rel",
    "power_ratio",
    "minor_conflicts",
    "major_conflicts",
    "rmse",
    "swap_rate",
    "p_value",
    "Erho2",
    "Phi",
    "F",
    "d_rank",
]
SCORES = pd.DataFrame(
    np.random.default_rng(1).uniform(size=(12, 4)) + np.array([0.1, 0.4, 0.2, 0.0]),
    columns=["bm25", "rm3", "lm", "dfr"],
)
OTHER = pd.DataFrame(
    np.random.default_rng(2).uniform(size=(9, 4)) + np.array([0.1, 0.4, 0.2, 0.0]),
    columns=["bm25", "rm3", "lm", "dfr"],
)


def test_the_names():
    assert available() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_measure_keeps_its_promises(name):
    measure = get(name)
    assert measure.name == name
    assert isinstance(measure, MeanMeasure if measure.of_means else TopicMeasure)
    assert get(measure) is measure
    assert measure == get(name)
    value = measure.actual(SCORES, OTHER)
    low, high = measure.limits
    assert low <= value <= high
    assert value == measure.actual_of_scores(SCORES.to_numpy(), OTHER.to_numpy())
    assert isinstance(measure, Extrapolated) == (not measure.has_estimator)
    if measure.has_estimator:
        if "conflicts" in name:  # few subsets of five topics have a significant difference
            measure = get(name, alpha=0.5)
        estimates = measure.estimate(SCORES, [5, 50, 500])
        assert estimates.shape == (3,)
        better = np.diff(estimates) > 0
        assert (better == measure.larger_is_better).all()
        assert measure.estimate(SCORES, 50) == estimates[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_collection_that_is_the_truth(name):
    measure = get(name)
    if name in ("power_ratio", "p_value", "F"):
        return  # these do not look at the truth
    value = measure.actual(SCORES, SCORES)
    best = {"sens_abs": None, "sens_rel": None}.get(name, float(measure.larger_is_better))
    if best is None:
        differences = np.diff(np.sort(SCORES.mean()))
        assert 0 < value <= differences.max()
    else:
        assert value == best


@pytest.mark.parametrize("name", ["tau", "rmse", "swap_rate", "d_rank"])
def test_systems_are_matched_by_name(name):
    measure = get(name)
    expected = measure.actual(SCORES, OTHER)
    mixed = OTHER[["lm", "dfr", "bm25", "rm3"]]
    truth = OTHER.mean()
    for same in (
        mixed,
        vcomp.ir.as_score_matrix(mixed),
        pl.DataFrame(mixed),
        OTHER.to_numpy(),
        mixed.mean(),
        dict(mixed.mean()),
        truth.to_numpy(),
        list(truth),
        np.ma.masked_invalid(truth),
        [np.float32(x) for x in truth] if name == "tau" else truth,
    ):
        assert measure.actual(SCORES, same) == pytest.approx(expected, rel=1e-12)


def test_systems_that_are_called_by_numbers_are_matched_by_name():
    """A truth with names goes by them, in whatever order; one without goes by place."""
    scores = SCORES.to_numpy()
    means = pd.Series(OTHER.to_numpy().mean(axis=0))
    expected = get("rmse").actual(scores, OTHER.to_numpy())
    for same in (
        means[[2, 0, 3, 1]],
        dict(means[[2, 0, 3, 1]]),
        OTHER.set_axis(range(4), axis=1)[[3, 1, 0, 2]],
        vcomp.ir.as_score_matrix(OTHER.to_numpy()).select(systems=[1, 3, 2, 0]),
    ):
        assert get("rmse").actual(scores, same) == pytest.approx(expected, rel=1e-12)
    some = vcomp.ir.as_score_matrix(scores).select(systems=[1, 0])
    by_place = get("rmse").actual(scores[:, [1, 0]], OTHER.to_numpy()[:, [1, 0]])
    for truth in (OTHER.to_numpy()[:, [1, 0]], list(means[[1, 0]])):
        assert get("rmse").actual(some, truth) == pytest.approx(by_place, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("taub", {}, r"no measure 'taub' \(did you mean 'tau'\?\); there are tau, tau_ap, "),
        (None, {}, "no measure None; there are tau"),
        ("tau", {"varant": "a"}, r"'varant' \(did you mean 'variant'\?\); it has variant"),
        ("rmse", {"variant": "a"}, "'rmse' has no option 'variant'; it has none"),
        (get("tau"), {"variant": "a"}, "has its options already: leave out variant"),
        ("tau", {"variant": "c"}, "variant must be 'a' or 'b', not 'c'"),
        ("tau_ap", {"variant": "c"}, "variant must be 'a' or 'b', not 'c'"),
        ("tau_ap", {"ties": "last"}, "ties must be 'average' or 'first', not 'last'"),
        ("tau_ap", {"variant": "b", "ties": "first"}, "leave ties out"),
        ("tau_ap", {"ranked_by": "me"}, "ranked_by must be 'truth' or 'collection', not 'me'"),
        ("tau_ap", {"variant": "b", "ranked_by": "truth"}, "leave ranked_by out"),
        ("sens_abs", {"rate": 1}, "rate must be at least 0 and less than 1, not 1"),
        ("sens_rel", {"rate": "5 %"}, "rate must be at least 0 and less than 1, not '5 %'"),
        ("sens_rel", {"rate": True}, "rate must be"),
        ("power_ratio", {"alpha": 5}, "alpha must be between 0 and 1, not 5"),
        ("minor_conflicts", {"alpha": 0}, "alpha must be between"),
        ("major_conflicts", {"alpha": None}, "alpha must be between"),
        ("swap_rate", {"alpha": 2}, "alpha must be between"),
        ("swap_rate", {"lower": 0.2, "upper": 0.1}, "0 <= lower < upper; they are 0.2 and 0.1"),
        ("p_value", {"lower": -0.1}, "a bin needs 0 <= lower < upper"),
        ("p_value", {"lower": float("nan")}, "a bin needs 0 <= lower < upper"),
        ("p_value", {"lower": "a"}, "lower and upper must be numbers, not 'a'"),
        ("p_value", {"sides": 3}, "sides must be 1 or 2, not 3"),
        ("F", {"delta": np.inf}, "delta must be a positive difference of scores, not inf"),
        ("F", {"delta": 0}, "delta must be a positive difference of scores, not 0"),
        ("F", {"dispersion": "max"}, "dispersion must be 'minimum', .* not 'max'"),
        ("F", {"dispersion": ["minimum"]}, r"dispersion must be .* not \['minimum'\]"),
        ("F", {"df": 12}, "df must be 'one-way' or 'two-way', not 12"),
        ("F", {"alpha": 1.0}, "alpha must be between"),
        ("d_rank", {"shrinkage": -1}, "shrinkage must be between 0 and 1, not -1"),
    ],
)
def test_names_and_options_are_checked(name, options, message):
    with pytest.raises(PlanError, match=message):
        get(name, **options)


def test_numbers_may_be_of_any_kind():
    expected = get("tau").estimate(SCORES, [5, 10])
    for n in (np.array([5, 10]), pd.Series([5, 10]), pl.Series([5, 10]), iter([5.0, 10.0])):
        np.testing.assert_array_equal(get("tau").estimate(SCORES, n), expected)
    for one in (5, 5.0, np.int64(5), np.float32(5), np.array(5)):
        np.testing.assert_array_equal(get("tau").estimate(SCORES, one), expected[:1])
    assert get("sens_abs", rate=np.float32(0.25)).actual(SCORES, OTHER) == get(
        "sens_abs", rate=0.25
    ).actual(SCORES, OTHER)


@pytest.mark.parametrize("name", ["tau", "Phi", "F"])
@pytest.mark.parametrize(
    ("n", "message"),
    [
        (0, "the number of topics must be positive, not 0"),
        ([5, -1], "positive, not -1"),
        ([], "no number of topics is given"),
        (True, "positive, not True"),
        (float("nan"), "positive, not nan"),
        (float("inf"), "positive, not inf"),
        ("ten", "positive, not 'ten'"),
        (np.array([[1, 2], [3, 4]]), r"positive, not array\(\[1, 2\]\)"),
    ],
)
def test_numbers_of_topics_are_checked(name, n, message):
    with pytest.raises(PlanError, match=message):
        get(name).estimate(SCORES, n)


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        (OTHER.rename(columns={"lm": "LM"}), r"no system 'lm' in truth \(did you mean 'LM'\?\)"),
        (OTHER[["bm25", "rm3"]], "no system 'lm' and 1 more in truth"),
        (OTHER.assign(new=1.0), "no system 'new' in scores"),
        (OTHER.mean().drop("lm"), "no system 'lm' in truth"),
        ([1, 2, 3], "truth has 3 systems, and scores have 4"),
        (
            OTHER.where(OTHER > 0.2),
            r"truth: \d+ of 36 are missing, that of system 'dfr' on topic '0'",
        ),
        (["a", "b", "c", "d"], "truth must hold numbers"),
        ([1, 2, None, 3], "the true mean of system '2' is nan"),
        ({"bm25": 1, "rm3": 2, "lm": np.inf, "dfr": 1}, "the true mean of system 'lm' is inf"),
        ([True, False, True, True], "truth must hold numbers; it is bool"),
        (pd.Series([1, 2, 3, 4], index=["b", "a", "a", "c"]), "several systems called 'a'"),
        (OTHER.to_numpy()[:1], "truth: scores need at least two topics"),
        (None, "truth: scores must be a matrix"),
        (5.0, "truth: scores must be a matrix"),
        (OTHER.to_numpy()[:, :3], "truth has 3 systems, and scores have 4"),
    ],
)
def test_the_truth_is_checked(truth, message):
    with pytest.raises(DataError, match=message):
        get("tau").actual(SCORES, truth)


def test_missing_scores_are_named():
    holes = SCORES.copy()
    holes.loc[3] = np.nan
    with pytest.raises(DataError, match=r"scores: 4 of 48 are missing, that of system 'bm25' on "):
        get("rmse").actual(holes, OTHER)
    with pytest.raises(DataError, match="with as_score_matrix"):
        get("Erho2").estimate(holes, 10)


def test_success_and_failure_may_be_the_truth():
    hits = OTHER > 0.6
    expected = get("tau").actual(SCORES, hits.astype(float))
    assert get("tau").actual(SCORES, hits) == expected
    assert get("tau").actual(SCORES, hits.to_numpy()) == expected


@pytest.mark.parametrize("name", [name for name in NAMES if name != "sens_rel"])
def test_ties_at_zero_are_those_of_any_other_value(name):
    """Zeros have no rounding error, so that a tolerance of zero must find them tied."""
    found, X, Y = get(name).actual_of_scores, SCORES.to_numpy(), OTHER.to_numpy()
    for scores, truth in ((0.0 * X, Y), (X, 0.0 * Y), (0.0 * X, 0.0 * Y)):
        expected = found(scores + 1.0, truth + 1.0)
        assert found(scores, truth) == pytest.approx(expected, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize(
    ("of_truth", "of_scores", "order"),
    [
        ("abcd", "0123", [0, 1, 2, 3]),
        ("0123", "wxyz", [0, 1, 2, 3]),
        ("0123", "0123", [0, 1, 2, 3]),
        ("3120", "0123", [3, 1, 2, 0]),
    ],
)
def test_systems_without_names_are_those_in_the_same_place(of_truth, of_scores, order):
    truth = OTHER.mean().to_numpy()
    scores = SCORES.set_axis(list(of_scores), axis=1)
    expected = get("tau").actual(scores.to_numpy(), truth[order])
    assert get("tau").actual(scores, pd.Series(truth, list(of_truth))) == expected


def test_masked_truths_are_missing():
    truth = np.ma.masked_equal([0.1, 0.5, 0.2, 0.3], 0.5)
    with pytest.raises(DataError, match="the true mean of system '1' is nan"):
        get("tau").actual(SCORES, truth)


def test_a_long_truth_has_the_columns_of_the_scores():
    names = {"system": "run", "topic": "qid", "score": "map"}

    def long(wide):
        rows = wide.rename_axis("qid").reset_index()
        return rows.melt("qid", var_name="run", value_name="map")

    expected = get("rmse").actual(SCORES, OTHER)
    for truth in (long(OTHER), long(OTHER).assign(more=1.0)):
        assert get("rmse").actual(long(SCORES), truth, **names) == expected
