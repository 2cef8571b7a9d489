"""CSV and Parquet files, and files that are neither."""

import gzip
import lzma
import os
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.examples import examples
from vcomp.data.written_files import refuse_to_replace
from vcomp.io import open_source

FORMULA = "score ~ (1|sys) + (1|topic)"
rng = np.random.default_rng(11)
NUMBER = np.repeat(np.arange(5), 8)
FRAME = pd.DataFrame(
    {
        "score": rng.normal(size=40) + rng.normal(size=5)[NUMBER],
        "sys": [f"système {i}" for i in NUMBER],
        "topic": np.tile(np.arange(8), 5),
        "text": 'a "quoted", long\nremark; with | and \t',
    }
)

CUT_SHORT = gzip.compress(b"score,sys,topic\n1,a,b\n", mtime=0)[:-12]
"""Without the time: names of tests are made of it."""


@cache
def known():
    """Return the fit of the plain table."""
    return vcomp.fit(FORMULA, FRAME)


def write(path, frame=FRAME, **options):
    frame.to_csv(path, index=False, **options)
    return path


@pytest.fixture
def folder(tmp_path):
    return tmp_path


FILES = {
    "a.csv": {},
    "A.CSV": {},
    "a.txt": {},
    "semicolon.csv": {"sep": ";"},
    "tab.csv": {"sep": "\t"},
    "bar.csv": {"sep": "|"},
    "a.tsv": {"sep": "\t"},
    "a.tab": {"sep": "\t"},
    "comma.tsv": {"sep": ","},
    "a.csv.gz": {},
    "a.tsv.gz": {"sep": "\t"},
    "a.csv.bz2": {},
    "a.v2.csv": {},
    "byte order mark.csv": {"encoding": "utf-8-sig"},
    "windows.csv": {"lineterminator": "\r\n"},
    "quoted.csv": {"quoting": 1},
    "not a [pattern].csv": {},
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_csv(folder, name, kind):
    path = write(folder / name, **FILES[name])
    np.testing.assert_array_equal(vcomp.fit(FORMULA, kind(path)).vcomp, known().vcomp)


def test_a_path_may_start_at_home(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    write(folder / "a.csv")
    np.testing.assert_array_equal(vcomp.fit(FORMULA, "~/a.csv").vcomp, known().vcomp)


@pytest.mark.parametrize("name", ["a.parquet", "a.pq", "A.PARQUET"])
def test_parquet(folder, name):
    FRAME.to_parquet(folder / name)
    np.testing.assert_array_equal(vcomp.fit(FORMULA, folder / name).vcomp, known().vcomp)


def test_parquet_with_an_index_and_in_a_folder_that_looks_like_a_column(folder):
    (folder / "topic=3").mkdir()
    path = folder / "topic=3" / "a.parquet"
    FRAME.set_index(["sys", "topic"]).to_parquet(path)
    np.testing.assert_array_equal(vcomp.fit(FORMULA, path).vcomp, known().vcomp)


def test_parquet_columns_with_a_dot(folder):
    table = pa.table({"a.b": FRAME["score"], "a": FRAME["topic"], "sys": FRAME["sys"]})
    pq.write_table(table, folder / "a.parquet")
    result = vcomp.fit("Q('a.b') ~ (1|sys) + (1|a)", folder / "a.parquet")
    np.testing.assert_array_equal(result.vcomp, known().vcomp)


def test_only_the_columns_used_are_converted(folder):
    write(folder / "a.csv")
    assert list(open_source(folder / "a.csv").read(["topic", "score"])) == ["topic", "score"]
    FRAME.to_parquet(folder / "a.parquet")
    assert list(open_source(folder / "a.parquet").read(["topic", "score"])) == ["topic", "score"]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=examples(50),
)
@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=20))
def test_numbers_survive_a_csv_file_to_the_last_bit(folder, numbers):
    path = folder / "numbers.csv"
    path.write_text("v,g\n" + "".join(f"{v!r},1\n" for v in numbers))
    read = open_source(path).read(["v"])["v"].astype(float).to_numpy()
    np.testing.assert_array_equal(read, numbers)


def test_levels_of_a_csv_file(folder):
    path = folder / "a.csv"
    # 20 digits are too many for int64, and floats would take the two for one.
    path.write_text(
        "number,long,mixed,empty,flag\n"
        "1,12345678901234567890,1,,true\n"
        "2,12345678901234567891,a,NA,false\n"
    )
    frame = open_source(path).read(["number", "long", "mixed", "empty", "flag"])
    assert frame["number"].tolist() == [1, 2]
    assert frame["long"].tolist() == ["12345678901234567890", "12345678901234567891"]
    assert frame["mixed"].tolist() == ["1", "a"]
    assert frame["empty"].isna().all()
    assert frame["flag"].tolist() == [True, False]


def test_a_type_that_changes_far_down(folder):
    path = folder / "a.csv"
    path.write_text("sys\n" + "12\n" * 600_000 + "twelve\n")
    assert set(open_source(path).read(["sys"])["sys"]) == {"12", "twelve"}


def check_error(path, *words):
    with pytest.raises(vcomp.DataError) as caught:
        vcomp.fit(FORMULA, path)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.csv", b"", ["'empty.csv' is empty"]),
        ("lines.csv", b"\n\n\n", ["'lines.csv' is empty"]),
        ("header.csv", b"score,sys,topic\n", ["the data have no rows"]),
        ("header.csv", b"score,sys,topic", ["'header.csv' is empty", "a header and nothing else"]),
        ("long.csv", b"score,sys,topic\n1,a,b\n2,b,b,3,4\n", ["Expected 3 columns, got 5"]),
        ("names.csv", b"score,sys,topic\n1,1,a,b\n2,2,b,b\n", ["Expected 3 columns, got 4"]),
        ("short.csv", b"score,sys,topic\n1,a,b\n3,c\n", ["Expected 3 columns, got 2: 3,c"]),
        ("quote.csv", b'score,sys,topic\n1,"a,b\n2,b,b\n', ["Expected 3 columns, got 2"]),
        ("twice.csv", b"score,sys,sys,topic\n1,a,b,c\n", ["2 columns named 'sys'"]),
        ("no header.csv", b"1.5,a,b\n2,a,c\n", ["no column 'score'", "'1.5', 'a', 'b'"]),
        ("blank.csv", b"score, sys, topic\n1, a, b\n", ["no column 'sys'", "mean ' sys'?"]),
        ("spaces.csv", b"score sys topic\n1 a b\n", ["no column", "'score sys topic'"]),
        ("comma.csv", b"score;sys;topic\n1,5;a;b\n2,5;b;b\n", ["'1,5'", "decimal=','"]),
        ("latin.csv", "score,sys,topic\n1,é,b\n".encode("latin-1"), ["UTF-8", "encoding="]),
        ("names.csv", "score,é,topic\n1,é,b\n".encode("latin-1"), ["UTF-8", "encoding="]),
        ("wide.csv", "score,sys,topic\n1,é,b\n".encode("utf-16"), ["UTF-8", "encoding="]),
        ("zeros.csv", bytes(5000), ["UTF-8"]),
        ("random.csv", np.random.default_rng(0).bytes(5000), ["UTF-8"]),
        ("not.csv.gz", b"score,sys,topic\n1,a,b\n", ["'not.csv.gz' cannot be read"]),
        ("bad.csv.gz", CUT_SHORT, ["'bad.csv.gz'", "read"]),
        ("a.parquet", b"score,sys,topic\n1,a,b\n", ["'a.parquet' is not a Parquet file"]),
        ("empty.parquet", b"", ["'empty.parquet' is not a Parquet file"]),
        ("a.xlsx", b"PK", ["the format of 'a.xlsx' is not known", ".csv", ".parquet"]),
        ("noname", b"", ["the format of 'noname' is not known"]),
        ("a.csv.xz", lzma.compress(b"score,sys,topic\n"), ["format of 'a.csv.xz' is not known"]),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read(folder, name, content, words):
    path = folder / name
    path.write_bytes(content)
    check_error(path, *words)


def test_a_parquet_file_called_csv_and_a_damaged_one(folder):
    FRAME.to_parquet(folder / "a.csv")
    check_error(folder / "a.csv", "not text in UTF-8")
    FRAME.to_parquet(folder / "good.parquet", compression="none")
    content = bytearray((folder / "good.parquet").read_bytes())
    content[4:600] = bytes(596)
    (folder / "bad.parquet").write_bytes(content)
    check_error(folder / "bad.parquet", "'bad.parquet' cannot be read")


def test_a_path_that_is_no_file(folder):
    check_error(folder / "none.csv", "there is no file", "none.csv")
    check_error(
        "https://example.org/a.csv", "'https://example.org/a.csv' is an address", "download"
    )
    check_error("", "the path of the data is empty")
    check_error("score,sys,topic\n1,a,b\n" * 1000, "there is no file", "…")
    check_error("a\0b.csv", "there is no file")


def test_a_source_knows_its_files(tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    for name in ("a.csv", "b.csv.gz"):
        FRAME.to_csv(folder / name, index=False)
    files = open_source(folder).files
    (tmp_path / "link.csv").symlink_to(folder / "a.csv")
    ways = (folder / "a.csv", folder / ".." / "rows" / "b.csv.gz", tmp_path / "link.csv")
    for target in ways:
        with pytest.raises(vcomp.DataError, match=f"{target.name}' is a file of the data"):
            refuse_to_replace(target, files)
    (tmp_path / "a.csv").write_text("")
    for other in (tmp_path / "a.csv", folder / "c.csv", folder):
        refuse_to_replace(other, files)
    assert open_source(FRAME).files == ()


def write_other(path, frame):
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False)


CHANGES = {
    "more rows": lambda path: write_other(path, pd.concat([FRAME, FRAME])),
    "other scores": lambda path: write_other(path, FRAME.assign(score=FRAME["score"] + 1.0)),
    "another order": lambda path: write_other(path, FRAME[::-1]),
    "a column less": lambda path: write_other(path, FRAME.drop(columns="sys")),
    "no table": lambda path: path.write_bytes(b"PAR1"),
}


@pytest.mark.parametrize("name", ["b.csv", "b.csv.gz", "b.parquet"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_between_the_passes(tmp_path, name, change):
    for other in (name, name.replace("b", "a", 1)):
        write_other(tmp_path / other, FRAME)
    source = open_source(tmp_path)
    assert sum(len(frame) for frame, _ in source.batches(["sys"])) == 80
    path = tmp_path / name
    size, before = path.stat().st_size, path.stat().st_mtime_ns
    CHANGES[change](path)
    if path.stat().st_size == size:  # and the clock may not have ticked
        os.utime(path, ns=(before, before + 1_000_000_000))
    words = f"^'{name}' has changed since it was opened; .* have to stay as they were$"
    for read in (lambda: source.read(["sys"]), lambda: list(source.batches(["sys"]))):
        with pytest.raises(vcomp.DataError, match=words):
            read()
    path.unlink()
    with pytest.raises(vcomp.DataError, match=f"^'{name}' cannot be read: No such file"):
        source.read(["sys"])
    with pytest.raises(vcomp.DataError, match=f"^'{name}' cannot be read: No such file"):
        list(source.batches(["sys"]))
