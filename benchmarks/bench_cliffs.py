"""How time and memory of public functions grow: sizes double, and fewer and fewer cells are there.

``python -m benchmarks cliffs [--limit SECONDS]`` measures each call of
``benchmarks/cliff_tasks.py`` on tables of doubled sizes, by pattern of missing cells. A point is a
process of its own with a limit of processor time and memory, with kernels compiled; sizes end
where a point takes a third of its limit, a tenth of ``--limit``. Points are stored as soon as they
are measured (``cliffs.csv``), and are not measured again; delete the file, or the lines of a call,
to repeat them. A quick run stores none.

It prints the exponents of time in rows, and ratios to the complete table of as many rows, and
names what grows faster than rows to the power of 1.7, what is slower on fewer rows than on more,
and what takes ten times as long as the complete table. Where R has lme4, its fit of the smallest
size is timed as well. ``python -m benchmarks.bench_cliffs`` prints the table of
``docs/explanation/speed-and-size.md`` from the stored points. Times are seconds of processor time.
"""

from __future__ import annotations

import csv
import tempfile
import warnings
from dataclasses import astuple, dataclass, fields
from functools import partial
from pathlib import Path

import numpy as np

import vcomp
from benchmarks.cliff_tasks import MAIN, PAIRS, Task, grid, tasks
from benchmarks.common import Report, Settings, attempt
from benchmarks.compare import fit_lme4
from benchmarks.measure import Used, used_by

STORED = Path(__file__).with_name("cliffs.csv")
_STEEP, _NOISE, _FAR = 1.7, 1.4, 10.0
_ENOUGH = 0.05
"""Times below this many seconds say nothing about growth."""

_DOUBLINGS, _SHARE = 7, 0.1
_MEMORY = 5 * 2**29
_CALLS, _REPEATED = 3, 0.5
"""How often a call is timed that takes up to so many seconds; others are timed twice, as the first
call may load kernels and modules."""


@dataclass(frozen=True, slots=True)
class Point:
    """A call on a table.

    Attributes
    ----------
    task, pattern, size, rows : what was called; rows are about as many as size
    seconds, peak : processor time, and MiB above the data; nan if the call did not end
    reason : why it did not, else empty
    """

    task: str
    pattern: str
    size: int
    rows: int
    seconds: float
    peak: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """The points of a call and pattern, by size.

    Attributes
    ----------
    points : that ended
    slope : exponent of time in rows, nan if too little time was measured
    ratio : largest ratio to the complete table of as many rows
    """

    points: list[Point]
    slope: float
    ratio: float

    @classmethod
    def of(cls, points: list[Point], complete: list[Point]) -> Series:
        """Return the series beside that of complete tables."""
        ended = [p for p in points if not p.reason]
        n = np.array([p.rows for p in ended], dtype=float)
        seconds = np.array([p.seconds for p in ended])
        enough, slope = seconds >= _ENOUGH, np.nan
        if enough.sum() > 1:
            slope = float(np.polyfit(np.log(n[enough]), np.log(seconds[enough]), 1)[0])
        ratios = [
            p.seconds / max(c.seconds, _ENOUGH)
            for p in ended
            for c in complete
            if c.size == p.size and not c.reason
        ]
        return cls(ended, slope, max(ratios, default=np.nan))

    @property
    def seconds_a_row(self) -> float:
        """Seconds divided by rows, at the largest size."""
        return self.points[-1].seconds / self.points[-1].rows if self.points else 0.0

    @property
    def flags(self) -> list[str]:
        """What is remarkable."""
        if len(self.points) < 2:
            return ["one size only" if self.points else "not done at the first size"]
        seconds = np.array([p.seconds for p in self.points])
        later = np.minimum.accumulate(seconds[::-1])[::-1]
        found = []
        if self.slope > _STEEP:
            found.append(f"rows to the power of {self.slope:.2f}")
        if (seconds > np.maximum(_NOISE * later, later + _ENOUGH)).any():
            found.append("faster on more rows")
        if self.ratio > _FAR:
            found.append(f"{self.ratio:.0f} times the complete table")
        return found


def run(report: Report, settings: Settings) -> None:
    """Measure all points that are not stored, and print what they show."""
    stored = {} if settings.quick else read(STORED)
    report.section("cliffs")
    flags: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        for task in tasks():
            complete: list[Point] = []
            for pattern in task.patterns:
                points = stored.get((task.name, pattern), [])
                _measure(task, pattern, points, settings)
                complete = complete or points
                series = Series.of(points, complete)
                name = f"{task.name}, {pattern}"
                print(f"{name}: rows^{series.slope:.2f}, × complete {series.ratio:.1f}")
                flags += [f"{name}: {flag}" for flag in series.flags]
        tempfile.tempdir = None
    _beside_lme4(report, settings)
    print("\n" + ("\n".join(flags) if flags else "no cliffs"))


def _measure(task: Task, pattern: str, points: list[Point], settings: Settings) -> None:
    """Add the points that are missing, up to the first that takes a third of the limit."""
    limit = _SHARE * settings.limit
    for step in range(len(points), 2 if settings.quick else _DOUBLINGS):
        if points and (points[-1].reason or points[-1].seconds > limit / 3.0):
            return
        size = task.first * 2**step
        answer = attempt(partial(_point, task, pattern, size), limit, _MEMORY)
        if isinstance(answer, str):
            answer = Point(task.name, pattern, size, 0, np.nan, np.nan, answer)
        points.append(answer)
        print(f"  {answer.rows:>10,} rows: {answer.seconds:8.3f} s, {answer.peak:7.0f} MiB "
              f"{answer.reason}", flush=True)  # fmt: skip
        if not settings.quick:
            _append(answer)


def _point(task: Task, pattern: str, size: int) -> Point:
    """Call on a table of a size: once for the kernels, and where it is short up to three times."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = task.patterns[pattern](size)
        used: list[Used] = []
        for _ in range(_CALLS):
            prepared = task.prepare(table)
            used.append(used_by(partial(task.call, prepared), 1))
            if len(used) > 1 and used[-1].cpu > _REPEATED:
                break
    rows = len(table) if hasattr(table, "__len__") else len(table.judgements)
    seconds = min(one.cpu for one in used)
    peak = max(one.peak for one in used) / 2**20
    return Point(task.name, pattern, size, rows, round(seconds, 4), round(peak, 1))


def read(path: Path) -> dict[tuple[str, str], list[Point]]:
    """Return the stored points of each call and pattern."""
    found: dict[tuple[str, str], list[Point]] = {}
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                point = Point(
                    row["task"],
                    row["pattern"],
                    int(row["size"]),
                    int(row["rows"]),
                    float(row["seconds"]),
                    float(row["peak"]),
                    row["reason"],
                )
                found.setdefault((point.task, point.pattern), []).append(point)
    return found


def _append(point: Point) -> None:
    new = not STORED.exists()
    with STORED.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow([field.name for field in fields(Point)])
        writer.writerow(astuple(point))


def _beside_lme4(report: Report, settings: Settings) -> None:
    report.section("cliffs, beside lme4")
    for name, formula, frame in (
        ("a × b, one cell in ten missing", MAIN, grid((60, 100), 0.9)),
        ("a × b × c, half of the cells", PAIRS, grid((12, 60, 5), 0.5)),
    ):
        peer = fit_lme4(formula, frame, reml=True, limit=settings.limit)
        if isinstance(peer, str):
            report.omit(name, peer)
        else:
            seconds = used_by(partial(vcomp.fit, formula, frame), 3).cpu
            report(name, seconds, "lme4::lmer", peer.cpu)


_WORTH_A_ROW = 0.3
"""Seconds at any size from which a call has a row in the table of the site."""


def table(stored: dict[tuple[str, str], list[Point]]) -> str:
    """Return slow calls, each by its slowest pattern, as a table in Markdown; and the others."""
    lines = [
        "| call | data | rows | seconds | exponent | × complete | MiB |",
        "|---|" + "---|" * 6,
    ]
    quick: list[str] = []
    for task in dict.fromkeys(task for task, _ in stored):
        by_pattern = {p: points for (name, p), points in stored.items() if name == task}
        complete = next(iter(by_pattern.values()))
        series = {p: Series.of(points, complete) for p, points in by_pattern.items()}
        pattern, slowest = max(series.items(), key=lambda pair: pair[1].seconds_a_row)
        seconds = [q.seconds for s in series.values() for q in s.points]
        if seconds and max(seconds) < _WORTH_A_ROW:
            quick.append(f"`{task}`")
        else:
            function, _, rest = task.partition(", ")
            data = f"{rest}, {pattern}" if rest else pattern
            lines.append(f"| `{function}` | {data} | {_row(slowest)} |")
    return "\n".join(lines) + f"\n\nFaster at all sizes: {', '.join(quick)}."


def _row(series: Series) -> str:
    if not series.points:
        return "| longer | | |"
    last = series.points[-1]
    slope = "" if np.isnan(series.slope) else f"{series.slope:.1f}"
    ratio = "" if np.isnan(series.ratio) else f"{series.ratio:.0f}"
    return f"{last.rows:,} | {last.seconds:.2g} | {slope} | {ratio} | {last.peak:.0f}"


if __name__ == "__main__":
    print(table(read(STORED)))
