"""Halves of topics: sizes and trials as published, disjoint, reproducible, right means."""

from __future__ import annotations

import itertools
from math import comb

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vcomp.exceptions import DataError
from vcomp.ir.curve import fit_curve
from vcomp.ir.measures import MeanMeasure, TopicMeasure, get
from vcomp.ir.scores import as_score_matrix
from vcomp.ir.splits import (
    Halves,
    draw_halves,
    evaluate_halves,
    published_sizes,
    published_trials,
    usual_subsets,
)


@pytest.fixture(params=["adhoc3", "genomics2004_drop25"])
def published(request, reference, shared_data):
    """Return what R observed, and a function that observes the very splits that are stored."""
    stored = reference(f"irj2015_splithalf_{request.param}")
    values = stored["values"]
    scores = as_score_matrix(pd.read_csv(shared_data(f"{stored['dataset']}.csv")))
    scores = scores.drop_worst(stored["drop_fraction"])
    n = np.array(values["observations"]["x"])

    def observed(*measures):
        found = np.empty((len(measures), n.size))
        for size in np.unique(n):
            rows = np.flatnonzero(n == size)
            sets = (
                np.array([values["splits"][key][row] for row in rows]) - 1
                for key in ("estimate_topics", "truth_topics")
            )
            found[:, rows] = evaluate_halves(scores.scores, measures, [Halves.of(*sets)])[:, 0]
        return found

    return values, observed


def of_r(values, measure):
    return np.array([np.nan if v is None else v for v in values["observations"][measure]])


@pytest.mark.slow
def test_published_observations_of_rankings(published):
    values, observed = published
    found = observed(get("tau"), get("tau_ap", ties="first"))
    # Where two systems have the same mean, R sees it or not by the last bit of a sum.
    untied = ~np.array(values["observations"]["has_tied_system_means"])
    for measure, row in zip(("tau", "tauAP"), found, strict=True):
        in_r = of_r(values, measure)
        np.testing.assert_allclose(row[untied], in_r[untied], rtol=0, atol=1e-12)
        exact = values["observations_exact_ties"][measure]
        np.testing.assert_allclose(row, exact, rtol=0, atol=1e-12)


def test_published_observations_of_sensitivity(published):
    values, observed = published
    for measure, row in zip(
        ("sens_abs", "sens_rel"), observed(get("sens_abs"), get("sens_rel")), strict=True
    ):
        in_r = of_r(values, measure)
        # Scores have four decimals, so that differences of systems are often the same number: R
        # takes them one by one in the order of their last bits, we take them together.
        agrees = np.isclose(row, in_r, rtol=0, atol=1e-12, equal_nan=True)
        assert agrees.mean() >= 0.97
        both = ~np.isnan(row) & ~np.isnan(in_r)
        assert (np.isnan(row) != np.isnan(in_r)).sum() <= 1
        np.testing.assert_allclose(row[both], in_r[both], rtol=0, atol=0.01)


@pytest.mark.slow
def test_published_estimates_from_splits_to_curves(published):
    """From topics of halves to the accuracy of larger tests, ties as R had them aside."""
    values, observed = published
    kinds = {"tau": get("tau"), "tauAP": get("tau_ap", ties="first"), "sens_abs": get("sens_abs")}
    n = values["observations"]["x"]
    for name, row in zip(kinds, observed(*kinds.values()), strict=True):
        scale = "error" if name == "sens_abs" else "correlation"
        for model, expected in values["estimates"][name].items():
            found = fit_curve(n, row, model, scale=scale).at(np.array(values["n_prime"]))
            # Ties change a few observations in a thousand by up to 0.03.
            np.testing.assert_allclose(found, expected, rtol=0, atol=5e-4)


@pytest.mark.parametrize(
    "name", ["adhoc3", "enterprise2006", "genomics2004", "web2010ap", "genomics2004_drop25"]
)
def test_sizes_and_trials_are_the_published_ones(name, reference):
    values = reference(f"irj2015_splithalf_{name}")["values"]
    n_topics = reference(f"irj2015_{name}")["values"]["n_topics"]
    assert published_sizes(n_topics) == values["subset_sizes"]
    assert published_trials(len(values["subset_sizes"])) == values["trials_per_size"]


def test_sizes_of_the_paper():
    """Urbano (2016, sec. 4.1): 10 topics make 400 observations, 100 topics 1000."""
    assert published_sizes(10) == [2, 3, 4, 5]
    assert published_trials(4) == 100
    assert published_sizes(100)[:2] == [3, 6]
    assert published_sizes(100)[-2:] == [48, 50]
    assert published_trials(20) == 50
    assert published_trials(3000) == 1


@given(st.integers(4, 2000))
def test_sizes_rise_to_half_of_the_topics(n_topics):
    sizes = published_sizes(n_topics)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == n_topics // 2
    assert sizes[0] >= 2
    assert len(sizes) == min(20, n_topics // 2 - 1)


@given(st.integers(4, 60), st.integers(1, 30), st.integers(0, 2**32), st.data())
def test_halves_are_disjoint_and_more_of_them_begin_alike(n_topics, trials, seed, data):
    size = data.draw(st.integers(2, n_topics // 2))
    halves = draw_halves(n_topics, size, trials, seed)
    both = np.hstack([halves.collection, halves.truth])
    assert both.shape == (trials, 2 * size)
    assert all(len(set(row)) == 2 * size for row in both.tolist())
    assert both.min() >= 0
    assert both.max() < n_topics
    more = draw_halves(n_topics, size, trials + 7, seed)
    np.testing.assert_array_equal(more.collection[:trials], halves.collection)
    np.testing.assert_array_equal(more.truth[:trials], halves.truth)


def test_all_halves_are_equally_likely():
    halves = draw_halves(5, 2, 30_000, seed=3)
    pairs = list(itertools.permutations(range(5), 2))
    kinds = [
        (*sorted(a), *sorted(b)) for a, b in zip(halves.collection, halves.truth, strict=True)
    ]
    known = {(*sorted(a), *sorted(b)) for a in pairs for b in pairs if not set(a) & set(b)}
    counts = pd.Series(kinds).value_counts()
    assert set(counts.index) == known
    assert stats.chisquare(counts).pvalue > 1e-3


def test_seeds_and_sizes_have_streams_of_their_own():
    one, other = draw_halves(20, 8, 5, 1), draw_halves(20, 8, 5, 2)
    assert not np.array_equal(one.collection, other.collection)
    assert not np.array_equal(one.collection[:, :4], draw_halves(20, 4, 5, 1).collection)


class Spy(MeanMeasure):
    """Keeps what it is given."""

    __slots__ = ("seen",)
    name, symbol = "spy", "spy"

    def actual_of_means(self, means, true_means):
        self.seen = means, true_means
        return means[:, 0]


class Order(TopicMeasure):
    """Tells whether topics stand in the order in which they were drawn."""

    name, symbol = "order", "order"

    def actual_of_scores(self, X, Y):
        return X[0, 0] + 100.0 * Y[-1, 1]


def test_measures_get_the_means_and_scores_of_the_halves():
    X = np.random.default_rng(2).normal(size=(11, 4)) + 1e3
    halves = draw_halves(11, 5, 9, 0)
    spy = Spy()
    values = evaluate_halves(X, [spy, Order()], [halves])[:, 0]
    for k in range(9):
        one, other = X[halves.collection[k]], X[halves.truth[k]]
        np.testing.assert_allclose(spy.seen[0][k], one.mean(axis=0), rtol=1e-14)
        np.testing.assert_allclose(spy.seen[1][k], other.mean(axis=0), rtol=1e-14)
        assert values[0, k] == spy.seen[0][k, 0]
        assert values[1, k] == one[0, 0] + 100.0 * other[-1, 1]


@pytest.mark.parametrize(
    ("collection", "truth", "message"),
    [
        ([0, 1], [2, 3], "two tables of places"),
        ([[0.0, 1.0]], [[2.0, 3.0]], "two tables of places"),
        ([[0, 1]], [[2, 3, 4]], r"\(1, 2\) and \(1, 3\)"),
        ([[0, 1], [0, 1]], [[2, 3], [1, 2]], "twice in the pair of halves 1"),
        ([[0, -1]], [[2, 3]], "one of them is negative"),
    ],
)
def test_halves_that_are_none(collection, truth, message):
    with pytest.raises(DataError, match=message):
        Halves.of(collection, truth)


def test_all_sizes_at_once_are_the_sizes_one_by_one():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(23, 9)) + np.arange(9) / 3
    X[:, 5] = X[:, 4]  # a tie in every half
    wanted = [get("tau"), get("tau_ap", ties="first"), get("sens_rel"), get("rmse"), Order()]
    halves = [draw_halves(23, size, 7, 2) for size in (2, 6, 11)]
    values = evaluate_halves(X, wanted, halves)
    assert values.shape == (5, 3, 7)
    for k, one in enumerate(halves):
        np.testing.assert_array_equal(values[:, k], evaluate_halves(X, wanted, [one])[:, 0])
        for row, measure in zip(values[:, k], wanted, strict=True):
            alone = [
                measure.actual_of_scores(X[a], X[b])
                for a, b in zip(one.collection, one.truth, strict=True)
            ]
            np.testing.assert_allclose(row, alone, rtol=1e-12)


def test_halves_of_other_scores():
    halves = draw_halves(12, 6, 4, 0)
    with pytest.raises(DataError, match="there are 11 topics, from 0 to 10"):
        evaluate_halves(np.ones((11, 3)), [get("tau")], [halves])
    with pytest.raises(DataError, match="4 pairs of halves of one size"):
        evaluate_halves(np.ones((12, 3)), [get("tau")], [halves, draw_halves(12, 3, 5, 0)])


@pytest.mark.parametrize("n_systems", [1, 2, 3, 317, 318, 350, 3162, 3163, 4000])
def test_a_hundred_subsets_or_as_many_as_have_five_million_pairs(n_systems):
    pairs = comb(n_systems, 2)
    assert usual_subsets(n_systems) == next(
        m for m in range(100, 0, -1) if m * pairs <= 5_000_000 or m == 1
    )
