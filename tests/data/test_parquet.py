"""Parquet files: text comes as categories, row groups one after another."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vcomp.exceptions import DataError
from vcomp.io import open_source

TEXT = [f"document {i % 17}" for i in range(300)]
TABLE = pa.table({"score": np.linspace(0.0, 1.0, 300), "a.b": TEXT, "sys": np.arange(300) % 7})


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize("use_dictionary", [True, False])
@pytest.mark.parametrize("row_group_size", [7, 100, 1000])
def test_text_in_any_form(tmp_path, kind, use_dictionary, row_group_size):
    table = TABLE.set_column(1, "a.b", TABLE["a.b"].cast(kind))
    path = tmp_path / "a.parquet"
    try:
        pq.write_table(table, path, use_dictionary=use_dictionary, row_group_size=row_group_size)
    except pa.ArrowNotImplementedError:
        pytest.skip("older versions of pyarrow do not write string_view")
    source = open_source(path)
    column = source.read(["sys", "a.b"])["a.b"]
    assert column.tolist() == TEXT
    assert column.cat.categories.tolist() == sorted(set(TEXT))
    pieces = [frame["a.b"] for frame, _ in source.batches(["a.b"], rows=64)]
    assert [len(piece) for piece in pieces] == [64, 64, 64, 64, 44]
    assert [value for piece in pieces for value in piece] == TEXT


def test_batches_have_the_types_of_the_file(tmp_path):
    columns = {
        "int8": pa.array([1, 2, 3], pa.int8()),
        "float32": pa.array([0.5, 1.5, None], pa.float32()),
        "bool": pa.array([True, False, True]),
        "uint16": pa.array([1, 2, 65535], pa.uint16()),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    source = open_source(tmp_path / "a.parquet")
    for frame in (source.read(list(columns)), next(source.batches(list(columns)))[0]):
        assert list(map(str, frame.dtypes)) == list(columns)


def test_long_numbers_beside_a_gap(tmp_path):
    long = [2**62 + 1, None, 2**62 + 2]
    pq.write_table(pa.table({"id": pa.array(long)}), tmp_path / "a.parquet")
    source = open_source(tmp_path / "a.parquet")
    frames = [source.read(["id"]), *(frame for frame, _ in source.batches(["id"], rows=2))]
    assert frames[0]["id"].dropna().tolist() == [2**62 + 1, 2**62 + 2]
    found = [v for frame in frames[1:] for v in frame["id"].dropna().tolist()]
    assert found == [2**62 + 1, 2**62 + 2]


def test_the_index_of_a_frame_is_a_column(tmp_path):
    frame = pd.DataFrame({"score": [1.0, 2.0]}, index=pd.Index(["a", "b"], name="sys"))
    frame.to_parquet(tmp_path / "a.parquet")
    assert open_source(tmp_path / "a.parquet").read(["sys"])["sys"].tolist() == ["a", "b"]


@pytest.mark.parametrize("ahead", [True, False], ids=["read", "batches"])
def test_a_changed_number_is_seen_where_pages_have_checksums(tmp_path, ahead):
    path = tmp_path / "a.parquet"
    plain = {"use_dictionary": False, "compression": "none"}
    pq.write_table(TABLE, path, write_page_checksum=True, **plain)
    whole = bytearray(path.read_bytes())
    at = whole.index(np.float64(TABLE["score"][100].as_py()).tobytes())
    whole[at : at + 8] = np.float64(7.0).tobytes()
    path.write_bytes(whole)
    source = open_source(path)

    def scores():
        return source.read(["score"]) if ahead else next(source.batches(["score"]))[0]

    with pytest.raises(DataError, match=r"'a\.parquet' cannot be read: .*it may be damaged"):
        scores()


def test_a_file_that_is_gone(tmp_path):
    (tmp_path / "a.parquet").symlink_to(tmp_path / "nothing.parquet")
    with pytest.raises(DataError, match=r"^'a\.parquet' cannot be read: No such file"):
        open_source(tmp_path)


def test_text_that_is_not_unicode(tmp_path):
    """As of a damaged file: Arrow stores the bytes, and pandas cannot read them."""
    bad = pa.array([b"a", b"\xf6\x28", b"a"], pa.binary()).view(pa.utf8())
    pq.write_table(pa.table({"sys": bad, "score": [0.1, 0.2, 0.3]}), tmp_path / "a.parquet")
    source = open_source(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"of 'a\.parquet' .*text may not be valid UTF-8"):
        source.read(["sys", "score"])
