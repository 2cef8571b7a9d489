"""Rows → Chunk of codes, against the same codes by pandas."""

from __future__ import annotations

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
    nested,
    pipe,
)


def run(report: Report, settings: Settings) -> None:
    n = settings.rows(1_000_000)
    report.section("encode")
    for kind in ("integer", "text", "category"):
        piped = pipe("y ~ (1|a) + (1|b)", crossed(n, 1_000, 20_000, kind=kind))
        _compare(report, settings, f"a + b, {n:,} rows, {kind} levels", piped)
    piped = pipe(FULL_MODEL, nested(60, 2, 50, 959 if not settings.quick else 67))
    _compare(report, settings, f"p × a × (d:i), {len(piped.rows):,} rows", piped)


def _compare(report: Report, settings: Settings, name: str, piped: Piped) -> None:
    for ours, theirs in zip(piped.chunk.codes, _codes(piped), strict=True):
        agree(ours, theirs, rtol=0.0)
    seconds = best_of(lambda: piped.design.encode(piped.rows).codes, settings.repeat)
    peer_seconds = best_of(lambda: _codes(piped), settings.repeat)
    report(name, seconds, "pandas factorize and ngroup", peer_seconds)


def _codes(piped: Piped) -> list[Any]:
    """Return the codes of every term."""
    columns = piped.rows.facets
    frame = pd.DataFrame(dict(columns), copy=False)
    return [
        pd.factorize(columns[term.facets[0]], sort=True)[0]
        if len(term.facets) == 1
        else frame.groupby(list(term.facets)).ngroup()
        for term in piped.formula.random
    ]
