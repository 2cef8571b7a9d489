"""One table in every container gives one result."""

import datetime
import decimal
import io
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import vcomp
from vcomp.io import open_source

FORMULA = "score ~ x + (1|sys) + (1|topic)"
rng = np.random.default_rng(7)
N_SYS, N_TOPIC = 5, 8
NUMBER = np.repeat(np.arange(N_SYS), N_TOPIC)
SYS = np.array([f"s{i}" for i in NUMBER])
TOPIC = np.tile([f"thème {j}" for j in range(N_TOPIC)], N_SYS)
X = rng.normal(size=NUMBER.size)
SCORE = rng.normal(size=N_SYS)[NUMBER] + 0.5 * X + rng.normal(size=NUMBER.size)
DATA = {"score": SCORE, "sys": SYS, "topic": TOPIC, "x": X, "unused": SCORE[::-1]}
FRAME = pd.DataFrame(DATA)
TABLE = pa.table(DATA)


@cache
def known():
    """Return the fit of the plain table."""
    return vcomp.fit(FORMULA, FRAME)


def with_column(name, values):
    return TABLE.set_column(TABLE.column_names.index(name), name, values)


def chunked_dictionaries():
    """Return a table whose chunks have dictionaries of their own, in different orders."""
    parts = [TABLE.slice(20), TABLE.slice(0, 20)]
    encoded = [p.set_column(1, "sys", p["sys"].dictionary_encode()) for p in parts]
    return pa.concat_tables(encoded)


SAME = {
    "frame": FRAME,
    "frame, other index": FRAME.set_index(np.arange(100, 140)),
    "frame, all columns indexed": FRAME.sample(frac=1.0, random_state=1),
    "frame, column names not text": FRAME.rename(columns={"unused": 0}),
    "categories": FRAME.astype({"sys": "category", "topic": "category"}),
    "object columns": FRAME.astype({"sys": object, "score": object, "x": object}),
    "pandas' nullable types": FRAME.convert_dtypes(),
    "pandas' Arrow types": FRAME.convert_dtypes(dtype_backend="pyarrow"),
    "sparse": FRAME.assign(score=pd.arrays.SparseArray(SCORE)),
    "arrays": DATA,
    "lists": {name: list(column) for name, column in DATA.items()},
    "tuples": {name: tuple(column) for name, column in DATA.items()},
    "Series": {name: pd.Series(c, index=range(5, 45)) for name, c in DATA.items()},
    "polars Series": {name: pl.Series(column) for name, column in DATA.items()},
    "Arrow arrays": {name: pa.chunked_array([column]) for name, column in DATA.items()},
    "unused column of another length": {**DATA, "unused": [1.0]},
    "other byte order": {**DATA, "score": SCORE.astype(">f8"), "sys": NUMBER.astype(">i4")},
    "long double": {**DATA, "score": SCORE.astype(np.longdouble)},
    "bytes": {**DATA, "sys": SYS.astype("S")},
    "decimals": {**DATA, "score": [decimal.Decimal(float(s)) for s in SCORE]},
    "polars": pl.DataFrame(DATA),
    "polars, Categorical": pl.DataFrame(DATA).with_columns(pl.col("sys").cast(pl.Categorical)),
    "polars, Enum": pl.DataFrame(DATA).with_columns(
        pl.col("sys").cast(pl.Enum(["unused", *sorted(set(SYS), reverse=True)]))
    ),
    "Arrow table": TABLE,
    "Arrow dictionary": with_column("sys", TABLE["sys"].dictionary_encode()),
    "Arrow dictionaries": chunked_dictionaries(),
    "Arrow large_string": with_column("sys", TABLE["sys"].cast(pa.large_string())),
    "Arrow string_view": with_column("sys", TABLE["sys"].cast(pa.string_view())),
    "Arrow binary": with_column("sys", TABLE["sys"].cast(pa.binary())),
    "Arrow int8": with_column("sys", pa.array(NUMBER.astype("i1"))),
    "Arrow runs": with_column("sys", pc.run_end_encode(TABLE["sys"])),
    "Arrow dates": with_column(
        "sys", pa.array([datetime.date(2020, 1, 1 + i) for i in NUMBER.tolist()])
    ),
    "Arrow record batch": TABLE.to_batches()[0],
    "Arrow dataset": ds.dataset(TABLE),
    "polars, lazy": pl.LazyFrame(DATA),
    "list of frames": [FRAME.iloc[:7], FRAME.iloc[7:7], FRAME.iloc[7:]],
    "list of one frame": [FRAME],
    "tuple of frames of several libraries": (
        TABLE.slice(0, 7),
        pl.DataFrame(TABLE.slice(7, 10)),
        FRAME.iloc[17:20],
        {name: column[20:] for name, column in DATA.items()},
    ),
    "Arrow, from an indexed frame": pa.Table.from_pandas(FRAME.set_index("sys")),
}


@pytest.mark.parametrize("name", SAME)
def test_the_container_does_not_matter(name):
    result = vcomp.fit(FORMULA, SAME[name])
    # The order of the levels may differ, and with it the last digits of sums.
    np.testing.assert_allclose(result.vcomp, known().vcomp, rtol=1e-9)
    np.testing.assert_allclose(result.fe_params, known().fe_params, rtol=1e-9)
    assert result.llf == pytest.approx(known().llf, rel=1e-12)
    assert result.nobs == 40


IN_ORDER = [n for n in SAME if n not in {"polars, Enum", "frame, all columns indexed"}]


@pytest.mark.parametrize("name", [n for n in IN_ORDER if n != "Arrow dictionaries"])
def test_with_the_same_order_of_levels_and_rows_every_bit_is_the_same(name):
    np.testing.assert_array_equal(vcomp.fit(FORMULA, SAME[name]).vcomp, known().vcomp)


def test_a_stream_of_batches_is_read_once():
    result = vcomp.fit(FORMULA, TABLE.to_reader(max_chunksize=7))
    np.testing.assert_array_equal(result.vcomp, known().vcomp)


@pytest.mark.parametrize("as_bool", [np.asarray, pa.array, pl.Series, list])
def test_booleans_are_levels(as_bool):
    result = vcomp.fit("score ~ (1|late)", {**DATA, "late": as_bool(NUMBER > 2)})
    assert result.model.design.group_index(0).tolist() == [False, True]
    expected = vcomp.fit("score ~ (1|late)", {**DATA, "late": np.where(NUMBER > 2, "b", "a")})
    np.testing.assert_array_equal(result.vcomp, expected.vcomp)


MISSING = {
    "list, None": {**DATA, "sys": [None, *SYS[1:]]},
    "list, nan": {**DATA, "sys": [float("nan"), *SYS[1:]]},
    "list, NA": {**DATA, "sys": [pd.NA, *SYS[1:]]},
    "frame": FRAME.assign(sys=[None, *SYS[1:]]),
    "category": FRAME.assign(sys=pd.Categorical([None, *SYS[1:]])),
    "score nan": FRAME.assign(score=[np.nan, *SCORE[1:]]),
    "masked array": {**DATA, "score": np.ma.masked_array(SCORE, [True] + 39 * [False])},
    "masked levels": {**DATA, "sys": np.ma.masked_array(NUMBER, [True] + 39 * [False])},
    "nullable": FRAME.assign(sys=pd.array([None, *NUMBER[1:].tolist()], dtype="Int8")),
    "polars null": pl.DataFrame({**DATA, "sys": [None, *SYS[1:].tolist()]}),
    "polars NaN": pl.DataFrame({**DATA, "score": [float("nan"), *SCORE[1:].tolist()]}),
    "Arrow null": with_column("sys", pa.array([None, *SYS[1:].tolist()])),
    "Arrow null number": with_column("sys", pa.array([None, *NUMBER[1:].tolist()])),
    "Arrow null score": with_column("score", pa.array([None, *SCORE[1:].tolist()])),
}


@pytest.mark.parametrize("name", MISSING)
def test_what_is_missing_is_missing_in_every_container(name):
    with pytest.warns(
        vcomp.VcompWarning, match=r"1 of 40 rows have a missing value \((sys|score) 1\)"
    ):
        result = vcomp.fit(FORMULA, MISSING[name])
    expected = vcomp.fit(FORMULA, FRAME.iloc[1:])
    np.testing.assert_allclose(result.vcomp, expected.vcomp, rtol=1e-12)


def test_values_of_several_types_are_not_made_text():
    mixed = [1 if s == "s1" else "1" if s == "s2" else s for s in SYS]
    for data in ({**DATA, "sys": mixed}, FRAME.assign(sys=mixed)):
        with pytest.warns(vcomp.VcompWarning, match="look alike: 1 and '1'"):
            result = vcomp.fit(FORMULA, data)
        assert set(result.model.design.group_index(0)) == {1, "1", "s0", "s3", "s4"}
        np.testing.assert_allclose(result.vcomp, known().vcomp, rtol=1e-12)


LONG = 2**62
IDENTIFIERS = [None, *(LONG + i for i in NUMBER[1:].tolist())]


@pytest.mark.parametrize(
    "identifiers",
    [
        IDENTIFIERS,
        [float("nan"), *IDENTIFIERS[1:]],
        pa.array(IDENTIFIERS),
        pa.array(IDENTIFIERS, pa.uint64()),
        pa.chunked_array([IDENTIFIERS]),
        pl.Series(IDENTIFIERS),
        pd.Series(IDENTIFIERS, dtype="Int64"),
        np.ma.masked_array([0, *IDENTIFIERS[1:]], [True] + 39 * [False]),
        pd.array(IDENTIFIERS, dtype="Int64"),
    ],
    ids=[
        "list",
        "list, nan",
        "Arrow",
        "Arrow, unsigned",
        "Arrow, chunked",
        "polars",
        "pandas",
        "masked",
        "array",
    ],
)
def test_long_numbers_stay_different_beside_a_missing_one(identifiers):
    with pytest.warns(vcomp.VcompWarning, match="id 1"):
        result = vcomp.fit("score ~ (1|id)", {"score": SCORE, "id": identifiers})
    assert result.model.design.group_index(0).tolist() == [LONG + i for i in range(N_SYS)]


def test_long_numbers_in_a_table():
    table = pa.table({"score": SCORE, "id": pa.array(IDENTIFIERS)})
    for data in (
        table,
        pl.DataFrame(table),
        pd.DataFrame({"score": SCORE}).assign(id=pd.array(IDENTIFIERS, dtype="Int64")),
    ):
        with pytest.warns(vcomp.VcompWarning, match="id 1"):
            result = vcomp.fit("score ~ (1|id)", data)
        assert result.model.design.group_index(0).tolist() == [LONG + i for i in range(N_SYS)]


@pytest.mark.parametrize("values", [["a", None, "b"], ["a", "b", "a"], [3, 1, 3], [3, None, 1]])
def test_dictionaries_with_gaps_and_repetitions(values):
    indices = pa.array(np.arange(40) % 3, pa.int32())
    table = with_column("sys", pa.DictionaryArray.from_arrays(indices, pa.array(values)))
    plain = {**DATA, "sys": [values[i % 3] for i in range(40)]}
    frames = [open_source(data).read(["sys"])["sys"] for data in (table, plain)]
    assert frames[0].isna().tolist() == frames[1].isna().tolist()
    assert frames[0].dropna().tolist() == frames[1].dropna().tolist()


def test_only_the_columns_used_are_read():
    class Columns(dict):
        def __getitem__(self, name):
            read.append(name)
            return super().__getitem__(name)

    read = []
    open_source(Columns(DATA)).read(["sys", "x"])
    assert sorted(read) == ["sys", "x"]
    assert list(open_source(FRAME).read(["x", "sys"]).columns) == ["x", "sys"]
    assert list(open_source(TABLE).read(["x", "sys"]).columns) == ["x", "sys"]


def test_a_duplicated_name_matters_only_if_it_is_used():
    twice = pd.concat([FRAME, FRAME[["unused"]]], axis=1)
    np.testing.assert_array_equal(vcomp.fit(FORMULA, twice).vcomp, known().vcomp)
    with pytest.raises(vcomp.DataError, match="2 columns named 'unused'"):
        vcomp.fit("unused ~ (1|sys)", twice)
    with pytest.raises(vcomp.DataError, match="2 columns named '0'"):
        vcomp.fit("score ~ (1|Q('0'))", FRAME.assign(**{"0": SYS}).rename(columns={"x": 0}))
    repeated = pa.table([SCORE, SYS, SYS], names=["score", "sys", "sys"])
    with pytest.raises(vcomp.DataError, match="2 columns named 'sys'"):
        vcomp.fit("score ~ (1|sys)", repeated)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (FRAME.rename(columns={"topic": "Topics"}), r"no column 'topic'.*mean 'Topics'\?"),
        (FRAME.rename(columns={"score": "SCORE"}), r"no column 'score'.*mean 'SCORE'\?"),
        (FRAME.drop(columns="x"), r"no column 'x' in the data; the columns are 'score', 'sys'"),
        (pd.DataFrame(np.zeros((2, 30))), r"no column 'score' in the data; .*'19' …"),
        (pd.DataFrame(), "which have no columns"),
        ({}, "which have no columns"),
        (FRAME.iloc[:0], "the data have no rows"),
        ({name: [] for name in DATA}, "the data have no rows"),
        (TABLE.slice(0, 0), "the data have no rows"),
        ({**DATA, "sys": SYS[1:]}, "differ in length: 'sys' 39, 'topic' 40"),
        (
            {**DATA, "sys": np.zeros((40, 2))},
            "column 'sys' has 2 dimensions; it needs one value a",
        ),
        ({**DATA, "x": [[v] for v in X]}, "column 'x' has 2 dimensions"),
        ({**DATA, "x": [[1.0], [1.0, 2.0]] * 20}, "column 'x' has 2 dimensions"),
        ({**DATA, "sys": "s1"}, "column 'sys' is a str; it needs one value a row"),
        ({**DATA, "score": 1.5}, "column 'score' is a float; it needs one value a row"),
        ({**DATA, "sys": None}, "column 'sys' is a NoneType"),
        ({**DATA, "sys": pl.DataFrame({"a": SYS})}, "column 'sys' has 2 dimensions"),
        ({**DATA, "sys": pa.table({"a": SYS})}, "column 'sys' has 2 dimensions"),
        ({**DATA, "sys": FRAME[["sys"]]}, "column 'sys' has 2 dimensions"),
        ({**DATA, "sys": np.ma.zeros((40, 2))}, "column 'sys' has 2 dimensions"),
        ({**DATA, "sys": set(SYS)}, "column 'sys' is a set"),
        ({**DATA, "sys": (s for s in SYS)}, "column 'sys' is a generator"),
        (FRAME["score"], "type Series is one column, not a table; give a pandas"),
        (pl.Series(SCORE), "type Series is one column, not a table; give a pandas"),
        (np.zeros((4, 3)), "type ndarray cannot be read; give a pandas or polars DataFrame"),
        ([{"score": 1.0}], "type list cannot be read: it gives dicts, not frames; rows become"),
        ([(1.0, "s1")], "type list cannot be read: it gives tuples, not frames; .*DataFrame"),
        (zip(SCORE, SYS, strict=True), "type zip cannot be read: it gives tuples"),
        ([1.0], "type list cannot be read: it gives floats"),
        ([FRAME["score"]], "frame 1: data of type Series is one column, not a table"),
        ([FRAME, FRAME["score"]], "frame 2: data of type Series is one column, not a table"),
        ([], "the list of data is empty; give a pandas"),
        ({1, 2}, "type set cannot be read; give a pandas"),
        (io.StringIO("score,sys"), "data are an open file, a StringIO; give its path"),
        (3, "type int cannot be read"),
        (
            with_column("sys", pa.array([[i] for i in NUMBER.tolist()])),
            "'sys' .* cannot be levels",
        ),
        (
            with_column("sys", pa.array([{"a": i} for i in NUMBER.tolist()])),
            "facet 'sys' .* level",
        ),
        ({**DATA, "x": [{} for _ in SYS]}, "column 'x' holds neither numbers nor levels"),
        ({**DATA, "x": X + 1j}, "column 'x' holds complex numbers"),
    ],
)
def test_what_cannot_be_read(data, message):
    with pytest.raises(vcomp.DataError, match=message):
        vcomp.fit(FORMULA, data)


def test_a_file_of_numpy_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", **{name: DATA[name] for name in ("score", "sys", "topic", "x")})
    with np.load(tmp_path / "a.npz") as arrays:
        np.testing.assert_array_equal(vcomp.fit(FORMULA, arrays).vcomp, known().vcomp)


def test_columns_with_several_header_rows_are_shown_as_they_are():
    stacked = pd.DataFrame({("a", "score"): SCORE, ("a", "sys"): SYS})
    with pytest.raises(vcomp.DataError, match=r"the columns are \"\('a', 'score'\)\""):
        vcomp.fit("score ~ (1|sys)", stacked)


def test_the_name_of_a_column_that_is_not_unicode():
    """As Arrow reads it from a damaged file."""
    sink = pa.BufferOutputStream()
    table = pa.table({"qqqq": [1.0, 2.0], "a": [1, 2]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    damaged = pa.ipc.open_stream(sink.getvalue().to_pybytes().replace(b"qqqq", b"qq\xb2q"))
    with pytest.raises(vcomp.DataError, match="name of a column of the table is not text in UTF"):
        open_source(damaged.read_all())
