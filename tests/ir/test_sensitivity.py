"""Sensitivities against searches over all thresholds, and down a list of pairs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from vcomp.exceptions import EstimationError, PlanError, VcompWarning
from vcomp.ir import as_score_matrix, split_half
from vcomp.ir.agreement import rounding
from vcomp.ir.measures import get

NAMES = ("sens_abs", "sens_rel")
KINDS = ("continuous", "quarters", "tenths", "positive")


def scores(kind, rng, k, m=4):
    x = rng.normal(size=(m, k))
    y = x + rng.normal(size=(m, k)) * rng.choice([0.1, 0.5, 2.0])
    if kind == "quarters":
        return np.round(4 * x) / 4 + 0.0, np.round(4 * y) / 4 + 0.0  # no -0
    if kind == "tenths":  # differences are equal but for rounding
        return np.abs(x.round(1)), np.abs(y.round(1))
    return (np.abs(x), np.abs(y)) if kind == "positive" else (x, y)


# --- Equal differences are one threshold ---------------------------------------------------------


def by_search(x, y, rate, relative):
    """Return the smallest difference at which pairs so far apart are seldom swapped."""
    i, j = np.triu_indices(x.size, 1)
    dx, dy = x[i] - x[j], y[i] - y[j]
    size = np.abs(dx)
    if relative:
        size = np.minimum(1.0, size / np.maximum(np.maximum(np.abs(x[i]), np.abs(x[j])), 1e-300))
    untied = (np.abs(dx) > rounding(x)) & (np.abs(dy) > rounding(y))
    size, swapped = size[untied], (np.sign(dx) != np.sign(dy))[untied]
    slack = 1e-10 * size.max(initial=0.0)
    fine = (delta for delta in np.sort(size) if swapped[size >= delta - slack].mean() <= rate)
    return next(fine, np.nan)


def check(x, y, rate, **tolerance):
    for name in NAMES:
        found = get(name, rate=rate).actual_of_means(x, y)
        expected = [by_search(*row, rate, name == "sens_rel") for row in zip(x, y, strict=True)]
        np.testing.assert_allclose(found, expected, **tolerance)


@settings(deadline=None, max_examples=examples(200))
@given(
    st.integers(0, 10**6),
    st.integers(1, 25),
    st.sampled_from([0.0, 0.05, 0.1, 0.29, 0.6]),
    st.sampled_from(KINDS),
)
def test_the_smallest_of_all_thresholds(seed, k, rate, kind):
    check(*scores(kind, np.random.default_rng(seed), k), rate, rtol=1e-9)


@settings(deadline=None, max_examples=examples(100))
@given(
    st.integers(0, 10**6),
    st.integers(2, 40),
    st.sampled_from([0.0, 0.01, 0.05, 0.2]),
    st.sampled_from([0.05, 0.3, 1.0]),
)
def test_ranks_as_scores(seed, k, rate, noise):
    """Many differences are the same; shaken, none is."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(k) + 1.0
    ranks = np.argsort(np.argsort(truth + k * noise * rng.normal(size=(2, k)), axis=1), axis=1)
    means = ranks + 1.0
    means[1] = np.exp(0.1 * means[1] + 0.09 * rng.uniform(size=k))
    check(means, np.tile(truth, (2, 1)), rate, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("k", [60, 150])
def test_rows_in_several_blocks(k):
    rng = np.random.default_rng(k)
    truth = rng.uniform(0.1, 0.5, k)
    x = truth + 0.03 * rng.normal(size=(60, k))
    x[2] = x[2].round(2)
    at = [0, 2, 59]
    for name in NAMES:
        found = get(name).actual_of_means(x, truth)
        expected = [by_search(row, truth, 0.05, name == "sens_rel") for row in x[at]]
        np.testing.assert_allclose(found[at], expected, rtol=1e-9)
        one_by_one = [get(name).actual_of_means(row, truth) for row in x]
        np.testing.assert_array_equal(found, one_by_one)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
def test_differences_at_the_limits_of_ties(rate):
    """Whole numbers that are next to each other on the grid of 36 bits are not tied."""
    rng = np.random.default_rng(7)
    near = (2**28 * np.arange(1, 8)[:, None] + [-1, 0, 1]).ravel()
    i, j = np.triu_indices(12, 1)
    x, y, expected = np.empty((30, 12)), np.empty((30, 12)), []
    for row in range(30):
        places = rng.permutation([0, 2**36, *rng.choice(near, 10, replace=False)])
        noise = rng.choice([0.3, 1.0, 3.0]) * 2**28
        truth = np.argsort(np.argsort(places + noise * rng.normal(size=12)))
        d, swapped = places[i] - places[j], (places[i] > places[j]) != (truth[i] > truth[j])
        fine = [e for e in np.abs(d) if swapped[np.abs(d) >= e].mean() <= rate]
        expected.append(min(fine, default=np.nan) / 2.0**36)
        x[row], y[row] = places / 2.0**36, truth
    found = get("sens_abs", rate=rate).actual_of_means(x, y)
    np.testing.assert_array_equal(found, expected)


def test_as_many_swaps_as_the_rate_allows():
    """One of the 49 pairs that are not tied is swapped; 49 times 1/49 is less than 1 in floats."""
    x, y = np.arange(11.0) ** 2 + 1.0, np.minimum(np.arange(11.0), 7.0)
    y[:2] = 1.0, 0.0
    check(x[None], y[None], 1 / 49, rtol=1e-12)


def test_no_threshold_is_safe():
    with pytest.warns(VcompWarning, match="sens_abs is undefined here: even the largest"):
        assert np.isnan(get("sens_abs").actual([[1, 2], [1, 3]], [2, 1]))


def test_relative_differences_of_negative_means_are_at_most_one():
    measure = get("sens_rel")
    for means, expected in (
        ([1.0, -3.0], 1.0),
        ([0.0, -3.0], 1.0),
        ([-1.0, -4.0], 0.75),
        ([0.0, 0.0], np.nan),
    ):
        found = measure.actual_of_means(np.array(means), np.array([2.0, 1.0]))
        np.testing.assert_array_equal(found, expected)


def test_a_difference_may_be_next_to_nothing():
    y = np.array([3.0, 2.0, 1.0])
    assert np.isnan(get("sens_abs").actual_of_means(1e-300 * y, y))
    tiny = np.array([1e-280, 4e-281, 1e-281])
    assert get("sens_abs").actual_of_means(tiny, y) == pytest.approx(3e-281, rel=1e-12)
    assert get("sens_rel").actual_of_means(tiny, y) == pytest.approx(0.6, rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ties", ["together", "listed"])
def test_rows_with_what_is_no_number_are_undefined(name, ties):
    strange = np.array([[0.2, np.nan, 0.4], [np.inf, 0.1, 0.2], [0.3, 0.2, 0.1], [0.0, 0.0, 0.0]])
    found = get(name, ties=ties).actual_of_means(strange, np.array([3.0, 2.0, 1.0]))
    np.testing.assert_array_equal(np.isnan(found), [True, True, False, True])


# --- Equal differences as the systems are listed -------------------------------------------------


def by_a_list(x, y, rate, relative):
    """Go down the list of pairs, as Urbano's article has it in words and his code in R."""
    i, j = np.triu_indices(x.size, 1)
    d, dy = x[i] - x[j], y[i] - y[j]
    d[np.abs(d) <= rounding(x)] = 0.0
    dy[np.abs(dy) <= rounding(y)] = 0.0
    if relative:
        with np.errstate(divide="ignore", invalid="ignore"):
            d = d / np.maximum(x[i], x[j])
    agrees = np.sign(d) * np.sign(dy)
    order = np.argsort(-np.abs(d).round(12), kind="stable")  # not a number comes last
    right = wrong = 0
    last = np.nan
    for size, sign in zip(np.abs(d)[order], agrees[order], strict=True):
        if np.isnan(size):
            break
        right, wrong = right + (sign > 0), wrong + (sign < 0)
        if right + wrong > 0 and wrong / (right + wrong) <= rate:
            last = min(1.0, size)
    return last


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_list_of_pairs(name, kind):
    rng = np.random.default_rng(len(kind))
    for trial in range(40):
        x, y = scores(kind, rng, int(rng.integers(1, 25)))
        rate = (0.0, 0.05, 0.1, 0.4, 0.7)[trial % 5]
        expected = [by_a_list(*row, rate, name == "sens_rel") for row in zip(x, y, strict=True)]
        found = get(name, rate=rate, ties="listed").actual_of_means(x, y)
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_the_smallest_difference_on_the_grid_comes_before_none():
    """Of four systems in the right order, the first two of which are tied."""
    x, y = np.array([0.0, 0.0, 2.0**-36, 1.0]), np.arange(4.0)
    assert get("sens_abs", ties="listed").actual_of_means(x, y) == 0.0


def test_a_place_far_down_the_list():
    x = np.linspace(1.0, 0.0, 46) ** 1.3
    y = x.copy()
    y[20:] = y[:19:-1]  # the lower half is upside down
    for rate in (0.01, 0.05, 0.2):
        found = get("sens_abs", rate=rate, ties="listed").actual_of_means(x, y)
        assert found == pytest.approx(by_a_list(x, y, rate, False), rel=1e-12)


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
    X = np.random.default_rng(2).uniform(size=(5, 12)) + np.arange(12) / 10
    names = [get(name, ties="listed") for name in NAMES]
    study = split_half(X, [*names, "tau"], [5, 50], rng=1)
    assert study.sizes == (1, 2)
    assert study.trials == 100
    one = study.halves[0]
    assert one.collection.shape == (100, 1)
    for row, (a, b) in enumerate(zip(one.collection[:9, 0], one.truth[:9, 0], strict=True)):
        found = study.values[:, 0, row]
        for value, measure in zip(found, [*names, get("tau")], strict=True):
            expected = measure.actual_of_means(X[a], X[b])
            np.testing.assert_array_equal(value, expected)
    assert study.table.query("model == 'exp1'")["estimate"].notna().all()
    assert 0.0 < get("tau").estimate(X, 50) < 1.0


def test_halves_of_one_topic_cannot_be_tested():
    X = np.random.default_rng(2).uniform(size=(8, 12))
    with pytest.raises(EstimationError, match="a whole number of topics from 2 to 4, not 1"):
        split_half(X, ["tau", "power_ratio"], sizes=[1, 2])
    with pytest.warns(VcompWarning, match="at two numbers of topics or more"):
        assert split_half(X[:5], ["tau", "power_ratio"]).sizes == (2,)
