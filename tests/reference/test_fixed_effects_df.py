"""Degrees of freedom of fixed effects against lmerTest and pbkrtest."""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from tests.helpers.reference_frames import formula_of, frame_of

SETS = ["sleepstudy_ri", "orthodont_ri"]
# The contrasts of R's type III table: the slope for age is the mean of both sexes'.
TYPE_3 = {
    "sleepstudy_ri": {"Days": [0.0, 1.0]},
    "orthodont_ri": {
        "Sex": [0.0, 1.0, 0.0, 0.0],
        "age": [0.0, 0.0, 1.0, 0.5],
        "Sex:age": [0.0, 0.0, 0.0, 1.0],
    },
}
# lmerTest differentiates numerically, at lmer's optimum: seven to eight digits.
CLOSE = 2e-7


@pytest.fixture(scope="module", params=SETS)
def case(request, reference, shared_data):
    stored = reference(f"lme4_{request.param}")
    data = frame_of(stored, shared_data)
    return request.param, stored["values"]["lmerTest"], vcomp.fit(formula_of(stored), data)


@pytest.mark.parametrize("ddf", ["satterthwaite", "kenward-roger"])
def test_coefficients(case, ddf):
    _, stored, res = case
    rows = list(stored[ddf.replace("-", "_")].values())
    table = res.fixed_effects(ddf=ddf)
    for ours, theirs in (("df", "df"), ("std_error", "se"), ("t", "t"), ("coef", "estimate")):
        expected = [row[theirs] for row in rows]
        np.testing.assert_allclose(table[ours], expected, rtol=CLOSE, err_msg=ours)
    # A tail probability is some dozens of times as sensitive as its quantile.
    np.testing.assert_allclose(table["p_value"], [row["p"] for row in rows], rtol=1e-5)


@pytest.mark.parametrize("ddf", ["satterthwaite", "kenward-roger"])
def test_type_3_rows(case, ddf):
    name, stored, res = case
    for term, expected in stored[f"anova_type3_{ddf.replace('-', '_')}"].items():
        found = res.f_test(TYPE_3[name][term], ddf=ddf)
        assert found.statistic == pytest.approx(expected["F"], rel=CLOSE)
        assert found.df == pytest.approx((expected["numdf"], expected["dendf"]), rel=CLOSE)
        assert found.p_value == pytest.approx(expected["p"], rel=1e-5)


def test_type_1_row_of_a_factor_between_subjects(case):
    """R's sequential row for Sex: a contrast of the sexes at the mean age, with df 25 exactly."""
    name, stored, res = case
    if name != "orthodont_ri":
        return
    expected = stored["anova_type1_satterthwaite"]["Sex"]
    found = res.f_test([[0.0, 1.0, 0.0, 11.0]])
    assert found.statistic == pytest.approx(expected["F"], rel=CLOSE)
    assert found.df[1] == pytest.approx(25.0, rel=1e-9)
