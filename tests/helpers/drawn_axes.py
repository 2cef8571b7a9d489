"""What is on matplotlib axes, as the tests of pictures look at it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex

NAN, INF = float("nan"), float("inf")


def table(rows):
    """Return a table of components: name → estimate, low, high."""
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=["estimate", "low", "high"])
    total = frame["estimate"].clip(lower=0.0).sum()
    return frame.assign(percent=100.0 * frame["estimate"].clip(lower=0.0) / total)


def segments(ax):
    lines = [c for c in ax.collections if isinstance(c, LineCollection)]
    return [segment for c in lines for segment in c.get_segments()]


def markers(ax):
    """Return the points of an axis by height, as far as they are circles."""
    found = {}
    for line in ax.lines:
        if line.get_marker() == "o" and line.get_linestyle() == "None":
            found |= dict(zip(line.get_ydata(), line.get_xdata(), strict=True))
    return found


def bands(ax):
    return [c for c in ax.collections if isinstance(c, PolyCollection)]


def drawn_text(ax):
    ax.figure.canvas.draw()
    return [text.get_text() for text in ax.get_yticklabels()]


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def colour_of(ax, label):
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return to_hex(line.get_color())


def curve_of(ax, label):
    """Return the line that the legend's entry stands for: it is drawn right before the entry."""
    labels = [line.get_label() for line in ax.lines]
    return ax.lines[labels.index(label) - 1]


def zeta(estimate, low, high, z):
    theta = estimate * np.exp(np.asarray(z) / 3)
    return SimpleNamespace(
        theta=theta,
        z=np.asarray(z, dtype=float),
        estimate=estimate,
        low=low,
        high=high,
        alpha=0.05,
    )
