"""Groups of levels: how they are given, and what is refused."""

from __future__ import annotations

import pandas as pd
import pytest

from vcomp.design import group_codes
from vcomp.exceptions import DataError

LEVELS = ["b1", "a1", "a2", "c1"]


@pytest.mark.parametrize(
    "groups",
    [
        {"a1": "A", "a2": "A", "b1": "B", "c1": "C", "unused": "D"},
        pd.Series({"a1": 1, "a2": 1, "b1": 2, "c1": 3}),
        lambda level: level[0],
    ],
    ids=["mapping", "series", "function"],
)
def test_they_are_numbered_as_they_come(groups):
    assert group_codes(groups, LEVELS, "sys").tolist() == [0, 1, 1, 2]


def test_labels_are_found_as_text():
    assert group_codes({1: "A", 2: "B"}, ["2", "1"], "sys").tolist() == [0, 1]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"a1": "A", "a2": "A", "b1": "B"}, "'c1' of 'sys' has no group"),
        ({"a1": "A", "a2": None, "b1": "B", "c1": "C"}, "'a2' of 'sys' has no group"),
        (dict.fromkeys(LEVELS, "A"), "all 4 levels of 'sys' are in one group"),
        (["A", "A", "B", "C"], "must be a mapping from its levels to groups, or a function"),
        ({level: [] for level in LEVELS}, "groups of 'sys' must be labels"),
    ],
)
def test_mistakes(groups, message):
    with pytest.raises(DataError, match=message):
        group_codes(groups, LEVELS, "sys")
