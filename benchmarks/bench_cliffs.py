"""How time and memory of public functions grow: sizes double, and fewer and fewer cells are there.

``python -m benchmarks cliffs`` prints for each function and pattern of missing cells the times of
doubled sizes, the exponent of time in rows, and the ratio to the complete table of as many
rows. A point is a process of its own, with kernels compiled. It names what grows faster than
rows to the power of 1.7, what is slower on fewer rows than on more, and what takes ten times
as long as the complete table. Where R has lme4, its fit of the smallest size is timed as well.
Times are seconds of processor time, also those of ``--limit``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import vcomp
from benchmarks.common import Report, Settings, attempt
from benchmarks.compare import fit_lme4
from benchmarks.measure import Used, used_by
from vcomp.estimators import MethodName

MAIN = "score ~ (1|a) + (1|b)"
_PAIRS = "score ~ (1|a) + (1|b) + (1|c) + (1|a:b) + (1|a:c) + (1|b:c)"
_STEEP, _NOISE, _FAR = 1.7, 1.4, 10.0
_ENOUGH = 0.02
"""Times below this many seconds say nothing about growth."""

Rows = Callable[[int], pd.DataFrame]


@dataclass(frozen=True, slots=True)
class Task:
    """A public call on tables of growing size.

    Attributes
    ----------
    name : as printed
    call : of a frame
    patterns : of missing cells, by name
    first : number of rows, about, that is doubled
    """

    name: str
    call: Callable[[pd.DataFrame], Any]
    patterns: dict[str, Rows]
    first: int = 4_000


def run(report: Report, settings: Settings) -> None:
    """Measure all tasks; sizes double until a call takes a third of the limit."""
    doublings = 2 if settings.quick else 7
    flags: list[str] = []
    for task in _tasks():
        report.section(f"cliffs, {task.name}")
        complete: dict[int, float] = {}
        for pattern, rows in task.patterns.items():
            found = _grown(task, rows, doublings, settings.limit)
            complete = complete or dict(found)
            flags += _printed(f"{task.name}, {pattern}", found, complete)
    _beside_lme4(report, settings)
    print("\n" + ("\n".join(flags) if flags else "no cliffs"))


def _grown(task: Task, rows: Rows, doublings: int, limit: float) -> list[tuple[int, float]]:
    """Return numbers of rows and seconds; the memory is printed."""
    found: list[tuple[int, float]] = []
    for step in range(doublings):
        frame = rows(task.first * 2**step)
        answer = attempt(partial(_used, task, frame), limit)
        if isinstance(answer, str):
            print(f"  {len(frame):>10,} rows: {answer}", flush=True)
            break
        print(f"  {len(frame):>10,} rows: {answer.cpu:8.3f} s, {answer.peak / 2**20:7.0f} MiB")
        found.append((len(frame), answer.cpu))
        if answer.cpu > limit / 3.0:
            break
    return found


def _used(task: Task, frame: pd.DataFrame) -> Used:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        task.call(frame)
        return used_by(lambda: task.call(frame), 2)


def _printed(name: str, found: list[tuple[int, float]], complete: dict[int, float]) -> list[str]:
    """Print exponent and ratio, and return what is remarkable about them."""
    flags = []
    if len(found) < 2:
        return [f"{name}: one size only"] if found else [f"{name}: not done at the first size"]
    n, seconds = (np.array(column, dtype=float) for column in zip(*found, strict=True))
    enough = seconds >= _ENOUGH
    slope = np.nan
    if enough.sum() > 1:
        slope = float(np.polyfit(np.log(n[enough]), np.log(seconds[enough]), 1)[0])
        if slope > _STEEP:
            flags.append(f"{name}: rows to the power of {slope:.2f}")
    later = np.minimum.accumulate(seconds[::-1])[::-1]
    if (seconds > _NOISE * later).any():
        flags.append(f"{name}: faster on more rows")
    known = np.array(sorted(complete))
    nearest = [complete[int(known[np.abs(known - rows).argmin()])] for rows in n]
    ratio = float((seconds / np.maximum(nearest, _ENOUGH)).max())
    if ratio > _FAR:
        flags.append(f"{name}: {ratio:.0f} times the complete table")
    print(f"{name}: rows^{slope:.2f}, at most {ratio:.1f} times the complete table", flush=True)
    return flags


def _beside_lme4(report: Report, settings: Settings) -> None:
    report.section("cliffs, beside lme4")
    for name, formula, frame in (
        ("a × b, one cell in ten missing", MAIN, grid((60, 100), 0.9)),
        ("a × b × c, half of the cells", _PAIRS, grid((12, 60, 5), 0.5)),
    ):
        peer = fit_lme4(formula, frame, reml=True, limit=settings.limit)
        if isinstance(peer, str):
            report.omit(name, peer)
        else:
            seconds = used_by(partial(vcomp.fit, formula, frame), 3).cpu
            report(name, seconds, "lme4::lmer", peer.cpu)


# Tables ------------------------------------------------------------------------------------------


def grid(sizes: tuple[int, ...], rate: float, *, holes: int = 0) -> pd.DataFrame:
    """Return scores of a share of the cells of a grid, with all effects but the last."""
    rng, size = np.random.default_rng(5), int(np.prod(sizes))
    kept = np.ones(size, dtype=bool) if rate >= 1.0 else rng.random(size) < rate
    kept[rng.choice(size, holes, replace=False)] = False
    codes = np.unravel_index(np.flatnonzero(kept), sizes)
    score = rng.normal(size=codes[0].size)
    for code, levels in zip(codes, sizes, strict=True):
        score += rng.normal(size=levels)[code]
    if len(sizes) > 2:
        for i, j in ((0, 1), (0, 2), (1, 2)):
            score += 0.5 * rng.normal(size=(sizes[i], sizes[j]))[codes[i], codes[j]]
    names = "abcd"[: len(sizes)]
    return pd.DataFrame(dict(zip(names, codes, strict=True)) | {"score": score})


def _two(rate: float, holes: int = 0) -> Rows:
    def made(n: int) -> pd.DataFrame:
        side = max(int((n / rate) ** 0.5), 10)
        return grid((side, side), rate, holes=holes)

    return made


def _three(rate: float, holes: int = 0) -> Rows:
    return lambda n: grid((20, max(int(n / rate / 60), 10), 3), rate, holes=holes)


def _sparse(n: int) -> pd.DataFrame:
    rng, levels = np.random.default_rng(6), max(n // 10, 5)
    a, b = rng.integers(levels, size=(2, n))
    score = rng.normal(size=levels)[a] + rng.normal(size=levels)[b] + rng.normal(size=n)
    return pd.DataFrame({"a": a, "b": b, "score": score})


def unequal(n: int) -> pd.DataFrame:
    """Return scores of pupils of several classes a school; classes differ in size."""
    rng = np.random.default_rng(7)
    b = np.sort(rng.integers(n // 10, size=n))
    a = b // 8
    score = rng.normal(size=a.max() + 1)[a] + rng.normal(size=b.max() + 1)[b] + rng.normal(size=n)
    return pd.DataFrame({"a": a, "b": b, "x": rng.normal(size=n), "score": score})


_TWO: dict[str, Rows] = {
    "complete": _two(1.0),
    "one hole": _two(1.0, 1),
    "100 holes": _two(1.0, 100),
    "5 % missing": _two(0.95),
    "half missing": _two(0.5),
    "sparse": _sparse,
}
_THREE: dict[str, Rows] = {
    "complete": _three(1.0),
    "one hole": _three(1.0, 1),
    "2 % missing": _three(0.98),
    "half missing": _three(0.5),
}
_FEW = {name: _TWO[name] for name in ("complete", "5 % missing", "half missing")}
_SYSTEMS: dict[str, Rows] = {
    "50 topics": lambda n: grid((50, n // 50), 1.0),
    "50 topics, 5 % missing": lambda n: grid((50, n // 50), 0.95),
}
_ALL_SCORES = {"50 topics": _SYSTEMS["50 topics"]}
_PERSONS: dict[str, Rows] = {
    "complete": lambda n: grid((n // 100, 100), 1.0),
    "5 % missing": lambda n: grid((n // 100, 100), 0.95),
    "half missing": lambda n: grid((n // 50, 100), 0.5),
}
_NESTED: dict[str, Rows] = {"nested, unequal sizes": unequal}


def _matrix(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.pivot(index="a", columns="b", values="score")


def _simulated(frame: pd.DataFrame) -> None:
    components = vcomp.from_components({"a": 1.0, "b": 0.5, "Residual": 1.0})
    vcomp.simulate.simulate_effects(components, a=50, b=len(frame) // 50)


def _fit_by(method: MethodName, frame: pd.DataFrame) -> vcomp.VarianceComponentsResults:
    return vcomp.fit(MAIN, frame, method=method)


def _persons(rate: float, holes: int = 0) -> Rows:
    """Return four correlated variables of persons and 20 items."""

    def made(n: int) -> pd.DataFrame:
        frame = grid((max(int(n / rate / 20), 10), 20), rate, holes=holes)
        noise = np.random.default_rng(8).normal(size=(4, len(frame)))
        return frame.assign(
            **{name: frame["score"] + e for name, e in zip("wxyz", noise, strict=True)}
        )

    return made


_SEVERAL: dict[str, Rows] = {
    "complete": _persons(1.0),
    "one hole": _persons(1.0, 1),
    "5 % missing": _persons(0.95),
    "half missing": _persons(0.5),
}


def _several(frame: pd.DataFrame) -> Any:
    return vcomp.fit_multivariate("w + x + y + z ~ (1|a) + (1|b)", frame)


def _tasks() -> list[Task]:
    fit = vcomp.fit
    return [
        Task("fit, a + b", lambda d: fit(MAIN, d), _TWO),
        Task("fit, pairs of a, b, c", lambda d: fit(_PAIRS, d), _THREE),
        Task("fit, nested", lambda d: fit("score ~ x + (1|a/b)", d), _NESTED),
        Task("summary", lambda d: str(fit(MAIN, d).summary()), _TWO),
        Task("gstudy, a x b x c", lambda d: vcomp.gstudy(d, "a x b x c", "score"), _THREE),
        Task("predict", lambda d: fit(MAIN, d).predict(), _TWO),
        Task("random_effects", lambda d: fit(MAIN, d).random_effects, _TWO),
        Task("reliability", lambda d: vcomp.reliability(_matrix(d)), _PERSONS),
        Task("icc", lambda d: vcomp.icc(_matrix(d)), _PERSONS),
        Task("item_analysis", lambda d: vcomp.item_analysis(_matrix(d)), _PERSONS),
        Task("accuracy", lambda d: vcomp.ir.accuracy(_matrix(d)), _SYSTEMS),
        Task("swap_rates", lambda d: vcomp.ir.swap_rates(_matrix(d), trials=10), _ALL_SCORES),
        Task("simulate_effects", _simulated, _ALL_SCORES),
        *(
            Task(method, partial(_fit_by, method), _TWO, 2_000)
            for method in ("anova", "type1", "henderson3", "minque")
        ),
        Task("test", lambda d: fit(MAIN, d).test("a"), _TWO | _NESTED, 1_000),
        Task("jackknife", lambda d: fit(MAIN, d).jackknife("a", progress=False), _TWO, 1_000),
        Task(
            "bootstrap, 20",
            lambda d: fit(MAIN, d).bootstrap(20, rng=1, progress=False),
            _TWO,
            1_000,
        ),
        Task("profile", lambda d: fit(MAIN, d).profile(), _TWO, 1_000),
        Task("crosscheck", lambda d: fit(MAIN, d).crosscheck(), _FEW | _NESTED, 1_000),
        Task("expected_tau", lambda d: fit(MAIN, d).expected_tau(b=50), _FEW),
        Task("to_json", lambda d: fit(MAIN, d).to_json(), _TWO),
        Task("accumulate", lambda d: vcomp.accumulate(MAIN, d).fit(), _TWO),
        Task("fit_multivariate", _several, _SEVERAL),
        Task("factor of many levels", lambda d: fit("score ~ C(b) + (1|a)", d), _NESTED, 1_000),
    ]
