"""Sensitivities with ties as listed, and halves of one topic, as the code of Urbano (2016)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from vcomp.exceptions import EstimationError, PlanError, VcompWarning
from vcomp.ir import as_score_matrix, split_half
from vcomp.ir.measures import get

NAMES = ("sens_abs", "sens_rel")


@pytest.mark.parametrize("name", NAMES)
def test_without_ties_and_above_zero_both_rules_agree(name):
    rng = np.random.default_rng(3)
    x = rng.uniform(0.2, 0.8, size=(50, 20))
    y = x + 0.05 * rng.normal(size=x.shape)
    together, listed = (get(name, ties=t).actual_of_means(x, y) for t in ("together", "listed"))
    np.testing.assert_allclose(listed, together, rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("collection", ["adhoc3", "genomics2004_drop25"])
def test_a_thousand_splits_of_r(name, collection, reference, shared_data):
    """The halves that R drew: equal where last bits do not decide which of equal ones is first."""
    stored = reference(f"irj2015_splithalf_{collection}")
    matrix = as_score_matrix(pd.read_csv(shared_data(f"{stored['dataset']}.csv")))
    matrix = matrix.drop_worst(stored["drop_fraction"])
    values = stored["values"]
    means, truth = (
        np.array([matrix.scores[np.array(topics) - 1].mean(axis=0) for topics in part])
        for part in (values["splits"]["estimate_topics"], values["splits"]["truth_topics"])
    )
    found = get(name, ties="listed").actual_of_means(means, truth)
    in_r = np.array(values["observations"][name], dtype=float)
    assert (np.isnan(found) == np.isnan(in_r)).all()
    agree = np.isclose(found, in_r, rtol=1e-9, atol=0, equal_nan=True)
    assert agree.mean() >= 0.99
    # The rest differs by one place in the list: R orders equal numbers by their last bits.
    np.testing.assert_allclose(found, in_r, rtol=0, atol=0.01)


def test_a_tie_at_the_top_has_a_sensitivity_by_the_list_alone():
    x, y = np.array([1.0, 1.0, 0.0, 0.0]), np.array([4.0, 3.0, 2.0, 3.5])
    assert np.isnan(get("sens_abs").actual_of_means(x, y))
    assert get("sens_abs", ties="listed").actual_of_means(x, y) == 1.0
    other_way = [1, 0, 3, 2]  # the swapped pair comes first
    assert np.isnan(get("sens_abs", ties="listed").actual_of_means(x[other_way], y[other_way]))


def test_options_are_checked():
    with pytest.raises(PlanError, match="ties must be 'together' or 'listed', not 'first'"):
        get("sens_abs", ties="first")
    with pytest.raises(PlanError, match="for 8,192 systems at most; there are 8,193"):
        get("sens_abs", ties="listed").actual_of_means(np.zeros(8193), np.zeros(8193))


def test_halves_of_one_topic():
    scores = np.random.default_rng(2).uniform(size=(5, 12)) + np.arange(12) / 10
    names = [get(name, ties="listed") for name in NAMES]
    study = split_half(scores, [*names, "tau"], [5, 50], rng=1)
    assert study.sizes == (1, 2)
    assert study.trials == 100
    one = study.halves[0]
    assert one.collection.shape == (100, 1)
    for row, (a, b) in enumerate(zip(one.collection[:9, 0], one.truth[:9, 0], strict=True)):
        found = study.values[:, 0, row]
        for value, measure in zip(found, [*names, get("tau")], strict=True):
            expected = measure.actual_of_means(scores[a], scores[b])
            np.testing.assert_array_equal(value, expected)
    assert study.table.query("model == 'exp1'")["estimate"].notna().all()
    assert 0.0 < get("tau").estimate(scores, 50) < 1.0


def test_halves_of_one_topic_cannot_be_tested():
    scores = np.random.default_rng(2).uniform(size=(8, 12))
    with pytest.raises(EstimationError, match="a whole number of topics from 2 to 4, not 1"):
        split_half(scores, ["tau", "power_ratio"], sizes=[1, 2])
    with pytest.warns(VcompWarning, match="at two numbers of topics or more"):
        assert split_half(scores[:5], ["tau", "power_ratio"]).sizes == (2,)
