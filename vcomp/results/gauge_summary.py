"""The gauge study as a person reads it, with the criteria of AIAG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp.results.gauge import (
    PART_TO_PART,
    REPEATABILITY,
    REPRODUCIBILITY,
    TOTAL,
    TOTAL_GAUGE,
)

if TYPE_CHECKING:
    from vcomp.results.gauge import GaugeStudy

__all__ = ["gauge_summary"]

_ACCEPTABLE, _MARGINAL = 10.0, 30.0
"""Per cent of study variation (AIAG, Measurement Systems Analysis, 4th ed., chap. II, sec. D)."""

_ENOUGH = 5
"""Distinct categories that AIAG asks for."""


def gauge_summary(study: GaugeStudy) -> Any:
    """Return a summary: variances and shares, standard deviations, and what AIAG says of them.

    Parameters
    ----------
    study : to print

    Returns
    -------
    statsmodels.iolib.summary.Summary
    """
    table, stubs = study.table, _stubs(study)
    confidence = display.level(study.alpha)
    variances = {
        "variance": display.fixed(table["variance"]),
        "std. err.": display.fixed(table["se"], significant=3),
        f"{confidence} interval": _ends(table["low"], table["high"]),
        "contribution": [display.percent(p / 100.0) for p in table["percent_contribution"]],
        "": [display.bar(p / 100.0) for p in table["percent_contribution"]],
    }
    spread = {
        "std. dev.": display.fixed(table["sd"]),
        f"{display.number(study.k)} × s.d.": display.fixed(table["study_variation"]),
        "% study variation": display.fixed(table["percent_study_variation"], decimals=1),
        f"{confidence} interval": _ends(table["percent_study_low"], table["percent_study_high"]),
    }
    # A total is all of itself, with no interval to tell.
    spread[f"{confidence} interval"][-1] = ""
    for name in ("tolerance", "process"):
        if f"percent_{name}" in table:
            spread[f"% {name}"] = display.fixed(table[f"percent_{name}"], decimals=1)
    title = f"Gauge R&R: {study.part} measured by {study.operator}"
    tables = [
        display.simple_table(
            list(zip(*variances.values(), strict=True)), list(variances), title=title, stubs=stubs,
            align="rrrrl",
        ),
        display.simple_table(list(zip(*spread.values(), strict=True)), list(spread), stubs=stubs),
    ]  # fmt: skip
    return display.summary(tables, [*_verdict(study), *study.notes])


def _stubs(study: GaugeStudy) -> list[str]:
    level = dict.fromkeys(study.sources, 2)
    level |= {TOTAL_GAUGE: 0, REPEATABILITY: 1, REPRODUCIBILITY: 1, PART_TO_PART: 0, TOTAL: 0}
    parts = study.sources[PART_TO_PART]
    level |= {name: 1 for name in parts if len(parts) > 1}
    return ["  " * level[name] + name for name in study.sources]


def _ends(low: Any, high: Any) -> list[str]:
    return [display.short_interval(a, b) for a, b in zip(low, high, strict=True)]


def _verdict(study: GaugeStudy) -> list[str]:
    """Return what AIAG's criteria say of the estimate, and whether the interval says it too."""
    confidence = display.level(study.alpha)
    gauge = {str(name): float(column[TOTAL_GAUGE]) for name, column in study.table.items()}
    notes = []
    for name, words in (("study", "study variation"), ("tolerance", "the tolerance")):
        column = "percent_study_variation" if name == "study" else f"percent_{name}"
        if column not in gauge or np.isnan(gauge[column]):
            continue
        low, high = gauge[f"percent_{name}_low"], gauge[f"percent_{name}_high"]
        said = f"Total gauge R&R is {display.number(gauge[column], 3)} % of {words}"
        if not np.isnan(low):
            said += f" ({confidence} interval {display.short_interval(low, high)})"
        said += f": {_judged(gauge[column])}"
        if not np.isnan(low) and _judged(low) != _judged(high):
            said += f"; the interval goes from {_judged(low)} to {_judged(high)}"
        notes.append(f"{said}.")
    notes.append(
        f"AIAG: below {_ACCEPTABLE:g} % acceptable, to {_MARGINAL:g} % it depends on the use, "
        f"above not; and {_ENOUGH} distinct categories or more."
    )
    ends = ""
    if not np.isnan(study.categories_low):
        ends = (
            f" ({confidence} interval {display.count(study.categories_low)} to "
            f"{display.count(study.categories_high)})"
        )
    notes.append(f"Distinct categories of {study.part}: {display.count(study.categories)}{ends}.")
    how = study.method or "none can be given"
    notes.append(f"{confidence} intervals: {how}.")
    return notes


def _judged(percent: float) -> str:
    if percent < _ACCEPTABLE:
        return "acceptable"
    return "may be acceptable" if percent <= _MARGINAL else "not acceptable"
