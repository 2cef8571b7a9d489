"""What Bodoff (2006) and Bodoff and Li (2007) print, from their tables of components.

Table 1 of 2007 prints σ²(pa) = .00002 with one digit. Its mean squares say more: of 48 queries,
2 assessors and 33 participants (.00251 − .00176)/48 = .0000156, with which every number that the
paper derives is what it prints.
"""

from __future__ import annotations

import numpy as np
import pytest

import vcomp

N_P, N_I, N_A = 33, 48, 2
PRINTED = {
    "p": 0.00751, "i": 0.01596, "a": 0.0, "pi": 0.01258, "pa": 0.00002, "ia": 0.00143,
    "pia": 0.00176,
}  # fmt: skip
MEAN_SQUARES = {
    "p": 0.7485, "i": 1.1274, "pi": 0.0269, "pa": 0.00251, "ia": 0.04884, "pia": 0.00176,
}  # fmt: skip
EXACT = {**PRINTED, "pa": (MEAN_SQUARES["pa"] - MEAN_SQUARES["pia"]) / N_I}

POSTER = {
    "p": 0.0029, "i": 0.009, "a": 0.00001, "pi": 0.01275, "pa": 0.0, "ia": 0.00038, "pia": 0.0005,
}  # fmt: skip
"""Bodoff (2006), with q written i."""


def test_table_1_is_one_analysis_of_variance():
    """Components from the mean squares, by the expectations of the p × i × a design."""
    M = MEAN_SQUARES
    from_squares = {
        "p": (M["p"] - M["pi"] - M["pa"] + M["pia"]) / (N_I * N_A),
        "i": (M["i"] - M["pi"] - M["ia"] + M["pia"]) / (N_P * N_A),
        "pi": (M["pi"] - M["pia"]) / N_A,
        "pa": (M["pa"] - M["pia"]) / N_I,
        "ia": (M["ia"] - M["pia"]) / N_P,
        "pia": M["pia"],
    }
    for term, value in from_squares.items():
        # Mean squares have four digits or fewer: half a unit of MS(pi) is 2.5e-5 in σ²(pi).
        assert value == pytest.approx(PRINTED[term], abs=3e-5 if term == "pi" else 5.1e-6)
    percent = {"p": 19.13, "i": 40.67, "a": 0, "pi": 32.04, "pa": 0, "ia": 3.64, "pia": 4.48}
    components = vcomp.from_components(PRINTED)
    for term, printed in percent.items():
        share = 100 * components.quantity(f"share({term})").estimate
        assert share == pytest.approx(printed, abs=0.06)  # σ²(pa) has one digit: .05 per cent


def test_the_worked_examples():  # pp. 370-371
    row = vcomp.from_components(PRINTED).dstudy(i=20, a=3).table.iloc[0]
    assert f"{row['abs_err_var']:.5f}" == "0.00149"
    assert f"{row['Phi']:.3f}" == "0.835"
    assert f"{row['Erho2']:.3f}" == "0.919"
    # .000665 is printed as .00066
    assert row["rel_err_var"] == pytest.approx(0.00066, abs=5.1e-6)
    fifty = vcomp.from_components(PRINTED).dstudy(i=50, a=1).table.iloc[0]
    assert f"{fifty['Phi']:.3f}" == "0.920"


def test_table_4():
    table = vcomp.from_components(EXACT).dstudy(i=[50, 100], a=[1, 2]).table
    assert [f"{x:.3f}" for x in table["Phi"]] == ["0.920", "0.925", "0.958", "0.960"]
    assert [f"{x:.3f}" for x in table["Erho2"]] == ["0.961", "0.964", "0.979", "0.981"]
    # From σ²(pa) = .00002 as printed the third is .957.
    rounded = vcomp.from_components(PRINTED).dstudy(i=100, a=1).table
    assert f"{rounded['Phi'].iloc[0]:.3f}" == "0.957"
    stored = vcomp.datasets.load("bodoff2007_dstudy")
    np.testing.assert_allclose(table["Phi"], stored["Phi"], rtol=0, atol=5.1e-4)
    np.testing.assert_allclose(table["Erho2"], stored["Erho2"], rtol=0, atol=5.1e-4)


@pytest.mark.parametrize(
    ("coefficient", "error", "ratio"),
    [("Phi", "abs_err_var", 1826), ("Erho2", "rel_err_var", 805)],
)
def test_queries_to_assessors_for_a_fixed_budget(coefficient, error, ratio):
    """Section 3.2.4: with a price for every query and assessor, n_i/n_a is 1826, or 805."""
    v = EXACT
    per_query, per_assessor = v["pi"], v["pa"]
    if coefficient == "Phi":
        per_query, per_assessor = v["pi"] + v["i"], v["pa"] + v["a"]
    assert per_query / per_assessor == pytest.approx(ratio, abs=1.0)
    study = vcomp.from_components(EXACT).dstudy(i=50, a=1)

    def at(n_i, n_a):
        return study_at(n_i, n_a, error)

    n_a = 4.0
    n_i = n_a * per_query / per_assessor
    for change in (1.01, 1 / 1.01):
        assert at(n_i, n_a) < at(n_i * change, n_a / change)
    budget = 10 * ratio  # whose best sizes, √10 assessors, have to be whole numbers
    best = study.optimize({"i:a": 1.0}, budget=budget, coefficient=coefficient).best
    sizes = [(budget // a, a) for a in range(1, 12)]
    expected = min(sizes, key=lambda n: at(*n))
    assert (best.sizes["i"], best.sizes["a"]) == expected


def study_at(n_i, n_a, column):
    table = vcomp.from_components(EXACT).dstudy(i=n_i, a=n_a).table
    return float(table[column].iloc[0])


def test_assessors_of_their_own_for_each_query_are_never_worse():
    """Section 3.2.4: the relative error of p × (a:i) is (pi)/n_i + (pa + pia)/(n_i n_a)."""
    g = vcomp.from_components(PRINTED)
    for i, a in ((20, 1), (20, 3), (50, 2)):
        crossed = g.dstudy("p x i x a", i=i, a=a).table.iloc[0]
        nested = g.dstudy("p x (a:i)", i=i, a=a).table.iloc[0]
        v = PRINTED
        expected = v["pi"] / i + (v["pa"] + v["pia"]) / (i * a)
        assert nested["rel_err_var"] == pytest.approx(expected, rel=1e-12)
        assert nested["rel_err_var"] <= crossed["rel_err_var"]
        expected += v["i"] / i + (v["a"] + v["ia"]) / (i * a)
        assert nested["abs_err_var"] == pytest.approx(expected, rel=1e-12)


def test_figure_2():
    scores = vcomp.datasets.load("bodoff2007_alpha")
    matrix = scores.pivot_table(index="sys", columns="topic", values="score")
    # The paper's .80942 comes from variances rounded to five decimals.
    assert vcomp.cronbach_alpha(matrix) == pytest.approx(0.80942, abs=1e-4)
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", scores, method="anova")
    assert res.dstudy(topic=3).table["Erho2"].iloc[0] == pytest.approx(0.80942, abs=1e-4)


def test_the_poster_of_2006():
    row = vcomp.from_components(POSTER).dstudy(i=20, a=3).table.iloc[0]
    # Its text has .00035 for the .00038 of its table; the sum is that of the table: .0011055.
    assert row["abs_err_var"] == pytest.approx(0.001106, abs=5.1e-7)
    assert f"{row['rel_err_var']:.6f}" == "0.000646"
    percent = {"p": 11.4, "i": 35.3, "a": 0.05, "pi": 49.9, "pa": 0, "ia": 1.5, "pia": 2.0}
    g = vcomp.from_components(POSTER)
    for term, printed in percent.items():
        share = 100 * g.quantity(f"share({term})").estimate
        assert share == pytest.approx(printed, abs=0.15)
    # Its "ideal ratio of queries to assessors" is one of per cents: of errors that more queries
    # make smaller to all that more assessors do.
    ratios = {"abs_err_var": 88.7 / 3.55, "rel_err_var": 51.9 / 2.0}
    for column, printed in ratios.items():
        many = 1e12
        one_query = g.dstudy(i=1, a=1).table[column].iloc[0]
        by_query = one_query - g.dstudy(i=many, a=1).table[column].iloc[0]
        by_assessor = one_query - g.dstudy(i=1, a=many).table[column].iloc[0]
        # Per cents of 1.5 and 2.0 are known to half a unit, together to 3 in 100.
        assert by_query / by_assessor == pytest.approx(printed, rel=0.03)
