"""The recommended design as a person reads it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from vcomp import display
from vcomp.components import REPLICATE
from vcomp.dstudy.allocation.alternative import SYMBOLS, shown
from vcomp.dstudy.allocation.cost import money
from vcomp.notation import Design

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.dstudy.allocation.result import AllocatedDesign, Allocation
    from vcomp.dstudy.allocation.stability import Stability

__all__ = ["design_words", "summary"]

_ROWS = 6
"""Of the table the summary shows so many rows, and the best of every design."""


def design_words(chosen: AllocatedDesign) -> str:
    """Return a design with its sizes, cost and coefficient in words.

    Parameters
    ----------
    chosen : the design
    """
    design = chosen.study.plan.design
    sizes = ", ".join(_size(f, n, design) for f, n in chosen.sizes.items())
    return (
        f"{shown(chosen.design)}: {sizes}; costs {money(chosen.cost)}; "
        f"{_worth(chosen, chosen.aim.coefficient)}"
    )


def summary(allocation: Allocation, stability: Stability | None) -> Any:
    """Return a summary that says what to do, what it is worth, and what comes near it.

    Parameters
    ----------
    allocation : the recommendation
    stability : told too where it is given

    Returns
    -------
    statsmodels.iolib.summary.Summary
    """
    aim, best = allocation.aim, allocation.best
    if aim.budget is not None:
        title = f"The best design for a budget of {money(aim.budget)}: highest {aim.symbol}"
        if not aim.is_coefficient:
            title = f"The best design for a budget of {money(aim.budget)}: lowest {aim.symbol}"
    else:
        sign = "≥" if aim.is_coefficient else "≤"
        goal = display.number(aim.target or 0.0, 10)
        title = f"The cheapest design with {aim.symbol} {sign} {goal}"
    lines = [
        f"Recommended is {design_words(best)}.",
        f"Cost: {allocation.cost}.",
        *_more(allocation),
        *(stability.sentences() if stability is not None else []),
        *allocation.notes,
    ]
    lines += [note for note in best.study.notes if "taken as" in note]
    return display.summary([_table(allocation, title)], lines)


def _table(allocation: Allocation, title: str) -> Any:
    shown_rows = max(_ROWS, len(allocation.alternatives))
    frame, name = allocation.table.head(shown_rows), allocation.aim.coefficient
    cells: dict[str, list[str]] = {}
    designs = [shown(d) for d in frame["design"]]
    if len(set(designs)) > 1:
        cells["design"] = designs
    for facet in allocation.best.sizes:
        cells[facet] = [display.count(n) for n in frame[facet]]
    cells["cost"] = [money(c) for c in frame["cost"]]
    coefficients = ("Erho2", "Phi") if allocation.aim.is_coefficient else (name, "Erho2", "Phi")
    for column in coefficients:
        coefficient = column in ("Erho2", "Phi")
        values = frame[column]
        cells[SYMBOLS[column]] = (
            [display.coefficient(v) for v in values]
            if coefficient
            else display.fixed(values, significant=4)
        )
        if column == name:
            _add_interval(cells, frame, allocation)
    return display.simple_table(list(zip(*cells.values(), strict=True)), list(cells), title=title)


def _add_interval(
    cells: dict[str, list[str]], frame: pd.DataFrame, allocation: Allocation
) -> None:
    name = allocation.aim.coefficient
    ends = list(zip(frame[f"{name}_low"], frame[f"{name}_high"], strict=True))
    if all(math.isnan(low) or math.isnan(high) for low, high in ends):
        return
    interval = (
        display.coefficient_interval if allocation.aim.is_coefficient else display.short_interval
    )
    cells[f"{display.level(allocation.study.alpha)} interval"] = [
        interval(low, high) for low, high in ends
    ]


def _more(allocation: Allocation) -> list[str]:
    """Return sentences on the next best, the ratio of sizes, and a required size."""
    lines = []
    frame, name = allocation.table, allocation.aim.coefficient
    if allocation.aim.budget is not None and len(frame) > 1:
        first, second = frame.iloc[0], frame.iloc[1]
        gap = abs(float(first[name]) - float(second[name]))
        sizes = ", ".join(f"{f} = {display.count(second[f])}" for f in allocation.best.sizes)
        where = "" if second["design"] == first["design"] else f"{shown(second['design'])}, "
        lines.append(
            f"{'Next best' if where == '' else 'Best of the other designs'}: {where}{sizes}; "
            f"{allocation.aim.symbol} is {'lower' if allocation.aim.is_coefficient else 'higher'} "
            f"by {display.number(gap, 2)}."
        )
    ratio = allocation.ratio
    if ratio is not None:
        lines.append(f"The best ratio of sizes without bounds: {ratio}.")
    required = allocation.required
    if required is not None:
        lines.append(str(required))
    return lines


def _size(facet: str, n: float, design: Design) -> str:
    if facet == REPLICATE:
        return f"{display.count(n)} {'score' if n == 1 else 'scores'} a cell"
    above = design.innermost(design.nested_in[facet])
    within = " and ".join(f for f in design.outer_first if f in above)
    return f"{display.count(n)} {facet}" + (f" in each {within}" if within else "")


def _worth(chosen: AllocatedDesign, name: str) -> str:
    columns = chosen.study.columns
    value, low, high = (float(columns[f"{name}{end}"][0]) for end in ("", "_low", "_high"))
    if name in ("Erho2", "Phi"):
        text, interval = display.coefficient(value), display.coefficient_interval(low, high)
    else:
        text = display.number(value)
        interval = "" if math.isnan(low) else display.short_interval(low, high)
    level = display.level(chosen.study.alpha)
    return f"{SYMBOLS[name]} = {text}" + (f" ({level}: {interval})" if interval else "")
