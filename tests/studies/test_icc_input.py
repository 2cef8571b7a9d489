"""Ratings at the ends of what there can be, in every container, and options that cannot be."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import vcomp
from tests.helpers.ctt_scores import QUESTIONS, WINES, holed, long_of
from vcomp.exceptions import DataError, PlanError
from vcomp.studies.intraclass import icc


def test_raters_that_differ_by_constants():
    found = icc([[1, 2], [2, 3], [3, 4]])
    assert found["ICC(C,1)"]["estimate"] == 1.0
    assert found["ICC(A,1)"]["estimate"] == pytest.approx(2 / 3, rel=1e-14)
    assert found["ICC(C,1)"]["p_value"] == 0.0
    assert "residual is 0" in str(found)


def test_objects_with_one_mean():
    found = icc([[1, 2], [2, 1], [1.5, 1.5]])
    assert found["ICC(1)"]["estimate"] == pytest.approx(-1.0)
    assert found.table[["low", "high"]].isna().all(axis=None)
    assert [note[:30] for note in found.notes] == ["All objects have the same mean"]


def test_raters_without_differences_are_a_perfect_agreement():
    table = icc([[1, 1], [2, 2], [4, 4]]).table
    assert (table[["estimate", "low", "high"]] == 1.0).all(axis=None)


@pytest.mark.parametrize("shift", [1e6, -1e6])
def test_origin_does_not_matter(shift):
    near, far = (icc(X).table for X in (WINES, WINES + shift))
    for column in ("estimate", "low", "high", "F"):
        np.testing.assert_allclose(far[column], near[column], rtol=1e-8)


def test_long_data_and_polars():
    names = {"object": "p", "rater": "r", "score": "y"}
    expected = icc(WINES).table
    for make in (dict, pd.DataFrame, pl.DataFrame):
        pd.testing.assert_frame_equal(icc(make(long_of(WINES)), **names).table, expected)
    pd.testing.assert_frame_equal(icc(pl.DataFrame(WINES)).table, expected)
    with pytest.raises(DataError, match="rater= is missing"):
        icc(long_of(WINES), object="p", score="y")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"r0": 1.0}, "r0 is a number from 0 to below 1"),
        ({"r0": -0.1}, "r0 is a number"),
        ({"r0": "0"}, "r0 is a number"),
        ({"k": 0}, "k, the number of ratings"),
        ({"k": 2.5}, "k, the number of ratings"),
        ({"k": True}, "k, the number of ratings"),
        ({"alpha": 2}, "alpha must be between 0 and 1"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(PlanError, match=message):
        icc(WINES, **options)


def test_null_values_need_a_test():
    with pytest.raises(PlanError, match="r0= is the null value of F-tests"):
        icc(holed(QUESTIONS), r0=0.5)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.ones((3, 3)), "all scores are equal"),
        (WINES[:, :1], r"two columns \(raters\); there are 8 × 1"),
        (np.full((3, 3), np.nan), "no object has a score|needs|no score"),
        (pd.DataFrame({"a": ["x"], "b": [1]}), "column 'a' does not hold numbers"),
    ],
)
def test_unfit_ratings(scores, message):
    with pytest.raises(DataError, match=message):
        icc(scores)


@pytest.mark.parametrize(
    ("components", "options", "message"),
    [
        ({"p": 1, "i": 1, "Residual": 1}, {}, "object= is the object of measurement: 'p' or 'i'"),
        ({"p": 1, "i": 1, "Residual": 1}, {"object": "q"}, "there is no facet 'q'"),
        ({"p": 1, "i": 1, "Residual": 1}, {"object": "p"}, "k= is needed"),
        ({"p": 1, "i": 1, "p:i": 1, "Residual": 1}, {"object": "p"}, "two crossed facets"),
        ({"p": 1, "i:p": 1}, {"object": "p"}, "two crossed facets"),
        ({"p": 1, "i": 1, "j": 1, "Residual": 1}, {"object": "p"}, "two crossed facets"),
        ({"p": 1, "i": 1, "Residual": 1}, {"object": "p", "rater": "i"}, "object= alone"),
    ],
)
def test_components_that_are_not_of_two_crossed_facets(components, options, message):
    with pytest.raises(PlanError, match=message):
        icc(vcomp.from_components(components), **options)


def test_components_may_say_how_many_raters_there_were():
    values = {"p": 3.0, "r": 1.0, "Residual": 2.0}
    known = vcomp.from_components(values, sizes={"p": 9, "r": 4})
    assert icc(known, object="p").k == 4
    assert icc(known, object="p", k=6).k == 6
    found = icc(known, object="p").table.loc["ICC(2,k)", "estimate"]
    assert found == pytest.approx(3.0 / (3.0 + 1.0 / 4 + 2.0 / 4), rel=1e-12)
    odd = vcomp.from_components(values, sizes={"p": 9, "r": 3.5})
    with pytest.raises(PlanError, match="k= is needed"):
        icc(odd, object="p")
    assert icc(odd, object="p", k=2).k == 2
