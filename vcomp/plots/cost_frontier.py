"""What every amount of money buys: a coefficient over the cost of a measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp.exceptions import PlanError
from vcomp.plots.canvas import (
    GREY,
    colours,
    escaped,
    legend,
    new_axes,
    number_axis,
    require_columns,
    tidy_axes,
)

if TYPE_CHECKING:
    import pandas as pd

_LABELS = {
    "Erho2": "Eρ²",
    "Phi": "Φ",
    "rel_err_var": "relative error variance σ²(δ)",
    "abs_err_var": "absolute error variance σ²(Δ)",
}
_MOST_MARKERS = 40
"""Points of a line that are marked one by one."""

_LOG_FROM = 20.0


def frontier(
    tables: Mapping[str, pd.DataFrame],
    coefficient: str = "Erho2",
    *,
    is_whole: bool = True,
    best: tuple[str, float, float] | None = None,
    best_label: str = "",
    best_interval: tuple[float, float] = (math.nan, math.nan),
    budget: float | None = None,
    target: float | None = None,
    alpha: float = 0.05,
    ax: Any | None = None,
) -> Any:
    """Draw the coefficient of the best designs over their cost, a line for each table.

    Parameters
    ----------
    tables : design → its frontier, with the columns ``cost`` and `coefficient`, the cheapest first
    coefficient : ``"Erho2"``, ``"Phi"``, ``"rel_err_var"`` or ``"abs_err_var"``
    is_whole : whether nothing better costs less than the next row: the line then goes in steps
    best : design, cost and coefficient of the recommendation, which is marked
    best_label : its sizes, for the legend
    best_interval : of its coefficient, drawn as a whisker where it is known
    budget, target : lines, where they are given
    alpha : the interval has confidence 1 − alpha
    ax : matplotlib axes to draw on; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    PlanError
        If the coefficient is not one of these, or there is no table.
    DataError
        If a column is missing.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> table = pd.DataFrame({"cost": [10, 20], "Phi": [0.5, 0.6]})
    >>> ax = frontier({"p × i": table}, "Phi", ax=Figure().subplots())
    >>> ax.get_ylabel()
    'Φ'
    """
    if coefficient not in _LABELS:
        raise PlanError(
            f"coefficient is one of {', '.join(map(repr, _LABELS))}, not {coefficient!r}"
        )
    if not tables:
        raise PlanError("there is no frontier to draw")
    for table in tables.values():
        require_columns(table, ["cost", coefficient], "the table of the frontier")
    ax = new_axes(ax, (6.5, 4.2))
    palette = dict(zip(tables, colours(len(tables)), strict=True))
    for design, table in tables.items():
        cost, value = (table[c].to_numpy(dtype=float) for c in ("cost", coefficient))
        look = {"color": palette[design], "linewidth": 1.6, "label": escaped(design)}
        look |= {"drawstyle": "steps-post" if is_whole else "default"}
        if len(table) <= _MOST_MARKERS:
            look |= {"marker": "o", "markersize": 3.5}
        ax.plot(cost, value, **look)
    if best is not None:
        _mark(ax, best, best_label, best_interval, palette.get(best[0], GREY), alpha)
    for name, at, line in (("budget", budget, ax.axvline), ("target", target, ax.axhline)):
        if at is not None:
            label = f"{name} {display.number(at, 6)}"
            line(at, color=GREY, linewidth=1.0, linestyle=":", label=label)
    _axes(ax, tables, coefficient, best_interval)
    return ax


def _mark(
    ax: Any,
    best: tuple[str, float, float],
    label: str,
    interval: tuple[float, float],
    colour: Any,
    alpha: float,
) -> None:
    _, cost, value = best
    low, high = interval
    text = f"chosen: {escaped(label)}"
    if not (math.isnan(low) or math.isnan(high)):
        ax.vlines(cost, low, high, color=colour, linewidth=1.2)
        text += f"\n({display.level(alpha)} interval)"
    look = {"markeredgecolor": "black", "markerfacecolor": colour, "zorder": 5}
    ax.plot([cost], [value], marker="D", markersize=8, linestyle="none", label=text, **look)


def _money(cost: float) -> str:
    return display.count(cost) if float(cost).is_integer() else display.number(cost)


def _axes(
    ax: Any,
    tables: Mapping[str, pd.DataFrame],
    coefficient: str,
    interval: tuple[float, float],
) -> None:
    costs = np.concatenate([t["cost"].to_numpy(dtype=float) for t in tables.values()])
    log = costs.min() > 0.0 and costs.max() > _LOG_FROM * costs.min()
    number_axis(ax, "x", _money, log=log)
    ax.set_xlabel("cost")
    ax.set_ylabel(_LABELS[coefficient])
    values = [t[coefficient].to_numpy(dtype=float) for t in tables.values()]
    shown = np.concatenate([*values, [v for v in interval if math.isfinite(v)]])
    falls = coefficient.endswith("err_var")
    if falls and shown.min() > 0.0 and shown.max() > _LOG_FROM * shown.min():
        ax.set_yscale("log")
    elif not falls:
        ax.set_ylim(max(0.0, shown.min() - 0.02), min(1.0, shown.max() + 0.05) + 0.005)
    tidy_axes(ax, "both")
    place = "upper right" if falls else "lower right"
    legend(ax, loc=place)
