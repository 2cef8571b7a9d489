"""Henderson's Method I and its covariance against exact rational arithmetic; classical tables."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest

import vcomp
from tests.helpers.reference_frames import by_name, frame_of

NAMES = [
    "CA19_9_P1", "CA19_9_P2", "CA19_9_P5", "CA19_9_Q3", "Glucose", "HugeData", "MLrepro", "adhoc3",
    "adhoc3_drop25", "adhoc3_unbal", "brennan_missing_pxi", "brennan_synthetic1",
    "brennan_synthetic1_unbal", "brennan_synthetic2", "brennan_synthetic2_unbal",
    "brennan_synthetic3", "brennan_synthetic4", "brennan_synthetic4_missing", "dataEP05A2_1",
    "dataEP05A2_1_unbal", "dataEP05A2_2", "dataEP05A2_2_unbal", "dataEP05A3_MS_1",
    "dataEP05A3_MS_1_unbal", "dyestuff", "dyestuff2", "enterprise2006", "genomics2004", "insteval",
    "narayanan2010", "novelty_small", "novelty_small_missing", "pastes", "penicillin",
    "penicillin_unbal", "web2010ap", "web2010p20",
]  # fmt: skip


def anova(stored, shared_data):
    with warnings.catch_warnings():
        # That Method I is a poor one for partly crossed data is said, and tested, elsewhere.
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        return vcomp.fit(stored["formula"], frame_of(stored, shared_data), method="anova")


@pytest.mark.parametrize("name", NAMES)
def test_components_and_their_covariance(name, reference, shared_data):
    stored = reference(f"anova_{name}")
    expected = stored["values"]["hm1"]
    res = anova(stored, shared_data)
    names = list(res.vcomp.index)
    # MLrepro's components are differences of sums a thousand times their size: 1e-11 is left.
    np.testing.assert_allclose(res.vcomp, by_name(expected["vc"], names), rtol=2e-11)
    for component, text in (expected["vc_exact"] or {}).items():
        assert res.vcomp[component] == pytest.approx(float(Fraction(text)), rel=2e-11)
    if "cov_vc" in expected:
        covariance = np.array(expected["cov_vc"])
        scale = np.sqrt(np.outer(np.diagonal(covariance), np.diagonal(covariance)))
        np.testing.assert_allclose(res.cov_vcomp() / scale, covariance / scale, atol=1e-10)
        np.testing.assert_allclose(res.bse_vcomp, by_name(expected["se"], names), rtol=1e-10)


BALANCED = [
    "CA19_9_P1", "Glucose", "adhoc3", "brennan_synthetic1", "brennan_synthetic3",
    "brennan_synthetic4", "dataEP05A2_1", "dataEP05A3_MS_1", "dyestuff", "dyestuff2", "pastes",
    "penicillin",
]  # fmt: skip


@pytest.mark.parametrize("name", BALANCED)
def test_classical_table_of_balanced_data(name, reference, shared_data):
    """Sequential sums of squares are the classical ones when the data are balanced."""
    stored = reference(f"anova_{name}")
    expected = stored["values"]["type1"]
    table = anova(stored, shared_data).anova_table()
    names = expected["order"]
    total = sum(expected["ss"].values())
    np.testing.assert_array_equal(table.loc[names, "df"], by_name(expected["df"], names))
    ss, ms = by_name(expected["ss"], names), by_name(expected["ms"], names)
    np.testing.assert_allclose(table.loc[names, "sum_sq"], ss, rtol=1e-10, atol=1e-13 * total)
    np.testing.assert_allclose(table.loc[names, "mean_sq"], ms, rtol=1e-10, atol=1e-13 * total)
    coefficients = table.loc[names, [f"E[{n}]" for n in names]].to_numpy()
    np.testing.assert_allclose(coefficients, expected["ems_coef"], atol=1e-9)


# Balanced, or nested only: there Type I, which VCA computes, is Method I.
AS_IN_VCA = [
    *("CA19_9_P1", "CA19_9_P2", "CA19_9_P5", "CA19_9_Q3", "Glucose", "adhoc3"),
    *("brennan_synthetic1", "brennan_synthetic2", "brennan_synthetic2_unbal"),
    *("brennan_synthetic3", "brennan_synthetic4", "dataEP05A2_1", "dataEP05A2_1_unbal"),
    *("dataEP05A2_2", "dataEP05A2_2_unbal", "dataEP05A3_MS_1", "dataEP05A3_MS_1_unbal"),
    *("dyestuff", "dyestuff2", "pastes", "penicillin"),
]


@pytest.mark.parametrize("name", AS_IN_VCA)
def test_r_vca(name, reference, shared_data):
    rows = reference(f"vca_{name}")["values"]["anova_negvc"]
    res = anova(reference(f"anova_{name}"), shared_data)
    for term, row in rows.items():
        if term != "total":
            ours = res.vcomp["Residual" if term == "error" else term]
            assert ours == pytest.approx(row["VC"], rel=1e-8), term


def test_r_vca_on_8070_rows(reference, shared_data):
    res = anova(reference("anova_HugeData"), shared_data)
    sas = [row for row in reference("sas_published_vca_tests")["values"]["components"]
           if row["dataset"] == "HugeData"]  # fmt: skip
    for term, value in sas[0]["vc"].items():
        ours = res.vcomp["Residual" if term == "error" else term]
        assert ours == pytest.approx(value, abs=5.1e-5)  # SAS printed four decimals


@pytest.mark.parametrize("name", ["synthetic1", "synthetic2", "synthetic3", "synthetic4"])
def test_brennan_published_tables(name, reference, shared_data):
    """Brennan (2001) prints four decimals of mean squares and components."""
    printed = reference(f"brennan_published_{name}")["values"]["published"]
    res = anova(reference(f"anova_brennan_{name}"), shared_data)
    table = res.anova_table()
    last = {"residual": "Residual", "item:person": "Residual"}
    for term, value in printed["vc"].items():
        ours = last.get(term, term)
        assert res.vcomp[ours] == pytest.approx(value, abs=5.1e-5)
        # The mean square of person:o in data set 3 is printed as 1.3383, but 12.05/9 is 1.3389.
        assert table.loc[ours, "mean_sq"] == pytest.approx(printed["MS"][term], abs=6e-4)
        assert table.loc[ours, "sum_sq"] == pytest.approx(printed["SS"][term], abs=5.1e-5)
        assert table.loc[ours, "df"] == printed["df"][term]
    coefficients = res.dstudy(object="person").table.iloc[0]
    # The book prints Eρ² and Φ with two or three decimals.
    assert coefficients["Erho2"] == pytest.approx(printed["Erho2"], abs=5.1e-3)
    assert coefficients["Phi"] == pytest.approx(printed["Phi"], abs=5.1e-3)


def test_brennan_missing_cells(reference, shared_data):
    """Brennan (2001), section 7: p × i with 13 of 72 cells missing; exact effective sizes."""
    printed = reference("brennan_published_missing_pxi")["values"]["published"]
    res = anova(reference("anova_brennan_missing_pxi"), shared_data)
    for term, value in printed["vc"].items():
        ours = "Residual" if term == "residual" else term
        assert res.vcomp[ours] == pytest.approx(value, abs=5.1e-5)
    table = res.dstudy(object="p").table.iloc[0]
    exact = reference("dstudy_brennan_missing_pxi")["values"]
    assert table["i"] == pytest.approx(exact["effective_n"]["i"], rel=1e-12)
    for column, key in (("rel_err_var", "sigma2_delta"), ("abs_err_var", "sigma2_Delta"),
                        ("Erho2", "Erho2"), ("Phi", "Phi")):  # fmt: skip
        assert table[column] == pytest.approx(exact[key], rel=1e-10)


def test_exact_effective_sizes_of_a_crossed_and_nested_design(reference, shared_data):
    res = anova(reference("anova_brennan_synthetic4_missing"), shared_data)
    exact = reference("dstudy_brennan_synthetic4_missing")["values"]
    table = res.dstudy(object="person").table.iloc[0]
    assert table["t"] == pytest.approx(exact["effective_n"]["t"], rel=1e-12)
    for column, key in (("rel_err_var", "sigma2_delta"), ("abs_err_var", "sigma2_Delta"),
                        ("Erho2", "Erho2"), ("Phi", "Phi")):  # fmt: skip
        assert table[column] == pytest.approx(exact[key], rel=1e-10)


def test_penicillin_with_cells_removed_is_far_off_and_says_so(shared_data):
    """Method I: residual .178, where REML and Type I say .291."""
    path = shared_data("Penicillin_unbal.csv")
    formula = "diameter ~ (1|plate) + (1|sample)"
    with pytest.warns(vcomp.VcompWarning, match=r"not fully crossed.*method='reml' is better"):
        by_anova = vcomp.fit(formula, path, method="anova")
    assert by_anova.vcomp["Residual"] == pytest.approx(0.178, abs=5e-4)
    assert vcomp.fit(formula, path).vcomp["Residual"] == pytest.approx(0.291, abs=1e-3)
