"""Items of a test: how they go with the rest, over how difficult they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray, LongArray
from vcomp.exceptions import DataError
from vcomp.plots.canvas import COLOURS, GREY, escaped, new_axes, require_columns, tidy_axes

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "items",
]


_NAME = (0.16, 0.05)
"""A name's width and height, as shares of those of the items that have one."""

_MANY = 200
"""More items than this are drawn smaller."""


def items(
    table: pd.DataFrame, *, low: float = 0.2, max_labels: int = 12, ax: Any | None = None
) -> Any:
    """Draw item-rest correlations over difficulties; flagged items stand out and have names.

    Items without a correlation are not drawn, and the axis says how many they are.

    Parameters
    ----------
    table : of :func:`vcomp.item_analysis`: a row an item with the columns difficulty, item_rest
        and flagged
    low : a line is drawn at this correlation
    max_labels : names at most, of the flagged items with the lowest correlations; one that would
        stand on another is left out
    ax : matplotlib axes to draw on; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    DataError
        If a column is missing, or no item has a correlation.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> import vcomp
    >>> from matplotlib.figure import Figure
    >>> data = vcomp.datasets.load("bodoff2007_alpha")
    >>> found = vcomp.item_analysis(data, object="sys", item="topic", response="score")
    >>> ax = items(found.table, ax=Figure().subplots())
    >>> [text.get_text() for text in ax.texts]
    ['query 2']
    """
    require_columns(table, ("difficulty", "item_rest", "flagged"), "the table of items")
    r = table["item_rest"].to_numpy(dtype=float)
    drawn = ~np.isnan(r)
    if not drawn.any():
        raise DataError("no item has a correlation with the rest: there is nothing to draw")
    flagged = table["flagged"].to_numpy(dtype=bool)
    difficulty = table["difficulty"].to_numpy(dtype=float)
    ax = new_axes(ax)
    ax.axhline(0.0, color=GREY, linewidth=0.8)
    ax.axhline(low, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    size = 6.0 if drawn.sum() <= _MANY else 3.0
    for group, marker, colour, name in (
        (drawn & ~flagged, "o", COLOURS[0], "not flagged"),
        (drawn & flagged, "D", COLOURS[1], "flagged"),
    ):
        if group.any():
            label = f"{name} ({display.count(int(group.sum()))})"
            look = {"linestyle": "none", "markersize": size, "alpha": 0.8, "label": label}
            ax.plot(difficulty[group], r[group], marker=marker, color=colour, **look)
    order = np.flatnonzero(drawn & flagged)
    order = order[np.argsort(r[order], kind="stable")]
    for i in _apart(difficulty, r, order)[:max_labels]:
        aside = {"textcoords": "offset points", "xytext": (6, 3), "fontsize": "small"}
        ax.annotate(escaped(table.index[i]), (difficulty[i], r[i]), color=GREY, **aside)
    xlabel = "difficulty (mean score: easy items at the right)"
    if not drawn.all():
        xlabel += f"\n{display.count(int((~drawn).sum()))} items have no correlation"
    ax.set_xlabel(xlabel)
    ax.set_ylabel("correlation with the other items")
    ax.margins(x=0.08)
    ax.legend(loc="best", frameon=False)
    tidy_axes(ax, "both")
    return ax


def _apart(x: FloatArray, y: FloatArray, order: LongArray) -> list[int]:
    """Return those items of which no earlier one is so near that their names would overlap."""
    if order.size == 0:
        return []
    wide, high = _NAME[0] * np.ptp(x[order]), _NAME[1] * np.ptp(y[order])
    named: list[int] = []
    for i in order.tolist():
        if not any(abs(x[i] - x[j]) < wide and abs(y[i] - y[j]) < high for j in named):
            named.append(i)
    return named
