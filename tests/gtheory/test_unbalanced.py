"""Universes of plans whose levels do not weigh the same, against the model written out."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.exceptions import PlanError
from vcomp.formula.brennan import parse_design
from vcomp.gtheory.projection import weights
from vcomp.gtheory.published import from_components
from vcomp.gtheory.universe import Counts

NAMES = ("p", "i", "a", "p:i", "p:a", "i:a", "Residual")


def written_out(values, design, cells, fixed, universe):
    """Return universe-score, relative and absolute error variance of one layout of i and a.

    The score is the mean over the cells. The universe score is the mean over all levels of finite
    facets, over those of fixed ones with the weights of the layout, and nothing else.
    """
    totals = np.zeros(3)
    for name, variance in values.items():
        facets = frozenset("pia") if name == "Residual" else frozenset(name.split(":"))
        inner = [f for f in "ia" if f in design.closure(facets)]
        has_object = "p" in design.closure(facets)
        score, whole = defaultdict(float), defaultdict(float)
        for cell in cells:
            score[tuple(cell[f] for f in inner)] += 1 / len(cells)
        if all(f in fixed or f in universe for f in inner):
            for levels, weight in score.items():
                ranges = [
                    [n] if f in fixed else range(universe[f])
                    for f, n in zip(inner, levels, strict=True)
                ]
                every = list(itertools.product(*ranges))
                for one in every:
                    whole[one] += weight / len(every)
        error = sum((score[k] - whole[k]) ** 2 for k in {*score, *whole})
        share = sum(w**2 for w in whole.values())
        totals += variance * np.array([share * has_object, error * has_object, error])
    return totals


UNIVERSES = [
    ((), {"i": 5, "a": 4}),
    (("i",), {"a": 6}),
    ((), {"i": 9}),
    (("i",), {}),
    (("a",), {"i": 5}),
]
# A fixed facet within a finite one has no weights in levels that are not planned.
DESIGNS = [(d, *u) for d in ("p x i x a", "(i x a):p") for u in UNIVERSES]
DESIGNS += [("p x (a:i)", *u) for u in UNIVERSES[:-1]]


@pytest.mark.parametrize(("design", "fixed", "universe"), DESIGNS)
def test_layouts_of_finite_and_fixed_facets(design, fixed, universe):
    draw = random.Random(7)
    everything = list(itertools.product(range(4), range(4)))
    for n in (3, 5, 7, 8):
        cells = [{"i": i, "a": a} for i, a in draw.sample(everything, n)]
        values = {name: draw.random() for name in NAMES}
        study = from_components(values).dstudy(
            design, object="p", fixed=fixed, universe=universe, layout=pd.DataFrame(cells)
        )
        row = study.table.loc["layout", ["universe_var", "rel_err_var", "abs_err_var"]]
        expected = written_out(values, parse_design(design), cells, fixed, universe)
        np.testing.assert_allclose(row, expected, rtol=1e-12)


@pytest.mark.slow
def test_the_gstudys_own_rows_have_the_universe_of_their_layout():
    draw = np.random.default_rng(3)
    cells = [(p, i, a) for p in range(6) for i in range(5) for a in range(3)]
    cells = [cells[k] for k in draw.permutation(len(cells))[:70]]
    data = pd.DataFrame(cells, columns=["p", "i", "a"])
    data["score"] = draw.normal(size=70) + draw.normal(size=6)[data["p"]]
    res = vcomp.gstudy("p x i x a", data, "score", method="anova")
    columns = ["universe_var", "rel_err_var", "abs_err_var"]
    for options in ({"universe": {"i": 6, "a": 4}}, {"universe": {"i": 6}, "fixed": "a"}):
        own = res.dstudy(object="p", **options).table[columns]
        layout = res.dstudy(object="p", layout=data, **options).table[columns]
        own, layout = own.drop(columns="rel_err_var"), layout.drop(columns="rel_err_var")
        np.testing.assert_allclose(own.to_numpy(), layout.to_numpy(), rtol=1e-12)


@pytest.mark.parametrize("text", ["p x i x a", "p x (a:i)"])
@pytest.mark.parametrize("universe", [{}, {"i": 6}])
def test_differences_of_objects_that_meet_different_levels(text, universe):
    """σ²(δ) is half the mean variance of the difference of two objects' errors, over all pairs."""
    draw, rng = random.Random(5), np.random.default_rng(5)
    every = list(itertools.product(range(4), range(3)))
    rows = {p: draw.sample(every, draw.randint(1, 7)) for p in range(4)}
    values = {name: draw.random() for name in NAMES}
    design, finite = parse_design(text), "i" in universe
    terms = {n: frozenset("pia") if n == "Residual" else frozenset(n.split(":")) for n in values}

    def error(p):
        found = defaultdict(float)
        for name, facets in terms.items():
            inner = [f for f in "ia" if f in design.closure(facets)]
            whose = p if "p" in facets else None
            for i, a in rows[p]:
                place = {"i": i, "a": a}
                found[name, whose, tuple(place[f] for f in inner)] += 1 / len(rows[p])
            if inner in ([], ["i"]):
                # The universe score is the mean over all levels of i, or p's effect itself.
                levels = [()] if not inner else [(i,) for i in range(6 * finite)]
                for level in levels:
                    found[name, whose, level] -= 1 / len(levels)
        return found

    errors = [error(p) for p in rows]
    pairs = list(itertools.combinations(errors, 2))
    expected = np.mean(
        [
            sum(values[k[0]] * (one[k] - other[k]) ** 2 for k in {*one, *other}) / 2
            for one, other in pairs
        ]
    )
    table = pd.DataFrame([(p, *c) for p, cells in rows.items() for c in cells], columns=[*"pia"])
    table = table.iloc[rng.permutation(len(table))]
    study = from_components(values).dstudy(text, object="p", universe=universe, layout=table)
    assert study.table["rel_err_var"].iloc[0] == pytest.approx(expected, rel=1e-12)
    assert study.effects()["rel_err_var"].sum() == pytest.approx(expected, rel=1e-12)


HEADINGS = from_components({"p": 0.5, "h": 0.1, "i:h": 0.3, "p:h": 0.2, "Residual": 1.0})
CROSSED = from_components(dict.fromkeys(NAMES, 1.0))


@pytest.mark.parametrize(
    ("study", "message"),
    [
        (
            lambda: CROSSED.dstudy(
                object="p", universe={"i": 4},
                layout={"i": [1, 1, 1, 1, 2, 3, 4, 5], "a": [1, 2, 3, 4, 1, 1, 1, 1]},
            ),
            "5 levels of i cannot be drawn from a universe of 4",
        ),
        (
            lambda: HEADINGS.dstudy(i=Counts([1, 1, 1, 7]), universe={"h": 8, "i": 6}),
            "7 levels of i cannot be drawn from a universe of 6",
        ),
        (
            lambda: HEADINGS.dstudy(i=Counts([1, 1, 1, 7]), universe={"h": 3}),
            "4 levels of h cannot be drawn from a universe of 3",
        ),
    ],
)  # fmt: skip
def test_it_is_levels_that_a_universe_has_to_hold_not_effective_sizes(study, message):
    with pytest.raises(PlanError, match=message):
        study()


def test_objects_within_a_level_have_to_meet_the_same_levels():
    g = from_components({"c": 0.2, "p:c": 0.5, "i": 0.3, "c:i": 0.1, "Residual": 1.0})
    rows = pd.DataFrame({"c": [1, 1, 1, 2], "p": [1, 1, 2, 3], "i": [1, 2, 1, 2]})
    assert g.dstudy(object="p", layout=rows).table["rel_err_var"].iloc[0] > 0.0
    with pytest.raises(PlanError, match="within= compares objects with the same levels"):
        g.dstudy(object="p", within="c", layout=rows)
    same = pd.DataFrame({"c": [1, 1, 2, 2], "p": [1, 1, 3, 3], "i": [1, 2, 1, 2]})
    row = g.dstudy(object="p", within="c", layout=same).table.iloc[0]
    assert row["rel_err_var"] == pytest.approx(1.0 / 2, rel=1e-12)


def shares(data, facets):
    """Return the mean over the persons of Σ (n_g/n)² over groups of some facets, by counting."""
    found = []
    for _, rows in data.groupby("p"):
        n = rows.groupby(facets).size().to_numpy() if facets else np.array([len(rows)])
        found.append(float(((n / len(rows)) ** 2).sum()))
    return np.mean(found)


def four_way(seed=4, n=90):
    """Return unbalanced rows of p, i, a, o, at most one for each cell."""
    rng = np.random.default_rng(seed)
    cells = np.array(list(itertools.product(range(5), range(4), range(3), range(4))))
    data = pd.DataFrame(cells[rng.permutation(len(cells))[:n]], columns=list("piao"))
    data["y"] = rng.normal(size=n)
    for f in "piao":
        data["y"] += rng.normal(size=5)[data[f]]
    return data


def two_way(seed=8, n=26):
    rng = np.random.default_rng(seed)
    cells = np.array(list(itertools.product(range(6), range(7))))
    data = pd.DataFrame(cells[rng.permutation(len(cells))[:n]], columns=list("pi"))
    data["y"] = rng.normal(size=n) + rng.normal(size=6)[data.p] + rng.normal(size=7)[data.i]
    return data


@pytest.mark.parametrize("terms", ["(1|p) + (1|i) + (1|a)", "(1|p) + (1|p:i) + (1|a)"])
def test_own_sizes_of_a_model_without_some_interactions(terms):
    """The size of i is that of σ²(i), or where the model has none that of σ²(pi)."""
    data = four_way()
    res = vcomp.fit(f"y ~ {terms}", data)
    row = res.dstudy(object="p").table.iloc[0]
    assert row["i"] == pytest.approx(1.0 / shares(data, ["i"]), rel=1e-9)
    assert row["a"] == pytest.approx(1.0 / shares(data, ["a"]), rel=1e-9)
    v = res.vcomp
    inner = "i" if "i" in v.index else "p:i"
    error = v[inner] * shares(data, ["i"]) + v["a"] * shares(data, ["a"])
    # Without a component of a:p:i the residual is that of single scores of the cells i × a.
    error += v["Residual"] * data.groupby("p").size().rdiv(1.0).mean()
    assert row["abs_err_var"] == pytest.approx(error, rel=1e-9)


def test_own_sizes_of_two_facets_without_their_interaction():
    data = two_way()
    res = vcomp.fit("y ~ (1|p) + (1|i)", data)
    row, v = res.dstudy(object="p").table.iloc[0], res.vcomp
    error = v["i"] * shares(data, ["i"]) + v["Residual"] * shares(data, ["p", "i"])
    assert row["i"] == pytest.approx(1.0 / shares(data, ["i"]), rel=1e-9)
    assert row["abs_err_var"] == pytest.approx(error, rel=1e-9)


@pytest.mark.parametrize(
    "terms",
    ["(1|h) + (1|i)", "(1|p:h) + (1|i)", "(1|h) + (1|p:h) + (1|i)", "(1|p:h) + (1|p:i)"],
)
def test_own_sizes_of_a_nested_facet(terms):
    """The size of i within h is that of one of their components, with or without p."""
    rng = np.random.default_rng(12)
    cells = np.array(list(itertools.product(range(7), range(9))))
    data = pd.DataFrame(cells[rng.permutation(len(cells))[:40]], columns=list("pi"))
    data["h"] = np.array([0, 0, 1, 1, 1, 2, 2, 2, 2])[data["i"]]
    data["y"] = rng.normal(size=40) + rng.normal(size=7)[data["p"]] + rng.normal(size=9)[data["i"]]
    twice = pd.concat([data, data.assign(y=data["y"] + rng.normal(size=40))])
    res = vcomp.fit(f"y ~ (1|p) + {terms}", twice)
    row = res.dstudy(object="p").table.iloc[0]
    assert row["h"] == pytest.approx(1.0 / shares(data, ["h"]), rel=1e-9)
    assert row["i"] == pytest.approx(shares(data, ["h"]) / shares(data, ["i"]), rel=1e-9)


@pytest.mark.parametrize("interaction", ["", " + (1|i:a)", " + (1|p:i:a)"])
def test_own_universe_with_two_fixed_facets(interaction):
    """The residual p:i:a:o is averaged over the fixed cells i × a and over all 9 levels of o.

    1/n of the cells is that of a component of them, with or without p; else of n_i n_a cells.
    """
    data = four_way()
    res = vcomp.fit(f"y ~ (1|p) + (1|i) + (1|a) + (1|o){interaction}", data)
    row = res.dstudy(object="p", fixed=["i", "a"], universe={"o": 9}).table.iloc[0]
    v, i, a = res.vcomp, shares(data, ["i"]), shares(data, ["a"])
    cells = shares(data, ["i", "a"]) if interaction else i * a
    universe = v["p"] + v["Residual"] * cells / 9
    if "p:i:a" in interaction:
        universe += v["p:i:a"] * cells
    assert row["universe_var"] == pytest.approx(universe, rel=1e-9)


@pytest.mark.parametrize("fixed", [("a",), ("a", "i")])
def test_a_fixed_facet_within_a_finite_one(fixed):
    """Each of the 5 levels of i has 2 fixed levels of a, of which a plan uses those of 3 i."""
    values = {name: (k + 1.0) / 7.0 for k, name in enumerate(NAMES)}
    g = from_components(values)
    layout = pd.DataFrame(list(itertools.product(range(3), range(2))), columns=["i", "a"])
    layout["a"] += 2 * layout["i"]
    universe = {} if "i" in fixed else {"i": 5}
    n_i = 3 if "i" in fixed else 5
    # p:i is a mean over all i; p:a and the residual are effects of a:i, means over all a in all i.
    expected = values["p"] + values["p:i"] / n_i
    expected += (values["p:a"] + values["Residual"]) / (n_i * 2)
    for options in ({"layout": layout}, {"i": 3, "a": 2}):
        if "i" in fixed:
            with pytest.raises(PlanError, match="nothing is left to generalize over"):
                g.dstudy("p x (a:i)", object="p", fixed=fixed, **options)
            continue
        row = g.dstudy(
            "p x (a:i)", object="p", fixed=fixed, universe=universe, **options
        ).table.iloc[0]
        assert row["universe_var"] == pytest.approx(expected, rel=1e-12)
        of_i = values["p:i"] + (values["p:a"] + values["Residual"]) / 2
        assert row["rel_err_var"] == pytest.approx(of_i * (1 / 3 - 1 / 5), rel=1e-12)


def test_nominal_sizes_of_a_finite_universe_have_no_memory_of_the_rows():
    """Without the exact sizes of the rows, those of their universe are not used either."""
    res = vcomp.fit("y ~ (1|p) + (1|i)", two_way())
    own = res.dstudy(object="p", universe={"i": 9}).plan
    assert own.inverse_n is not None
    assert own.inverse_universe is not None
    g, nominal = res._record.components, replace(own, inverse_n=None)
    fresh = replace(nominal, inverse_universe=None)
    for name in ("universe", "relative", "absolute"):
        found, wanted = (getattr(weights(g, plan), name) for plan in (nominal, fresh))
        np.testing.assert_array_equal(found, wanted, err_msg=name)
    # By hand: n' of 9 levels leave 1/n' − 1/9 of σ²(i) as error of absolute scores.
    n = own.sizes[0, 0]
    absolute = weights(g, fresh).absolute[0]
    np.testing.assert_allclose(absolute, [0.0, 1 / n - 1 / 9, 1 / n - 1 / 9], rtol=1e-12)


def test_replicates_may_hide_an_interaction():
    data = two_way()
    twice = pd.concat([data, data.assign(y=data["y"] + 1.0)])
    for terms, hidden in (("", True), (" + (1|p:i)", False)):
        notes = vcomp.fit(f"y ~ (1|p) + (1|i){terms}", twice).dstudy(object="p").notes
        assert any("the model has no term p:i" in note for note in notes) == hidden
    once = vcomp.fit("y ~ (1|p) + (1|i)", data).dstudy(object="p").notes
    assert not any("no term" in note for note in once)


@pytest.mark.parametrize("formula", ["y ~ (1|p) + (1|i)", "y ~ (1|p*i)"])
def test_the_printed_sizes_multiply_to_the_divisor_of_the_residual(formula):
    """Also without a term of the cells, of which replicates are the scores."""
    rng = np.random.default_rng(0)
    p, i, _ = (a.ravel() for a in np.indices((10, 6, 3)))
    data = pd.DataFrame({"p": p, "i": i, "y": rng.normal(size=10)[p] + rng.normal(size=180)})
    data = data[rng.random(180) < 0.7]
    study = vcomp.fit(formula, data).dstudy(object="p")
    by_person = data.groupby("p")["i"].agg(lambda x: (x.value_counts() ** 2).sum() / len(x) ** 2)
    row = study.table.iloc[0]
    assert row["i"] == pytest.approx(1.0 / by_person.mean(), rel=1e-9)
    residual = study.effects().loc["p:i:replicate", "n"]
    assert residual == pytest.approx(1.0 / (1.0 / data.groupby("p").size()).mean(), rel=1e-9)
    assert row["i"] * row["replicate"] == pytest.approx(residual, rel=1e-9)
