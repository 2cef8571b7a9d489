"""Crossed, nested, balanced, connected: against definitions that go through rows one by one."""

import re
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.examples import examples
from tests.helpers.learned_designs import tables
from vcomp.design.nesting import describe_structure
from vcomp.formula import parse
from vcomp.formula.brennan import parse_design


def structure_of(formula, table):
    parsed = parse(formula)
    coded = [np.unique(table[f], return_inverse=True) for f in parsed.facets]
    codes = [inverse.astype(np.int32) for _, inverse in coded]
    return describe_structure(parsed, [u.size for u, _ in coded], codes, codes[0].size)


# Definitions, row by row ------------------------------------------------------------------------


def rows(table, facets):
    return list(zip(*(np.asarray(table[f]).tolist() for f in facets), strict=True))


def is_nested_by_label(table, inner, outer):
    """Every level of the one occurs in one level of the other, and some level has several."""
    within = {}
    for i, o in rows(table, [inner, outer]):
        within.setdefault(i, set()).add(o)
    n_outer = len(set(np.asarray(table[outer]).tolist()))
    return all(len(outers) == 1 for outers in within.values()) and len(within) > n_outer


def is_nested_by_formula(formula, inner, outer):
    """The one stands in no term without the other, the other in some without the one."""
    terms = [set(term.facets) for term in parse(formula).random]
    return all(outer in t for t in terms if inner in t) and any(
        inner not in t for t in terms if outer in t
    )


def nesting(formula, table):
    facets = parse(formula).facets

    def by_label(f, g):
        return f != g and is_nested_by_label(table, f, g)

    def either(f, g):
        return f != g and (by_label(f, g) or is_nested_by_formula(formula, f, g))

    def is_above(f, g):
        """Levels within those of f must not be crossed with g, if it is only the formula."""
        inner = [h for h in facets if by_label(h, f)]
        return by_label(f, g) or (either(f, g) and all(either(h, g) for h in inner))

    above = {f: {g for g in facets if is_above(f, g)} for f in facets}
    for _ in facets:
        above = {f: s.union(*(above[g] for g in s)) for f, s in above.items()}
    return above


def units(table, facet, above):
    """Return the unit of a facet in every row: its level with those that it is nested in."""
    return rows(table, sorted({facet, *above[facet]}))


def is_fully_crossed(table, a, b, above):
    of_a, of_b = units(table, a, above), units(table, b, above)
    return set(zip(of_a, of_b, strict=True)) == set(product(set(of_a), set(of_b)))


def n_parts(table, above):
    """Count parts by union-find over the units that each row joins."""
    top = [f for f in above if not above[f]]
    parent = {}

    def root(node):
        parent.setdefault(node, node)
        while parent[node] != node:
            node = parent[node]
        return node

    for row in rows(table, top):
        nodes = list(zip(top, row, strict=True))
        for node in nodes[1:]:
            parent[root(node)] = root(nodes[0])
    return len({root(node) for node in list(parent)}) if len(top) > 1 else 1


def is_balanced(table, above):
    """Every combination that the nesting allows occurs, equally often."""
    facets = list(above)
    cells = rows(table, facets)
    if len({cells.count(cell) for cell in cells}) > 1:
        return False
    for facet in facets:
        if above[facet]:
            parents = rows(table, sorted(above[facet]))
            children = {}
            for parent, unit in zip(parents, units(table, facet, above), strict=True):
                children.setdefault(parent, set()).add(unit)
            if len({len(c) for c in children.values()}) > 1:
                return False
    n_possible = 1
    for facet in facets:
        n_parents = len(set(rows(table, sorted(above[facet])))) if above[facet] else 1
        n_possible *= len(set(units(table, facet, above))) / n_parents
    return len(set(cells)) == round(n_possible)


def harmonic_mean(numbers):
    return len(numbers) / sum(1 / n for n in numbers)


def met(groups, units):
    """Return with how many different units each group occurs."""
    found = {}
    for group, unit in zip(groups, units, strict=True):
        found.setdefault(group, set()).add(unit)
    return [len(own) for own in found.values()]


def sizes_of(table, above):
    """Return how many levels of each facet go with one of those above, or of the first other."""
    top = [f for f in above if not above[f]]
    sizes = {}
    for facet in above:
        others = [f for f in top if f != facet]
        group = sorted(above[facet]) or others[:1]
        groups = rows(table, group) if group else [()] * len(table[facet])
        sizes[facet] = harmonic_mean(met(groups, units(table, facet, above)))
    cells = rows(table, list(above))
    counts = [cells.count(cell) for cell in set(cells)]
    return sizes if max(counts) == 1 else {**sizes, "replicate": harmonic_mean(counts)}


def check(formula, table):
    structure, above = structure_of(formula, table), nesting(formula, table)
    facets = structure.facets
    if any(f in above[f] for f in facets):
        # Formula and labels contradict each other; that has a test of its own.
        assert not any(f in structure.nested_in[f] for f in facets)
        return structure
    assert {f: set(s) for f, s in structure.nested_in.items()} == above
    assert set(structure.implicit) == {
        f for f in facets for g in facets if f != g and is_nested_by_label(table, f, g)
    }
    assert structure.n_levels == tuple(len(set(units(table, f, above))) for f in facets)
    pairs = {
        (a, b)
        for a, b in combinations(facets, 2)
        if a not in above[b] and b not in above[a] and not above[a] & above[b]
    }
    fully = {(a, b) for a, b in pairs if is_fully_crossed(table, a, b, above)}
    assert set(structure.fully_crossed) == fully
    assert set(structure.partly_crossed) == pairs - fully
    cells = rows(table, facets)
    counts = [cells.count(cell) for cell in set(cells)]
    assert structure.n_rows == len(cells)
    assert structure.n_cells == len(counts)
    assert (structure.cell_min, structure.cell_max) == (min(counts), max(counts))
    assert structure.replicated == (max(counts) > 1)
    assert structure.n_parts == n_parts(table, above)
    assert structure.connected == (structure.n_parts == 1)
    assert structure.balanced == is_balanced(table, above)
    assert structure.sizes == pytest.approx(sizes_of(table, above), rel=1e-14)
    check_words(structure)
    return structure


def check_words(structure):
    report = str(structure.report())
    assert report.startswith(structure.title())
    assert ("unbalanced" in report) != structure.balanced
    assert ("not connected" in report) != structure.connected
    assert (f"falls into {structure.n_parts} parts" in report) != structure.connected
    for facet, above in structure.nested_in.items():
        assert (f"{facet} is nested in" in report) == bool(above)
    for term, effects in structure.terms.items():
        several = f"{term} holds {' and '.join(effects[-2:])}, which cannot" in report
        assert several == (len(effects) == 2)


FORMULAS = [
    "y ~ (1|a) + (1|b) + (1|c)",
    "y ~ (1|a/b) + (1|c)",
    "y ~ (1|a/b/c)",
    "y ~ (1|a:b) + (1|c)",
    "y ~ (1|a*b*c)",
    "y ~ (1|a) + (1|b)",
    "y ~ (1|a)",
]


@settings(deadline=None, max_examples=examples(150))
@given(tables(), st.sampled_from(FORMULAS))
def test_any_design(table, formula):
    check(formula, table)


@settings(deadline=None, max_examples=examples(150))
@given(tables(), st.sampled_from(FORMULAS), st.data())
def test_designs_nested_by_their_labels(table, formula, data):
    outer = data.draw(st.sampled_from(["a", "c"]))
    table = {**table, "b": table["b"] + 10 * table[outer]}
    check(formula, table)


@settings(deadline=None, max_examples=examples(100))
@given(
    st.tuples(*[st.integers(2, 4)] * 3),
    st.integers(1, 2),
    st.sampled_from(FORMULAS),
    st.sampled_from(["crossed", "b in a", "c in b in a", "c in a and b"]),
    st.sets(st.integers(0, 100), max_size=2),
)
def test_full_designs_and_full_designs_with_gaps(sizes, n_scores, formula, how, gaps):
    cells = np.array(list(product(*map(range, sizes))) * n_scores)
    cells = np.delete(cells, [g for g in gaps if g < len(cells) - 4], axis=0)
    a, b, c = cells.T
    if how != "crossed":
        b = b if how == "c in a and b" else a * 10 + b
    if how == "c in b in a":
        c = b * 10 + c
    if how == "c in a and b":
        c = (a * 10 + b) * 10 + c
    check(formula, {"a": a, "b": b, "c": c})


# Designs with a name -----------------------------------------------------------------------------


def crossed(**sizes):
    grid = np.indices(tuple(sizes.values())).reshape(len(sizes), -1)
    return dict(zip(sizes, grid, strict=True))


def test_fully_crossed():
    structure = check("y ~ (1|sys) + (1|topic)", crossed(sys=3, topic=4))
    assert structure.title() == "3 sys × 4 topics, fully crossed, balanced"
    assert structure.cells() == "1 a cell"
    assert structure.terms == {
        "sys": ("sys",),
        "topic": ("topic",),
        "Residual": ("sys:topic", "error"),
    }


def test_replicated():
    table = {name: np.tile(column, 2) for name, column in crossed(sys=3, topic=4).items()}
    structure = check("y ~ (1|sys) + (1|topic)", table)
    assert structure.cells() == "2 a cell"
    assert structure.terms["Residual"] == ("sys:topic", "replication and error")
    structure = check("y ~ (1|sys*topic)", table)
    assert structure.terms["Residual"] == ("replication and error",)
    unequal = {name: column[:-1] for name, column in table.items()}
    structure = check("y ~ (1|sys*topic)", unequal)
    assert structure.cells() == "1 to 2 a cell (12 cells)"
    assert not structure.balanced


def test_documents_in_topics_by_the_formula_and_by_their_labels():
    grid = crossed(sys=3, topic=4, doc=5)
    explicit = check("y ~ (1|sys) + (1|topic/doc)", grid)
    by_label = {**grid, "doc": grid["topic"] * 100 + grid["doc"]}
    implicit = check("y ~ (1|sys) + (1|topic) + (1|doc)", by_label)
    assert explicit.title() == implicit.title()
    assert explicit.title().endswith(", crossed and nested, balanced")
    assert explicit.title().startswith("3 sys × (20 docs : 4 topics), ")
    assert "doc is nested in topic (as the formula says)" in explicit.report()
    assert "doc is nested in topic (by its labels)" in implicit.report()
    # What cannot be distinguished: documents, and documents with topics.
    assert explicit.terms["topic:doc"] == ("doc", "topic:doc")
    assert implicit.terms["doc"] == ("doc", "topic:doc")
    crossed_anyway = check("y ~ (1|sys) + (1|topic) + (1|doc)", grid)
    assert crossed_anyway.title() == "3 sys × 4 topics × 5 docs, fully crossed, balanced"


def test_topics_with_different_numbers_of_documents():
    grid = crossed(sys=3, topic=4, doc=5)
    keep = (grid["topic"] > 0) | (grid["doc"] < 3)
    structure = check("y ~ (1|sys) + (1|topic/doc)", {f: c[keep] for f, c in grid.items()})
    assert not structure.balanced
    assert structure.fully_crossed == (("sys", "topic"), ("sys", "doc"))
    assert structure.n_levels == (3, 4, 18)
    assert structure.sizes["doc"] == pytest.approx(4 / (1 / 3 + 3 / 5), rel=1e-15)


@pytest.mark.parametrize("numbers", [(2, 3), (1, 2, 2), (49, 49, 49), (1, 4, 9, 4)])
def test_harmonic_means_of_numbers_of_levels(numbers):
    """Of equal numbers exactly that number, also if 1/n is rounded."""
    rows = {"topic": [], "doc": []}
    for topic, n in enumerate(numbers):
        rows["topic"] += [topic] * n
        rows["doc"] += range(n)
    grid = {f: np.repeat(codes, 2) for f, codes in rows.items()}
    found = check("y ~ (1|topic/doc)", grid).sizes["doc"]
    assert found == pytest.approx(len(numbers) / sum(1 / n for n in numbers), rel=1e-14)
    if len(set(numbers)) == 1:
        assert found == numbers[0]


def test_deep_nesting():
    grid = crossed(school=2, form=3, pupil=4)
    structure = check("y ~ (1|school/form/pupil)", grid)
    assert structure.nested_in["pupil"] == {"school", "form"}
    assert structure.n_levels == (2, 6, 24)
    assert structure.title().endswith(", nested, balanced")


def test_labels_win_over_a_formula_that_contradicts_them():
    # As the formula has it schools are within pupils; every pupil goes to one school only.
    table = crossed(school=2, pupil=3, test=4)
    table["pupil"] = table["school"] * 10 + table["pupil"]
    structure = structure_of("y ~ (1|pupil) + (1|pupil:school:test)", table)
    assert structure.nested_in["pupil"] == {"school"}
    assert structure.nested_in["school"] == frozenset()
    assert structure.title().startswith("24 tests : 6 pupils : 2 schools, ")


def test_levels_that_are_crossed_prevent_nesting_by_the_formula():
    """Seeds by digits are a term, digits alone are none, and images are seen by all seeds."""
    table = crossed(seed=3, digit=4, image=2)
    table["image"] = table["digit"] * 10 + table["image"]
    structure = check("y ~ (1|seed) + (1|seed:digit) + (1|image)", table)
    assert structure.nested_in == {"seed": set(), "digit": set(), "image": {"digit"}}
    assert structure.title() == "3 seeds × (8 images : 4 digits), crossed and nested, balanced"


def test_one_way():
    structure = check("y ~ (1|batch)", {"batch": np.repeat([0, 1, 2], 4)})
    assert structure.title() == "3 batches, one-way, balanced"


def test_a_design_of_one_effect_is_drawn():
    figure = pytest.importorskip("matplotlib.figure", reason="matplotlib is an extra").Figure()
    structure = structure_of("y ~ (1|a)", {"a": np.repeat(np.arange(4), 3)})
    assert [place.effect.name for place in structure.effects] == ["a"]
    assert structure.plot(ax=figure.subplots()).get_title() == "a"


def test_parts_that_share_no_level():
    halves = {"sys": np.repeat([0, 1, 2, 3], 2), "topic": np.array([0, 1, 0, 1, 2, 3, 2, 3])}
    structure = check("y ~ (1|sys) + (1|topic)", halves)
    assert structure.n_parts == 2
    assert (
        structure.title()
        == "4 sys × 4 topics, partly crossed, unbalanced, not connected (2 parts)"
    )
    joined = {"sys": [*halves["sys"], 0], "topic": [*halves["topic"], 3]}
    assert check("y ~ (1|sys) + (1|topic)", joined).connected


def test_parts_are_named():
    sys = np.array(["bm25", "lm", "dfr", "a", "b", "c", "d", "e"])
    first, second = np.arange(3), np.arange(3, 8)
    table = {
        "sys": np.concatenate([np.repeat(sys[first], 2), np.repeat(sys[second], 4)]),
        "topic": np.concatenate([np.tile([301, 302], 3), np.tile([401, 402, 403, 404], 5)]),
    }
    data = table | {"y": np.random.default_rng(0).normal(size=26)}
    model = vcomp.VarianceComponentsModel("y ~ (1|sys) + (1|topic)", data)
    structure = model.design.structure
    large, small = structure.parts
    assert large.sizes == {"sys": 5, "topic": 4}
    assert large.examples == {"sys": ("a", "b", "c"), "topic": ("401", "402", "403")}
    assert small.sizes == {"sys": 3, "topic": 2}
    report = str(model.design)
    assert "part 1: 5 sys (a, b, c, …); 4 topic (401, 402, 403, …)" in report
    assert "part 2: 3 sys (bm25, dfr, lm); 2 topic (301, 302)" in report
    res = model.fit()
    assert "falls into 2 parts that share no level (print the design" in str(res.summary())
    again = vcomp.VarianceComponentsResults.from_json(res.to_json())
    assert again.design == structure
    assert again.design.report() == structure.report()


def test_many_parts_are_counted():
    pairs = np.repeat(np.arange(9), 4)
    table = {"sys": pairs * 2 + np.tile([0, 0, 1, 1], 9), "topic": pairs * 2 + np.tile([0, 1], 18)}
    structure = structure_of("y ~ (1|sys) + (1|topic)", table)
    assert structure.n_parts == 9
    assert len(structure.parts) == 5
    assert "\n  and 4 more that are no larger\n" in structure.report()
    # Where none is described, or all are, there are no more.
    assert "no larger" not in replace(structure, parts=()).report()
    assert "no larger" not in replace(structure, n_parts=5).report()


@pytest.mark.parametrize(
    "formula", ["score ~ (1|sys) + (1|topic)", "score ~ (1|sys) + (1|topic/doc)"]
)
def test_a_model_shows_its_design(formula):
    grid = crossed(sys=3, topic=4, doc=5)
    data = {"score": np.random.default_rng(0).normal(size=60), **grid}
    model = vcomp.VarianceComponentsModel(formula, data)
    assert str(model.design) == model.design.structure.report()
    assert model.fit().design.title() == model.design.structure.title()


def test_notation_of_facets_nested_side_by_side():
    # Pupils and teachers, both within schools and crossed there.
    grid = crossed(school=3, pupil=4, teacher=2)
    structure = structure_of("y ~ (1|school) + (1|school:pupil) + (1|school:teacher)", grid)
    assert structure.title().startswith("(12 pupils × 6 teachers) : 3 schools, ")


def test_notation_of_a_facet_within_two_crossed_ones():
    grid = crossed(lab=3, lot=2, day=4, run=2)
    text = "y ~ (1|lab) + (1|lot) + (1|lab:lot:day) + (1|lab:lot:day:run)"
    title = structure_of(text, grid).title()
    assert title.startswith("48 runs : 24 days : (3 labs × 2 lots), ")
    alone = structure_of(
        "y ~ (1|lab) + (1|lot) + (1|test) + (1|lab:lot:day)", crossed(lab=3, lot=2, day=4, test=2)
    ).title()
    assert alone.startswith("(24 days : (3 labs × 2 lots)) × 2 tests, ")


# Effects, notation and words --------------------------------------------------------------------


def test_where_the_variance_of_every_effect_is():
    structure = structure_of("y ~ (1|p) + (1|t/r) + (1|p:t)", crossed(p=4, t=3, r=2))
    assert structure.notation == "p x (r:t)"
    places = {place.effect.name: (place.component, place.holds) for place in structure.effects}
    assert places == {
        "p": ("p", ("p",)),
        "t": ("t", ("t",)),
        "r:t": ("t:r", ("r", "t:r")),
        "pt": ("p:t", ("p:t",)),
        "pr:t": ("Residual", ("p:r", "p:t:r", "error")),
    }
    report = structure.report()
    assert "r from t:r: (1|r) in the formula, if equal labels are the same r" in report
    assert "p:t:r from error: several scores in a cell" in report


def columns_of(report):
    """Return the places of the three columns of the table of effects, and its rows."""
    (table,) = [block for block in report.split("\n\n") if block.startswith("effect ")]
    head, *lines = table.split("\n")
    return [head.index(name) for name in ("component", "holds")], lines


def test_effects_and_components_stand_in_columns():
    report = structure_of("y ~ (1|p) + (1|t/r) + (1|p:t)", crossed(p=4, t=3, r=2)).report()
    (second, third), lines = columns_of(report)
    # Three blanks after the longest of each column: "effect" and "component".
    assert (second, third) == (len("effect") + 3, len("effect") + 3 + len("component") + 3)
    found = [(x[:second].strip(), x[second:third].strip(), x[third:]) for x in lines]
    assert found == [
        ("p", "p", "p"),
        ("t", "t", "t"),
        ("r:t", "t:r", "r, t:r"),
        ("pt", "p:t", "p:t"),
        ("pr:t", "Residual", "p:r, p:t:r, error"),
    ]


@pytest.mark.parametrize("length", [5, 24, 60])
def test_long_names_are_wrapped_in_their_column(length):
    """At 79 letters, or at a third of that where other columns leave less."""
    names = [f"{letter * length}" for letter in "abc"]
    data = crossed(**dict(zip(names, (4, 3, 2), strict=True)))
    report = structure_of(f"y ~ (1|{names[0]}) + (1|{names[1]}/{names[2]})", data).report()
    (_, third), lines = columns_of(report)
    room = max(79 - third, 79 // 3)
    rest = [line[third:] for line in lines]
    assert all(len(part) <= room or " " not in part for part in rest)
    last = " ".join(rest[-len([x for x in lines if x.startswith(" ")]) - 1 :])
    assert last.replace(" ", "").endswith("error")


def test_effects_without_a_term_are_taken_as_zero():
    structure = structure_of("y ~ (1|p) + (1|i) + (1|o)", crossed(p=4, i=3, o=2))
    places = {place.effect.name: place.component for place in structure.effects}
    assert places == {
        "p": "p", "i": "i", "o": "o", "pi": None, "po": None, "io": None, "pio": "Residual"
    }  # fmt: skip
    report = structure.report()
    assert re.search(r"pi +–  +no term: assumed to be zero", report)
    assert "p:i, p:o and i:o from zero: (1|p:i) + (1|p:o) + (1|i:o)" in report


def test_replicates_in_cells_need_a_term_and_not_more_scores():
    table = {name: np.tile(column, 2) for name, column in crossed(sys=3, topic=4).items()}
    without = structure_of("y ~ (1|sys) + (1|topic)", table).report()
    assert "sys:topic from error: (1|sys:topic) in the formula" in without
    assert "What would separate" not in structure_of("y ~ (1|sys*topic)", table).report()


@settings(deadline=None, max_examples=examples(100))
@given(tables(), st.sampled_from(FORMULAS))
def test_effects_and_components_of_any_design(table, formula):
    structure = structure_of(formula, table)
    if any(f in structure.nested_in[f] for f in structure.facets):
        return
    terms = {frozenset(t.facets) for t in parse(formula).random}
    nested = structure.nested_in
    grown = {frozenset(t.union(*(nested[f] for f in t))) for t in terms}
    components = [p.component for p in structure.effects]
    assert {p.effect.facets for p in structure.effects if p.component} - {
        frozenset(structure.facets)
    } == grown - {frozenset(structure.facets)}
    everything = structure.effects[-1]
    assert everything.component is not None
    assert components.count("Residual") == (frozenset(structure.facets) not in grown)
    for place in structure.effects:
        assert (place.holds == ()) == (place.component is None)
    assert max(map(len, structure.report().split("\n"))) <= 200
    assert parse_design(structure.notation).nested_in == structure.nested_in


def test_many_facets_are_not_listed():
    names = [f"f{k}" for k in range(13)]
    rng = np.random.default_rng(0)
    table = {name: np.tile([0, 1], 20)[rng.permutation(40)] for name in names}
    structure = structure_of("y ~ " + " + ".join(f"(1|{name})" for name in names), table)
    assert structure.effects == ()
    assert "effect " not in structure.report()
    with pytest.raises(vcomp.DesignError, match="thousands of effects, and up to 64 can be drawn"):
        structure.plot()


def test_a_notebook_shows_the_drawing_as_it_is():
    structure = structure_of("y ~ (1|a<b) + (1|topic)".replace("a<b", "Q('a<b')"), {
        "a<b": np.array([0, 0, 1, 1]), "topic": np.array([0, 1, 0, 1]),
    })  # fmt: skip
    shown = structure._repr_html_()
    assert shown.startswith("<pre>2 a&lt;b × 2 topics")
    assert shown.count("<") == 2


def test_scores_as_a_facet():
    structure = structure_of("y ~ (1|p)", {"p": np.repeat([0, 1, 2], [3, 3, 6])})
    named = structure.with_scores_as("i")
    assert named.facets == ("p", "i")
    assert named.n_levels == (3, 12)
    assert named.nested_in == {"p": frozenset(), "i": {"p"}}
    assert (named.n_cells, named.cell_min, named.cell_max) == (12, 1, 1)
    assert named.sizes == {"p": 3.0, "i": pytest.approx(3 / (1 / 3 + 1 / 3 + 1 / 6))}
    assert named.terms == {"p": ("p",), "Residual": ("i", "p:i", "error")}
    assert named.title() == "12 i : 3 p, nested, unbalanced"
    assert "about 3.60 in each" in named.report()


def test_fixed_factors_are_known_to_the_design():
    """The cake experiment: recipes are fixed, and replicates are numbered within each."""
    data = pd.DataFrame(crossed(recipe=3, replicate=4, temperature=2))
    data["angle"] = np.random.default_rng(2).normal(size=len(data))
    formula = "angle ~ C(recipe) * C(temperature) + (1|recipe:replicate)"
    design = vcomp.fit(formula, data).design
    assert design.title() == "12 replicates : 3 recipes, nested, balanced"
    assert [(e.effect.name, e.component) for e in design.effects] == [
        ("recipe", "fixed part"),
        ("replicate:recipe", "recipe:replicate"),
    ]
    report = design.report()
    assert "12 replicate" in design.drawing()
    assert "assumed to be zero" not in report
    assert "(1|recipe)" not in report
    # Its advice, followed, separates the effects.
    assert "replicate from recipe:replicate: (1|replicate) in the formula" in report
    design = vcomp.fit(formula + " + (1|replicate)", data).design
    assert design.title() == "3 recipes × 4 replicates, fully crossed, balanced"
    assert design.terms["replicate"] == ("replicate",)


def test_a_fixed_model_is_crossed_with_the_prompts_of_its_interaction():
    data = pd.DataFrame(crossed(model=3, prompt=5, sample=2))
    data["score"] = np.random.default_rng(1).normal(size=len(data))
    design = vcomp.fit("score ~ C(model) + (1|prompt) + (1|model:prompt)", data).design
    assert design.title() == "5 prompts × 3 models, fully crossed, balanced"
    assert design.fixed == ("model",)


@pytest.mark.parametrize(
    ("bars", "component"),
    [
        ("(x|g)", "g, g[x]"),
        ("(x||g)", "g, g[x]"),
        ("(0 + x|g)", "g[x]"),
        ("(c||g)", "g[c[p]], g[c[q]], …"),
        ("(c|g)", "g, g[c[T.q]], …"),
        ("(1|g)", "g"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_effects_with_slopes_name_their_variances(bars, component, stream):
    rng = np.random.default_rng(2)
    data = pd.DataFrame({"g": np.repeat(np.arange(9), 9), "h": np.arange(81) % 4})
    data["c"], data["x"] = np.tile(list("pqr"), 27), rng.normal(size=81)
    data["y"] = rng.normal(size=(9, 3))[data["g"], np.arange(81) % 3] + rng.normal(size=81)
    res = vcomp.fit(f"y ~ {bars} + (1|h)", data, stream=stream)
    stored = vcomp.VarianceComponentsResults.from_json(res.to_json())
    for design in (res.design, stored.design):
        assert [place.component for place in design.effects] == [component, "h", "Residual"]
        assert component in str(design)
