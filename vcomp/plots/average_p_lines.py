"""Average p-values over the number of topics, a line for each bin of differences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcomp._typing import FloatArray
from vcomp.plots.canvas import GREY, colours, escaped, legend, new_axes, tidy_axes


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
