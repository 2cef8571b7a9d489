"""Predicted effects with their intervals, sorted: a caterpillar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import LongArray
from vcomp.exceptions import DataError, check_alpha
from vcomp.plots.canvas import (
    COLOURS,
    GREY,
    escaped,
    new_axes,
    require_columns,
    tidy_axes,
    whiskers,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "effects",
]


_LABELLED = 40
"""More levels than this are not named."""

_NAME = 0.12
"""Inches of height that a name takes."""


def effects(
    frame: pd.DataFrame,
    term: str,
    *,
    alpha: float = 0.05,
    max_levels: int = 100,
    ax: Any | None = None,
) -> Any:
    """Draw the predicted effects of a term, sorted, with their intervals.

    Up to 40 levels have their names where the axes are high enough; else they are numbered by
    rank. Of more than `max_levels` so many
    are drawn, evenly spaced by rank with the first and the last of them, and the axis says so.

    Parameters
    ----------
    frame : a row a level, its label as index, with the columns estimate, low and high; a level
        without interval has nan in the last two
    term : its name, for the label
    alpha : intervals of the frame have confidence 1 − alpha
    max_levels : most levels that are drawn, at least 2
    ax : matplotlib axes to draw on; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    DataError
        If a column is missing, there is no level, or `max_levels` is less than 2.
    PlanError
        If alpha is not between 0 and 1.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> columns = {"estimate": [0.2, -0.1], "low": [0.1, -0.2], "high": [0.3, 0.0]}
    >>> frame = pd.DataFrame(columns, index=["a", "b"])
    >>> ax = effects(frame, "sys", ax=Figure().subplots())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['b', 'a']
    """
    check_alpha(alpha)
    require_columns(frame, ("estimate", "low", "high"), f"the frame of effects of {term!r}")
    if len(frame) == 0:
        raise DataError(f"there is no level of {term!r} to draw")
    if max_levels < 2:
        raise DataError(f"max_levels is at least 2, not {max_levels!r}")
    order = np.argsort(frame["estimate"].to_numpy(dtype=float), kind="stable")
    ranks = _spaced(len(frame), max_levels)
    shown = frame.iloc[order[ranks]]
    few = len(frame) <= min(_LABELLED, max_levels)
    ax = new_axes(ax, (6.0, max(4.0, 1.0 + 0.19 * len(shown)) if few else 4.0))
    named = few and ax.get_window_extent().height / ax.figure.dpi >= _NAME * len(shown)
    _draw(ax, shown, ranks + 1.0, thin=not named)
    known = shown[["low", "high"]].notna().all(axis=1)
    xlabel = f"predicted effect of {escaped(term)}"
    if known.any():
        xlabel += f", {display.level(alpha)} interval"
    ax.set_xlabel(xlabel if known.all() else f"{xlabel}\n○  no standard error, no interval")
    if named:
        ax.set_yticks(ranks + 1.0, [escaped(_name(level)) for level in shown.index])
        ax.tick_params(axis="y", length=0, labelsize="small" if len(shown) > 15 else None)
    else:
        ax.set_ylabel(_rank_label(term, len(shown), len(frame)))
    return ax


def _draw(ax: Any, shown: pd.DataFrame, places: Any, *, thin: bool) -> None:
    estimate, low, high = (shown[c].to_numpy(dtype=float) for c in ("estimate", "low", "high"))
    numbers = np.concatenate([estimate, low, high, [0.0]])
    numbers = numbers[np.isfinite(numbers)]
    room = 0.04 * (np.ptp(numbers) or 1.0)
    ax.set_xlim(numbers.min() - room, numbers.max() + room)
    ax.axvline(0.0, color=GREY, linewidth=0.8)
    width, size = (0.8, 2.5) if thin else (1.6, 5.0)
    _, known = whiskers(ax, places, low, high, color=COLOURS[0], linewidth=width, alpha=0.7)
    look = {"linestyle": "none", "marker": "o", "color": COLOURS[0], "markersize": size}
    for group, fill in ((known, COLOURS[0]), (~known, "white")):
        if group.any():
            ax.plot(estimate[group], places[group], markerfacecolor=fill, **look)
    margin = 0.02 * (places[-1] - places[0]) if thin else 0.6
    ax.set_ylim(places[0] - margin, places[-1] + margin)
    tidy_axes(ax, "x")


def _spaced(n: int, most: int) -> LongArray:
    """Return which ranks are drawn, the first and the last among them."""
    if n <= most:
        return np.arange(n)
    return np.unique(np.linspace(0, n - 1, most).round().astype(np.int64))


def _rank_label(term: str, shown: int, n: int) -> str:
    if shown == n:
        return f"rank among {display.count(n)} levels of {escaped(term)}"
    return (
        f"rank of {display.count(shown)} of {display.count(n)} levels of {escaped(term)},\n"
        "evenly spaced"
    )


def _name(level: object) -> str:
    return ":".join(map(str, level)) if isinstance(level, tuple) else str(level)
