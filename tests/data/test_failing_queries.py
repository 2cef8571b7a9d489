"""Queries that fail, and files of a Dataset that are damaged, are said in our words."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import vcomp
from vcomp.io import open_source

rng = np.random.default_rng(7)
FRAME = pd.DataFrame(
    {
        "score": rng.normal(size=40),
        "sys": [f"s{k // 8}" for k in range(40)],
        "topic": [f"thème {k % 8}" for k in range(40)],
    }
)


BOTH = pytest.mark.parametrize("stream", [False, True])


def message(data, stream=True):
    with pytest.raises(vcomp.DataError) as caught:
        vcomp.fit("score ~ (1|sys) + (1|topic)", data, stream=stream)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


@BOTH
def test_a_query_of_polars_that_fails(stream, tmp_path):
    lazy = pl.from_pandas(FRAME).lazy()
    said = message(lazy.with_columns(score=pl.col("sys").cast(pl.Float64)), stream)
    assert said.startswith("the query of polars failed: conversion from `str` to `f64` failed")
    assert "the query of polars failed: " in message(lazy.select("nothing"), stream)
    path = tmp_path / "a.parquet"
    FRAME.to_parquet(path)
    gone = pl.scan_parquet(path)
    path.unlink()
    assert "a.parquet" in message(gone, stream)


@BOTH
@pytest.mark.parametrize("is_lazy", [False, True])
def test_types_of_polars_that_arrow_has_not(stream, is_lazy):
    """Of Python's objects Arrow would get the addresses, which differ in every run."""
    frame = pl.from_pandas(FRAME)
    objects = frame.with_columns(topic=pl.Series([object()] * len(FRAME), dtype=pl.Object))
    long = frame.with_columns(topic=pl.int_range(pl.len()).cast(pl.Int128))
    for data, kind in ((objects, "Object"), (long, "Int128")):
        said = message(data.lazy() if is_lazy else data, stream)
        assert said.startswith(
            f"column 'topic' is of the type {kind} of polars, which Arrow lacks"
        )
        assert (
            vcomp.io.open_source(data).read(["score"])["score"].tolist() == FRAME["score"].tolist()
        )


@BOTH
def test_a_query_of_duckdb_that_fails(stream):
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    with duckdb.connect() as connection:
        connection.register("rows", FRAME)
        bad = connection.sql("select sys, topic, cast(sys as double) as score from rows")
        words = "the query of DuckDB failed: Conversion Error: Could not convert string"
        assert message(bad, stream).startswith(words)
        good = connection.sql("select * from rows")
        opened = open_source(good)
    assert "the query of DuckDB failed: Connection Error" in message(good, stream)
    assert "the query of DuckDB failed: Connection Error" in message(opened, stream)


@pytest.fixture
def folder(tmp_path):
    """Return a folder with files of rows, in folders of their own."""
    for k in range(4):
        part = tmp_path / f"day={k}"
        part.mkdir()
        FRAME[10 * k : 10 * k + 10].to_parquet(part / "rows.parquet", index=False)
    return tmp_path


@BOTH
def test_a_damaged_file_of_a_dataset_is_named(folder, stream):
    data, path = ds.dataset(folder), folder / "day=2" / "rows.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + bytes(300) + whole[304:])
    said = message(data, stream)
    assert said.startswith("'day=2/rows.parquet' cannot be read: ")
    assert said.endswith("; it may be damaged")
    path.write_bytes(whole[:100])
    assert message(data, stream).startswith("'day=2/rows.parquet' cannot be read: ")
    path.unlink()
    assert "day=2" in message(data, stream)


def test_rows_of_a_dataset_have_the_names_of_their_files(folder):
    path = folder / "day=1" / "rows.parquet"
    pd.read_parquet(path).assign(score=np.inf).to_parquet(path, index=False)
    data = ds.dataset(folder, partitioning="hive")
    names = [f"day={k}/rows.parquet" for k in range(4)]
    found = [(len(frame), name) for frame, name in open_source(data).batches(["day"], rows=7)]
    assert found == [pair for name in names for pair in ((7, name), (3, name))]
    assert "infinite in 10 of 40 rows (10 in 'day=1/rows.parquet')" in message(data)
    some = data.filter((pc.field("day") != 1) & (pc.field("score") > 0))
    assert vcomp.fit("score ~ (1|sys) + (1|day)", some, stream=True).nobs == int(
        (FRAME["score"].drop(range(10, 20)) > 0).sum()
    )
    assert open_source(data).files == tuple(folder / name for name in names)


def test_a_dataset_without_files_has_no_names():
    assert [name for _, name in open_source(ds.dataset(pa.table(FRAME))).batches(["score"])] == [
        None
    ]
