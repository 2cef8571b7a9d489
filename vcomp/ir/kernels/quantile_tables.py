"""Margins of simulated scores: their quantiles, and scores from normal vectors.

A margin is tabulated by its quantiles at Φ(z), for z at equal steps. What lies between two steps
is on a straight line, what lies beyond the table is its end.
"""

from __future__ import annotations

import math

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.numerics.kernels import njit

_ROOT_2 = math.sqrt(2.0)
_ROOT_2PI = math.sqrt(2.0 * math.pi)

_FAR = 9.0
"""Standard deviations beyond which a normal tail is negligible: Φ(-9) is 1e-19."""

_STEPS = 100
_CLOSE = 1e-4
"""Tolerance of Halley steps in kernel widths; the remaining error is of its cube."""

_NARROW = 1e-9
"""Width of a bracket, in kernel widths, that counts as a point."""


@njit(cache=True, nogil=True)
def _tail(t: float, x: FloatArray, h: float, upper: bool) -> tuple[float, float, float]:
    """Return the upper or lower tail, density and its slope, at t of normal kernels about x."""
    tail, density, slope = 0.0, 0.0, 0.0
    for i in range(x.size):
        u = (x[i] - t) / h if upper else (t - x[i]) / h
        if u > _FAR:
            tail += 1.0
        elif u > -_FAR:
            kernel = math.exp(-0.5 * u * u)
            density += kernel
            slope += kernel * u if upper else -kernel * u
            tail += 0.5 * math.erfc(-u / _ROOT_2)
    scale = x.size * h * _ROOT_2PI
    return tail / x.size, density / scale, slope / (scale * h)


@njit(cache=True, nogil=True)
def kernel_quantiles(
    x: FloatArray, h: float, low: float, high: float, z: FloatArray
) -> FloatArray:
    """Return the quantiles at Φ(z) of normal kernels about x, cut off at `low` and `high`.

    Each is found by Halley's method within a bracket, from where the derivatives of the one before
    lead to. The tail that is the smaller one is solved for, which keeps its digits.

    Parameters
    ----------
    x : (n,) where the kernels are centred, all within `low` and `high`
    h : their standard deviation
    z : (P,) in ascending order
    """
    below, above = _tail(low, x, h, False)[0], _tail(high, x, h, True)[0]
    mass = 1.0 - below - above
    quantiles = np.empty(z.size)
    a = t = max(low, x.min() - _FAR * h)
    ceiling = min(high, x.max() + _FAR * h)
    first = second = 0.0
    for j in range(z.size):
        upper = z[j] > 0.0
        share = 0.5 * math.erfc(abs(z[j]) / _ROOT_2) * mass
        target = above + share if upper else below + share
        b = ceiling
        if j > 0:
            apart = z[j] - z[j - 1]
            t = min(max(t + apart * (first + 0.5 * apart * second), a), b)
        density = slope = 0.0
        for _ in range(_STEPS):
            tail, density, slope = _tail(t, x, h, upper)
            excess = target - tail if upper else tail - target
            if excess > 0.0:
                b = t
            else:
                a = t
            new = math.inf
            if density > 0.0:
                newton = excess / density
                new = t - newton / max(1.0 - 0.5 * newton * slope / density, 0.5)
            inside = a <= new <= b
            if not inside:
                new = 0.5 * (a + b)
            close = inside and abs(new - t) <= _CLOSE * h
            t = new
            if close or b - a <= _NARROW * h:
                break
        # Two derivatives of the quantile function predict the next, unless it is too steep.
        rate = math.exp(-0.5 * z[j] * z[j]) / _ROOT_2PI * mass
        first = second = 0.0
        if density > 1e-3 * rate:
            first = rate / density
            second = -first * (z[j] + first * slope / density)
        quantiles[j] = t
        a = t
    return quantiles


@njit(cache=True, nogil=True)
def _at(table: FloatArray, place: float) -> float:
    """Interpolate a table between two entries."""
    last = table.size - 1
    if not place > 0.0:
        return float(table[0])
    if place >= last:
        return float(table[last])
    k = int(place)
    share = place - k
    return float(table[k] + share * (table[k + 1] - table[k]))


@njit(cache=True, nogil=True)
def effects_at(table: FloatArray, z: FloatArray, low: float, per_unit: float) -> FloatArray:
    """Return one margin at Φ(z).

    Parameters
    ----------
    table : (P,) quantiles at Φ(low), Φ(low + 1 / per_unit), …
    z : (n,)
    """
    values = np.empty(z.size)
    for i in range(z.size):
        values[i] = _at(table, (z[i] - low) * per_unit)
    return values


@njit(cache=True, nogil=True)
def scores_from_effects(
    z: FloatArray,
    topics: FloatArray,
    systems: FloatArray,
    tables: FloatArray,
    low: float,
    per_unit: float,
    smoothing: float,
    out: FloatArray,
) -> None:
    """Write scores as sums of effects (Urbano, 2016, Algorithm 1, lines 29-36).

    Parameters
    ----------
    z : (n_topics, n_systems) normals of the residuals
    topics : (n_topics,) topic effects
    systems : (n_systems,) grand mean plus system effects
    tables : (n_systems, P) margins of the residuals
    low, per_unit : of the tables, see :func:`effects_at`
    smoothing : of the logit scale, which is left; negative if there is none
    out : (n_topics, n_systems)
    """
    n_topics, n_systems = z.shape
    for t in range(n_topics):
        for s in range(n_systems):
            residual = _at(tables[s], (z[t, s] - low) * per_unit)
            y = systems[s] + topics[t] + residual
            if smoothing >= 0.0:
                e = math.exp(-abs(y))
                share = 1.0 / (1.0 + e) if y > 0.0 else e / (1.0 + e)
                y = min(max((1.0 + 2.0 * smoothing) * share - smoothing, 0.0), 1.0)
            out[t, s] = y


@njit(cache=True, nogil=True)
def scores_from_margins(
    z: FloatArray, tables: FloatArray, low: float, per_unit: float, out: FloatArray
) -> None:
    """Write each normal as the quantile of its system's margin.

    Parameters
    ----------
    z, out : (n_topics, n_systems)
    tables : (n_systems, P), see :func:`effects_at`
    """
    n_topics, n_systems = z.shape
    for t in range(n_topics):
        for s in range(n_systems):
            out[t, s] = _at(tables[s], (z[t, s] - low) * per_unit)


@njit(cache=True, nogil=True)
def scores_from_steps(
    z: FloatArray, limits: FloatArray, support: FloatArray, out: FloatArray
) -> None:
    """Write each normal as a score of its system's discrete margin.

    Parameters
    ----------
    z, out : (n_topics, n_systems)
    limits : (n_systems, m - 1) in ascending order: the normals where a score gives way to the next
    support : (m,) the scores
    """
    n_topics, n_systems = z.shape
    for t in range(n_topics):
        for s in range(n_systems):
            out[t, s] = support[np.searchsorted(limits[s], z[t, s])]


@njit(cache=True, nogil=True)
def _not_above(points: FloatArray, values: FloatArray) -> LongArray:
    """Count the sorted values that are at most each of the sorted points."""
    counts = np.empty(points.size, np.int64)
    k = 0
    for i in range(points.size):
        while k < values.size and values[k] <= points[i]:
            k += 1
        counts[i] = k
    return counts


@njit(cache=True, nogil=True)
def distances(
    values: FloatArray, points: FloatArray, table: FloatArray, low: float, high: float
) -> FloatArray:
    """Return Cramér-von Mises distances ω² of samples from a tabulated distribution.

    Parameters
    ----------
    values : (m, n) samples, each sorted
    points : (q,) sorted; where distributions are compared if it has more than a sample, which
        otherwise are compared where the sample is
    table : (P,) the distribution at equal steps from `low` to `high`; 0 and 1 beyond
    """
    per_unit = (table.size - 1) / (high - low)
    squares = np.empty(values.shape[0])
    for i in range(values.shape[0]):
        where = points if points.size > values.shape[1] else values[i]
        counts = _not_above(where, values[i])
        total = 0.0
        for j in range(where.size):
            if where[j] < low:
                expected = 0.0
            elif where[j] > high:
                expected = 1.0
            else:
                expected = _at(table, (where[j] - low) * per_unit)
            total += (counts[j] / values.shape[1] - expected) ** 2
        squares[i] = total / where.size
    return squares
