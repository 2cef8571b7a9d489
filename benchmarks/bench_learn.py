"""Rows → Design, against pandas finding the same levels and combinations."""

from __future__ import annotations

import pandas as pd

from benchmarks.common import FULL_MODEL, Piped, Report, Settings, best_of, crossed, nested, pipe
from vcomp.design import learn


def run(report: Report, settings: Settings) -> None:
    n = settings.rows(1_000_000)
    report.section("learn")
    for kind in ("integer", "text", "category"):
        piped = pipe("y ~ (1|a) + (1|b)", crossed(n, 1_000, 20_000, kind=kind))
        for facet in piped.design.facets:
            assert list(facet.levels) == list(_levels(piped)[facet.name])
        report(
            f"a + b, {n:,} rows, {kind} levels",
            best_of(lambda p=piped: learn(p.formula, p.rows, p.environment), settings.repeat),  # type: ignore[misc]
            "pandas.factorize, sorted",
            best_of(lambda p=piped: _levels(p), settings.repeat),  # type: ignore[misc]
        )
    piped = pipe(FULL_MODEL, nested(60, 2, 50, 959 if not settings.quick else 67))
    assert tuple(piped.stats.sizes) == _sizes(piped)
    report(
        f"p × a × (d:i), {len(piped.rows):,} rows",
        best_of(lambda: learn(piped.formula, piped.rows, piped.environment), settings.repeat),
        "pandas groupby, 10 terms",
        best_of(lambda: _sizes(piped), settings.repeat),
    )


def _levels(piped: Piped) -> dict[str, pd.Index]:
    return {
        name: pd.Index(pd.factorize(column, sort=True)[1])
        for name, column in piped.rows.facets.items()
    }


def _sizes(piped: Piped) -> tuple[int, ...]:
    frame = pd.DataFrame(dict(piped.rows.facets), copy=False)
    return tuple(frame.groupby(list(t.facets)).ngroups for t in piped.formula.random)
