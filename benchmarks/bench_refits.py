"""Refits of tables with holes and of sparse data, in units of a plain fit in the same run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import vcomp
from benchmarks.common import Report, Settings, best_of, crossed

_FORMULA = "score ~ (1|sys) + (1|topic)"
_SYSTEMS, _SHARE_MISSING = 50, 0.05


def run(report: Report, settings: Settings) -> None:
    topics = 50 if settings.quick else 200
    data = _holes(topics)
    report.section(f"refits, {_SYSTEMS} systems × {topics} topics, 5 % missing")
    res = vcomp.fit(_FORMULA, data)
    fit = best_of(lambda: vcomp.fit(_FORMULA, data), settings.repeat)

    def compare(name: str, work: Callable[[], Any], n: int) -> None:
        report(name, best_of(work, settings.repeat), f"{n:,} plain fits", n * fit)

    compared = vcomp.compare_measures(
        _FORMULA, data, responses=["score", "second", "third"], dstudy={"topic": 50}
    )
    compare("jackknife of topics", lambda: res.jackknife("topic"), topics)
    compare("differences of three measures", compared.differences, 3 * (topics + _SYSTEMS))
    compare("bootstrap, 200 replicates", lambda: res.bootstrap(200), 200)
    compare("resample topics, 200 times", lambda: res.resample("topic", n=200), 200)
    compare("simulated test, 200 draws", lambda: res.test("sys", test="simulated", n=200), 400)
    plans = list(range(1, 101))
    compare(
        "100 plans by profile",
        lambda: res.dstudy(topic=plans, interval="profile").columns,
        100,
    )
    sizes = {"topic": [10, 25, 50]}
    for method in ("anova", "reml"):
        compare(
            f"subsample_study, 300 subsets, {method}",
            lambda method=method: vcomp.subsample_study(  # type: ignore[misc]
                _FORMULA, data, sizes=sizes, trials=100, method=method, progress=False
            ),
            300,
        )
    _sparse(report, settings)
    _nested(report, settings)


def _nested(report: Report, settings: Settings) -> None:
    """Refits of pupils in classes of schools that differ in size."""
    n = settings.rows(100_000)
    rng = np.random.default_rng(7)
    room = np.sort(rng.integers(n // 10, size=n))
    school = room // 8
    y = rng.normal(size=school.max() + 1)[school] + rng.normal(size=n // 10)[room]
    data = pd.DataFrame({"school": school, "room": room, "y": y + rng.normal(size=n)})
    formula = "y ~ (1|school/room)"
    report.section(f"refits, {n:,} nested rows, sizes differ")
    res = vcomp.fit(formula, data)
    fit = best_of(lambda: vcomp.fit(formula, data), settings.repeat)
    for name, work, count in (
        ("bootstrap, 1,000 replicates", lambda: res.bootstrap(1_000), 1_000),
        ("simulated test, 1,000 draws", lambda: res.test("school", test="simulated"), 2_000),
    ):
        report(name, best_of(work, 1), f"{count:,} plain fits", count * fit)


def _sparse(report: Report, settings: Settings) -> None:
    """Refits of sparse crossed scores, each level of a facet with 20 of them."""
    n = settings.rows(10_000)
    data, levels = crossed(n, n // 20, n // 20), n // 20
    report.section(f"refits, {n:,} sparse crossed scores of {levels:,} × {levels:,} levels")
    res = vcomp.fit("y ~ (1|a) + (1|b)", data)
    fit = best_of(lambda: vcomp.fit("y ~ (1|a) + (1|b)", data), settings.repeat)
    for name, work, count in (
        ("jackknife", lambda: res.jackknife("a"), levels),
        ("bootstrap, 400 replicates", lambda: res.bootstrap(400), 400),
        ("crosscheck of REML and ML", lambda: res.crosscheck(["ml"]), 200),
    ):
        report(name, best_of(work, 1), f"{count:,} plain fits", count * fit)


def _holes(topics: int) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    system, topic = map(np.ravel, np.indices((_SYSTEMS, topics)))
    effects = 0.5 * rng.normal(size=_SYSTEMS)[system] + rng.normal(size=topics)[topic]
    scores = effects[:, None] + rng.normal(size=(system.size, 3))
    frame = pd.DataFrame(scores, columns=["score", "second", "third"])
    frame = frame.assign(sys=system, topic=topic)
    return frame[rng.random(len(frame)) >= _SHARE_MISSING].reset_index(drop=True)
