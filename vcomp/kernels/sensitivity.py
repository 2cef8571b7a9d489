"""The smallest difference of systems that is seldom swapped, for many rankings at once."""

from __future__ import annotations

import numpy as np
from numba import njit

from vcomp._typing import FloatArray, LongArray

__all__ = ["smallest_safe_difference"]

_GRID = 2.0**36
"""Differences whose ratio to the largest agrees to 36 bits are one threshold: they are ties."""

_SHIFT = 28
"""The highest bits of a place on the grid are the number of its bin."""

_BINS = 2**8 + 1

_TINY = float(np.finfo(np.float64).tiny)


@njit(cache=True, nogil=True)
def smallest_safe_difference(
    means: FloatArray,
    truth: FloatArray,
    tolerances: FloatArray,
    truth_tolerances: FloatArray,
    rate: float,
    relative: bool,
) -> FloatArray:
    """Find the smallest δ such that of the pairs at least δ apart at most `rate` are swapped.

    Pairs go into bins by their difference, and only a bin in which δ may lie is sorted: most pairs
    are never compared with one another.

    Parameters
    ----------
    means, truth : (m, k) two scores of each system; differences are those in `means`
    tolerances, truth_tolerances : (m,) largest difference of tied systems; their pairs count not
    rate : largest share of swapped pairs
    relative : whether differences are divided by the larger of the two means, in absolute value

    Returns
    -------
    delta : (m,) nan where there is none
    """
    m, k = means.shape
    n_pairs = k * (k - 1) // 2
    delta = np.full(m, np.nan)
    size = np.empty(n_pairs)
    code = np.empty(n_pairs, np.int64)
    swapped = np.empty(n_pairs, np.int64)
    members = np.empty(n_pairs, np.int64)
    for row in range(m):
        count, largest = _untied_pairs(
            means[row], truth[row], tolerances[row], truth_tolerances[row], relative, size, swapped
        )
        if count == 0:
            continue
        pairs, unsafe = np.zeros(_BINS + 1, np.int64), np.zeros(_BINS, np.int64)
        scale = _GRID / largest
        for p in range(count):
            code[p] = np.int64(size[p] * scale + 0.5)
            b = code[p] >> _SHIFT
            pairs[b + 1] += 1
            unsafe[b] += swapped[p]
        n_unsafe = int(unsafe.sum())
        start = np.cumsum(pairs)
        fill = start[:-1].copy()
        for p in range(count):
            b = code[p] >> _SHIFT
            members[fill[b]] = p
            fill[b] += 1
        for b in range(_BINS):
            here = members[start[b] : start[b + 1]]
            n_unsafe -= unsafe[b]
            n_above = count - start[b + 1]
            most_safe = n_above + here.size - unsafe[b]
            if most_safe == 0 or here.size == 0 or n_unsafe / most_safe > rate:
                continue
            p = _last_safe(here, code, swapped, n_above, n_unsafe, rate)
            if p >= 0:
                delta[row] = size[p]
                break
    return delta


@njit(cache=True, nogil=True)
def _untied_pairs(
    x: FloatArray,
    y: FloatArray,
    ex: float,
    ey: float,
    relative: bool,
    size: FloatArray,
    swapped: LongArray,
) -> tuple[int, float]:
    """Fill in the difference of each pair and whether it is swapped; return their number."""
    count, largest = 0, 0.0
    for i in range(x.size):
        for j in range(i):
            dx, dy = x[j] - x[i], y[j] - y[i]
            d = abs(dx)
            if relative:
                d = min(1.0, d / max(abs(x[i]), abs(x[j]), _TINY))
            size[count] = d
            swapped[count] = np.int64((dx > 0) != (dy > 0))
            untied = (abs(dx) > ex) & (abs(dy) > ey)
            largest = max(largest, d) if untied else largest
            count += int(untied)
    return count, largest


@njit(cache=True, nogil=True)
def _last_safe(
    here: LongArray,
    code: LongArray,
    swapped: LongArray,
    n_above: int,
    n_unsafe: int,
    rate: float,
) -> np.int64:
    """Return the pair of a bin at the smallest difference that will do, or -1."""
    order = here[np.argsort(-code[here])]
    found = np.int64(-1)
    for q in range(order.size):
        n_unsafe += swapped[order[q]]
        last_of_tie = q + 1 == order.size or code[order[q + 1]] != code[order[q]]
        if last_of_tie and n_unsafe / (n_above + q + 1) <= rate:
            found = order[q]
    return found
