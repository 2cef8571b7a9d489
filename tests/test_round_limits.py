"""Verdicts at exactly a round limit, in numbers that rounding keeps off it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import vcomp
from vcomp import ctt
from vcomp.presets import gauge_rr


def exact_item_rests(X):
    """Return sign(r) r² of every item with the rest, as fractions; None without a variance."""
    found = []
    n = len(X)
    for i in range(X.shape[1]):
        d, r = (n * x - x.sum() for x in (X[:, i], np.delete(X, i, axis=1).sum(axis=1)))
        below, both = int(d @ d) * int(r @ r), int(d @ r)
        found.append(Fraction(both * abs(both), below) if below else None)
    return found


@pytest.mark.parametrize(("limit", "square"), [(0.2, Fraction(1, 25)), (0.0, Fraction(0))])
def test_items_at_exactly_a_limit_are_on_its_better_side(limit, square):
    rng = np.random.default_rng(2)
    seen = 0
    while seen < 25:
        X = rng.integers(0, 3, size=(6, 4))
        rests = exact_item_rests(X)
        if square not in rests:
            continue
        table = ctt.item_analysis(X.astype(float) * 0.1, low=0.2, order="given").table
        for reason, r in zip(table["reason"], rests, strict=True):
            if r is not None:
                assert ("low item-rest" in reason) == (0 <= r < Fraction(1, 25))
                assert ("negative item-rest" in reason) == (r < 0)
        seen += rests.count(square)


def test_a_correlation_of_one_is_printed_as_one():
    rng = np.random.default_rng(5)
    for _ in range(20):
        X = rng.normal(size=(7, 1)) * rng.uniform(0.5, 2.0, size=4) + rng.normal(size=4)
        text = str(ctt.reliability(X).summary()) + str(ctt.icc(X[:, :1] + np.zeros(3)).summary())
        assert "< 1.0" not in text
        assert "> 0.99999" not in text


@pytest.mark.parametrize("unit", [1.0, 0.1, 0.3, 7e-5, 1e6 / 3])
def test_gauges_at_exactly_10_and_30_per_cent(unit):
    for gauge, words in ((1.0, "may be acceptable"), (9.0, "may be acceptable")):
        parts = {"operator": 0.55, "part:operator": 0.15, "Residual": 0.3}
        values = {"part": unit * (100.0 - gauge)}
        values |= {name: unit * gauge * share for name, share in parts.items()}
        g = vcomp.from_components(values, sizes={"part": 10, "operator": 3, "replicate": 2})
        text = str(gauge_rr(g, "part", "operator").summary()).replace("\n  ", " ")
        assert f"Total gauge R&R is {10 if gauge == 1.0 else 30} % of study variation" in text
        assert f"): {words}" in text or f"variation: {words}" in text


@pytest.mark.parametrize("categories", range(2, 12))
def test_a_whole_number_of_categories_is_not_rounded_down(categories):
    """1.41 √(σ²_part/σ²_gauge), with σ²_gauge = 1.41² in three parts."""
    for unit in (1.0, 0.1, 0.3):
        third = unit * 1.41**2 / 3.0
        values = {"part": unit * categories**2, "operator": third, "Residual": 2.0 * third}
        g = vcomp.from_components(values)
        assert gauge_rr(g, "part", "operator").categories == categories


@pytest.mark.slow
def test_sizes_at_exactly_the_goal():
    for pi, error in ((0.3, 0.7), (0.1, 0.2), (1.7, 3.9)):
        for n in range(1, 80, 7):
            g = vcomp.from_components({"p": pi, "i": 0.4, "Residual": error})
            table = g.dstudy(i=n).table.iloc[0]
            for name in ("Erho2", "Phi"):
                assert g.dstudy(i=2).required(float(table[name]), name).n == n


def test_p_values_of_exactly_alpha_are_significant():
    """Sign tests of 5 in 5 have p = 1/32, three times of which are 3/32."""
    X = np.column_stack([np.arange(5.0), np.arange(5.0) + 1.0, np.arange(5.0) + 2.0])
    found = vcomp.ir.compare_systems(
        X, test="sign", alternative="less", correction="bonferroni", alpha=3 / 32
    )
    assert found.table["p_adjusted"].tolist() == pytest.approx([3 / 32] * 3)
    assert found.table["significant"].all()
