"""Swap rates by bins of differences, against a loop over splits, pairs and bins."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from vcomp.exceptions import DataError, EstimationError, PlanError
from vcomp.ir.measures import get
from vcomp.ir.pair_forecast import PairForecast
from vcomp.ir.significance import swap_rates

RNG = np.random.default_rng(1)
SCORES = (RNG.normal(size=(21, 5)) + np.linspace(0, 1, 5)).round(2)
BINS = [0.1, 0.3, 0.6, 3]


@pytest.mark.parametrize("alpha", [None, 0.5])
def test_a_loop_over_pairs(alpha):
    table = swap_rates(SCORES, 7, bins=BINS, alpha=alpha, trials=30, rng=3)
    generator = np.random.default_rng(3)
    pairs, swaps, p_values = np.zeros(3), np.zeros(3), np.zeros(3)
    for _ in range(30):
        order = generator.permutation(21)
        X, Y = SCORES[order[:7]], SCORES[order[7:14]]
        for i, j in combinations(range(5), 2):
            d, p = X[:, i].mean() - X[:, j].mean(), stats.ttest_rel(X[:, i], X[:, j]).pvalue
            for b in range(3):
                inside = BINS[b] - 1e-12 <= abs(d) < BINS[b + 1] - 1e-12
                if inside and (alpha is None or p < alpha):
                    pairs[b] += 1
                    swaps[b] += d * (Y[:, i].mean() - Y[:, j].mean()) < 0
                    p_values[b] += p
    assert pairs.min() > 0
    assert table["low"].tolist() == BINS[:-1]
    assert table["high"].tolist() == BINS[1:]
    assert table["n_pairs"].tolist() == pairs.tolist()
    assert table["n_swaps"].tolist() == swaps.tolist()
    np.testing.assert_allclose(table["swap_rate"], swaps / pairs, rtol=1e-14)
    np.testing.assert_allclose(table["p_value"], p_values / pairs, rtol=1e-10)


def test_by_default_half_of_the_topics_in_bins_of_a_point():
    table = swap_rates(SCORES)
    assert table["low"].tolist() == [k / 100 for k in range(21)]
    assert table["n_pairs"].sum() == 50 * 10
    empty = swap_rates(SCORES, bins=[0, 50, np.inf], trials=2)
    assert empty["n_pairs"].tolist() == [20, 0]
    assert empty[["swap_rate", "p_value"]].isna().to_numpy().tolist() == [[False] * 2, [True] * 2]
    assert table.equals(swap_rates(SCORES, rng=0))
    assert not table.equals(swap_rates(SCORES, rng=1))


def test_a_difference_on_a_bound_is_in_the_upper_bin():
    scores = np.array([[0.3, 0.2]] * 4)  # 0.3 - 0.2 is less than 0.1
    table = swap_rates(scores, bins=[0, 0.1, 0.2], trials=1)
    assert table["n_pairs"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_topics": 11}, PlanError, "two sets of 11 topics cannot be drawn from 21; 10 at most"),
        ({"n_topics": 1}, PlanError, "at least 2 topics, a whole number, not 1"),
        ({"n_topics": 5.5}, PlanError, "a whole number, not 5.5"),
        ({"bins": [0.1]}, PlanError, "two or more bounds"),
        ({"bins": [0.2, 0.1]}, PlanError, "that increase from zero or more"),
        ({"bins": [-1, 1]}, PlanError, "that increase from zero or more"),
        ({"bins": [[0, 1], [2, 3]]}, PlanError, "two or more bounds"),
        ({"bins": ["a", "b"]}, PlanError, "bins must be numbers"),
        ({"bins": [0.1, 0.2, 0.2]}, PlanError, "bins must be two or more bounds that increase"),
        ({"bins": [0.1]}, PlanError, "bins must be two or more bounds"),
        ({"bins": [-1e-9, 0.1]}, PlanError, "bins must be .* from zero or more"),
        ({"alpha": 1}, PlanError, "alpha must be between"),
        ({"trials": 0}, EstimationError, "trials must be a whole number of at least 1, not 0"),
        ({"rng": "x"}, EstimationError, "rng"),
    ],
)
def test_options_are_checked(options, error, message):
    with pytest.raises(error, match=message):
        swap_rates(SCORES, **options)


def test_four_topics_are_needed():
    with pytest.raises(
        DataError, match="two sets of at least 2 topics each need 4 topics; there are 3"
    ):
        swap_rates(SCORES[:3])
    assert swap_rates(SCORES[:4])["n_pairs"].sum() > 0


def test_missing_scores_are_refused():
    holes = SCORES.copy()
    holes[2, 1] = np.nan
    with pytest.raises(DataError, match="1 of 105 are missing, that of system '1' on topic '2'"):
        swap_rates(holes)


@pytest.mark.parametrize("name", ["swap_rate", "p_value"])
def test_nothing_is_expected_of_differences_that_are_not(name):
    """None are so large, whatever the number of topics."""
    X = np.random.default_rng(5).normal(size=(12, 5))
    assert np.isnan(get(name, lower=1e6).expected(PairForecast.from_scores(X), 50))


@pytest.mark.parametrize("name", ["swap_rate", "minor_conflicts", "major_conflicts"])
def test_systems_that_are_tied_are_not_swapped(name):
    X = np.random.default_rng(6).normal(size=(9, 5)) + np.arange(5.0)
    for one, other in ((X, np.ones((9, 5))), (X, X[:, [0, 0, 0, 0, 0]]), (0.0 * X, X)):
        found = get(name).actual_of_scores(one, other)
        assert found == 0.0 or np.isnan(found)


def test_a_rate_of_swaps_counts_pairs_in_the_other_order():
    X = np.random.default_rng(6).normal(size=(9, 5))
    truth = np.array([0.3, 0.3, 0.1, 0.2, 0.2])
    pairs = list(combinations(range(5), 2))
    swapped = [(X[:, i] - X[:, j]).mean() * (truth[i] - truth[j]) < 0 for i, j in pairs]
    assert get("swap_rate").actual_of_scores(X, truth) == np.mean(swapped)


def test_one_pair_in_one_trial_has_a_rate():
    X = np.column_stack([np.arange(8.0), np.arange(8.0) + np.tile([1.0, 2.0], 4)])
    table = swap_rates(X, 4, bins=[0, 0.5, 5], trials=1, rng=1)
    assert table["n_pairs"].tolist() == [0, 1]
    np.testing.assert_array_equal(table["swap_rate"], [np.nan, 0.0])


@pytest.mark.parametrize("name", ["swap_rate", "p_value"])
@pytest.mark.parametrize("n", [4, 30])
def test_what_is_expected_is_a_mean_over_the_pairs_of_the_bin(name, n):
    """Of two systems every pair is in the bin of all differences: n' topics against n' others."""
    X = np.random.default_rng(4).normal(size=(20, 2)) + np.array([0.0, 0.4])
    pairs = PairForecast.from_scores(X)
    mean = pairs.reliability * pairs.t / np.sqrt(20)
    delta = mean + np.sqrt(pairs.variance) * stats.norm.ppf((np.arange(4000) + 0.5) / 4000)
    if name == "swap_rate":
        below = stats.norm.cdf(-np.sqrt(n) * delta)
        expected = (2.0 * below * (1.0 - below)).mean()
    else:
        levels = (np.arange(400) + 0.5) / 400
        expected = 1.0 - np.mean([pairs.power(n, alpha) for alpha in levels])
    assert get(name).expected(pairs, n) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(("name", "row"), [("swap_rate", 1), ("p_value", 2)])
def test_what_is_expected_of_a_bin_is_a_share_of_its_pairs(name, row):
    X = np.random.default_rng(4).normal(size=(20, 5)) + 0.3 * np.arange(5)
    pairs = PairForecast.from_scores(X)
    sums = pairs.by_difference(30, np.array([0.0, 0.2, 0.7, 9.0]))
    for b, (lower, upper) in enumerate(((0.0, 0.2), (0.2, 0.7), (0.7, 9.0))):
        assert 0.1 < sums[0, b] < 0.8
        found = get(name, lower=lower, upper=upper).expected(pairs, 30)
        assert found == pytest.approx(sums[row, b] / sums[0, b], rel=1e-12)
