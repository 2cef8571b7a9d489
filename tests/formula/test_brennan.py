import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from vcomp.exceptions import PlanError
from vcomp.formula.brennan import BrennanDesign, parse_design


@pytest.mark.parametrize(
    ("text", "facets", "nested"),
    [
        ("p x i x a", "p i a", {}),
        ("p × (i:h)", "p i h", {"i": "h"}),
        ("p*(i : h)", "p i h", {"i": "h"}),
        ("p x i:h", "p i h", {"i": "h"}),
        ("p x a x (d:i)", "p a d i", {"d": "i"}),
        ("(i:p) x o", "i p o", {"i": "p"}),
        ("d:i:h", "d i h", {"d": "ih", "i": "h"}),
        ("(d:(i:h))", "d i h", {"d": "ih", "i": "h"}),
        ("((d:i):h) x p", "d i h p", {"d": "ih", "i": "h"}),
        ("r:(p x t)", "r p t", {"r": "pt"}),
        ("(i x o):h x p", "i o h p", {"i": "h", "o": "h"}),
        ("p x(i:h)", "p i h", {"i": "h"}),
        ("(i:p)x o", "i p o", {"i": "p"}),
        ("p", "p", {}),
    ],
)
def test_notation(text, facets, nested):
    design = parse_design(text)
    assert design.facets == tuple(facets.split())
    assert {f: set(above) for f, above in design.nested_in.items() if above} == {
        f: set(above) for f, above in nested.items()
    }


def test_facets_are_words_that_may_hold_an_x():
    assert parse_design("index x p").facets == ("index", "p")
    assert parse_design("sys x (judge:topic_x)").facets == ("sys", "judge", "topic_x")
    assert parse_design("ex × x").facets == ("ex", "x")
    assert parse_design("x x p").facets == ("x", "p")


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("", "expected a facet", 0),
        ("p x", "expected a facet", 3),
        ("p x (a:", "expected a facet", 7),
        ("p x (a:i", "expected ')'", 8),
        ("p x a:i)", "expected 'x' or ':'", 7),
        ("p i", "expected 'x' or ':'", 2),
        ("p x : i", "expected a facet", 4),
        ("p x i x p", "'p' is named twice", 8),
        ("i:i", "'i' is named twice", 2),
        ("()", "expected a facet", 1),
        ("(i:h) x h", "'h' is named twice", 8),
        ("h x (i:h)", "'h' is named twice", 7),
        ("(q:(a:b)) x (r:(b:a))", "'a' is nested in itself", 21),
        ("q:(a:a)", "'a' is nested in itself", 3),
        ("p x 'exam item", "expected a closing quote", 4),
        ("p x ''", "expected a facet", 4),
        ("p:", "expected a facet", 2),
    ],
)
def test_errors_point_at_the_fault(text, message, place):
    with pytest.raises(PlanError) as error:
        parse_design(text)
    lines = str(error.value).split("\n")
    assert message in lines[0]
    assert lines[2] == f"    {text}"
    assert lines[3] == " " * (4 + place) + "^"


def test_only_text_is_a_design():
    with pytest.raises(PlanError, match="a design must be text"):
        parse_design(["p", "i"])


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("p × i", "p x i"),
        ("p x i:h", "p x (i:h)"),
        ("(i:p)", "i:p"),
        ("d:i:h x p", "(d:i:h) x p"),
        ("r:(p x t)", "r:(p x t)"),
        ("(i x o):h x p", "((i x o):h) x p"),
        ("r:(p x (t:h))", "r:(p x (t:h))"),
        ("((d:i) x r):h", "((d:i) x r):h"),
        ("(v:(r x i)) x p", "(v:(r x i)) x p"),
        ("(d x q):(r:(p x (t:h)))", "(d x q):r:(p x (t:h))"),
        ("p x ('exam item':\"the h's\")", "p x ('exam item':\"the h's\")"),
    ],
)
def test_designs_are_written_as_they_are_read(text, written):
    design = parse_design(text)
    assert str(design) == written
    assert parse_design(written).nested_in == design.nested_in


NAMES = [
    *"abcdefg",
    "x",
    "X",
    "exam item",
    "it's",
    'say "when"',
    "a:b",
    "(",
    "\\",
    "×",
    "p*i",
    "É",
]


@st.composite
def designs(draw, names=tuple(NAMES), most=7):
    """Any nesting at all: a facet may be nested in any of those before it."""
    chosen = draw(st.permutations(names))[: draw(st.integers(1, most))]
    above = {}
    for k, name in enumerate(chosen):
        above[name] = draw(st.sets(st.sampled_from(chosen[:k]))) if k else set()
    return BrennanDesign.of(draw(st.permutations(chosen)), above)


@settings(max_examples=examples(150), deadline=None)
@given(designs())
def test_writing_and_reading_give_the_same_design(design):
    again = parse_design(str(design))
    assert set(again.facets) == set(design.facets)
    assert again.nested_in == design.nested_in
    assert str(again).count(":") == str(design).count(":")


@given(designs("abcdefg"))
def test_a_tree_names_every_facet_once(design):
    direct = {f: design.innermost(design.nested_in[f]) for f in design.facets}
    if all(len(above) <= 1 for above in direct.values()):
        written = [letter for letter in str(design) if letter in "abcdefg"]
        assert sorted(written) == sorted(design.facets)


@given(designs("abcdefg"), st.data())
def test_spaces_and_signs_do_not_matter(design, data):
    text = str(design).replace(" x ", data.draw(st.sampled_from([" x ", "×", " * ", "\n X "])))
    text = text.replace(":", data.draw(st.sampled_from([":", " : "])))
    assert parse_design(text) == parse_design(str(design))


def test_innermost_facets_and_their_order():
    design = parse_design("d:i:h x p")
    assert design.innermost({"d", "i", "p"}) == {"d", "p"}
    assert design.outer_first == ("h", "i", "d", "p")
    assert parse_design("r:(p x (t:h))").outer_first == ("p", "h", "t", "r")


@given(designs())
def test_outer_facets_come_first(design):
    order = design.outer_first
    assert sorted(order) == sorted(design.facets)
    for place, facet in enumerate(order):
        assert design.nested_in[facet] <= set(order[:place])


def test_an_outer_facet_may_be_named_again():
    design = parse_design("(i:h) x (r:(h x t))")
    assert design.facets == ("i", "h", "r", "t")
    assert design.nested_in == {"i": {"h"}, "h": set(), "r": {"h", "t"}, "t": set()}
    assert str(design) == "(i:h) x (r:(h x t))"
    split = parse_design("(i:h) x (r:(h:s))")
    assert split.nested_in["i"] == {"h", "s"}


def test_capitals_of_a_d_study_are_the_facets_of_the_g_study():
    known = ["p", "i", "h"]
    assert parse_design("p x (I:H)", known).facets == ("p", "i", "h")
    assert parse_design("p x (I:Q)", known).facets == ("p", "i", "Q")
    assert parse_design("p x I", ["p", "I"]).facets == ("p", "I")
    # Where two might be meant, nothing is guessed.
    assert parse_design("Sys", ["sys", "SYS"]).facets == ("Sys",)
    with pytest.raises(PlanError, match="'i' is named twice"):
        parse_design("i x I", known)
