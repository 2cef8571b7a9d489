"""Whether ``engine="auto"`` is the fastest engine: fits of some 60 shapes of data by all engines.

``python -m benchmarks engines [--limit SECONDS] [--json FILE]`` fits each shape by ``auto`` and by
every other engine, one process at a time, each with a limit of processor time and memory. An
engine that needs more than one and a half times as long as ``auto`` is stopped: it is no better
choice. The fits of a shape are stored as soon as they are measured (``engines.csv``), and are not
measured again; delete the file, or the lines of a shape, to repeat them.
``python -m benchmarks.bench_engines`` prints the table of ``docs/explanation/speed-and-size.md``
from the stored points.
"""

from __future__ import annotations

import csv
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import vcomp
from benchmarks.cliff_tasks import grid, unequal
from benchmarks.common import Report, Settings, attempt
from vcomp._typing import FloatArray

ENGINES = ("auto", "strata", "levels", "blocked", "iterative")
TWO = "score ~ (1|a) + (1|b)"
THREE = "score ~ (1|a) + (1|b) + (1|c)"
PAIRS = f"{THREE} + (1|a:b) + (1|a:c) + (1|b:c)"
FOUR = f"{THREE} + (1|d)"
FIVE = f"{FOUR} + (1|e)"
STORED = Path(__file__).with_name("engines.csv")
WITHIN = 4.0 / 3.0
"""How many times the fastest engine's time ``auto`` may take."""

SMALL_CHANGE = 0.03
"""Differences of fewer seconds are not counted: they are the fixed cost of a call."""

_MEMORY = 5 * 2**29
_CALLS, _REPEATED = 3, 1.0
"""How often a fit is timed that takes up to so many seconds."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Data of some size and pattern, and the formula that is fitted to them.

    Attributes
    ----------
    name : facets, size and pattern, as printed
    formula : with the facets a, b, c, …
    data : makes the frame
    """

    name: str
    formula: str
    data: Callable[[], pd.DataFrame]


@dataclass(frozen=True, slots=True)
class Point:
    """A fit by an engine.

    Attributes
    ----------
    shape, rows, engine : what was fitted
    seconds : of processor time; nan if there was no fit
    used : the engine of the result
    reason : why there is no fit, else empty
    """

    shape: str
    rows: int
    engine: str
    seconds: float
    used: str
    reason: str


def run(report: Report, settings: Settings) -> None:
    """Measure all points that are not stored; a quick run stores none, and takes small shapes."""
    report.section("engines, auto against the fastest")
    warm_up()
    stored = {} if settings.quick else read(STORED)
    for shape in shapes():
        points = stored.get(shape.name, [])
        if len(points) < len(ENGINES):
            frame = shape.data()
            if settings.quick and len(frame) > 2_000:
                continue
            points = list(measured(shape, frame, settings.limit))
            if not settings.quick:
                write(points)
        _report(report, shape, points)


def measured(shape: Shape, frame: pd.DataFrame, limit: float) -> Iterator[Point]:
    """Fit by each engine in turn; what takes longer than `auto` by half is stopped."""
    for engine in ENGINES:
        answer = attempt(partial(_fit, shape.formula, frame, engine), limit, _MEMORY)
        if isinstance(answer, str):
            yield Point(shape.name, len(frame), engine, np.nan, "", answer)
            continue
        seconds, used = answer
        if engine == "auto":
            calls = _CALLS if seconds <= _REPEATED else 1
            limit = min(limit, 1.5 * seconds * calls + 1.0)
        yield Point(shape.name, len(frame), engine, seconds, used, "")


def best(points: list[Point]) -> Point:
    """Return the fastest fit."""
    return min((p for p in points if not np.isnan(p.seconds)), key=lambda p: p.seconds)


def is_within(points: list[Point]) -> bool:
    """Whether `auto` takes at most a third longer than the fastest engine."""
    auto = next(p.seconds for p in points if p.engine == "auto")
    return bool(auto <= WITHIN * best(points).seconds + SMALL_CHANGE)


def read(path: Path) -> dict[str, list[Point]]:
    """Return the stored points of each shape."""
    found: dict[str, list[Point]] = {}
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                seconds, rows = float(row["seconds"]), int(row["rows"])
                point = Point(
                    row["shape"], rows, row["engine"], seconds, row["used"], row["reason"]
                )
                found.setdefault(point.shape, []).append(point)
    return found


def write(points: list[Point]) -> None:
    """Append the points of a shape to the stored ones."""
    new = not STORED.exists()
    with STORED.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(("shape", "rows", "engine", "seconds", "used", "reason"))
        writer.writerows(
            (p.shape, p.rows, p.engine, round(p.seconds, 4), p.used, p.reason) for p in points
        )


def table(stored: dict[str, list[Point]]) -> str:
    """Return the points as a table in Markdown."""
    lines = ["| data | rows | auto | " + " | ".join(ENGINES[1:]) + " |", "|---|" + "---|" * 6]
    for name, points in stored.items():
        by_engine = {p.engine: p for p in points}
        auto = by_engine["auto"]
        mark = "" if is_within(points) else " †"
        cells = [f"{_seconds(auto)} ({auto.used}){mark}"]
        cells += [_seconds(by_engine[engine]) for engine in ENGINES[1:]]
        lines.append(f"| {name} | {auto.rows:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _seconds(point: Point) -> str:
    if np.isnan(point.seconds):
        return "longer" if point.reason.startswith("not done") else "–"
    return f"{point.seconds:.3f}" if point.seconds < 0.1 else f"{point.seconds:.2g}"


def _report(report: Report, shape: Shape, points: list[Point]) -> None:
    auto = next(p for p in points if p.engine == "auto")
    name = f"{shape.name}, {auto.rows:,} rows"
    if np.isnan(auto.seconds):
        report.omit(name, auto.reason)
    else:
        fastest = best(points)
        peer = f"{fastest.engine}{'' if is_within(points) else ', NOT within a third'}"
        report(name, auto.seconds, peer, fastest.seconds)


def _fit(formula: str, frame: pd.DataFrame, engine: str) -> tuple[float, str]:
    """Return the least seconds of a fit, and the engine of its result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        least = np.inf
        for _ in range(_CALLS):
            start = time.process_time()
            res = vcomp.fit(formula, frame, engine=engine)
            seconds = time.process_time() - start
            least = min(least, seconds)
            if seconds > _REPEATED:
                break
    return least, res.engine.split(":")[0]


def warm_up() -> None:
    """Compile, or load, the kernels of all engines."""
    for shape in shapes():
        if shape.name.endswith(("1,000 rows, complete", "1,000 rows, 5 % missing", "small")):
            for engine in ENGINES:
                attempt_in_place(shape, engine)


def attempt_in_place(shape: Shape, engine: str) -> None:
    """Fit, whether or not the engine applies."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            vcomp.fit(shape.formula, shape.data(), engine=engine)
        except vcomp.VcompError:
            return


# Shapes ------------------------------------------------------------------------------------------


def shapes() -> list[Shape]:
    """Return the shapes, of two to five facets, by size and pattern of missing cells."""
    patterns = {
        "complete": (1.0, 0),
        "one hole": (1.0, 1),
        "100 holes": (1.0, 100),
        "1 % missing": (0.99, 0),
        "5 % missing": (0.95, 0),
        "20 % missing": (0.8, 0),
        "half missing": (0.5, 0),
    }
    made = [
        Shape(f"a + b, {n:,} rows, {pattern}", TWO, partial(grid, _square(n, rate), rate, holes=h))
        for n in (1_000, 10_000, 100_000, 1_000_000)
        for pattern, (rate, h) in patterns.items()
    ]
    made += [
        Shape(
            f"pairs of a, b, c, {n:,} rows, {pattern}",
            PAIRS,
            partial(grid, (20, max(round(n / rate / 60), 10), 3), rate, holes=h),
        )
        for n in (1_000, 10_000, 100_000)
        for pattern, (rate, h) in patterns.items()
        if pattern not in ("1 % missing", "20 % missing")
    ]
    made += [
        Shape(f"a + b, {n:,} rows, sparse", TWO, partial(random_rows, n, (n // 10, n // 10)))
        for n in (1_000, 10_000, 100_000)
    ]
    made += [
        Shape(f"a + b, {n:,} rows, power law", TWO, partial(_power_law, n))
        for n in (1_000, 10_000, 100_000)
    ]
    made += [
        Shape(
            "a + b + c, 30,000 rows, sparse", THREE, partial(random_rows, 30_000, (3_000, 300, 30))
        ),
        Shape(
            "a + b + c + b:c, 100,000 rows, sparse",
            f"{THREE} + (1|b:c)",
            partial(random_rows, 100_000, (5_000, 200, 50)),
        ),
        Shape(
            "a + b + c + a:b, 100,000 rows, sparse",
            f"{THREE} + (1|a:b)",
            partial(random_rows, 100_000, (5_000, 200, 50)),
        ),
        Shape("a + b + c, 5 % missing", THREE, partial(grid, (60, 50, 10), 0.95)),
        Shape("a + b + c, half missing", THREE, partial(grid, (300, 100, 5), 0.5)),
        Shape(
            "a + b + c + d, 2,000 rows, small", FOUR, partial(random_rows, 2_000, (40, 30, 10, 5))
        ),
        Shape(
            "a + b + c + d, 100,000 rows, sparse",
            FOUR,
            partial(random_rows, 100_000, (5_000, 500, 50, 5)),
        ),
        Shape("a + b + c + d, 5 % missing", FOUR, partial(grid, (20, 50, 10, 4), 0.95)),
        Shape("a + b + c + d, one hole", FOUR, partial(grid, (20, 50, 10, 4), 1.0, holes=1)),
        Shape(
            "a + b + c + d + e, 50,000 rows, sparse",
            FIVE,
            partial(random_rows, 50_000, (900, 300, 60, 20, 6)),
        ),
        Shape("a/b, 100,000 rows, unequal sizes", "score ~ (1|a/b)", partial(unequal, 100_000)),
    ]
    return made


def _square(n: int, rate: float) -> tuple[int, int]:
    side = max(round((n / rate) ** 0.5), 10)
    return side, side


def random_rows(n: int, sizes: tuple[int, ...]) -> pd.DataFrame:
    """Return scores of levels that meet at random."""
    rng = np.random.default_rng(6)
    return _scored(rng, [rng.integers(levels, size=n) for levels in sizes])


def _power_law(n: int) -> pd.DataFrame:
    """Return scores of levels some of which have most of the scores."""
    rng, levels = np.random.default_rng(7), max(n // 30, 20)
    weights = 1.0 / np.arange(1, levels + 1)
    weights /= weights.sum()
    return _scored(rng, [rng.choice(levels, size=n, p=weights) for _ in range(2)])


def _scored(rng: np.random.Generator, codes: list[NDArray[Any]]) -> pd.DataFrame:
    score: FloatArray = rng.normal(size=codes[0].size)
    for code in codes:
        score += rng.normal(size=int(code.max()) + 1)[code]
    return pd.DataFrame(dict(zip("abcde", codes, strict=False)) | {"score": score})


if __name__ == "__main__":
    print(table(read(STORED)))
