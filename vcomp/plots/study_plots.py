"""Pictures of studies: random parts of the data, measures side by side, the frontier of cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vcomp import display
from vcomp.display import SYMBOLS
from vcomp.exceptions import PlanError, check_alpha, check_one_of
from vcomp.plots.canvas import (
    COLOURS,
    GREY,
    colours,
    escaped,
    legend,
    moved,
    name_rows,
    new_axes,
    number_axis,
    numbers,
    points_aside,
    require_columns,
    tidy_axes,
    whiskers,
    with_whiskers,
)

if TYPE_CHECKING:
    import pandas as pd


Kind = Literal["span", "values"]

_MOST_LINES = 12
_BANDS_UP_TO = 2
_ASIDE = 5.0
"""Points (1/72 inch) between the whiskers of two lines or measures at one size."""

_LOG_FROM = 10.0
"""Values this many times apart need a logarithmic axis."""


def subsets(
    table: pd.DataFrame,
    x: str,
    others: Sequence[str] = (),
    *,
    full: float | None = None,
    kind: Kind = "span",
    label: str = "estimate",
    alpha: float = 0.05,
    ax: Any | None = None,
) -> Any:
    """Draw spans of estimates over the size of the subsets, a line for each size of others.

    Parameters
    ----------
    table : one row per size with the columns `x`, `others`, low, median, high and span
    x : the column on the horizontal axis
    others : further sizes
    full : estimate from all the data, a grey line where values are drawn
    kind : ``"span"`` draws the length of the spans, ``"values"`` medians with their spans: bands
        for one or two lines, whiskers side by side for more, at the largest size only where
        there are more than twelve
    label : what was estimated
    alpha : spans hold a share of 1 − alpha
    ax : matplotlib axes to draw on; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    DataError
        If a column is missing.
    PlanError
        If there are more lines than can be distinguished.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> table = pd.DataFrame({"topic": [5, 10], "low": [0.2, 0.4], "median": [0.5, 0.6],
    ...                       "high": [0.8, 0.7], "span": [0.6, 0.3]})
    >>> ax = subsets(table, "topic", ax=Figure().subplots())
    >>> ax.lines[0].get_ydata()
    array([0.6, 0.3])
    """
    check_alpha(alpha)
    require_columns(table, [x, *others, "low", "median", "high", "span"], "the table of subsets")
    groups = list(dict.fromkeys(map(tuple, table[list(others)].to_numpy().tolist())))
    if len(groups) > _MOST_LINES:
        raise PlanError(
            f"{len(groups)} sizes of {', '.join(others)} make as many lines, and {_MOST_LINES} "
            f"can be distinguished: draw fewer sizes, or choose another x than {x!r}"
        )
    ax = new_axes(ax)
    barred = with_whiskers(np.unique(table[x]), len(groups))
    for place, (group, colour) in enumerate(zip(groups, colours(len(groups)), strict=True)):
        chosen = (table[list(others)].to_numpy() == np.array(group)).all(axis=1)
        rows = table[chosen].sort_values(x, kind="stable")
        words = "  ".join(
            f"{escaped(f)} = {display.count(n)}" for f, n in zip(others, group, strict=True)
        )
        if kind == "span":
            ax.plot(rows[x], rows["span"], "o-", color=colour, label=words)
        else:
            aside = _ASIDE * (place - (len(groups) - 1) / 2.0)
            shown = rows if barred.all() else rows.tail(1)
            banded = len(groups) <= _BANDS_UP_TO
            _values(
                ax, rows, rows if banded else shown, x, colour, words, None if banded else aside
            )
    _finish(ax, table, x, label, kind, alpha, full)
    if kind == "values" and len(groups) > _BANDS_UP_TO and not barred.all():
        ax.set_ylabel(f"{ax.get_ylabel()} at the largest {escaped(x)}")
    if len(groups) > 1:
        look = {} if kind == "span" else {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
        legend(ax, **look)
    return ax


def _values(
    ax: Any,
    rows: pd.DataFrame,
    spans: pd.DataFrame,
    x: str,
    colour: Any,
    words: str,
    aside: float | None,
) -> None:
    """Draw medians, and the spans of some as a band or as whiskers so many points aside."""
    at, low, high = numbers(spans, x, "low", "high")
    high = np.where(np.isfinite(high), high, np.nan)
    transform = ax.transData if aside is None else moved(ax, aside)
    if aside is None:
        ax.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0.0)
    else:
        ax.vlines(at, low, high, color=colour, linewidth=1.2, transform=transform)
    ax.plot(rows[x], rows["median"], "o-", color=colour, label=words, transform=transform)


def _finish(
    ax: Any,
    table: pd.DataFrame,
    x: str,
    label: str,
    kind: Kind,
    alpha: float,
    full: float | None,
) -> None:
    inside = display.level(alpha)
    ax.set_xlabel(f"{escaped(display.levels_of(x))} in a subset")
    if kind == "span":
        ax.set_ylabel(f"{escaped(label)}\nlength of the {inside} span")
        ax.set_ylim(bottom=0.0)
    else:
        ax.set_ylabel(f"{escaped(label)}\nmedian and {inside} of subsets")
        _limits(ax, table, x, full)
        if full is not None and np.isfinite(full):
            ax.axhline(full, color=GREY, linewidth=1.0)
            ax.annotate("all the data", (0.995, full), xycoords=("axes fraction", "data"),
                        xytext=(0, 3), textcoords="offset points", ha="right", color=GREY,
                        fontsize="small")  # fmt: skip
    tidy_axes(ax, "both")


def _limits(ax: Any, table: pd.DataFrame, x: str, full: float | None) -> None:
    """Set the limits, as matplotlib ignores lines that are moved aside."""
    sizes = table[x].to_numpy(dtype=float)
    room = 0.06 * (sizes.max() - sizes.min()) or 0.5 * sizes.max()
    ax.set_xlim(sizes.min() - room, sizes.max() + room)
    full_value = np.nan if full is None else full
    values = np.append(table[["low", "median", "high"]].to_numpy(dtype=float).ravel(), full_value)
    values = values[np.isfinite(values)]
    low, high = values.min(), values.max()
    if low > 0.0 and high > _LOG_FROM * low:
        number_axis(ax, "y", display.number, log=True)
        ax.set_ylim(low / 1.15, high * 1.15)
    else:
        room = 0.05 * (high - low) or 0.05
        ax.set_ylim(low - room, high + room)


_ASIDE_OF_MEASURES = 0.16
"""Distance between the dots of two coefficients, as a share of the height of a measure."""

_MARKERS = {"Erho2": "o", "Phi": "s"}
_LOG_SIZES_FROM = 6.0


def measures(
    table: pd.DataFrame,
    coefficients: Sequence[str] = ("Erho2", "Phi"),
    *,
    goal: float | None = None,
    alpha: float = 0.05,
    xlabel: str = "coefficient",
    ax: Any | None = None,
) -> Any:
    """Draw coefficients as dots with their intervals, one row per measure.

    Parameters
    ----------
    table : one row per measure with the columns measure and, of every coefficient, its value and
        the ends ``_low`` and ``_high`` of its interval
    coefficients : ``"Erho2"``, ``"Phi"`` or both
    goal : of the coefficients, a vertical line
    alpha : intervals have confidence 1 − alpha
    xlabel : of the horizontal axis
    ax : matplotlib axes to draw on; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    DataError
        If a column is missing.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> table = pd.DataFrame({"measure": ["AP", "RR"], "Phi": [0.88, 0.84],
    ...                       "Phi_low": [0.82, 0.78], "Phi_high": [0.91, 0.89]})
    >>> ax = measures(table, ["Phi"], ax=Figure().subplots())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['AP', 'RR']
    """
    check_alpha(alpha)
    columns = [c + e for c in coefficients for e in ("", "_low", "_high")]
    require_columns(table, ["measure", *columns], "the table of measures")
    ax = new_axes(ax, (6.0, max(2.2, 1.3 + 0.45 * len(table))))
    drawn = table[columns].to_numpy(dtype=float)
    drawn = drawn[np.isfinite(drawn)]
    low = min([*drawn.tolist(), *([] if goal is None else [goal])], default=0.0)
    ax.set_xlim(max(0.0, np.floor(10.0 * low - 1e-9) / 10.0 - 0.02), 1.01)
    places = np.arange(len(table), dtype=float)
    for k, name in enumerate(coefficients):
        aside = places + _ASIDE_OF_MEASURES * (k - (len(coefficients) - 1) / 2.0)
        value, left, right = numbers(table, name, f"{name}_low", f"{name}_high")
        whiskers(ax, aside, left, right, color=COLOURS[k], linewidth=2.0)
        ax.plot(value, aside, linestyle="none", marker=_MARKERS[name], color=COLOURS[k],
                label=SYMBOLS[name], clip_on=False)  # fmt: skip
    if goal is not None:
        ax.axvline(goal, color=GREY, linewidth=1.0)
    name_rows(ax, table["measure"])
    ax.set_xlabel(f"{xlabel}, {display.level(alpha)} intervals")
    if len(coefficients) > 1:
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), edgecolor="none")
    tidy_axes(ax, "x")
    return ax


def measure_curves(
    table: pd.DataFrame,
    x: str,
    coefficient: str,
    *,
    curves: pd.DataFrame | None = None,
    goal: float | None = None,
    alpha: float = 0.05,
    xlabel: str | None = None,
    ax: Any | None = None,
) -> Any:
    """Draw a coefficient over the size of a facet, one line per measure.

    Parameters
    ----------
    table : one row per measure and size with the columns measure, `x`, the coefficient and the
        ends ``_low`` and ``_high`` of its interval, which are whiskers side by side
    x : the column on the horizontal axis
    coefficient : ``"Erho2"`` or ``"Phi"``
    curves : a table with many sizes, for the lines; without it the sizes of `table` are joined
    goal : of the coefficient, a horizontal line
    alpha : intervals have confidence 1 − alpha
    xlabel : of the horizontal axis; "levels of" the facet if None
    ax : matplotlib axes to draw on; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    DataError
        If a column is missing.
    PlanError
        If there are more measures than lines that can be distinguished.
    VcompError
        If matplotlib is not installed.
    """
    check_alpha(alpha)
    columns = ["measure", x, *(coefficient + e for e in ("", "_low", "_high"))]
    require_columns(table, columns, "the table of measures")
    names = list(dict.fromkeys(table["measure"]))
    if len(names) > _MOST_LINES:
        raise PlanError(
            f"{len(names)} measures make as many lines, and {_MOST_LINES} can be distinguished: "
            "use kind='dots', or compare fewer"
        )
    ax = new_axes(ax, (6.5, 4.2))
    barred = True
    for place, (name, colour) in enumerate(zip(names, colours(len(names)), strict=True)):
        rows = table[table["measure"] == name].sort_values(x)
        line = rows if curves is None else curves[curves["measure"] == name].sort_values(x)
        ax.plot(line[x], line[coefficient], color=colour, linewidth=1.8)
        aside = _ASIDE * (place - (len(names) - 1) / 2.0)
        points = list(numbers(rows, x, *columns[2:]))
        at = with_whiskers(points[0], len(names))
        barred = barred and bool(at.all())
        points_aside(ax, points, aside, at, color=colour, marker="o", label=escaped(name))
    if goal is not None:
        ax.axhline(goal, color=GREY, linewidth=1.0)
    _horizontal(ax, table if curves is None else curves, x)
    ax.set_xlabel(xlabel or escaped(display.levels_of(x)))
    where = "" if barred else f" at the largest {escaped(x)}"
    ax.set_ylabel(f"{SYMBOLS[coefficient]}, {display.level(alpha)} intervals{where}")
    _vertical(ax, table, curves, coefficient)
    legend(ax, loc="lower right")
    tidy_axes(ax, "both")
    return ax


def _horizontal(ax: Any, table: pd.DataFrame, x: str) -> None:
    sizes = table[x].to_numpy(dtype=float)
    low, high = sizes.min(), sizes.max()
    room = (high / low) ** 0.04 if high > low else 1.5
    ax.set_xlim(low / room, high * room)
    number_axis(ax, "x", display.count, log=high > _LOG_SIZES_FROM * low)


def _vertical(ax: Any, table: pd.DataFrame, curves: pd.DataFrame | None, name: str) -> None:
    """Set the limits, as matplotlib ignores whiskers that are moved aside."""
    lines = [] if curves is None else [*numbers(curves, name)]
    values = np.concatenate([*numbers(table, name, f"{name}_low", f"{name}_high"), *lines])
    values = values[np.isfinite(values)]
    low = values.min() if values.size else 0.0
    ax.set_ylim(np.floor(10.0 * low - 1e-9) / 10.0, 1.005)


_LABELS = {
    **SYMBOLS,
    "rel_err_var": "relative error variance σ²(δ)",
    "abs_err_var": "absolute error variance σ²(Δ)",
}
_MOST_MARKERS = 40
"""Largest number of points of a line that have a marker each."""

_LOG_COSTS_FROM = 20.0


def frontier(
    tables: Mapping[str, pd.DataFrame],
    coefficient: str = "Erho2",
    *,
    is_whole: bool = True,
    best: tuple[str, float, float] | None = None,
    best_label: str = "",
    best_interval: tuple[float, float] = (math.nan, math.nan),
    budget: float | None = None,
    goal: float | None = None,
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
    budget, goal : lines, where they are given
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
    check_one_of("coefficient", coefficient, tuple(_LABELS))
    if not tables:
        raise PlanError("there is no frontier to draw")
    for table in tables.values():
        require_columns(table, ["cost", coefficient], "the table of the frontier")
    ax = new_axes(ax, (6.5, 4.2))
    palette = dict(zip(tables, colours(len(tables)), strict=True))
    for design, table in tables.items():
        cost, value = numbers(table, "cost", coefficient)
        look = {"color": palette[design], "linewidth": 1.6, "label": escaped(design)}
        look |= {"drawstyle": "steps-post" if is_whole else "default"}
        if len(table) <= _MOST_MARKERS:
            look |= {"marker": "o", "markersize": 3.5}
        ax.plot(cost, value, **look)
    if best is not None:
        _mark(ax, best, best_label, best_interval, palette.get(best[0], GREY), alpha)
    for name, at, line in (("budget", budget, ax.axvline), ("goal", goal, ax.axhline)):
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
        ends = [[value - low], [high - value]]
        look = {"ecolor": colour, "elinewidth": 2.5, "capsize": 5.0, "capthick": 2.0}
        ax.errorbar([cost], [value], yerr=np.maximum(ends, 0.0), fmt="none", zorder=4, **look)
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
    log = costs.min() > 0.0 and costs.max() > _LOG_COSTS_FROM * costs.min()
    number_axis(ax, "x", _money, log=log)
    ax.set_xlabel("cost")
    ax.set_ylabel(_LABELS[coefficient])
    values = [t[coefficient].to_numpy(dtype=float) for t in tables.values()]
    shown = np.concatenate([*values, [v for v in interval if math.isfinite(v)]])
    falls = coefficient.endswith("err_var")
    if falls and shown.min() > 0.0 and shown.max() > _LOG_COSTS_FROM * shown.min():
        ax.set_yscale("log")
    elif not falls:
        ax.set_ylim(max(0.0, shown.min() - 0.02), min(1.0, shown.max() + 0.05) + 0.005)
    tidy_axes(ax, "both")
    # Where neither a line nor the interval of the recommendation is.
    legend(ax, loc="upper right" if falls else "upper left")
