"""Levels that differ only in case, blanks or type."""

import datetime
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcomp.io import alike_levels


@pytest.mark.parametrize(
    ("values", "alike"),
    [
        ([], ()),
        (["a", "b"], ()),
        (["A", "a"], (("A", "a"),)),
        (["a ", "b", " a", "a"], (("a ", " a", "a"),)),
        (["\ta", "a\n"], (("\ta", "a\n"),)),
        (["a b", "ab"], ()),
        ([1, "1"], ((1, "1"),)),
        ([1.0, "1", 2.5, "2.5"], ((1.0, "1"), (2.5, "2.5"))),
        ([1.0, "1.0"], ()),
        ([True, "true"], ((True, "true"),)),
        ([b"a", "a"], ((b"a", "a"),)),
        (["STRASSE", "straße"], (("STRASSE", "straße"),)),
        (["e\u0301te\u0301", "\u00e9t\u00e9"], (("e\u0301te\u0301", "\u00e9t\u00e9"),)),
        (["X1", "x1", "y", "x2", "X2 "], (("X1", "x1"), ("x2", "X2 "))),
        ([None, "none", float("nan"), "nan", pd.NA, "<NA>"], ()),
        ([datetime.date(2020, 1, 1), "2020-01-01"], ((datetime.date(2020, 1, 1), "2020-01-01"),)),
        ([(1, "a"), "b"], ()),
    ],
)
def test_levels(values, alike):
    assert alike_levels(values) == alike


def test_values_that_are_given_twice_are_one_level():
    assert alike_levels(["a", "b", "a"]) == ()
    assert alike_levels(np.array([1, 1, 2])) == ()


@pytest.mark.parametrize("make", [list, pd.Index, pd.Series, pd.Categorical, np.array, iter])
def test_kinds_of_levels(make):
    assert [tuple(map(str, group)) for group in alike_levels(make(["A", "b", "a"]))] == [
        ("A", "a")
    ]


@given(st.lists(st.one_of(st.text("aAbB 1", max_size=3), st.integers(0, 2)), unique=True))
def test_every_pair_that_is_alike_is_found(values):
    """Two levels are in one group exactly if their words are equal."""
    groups = {value: group for group in alike_levels(values) for value in group}
    for one, other in combinations(values, 2):
        same = str(one).strip().lower() == str(other).strip().lower()
        assert (one in groups and other in groups[one]) == same
