"""Terms that messages advise can be fitted, whatever the names of their columns."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import vcomp

from .test_followed import grid, refused

TERM = re.compile(r"\((?:[01]|[01] \+ [^|]+)\s*\|(?:[^()]|\([^()]*\))*\)")
FACTOR = re.compile(r"C\((?:[^()]|\([^()]*\))*\)")

OTHERS = [("sys", "topic"), ("Part No", "класс"), ("if", "b.c")]
NAMES = pytest.mark.parametrize(("a", "b"), OTHERS)
"""Names of a facet and of another one."""


def data_of(a: str, b: str) -> pd.DataFrame:
    data = grid(**{"sys": 6, "topic": 8, "rep": 3}).drop(columns="rep")
    data["z"] = data["sys"].map({s: k % 4 for k, s in enumerate(sorted(set(data["sys"])))})
    data["x"] = np.random.default_rng(1).normal(size=len(data))
    return data.rename(columns={"sys": a, "topic": b})


def quoted(name: str) -> str:
    return name if name.isidentifier() and name != "if" else f"Q({name!r})"


def fitted(formula: str, data: pd.DataFrame, **options: object) -> list[str]:
    """Return the components of a fit."""
    return list(vcomp.fit(formula, data, **options).vcomp.index)


@NAMES
def test_terms_of_rankings_and_levels(a, b):
    data, f, g = data_of(a, b), quoted(a), quoted(b)
    random = vcomp.fit(f"score ~ (1|{f}) + (1|{g})", data)
    message = refused(lambda: random.compare_levels(a, test="tukey"), "in place of")
    factor, term = FACTOR.search(message)[0], TERM.search(message)[0]
    assert fitted(f"score ~ {factor} + (1|{g})", data) == [b, "Residual"]
    assert fitted(f"score ~ {term} + (1|{g})", data) == [a, b, "Residual"]
    covariate = vcomp.fit(f"score ~ Q('x {a}') + (1|{g})", data.rename(columns={"x": f"x {a}"}))
    message = refused(lambda: covariate.marginal_means(f"x {a}"), "numerical covariate")
    assert FACTOR.search(message)[0] == f"C(Q('x {a}'))"


@NAMES
def test_interactions_that_notes_advise(a, b):
    data, f, g = data_of(a, b), quoted(a), quoted(b)
    text = f"score ~ (1|{f}) + (1|{g})"
    advised = TERM.findall(" ".join(vcomp.fit(text, data).dstudy(**{b: 4}, object=a).notes))
    assert advised
    for term in advised:
        assert fitted(f"{text} + {term}", data) == [a, b, f"{a}:{b}", "Residual"]


@NAMES
def test_slopes_that_are_none(a, b):
    data, g = data_of(a, b).assign(k=3.0), quoted(b)
    for slopes, left in (("k", "(1|{})"), ("x + k", "(1 + x | {})"), ("0 + x + k", None)):
        if left is None:  # of a constant column alone: intercepts in another unit
            assert fitted(f"score ~ ({slopes}|{g})", data)
            continue
        message = refused(lambda s=slopes: vcomp.fit(f"score ~ ({s}|{g})", data), "'k'", "write ")
        advised = TERM.findall(message.partition("write ")[2])
        assert advised == [left.format(g)]
        assert fitted(f"score ~ {advised[0]}", data)


EXPRESSIONS = {
    "log(exp(x))": lambda d: d["x"],
    "x > 0": lambda d: d["x"] > 0,
    "I(x > 0)": lambda d: d["x"] > 0,
    "round(x)": lambda d: d["x"].round(),
    "np.floor(x)": lambda d: np.floor(d["x"]),
    "Q('Part No') != 's0'": lambda d: d["Part No"] != "s0",
    "cut(x, 3)": lambda d: pd.cut(d["x"], 3),
}


@pytest.mark.parametrize("written", EXPRESSIONS)
def test_groups_of_an_expression(written):
    data = data_of("Part No", "topic")
    data["x"] = data["x"].round(1)
    message = refused(lambda: vcomp.fit(f"score ~ (1|{written}) + (1|topic)", data), "is an exp")
    term, made = re.search(r"are (\(1\|\w+\)), with (.*) as the data", message).groups()
    new = eval(made, {"data": data, "np": np, "pandas": pd})
    found = vcomp.fit(f"score ~ {term} + (1|topic)", new)
    expected = vcomp.fit("score ~ (1|g) + (1|topic)", data.assign(g=EXPRESSIONS[written](data)))
    np.testing.assert_array_equal(found.vcomp, expected.vcomp)


def test_slopes_of_columns_with_other_names():
    data = data_of("sys", "topic").rename(columns={"x": "Day.s"})
    message = refused(lambda: vcomp.fit("score ~ (Day.s|topic)", data), "is written ")
    written = re.search(r"written (.*) in a formula", message)[1]
    assert fitted(f"score ~ ({written}|topic)", data)[1] == "topic[Q('Day.s')]"


def test_terms_in_words_of_other_libraries():
    data = data_of("Part No", "topic")
    for written, term in {
        "random(Part No)": "(1|Q('Part No'))",
        "random(topic:Part No)": "(1|topic:Q('Part No'))",
    }.items():
        message = refused(lambda w=written: vcomp.fit(f"score ~ x + {w}", data), term)
        assert fitted(f"score ~ x + {TERM.search(message)[0]}", data)
