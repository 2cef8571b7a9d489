"""Scores of objects on items in every container, and those that cannot be read."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import vcomp
from tests.helpers.ctt_scores import FIGURE_2
from vcomp.exceptions import DataError
from vcomp.studies.alpha_coefficients import cronbach_alpha
from vcomp.studies.internal_consistency import reliability

LONG = {
    "who": np.repeat(list("abcde"), 3),
    "what": np.tile(["x", "y", "z"], 5),
    "score": FIGURE_2.ravel(),
}


@pytest.mark.parametrize(
    "scores",
    [
        FIGURE_2.tolist(),
        pd.DataFrame(FIGURE_2),
        pl.DataFrame(FIGURE_2),
        np.ma.masked_invalid(FIGURE_2),
        pd.DataFrame(FIGURE_2, dtype=object),
    ],
    ids=["list", "pandas", "polars", "masked", "objects"],
)
def test_containers(scores):
    assert reliability(scores).cronbach_alpha == pytest.approx(cronbach_alpha(FIGURE_2), rel=1e-14)


def test_a_table_as_a_mapping():
    columns = {name: FIGURE_2[:, i] for i, name in enumerate("xyz")}
    assert reliability(columns).cronbach_alpha == reliability(FIGURE_2).cronbach_alpha
    assert (
        reliability(pl.LazyFrame(columns)).cronbach_alpha == reliability(FIGURE_2).cronbach_alpha
    )


def test_truth_values_with_a_missing_one():
    scores = pl.DataFrame({"a": [True, False, None, True], "b": [True, False, True, True]})
    assert reliability(scores, missing="listwise").n_objects == 3


@pytest.mark.parametrize(
    ("change", "names", "message"),
    [
        ({}, {"object": "who", "score": "score"}, "item= is missing, .* no column 'item'"),
        ({}, {"object": "who", "item": "wat", "score": "score"}, "did you mean 'what'"),
        ({}, {"object": "who", "item": "who", "score": "score"}, "three different columns"),
        ({}, {"object": "who", "item": "what", "score": "what"}, "three different columns"),
        ({"score": list("abc") * 5}, None, "column 'score' does not hold numbers"),
        (
            {"who": ["a"] * 15},
            None,
            "there are 5 scores of who 'a' on what 'x'; who and what need two levels",
        ),
        ({"who": [None] + ["a"] * 14}, None, "column 'who' is missing in 1 of 15 rows"),
        ({"what": np.repeat(["x"], 15), "who": range(15)}, None, "there are 15 × 1"),
        ({"score": [np.inf, *range(14)]}, None, "the score of object 'a' on item 'x' is infinite"),
    ],
)
def test_long_data_that_cannot_be(change, names, message):
    names = names or {"object": "who", "item": "what", "score": "score"}
    with pytest.raises(DataError, match=message):
        reliability(pd.DataFrame({**LONG, **change}), **names)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (FIGURE_2[:1], "reliability needs at least two rows .* there are 1 × 3"),
        (np.zeros((0, 0)), "there are 0 × 0"),
        ([], r"1 dimension\(s\)"),
        (np.ones((4, 3)), "same total"),
        (np.full((4, 3), 1e9 + 0.1), "same total"),
        (pd.DataFrame({"a": ["x", "y"], "b": [1, 2]}), "column 'a' does not hold numbers"),
        (pl.DataFrame({"a": ["x", "y"], "b": [1, 2]}), "column 'a' does not hold numbers"),
        (np.ones((2, 2), dtype=complex), "they are complex128"),
        (FIGURE_2 * [[1], [1], [1], [1], [np.inf]], "the score of object '4' on item '0' is inf"),
    ],
)
def test_unfit_scores(scores, message):
    with pytest.raises(DataError, match=message):
        reliability(scores)


def test_scores_whose_squares_overflow_are_refused():
    for analyse in (cronbach_alpha, reliability):
        with pytest.raises(DataError, match="scores of 1e\\+200 are too large to be squared"):
            analyse(np.where(np.eye(4) > 0, 1e200, 1.0))
    wide = FIGURE_2 * 1e90
    assert cronbach_alpha(wide) == pytest.approx(cronbach_alpha(FIGURE_2), rel=1e-12)


@pytest.mark.parametrize("name", ["student_no", "Unnamed: 0", "case"])
def test_numbers_of_objects_are_no_item_whatever_they_are_called(name):
    rng = np.random.default_rng(2)
    able = rng.normal(size=(40, 1))
    items = pd.DataFrame(np.clip(np.round(3 + able + rng.normal(size=(40, 5))), 1, 5))
    items.columns = [f"q{k}" for k in range(5)]
    named = items.assign(**{name: rng.permutation(np.arange(1001, 1041))})
    for function in (vcomp.ctt.reliability, vcomp.ctt.item_analysis):
        with pytest.raises(DataError, match=f"column '{name}' has another whole number in each"):
            function(named)
    # The advice: as the index, it names the rows; without names, the numbers are scores.
    expected = vcomp.ctt.reliability(items).table["estimate"]
    found = vcomp.ctt.reliability(named.set_index(name)).table["estimate"]
    np.testing.assert_array_equal(found, expected)
    assert vcomp.ctt.reliability(named.to_numpy()).table["estimate"].iloc[0] < expected.iloc[0]
