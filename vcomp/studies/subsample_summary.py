"""A study of subsets as a person reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp.dstudy.requirement import SYMBOLS
from vcomp.studies.spans import Span

if TYPE_CHECKING:
    from vcomp.studies.subsample_result import SubsampleStudy

__all__ = ["summary"]

_ENOUGH = 0.1
"""The span that Urbano et al. (2013, sec. 3) ask for."""


def summary(study: SubsampleStudy) -> Any:
    """Return a summary: of every size the medians and spans of Eρ², Φ and required sizes.

    Parameters
    ----------
    study : to print

    Returns
    -------
    statsmodels.iolib.summary.Summary
    """
    alpha, facet = study.dstudy.alpha, study.required_facet
    cells: dict[str, list[str]] = {}
    for name, sizes in zip(study.facets, study.cells.T, strict=True):
        cells[name] = [display.count(n) for n in sizes]
    for blanks, (name, symbol) in enumerate(SYMBOLS.items()):
        spans = _spans(study, name)
        cells[symbol] = [display.coefficient(s.median) for s in spans]
        # Headers are keys here: a space more keeps those of Eρ² and Φ apart.
        header = f"{display.level(alpha)} of subsets" + " " * blanks
        cells[header] = [display.coefficient_interval(s.low, s.high) for s in spans]
        if facet is not None:
            cells[f"n for {symbol}"] = [_sizes(s) for s in _spans(study, f"n_{name}")]
    table = display.simple_table(
        list(zip(*cells.values(), strict=True)),
        [header.rstrip() for header in cells],
        title=f"{study.trials:,} random subsets of each size: what their G-studies say",
    )
    return display.summary([table], _notes(study))


def _spans(study: SubsampleStudy, quantity: str) -> list[Span]:
    values = study.values(quantity)
    return [study.span(quantity, place, values) for place in range(len(study.cells))]


def _sizes(span: Span) -> str:
    if np.isnan(span.median):
        return display.MISSING
    return f"{display.count(np.floor(span.low))} to {display.count(np.ceil(span.high))}"


def _notes(study: SubsampleStudy) -> list[str]:
    plan, facet = study.dstudy.plan, study.required_facet
    sizes = ", ".join(
        f"{f} = {display.count(n)}" for f, n in zip(plan.facets, plan.sizes[0], strict=True)
    )
    full = [f"{s} = {display.coefficient(study.full(c))}" for c, s in SYMBOLS.items()]
    test = f"of a test with {sizes}" if sizes else "of one score"
    notes = [f"Eρ² and Φ: medians, {test}; all the data say {' and '.join(full)}."]
    if facet is not None:
        needs = [f"{display.count(study.full(f'n_{c}'))} for {s}" for c, s in SYMBOLS.items()]
        notes.append(
            f"n: levels of {facet} needed for {display.number(study.target)} in "
            f"{display.level(study.dstudy.alpha)} of subsets; all the data say "
            f"{' and '.join(needs)}."
        )
    notes += [_enough(study, name) for name in SYMBOLS]
    missing = study.cells.shape[0] * study.trials - int(study.replicates.converged.sum())
    if missing:
        notes.append(f"{missing:,} subsets have no estimates and are left out.")
    return notes


def _enough(study: SubsampleStudy, name: str) -> str:
    """Return which sizes have all but a few subsets within a tenth of each other."""
    symbol, inside = SYMBOLS[name], display.level(study.dstudy.alpha)
    lengths = np.array([s.length for s in _spans(study, name)])
    enough = np.flatnonzero(lengths <= _ENOUGH)
    if not enough.size:
        return f"At none of these sizes does {symbol} of {inside} of subsets lie within 0.1."
    # Those without a smaller one that is enough as well.
    smallest = [
        p for p in enough
        if not any(
            (study.cells[q] <= study.cells[p]).all() and (study.cells[q] != study.cells[p]).any()
            for q in enough
        )
    ]  # fmt: skip
    words = [
        " × ".join(f"{display.count(n)} {f}" for f, n in zip(study.facets, row, strict=True))
        for row in study.cells[smallest]
    ]
    return f"{symbol} of {inside} of subsets lies within 0.1 from {' or '.join(words)} on."
