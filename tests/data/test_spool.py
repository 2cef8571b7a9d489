"""Rows written to a file to be read as often as needed, and nothing half-written left."""

import errno
import gc
import resource
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vcomp
from vcomp.io import open_source, spool

FRAME = pd.DataFrame(
    {
        "score": np.linspace(0.0, 1.0, 30),
        "sys": pd.Categorical(["b", "a", None] * 10),
        "topic": np.arange(30, dtype=np.int16) % 7,
        "text": [f"q{i % 4}" for i in range(30)],
        "late": np.arange(30) > 20,
    }
)


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Have temporary files made in a folder of the test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def in_threes():
    return (FRAME.iloc[i : i + 10] for i in (0, 10, 20))


def values(source, name):
    column = source.read([name])[name].astype(object)
    return column.where(column.notna(), None).tolist()


@pytest.mark.parametrize(
    "make",
    [
        in_threes,
        lambda: map(pl.DataFrame, in_threes()),
        lambda: pa.Table.from_pandas(FRAME).to_reader(7),
        lambda: FRAME,
        lambda: [FRAME.iloc[:3], FRAME.iloc[3:]],
    ],
    ids=["generator", "polars", "stream", "frame", "list"],
)
def test_rows_are_read_as_often_as_needed(make):
    source = spool(make())
    assert source.is_repeatable
    assert source.n_rows == 30
    expected = FRAME.astype(object).where(FRAME.notna(), None)
    for name in (*FRAME, *FRAME):
        assert values(source, name) == expected[name].tolist()
    assert source.read(["topic"])["topic"].dtype == np.int16


def test_a_model_of_spooled_rows():
    data = vcomp.datasets.load("bodoff2007_alpha")
    parts = (part for _, part in data.groupby("topic", sort=False))
    formula = "score ~ (1|sys) + (1|topic)"
    found = vcomp.fit(formula, spool(parts)).vcomp
    np.testing.assert_allclose(found, vcomp.fit(formula, data).vcomp, rtol=1e-10)


def test_a_temporary_file_is_removed_with_its_source(temporary):
    source = spool(in_threes())
    assert [path.name for path in temporary.rglob("*") if path.is_file()] == ["rows.parquet"]
    batches = source.batches(["score"], rows=4)
    del source
    gc.collect()
    assert sum(len(frame) for frame, _ in batches) == 30
    del batches
    gc.collect()
    assert list(temporary.iterdir()) == []


def test_a_temporary_file_is_removed_when_python_ends(temporary):
    code = (
        f"import tempfile; tempfile.tempdir = {str(temporary)!r}\n"
        "from vcomp.io import spool\n"
        "import os\n"
        "kept = spool({'a': [1, 2]})\n"
        "print(len(os.listdir(tempfile.tempdir)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]
    assert list(temporary.iterdir()) == []


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.parquet"
    source = spool(in_threes(), path, columns=["sys", "score"])
    assert source.columns == ("sys", "score")
    del source
    gc.collect()
    assert pq.read_table(path).column("score").to_pylist() == FRAME["score"].tolist()
    assert open_source(str(path)).n_rows == 30
    spool([FRAME.iloc[:2]], str(path))  # replaced
    assert open_source(path).n_rows == 2
    assert pd.read_parquet(path)["text"].tolist() == ["q0", "q1"]


# Types that change on the way --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ([[1, 2], [0.5, 1.5]], "float64"),
        ([np.array([1], np.int8), np.array([70_000], np.int32)], "int32"),
        ([[None, None], ["a", "b"]], "category"),
        ([["a", "b"], [None, None]], "category"),
        ([[None], [1, 2], [None]], "Int64"),
        ([["a"], pd.Categorical(["b", "a"]), ["c"]], "category"),
        ([[1, 2], pd.Categorical([5, 2])], "int64"),
        ([pd.Categorical([5, 2]), [1, 2]], "int64"),
        ([[0.5], [1, 2], [0.25]], "float64"),
        ([np.array([1], np.int16), [2], [0.5], [2**40]], "float64"),
        ([[True, False], [True]], "bool"),
        ([pd.to_datetime(["2020-01-01"]), pd.to_datetime(["2021-01-01"])], None),
    ],
)
def test_types_widen(columns, kind):
    frames = (pd.DataFrame({"k": column, "other": 1}) for column in columns)
    source = spool(frames)
    assert kind is None or source.read(["k"])["k"].dtype == kind
    expected = [None if pd.isna(v) else v for column in columns for v in column]
    assert values(source, "k") == expected


def test_an_order_of_many_categories_is_kept():
    """Their dictionary takes more than the MiB from which rows are written out by default."""
    levels = [f"{'x' * 30} {i}" for i in range(50_000)][::-1]
    column = pd.Categorical(levels[:10] * 2, categories=levels)
    halves = (pd.DataFrame({"g": column[half]}) for half in (slice(0, 10), slice(10, 20)))
    read = spool(halves).read(["g"])["g"]
    assert read.cat.categories.tolist() == levels
    assert read.tolist() == list(column)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([[1, 2], ["a"]], "'k' holds text in 'frame 2' and numbers in 'frame 1'"),
        ([[1, "a"]], "'k' cannot be stored in a Parquet file: .*give its values one type"),
        ([[0.5], [2**62 + 1]], "'k' cannot be written as double, the type of other rows"),
        ([[2**62 + 1], [0.5]], "'k' cannot be written as double, the type of other rows"),
    ],
)
def test_types_that_do_not_go_together(temporary, columns, message):
    with pytest.raises(vcomp.DataError, match=message):
        spool(pd.DataFrame({"k": column}) for column in columns)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("start", [0, "a"])
def test_a_column_of_several_types_in_one_frame(temporary, start):
    """Batches of one frame are of different types: a number is not written as text."""
    other = "a" if start == 0 else 0
    values = pd.Series([start] * 262_144 + [other] * 262_144, dtype=object)
    frame = pd.DataFrame({"k": values})
    kinds = "int64 first and text" if start == 0 else "text first and int64"
    with pytest.raises(vcomp.DataError, match=f"'k' is of type {kinds} later"):
        spool(frame)
    assert list(temporary.iterdir()) == []


# What goes wrong ---------------------------------------------------------------------------------


def frames_until(error):
    yield FRAME
    yield FRAME
    raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("lost"), OSError("lost")])
def test_an_interruption_leaves_nothing(tmp_path, temporary, error):
    path = tmp_path / "mine.parquet"
    path.write_bytes(b"what was there before")
    for target in (None, path):
        with pytest.raises(type(error)):
            spool(frames_until(error), target)
    assert list(temporary.iterdir()) == []
    assert sorted(tmp_path.iterdir()) == [path, temporary]
    assert path.read_bytes() == b"what was there before"


def test_a_disk_that_fills_up(tmp_path, temporary, monkeypatch):
    class Full(pq.ParquetWriter):
        def write_table(self, table, *args):
            if self.is_open and table.num_rows == 10 and len(written) == 2:
                raise OSError(errno.ENOSPC, "Error writing bytes to file")
            written.append(table)
            super().write_table(table, *args)

    monkeypatch.setattr(pq, "ParquetWriter", Full)
    for target, name in ((tmp_path / "mine.parquet", "mine.parquet"), (None, "rows.parquet")):
        written = []
        with pytest.raises(vcomp.DataError) as caught:
            spool(in_threes(), target)
        for words in (name, "No space left on device", "MiB were free", "path=", "columns="):
            assert words in str(caught.value)
    assert list(temporary.iterdir()) == []
    assert list(tmp_path.iterdir()) == [temporary]


def test_a_file_that_may_not_grow(tmp_path):
    """The system itself refuses the bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    rng = np.random.default_rng(1)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
        with pytest.raises(vcomp.DataError, match=r"cannot write .*mine\.parquet': File too l"):
            spool(
                (pd.DataFrame({"a": rng.normal(size=100_000)}) for _ in range(9)),
                tmp_path / "mine.parquet",
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (FRAME, {"columns": ["scor"]}, r"no column 'scor' .*mean 'score'"),
        (FRAME, {"path": "rows.csv"}, r"'rows\.csv' does not end in \.parquet"),
        (FRAME, {"path": "none/rows.parquet"}, "there is no such folder"),
        (FRAME.iloc[:0], {}, "the data have no rows"),
        (3, {}, "data of type int cannot be read"),
        ((frame for frame in []), {}, "gives no frames"),
    ],
)
def test_what_cannot_be_spooled(temporary, monkeypatch, tmp_path, data, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(vcomp.DataError, match=message):
        spool(data, **options)
    assert list(temporary.iterdir()) == []
    assert list(Path().iterdir()) == [Path("temporary")]


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1, 2**70], dtype=object),
        pa.array([(1, 2, 3), (2, 3, 4)], pa.month_day_nano_interval()),
    ],
    ids=["too long", "no such type"],
)
def test_values_that_no_file_holds(column, temporary):
    with pytest.raises(vcomp.DataError, match="column 'b' cannot be stored in a Parquet file: "):
        spool({"a": [1, 2], "b": column})
    assert list(temporary.iterdir()) == []


def test_threads_that_write_the_same_file(tmp_path):
    path = tmp_path / "rows.parquet"
    with ThreadPoolExecutor(4) as pool:
        sources = list(pool.map(lambda _: spool(in_threes(), path), range(20)))
    assert [source.n_rows for source in sources] == [30] * 20
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["rows.parquet"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (7, "7 is not the path of a file"),
        ("~nobody-of-this-name/a.parquet", "is not the path of a file|there is no such folder"),
        ("a.csv", "does not end in .parquet"),
        ("no folder/a.parquet", "there is no such folder"),
        ("folder.parquet", "it is a folder; name a file in it"),
        ("x" * 240 + ".parquet", "cannot write .*: File name too long"),
        ("x" * 300 + ".parquet", "cannot write .*: File name too long"),
    ],
)
def test_paths_that_no_file_can_have(path, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(vcomp.DataError, match=words):
        spool(FRAME, path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.parquet", "temporary"]


@pytest.mark.parametrize("columns", ["sys", [], ["sys", "sys"]])
def test_columns_that_are_no_list_of_names(columns, temporary):
    with pytest.raises(vcomp.DataError, match=r"columns=.* is a list of names, each once"):
        spool(FRAME, columns=columns)
    assert list(temporary.iterdir()) == []
