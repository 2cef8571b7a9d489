"""Errors carry the column, term or level that their messages name."""

from __future__ import annotations

import ast
import copy
import pickle
import re
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

import vcomp

DATA = vcomp.datasets.load("bodoff2007_alpha")
FORMULA = "score ~ (1|sys) + (1|topic)"
PRIOR = {"sys": -1.0, "topic": 1.0, "Residual": 1.0}
ITEMS = pd.DataFrame({"a": [1, 2, 3], "b": [2, 2, 4], "c": [0, 1, 1]})
APART = pd.DataFrame({"a": [0.1, 0.4, None, None], "b": [None, None, 0.2, 0.6]})
BOTH = "v + w ~ (1|sys)"
FLAT = pd.DataFrame({"sys": [0, 0, 1, 1], "v": [1.0, 2, 2, 4], "w": [3.0] * 4})
DOCUMENTS = {"system": ["a", "a"], "topic": [1, 1], "document": [7, 7]}
JUDGED = {"assessor": ["x"], "topic": [1], "document": [7], "relevant": [1]}
TERMS = {"p": 1.0, "i": 0.5, "pi": 2.0}
NESTED = {"p": [1, 1, 2, 2, 3, 3], "i": [1, 2, 3, 4, 5, 6], "v": [1.0, 3, 2, 5, 4, 4]}
WIDE = pd.DataFrame({"a": [0.1, 0.4, 0.3], "b": [0.2, 0.3, 0.6]})


@pytest.fixture(scope="module")
def res():
    return vcomp.fit(FORMULA, DATA)


def fields(call):
    with pytest.raises(vcomp.VcompError) as caught:
        call()
    return caught.value


def halves(split):
    return vcomp.ctt.split_half_reliability(ITEMS, split=split)


def three(error):
    return error.column, error.term, error.level


def test_a_column_that_is_not_there():
    error = fields(lambda: vcomp.fit("score ~ (1|sus)", DATA))
    assert three(error) == ("sus", None, None)


def test_a_component_that_is_not_there(res):
    assert three(fields(lambda: res.predict(level="judge"))) == (None, "judge", None)


def test_a_level_that_did_not_occur(res):
    new = DATA.head(2).assign(sys="new")
    assert three(fields(lambda: res.predict(new))) == ("sys", None, "new")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda res: res.quantity("sus + 1"), (None, "sus", None)),
        (lambda res: res.quantity("corr(sys)"), (None, "sys", None)),
        (lambda res: res.dstudy(topic=[]), ("topic", None, None)),
        (
            lambda res: res.dstudy(topic=5, fixed="topic", universe={"topic": 9}),
            ("topic", None, None),
        ),
        (lambda res: res.compare_levels("judge"), ("judge", None, None)),
        (lambda res: vcomp.fit(FORMULA, DATA, method="minque", prior=PRIOR), (None, "sys", None)),
        (lambda res: vcomp.ir.compare_systems(WIDE, baseline="c"), (None, None, "c")),
        (lambda res: halves([["a"], ["b"]]), (None, None, "c")),
        (lambda res: halves([["a"], ["a"]]), (None, None, "a")),
        (lambda res: res.compare_levels("topic", levels="ab"), ("topic", None, None)),
        (lambda res: res.compare_levels("topic", ddf="kr"), ("topic", None, None)),
        (lambda res: vcomp.ir.compare_systems(APART), (None, None, "a")),
        (lambda res: vcomp.fit_multivariate(BOTH, FLAT, method="reml"), ("w", None, None)),
        (lambda res: res.dstudy("sys", sys=3), ("topic", None, None)),
        (lambda res: res.quantity(lambda v: v["sus"]), (None, "sus", None)),
        (lambda res: vcomp.from_mean_squares(TERMS, sizes={"p": 3}), ("i", None, None)),
        (lambda res: vcomp.from_components(TERMS, mean=0.5), ("p", None, None)),
        (lambda res: vcomp.gstudy("p x i", NESTED, "v"), ("i", None, None)),
        (lambda res: vcomp.ir.document_universe(DOCUMENTS, JUDGED), (None, None, 7)),
        (lambda res: vcomp.gstudy("p:i", NESTED, "v"), ("p", None, None)),
    ],
)
def test_messages_have_the_field_of_what_they_name(res, call, expected):
    assert three(fields(lambda: call(res))) == expected


@pytest.mark.parametrize(
    "call",
    [
        lambda res: res.conf_int(alpha=2),
        lambda res: vcomp.fit(FORMULA, DATA, method="none"),
        lambda res: vcomp.fit(FORMULA, "absent.csv"),
        lambda res: type(res).from_json("{"),
        lambda res: vcomp.cronbach_alpha([1.0, 2.0]),
        lambda res: vcomp.fit(FORMULA, DATA.head(0)),
    ],
)
def test_no_column_term_or_level_is_at_fault(res, call):
    assert three(fields(lambda: call(res))) == (None, None, None)


@pytest.mark.parametrize(
    "remade", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_fields_are_copied_and_pickled(remade):
    error = remade(vcomp.DataError("no level", column="sys", term="sys", level=3))
    assert three(error) == ("sys", "sys", 3)
    assert (type(error), str(error)) == (vcomp.DataError, "no level")


NAMES = {
    "column": re.compile(
        r"\b(column|facet|factor|covariate|variable|(size|sizes|levels|counts) of)\s+$"
    ),
    "term": re.compile(r"\b(term|component)\s+$"),
    "level": re.compile(r"\b(level|system|topic|item|assessor)\s+$"),
}
VARIABLES = {"facet": "column", "column": "column", "term": "term", "component": "term"}
"""What variables of these names are, wherever a message has them."""

ERRORS = {name for name in vcomp.__all__ if name.endswith("Error")}
OPTIONS = {
    ("identify.py", "column"),
    ("located_rows.py", "level"),
    ("pairwise_result.py", "column"),
    ("allocate.py", "column"),
}
"""Messages about the columns of X by number, the option `level`, a column of a table of results,
and a facet that is an example."""


def unset_fields(tree):
    """Yield the line and the fields of errors whose message names what no argument repeats."""
    for node in ast.walk(tree):
        is_error = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ERRORS
        if not (is_error and node.args and isinstance(node.args[0], ast.JoinedStr)):
            continue
        given = {keyword.arg for keyword in node.keywords}
        parts = [ast.Constant(""), *node.args[0].values]
        for before, part in pairwise(parts):
            if not (isinstance(before, ast.Constant) and isinstance(part, ast.FormattedValue)):
                continue
            if part.conversion != ord("r") or not isinstance(
                part.value, ast.Name | ast.Attribute | ast.Subscript
            ):
                continue
            of_variable = VARIABLES.get(getattr(part.value, "id", ""))
            for field, pattern in NAMES.items():
                is_named = pattern.search(before.value) or field == of_variable
                if is_named and field not in given:
                    yield node.lineno, field


def test_every_message_that_names_one_sets_its_field():
    root = Path(vcomp.__file__).parent
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py"))}
    found = [
        f"{path.relative_to(root)}:{line} {field}"
        for path, text in texts.items()
        if "!r}" in text
        for line, field in unset_fields(ast.parse(text))
        if (path.name, field) not in OPTIONS
    ]
    assert not found
