"""Which files a path, a pattern and a folder mean, and the columns of folders' names."""

import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vcomp
from vcomp.data.paths import data_files
from vcomp.io import open_source

FRAME = pd.DataFrame({"score": [0.5, 0.25, 0.125], "sys": ["a", "b", "a"], "day": [3, 10, 3]})


def make(folder, *names):
    """Write a table under each of the names."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in (".parquet", ".pq"):
            FRAME[["score", "sys"]].to_parquet(path)
        else:
            FRAME[["score", "sys"]].to_csv(path, index=False)


def names_in(*paths):
    return [file.name for file in data_files(paths)]


def refused(*paths):
    with pytest.raises(vcomp.DataError) as caught:
        open_source(paths[0] if len(paths) == 1 else list(paths))
    return str(caught.value)


def test_a_folder_and_what_is_left_out(tmp_path):
    make(tmp_path, "b.parquet", "a.parquet", "deep/er/c.pq", "_temporary/0/d.parquet")
    make(tmp_path, ".hidden.parquet", ".cache/e.parquet", "_metadata.parquet", "read me.txt")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "a.parquet.crc").touch()
    (tmp_path / "notes.json").touch()
    assert names_in(tmp_path) == ["a.parquet", "b.parquet", "deep/er/c.pq"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.csv", ["a.csv", "b.csv"]),
        ("[b-z].csv", ["b.csv"]),
        ("?.csv*", ["a.csv", "b.csv", "z.csv.gz"]),
        ("**/*.csv", ["a.csv", "b.csv", "deep/c.csv"]),
        ("d*", ["deep/c.csv"]),
        ("_*.csv", ["_marked.csv"]),
    ],
)
def test_patterns(tmp_path, pattern, names):
    make(tmp_path, "b.csv", "a.csv", "z.csv.gz", "deep/c.csv", "_marked.csv", "_work/d.csv")
    assert names_in(tmp_path / pattern) == names


def test_several_paths_in_the_order_given(tmp_path):
    make(tmp_path, "b.csv", "a.csv", "more/d.csv", "more/c.csv")
    assert names_in(tmp_path / "b.csv", tmp_path / "a.csv") == ["b.csv", "a.csv"]
    assert names_in(tmp_path / "b.csv", tmp_path / "more") == ["b.csv", "c.csv", "d.csv"]


def test_files_of_one_name_are_told_apart(tmp_path):
    make(tmp_path, "x/a.csv", "y/a.csv")
    paths = [tmp_path / "x" / "a.csv", tmp_path / "y" / "a.csv"]
    assert names_in(*paths) == [str(path) for path in paths]


# Columns of folders ------------------------------------------------------------------------------


@pytest.mark.parametrize("written_by", ["pyarrow", "hand"])
@pytest.mark.parametrize("path", ["", "*", "day=*/*.parquet"])
def test_columns_that_folders_are_named_after(tmp_path, written_by, path):
    root = tmp_path / "out=1"  # above what is given: no column
    if written_by == "pyarrow":
        pq.write_to_dataset(pa.Table.from_pandas(FRAME), root, partition_cols=["day"])
    else:
        for day, part in FRAME.groupby("day"):
            (root / f"day={day}").mkdir(parents=True)
            rows = part[["score", "sys"]]
            rows.to_parquet(root / f"day={day}" / "a.parquet", index=False)
    source = open_source(root / path)
    assert source.columns == ("score", "sys", "day")
    assert source.n_rows == 3
    expected = FRAME.sort_values("score").reset_index(drop=True)
    read = source.read(["score", "day"]).sort_values("score").reset_index(drop=True)
    assert read["day"].tolist() == expected["day"].tolist()
    assert read["day"].dtype == np.int64
    assert sorted(source.read(["day"])["day"]) == [3, 3, 10]
    pieces = [frame for frame, _ in source.batches(["day", "sys"], rows=1)]
    assert [list(piece.columns) for piece in pieces] == [["day", "sys"]] * 3
    assert sorted(day for piece in pieces for day in piece["day"]) == [3, 3, 10]


@pytest.mark.parametrize(
    ("folders", "values"),
    [
        (["k=1", "k=2"], [1, 2]),
        (["k=-7", "k=0"], [-7, 0]),
        (["k=1", "k=x"], ["1", "x"]),
        (["k=01", "k=2"], ["01", "2"]),
        (["k=1.5", "k=2"], ["1.5", "2"]),
        (["k=1234567890123456789012", "k=2"], ["1234567890123456789012", "2"]),
        (["k=a%20b%2Fc", "k=d"], ["a b/c", "d"]),
        (["_k=3", "_k=4"], [3, 4]),
    ],
)
def test_values_of_folders_lose_nothing(tmp_path, folders, values):
    make(tmp_path, *(f"{folder}/a.csv" for folder in folders))
    name = folders[0].partition("=")[0]
    read = open_source(tmp_path).read([name])[name]
    assert sorted(set(read.tolist())) == sorted(values)


def test_folders_without_a_value(tmp_path):
    make(tmp_path, "k=1/a.parquet", "k=__HIVE_DEFAULT_PARTITION__/a.parquet")
    column = open_source(tmp_path).read(["k"])["k"]
    assert column.isna().sum() == 3
    assert set(column.dropna()) == {1}


def test_two_columns_of_folders(tmp_path):
    make(tmp_path, "year=2023/track=web/a.csv", "year=2024/track=ad hoc/a.csv")
    frame = open_source(tmp_path).read(["track", "year", "score"])
    assert list(zip(frame["track"], frame["year"], strict=True)) == [
        *[("web", 2023)] * 3,
        *[("ad hoc", 2024)] * 3,
    ]


def test_a_column_of_the_file_comes_before_that_of_a_folder(tmp_path):
    make(tmp_path, "sys=z/a.csv")
    assert open_source(tmp_path).read(["sys"])["sys"].tolist() == ["a", "b", "a"]


def test_a_file_outside_the_folders_is_named(tmp_path):
    make(tmp_path, "day=3/a.csv", "b.csv")
    with pytest.raises(
        vcomp.DataError, match=r"'b\.csv' has no column 'day', which 'day=3/a\.csv'"
    ):
        open_source([tmp_path / "day=*", tmp_path / "b.csv"]).read(["day"])


# What cannot be read -----------------------------------------------------------------------------


def test_nothing_found(tmp_path):
    message = refused(tmp_path)
    assert f"there are no CSV or Parquet files in the folder '{tmp_path}'" in message
    assert "files end in .csv, .tsv (also .gz) or .parquet" in message
    (tmp_path / "_SUCCESS").touch()
    assert "no CSV or Parquet files" in refused(tmp_path)
    assert f"no file matches the pattern '{tmp_path}/*.csv'" in refused(tmp_path / "*.csv")
    assert f"there is no file '{tmp_path}/a.csv'" in refused(tmp_path / "a.csv")
    assert "there is no file" in refused(tmp_path / "a.csv", tmp_path / "b.csv")


def test_files_of_two_kinds(tmp_path):
    make(tmp_path, "a.csv", "b.parquet")
    message = refused(tmp_path)
    assert "'a.csv' is a CSV and 'b.parquet' a Parquet file" in message
    assert "'folder/*.parquet'" in message
    assert open_source(tmp_path / "*.parquet").n_rows == 3


def test_a_file_that_is_given_twice(tmp_path):
    make(tmp_path, "a.csv")
    assert "a.csv' is given twice" in refused(tmp_path / "a.csv", tmp_path / "*.csv")


def test_a_pattern_that_matches_something_else(tmp_path):
    make(tmp_path, "a.csv")
    (tmp_path / "a.xlsx").touch()
    assert "the format of 'a.xlsx' is not known" in refused(tmp_path / "a.*")


def test_a_path_that_is_none():
    with pytest.raises(vcomp.DataError, match="a path is text, not 3"):
        data_files(["a.csv" if os.path.exists("a.csv") else 3])
    assert "the path of the data is empty" in refused("")
    assert "'https://example.org/a.csv' is an address" in refused("https://example.org/a.csv", "")


def test_a_folder_that_may_not_be_read(tmp_path, monkeypatch):
    make(tmp_path, "closed/a.csv")
    scandir = os.scandir

    def closed(path):
        if os.fspath(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    assert "cannot be read: Permission denied" in refused(tmp_path)
