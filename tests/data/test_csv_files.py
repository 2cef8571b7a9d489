"""Types of CSV columns are the same whether the file is read whole or a block at a time."""

import gzip

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.examples import examples
from vcomp.data.files import csv_file
from vcomp.io import Source


def source_of(path, **options):
    part = csv_file(path, path.name, **options)
    return Source(part.columns, lambda: (part,), (part.name,))


def both(path, names):
    """Return the rows of a file at once, and a few at a time, as those of a long file."""
    source = source_of(path, block_bytes=64)
    whole = source.read(names)
    pieces = [frame for frame, _ in source.batches(names, rows=3)]
    return whole, pieces


VALUES = {
    "whole": ["12", "-3", "007"],
    "fractions": ["0.5", "1e300", "-inf"],
    "long": ["12345678901234567890", "12345678901234567891"],
    "text": ["a", "é", "x y"],
    "truth": ["true", "False"],
    "missing": ["", "NA", "nan"],
    "dates": ["2020-01-01", "1999-12-31"],
    "times": ["12:30:00"],
    "moments": ["2020-01-01 12:00:00", "2020-01-01T12:00:00.5"],
}
COLUMN = st.lists(
    st.sampled_from(sorted(VALUES)).flatmap(lambda kind: st.sampled_from(VALUES[kind])),
    min_size=1,
    max_size=40,
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=examples(75),
)
@given(COLUMN, st.integers(0, 30))
def test_any_mixture(tmp_path, column, n_before):
    """What comes late in the file decides on the type of the first rows."""
    path = tmp_path / "a.csv"
    rows = [*(["1"] * n_before), *column]
    path.write_text("u,k\n" + "".join(f"0,{value}\n" for value in rows), encoding="utf-8")
    whole, pieces = both(path, ["k"])
    assert sum(map(len, pieces)) == len(whole) == len(rows)
    one, other = whole["k"], pd.concat([piece["k"].astype(object) for piece in pieces])
    assert one.isna().tolist() == other.isna().tolist()
    assert one.dropna().tolist() == other.dropna().tolist()
    assert kinds(one) == kinds(other)


def kinds(column):
    """Return Python's types of the values."""
    present = column.dropna().tolist()
    return {type(v.item() if isinstance(v, np.generic) else v) for v in present}


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ("1", "0.5", 0.5),
        ("1", "x", "x"),
        ("", "7", 7),
        ("", "x", "x"),
        ("true", "x", "x"),
        ("2020-01-01", "x", "x"),
        ("1", "12345678901234567891", "12345678901234567891"),
    ],
)
def test_a_type_that_changes_in_the_last_block(tmp_path, first, last, expected):
    path = tmp_path / "a.csv"
    path.write_text("k,u\n" + f"{first},0\n" * 100 + f"{last},0\n")
    whole, pieces = both(path, ["k"])
    assert whole["k"].tolist()[-1] == pieces[-1]["k"].tolist()[-1] == expected
    if first:
        assert type(pieces[0]["k"].tolist()[0]) is type(whole["k"].tolist()[0])


def test_quoted_line_breaks_over_blocks(tmp_path):
    frame = pd.DataFrame({"k": [f'a "{i}",\n\nb' for i in range(50)], "n": np.arange(50)})
    frame.to_csv(tmp_path / "a.csv.gz", index=False)
    _, pieces = both(tmp_path / "a.csv.gz", ["n", "k"])
    assert [v for piece in pieces for v in piece["k"]] == frame["k"].tolist()
    assert [v for piece in pieces for v in piece["n"]] == frame["n"].tolist()


def test_the_file_is_looked_through_once_for_all_passes(tmp_path):
    """Values that do not fit the first types are refused, since no others are looked for."""
    path = tmp_path / "a.csv"
    path.write_text("k,n\n" + "1,2\n" * 10)
    source = source_of(path)
    for _ in range(2):
        assert [v for frame, _ in source.batches(["k"]) for v in frame["k"]] == [1] * 10
    path.write_text("k,n\n" + "a,0.5\n" * 10)
    for names in (["k"], ["n", "k"]):
        with pytest.raises(vcomp.DataError, match="conversion error to int64"):
            list(source.batches(names))
    assert [v for frame, _ in source.batches(["n"]) for v in frame["n"]] == [0.5] * 10
    path.write_text("k,n\n" + "1,b\n" * 10)
    with pytest.raises(vcomp.DataError, match="conversion error to double"):
        list(source.batches(["n"]))


def test_a_header_alone(tmp_path):
    (tmp_path / "a.csv").write_text("k,n\n")
    whole, pieces = both(tmp_path / "a.csv", ["k"])
    assert len(whole) == 0
    assert pieces == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"y" + b"x" * 2_200_000 + b",g\n1,a\n", "the first line .* is longer than 2.0 MiB"),
        (
            gzip.compress(b"y,g\n1,a\n2,b\n", mtime=0),
            r"a packed file; give its name the ending \.gz",
        ),
        (b"PK\x03\x04\x00", "a workbook .* is read by pandas.read_excel"),
        ("y,g\n1,a\u200b\n2,b,c\n".encode(), "cannot be read as CSV: .*Expected 2 columns"),
        ("y,g\n1,é\n2,b,c\n".encode("latin-1"), "is not text in UTF-8"),
    ],
    ids=["long", "packed", "workbook", "uneven", "latin-1"],
)
def test_the_reason_is_the_one_that_holds(tmp_path, content, message):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(vcomp.DataError, match=message):
        vcomp.fit("y ~ (1|g)", path)
