"""Tables, summaries and scales of D-studies, by their formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.helpers.printed_tables import printed_columns, printed_words
from vcomp.exceptions import PlanError
from vcomp.gtheory import from_components
from vcomp.gtheory.requirement import MeanOfScores, phi_lambda, read_cuts
from vcomp.gtheory.study_views import _fine, _horizontal, _label

NESTED = {"p": 0.5, "h": 0.1, "i:h": 0.3, "p:h": 0.2, "Residual": 1.4}


def known(**given):
    return from_components(NESTED, **given)


@pytest.fixture(scope="module")
def study():
    return known(sizes={"p": 40, "h": 4, "i": 5}, mean=3.0).dstudy(h=[2, 3], i=[10, 25, 7])


def test_every_effect_has_its_variance_and_divisor(study):
    """p x (i:h), Brennan's Tables 4.1 to 4.3: n is the product of the other facets' sizes."""
    for row in range(6):
        h, i = study.plan.sizes[row, [study.plan.facets.index(f) for f in "hi"]]
        found = study.effects(row)
        expected = {
            "p": (0.5, 1.0, 0.5, 0.0, 0.0),
            "h": (0.1, h, 0.0, 0.0, 0.1 / h),
            "p:h": (0.2, h, 0.0, 0.2 / h, 0.2 / h),
            "h:i": (0.3, h * i, 0.0, 0.0, 0.3 / (h * i)),
            "p:h:i": (1.4, h * i, 0.0, 1.4 / (h * i), 1.4 / (h * i)),
        }
        by_facets = {":".join(sorted(k.split(":"))): v for k, v in expected.items()}
        assert len(found) == 5
        for effect, values in found.drop(columns="components").iterrows():
            wanted = by_facets[":".join(sorted(effect.split(":")))]
            np.testing.assert_allclose(values.to_numpy(dtype=float), wanted, rtol=1e-12)
        sizes = [len(name.split(":")) for name in found.index]
        assert sizes == sorted(sizes)
        assert found.index[0] == "p"
    for bad in (6, -1, True, 0.0, "0"):
        with pytest.raises(PlanError, match="they are 0 to 5"):
            study.effects(bad)


def test_effects_of_another_design_hold_several_components():
    values = {"p": 4, "i": 2, "a": 1, "pi": 0.5, "pa": 0.3, "ia": 0.2, "pia": 0.7}
    found = from_components(values).dstudy("p x (a:i)", i=[3, 6], a=[2, 5], fixed="i").effects(1)
    by_parts = found.set_index("components")
    assert sorted(by_parts.index) == ["a + ia", "i", "p", "pa + pia", "pi"]
    for parts, n, universe, absolute in (
        ("p", 1, 4, 0), ("i", 3, 0, 0), ("a + ia", 15, 0, 1.2 / 15),
        ("pi", 3, 0.5 / 3, 0), ("pa + pia", 15, 0, 1 / 15),
    ):  # fmt: skip
        row = by_parts.loc[parts]
        variance = sum(values[name] for name in parts.split(" + "))
        relative = absolute if "p" in parts else 0
        np.testing.assert_allclose(
            row.to_numpy(dtype=float), [variance, n, universe, relative, absolute], rtol=1e-12
        )


def test_the_printed_table_is_the_table(study):
    printed, table = printed_columns(study.summary()), study.table
    for facet in "hi":
        assert printed[facet] == [f"{n:g}" for n in table[facet]]
    assert printed["Eρ²"] == [f"{x:.3f}" for x in table["Erho2"]]
    assert printed["Φ"] == [f"{x:.3f}" for x in table["Phi"]]
    for symbol, name in (("σ²(δ)", "rel_err_var"), ("σ²(Δ)", "abs_err_var")):
        decimals = 2 - math.floor(math.log10(table[name].min()))
        assert printed[symbol] == [f"{x:.{decimals}f}" for x in table[name]]
    for header, name in (("95 % interval", "Erho2"), ("95 % interval #2", "Phi")):
        ends = [[float(x) for x in cell.strip("[]").split(",")] for cell in printed[header]]
        np.testing.assert_allclose(ends, table[[f"{name}_low", f"{name}_high"]], atol=5.1e-4)
    words = printed_words(study.summary())
    assert "object of measurement: p" in words
    assert "levels of" not in words  # a size is required of one facet only, if there is one
    assert "Universe-score variance σ²(p) = 0.5." in words
    fixed = known().dstudy(h=[2, 4], i=10, fixed="h")
    # σ²(p | h) = σ²(p) + σ²(ph)/n
    assert "σ²(p | h) = 0.55 to 0.6." in printed_words(fixed.summary())
    assert "only the planned levels of h." in printed_words(fixed.summary())


@pytest.mark.parametrize("cut", [3.0, 3.04, 2.5, -1.0, 5.0])
def test_decisions_by_a_cut_score(study, cut):
    """(σ²(τ) + (μ − λ)² − var X̄)/(the same + σ²(Δ)), the middle never below zero."""
    v = {"p": 0.5, "h": 0.1, "i": 0.3, "ph": 0.2, "e": 1.4}
    of_mean = v["p"] / 40 + v["h"] / 4 + v["i"] / 20 + v["ph"] / 160 + v["e"] / 800
    away = max((3.0 - cut) ** 2 - of_mean, 0.0)
    found = study.phi_lambda([cut, 9.0])
    rows = found[found["cut"] == cut]
    assert len(rows) == 6
    for (h, i), x in zip(rows[["h", "i"]].to_numpy(), rows["estimate"], strict=True):
        error = (v["h"] + v["ph"]) / h + (v["i"] + v["e"]) / (h * i)
        assert x == pytest.approx((0.5 + away) / (0.5 + away + error), rel=1e-12)
    assert found["cut"].tolist() == [cut, 9.0] * 6


@pytest.mark.parametrize("cut", [1.0, 1.95, 2.0, 4.0])
def test_slopes_of_decisions(cut):
    u, e = np.array([1.0, 0.25, 0.0]), np.array([0.0, 0.1, 0.5])
    mean = MeanOfScores(np.array([2.0]), np.array([[0.09]]), is_mean=True)
    found = phi_lambda(u, e, mean, cut)
    v, beta, h = np.array([0.7, 0.4, 2.0]), np.array([2.0]), 1e-6
    signal = u @ v + max((2.0 - cut) ** 2 - 0.09, 0.0)
    assert found.function(v, beta) == pytest.approx(signal / (signal + e @ v), rel=1e-14)
    by_v, by_beta = found.slopes(v, beta)
    for k, step in enumerate(h * np.eye(3)):
        rate = (found.function(v + step, beta) - found.function(v - step, beta)) / (2 * h)
        assert by_v[k] == pytest.approx(rate, abs=1e-9)
    rate = (found.function(v, beta + h) - found.function(v, beta - h)) / (2 * h)
    assert by_beta == pytest.approx([rate], abs=1e-9)
    assert np.isnan(phi_lambda(u, e, mean, 2.0).function(np.zeros(3), beta))
    assert phi_lambda(u, e, mean, 5.0).function(np.zeros(3), beta) == 1.0


def test_cut_scores_are_read():
    assert read_cuts(np.array([0.5, 1.0])) == [0.5, 1.0]
    assert read_cuts(np.float64(2.0)) == [2.0]
    assert read_cuts(3) == [3.0]
    for bad in ([], [True], [0.2, np.nan], "0.5", None, [np.inf], np.array(0.5)):
        with pytest.raises(PlanError, match="cut"):
            read_cuts(bad)


@pytest.mark.parametrize(
    ("planned", "required", "largest", "low", "high"),
    [
        ([5, 20], [], math.inf, 5, 20),
        ([8], [], math.inf, 2, 16),
        ([3], [], math.inf, 1, 6),
        ([0.5], [], math.inf, 0.5, 1),
        ([5, 20], [2, 80, 81, math.inf], math.inf, 2, 80),
        ([5, 20], [80], 50.0, 5, 50),
        ([5, 20], [30], 20.0, 5, 20),
        ([5, 20], [50], 50.0, 5, 50),
    ],
)
def test_sizes_of_a_curve(planned, required, largest, low, high):
    """From the smallest to the largest planned or required one, if that is not far off."""
    fine = _fine(np.array(planned, dtype=float), required, largest)
    assert fine[0] == pytest.approx(low, rel=1e-12)
    if math.isinf(largest):
        assert fine[-1] == pytest.approx(high, rel=1e-12)
        assert fine.size >= 100
    else:
        assert 0.9 * high < fine[-1] <= high
        assert fine[fine < max(planned)].size > 20
    assert (np.diff(fine) > 0.0).all()
    assert set(planned) <= set(fine.tolist())
    assert largest in planned or largest not in fine.tolist()  # a whole universe has no error
    ratios = np.diff(np.log(np.setdiff1d(fine, planned)))
    assert ratios.max() < 2.5 * np.median(ratios)


def test_the_horizontal_axis(study):
    plan = study.plan
    assert _horizontal(plan, None) == "i"
    assert _horizontal(plan, "h") == "h"
    with pytest.raises(PlanError, match="'p' has no size in this D-study"):
        _horizontal(plan, "p")
    assert _label(plan, "i", ["h"]) == "levels of i in each h"
    assert _label(plan, "h", ["i"]) == "levels of h"
    one = known().dstudy(h=[2, 3], i=10).plan
    assert _label(one, "h", ["i"]) == "levels of h  (with i = 10)"
    assert _horizontal(one, None) == "h"
    values = {"p": 1.0, "i": 1.0, "pi": 1.0, "Residual": 1.0}
    repeated = from_components(values).dstudy(i=5, replicate=[1, 2, 3]).plan
    assert _horizontal(repeated, None) == "i"
