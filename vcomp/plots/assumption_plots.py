"""A page on the assumptions of a fit: probability plots, spreads of levels, correlations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import DataError
from vcomp.plots.canvas import COLOURS, GREY, PAD, escaped, pyplot, tidy_axes

_COLUMNS = 3
_MOST_POINTS = 2_000
"""More points of a probability plot than this are thinned out in its middle."""

_MARK = {"linestyle": "none", "marker": "o", "markersize": 3.5, "color": COLOURS[0]}


def assumptions(
    samples: Mapping[str, FloatArray],
    spreads: Mapping[str, FloatArray],
    tables: Sequence[Mapping[str, Any]],
    *,
    axes: Sequence[Any] | None = None,
) -> list[Any]:
    """Draw a page of pictures on the assumptions of a fit.

    Normal probability plots of effects and residuals; residual standard deviations by level;
    and of a table of two facets the residuals of one level against the effects of the other
    facet, those of the two most correlated levels, and the correlations of all pairs.

    Parameters
    ----------
    samples : name → (n,) deviations in standard deviations
    spreads : facet → (k,) residual standard deviations of its levels
    tables : of each table the mapping with the keys object, facet, effects, steepest, pair,
        correlations and rows, as :class:`vcomp.inference.assumptions.Diagnosis` makes it
    axes : as many matplotlib axes as pictures; those of a new figure if None

    Returns
    -------
    list of matplotlib.axes.Axes

    Raises
    ------
    DataError
        If there is nothing to draw, or the axes are not as many as the pictures.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> panels = Figure().subplots(1, 2)
    >>> z = np.linspace(-2.0, 2.0, 9)
    >>> drawn = assumptions({"sys": z}, {"topic": abs(z) + 1.0}, [], axes=panels)
    >>> [ax.get_title() for ax in drawn]
    ['sys', 'residuals by topic']
    """
    pictures: list[Callable[[Any], None]] = []
    pictures += [partial(_probability, name, z) for name, z in samples.items()]
    pictures += [partial(_spread, facet, sd) for facet, sd in spreads.items()]
    pictures += [partial(draw, table) for table in tables for draw in _OF_TABLE]
    if not pictures:
        raise DataError("there is nothing to draw")
    panels = _panels(len(pictures)) if axes is None else list(np.ravel(np.asarray(axes)))
    if len(panels) != len(pictures):
        raise DataError(f"{len(pictures)} pictures need as many axes, not {len(panels)}")
    for ax, draw in zip(panels, pictures, strict=True):
        draw(ax)
    return panels


def _panels(n: int) -> list[Any]:
    columns = min(n, _COLUMNS)
    rows = -(-n // columns)
    figure, grid = pyplot().subplots(
        rows, columns, figsize=(3.3 * columns, 2.9 * rows), squeeze=False, layout="constrained"
    )
    figure.get_layout_engine().set(w_pad=PAD, h_pad=PAD)
    for ax in grid.flat[n:]:
        figure.delaxes(ax)
    return list(grid.flat[:n])


def _probability(name: str, deviates: FloatArray, ax: Any) -> None:
    from scipy.special import ndtri

    z = np.sort(deviates)
    m = ndtri((np.arange(1.0, z.size + 1.0) - 0.375) / (z.size + 0.25))
    shown = _thinned(z.size)
    ax.axline((0.0, 0.0), slope=1.0, color=COLOURS[1], linewidth=1.2, zorder=1)
    ax.plot(m[shown], z[shown], **_MARK)
    _finish(ax, escaped(name), "normal quantile", "standardised value")


def _thinned(size: int) -> Any:
    """Return which ordered points to draw: all at the ends, some in the middle."""
    if size <= _MOST_POINTS:
        return slice(None)
    end = _MOST_POINTS // 4
    middle = np.linspace(end, size - end - 1, _MOST_POINTS // 2).astype(int)
    return np.concatenate([np.arange(end), middle, np.arange(size - end, size)])


def _spread(facet: str, sd: FloatArray, ax: Any) -> None:
    known = np.sort(sd[np.isfinite(sd)])
    ax.plot(np.arange(1, known.size + 1), known, **_MARK)
    ax.axhline(float(np.sqrt(np.mean(known**2))), color=COLOURS[1], linewidth=1.2, zorder=1)
    ax.set_ylim(0.0, 1.08 * float(known.max(initial=0.0)) or 1.0)
    _finish(ax, f"residuals by {escaped(facet)}", f"{escaped(facet)}, by rank",
            "residual standard deviation")  # fmt: skip


def _steepest(table: Mapping[str, Any], ax: Any) -> None:
    level, residuals, r = table["steepest"]
    x = table["effects"]
    ax.plot(x, residuals, **_MARK)
    _line(ax, x, residuals)
    _finish(ax, f"{escaped(level)}: r = {display.number(r, 2)}",
            f"effect of {escaped(table['facet'])}", f"residual of {escaped(level)}")  # fmt: skip


def _pair(table: Mapping[str, Any], ax: Any) -> None:
    first, x, second, y, r = table["pair"]
    ax.plot(x, y, **_MARK)
    _line(ax, x, y)
    _finish(ax, f"most correlated pair: r = {display.number(r, 2)}",
            f"residual of {escaped(first)}", f"residual of {escaped(second)}")  # fmt: skip


def _line(ax: Any, x: FloatArray, y: FloatArray) -> None:
    d = x - x.mean()
    size = float(d @ d)
    slope = float(d @ y) / size if size > 0.0 else 0.0
    ax.axline((float(x.mean()), float(y.mean())), slope=slope, color=COLOURS[1], linewidth=1.2)


def _correlations(table: Mapping[str, Any], ax: Any) -> None:
    r = np.asarray(table["correlations"])
    bins = np.linspace(-1.0, 1.0, 41)
    ax.hist(r, bins=bins, density=True, color=COLOURS[0], alpha=0.6)
    at = np.linspace(-1.0, 1.0, 401)
    # The density of r for independent normals with this many rows (Fisher 1915).
    half = 0.5 * (table["rows"] - 1) - 1.5
    density = np.power(np.maximum(1.0 - at * at, 1e-12), max(half, 0.0))
    density /= density.sum() * (at[1] - at[0])
    ax.plot(at, density, color=COLOURS[1], linewidth=1.2)
    _finish(ax, "all pairs; line: independent", f"correlation of residuals of two "
            f"{escaped(table['object'])}", "density")  # fmt: skip


_OF_TABLE = (_steepest, _pair, _correlations)


def _finish(ax: Any, title: str, xlabel: str, ylabel: str) -> None:
    ax.set_title(title, fontsize="medium", color=GREY)
    ax.set_xlabel(xlabel, fontsize="small")
    ax.set_ylabel(ylabel, fontsize="small")
    tidy_axes(ax, "both")
