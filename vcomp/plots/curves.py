"""Accuracies, spans of estimates and p-values over the number of topics or other levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import PlanError, check_alpha
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
    moved,
    new_axes,
    number_axis,
    numbers,
    panels,
    points_aside,
    require_columns,
    tidy_axes,
    with_whiskers,
)

if TYPE_CHECKING:
    import pandas as pd

_STYLES = ("-", "--", "-.", ":")


_LOG_FROM = 8.0
"""Sizes this many times apart need a logarithmic axis."""

_PANEL, _ALONE = (4.8, 3.9), (6.0, 3.9)
"""Sizes of one of several panels, and of a single one."""


def accuracies(
    table: pd.DataFrame,
    curves: pd.DataFrame,
    scales: Mapping[str, Sequence[str]],
    *,
    labels: Mapping[str, str],
    xlabel: str = "topic",
    seen: float | None = None,
    alpha: float = 0.05,
    ax: Any | None = None,
) -> list[Any]:
    """Draw measures over the number of topics: a line each, its intervals as a band.

    More than four measures in one panel have their intervals as whiskers at the requested sizes,
    side by side, or at the largest size only where there are more than twelve.

    Parameters
    ----------
    table : one row per measure and size with columns measure, n, estimate, low and high: points
    curves : the same columns at enough sizes for smooth lines
    scales : label of the vertical axis → measures, a panel each
    labels : measure → how it is written
    xlabel : the facet on the horizontal axes
    seen : the number of topics of the collection, a vertical line; None for none
    alpha : intervals have confidence 1 − alpha
    ax : matplotlib axes, one a panel; those of a new figure if None

    Returns
    -------
    list of matplotlib.axes.Axes

    Raises
    ------
    DataError
        If a column is missing, or there are not as many axes as panels.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> table = pd.DataFrame({"measure": "tau", "n": [25, 50], "estimate": [0.7, 0.8],
    ...                       "low": [0.6, 0.7], "high": [0.8, 0.9]})
    >>> (drawn,) = accuracies(table, table, {"accuracy": ["tau"]}, labels={"tau": "τ"},
    ...                    ax=Figure().subplots())
    >>> drawn.get_ylabel()
    'accuracy, 95 % intervals'
    """
    check_alpha(alpha)
    for frame, what in ((table, "the table of accuracies"), (curves, "that of curves")):
        require_columns(frame, ["measure", "n", "estimate", "low", "high"], what)
    n = len(scales)
    drawn = panels(ax, n, _PANEL, columns=n, alone=_ALONE)
    for panel, (ylabel, names) in zip(drawn, scales.items(), strict=True):
        banded, barred = len(names) <= 4, True
        for place, (name, colour) in enumerate(zip(names, colours(len(names)), strict=True)):
            points, line = (f[f["measure"] == name].sort_values("n") for f in (table, curves))
            look = {"color": colour, "linestyle": _STYLES[place % len(_STYLES)], "linewidth": 1.8}
            panel.plot(line["n"], line["estimate"], **look)
            if banded:
                ends = (line["n"], line["low"], line["high"])
                # Opacity of all bands of a panel together; their edges distinguish them
                panel.fill_between(*ends, color=colour, alpha=0.24 / len(names), linewidth=0.0)
                for end in ends[1:]:
                    panel.plot(line["n"], end, **{**look, "linewidth": 0.6, "alpha": 0.7})
            # Points (1/72 inch) between the whiskers of two measures at one size
            aside = 0.0 if banded else 4.0 * (place - (len(names) - 1) / 2.0)
            at = with_whiskers(points["n"].to_numpy(dtype=float), len(names)) & (not banded)
            barred = barred and bool(banded or at.all())
            _points(panel, points, colour, aside, at)
            panel.plot([], [], marker="o", markersize=4, label=escaped(labels[name]), **look)
        _finish(panel, curves, xlabel, seen, named=len(names) > 1 or n == 1)
        where = "" if barred else at_the_largest(xlabel)
        panel.set_ylabel(f"{escaped(ylabel)}, {display.level(alpha)} intervals{where}")
    return drawn


def _points(ax: Any, points: pd.DataFrame, colour: Any, aside: float, whiskers: BoolArray) -> None:
    """Draw the requested sizes, those with whiskers moved sideways by so many points."""
    drawn = list(numbers(points, "n", "estimate", "low", "high"))
    points_aside(ax, drawn, aside, whiskers, color=colour, marker="o", markersize=4)
    # matplotlib ignores transformed data when it sets the limits.
    ends = np.column_stack([np.repeat(drawn[0], 3), np.column_stack(drawn[1:]).ravel()])
    ax.update_datalim(ends[np.repeat(whiskers, 3) & np.isfinite(ends).all(axis=1)])


def _finish(
    ax: Any, curves: pd.DataFrame, xlabel: str, seen: float | None, *, named: bool
) -> None:
    low, high = float(curves["n"].min()), float(curves["n"].max())
    number_axis(ax, "x", display.count, log=high > _LOG_FROM * low)
    ax.set_xlabel(escaped(display.levels_of(xlabel)))
    if seen is not None and low <= seen <= high:
        ax.axvline(seen, color=GREY, linewidth=1.0, linestyle=":", label="this collection")
    tidy_axes(ax, "both")
    if named:
        legend(ax, handlelength=3.2)


_DASHES = ("-", "--", "-.")


def accuracy_curves(
    observations: pd.DataFrame,
    curves: pd.DataFrame,
    *,
    label: str = "accuracy",
    alpha: float = 0.05,
    ax: Any | None = None,
) -> Any:
    """Draw observed accuracies as points, their means, and curves through them.

    Parameters
    ----------
    observations : one row per split with the columns n and accuracy; nan is not drawn
    curves : one row per point of a curve with the columns model, n, estimate, obs_low and obs_high
    label : what was measured
    alpha : prediction intervals hold a share of 1 − alpha; drawn where there is but one curve
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
    >>> seen = pd.DataFrame({"n": [5, 5, 10], "accuracy": [0.4, 0.6, 0.7]})
    >>> curve = pd.DataFrame({"model": "exp1", "n": [5, 50], "estimate": [0.5, 0.9],
    ...                       "obs_low": [0.3, 0.8], "obs_high": [0.7, 1.0]})
    >>> ax = accuracy_curves(seen, curve, label="τ", ax=Figure().subplots())
    >>> ax.get_ylabel()
    'τ'
    """
    check_alpha(alpha)
    require_columns(observations, ["n", "accuracy"], "the table of observations")
    require_columns(curves, ["model", "n", "estimate", "obs_low", "obs_high"], "that of curves")
    ax = new_axes(ax)
    seen = observations.dropna(subset=["accuracy"])
    ax.plot(seen["n"], seen["accuracy"], ".", color="0.75", markersize=4, markeredgewidth=0.0)
    means = seen.groupby("n")["accuracy"].mean()
    ax.plot(means.index, means, "o", color=GREY, markersize=4)
    models = list(dict.fromkeys(curves["model"]))
    for place, (model, colour) in enumerate(zip(models, colours(len(models)), strict=True)):
        rows = curves[curves["model"] == model].sort_values("n")
        if len(models) == 1:
            ax.fill_between(rows["n"], rows["obs_low"], rows["obs_high"], color=colour, alpha=0.15,
                            linewidth=0.0, label=f"{display.level(alpha)} of splits")  # fmt: skip
        look = _DASHES[place % len(_DASHES)]
        ax.plot(rows["n"], rows["estimate"], look, color=colour, label=escaped(model), linewidth=2)
    _extrapolation_finish(ax, seen, curves, label)
    return ax


def _extrapolation_finish(ax: Any, seen: pd.DataFrame, curves: pd.DataFrame, label: str) -> None:
    largest = float(max([*seen["n"], *curves["n"]], default=1.0))
    edge = float(seen["n"].max()) if len(seen) else largest
    if largest > _LOG_FROM * edge:
        number_axis(ax, "x", display.count, log=True)
    else:
        ax.set_xlim(0.0, largest * 1.04)
    ax.set_xlabel("topics")
    ax.set_ylabel(escaped(label))
    if largest > edge:
        ax.axvline(edge, color=GREY, linewidth=1.0, linestyle=":")
        ax.annotate("extrapolated →", (edge, 0.01), xycoords=("data", "axes fraction"),
                    xytext=(4, 2), textcoords="offset points", color=GREY,
                    fontsize="small")  # fmt: skip
    tidy_axes(ax, "both")
    if len(curves):
        legend(ax)


def reliability_map(
    points: pd.DataFrame,
    curves: Mapping[float, pd.DataFrame],
    *,
    labels: tuple[str, str] = ("x", "y"),
    ax: Any | None = None,
) -> Any:
    """Draw points, the curve through them, and prediction intervals as bands.

    Parameters
    ----------
    points : one row per point with the columns x and y
    curves : for each alpha one row per place x with the columns estimate, obs_low and obs_high;
        the bands hold a share of 1 − alpha
    labels : of the two axes
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
    >>> points = pd.DataFrame({"x": [0.8, 0.9], "y": [0.5, 0.8]})
    >>> curve = pd.DataFrame({"x": [0.8, 1.0], "estimate": [0.5, 1.0], "obs_low": [0.3, 0.9],
    ...                       "obs_high": [0.7, 1.0]})
    >>> ax = reliability_map(points, {0.05: curve}, labels=("Eρ²", "τ"), ax=Figure().subplots())
    >>> ax.get_xlabel()
    'Eρ²'
    """
    require_columns(points, ["x", "y"], "the table of points")
    for curve in curves.values():
        require_columns(curve, ["x", "estimate", "obs_low", "obs_high"], "that of the curve")
    ax = new_axes(ax)
    # Sum of the opacities of all points: more points are paler
    alpha = min(0.5, max(0.03, 200.0 / max(len(points), 1)))
    ax.plot(points["x"], points["y"], ".", color="0.3", markersize=4, markeredgewidth=0.0,
            alpha=alpha, rasterized=True)  # fmt: skip
    for place, (level, curve) in enumerate(sorted(curves.items())):
        look = {"color": COLOURS[0], "alpha": 0.14 * (1 + place), "linewidth": 0.0}
        words = f"{display.level(level)} of pairs"
        ax.fill_between(curve["x"], curve["obs_low"], curve["obs_high"], label=words, **look)
    for curve in list(curves.values())[:1]:
        ax.plot(curve["x"], curve["estimate"], color=COLOURS[0], linewidth=2.0, label="curve")
    ax.set_xlabel(escaped(labels[0]))
    ax.set_ylabel(escaped(labels[1]))
    tidy_axes(ax, "both")
    legend(ax)
    return ax


Kind = Literal["span", "values"]


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
    if len(groups) > MOST_LINES:
        raise PlanError(
            f"{len(groups)} sizes of {', '.join(others)} make as many lines, and {MOST_LINES} "
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
            aside = ASIDE * (place - (len(groups) - 1) / 2.0)
            shown = rows if barred.all() else rows.tail(1)
            banded = len(groups) <= BANDS_UP_TO
            _draw_medians(
                ax, rows, rows if banded else shown, x, colour, words, None if banded else aside
            )
    _finish_subsets(ax, table, x, label, kind, alpha, full)
    if kind == "values" and len(groups) > BANDS_UP_TO and not barred.all():
        ax.set_ylabel(ax.get_ylabel() + at_the_largest(x))
    if len(groups) > 1:
        look = {} if kind == "span" else {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
        legend(ax, **look)
    return ax


def _draw_medians(
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


def _finish_subsets(
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
        _limits_of_subsets(ax, table, x, full)
        if full is not None and np.isfinite(full):
            ax.axhline(full, color=GREY, linewidth=1.0)
            ax.annotate("all the data", (0.995, full), xycoords=("axes fraction", "data"),
                        xytext=(0, 3), textcoords="offset points", ha="right", color=GREY,
                        fontsize="small")  # fmt: skip
    tidy_axes(ax, "both")


def _limits_of_subsets(ax: Any, table: pd.DataFrame, x: str, full: float | None) -> None:
    """Set the limits, as matplotlib ignores lines that are moved aside."""
    sizes = table[x].to_numpy(dtype=float)
    room = 0.06 * (sizes.max() - sizes.min()) or 0.5 * sizes.max()
    ax.set_xlim(sizes.min() - room, sizes.max() + room)
    full_value = np.nan if full is None else full
    values = np.append(table[["low", "median", "high"]].to_numpy(dtype=float).ravel(), full_value)
    values = values[np.isfinite(values)]
    low, high = values.min(), values.max()
    if low > 0.0 and high > 10.0 * low:
        number_axis(ax, "y", display.number, log=True)
        ax.set_ylim(low / 1.15, high * 1.15)
    else:
        room = 0.05 * (high - low) or 0.05
        ax.set_ylim(low - room, high + room)


def p_value_lines(
    n: FloatArray, lines: Mapping[str, FloatArray], *, seen: float, ax: Any | None = None
) -> Any:
    """Draw p-values over the number of topics, dashed beyond those of the collection.

    Parameters
    ----------
    n : (m,) numbers of topics, increasing
    lines : (m,) p-values by the name of their line; nan is not drawn
    seen : topics of the collection
    ax : matplotlib axes to draw on; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> ax = p_value_lines(
    ...     np.array([10.0, 20.0]), {"≥ 0": np.array([0.2, 0.1])}, seen=20, ax=Figure().subplots())
    >>> ax.get_xlabel()
    'topics'
    """
    ax = new_axes(ax)
    within, beyond = n <= seen, n >= seen
    for (name, p), colour in zip(lines.items(), colours(len(lines)), strict=True):
        ax.plot(n[within], p[within], "o-", color=colour, markersize=4, label=escaped(name))
        if (n > seen).any():
            ax.plot(n[beyond], p[beyond], "o--", color=colour, markersize=4, markerfacecolor="w")
    if (n > seen).any():
        ax.axvline(seen, color=GREY, linewidth=1.0, linestyle=":")
    ax.set_xlabel("topics")
    ax.set_ylabel("average p-value")
    ax.set_ylim(bottom=0.0)
    tidy_axes(ax, "both")
    legend(ax, title="difference")
    return ax
