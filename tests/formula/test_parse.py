"""What a formula says, and where an error points."""

import contextlib
import keyword

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.examples import examples
from vcomp.formula import parse
from vcomp.formula.formula_terms import RandomTerm


def random_terms(text):
    return [term.name for term in parse(text).random]


def fault(text):
    """Return the message of the error, and what its caret stands under."""
    with pytest.raises(vcomp.FormulaError) as caught:
        parse(text)
    message, _, drawing = str(caught.value).partition("\n\n")
    if not drawing:
        return message, None
    line, carets = drawing.split("\n")
    start = len(carets) - len(carets.lstrip())
    assert line.startswith("    ")
    assert set(carets.strip()) == {"^"}
    return message, (start - 4, line[start : len(carets)])


@pytest.mark.parametrize(
    ("inside", "terms"),
    [
        ("a", ["a"]),
        ("a:b", ["a:b"]),
        ("a/b", ["a", "a:b"]),
        ("a/b/c", ["a", "a:b", "a:b:c"]),
        ("a*b", ["a", "b", "a:b"]),
        ("a + b", ["a", "b"]),
        ("(a + b)**2", ["a", "b", "a:b"]),
        ("(a+b+c)**2", ["a", "b", "c", "a:b", "a:c", "b:c"]),
        ("a/(b + c)", ["a", "a:b", "a:c"]),
        ("a:b/c", ["a:b", "a:b:c"]),
        ("a*b - a:b", ["a", "b"]),
        ("(a)", ["a"]),
        ("Q('a name')", ["a name"]),
        ("Q('x.y')/b", ["x.y", "x.y:b"]),
        ("système:β", ["système:β"]),
    ],
)
def test_what_stands_behind_the_bar(inside, terms):
    # R's rules for a formula: x/y is x + x:y, x*y is x + y + x:y (help page of `formula`).
    assert random_terms(f"y ~ (1|{inside})") == terms
    assert random_terms(f"y ~ x + (1 | {inside}) + z") == terms


def test_random_terms_keep_the_order_in_which_they_are_written():
    assert random_terms("y ~ (1|c) + x + (1|a:b) + ((1|a) + (1|b))") == ["c", "a:b", "a", "b"]
    formula = parse("y ~ (1|c) + (1|a:c) + (1|b)")
    assert formula.facets == ("c", "a", "b")
    assert formula.random[1] == RandomTerm("a:c", ("a", "c"), block=1)


@pytest.mark.parametrize(
    ("right", "fixed"),
    [
        ("(1|a)", ("Intercept",)),
        ("1 + (1|a)", ("Intercept",)),
        ("(1|a) + x", ("Intercept", "x")),
        ("x + (1|a) + z", ("Intercept", "x", "z")),
        ("x + x + (1|a)", ("Intercept", "x")),
        ("0 + x + (1|a)", ("x",)),
        ("x - 1 + (1|a)", ("x",)),
        ("x + (1|a) - 1", ("x",)),
        ("(1|a) - 1", ()),
        ("-1 + (1|a)", ()),
        ("0 + (1|a)", ()),
        ("(1|a) + 0", ()),
        ("x + C(g) + (1|a)", ("Intercept", "x", "C(g)")),
        ("x*z + (1|a)", ("Intercept", "x", "z", "x:z")),
        ("(x + z)**2 + (1|a)", ("Intercept", "x", "z", "x:z")),
        ("(x + (1|a))", ("Intercept", "x")),
        ("np.log(x) + I(x**2) + (1|a)", ("Intercept", "np.log(x)", "I(x ** 2)")),
        ("Q('a name') + (1|a)", ("Intercept", "Q('a name')")),
        ("f(1|a) + (1|a)", ("Intercept", "f(1 | a)")),  # a bar of Python, within a call
        ("größe + (1|a)", ("Intercept", "größe")),
    ],
)
def test_fixed_part(right, fixed):
    formula = parse(f"y ~ {right}")
    assert formula.fixed == fixed
    assert formula.intercept_only == (fixed == ("Intercept",))
    assert [term.name for term in formula.random] == ["a"]


@pytest.mark.parametrize(
    "response", ["y", "np.log(y)", "I(a + b)", "Q('a name')", "größe", "y[0]"]
)
def test_response(response):
    assert parse(f"{response} ~ (1|g)").response == response


@pytest.mark.parametrize("breaks", ["\n", "\n    ", "\r\n", "\n\n\t"])
def test_a_formula_may_have_several_lines(breaks):
    text = f"y ~ x +{breaks}(1|a){breaks}+ (1|Q('two  blanks')){breaks}"
    assert parse(text).fixed == ("Intercept", "x")
    assert random_terms(text) == ["a", "two  blanks"]
    assert fault(f"y ~ x +{breaks}(2|a)") == (EFFECTS.replace("|g) and", "|a) and"), (9, "2"))


EFFECTS = "the effects of a random term are 1, 0 or columns, as in (1|g) and (1 + x|g)"
PARENTHESES = "a random term needs parentheses: (1|g)"
ADDED = "a random term is added with +; it cannot be part of another term"
COLUMNS = "a random term groups by columns, such as (1|g)"
RESPONSE = "the response must be one column or one expression, such as I(a + b)"


def response(text):
    return RESPONSE.replace("I(a + b)", f"I({text})")


TILDE = "a formula has one ~, between response and terms"


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("y ~ (2|g)", EFFECTS, (5, "2")),
        (
            "y ~ (0|g)",
            "a random term without effects; an intercept is (1|g), a slope (x|g)",
            (4, "(0|g)"),
        ),
        (
            "y ~ (x|g) + (1|g)",
            "(1 + x | g) has an intercept of g as well; leave (1|g) out",
            (12, "(1|g)"),
        ),
        (
            "y ~ (1|g) + (x|g)",
            "(1|g) has an intercept of g as well; write (0 + x | g) in place of (1 + x | g)",
            (12, "(x|g)"),
        ),
        ("y ~ 1|g", PARENTHESES, (5, "|")),
        ("y ~ x + 1|g", PARENTHESES, (9, "|")),
        ("y ~ (1|a) + 1|g", PARENTHESES, (13, "|")),
        ("y ~ (|g)", "a random term has a 1 before its bar: (1|g)", (4, "(|g)")),
        ("y ~ (1|a)*x", ADDED, (4, "(1|a)")),
        ("y ~ x*(1|a)", ADDED, (6, "(1|a)")),
        ("y ~ x:(1|a)", ADDED, (6, "(1|a)")),
        ("y ~ (1|a)/x", ADDED, (4, "(1|a)")),
        ("y ~ (1|a)**2", ADDED, (4, "(1|a)")),
        ("y ~ (1|a) - (1|b)", ADDED, (12, "(1|b)")),
        ("y ~ -(1|a)", ADDED, (5, "(1|a)")),
        ("y ~ (1|1)", COLUMNS, (7, "1")),
        ("y ~ (1|(1|a))", COLUMNS, (8, "1")),
        ("1 ~ (1|a)", RESPONSE, (0, "1")),
        ("0 ~ (1|a)", RESPONSE, (0, "0")),
        ("'y' ~ (1|a)", RESPONSE, (0, "'y'")),
        ("y + z ~ (1|a)", response("y + z"), (0, "y + z")),
        ("y - 1 ~ (1|a)", response("y - 1"), (0, "y - 1")),
        ("-y ~ (1|a)", response("-y"), (0, "-y")),
        ("y*z ~ (1|a)", response("y*z"), (0, "y*z")),
        ("(1|a) ~ y", response("(1|a)"), (0, "(1|a)")),
        ("y|a ~ (1|b)", response("y|a"), (0, "y|a")),
        ("y ~ x ~ (1|a)", TILDE, (2, "~")),
        ("y ~ (1|a) ~ b", TILDE, (2, "~")),
        ("y ~~ (1|a)", TILDE, (3, "~")),
        ("y ~ (1|a", "unmatched '('", (4, "(")),
        ("y ~ (1|(a)", "unmatched '('", (4, "(")),
        ("y ~ 1|a)", "missing '(' or extra ')'", (7, ")")),
        ("y ~ (1|a) (1|b)", "expected an operator, not '('; terms are joined by +", (10, "(")),
        ("y ~ (1|)", "expected a column or a term, not ')'", (7, ")")),
        ("y ~ (1|a) # note", "comments are not allowed", (10, "# note")),
        ("y ~ .+(1|a)", "'.' is not short for the other columns; write out the terms", (4, ".")),
        (
            "y ~ (1|a b)",
            ("'a b' is neither a column nor a Python expression; a column of this name is "
             "written Q('a b'), or `a b`"),
            (7, "a b"),
        ),
        ("y ~ y + (1|a)", "the response 'y' cannot be on the right of ~ as well", (4, "y")),
        ("y ~ (1|a:y)", "the response 'y' cannot be on the right of ~ as well", (9, "y")),
        ("Q('y') ~ (1|y)", "the response 'y' cannot be on the right of ~ as well", (12, "y")),
        (
            "y ~ (1|Q('a:b'))",
            "the name of a facet cannot contain ':', which joins facets; rename it",
            (7, "Q('a:b')"),
        ),
        ("y ~ (1|a)+(1|a)", "the random term a occurs twice; write it once", (10, "(1|a)")),
        (
            "y ~ (1|a:b) + x + (1|b:a)",
            "the random term a:b occurs twice; write it once",
            (18, "(1|b:a)"),
        ),
        (
            "y ~ (1|a/b) + (1|a)",
            "the random term a occurs twice; write it once",
            (14, "(1|a)"),
        ),
        ("größe ~ (2|système)", EFFECTS.replace("(1|g)", "(1|système)"), (9, "2")),
    ],
)  # fmt: skip
def test_an_error_points_at_its_place(text, message, place):
    assert fault(text) == (message, place)
    start, under = place
    assert text[start : start + len(under)] == under


@pytest.mark.parametrize("expression", ["a[0]", "Q(a)", "np.floor(a)", "None", "b if a else b"])
def test_a_random_term_groups_by_columns(expression):
    message, place = fault(f"y ~ (1|{expression})")
    assert repr(expression) in message
    assert "groups of equal values are" in message
    assert place == (7, expression)


@pytest.mark.parametrize("text", ["", "  ", "\n", "y", "(1|a)", "~ (1|a)"])
def test_no_response(text):
    message, place = fault(text)
    assert message.startswith("the formula needs a response on the left of ~: ")
    example = message.rpartition(": ")[2].strip("'")
    assert parse(example).response == "score"
    assert place is None


@pytest.mark.parametrize("text", ["~", "y ~", "y ~ (1|a) +", "y ~ (1|a) + x:"])
def test_a_formula_that_breaks_off(text):
    message, _ = fault(text)
    assert message == "expected a column or a term, but instead the expression ended"


def test_quotes_that_patsy_does_not_survive():
    with pytest.raises(vcomp.FormulaError, match=r"cannot be read as a formula, such as 'score ~"):
        parse("'''")


@pytest.mark.parametrize("text", ["y ~ x", "y ~ 1", "y ~ 0 + x", "y ~ I(1|a)"])
def test_no_random_term(text):
    message, _ = fault(text)
    assert "no random term" in message
    assert f"{text} + (1|topic)" in message
    assert random_terms(f"{text} + (1|topic)") == ["topic"]


@pytest.mark.parametrize("text", [None, 3, b"y ~ (1|a)", ["y", "a"], pd.DataFrame({"y": [1]})])
def test_a_formula_is_text_and_comes_first(text):
    message, _ = fault(text)
    assert message == (
        "the formula is text such as 'score ~ (1|sys) + (1|topic)' and comes first, not "
        f"{type(text).__name__}"
    )


facet_names = st.from_regex(r"[^\W\d]\w{0,8}", fullmatch=True).filter(
    lambda name: name.isidentifier() and not keyword.iskeyword(name) and name != "y"
)


@settings(max_examples=examples(20))
@given(st.lists(facet_names, min_size=1, max_size=6, unique_by=lambda n: n), st.data())
def test_terms_are_the_sets_that_were_written(names, data):
    sets = st.lists(st.sampled_from(names), min_size=1, unique=True)
    terms = data.draw(st.lists(sets, min_size=1, max_size=5, unique_by=frozenset))
    text = "y ~ " + " + ".join(f"(1|{':'.join(term)})" for term in terms)
    assert [term.facets for term in parse(text).random] == [tuple(term) for term in terms]


@given(st.text(alphabet="y~1|ab()+-*/: x\n'", max_size=20))
def test_any_text_is_a_formula_or_a_formula_error(text):
    with contextlib.suppress(vcomp.FormulaError):
        formula = parse(text)
        assert formula.response
        assert formula.random


def effects(text):
    return [(term.name, term.effects) for term in parse(text).random]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y ~ (x|g)", [("g", ("Intercept", "x"))]),
        ("y ~ (1 + x|g)", [("g", ("Intercept", "x"))]),
        ("y ~ (0 + x|g)", [("g[x]", ("x",))]),
        ("y ~ (-1 + x|g)", [("g[x]", ("x",))]),
        ("y ~ (x||g)", [("g", ("Intercept",)), ("g[x]", ("x",))]),
        ("y ~ (1||g)", [("g", ("Intercept",))]),
        ("y ~ (x|g) + (0 + z|g)", [("g", ("Intercept", "x")), ("g[z]", ("z",))]),
        ("y ~ (x|a/b)", [("a", ("Intercept", "x")), ("a:b", ("Intercept", "x"))]),
        ("y ~ (x*z|a:b)", [("a:b", ("Intercept", "x", "z", "x:z"))]),
        ("y ~ (np.log(x)||g)", [("g", ("Intercept",)), ("g[np.log(x)]", ("np.log(x)",))]),
    ],
)
def test_slopes_expand_as_in_lme4(text, expected):
    assert effects(text) == expected


def test_names_of_slopes_are_columns_to_read():
    formula = parse("y ~ w + (np.log(x) + C(c)|g)")
    assert formula.covariates == {"w", "np", "x", "c"}
    assert formula.fixed_names == {"w"}
    assert formula.names() == ["g", "y", "c", "np", "w", "x"]
