"""Intervals of single components and of their total against R's VCAinference.

VCA's "SAS" intervals are Wald's; its Satterthwaite intervals take the mean squares as independent,
which they are in balanced designs: there ours are the same, elsewhere ours have the exact
variances. `lcl` and `ucl` are printed with 15 digits.
"""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from tests.helpers.reference_frames import formula_of, frame_of

BALANCED = [
    "CA19_9_P1", "CA19_9_P2", "CA19_9_P5", "CA19_9_Q3", "Glucose", "adhoc3",
    "brennan_synthetic1", "brennan_synthetic2", "brennan_synthetic3", "brennan_synthetic4",
    "dataEP05A2_1", "dataEP05A2_2", "dataEP05A3_MS_1", "dyestuff", "dyestuff2", "pastes",
    "penicillin",
]  # fmt: skip
UNBALANCED = [
    "MLrepro", "brennan_missing_pxi", "brennan_synthetic1_unbal", "brennan_synthetic2_unbal",
    "brennan_synthetic4_missing", "dataEP05A2_1_unbal", "dataEP05A2_2_unbal",
    "dataEP05A3_MS_1_unbal", "penicillin_unbal",
]  # fmt: skip


def printed(block, names, side="TwoSided"):
    rows = block["VC"][side]
    ends = [[rows["error" if n == "Residual" else n][e] for e in ("lcl", "ucl")] for n in names]
    return np.array(ends, dtype=float)


def fitted(name, reference, shared_data):
    stored = reference(f"anova_{name}")
    res = vcomp.fit(formula_of(stored), frame_of(stored, shared_data), method="type1")
    return res, list(res.vcomp.index), reference(f"vca_{name}")["values"]


@pytest.mark.parametrize("name", BALANCED + UNBALANCED)
def test_wald(name, reference, shared_data):
    res, names, values = fitted(name, reference, shared_data)
    for alpha, block in ((0.05, "ci95_sas_unconstrained"), (0.1, "ci90_sas_unconstrained")):
        found = res.conf_int(alpha, interval="wald").iloc[1:].to_numpy()
        expected = printed(values[block], names)
        # VCA's residual (and it alone) has the χ² interval here too.
        residual = res.conf_int(alpha, interval="satterthwaite").iloc[-1].to_numpy()
        scale = np.abs(expected).max(axis=1, keepdims=True)
        # Differences of sums in R's last digits; MLrepro's sums are a thousand times as large.
        tolerance = 1e-7 if name == "MLrepro" else 1e-9
        np.testing.assert_allclose(found[:-1] / scale[:-1], expected[:-1] / scale[:-1],
                                   atol=tolerance)  # fmt: skip
        np.testing.assert_allclose(residual, expected[-1], rtol=1e-9)


@pytest.mark.parametrize("name", BALANCED)
def test_satterthwaite(name, reference, shared_data):
    res, names, values = fitted(name, reference, shared_data)
    expected = printed(values["ci95_satterthwaite"], names)
    found = res.conf_int(interval="satterthwaite").iloc[1:].to_numpy()
    positive = res.vcomp.to_numpy() > 0.0
    # Of an estimate with next to no degrees of freedom VCA prints NA or 0, and ours is [0, ∞].
    known = positive & np.isfinite(expected).all(axis=1) & np.isfinite(found).all(axis=1)
    assert known.any()
    np.testing.assert_allclose(found[known], expected[known], rtol=1e-7)


@pytest.mark.parametrize("name", [n for n in BALANCED if n != "dyestuff2"])
def test_satterthwaite_of_the_total(name, reference, shared_data):
    res, _, values = fitted(name, reference, shared_data)
    if (res.vcomp < 0.0).any():
        # VCA's total leaves negative components out.
        assert res.quantity("total").estimate < values["anova_constrained"]["total"]["VC"]
        return
    total = values["ci95_satterthwaite"]["VC"]["TwoSided"]["total"]
    found = res.quantity("total", interval="satterthwaite")
    assert found.estimate == pytest.approx(values["anova_negvc"]["total"]["VC"], rel=1e-9)
    assert 2 * (found.estimate / found.se) ** 2 == pytest.approx(total["df"], rel=1e-9)
    np.testing.assert_allclose([found.low, found.high], [total["lcl"], total["ucl"]], rtol=1e-9)
