"""The seconds in ``vcomp/numerics/costs.py``, measured on this machine.

``python -m benchmarks costs`` times an evaluation (value, score and information) of each engine on
shapes of ``bench_engines``, in processor time. An expected time is a sum of counts, each times its
cost. The costs that fit the measured times best, relative to these and not below zero, are printed
next to those of the file; then how far the expected times of the file are from the measured ones.
A cost is ``-`` if no shape needs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.optimize import nnls

import vcomp
from benchmarks.bench_engines import Shape, shapes, warm_up
from benchmarks.common import Report, Settings
from vcomp._typing import FloatArray
from vcomp.estimators.likelihood import choose_engine
from vcomp.estimators.likelihood.crossed import CrossedLikelihood
from vcomp.model import VarianceComponentsModel
from vcomp.numerics import COSTS
from vcomp.numerics.sparse import elimination_order

_KINDS = {
    "blocked": ("elimination", ("numerics.sparse.elimination_order",)),
    "crossed": ("crossed", ("estimators.likelihood.crossed", "statistics.two_term_tables")),
    "levels": ("levels", ("estimators.likelihood.levels",)),
    "iterative": ("iterative", ("estimators.likelihood.iterative",)),
}
"""By kind of engine: its costs, and the modules that multiply counts by them."""

_NOT_FITTED = ("entries_per_effect",)
"""A ratio of two costs: the expected time is no sum with it."""

_CALLS = 3
_MOST_ROWS = 100_000


def run(report: Report, settings: Settings) -> None:
    """Print the table of costs, and expected and measured seconds as comparisons."""
    warm_up()
    measured: dict[str, list[tuple[str, FloatArray, float, float]]] = {kind: [] for kind in _KINDS}
    for shape in shapes():
        frame = shape.data()
        if len(frame) > (2_000 if settings.quick else _MOST_ROWS):
            continue
        stats = VarianceComponentsModel(shape.formula, frame).statistics
        for name in ("blocked", "levels", "iterative"):
            _measure(measured, shape, stats, name, settings)
    for kind, rows in measured.items():
        _print_costs(kind, rows)
        report.section(f"{kind}: measured and expected seconds of an evaluation")
        for name, _, seconds, expected in rows:
            report(name, seconds, "expected", expected)


def _measure(
    measured: dict[str, list[tuple[str, FloatArray, float, float]]],
    shape: Shape,
    stats: Any,
    name: str,
    settings: Settings,
) -> None:
    try:
        engine: Any = choose_engine(stats, name)
    except vcomp.VcompError:
        return  # it does not apply to this shape
    if engine.seconds == 0.0 or engine.seconds > settings.limit:
        return
    kind = "crossed" if isinstance(engine, CrossedLikelihood) else name
    expected = (
        partial(_elimination_seconds, engine) if kind == "blocked" else partial(_seconds, engine)
    )
    row = shape.name, _counts(kind, expected), _evaluation(engine), expected()
    measured[kind].append(row)


def _evaluation(engine: Any) -> float:
    """Return the least processor time of value, score and information at a new point."""
    start = np.maximum(engine.mivque0(), 0.01 * engine.rss / engine.n)
    kind = "observed" if "observed" in engine.kinds else "average"
    least = np.inf
    for call in range(_CALLS):
        v, begun = start * (1.0 + 0.01 * call), time.process_time()
        engine.derivatives(v)
        engine.information(v, kind)
        least = min(least, time.process_time() - begun)
    return least


def _seconds(engine: Any) -> float:
    return float(engine.seconds)


def _elimination_seconds(engine: Any) -> float:
    """Return the expected time by the plan, whose cut does not change with the costs."""
    plan = engine.eliminations._whole_plan
    sizes = sorted(engine.sizes, reverse=True)
    ends = [0, *np.cumsum(sizes).tolist()] if plan.order is None else [0]
    n = int(plan.lower.shape[0])
    return float(elimination_order._seconds(plan.counts, n, ends)[plan.cut])


def _costs(kind: str) -> Any:
    return getattr(COSTS, _KINDS[kind][0])


def _fitted(kind: str) -> list[str]:
    return [f.name for f in fields(_costs(kind)) if f.name not in _NOT_FITTED]


def _counts(kind: str, expected: Callable[[], float]) -> FloatArray:
    """Return what each cost multiplies: the time if that cost is 1 and the others are 0."""
    field, modules = _KINDS[kind]
    names = _fitted(kind)
    counts = np.empty(len(names))
    for i, name in enumerate(names):
        unit = {other: float(other == name) for other in names}
        costs = replace(COSTS, **{field: replace(getattr(COSTS, field), **unit)})
        patches = [patch(f"vcomp.{module}.COSTS", costs) for module in modules]
        for one in patches:
            one.start()
        counts[i] = expected()
        for one in patches:
            one.stop()
    return counts


def _print_costs(kind: str, rows: list[tuple[str, FloatArray, float, float]]) -> None:
    """Print the costs of the file and those that fit this machine."""
    costs, names = _costs(kind), _fitted(kind)
    print(f"\n{type(costs).__name__}, from {len(rows)} shapes\n{'':12} {'file':>9} {'here':>9}")
    here = np.full(len(names), np.nan)
    if rows:
        counts, seconds = np.array([row[1] for row in rows]), np.array([row[2] for row in rows])
        used = counts.any(axis=0)
        here[used] = nnls(counts[:, used] / seconds[:, None], np.ones(len(rows)))[0]
    for name, value in zip(names, here, strict=True):
        measured = "-" if np.isnan(value) else f"{value:.2g}"
        print(f"{name:12} {getattr(costs, name):9.2g} {measured:>9}")
