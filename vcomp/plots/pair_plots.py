"""Pictures of compared pairs of levels: groups without significant differences, p-values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, check_alpha
from vcomp.plots.canvas import (
    COLOURS,
    GREY,
    escaped,
    legend,
    name_rows,
    new_axes,
    numbers,
    panels,
    require_columns,
    tidy_axes,
    whiskers,
)

if TYPE_CHECKING:
    import pandas as pd


_NAMED_UP_TO = 60
"""Number of levels above which ranks replace their names."""

_HEIGHT = 0.17
"""Height of a level in inches."""

_ROOM, _WIDTH, _WIDEST = 0.05, 0.05, 0.8
"""Distance from the means, distance between groups, and largest width of all groups, as shares of
the range of the means."""
_STEPS = (1.0, 0.2, 0.02)
"""Thresholds of the colours of p-values, as shares of alpha: .05, .01 and .001 for alpha = .05."""

_STRENGTHS = (0.35, 0.65, 1.0)


def leaderboard(
    table: pd.DataFrame,
    *,
    alpha: float = 0.05,
    facet: str = "level",
    plural: str = "",
    ax: Any | None = None,
) -> list[Any]:
    """Draw the means of levels with intervals and groups, and next to them ranks with their sets.

    Parameters
    ----------
    table : one row per level, the best first, with the columns of :func:`alike_groups`, low and
        high among them, and rank, rank_low and rank_high
    alpha, facet, plural : as for :func:`alike_groups`
    ax : two matplotlib axes to draw on; those of a new figure if None

    Returns
    -------
    list of matplotlib.axes.Axes

    Raises
    ------
    DataError
        If a column is missing, there is no level, or there are not two axes.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> table = pd.DataFrame({"mean": [0.4, 0.3], "low": [0.3, 0.2], "high": [0.5, 0.4],
    ...                       "group": ["a", "a"], "rank": [1, 2], "rank_low": [1, 1],
    ...                       "rank_high": [2, 2]}, list("xy"))
    >>> scores, ranks = leaderboard(table, facet="model", ax=Figure().subplots(1, 2))
    >>> scores.get_xlabel().splitlines()[0], ranks.get_xlabel()
    ('mean of the model, 95 % interval', 'rank of the model, with its confidence set')
    """
    require_columns(table, ("low", "high", "rank", "rank_low", "rank_high"), "the table of scores")
    scores, places = panels(ax, 2, (5.0, _height(len(table))))
    words = {"facet": facet, "plural": plural}
    alike_groups(table, alpha=alpha, **words, ax=scores)
    sets = table[["rank", "rank_low", "rank_high"]].set_axis(["rank", "low", "high"], axis=1)
    rank_sets(sets, **words, ax=places)
    return [scores, places]


def alike_groups(
    table: pd.DataFrame,
    *,
    alpha: float = 0.05,
    facet: str = "level",
    plural: str = "",
    ax: Any | None = None,
) -> Any:
    """Draw the means of levels from the largest to the smallest, with a line for each group.

    The levels of a group have dots on its line, at the right of the axes: no two of them are
    significantly different.

    Parameters
    ----------
    table : one row per level, its name as index, in order, with the columns mean and group; groups
        are letters, with spaces between them if they are of several letters. Intervals are drawn
        from low to high, if it has these columns
    alpha : intervals have confidence 1 − alpha
    facet : whose levels they are, for labels
    plural : word for several levels; with an s by default
    ax : matplotlib axes to draw on; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    DataError
        If a column is missing, or there is no level.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> table = pd.DataFrame({"mean": [0.4, 0.3, 0.1], "group": ["a", "ab", "b"]}, list("xyz"))
    >>> ax = alike_groups(table, facet="system", ax=Figure().subplots())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['x', 'y', 'z']
    """
    require_columns(table, ("mean", "group"), "the table of groups")
    several = plural or display.levels_of(facet)
    ax = _axes_of_levels(table, ax, "rank", several)
    size = 5.0 if len(table) <= _NAMED_UP_TO else 2.5
    groups, ends = _members(list(table["group"])), ["mean"]
    if {"low", "high"} <= set(table):
        ends = ["mean", "low", "high"]
    drawn = table[ends].to_numpy(dtype=float)
    drawn = drawn[np.isfinite(drawn)]
    low, high = float(drawn.min()), float(drawn.max())
    span = (high - low) or 1.0
    step = min(_WIDTH, _WIDEST / max(len(groups), 1)) * span
    ax.set_xlim(low - _ROOM * span, high + _ROOM * span)
    label = f"mean of the {escaped(facet)}"
    if len(ends) > 1:
        check_alpha(alpha)
        look: dict[str, Any] = {"color": COLOURS[0], "linewidth": 0.3 * size, "alpha": 0.7}
        whiskers(ax, np.arange(float(len(table))), *numbers(table, "low", "high"), **look)
        label += f", {display.level(alpha)} interval"
    ax.plot(table["mean"], range(len(table)), "o", color=COLOURS[0], markersize=size)
    for number, members in enumerate(groups.values(), start=1):
        x = np.full(len(members), high + _ROOM * span + number * step)
        ax.plot(x, members, "o-", color=GREY, linewidth=1.2, markersize=0.55 * size)
    ax.set_xlim(low - _ROOM * span, high + 2.0 * _ROOM * span + len(groups) * step)
    ax.set_xticks([tick for tick in ax.get_xticks() if low - span / 4 <= tick <= high])
    ax.set_xlim(low - _ROOM * span, high + 2.0 * _ROOM * span + len(groups) * step)
    ax.set_xlabel(f"{label}\nlines join {escaped(several)} that do not differ significantly")
    return ax


def _height(k: int) -> float:
    """Return the height of a picture of some levels in inches."""
    return max(2.4, 0.8 + _HEIGHT * min(k, _NAMED_UP_TO))


def _axes_of_levels(table: pd.DataFrame, ax: Any | None, what: str, plural: str) -> Any:
    """Return axes with a row for each level: their names, or a label with their number."""
    k = len(table)
    if not k:
        raise DataError("there is no level to draw")
    ax = new_axes(ax, (6.0, _height(k)))
    if k <= _NAMED_UP_TO:
        name_rows(ax, table.index, smaller_above=15)
    else:
        ax.set_ylim(k - 0.5, -0.5)
        ax.set_ylabel(f"{what} among {display.count(k)} {escaped(plural)}")
    tidy_axes(ax, "x")
    return ax


def rank_sets(
    table: pd.DataFrame, *, facet: str = "level", plural: str = "", ax: Any | None = None
) -> Any:
    """Draw the rank of each level as a dot on the line of its confidence set.

    Parameters
    ----------
    table : one row per level, its name as index, the best first, with the columns rank, low and
        high
    facet : whose levels they are, for labels
    plural : word for several levels; with an s by default
    ax : matplotlib axes to draw on; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    DataError
        If a column is missing, or there is no level.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> table = pd.DataFrame({"rank": [1, 2, 3], "low": [1, 1, 3], "high": [2, 2, 3]}, list("xyz"))
    >>> ax = rank_sets(table, facet="system", ax=Figure().subplots())
    >>> ax.get_xlabel()
    'rank of the system, with its confidence set'
    """
    require_columns(table, ("rank", "low", "high"), "the table of ranks")
    ax = _axes_of_levels(table, ax, "place", plural or display.levels_of(facet))
    k = len(table)
    width, size = (3.0, 5.0) if k <= _NAMED_UP_TO else (1.0, 2.5)
    ax.hlines(range(k), table["low"], table["high"], color=GREY, linewidth=width)
    ax.plot(table["rank"], range(k), "o", color=COLOURS[0], markersize=size)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlim(0.5, k + 0.5)
    ax.set_xlabel(f"rank of the {escaped(facet)}, with its confidence set")
    return ax


def _members(groups: list[str]) -> dict[str, list[int]]:
    """Return the places of the levels of each group, by its letters."""
    spaced = any(" " in letters for letters in groups)
    members: dict[str, list[int]] = {}
    for place, letters in enumerate(groups):
        for name in letters.split() if spaced else letters:
            members.setdefault(name, []).append(place)
    return members


def pair_p_values(
    p_values: pd.DataFrame,
    differences: pd.DataFrame,
    *,
    alpha: float = 0.05,
    facet: str = "level",
    ax: Any | None = None,
) -> Any:
    """Draw the p-values of all pairs of levels as a square, coloured by who is better.

    Parameters
    ----------
    p_values : (k, k) frame with the levels as index and columns
    differences : (k, k) frame of row less column
    alpha : level of significance; smaller p-values have stronger colours, from alpha, alpha/5 and
        alpha/50 on
    facet : whose levels they are, for labels
    ax : matplotlib axes to draw on; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    DataError
        If the frames are not squares of the same levels.
    PlanError
        If alpha is not between 0 and 1.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> p = pd.DataFrame([[np.nan, 0.001], [0.001, np.nan]], list("xy"), list("xy"))
    >>> d = pd.DataFrame([[np.nan, 0.2], [-0.2, np.nan]], list("xy"), list("xy"))
    >>> ax = pair_p_values(p, d, facet="system", ax=Figure().subplots())
    >>> [text.get_text() for text in ax.get_legend().get_texts()][:2]
    ['row better, p ≤ 0.05', 'p ≤ 0.01']
    """
    check_alpha(alpha)
    if p_values.shape[0] != p_values.shape[1] or p_values.shape != differences.shape:
        raise DataError(
            f"p-values and differences must be squares of the same levels; they are "
            f"{p_values.shape[0]} × {p_values.shape[1]} and {differences.shape[0]} × "
            f"{differences.shape[1]}"
        )
    k = len(p_values)
    side = max(3.0, min(0.8 + _HEIGHT * k, 10.0))
    ax = new_axes(ax, (side + 2.5, side))
    p, d = p_values.to_numpy(dtype=float), differences.to_numpy(dtype=float)
    ax.imshow(_colours(p, d, alpha), interpolation="nearest", aspect="equal")
    if k <= _NAMED_UP_TO:
        names = [escaped(name) for name in p_values.index]
        look = {"size": "small" if k > 15 else None}
        ax.set_xticks(range(k), names, rotation=90, **look)
        ax.set_yticks(range(k), names, **look)
        ax.tick_params(length=0)
    else:
        ax.set_xlabel(f"rank among {escaped(display.counted(k, facet))}")
        ax.set_ylabel("rank")
    ax.spines[:].set_visible(False)
    _legend(ax, alpha)
    return ax


def _colours(p: FloatArray, d: FloatArray, alpha: float) -> FloatArray:
    """Return the colour of each cell, (k, k, 3)."""
    from matplotlib.colors import to_rgb

    image = np.full((*p.shape, 3), 0.95)
    image[np.isnan(p)] = 1.0
    for share, strength in zip(_STEPS, _STRENGTHS, strict=True):
        for sign, colour in ((1.0, COLOURS[0]), (-1.0, COLOURS[1])):
            with np.errstate(invalid="ignore"):
                cells = (display.snapped(p, share * alpha) <= share * alpha) & (np.sign(d) == sign)
            image[cells] = 1.0 - strength * (1.0 - np.array(to_rgb(colour)))
    return image


def _legend(ax: Any, alpha: float) -> None:
    from matplotlib.patches import Patch

    handles = []
    for words, sign in (("row better, ", 1.0), ("row worse, ", -1.0)):
        for place, share in enumerate(_STEPS):
            cell = np.array([[share * alpha]]), np.array([[sign]])
            label = f"p ≤ {display.number(share * alpha)}"
            colour = _colours(*cell, alpha)[0, 0]
            handles.append(Patch(color=colour, label=(words if place == 0 else "") + label))
    handles.append(Patch(color=(0.95, 0.95, 0.95), label="not significant"))
    outside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
    legend(ax, handles=handles, **outside)
