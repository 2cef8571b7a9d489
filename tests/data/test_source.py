"""Rows of every container, whole and in batches: the same rows, of the same types."""

import gc
import io
import weakref
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.examples import examples
from vcomp.data.parts import from_arrow
from vcomp.io import Source, open_source, spool

rng = np.random.default_rng(5)
N = 60
FRAME = pd.DataFrame(
    {
        "score": rng.normal(size=N),
        "sys": [f"système {i}" for i in rng.integers(0, 7, N)],
        "topic": rng.integers(0, 9, N).astype(np.int16),
        "a.b": rng.integers(0, 2, N) == 1,
        "unused": rng.normal(size=N),
    }
)
NAMES = ["topic", "score", "sys", "a.b"]
THREE = [FRAME.iloc[:20], FRAME.iloc[20:50], FRAME.iloc[50:]]


def parquet_folder(folder):
    for number, frame in enumerate(THREE):
        frame.to_parquet(folder / f"{number}.parquet", row_group_size=8)
    return folder


def csv_folder(folder):
    for number, frame in enumerate(THREE):
        frame.to_csv(folder / f"{number}.csv.gz", index=False)
    return folder


def duckdb_relation(folder):
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    # The default connection stays open; DuckDB 1.1 closes one that only its relation needs.
    return duckdb.from_arrow(pa.Table.from_pandas(FRAME)).filter("score < 1000")


def csv_file(folder):
    FRAME.to_csv(folder / "a.csv", index=False)
    return folder / "a.csv"


def parquet_file(folder):
    FRAME.to_parquet(folder / "a.parquet", row_group_size=8)
    return str(folder / "a.parquet")


REPEATABLE = {
    "pandas": lambda folder: FRAME,
    "mapping": lambda folder: {name: FRAME[name].to_numpy() for name in FRAME},
    "polars": lambda folder: pl.DataFrame(FRAME),
    "lazy polars": lambda folder: pl.LazyFrame(FRAME).filter(pl.col("score") < 1000),
    "lazy polars of files": lambda folder: pl.scan_parquet(parquet_folder(folder) / "*.parquet"),
    "Arrow": lambda folder: pa.Table.from_pandas(FRAME),
    "dataset": lambda folder: ds.dataset(parquet_folder(folder)),
    "filtered dataset": lambda folder: ds.dataset(parquet_folder(folder)).filter(
        ds.field("score") < 1000
    ),
    "DuckDB": duckdb_relation,
    "list": lambda folder: THREE,
    "list of several kinds": lambda folder: [pl.DataFrame(THREE[0]), THREE[1], {**THREE[2]}],
    "Parquet": parquet_file,
    "CSV": csv_file,
    "folder of Parquet": parquet_folder,
    "folder of CSV": csv_folder,
    "pattern": lambda folder: str(parquet_folder(folder) / "[0-9].parquet"),
    "paths": lambda folder: sorted(csv_folder(folder).iterdir()),
    "iterator of paths": lambda folder: iter(sorted(parquet_folder(folder).iterdir())),
    "spooled": lambda folder: spool(iter(THREE)),
    "an iterable": lambda folder: dict(enumerate(THREE)).values(),
}
ONCE = {
    "stream": lambda folder: pa.Table.from_pandas(FRAME).to_reader(max_chunksize=13),
    "generator": lambda folder: (frame for frame in THREE),
    "map": lambda folder: map(pl.DataFrame, THREE),
    "pandas' reader": lambda folder: pd.read_csv(
        io.StringIO(FRAME.to_csv(index=False)), chunksize=17
    ),
}
EVERY = REPEATABLE | ONCE


def plain(frame):
    """Return the values, without the types that only pandas tells apart."""
    return frame.astype({"sys": object, "score": float, "topic": int, "a.b": bool})


EXPECTED = plain(FRAME[NAMES])


@pytest.mark.parametrize("name", EVERY)
def test_the_rows_are_those_of_the_table(name, tmp_path):
    source = open_source(EVERY[name](tmp_path))
    assert source.columns == tuple(FRAME.columns)
    frame = source.read(NAMES)
    assert list(frame.columns) == NAMES
    pd.testing.assert_frame_equal(plain(frame), EXPECTED, check_index_type=False)


@pytest.mark.parametrize(("name", "rows"), alternately(EVERY, 7, np.int64(1000), 20, 1))
def test_batches_are_the_same_rows(name, rows, tmp_path):
    source = open_source(EVERY[name](tmp_path))
    pairs = list(source.batches(NAMES, rows=rows))
    assert max(len(frame) for frame, _ in pairs) <= rows
    assert all(list(frame.columns) == NAMES for frame, _ in pairs)
    assert all(frame.index.equals(pd.RangeIndex(len(frame))) for frame, _ in pairs)
    joined = pd.concat([plain(frame) for frame, _ in pairs], ignore_index=True)
    pd.testing.assert_frame_equal(joined, EXPECTED)


@pytest.mark.parametrize("name", REPEATABLE)
def test_two_passes(name, tmp_path):
    source = open_source(REPEATABLE[name](tmp_path))
    assert source.is_repeatable
    for _ in range(2):
        assert sum(len(frame) for frame, _ in source.batches(["score"], rows=9)) == N
    assert len(source.read(["score"])) == N


@pytest.mark.parametrize("name", ONCE)
@pytest.mark.parametrize("first", ["read", "batches"])
@pytest.mark.parametrize("second", ["read", "batches"])
def test_one_pass_only(name, first, second, tmp_path):
    source = open_source(ONCE[name](tmp_path))
    assert not source.is_repeatable
    getattr(source, first)(["score"])
    with pytest.raises(vcomp.DataError, match=r"can be read only once, and was read; .*spool"):
        getattr(source, second)(["score"])
    assert "two passes are needed" in str(source.one_pass_only())


ROWS_KNOWN = {"pandas", "polars", "Arrow", "list", "Parquet", "folder of Parquet", "pattern"}
ROWS_KNOWN |= {"iterator of paths", "spooled"}


@pytest.mark.parametrize("name", EVERY)
def test_the_number_of_rows_where_it_is_known(name, tmp_path):
    known = open_source(EVERY[name](tmp_path)).n_rows
    assert known == (N if name in ROWS_KNOWN else None)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("pandas", [None]),
        ("Parquet", ["a.parquet"]),
        ("folder of Parquet", ["0.parquet", "1.parquet", "2.parquet"]),
        ("folder of CSV", ["0.csv.gz", "1.csv.gz", "2.csv.gz"]),
        ("list", ["frame 1", "frame 2", "frame 3"]),
        ("generator", ["frame 1", "frame 2", "frame 3"]),
    ],
)
def test_batches_say_where_they_are_from(name, parts, tmp_path):
    source = open_source(EVERY[name](tmp_path))
    found = [(len(frame), part) for frame, part in source.batches(["score"])]
    assert found == list(zip([20, 30, 10] if len(parts) == 3 else [N], parts, strict=True))
    assert source.part_names == (() if name == "generator" else tuple(parts))


def test_what_was_opened_stays_as_it_is():
    source = open_source(FRAME)
    assert open_source(source) is source


def test_frames_are_read_one_at_a_time():
    made = []

    def frames():
        for number in range(5):
            made.append(number)
            yield FRAME

    batches = open_source(frames()).batches(["score"])
    assert made == [0]
    next(batches)
    next(batches)
    assert made == [0, 1]


def test_files_are_read_when_their_turn_comes(tmp_path):
    parquet_folder(tmp_path)
    batches = open_source(tmp_path).batches(["score"])
    next(batches)
    (tmp_path / "2.parquet").unlink()
    with pytest.raises(vcomp.DataError, match=r"'2\.parquet' cannot be read"):
        list(batches)


def test_only_the_columns_asked_for_are_read(tmp_path):
    FRAME.assign(bad=1).to_csv(tmp_path / "a.csv", index=False)
    read = []

    class Columns(dict):
        def __getitem__(self, name):
            read.append(name)
            return super().__getitem__(name)

    list(open_source(Columns(FRAME)).batches(["sys", "score"]))
    assert sorted(read) == ["score", "sys"]
    failing = pl.LazyFrame(FRAME).with_columns(
        bad=pl.col("score").map_batches(lambda _: 1 / 0, return_dtype=pl.Float64)
    )
    assert len(open_source(failing).read(["sys"])) == N
    assert sum(len(frame) for frame, _ in open_source(failing).batches(["sys"], rows=7)) == N
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    relation = duckdb.sql("select 1 as score, error('read') as bad")
    assert open_source(relation).read(["score"])["score"].tolist() == [1]


def test_names_that_need_quotes():
    name = 'a "b", c'
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    relation = duckdb.from_arrow(pa.table({name: [1, 2], "x": [3, 4]}))
    assert open_source(relation).read([name])[name].tolist() == [1, 2]


def test_batches_copy_no_array():
    frame = pd.DataFrame({"x": np.arange(10.0)})
    slices = [
        piece["x"].to_numpy()
        for piece, _ in open_source({"x": frame["x"].to_numpy()}).batches(["x"], rows=4)
    ]
    assert all(np.shares_memory(piece, frame["x"].to_numpy()) for piece in slices)


# Types and levels --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_text_keeps_its_order(name, tmp_path):
    column = open_source(EVERY[name](tmp_path)).read(["sys"])["sys"]
    if isinstance(column.dtype, pd.CategoricalDtype):
        assert column.cat.categories.tolist() == sorted(set(FRAME["sys"]))


ORDERED = pd.Categorical(["low", "high", "low", "mid"], categories=["low", "mid", "high", "top"])


@pytest.mark.parametrize("write", ["frames", "parquet", "arrow", "spooled"])
def test_an_order_of_categories_is_kept_over_parts(write, tmp_path):
    frame = pd.DataFrame({"g": ORDERED})
    halves = [frame.iloc[:2], frame.iloc[2:]]
    if write == "parquet":
        for number, half in enumerate(halves):
            half.to_parquet(tmp_path / f"{number}.parquet")
        data = tmp_path
    else:
        tables = [pa.Table.from_pandas(half) for half in halves]
        data = {"frames": halves, "arrow": tables}.get(write) or spool(iter(halves))
    for _ in range(2):
        column = open_source(data).read(["g"])["g"]
        assert column.tolist() == list(ORDERED)
        assert column.cat.categories.tolist() == ["low", "mid", "high", "top"]


def test_row_groups_with_other_levels():
    """The second dictionary has the values of the first; the third has one more, and a null."""
    chunks = [["b", "a"], ["a", "b", "a"], ["c", None, "a"]]
    table = pa.table({"g": pa.chunked_array([pa.array(c).dictionary_encode() for c in chunks])})
    frames = [f["g"] for f, _ in open_source(table).batches(["g"], rows=3)]
    assert [v if isinstance(v, str) else None for f in frames for v in f] == [
        *chunks[0],
        *chunks[1],
        *chunks[2],
    ]
    whole = open_source(table).read(["g"])["g"]
    assert whole.cat.categories.tolist() == ["a", "b", "c"]
    assert whole.cat.codes.tolist() == [1, 0, 0, 1, 0, 2, -1, 0]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=examples(60),
)
@given(
    st.lists(st.lists(st.one_of(st.none(), st.text("abé ", max_size=2)), max_size=6), min_size=1),
    st.integers(1, 5),
)
def test_levels_of_dictionaries_in_many_chunks(chunks, rows):
    values = [value for chunk in chunks for value in chunk]
    encoded = [pa.array(chunk, pa.string()).dictionary_encode() for chunk in chunks]
    table = pa.table({"g": pa.chunked_array(encoded)})
    source = open_source(table)
    whole = source.read(["g"])["g"]
    assert whole.astype(object).where(whole.notna(), None).tolist() == values
    assert whole.cat.categories.tolist() == sorted({v for v in values if v is not None})
    pieces = [f["g"].astype(object) for f, _ in source.batches(["g"], rows=rows)]
    assert [v if isinstance(v, str) else None for piece in pieces for v in piece] == values


# What cannot be read -----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, -1, 2.5, "7", True, None])
def test_a_number_of_rows_that_is_none(rows):
    with pytest.raises(vcomp.DataError, match="rows must be a whole number of at least 1, not"):
        open_source(FRAME).batches(["score"], rows=rows)


def test_a_column_that_is_not_there_is_said_before_the_first_batch():
    with pytest.raises(vcomp.DataError, match=r"no column 'scor' .*did you mean 'score'"):
        open_source(FRAME).batches(["scor"])


def test_a_generator_that_was_begun():
    frames = (frame for frame in THREE)
    next(frames)
    with pytest.raises(vcomp.DataError, match="the generator was started before"):
        open_source(frames)


def test_streams_with_nothing_in_them():
    with pytest.raises(vcomp.DataError, match="the generator gives no frames: it is empty, or"):
        open_source(frame for frame in [])
    used = iter(THREE)
    list(used)
    with pytest.raises(vcomp.DataError, match="the list_iterator gives no frames"):
        open_source(used)
    stream = pa.Table.from_pandas(FRAME).to_reader()
    open_source(stream).read(["score"])
    with pytest.raises(vcomp.DataError, match="the stream gave no rows: it is empty, or was read"):
        open_source(stream).read(["score"])


def test_a_stream_in_a_list():
    stream = pa.Table.from_pandas(FRAME).to_reader()
    with pytest.raises(vcomp.DataError, match="frame 2 is a RecordBatchReader, which can be read"):
        open_source([FRAME, stream])


def test_an_error_of_the_iterator_is_its_own():
    def frames():
        yield FRAME
        raise OSError("the server went away")

    with pytest.raises(OSError, match="the server went away"):
        open_source(frames()).read(["score"])


def test_dask_is_named():
    class Collection:
        def __dask_graph__(self):
            return {}

    with pytest.raises(
        vcomp.DataError, match=r"Dask collection is accepted by vcomp.fit, .*call .compute"
    ):
        open_source(Collection())


def test_a_frame_is_let_go_with_its_source():
    """No cycle keeps the data of a source that is no longer used."""
    gc.collect()
    gc.disable()
    try:
        frame = FRAME.copy()
        reference = weakref.ref(frame)
        source = open_source(frame)
        list(source.batches(["score"]))
        del source, frame
        assert reference() is None
    finally:
        gc.enable()


def test_a_source_is_a_value():
    source = open_source(FRAME)
    assert isinstance(source, Source)
    with pytest.raises(AttributeError):
        source.columns = ()


def test_paths_are_taken_as_they_are_written(tmp_path, monkeypatch):
    parquet_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("*.parquet", "~", "~/*.parquet", Path("."), b"0.parquet", ["0.parquet"]):
        assert open_source(path).part_names[0] == "0.parquet"
    assert pq.read_metadata("0.parquet").num_row_groups == 3


def test_frames_of_narwhals():
    narwhals = pytest.importorskip("narwhals", reason="narwhals is not installed")
    for frame in (pl.DataFrame(FRAME), pl.LazyFrame(FRAME), FRAME):
        source = open_source(narwhals.from_native(frame))
        assert source.read(["topic"])["topic"].tolist() == FRAME["topic"].tolist()


def test_columns_converted_side_by_side():
    names = [f"g{i}" for i in range(5)]
    data = {name: [f"{name} {v}" for v in rng.integers(0, 9, 50)] for name in names}
    table, known = pa.table(data), {}
    one_by_one = open_source(table).read(names)
    pd.testing.assert_frame_equal(from_arrow(table, many_rows=1), one_by_one)
    frames = [from_arrow(table.slice(k, 8), known, many_rows=1) for k in range(0, 50, 8)]
    for name in names:
        assert [v for frame in frames for v in frame[name]] == data[name]
