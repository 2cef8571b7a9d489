"""Surveys of parts of the data add up to that of the whole, in any order."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.examples import examples
from vcomp.statistics.batches.survey import FacetSurvey, add_up, survey_rows, united_facets

KINDS = {
    "numbers": lambda k: k,
    "floats": lambda k: k + 0.5,
    "text": lambda k: f"level {k}",
    "dates": lambda k: pd.Timestamp("2026-01-01") + pd.Timedelta(days=k),
}


@st.composite
def split_rows(draw):
    """Return rows with three facets, and the part that each row is in."""
    n = draw(st.integers(1, 40))
    inner = draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))
    other = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    parts = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    kind = KINDS[draw(st.sampled_from(sorted(KINDS)))]
    outer = [kind(k // 3) for k in inner]  # determined by the first facet
    frame = pd.DataFrame({"d": [kind(k) for k in inner], "t": outer, "s": other})
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    return frame.assign(y=rng.normal(loc=1e3, size=n)), np.array(parts)


def survey_of(frame):
    return survey_rows(frame["y"].to_numpy(), {f: frame[f] for f in ("d", "t", "s")})


def told_by(frame):
    """Return which facets tell which, row by row."""
    pairs = {}
    for (a, inner), (b, outer) in permutations(enumerate(("d", "t", "s")), 2):
        groups = frame.groupby(inner, observed=True)[outer]
        if groups.nunique().max() == 1:
            pairs[a, b] = groups.agg(lambda v: v.iloc[0]).sort_index()
    return pairs


@settings(max_examples=examples(50), deadline=None)
@given(split_rows(), st.permutations(range(4)))
def test_parts_in_any_order_give_the_survey_of_the_rows(case, order):
    frame, parts = case
    found = add_up(survey_of(frame[parts == k].reset_index(drop=True)) for k in order)
    found = found.of_used_levels()
    assert found.n == len(frame)
    assert (found.low, found.high) == (frame["y"].min(), frame["y"].max())
    np.testing.assert_allclose(found.mean, frame["y"].mean(), rtol=1e-14)
    for facet, name in zip(found.facets, ("d", "t", "s"), strict=True):
        expected = frame[name].value_counts().sort_index()
        assert facet.levels.tolist() == expected.index.tolist()
        assert facet.counts.tolist() == expected.tolist()
    expected = told_by(frame)
    assert found.determined.keys() == expected.keys()
    for (inner, outer), level in found.determined.items():
        assert found.facets[outer].levels[level].tolist() == expected[inner, outer].tolist()


def test_categories_keep_their_order_and_lose_what_does_not_occur():
    """Of categories the order is the user's, also of those that come in other parts."""
    sizes = pd.Categorical(["large", "small"], categories=["small", "medium", "large", "huge"])
    one = survey_rows(np.ones(2), {"size": pd.Series(sizes)})
    assert one.facets[0].levels.tolist() == ["small", "medium", "large", "huge"]
    both = (one + one).of_used_levels()
    assert both.facets[0].levels.tolist() == ["small", "large"]
    assert both.facets[0].counts.tolist() == [2, 2]


def test_a_part_may_contradict_what_another_tells():
    def part(d, t):
        return survey_rows(np.arange(len(d)), {"d": pd.Series(d), "t": pd.Series(t)})

    first = part([1, 2], ["x", "y"])
    assert (0, 1) in first.determined
    assert (0, 1) in (first + part([3], ["x"])).determined
    assert (0, 1) not in (first + part([2], ["x"])).determined
    assert (0, 1) not in (part([2], ["x"]) + first).determined
    assert (0, 1) not in (first + part([2], ["x"]) + first).determined


def test_levels_that_occur_in_no_part_are_nested_in_none():
    d = pd.Series(pd.Categorical(["b", "c", "b"], categories=["a", "b", "c"]))
    one = survey_rows(np.arange(3.0), {"d": d, "t": pd.Series(["x", "y", "x"])})
    for found in (one, one + one, one + one + one):
        assert found.determined[0, 1].tolist() == [-1, 0, 1]


def test_no_rows_change_nothing():
    one = survey_rows(np.array([1.0, 3.0]), {"d": pd.Series([1, 2])})
    none = survey_rows(np.zeros(0), {"d": pd.Series([], dtype=object)})
    assert (one + none) is one
    assert (none + one) is one


def test_the_mean_of_a_constant_is_the_constant():
    third = survey_rows(np.full(3, 0.1), {"d": pd.Series([1, 2, 3])})
    assert sum([third] * 6, start=third).mean == 0.1


def test_sums_of_very_different_numbers_keep_their_digits():
    parts = [np.array([1e15]), np.array([0.123]), np.array([-1e15])]
    whole = add_up(survey_rows(y, {"d": pd.Series([0])}) for y in parts)
    if np.finfo(np.longdouble).nmant > 60:
        np.testing.assert_allclose(whole.mean, 0.041, rtol=1e-3)
    assert whole.n == 3


def test_what_cannot_be_a_level():
    with pytest.raises(vcomp.DataError, match="facet 'd' holds values that cannot be levels"):
        survey_rows(np.zeros(1), {"d": pd.Series([[1, 2]])})


def test_united_facets_say_where_levels_went():
    a = FacetSurvey(pd.Index(["b", "d"]), np.array([2, 3]))
    b = FacetSurvey(pd.Index(["a", "b", "e"]), np.array([1, 4, 0]))
    united, in_a, in_b = united_facets(a, b)
    assert united.levels.tolist() == ["a", "b", "d", "e"]
    assert united.counts.tolist() == [1, 6, 3, 0]
    assert (in_a.tolist(), in_b.tolist()) == ([1, 2], [0, 1, 3])
    levels, places = united.used()
    assert levels.tolist() == ["a", "b", "d"]
    assert places.tolist() == [0, 1, 2]
