"""Types of Arrow and numbers of Python that pandas cannot group are read, or refused by name."""

from __future__ import annotations

import json
import os
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import vcomp

N = 12
Y = [float(i % 5) + 0.1 * i for i in range(N)]
G = ["a", "b", "c", "d"] * 3
THREE = [1, 2, 3] * 4


def extension(kind, storage):
    return pa.ExtensionArray.from_storage(kind, storage)


GROUPED = {
    "dictionary": pa.array(G).dictionary_encode(),
    "dictionary with null": pa.DictionaryArray.from_arrays([0, 1, 2, 3] * 3, ["a", "b", "c", "d"]),
    "string_view": pa.array(G, pa.string_view()),
    "binary_view": pa.array([g.encode() for g in G], pa.binary_view()),
    "half": pa.array(np.array(THREE, np.float16)),
    "interval": pa.array([pa.MonthDayNano([1, 1, i]) for i in THREE]),
    "runs": pa.RunEndEncodedArray.from_arrays([4, 8, 12], ["a", "b", "c"]),
    "bool8": extension(pa.bool8(), pa.array([0, 1] * 6, pa.int8())),
    "opaque": extension(pa.opaque(pa.int64(), "x", "v"), pa.array(THREE)),
}
if hasattr(pa, "json_"):  # since pyarrow 19
    GROUPED["json"] = extension(pa.json_(), pa.array(["1", "2", "3"] * 4))
    # pyarrow 18 cannot make a frame of it.
    GROUPED["uuid"] = extension(
        pa.uuid(), pa.array([bytes([i] * 16) for i in THREE], pa.binary(16))
    )
REFUSED = {
    "list": pa.array([[i] for i in THREE]),
    "struct": pa.array([{"a": i} for i in THREE]),
    "map": pa.array([[("k", i)] for i in THREE], pa.map_(pa.string(), pa.int64())),
    "list_view": pa.array([[i] for i in THREE], pa.list_view(pa.int64())),
    "dictionary of lists": pa.DictionaryArray.from_arrays([0, 1] * 6, pa.array([[1], [2]])),
    "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((N, 2, 2))),
    "union": pa.UnionArray.from_dense(
        pa.array([0, 1] * 6, pa.int8()),
        pa.array([i // 2 for i in range(N)], pa.int32()),
        [pa.array(THREE[:6]), pa.array(G[:6])],
    ),
}


def as_frame(**columns):
    arrays = {
        name: pd.arrays.ArrowExtensionArray(pa.chunked_array([x]))
        if isinstance(x, pa.Array)
        else x
        for name, x in columns.items()
    }
    return pd.DataFrame({name: pd.Series(x) for name, x in arrays.items()})


WAYS = {"frame": as_frame, "table": lambda **columns: pa.table(columns)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", GROUPED)
def test_types_that_are_levels(way, name):
    array = GROUPED[name]
    plain = array.storage if isinstance(array, pa.ExtensionArray) else array
    labels = [str(value) for value in plain.to_pylist()]
    expected = vcomp.fit("y ~ (1|g)", {"y": Y, "g": labels}).vcomp
    for stream in (False, True):
        found = vcomp.fit("y ~ (1|g)", WAYS[way](y=Y, g=array), stream=stream).vcomp
        np.testing.assert_allclose(found, expected, rtol=1e-6)  # levels in another order


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", REFUSED)
def test_types_that_are_not_levels_are_refused_by_column(way, name):
    for columns, formula, at in (
        ({"y": Y, "g": REFUSED[name]}, "y ~ (1|g)", "'g'"),
        ({"y": REFUSED[name], "g": G}, "y ~ (1|g)", "'y'"),
        ({"y": Y, "x": REFUSED[name], "g": G}, "y ~ x + (1|g)", "'x'"),
    ):
        with pytest.raises(vcomp.DataError, match=at):
            vcomp.fit(formula, WAYS[way](**columns))


@pytest.mark.skipif(
    int(pd.__version__.split(".")[0]) < 3,
    reason="pandas 2 ends such objects in exceptions of its own wherever it looks at them",
)
@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("y", [10**400, *Y[1:]], "'y' holds (a number beyond the range of floats|1.000e.400)"),
        ("x", [10**400, *Y[1:]], "'x' holds (a number beyond the range of floats|1.000e.400)"),
        ("g", [10**5000, 1, 2] * 4, "'g' holds a number of thousands of digits"),
        ("y", [Decimal("sNaN"), *map(Decimal, range(11))], "'y' holds the decimal sNaN"),
        ("x", [Decimal("sNaN"), *map(Decimal, range(11))], "'x' holds the decimal sNaN"),
        ("g", [Decimal("sNaN"), *map(Decimal, range(11))], "'g' holds the decimal sNaN"),
        ("g", ["\ud800", "b", "c"] * 4, r"'g' holds '\\ud800', which is not valid Unicode"),
    ],
)
def test_values_that_are_not_numbers_or_text(column, values, message):
    columns = {"y": Y, "g": G, "x": Y[::-1]} | {column: values}
    with pytest.raises(vcomp.DataError, match=message):
        vcomp.fit("y ~ x + (1|g)", columns)
    frame = pd.DataFrame({name: pd.Series(x, dtype=object) for name, x in columns.items()})
    with pytest.raises(vcomp.DataError, match=message):
        vcomp.fit("y ~ x + (1|g)", frame)


def test_stored_results_with_impossible_values():
    data = vcomp.datasets.load("bodoff2007_alpha")
    text = vcomp.fit("score ~ (1|sys) + (1|topic)", data).to_json()
    stored = json.loads(text)
    changed = {
        "counts": stored["cells"] | {"counts": 0},
        "means": stored["cells"]
        | {"means": [[1e300, *stored["cells"]["means"][0][1:]], *stored["cells"]["means"][1:]]},
    }
    texts = [
        json.dumps(stored | {"formula": "\ud800"}),
        text.replace('"format": 2', f'"format": {"1" * 5000}'),
        *(json.dumps(stored | {"cells": cells}) for cells in changed.values()),
    ]
    for given in texts:
        with pytest.raises(vcomp.DataError):
            vcomp.VarianceComponentsResults.from_json(given)


@pytest.mark.parametrize("scale", [1e-165, 1e154])
def test_components_whose_squares_are_not_numbers_are_refused(scale):
    with pytest.raises(vcomp.PlanError, match=r"'Residual', the largest, is .* too far"):
        vcomp.from_components({"p": scale, "i": scale, "Residual": 2 * scale})
    with pytest.raises(vcomp.PlanError, match="far from 1"):
        vcomp.from_mean_squares(
            {"p": 3 * scale, "i": 2 * scale, "pi": scale}, df={"p": 9, "i": 4, "pi": 36}
        )


@pytest.mark.skipif(os.name != "posix", reason="pipes of Unix")
def test_a_pipe_is_refused_as_data(tmp_path):
    os.mkfifo(tmp_path / "rows.csv")
    for path in (tmp_path / "rows.csv", tmp_path):
        with pytest.raises(vcomp.DataError, match="is a pipe or a device"):
            vcomp.fit("y ~ (1|g)", path)
