"""Rows → Design, against pandas finding the same levels and combinations."""

from __future__ import annotations

from functools import partial

import pandas as pd

from benchmarks.common import FULL_MODEL, Piped, Report, Settings, best_of, crossed, nested, pipe
from vcomp.design import Design, learn


def run(report: Report, settings: Settings) -> None:
    n = settings.rows(1_000_000)
    report.section("learn")
    for kind in ("integer", "text", "category"):
        piped = pipe("y ~ (1|a) + (1|b)", crossed(n, 1_000, 20_000, kind=kind))
        for facet in piped.design.facets:
            assert list(facet.levels) == list(_levels(piped)[facet.name])
        report(
            f"a + b, {n:,} rows, {kind} levels",
            best_of(partial(_learn, piped), settings.repeat),
            "pandas.factorize, sorted",
            best_of(partial(_levels, piped), settings.repeat),
        )
    piped = pipe(FULL_MODEL, nested(60, 2, 50, 959 if not settings.quick else 67))
    assert tuple(piped.stats.sizes) == _sizes(piped)
    report(
        f"p × a × (d:i), {len(piped.rows):,} rows",
        best_of(partial(_learn, piped), settings.repeat),
        "pandas groupby, 10 terms",
        best_of(partial(_sizes, piped), settings.repeat),
    )


def _learn(piped: Piped) -> Design:
    return learn(piped.formula, piped.rows, piped.environment)


def _levels(piped: Piped) -> dict[str, pd.Index]:
    return {
        name: pd.Index(pd.factorize(column, sort=True)[1])
        for name, column in piped.rows.facets.items()
    }


def _sizes(piped: Piped) -> tuple[int, ...]:
    frame = pd.DataFrame(dict(piped.rows.facets), copy=False)
    return tuple(frame.groupby(list(t.facets)).ngroups for t in piped.formula.random)
