"""The D-study as a person reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp.components import REPLICATE

if TYPE_CHECKING:
    from vcomp.dstudy.study import DStudy

__all__ = ["summary"]


def summary(study: DStudy) -> Any:
    """Return a summary that says what was planned, what it is worth and what would be enough.

    Parameters
    ----------
    study : to print

    Returns
    -------
    statsmodels.iolib.summary.Summary

    Examples
    --------
    >>> from vcomp.dstudy import from_components
    >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=[10, 20])
    >>> print(str(summary(study)).splitlines()[0])
    D-study p × i; object of measurement: p
    """
    columns, confidence = study.columns, display.level(study.alpha)
    cells: dict[str, list[str]] = {}
    if study.plan.labels is not None:
        cells[""] = list(study.plan.labels)
    for facet, sizes in zip(study.plan.facets, study.plan.sizes.T, strict=True):
        cells[facet] = [display.count(n) for n in sizes]
    for symbol, name in (("Eρ²", "Erho2"), ("Φ", "Phi")):
        cells[symbol] = [display.coefficient(c) for c in columns[name]]
        ends = zip(columns[f"{name}_low"], columns[f"{name}_high"], strict=True)
        intervals = [display.coefficient_interval(low, high) for low, high in ends]
        if any(intervals):
            # headers are keys here: a space more keeps those of Eρ² and Φ apart
            cells[f"{confidence} interval" + " " * (name == "Phi")] = intervals
    for symbol, name in (("σ²(δ)", "rel_err_var"), ("σ²(Δ)", "abs_err_var")):
        cells[symbol] = display.fixed(columns[name], significant=3)
    design = str(study.plan.design).replace(" x ", " × ")
    table = display.simple_table(
        list(zip(*cells.values(), strict=True)),
        [header.rstrip() for header in cells],
        title=f"D-study {design}; object of measurement: {study.plan.object}",
    )
    return display.summary([table], [*_explanations(study), *study.notes])


def _universe_name(study: DStudy) -> str:
    """Return what the universe score is of, with facets that are fixed: ``p | o``."""
    given = [f for f in study.plan.facets if f in study.plan.universe.fixed]
    return " | ".join([study.plan.object, ", ".join(given)] if given else [study.plan.object])


def _generalized(study: DStudy) -> list[str]:
    """Say over what scores are not generalized, or not without end."""
    space, facets = study.plan.universe, study.plan.facets
    lines = []
    fixed = [f for f in facets if f in space.fixed]
    if fixed:
        lines.append(
            f"Fixed: the planned {' and '.join(fixed)} are all that scores are generalized to."
        )
    lines += [
        f"The universe of {facet} has {display.count(size)} levels."
        for facet, size in space.sizes.items()
    ]
    if space.within:
        inside = " and ".join(f for f in study.plan.design.facets if f in space.within)
        lines.append(f"Objects are compared within the levels of {inside}.")
    return lines


def _explanations(study: DStudy) -> list[str]:
    object_ = study.plan.object
    variances = np.unique(study.columns["universe_var"])
    universe = " to ".join(display.number(float(v)) for v in variances[[0, -1][: variances.size]])
    lines = [
        f"Eρ²: how reliable differences between {object_} are (error variance σ²(δ)).",
        f"Φ: how reliable absolute scores of {object_} are (error variance σ²(Δ)).",
        f"Universe-score variance σ²({_universe_name(study)}) = {universe}.",
        *_generalized(study),
    ]
    methods = study.interval_methods
    told = {methods[c]: s for s, c in (("Eρ²", "Erho2"), ("Φ", "Phi")) if c in methods}
    if told:
        how = [m if len(told) == 1 else f"{s} {m}" for m, s in told.items()]
        lines.append(f"{display.level(study.alpha)} intervals: {'; '.join(how)}.")
    named = [f for f in study.plan.facets if f not in {REPLICATE, *study.plan.universe.fixed}]
    if len(named) == 1 and study.columns["universe_var"][0] > 0:
        lines += [str(study.required(0.95, c, named[0])) for c in ("Erho2", "Phi")]
    return lines
