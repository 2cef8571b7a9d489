import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcomp.dstudy import Design, parse_design
from vcomp.exceptions import PlanError


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
    with pytest.raises(PlanError, match="a design is text"):
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
    ],
)
def test_designs_are_written_as_they_are_read(text, written):
    design = parse_design(text)
    assert str(design) == written
    assert parse_design(written).nested_in == design.nested_in


@st.composite
def designs(draw, letters="abcdefg"):
    """A random forest: every facet is nested in the ones on its way to a root."""
    names = draw(st.permutations(letters))[: draw(st.integers(1, len(letters)))]
    parents = {}
    for k, name in enumerate(names[1:], start=1):
        parent = draw(st.one_of(st.none(), st.sampled_from(names[:k])))
        if parent and parent not in parents.values():
            parents[name] = parent
    return Design.of(names, {f: {p} for f, p in parents.items()})


@given(designs())
def test_writing_and_reading_give_the_same_design(design):
    again = parse_design(str(design))
    assert set(again.facets) == set(design.facets)
    assert again.nested_in == design.nested_in
