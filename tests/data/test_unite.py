"""Frames of several parts become one, and nothing is rounded or taken for something else."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vcomp
from vcomp.io import open_source, unite_categories

LONG = 2**62
LEVELS = st.lists(st.text("abc", max_size=2), unique=True)


def united(*columns):
    frames = [pd.DataFrame({"a": column}) for column in columns]
    return open_source(frames).read(["a"])["a"]


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ([np.array([1, 2], np.int8), np.array([3], np.int32)], "int64"),
        ([np.array([1, 2]), np.array([3], np.uint64)], "int64"),
        ([np.array([1, 2]), np.array([0.5])], "float64"),
        ([np.array([0.5], np.float32), np.array([0.25])], "float64"),
        ([pd.array([1, None], "Int16"), np.array([3])], "Int64"),
        ([np.array([1, 2]), [np.nan]], "Int64"),
        ([np.array([LONG, LONG + 1]), [None]], "Int64"),
        ([["x", "y"], [None]], None),
        ([["x", "y"], [np.nan]], None),
        ([pd.Categorical(["x"]), ["y", None]], "category"),
        ([pd.Categorical(["x"]), [np.nan]], "category"),
        ([pd.Categorical([1, 2]), np.array([3])], "category"),
        ([[True], [False, True]], "bool"),
        ([[True], [None]], "object"),
        ([pd.to_datetime(["2020-01-01"]), [None]], None),
        ([np.array([2**63 + 1], np.uint64), np.array([-1])], "object"),
    ],
)
def test_values_are_kept(columns, kind):
    column = united(*columns)
    assert kind is None or column.dtype == kind
    expected = [value for part in columns for value in list(part)]
    assert column.isna().tolist() == [pd.isna(value) for value in expected]
    assert [v for v in column if not pd.isna(v)] == [v for v in expected if not pd.isna(v)]


def test_whole_numbers_are_not_rounded_beside_fractions():
    with pytest.raises(vcomp.DataError, match=r"'a' holds whole numbers beyond 2\*\*53 in one"):
        united(np.array([LONG, LONG + 1]), np.array([0.5]))
    assert united(np.array([2**53 - 1]), np.array([0.5])).tolist() == [2.0**53 - 1, 0.5]


def test_parts_without_rows_do_not_matter():
    empty = pd.DataFrame({"a": pd.Series([], dtype=object)})
    frames = [empty, pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [3]}), empty]
    column = open_source(frames).read(["a"])["a"]
    assert column.tolist() == [1, 2, 3]
    assert column.dtype == np.int64
    assert len(open_source([empty, empty]).read(["a"])) == 0


# Categories --------------------------------------------------------------------------------------


@given(st.lists(LEVELS, min_size=1))
def test_sorted_categories_stay_sorted(several):
    found = unite_categories([pd.Index(sorted(levels), dtype=object) for levels in several])
    assert found.tolist() == sorted({level for levels in several for level in levels})


@given(st.lists(LEVELS, min_size=1))
def test_no_category_is_lost_or_doubled(several):
    found = unite_categories([pd.Index(levels, dtype=object) for levels in several])
    assert sorted(found) == sorted({level for levels in several for level in levels})


def test_an_order_that_is_not_sorted_is_kept():
    several = [pd.Index(["low", "high"]), pd.Index(["mid", "low"]), pd.Index(["a"])]
    assert unite_categories(several).tolist() == ["low", "high", "mid", "a"]


def test_categories_of_several_types_have_no_order():
    several = [pd.Index([1, 2], dtype=object), pd.Index(["a"], dtype=object)]
    assert unite_categories(several).tolist() == [1, 2, "a"]


@given(st.lists(st.lists(st.one_of(st.none(), st.sampled_from("abcd"))), min_size=2), st.data())
def test_codes_point_at_the_same_values(parts, data):
    kinds = [data.draw(st.booleans()) for _ in parts]
    columns = [
        pd.Categorical(values, categories=sorted({v for v in values if v is not None}))
        if coded
        else pd.Series(values, dtype=object)
        for values, coded in zip(parts, kinds, strict=True)
    ]
    column = united(*columns).astype(object)
    assert column.where(column.notna(), None).tolist() == [v for part in parts for v in part]


# Decimals ----------------------------------------------------------------------------------------


def test_decimals_beside_whole_numbers_stay_exact():
    long = Decimal(2**70)
    column = united([Decimal("0.5"), long], np.array([3, -1]), [None], pd.array([7, None]))
    assert column.tolist()[:4] == [Decimal("0.5"), long, Decimal(3), Decimal(-1)]
    assert all(isinstance(v, Decimal) for v in column.dropna())
    assert column.isna().tolist() == [False, False, False, False, True, False, True]


def test_decimals_beside_fractions_are_fractions():
    column = united([Decimal("0.5"), None], np.array([0.25, np.nan]), np.array([3]))
    assert column.dtype == np.float64
    np.testing.assert_array_equal(column, [0.5, np.nan, 0.25, np.nan, 3.0])
    with pytest.raises(vcomp.DataError, match=r"column 'a' holds whole numbers beyond 2\*\*53"):
        united([Decimal(2**53 + 1)], np.array([0.5]))


@pytest.mark.parametrize("stream", [False, True])
def test_scores_of_which_some_are_decimals(stream):
    data = vcomp.datasets.load("bodoff2007_alpha").round(4)
    first = data[:7].assign(score=[Decimal(str(score)) for score in data["score"][:7]])
    formula = "score ~ (1|sys) + (1|topic)"
    kept = vcomp.fit(formula, data)
    for rest in (data[7:], data[7:].astype({"score": np.float32})):
        found = vcomp.fit(formula, [first, rest], stream=stream)
        tolerance = 1e-12 if rest is data[7:] else 1e-5
        np.testing.assert_allclose(found.vcomp, kept.vcomp, rtol=tolerance, atol=0)
