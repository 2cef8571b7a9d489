"""Split halves: exact fractions, alpha as the mean of all splits, and what cannot be split."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.helpers.ctt_scores import QUESTIONS, holed
from vcomp.exceptions import DataError, EstimationError, PlanError
from vcomp.studies.alpha_coefficients import cronbach_alpha
from vcomp.studies.halves import split_half_reliability
from vcomp.studies.internal_consistency import reliability


def by_definition(X, first):
    """Return the coefficients of one split as the papers write them."""
    k = X.shape[1]
    A, B = X[:, list(first)].sum(axis=1), np.delete(X, list(first), axis=1).sum(axis=1)
    r = np.corrcoef(A, B)[0, 1]
    pq = len(first) * (k - len(first)) / k**2
    V = (A + B).var(ddof=1)
    return {
        "correlation": r,
        "spearman_brown": 2 * r / (1 + r),
        "horst": (r * np.sqrt(r**2 + 4 * pq * (1 - r**2)) - r**2) / (2 * pq * (1 - r**2)),
        # Rulon (1939): one less the variance of the difference over that of the sum
        "flanagan_rulon": 1 - (A - B).var(ddof=1) / V,
        "raju": np.cov(A, B)[0, 1] / (pq * V),
    }


@pytest.mark.parametrize(
    ("split", "first"),
    [
        ("odd-even", (0, 2, 4, 6, 8)),
        ("first-last", (0, 1, 2, 3, 4)),
        (([0, 1, 2], [3, 4, 5, 6, 7, 8, 9]), (0, 1, 2)),
        ((range(9), [9]), range(9)),
    ],
)
def test_coefficients_by_their_definitions(split, first):
    found = split_half_reliability(QUESTIONS, split)
    assert found.halves[0] == tuple(first)
    assert len(found.table) == 1
    for name, value in by_definition(QUESTIONS, tuple(first)).items():
        assert found.mean[name] == pytest.approx(value, rel=1e-11), name


def test_an_odd_number_of_items():
    X = QUESTIONS[:, :7]
    for split, first in (("odd-even", (0, 2, 4, 6)), ("first-last", (0, 1, 2, 3))):
        found = split_half_reliability(X, split)
        assert found.halves[0] == first
        assert found.mean["raju"] == pytest.approx(by_definition(X, first)["raju"], rel=1e-12)
        assert "Horst" in str(found)


def test_exact_fractions():
    X = np.array([[1, 2, 2, 1], [3, 3, 4, 2], [2, 4, 3, 4], [5, 4, 5, 5], [1, 1, 3, 2]])
    A, B = ([Fraction(int(a)) for a in X[:, cols].sum(axis=1)] for cols in ([0, 2], [1, 3]))

    def cross(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True)) - sum(a) * sum(b) / 5

    exact = 4 * cross(A, B) / (cross(A, A) + cross(B, B) + 2 * cross(A, B))
    found = split_half_reliability(X).mean["flanagan_rulon"]
    assert found == pytest.approx(float(exact), rel=1e-14)


@given(arrays(int, st.sampled_from([(5, 2), (4, 4), (7, 6), (5, 8)]), elements=st.integers(0, 9)))
def test_the_mean_of_all_splits_is_alpha(scores):
    assume(np.ptp(scores.sum(axis=1)) > 0)
    found = split_half_reliability(scores, "all")
    assert found.mean["flanagan_rulon"] == pytest.approx(cronbach_alpha(scores), abs=1e-10)
    assert found.cronbach_alpha == pytest.approx(cronbach_alpha(scores), abs=1e-12)


@given(arrays(int, st.sampled_from([(5, 3), (4, 5), (6, 7)]), elements=st.integers(0, 9)))
def test_of_an_odd_number_the_mean_of_rajus(scores):
    assume(np.ptp(scores.sum(axis=1)) > 0)
    assert split_half_reliability(scores, "all").mean["raju"] == pytest.approx(
        cronbach_alpha(scores), abs=1e-10
    )


@pytest.mark.parametrize("k", [2, 5, 6, 9, 10])
def test_all_splits_are_each_there_once(k):
    found = split_half_reliability(QUESTIONS[:, :k], "all").table
    whole = {frozenset(c) for c in combinations(range(k), k // 2)}
    pairs = {frozenset([c, frozenset(range(k)) - c]) for c in whole}
    assert len(found) == len(pairs)
    mine = sorted(found["correlation"].round(10))
    brute = sorted(
        round(
            by_definition(QUESTIONS[:, :k], tuple(sorted(min(pair, key=sorted))))["correlation"],
            10,
        )
        for pair in pairs
    )
    np.testing.assert_allclose(mine, brute, atol=2e-10)


def test_the_best_split_is_lambda4():
    X = QUESTIONS[:, :2]
    assert split_half_reliability(X).mean["flanagan_rulon"] == pytest.approx(
        reliability(X).coefficients["lambda4"], rel=1e-12
    )


def test_random_splits_follow_the_seed():
    one, same = (split_half_reliability(QUESTIONS, "random", trials=50, rng=7) for _ in range(2))
    assert len(one.table) == 50
    pd.testing.assert_frame_equal(one.table, same.table)
    other = split_half_reliability(QUESTIONS, "random", trials=50, rng=8)
    assert not one.table["correlation"].equals(other.table["correlation"])
    assert (one.table["n_first"] == 5).all()
    assert one.halves is None
    drawn = split_half_reliability(QUESTIONS, "random", rng=np.random.default_rng(1))
    assert len(drawn.table) == 1000


def test_random_splits_are_among_all():
    everything = set(split_half_reliability(QUESTIONS, "all").table["correlation"].round(12))
    drawn = split_half_reliability(QUESTIONS, "random", trials=200).table
    some = set(drawn["correlation"].round(12))
    assert some <= everything


def test_labels_of_a_frame():
    frame = pd.DataFrame(QUESTIONS, columns=[f"q{i}" for i in range(10)])
    halves = (["q0", "q1", "q2"], [f"q{i}" for i in range(3, 10)])
    found = split_half_reliability(frame, halves)
    assert found.halves == (tuple(halves[0]), tuple(halves[1]))


def test_a_half_without_variance_says_so():
    X = np.column_stack([np.full(15, 0.3), np.full(15, 0.1), QUESTIONS[:, :2]])
    found = split_half_reliability(X, "first-last")
    assert np.isnan(found.mean["correlation"])
    assert found.mean["flanagan_rulon"] == pytest.approx(0.0, abs=1e-12)
    assert "In 1 of 1 splits a half has no variance" in str(found)


def test_a_half_that_varies_by_rounding_alone_has_no_correlation():
    """150 items of which every two add up to a constant, but for the rounding of each sum."""
    rng = np.random.default_rng(1)
    items = 3.0 * rng.normal(size=(12, 75))
    X = np.column_stack([items, 0.7 - items, rng.normal(size=(12, 150))])
    assert 0.0 < X[:, :150].sum(axis=1).var() < 1e-24
    assert np.isnan(split_half_reliability(X, "first-last").mean["correlation"])


def test_halves_that_are_opposite_have_no_correction():
    """r = −1 exactly: 2r/(1 + r) and Horst's correction have no value, 4 × −4/2 is −8."""
    found = split_half_reliability([[0, 3], [2, -1]], "first-last").mean
    assert found["correlation"] == -1.0
    assert found[["spearman_brown", "horst"]].isna().all()
    assert found[["flanagan_rulon", "raju"]].tolist() == [-8.0, -8.0]


def test_missing_cells():
    X = holed(QUESTIONS, 0.05)
    with pytest.raises(DataError, match=r"cells are missing.*missing='listwise'"):
        split_half_reliability(X)
    found = split_half_reliability(X, missing="listwise")
    whole = X[~np.isnan(X).any(axis=1)]
    assert found.mean["correlation"] == split_half_reliability(whole).mean["correlation"]
    assert "objects were left out" in str(found)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("odd_even", "did you mean 'odd-even'"),
        (3, "split is one of 'odd-even'"),
        (("ab", "cd"), "split is one of"),
        ((range(5),), "split is one of"),
        (([], range(10)), "a half has no items"),
        ((range(5), range(4, 10)), "item 4 is in the halves twice"),
        ((range(5), range(6, 10)), "item 5 is in neither half"),
        ((range(5), range(5, 11)), "there is no item 10"),
        ((range(5), [[5]]), r"there is no item \[5\]"),
    ],
)
def test_splits_that_cannot_be(split, message):
    with pytest.raises((DataError, PlanError), match=message):
        split_half_reliability(QUESTIONS, split)


def test_options_that_do_not_go_together():
    with pytest.raises(DataError, match="are for split='random'"):
        split_half_reliability(QUESTIONS, "all", trials=10)
    with pytest.raises(DataError, match="are for split='random'"):
        split_half_reliability(QUESTIONS, (range(5), range(5, 10)), rng=1)
    with pytest.raises(EstimationError, match="trials must be a whole number"):
        split_half_reliability(QUESTIONS, "random", trials=0)
    with pytest.raises(DataError, match="24 items have 1,352,078 splits"):
        split_half_reliability(np.random.default_rng(0).normal(size=(5, 24)), "all")
    with pytest.raises(DataError, match="same total"):
        split_half_reliability([[1, 2], [2, 1]])


def test_summary():
    text = str(split_half_reliability(QUESTIONS[:, :6], "all"))
    assert "Split-half reliability of 6 items; 15 objects" in text
    assert "Halves: all 10 splits." in text
    assert "mean of Flanagan and Rulon's" in text
    assert "Horst" not in text
    assert split_half_reliability(QUESTIONS)._repr_html_().startswith("<table")
    assert repr(split_half_reliability(QUESTIONS)) == "SplitHalf(splits=1, items=10)"
