"""Circles for facets: crossed ones overlap, nested ones lie inside, every effect has an area."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vcomp._typing import BoolArray, FloatArray

__all__ = ["Ellipse", "areas", "ellipses", "grid"]

_POINTS = 96
_MARGIN = 0.1
_ROUNDS = 3
"""Nested circles are placed one by one, and then again in view of those that came later."""

_SMALLEST = 0.002
"""Share of the picture below which an area cannot be seen."""

_STEP = 4
"""Every such row and column of the points is tried as a centre."""

_OFF_CENTRE = 0.1
"""What a place at the edge loses to one in the middle, as a share of the smallest area."""

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
        inside: BoolArray = (u / self.a) ** 2 + (v / self.b) ** 2 < 1.0
        return inside


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
"""Where facets lie that are nested in no other: all their areas are there."""


def ellipses(
    facets: Sequence[str], nested_in: Mapping[str, frozenset[str]]
) -> dict[str, Ellipse] | None:
    """Return an ellipse for each facet so that every effect has an area of its own.

    Facets that are nested in no other have fixed places. For the others places are tried, and
    those are taken at which the smallest area is largest.

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
    for round_ in range(_ROUNDS if inner else 0):
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
    found = {}
    for code in np.unique(codes):
        names = frozenset(f for k, f in enumerate(placed) if code >> k & 1)
        if names:
            found[names] = codes == code
    return found


def _best_place(
    facet: str, others: Mapping[str, Ellipse], nested_in: Mapping[str, frozenset[str]]
) -> Ellipse | None:
    """Return the circle at which the smallest area is largest."""
    from scipy.ndimage import distance_transform_edt

    x, y = grid([e for f, e in others.items() if not nested_in[f]], _POINTS)
    covers = {f: e.covers(x, y) for f, e in others.items()}
    inside = np.logical_and.reduce([covers[f] for f in nested_in[facet]])
    step = float(x[0, 1] - x[0, 0])
    room = distance_transform_edt(inside) * step
    codes = sum(c.astype(int) << k for k, c in enumerate(covers.values()))
    wanted, unwanted = _codes([*others, facet], nested_in)
    best, largest = None, _SMALLEST * x.size
    bit = 1 << len(others)
    places = np.argwhere(inside)
    middle = places.mean(axis=0)
    for i, j in places[(places % _STEP == 0).all(axis=1)]:
        distance = np.hypot(x - x[i, j], y - y[i, j])
        off = _OFF_CENTRE * np.hypot(*(middle - (i, j))) / np.hypot(*np.ptp(places, axis=0))
        for share in _RADII:
            radius = share * float(room[i, j])
            counts = np.bincount((codes + bit * (distance < radius)).ravel(), minlength=2 * bit)
            smallest = (1.0 - off) * counts[wanted].min()
            if smallest > largest and not counts[unwanted].any():
                largest = smallest
                best = Ellipse(float(x[i, j]), float(y[i, j]), radius, radius)
    return best


def _codes(
    facets: Sequence[str], nested_in: Mapping[str, frozenset[str]]
) -> tuple[list[int], list[int]]:
    """Return the areas that have to be there, as sums of powers of two, and those that must not.

    Facets that are not placed yet do not count.
    """
    wanted: list[int] = []
    unwanted: list[int] = []
    for code in range(1, 2 ** len(facets)):
        names = {f for k, f in enumerate(facets) if code >> k & 1}
        closed = all(nested_in[f] <= names for f in names)
        (wanted if closed else unwanted).append(code)
    return wanted, unwanted
