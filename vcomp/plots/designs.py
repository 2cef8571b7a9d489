"""Designs as Venn diagrams, as in Brennan's books, or as lattices of their effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp._typing import BoolArray
from vcomp.plots.canvas import COLOURS, GREY, escaped, new_axes
from vcomp.plots.circles import Ellipse, areas, grid

__all__ = ["KINDS", "Node", "lattice", "venn"]

KINDS = {
    "own": ("component of its own", COLOURS[5]),
    "residual": ("in the residual, with error", COLOURS[4]),
    "none": ("no term: taken as zero", "#FFFFFF"),
}
"""What may become of an effect: words of the legend, and a colour."""

_SHADE = 0.4
_POINTS = 500
_LARGEST, _FEWEST = 13.0, 6.0


@dataclass(frozen=True, slots=True)
class Node:
    """An effect to be drawn.

    Attributes
    ----------
    label : its name
    facets : that it depends on, with those that they are nested in
    kind : one of :data:`KINDS`
    note : a second line, what its component does not tell apart
    """

    label: str
    facets: frozenset[str]
    kind: str
    note: str = ""


def venn(
    placed: Mapping[str, Ellipse], nodes: Sequence[Node], title: str, *, ax: Any | None = None
) -> Any:
    """Draw a design as a Venn diagram: an ellipse a facet, an area an effect.

    Parameters
    ----------
    placed : ellipses, see :func:`~vcomp.plots.circles.ellipses`
    nodes : the effects
    title : above the picture
    ax : matplotlib axes; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    VcompError
        If matplotlib is not installed.
    """
    from matplotlib.patches import Ellipse as Patch

    ax = new_axes(ax, (5.4, 5.0))
    x, y = grid(placed.values(), _POINTS)
    found = areas(placed, x, y)
    image = np.zeros((*x.shape, 4))
    for node in nodes:
        image[found[node.facets]] = (*_light(node.kind), 1.0)
    shown = np.logical_or.reduce(list(found.values()))
    rows, columns = np.flatnonzero(shown.any(axis=1)), np.flatnonzero(shown.any(axis=0))
    extent = (x[0, 0], x[0, -1], y[0, 0], y[-1, 0])
    ax.imshow(image, origin="lower", extent=extent, interpolation="bilinear", aspect="equal")
    for ellipse in placed.values():
        ax.add_patch(
            Patch(
                (ellipse.x, ellipse.y),
                2.0 * ellipse.a,
                2.0 * ellipse.b,
                angle=ellipse.angle,
                fill=False,
                edgecolor="0.25",
                linewidth=1.4,
            )
        )
    pad = 0.06
    ax.set_xlim(x[0, columns[0]] - pad, x[0, columns[-1]] + pad)
    ax.set_ylim(y[rows[0], 0] - pad, y[rows[-1], 0] + pad)
    wide = float(x[0, columns[-1]] - x[0, columns[0]])
    for node in nodes:
        _name_area(ax, node, found[node.facets], x, y, wide)
    _finish(ax, nodes, title)
    return ax


def lattice(nodes: Sequence[Node], title: str, *, ax: Any | None = None) -> Any:
    """Draw the effects of a design, each joined to the next larger ones that hold its facets.

    Parameters
    ----------
    nodes : the effects
    title : above the picture
    ax : matplotlib axes; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    VcompError
        If matplotlib is not installed.
    """
    levels = sorted({len(node.facets) for node in nodes})
    by_level = [[n for n in nodes if len(n.facets) == level] for level in levels]
    letters = max(sum(_longest(n) + 4 for n in level) for level in by_level)
    ax = new_axes(ax, (float(np.clip(0.09 * letters, 5.0, 14.0)), 1.1 + 0.85 * len(levels)))
    place: dict[frozenset[str], tuple[float, float]] = {}
    for row, level in enumerate(by_level):
        for k, node in enumerate(_untangled(level, place)):
            place[node.facets] = ((k + 0.5) / len(level), -float(row))
    for node in nodes:
        for other in _next_larger(node, nodes):
            ends = np.array([place[node.facets], place[other.facets]])
            ax.plot(ends[:, 0], ends[:, 1], color="0.75", linewidth=1.0, zorder=1)
    width = ax.figure.get_size_inches()[0] * ax.get_position().width * 72.0
    size = float(np.clip(1.7 * width / letters, _FEWEST, 11.0))
    for node in nodes:
        look = {"boxstyle": "round,pad=0.35", "facecolor": _light(node.kind), "edgecolor": "0.4"}
        text = escaped("\n".join(_lines(node)))
        ax.text(*place[node.facets], text, ha="center", va="center", fontsize=size, bbox=look)
    ax.set_xlim(0.0, 1.0)
    ax.set_ylim(0.5 - len(levels), 0.5)
    _finish(ax, nodes, title)
    return ax


def _lines(node: Node) -> list[str]:
    return [node.label, *([node.note] if node.note else [])]


def _longest(node: Node) -> int:
    return max(map(len, _lines(node)))


def _light(kind: str) -> tuple[float, float, float]:
    """Return the colour of a kind of effect mixed with white, to hide lines below."""
    from matplotlib.colors import to_rgb

    red, green, blue = (1.0 - _SHADE * (1.0 - part) for part in to_rgb(KINDS[kind][1]))
    return red, green, blue


def _untangled(
    level: Sequence[Node], place: Mapping[frozenset[str], tuple[float, float]]
) -> list[Node]:
    """Return the nodes of a level from left to right, below those that they hold."""

    def middle(node: Node) -> float:
        above = [x for facets, (x, _) in place.items() if facets < node.facets]
        return float(np.mean(above)) if above else 0.0

    return sorted(level, key=middle)


def _next_larger(node: Node, nodes: Sequence[Node]) -> list[Node]:
    larger = [n for n in nodes if node.facets < n.facets]
    return [n for n in larger if not any(m.facets < n.facets for m in larger)]


def _name_area(ax: Any, node: Node, area: BoolArray, x: Any, y: Any, wide: float) -> None:
    """Write the name of an effect where its area has most room."""
    from scipy.ndimage import distance_transform_edt

    room = distance_transform_edt(np.pad(area, 1))[1:-1, 1:-1]
    i, j = np.unravel_index(int(np.argmax(room)), room.shape)
    name = node.label.replace(" x ", " ×\n")
    longest = max(map(len, name.split("\n")))
    radius = float(room[i, j]) * float(x[0, 1] - x[0, 0]) / wide
    figure_width = ax.figure.get_size_inches()[0] * 72.0
    size = float(np.clip(3.0 * radius * figure_width / max(longest, 2), _FEWEST, _LARGEST))
    ax.text(x[i, j], y[i, j], escaped(name), ha="center", va="center", fontsize=size)


def _finish(ax: Any, nodes: Sequence[Node], title: str) -> None:
    from matplotlib.patches import Patch

    ax.set_axis_off()
    ax.set_title(escaped(title))
    kinds = [kind for kind in KINDS if any(n.kind == kind for n in nodes)]
    handles = [Patch(facecolor=_light(k), edgecolor=GREY, label=KINDS[k][0]) for k in kinds]
    ax.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.01),
        ncols=len(handles),
        frameon=False,
        fontsize="small",
    )
