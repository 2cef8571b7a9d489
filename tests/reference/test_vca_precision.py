"""Precision of methods against R's VCA: SD, CV, degrees of freedom and intervals of the total.

VCA prints each component and their total, which is within-laboratory precision of one site and
reproducibility of several. What is between follows from its covariance matrix of components.
"""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from tests.helpers.reference_frames import formula_of, frame_of

ONE_SITE = ["dataEP05A2_1", "dataEP05A2_2"]
SEVERAL = ["CA19_9_P1", "CA19_9_P2", "CA19_9_P5", "CA19_9_Q3", "dataEP05A3_MS_1"]


@pytest.mark.parametrize("name", ONE_SITE + SEVERAL)
def test_precision(name, reference, shared_data):
    stored = reference(f"anova_{name}")
    res = vcomp.fit(formula_of(stored), frame_of(stored, shared_data), method="anova")
    values = reference(f"vca_{name}")["values"]
    found = vcomp.presets.precision(res)
    assert found.mean == pytest.approx(values["mean"], rel=1e-12)
    assert found.laboratory == ("site" if name in SEVERAL else None)
    last = "reproducibility" if name in SEVERAL else "within-laboratory"
    assert found.table.index[0] == "repeatability"
    assert found.table.index[-1] == last
    printed = values["anova_negvc"]
    rows = {last: "total", "repeatability": "error"}
    compared = [(found.table.loc[ours], theirs) for ours, theirs in rows.items()]
    compared += [(found.sources.loc[f"between {term}"], term) for term in res.vcomp.index[:-1]]
    ends = values["ci95_satterthwaite"]["SD"]["TwoSided"]
    for row, theirs in compared:
        if not printed[theirs]["VC"] > 0.0:
            continue
        assert row["variance"] == pytest.approx(printed[theirs]["VC"], rel=1e-9)
        assert row["sd"] == pytest.approx(printed[theirs]["SD"], rel=1e-9)
        assert row["cv"] == pytest.approx(printed[theirs]["CV_percent"], rel=1e-9)
        assert row["df"] == pytest.approx(ends[theirs]["df"], rel=1e-8)
        # VCA's quantiles of next to no degrees of freedom are those of R, with fewer digits.
        if ends[theirs]["df"] > 0.1:
            limits = row[["sd_low", "sd_high"]].astype(float)
            expected = [ends[theirs]["lcl"], ends[theirs]["ucl"]]
            np.testing.assert_allclose(limits, expected, rtol=1e-7)


@pytest.mark.parametrize("name", ONE_SITE + SEVERAL)
def test_conditions_between(name, reference, shared_data):
    stored = reference(f"anova_{name}")
    res = vcomp.fit(formula_of(stored), frame_of(stored, shared_data), method="anova")
    values = reference(f"vca_{name}")["values"]
    covariance = values["vcov_vc_scm"]
    names = ["Residual" if n == "error" else n for n in covariance["names"]]
    printed = values["anova_negvc"]
    row = vcomp.presets.precision(res).table.iloc[1]
    terms = vcomp.presets.precision(res).conditions[row.name]
    assert len(terms) == 2
    w = np.isin(names, terms).astype(float)
    variance = sum(printed["error" if t == "Residual" else t]["VC"] for t in terms)
    se = np.sqrt(w @ np.array(covariance["matrix"], dtype=float) @ w)
    assert row["variance"] == pytest.approx(variance, rel=1e-9)
    assert row["se"] == pytest.approx(se, rel=1e-9)
    assert row["df"] == pytest.approx(2 * (variance / se) ** 2, rel=1e-8)
