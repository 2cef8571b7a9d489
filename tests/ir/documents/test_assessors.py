"""Layouts of roles and individuals: by hand, against enumeration, and as G-studies take them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import vcomp
from tests.helpers.examples import examples
from vcomp.exceptions import DataError, PlanError
from vcomp.ir.documents.layouts import _greedy, assessor_layouts, largest_crossed

# One author and two second assessors a topic, as in Voorhees' data (Bodoff, 2008, table 4).
JUDGES = {202: "AMC", 206: "CAM", 209: "AMD", 214: "MAC", 222: "DAM", 226: "AMC"}
ASSIGNED = pd.DataFrame(
    [
        (t, role, a)
        for t, judges in JUDGES.items()
        for role, a in zip(["author", "second", "second"], judges, strict=True)
    ],
    columns=["topic", "role", "assessor"],
)  # fmt: skip


@pytest.fixture(scope="module")
def layouts():
    return assessor_layouts(ASSIGNED)


@pytest.fixture(scope="module")
def scores():
    rng = np.random.default_rng(1)
    cells = ASSIGNED.merge(pd.DataFrame({"system": list("wxyz")}), "cross")
    return cells.assign(F=rng.normal(size=len(cells))).sample(frac=1, random_state=2)


def chosen(layout):
    return set(layout.assignments.itertuples(index=False, name=None))


def test_what_is_possible(layouts):
    assert list(layouts) == [
        "roles", "individuals", "individuals in second", "crossed", "crossed in second",
        "one to one",
    ]  # fmt: skip
    assert set(layouts.impossible) == {
        "individuals in author", "crossed in author", "roles x individuals",
        "individuals in roles",
    }  # fmt: skip
    assert len(layouts) == 6
    assert "one to one" in layouts
    assert "roles x individuals" not in layouts


def test_roles_take_the_first_of_several(layouts):
    layout = layouts["roles"]
    assert layout.design == "system x role x topic"
    first = ASSIGNED.drop_duplicates(["topic", "role"])
    assert chosen(layout) == set(first.itertuples(index=False, name=None))
    assert "the first is used" in layout.confounds
    assert "the first" not in assessor_layouts(first)["roles"].confounds


def test_all_opinions(layouts):
    assert "Individuals and roles are one effect" in layouts["individuals"].confounds
    assert chosen(layouts["individuals"]) == set(ASSIGNED.itertuples(index=False, name=None))
    second = ASSIGNED[ASSIGNED["role"] == "second"]
    assert chosen(layouts["individuals in second"]) == set(
        second.itertuples(index=False, name=None)
    )


def test_individuals_that_judged_the_same_topics(layouts):
    # A and M are in all six topics (12 cells); A, C and M in four (12 as well): ties go to the
    # first in order, which is A, C, M before A, M.
    layout = layouts["crossed"]
    cells = layout.assignments
    assert len(cells) == 12
    assert set(cells["assessor"]) == {"A", "C", "M"}
    assert layout.design == "system x assessor x topic"
    assert layout.measures == "individuals, over whatever roles they had"
    assert set(cells["role"]) == {"author", "second"}
    # As second assessors A and M are together in 206 and 222 (table 17 has such a pair).
    both = layouts["crossed in second"].assignments
    assert set(both["topic"]) in ({206, 222}, {202, 226}, {206, 222, 226})
    assert len(both) == 4
    assert set(both["role"]) == {"second"}


def test_one_to_one(layouts):
    # A is author and M second in 202, 209 and 226: table 18.
    assert chosen(layouts["one to one"]) == {
        (t, role, a) for t in (202, 209, 226) for role, a in (("author", "A"), ("second", "M"))
    }
    assert all(layouts[name].exact for name in layouts)


def test_of_equal_pairs_those_of_the_first_topic_are_chosen():
    cells = [(t, r, r + pair) for t, pair in ((2, "b"), (2, "b"), (1, "a"), (3, "a"), (4, "b"))
             for r in "xy"]  # fmt: skip
    frame = pd.DataFrame(cells, columns=["topic", "role", "assessor"]).drop_duplicates()
    assert set(assessor_layouts(frame)["one to one"].assignments["topic"]) == {2, 4}


@pytest.mark.parametrize(("n", "exact"), [(11, True), (12, True), (13, False)])
def test_one_to_one_of_many_is_of_pairs(n, exact):
    """All sets of at most twelve are examined; pairs of more."""
    cells = [(t, f"r{k}", f"a{k}") for t in (1, 2) for k in range(n)]
    found = assessor_layouts(pd.DataFrame(cells, columns=["topic", "role", "assessor"]))
    layout = found["one to one"]
    assert layout.exact is exact
    assert len(layout.assignments) == 2 * (n if exact else 2)


def test_individuals_in_roles_and_everyone():
    cells = [(t, r, f"{r}{t}{k}") for t in (1, 2, 3) for r in "xy" for k in (0, 1)]
    layouts = assessor_layouts(pd.DataFrame(cells, columns=["topic", "role", "assessor"]))
    assert layouts["individuals in roles"].design == "system x (assessor:(role x topic))"
    assert len(layouts["individuals in roles"].assignments) == 12
    assert "crossed" in layouts.impossible
    every = [(t, r, a) for t in (1, 2) for r in "xy" for a in "AB"]
    layouts = assessor_layouts(pd.DataFrame(every, columns=["topic", "role", "assessor"]))
    assert len(layouts["roles x individuals"].assignments) == 8


@pytest.mark.parametrize(("roles", "people"), [("xy", "A"), ("x", "AB"), ("x", "A")])
def test_roles_and_individuals_are_two_of_each(roles, people):
    cells = [(t, r, a) for t in (1, 2, 3) for r in roles for a in people]
    found = assessor_layouts(pd.DataFrame(cells, columns=["topic", "role", "assessor"]))
    assert found.impossible["roles x individuals"] == "it needs two roles and two individuals"


def test_one_role_is_all_there_are():
    cells = [(t, "x", a) for t in (1, 2, 3) for a in "AB"]
    layouts = assessor_layouts(pd.DataFrame(cells, columns=["topic", "role", "assessor"]))
    assert layouts["crossed"].measures == "individuals in one role"
    assert "roles" not in layouts["individuals"].confounds


def test_individuals_in_roles_need_two_topics_with_two_roles():
    def why(cells):
        frame = pd.DataFrame(cells, columns=["topic", "role", "assessor"])
        return assessor_layouts(frame).impossible.get("individuals in roles")

    def pairs(*cells):
        return [(t, r, f"{r}{t}{k}") for t, r in cells for k in (0, 1)]

    assert why(pairs((1, "x"), (1, "y"), (2, "x"), (2, "y"))) is None
    assert why(pairs((1, "x"), (1, "y"), (2, "x"))) == "no two topics have all roles"
    assert why(pairs((1, "x"), (2, "x"), (3, "x"))) == "no two topics have all roles"
    one = why([*pairs((1, "x"), (1, "y"), (2, "x")), (2, "y", "z")])
    assert one == "role 'y' has only one individual in a topic: their effects are confounded"


def test_greedy_subsets_are_at_least_as_large_as_wanted():
    """The row or column with the largest share of empty cells goes first."""
    table = [frozenset(x) for x in ("abc", "abc", "ab", "d")]
    block = ((0, 1), ("a", "b", "c"))
    for rows, columns, found in (
        (1, 1, block), (2, 3, block), (3, 1, None), (1, 4, None), (2, 4, None),
    ):  # fmt: skip
        subsets = _greedy(table, rows, columns)
        assert [(s.rows, s.columns) for s in subsets] == ([found] if found else [])
        assert not any(s.exact for s in subsets)


def test_one_judge_a_topic_allows_nothing():
    layouts = assessor_layouts({"topic": [1, 2], "role": ["x", "x"], "assessor": ["A", "B"]})
    assert len(layouts) == 0
    assert repr(layouts) == "<AssessorLayouts: none>"
    assert "not possible" in str(layouts)
    assert len(layouts.table) == 0


@pytest.mark.filterwarnings("ignore")
def test_each_is_ready_for_a_g_study(layouts, scores):
    for name in layouts:
        layout = layouts[name]
        rows = layout.rows(scores)
        assert len(rows) == 4 * len(layout.assignments)
        keys = ["topic", "role", "assessor"]
        assert set(rows[keys].itertuples(index=False, name=None)) == chosen(layout)
        merged = rows.astype(dict.fromkeys(keys, object)).merge(scores, on=["system", *keys])
        assert_allclose(merged["F_x"], merged["F_y"])
        assert len(merged) == len(rows)
        res = vcomp.gstudy(layout.design, rows, "F", method="anova")
        assert res.nobs == len(rows)


def test_roles_are_the_analysis_of_the_pivoted_table(layouts, scores):
    """The mean squares of system × role × topic, from the table itself."""
    rows = layouts["roles"].rows(scores)
    keys = ["system", "role", "topic"]
    y = rows.astype(dict.fromkeys(keys, str)).sort_values(keys)["F"].to_numpy().reshape(4, 2, 6)
    within = y - y.mean(axis=1, keepdims=True) - y.mean(axis=2, keepdims=True)
    within = within - y.mean(axis=0) + y.mean(axis=(1, 2), keepdims=True)
    within = within + y.mean(axis=(0, 2))[None, :, None] + y.mean(axis=(0, 1)) - y.mean()
    res = vcomp.gstudy("system x role x topic", rows, "F", method="anova")
    assert_allclose(res.vcomp["Residual"], (within**2).sum() / (3 * 1 * 5), rtol=1e-10)


def test_scores_without_roles(layouts, scores):
    plain = scores.drop(columns="role").rename(columns={"assessor": "judge", "topic": "qid"})
    found = layouts["one to one"].rows(plain, topic="qid", assessor="judge")
    expected = layouts["one to one"].rows(scores)
    assert_allclose(found["F"], expected["F"])
    assert list(found) == ["system", "topic", "role", "assessor", "F"]
    both = pd.DataFrame(
        [(t, r, a) for t in (1, 2) for r in "xy" for a in "AB"],
        columns=["topic", "role", "assessor"],
    )
    everyone = assessor_layouts(both)["roles x individuals"]
    with pytest.raises(DataError, match=r"'A' has several roles in topic 1.* a column 'role'"):
        everyone.rows(both.drop(columns="role").assign(F=1.0))


def test_scores_of_documents():
    track = vcomp.ir.novelty_like_track(n_systems=3, n_topics=6, n_assessors=3, n_documents=15,
                                        rng=1)  # fmt: skip
    # A1 and A2 change roles from topic to topic; what A3 found was asked for by nobody.
    assigned = [(f"T{t}", role, f"A{1 + (t + k) % 2}")
                for t in range(1, 7) for k, role in enumerate(["author", "second"])]  # fmt: skip
    universe = vcomp.ir.document_universe(track.retrieved, track.judgements)
    layouts = assessor_layouts(pd.DataFrame(assigned, columns=["topic", "role", "assessor"]))
    every = universe.scores()
    rows = layouts["roles"].rows(every)
    assert len(rows) == (every["assessor"] != "A3").sum()
    assert rows["document"].tolist() == every.loc[every["assessor"] != "A3", "document"].tolist()
    odd = rows["topic"].isin(["T1", "T3", "T5"]).to_numpy()
    author = (rows["role"] == "author").to_numpy()
    assert ((rows["assessor"] == "A2") == (odd == author)).all()
    res = vcomp.gstudy("system x role x (document:topic)", rows, "score", method="anova")
    assert res.nobs == len(rows)


def test_bad_scores(layouts, scores):
    layout = layouts["roles"]
    with pytest.raises(DataError, match="no column 'assessor'"):
        layout.rows(scores.drop(columns="assessor"))
    with pytest.raises(
        DataError, match=r"no score belongs to the layout 'roles'.* of topic 202; .* '2\d\d'"
    ):
        layout.rows(scores.astype({"topic": str}))
    with pytest.raises(DataError, match=r"no score belongs .* there are none"):
        layout.rows(scores[:0])


def test_unknown_layouts(layouts):
    with pytest.raises(PlanError, match="did you mean 'crossed'"):
        layouts["croosed"]
    with pytest.raises(PlanError, match="is not possible: not everyone had every role"):
        layouts["roles x individuals"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="role"), "no column 'role'"),
        (lambda f: f.replace({"assessor": {"A": None}}), "6 rows .* have no value in 'assessor'"),
        (lambda f: pd.concat([f, f[:1]]), "'A' occurs twice in role 'author' of topic 202"),
        (lambda f: f[:3], "two topics or more, and there are 1"),
        (lambda f: f[:0], "two topics or more, and there are 0"),
        (lambda f: f["role"], "one column, not a table"),
    ],
)
def test_bad_assignments(change, message):
    with pytest.raises(DataError, match=message):
        assessor_layouts(change(ASSIGNED))


def test_why_opinions_in_a_role_cannot_be_nested():
    rows = [(1, "x", "A"), (2, "x", "B"), (1, "y", "C"), (1, "y", "D")]
    layouts = assessor_layouts(pd.DataFrame(rows, columns=["topic", "role", "assessor"]))
    assert (
        layouts.impossible["individuals in x"] == "no topic has several individuals in this role"
    )
    assert layouts.impossible["individuals in y"] == "only one topic has anyone in this role"
    # Topic 2 has one individual, topic 1 three: nesting needs no more.
    assert len(layouts["individuals"].assignments) == 4


def test_columns_of_other_names_and_containers(layouts):
    polars = pytest.importorskip("polars", reason="polars is not installed")
    renamed = ASSIGNED.rename(columns={"topic": "qid", "assessor": "judge"})
    found = assessor_layouts(polars.from_pandas(renamed), topic="qid", assessor="judge")
    pd.testing.assert_frame_equal(found.table, layouts.table)


def test_the_page_says_what_is_confounded(layouts):
    page = str(layouts)
    assert "system × role × topic" in page
    assert "roles x individuals is not possible" in page
    assert "average out" in " ".join(page.split())


# Largest complete sub-tables --------------------------------------------------------------------

TABLES = st.lists(st.frozensets(st.integers(0, 5), max_size=5), min_size=1, max_size=8)


def area_by_enumeration(table, least_rows, least_columns):
    """Return the most cells over all sets of columns."""
    columns = sorted(set().union(*table))
    best = 0
    for size in range(least_columns, len(columns) + 1):
        for some in combinations(columns, size):
            n_rows = sum(set(some) <= row for row in table)
            if n_rows >= least_rows:
                best = max(best, size * n_rows)
    return best


@settings(max_examples=examples(300), deadline=None)
@given(table=TABLES, least_rows=st.integers(1, 3), least_columns=st.integers(1, 3))
def test_no_larger_one_exists(table, least_rows, least_columns):
    found = largest_crossed(table, least_rows=least_rows, least_columns=least_columns)
    area = area_by_enumeration(table, least_rows, least_columns)
    if found is None:
        assert area == 0
        return
    assert found.exact
    assert len(found.rows) * len(found.columns) == area
    assert all(set(found.columns) <= table[r] for r in found.rows)
    assert len(found.rows) >= least_rows
    assert len(found.columns) >= least_columns


@settings(max_examples=examples(200), deadline=None)
@given(table=TABLES)
def test_greedy_ones_are_complete(table):
    found = largest_crossed(table, most_sets=0)
    if not any(len(row) >= 2 for row in table):
        assert found is None
    elif found is not None:
        assert not found.exact
        assert all(set(found.columns) <= table[r] for r in found.rows)
        assert len(found.rows) >= 2
        assert len(found.columns) >= 2
        assert len(found.rows) * len(found.columns) <= area_by_enumeration(table, 2, 2)


def test_a_greedy_search_finds_a_pair_where_thinning_leaves_nothing():
    # Everyone but two topics has a pair of individuals to itself.
    table = [
        frozenset({0, 1}),
        frozenset({0, 1}),
        *(frozenset({k, k + 1}) for k in range(2, 40, 2)),
    ]
    found = largest_crossed(table, most_sets=5)
    assert (found.rows, found.columns, found.exact) == ((0, 1), (0, 1), False)


def test_thinning_finds_what_the_sets_that_were_examined_have_not():
    table = [frozenset({0, 1}), *[frozenset({2, 3, 4})] * 3]
    found = largest_crossed(table, most_sets=0)
    assert (found.rows, found.columns, found.exact) == ((1, 2, 3), (2, 3, 4), False)


def test_no_more_sets_are_examined_than_wanted():
    # Two rows and what they have in common are three sets.
    table = [frozenset({0, 1, 2}), frozenset({0, 1, 3})]
    for most, exact in ((2, False), (3, True)):
        found = largest_crossed(table, most_sets=most)
        assert (found.rows, found.columns, found.exact) == ((0, 1), (0, 1), exact)


def test_of_equal_ones_the_first_columns_are_chosen():
    table = [frozenset({2, 3}), frozenset({2, 3}), frozenset({0, 1}), frozenset({0, 1})]
    for most in (0, 9):
        found = largest_crossed(table, most_sets=most)
        assert found.columns == ((0, 1) if most else (2, 3))


def test_a_greedy_one_is_told():
    rng = np.random.default_rng(1)
    cells = [(t, "x", a) for t in range(60) for a in range(40) if rng.random() < 0.7 or a < 3]
    layouts = assessor_layouts(pd.DataFrame(cells, columns=["topic", "role", "assessor"]))
    layout = layouts["crossed"]
    assert not layout.exact
    rows = layout.assignments
    assert len(rows) == rows["topic"].nunique() * rows["assessor"].nunique()
    assert "greedy search" in " ".join(str(layouts).split())


def test_two_roles_are_confounded_with_individuals():
    cells = [(t, r, a) for t in (1, 2, 3) for r in "xy" for a in "AB"]
    found = assessor_layouts(pd.DataFrame(cells, columns=["topic", "role", "assessor"]))
    assert "Individuals and roles are one effect" in found["individuals"].confounds


def test_a_score_of_no_layout_is_told_by_the_first(layouts):
    scores = pd.DataFrame({"topic": [7, 8], "assessor": ["P", "Q"], "role": "author"})
    with pytest.raises(DataError, match=r"of the scores one is of 'P' and 7$"):
        layouts["roles"].rows(scores)
