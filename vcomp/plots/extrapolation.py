"""Accuracies of halves of a collection, and the curves that are drawn through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcomp import display
from vcomp.exceptions import check_alpha
from vcomp.plots.canvas import (
    GREY,
    colours,
    escaped,
    new_axes,
    require_columns,
    tidy_axes,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["accuracy_curves"]

_DASHES = ("-", "--", "-.")
_ROOM = 0.04

_LOG_FROM = 8.0
"""Curves that reach this many times as far as observations need a logarithmic axis."""


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
    observations : a row a split with the columns n and accuracy; nan is not drawn
    curves : a row a point of a curve with the columns model, n, estimate, obs_low and obs_high
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
    _finish(ax, seen, curves, label)
    return ax


def _finish(ax: Any, seen: pd.DataFrame, curves: pd.DataFrame, label: str) -> None:
    largest = float(max([*seen["n"], *curves["n"]], default=1.0))
    edge = float(seen["n"].max()) if len(seen) else largest
    if largest > _LOG_FROM * edge:
        from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda n, _: display.count(n)))
        ax.xaxis.set_minor_formatter(NullFormatter())
    else:
        ax.set_xlim(0.0, largest * (1.0 + _ROOM))
    ax.set_xlabel("topics")
    ax.set_ylabel(escaped(label))
    if largest > edge:
        ax.axvline(edge, color=GREY, linewidth=1.0, linestyle=":")
        ax.annotate("extrapolated →", (edge, 0.01), xycoords=("data", "axes fraction"),
                    xytext=(4, 2), textcoords="offset points", color=GREY,
                    fontsize="small")  # fmt: skip
    tidy_axes(ax, "both")
    if len(curves):
        ax.legend(fontsize="small", edgecolor="none", framealpha=0.85)
