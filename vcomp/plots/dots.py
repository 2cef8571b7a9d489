"""Variance components with their intervals: a dot and a whisker each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import VcompError, check_alpha
from vcomp.plots.canvas import COLOURS, GREY, escaped, new_axes, require_columns, tidy_axes
from vcomp.plots.canvas import whiskers as draw_whiskers

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "components",
]


_LOG_FROM = 30.0
"""Components this many times apart need a logarithmic axis."""

_LONG_FROM = 5.0
"""So does an interval that reaches this many times beyond the largest component."""

_LONGEST = 1e-2
"""On a log axis whiskers end this many times below the smallest component."""

_WIDEST = 1e-9
"""And components this many times below the largest stand at its edge, as zero does."""


def components(
    table: pd.DataFrame, *, alpha: float = 0.05, scale: str = "auto", ax: Any | None = None
) -> Any:
    """Draw variance components as dots with their intervals as whiskers.

    They stand in the order of the table, each with its share of the total variance at the right.
    A hollow dot has no interval; a whisker that ends in an arrow goes on, to infinity or on a
    logarithmic axis to zero; a component at zero, or next to it, stands with its number at the
    left edge of such an axis.

    Parameters
    ----------
    table : of :meth:`VarianceComponentsResults.gstudy`: a row a component with the columns
        estimate, ci_low, ci_high and percent
    alpha : intervals of the table have confidence 1 − alpha
    scale : of the axis: ``"linear"``, ``"log"``, or ``"auto"``, which takes a logarithmic axis
        where a linear one would press components together at zero and none is negative
    ax : matplotlib axes to draw on; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    DataError
        If a column is missing.
    PlanError
        If alpha is not between 0 and 1.
    VcompError
        If the scale is not known, is logarithmic and no estimate is positive or one is negative;
        or matplotlib is not installed.

    Examples
    --------
    >>> import vcomp
    >>> from matplotlib.figure import Figure
    >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
    >>> ax = components(res.gstudy(), ax=Figure().subplots())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['sys', 'topic', 'Residual']
    """
    check_alpha(alpha)
    require_columns(table, ("estimate", "ci_low", "ci_high", "percent"), "the table of components")
    values, low, high = (
        table[column].to_numpy(dtype=float) for column in ("estimate", "ci_low", "ci_high")
    )
    log = _is_log(values, low, high, scale)
    places = np.arange(len(table), dtype=float)
    ax = new_axes(ax, (6.0, max(2.6, 1.2 + 0.4 * len(table))))
    ax.set_xscale("log" if log else "linear")
    ax.set_xlim(*_limits(values, low, high, log))
    look = {"color": COLOURS[0], "linewidth": 2.0}
    _, known = draw_whiskers(ax, places, low, high, **look)
    _caps(ax, low, high, places)
    _dots(ax, values, places, known)
    _labels(ax, table, places, known, alpha)
    if not log:
        ax.axvline(0.0, color=GREY, linewidth=0.8)
    return ax


def _is_log(values: FloatArray, low: FloatArray, high: FloatArray, scale: str) -> bool:
    if scale not in ("auto", "linear", "log"):
        raise VcompError(f"scale is 'auto', 'linear' or 'log', not {scale!r}")
    positive = values[values > 0.0]
    possible = positive.size > 0 and not (values < 0.0).any() and not (low < 0.0).any()
    if scale == "log" and not possible:
        numbers = np.concatenate([values, low])
        raise VcompError(
            "a logarithmic axis needs a positive number and has no place for negative ones; "
            "the estimates and lower ends of their intervals go from "
            f"{display.number(np.nanmin(numbers))} to {display.number(np.nanmax(numbers))}: "
            "take scale='linear'"
        )
    if scale != "auto" or not possible:
        return scale == "log"
    ends = high[np.isfinite(high)]
    longest = max(ends.max(initial=0.0), positive.max())
    return bool(
        positive.max() > _LOG_FROM * positive.min() or longest > _LONG_FROM * positive.max()
    )


def _limits(
    values: FloatArray, low: FloatArray, high: FloatArray, log: bool
) -> tuple[float, float]:
    """Return the ends of the axis, with room for arrows."""
    numbers = np.concatenate([values, low, high])
    numbers = numbers[np.isfinite(numbers)]
    if not log:
        left, right = min(0.0, numbers.min()), max(0.0, numbers.max())
        span = (right - left) or 1.0
        return left - (0.04 * span if left < 0.0 else 0.02 * span), right + 0.06 * span
    positive = numbers[numbers > 0.0]
    left, right = positive.min(), positive.max()
    # The lower end of a wide interval may be decades below its estimate, and says "about zero".
    estimates = values[values > 0.0]
    left = max(left, _LONGEST * estimates.min(), _WIDEST * estimates.max())
    room = (right / left) ** 0.06
    at_zero = (values < left).any() or (low < left).any()
    return left / (room * (2.0 if at_zero else 1.0)), right * room


def _caps(ax: Any, low: FloatArray, high: FloatArray, places: FloatArray) -> None:
    """Mark ends within the axis, so that an interval can be seen that a dot hides."""
    left, right = ax.get_xlim()
    for ends in (low, high):
        inside = (ends >= left) & (ends <= right)
        look = {"linestyle": "none", "markersize": 8, "markeredgewidth": 1.6}
        ax.plot(ends[inside], places[inside], marker="|", color=COLOURS[0], **look)


def _dots(ax: Any, values: FloatArray, places: FloatArray, known: BoolArray) -> None:
    look = {"linestyle": "none", "markersize": 7, "color": COLOURS[0], "clip_on": False}
    edge = ax.get_xlim()[0]
    shown = np.maximum(values, edge)
    for group, fill in ((known, COLOURS[0]), (~known, "white")):
        if group.any():
            ax.plot(shown[group], places[group], marker="o", markerfacecolor=fill, **look)
    for value, place in zip(values, places, strict=True):
        if value < edge:
            text, aside = display.number(value, 2), {"textcoords": "offset points"}
            ax.annotate(text, (edge, place), xytext=(7, 3), color=GREY, **aside)


def _labels(
    ax: Any, table: pd.DataFrame, places: FloatArray, known: BoolArray, alpha: float
) -> None:
    ax.set_yticks(places, [escaped(name) for name in table.index])
    ax.set_ylim(len(table) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0, pad=8)
    xlabel = f"variance component σ², {display.level(alpha)} interval"
    if not known.all():
        xlabel += "\n○  no interval: held, negative, or at zero without one"
    ax.set_xlabel(xlabel)
    right = {"transform": ax.get_yaxis_transform(), "ha": "right", "color": GREY}
    for place, percent in zip(places, table["percent"], strict=True):
        ax.text(1.17, place, display.percent(percent / 100.0), va="center", **right)
    ax.text(1.17, -0.5, "share", va="bottom", **right)
    tidy_axes(ax, "x")
