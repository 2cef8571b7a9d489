"""Rows → Design, against the same levels and combinations by pandas.

Reading a column determines its levels; learning determines how they are combined.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

from benchmarks.common import FULL_MODEL, Piped, Report, Settings, best_of, crossed, nested, pipe
from vcomp.data.reading import Reading
from vcomp.data.rows import Rows
from vcomp.design import learn
from vcomp.design.design import Design


def run(report: Report, settings: Settings) -> None:
    n = settings.rows(1_000_000)
    report.section("learn")
    for kind in ("integer", "text", "category"):
        data = crossed(n, 1_000, 20_000, kind=kind)
        piped = pipe("y ~ (1|a) + (1|b)", data)
        for facet in piped.design.facets:
            assert list(facet.levels) == list(_levels(data)[facet.name])
        report(
            f"read, a + b, {n:,} rows, {kind} levels",
            best_of(partial(_read_and_learn, piped, data), settings.repeat),
            "pandas.factorize, sorted",
            best_of(partial(_levels, data), settings.repeat),
        )
    for name, whole in {
        "a + b": piped,
        "p × a × (d:i)": pipe(FULL_MODEL, nested(60, 2, 50, 67 if settings.quick else 959)),
    }.items():
        assert tuple(whole.stats.cross_products.sizes) == _sizes(whole)
        report(
            f"{name}, {len(whole.rows):,} rows",
            best_of(partial(_learn, whole), settings.repeat),
            "pandas groupby, groups of each term",
            best_of(partial(_sizes, whole), settings.repeat),
        )


def _learn(piped: Piped) -> Design:
    return learn(piped.formula, piped.rows, piped.environment)


def _read_and_learn(piped: Piped, data: Any) -> Design:
    rows = Rows.select(piped.formula, data, Reading(piped.environment))
    return learn(piped.formula, rows, piped.environment)


def _levels(data: pd.DataFrame) -> dict[str, pd.Index]:
    return {name: pd.Index(pd.factorize(data[name], sort=True)[1]) for name in ("a", "b")}


def _sizes(piped: Piped) -> tuple[int, ...]:
    frame = pd.DataFrame(dict(piped.rows.facets), copy=False)
    return tuple(
        frame.groupby(list(t.facets), observed=True).ngroups for t in piped.formula.random
    )
