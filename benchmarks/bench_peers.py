"""Large crossed facets beside GPBoost, each fit in a process of its own on the same data.

``python -m benchmarks peers --gpboost ENVIRONMENT/bin/python --rows 40_000_000`` fits two facets
that meet at random with ten rows a level and five covariates, ratings with a power law, InstEval,
and pupils in classes in schools; ``--data NAME`` one of them. GPBoost, interlace-lme and
statsmodels are installed in an environment that the user names; without one their fits are
omitted. A fit is ended after four times ``--limit``, and not tried with more rows of such data.
Fits are stored in ``peers.csv`` as soon as all of their data are measured, and are not measured
again; delete the file, or some of its lines, to measure them once more. The table is on the page
``docs/explanation/how-it-scales.md``, and ``tests/benchmarks/test_peers.py`` compares the two.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.common import Report, Settings
from benchmarks.movielens import SIZES, simulate
from vcomp import VarianceComponentsModel
from vcomp._typing import FloatArray
from vcomp.estimators.likelihood import choose_engine

STORED = Path(__file__).with_name("peers.csv")
FIELDS = ("data", "rows", "program", "engine", "wall", "cpu", "gib", "below", "errors", "share")
PROGRAMS = (
    *("vcomp REML", "vcomp ML", "GPBoost iterative", "GPBoost cholesky"),
    *("interlace REML", "mixedlm REML"),
)
THREADS = "2"
MEMORY = 8 * 2**30
"""Largest memory of a fit; one with more is ended."""

_COVARIATES = 5
_QUICK = 20_000
"""Most rows of a quick run."""

Data = dict[str, Any]


def crossed(m: int, share: int) -> Data:
    """Return 10 m rows of m levels by m/share that meet at random."""
    rng, n = np.random.default_rng(m), 10 * m
    groups = np.column_stack([rng.integers(0, q, n) for q in (m, m // share)])
    X = rng.normal(size=(n, _COVARIATES))
    effects = [sd * rng.normal(size=m) for sd in (0.7, 0.5)]
    y = X @ np.linspace(0.1, 0.5, _COVARIATES) + rng.normal(size=n)
    y += effects[0][groups[:, 0]] + effects[1][groups[:, 1]]
    return {"y": y, "groups": groups, "X": X}


def ratings(size: str) -> Data:
    """Return ratings whose users and films follow a power law."""
    found = simulate(*SIZES[size])
    groups = np.column_stack([found.users, found.films])
    return {"y": found.y, "groups": groups, "X": np.zeros((found.y.size, 0))}


def insteval() -> Data:
    """Return InstEval with a column for service; the interaction is a third factor."""
    folder = Path(os.environ["VCOMP_REFERENCE"])
    frame = pd.read_csv(folder.parent / "data" / "InstEval.csv")
    pair = frame.groupby(["dept", "service"]).ngroup()
    groups = np.column_stack([frame["s"], frame["d"], pair])
    return {"y": frame["y"].to_numpy(float), "groups": groups, "X": frame[["service"]].to_numpy()}


def insteval_with_covariates() -> Data:
    """Return InstEval with students, lecturers, departments; service and both ages are fixed."""
    frame = pd.read_csv(Path(os.environ["VCOMP_REFERENCE"]).parent / "data" / "InstEval.csv")
    ages = pd.get_dummies(frame[["studage", "lectage"]].astype(str), drop_first=True, dtype=float)
    X = np.column_stack([frame["service"], ages])
    groups = np.column_stack([pd.factorize(frame[name])[0] for name in ("s", "d", "dept")])
    return {"y": frame["y"].to_numpy(float), "groups": groups, "X": X}


def pupils(schools: int) -> Data:
    """Return three scores of each of 25 pupils in four classes of each school."""
    rng = np.random.default_rng(schools)
    pupil = np.repeat(np.arange(100 * schools), 3)
    groups = np.column_stack([pupil // 100, pupil // 25, pupil])
    X = rng.normal(size=(pupil.size, 1))
    y = 0.3 * X[:, 0] + rng.normal(size=pupil.size)
    for sd, codes in zip((0.3, 0.4, 0.7), groups.T, strict=True):
        y += sd * rng.normal(size=codes[-1] + 1)[codes]
    return {"y": y, "groups": groups, "X": X}


def _tasks(quick: bool) -> Iterator[tuple[str, int, Callable[[], Data]]]:
    for m in (1_000, 10_000, 100_000, 1_000_000):
        for share in (1, 4):
            yield f"{m:,} × {m // share:,}", 10 * m, partial(crossed, m, share)
    for size in ("1e5", "1e6", "1e7", "32m"):
        n, users, films = SIZES[size]
        yield f"ratings, {users:,} × {films:,}", n, partial(ratings, size)
    if "VCOMP_REFERENCE" in os.environ and not quick:
        yield "InstEval", 73_421, insteval
        yield "InstEval, nine covariates", 73_421, insteval_with_covariates
    for schools in (30, 300, 3_000, 30_000):
        yield f"pupils, {schools:,} schools", 300 * schools, partial(pupils, schools)


def _kind(name: str) -> str:
    """Return the kind of data: where a program does not end, it is not tried with more rows."""
    return "crossed" if name[0].isdigit() else name.split(",")[0]


def run(report: Report, settings: Settings) -> None:
    """Measure what is not stored, within the time and the rows that the settings allow."""
    report.section(f"peers, {THREADS} threads: processor seconds")
    stored = [] if settings.quick else read()
    for name, rows, made in _tasks(settings.quick):
        if settings.data and name not in settings.data:
            continue
        most = _QUICK if settings.quick else settings.most_rows
        if rows > most:
            report.omit(name, f"more than {most:,} rows (--rows)")
            continue
        have = {line["program"] for line in stored if line["data"] == name}
        alike = [x for x in stored if _kind(x["data"]) == _kind(name)]
        late = {x["program"] for x in alike if not x["wall"] and int(x["rows"]) <= rows}
        wanted = [p for p in PROGRAMS if p not in have | late]
        if settings.gpboost is None:
            wanted = [p for p in wanted if p.startswith("vcomp")]
            report.omit(name, "no --gpboost; other programs are not fitted")
        if wanted:
            lines = _measured(name, rows, made(), wanted, settings)
            stored += lines
            if not settings.quick:
                write(stored)
        of_data = {x["program"]: x for x in stored if x["data"] == name}
        for peer in PROGRAMS[2:]:
            if peer in of_data and of_data[peer]["cpu"]:
                ours, theirs = of_data["vcomp REML"], of_data[peer]
                report(f"{name}, {rows:,} rows", float(ours["cpu"]), peer, float(theirs["cpu"]))


def _measured(
    name: str, rows: int, data: Data, programs: list[str], settings: Settings
) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data.npz")
        np.savez(path, **data)
        found = {program: _fit(program, path, settings) for program in programs}
        for program, one in found.items():
            print(
                f"  {name}, {program}: {one if isinstance(one, str) else one['cpu']}", flush=True
            )
    points = [f["components"] for f in found.values() if isinstance(f, dict)]
    values = iter(_loglikes(data, points))
    for program, one in found.items():
        line: dict[str, Any] = dict.fromkeys(FIELDS, "")
        line |= {"data": name, "rows": rows, "program": program}
        if isinstance(one, str):
            line["engine"] = one
        else:
            line |= {k: f"{one[k]:.3g}" for k in ("wall", "cpu", "gib")}
            line |= {"engine": one["engine"], "below": next(values)}
            line["errors"] = "yes" if one["errors"] else "no"
            share = one["monte_carlo"]
            line["share"] = "" if math.isnan(share) else f"{share:.1g}"
        lines.append(line)
    best = max((x["below"] for x in lines if x["below"] != ""), default=0.0)
    for line in lines:
        if line["below"] != "":
            line["below"] = f"{best - line['below']:.2g}"
    return lines


def _fit(program: str, path: Path, settings: Settings) -> dict[str, Any] | str:
    python = sys.executable if program.startswith("vcomp") else str(settings.gpboost)
    script = Path(__file__).with_name("peer_fit.py")
    environment = os.environ | {"OMP_NUM_THREADS": THREADS}
    try:
        done = subprocess.run(
            [python, str(script), program, str(path)],
            capture_output=True,
            text=True,
            check=True,
            timeout=settings.limit * 4.0,
            preexec_fn=_limited,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return f"more than {settings.limit * 4.0:.0f} s"
    except subprocess.CalledProcessError as error:
        if error.returncode < 0 or re.search("MemoryError|bad_alloc|allocate", error.stderr):
            return f"more than {MEMORY / 2**30:.0f} GiB"
        return (error.stderr.strip().splitlines() or ["ended"])[-1][:60]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def _loglikes(data: Data, points: list[list[float]]) -> list[float]:
    """Return the ML log-likelihood at each point, by one engine with the same probes."""
    groups, X = data["groups"], data["X"]
    columns = {"y": data["y"]} | {f"g{j}": groups[:, j] for j in range(groups.shape[1])}
    columns |= {f"x{j}": X[:, j] for j in range(X.shape[1])}
    terms = [f"x{j}" for j in range(X.shape[1])]
    terms += [f"(1|g{j})" for j in range(groups.shape[1])]
    model = VarianceComponentsModel("y ~ " + " + ".join(terms), pd.DataFrame(columns))
    engine = choose_engine(model.statistics, reml=False)
    values: list[FloatArray] = [np.array(point) for point in points]
    return [engine.loglike(v) for v in values]


def read() -> list[dict[str, Any]]:
    """Return the stored lines."""
    if not STORED.exists():
        return []
    with STORED.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(lines: list[dict[str, Any]]) -> None:
    """Store lines."""
    with STORED.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def table() -> str:
    """Return the stored lines as a table of the page."""
    lines = ["| data | rows | program | processor | GiB | below | SE | share |"]
    lines.append("|---" * 8 + "|")
    for x in read():
        shown = (x["cpu"] or x["engine"], *(x[k] or "–" for k in ("gib", *FIELDS[-3:])))
        lines.append(
            f"| {x['data']} | {int(x['rows']):,} | {x['program']} | {' | '.join(shown)} |"
        )
    return "\n".join(lines)
