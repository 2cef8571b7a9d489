"""Bootstrap replicates of a quantity: a histogram with the interval marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, check_alpha
from vcomp.plots.canvas import COLOURS, GREY, escaped, new_axes, tidy_axes

__all__ = ["replicates"]

_MOST_BINS = 60


def replicates(
    values: FloatArray | Sequence[float],
    name: str,
    *,
    estimate: float | None = None,
    interval: tuple[float, float] | None = None,
    alpha: float = 0.05,
    ax: Any | None = None,
) -> Any:
    """Draw the histogram of the replicates of a quantity.

    Replicates far out, which would leave no room for the others, are counted below the axis and
    not drawn.

    Parameters
    ----------
    values : (B,) replicates; those that are not finite are left out, and the axis says how many
        are left
    name : of the quantity, such as ``"σ²(topic)"``
    estimate : marked by a line; nothing if None
    interval : its ends, marked by a bar on the axis and dashed lines; nothing if None
    alpha : the interval has confidence 1 − alpha
    ax : matplotlib axes to draw on; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    DataError
        If fewer than 2 of the values are finite, or the interval has an end that is not a number.
    PlanError
        If alpha is not between 0 and 1.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> draws = np.random.default_rng(1).chisquare(9, size=200) / 9
    >>> ax = replicates(draws, "σ²(a)", interval=(0.3, 2.1), ax=Figure().subplots())
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('σ²(a)', 'replicates in each bin, of 200')
    """
    check_alpha(alpha)
    drawn = np.asarray(values, dtype=float).ravel()
    finite = drawn[np.isfinite(drawn)]
    if finite.size < 2:
        raise DataError(
            f"a histogram of {name} needs 2 replicates; there are {display.count(finite.size)}"
        )
    if interval is not None and np.isnan(interval).any():
        raise DataError(f"the interval of {name} has an end that is not a number: {interval}")
    ax = new_axes(ax)
    left, right = _range(finite, [*(interval or ()), *([] if estimate is None else [estimate])])
    inside = finite[(finite >= left) & (finite <= right)]
    ax.hist(inside, bins=_bins(inside), color=COLOURS[5], edgecolor="white", linewidth=0.6)
    tidy_axes(ax, "y")
    if interval is not None:
        _mark_interval(ax, interval, alpha)
    if estimate is not None:
        ax.axvline(
            estimate,
            color=COLOURS[1],
            linewidth=2.0,
            label=f"estimate {display.number(estimate, 3)}",
        )
    if interval is not None or estimate is not None:
        ax.legend(frameon=False, loc="best")
    notes = [
        f"{display.count(n)} {what}"
        for n, what in (
            (int((finite == 0.0).sum()), "exactly 0"),
            (finite.size - inside.size, "farther out"),
        )
        if n
    ]
    ax.set_xlabel("\n".join([escaped(name), *([", ".join(notes)] if notes else [])]))
    ax.set_ylabel(f"replicates in each bin, {_how_many(finite.size, drawn.size)}")
    return ax


def _range(values: FloatArray, marks: Sequence[float]) -> tuple[float, float]:
    """Return from where to where is drawn: nearly all replicates, and what is marked."""
    low, high = np.quantile(values, [0.005, 0.995])
    room = 0.5 * (high - low)
    marked = [mark for mark in marks if np.isfinite(mark)]
    left, right = max(values.min(), low - room), min(values.max(), high + room)
    return min([left, *marked]), max([right, *marked])


def _bins(values: FloatArray) -> FloatArray:
    """Return the edges of the bins: Freedman and Diaconis', of outliers not too many."""
    edges: FloatArray = np.histogram_bin_edges(values, bins="sturges")
    low, high = np.quantile(values, [0.25, 0.75])
    width = 2.0 * (high - low) / values.size ** (1.0 / 3.0)
    if width <= 0.0:
        return edges
    n = int(np.clip(np.ceil(np.ptp(values) / width), edges.size - 1, _MOST_BINS))
    return np.linspace(values.min(), values.max(), n + 1)


def _mark_interval(ax: Any, interval: tuple[float, float], alpha: float) -> None:
    left, right = ax.get_xlim()
    low, high = interval
    label = f"{display.level(alpha)} interval {display.short_interval(low, high)}"
    if np.isinf([low, high]).any():
        ax.set_xlim(left, right)
    shown = max(low, left) if np.isinf(low) else low, min(high, right) if np.isinf(high) else high
    ax.axvspan(*shown, color=GREY, alpha=0.15, linewidth=0.0, zorder=0.5, label=label)
    for end in interval:
        if np.isfinite(end):
            ax.axvline(end, color=GREY, linestyle="--", linewidth=1.2)


def _how_many(finite: int, asked: int) -> str:
    if finite == asked:
        return f"of {display.count(asked)}"
    return f"{display.count(finite)} of {display.count(asked)} finite"
