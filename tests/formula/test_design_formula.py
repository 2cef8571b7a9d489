import pytest
from hypothesis import given

import vcomp
from tests.helpers.brennan_designs import DESIGNS, small_designs
from vcomp.formula import design_effects, design_formula, parse, quoted
from vcomp.formula.brennan import parse_design


@pytest.mark.parametrize(
    ("design", "formula"),
    [
        ("p x i", "score ~ (1|p) + (1|i)"),
        ("i:p", "score ~ (1|p)"),
        ("p x (i:h)", "score ~ (1|p) + (1|h) + (1|h:i) + (1|p:h)"),
        (
            "p x i x o",
            "score ~ (1|p) + (1|i) + (1|o) + (1|p:i) + (1|p:o) + (1|i:o)",
        ),
        ("person x (r:t)", "score ~ (1|person) + (1|t) + (1|t:r) + (1|person:t)"),
    ],
)
def test_a_term_for_every_effect_but_the_last(design, formula):
    assert design_formula(design) == formula


@pytest.mark.parametrize("text", DESIGNS)
@pytest.mark.parametrize("replicated", [False, True])
def test_the_formula_is_read_as_the_effects(text, replicated):
    design = parse_design(text)
    formula = parse(design_formula(design, "y", replicated=replicated))
    effects = design_effects(design)[: None if replicated else -1]
    assert [frozenset(t.facets) for t in formula.random] == [e.facets for e in effects]
    assert [t.name for t in formula.random] == [e.term for e in effects]
    assert formula.response == "y"
    assert formula.intercept_only


@given(small_designs(most=5))
def test_any_design_with_replicates(design):
    terms = parse(design_formula(design, replicated=True)).random
    assert {frozenset(t.facets) for t in terms} == {e.facets for e in design_effects(design)}


@pytest.mark.parametrize(
    "name",
    ["exam item", "it's", 'say "when"', "class", "1st", "a.b", "a+b", "naïve", "C", "Q", "I"],
)
def test_any_name_of_a_column_is_read_again(name):
    formula = parse(f"y ~ (1|{quoted(name)}) + (1|{quoted(name)}:b)")
    assert formula.facets == (name, "b")


@pytest.mark.parametrize(
    ("design", "message"),
    [
        ("p", "one effect, which cannot be distinguished from error"),
        ("p x replicate", "'replicate' is the facet of repeated scores in a cell"),
        ("p x Residual", "'Residual' is the name of the last component"),
        ("p x 'a:b'", "':' in its name"),
        ("p x", "expected a facet"),
    ],
)
def test_designs_without_a_formula(design, message):
    with pytest.raises(vcomp.PlanError, match=message):
        design_formula(design)


def test_one_facet_with_replicates():
    assert design_formula("p", "y", replicated=True) == "y ~ (1|p)"
