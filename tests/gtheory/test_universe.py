"""Fixed facets, finite universes, composite objects, layouts: against the model written out.

The oracle enumerates the levels of every facet and the effects of every combination of levels as
independent variables. Scores, universe scores and their differences are rows of coefficients;
their variances are sums of squares. It knows no rules.
"""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.examples import examples
from tests.helpers.gstudies import BODOFF_LI, gstudy
from vcomp.exceptions import PlanError
from vcomp.formula.brennan import parse_design
from vcomp.gtheory.planned_quantity import dstudy
from vcomp.gtheory.published import from_components
from vcomp.gtheory.universe import Counts
from vcomp.inference.quantities import VarianceComponents


def written_out(values, closure, objects, within, sampled, universe):
    """Return universe-score, relative and absolute error variance.

    values : effects (frozensets of facets) → variance
    closure : facets → with those that they are nested in
    sampled : rows of levels of the other facets, dicts, all scores of one object
    universe : all such rows, or None for facets (by name) that are infinite
    """
    rows_all, infinite = universe

    def score(object_, rows, *, random_only=False, everything=None):
        row = {}
        for effect, variance in values.items():
            facets = closure(effect)
            if everything is not None and facets & everything:
                continue  # its mean over infinitely many levels is zero
            for levels in rows:
                place = {**object_, **levels}
                key = (effect, tuple((f, place[f]) for f in sorted(facets)))
                weight, _ = row.get(key, (0.0, variance))
                row[key] = (weight + 1.0 / len(rows), variance)
        return row

    def minus(a, b):
        return {
            k: (a.get(k, (0, 0))[0] - b.get(k, (0, 0))[0], (a.get(k) or b.get(k))[1])
            for k in a.keys() | b.keys()
        }

    def variance(row):
        return sum(w * w * v for w, v in row.values())

    # Two objects that share the levels within which they are compared, and no others.
    one = {f: (f, 0) for f in objects}
    other = {f: (f, 0 if f in within else 1) for f in objects}
    X = [score(o, sampled) for o in (one, other)]
    U = [score(o, rows_all, everything=infinite) for o in (one, other)]
    error = [minus(x, u) for x, u in zip(X, U, strict=True)]
    return (
        variance(minus(*U)) / 2.0,
        variance(minus(*error)) / 2.0,
        variance(error[0]),
    )


def cells(facets, sizes):
    """Return all combinations of levels; nested ones are told apart by their parents."""
    every = itertools.product(*(range(sizes[f]) for f in facets))
    return [dict(zip(facets, levels, strict=True)) for levels in every]


CASES = {
    "p x i": ("p", {}, ["p", "i", "p:i"]),
    "p x i x o": ("p", {}, ["p", "i", "o", "p:i", "p:o", "i:o", "p:i:o"]),
    "p x (a:i)": ("p", {"a": {"i"}}, ["p", "i", "i:a", "p:i", "p:i:a"]),
    "i:p": ("p", {"i": {"p"}}, ["p", "p:i"]),
    "(p:c) x i": ("c:p", {"p": {"c"}}, ["c", "c:p", "i", "c:i", "c:p:i"]),
    "p x a x (d:i)": (
        "p",
        {"d": {"i"}},
        ["p", "a", "i", "i:d", "p:a", "p:i", "p:i:d", "a:i", "a:i:d", "p:a:i", "p:a:i:d"],
    ),
    "d x p x i": ("d:p", {}, ["d", "p", "i", "d:p", "d:i", "p:i", "d:p:i"]),
}


@st.composite
def studies(draw):
    text = draw(st.sampled_from(sorted(CASES)))
    object_, nested_in, effects = CASES[text]
    design = parse_design(text)
    objects = frozenset(object_.split(":"))
    facets = [f for f in design.facets if f not in objects]
    values = [draw(st.integers(1, 9)) / 4 for _ in effects]
    sizes = {f: draw(st.integers(1, 3)) for f in facets}
    kinds = {f: draw(st.sampled_from(["random", "fixed", "finite"])) for f in facets}
    universe = {f: sizes[f] + draw(st.integers(0, 2)) for f in facets if kinds[f] == "finite"}
    fixed = [f for f in facets if kinds[f] == "fixed"]
    assume(any(f not in fixed and universe.get(f) != sizes[f] for f in facets))
    within = []
    if len(objects) > 1 and draw(st.booleans()):
        within = ["c"] if "c" in objects else ["d"]
    return text, object_, nested_in, effects, values, sizes, universe, fixed, within


@settings(max_examples=examples(75))
@given(studies())
def test_projection_is_the_model_written_out(case):
    text, object_, nested_in, effects, values, sizes, universe, fixed, within = case
    design = parse_design(text)
    objects = frozenset(object_.split(":"))
    facets = list(sizes)
    terms = {frozenset(e.split(":")): v for e, v in zip(effects, values, strict=True)}
    names = (*effects[:-1], "Residual")
    g = VarianceComponents(
        names,
        tuple(terms),
        np.array(values),
        nested_in={f: frozenset(a) for f, a in nested_in.items()},
    )
    infinite = {f for f in facets if f not in fixed and f not in universe}
    if any(design.nested_in[f] & infinite for f in facets if f not in infinite):
        with pytest.raises(PlanError, match=r"is nested in .*, which is random"):
            dstudy(g, text, object=object_, fixed=fixed, universe=universe, sizes=sizes)
        return
    levels = {f: universe.get(f, sizes[f]) for f in facets}
    expected = written_out(
        terms,
        design.closure,
        objects,
        frozenset(within),
        cells(facets, sizes),
        (cells(facets, levels), infinite),
    )
    study = dstudy(
        g, text, object=object_, fixed=fixed, universe=universe, within=within, sizes=sizes
    )
    row = study.table.iloc[0]
    found = [row["universe_var"], row["rel_err_var"], row["abs_err_var"]]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    parts = study.effects()[["universe_var", "rel_err_var", "abs_err_var"]].sum()
    np.testing.assert_allclose(parts, expected, rtol=1e-12, atol=1e-14)


@st.composite
def layouts(draw):
    text = draw(st.sampled_from(["p x i x o", "p x (a:i)", "p x a x (d:i)", "(p:c) x i"]))
    object_, nested_in, effects = CASES[text]
    design = parse_design(text)
    facets = [f for f in design.facets if f not in object_.split(":")]
    every = list(itertools.product(range(3), repeat=len(facets)))
    chosen = draw(st.lists(st.sampled_from(every), min_size=1, max_size=8, unique=True))
    values = [draw(st.integers(1, 9)) / 4 for _ in effects]
    return text, object_, nested_in, effects, values, facets, chosen


@settings(max_examples=examples(100))
@given(layouts())
def test_layouts_are_the_model_written_out(case):
    text, object_, nested_in, effects, values, facets, chosen = case
    rows = [dict(zip(facets, levels, strict=True)) for levels in chosen]
    terms = {frozenset(e.split(":")): v for e, v in zip(effects, values, strict=True)}
    g = gstudy(dict(zip([*effects[:-1], "Residual"], values, strict=True)), nested_in)
    design, objects = parse_design(text), frozenset(object_.split(":"))
    expected = written_out(
        terms, design.closure, objects, frozenset(), rows, (rows, frozenset(facets))
    )
    study = dstudy(g, text, object=object_, layout=pd.DataFrame(rows))
    row = study.table.iloc[0]
    found = [row["universe_var"], row["rel_err_var"], row["abs_err_var"]]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_fixed_tasks_in_random_genres_are_refused_and_in_fixed_ones_are_fixed():
    """A universe of 2 genres with 2 tasks each: the mean of its 4 tasks has no error of tasks."""
    v = {"p": 3.0, "g": 1.0, "g:t": 2.0, "p:g": 0.5, "p:g:t": 4.0, "r": 1.0, "Residual": 8.0}
    study = gstudy(v, {"t": {"g"}})
    sizes = {"g": 2, "t": 2, "r": 2}
    with pytest.raises(PlanError, match=r"'t' cannot be in fixed=.*fixed=\['g', 't'\]"):
        dstudy(study, fixed="t", object="p", sizes=sizes)
    with pytest.raises(PlanError, match=r"'t' cannot be in universe=.*give g a size as well"):
        dstudy(study, universe={"t": 5}, object="p", sizes=sizes)
    row = dstudy(study, fixed=["g", "t"], object="p", sizes=sizes).table.iloc[0]
    assert row["universe_var"] == pytest.approx(3.0 + 0.5 / 2 + 4.0 / 4, rel=1e-12)
    assert row["rel_err_var"] == pytest.approx(8.0 / 8, rel=1e-12)
    assert row["abs_err_var"] == pytest.approx(8.0 / 8 + 1.0 / 2, rel=1e-12)


def test_cornfield_and_tukeys_rules_for_finite_universes():
    """Brennan (2001, sections 3.5 and 5.1): components of the finite model, then (1 - n'/N')."""
    v = {"p": 3.0, "i": 2.0, "o": 1.0, "p:i": 4.0, "p:o": 0.5, "i:o": 0.25, "Residual": 8.0}
    n, N = {"i": 4, "o": 2}, {"i": 10, "o": 5}
    full = {
        frozenset(k.split(":")) if k != "Residual" else frozenset("pio"): x for k, x in v.items()
    }

    def finite(effect):
        return sum(
            x / math.prod(N[f] for f in other - effect)
            for other, x in full.items()
            if effect <= other and "p" not in other - effect
        )

    def part(effect):
        return finite(effect) * math.prod((1 - n[f] / N[f]) / n[f] for f in effect - {"p"})

    effects = [frozenset(e) for e in ("pi", "po", "pio")]
    relative = sum(part(e) for e in effects)
    absolute = relative + sum(part(frozenset(e)) for e in ("i", "o", "io"))
    row = dstudy(gstudy(v), universe=N, object="p", sizes=n).table.iloc[0]
    np.testing.assert_allclose(row["universe_var"], finite(frozenset("p")), rtol=1e-12)
    np.testing.assert_allclose(row["rel_err_var"], relative, rtol=1e-12)
    # Effects without p have no components of their own in p's finite model: p is infinite.
    np.testing.assert_allclose(row["abs_err_var"], absolute, rtol=1e-12)


# published ---------------------------------------------------------------------------------------


RULES = {
    "universe_var": "tau", "rel_err_var": "sigma2_delta", "abs_err_var": "sigma2_Delta",
    "Erho2": "Erho2", "Phi": "Phi",
}  # fmt: skip


def test_synthetic_3_with_fixed_facets(reference):
    values = reference("dstudy_brennan_synthetic3")["values"]
    g = gstudy(values["components"])
    for fixed in ("i", "o"):
        for r in values[f"{fixed}_fixed"]:
            row = dstudy(g, fixed=fixed, i=r["n_i"], o=r["n_o"]).table.iloc[0]
            for column, name in RULES.items():
                np.testing.assert_allclose(row[column], r[name], rtol=1e-10)
    printed = reference("brennan_published_synthetic3")["values"]["published"]["items_fixed"]
    row = dstudy(g, fixed="i", i=4, o=2).table.iloc[0]
    assert round(row["Erho2"], 2) == printed["Erho2"]
    assert round(row["Phi"], 2) == printed["Phi"]


def test_narayanan_has_two_facets_as_object(reference, shared_data):
    """Patients of doctors, rated on items: the tutorial's coefficients, to its three decimals."""
    published = reference("narayanan2010_published")["values"]
    data = pd.read_csv(shared_data("narayanan2010.csv"))
    formula = "rating ~ (1|doctor) + (1|doctor:patient) + (1|item) + (1|doctor:item)"
    res = vcomp.fit(formula, data, method="anova")
    for object_, expected in published["Erho2"].items():
        # The tutorial rounds the variances to three decimals before it divides them.
        row = res.dstudy(object=object_).table.iloc[0].round(3)
        tau = row["universe_var"]
        assert round(tau / (tau + row["rel_err_var"]), 3) == expected
        assert round(tau / (tau + row["abs_err_var"]), 3) == published["Phi"][object_]


# counts and layouts ------------------------------------------------------------------------------

HEADINGS = from_components({"p": 0.5, "h": 0.1, "i:h": 0.3, "p:h": 0.2, "Residual": 1.0})


def test_counts_are_layouts():
    counts = [3, 5, 4, 4]
    rows = pd.DataFrame(
        [(h, i) for h, n in enumerate(counts) for i in range(n)], columns=["h", "i"]
    )
    exact = HEADINGS.dstudy("p x (i:h)", i=Counts(counts)).table
    by_rows = HEADINGS.dstudy("p x (i:h)", object="p", layout=rows).table
    columns = ["h", "i", "rel_err_var", "abs_err_var", "Erho2", "Phi"]
    np.testing.assert_allclose(exact[columns].to_numpy(), by_rows[columns].to_numpy(), rtol=1e-12)
    assert by_rows["h"].iloc[0] * by_rows["i"].iloc[0] == pytest.approx(16)  # n₊
    n2 = sum(n * n for n in counts) / 16**2
    assert exact["rel_err_var"].iloc[0] == pytest.approx(0.2 * n2 + 1.0 / 16, rel=1e-12)
    assert exact["abs_err_var"].iloc[0] == pytest.approx(0.3 * n2 + 1.3 / 16, rel=1e-12)


def test_rules_of_counts():
    harmonic = 4 / (1 / 3 + 1 / 5 + 1 / 4 + 1 / 4)
    for rule, n in (("harmonic", harmonic), ("arithmetic", 4.0)):
        row = HEADINGS.dstudy(i=[Counts([3, 5, 4, 4], rule)]).table.iloc[0]
        assert row["h"] == 4
        assert row["i"] == pytest.approx(n, rel=1e-12)
        assert row["rel_err_var"] == pytest.approx(0.2 / 4 + 1 / (4 * n), rel=1e-12)


def test_counts_within_the_object_take_the_mean_error():
    nested = from_components({"p": 0.5, "i:p": 1.0})
    for rule in ("exact", "harmonic"):
        row = nested.dstudy("i:p", object="p", i=Counts([2, 4, 8], rule)).table.iloc[0]
        assert row["rel_err_var"] == pytest.approx((1 / 2 + 1 / 4 + 1 / 8) / 3, rel=1e-12)


def test_several_counts_make_a_grid():
    table = HEADINGS.dstudy(i=[Counts([2, 2]), Counts([1, 3]), Counts([4, 4, 4])]).table
    np.testing.assert_allclose(table["h"] * table["i"], [4, 4, 12])
    np.testing.assert_allclose(table["h"], [2, 16 / 10, 3])


def test_a_layout_of_judges_who_share_some_topics():
    """Incomplete blocks: judges A and B on topics 1 and 2, B and C on topic 3."""
    g = from_components(BODOFF_LI)
    rows = {"i": [1, 1, 2, 2, 3, 3], "a": ["A", "B", "A", "B", "B", "C"]}
    study = g.dstudy("p x i x a", object="p", layout={"blocks": rows, "one judge": {
        "i": [1, 2, 3], "a": ["A"] * 3}})  # fmt: skip
    assert list(study.table.index) == ["blocks", "one judge"]
    v = BODOFF_LI
    squares = (2**2 + 3**2 + 1) / 36
    blocks = (v["i"] + v["pi"]) / 3 + (v["a"] + v["pa"]) * squares + (v["ia"] + v["pia"]) / 6
    single = (v["i"] + v["pi"] + v["ia"] + v["pia"]) / 3 + v["a"] + v["pa"]
    np.testing.assert_allclose(study.table["abs_err_var"], [blocks, single], rtol=1e-12)
    assert "blocks" in str(study)
    assert "layout" in study.notes[0]


def test_a_layout_in_which_objects_differ():
    g = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0})
    rows = pd.DataFrame({"p": [1, 1, 2, 2, 2, 2], "i": [1, 2, 1, 2, 3, 4]})
    row = g.dstudy(object="p", layout=rows).table.iloc[0]
    assert row["abs_err_var"] == pytest.approx(1.2 * (1 / 2 + 1 / 4) / 2, rel=1e-12)


def test_the_gstudys_own_rows_as_a_layout():
    data = vcomp.datasets.load("bodoff2007_alpha").drop(index=[0, 7])
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
    own, layout = res.dstudy().table, res.dstudy(object="sys", layout=data).table
    columns = ["abs_err_var", "Phi"]
    np.testing.assert_allclose(own[columns].to_numpy(), layout[columns].to_numpy(), rtol=1e-12)
    # Two of the five systems miss a topic, which differences from them then hold.
    assert layout["rel_err_var"].iloc[0] > own["rel_err_var"].iloc[0]


# what follows ------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(
    st.lists(st.integers(1, 20), min_size=7, max_size=7),
    st.sampled_from(["Erho2", "Phi"]),
    st.sampled_from(["i", "o"]),
    st.booleans(),
    st.integers(1, 4),
)
def test_required_sizes_reach_their_goal(values, coefficient, facet, finite, other):
    names = ["p", "i", "o", "pi", "po", "io", "pio"]
    g = from_components(dict(zip(names, [v / 4 for v in values], strict=True)))
    held = {"i": "o", "o": "i"}[facet]
    options = {"universe": {facet: 12}} if finite else {"fixed": held}
    study = g.dstudy("p x i x o", object="p", sizes={facet: 1, held: other}, **options)
    found = study.required(0.6, coefficient, facet)
    if math.isinf(found.n):
        largest = 12 if finite else 10**9
        best = g.dstudy("p x i x o", object="p", sizes={facet: largest, held: other}, **options)
        assert best.table[coefficient].iloc[0] < 0.6 + 1e-9
        return
    sizes = [n for n in (found.n, found.n - 1) if n > 0]
    table = g.dstudy("p x i x o", object="p", sizes={facet: sizes, held: other}, **options).table
    assert table[coefficient].iloc[0] >= 0.6 - 1e-9
    assert (table[coefficient].iloc[1:] < 0.6).all()


@pytest.mark.parametrize("options", [{"fixed": ["i", "a"]}, {"universe": {"i": 20}, "fixed": "a"}])
def test_without_a_random_facet_nothing_is_error(options):
    message = "the error of a score is confounded with p:i:a in pia; leave a facet random"
    with pytest.raises(PlanError, match=message):
        CROSSED.dstudy(i=20, a=3, **options)


def test_replicates_stay_random():
    g = gstudy({"p": 2.0, "i": 1.0, "p:i": 0.5, "Residual": 4.0}, replicated=True)
    row = dstudy(g, object="p", i=5, replicate=2, fixed="i").table.iloc[0]
    assert row["universe_var"] == pytest.approx(2.0 + 0.5 / 5, rel=1e-12)
    assert row["rel_err_var"] == pytest.approx(4.0 / 10, rel=1e-12)


def test_exact_intervals_of_a_two_way_table_are_of_random_facets():
    data = vcomp.datasets.load("bodoff2007_alpha")
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", data, method="anova")
    study = res.dstudy(topic=3, universe={"topic": 6})
    assert "Feldt" not in " ".join(study.interval_methods.values())
    wide, narrow = res.dstudy(topic=3).table.iloc[0], study.table.iloc[0]
    assert narrow["Erho2_low"] > wide["Erho2_low"]


def test_the_summary_says_to_what_scores_are_generalized():
    study = CROSSED.dstudy(i=[20, 40], a=3, fixed="a", universe={"i": 500})
    text = " ".join(str(study).split())
    assert "σ²(p | a) = 0.007543." in text
    assert "Fixed: the universe has only the planned levels of a." in text
    assert "The universe of i has 500 levels." in text
    assert "levels of i are needed" in text


def test_generalizing_less_is_more_reliable():
    g = from_components({**BODOFF_LI, "a": 0.001})
    wide = g.dstudy(i=20, a=3).table.iloc[0]
    narrow = g.dstudy(i=20, a=3, fixed="a").table.iloc[0]
    some = g.dstudy(i=20, a=3, universe={"a": 6}).table.iloc[0]
    assert wide["Phi"] < some["Phi"] < narrow["Phi"]
    everything = g.dstudy(i=20, a=3, universe={"a": 3}).table.iloc[0]
    np.testing.assert_allclose(everything.to_numpy(), narrow.to_numpy())


# errors ------------------------------------------------------------------------------------------

CROSSED = from_components(BODOFF_LI)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fixed": "p"}, "'p' belongs to the object of measurement and cannot be in fixed="),
        ({"fixed": "judge"}, "unknown facet 'judge'"),
        ({"fixed": 3}, "fixed is a facet or a list of facets, not 3"),
        ({"universe": {"i": 5}}, "20 levels of i cannot be drawn from a universe of 5"),
        ({"universe": {"i": 0}}, "the size of 'i' must be a positive number"),
        ({"universe": ["i"]}, "universe is a mapping"),
        (
            {"universe": {"i": 50}, "fixed": "i"},
            "'i' is fixed: its universe are the planned levels",
        ),
        ({"within": "a"}, "within='a': objects are compared within levels of a facet that is a"),
        ({"within": "p"}, "nothing of the object p is left to distinguish"),
        ({"object": []}, "the object of measurement is empty"),
        ({"object": "p:x"}, "unknown facet 'x'"),
        ({"object": "p:i"}, "'i' is a part of the object of measurement p:i and has no size"),
        ({"layout": pd.DataFrame({"i": [1], "a": [1]})}, "sizes or a layout .* not both"),
    ],
)
def test_errors(options, message):
    with pytest.raises(PlanError, match=message):
        CROSSED.dstudy(i=20, a=3, **options)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (pd.DataFrame({"i": [1]}), "the layout cannot be read: there is no column 'a'"),
        (pd.DataFrame({"i": [], "a": []}), "the layout has no rows"),
        (
            pd.DataFrame({"i": [1, None], "a": [1, 1]}),
            "the layout has a missing value in column 'i'",
        ),
        (pd.DataFrame({"i": [1, 1], "a": [1, 1]}), "the layout repeats a cell"),
        ({}, "no layout is given"),
        ({"one": pd.DataFrame({"i": [1]})}, "layout 'one' cannot be read"),
        (7, "the layout cannot be read: data of type int"),
    ],
)
def test_errors_of_layouts(layout, message):
    with pytest.raises(PlanError, match=message):
        CROSSED.dstudy(object="p", layout=layout)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Counts([]), "there are no counts"),
        (lambda: Counts([1, 0]), "the size of 'a group' must be a positive number, not 0"),
        (lambda: Counts(3), "counts are numbers such as"),
        (lambda: Counts([1], "geometric"), "the rule of counts must be 'exact'"),
        (lambda: CROSSED.dstudy(object="p", i=Counts([1, 2]), a=1), "'i' is not nested in"),
        (lambda: HEADINGS.dstudy(i=Counts([1, 2]), h=2), "leave out h="),
        (lambda: HEADINGS.dstudy(i=[Counts([1, 2]), 4]), "a number in every plan"),
    ],
)
def test_errors_of_counts(make, message):
    with pytest.raises(PlanError, match=message):
        make()


def test_a_fixed_facet_has_no_required_size():
    with pytest.raises(PlanError, match="'a' is fixed: its planned levels are the whole universe"):
        CROSSED.dstudy(i=20, a=3, fixed="a").required(0.9, facet="a")
