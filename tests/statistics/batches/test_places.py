"""Every combination of levels has a place of its own, and the place tells the levels."""

from __future__ import annotations

from math import prod

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.examples import examples
from vcomp.design.design import Facet
from vcomp.design.grid import find_grid
from vcomp.statistics.batches.row_coding import CellPlaces, FacetPlaces, places_of_rows
from vcomp.statistics.batches.survey import FacetSurvey, Survey, survey_rows

NAMES = ("p", "d", "t", "c")


@st.composite
def rows(draw):
    """Return documents in topics in collections, scored by persons: some facets tell others."""
    n = draw(st.integers(2, 60))
    topic_of = draw(st.lists(st.integers(0, 4), min_size=9, max_size=9))
    collection_of = draw(st.lists(st.integers(0, 1), min_size=5, max_size=5))
    person = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    document = draw(st.lists(st.integers(0, 8), min_size=n, max_size=n))
    topic = [topic_of[d] for d in document]
    if draw(st.booleans()):  # labels that start anew: a document no longer tells its topic
        document = [d % 3 for d in document]
    frame = pd.DataFrame({"p": person, "d": document, "t": topic})
    return frame.assign(c=[collection_of[t] for t in topic])


def places_of(frame):
    """Return the places, and the codes of the rows."""
    survey = survey_rows(np.arange(float(len(frame))), {f: frame[f] for f in NAMES})
    codes = [
        facet.levels.get_indexer(frame[name]).astype(np.int32)
        for facet, name in zip(survey.facets, NAMES, strict=True)
    ]
    return CellPlaces.of(survey, NAMES), codes


@settings(max_examples=examples(80), deadline=None)
@given(rows())
def test_places_tell_the_levels_and_levels_the_places(frame):
    places, codes = places_of(frame)
    at = places.of_rows(codes)
    assert at.min() >= 0
    assert at.max() < places.size == prod(places.shape)
    for found, own in zip(places.codes(at), codes, strict=True):
        np.testing.assert_array_equal(found, own)
    # As many places as there are different combinations.
    assert np.unique(at).size == len(frame.drop_duplicates())
    assert places.n_levels == tuple(frame[name].nunique() for name in NAMES)


@settings(max_examples=examples(50), deadline=None)
@given(rows())
def test_every_place_has_levels_that_lead_back_to_it(frame):
    places, _ = places_of(frame)
    every = np.arange(places.size)
    np.testing.assert_array_equal(places.of_rows(places.codes(every)), every)


@settings(max_examples=examples(50), deadline=None)
@given(rows())
def test_facets_that_others_tell_take_no_part(frame):
    places, _ = places_of(frame)
    for outer, (inner, level) in places.determined.items():
        assert outer not in places.free
        assert inner in places.free
        pairs = frame.groupby(NAMES[inner])[NAMES[outer]].agg(["nunique", "first"])
        assert (pairs["nunique"] == 1).all()
        levels = np.sort(frame[NAMES[outer]].unique())
        np.testing.assert_array_equal(levels[level], pairs["first"].sort_index())
    assert sorted([*places.free, *places.determined]) == list(range(4))


@settings(max_examples=examples(40), deadline=None)
@given(rows(), st.booleans())
def test_the_grid_is_that_of_the_rows(frame, complete):
    """With as many axes as are fully crossed with everything; else there is none."""
    if complete:
        persons = pd.DataFrame({"p": range(3)})
        cells = frame[["d", "t", "c"]].drop_duplicates()
        frame = persons.merge(cells, how="cross")
        if (frame.nunique() < 2).any():
            return
    places, codes = places_of(frame)
    counts = np.bincount(places.of_rows(codes), minlength=places.size)
    found = places.grid(counts, terms_are_nested=False)
    expected = find_grid(codes, places.n_levels, [(0,), (1,), (2,)])
    if expected is None or not expected.axes:
        assert found is None
        return
    assert found is not None
    assert found.axes == expected.axes
    assert found.shape == expected.shape
    np.testing.assert_array_equal(np.sort(found.cell_n), np.sort(expected.cell_n))


def test_more_cells_than_there_are_numbers():
    facets = tuple(FacetSurvey(pd.RangeIndex(2**21), np.ones(2**21, np.int64)) for _ in range(3))
    survey = Survey(facets, {}, 2**21, np.longdouble(0.0), 0.0, 1.0)
    with pytest.raises(vcomp.EstimationError, match=r"2,097,152 p × .* are too many cells to be"):
        CellPlaces.of(survey, NAMES)


WHOLE = ["int8", "int16", "uint16", "int32", "int64", "uint64"]


@pytest.mark.parametrize("of_levels", WHOLE)
@pytest.mark.parametrize("of_rows", [*WHOLE, "float64", "category"])
@settings(max_examples=examples(10), deadline=None)  # the first call compiles
@given(known=st.sets(st.integers(0, 120), min_size=1), wanted=st.lists(st.integers(0, 127)))
def test_levels_in_a_table_are_those_of_a_hash(of_levels, of_rows, known, wanted):
    facet = Facet("a", pd.Index(sorted(known), dtype=of_levels))
    column = pd.Series(np.array(wanted, dtype="int64")).astype(of_rows)
    expected = [sorted(known).index(v) if v in known else -1 for v in wanted]
    assert each_place(facet, column, 3) == [-1 if k < 0 else 3 * k for k in expected]
    assert facet.codes(column).tolist() == expected


@pytest.mark.parametrize("dtype", ["float64", "uint64", "Int64", "object", "int64"])
def test_numbers_of_other_types_are_not_rounded(dtype):
    """Whole levels have a table, in which 5.5 and 2**64 − 1 have no place."""
    facet = Facet("a", pd.Index([3, 5, 9]))
    other = {"float64": 5.5, "object": 5.5, "uint64": 2**64 - 1}.get(dtype, 7)
    column = pd.Series([5, 3, other, 9], dtype=dtype)
    assert each_place(facet, column, 4) == [4, 0, -1, 8]


def each_place(facet, column, step):
    """Return the place of each row, one after another; −1 where it is refused."""
    found, lookup = [], FacetPlaces(facet, step)
    for k in range(len(column)):
        try:
            found += places_of_rows([lookup], {facet.name: column.iloc[k : k + 1]}).tolist()
        except vcomp.DataError:
            found.append(-1)
    return found


def test_places_of_several_facets_add_up():
    rng = np.random.default_rng(3)
    facets = [
        Facet("a", pd.Index([3, 5, 9])),
        Facet("b", pd.Index(["u", "v"])),
        Facet("c", pd.Index([0.5, 1.5, 2.5])),
    ]
    drawn = {f.name: rng.integers(0, f.size, 50) for f in facets}
    columns = {f.name: pd.Series(f.levels.to_numpy()[drawn[f.name]]) for f in facets}
    lookups = [FacetPlaces(f, step) for f, step in zip(facets, (6, 3, 1), strict=True)]
    expected = (6 * drawn["a"] + 3 * drawn["b"] + drawn["c"]).tolist()
    for block in (7, 10**6):
        assert places_of_rows(lookups, columns, block=block).tolist() == expected
    columns["b"].iloc[49] = "w"
    with pytest.raises(
        vcomp.DataError, match="facet 'b' has a level that the first pass did not read"
    ):
        places_of_rows(lookups, columns)


@pytest.mark.parametrize(
    "levels",
    [
        pd.Index([-(2**63), -(2**63) + 5]),
        pd.Index([2**63 - 6, 2**63 - 1]),
        pd.Index([-5, 3, 2**40]),
        pd.Index([-(2**40), 3, 2**40]),
        pd.Index([2**63, 2**64 - 1], dtype="uint64"),
        pd.Index([2**63, 2**63 + 5], dtype="uint64"),
        pd.Index(["a", "b"]),
        pd.Index([0.5, 2.0]),
    ],
)
def test_levels_at_the_ends_of_what_there_is(levels):
    """Differences that are too large for a whole number do not find another level."""
    facet = Facet("a", levels)
    assert each_place(facet, pd.Series(levels), 1) == list(range(len(levels)))
    if levels.dtype == np.int64:
        ends = pd.Series([-(2**63), 2**63 - 1, 0, 1])
        known = levels.tolist()
        expected = [known.index(v) if v in known else -1 for v in ends.tolist()]
        assert each_place(facet, ends, 1) == expected
