"""Type I and Henderson III against exact arithmetic, R's VCA and SAS.

The values were computed with projections in independent code, which equals R/VCA;
``hm3_each_last`` holds additive models, where every term is adjusted for all others.
"""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from tests.helpers.reference_frames import by_name, formula_of, frame_of
from vcomp.estimators.quadratic.closed_form import Henderson3, Type1

TYPE1 = [
    "CA19_9_P1", "CA19_9_P2", "CA19_9_P5", "CA19_9_Q3", "Glucose", "MLrepro", "adhoc3",
    "adhoc3_drop25", "adhoc3_unbal", "brennan_missing_pxi", "brennan_synthetic1",
    "brennan_synthetic1_unbal", "brennan_synthetic2", "brennan_synthetic2_unbal",
    "brennan_synthetic3", "brennan_synthetic4", "brennan_synthetic4_missing", "dataEP05A2_1",
    "dataEP05A2_1_unbal", "dataEP05A2_2", "dataEP05A2_2_unbal", "dataEP05A3_MS_1",
    "dataEP05A3_MS_1_unbal", "dyestuff", "dyestuff2", "genomics2004", "narayanan2010",
    "novelty_small", "novelty_small_missing", "orthodont_ri", "pastes", "penicillin",
    "penicillin_unbal", "sleepstudy_ri",
]  # fmt: skip
HENDERSON3 = [
    "adhoc3", "adhoc3_drop25", "adhoc3_unbal", "brennan_missing_pxi", "brennan_synthetic1",
    "brennan_synthetic1_unbal", "genomics2004", "penicillin", "penicillin_unbal",
]  # fmt: skip


def assert_table(table, expected):
    names = list(expected["order"])
    assert list(table.names) == names
    total = sum(expected["ss"].values())
    np.testing.assert_allclose(
        table.sum_sq, by_name(expected["ss"], names), rtol=1e-11, atol=1e-14 * total
    )
    coefficients = np.array(expected["ss_coef"])
    np.testing.assert_allclose(
        table.expected * table.df[:, None], coefficients, rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("name", TYPE1)
@pytest.mark.rounding
def test_type1(name, reference, shared_data):
    stored = reference(f"anova_{name}")
    expected = stored["values"]["type1"]
    model = vcomp.VarianceComponentsModel(formula_of(stored), frame_of(stored, shared_data))
    table, res = Type1().table(model.statistics, model.component_names), model.fit("type1")
    names = expected["order"]
    assert_table(table, expected)
    np.testing.assert_array_equal(table.df, by_name(expected["df"], names))
    np.testing.assert_allclose(table.expected, expected["ems_coef"], rtol=1e-10, atol=1e-10)
    # Components are differences of mean squares, which are rounded to some 1e-15 of their size.
    rounding = 1e-14 * (table.sum_sq / table.df).max()
    np.testing.assert_allclose(
        res.vcomp, by_name(expected["vc"], names), rtol=1e-11, atol=rounding
    )
    covariance = np.array(expected["cov_vc"])
    scale = np.sqrt(np.outer(np.diagonal(covariance), np.diagonal(covariance)))
    np.testing.assert_allclose(res.cov_vcomp() / scale, covariance / scale, atol=1e-12)
    np.testing.assert_allclose(res.bse_vcomp, by_name(expected["se"], names), rtol=1e-12)


@pytest.mark.parametrize("name", HENDERSON3)
def test_henderson3(name, reference, shared_data):
    stored = reference(f"anova_{name}")
    expected = stored["values"]["hm3_each_last"]
    model = vcomp.VarianceComponentsModel(stored["formula"], frame_of(stored, shared_data))
    assert_table(Henderson3().table(model.statistics, model.component_names), expected)
    names = expected["order"]
    res = model.fit("henderson3")
    np.testing.assert_allclose(res.vcomp, by_name(expected["vc"], names), rtol=1e-12)


VCA = [
    "CA19_9_P1", "CA19_9_P2", "CA19_9_P5", "CA19_9_Q3", "Glucose", "MLrepro", "adhoc3",
    "adhoc3_unbal", "brennan_missing_pxi", "brennan_synthetic1", "brennan_synthetic1_unbal",
    "brennan_synthetic2", "brennan_synthetic2_unbal", "brennan_synthetic3", "brennan_synthetic4",
    "brennan_synthetic4_missing", "dataEP05A2_1", "dataEP05A2_1_unbal", "dataEP05A2_2",
    "dataEP05A2_2_unbal", "dataEP05A3_MS_1", "dataEP05A3_MS_1_unbal", "dyestuff", "dyestuff2",
    "novelty_small", "pastes", "penicillin", "penicillin_unbal",
]  # fmt: skip


def assert_as_vca(model, values):
    """VCA prints some 15 digits of sums that its sweeps leave with about 10."""
    table, res = Type1().table(model.statistics, model.component_names), model.fit("type1")
    names = ["error" if n == "Residual" else n for n in model.component_names]
    rows = [values["anova_negvc"][n] for n in names]
    total = sum(row["SS"] for row in rows)
    np.testing.assert_array_equal(table.df, [row["DF"] for row in rows])
    np.testing.assert_allclose(
        table.sum_sq, [r["SS"] for r in rows], rtol=1e-9, atol=1e-11 * total
    )
    scale = max(row["VC"] for row in rows)
    np.testing.assert_allclose(res.vcomp, [r["VC"] for r in rows], rtol=1e-7, atol=1e-9 * scale)
    stored = values.get("vcov_vc_scm")
    if stored is not None:
        assert stored["names"] == names
        covariance = np.array(stored["matrix"])
        at = np.sqrt(np.outer(np.diagonal(covariance), np.diagonal(covariance)))
        np.testing.assert_allclose(res.cov_vcomp() / at, covariance / at, atol=1e-8)
    return res


@pytest.mark.parametrize("name", VCA)
def test_r_vca(name, reference, shared_data):
    stored = reference(f"anova_{name}")
    model = vcomp.VarianceComponentsModel(formula_of(stored), frame_of(stored, shared_data))
    assert_as_vca(model, reference(f"vca_{name}")["values"])


def test_order_of_the_formula(reference, shared_data):
    """The same unbalanced data with the terms the other way round."""
    model = vcomp.VarianceComponentsModel(
        "diameter ~ (1|sample) + (1|plate)", shared_data("Penicillin_unbal.csv")
    )
    assert_as_vca(model, reference("vca_penicillin_unbal_rev")["values"])


def test_covariate_and_its_generalised_least_squares(reference, shared_data):
    values = reference("vca_sleepstudy")["values"]
    model = vcomp.VarianceComponentsModel(
        "Reaction ~ Days + (1|Subject)", shared_data("sleepstudy.csv")
    )
    res = assert_as_vca(model, values)
    fixed = [values["fixef"][name] for name in ("int", "Days")]
    np.testing.assert_allclose(res.fe_params, [f["Estimate"] for f in fixed], rtol=1e-11)
    np.testing.assert_allclose(res.bse_fe, [f["SE"] for f in fixed], rtol=1e-9)


def test_fixed_factor(reference, shared_data):
    values = reference("vca_dataEP05A2_2_dayfixed")["values"]
    model = vcomp.VarianceComponentsModel(
        "y ~ C(day) + (1|day:run)", shared_data("dataEP05A2_2.csv")
    )
    res = assert_as_vca(model, values)
    # VCA takes the last day as the reference, we the first.
    day2 = values["fixef"]["day2"]["Estimate"] - values["fixef"]["day1"]["Estimate"]
    assert res.fe_params["C(day)[T.2]"] == pytest.approx(day2, rel=1e-10)


def test_8070_rows_take_milliseconds_and_have_standard_errors(reference, shared_data):
    """HugeData: R/VCA took 26 s and 1.9 GiB, and gave no covariance."""
    model = vcomp.VarianceComponentsModel("y ~ (1|VC1) + (1|VC1:VC2)", shared_data("HugeData.csv"))
    res = assert_as_vca(model, reference("vca_HugeData")["values"])
    np.testing.assert_allclose(res.bse_vcomp, model.fit("anova").bse_vcomp, rtol=1e-9)
    sas = [row for row in reference("sas_published_vca_tests")["values"]["components"]
           if row["dataset"] == "HugeData"]  # fmt: skip
    for term, value in sas[0]["vc"].items():
        ours = res.vcomp["Residual" if term == "error" else term]
        assert ours == pytest.approx(value, abs=5.1e-5)  # SAS printed four decimals


def test_insteval(shared_data):
    """73,421 rows, 2,972 × 1,128 × 14 levels: every term, with its error."""
    model = vcomp.VarianceComponentsModel(
        "y ~ (1|dept) + (1|d) + (1|s)", shared_data("InstEval.csv")
    )
    table = Type1().table(model.statistics, model.component_names)
    # Instructors are nested in departments; students and instructors are connected.
    assert table.df.tolist() == [13.0, 1114.0, 2971.0, 73421.0 - 1128.0 - 2971.0]
    assert table.sum_sq.sum() == pytest.approx(model.statistics.cross_products.yy, rel=1e-12)
    by_reml, by_type1 = model.fit("reml"), model.fit("type1")
    by_henderson = model.fit("henderson3")
    assert (by_type1.bse_vcomp > 0.0).all()
    assert (by_henderson.bse_vcomp > 0.0).all()
    # The adjusted estimates of the large terms are within two standard errors of REML.
    for name in ("d", "s", "Residual"):
        distance = abs(by_henderson.vcomp[name] - by_reml.vcomp[name])
        assert distance < 2.0 * by_henderson.bse_vcomp[name]
