"""Replicates, sets of common topics, and what is said of tests, at their limits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import vcomp
from vcomp.exceptions import DataError
from vcomp.ir.pair_tests import Outcome, PairOptions
from vcomp.ir.system_comparison import (
    _enough,
    _families,
    _means,
    _on_resolution,
    _on_test,
    _times,
)

PAIRS = tuple(np.triu_indices(5, 1))


@pytest.mark.parametrize(
    ("m", "correction", "alpha", "n"),
    [
        (10, None, 0.05, 10_000),
        (50, "holm", 0.05, 10_000),
        (51, "holm", 0.05, 10_200),
        (100, "bonferroni", 0.05, 20_000),
        (3, "bonferroni", 0.0007, 42_858),
        (1_000, "holm", 0.05, 200_000),
        (1_001, "holm", 0.05, 200_000),
        (10_000, "fdr_bh", 0.05, 10_000),
        (1, None, 0.0005, 20_000),
    ],
)
def test_replicates_for_ten_below_the_smallest_level(m, correction, alpha, n):
    assert _enough(m, correction, alpha) == n
    assert _times(m, correction) == (m if correction in ("holm", "bonferroni") else 1)


@pytest.mark.parametrize("seed", range(4))
def test_pairs_with_the_same_common_topics_are_a_family(seed):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(12, 5))
    for system in rng.choice(5, 3, replace=False):
        scores[rng.choice(12, 4, replace=False), system] = np.nan
    matrix = vcomp.ir.as_score_matrix(scores)
    found = {}
    for topics, of in _families(matrix, PAIRS):
        assert tuple(topics.tolist()) not in found
        found[tuple(topics.tolist())] = set(of.tolist())
    expected = {}
    for place, (i, j) in enumerate(zip(*PAIRS, strict=True)):
        common = np.flatnonzero(~np.isnan(scores[:, i]) & ~np.isnan(scores[:, j]))
        expected.setdefault(tuple(common.tolist()), set()).add(place)
    assert found == expected
    np.testing.assert_allclose(_means(matrix), np.nanmean(scores, axis=0))


def test_two_topics_in_common_are_enough():
    scores = np.array([[1.0, np.nan, 0.3], [2.0, 3.0, 0.4], [0.5, 1.0, 0.1], [np.nan, 2.0, 0.0]])
    sets = [topics.tolist() for topics, _ in
            _families(vcomp.ir.as_score_matrix(scores), np.triu_indices(3, 1))]  # fmt: skip
    assert sorted(sets) == [[0, 1, 2], [1, 2], [1, 2, 3]]
    scores[2, 0] = np.nan
    with pytest.raises(DataError, match="'0' and '1' have fewer than two topics in common; leave"):
        list(_families(vcomp.ir.as_score_matrix(scores), np.triu_indices(3, 1)))
    scores[0, 2] = np.nan
    with pytest.raises(DataError, match="in common, and so have 1 more pairs; leave"):
        list(_families(vcomp.ir.as_score_matrix(scores), np.triu_indices(3, 1)))


def outcome(smallest, m=6, exact=False, statistic=1.0):
    values = np.full(m, 0.5)
    return Outcome(
        np.full(m, statistic), values, values, values, np.full(m, smallest), np.full(m, exact)
    )


@pytest.mark.parametrize(
    ("smallest", "correction", "silent"),
    [
        (0.05, None, True), (0.0501, None, False), (0.05 / 6, "holm", True),
        (0.0084, "holm", False), (0.0084, "fdr_bh", True), (0.0, "bonferroni", True),
    ],
)  # fmt: skip
def test_a_test_that_cannot_be_significant_says_so(smallest, correction, silent):
    for test, exact, words in (
        ("permutation", False, "use at least n="),
        ("permutation", True, "with so few topics"),
        ("sign", False, "with so few topics"),
    ):
        said = list(
            _on_resolution(test, PairOptions(), outcome(smallest, exact=exact), correction)
        )
        assert len(said) == (0 if silent else 1)
        if not silent:
            assert words in said[0]
            assert f"No p-value can be below {smallest:.3g}" in said[0]
            assert ("adjusted" in said[0]) == (correction == "holm")
            if "at least" in words:
                need = 20 if correction is None else 120
                assert f"n={need} replicates" in said[0]
    for m, words in ((1, "below 0.06:"), (2, "below 0.06, 0.12 adjusted:")):
        (said,) = _on_resolution("sign", PairOptions(), outcome(0.06, m), "bonferroni")
        assert words in said
    capped = outcome(0.4)
    (said,) = _on_resolution("sign", PairOptions(), capped, "holm")
    assert "0.4, 1 adjusted" in said


def test_how_tests_were_made():
    how = PairOptions(n=12_345)
    for several, words in ((True, "each pair separately"), (False, "of the mean difference")):
        assert list(_on_test("t", how, outcome(0.0), several=several)) == [
            f"Intervals: t, {words}."
        ]
        (said,) = _on_test("bootstrap", how, outcome(0.0), several=several)
        assert (
            said
            == f"p and intervals ({words}): 12,345 replicates (topics drawn with replacement)."
        )
    some = outcome(0.0)
    for n_exact, words in ((0, "normal approximation."), (6, "exact, given ties."),
                           (2, "exact for 2 pairs, else a normal approximation.")):  # fmt: skip
        some.is_exact[:] = np.arange(6) < n_exact
        (said,) = _on_test("wilcoxon", how, some, several=True)
        assert (
            said == f"Differences of zero are ranked, and their ranks left out (Pratt); p: {words}"
        )
        (said,) = _on_test("permutation", how, some, several=True)
        assert (said == "p is exact: all signs.") == (n_exact == 6)
        assert n_exact == 6 or said == "p: 12,345 replicates (random signs)."


def test_differences_without_variance_are_counted():
    rng = np.random.default_rng(1)
    x = rng.normal(size=20)
    scores = np.column_stack([x, x + 0.5, x, rng.normal(size=20)])
    found = vcomp.ir.compare_systems(scores, test="t")
    text = " ".join(" ".join(found.notes).split())
    # The first and the third do not differ: their statistic is zero.
    assert "2 of 6 differences are the same on all topics and have no error variance" in text
    endless = [
        pair for pair in itertools.combinations(range(4), 2)
        if np.ptp(scores[:, pair[0]] - scores[:, pair[1]]) < 1e-12
    ]  # fmt: skip
    assert endless == [(0, 1), (0, 2), (1, 2)]


@pytest.mark.parametrize(
    ("k", "words"), [(2, "of the mean difference"), (3, "each pair separate")]
)
def test_intervals_of_two_systems_with_a_baseline_are_of_each_pair(k, words):
    X = np.random.default_rng(1).normal(size=(9, k))
    text = " ".join(str(vcomp.ir.compare_systems(X, test="t", baseline=0)).split())
    assert f"Intervals: t, {words}" in text
