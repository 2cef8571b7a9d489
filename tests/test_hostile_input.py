"""Inputs that once ended in other errors than a VcompError, or after very long."""

import inspect
import json
import zipfile
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vcomp
from vcomp.exceptions import GUARDS, guarded

N = 40
rng = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {"a": np.arange(N) % 8, "b": np.arange(N) // 8, "y": rng.normal(size=N), "g": ["u", "v"] * 20}
)


@pytest.mark.filterwarnings("ignore::vcomp.VcompWarning")
@pytest.mark.parametrize("absent", ["y", "g"])
def test_a_part_without_a_complete_row_and_a_text_factor(absent):
    empty = FRAME[:10].astype({absent: object})
    empty[absent] = None
    parts = [empty.astype({absent: FRAME[absent].dtype}), FRAME]
    streamed = vcomp.fit("y ~ g + (1|a)", parts, stream=True)
    np.testing.assert_allclose(streamed.vcomp, vcomp.fit("y ~ g + (1|a)", FRAME).vcomp, rtol=1e-8)


def test_a_relation_of_duckdb_is_counted():
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    connection = duckdb.connect()
    connection.register("d", FRAME)
    found = vcomp.fit("y ~ g + (1|a)", connection.sql("select * from d"))
    np.testing.assert_allclose(found.vcomp, vcomp.fit("y ~ g + (1|a)", FRAME).vcomp, rtol=1e-8)


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ " + "+".join(f"x{k}" for k in range(5000)) + " + (1|a)",
        "y ~ " + "+".join(f"(1|x{k})" for k in range(5000)),
        "y ~ I(" + "+".join(["b"] * 20_000) + ") + (1|a)",
        "y ~ I(" + "-" * 20_000 + "b) + (1|a)",
        "y ~ (1|" + "*".join(f"x{k}" for k in range(12)) + ")",
        "y ~ (" + "+".join(f"x{k}" for k in range(30)) + ")**30 + (1|a)",
    ],
)
def test_formulas_that_are_too_long_are_refused(formula):
    with pytest.raises(vcomp.VcompError, match=r"terms, and a formula has|nested"):
        vcomp.fit(formula, FRAME)


def test_two_hundred_terms_are_not_too_many():
    terms = " + ".join(f"x{k}" for k in range(200))
    assert len(vcomp.VarianceComponentsModel.__mro__) > 1
    from vcomp.formula import parse

    assert len(parse(f"y ~ {terms} + (1|a)").fixed) == 201


@pytest.mark.parametrize("text", ["+".join(["a"] * 20_000), "-" * 20_000 + "a", "a\0", "1" * 5000])
def test_quantities_that_cannot_be_read_are_refused(text):
    with pytest.raises(vcomp.EstimationError):
        vcomp.fit("y ~ (1|a)", FRAME).quantity(text)


def test_damaged_metadata_of_pandas_are_ignored(tmp_path):
    path = tmp_path / "d.parquet"
    table = pa.Table.from_pandas(FRAME)
    for damaged in (b"\xff", b"{", b"[]", b'{"columns": [{}]}', b'{"columns": 1}'):
        pq.write_table(table.replace_schema_metadata({b"pandas": damaged}), path)
        found = vcomp.fit("y ~ g + (1|a)", path)
        assert found.nobs == N


# Files that lie ----------------------------------------------------------------------------------


def statistics(tmp_path):
    path = tmp_path / "s.vcomp"
    vcomp.accumulate("y ~ (1|a)", FRAME).save(path)
    return path


def test_members_that_are_not_expected_are_not_unpacked(tmp_path):
    path = statistics(tmp_path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("more.npy", bytes(100_000_000))
    assert path.stat().st_size < 200_000
    assert vcomp.AccumulatedStatistics.load(path).nobs == N


def test_compressed_members_are_refused(tmp_path):
    path = statistics(tmp_path)
    with (
        zipfile.ZipFile(path) as old,
        zipfile.ZipFile(tmp_path / "t.vcomp", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(vcomp.DataError, match="compressed or larger than the file"):
        vcomp.AccumulatedStatistics.load(tmp_path / "t.vcomp")


@pytest.mark.parametrize(
    "change",
    [
        {"n": "40"},
        {"n": 41},
        {"low": None},
        {"columns": 3},
        {"total": [1e9, 0.0]},
        {"origin": True},
    ],
)
def test_headers_that_contradict_the_numbers_are_refused(tmp_path, change):
    path = statistics(tmp_path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "t.vcomp", "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith(".json"):
                content = json.dumps({**json.loads(content), **change}).encode()
            new.writestr(name, content)
    if change == {"origin": True}:  # a number all the same
        return
    with pytest.raises(vcomp.DataError, match="does not hold statistics"):
        vcomp.AccumulatedStatistics.load(tmp_path / "t.vcomp")


def test_a_header_of_an_absurd_array_is_refused(tmp_path):
    path = statistics(tmp_path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "t.vcomp", "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "counts.npy":
                content = content.replace(b"(8,)", b"(9999999999999,)").replace(b" " * 12, b"", 1)
            new.writestr(name, content)
    with pytest.raises(vcomp.DataError, match=r"states another size|does not hold"):
        vcomp.AccumulatedStatistics.load(tmp_path / "t.vcomp")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("estimate", "values"), [1.0]),
        (("estimate", "names"), ["a"]),
        (("estimate", "status"), 3),
        (("estimate", "method"), 3),
        (("structure", "n_levels"), []),
        (("structure", "facets"), "a"),
        (("formula",), None),
    ],
)
def test_results_that_contradict_themselves_are_refused(path, value):
    document = json.loads(vcomp.fit("y ~ (1|a)", FRAME).to_json())
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    with pytest.raises(vcomp.DataError, match="incomplete or damaged"):
        vcomp.VarianceComponentsResults.from_json(json.dumps(document))


# The last net ------------------------------------------------------------------------------------


def test_exhausted_memory_is_an_error_with_advice():
    @guarded
    def ask():
        np.zeros(2**56)

    with pytest.raises(vcomp.EstimationError, match=r"PiB.*stream=True"):
        ask()


def test_exhausted_memory_of_a_public_function_is_an_error_with_advice():
    class Large(dict):
        def __getitem__(self, name):
            raise MemoryError("Unable to allocate 9 GiB")

    with pytest.raises(vcomp.VcompError, match="9 GiB"):
        vcomp.fit("y ~ (1|a)", Large(a=1, y=1))


class Exhausted:
    """Rows that no longer fit into memory."""

    def __getattr__(self, name):
        raise MemoryError("Unable to allocate 9 GiB")


ARGUMENTS = {
    "f_test": ("g[T.v]",),
    "wald_test": ("g[T.v]",),
    "t_test": ("g[T.v]",),
    "from_json": ("{}",),
    "marginal_means": ("g",),
    "interval_source": ("auto",),
    **dict.fromkeys(
        (
            *("compare_levels", "influence", "jackknife", "profile", "quantity"),
            *("random_effects_cov", "resample", "test"),
        ),
        ("a",),
    ),
    "components_at": ({"x": 1.0},),
}


@pytest.fixture(scope="module")
def without_memory():
    """A fit whose components are known, and whose rows can no longer be used."""
    res = vcomp.fit("y ~ g + (1|a) + (1|b)", FRAME)
    record = res._record
    tables = type(record.tables)(Exhausted(), record.estimate)
    for known in ("components", "table", "cells"):
        tables.__dict__[known] = getattr(record.tables, known)
    return type(res)(replace(record, tables=tables), Exhausted())


PUBLIC = [name for name in dir(vcomp.VarianceComponentsResults) if not name.startswith("_")]


@pytest.mark.filterwarnings("ignore::vcomp.VcompWarning")
@pytest.mark.parametrize("name", sorted({*PUBLIC} - {"model"}))
def test_exhausted_memory_in_a_method_of_a_result_is_an_error_with_advice(without_memory, name):
    """Whether it needs the rows or not: no MemoryError reaches the user."""
    with suppress(vcomp.VcompError):
        found = getattr(without_memory, name)
        if callable(found):
            found(*ARGUMENTS.get(name, ()))


READ = {
    "collections", "data", "judgements", "original", "paths", "retrieved", "runs", "scores",
}  # fmt: skip
"""Parameters of functions that are given data."""

SMALL = {"open_source", "score_table"}
"""Functions that read data later, or four numbers."""


@pytest.mark.parametrize(
    "module", [vcomp, vcomp.ctt, vcomp.evals, vcomp.io, vcomp.ir, vcomp.simulate]
)
def test_functions_that_read_data_are_guarded(module):
    public = {name: getattr(module, name) for name in dir(module)}
    functions = {n: f for n, f in public.items() if inspect.isfunction(f) and n not in SMALL}
    reading = {
        n for n, f in functions.items() if READ.intersection(inspect.signature(f).parameters)
    }
    assert reading
    assert {n for n in reading if functions[n].__code__ is not GUARDS} == set()


def test_the_guard_is_not_the_scope_of_the_caller():
    twice = 2.0
    found = vcomp.fit("I(twice * y) ~ (1|a)", FRAME)
    np.testing.assert_allclose(found.vcomp, 4.0 * vcomp.fit("y ~ (1|a)", FRAME).vcomp, rtol=1e-6)
    assert twice == 2.0
