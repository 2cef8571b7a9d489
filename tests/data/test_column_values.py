"""Which values are levels, in which order, and how they are shown."""

from __future__ import annotations

import datetime
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.learned_designs import design_of, rows_of
from vcomp.data.column_values import text_for_numbers, united_levels

N = 12
SCORE = np.random.default_rng(5).normal(size=N)


def levels_of(values):
    """Return the levels of a facet, after checking that encoding and decoding is the identity."""
    data = pd.DataFrame({"y": np.resize(SCORE, len(values))}).assign(g=values)
    design = design_of("y ~ (1|g)", data)
    levels = design.group_index(0)
    assert levels.name == "g"
    chunk = design.encode(rows_of("y ~ (1|g)", data))
    assert [levels[code] for code in chunk.codes[0]] == list(data["g"])
    assert design.facets[0].size == len(set(data["g"]))
    return levels


def repeat(*values):
    """Return the values over and over, the last first."""
    return [values[-1 - i % len(values)] for i in range(N)]


LONG = ["x" * 10_000 + end for end in "ab"]

LEVELS = {
    "text": ["a", "b", "c"],
    "text is sorted as text": ["10", "9", "a"],
    "marks": ["", " ", "a b", "a,b", "a:b", "a|b", "a~b", "n/a"],
    "unicode": ["Zoë", "zoe", "é", "日本", "🙂"],
    "very long": LONG,
    "integers": [-3, 2, 10],
    "large integers": [2**53, 2**53 + 1, 2**62],
    "floats": [-0.5, 0.25, 1.5],
    "infinite": [-np.inf, 0.0, np.inf],
    "floats beyond integers": [0.0, 1e19, 1e300],
    "booleans": [False, True],
    "dates": [datetime.date(2019, 12, 31), datetime.date(2020, 1, 1)],
    "times": [pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-02 03:00")],
    "time zones": [pd.Timestamp("2020-01-01", tz="UTC"), pd.Timestamp("2020-01-02", tz="UTC")],
    "bytes": [b"a", b"b"],
    "tuples": [("a", 1), ("a", 2), ("b", 1)],
    "intervals": [pd.Interval(0, 1), pd.Interval(1, 2)],
    "periods": [pd.Period("2020-01"), pd.Period("2020-02")],
}


@pytest.mark.filterwarnings("ignore:.*'' and ' ' differ only in case:vcomp.VcompWarning")
@pytest.mark.parametrize("kind", LEVELS)
def test_levels_are_sorted_whatever_the_order_of_the_rows(kind):
    expected = LEVELS[kind]
    assert list(levels_of(repeat(*expected))) == expected
    assert list(levels_of(repeat(*expected)[::-1])) == expected


def test_values_of_several_types_are_sorted_by_type_and_name():
    with pytest.warns(vcomp.VcompWarning, match="look alike: 1 and '1' differ only in case"):
        found = list(levels_of(repeat("1", "b", 2, 1, (1, 2))))
    assert found == [1, 2, "1", "b", (1, 2)]


def test_whole_numbers_that_a_missing_value_turned_into_floats():
    values = [3.0, 1.0, 2.0] * 4
    data = pd.DataFrame({"y": SCORE, "g": [np.nan, *values[1:]]})
    with pytest.warns(vcomp.VcompWarning, match="1 of 12 rows"):
        design = design_of("y ~ (1|g)", data)
    assert design.facets[0].levels.tolist() == [1, 2, 3]
    assert design.facets[0].levels.dtype == np.int64
    codes = design.facets[0].codes(pd.Series([3, 1, 7]))
    assert codes.tolist() == [2, 0, -1]
    assert design.facets[0].codes(pd.Series([3.0, 1.0, 7.5])).tolist() == [2, 0, -1]


def test_categories_keep_their_order_and_the_unused_are_no_levels():
    order = ["low", "never", "mid", "high"]
    values = pd.Categorical(repeat("low", "mid", "high"), categories=order, ordered=True)
    assert list(levels_of(values)) == ["low", "mid", "high"]
    backwards = pd.Categorical(repeat("a", "b"), categories=["c", "b", "a"])
    assert list(levels_of(backwards)) == ["b", "a"]
    # Categories that only incomplete rows have are unused as well.
    data = pd.DataFrame({"y": [np.nan, *SCORE[1:]], "g": values.set_categories(order)})
    data.loc[0, "g"] = "never"
    with pytest.warns(vcomp.VcompWarning):
        assert list(design_of("y ~ (1|g)", data).group_index(0)) == ["low", "mid", "high"]


def test_codes_of_a_category_that_is_not_known():
    design = design_of("y ~ (1|g)", {"y": SCORE, "g": repeat("a", "b")})
    column = pd.Series(pd.Categorical(["b", None, "z", "a"], categories=["z", "b", "a"]))
    assert design.facets[0].codes(column).tolist() == [1, -1, -1, 0]
    assert design.facets[0].codes(pd.Series(["b", None, "z", "a"])).tolist() == [
        1,
        -1,
        -1,
        0,
    ]


def test_groups_of_a_term_are_tuples_of_levels():
    data = {"y": SCORE, "a": repeat("x|y", "x:y"), "b": repeat(1, 2, 3), "c": repeat(True, False)}
    design = design_of("y ~ (1|b:a)", data)
    index = design.group_index(0)
    assert index.names == ["b", "a"]
    assert sorted(index) == sorted(set(zip(data["b"], data["a"], strict=True)))
    chunk = design.encode(rows_of("y ~ (1|b:a)", data))
    assert [index[i] for i in chunk.codes[0]] == list(zip(data["b"], data["a"], strict=True))


def test_results_show_the_levels():
    data = {"y": SCORE, "g": repeat(*LONG), "h": repeat(("t", 1), ("t", 2), ("u", 1))}
    effects = vcomp.fit("y ~ (1|g) + (1|h)", data).random_effects
    assert list(effects["g"].index) == LONG
    assert list(effects["h"].index) == [("t", 1), ("t", 2), ("u", 1)]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["a"] * N, "facet 'g' has one level only ('a')"),
        ([7] * N, "facet 'g' has one level only (7)"),
        (pd.Categorical(["a"] * N, categories=["a", "b"]), "one level only ('a')"),
    ],
)
def test_one_level(values, words):
    with pytest.raises(vcomp.DesignError) as caught:
        design_of("y ~ (1|g)", pd.DataFrame({"y": SCORE, "g": values}))
    assert words in str(caught.value)


@pytest.mark.parametrize("value", [["a"], {"a": 1}, {1, 2}])
def test_what_cannot_be_a_level(value):
    with pytest.raises(
        vcomp.DataError, match=r"facet 'g' holds values that cannot be levels: unhash"
    ):
        design_of("y ~ (1|g)", pd.DataFrame({"y": SCORE, "g": [value] * N}))


def test_names_that_components_have():
    data = {"y": SCORE, "Residual": repeat("a", "b")}
    with pytest.raises(vcomp.DesignError, match="'Residual' is the name of the last component"):
        design_of("y ~ (1|Residual)", data)


@settings(deadline=None)
@given(
    st.lists(st.integers(-9, 9), unique=True),
    st.lists(st.integers(-9, 9), unique=True),
    st.sampled_from(["int8", "int64"]),
)
def test_united_numbers_are_in_order_unless_they_had_another_one(a, b, dtype):
    parts = [pd.Index(np.array(part, dtype=dtype)) for part in (a, b)]
    levels, *places = united_levels(*parts)
    assert levels.dtype == dtype
    in_order = [*a, *(v for v in b if v not in a)]
    if a == sorted(a) and b == sorted(b):
        in_order.sort()
    assert levels.tolist() == in_order
    for part, place in zip(parts, places, strict=True):
        assert levels[place].tolist() == part.tolist()


MEETING = [1, True, "1", 2]


@pytest.mark.parametrize("stream", [False, True])
def test_truth_values_and_numbers_that_are_equal_are_warned_about(stream):
    y = np.random.default_rng(0).normal(size=12)
    frame = pd.DataFrame({"a": np.array(MEETING * 3, object), "y": y})
    with pytest.warns(vcomp.VcompWarning) as caught:
        res = vcomp.fit("y ~ (1|a)", frame, stream=stream)
    said = " ".join(str(warning.message) for warning in caught)
    assert "column 'a' has True and 1, which are equal and count as one level" in said
    assert "1 and '1' differ only in case, blanks or type" in said
    assert res.design.n_levels == (3,)


@pytest.mark.parametrize("stream", [False, True])
def test_factors_with_levels_of_several_types(stream):
    y, b = np.random.default_rng(0).normal(size=12), [1, 1, 2, 2, 3, 3] * 2

    def fit(levels):
        frame = pd.DataFrame({"f": np.array(levels * 3, object), "b": b, "y": y})
        return vcomp.fit("y ~ f + (1|b)", frame, stream=stream)

    with pytest.raises(vcomp.DataError, match="'f' holds numbers in some rows and truth values"):
        fit([1, True, 2, False])
    with pytest.warns(vcomp.VcompWarning, match=r"factor 'f' has levels that look alike: 'A' and"):
        fit(["A", "a", "b", "c"])
    with pytest.raises(vcomp.VcompError, match=r"levels 1 and '1', whose columns|column_names"):
        fit([1, "1", 2, "2"])


def test_a_response_of_truth_values_and_numbers():
    y = np.array([True, False, 0.5, 2.0, 1.0, 0.0], object)
    with pytest.raises(vcomp.DataError, match="'y' holds numbers in some rows and truth values"):
        vcomp.fit("y ~ (1|a)", pd.DataFrame({"a": [1, 1, 2, 2, 3, 3], "y": y}))


FORMULA = "y ~ (1|g)"
OTHER = 40  # rows of plain labels, as many as a sniffer of separators needs

CASES = {
    # what is in the file, and the numbers that are meant
    "decimal": (";", ["1,5", "2,25", "0,125", "7"], [1.5, 2.25, 0.125, 7.0]),
    "decimal in quotes": (",", ['"1,5"', '"2,25"', '"0,125"', "7"], [1.5, 2.25, 0.125, 7.0]),
    "thousands": (",", ['"1,001.5"', '"12,250"', "999", "3"], [1001.5, 12250.0, 999.0, 3.0]),
    "thousands, no point": (";", ["999", "1,001", "1,250", "7"], [999.0, 1001.0, 1250.0, 7.0]),
    "both": (";", ["1.001,5", "2.000,25", "7,1", "3"], [1001.5, 2000.25, 7.1, 3.0]),
    "millions": (";", ["1,234,567", "2", "3,001", "4"], [1234567.0, 2.0, 3001.0, 4.0]),
    "underscores": (",", ["1_000", "2", "3_001", "4"], [1000.0, 2.0, 3001.0, 4.0]),
    "SAS's point": (",", [".", "2.5", "3", "4"], [None, 2.5, 3.0, 4.0]),
    "a mark and a comma": (";", ["-", "2,5", "3,25", "4"], [None, 2.5, 3.25, 4.0]),
}


def advised(message: str):
    """Return the call of pandas.read_csv that a message advises."""
    call = re.search(r"pandas\.read_csv\(path, (.*?)\)(?= and give|;)", message)[1]
    return lambda path: eval(f"pd.read_csv(path, {call})", {"pd": pd, "path": path})


@pytest.mark.parametrize("case", CASES)
def test_advice_on_numbers_of_files(case, tmp_path):
    mark, texts, numbers = CASES[case]
    path = tmp_path / "data.csv"
    rows = [f"{text}{mark}g{k % 2}" for k, text in enumerate(texts * 10)]
    path.write_text("\n".join([f"y{mark}g", *rows]) + "\n", encoding="utf-8")
    with pytest.raises(vcomp.DataError, match="'y' is not numeric: it holds") as caught:
        vcomp.fit(FORMULA, path)
    frame = advised(str(caught.value))(path)
    expected = pd.Series(numbers * 10, dtype=float, name="y")
    pd.testing.assert_series_equal(frame["y"].astype(float), expected)
    if expected.isna().any():
        frame = frame.dropna()
    vcomp.fit(FORMULA, frame, method="anova")


def test_one_group_after_a_comma_may_be_either():
    text = text_for_numbers(pd.Series(["999", "1,001", "1,250"], dtype=object).to_numpy())
    assert "if the comma separates thousands" in text
    assert "if it is the decimal mark, with decimal=','" in text
    certain = text_for_numbers(pd.Series(["1,5", "1,001"], dtype=object).to_numpy())
    assert "thousands" not in certain


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "latin-1"])
def test_advice_on_encodings(encoding, tmp_path):
    path = tmp_path / "data.csv"
    text = "y,g,é\n" + "".join(f"{k}.5,{'ab'[k % 2]},1\n" for k in range(OTHER))
    path.write_bytes(text.encode(encoding))
    with pytest.raises(vcomp.DataError, match="is not text in UTF-8") as caught:
        vcomp.fit(FORMULA, path)
    frame = advised(str(caught.value))(path)
    assert list(frame.columns) == ["y", "g", "é"]
    assert frame["y"].tolist() == [k + 0.5 for k in range(OTHER)]


def test_initials_NA(tmp_path):
    path = tmp_path / "data.csv"
    raters = ["NA", "BC", "NULL"] * 8
    pd.DataFrame({"y": range(24), "rater": raters}).to_csv(path, index=False)
    with (
        pytest.warns(vcomp.VcompWarning, match="16 of 24 rows have a missing value") as caught,
        pytest.raises(vcomp.DesignError, match="one level only"),
    ):
        vcomp.fit("y ~ (1|rater)", path)
    frame = advised(str(caught[0].message))(path)
    res = vcomp.fit("y ~ (1|rater)", frame)
    assert (res.nobs, res.design.n_levels) == (24, (3,))


def test_a_level_that_is_a_point():
    data = pd.DataFrame({"y": [1.0, 2, 4, 3, 7, 1], "g": list("aabb..")})
    with pytest.warns(vcomp.VcompWarning, match="'g' has the level '.', which marks a missing"):
        vcomp.fit("y ~ (1|g)", data)
    with pytest.warns(vcomp.VcompWarning, match="2 of 6 rows have a missing value"):
        res = vcomp.fit("y ~ (1|g)", data.replace({"g": {".": None}}))
    assert res.design.n_levels == (2,)
