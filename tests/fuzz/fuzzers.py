# ruff: noqa: E501
"""The fuzzers: what each draws, runs, and compares with something else."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import math
import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

import vcomp
from tests.fuzz.driver import Fuzzer
from tests.fuzz.mutate import (
    ODD,
    Rng,
    changed_archive,
    changed_bytes,
    changed_json,
    changed_text,
    pick,
    words,
)
from vcomp.formula import parse, parse_design
from vcomp.gtheory.allocation.cost import parse_cost

# Texts -------------------------------------------------------------------------------------------

_FORMULAS = [
    "y ~ (1|a)", "y ~ x + (1|a) + (1|b)", "y ~ 0 + x + (1|a/b)", "y ~ C(g) + (1|a*b)", "np.log(y) ~ x:g + (1|a:b)",
    "y ~ (x + g)**2 - 1 + (1|a)", "I(y + x) ~ 1 + (1|Q('a b'))",
]  # fmt: skip
_OF_FORMULAS = [
    "y", "x", "a", "b", "g", "~", "+", "-", "*", ":", "/", "**", "(1|", "|", "||", "(", ")", "1", "0", "2", "C(",
    "I(", "np.log(", "Q('a b')", "lambda v: v", "x[0]", ".", ",", "(1|a)", "(1|a/b)", "%in%", "if", "==", "x=1",
]  # fmt: skip


def formulas(rng: Rng, folder: Path) -> None:
    """Parse a formula; what was parsed is parsed the same again."""
    drawn = words(rng, _OF_FORMULAS) if rng.random() < 0.4 else pick(rng, _FORMULAS)
    text = changed_text(rng, drawn, _OF_FORMULAS) if rng.random() < 0.8 else drawn
    found = parse(text)
    again = parse(found.text)
    assert (again.response, again.fixed, again.random) == (
        found.response,
        found.fixed,
        found.random,
    )
    found.names()


_DESIGNS = [
    "p x i",
    "p x (i:h)",
    "(p:c) x i x a",
    "sys x (judge:topic)",
    "p:i:a",
    "i:(p x h)",
    "p × I",
]
_OF_DESIGNS = [
    "p",
    "i",
    "h",
    "a",
    "P",
    "I",
    " x ",
    "×",
    ":",
    "(",
    ")",
    "*",
    "•",
    ",",
    "1",
    "i:h",
    " ",
]


def designs(rng: Rng, folder: Path) -> None:
    """Parse a design in Brennan's notation, and write it again; facets may change places."""
    drawn = words(rng, _OF_DESIGNS) if rng.random() < 0.4 else pick(rng, _DESIGNS)
    found = parse_design(changed_text(rng, drawn, _OF_DESIGNS) if rng.random() < 0.8 else drawn)
    again = parse_design(str(found))
    assert (str(again), again.nested_in) == (str(found), found.nested_in)


_COSTS = [
    "50*topic + 2*topic:judge + 1000",
    "5*i + i:a",
    "1 per p",
    "3 × 'a b'",
    "1,000 + 2.5e3*i",
]
_OF_COSTS = [
    "i",
    "a",
    "p",
    "*",
    "+",
    ":",
    "per",
    "×",
    "/",
    "-",
    "(",
    ")",
    "2",
    "1,000",
    "1e400",
    ".5",
    "'a b'",
]


def costs(rng: Rng, folder: Path) -> None:
    """Read a cost; a text without odd signs costs what the same expression does in Python."""
    drawn = words(rng, _OF_COSTS) if rng.random() < 0.4 else pick(rng, _COSTS)
    text = changed_text(rng, drawn, _OF_COSTS) if rng.random() < 0.8 else drawn
    for amount, facets in parse_cost(text):
        assert not math.isnan(amount)
        assert all(isinstance(facet, str) for facet in facets)


_OF_EXPRESSIONS = [
    "sys", "topic", "Residual", "total", "+", "-", "*", "/", "(", ")", "2", "0.5", "sqrt(", "sd(", "share(", "var(",
    "Erho2", "Phi", "**", "1e400", "[0]", ".real", ",", "`sys`", "sys:topic", "lambda", "__import__('os')",
]  # fmt: skip
_EXPRESSIONS = [
    "sys / (sys + Residual/50)",
    "sqrt(sys + topic)",
    "share(sys)",
    "2*sys - topic/3",
    "sd(total)",
]


@cache
def _result() -> Any:
    data = vcomp.datasets.load("bodoff2007_alpha")
    return vcomp.fit("score ~ (1|sys) + (1|topic)", data)


def expressions(rng: Rng, folder: Path) -> None:
    """Evaluate a quantity; compare it with Python's value of the same text."""
    drawn = words(rng, _OF_EXPRESSIONS) if rng.random() < 0.4 else pick(rng, _EXPRESSIONS)
    text = changed_text(rng, drawn, _OF_EXPRESSIONS) if rng.random() < 0.8 else drawn
    res = _result()
    found = float(res.quantity(text).estimate)
    scope = {
        **res.vcomp.to_dict(),
        "total": float(res.vcomp.sum()),
        "sqrt": math.sqrt,
        "sd": math.sqrt,
    }
    scope |= {"share": lambda v: v / scope["total"], "var": lambda v: v, "__builtins__": {}}
    if (
        set(text) <= set("systopicReidualhrevq0123456789.+-*/() ")
        and "Erho" not in text
        and "Phi" not in text
    ):
        expected = eval(text.strip(), scope)
        assert math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-12), (text, found, expected)


# Files -------------------------------------------------------------------------------------------


@cache
def _stored() -> tuple[Any, ...]:
    rng = np.random.default_rng(5)
    a, b = (axis.ravel() for axis in np.indices((5, 6)))
    frame = pd.DataFrame(
        {
            "a": a,
            "b": [f"t{v}" for v in b],
            "x": rng.normal(size=30),
            "g": np.where(a % 2, "u", "v"),
        }
    )
    frame["y"] = rng.normal(size=5)[a] + rng.normal(size=6)[b] + rng.normal(size=30)
    fits = [
        vcomp.fit("y ~ (1|a) + (1|b)", frame),
        vcomp.fit("y ~ x + g + (1|a) + (1|b)", frame[3:]),
        vcomp.fit("y ~ (1|a)", frame, method="anova"),
    ]
    return frame, [json.loads(fit.to_json()) for fit in fits], fits[0].bootstrap(10, rng=1)


def _use(res: Any) -> None:
    """Ask a loaded result for everything that needs no rows."""
    res.summary().as_text() if hasattr(res.summary(), "as_text") else str(res.summary())
    for use in (
        lambda: res.dstudy(**{res.vcomp.index[0]: 3}).table,
        res.conf_int,
        res.to_json,
        lambda: str(res.design),
        lambda: res.quantity(res.vcomp.index[0]),
        lambda: res.t_test("Intercept = 0"),
        lambda: res.anova_table(),
        res._repr_html_,
    ):
        with contextlib.suppress(vcomp.VcompError):
            use()


def json_results(rng: Rng, folder: Path) -> None:
    """Load a result after its JSON was changed, and use it."""
    document = changed_json(rng, pick(rng, _stored()[1]))
    text = json.dumps(document)
    if rng.random() < 0.3:
        content = changed_bytes(rng, text.encode())
        (folder / "r.json").write_bytes(content)
        res = vcomp.VarianceComponentsResults.from_json(folder / "r.json")
    else:
        res = vcomp.VarianceComponentsResults.from_json(text)
    _use(res)


@cache
def _sums_file(kind: int) -> bytes:
    import tempfile

    frame = _stored()[0]
    if kind == 2:
        frame = frame.assign(a=pd.to_datetime(frame["a"] * 10**15), x=frame["x"] > 0)
    formula = ["y ~ (1|a) + (1|b)", "y ~ x + g + (1|a) + (1|b)", "y ~ x + (1|a/b)"][kind]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s.vcomp")
        vcomp.accumulate(formula, frame).save(path)
        return path.read_bytes()


def statistics(rng: Rng, folder: Path) -> None:
    """Load statistics after their file was changed; fit, add and store them."""
    good, bad = folder / "good.vcomp", folder / "bad.vcomp"
    good.write_bytes(_sums_file(int(rng.integers(3))))
    if rng.random() < 0.6:
        changed_archive(rng, good, bad, "vcomp.json")
    else:
        bad.write_bytes(changed_bytes(rng, good.read_bytes()))
    loaded = vcomp.AccumulatedStatistics.load(bad)
    repr(loaded)
    with contextlib.suppress(vcomp.VcompError):
        (loaded + vcomp.AccumulatedStatistics.load(good)).save(folder / "sum.vcomp")
    res = loaded.fit(pick(rng, ["reml", "ml", "anova"]))
    assert np.isfinite(res.vcomp.to_numpy()).all()
    str(res.summary())


def replicates(rng: Rng, folder: Path) -> None:
    """Load bootstrap replicates after their file was changed, and use them."""
    made = _stored()[2]
    made.save(folder / "good.npz")
    if rng.random() < 0.6:
        with zipfile.ZipFile(folder / "good.npz") as archive:
            name = pick(rng, archive.namelist())
        changed_archive_of_arrays(rng, folder / "good.npz", folder / "bad.npz", name)
    else:
        (folder / "bad.npz").write_bytes(changed_bytes(rng, (folder / "good.npz").read_bytes()))
    loaded = type(made).load(folder / "bad.npz")
    str(loaded)
    loaded.frame.describe()


def changed_archive_of_arrays(rng: Rng, source: Path, target: Path, name: str) -> None:
    """Write a zip archive of arrays with one of them changed."""
    from tests.fuzz.mutate import _array, changed_bytes

    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for member in old.namelist():
            content = old.read(member)
            if member == name and member == "about.npy" and rng.random() < 0.7:
                about = changed_json(rng, json.loads(str(np.load(io.BytesIO(content)))))
                file = io.BytesIO()
                np.save(file, np.array(json.dumps(about)))
                content = file.getvalue()
            elif member == name:
                content = (
                    _array(rng, content)
                    if member != "about.npy" and rng.random() < 0.6
                    else changed_bytes(rng, content)
                )
            new.writestr(member, content)


_FIELDS = [
    "1",
    "2",
    "0.5",
    "-3",
    "a",
    "b",
    "u",
    "2024-01-01",
    "NA",
    "",
    '"q, r"',
    "1e5",
    "true",
    "1,5",
    *ODD,
]


def _packed(rng: Rng, path: Path, content: bytes) -> bytes:
    """Return what a file of this name holds: most names that end in gz are true."""
    if path.suffix != ".gz" or rng.random() < 0.1:
        return content
    packed = gzip.compress(content, 1, mtime=0)
    return changed_bytes(rng, packed) if rng.random() < 0.2 else packed


def csv_files(rng: Rng, folder: Path) -> None:
    """Fit a model to a CSV file of odd fields, or one whose bytes were changed."""
    separator = pick(rng, [",", ";", "\t"])
    rows = (
        [[pick(rng, ["a", "y", "x", "a", "", "é"]) for _ in range(3)]]
        if rng.random() < 0.1
        else [["a", "y", "x"]]
    )
    odd = pick(rng, [0.0, 0.02, 0.2])
    for _ in range(int(rng.integers(0, 25))):
        row = [str(rng.integers(4)), f"{rng.normal():.3g}", str(rng.integers(3))]
        rows.append([pick(rng, _FIELDS) if rng.random() < odd else v for v in row])
    if rng.random() < 0.1:
        rows[-1] = rows[-1][:-1]
    content = pick(rng, ["\n", "\r\n"]).join(separator.join(row) for row in rows).encode("utf-8")
    if rng.random() < 0.3:
        content = changed_bytes(rng, content)
    path = folder / pick(rng, ["d.csv", "d.tsv", "d.csv", "d.txt", "d.csv.gz"])
    path.write_bytes(_packed(rng, path, content))
    stream = pick(rng, [None, None, True])
    res = vcomp.fit(pick(rng, ["y ~ (1|a)", "y ~ x + (1|a)"]), str(path), stream=stream)
    assert np.isfinite(res.vcomp.to_numpy()).all()


@cache
def _parquet_file(kind: int) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    frame = _stored()[0]
    file = io.BytesIO()
    if kind == 0:
        frame.astype({"b": "category"}).set_index("a", drop=False).to_parquet(file)
    else:
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), file, row_group_size=7)
    return file.getvalue()


def parquet_files(rng: Rng, folder: Path) -> None:
    """Fit a model to a Parquet file whose bytes or metadata were changed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = _parquet_file(int(rng.integers(2)))
    path = folder / "d.parquet"
    if rng.random() < 0.5:
        path.write_bytes(changed_bytes(rng, content))
    else:
        table = pq.read_table(pa.BufferReader(content))
        about = json.loads(table.schema.metadata[b"pandas"])
        damaged = json.dumps(changed_json(rng, about)).encode()
        if rng.random() < 0.3:
            damaged = changed_bytes(rng, damaged)
        pq.write_table(table.replace_schema_metadata({b"pandas": damaged}), path)
    if rng.random() < 0.3:
        try:
            table = pq.read_table(path)
        except Exception as error:
            raise ThirdParty(str(error)) from None
        res = vcomp.fit("y ~ (1|a) + (1|b)", table)
    else:
        res = vcomp.fit("y ~ (1|a) + (1|b)", path, stream=pick(rng, [None, True]))
    assert np.isfinite(res.vcomp.to_numpy()).all()


_LINES = [
    "runid all r",
    "map 401 0.2",
    "map 402 0.3",
    "map 403 0.5",
    "map all 0.4",
    "P_5 401 0.2",
    "num_q all 3",
]


def trec_files(rng: Rng, folder: Path) -> None:
    """Read the output of trec_eval with odd lines."""
    topics = int(rng.integers(0, 6))
    for run in range(int(rng.integers(1, 4))):
        lines = [f"runid\tall\tr{run}"]
        lines += [f"map\t{401 + k}\t{rng.random():.4f}" for k in range(topics)]
        text = "\n".join([*lines, "map\tall\t0.3"])
        if rng.random() < 0.4:
            text = changed_text(rng, text, _LINES)
        content = text.encode("utf-8", "surrogatepass")
        if rng.random() < 0.1:
            content = changed_bytes(rng, content)
        path = folder / f"r{run}.eval{pick(rng, ['', '', '', '.gz'])}"
        path.write_bytes(_packed(rng, path, content))
    matrix = vcomp.ir.read_scores(folder, fill=pick(rng, [None, 0.0]))
    assert np.isfinite(matrix.to_frame().to_numpy()).any()
    if rng.random() < 0.05:
        vcomp.ir.expected_tau(matrix, 10)


# The command line --------------------------------------------------------------------------------

_ARGUMENTS = [
    "fit", "gstudy", "dstudy", "tau", "accuracy", "merge", "accumulate", "items", "simulate", "datasets", "--help",
    "--version", "-h", "y ~ (1|a)", "y ~ (1|a) + (1|b)", "DATA", "RESULT", "SUMS", "MATRIX", "nothing.csv", "--dataset", "docsearch",
    "--dstudy", "a=3", "a=1,2,x", "b=0", "b=-1", "a=2:5", "--method", "ml", "anova", "odd", "--design", "p x i", "a x b", "--response",
    "y", "--components", "p=.5 i=.2 pi=.1", "p=", "--cost", "5*i", "--budget", "100", "nan", "1e400", "--goal", "0.9", "--alpha", "2",
    "--topics", "10,20", "--stream", "--json", "OUT", "--out", "--facet", "p=a", "--cut", "0.5", "--statistics", "--seed", "--csv",
    "--interval", "mls", "--no-such", "=", "--layout",
]  # fmt: skip


def _arguments(rng: Rng, folder: Path) -> list[str]:
    made: dict[str, bytes] = {
        "DATA": _stored()[0].to_csv(index=False).encode(),
        "RESULT": json.dumps(_stored()[1][0]).encode(),
        "SUMS": _sums_file(0),
        "MATRIX": _stored()[0].pivot(index="b", columns="a", values="y").to_csv().encode(),
    }
    names = {
        "DATA": "d.csv",
        "RESULT": "r.json",
        "SUMS": "s.vcomp",
        "MATRIX": "m.csv",
        "OUT": "out.json",
    }
    begin = pick(
        rng,
        [
            ["fit", "y ~ (1|a) + (1|b)", "DATA"],
            ["gstudy", "DATA", "--design", "a x b", "--response", "y"],
            ["dstudy", "RESULT", "b=3"],
            ["dstudy", "--components", "p=.5 i=.2 pi=.1", "i=10"],
            ["merge", "SUMS", "SUMS", "--out", "OUT"],
            ["accumulate", "y ~ (1|a)", "DATA", "--out", "OUT"],
            ["tau", "MATRIX", "--topics", "10"],
            ["items", "MATRIX"],
            [pick(rng, _ARGUMENTS)],
        ],
    )
    arguments = list(begin)
    for _ in range(int(rng.integers(0, 4))):
        at, new = int(rng.integers(len(arguments) + 1)), pick(rng, [*_ARGUMENTS, pick(rng, ODD)])
        arguments.insert(at, new)
    if rng.random() < 0.2:
        at = int(rng.integers(len(arguments)))
        arguments[at] = changed_text(rng, arguments[at], _ARGUMENTS)
    for key, content in made.items():
        if key in arguments:
            (folder / names[key]).write_bytes(content)
    # No argument of a process holds a zero byte.
    return [str(folder / names[a]) if a in names else a.replace("\0", "") for a in arguments]


def command_lines(rng: Rng, folder: Path) -> None:
    """Run a command in this process: it ends with code 0 or 2 and prints no traceback."""
    from vcomp.cli.main import main

    arguments = _arguments(rng, folder)
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    code: Any = 0
    with mock.patch.multiple(sys, argv=["vcomp", *arguments], stdout=out, stderr=err):
        try:
            main()
        except SystemExit as error:
            code = error.code or 0
    assert code in (0, 2), (arguments, code)
    if code == 2:
        raise vcomp.PlanError("refused")


# Tables and fits ---------------------------------------------------------------------------------


def _odd_column(rng: Rng, values: np.ndarray) -> Any:
    """Return whole numbers as a column of any type, all of them distinguished."""
    return pick(
        rng,
        [
            lambda v: v,
            lambda v: v.astype("i1"),
            lambda v: v.astype("u2"),
            lambda v: v.astype("f4"),
            lambda v: [f"l{x}" for x in v],
            lambda v: pd.Categorical([f"l{x}" for x in v]),
            lambda v: pd.array(v, dtype="Int64"),
            lambda v: pd.array([f"l{x}" for x in v], dtype="string"),
            lambda v: pd.to_datetime(v * 10**9),
            lambda v: pd.to_timedelta(v, unit="D"),
            lambda v: pd.array([f"l{x}" for x in v], dtype="string[pyarrow]"),
            lambda v: np.array([f"l{x}" for x in v], dtype="S4"),
            lambda v: np.array([x if x else 1.5 for x in v], dtype=object),
            lambda v: pd.period_range("2020-01", periods=50, freq="M")[v],
            lambda v: [pd.Interval(x, x + 1) for x in v],
            lambda v: [(x, 1) for x in v],
            lambda v: [[x] for x in v],
            lambda v: v.astype("c16"),
            lambda v: v > 1,
        ],
    )(values)


def _odd_response(rng: Rng, y: np.ndarray) -> Any:
    return pick(
        rng,
        [
            lambda v: v,
            lambda v: v.astype("f4"),
            lambda v: v.astype("f2"),
            lambda v: v.astype("longdouble"),
            lambda v: np.round(v * 4).astype("i8"),
            lambda v: v > 0,
            lambda v: pd.array(v, dtype="Float64"),
            lambda v: [str(x) for x in v],
            lambda v: np.array(list(v), dtype=object),
            lambda v: v * 1e200,
            lambda v: v * 1e-200,
            lambda v: v + 1e9,
            lambda v: np.where(np.arange(v.size) % 5 == 0, np.nan, v),
            lambda v: np.where(np.arange(v.size) % 7 == 0, np.inf, v),
            lambda v: np.zeros_like(v),
            lambda v: v * 1e308 * 10,
            lambda v: v + 1j,
            lambda v: pd.to_datetime(np.round(v * 1e15).astype("i8")),
        ],
    )(y)


def _container(rng: Rng, columns: dict[str, Any]) -> Any:
    import polars
    import pyarrow as pa

    frame = pd.DataFrame(columns)
    return pick(
        rng,
        [
            lambda: frame,
            lambda: columns,
            lambda: frame.set_index("a", drop=False),
            lambda: frame[::-1],
            lambda: pa.table(frame),
            lambda: polars.DataFrame(frame),
            lambda: polars.DataFrame(frame).lazy(),
            lambda: [frame[:5], frame[5:]],
            lambda: pa.table(frame).to_reader(),
            lambda: frame.astype(object),
            lambda: frame.convert_dtypes(),
            lambda: pd.concat([frame, frame["a"]], axis=1),
            lambda: frame.to_records(index=False),
            lambda: frame.to_numpy(),
            lambda: frame["y"],
            lambda: frame[:0],
            lambda: None,
        ],
    )()


class ThirdParty(vcomp.VcompError):
    """The container itself could not be made of these columns."""


def tables(rng: Rng, folder: Path) -> None:
    """Fit a table of any type in any container; the same values as plain columns fit alike."""
    n = int(rng.integers(1, 40))
    a, b = rng.integers(0, 5, n), rng.integers(0, 4, n)
    y = rng.normal(size=5)[a] + rng.normal(size=n)
    columns = {"a": _odd_column(rng, a), "b": _odd_column(rng, b), "y": _odd_response(rng, y)}
    if rng.random() < 0.2:
        columns[pick(rng, [*ODD, "a b", "y:z", "Residual", "Intercept"])] = y
    try:
        data = _container(rng, columns)
    except Exception as error:
        raise ThirdParty(str(error)) from None
    formula = pick(
        rng, ["y ~ (1|a)", "y ~ (1|a) + (1|b)", "y ~ b + (1|a)", "y ~ (1|a:b)", "y ~ (1|a/b)"]
    )
    res = vcomp.fit(formula, data, stream=pick(rng, [None, None, None, True]))
    assert np.isfinite(res.vcomp.to_numpy()).all(), "a component that is not finite"
    plain = pd.DataFrame({"a": _codes(columns["a"]), "b": _codes(columns["b"]), "y": columns["y"]})
    # Without data the variables of this scope are fitted; dates are no numbers for pandas.
    is_alike = data is not None and plain["y"].dtype.kind != "M" and res.nobs == len(plain)
    if is_alike and "y ~ b" not in formula and not isinstance(columns["y"], list):
        other = vcomp.fit(formula, plain.assign(y=plain["y"].astype(float)))
        scale = float(other.vcomp.sum()) or 1.0
        assert np.allclose(res.vcomp, other.vcomp, rtol=1e-4, atol=1e-5 * scale), (
            "another fit of the same values"
        )


def _codes(column: Any) -> np.ndarray:
    return pd.factorize(pd.Series(list(column)).map(str))[0]


def fits(rng: Rng, folder: Path) -> None:
    """Fit a small random design by any method, and ask for what follows."""
    n = int(rng.integers(4, 60))
    sizes = [int(rng.integers(1 if rng.random() < 0.05 else 2, 9)) for _ in range(3)]
    frame = pd.DataFrame({f: rng.integers(0, k, n) for f, k in zip("abc", sizes, strict=True)})
    if rng.random() < 0.4:
        crossed = pd.MultiIndex.from_product([range(k) for k in sizes], names=list("abc"))
        frame = crossed.to_frame(index=False)[: max(n, 4)]
    frame["x"] = rng.normal(size=len(frame)) * pick(rng, [1.0, 0.0, 1e6])
    effects = sum(pick(rng, [0.0, 1.0, 30.0]) * rng.normal(size=9)[frame[f]] for f in "abc")
    noise = pick(rng, [1.0, 1.0, 0.0, 1e-7]) * rng.normal(size=len(frame))
    frame["y"] = (effects + noise) * pick(rng, [1.0, 1e-5, 1e7]) + pick(rng, [0.0, 1e6])
    if rng.random() < 0.2:
        frame["y"] = frame["y"].round()
    terms = rng.choice(
        ["a", "b", "c", "a:b", "a/b", "a*b", "b:c", "a:b:c"],
        size=int(rng.integers(1, 4)),
        replace=rng.random() < 0.05,
    )
    fixed = pick(rng, ["", "", "x + ", "0 + x + ", "C(c) + ", "x*C(b) + "])
    formula = f"y ~ {fixed}" + " + ".join(f"(1|{t})" for t in terms)
    method = pick(rng, ["reml", "reml", "ml", "anova", "type1", "henderson3", "minque"])
    engine = (
        {"engine": pick(rng, ["strata", "blocked", "iterative"])}
        if method in ("reml", "ml") and rng.random() < 0.2
        else {}
    )
    res = vcomp.fit(formula, frame, method=method, **engine)
    assert np.isfinite(res.vcomp.to_numpy()).all(), "a component that is not finite"
    _follow(rng, res, frame)


TESTS = ["auto", "auto", "f", "robust", "lrt", "simulated", "score"]
FEW_DRAWS = [1000, *[20] * 9]


def _follow(rng: Rng, res: Any, frame: pd.DataFrame) -> None:
    first = str(res.vcomp.index[0])
    name = pick(rng, [*res.vcomp.index])
    uses = [
        lambda: str(res.summary()),
        lambda: res.conf_int(
            interval=pick(rng, ["auto", "mls", "robust", "log", "wald", "f", "satterthwaite"])
        ),
        lambda: str(res.dstudy(**{pick(rng, ["a", "b", "c"]): [1, 5]})),
        lambda: res.dstudy(a=3, b=4, c=2).required(0.9),
        lambda: res.test(name, pick(rng, TESTS), n=pick(rng, FEW_DRAWS), rng=1),
        lambda: res.random_effects,
        lambda: res.predict(frame[:3]),
        lambda: res.predict(frame.assign(a=99)),
        lambda: res.bootstrap(5, rng=1).frame,
        lambda: type(res).from_json(res.to_json()).summary(),
        lambda: res.anova_table(),
        lambda: res.quantity(f"{first} / total"),
        lambda: res.fixed_effects(),
        lambda: res.profile(first),
        lambda: res.augment(),
        lambda: res.dstudy(a=3, b=4, c=2).optimize("a + 2*b:c", budget=50),
        lambda: res.jackknife("a"),
        lambda: res.simulate(2, rng=1),
    ]
    for _ in range(3):
        with contextlib.suppress(vcomp.VcompError):
            pick(rng, uses)()


READERS = (
    Fuzzer("formulas", formulas),
    Fuzzer("designs", designs),
    Fuzzer("costs", costs),
    Fuzzer("expressions", expressions),
    Fuzzer("json", json_results),
    Fuzzer("statistics", statistics),
    Fuzzer("replicates", replicates),
    Fuzzer("csv", csv_files),
    Fuzzer("parquet", parquet_files),
    Fuzzer("trec", trec_files),
    Fuzzer("command", command_lines),
    Fuzzer("tables", tables),
)
FITS = (Fuzzer("fits", fits),)
ALL = (*READERS, *FITS)
