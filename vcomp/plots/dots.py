"""Dots: components, predicted effects (a caterpillar), items of a test, measures side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.exceptions import DataError, VcompError, check_alpha
from vcomp.plots.canvas import (
    COLOURS,
    GREY,
    escaped,
    hollow_dots,
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

_LOG_FROM = 30.0
"""Components this many times apart need a logarithmic axis."""

_LONG_FROM = 5.0
"""An interval that reaches this many times the largest component needs a logarithmic axis too."""

_LONGEST = 1e-2
"""On a log axis whiskers end this many times below the smallest component."""

_TINY = 1e-290
"""Smallest component on a logarithmic axis; with a margin below it the axis would end at zero."""

_MOST_LEVELS = 100
"""Largest number of levels whose effects are drawn."""

_WIDEST = 1e-9
"""Components this many times below the largest are drawn at its edge, as zero is."""


def components(
    table: pd.DataFrame, *, alpha: float = 0.05, scale: str = "auto", ax: Any | None = None
) -> Any:
    """Draw variance components as dots with their intervals as whiskers.

    They are in the order of the table, each with its share of the total variance at the right if
    the table has it; names that begin with spaces are indented, as parts of those above. A hollow
    dot has no interval. An arrow marks an interval that extends beyond the axis, to infinity or on
    a logarithmic axis to zero. Components at or near zero are at the left edge of such an axis,
    with their value.

    Parameters
    ----------
    table : of :meth:`VarianceComponentsResults.gstudy`: one row per component with the columns
        estimate, low, high, and percent if they have one unit
    alpha : intervals of the table have confidence 1 − alpha
    scale : of the axis: ``"linear"``, ``"log"``, or ``"auto"``, which is
        logarithmic if components differ by orders of magnitude and none is negative
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
    require_columns(table, ("estimate", "low", "high"), "the table of components")
    values, low, high = numbers(table, "estimate", "low", "high")
    log = _is_log(values, low, high, scale)
    places = np.arange(len(table), dtype=float)
    ax = new_axes(ax, (6.0, max(2.6, 1.2 + 0.4 * len(table))))
    ax.set_xscale("log" if log else "linear")
    ax.set_xlim(*_limits(values, low, high, log))
    _, known = whiskers(ax, places, low, high, color=COLOURS[0], linewidth=2.0)
    _caps(ax, low, high, places)
    _dots(ax, values, places, known)
    _labels(ax, table, places, known, alpha)
    if not log:
        ax.axvline(0.0, color=GREY, linewidth=0.8)
    return ax


def _is_log(values: FloatArray, low: FloatArray, high: FloatArray, scale: str) -> bool:
    if scale not in ("auto", "linear", "log"):
        raise VcompError(f"scale is 'auto', 'linear' or 'log', not {scale!r}")
    positive = values[values > _TINY]
    possible = positive.size > 0 and not (values < 0.0).any() and not (low < 0.0).any()
    if scale == "log" and not possible:
        shown = np.concatenate([values, low])
        raise VcompError(
            "a logarithmic axis needs a positive number and has no place for negative ones; "
            "the estimates and lower ends of their intervals go from "
            f"{display.number(np.nanmin(shown))} to {display.number(np.nanmax(shown))}: "
            "use scale='linear'"
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
    shown = np.concatenate([values, low, high])
    shown = shown[np.isfinite(shown)]
    if not log:
        left, right = min(0.0, shown.min()), max(0.0, shown.max())
        span = max(right - left, _TINY)
        return left - (0.04 * span if left < 0.0 else 0.02 * span), right + 0.06 * span
    positive = shown[shown > _TINY]
    left, right = positive.min(), positive.max()
    # The lower end of a wide interval may be decades below its estimate, practically zero.
    estimates = values[values > _TINY]
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
    edge = ax.get_xlim()[0]
    hollow_dots(ax, np.maximum(values, edge), places, known, markersize=7, clip_on=False)
    for value, place in zip(values, places, strict=True):
        if value < edge:
            text, aside = display.number(value, 2), {"textcoords": "offset points"}
            ax.annotate(text, (edge, place), xytext=(7, 3), color=GREY, **aside)


def _labels(
    ax: Any, table: pd.DataFrame, places: FloatArray, known: BoolArray, alpha: float
) -> None:
    parts = [len(str(name)) - len(str(name).lstrip(" ")) for name in table.index]
    # Spaces are narrow: as many again make a part look like one.
    names = [f"{2 * n * ' '}{name}" for n, name in zip(parts, table.index, strict=True)]
    name_rows(ax, names)
    ax.tick_params(axis="y", pad=8)
    if any(parts):
        _indent(ax)
    xlabel = f"variance component σ², {display.level(alpha)} interval"
    if not known.all():
        xlabel += "\n○  no interval: held, negative, or at zero without one"
    ax.set_xlabel(xlabel)
    right = {"transform": ax.get_yaxis_transform(), "ha": "right", "color": GREY}
    if "percent" in table:
        for place, percent in zip(places, table["percent"], strict=True):
            ax.text(1.17, place, display.percent(percent / 100.0), va="center", **right)
        ax.text(1.17, -0.5, "share", va="bottom", **right)
    tidy_axes(ax, "x")


def _indent(ax: Any) -> None:
    """Align the names at the left, so that their leading spaces are seen."""
    names = ax.get_yticklabels()
    widest = max(name.get_window_extent().width for name in names) * 72.0 / ax.figure.dpi
    for name in names:
        name.set_horizontalalignment("left")
    ax.tick_params(axis="y", pad=8.0 + widest)


def effects(
    frame: pd.DataFrame,
    term: str,
    *,
    quantity: str = "predicted effect",
    alpha: float = 0.05,
    max_levels: int = _MOST_LEVELS,
    ax: Any | None = None,
) -> Any:
    """Draw the predicted effects of a term, sorted, with their intervals.

    Up to 40 levels have their names where the axes are high enough; else they are numbered by
    rank. If there are more than `max_levels`, so many are drawn, evenly spaced by rank and
    including the first and last, as the axis says.

    Parameters
    ----------
    frame : one row per level, its label as index, with the columns estimate, low and high; a level
        without interval has nan in the last two
    term : its name, for the label
    quantity : what the estimates are, for the label
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
    _check_effects(frame, term, alpha, max_levels)
    order = np.argsort(frame["estimate"].to_numpy(dtype=float), kind="stable")
    ax = new_axes(ax, (6.0, _height(len(frame), max_levels)))
    _caterpillar(ax, frame, term, order, max_levels, alpha, quantity)
    return ax


def effects_of_bar(
    frames: Mapping[str, pd.DataFrame], *, alpha: float = 0.05, ax: Any | None = None
) -> list[Any]:
    """Draw the predicted effects of a bar with slopes side by side, sorted by the first of them.

    Parameters
    ----------
    frames : name of each effect → its frame, as of :func:`effects`; all have the same levels
    alpha : intervals of the frames have confidence 1 − alpha
    ax : matplotlib axes, as many as effects; those of a new figure if None

    Returns
    -------
    list of matplotlib.axes.Axes, one an effect

    Raises
    ------
    DataError
        If there is no frame, or as for :func:`effects`; or if the axes are not as many as the
        effects.
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
    >>> both = {"g": frame, "g[x]": -frame}
    >>> first, second = effects_of_bar(both, ax=Figure().subplots(1, 2))
    >>> [label.get_text() for label in first.get_yticklabels()], second.get_xlabel()
    (['b', 'a'], 'predicted effect of g[x], 95 % interval')
    """
    if not frames:
        raise DataError("there are no effects to draw")
    first = next(iter(frames.values()))
    for term, frame in frames.items():
        _check_effects(frame, term, alpha, _MOST_LEVELS)
    order = np.argsort(first["estimate"].to_numpy(dtype=float), kind="stable")
    drawn = panels(ax, len(frames), (4.0, _height(len(first), _MOST_LEVELS)))
    for panel, (term, frame) in zip(drawn, frames.items(), strict=True):
        _caterpillar(panel, frame.loc[first.index], term, order, _MOST_LEVELS, alpha)
    return drawn


def _check_effects(frame: pd.DataFrame, term: str, alpha: float, max_levels: int) -> None:
    check_alpha(alpha)
    require_columns(frame, ("estimate", "low", "high"), f"the frame of effects of {term!r}")
    if len(frame) == 0:
        raise DataError(f"there is no level of {term!r} to draw", term=term)
    if max_levels < 2:
        raise DataError(f"max_levels is at least 2, not {max_levels!r}")


def _are_few(n: int, max_levels: int) -> bool:
    """Whether levels are so few that they are named."""
    return n <= min(40, max_levels)


def _height(n: int, max_levels: int) -> float:
    return max(4.0, 1.0 + 0.19 * n) if _are_few(n, max_levels) else 4.0


def _caterpillar(
    ax: Any,
    frame: pd.DataFrame,
    term: str,
    order: LongArray,
    max_levels: int,
    alpha: float,
    quantity: str = "predicted effect",
) -> None:
    """Draw effects in an order of the levels."""
    ranks = _spaced(len(frame), max_levels)
    shown = frame.iloc[order[ranks]]
    height = ax.get_window_extent().height / ax.figure.dpi  # in inches; a name needs 0.12
    named = _are_few(len(frame), max_levels) and height >= 0.12 * len(shown)
    estimate, low, high = numbers(shown, "estimate", "low", "high")
    ends = np.concatenate([estimate, low, high, [0.0]])
    ends = ends[np.isfinite(ends)]
    room = 0.04 * (np.ptp(ends) or 1.0)
    ax.set_xlim(ends.min() - room, ends.max() + room)
    ax.axvline(0.0, color=GREY, linewidth=0.8)
    places = 1.0 + ranks.astype(np.float64)
    width, size = (1.6, 5.0) if named else (0.8, 2.5)
    _, known = whiskers(ax, places, low, high, color=COLOURS[0], linewidth=width, alpha=0.7)
    hollow_dots(ax, estimate, places, known, markersize=size)
    margin = 0.6 if named else 0.02 * (places[-1] - places[0])
    ax.set_ylim(places[0] - margin, places[-1] + margin)
    tidy_axes(ax, "x")
    xlabel = f"{quantity} of {escaped(term)}"
    if known.any():
        xlabel += f", {display.level(alpha)} interval"
    ax.set_xlabel(xlabel if known.all() else f"{xlabel}\n○  no standard error, no interval")
    if named:
        ax.set_yticks(places, [escaped(_name(level)) for level in shown.index])
        ax.tick_params(axis="y", length=0, labelsize="small" if len(shown) > 15 else None)
    else:
        ax.set_ylabel(_rank_label(term, len(shown), len(frame)))


def _spaced(n: int, most: int) -> LongArray:
    """Return which ranks are drawn, the first and the last among them."""
    if n <= most:
        return np.arange(n)
    return np.unique(np.linspace(0, n - 1, most).round().astype(np.int64))


def _rank_label(term: str, shown: int, n: int) -> str:
    if shown == n:
        return f"rank among {escaped(display.counted(n, term))}"
    return f"rank of {display.count(shown)} of {escaped(display.counted(n, term))},\nevenly spaced"


def _name(level: object) -> str:
    return ":".join(map(str, level)) if isinstance(level, tuple) else str(level)


def influence(
    values: pd.Series,
    facet: str,
    name: str,
    *,
    limit: float | None = None,
    max_levels: int = 20,
    ax: Any | None = None,
) -> Any:
    """Draw how far estimates are without each level of a facet, the largest influence on top.

    Parameters
    ----------
    values : of each level, its name as index; one that is not known (nan) is left out
    facet : its name, for the label
    name : of the values, such as ``"Cook's distance"``
    limit : value from which on influence is large, a dashed line; none if None
    max_levels : most levels that are drawn, those of largest influence
    ax : matplotlib axes to draw on; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    DataError
        If no value is known, or `max_levels` is less than 1.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> values = pd.Series([0.1, 0.7], index=["a", "b"])
    >>> ax = influence(values, "sys", "Cook's distance", ax=Figure().subplots())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['b', 'a']
    """
    known = values.dropna().sort_values(ascending=False, kind="stable")
    if len(known) == 0:
        raise DataError(
            f"there is no level of {facet!r} with a known influence to draw", column=facet
        )
    if max_levels < 1:
        raise DataError(f"max_levels is at least 1, not {max_levels!r}")
    shown = known.iloc[:max_levels]
    ax = new_axes(ax, (6.0, max(2.6, 1.0 + 0.19 * len(shown))))
    x, places = shown.to_numpy(dtype=float), np.arange(len(shown))
    ax.hlines(places, 0.0, x, color=GREY, linewidth=0.8)
    ax.plot(x, places, linestyle="none", marker="o", markersize=5.0, color=COLOURS[0])
    if limit is not None:
        ax.axvline(limit, color=COLOURS[1], linewidth=1.2, linestyle="--")
    name_rows(ax, [_name(level) for level in shown.index], smaller_above=15)
    ax.set_xlim(left=0.0)
    more = f", {len(shown)} of {display.counted(len(known), facet)}"
    ax.set_xlabel(
        f"{name} without one {escaped(facet)}" + (more if len(shown) < len(known) else "")
    )
    tidy_axes(ax, "x")
    return ax


def items(
    table: pd.DataFrame, *, low: float = 0.2, max_labels: int = 12, ax: Any | None = None
) -> Any:
    """Draw item-rest correlations over difficulties; flagged items stand out and have names.

    Items without a correlation are not drawn, and the axis says how many they are.

    Parameters
    ----------
    table : of :func:`vcomp.item_analysis`: one row per item with the columns difficulty, item_rest
        and flagged
    low : a line is drawn at this correlation
    max_labels : names at most, of the flagged items with the lowest correlations; one that would
        overlap another is left out
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
    >>> found = vcomp.item_analysis(data, object="sys", item="topic", score="score")
    >>> ax = items(found.table, ax=Figure().subplots())
    >>> [text.get_text() for text in ax.texts]
    ['query 2']
    """
    require_columns(table, ("difficulty", "item_rest", "flagged"), "the table of items")
    r, difficulty = numbers(table, "item_rest", "difficulty")
    drawn = ~np.isnan(r)
    if not drawn.any():
        raise DataError("no item has a correlation with the rest: there is nothing to draw")
    flagged = table["flagged"].to_numpy(dtype=bool)
    ax = new_axes(ax)
    ax.axhline(0.0, color=GREY, linewidth=0.8)
    ax.axhline(low, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    # Number of items above which their dots are smaller
    size = 6.0 if drawn.sum() <= 200 else 3.0
    for group, marker, colour, name in (
        (drawn & ~flagged, "o", COLOURS[0], "not flagged"),
        (drawn & flagged, "D", COLOURS[1], "flagged"),
    ):
        if group.any():
            label = f"{name} ({display.count(int(group.sum()))})"
            look = {"linestyle": "none", "markersize": size, "alpha": 0.8, "label": label}
            ax.plot(difficulty[group], r[group], marker=marker, color=colour, **look)
    xlabel = "difficulty (mean score: easy items at the right)"
    if not drawn.all():
        xlabel += f"\nwithout a correlation: {display.counted(int((~drawn).sum()), 'item')}"
    ax.set_xlabel(xlabel)
    ax.set_ylabel("correlation with the other items")
    ax.margins(x=0.08)
    order = np.flatnonzero(drawn & flagged)
    order = order[np.argsort(r[order], kind="stable")]
    names = [escaped(name) for name in table.index[order]]
    _name_items(ax, difficulty[order], r[order], names, max_labels)
    legend(ax, loc="best")
    tidy_axes(ax, "both")
    return ax


def _name_items(ax: Any, x: FloatArray, y: FloatArray, names: Sequence[str], most: int) -> None:
    """Write names next to items, in order, where none would overlap another."""
    taken: list[Any] = []
    middle = float(np.mean(ax.get_xlim()))
    for at, height, name in zip(x.tolist(), y.tolist(), names, strict=True):
        if len(taken) == most:
            break
        side = 1 if at <= middle else -1
        look = {"textcoords": "offset points", "xytext": (6 * side, 3), "fontsize": "small"}
        look |= {"ha": "left" if side == 1 else "right", "color": GREY}
        text = ax.annotate(name, (at, height), **look)
        box = text.get_window_extent()
        if any(box.overlaps(other) for other in taken):
            text.remove()
        else:
            taken.append(box)


_MARKERS = {"Erho2": "o", "Phi": "s"}


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
        # Distance between the dots of two coefficients, as a share of the height of a measure
        aside = places + 0.16 * (k - (len(coefficients) - 1) / 2.0)
        value, left, right = numbers(table, name, f"{name}_low", f"{name}_high")
        whiskers(ax, aside, left, right, color=COLOURS[k], linewidth=2.0)
        ax.plot(value, aside, linestyle="none", marker=_MARKERS[name], color=COLOURS[k],
                label=display.SYMBOLS[name], clip_on=False)  # fmt: skip
    if goal is not None:
        ax.axvline(goal, color=GREY, linewidth=1.0)
    name_rows(ax, table["measure"])
    ax.set_xlabel(f"{xlabel}, {display.level(alpha)} intervals")
    if len(coefficients) > 1:
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), edgecolor="none")
    tidy_axes(ax, "x")
    return ax
