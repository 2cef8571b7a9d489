"""Times just below and just above the sizes at which another engine or method is chosen.

``python -m benchmarks switches`` finds, by bisection, the sizes at which what a call uses changes:
from the choice alone, without a fit. Then it times the call on a slightly smaller and a slightly
larger table, and names the switches where the smaller one takes more than three times as long.
Times are seconds of processor time, the least of some calls.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import pandas as pd

import vcomp
from benchmarks.bench_engines import FOUR, PAIRS, THREE, TWO, random_rows
from benchmarks.cliff_tasks import grid
from benchmarks.common import Report, Settings, attempt
from benchmarks.measure import used_by
from vcomp.estimators.likelihood import choose_engine

_FACTOR = 3.0
"""Ratio of times above which a switch is named."""

_STEP, _BESIDE = 1.02, 1.03
"""Ratio of sizes at which the bisection ends, and of the timed sizes to the switch."""

_CALLS, _REPEATED = 3, 0.5
"""Largest number of calls, and seconds of one from which it is the last."""

_SIZES = (250, 1_000, 4_000, 16_000, 64_000, 256_000)
_FEWER = _SIZES[:4]
"""Those of designs whose cost grows fast."""

_MEMORY = 2**33
"""Bytes that a fit may use."""


@dataclass(frozen=True, slots=True)
class Family:
    """Tables of growing size.

    Attributes
    ----------
    name : of the pattern
    formula : that is fitted
    made : makes a table of about so many rows
    sizes : numbers of rows between which switches are searched
    """

    name: str
    formula: str
    made: Callable[[int], pd.DataFrame]
    sizes: tuple[int, ...] = _SIZES


def families() -> list[Family]:
    """Return the families: of two to four facets, by pattern of cells."""
    made = [
        Family(f"a + b, {per} rows a level", TWO, partial(_levels, (per, per)))
        for per in (3, 10, 30, 100)
    ]
    made += [
        Family("a + b, many a", TWO, partial(_levels, (5, 100))),
        Family("a + b + c, sparse", THREE, partial(_levels, (10, 100, 1000))),
        Family("a + b + c, sparser", THREE, partial(_levels, (5, 10, 20))),
        Family("a + b + c + d, sparse", FOUR, partial(_levels, (10, 20, 200, 2000))),
        Family("C(b) + a", "score ~ C(b) + (1|a)", partial(_levels, (10, 10)), _FEWER),
        Family(
            "C(b) + a + c", "score ~ C(b) + (1|a) + (1|c)", partial(_levels, (20, 50, 100)), _FEWER
        ),
    ]
    for rate in (0.95, 0.5, 0.1):
        made += [
            Family(f"a + b, {rate:.0%} filled", TWO, partial(_square, rate)),
            Family(f"pairs of a, b, c, {rate:.0%} filled", PAIRS, partial(_long, rate)),
            Family(f"a + b + c, cube, {rate:.0%} filled", THREE, partial(_cube, rate)),
        ]
    return made


def _levels(per_level: tuple[int, ...], n: int) -> pd.DataFrame:
    return random_rows(n, tuple(max(n // per, 5) for per in per_level))


def _square(rate: float, n: int) -> pd.DataFrame:
    side = max(round((n / rate) ** 0.5), 5)
    return grid((side, side), rate)


def _long(rate: float, n: int) -> pd.DataFrame:
    return grid((20, max(round(n / rate / 60), 5), 3), rate)


def _cube(rate: float, n: int) -> pd.DataFrame:
    side = max(round((n / rate) ** (1 / 3)), 4)
    return grid((side, side, side), rate)


def chosen(family: Family, n: int) -> str:
    """Return the name of the engine of a fit, which is not made."""
    stats = vcomp.VarianceComponentsModel(family.formula, family.made(n)).statistics
    name = choose_engine(stats, reml=True).name
    return f"{name}, sparse factor" if stats.wide is not None else name


def switches(family: Family) -> Iterator[tuple[int, str, str]]:
    """Yield the numbers of rows at which another engine is chosen, with both engines."""
    found = [(n, chosen(family, n)) for n in family.sizes]
    for (low, before), (high, after) in pairwise(found):
        while before != after and high / low > _STEP:
            n = round((low * high) ** 0.5)
            name = chosen(family, n)
            low, high = (n, high) if name == before else (low, n)
            after = after if name == before else name
        if before != after:
            yield low, before, after


def run(report: Report, settings: Settings) -> None:
    """Print the times on both sides of every switch."""
    report.section("switches, above against below")
    warnings.simplefilter("ignore")
    flags = []
    for family in families()[: 2 if settings.quick else None]:
        for n, before, after in switches(family):
            name = f"{family.name}, {n:,} rows: {before} → {after}"
            below, above = (
                attempt(partial(seconds, family, size), settings.limit, _MEMORY)
                for size in (round(n / _BESIDE), round(n * _BESIDE))
            )
            if isinstance(below, str) or isinstance(above, str):
                report.omit(name, f"{below}, {above}")
                continue
            report(name, above, "below", below)
            if below > _FACTOR * above:
                flags.append(f"{name}: {below:.3f} s before, {above:.3f} s after")
    print("\n" + ("\n".join(flags) if flags else f"no switch by more than {_FACTOR:g}"))


def seconds(family: Family, n: int) -> float:
    """Return the least processor time of a fit of a table of about so many rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work: Callable[[], Any] = partial(vcomp.fit, family.formula, family.made(n))
        times: list[float] = []
        work()
        while len(times) < _CALLS and (not times or times[-1] < _REPEATED):
            times.append(used_by(work, 1).cpu)
    return min(times)
