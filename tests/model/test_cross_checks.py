"""Differences between methods beside drawn ones, at the limits of what is marked."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.printed_tables import printed_columns, printed_words
from vcomp.model.cross_checks import CrossCheck, _compared, _tables


def drawn(n=40, expected=2.0, spread=0.5):
    """Return differences with this mean and standard deviation, the largest 1.6 of them away."""
    x = np.linspace(-1.0, 1.0, n)
    return (expected + spread * x / x.std(ddof=1))[:, np.newaxis]


def own(n=40, error=1.0):
    return drawn(n, 7.0, error)


def found(difference, apart, beside):
    made = _compared(np.array([difference]), apart, beside)
    return {name: column[0] for name, column in made.items()}


@pytest.mark.parametrize(
    ("z", "differs"),
    [
        (3.01, True),
        (2.99, False),
        (-3.01, True),
        (-2.99, False),
        (0.5, False),
        (5.0, True),
        (-5.0, True),
    ],
)
def test_three_standard_errors_and_beyond_all_draws(z, differs):
    made = found(2.0 + 0.5 * z, drawn(), own())
    assert made["expected"] == pytest.approx(2.0)
    assert made["std_error"] == pytest.approx(0.5)
    assert made["z"] == pytest.approx(z)
    assert made["differs"] == differs
    # One draw that is farther away explains it.
    for far in (2.0 + 0.5 * (z + 0.1), 2.0 + 0.5 * z, 2.0 + 0.5 * (z - 0.1)):
        apart = np.append(drawn(400), [[far]], axis=0)
        beyond = abs(far - 2.0) >= abs(0.5 * z)
        assert found(2.0 + 0.5 * z, apart, own(401))["differs"] == (
            abs(z) > 3 and not beyond and abs((0.5 * z) / apart.std(ddof=1)) > 3
        )


@pytest.mark.parametrize(("away", "differs"), [(0.101, True), (0.099, False)])
def test_little_differences_are_not_marked(away, differs):
    """They are at least a tenth of a standard error of the estimate from the expected one."""
    made = found(2.0 - away, drawn(spread=0.01), own())
    assert abs(made["z"]) > 9.0
    assert made["differs"] == differs


@pytest.mark.parametrize(
    ("difference", "expected", "is_zero"),
    [(0.9e-4, 5.0, True), (1.1e-4, 5.0, False), (5.0 + 0.9e-4, 5.0, True), (5.01, 5.0, False)],
)
def test_methods_agree_to_tolerances(difference, expected, is_zero):
    made = found(difference, drawn(expected=expected, spread=1e-9), own())
    assert (made["z"] == 0.0) == is_zero
    if not is_zero:  # the spread is that of tolerances at least
        assert made["z"] == pytest.approx((difference - expected) / 1e-4, rel=1e-6)


@pytest.mark.parametrize(("failed", "known"), [(20, True), (21, False)])
def test_twenty_drawn_data_sets_are_needed(failed, known):
    apart, beside = drawn(), own()
    apart[:failed] = np.nan
    made = found(9.0, apart, beside)
    assert np.isfinite([made["expected"], made["std_error"], made["z"]]).all() == known
    assert made["differs"] == known
    assert made["difference"] == 9.0
    if known:
        assert made["expected"] == pytest.approx(drawn()[20:].mean())
        assert made["std_error"] == pytest.approx(drawn()[20:].std(ddof=1))


def test_tables_compare_each_method_with_the_fit():
    """Of three methods whose drawn estimates spread far more than those of the fit."""
    rng = np.random.default_rng(3)
    a = np.repeat(np.arange(6), 4)
    x = 7.0 + rng.normal(size=24)
    y = 90.0 + 2.0 * x + rng.normal(size=6)[a] + rng.normal(size=24)
    access = vcomp.fit("y ~ x + (1|a)", {"y": y, "x": x, "a": a})._row_access
    estimate, design = access.estimate, access.model.design
    drawn = rng.normal(size=(60, 4, 4)) * np.array([1.0, 50.0, 200.0, 9.0])[:, None]
    others = []
    for shift, name in ((5e-4, "one"), (-3.0, "two"), (400.0, "three")):
        moved = replace(estimate, values=estimate.values + shift, beta=estimate.beta + shift)
        others.append((SimpleNamespace(estimator=SimpleNamespace(name=name)), moved))
    components, fixed = _tables(access, others, drawn)
    # Sums are of the centred covariate and the response less its origin.
    uncentred = np.array([[1.0, -design.x_origin[1]], [0.0, 1.0]])
    for table, part, into, own in (
        (components, slice(0, 2), np.eye(2), estimate.values),
        (fixed, slice(2, 4), uncentred, uncentred @ estimate.beta + [design.origin, 0.0]),
    ):
        assert table["method"].tolist() == ["one"] * 2 + ["two"] * 2 + ["three"] * 2
        for place, (shift, rows) in enumerate(zip((5e-4, -3.0, 400.0), (0, 2, 4), strict=True), 1):
            found = table.iloc[rows : rows + 2]
            apart = (drawn[:, place, part] - drawn[:, 0, part]) @ into.T
            difference = into @ np.full(2, shift)
            np.testing.assert_allclose(found["difference"], difference, rtol=1e-6)
            np.testing.assert_allclose(found["estimate"], own + difference, rtol=1e-9)
            np.testing.assert_allclose(found["expected"], apart.mean(axis=0), rtol=1e-9)
            spread = apart.std(axis=0, ddof=1)
            np.testing.assert_allclose(found["std_error"], spread, rtol=1e-9)
            z = (difference - apart.mean(axis=0)) / spread
            np.testing.assert_allclose(found["z"], z, rtol=1e-6)


def check(table, fixed=None, **more):
    columns = ["coefficient", "method", "estimate", "difference", "expected", "std_error", "z"]
    fixed = pd.DataFrame(columns=[*columns, "differs"]) if fixed is None else fixed
    given = {"excluded": {}, "method": "reml", "n": 1200, "seed": 5} | more
    return CrossCheck(table, fixed.astype({"differs": bool}), **given)


def rows(differs=(False, True, False, False), error=0.25):
    return pd.DataFrame(
        {
            "component": ["a", "Residual", "a", "Residual"],
            "method": ["ml", "ml", "anova", "anova"],
            "estimate": [1.5, 4.0, 2.5, 4.25],
            "difference": [-0.5, 0.125, 0.5, 0.375],
            "expected": [0.1, -0.2, 0.3, 0.4],
            "std_error": [error] * 4,
            "z": [0.5, -3.25, 1.0, 2.0],
            "differs": list(differs),
        }
    )


def test_the_summary_has_all_estimates_and_marks():
    made = check(rows(), excluded={"minque": "does not apply: why."})
    printed, words = printed_columns(made.summary()), printed_words(made.summary())
    assert printed[""] == ["a", "Residual"]
    assert [float(x) for x in printed["reml"]] == [2.0, 3.875]
    assert printed["ml"][1].endswith(" *")
    assert [float(x.rstrip(" *")) for x in printed["ml"]] == [1.5, 4.0]
    assert [float(x) for x in printed["anova"]] == [2.5, 4.25]
    assert (
        "* σ²(Residual) by ml differs by 0.125; expected is -0.2 ± 0.25 (z = -3.2)" in words
        or ("(z = -3.3)" in words)
    )
    assert "More than sampling error explains" in words
    assert "minque: does not apply: why." in words
    assert "from 1,200 data sets drawn from the fit by reml, seed 5." in words
    assert made.agrees is False


def test_agreement_in_words():
    agreed = check(rows(differs=[False] * 4))
    assert agreed.agrees is True
    assert "No method differs by more" in printed_words(agreed.summary())
    unknown = check(rows(differs=[False] * 4, error=np.nan))
    assert unknown.agrees is None
    assert "at least 20 drawn data sets are needed" in printed_words(unknown.summary())
    fixed = rows().rename(columns={"component": "coefficient"}).iloc[1:2]
    of_mean = check(rows(differs=[False] * 4), fixed.assign(coefficient="x"))
    assert of_mean.agrees is False
    assert "* x by ml differs by 0.125" in printed_words(of_mean.summary())
