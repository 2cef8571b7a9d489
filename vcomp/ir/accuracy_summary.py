"""Accuracies as a person reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp.ir.accuracy_estimators import (
    ByDStudy,
    ByHalves,
    ByItself,
    ByPairs,
    ByPower,
    Estimated,
)

if TYPE_CHECKING:
    from vcomp.ir.accuracy_result import Accuracy

__all__ = ["summary"]


def summary(accuracy: Accuracy) -> Any:
    """Return a summary: a row a measure and size of test.

    Parameters
    ----------
    accuracy : to print

    Returns
    -------
    statsmodels.iolib.summary.Summary
    """
    ranked, sampled = accuracy.facets
    n_ranked, n_sampled = map(display.count, accuracy.counts)
    rows, stubs = [], []
    for name, found in accuracy.values.items():
        cells = _cells(found, bounded=bool(np.isfinite(accuracy.measures[name].limits).all()))
        for place, (n, cell) in enumerate(zip(accuracy.asked, cells, strict=True)):
            first = place == 0
            stubs.append(accuracy.symbol(name) if first else "")
            label = accuracy.estimators[name].label if first else ""
            rows.append([display.count(n), *cell, label])
    table = display.simple_table(
        rows,
        [sampled, "estimate", f"{display.level(accuracy.alpha)} interval", "estimator"],
        title=f"How near to the truth is a test of n {sampled}? "
        f"From {n_ranked} {ranked} × {n_sampled} {sampled}",
        stubs=stubs,
        align="rrrl",
    )
    return display.summary([table], _notes(accuracy))


def _cells(found: Estimated, *, bounded: bool) -> list[tuple[str, str]]:
    """Return estimates and intervals: of coefficients with decimals, of errors with digits."""
    ends = list(zip(found.low.tolist(), found.high.tolist(), strict=True))
    if bounded:
        values = [display.coefficient(v) for v in found.estimate]
        return list(
            zip(values, [display.coefficient_interval(*pair) for pair in ends], strict=True)
        )
    intervals = ["" if np.isnan(pair).any() else display.short_interval(*pair) for pair in ends]
    return list(zip(display.fixed(found.estimate, significant=3), intervals, strict=True))


def _notes(accuracy: Accuracy) -> list[str]:
    """Return what the estimators are, what their intervals hold, and what is missing."""
    notes, by_kind = [], _by_kind(accuracy)
    if ByPairs in by_kind:
        notes.append(
            f"{by_kind[ByPairs]}: expected correlation of the ranking by such a test with the "
            "true one; the intervals are of the correlation of one test."
        )
    if ByDStudy in by_kind:
        notes.append(f"{by_kind[ByDStudy]}: from variance components, with their uncertainty.")
    if ByPower in by_kind:
        notes.append(
            f"{by_kind[ByPower]}: power of the F test, with the uncertainty of its error variance."
        )
    if ByHalves in by_kind:
        notes.append(_of_halves(accuracy, by_kind[ByHalves]))
    if ByItself in by_kind:
        notes.append(f"{by_kind[ByItself]}: there is no interval.")
    return [*notes, *_problems(accuracy), *accuracy.notes]


def _by_kind(accuracy: Accuracy) -> dict[type, str]:
    names: dict[type, list[str]] = {}
    for name, estimator in accuracy.estimators.items():
        names.setdefault(type(estimator), []).append(accuracy.symbol(name))
    return {kind: ", ".join(symbols) for kind, symbols in names.items()}


def _of_halves(accuracy: Accuracy, symbols: str) -> str:
    study = accuracy.split_half
    assert study is not None
    sizes = study.sizes
    note = (
        f"{symbols}: accuracy of halves of {sizes[0]} to {sizes[-1]} {accuracy.facets[1]} against "
        f"other halves, by a curve; the intervals hold {display.level(accuracy.alpha)} of splits."
    )
    if accuracy.asked.max() > sizes[-1]:
        note += " Beyond, curves are extrapolated, which is known to be biased."
    return note


def _problems(accuracy: Accuracy) -> list[str]:
    """Return why some measures have no estimate."""
    notes = []
    for name, estimator in accuracy.estimators.items():
        if not isinstance(estimator, ByHalves) or estimator.problem is None:
            continue
        measure, symbol = accuracy.measures[name], accuracy.symbol(name)
        if bool(estimator.study.frame[estimator.name].isna().all()):
            notes.append(f"{symbol} has no value for any of the halves: {measure.undefined}.")
        else:
            notes.append(f"{symbol} has no estimate: {estimator.problem}.")
    return notes
