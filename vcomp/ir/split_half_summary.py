"""A study of halves as a person reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display

if TYPE_CHECKING:
    from vcomp.ir.split_half_result import SplitHalfStudy

__all__ = ["summary"]


def summary(study: SplitHalfStudy) -> Any:
    """Return a summary: a row a measure and size of test, and what each model expects.

    Parameters
    ----------
    study : to print

    Returns
    -------
    statsmodels.iolib.summary.Summary
    """
    table = study.table
    rows, stubs = [], []
    for name in study.measures:
        for place, n in enumerate(study.asked):
            stubs.append(_symbol(study, name) if place == 0 else "")
            row = [display.count(n)]
            for model in study.models:
                mine = table[(table["measure"] == name) & (table["model"] == model)].iloc[place]
                interval = display.coefficient_interval(mine["obs_low"], mine["obs_high"])
                row.append(f"{display.coefficient(mine['estimate'])} {interval}".rstrip())
            rows.append(row)
    title = (
        f"Accuracy extrapolated from halves of {display.count(study.n_topics)} topics, "
        f"{display.count(study.n_systems)} systems"
    )
    page = display.simple_table(rows, ["topics", *study.models], title=title, stubs=stubs)
    return display.summary([page], _notes(study))


def _symbol(study: SplitHalfStudy, name: str) -> str:
    measure = study.measures[name]
    return measure.symbol if name == measure.name else name


def _notes(study: SplitHalfStudy) -> list[str]:
    return [*_about(study), *_missing(study), *_left_out(study), *_not_fitted(study)]


def _about(study: SplitHalfStudy) -> list[str]:
    """Return what was drawn, what the brackets are, and where the data end."""
    sizes, trials = study.sizes, display.count(study.trials)
    drawn = f"{trials} random splits into halves of {sizes[0]} topics."
    if len(sizes) > 1:
        drawn = (
            f"{trials} random splits of each of {len(sizes)} sizes, with halves of {sizes[0]} to "
            f"{sizes[-1]} topics."
        )
    inside = display.level(study.alpha)
    brackets = (
        f"In brackets: where {inside} of splits into tests of that size lie, by the fitted curve. "
        "The truth that a test is compared with is another test of its size, not the true means."
    )
    notes = [drawn, brackets]
    if study.curves and study.asked.max() > sizes[-1]:
        differ = "; the models need not agree" if len(study.models) > 1 else ""
        notes.append(
            f"Beyond {sizes[-1]} topics curves are extrapolated, which is known to be biased"
            f"{differ}."
        )
    return notes


def _missing(study: SplitHalfStudy) -> list[str]:
    """Return which measures are not defined for some splits, and why."""
    notes = []
    for (name, measure), values in zip(study.measures.items(), study.values, strict=True):
        missing = int(np.isnan(values).sum())
        if missing:
            notes.append(
                f"{_symbol(study, name)} has no value in {missing:,} of {values.size:,} splits: "
                f"{measure.undefined}."
            )
    return notes


def _left_out(study: SplitHalfStudy) -> list[str]:
    """Return how many observations have no logarithm."""
    left_out: dict[tuple[str, int], list[str]] = {}
    for (name, model), curve in study.curves.items():
        if curve.n_zero:
            left_out.setdefault((name, curve.n_zero), []).append(model)
    return [
        f"{_symbol(study, name)}: {n_zero:,} splits without any error are left out of "
        f"{' and '.join(models)}, which fit logarithms of errors."
        for (name, n_zero), models in left_out.items()
    ]


def _not_fitted(study: SplitHalfStudy) -> list[str]:
    """Return which curves there are not, and why."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for (name, model), reason in study.problems.items():
        reasons.setdefault((name, reason), []).append(model)
    return [
        f"{_symbol(study, name)} has no curve by {', '.join(models)}: {reason}."
        for (name, reason), models in reasons.items()
    ]
