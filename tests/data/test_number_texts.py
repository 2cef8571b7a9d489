"""Texts in place of numbers: the advice in the error, followed, reads what is meant."""

from __future__ import annotations

import re

import pandas as pd
import pytest

import vcomp
from vcomp.data.column_values import text_for_numbers

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
