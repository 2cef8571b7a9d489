"""Sums of p-values by bins of differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from vcomp.exceptions import PlanError
from vcomp.ir.average_p import _sizes, _sums, average_p_values
from vcomp.ir.pair_forecast import PairForecast


@pytest.mark.parametrize("sides", [1, 2])
def test_sums_by_bins_pair_by_pair(sides):
    """Bins hold their lower bound; the last ones may be empty, and larger differences are left."""
    X = np.random.default_rng(3).normal(size=(12, 6)) + np.array([0.0, 0.1, 0.4, 0.9, 1.0, 5.0])
    bounds = np.array([0.0, 0.3, 2.2, 2.5, 2.6])
    counts, p = np.zeros(4), np.zeros(4)
    for i in range(6):
        for j in range(i + 1, 6):
            d = abs((X[:, i] - X[:, j]).mean())
            b = np.searchsorted(bounds, d, side="right") - 1
            if b < 4:
                counts[b] += 1
                p[b] += stats.ttest_rel(X[:, i], X[:, j]).pvalue * sides / 2
    assert counts[2:].tolist() == [0.0, 0.0]
    assert counts.sum() == 10
    np.testing.assert_allclose(_sums(X, bounds, "t", sides), [counts, p], rtol=1e-10)


@pytest.mark.parametrize(("given", "sizes"), [(2, [2]), ([10, 2, 10], [2, 10]), (12.5, [12.5])])
def test_sizes_are_two_topics_or_more(given, sizes):
    assert _sizes(given, 10).tolist() == sizes


@pytest.mark.parametrize("given", [1, 1.999, 2.5, 9.5])
def test_sizes_that_cannot_be(given):
    with pytest.raises(PlanError, match="tests need two topics or more"):
        _sizes(given, 10)


@pytest.mark.parametrize("sizes", [[5, 12], [5, 13]])
def test_only_what_is_beyond_the_collection_is_carried_on(sizes):
    X = np.random.default_rng(3).normal(size=(12, 6)) + np.arange(6.0)
    found = average_p_values(X, sizes, bins=[0, 2, 9], trials=5)
    beyond = sizes[1] > 12
    assert found.table["source"].tolist()[-1] == ("noncentral t" if beyond else "all topics")
    assert ("Beyond 12 topics" in str(found)) == beyond
    assert repr(found) == (
        f"<AveragePValues: two-sided t-tests of 6 systems on 5 to {sizes[1]} topics, "
        "2 bins of differences>"
    )


def test_bins_without_a_p_value_have_those_of_the_forecast():
    """Differences that are the same on all topics have a p-value of zero, which is not scaled."""
    X = np.random.default_rng(3).normal(size=(12, 4))
    X[:, 1], X[:, 3] = X[:, 0] + 0.25, X[:, 2] + 8.0
    bounds = np.array([0.0, 0.2, 0.3, 3.0, 7.9, 8.1, 20.0])
    found = average_p_values(X, [12, 20], bins=bounds, trials=5).values
    share, _, p = PairForecast.from_scores(X).by_difference(20, bounds)
    now = np.divide(*PairForecast.from_scores(X).by_difference(12, bounds)[[2, 0]])
    then = p / share
    scaled = np.minimum(found[0], now) > 0
    np.testing.assert_allclose(found[1], np.where(scaled, found[0] * then / now, then), rtol=1e-12)
    assert 0 < scaled.sum() < 6


@pytest.mark.parametrize(("n_topics", "first"), [(40, 5), (5, 5), (3, 3)])
def test_sizes_are_by_default_from_five_topics_to_all(n_topics, first):
    found = _sizes(None, n_topics)
    assert (found[0], found[-1]) == (first, n_topics)


@pytest.mark.parametrize(("sizes", "sources"), [
    (12, ["all topics"]), (20, ["noncentral t"]), ([8, 20], ["subsets", "noncentral t"]),
])  # fmt: skip
def test_sizes_within_or_beyond_alone(sizes, sources):
    X = np.random.default_rng(3).normal(size=(12, 6))
    assert average_p_values(X, sizes, bins=[0, 9], trials=5).table["source"].tolist() == sources
