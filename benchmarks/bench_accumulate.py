"""Chunk → cross-products or strata, against one pass over the same memory and against pandas."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pandas as pd

from benchmarks.common import (
    FULL_MODEL,
    Piped,
    Report,
    Settings,
    agree,
    best_of,
    crossed,
    memory_pass,
    nested,
    pipe,
    summed,
)
from vcomp.statistics.cross_products import accumulate


def run(report: Report, settings: Settings) -> None:
    report.section("accumulate")
    n = settings.rows(1_000_000)
    _compare(report, settings, "a + b", pipe("y ~ (1|a) + (1|b)", crossed(n, 1_000, 20_000)))
    data = nested(60, 2, 50, 959 if not settings.quick else 67)
    piped = pipe(FULL_MODEL, data)
    _compare(report, settings, "p × a × (d:i), 10 terms", piped)
    report(
        f"p × a × (d:i), strata, {len(piped.rows):,} rows",
        best_of(lambda: summed(piped.design, replace(piped.chunk)), settings.repeat),
        "numpy.sum of y and facets",
        memory_pass((piped.chunk.y, *piped.chunk.facet_codes), settings.repeat),
    )


def _compare(report: Report, settings: Settings, name: str, piped: Piped) -> None:
    _check(piped)
    chunk, repeat = piped.chunk, settings.repeat
    seconds = best_of(lambda: accumulate(chunk), repeat)
    name = f"{name}, {len(piped.rows):,} rows"
    report(
        name, seconds, "numpy.sum of y and all codes", memory_pass((chunk.y, *chunk.codes), repeat)
    )
    report(name, seconds, "pandas groupby sums and sizes", best_of(lambda: _sums(piped), repeat))


def _check(piped: Piped) -> None:
    sums = piped.stats.cross_products
    groups, pairs = _sums(piped)
    for t, theirs in enumerate(groups):
        agree(sums.Zy[t], theirs["sum"], rtol=1e-9, atol=1e-9 * sums.yy**0.5)
        agree(sums.group_n[t], theirs["size"])
    for key, theirs in pairs.items():
        agree(sums.pairs[key].counts, theirs)


def _sums(piped: Piped) -> tuple[list[pd.DataFrame], dict[tuple[int, int], Any]]:
    """Return sums and sizes of the groups of every term, and sizes for every pair of terms."""
    codes = piped.chunk.codes
    y = pd.Series(piped.chunk.y, copy=False)
    return (
        [y.groupby(c).agg(["sum", "size"]) for c in codes],
        {
            (t, u): y.groupby([codes[t], codes[u]]).size().to_numpy()
            for t, u in combinations(range(len(codes)), 2)
        },
    )
