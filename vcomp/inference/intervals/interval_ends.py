"""Limits of sums of mean squares, and the ratios at which a limit is zero, for many forms at once.

They are eq. (10.6) of docs/explanation/mathematics.md, called by
:mod:`~vcomp.inference.intervals.classical`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray

_CANCELLED = 1e-9
"""Terms of a sum below this fraction of the largest are rounding error."""

_ROUNDS = 180
"""Steps that close a bracket of [0, 1], which is halved at least every third step."""

_LAST_BIT = 4e-16

_NEAR = 1e-10
"""Relative size of a step below which the next would be rounding error."""

_AT_ONCE = 4096
"""Forms worked on at once, whose terms fit into a cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """How far limits reach from an estimate.

    Attributes
    ----------
    positive, negative : (K,) G and H of positive and negative terms; H may be inf
    opposite : (K, K) coefficient of a positive term (row) and a negative one (column)
    same : (K, K) coefficient of two positive terms, used if there are negative ones; symmetric,
        with zeros on the diagonal
    related : (K, K) correlations with zeros on the diagonal; (0, 0) if there are none
    """

    positive: FloatArray
    negative: FloatArray
    opposite: FloatArray
    same: FloatArray
    related: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _Expansion:
    """The lower limits T − √V of sums, around a point.

    Attributes
    ----------
    T, V, q, V1, V2 : (m,) each; at a distance s a limit is T − q s − √(V − V1 s + V2 s²), as long
        as no term changes sign
    """

    T: FloatArray
    V: FloatArray
    q: FloatArray
    V1: FloatArray
    V2: FloatArray

    @property
    def limit(self) -> FloatArray:
        return self.T - np.sqrt(self.V)

    def moved(self, known: FloatArray, slope: FloatArray) -> _Expansion:
        """Return the expansion of sums with a part that is known without error, and its slope."""
        return _Expansion(self.T + known, self.V, self.q + slope, self.V1, self.V2)


def lower_limits(terms: FloatArray, reach: Reach) -> FloatArray:
    """Return the lower limits of sums of K terms, each a mean square with its coefficient.

    Parameters
    ----------
    terms : (m, K)
    reach : of the limits
    """
    found = np.empty(len(terms))
    for first in range(0, len(terms), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        found[some] = _expanded(terms[some], np.zeros_like(terms[some]), reach).limit
    return found


def ratios_at_zero(
    top: FloatArray,
    bottom: FloatArray,
    known_top: FloatArray,
    known_bottom: FloatArray,
    sign: float,
    reach: Reach,
) -> FloatArray:
    """Return for each row the ratio ρ at which a limit of top − ρ bottom is zero.

    Parameters
    ----------
    top, bottom : (m, K) terms of numerators and denominators
    known_top, known_bottom : (m,) parts of both that are known without error
    sign : 1 for the lower limit of the ratio, −1 for the upper one
    reach : of the limits

    Returns
    -------
    (m,) ρ; 0 if the limit is nowhere positive, inf if the denominator may be zero
    """
    # With ρ = t/(1 − t) size_a/size_b the form is (1 − t) a − t b, a and b of size 1.
    size_a = np.abs(known_top) + np.abs(top).sum(axis=1)
    size_b = np.abs(known_bottom) + np.abs(bottom).sum(axis=1)
    size_b = np.where(size_b > 0.0, size_b, 1.0)
    divisor = np.where(size_a > 0.0, size_a, 1.0)
    known_a = sign * known_top / divisor
    known_d = known_a + sign * known_bottom / size_b
    t = np.empty(len(top))
    for first in range(0, len(top), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        a = sign * top[some] / divisor[some, None]
        d = a + sign * bottom[some] / size_b[some, None]
        t[some] = _crossings(a, d, known_a[some], known_d[some], sign, reach)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(t < 1.0 - _LAST_BIT, size_a / size_b * t / (1.0 - t), np.inf)


def _crossings(
    a: FloatArray,
    d: FloatArray,
    known_a: FloatArray,
    known_d: FloatArray,
    sign: float,
    reach: Reach,
) -> FloatArray:
    """Return the t in [0, 1] at which the limits L of a − t d change sign, else an end.

    Between two t at which a term changes sign, L is T − √V with a linear T and a quadratic V, so
    that the next t is a root of a quadratic equation. If it has none, the bracket is bisected.
    """
    at_low = _expanded(a, d, reach).limit + known_a
    at_high = _expanded(a - d, d, reach).limit + known_a - known_d
    found = np.where(sign * at_low > 0.0, 1.0, 0.0)
    rows = np.flatnonzero((sign * at_low > 0.0) & (sign * at_high < 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):  # infinite limits, and rows that are left
        t = (at_low / (at_low - at_high))[rows]
    t = np.where(np.isfinite(at_low[rows]) & np.isfinite(at_high[rows]), t, 0.5)
    low, high, width = np.zeros(rows.size), np.ones(rows.size), np.ones(rows.size)
    for step in range(_ROUNDS if rows.size else 0):
        here = _expanded(a[rows] - t[:, None] * d[rows], d[rows], reach)
        here = here.moved(known_a[rows] - t * known_d[rows], known_d[rows])
        L = here.limit
        above = sign * L > 0.0
        low, high = np.where(above, t, low), np.where(above, high, t)
        s = _steps(here, low - t, high - t)
        near = np.abs(s) <= _NEAR * t
        ended = near | (L == 0.0) | (high - low <= _LAST_BIT * high)
        found[rows] = np.where(near, t + s, t)
        # If three steps have not halved the bracket it is bisected.
        slow = np.zeros(rows.size, dtype=bool)
        if step % 3 == 2:
            slow, width = high - low > 0.5 * width, high - low
        t = np.where(slow | np.isnan(s), 0.5 * (low + high), t + s)
        rows, t, low, high, width = (v[~ended] for v in (rows, t, low, high, width))
        if not rows.size:
            break
    found[rows] = t
    return found


def _steps(at: _Expansion, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return the s between two ends with T − q s = √(V − V1 s + V2 s²), or nan.

    Of two such s it is the one nearer to zero.
    """
    with np.errstate(all="ignore"):
        root = np.sqrt(at.V)
        A, B = at.q * at.q - at.V2, 0.5 * at.V1 - at.T * at.q
        C = (at.T - root) * (at.T + root)
        # For T² = 0 both roots are equal, which rounding must not change.
        D = np.where(at.V > 0.0, B * B - A * C, 0.0)
        far = -(B + np.copysign(np.sqrt(np.maximum(D, 0.0)), B))
        one, other = C / far, far / A
        is_one = (low <= one) & (one <= high) & (at.T - at.q * one >= -_NEAR * np.abs(at.T))
        is_other = (A != 0.0) & (low <= other) & (other <= high)
        is_other &= at.T - at.q * other >= 0.0
        s = np.where(is_one, one, np.where(is_other, other, np.nan))
        return np.where(np.isinf(at.V) | (D < 0.0) | (far == 0.0), np.nan, s)


def _expanded(x: FloatArray, d: FloatArray, reach: Reach) -> _Expansion:
    """Return the lower limits of the sums of x, which change by −d, expanded around x."""
    # Terms that cancel to rounding error are zero and have no sign.
    least = _CANCELLED * np.abs(x).max(axis=1, initial=0.0)
    x = np.where(np.abs(x) > least[:, None], x, 0.0)
    plus, minus = x > 0.0, x < 0.0
    d = np.where(plus | minus, d, 0.0)
    G, H = reach.positive, np.where(np.isinf(reach.negative), 0.0, reach.negative)
    endless = (minus & np.isinf(reach.negative)).any(axis=1)
    scale = np.where(plus, G, np.where(minus, H, 0.0))
    forms = list(_products(scale * x, scale * d))
    if minus.any():
        # Of a single positive term `same` has nothing.
        each = minus.any(axis=1) / np.maximum(plus.sum(axis=1) - 1, 1)
        x_plus, d_plus = np.where(plus, x, 0.0), np.where(plus, d, 0.0)
        x_minus, d_minus = np.where(minus, x, 0.0), np.where(minus, d, 0.0)
        xo, do = x_plus @ reach.opposite, d_plus @ reach.opposite
        both = _products(x_plus, d_plus, x_plus @ reach.same, d_plus @ reach.same)
        forms = [form + each * own for form, own in zip(forms, both, strict=True)]
        forms[0] -= (xo * x_minus).sum(axis=1)
        forms[1] -= (xo * d_minus + do * x_minus).sum(axis=1)
        forms[2] -= (do * d_minus).sum(axis=1)
    if reach.related.size:
        y, e = scale * x, scale * d
        both = _products(y, e, y @ reach.related, e @ reach.related)
        forms = [form + own for form, own in zip(forms, both, strict=True)]
    # Corrections of pairs can make a variance negative; it is then set to zero.
    is_zero = endless | (forms[0] < 0.0)
    V, V1, V2 = (np.where(is_zero, 0.0, form) for form in forms)
    T, q = (np.where(endless, 0.0, v.sum(axis=1)) for v in (x, d))
    return _Expansion(T, np.where(endless, np.inf, V), q, V1, V2)


def _products(
    x: FloatArray, d: FloatArray, Cx: FloatArray | None = None, Cd: FloatArray | None = None
) -> Iterator[FloatArray]:
    """Yield x'Cx, x'Cd + d'Cx and d'Cd of every row, C symmetric, or the unit matrix."""
    Cx, Cd = (x if Cx is None else Cx), (d if Cd is None else Cd)
    yield (x * Cx).sum(axis=1)
    yield 2.0 * (d * Cx).sum(axis=1)
    yield (d * Cd).sum(axis=1)
