"""How far the estimates of random parts of the data lie apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vcomp import display
from vcomp.exceptions import PlanError, check_alpha
from vcomp.plots.canvas import (
    GREY,
    colours,
    escaped,
    legend,
    moved,
    new_axes,
    number_axis,
    require_columns,
    tidy_axes,
)

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["span", "values"]

_MOST_LINES = 12
_BANDS_UP_TO = 2
_ASIDE = 5.0
"""Points (1/72 inch) between the whiskers of two lines at one size."""

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
    table : a row a size with the columns `x`, `others`, low, median, high and span
    x : the column on the horizontal axis
    others : further sizes
    full : what all the data say, a grey line where values are drawn
    kind : ``"span"`` draws the length of the spans, ``"values"`` medians with their spans: bands
        for one or two lines, whiskers side by side for more
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
            f"can be distinguished: draw fewer sizes, or take another x than {x!r}"
        )
    ax = new_axes(ax)
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
            _values(ax, rows, x, colour, words, None if len(groups) <= _BANDS_UP_TO else aside)
    _finish(ax, table, x, label, kind, alpha, full)
    if len(groups) > 1:
        look = {} if kind == "span" else {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
        legend(ax, **look)
    return ax


def _values(
    ax: Any, rows: pd.DataFrame, x: str, colour: Any, words: str, aside: float | None
) -> None:
    """Draw medians, with a band, or with whiskers so many points aside."""
    at, low, high = (rows[c].to_numpy(dtype=float) for c in (x, "low", "high"))
    high = np.where(np.isfinite(high), high, np.nan)
    transform = ax.transData if aside is None else moved(ax, aside)
    if aside is None:
        ax.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0.0)
    else:
        ax.vlines(at, low, high, color=colour, linewidth=1.2, transform=transform)
    ax.plot(at, rows["median"], "o-", color=colour, label=words, transform=transform)


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
    ax.set_xlabel(f"levels of {escaped(x)} in a subset")
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
    """Set the limits, which matplotlib does not find where lines stand aside."""
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
