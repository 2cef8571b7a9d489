"""Limits of sums of mean squares, and the ratios at which a limit is zero, compiled.

They are eq. (10.6) of docs/explanation/mathematics.md, called by
:mod:`~vcomp.inference.intervals.classical`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from vcomp._typing import FloatArray

_CANCELLED = 1e-9
"""Terms of a sum below this fraction of the largest are rounding error."""

_ROUNDS = 180
"""Steps that close a bracket of [0, 1], which is halved at least every third step."""

_LAST_BIT = 4e-16

_NEAR = 1e-10
"""Relative size of a step below which the next would be rounding error."""


@njit(cache=True, nogil=True)
def lower_limits(
    terms: FloatArray,
    positive: FloatArray,
    negative: FloatArray,
    opposite: FloatArray,
    same: FloatArray,
    related: FloatArray,
) -> FloatArray:
    """Return the lower limits of sums of K terms, each a mean square with its coefficient.

    Parameters
    ----------
    terms : (m, K)
    positive, negative : (K,) G and H of positive and negative terms; H may be inf
    opposite : (K, K) coefficient of a positive term (row) and a negative one (column)
    same : (K, K) coefficient of two positive terms, used if there are negative ones; symmetric
    related : (K, K) correlations with zeros on the diagonal; (0, 0) if there are none
    """
    m, K = terms.shape
    found, still, x = np.empty(m), np.zeros(K), np.empty(K)
    for row in range(m):
        T, V, _, _, _ = _expanded(
            terms[row], still, 0.0, x, positive, negative, opposite, same, related
        )
        found[row] = T - np.sqrt(V)
    return found


@njit(cache=True, nogil=True)
def ratios_at_zero(
    top: FloatArray,
    bottom: FloatArray,
    known_top: FloatArray,
    known_bottom: FloatArray,
    sign: float,
    positive: FloatArray,
    negative: FloatArray,
    opposite: FloatArray,
    same: FloatArray,
    related: FloatArray,
) -> FloatArray:
    """Return for each row the ratio ρ at which a limit of top − ρ bottom is zero.

    Parameters
    ----------
    top, bottom : (m, K) terms of numerators and denominators
    known_top, known_bottom : (m,) parts of both that are known without error
    sign : 1 for the lower limit of the ratio, −1 for the upper one
    positive, negative, opposite, same, related : as of :func:`lower_limits`

    Returns
    -------
    (m,) ρ; 0 if the limit is nowhere positive, inf if the denominator may be zero
    """
    m, K = top.shape
    found = np.empty(m)
    a, d, x = np.empty(K), np.empty(K), np.empty(K)
    for row in range(m):
        size_a, size_b = abs(known_top[row]), abs(known_bottom[row])
        for i in range(K):
            size_a += abs(top[row, i])
            size_b += abs(bottom[row, i])
        if not size_a > 0.0:
            found[row] = 0.0
            continue
        # With ρ = t/(1 − t) size_a/size_b the form is (1 − t) a − t b, a and b of size 1.
        size_b = size_b if size_b > 0.0 else 1.0
        for i in range(K):
            a[i] = sign * top[row, i] / size_a
            d[i] = a[i] + sign * bottom[row, i] / size_b
        known_a = sign * known_top[row] / size_a
        known_d = known_a + sign * known_bottom[row] / size_b
        t = _crossing(
            a, d, known_a, known_d, sign, x, positive, negative, opposite, same, related
        )  # fmt: skip
        found[row] = size_a / size_b * t / (1.0 - t) if t < 1.0 - _LAST_BIT else np.inf
    return found


@njit(cache=True, nogil=True)
def _crossing(
    a: FloatArray,
    d: FloatArray,
    known_a: float,
    known_d: float,
    sign: float,
    x: FloatArray,
    positive: FloatArray,
    negative: FloatArray,
    opposite: FloatArray,
    same: FloatArray,
    related: FloatArray,
) -> float:
    """Return the t in [0, 1] at which the limit L of a − t d changes sign, else an end.

    Between two t at which a term changes sign, L is T − √V with a linear T and a quadratic V, so
    that the next t is a root of a quadratic equation. If it has none, the bracket is bisected.
    """
    T, V, _, _, _ = _expanded(a, d, 0.0, x, positive, negative, opposite, same, related)
    L_low = T + known_a - np.sqrt(V)
    if not sign * L_low > 0.0:
        return 0.0
    T, V, _, _, _ = _expanded(a, d, 1.0, x, positive, negative, opposite, same, related)
    L_high = T + known_a - known_d - np.sqrt(V)
    if not sign * L_high < 0.0:
        return 1.0
    low, high, width = 0.0, 1.0, 1.0
    t = L_low / (L_low - L_high) if np.isfinite(L_high) and np.isfinite(L_low) else 0.5
    for step in range(_ROUNDS):
        T, V, q, V1, V2 = _expanded(a, d, t, x, positive, negative, opposite, same, related)
        T, q = T + known_a - t * known_d, q + known_d
        L = T - np.sqrt(V)
        if sign * L > 0.0:
            low = t
        else:
            high = t
        s: float = _step(T, V, q, V1, V2, low - t, high - t)
        if abs(s) <= _NEAR * t:
            return t + s
        if L == 0.0 or high - low <= _LAST_BIT * high:
            break
        # If three steps have not halved the bracket it is bisected.
        slow = False
        if step % 3 == 2:
            slow, width = high - low > 0.5 * width, high - low
        t = 0.5 * (low + high) if slow or np.isnan(s) else t + s
    return t


@njit(cache=True, nogil=True)
def _step(T: float, V: float, q: float, V1: float, V2: float, low: float, high: float) -> float:
    """Return the s between two ends with T − q s = √(V − V1 s + V2 s²), nan if there is none.

    Of two such s it is the one nearer to zero.
    """
    if np.isinf(V):
        return np.nan
    A, B, C = q * q - V2, 0.5 * V1 - T * q, (T - np.sqrt(V)) * (T + np.sqrt(V))
    # For T² = 0 both roots are equal, which rounding must not change.
    D = B * B - A * C if V > 0.0 else 0.0
    far: float = -(B + np.copysign(np.sqrt(max(D, 0.0)), B))
    if D < 0.0 or far == 0.0:
        return np.nan
    s: float = C / far
    if low <= s <= high and T - q * s >= -_NEAR * abs(T):
        return s
    s = far / A if A != 0.0 else np.nan
    return s if low <= s <= high and T - q * s >= 0.0 else np.nan


@njit(cache=True, nogil=True)
def _expanded(
    a: FloatArray,
    d: FloatArray,
    t: float,
    x: FloatArray,
    positive: FloatArray,
    negative: FloatArray,
    opposite: FloatArray,
    same: FloatArray,
    related: FloatArray,
) -> tuple[float, float, float, float, float]:
    """Return the expansion of the lower limit T − √V of the sum of x = a − t d around t.

    `x` is working memory for K numbers.

    Returns
    -------
    T, V, q, V1, V2 : at t + s the limit is T − q s − √(V − V1 s + V2 s²), as long as no term
        changes sign
    """
    K = a.size
    largest, n_positive, n_negative = 0.0, 0, 0
    for i in range(K):
        x[i] = a[i] - t * d[i]
        largest = max(largest, abs(x[i]))
    least = _CANCELLED * largest
    T, V, q, V1, V2 = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(K):
        # Terms that cancel to rounding error are zero and have no sign.
        if not abs(x[i]) > least:
            x[i] = 0.0
            continue
        n_positive += x[i] > 0.0
        n_negative += x[i] < 0.0
        reach = positive[i] if x[i] > 0.0 else negative[i]
        if np.isinf(reach):
            return 0.0, np.inf, 0.0, 0.0, 0.0
        T, q = T + x[i], q + d[i]
        V += (reach * x[i]) ** 2
        V1 += 2.0 * reach * reach * x[i] * d[i]
        V2 += (reach * d[i]) ** 2
    if n_negative or related.size:
        each = 2.0 / (n_positive - 1) if n_negative and n_positive > 1 else 0.0
        by_pairs = _pairs(x, d, each, positive, negative, opposite, same, related)
        V, V1, V2 = V + by_pairs[0], V1 + by_pairs[1], V2 + by_pairs[2]
    # Corrections of pairs can make a variance negative; it is then set to zero.
    return (T, V, q, V1, V2) if not V < 0.0 else (T, 0.0, q, 0.0, 0.0)


@njit(cache=True, nogil=True)
def _pairs(
    x: FloatArray,
    d: FloatArray,
    each: float,
    positive: FloatArray,
    negative: FloatArray,
    opposite: FloatArray,
    same: FloatArray,
    related: FloatArray,
) -> tuple[float, float, float]:
    """Return the sums over pairs in V, V1 and V2; `each` is the weight of two positive terms."""
    V, V1, V2 = 0.0, 0.0, 0.0
    for i in range(1, x.size):
        for j in range(i):
            if x[i] == 0.0 or x[j] == 0.0:
                continue
            c = 0.0
            if x[i] > 0.0:
                c = each * same[i, j] if x[j] > 0.0 else -opposite[i, j]
            elif x[j] > 0.0:
                c = -opposite[j, i]
            if related.size:
                reach_i = positive[i] if x[i] > 0.0 else negative[i]
                reach_j = positive[j] if x[j] > 0.0 else negative[j]
                c += 2.0 * reach_i * related[i, j] * reach_j
            V += c * x[i] * x[j]
            V1 += c * (x[i] * d[j] + x[j] * d[i])
            V2 += c * d[i] * d[j]
    return V, V1, V2
