"""Curves from coefficients of a D-study to indicators of reliability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vcomp import display
from vcomp.plots.canvas import COLOURS, escaped, new_axes, require_columns, tidy_axes

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["reliability_map"]

_SHADE = 0.14
_MOST_INK = 2000.0
"""Points are the paler the more of them there are."""


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
    points : a row a point with the columns x and y
    curves : for each alpha a row a place x with the columns estimate, obs_low and obs_high; the
        bands hold a share of 1 − alpha
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
    alpha = min(0.5, max(0.03, _MOST_INK / 10.0 / max(len(points), 1)))
    ax.plot(points["x"], points["y"], ".", color="0.3", markersize=4, markeredgewidth=0.0,
            alpha=alpha, rasterized=True)  # fmt: skip
    for place, (level, curve) in enumerate(sorted(curves.items())):
        look = {"color": COLOURS[0], "alpha": _SHADE * (1 + place), "linewidth": 0.0}
        words = f"{display.level(level)} of pairs"
        ax.fill_between(curve["x"], curve["obs_low"], curve["obs_high"], label=words, **look)
    for curve in list(curves.values())[:1]:
        ax.plot(curve["x"], curve["estimate"], color=COLOURS[0], linewidth=2.0, label="curve")
    ax.set_xlabel(escaped(labels[0]))
    ax.set_ylabel(escaped(labels[1]))
    tidy_axes(ax, "both")
    ax.legend(fontsize="small", edgecolor="none", framealpha=0.85)
    return ax
