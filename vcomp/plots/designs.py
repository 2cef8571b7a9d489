"""Designs as Venn diagrams, as in Brennan's books, or as lattices of their effects."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.plots.canvas import COLOURS, GREY, escaped, new_axes

_MARGIN = 0.1

_SMALLEST = 0.002
"""Share of the picture below which an area cannot be seen."""


_RADII = (0.4, 0.55, 0.7, 0.82, 0.92)
"""Radii that are tried, as shares of the largest at a place."""


@dataclass(frozen=True, slots=True)
class Ellipse:
    """An ellipse: its centre, its half axes, and its angle in degrees."""

    x: float
    y: float
    a: float
    b: float
    angle: float = 0.0

    def covers(self, x: FloatArray, y: FloatArray) -> BoolArray:
        """Return which points lie inside."""
        turn = np.deg2rad(self.angle)
        u = (x - self.x) * np.cos(turn) + (y - self.y) * np.sin(turn)
        v = (y - self.y) * np.cos(turn) - (x - self.x) * np.sin(turn)
        return (u / self.a) ** 2 + (v / self.b) ** 2 < 1.0


_CROSSED = {
    1: (Ellipse(0.0, 0.0, 1.0, 1.0),),
    2: (Ellipse(-0.6, 0.0, 1.0, 1.0), Ellipse(0.6, 0.0, 1.0, 1.0)),
    3: tuple(
        Ellipse(0.62 * float(np.cos(t)), 0.62 * float(np.sin(t)), 1.0, 1.0)
        for t in np.deg2rad([90.0, 210.0, 330.0])
    ),
    4: (
        Ellipse(-0.74, -0.25, 1.8, 1.125, 140.0),
        Ellipse(-0.24, 0.25, 1.8, 1.125, 140.0),
        Ellipse(0.24, 0.25, 1.8, 1.125, 40.0),
        Ellipse(0.74, -0.25, 1.8, 1.125, 40.0),
    ),
}
"""Positions of facets that are not nested, with an area for each of their effects."""


def ellipses(
    facets: Sequence[str], nested_in: Mapping[str, frozenset[str]]
) -> dict[str, Ellipse] | None:
    """Return an ellipse for each facet so that every effect has an area of its own.

    Facets that are not nested have fixed positions. For nested ones positions are tried, and the
    one with the largest smallest area is used.

    Parameters
    ----------
    facets : at most four are placed
    nested_in : for each facet those that it is nested in, transitively

    Returns
    -------
    None where there are more facets, or an area would be too small to be seen

    Examples
    --------
    >>> placed = ellipses(["p", "i"], {"p": frozenset(), "i": frozenset({"p"})})
    >>> placed["i"].a < placed["p"].a
    True
    >>> ellipses("abcde", dict.fromkeys("abcde", frozenset())) is None
    True
    """
    if len(facets) > max(_CROSSED):
        return None
    outer = [f for f in facets if not nested_in[f]]
    placed = dict(zip(outer, _CROSSED[len(outer)], strict=True))
    inner = sorted((f for f in facets if nested_in[f]), key=lambda f: len(nested_in[f]))
    # Passes over nested circles: one places them, the others place each again among all others
    for round_ in range(3 if inner else 0):
        for facet in inner:
            others = {f: e for f, e in placed.items() if f != facet}
            best = _best_place(facet, others, nested_in)
            if best is None and round_ == 0:
                return None
            placed[facet] = best or placed[facet]
        if len(inner) == 1:
            break
    return {f: placed[f] for f in facets}


def grid(placed: Iterable[Ellipse], n: int) -> tuple[FloatArray, FloatArray]:
    """Return the (n, n) coordinates of points that cover all ellipses and a margin."""
    shapes = list(placed)
    reach = [max(e.a, e.b) for e in shapes]
    low_x = min(e.x - r for e, r in zip(shapes, reach, strict=True)) - _MARGIN
    high_x = max(e.x + r for e, r in zip(shapes, reach, strict=True)) + _MARGIN
    low_y = min(e.y - r for e, r in zip(shapes, reach, strict=True)) - _MARGIN
    high_y = max(e.y + r for e, r in zip(shapes, reach, strict=True)) + _MARGIN
    side = max(high_x - low_x, high_y - low_y)
    middle_x, middle_y = (low_x + high_x) / 2.0, (low_y + high_y) / 2.0
    steps = np.linspace(-side / 2.0, side / 2.0, n)
    x, y = np.meshgrid(middle_x + steps, middle_y + steps)
    return x, y


def areas(
    placed: Mapping[str, Ellipse], x: FloatArray, y: FloatArray
) -> dict[frozenset[str], BoolArray]:
    """Return the points of every area, by the facets whose ellipses cover it."""
    codes = sum(e.covers(x, y).astype(int) << k for k, e in enumerate(placed.values()))
    by_facets = {}
    for code in np.unique(codes):
        names = frozenset(f for k, f in enumerate(placed) if code >> k & 1)
        if names:
            by_facets[names] = codes == code
    return by_facets


def _best_place(
    facet: str, others: Mapping[str, Ellipse], nested_in: Mapping[str, frozenset[str]]
) -> Ellipse | None:
    """Return the circle at which the smallest area is largest."""
    from scipy.ndimage import distance_transform_edt

    x, y = grid([e for f, e in others.items() if not nested_in[f]], 96)
    covers = {f: e.covers(x, y) for f, e in others.items()}
    inside = np.logical_and.reduce([covers[f] for f in nested_in[facet]])
    step = float(x[0, 1] - x[0, 0])
    room = distance_transform_edt(inside) * step
    codes = np.sum([c.astype(np.int64) << k for k, c in enumerate(covers.values())], axis=0)
    wanted, unwanted = _codes([*others, facet], nested_in)
    best, largest = None, _SMALLEST * x.size
    bit = 1 << len(others)
    places = np.argwhere(inside)
    middle = places.mean(axis=0)
    # A circle has points inside its surroundings only; those at each distance are counted once.
    x_inside, y_inside, coded = x[inside], y[inside], codes[inside] * (len(_RADII) + 1)
    total = np.bincount(codes.ravel(), minlength=bit)[:, None]
    # Step between the rows and columns of points that are tried as centres
    for i, j in places[(places % 4 == 0).all(axis=1)]:
        distance = np.hypot(x_inside - x[i, j], y_inside - y[i, j])
        # Penalty of a position at the edge against one in the middle, as a share of the area
        off = 0.1 * np.hypot(*(middle - (i, j))) / np.hypot(*np.ptp(places, axis=0))
        radii = np.array(_RADII) * float(room[i, j])
        ring = np.searchsorted(radii, distance, side="right")
        rings = np.bincount(coded + ring, minlength=bit * (radii.size + 1))
        within = rings.reshape(bit, -1).cumsum(axis=1)[:, :-1]
        for radius, counts in zip(radii, np.concatenate([total - within, within]).T, strict=True):
            smallest = (1.0 - off) * counts[wanted].min()
            if smallest > largest and not counts[unwanted].any():
                largest = smallest
                best = Ellipse(float(x[i, j]), float(y[i, j]), float(radius), float(radius))
    return best


def _codes(
    facets: Sequence[str], nested_in: Mapping[str, frozenset[str]]
) -> tuple[list[int], list[int]]:
    """Return required and forbidden areas as sums of powers of two.

    Facets that are not placed yet do not count.
    """
    wanted: list[int] = []
    unwanted: list[int] = []
    for code in range(1, 2 ** len(facets)):
        names = {f for k, f in enumerate(facets) if code >> k & 1}
        closed = all(nested_in[f] <= names for f in names)
        (wanted if closed else unwanted).append(code)
    return wanted, unwanted


KINDS = {
    "own": ("component of its own", COLOURS[5]),
    "residual": ("in the residual, with error", COLOURS[4]),
    "fixed": ("in the fixed part", "#BBBBBB"),
    "none": ("no term: assumed to be zero", "#FFFFFF"),
}
"""Kinds of effects: label in the legend, and colour."""

_LARGEST, _FEWEST = 13.0, 6.0


@dataclass(frozen=True, slots=True)
class Node:
    """An effect to be drawn.

    Attributes
    ----------
    label : its name
    facets : that it depends on, with those that they are nested in
    kind : one of :data:`KINDS`
    note : a second line, the effects that its component confounds
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
    placed : ellipses, see :func:`~vcomp.plots.designs.ellipses`
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
    x, y = grid(placed.values(), 500)
    places = areas(placed, x, y)
    image = np.zeros((*x.shape, 4))
    for node in nodes:
        image[places[node.facets]] = (*_light(node.kind), 1.0)
    shown = np.logical_or.reduce(list(places.values()))
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
        _name_area(ax, node, places[node.facets], x, y, wide)
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
    letters = max(sum(max(map(len, _lines(n))) + 4 for n in level) for level in by_level)
    # Inches of each level: its boxes, and the lines that join them to the next one.
    heights = np.array([0.5 + 0.17 * max(len(_lines(n)) for n in level) for level in by_level])
    size = (float(np.clip(0.09 * letters, 5.0, 14.0)), 0.9 + float(heights.sum()))
    ax = new_axes(ax, size)
    place: dict[frozenset[str], tuple[float, float]] = {}
    middles = heights / 2.0 - np.cumsum(heights)
    for y, level in zip(middles.tolist(), by_level, strict=True):
        for k, node in enumerate(_untangled(level, place)):
            place[node.facets] = ((k + 0.5) / len(level), y)
    for node in nodes:
        for other in _next_larger(node, nodes):
            ends = np.array([place[node.facets], place[other.facets]])
            ax.plot(ends[:, 0], ends[:, 1], color="0.75", linewidth=1.0, zorder=1)
    width = ax.figure.get_size_inches()[0] * ax.get_position().width * 72.0
    points = float(np.clip(1.7 * width / letters, _FEWEST, 11.0))
    for node in nodes:
        look = {"boxstyle": "round,pad=0.35", "facecolor": _light(node.kind), "edgecolor": "0.4"}
        text = escaped("\n".join(_lines(node)))
        ax.text(*place[node.facets], text, ha="center", va="center", fontsize=points, bbox=look)
    ax.set_xlim(0.0, 1.0)
    ax.set_ylim(-float(heights.sum()), 0.0)
    _finish(ax, nodes, title)
    return ax


def _lines(node: Node) -> list[str]:
    # Number of letters on a line of a note
    wrapper = textwrap.TextWrapper(30, break_long_words=False, break_on_hyphens=False)
    return [node.label, *wrapper.wrap(node.note)]


def _light(kind: str) -> tuple[float, float, float]:
    """Return the colour of a kind of effect mixed with white, to hide lines below."""
    from matplotlib.colors import to_rgb

    red, green, blue = (1.0 - 0.4 * (1.0 - part) for part in to_rgb(KINDS[kind][1]))
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
    from matplotlib.patheffects import withStroke
    from scipy.ndimage import distance_transform_edt

    room = distance_transform_edt(np.pad(area, 1))[1:-1, 1:-1]
    i, j = np.unravel_index(int(np.argmax(room)), room.shape)
    name = node.label.replace(" x ", " ×\n")
    # Length in letters above which names are broken at their colons
    if max(map(len, name.split("\n"))) > 9:
        name = name.replace(":", ":\n")
    lines = name.split("\n")
    radius = float(room[i, j]) * float(x[0, 1] - x[0, 0]) / wide
    figure_width = ax.figure.get_size_inches()[0] * 72.0
    # A letter is about 0.6 of its size wide, a line 1.2 high: the largest box in a circle.
    box = np.hypot(0.6 * max(2, *map(len, lines)), 1.2 * len(lines))
    size = float(np.clip(1.85 * radius * figure_width / box, _FEWEST, _LARGEST))
    # Letters that reach over the edge of a narrow area stay free of its line.
    free = [withStroke(linewidth=2.0, foreground=_light(node.kind))]
    look = {"ha": "center", "va": "center", "fontsize": size, "path_effects": free}
    ax.text(x[i, j], y[i, j], escaped(name), **look)


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
        # Width in inches of a picture with its legend on one line
        ncols=len(handles) if ax.figure.get_size_inches()[0] > 7.0 else min(2, len(handles)),
        frameon=False,
        fontsize="small",
    )
