"""The best sizes for a budget, against an exhaustive search in numpy."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.common import Report, Settings, agree, best_of, memory_pass
from vcomp.gtheory.published import from_components
from vcomp.gtheory.study import DStudy

_COMPONENTS = {
    "p": 0.01, "i": 0.02, "a": 0.004, "t": 0.003, "p:i": 0.015, "p:a": 0.002, "p:t": 0.001,
    "i:a": 0.002, "Residual": 0.03,
}  # fmt: skip
_COST = "7.1*i + 11.3*a + 5.7*t + 0.01*i*a*t"
_SIMPLE = "7.1*i + 11.3*a + 5.7*t"
_DRAWS = 1000


def run(report: Report, settings: Settings) -> None:
    v = np.array(list(_COMPONENTS.values()))
    study = from_components(_COMPONENTS, cov=np.diag((0.2 * v) ** 2)).dstudy(i=1, a=1, t=1)
    small = 2_000.0 if settings.quick else 20_000.0
    report.section("allocation over three facets")
    agree(_best(study, _SIMPLE, small), _all_sizes(small))
    peer = f"numpy, all sizes within {small:,.0f}"
    peer_seconds = best_of(lambda: _all_sizes(small), settings.repeat)
    sizes = np.ones((100_000, 3))
    passed = memory_pass([sizes], settings.repeat)
    seconds = best_of(lambda: _best(study, _SIMPLE, small), settings.repeat)
    report(f"a budget of {small:,.0f}", seconds, peer, peer_seconds)
    for name, cost in {"prices per level": _SIMPLE, "and per combination": _COST}.items():
        seconds = best_of(partial(_best, study, cost, 1e6), settings.repeat)
        report(f"a budget of 1,000,000, {name}", seconds, peer, peer_seconds)
        report(f"a budget of 1,000,000, {name}", seconds, "a pass over 100,000 designs", passed)
    seconds = best_of(lambda: study.optimize(_COST, goal=0.99), settings.repeat)
    report("a target", seconds, peer, peer_seconds)
    found = study.optimize(_COST, budget=1e6)
    seconds = best_of(lambda: found.stability(_DRAWS, rng=1), 1)
    name = f"{_DRAWS:,} draws of the components"
    report(name, seconds, f"{_DRAWS:,} times all sizes", _DRAWS * peer_seconds)
    seconds = best_of(lambda: study.optimize(_COST, budget=1e6).frontier, 1)
    report("the frontier up to 1,000,000", seconds, peer, peer_seconds)


def _best(study: DStudy, cost: str, budget: float) -> float:
    return float(study.optimize(cost, budget=budget).best.study.columns["rel_err_var"][0])


def _all_sizes(budget: float) -> float:
    """Return the least relative error: all i and a that can be paid, with all the t that can."""
    i = np.arange(1.0, budget // 7.1 + 1)[:, None]
    a = np.arange(1.0, budget // 11.3 + 1)[None, :]
    t = np.floor((budget - 7.1 * i - 11.3 * a) / 5.7)
    v: dict[str, Any] = _COMPONENTS
    with np.errstate(divide="ignore"):
        error = v["p:i"] / i + v["p:a"] / a + v["p:t"] / t + v["Residual"] / (i * a * t)
    return float(error[t >= 1.0].min())
