"""Curves of Eρ² and Φ over the size of a facet, a cut score or the cost of a measurement."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray
from vcomp.display import SYMBOLS
from vcomp.exceptions import PlanError, check_alpha, check_one_of
from vcomp.plots.canvas import (
    ASIDE,
    BANDS_UP_TO,
    COLOURS,
    GREY,
    MOST_LINES,
    at_the_largest,
    colours,
    escaped,
    legend,
    new_axes,
    number_axis,
    numbers,
    points_aside,
    require_columns,
    tidy_axes,
    with_whiskers,
)

if TYPE_CHECKING:
    import pandas as pd

_STYLES = {"Erho2": ("-", "o"), "Phi": ("--", "s")}


_LOG_FROM = 6.0


@dataclass(frozen=True, slots=True)
class Required:
    """The size that reaches the goal on one line of the picture.

    Attributes
    ----------
    n : size of the facet on the horizontal axis; infinite where none reaches the goal
    low, high : interval of n; nan where it is not known
    """

    n: float
    low: float = math.nan
    high: float = math.nan


Others = tuple[float, ...]
"""The sizes of the other facets, which distinguish the lines."""


def dstudy(
    table: pd.DataFrame,
    x: str,
    others: Sequence[str] = (),
    *,
    coefficients: Sequence[str] = ("Erho2", "Phi"),
    curves: pd.DataFrame | None = None,
    goal: float | None = None,
    required: Mapping[tuple[str, Others], Required] | None = None,
    alpha: float = 0.05,
    xlabel: str | None = None,
    ax: Any | None = None,
) -> Any:
    """Draw coefficients over the size of a facet, a line for all sizes of the other facets.

    Planned sizes are points. One or two curves have their intervals as bands; more, or points
    without curve, have them as whiskers at the points, side by side, or at the largest size only
    where there are more than twelve.

    Parameters
    ----------
    table : of :attr:`DStudy.table`: the sizes, and of each coefficient the value and the ends
        ``_low`` and ``_high`` of its interval, nan where it has none
    x : the facet on the horizontal axis
    others : the other facets of the table
    coefficients : ``"Erho2"``, ``"Phi"`` or both
    curves : a table with many sizes of `x`, drawn as lines; without it the planned sizes are
        joined
    goal : of the coefficients, a horizontal line
    required : (coefficient, sizes of `others`) → the size that reaches the goal
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
        If a coefficient is not known, or there are more lines than can be distinguished.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from vcomp.gtheory import from_components
    >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=[10, 20])
    >>> ax = dstudy(study.table, "i", ax=Figure().subplots())
    >>> ax.lines[0].get_ydata().round(3)
    array([0.833, 0.909])
    """
    check_alpha(alpha)
    _check(coefficients)
    columns = [x, *others, *(c + e for c in coefficients for e in ("", "_low", "_high"))]
    require_columns(table, columns, "the table of the D-study")
    lines = list(_lines(table, x, others, coefficients, curves))
    ax = new_axes(ax, (6.0, 4.0) if len(lines) <= BANDS_UP_TO else (8.0, 4.5))
    bands = len(lines) <= BANDS_UP_TO and all(line.has_band for line in lines)
    known = any(line.points[["low", "high"]].notna().to_numpy().any() for line in lines)
    # Points between the markers of the first and the last line
    aside = min(ASIDE, 40.0 / len(lines)) if known and not bands else 0.0
    at = [with_whiskers(line.points["x"].to_numpy(), len(lines)) for line in lines]
    for place, line in enumerate(lines):
        needs = None if required is None else required.get((line.coefficient, line.others))
        line.draw_curve(ax, goal, needs)
        if bands:
            line.draw_band(ax)
        if len(lines) <= BANDS_UP_TO:
            line.draw_need(ax, goal, needs)
        moved_by = aside * (place - (len(lines) - 1) / 2.0)
        line.draw_points(ax, moved_by, at[place] & (not bands))
    if goal is not None:
        ax.axhline(goal, color=GREY, linewidth=1.0)
    _horizontal(ax, lines, aside * len(lines))
    ax.set_xlabel(xlabel or escaped(display.levels_of(x)))
    _vertical(ax, lines)
    title = f"{display.level(alpha)} intervals"
    if not bands and not np.concatenate(at).all():
        title += at_the_largest(x)
    _legend(ax, len(lines), title if known else None)
    return ax


@dataclass(frozen=True, slots=True)
class _Line:
    """One coefficient at one combination of the other facets' sizes."""

    coefficient: str
    others: Others
    label: str
    colour: Any
    points: pd.DataFrame
    curve: pd.DataFrame

    @property
    def has_band(self) -> bool:
        """Whether the curve has intervals wherever the points have some."""
        known = self.curve["low"].notna().any() or self.points["low"].isna().all()
        return len(self.curve) > 1 and bool(known)

    def draw_curve(self, ax: Any, goal: float | None, needs: Required | None) -> None:
        style, marker = _STYLES[self.coefficient]
        look = {"color": self.colour, "linewidth": 1.8, "linestyle": style}
        ax.plot(self.curve["x"].to_numpy(), self.curve["y"].to_numpy(), **look)
        label = self.label if needs is None else f"{self.label}:  {_need(goal, needs)}"
        ax.plot([], [], marker=marker, label=label, **look)

    def draw_points(self, ax: Any, place: float, whiskers: BoolArray) -> None:
        points = [self.points[c].to_numpy() for c in ("x", "y", "low", "high")]
        look = {"color": self.colour, "marker": _STYLES[self.coefficient][1]}
        points_aside(ax, points, place, whiskers, **look)

    def draw_band(self, ax: Any) -> None:
        x, low, high = (self.curve[c].to_numpy() for c in ("x", "low", "high"))
        ax.fill_between(x, low, high, color=self.colour, alpha=0.15, linewidth=0.0)

    def draw_need(self, ax: Any, goal: float | None, needs: Required | None) -> None:
        if needs is not None and goal is not None and math.isfinite(needs.n):
            ax.plot([needs.n, needs.n], [0.0, goal], ":", color=self.colour, linewidth=1.2)


def _lines(
    table: pd.DataFrame,
    x: str,
    others: Sequence[str],
    coefficients: Sequence[str],
    curves: pd.DataFrame | None,
) -> Iterator[_Line]:
    # No other facets make one combination, of no sizes.
    rows = table[list(others)].to_numpy(dtype=float).tolist()
    combinations = list(dict.fromkeys(map(tuple, rows)))
    n = len(combinations) * len(coefficients)
    if n > MOST_LINES:
        raise PlanError(
            f"{len(combinations)} combinations of sizes of {', '.join(others)} and "
            f"{len(coefficients)} {'coefficient' if len(coefficients) == 1 else 'coefficients'} "
            f"make {n} lines, and {MOST_LINES} can be distinguished: plan fewer sizes, or choose "
            f"one coefficient or another x than {x!r}"
        )
    varying = [k for k in range(len(others)) if len({row[k] for row in combinations}) > 1]
    many = len(combinations) > 1
    palette = colours(len(combinations)) if many else COLOURS
    for k, name in enumerate(coefficients):
        for place, sizes in enumerate(combinations):
            named = [f"{escaped(others[j])} = {display.count(sizes[j])}" for j in varying]
            yield _Line(
                coefficient=name,
                others=sizes,
                label="  ".join([SYMBOLS[name], *named]),
                colour=palette[place] if many else palette[k],
                points=_select(table, x, others, sizes, name),
                curve=_select(table if curves is None else curves, x, others, sizes, name),
            )


def _select(
    table: pd.DataFrame, x: str, others: Sequence[str], sizes: Others, name: str
) -> pd.DataFrame:
    rows = np.ones(len(table), dtype=bool)
    for other, size in zip(others, sizes, strict=True):
        rows &= table[other].to_numpy(dtype=float) == size
    columns = {x: "x", name: "y", f"{name}_low": "low", f"{name}_high": "high"}
    chosen = table.loc[rows, list(columns)].astype(float)
    chosen.columns = list(columns.values())
    return chosen.drop_duplicates().sort_values("x", kind="stable")


def _need(goal: float | None, needs: Required) -> str:
    reached = "goal" if goal is None else display.number(goal)
    if not math.isfinite(needs.n):
        return f"{reached} is out of reach"
    text = f"{reached} at {display.count(needs.n)}"
    if math.isnan(needs.low) or math.isnan(needs.high):
        return text
    return f"{text} ({display.count(needs.low)} to {display.count(needs.high)})"


def _horizontal(ax: Any, lines: Sequence[_Line], aside: float) -> None:
    """Set limits, with room for markers that stand aside, and ticks of the sizes."""
    from matplotlib.ticker import FixedLocator, MaxNLocator

    sizes = np.concatenate([frame["x"].to_numpy() for n in lines for frame in (n.curve, n.points)])
    low, high = sizes.min(), sizes.max()
    # Approximate width of an axis in points
    share = 0.03 + 0.5 * aside / 350.0
    log = high > _LOG_FROM * low
    number_axis(ax, "x", display.count, log=log)
    if log:
        room = (high / low) ** share
        ax.set_xlim(low / room, high * room)
    else:
        room = share * (high - low) or 0.5 * low
        ax.set_xlim(low - room, high + room)
        whole = MaxNLocator(nbins=8, integer=True, steps=[1, 2, 5, 10])
        ax.xaxis.set_major_locator(whole if high > low else FixedLocator([low]))


def _vertical(ax: Any, lines: Sequence[_Line]) -> None:
    columns = ["y", "low", "high"]
    shown = [frame[columns].to_numpy().ravel() for n in lines for frame in (n.curve, n.points)]
    values = np.concatenate(shown)
    values = values[np.isfinite(values)]
    # Wide intervals may reach 0; with negative variances coefficients may be beyond 0 and 1.
    low, high = (values.min(), max(1.0, values.max())) if values.size else (0.0, 1.0)
    ax.set_ylim(math.floor(10.0 * low - 1e-9) / 10.0, high + 0.01 * (high - low))
    ax.set_ylabel(
        "coefficient" if len({n.coefficient for n in lines}) > 1 else SYMBOLS[lines[0].coefficient]
    )
    tidy_axes(ax, "both")


def _legend(ax: Any, n: int, title: str | None) -> None:
    look = {"title": title, "title_fontsize": "small", "fontsize": "small", "edgecolor": "none"}
    if n <= BANDS_UP_TO:
        ax.legend(loc="lower right", framealpha=0.85, **look)
    else:
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), **look)


def _check(coefficients: Sequence[str]) -> None:
    unknown = [c for c in coefficients if c not in SYMBOLS]
    if unknown or not coefficients:
        given = repr(unknown[0]) if unknown else "none"
        raise PlanError(f"coefficients are 'Erho2' and 'Phi', not {given}")


_MOST_CURVES = 8


def cut_scores(
    tables: Mapping[str, pd.DataFrame],
    *,
    mean: float | None = None,
    alpha: float = 0.05,
    ax: Any | None = None,
) -> Any:
    """Draw Φ(λ) over the cut score λ.

    The squared distance of λ from the mean counts less the error variance of the mean. Where
    little or nothing remains, Φ(λ) is flat, at Φ; a note below the axis says so.

    Parameters
    ----------
    tables : name of the curve → frame with the columns ``cut``, ``estimate``, ``low`` and ``high``
    mean : of the scores, where the curve has its minimum; a vertical line
    alpha : intervals have confidence 1 − alpha
    ax : matplotlib axes to draw on; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    DataError
        If a column is missing.
    PlanError
        If there are more curves than can be distinguished.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> table = pd.DataFrame({"cut": [0.0, 1.0], "estimate": [0.8, 0.9], "low": 0.7, "high": 1.0})
    >>> cut_scores({"topic = 5": table}, ax=Figure().subplots()).lines[0].get_ydata()
    array([0.8, 0.9])
    """
    check_alpha(alpha)
    if not 0 < len(tables) <= _MOST_CURVES:
        raise PlanError(
            f"{len(tables)} curves cannot be distinguished; plan up to {_MOST_CURVES} designs"
        )
    for table in tables.values():
        require_columns(table, ("cut", "estimate", "low", "high"), "the table of cut scores")
    ax = new_axes(ax)
    for (name, table), colour in zip(tables.items(), colours(len(tables)), strict=True):
        x, estimate, low, high = numbers(table, "cut", "estimate", "low", "high")
        ax.plot(x, estimate, color=colour, linewidth=1.8, label=name)
        if len(tables) <= 2 and np.isfinite(low).any():
            ax.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    if mean is not None:
        ax.axvline(mean, color=GREY, linewidth=1.0, linestyle=":", label="mean score")
    ax.set_ylim(min(0.5, ax.get_ylim()[0]), 1.0)
    flat = any(
        (np.diff(t["estimate"].to_numpy(dtype=float)) == 0.0).any() for t in tables.values()
    )
    note = "\nflat at Φ: λ is no farther from the mean score than its standard error"
    ax.set_xlabel("cut score λ" + (note if flat else ""))
    ax.set_ylabel("Φ(λ)")
    shaded = len(tables) <= 2 and bool(ax.collections)
    ax.legend(frameon=False, title=f"{display.level(alpha)} intervals" if shaded else None)
    tidy_axes(ax, "both")
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
    if len(names) > MOST_LINES:
        raise PlanError(
            f"{len(names)} measures make as many lines, and {MOST_LINES} can be distinguished: "
            "use kind='dots', or compare fewer"
        )
    ax = new_axes(ax, (6.5, 4.2))
    barred = True
    for place, (name, colour) in enumerate(zip(names, colours(len(names)), strict=True)):
        rows = table[table["measure"] == name].sort_values(x)
        line = rows if curves is None else curves[curves["measure"] == name].sort_values(x)
        ax.plot(line[x], line[coefficient], color=colour, linewidth=1.8)
        aside = ASIDE * (place - (len(names) - 1) / 2.0)
        points = list(numbers(rows, x, *columns[2:]))
        at = with_whiskers(points[0], len(names))
        barred = barred and bool(at.all())
        points_aside(ax, points, aside, at, color=colour, marker="o", label=escaped(name))
    if goal is not None:
        ax.axhline(goal, color=GREY, linewidth=1.0)
    _size_axis(ax, table if curves is None else curves, x)
    ax.set_xlabel(xlabel or escaped(display.levels_of(x)))
    where = "" if barred else at_the_largest(x)
    ax.set_ylabel(f"{SYMBOLS[coefficient]}, {display.level(alpha)} intervals{where}")
    _coefficient_axis(ax, table, curves, coefficient)
    legend(ax, loc="lower right")
    tidy_axes(ax, "both")
    return ax


def _size_axis(ax: Any, table: pd.DataFrame, x: str) -> None:
    sizes = table[x].to_numpy(dtype=float)
    low, high = sizes.min(), sizes.max()
    room = (high / low) ** 0.04 if high > low else 1.5
    ax.set_xlim(low / room, high * room)
    number_axis(ax, "x", display.count, log=high > _LOG_FROM * low)


def _coefficient_axis(
    ax: Any, table: pd.DataFrame, curves: pd.DataFrame | None, name: str
) -> None:
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
        # Largest number of points of a line that have a marker each
        if len(table) <= 40:
            look |= {"marker": "o", "markersize": 3.5}
        ax.plot(cost, value, **look)
    if best is not None:
        _mark(ax, best, best_label, best_interval, palette.get(best[0], GREY), alpha)
    for name, at, line in (("budget", budget, ax.axvline), ("goal", goal, ax.axhline)):
        if at is not None:
            label = f"{name} {display.number(at, 6)}"
            line(at, color=GREY, linewidth=1.0, linestyle=":", label=label)
    _cost_axes(ax, tables, coefficient, best_interval)
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


def _cost_axes(
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
