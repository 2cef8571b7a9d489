"""Coefficients of several measures: dots with intervals, and curves over the size of a facet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp.exceptions import PlanError, check_alpha
from vcomp.plots.canvas import (
    COLOURS,
    GREY,
    colours,
    escaped,
    legend,
    moved,
    new_axes,
    number_axis,
    require_columns,
    tidy_axes,
    whiskers,
)
from vcomp.plots.dependability import SYMBOLS

if TYPE_CHECKING:
    import pandas as pd

_MOST_LINES = 12
_ASIDE = 0.16
"""Of the room of a measure, between the dots of two coefficients."""

_POINTS_ASIDE = 5.0
"""Points (1/72 inch) between the whiskers of two measures at one size."""

_MARKERS = {"Erho2": "o", "Phi": "s"}
_LOG_FROM = 6.0


def measures(
    table: pd.DataFrame,
    coefficients: Sequence[str] = ("Erho2", "Phi"),
    *,
    target: float | None = None,
    alpha: float = 0.05,
    xlabel: str = "coefficient",
    ax: Any | None = None,
) -> Any:
    """Draw coefficients as dots with their intervals, a row a measure.

    Parameters
    ----------
    table : a row a measure with the columns measure and, of every coefficient, its value and the
        ends ``_low`` and ``_high`` of its interval
    coefficients : ``"Erho2"``, ``"Phi"`` or both
    target : of the coefficients, a vertical line
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
    numbers = table[columns].to_numpy(dtype=float)
    numbers = numbers[np.isfinite(numbers)]
    low = min([*numbers.tolist(), *([] if target is None else [target])], default=0.0)
    ax.set_xlim(max(0.0, np.floor(10.0 * low - 1e-9) / 10.0 - 0.02), 1.01)
    places = np.arange(len(table), dtype=float)
    for k, name in enumerate(coefficients):
        aside = places + _ASIDE * (k - (len(coefficients) - 1) / 2.0)
        value, ends = table[name].to_numpy(dtype=float), (f"{name}_low", f"{name}_high")
        left, right = (table[end].to_numpy(dtype=float) for end in ends)
        whiskers(ax, aside, left, right, color=COLOURS[k], linewidth=2.0)
        ax.plot(value, aside, linestyle="none", marker=_MARKERS[name], color=COLOURS[k],
                label=SYMBOLS[name], clip_on=False)  # fmt: skip
    if target is not None:
        ax.axvline(target, color=GREY, linewidth=1.0)
    ax.set_yticks(places, [escaped(name) for name in table["measure"]])
    ax.set_ylim(len(table) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
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
    target: float | None = None,
    alpha: float = 0.05,
    xlabel: str | None = None,
    ax: Any | None = None,
) -> Any:
    """Draw a coefficient over the size of a facet, a line a measure.

    Parameters
    ----------
    table : a row a measure and size with the columns measure, `x`, the coefficient and the ends
        ``_low`` and ``_high`` of its interval, which are whiskers side by side
    x : the column on the horizontal axis
    coefficient : ``"Erho2"`` or ``"Phi"``
    curves : a table with many sizes, for the lines; without it the sizes of `table` are joined
    target : of the coefficient, a horizontal line
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
            "take kind='dots', or compare fewer"
        )
    ax = new_axes(ax, (6.5, 4.2))
    for place, (name, colour) in enumerate(zip(names, colours(len(names)), strict=True)):
        rows = table[table["measure"] == name].sort_values(x)
        line = rows if curves is None else curves[curves["measure"] == name].sort_values(x)
        ax.plot(line[x], line[coefficient], color=colour, linewidth=1.8)
        aside = _POINTS_ASIDE * (place - (len(names) - 1) / 2.0)
        look = {"color": colour, "transform": moved(ax, aside)}
        ax.plot(rows[x], rows[coefficient], "o", label=escaped(name), **look)
        known = rows.dropna(subset=[f"{coefficient}_low", f"{coefficient}_high"])
        ends = [known[f"{coefficient}{e}"].to_numpy(dtype=float) for e in ("_low", "_high")]
        ax.vlines(known[x].to_numpy(dtype=float), *ends, linewidth=1.2, **look)
    if target is not None:
        ax.axhline(target, color=GREY, linewidth=1.0)
    _horizontal(ax, table if curves is None else curves, x)
    ax.set_xlabel(xlabel or f"levels of {escaped(x)}")
    ax.set_ylabel(f"{SYMBOLS[coefficient]}, {display.level(alpha)} intervals")
    _vertical(ax, table, curves, coefficient)
    legend(ax, loc="lower right")
    tidy_axes(ax, "both")
    return ax


def _horizontal(ax: Any, table: pd.DataFrame, x: str) -> None:
    sizes = table[x].to_numpy(dtype=float)
    low, high = sizes.min(), sizes.max()
    room = (high / low) ** 0.04 if high > low else 1.5
    ax.set_xlim(low / room, high * room)
    number_axis(ax, "x", display.count, log=high > _LOG_FROM * low)


def _vertical(ax: Any, table: pd.DataFrame, curves: pd.DataFrame | None, name: str) -> None:
    """Set the limits, which matplotlib does not find where whiskers stand aside."""
    columns = [table[name + ending] for ending in ("", "_low", "_high")]
    columns += [] if curves is None else [curves[name]]
    values = np.concatenate([column.to_numpy(dtype=float) for column in columns])
    values = values[np.isfinite(values)]
    low = values.min() if values.size else 0.0
    ax.set_ylim(np.floor(10.0 * low - 1e-9) / 10.0, 1.005)
