"""Tables of allocations by exhaustive search, and what is printed of them."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.printed_tables import printed_columns, printed_words
from vcomp.gtheory import from_components

VALUES = {"p": 0.5, "i": 0.2, "a": 0.1, "pi": 0.9, "pa": 0.3, "ia": 0.05, "pia": 0.6}


def study(**given):
    return from_components(VALUES, **given).dstudy("p x i x a", i=10, a=2)


def errors(i, a, nested=False):
    """Return σ²(δ) and σ²(Δ) of p x i x a, or of p x (a:i)."""
    v = VALUES
    if nested:
        relative = v["pi"] / i + (v["pa"] + v["pia"]) / (i * a)
        return relative, relative + v["i"] / i + (v["a"] + v["ia"]) / (i * a)
    relative = v["pi"] / i + v["pa"] / a + v["pia"] / (i * a)
    return relative, relative + v["i"] / i + v["a"] / a + v["ia"] / (i * a)


def every(budget, nested=False):
    """Return all sizes within a budget of 10 i + 2 i a with their coefficients, best Eρ² first."""
    rows = []
    for i, a in itertools.product(range(1, 60), range(1, 60)):
        cost = 10 * i + 2 * i * a
        if cost <= budget:
            relative, absolute = errors(i, a, nested)
            rows.append((i, a, cost, relative, absolute, 0.5 / (0.5 + relative)))
    return sorted(rows, key=lambda row: (-row[5], row[2]))


@pytest.fixture(scope="module")
def found():
    return study().optimize("10*i + 2*i*a", budget=150, top=6)


def test_the_table_has_the_best_designs_that_no_facet_alone_improves(found):
    rows = every(150)
    sizes = {row[:2] for row in rows}
    undominated = [
        row
        for row in rows
        if (row[0] + 1, row[1]) not in sizes and (row[0], row[1] + 1) not in sizes
    ]
    table = found.table
    assert 4 <= len(table) <= 6  # those that are near the best
    names = ["i", "a", "cost", "rel_err_var", "abs_err_var", "Erho2"]
    np.testing.assert_allclose(table[names].to_numpy(), undominated[: len(table)], rtol=1e-12)
    phi = [0.5 / (0.5 + row[4]) for row in undominated[: len(table)]]
    np.testing.assert_allclose(table["Phi"], phi, rtol=1e-12)
    assert set(table["universe_var"]) == {0.5}
    assert set(table["design"]) == {"p x i x a"}


def test_the_printed_table_is_the_table(found):
    table, printed = found.table, printed_columns(found.summary())
    for facet in "ia":
        assert printed[facet] == [f"{n:g}" for n in table[facet]]
    assert printed["cost"] == [f"{c:g}" for c in table["cost"]]
    assert printed["Eρ²"] == [f"{x:.3f}" for x in table["Erho2"]]
    assert printed["Φ"] == [f"{x:.3f}" for x in table["Phi"]]
    assert "design" not in printed
    words = printed_words(found.summary())
    assert "The best design for a budget of 150: highest Eρ²" in words
    second, gap = table.iloc[1], table["Erho2"][0] - table["Erho2"][1]
    assert (
        f"Next best: i = {second['i']:g}, a = {second['a']:g}; Eρ² is lower by {gap:.2g}." in words
    )
    two = study().optimize("10*i + 2*i*a", budget=150, top=2)
    assert len(two.table) == 2
    assert f"Next best: i = {second['i']:g}, a = {second['a']:g}; " in printed_words(two.summary())
    one = study().optimize("10*i + 2*i*a", budget=150, top=1)
    assert "Next best" not in printed_words(one.summary())
    long = study().optimize("10*i + 2*i*a", budget=900, top=12)
    assert len(printed_columns(long.summary())["i"]) == 6
    assert len(long.table) >= 8


def test_designs_are_compared():
    both = study().optimize("10*i + 2*i*a", budget=150, designs=["p x i x a", "p x (a:i)"])
    table, printed = both.table.iloc[:2], printed_columns(both.summary())
    best = [every(150)[0], every(150, nested=True)[0]]
    assert table[["i", "a"]].to_numpy().tolist() == [
        list(row[:2]) for row in sorted(best, key=lambda row: -row[5])
    ]
    np.testing.assert_allclose(table["Erho2"], sorted([b[5] for b in best], reverse=True))
    assert printed["design"][:2] == ["p × (a:i)", "p × i × a"]
    rest = both.table["Erho2"].iloc[2:]
    assert rest.is_monotonic_decreasing
    assert "Best of the other designs: p × i × a, i = " in printed_words(both.summary())
    continuous = both.continuous
    assert list(continuous.index) == list(table["design"])
    for design, sizes in continuous.iterrows():
        i, a = sizes[["i", "a"]]
        assert 10 * i + 2 * i * a == pytest.approx(150.0, rel=1e-6) or a == 1.0
        at = errors(i, a, design == "p x (a:i)")[0]
        whole = table.set_index("design")["rel_err_var"][design]
        assert at <= whole * (1 + 1e-9)
        for j in np.linspace(max(1.0, 0.5 * i), 1.5 * i, 41):  # along the budget
            other = (150.0 - 10 * j) / (2 * j)
            if other >= 1.0:
                assert errors(j, other, design == "p x (a:i)")[0] >= at * (1 - 1e-7)


@pytest.mark.parametrize("coefficient", ["Erho2", "Phi", "rel_err_var", "abs_err_var"])
def test_the_cheapest_that_reaches_a_goal(coefficient):
    place = {"Erho2": 3, "rel_err_var": 3, "Phi": 4, "abs_err_var": 4}[coefficient]
    is_error = coefficient.endswith("var")
    goal = 0.2 if is_error else 0.7
    most = 0.2 if is_error else 0.5 / 0.7 - 0.5
    rows = [row for row in every(2_000) if row[place] <= most]
    cheapest = min(rows, key=lambda row: (row[2], row[place]))
    found = study().optimize("10*i + 2*i*a", goal=goal, coefficient=coefficient)
    row = found.table.iloc[0]
    assert (row["i"], row["a"], row["cost"]) == cheapest[:3]
    sign = "≤" if is_error else "≥"
    words = printed_words(found.summary())
    symbol = {"Erho2": "Eρ²", "Phi": "Φ", "rel_err_var": "σ²(δ)", "abs_err_var": "σ²(Δ)"}
    assert f"The cheapest design with {symbol[coefficient]} {sign} {goal:g}" in words
    assert "Next best" not in words
    printed = printed_columns(found.summary())
    if is_error:
        assert printed[symbol[coefficient]][0] == f"{row[coefficient]:.4f}"
        assert list(printed)[-3:] == [symbol[coefficient], "Eρ²", "Φ"]


def test_a_goal_is_printed_with_ten_digits():
    words = printed_words(study().optimize("i*a", goal=2 / 3).summary())
    assert "The cheapest design with Eρ² ≥ 0.6666666667" in words


def test_the_best_ratio_of_sizes():
    """Where the cost is a product: n_i/n_a = A/B with the error A/n_i + B/n_a + C/(n_i n_a)."""
    for coefficient, a, b in (("Erho2", 0.9, 0.3), ("Phi", 1.1, 0.4)):
        found = study().optimize("3*i*a", budget=600, coefficient=coefficient)
        assert found.ratio.estimate == pytest.approx(a / b, rel=1e-12)
        assert "The best ratio of sizes without bounds: n(i)/n(a) = " in printed_words(
            found.summary()
        )
    for cost in ("3*i*a + i", "3*i*a + a", "3*i + a"):
        assert study().optimize(cost, budget=600).ratio is None
    free = study().optimize("3", budget=5, bounds={"i": (1, 9), "a": (1, 4)})
    assert (free.best.sizes, free.ratio) == ({"i": 9, "a": 4}, None)
    nested = from_components({"p": 1.0, "i": 0.5, "a:i": 0.3, "p:i": 0.4, "Residual": 1.0})
    assert nested.dstudy(i=2, a=3).optimize("i*a", budget=60).ratio is None
    without = from_components(VALUES | {"pa": 0.0, "a": 0.0}).dstudy("p x i x a", i=10, a=2)
    ratio = without.optimize("i*a", budget=60).ratio
    assert ratio.estimate == np.inf
    assert "one level of it is enough" in " ".join(ratio.notes)


def test_a_required_size_goes_with_a_goal_of_one_facet():
    one = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=10)
    found = one.optimize("2*i", goal=0.9)
    assert found.required.n == found.table["i"][0] == 18
    assert str(found.required) in printed_words(found.summary())
    assert one.optimize("2*i", budget=30).required is None
    assert one.optimize("2*i", goal=0.05, coefficient="rel_err_var").required is None
    assert study().optimize("i*a", goal=0.7).required is None


def test_components_that_are_planned_as_zero_are_named():
    rng = np.random.default_rng(2)
    rest = rng.normal(size=(20, 6, 4))
    rest -= rest.mean(axis=2, keepdims=True)  # means of cells vary less than the residual lets
    y = rng.normal(size=(20, 1, 1)) + rng.normal(size=(6, 1)) + rng.normal(size=4) + rest
    p, i, h = (of.ravel() for of in np.indices(y.shape))
    data = pd.DataFrame({"p": p, "i": i, "h": h, "y": y.ravel()})
    formula = "y ~ (1|p) + (1|i) + (1|h) + (1|p:i)"
    res = vcomp.fit(formula, data)
    assert res.vcomp["p:i"] == 0.0
    said = printed_words(res.dstudy(object="p").optimize({"i:h": 1.0}, budget=60))
    assert "Planned as 0, as estimated: σ²(p:i). Sizes" in said
    held = vcomp.fit(formula, data, hold={"p:i": 0.0})
    assert "Planned as 0" not in printed_words(
        held.dstudy(object="p").optimize({"i:h": 1.0}, budget=60)
    )
