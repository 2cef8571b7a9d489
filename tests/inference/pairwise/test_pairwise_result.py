"""Squares, groups and the printed form of comparisons, from a table made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tests.helpers.printed_tables import printed_columns, printed_words
from vcomp.exceptions import PlanError
from vcomp.inference.pairwise import PairwiseComparisons

MEANS = pd.Series([0.30, 0.10, 0.25], index=["a", "b", "c"])
TABLE = pd.DataFrame({
    "first": ["a", "a", "b"], "second": ["b", "c", "c"], "n_topics": [20, 20, 18],
    "difference": [0.2, 0.05, -0.15], "statistic": [3.0, 0.7, -2.1],
    "p_value": [0.001, 0.4, 0.02], "p_adjusted": [0.003, 0.4, 0.04],
    "significant": [True, False, True], "low": [0.1, -0.1, -0.25], "high": [0.3, 0.2, -0.05],
})  # fmt: skip
MADE = PairwiseComparisons(TABLE, MEANS, "system", "paired t-test", "t", "holm", 0.05, ("So.",))


def test_levels_are_in_the_order_of_their_means():
    groups = MADE.groups
    assert groups.index.tolist() == ["a", "c", "b"]
    assert groups.index.name == "system"
    assert groups["mean"].tolist() == [0.3, 0.25, 0.1]
    a, c, b = map(set, groups["group"])
    assert a & c
    assert not a & b
    assert not b & c


def test_squares():
    nan = np.nan
    expected = {
        "p_adjusted": [[nan, 0.4, 0.003], [0.4, nan, 0.04], [0.003, 0.04, nan]],
        "p_value": [[nan, 0.4, 0.001], [0.4, nan, 0.02], [0.001, 0.02, nan]],
        "difference": [[nan, 0.05, 0.2], [-0.05, nan, 0.15], [-0.2, -0.15, nan]],
        "significant": [[False, False, True], [False, False, True], [True, True, False]],
    }
    for column, square in expected.items():
        found = MADE.matrix(column)
        assert found.index.tolist() == found.columns.tolist() == ["a", "c", "b"]
        np.testing.assert_array_equal(found, np.array(square))
    with pytest.raises(PlanError, match="no square of 'statistic'"):
        MADE.matrix("statistic")


def test_a_baseline_has_neither_groups_nor_squares():
    some = replace(MADE, table=TABLE.iloc[:2])
    assert MADE.is_of_all_pairs
    assert not some.is_of_all_pairs
    with pytest.raises(PlanError, match="these are 2 pairs of 3 systems, with one baseline"):
        some.matrix()
    assert "share a letter" not in str(some)
    assert repr(some) == "<PairwiseComparisons: paired t-test, 1 of 2 pairs of system distinct>"


def test_the_printed_form():
    summary = MADE.summary()
    means, pairs = printed_columns(summary), printed_columns(summary, 1)
    assert means == {"": ["a", "c", "b"], "mean": ["0.3000", "0.2500", "0.1000"],
                     "group": list(MADE.groups["group"])}  # fmt: skip
    assert pairs[""] == ["a − b", "b − c", "a − c"]  # by p-value
    assert pairs["topics"] == ["20", "18", "20"]
    assert [float(x.replace("−", "-")) for x in pairs["difference"]] == [0.2, -0.15, 0.05]
    assert [float(x.replace("−", "-")) for x in pairs["t"]] == [3.0, -2.1, 0.7]
    assert [float(x) for x in pairs["p"]] == [0.001, 0.02, 0.4]
    assert [float(x) for x in pairs["p adj."]] == [0.003, 0.04, 0.4]
    text = printed_words(summary)
    assert text.count("*") == 2
    assert "Two systems share a letter if their difference is not significant. So." in text
    assert "pairs are listed" not in text
    one = printed_columns(MADE.summary(1), 1)
    assert one[""] == ["a − b"]
    assert "1 of 3 pairs are listed" in printed_words(MADE.summary(1))
    assert len(MADE.summary(0).tables) == 1


def test_columns_that_say_nothing_are_left_out():
    without = replace(MADE, table=TABLE.assign(low=np.nan, high=np.nan), symbol="difference")
    pairs = printed_columns(without.summary(), 1)
    assert not {"95 % interval", "t"} & set(pairs)
    assert list(pairs).count("difference") == 1
    at_once = replace(MADE, correction=None)
    pairs = printed_columns(at_once.summary(), 1)
    assert "p adj." not in pairs
    assert [float(x) for x in pairs["p"]] == [0.003, 0.04, 0.4]
    assert "p is of all pairs at once; significant if it is at most 0.05." in str(at_once)
    single = replace(MADE, table=TABLE.iloc[:1], means=MEANS[:2])
    assert "p adj.: of a single pair; significant" in str(single)
    assert "share a letter" not in str(single)
    assert "Significant if p is at most 0.05." in str(replace(single, correction=None))
