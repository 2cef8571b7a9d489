"""The figure of the page: coverage by method and population."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.coverage.designs import FEW_LEVELS
from benchmarks.coverage.robust_section import WORDS
from benchmarks.coverage.study import Row

_PANELS = (
    ("mls", "normal theory (mls)"),
    ("log", "delta method (log)"),
    ("robust", "robust"),
)
_COLOR = "#1f5f8b"


def draw_populations(rows: Sequence[Row], path: Path) -> None:
    """Draw the coverage of every quantity, a line a population and a panel a method.

    Parameters
    ----------
    rows : of all populations
    path : of the PNG file
    """
    # Only drawing needs it.
    from matplotlib.figure import Figure

    chosen = [r for r in rows if not r.near_zero and r.cell not in FEW_LEVELS]
    populations = [p for p in WORDS if any(r.distribution == p for r in chosen)]
    figure = Figure(figsize=(9.0, 5.6), layout="constrained")
    panels = figure.subplots(1, len(_PANELS), sharey=True)
    for ax, (method, words) in zip(panels, _PANELS, strict=True):
        ax.axvspan(91.0, 98.0, color="0.93", lw=0.0)
        ax.axvline(95.0, color="0.6", lw=0.8)
        for line, population in enumerate(populations):
            own = [r for r in chosen if (r.method, r.distribution) == (method, population)]
            values = np.sort([100.0 * r.coverage for r in own])
            shift = 0.5 * (np.arange(values.size) * 0.618034 % 1.0 - 0.5)
            ax.plot(values, line + shift, ".", ms=2.5, alpha=0.5, color=_COLOR, mew=0.0)
        ax.set_xlim(0.0, 101.0)
        ax.set_title(words, fontsize=10)
        ax.set_xlabel("coverage (%)")
        ax.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(populations)), [WORDS[p] for p in populations])
    panels[0].invert_yaxis()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
