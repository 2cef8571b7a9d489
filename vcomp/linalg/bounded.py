"""A concave quadratic maximised above lower bounds: the step of a Newton method with bounds."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray
from vcomp.linalg.dense import solve

__all__ = ["bounded_step"]

_RIDGE = 1e-14
"""Added to a unit diagonal, so that a direction of which nothing is known has a solution."""


def bounded_step(
    information: FloatArray, score: FloatArray, lower: FloatArray
) -> tuple[FloatArray, float]:
    """Return the d ≥ lower that maximises s'd − ½ d'Id, and √(2 max): without bounds √(s'I⁻¹s).

    A primal active-set method (Nocedal and Wright 2006, algorithm 16.3) for a matrix of a few
    rows; it is scaled to a unit diagonal first, so that components of any units go together.

    Parameters
    ----------
    information : (m, m) positive semi-definite
    score : (m,)
    lower : (m,) not positive

    Examples
    --------
    >>> I = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> step, decrement = bounded_step(I, np.array([1.0, -4.0]), np.array([-1.0, -1.0]))
    >>> step, round(decrement**2, 12)
    (array([ 1., -1.]), 8.0)
    """
    m = score.size
    if m == 0:
        return np.zeros(0), 0.0
    scale = _scale(information)
    A = information / np.outer(scale, scale) + _RIDGE * np.eye(m)
    slope, floor = score / scale, lower * scale
    d = np.zeros(m)
    at_floor = (floor == 0.0) & (slope <= 0.0)
    for _ in range(20 * (m + 1)):
        gradient = slope - A @ d
        move = np.zeros(m)
        free = ~at_floor
        move[free] = _solve(A[np.ix_(free, free)], gradient[free])
        reach, first = _reach(d, move, floor, free)
        if first is not None:
            d += reach * move
            d[first] = floor[first]
            at_floor[first] = True
            continue
        d += move
        gradient = np.where(at_floor, slope - A @ d, -np.inf)
        released = int(np.argmax(gradient))
        if not gradient[released] > 1e-14 * np.abs(slope).max(initial=0.0):
            break
        at_floor[released] = False
    gain = float(slope @ d - 0.5 * d @ (A @ d))
    return np.where(d == floor, lower, d / scale), float(np.sqrt(max(2.0 * gain, 0.0)))


def _scale(information: FloatArray) -> FloatArray:
    scale = np.sqrt(np.abs(np.diagonal(information)))
    known = scale[scale > 0.0]
    # Of a component without information nothing is known; any unit will do.
    return np.where(scale > 0.0, scale, known.min() if known.size else 1.0)


def _solve(A: FloatArray, b: FloatArray) -> FloatArray:
    if not b.size:
        return b
    try:
        step = solve(A, b)
    except np.linalg.LinAlgError:
        return b
    # Rounding may have left a matrix that is not positive definite: straight up, then.
    return step if step @ b > 0.0 else b


def _reach(
    d: FloatArray, move: FloatArray, floor: FloatArray, free: np.ndarray
) -> tuple[float, int | None]:
    """Return how far `move` goes before the first component meets its bound, and which."""
    falls = free & (d + move < floor)
    if not falls.any():
        return 1.0, None
    with np.errstate(divide="ignore", invalid="ignore"):
        fractions = np.where(falls, (floor - d) / move, np.inf)
    first = int(np.argmin(fractions))
    return float(max(fractions[first], 0.0)), first
