"""What deviations matter for: one alone, sure or not, large or small, of few levels or many."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from vcomp.inference.assumptions import TwoWayTable
from vcomp.inference.assumptions.two_way_table import findings_of
from vcomp.inference.assumptions.verdicts import Deviation, OutlyingRows, verdicts_of

SMALL = {
    "normality": 0.9, "outliers": 0.9, "equal variances": 0.4, "uncorrelated": 0.1,
    "uncorrelated effects": 0.1, "additivity": 0.04,
}  # fmt: skip
KINDS = ("Components", "Default", "Intervals", "F test", "Eτ", "Required", "Drawn")
MATTERS = {
    # assumption: what it matters for of these where it is small, and where it is large
    "normality": ("no no slightly no no no slightly", "no no yes no no no yes"),
    "outliers": ("slightly no slightly no no no no", "slightly no yes no no no no"),
    "equal variances": ("no no slightly no no slightly slightly", "no no yes no no slightly yes"),
    "uncorrelated": ("no slightly no no no no slightly", "no slightly no no no no yes"),
    "uncorrelated effects": ("no no no no no slightly no", "no no no no no yes no"),
    "additivity": ("no no no no no slightly slightly", "no no no no no yes yes"),
}
SIZES = {"topic": 20, "system": 20}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    y = 9.0 + rng.normal(size=(30, 1)) + rng.normal(size=6) + 0.5 * rng.normal(size=(30, 6))
    return findings_of(TwoWayTable.of(y), 19, rng)


def answers(found, sizes, *tables):
    made = verdicts_of(found, sizes, tables)
    return {kind: v for kind in KINDS for v in made if v.number.startswith(kind)}


@pytest.mark.parametrize("assumption", MATTERS)
def test_one_deviation_alone(assumption, table):
    for size, expected in zip((1.0, 3.0), MATTERS[assumption], strict=True):
        for sign in (1.0, -1.0):
            effect = sign * size * SMALL[assumption]
            one = Deviation(assumption, "elsewhere", effect, 0.05, 0.0)
            found = answers([one], SIZES, table)
            assert [found[kind].matters for kind in KINDS] == expected.split()
            unsure = answers([replace(one, p=0.051)], SIZES, table)
            assert {v.matters for v in unsure.values()} == {"no"}
    large = 3.0 * SMALL[assumption]
    for effect, skewness, is_large in (
        (large, 0.0, True), (-large, 0.0, True), (0.0, large, True), (0.0, -large, True),
        (0.0, 0.0, False),
    ):  # fmt: skip
        assert Deviation(assumption, "x", effect, 0.01, skewness).is_large == is_large
        assert not Deviation(assumption, "x", effect, 0.06, skewness).is_large


def test_few_levels():
    """Fewer than twenty of any facet; of τ those of the rows, for deviations of the residuals."""
    residuals = [Deviation("normality", "residuals", 2.0, 0.001, 0.0)]
    for n, matters in ((19, "slightly"), (20, "no")):
        found = answers(residuals, {"topic": n, "system": 50})
        assert found["Default"].matters == matters
        if n == 19:
            assert found["Default"].because.endswith("fewer than 20 topics.")
        assert answers([], {"topic": n})["Default"].matters == "no"
    found = answers(residuals, {"sys": 3, "topic": 5})["Default"].because
    assert found.endswith("fewer than 20 topics or levels of sys.")


def test_few_levels_of_rows_for_tau(table):
    residuals = [Deviation("outliers", "residuals", 2.0, 0.001, 0.0)]
    for n, matters in ((19, "slightly"), (20, "no")):
        assert answers(residuals, {"topic": n, "system": 5}, table)["Eτ"].matters == matters
        other = [replace(residuals[0], of="topic")]
        assert answers(other, {"topic": n, "system": 5}, table)["Eτ"].matters == "no"
    assert "Eτ" not in answers(residuals, SIZES)


@pytest.mark.parametrize("kurtosis", [0.5, 6.0])
def test_the_kurtosis_widens_standard_errors(kurtosis):
    """Var(s²) = σ⁴ (2 + κ)/n: the standard error is √(1 + κ/2) times that of normal effects."""
    found = [
        Deviation("normality", "topic", kurtosis, 0.01, 0.0),
        Deviation("normality", "system", 0.1 * kurtosis, 0.01, 0.0),
    ]
    because = answers(found, SIZES)["Intervals"].because
    factor = re.search(r"kurtosis of topic .* about (\S+) times", because).group(1)
    assert float(factor) == pytest.approx(np.sqrt(1 + kurtosis / 2), abs=0.06)
    for effect in (-0.5, 0.0):
        light = answers([replace(found[0], effect=effect)], SIZES)["Intervals"].because
        assert "They assume normal effects of one variance, and topic deviate" in light


@pytest.mark.parametrize(
    ("level", "matters"),
    [(0.0649, "no"), (0.065, "slightly"), (0.0999, "slightly"), (0.1, "yes")],
)
def test_f_tests_by_their_true_level(level, matters, table):
    own = replace(table, f_level=level)
    for of in ("residuals of every two systems over topic", "system with topic effects",
               "residuals by system"):  # fmt: skip
        one = Deviation("uncorrelated", of, 0.5, 0.01, 0.0)
        assert answers([one], SIZES, own)["F test"].matters == matters
        assert answers([replace(one, p=0.5)], SIZES, own)["F test"].matters == "no"
    assert answers([replace(one, of="topic")], SIZES, own)["F test"].matters == "no"


@pytest.mark.parametrize(("power", "shift"), [(2.0, 0.0), (1.0, 0.0), (2.0, -16.0), (2.0, None)])
def test_scores_that_are_a_power_of_a_sum_get_the_root_back(power, shift):
    """(t + s)² is additive to the power ½; scores below zero have no power."""
    rng = np.random.default_rng(6)
    y = (4.0 + rng.normal(size=(40, 1)) * 0.3 + 0.3 * rng.normal(size=8)) ** power
    y += 1e-3 * rng.normal(size=y.shape)
    y += -y.min() if shift is None else shift  # None: 0 is the lowest score
    found = findings_of(TwoWayTable.of(y), 19, rng)
    one = Deviation("additivity", "system and topic", 1.0, 0.01, 0.0)
    because = answers([one], SIZES, found)["Required"].because
    match = re.search(r"to the power (\S+) would be more nearly additive", because)
    if shift is None:
        assert match is not None
    elif (y > 0.0).all():
        assert float(match.group(1)) == pytest.approx(1.0 / power, abs=0.1)
    else:
        assert match is None
    effects = Deviation("uncorrelated effects", "system with topic effects", 1.0, 0.01, 0.0)
    assert "to the power" not in answers([effects], SIZES, found)["Required"].because


def test_outliers_matter_by_what_they_do_to_a_variance():
    one = Deviation("outliers", "topic", 1.0, 0.01, 0.0)
    for inflation, matters in ((1.49, "slightly"), (1.5, "yes")):
        made = verdicts_of([one], SIZES, (), {"topic": inflation})
        assert made[0].matters == matters
        rows = OutlyingRows(("a, row 3",), inflation, 1.0)
        made = verdicts_of([one], SIZES, (), {}, rows)
        assert made[0].matters == matters
        assert ("Without a, row 3 the residual" in made[0].because) == (matters == "yes")


def test_variances_that_differ_much_have_a_fit():
    for large in (False, True):
        found = [
            Deviation("equal variances", f"residuals by {facet}", effect, 1e-6, 0.0)
            for facet, effect in (("topic", 0.3), ("system", 0.9 if large else 0.4))
        ]
        said = verdicts_of(found, SIZES, ())[0].because
        assert ("residual='system') estimates them by systems." in said) == large
        assert "topic" not in said
