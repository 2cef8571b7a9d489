"""Intraclass correlations: published examples, R's numbers, D-studies, and bad input."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from scipy import stats

import vcomp
from tests.helpers.ctt_scores import QUESTIONS, SMALL_SCORES, WINES, holed, long_of
from vcomp.exceptions import DataError, PlanError
from vcomp.inference import TwoWayMeanSquares
from vcomp.studies.alpha_coefficients import cronbach_alpha
from vcomp.studies.internal_consistency import spearman_brown
from vcomp.studies.intraclass import agreement, consistency, icc, one_way

# Shrout and Fleiss (1979), Table 2: six targets, four judges
TARGETS = np.array(
    [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
)

# The last example of irr::icc: r1 = round(rnorm(20, 10, 4)), r2 and r3 = round(r1 + 10 and 20 +
# rnorm(20, 0, 2)) after set.seed(1) in R
RANDOM = np.array(
    [
        [7, 11, 7, 16, 11, 7, 12, 13, 12, 9, 16, 12, 8, 1, 14, 10, 10, 14, 13, 12],
        [19, 23, 17, 22, 22, 17, 22, 20, 21, 20, 29, 22, 19, 11, 21, 19, 19, 24, 25, 24],
        [27, 30, 28, 37, 30, 26, 33, 35, 32, 31, 37, 31, 29, 19, 37, 34, 29, 32, 34, 32],
    ]
).T

SINGLE = ["ICC(1,1)", "ICC(2,1)", "ICC(3,1)"]
AVERAGE = ["ICC(1,k)", "ICC(2,k)", "ICC(3,k)"]


def test_shrout_and_fleiss():
    # their Table 4 and text: .17, .29, .71, .44, .62, .91
    found = icc(TARGETS).table["estimate"]
    assert found[SINGLE].round(2).tolist() == [0.17, 0.29, 0.71]
    assert found[AVERAGE].round(2).tolist() == [0.44, 0.62, 0.91]
    squares = icc(TARGETS).mean_squares
    # Table 3: BMS 11.24, WMS 6.26, JMS 32.49, EMS 1.02
    named = [squares[name] for name in ("objects", "within", "raters", "residual")]
    assert np.round(named, 2).tolist() == [11.24, 6.26, 32.49, 1.02]


def test_psych_of_shrout_and_fleiss():
    # R, psych::ICC(sf): F 1.8, 11.0; p .16477, .00013; bounds to three and two decimals
    table = icc(TARGETS).table
    assert table["low"].round(3).tolist() == [-0.133, 0.019, 0.342, -0.884, 0.071, 0.676]
    assert table["high"].round(2).tolist() == [0.72, 0.76, 0.95, 0.91, 0.93, 0.99]
    assert table["F"].round(1).tolist() == [1.8, 11.0, 11.0, 1.8, 11.0, 11.0]
    assert table["p_value"].round(5).tolist() == [0.16477, 0.00013, 0.00013] * 2
    assert table["df2"].tolist() == [18.0, 15.0, 15.0] * 2


def test_pingouin_of_the_wines():
    # pingouin.intraclass_corr, which follows psych::ICC
    table = icc(WINES).table
    expected = [0.727521, 0.727689, 0.729487, 0.914384, 0.914450, 0.915159]
    np.testing.assert_allclose(table["estimate"], expected, atol=5e-7)
    np.testing.assert_allclose(table["F"], [11.680026, 11.786693, 11.786693] * 2, atol=5e-7)
    assert table["low"].round(2).tolist() == [0.43, 0.43, 0.43, 0.75, 0.75, 0.75]
    assert table["high"].round(2).tolist() == [0.93, 0.93, 0.93, 0.98, 0.98, 0.98]


def test_irr_of_its_own_example():
    # R, irr 0.84.1, icc(cbind(r1, r2, r3), "twoway") and the same with "agreement"
    consistent, agreeing = icc(RANDOM)["ICC(C,1)"], icc(RANDOM)["ICC(A,1)"]
    got = [consistent[name] for name in ("estimate", "low", "high", "F", "df1", "df2")]
    expected = [0.845615, 0.708080, 0.929968, 17.431948, 19, 38]
    np.testing.assert_allclose(got, expected, atol=5.1e-7)
    assert consistent["p_value"] == pytest.approx(2.852714e-13, rel=1e-6)
    got = [agreeing[name] for name in ("estimate", "low", "high", "F")]
    np.testing.assert_allclose(got, [0.106051, -0.002193, 0.345521, 17.431948], atol=5.1e-7)


def test_degrees_of_freedom_of_the_test_of_agreement():
    # irr up to 0.84.1 gives 2.345547 here, those of the interval (irrNA::icc_corr, bug 1): under
    # the null value 0 the statistic is R/E and has those of consistency
    assert icc(RANDOM)["ICC(A,1)"]["df2"] == 38.0
    n, k = RANDOM.shape
    ms = icc(RANDOM).mean_squares
    rho = icc(RANDOM)["ICC(A,1)"]["estimate"]
    a = k * rho / (n * (1 - rho))
    b = 1 + k * rho * (n - 1) / (n * (1 - rho))
    parts = np.array([a * ms["raters"], b * ms["residual"]])
    v = parts.sum() ** 2 / (parts**2 / [k - 1, (n - 1) * (k - 1)]).sum()
    assert v == pytest.approx(2.345547, abs=5e-7)


def mcgraw_and_wong(X, alpha, r0):
    """Return their Tables 4, 7 and 8 as printed: estimate, low, high, F, df2 of each name."""
    n, k = X.shape
    D = X - X.mean()
    R = k * np.square(D.mean(axis=1)).sum() / (n - 1)
    C = n * np.square(D.mean(axis=0)).sum() / (k - 1)
    W = np.square(X - X.mean(axis=1, keepdims=True)).sum() / (n * (k - 1))
    E = (np.square(D).sum() - (n - 1) * R - (k - 1) * C) / ((n - 1) * (k - 1))
    q = 1 - alpha / 2
    found = {}
    for one, mean, error, df in (
        ("ICC(1)", "ICC(k)", W, n * (k - 1)),
        ("ICC(C,1)", "ICC(C,k)", E, (n - 1) * (k - 1)),
    ):
        F = R / error
        low, high = F / stats.f.ppf(q, n - 1, df), F * stats.f.ppf(q, df, n - 1)
        found[one] = (
            (R - error) / (R + (k - 1) * error),
            (low - 1) / (low + k - 1),
            (high - 1) / (high + k - 1),
            F * (1 - r0) / (1 + (k - 1) * r0),
            df,
        )
        found[mean] = ((R - error) / R, 1 - 1 / low, 1 - 1 / high, F * (1 - r0), df)

    def v(a, b):
        x, y = a * C, b * E
        return (x + y) ** 2 / (x**2 / (k - 1) + y**2 / ((n - 1) * (k - 1)))

    rho = (R - E) / (R + (k - 1) * E + k / n * (C - E))
    a, b = k * rho / (n * (1 - rho)), 1 + k * rho * (n - 1) / (n * (1 - rho))
    below, above = stats.f.ppf(q, n - 1, v(a, b)), stats.f.ppf(q, v(a, b), n - 1)
    a0, b0 = k * r0 / (n * (1 - r0)), 1 + k * r0 * (n - 1) / (n * (1 - r0))
    rest = k * C + (k * n - k - n) * E
    found["ICC(A,1)"] = (
        rho,
        n * (R - below * E) / (below * rest + n * R),
        n * (above * R - E) / (rest + n * above * R),
        R / (a0 * C + b0 * E),
        v(a0, b0),
    )
    rho = (R - E) / (R + (C - E) / n)
    a, b = rho / (n * (1 - rho)), 1 + rho * (n - 1) / (n * (1 - rho))
    below, above = stats.f.ppf(q, n - 1, v(a, b)), stats.f.ppf(q, v(a, b), n - 1)
    a0, b0 = r0 / (n * (1 - r0)), 1 + r0 * (n - 1) / (n * (1 - r0))
    found["ICC(A,k)"] = (
        rho,
        n * (R - below * E) / (below * (C - E) + n * R),
        n * (above * R - E) / (C - E + n * above * R),
        R / (a0 * C + b0 * E),
        v(a0, b0),
    )
    return found


@pytest.mark.parametrize("r0", [0.0, 0.4, 0.9])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
@pytest.mark.parametrize("X", [TARGETS, WINES, RANDOM, QUESTIONS], ids=["sf", "wine", "r", "q"])
def test_formulae_as_printed(X, alpha, r0):
    found = icc(X, alpha=alpha, r0=r0)
    for name, (value, low, high, F, df2) in mcgraw_and_wong(X, alpha, r0).items():
        row = found[name]
        got = [row["estimate"], row["low"], row["high"], row["F"], row["df2"]]
        np.testing.assert_allclose(got, [value, low, high, F, df2], rtol=1e-9, err_msg=name)
        p = stats.f.sf(F, row["df1"], df2)
        assert row["p_value"] == pytest.approx(p, rel=1e-7)


@settings(deadline=None)
@given(SMALL_SCORES)
def test_formulae_as_printed_of_any_ratings(scores):
    n, k = scores.shape
    scores = scores + 2 * np.arange(n)[:, None]
    rest = scores - scores.mean(axis=1, keepdims=True) - scores.mean(axis=0) + scores.mean()
    residual = np.square(rest).sum() / ((n - 1) * (k - 1))
    # below 0 the printed degrees of freedom are those of no sum, and averages pass a pole
    assume(residual > 1e-6 and k * scores.mean(axis=1).var(ddof=1) >= residual)
    found = icc(scores)
    for name, values in mcgraw_and_wong(scores, 0.05, 0.0).items():
        got = [found[name][c] for c in ("estimate", "low", "high", "F", "df2")]
        assert not np.isnan(got).any()
        if got[1] < -1e3:  # beside the pole
            got, values = got[2:], values[2:]
        np.testing.assert_allclose(got, values, rtol=1e-6, atol=1e-9, err_msg=name)


@given(SMALL_SCORES)
def test_limits_enclose_and_nothing_is_above_one(scores):
    assume(np.ptp(scores) > 0)
    table = icc(scores).table
    known = table.dropna(subset=["estimate", "low", "high"])
    assert (known["low"] <= known["estimate"] + 1e-12).all()
    assert (known["estimate"] <= known["high"] + 1e-12).all()
    assert (table[["estimate", "low", "high"]].fillna(0) <= 1).all(axis=None)


# What they are --------------------------------------------------------------------------------


@pytest.mark.parametrize("X", [TARGETS, WINES, RANDOM], ids=["sf", "wine", "r"])
@pytest.mark.parametrize("k", [None, 1, 7])
def test_they_are_coefficients_of_d_studies(X, k):
    found = icc(X, k=k).table["estimate"]
    m = X.shape[1] if k is None else k
    res = vcomp.fit("y ~ (1|p) + (1|r)", long_of(X), method="anova")
    table = res.dstudy(object="p", r=[1, m], negative="keep").table
    np.testing.assert_allclose(found[["ICC(3,1)", "ICC(3,k)"]], table["Erho2"], rtol=1e-9)
    np.testing.assert_allclose(found[["ICC(2,1)", "ICC(2,k)"]], table["Phi"], rtol=1e-9)
    one = vcomp.fit("y ~ (1|p)", long_of(X), method="anova").vcomp
    for name, size in (("ICC(1,1)", 1), ("ICC(1,k)", m)):
        total = one["p"] + one["Residual"] / size
        assert found[name] == pytest.approx(one["p"] / total if total > 0 else np.nan, nan_ok=True)


def test_negative_coefficients_of_one_rating_may_have_no_average():
    found = icc(RANDOM, k=7)  # ICC(1) is -.28
    assert np.isnan(found["ICC(k)"]["estimate"])
    assert "ICC(1,k): none, as the coefficient of one rating is too negative" in str(found)
    lows = icc([[0, 1, 1], [1, 0, 1], [1, 1, 1], [2, 1, 1]], k=50).table["low"]
    assert (lows[AVERAGE] == -np.inf).all()


def test_consistency_of_the_mean_is_alpha():
    assert icc(QUESTIONS)["ICC(C,k)"]["estimate"] == pytest.approx(cronbach_alpha(QUESTIONS))
    alpha = vcomp.ctt.reliability(QUESTIONS)
    row = icc(QUESTIONS)["ICC(3,k)"]
    np.testing.assert_allclose([row["low"], row["high"]], [alpha.low, alpha.high], rtol=1e-10)


def test_averages_follow_spearman_and_brown():
    table = icc(WINES, k=9).table
    for column in ("estimate", "low", "high"):
        expected = spearman_brown(table.loc[SINGLE, column].to_numpy(), 9)
        np.testing.assert_allclose(table.loc[AVERAGE, column], expected, rtol=1e-12)


def test_a_result_gives_what_the_scores_give():
    res = vcomp.fit("y ~ (1|p) + (1|r)", long_of(WINES))
    expected = icc(WINES, alpha=0.1, r0=0.2).table
    for given_ in (res, res.components):
        found = icc(given_, object="p", alpha=0.1, r0=0.2).table
        pd.testing.assert_frame_equal(found, expected, rtol=1e-9)
    turned = icc(res, object="r").table
    pd.testing.assert_frame_equal(turned, icc(WINES.T).table, rtol=1e-9)


def test_published_components():
    published = vcomp.from_components({"p": 0.5, "i": 0.2, "Residual": 1.0})
    found = icc(published, object="p", k=3)
    assert found["ICC(A,1)"]["estimate"] == pytest.approx(0.5 / 1.7, rel=1e-14)
    assert found["ICC(C,k)"]["estimate"] == pytest.approx(0.5 / (0.5 + 1 / 3), rel=1e-14)
    assert np.isnan(found["ICC(1)"]["estimate"])
    assert "ICC(1,1) and ICC(1,k) need a fit without raters" in str(found)
    assert "Intervals: none" in str(found)


# Missing cells --------------------------------------------------------------------------------


def test_missing_cells_by_reml():
    X = holed(QUESTIONS)
    p, r = np.nonzero(~np.isnan(X))
    data = {"y": X[p, r], "p": p, "r": r}
    found = icc(X).table
    two = vcomp.fit("y ~ (1|p) + (1|r)", data)
    study = two.dstudy(object="p", r=[1, 10], interval="mls").table
    np.testing.assert_allclose(found.loc[["ICC(3,1)", "ICC(3,k)"], "estimate"], study["Erho2"])
    np.testing.assert_allclose(found.loc[["ICC(2,1)", "ICC(2,k)"], "estimate"], study["Phi"])
    for end in ("low", "high"):
        np.testing.assert_allclose(found.loc["ICC(3,k)", end], study[f"Erho2_{end}"][1], rtol=1e-6)
        np.testing.assert_allclose(found.loc["ICC(2,1)", end], study[f"Phi_{end}"][0], rtol=1e-6)
    one = vcomp.fit("y ~ (1|p)", data).vcomp
    assert found.loc["ICC(1,1)", "estimate"] == pytest.approx(one["p"] / one.sum(), rel=1e-9)
    assert found["F"].isna().all()
    assert "no F-test" in str(icc(X))
    assert "cells are missing: variance components are by REML" in str(icc(X))


def test_missing_cells_left_out():
    X = holed(QUESTIONS, 0.05)
    whole = X[~np.isnan(X).any(axis=1)]
    pd.testing.assert_frame_equal(icc(X, missing="listwise").table, icc(whole).table)
    with pytest.raises(DataError, match="cells are missing"):
        icc(X, missing="raise")


def test_components_given_of_incomplete_scores_equal_those_found():
    X = holed(QUESTIONS)
    p, r = np.nonzero(~np.isnan(X))
    res = vcomp.fit("y ~ (1|p) + (1|r)", {"y": X[p, r], "p": p, "r": r})
    names = ["ICC(2,1)", "ICC(3,1)", "ICC(2,k)", "ICC(3,k)"]
    columns = ["estimate", "low", "high"]
    np.testing.assert_allclose(
        icc(res, object="p", k=10).table.loc[names, columns],
        icc(X).table.loc[names, columns],
        rtol=1e-6,
    )


# What a person sees ---------------------------------------------------------------------------


def test_names():
    found = icc(WINES)
    assert found["ICC(A,k)"].equals(found["ICC(2,k)"])
    with pytest.raises((DataError, PlanError), match="did you mean"):
        found["ICC(A;k)"]
    assert found.table["cases"]["ICC(3,k)"] == "2, 2A, 3A"
    assert found.table["dstudy"]["ICC(2,k)"] == "Φ (p × r), n′ = k"


def test_summary():
    text = str(icc(TARGETS))
    assert "Intraclass correlations: 6 objects, 4 raters; k = 4" in text
    assert "ICC(2,1)   ICC(A,1)      0.290    [0.019, 0.761]" in text
    assert "F tests whether a coefficient is above 0." in text
    assert icc(TARGETS)._repr_html_().startswith("<table")
    assert repr(icc(TARGETS)) == "IntraclassCorrelations(objects=6, raters=4)"


@pytest.mark.parametrize("offset", [1e9, -1e9])
def test_scores_far_from_zero(offset):
    """Whole numbers at 1e9 are exact: nothing but their differences matters."""
    near, far = icc(TARGETS), icc(TARGETS + offset)
    columns = ["estimate", "low", "high", "F", "p_value", "df1", "df2"]
    np.testing.assert_allclose(far.table[columns], near.table[columns], rtol=1e-9)
    for name, square in near.mean_squares.items():
        assert far.mean_squares[name] == pytest.approx(square, rel=1e-9)


@pytest.mark.parametrize("unit", [1e-8, 1e8])
@pytest.mark.parametrize(
    "X", [TARGETS, -(TARGETS[:, ::-1] ** 2), np.array([[1, 2], [2, 1], [3, 3]])]
)
def test_the_unit_does_not_matter(X, unit):
    """Neither for the coefficients nor for what is said of those that there are none of."""
    negative = np.array([[1.0, 9.0, 2.0], [8.0, 2.0, 1.0], [3.0, 1.0, 8.0], [2.0, 7.0, 4.0]])
    for ratings in (X, negative, np.array([[1.0, 2.0], [2.0, 1.0]])):
        one, other = icc(ratings), icc(unit * ratings)
        pd.testing.assert_frame_equal(other.table, one.table, rtol=1e-9)
        assert other.notes == one.notes
        for name, square in one.mean_squares.items():
            assert other.mean_squares[name] == pytest.approx(unit**2 * square, rel=1e-9)
    assert icc(negative).notes


@pytest.mark.parametrize("rows", [2.0, 1e-9])
@pytest.mark.parametrize("kind", [one_way, consistency])
def test_without_error_odds_are_infinite_and_without_anything_unknown(kind, rows):
    some = kind(TwoWayMeanSquares("object", "rater", 5, 3, rows, 0.0, 0.0), 0.0, 0.05)
    assert (some.odds, some.low, some.high, some.F, some.p_value) == (np.inf,) * 4 + (0.0,)
    nothing = kind(TwoWayMeanSquares("object", "rater", 5, 3, 0.0, 0.0, 0.0), 0.0, 0.05)
    assert np.isnan([nothing.odds, nothing.low, nothing.high, nothing.F, nothing.p_value]).all()


@pytest.mark.parametrize("rows", [2.0, 1e-9])
def test_agreement_without_error(rows):
    some = agreement(TwoWayMeanSquares("object", "rater", 5, 3, rows, 0.0, 0.0), 0.5, 0.05)
    assert (some.odds, some.low, some.high, some.F, some.p_value) == (np.inf,) * 4 + (0.0,)
    nothing = agreement(TwoWayMeanSquares("object", "rater", 5, 3, 0.0, 0.0, 0.0), 0.5, 0.05)
    assert np.isnan(nothing.F)
    assert nothing.df2 == 8.0
