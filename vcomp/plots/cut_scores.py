"""The λ-curve: dependability of decisions over the cut score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp.exceptions import PlanError, check_alpha
from vcomp.plots.canvas import GREY, colours, new_axes, require_columns, tidy_axes

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["cut_scores"]

_MOST_CURVES = 8


def cut_scores(
    tables: Mapping[str, pd.DataFrame],
    *,
    mean: float | None = None,
    alpha: float = 0.05,
    ax: Any | None = None,
) -> Any:
    """Draw Φ(λ) over the cut score λ.

    Parameters
    ----------
    tables : name of the curve → frame with the columns ``cut``, ``estimate``, ``low`` and ``high``
    mean : of the scores, where the curve has its minimum; a vertical line
    alpha : intervals have confidence 1 − alpha
    ax : matplotlib axes to draw on; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    DataError
        If a column is missing.
    PlanError
        If there are more curves than can be told apart.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> table = pd.DataFrame({"cut": [0.0, 1.0], "estimate": [0.8, 0.9], "low": 0.7, "high": 1.0})
    >>> cut_scores({"topic = 5": table}, ax=Figure().subplots()).lines[0].get_ydata()
    array([0.8, 0.9])
    """
    check_alpha(alpha)
    if not 0 < len(tables) <= _MOST_CURVES:
        raise PlanError(
            f"{len(tables)} curves cannot be told apart; plan up to {_MOST_CURVES} designs"
        )
    for table in tables.values():
        require_columns(table, ("cut", "estimate", "low", "high"), "the table of cut scores")
    ax = new_axes(ax)
    for (name, table), colour in zip(tables.items(), colours(len(tables)), strict=True):
        x = table["cut"].to_numpy(dtype=float)
        ax.plot(x, table["estimate"].to_numpy(), color=colour, linewidth=1.8, label=name)
        low, high = (table[end].to_numpy(dtype=float) for end in ("low", "high"))
        if len(tables) <= 2 and np.isfinite(low).any():
            ax.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    if mean is not None:
        ax.axvline(mean, color=GREY, linewidth=1.0, linestyle=":", label="mean score")
    ax.set_ylim(min(0.5, ax.get_ylim()[0]), 1.0)
    ax.set_xlabel("cut score λ")
    ax.set_ylabel("Φ(λ)")
    shaded = len(tables) <= 2 and bool(ax.collections)
    ax.legend(frameon=False, title=f"{display.level(alpha)} intervals" if shaded else None)
    tidy_axes(ax, "both")
    return ax
