"""Numbers of more digits than floats have are refused; without their largest part are exact."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import vcomp
from vcomp import ctt, ir

rng = np.random.default_rng(3)
Z = np.rint(300.0 * rng.normal(size=60)).astype(np.int64)
"""Deviations in nanoseconds."""

START = 1_760_000_000_000_000_001
G = np.repeat(np.arange(10), 6)
FRAME = pd.DataFrame({"g": G, "y": Z + START, "x": rng.normal(size=60)})

TYPES = {
    "int64": FRAME["y"],
    "uint64": FRAME["y"].astype(np.uint64),
    "nullable": FRAME["y"].astype("Int64"),
    "of Arrow": FRAME["y"].astype("int64[pyarrow]"),
    "of Python": pd.Series([int(v) for v in FRAME["y"]], dtype=object),
    "of Python, beyond 64 bits": pd.Series([int(v) + 2**70 for v in FRAME["y"]], dtype=object),
    "decimal": pd.Series([Decimal(int(v)) + Decimal("0.5") for v in FRAME["y"]]),
}

CONTAINERS = {
    "pandas": lambda frame, folder: frame,
    "polars": lambda frame, folder: pl.from_pandas(frame),
    "lazy": lambda frame, folder: pl.from_pandas(frame).lazy(),
    "Arrow": lambda frame, folder: pa.Table.from_pandas(frame),
    "dict": lambda frame, folder: frame.to_dict("list"),
    "CSV": lambda frame, folder: frame.to_csv(folder / "a.csv", index=False) or folder / "a.csv",
    "Parquet": lambda frame, folder: frame.to_parquet(folder / "a.pq") or folder / "a.pq",
    "frames": lambda frame, folder: [frame[:30], frame[30:]],
}


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_of_long_numbers_is_refused_and_is_exact_after_the_advice(kind):
    data = FRAME.assign(y=TYPES[kind])
    with pytest.raises(vcomp.DataError, match=r"column 'y' holds 1.*data\['y'\].min\(\)"):
        vcomp.fit("y ~ (1|g)", data)
    followed = vcomp.fit("y ~ (1|g)", data.assign(y=data["y"] - data["y"].min()))
    expected = vcomp.fit("y ~ (1|g)", FRAME.assign(y=Z - Z.min()))
    np.testing.assert_array_equal(followed.vcomp, expected.vcomp)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", CONTAINERS)
def test_every_container(name, stream, tmp_path):
    data = CONTAINERS[name](FRAME, tmp_path)
    with pytest.raises(vcomp.DataError, match=r"column 'y' holds 17[56]"):
        vcomp.fit("y ~ (1|g)", data, stream=stream)
    with pytest.raises(vcomp.DataError, match=r"column 'y' holds 17[56]"):
        vcomp.fit("x ~ y + (1|g)", data, stream=stream)


def test_dask_with_long_numbers():
    dask = pytest.importorskip("dask.dataframe", reason="Dask is not installed")
    with pytest.raises(vcomp.DataError, match=r"column 'y' holds 17[56]"):
        vcomp.fit("y ~ (1|g)", dask.from_pandas(FRAME, npartitions=2))


@pytest.mark.parametrize("beside", [None, 0.5])
def test_long_numbers_beside_missing_values_and_fractions(beside):
    y = [int(v) for v in FRAME["y"]]
    y[7] = beside
    with pytest.raises(vcomp.DataError, match=r"'y'.*(holds 17[56]|beyond 2)"):
        vcomp.fit("y ~ (1|g)", {"g": G, "y": y})


def test_numbers_that_floats_hold_are_taken():
    """Multiples of 1,024 beyond 2**53, and decimals of any number of digits near their spread."""
    for y in (Z * 1024 * 2**43, pd.Series([Decimal(int(z)) / 7 + 5 for z in Z])):
        taken = vcomp.fit("y ~ (1|g)", FRAME.assign(y=y))
        expected = vcomp.fit("y ~ (1|g)", FRAME.assign(y=np.asarray(y, dtype=float)))
        np.testing.assert_array_equal(taken.vcomp, expected.vcomp)


def test_times_and_durations_say_how_to_give_seconds():
    times = pd.Series(pd.to_datetime(FRAME["y"]))
    seconds = (times - times.min()).dt.total_seconds()
    expected = vcomp.fit("y ~ (1|g)", FRAME.assign(y=1e-9 * (Z - Z.min())))
    for y, advice in ((times, "data['y'].min()).dt.total_seconds()"),
                      (times - times.min(), "data['y'].dt.total_seconds()")):  # fmt: skip
        with pytest.raises(vcomp.DataError) as error:
            vcomp.fit("y ~ (1|g)", FRAME.assign(y=y))
        assert advice in str(error.value)
    found = vcomp.fit("y ~ (1|g)", FRAME.assign(y=seconds))
    np.testing.assert_allclose(found.vcomp, expected.vcomp, rtol=1e-8)


def test_whole_numbers_as_text_say_how_to_keep_their_digits(tmp_path):
    data = FRAME.assign(y=TYPES["of Python, beyond 64 bits"])
    data.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(vcomp.DataError, match=r"data\['y'\].map\(int\)"):
        vcomp.fit("y ~ (1|g)", tmp_path / "a.csv")
    numbers = data["y"].astype(str).map(int)
    found = vcomp.fit("y ~ (1|g)", FRAME.assign(y=numbers - numbers.min()))
    assert found.vcomp["Residual"] == vcomp.fit("y ~ (1|g)", FRAME.assign(y=Z)).vcomp["Residual"]


@pytest.mark.skipif(
    int(pd.__version__.split(".")[0]) < 3, reason="pandas 2 ends it in an exception of its own"
)
def test_a_number_that_no_float_can_hold():
    y = [int(z) for z in Z[:-1]] + [10**400]
    with pytest.raises(vcomp.DataError, match=r"'y' holds 1.000e\+400, which as a float"):
        vcomp.fit("y ~ (1|g)", {"g": G, "y": y})
    with pytest.raises(vcomp.DataError, match=r"infinite: leave such scores out$"):
        vcomp.fit("y ~ (1|g)", {"g": G, "y": [0.5, *y[1:]]})


@pytest.mark.parametrize("kind", [int, Decimal])
def test_scores_that_no_float_can_hold_are_divided(kind):
    """As the message says; the units of the variances are the squares of that of the scores."""
    data = FRAME.assign(y=pd.Series([kind(int(z)) * 10**400 for z in Z], dtype=object))
    with pytest.raises(vcomp.DataError) as error:
        vcomp.fit("y ~ (1|g)", data)
    code = str(error.value).rpartition("as in ")[2]
    power = int(code.rpartition("**")[2])
    found = vcomp.fit("y ~ (1|g)", data.assign(y=eval(code, {"data": data})))
    expected = vcomp.fit("y ~ (1|g)", FRAME.assign(y=Z)).vcomp * 100.0 ** (400 - power)
    np.testing.assert_allclose(found.vcomp, expected, rtol=1e-8)


LONG = FRAME.assign(i=np.tile(np.arange(6), 10))

MATRICES = {
    "array": Z.reshape(10, 6) + START,
    "lists": (Z.reshape(10, 6) + START).tolist(),
    "with a fraction": [[START, 0.5], [0.25, START]],
    "masked": np.ma.masked_equal(Z.reshape(10, 6) + START, int(Z[-1]) + START),
    "frame": pd.DataFrame(Z.reshape(10, 6) + START),
}


@pytest.mark.parametrize("kind", MATRICES)
@pytest.mark.parametrize("read", [ctt.reliability, ctt.icc, ir.compare_systems])
def test_matrices_of_long_numbers(kind, read):
    with pytest.raises(vcomp.DataError, match=r"holds 17[56]"):
        read(MATRICES[kind])


def test_long_tables_and_several_responses():
    with pytest.raises(vcomp.DataError, match=r"column 'y' holds 17[56]"):
        ctt.reliability(LONG, object="g", item="i", score="y")
    with pytest.raises(vcomp.DataError, match=r"column 'y' holds 17[56]"):
        ir.ScoreMatrix.from_long(LONG, system="g", topic="i", score="y")
    with pytest.raises(vcomp.DataError, match=r"column 'y' holds 17[56]"):
        vcomp.fit_multivariate("x + y ~ (1|g) + (1|i)", LONG)
