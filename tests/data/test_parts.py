"""Parts that do not agree are named; so are damaged files, before or when they are read."""

import datetime
import gzip
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vcomp
from vcomp.data.parts import declared_kinds, with_coded_text
from vcomp.io import open_source

FRAME = pd.DataFrame({"score": np.linspace(0.0, 1.0, 2000), "sys": [f"s{i}" for i in range(2000)]})


def write(path, frame):
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False)


def read_whole(data, names):
    return open_source(data).read(names)


def read_batches(data, names):
    pieces = open_source(data).batches(names, rows=100)
    return pd.concat([frame.astype(object) for frame, _ in pieces])


BOTH = pytest.mark.parametrize("read", [read_whole, read_batches])
KINDS = pytest.mark.parametrize("ending", [".parquet", ".csv"])


@BOTH
@KINDS
def test_a_file_that_lacks_a_column(tmp_path, ending, read):
    write(tmp_path / f"a{ending}", FRAME)
    write(tmp_path / f"b{ending}", FRAME[["score"]])
    assert len(read(tmp_path, ["score"])) == 4000
    with pytest.raises(vcomp.DataError) as caught:
        read(tmp_path, ["score", "sys"])
    assert str(caught.value) == f"'b{ending}' has no column 'sys', which 'a{ending}' has"


@BOTH
def test_a_column_that_the_first_file_lacks(tmp_path, read):
    write(tmp_path / "a.csv", FRAME[["score"]])
    write(tmp_path / "b.csv", FRAME)
    with pytest.raises(vcomp.DataError, match=r"'a\.csv' has no column 'sys', which others have"):
        read(tmp_path, ["sys"])


@BOTH
def test_a_file_with_a_column_twice(tmp_path, read):
    write(tmp_path / "a.csv", FRAME)
    (tmp_path / "b.csv").write_text("score,sys,sys\n1,a,b\n")
    assert len(read(tmp_path, ["score"])) == 2001
    with pytest.raises(vcomp.DataError, match=r"'b\.csv' has 2 columns named 'sys'"):
        read(tmp_path, ["sys"])


OTHER = {
    "text": "x",
    "numbers": 3,
    "truth values": True,
    "times without a zone": pd.Timestamp("2020-01-01 12:30"),
    "dates": datetime.date(2020, 1, 1),
}

NOT_IN_CSV = {
    "times with a zone": pd.Timestamp("2020-01-01", tz="UTC"),
    "times of day": datetime.time(12, 30),
    "durations": pd.Timedelta("1h"),
    "bytes": b"x",
}


@BOTH
@KINDS
@pytest.mark.parametrize("first", OTHER)
@pytest.mark.parametrize("second", OTHER)
def test_a_column_of_two_kinds(tmp_path, ending, read, first, second):
    write(tmp_path / f"a{ending}", pd.DataFrame({"k": [OTHER[first]] * 3}))
    write(tmp_path / f"b{ending}", pd.DataFrame({"k": [OTHER[second]] * 3}))
    if first == second:
        assert len(read(tmp_path, ["k"])) == 6
        return
    message = f"column 'k' holds {second} in 'b{ending}' and {first} in 'a{ending}'; a column"
    with pytest.raises(vcomp.DataError, match=message):
        read(tmp_path, ["k"])


@BOTH
@pytest.mark.parametrize("kind", ["frames", "objects", "arrow", ".parquet"])
@pytest.mark.parametrize("second", NOT_IN_CSV)
@pytest.mark.parametrize("first", ["text", "times without a zone", "dates"])
def test_kinds_that_pandas_would_unite(tmp_path, kind, read, first, second):
    """A date is not the midnight of that day, nor are times in a zone those of nowhere."""
    values = [OTHER[first], NOT_IN_CSV[second]]
    frames = [pd.DataFrame({"k": [value] * 3}) for value in values]
    if kind == "objects":
        frames = [frame.astype(object) for frame in frames]
    elif kind == "arrow":
        frames = [pa.table({"k": pa.array([value] * 3)}) for value in values]
    elif kind == ".parquet":
        for name, frame in zip("ab", frames, strict=True):
            write(tmp_path / f"{name}.parquet", frame)
        frames = tmp_path
    words = f"column 'k' holds {second} in '.*' and {first} in '.*'; a column is of one kind"
    with pytest.raises(vcomp.DataError, match=words):
        read(frames, ["k"])


@BOTH
def test_times_that_are_all_missing_go_with_anything(read):
    nothing = pd.DataFrame({"k": [pd.NaT, pd.NaT]})
    for frame in (nothing, nothing.astype(object)):
        column = read([frame, pd.DataFrame({"k": ["a"]}), frame], ["k"])["k"]
        assert column.notna().tolist() == [False, False, True, False, False]


@BOTH
@pytest.mark.parametrize("index", [[5, 6], [0, 0], list("uv")])
def test_times_in_frames_of_any_index(read, index):
    times = pd.Series(pd.to_datetime([None, "2020-01-01"]), index=index)
    zoned = times.dt.tz_localize("UTC")
    assert read([times.to_frame("k"), times.to_frame("k")], ["k"])["k"].notna().sum() == 2
    with pytest.raises(vcomp.DataError, match=r"holds times with a zone in .* and times without"):
        read([times.to_frame("k"), zoned.astype(object).to_frame("k")], ["k"])


@BOTH
def test_frames_of_two_kinds(read):
    numbers, text = pd.DataFrame({"k": [1, 2]}), pd.DataFrame({"k": ["1", "2"]})
    message = "column 'k' holds text in 'frame 3' and numbers in 'frame 1'"
    for data in ([numbers, numbers, text], iter([numbers, numbers, text])):
        with pytest.raises(vcomp.DataError, match=message):
            read(data, ["k"])
    coded = [numbers.astype("category"), text.astype("category")]
    with pytest.raises(vcomp.DataError, match="text in 'frame 2' and numbers in 'frame 1'"):
        read(coded, ["k"])
    objects = [numbers.astype(object), text.astype(object)]
    with pytest.raises(vcomp.DataError, match="text in 'frame 2' and numbers in 'frame 1'"):
        read(objects, ["k"])


def test_declared_types_are_compared_before_a_row_is_read(tmp_path):
    write(tmp_path / "a.parquet", pd.DataFrame({"k": [1]}))
    write(tmp_path / "b.parquet", pd.DataFrame({"k": ["1"]}))
    with pytest.raises(vcomp.DataError, match=r"holds text in 'b\.parquet' and numbers in"):
        open_source(tmp_path).batches(["k"])


SAME = {
    "whole numbers and fractions": ([1, 2], [0.5]),
    "sizes of numbers": (np.array([1, 2], np.int8), np.array([3], np.int64)),
    "text and categories": (["a"], pd.Categorical(["b"])),
    "text and nothing": (["a"], [None]),
    "nothing and text": ([None, None], ["a"]),
    "nan and text": ([np.nan], ["a"]),
    "numbers and nothing": ([1, 2], [None]),
    "numbers of categories": (pd.Categorical([1, 2]), [3]),
}


@BOTH
@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("kind", ["frames", ".parquet", ".csv"])
def test_what_goes_together(tmp_path, read, name, kind):
    frames = [pd.DataFrame({"k": column}) for column in SAME[name]]
    if kind == "frames":
        data = frames
    else:
        data = tmp_path
        for number, frame in enumerate(frames):
            write(tmp_path / f"{number}{kind}", frame.assign(other=1))
    column = read(data, ["k"])["k"]
    expected = [value for part in SAME[name] for value in part]
    assert [v for v in column if not pd.isna(v)] == [v for v in expected if not pd.isna(v)]


def test_kinds_of_arrow_types():
    kinds = {
        "a": pa.int8(),
        "b": pa.decimal128(5, 2),
        "c": pa.dictionary(pa.int8(), pa.string()),
        "d": pa.string_view(),
        "e": pa.bool_(),
        "f": pa.timestamp("ms"),
        "g": pa.null(),
        "h": pa.list_(pa.int8()),
        "i": pa.timestamp("us", "UTC"),
        "j": pa.date64(),
        "k": pa.time32("s"),
        "l": pa.duration("ms"),
        "m": pa.large_binary(),
    }
    assert declared_kinds(pa.schema(list(kinds.items()))) == {
        "a": "numbers",
        "b": "numbers",
        "c": "text",
        "d": "text",
        "e": "truth values",
        "f": "times without a zone",
        "i": "times with a zone",
        "j": "dates",
        "k": "times of day",
        "l": "durations",
        "m": "bytes",
    }


# Damaged files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0.3, 0.9, 0.999])
def test_a_parquet_file_that_is_cut_short(tmp_path, kept):
    write(tmp_path / "a.parquet", FRAME)
    write(tmp_path / "b.parquet", FRAME)
    content = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(content[: int(kept * len(content))])
    with pytest.raises(vcomp.DataError, match=r"'b\.parquet' is cut short or damaged: .* again"):
        open_source(tmp_path)


@BOTH
def test_a_parquet_file_that_is_damaged_inside(tmp_path, read):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pandas(FRAME), path, compression="none", row_group_size=500)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 4000] = b"\xff" * 4000
    path.write_bytes(content)
    with pytest.raises(vcomp.DataError, match=r"'a\.parquet' cannot be read: .*damaged"):
        read(path, ["score", "sys"])


@cache
def packed_scores():
    values = np.random.default_rng(1).normal(size=500_000)
    return gzip.compress(("score\n" + "\n".join(map(str, values))).encode(), 1, mtime=0)


@BOTH
@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_a_compressed_file_that_is_cut_short(tmp_path, read, kept):
    content = packed_scores()
    write(tmp_path / "a.csv", FRAME)
    (tmp_path / "b.csv.gz").write_bytes(content[: int(kept * len(content))])
    with pytest.raises(vcomp.DataError, match=r"'b\.csv\.gz' is cut short"):
        read([tmp_path / "a.csv", tmp_path / "b.csv.gz"], ["score"])


@BOTH
@pytest.mark.parametrize(
    ("tail", "message"),
    [
        (
            b"1,2,3\n",
            r"'a\.csv' cannot be read as CSV: (Row #\d+: )?Expected 2 columns, got 3: 1,2,3",
        ),
        (b"1\n", r"'a\.csv' cannot be read as CSV: (Row #\d+: )?Expected 2 columns, got 1: 1"),
        ("1,é\n".encode("latin-1"), r"'a\.csv' is not text in UTF-8"),
    ],
)
def test_a_csv_file_with_a_bad_row_far_down(tmp_path, read, tail, message):
    (tmp_path / "a.csv").write_bytes(b"score,sys\n" + b"0.5,name\n" * 400_000 + tail)
    with pytest.raises(vcomp.DataError, match=message):
        read(tmp_path / "a.csv", ["score", "sys"])


@pytest.mark.parametrize("missing", [np.nan, pd.NA], ids=["nan", "NA"])
def test_text_is_coded_as_pandas_codes_it(missing):
    values = ["b", None, "ä", "a", "b", ""]
    kind = pd.StringDtype("pyarrow")
    if missing is np.nan:
        pytest.importorskip("pandas", "2.3", reason="missing text was NA before")
        kind = pd.StringDtype("pyarrow", na_value=missing)
    columns = {"x": np.arange(6), "t": pd.array(values, kind)}
    frame = pd.DataFrame(columns, index=[0, 0, 1, 1, 2, 2])
    coded = with_coded_text(frame)
    expected = pd.Categorical(np.array(values, dtype=object))
    assert coded["t"].cat.codes.tolist() == expected.codes.tolist()
    assert coded["t"].cat.categories.tolist() == expected.categories.tolist()
    assert list(coded) == ["x", "t"]
    assert coded.index.equals(frame.index)
    assert np.shares_memory(coded["x"], frame["x"])


def test_numbers_and_categories_are_not_coded():
    frame = pd.DataFrame({"x": [1.0, 2.0], "c": pd.Categorical(["b", "a"])})
    assert with_coded_text(frame) is frame
