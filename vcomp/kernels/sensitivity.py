"""The smallest difference of systems that is seldom swapped, for many rankings at once."""

from __future__ import annotations

import numpy as np
from numba import njit

from vcomp._typing import FloatArray, LongArray

__all__ = ["smallest_safe_difference"]

_GRID = 2.0**36
"""Differences whose ratio to the largest agrees to 36 bits are one threshold: they are ties."""

_SHIFT = 29
"""The highest bits of a code are the number of its bin."""

_BINS = 2**8 + 1

_HALF = 32
"""A tally counts pairs in its lower half, and swapped pairs in its upper half."""

_LOW = 2**_HALF - 1

_TINY = float(np.finfo(np.float64).tiny) * _GRID
"""What the grid can be divided by without overflow."""


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
    size, code = np.empty(n_pairs), np.empty(n_pairs, np.int64)
    tally = np.empty(_BINS, np.int64)
    for row in range(m):
        x = means[row]
        tally[:] = 0
        span = x.max() - x.min()
        if not max(tolerances[row], _TINY) < span < np.inf:  # no number is not either
            continue
        scale = _GRID if relative else _GRID / span
        count = _untied_pairs(
            x,
            truth[row],
            tolerances[row],
            truth_tolerances[row],
            relative,
            scale,
            size,
            code,
            tally,
        )
        n_above, n_unsafe = count, np.int64((tally >> _HALF).sum())
        for b in range(_BINS):
            n_here, n_unsafe_here = tally[b] & _LOW, tally[b] >> _HALF
            most_safe = n_above - n_unsafe_here
            n_above -= n_here
            n_unsafe -= n_unsafe_here
            if n_here == 0 or most_safe == 0 or n_unsafe / most_safe > rate:
                continue
            p = _last_safe(
                np.flatnonzero(code[:count] >> _SHIFT == b), code, n_above, n_unsafe, rate
            )
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
    scale: float,
    size: FloatArray,
    code: LongArray,
    tally: LongArray,
) -> int:
    """Fill in differences and codes of untied pairs, and count those of each bin; return how many.

    A code is a place on the grid, doubled, and one more if the pair is swapped.
    """
    count = 0
    for i in range(x.size):
        for j in range(i):
            dx, dy = x[j] - x[i], y[j] - y[i]
            d = abs(dx)
            if relative:
                d = min(1.0, d / max(abs(x[i]), abs(x[j]), _TINY))
            swapped = np.int64((dx > 0) != (dy > 0))
            untied = int((abs(dx) > ex) & (abs(dy) > ey))
            size[count] = d
            code[count] = untied * (np.int64(d * scale + 0.5) << 1 | swapped)
            tally[code[count] >> _SHIFT] += untied * (1 + (swapped << _HALF))
            count += untied
    return count


@njit(cache=True, nogil=True)
def _last_safe(
    here: LongArray, code: LongArray, n_above: int, n_unsafe: int, rate: float
) -> np.int64:
    """Return the pair of a bin at the smallest difference that will do, or -1."""
    order = here[np.argsort(-code[here])]
    found = np.int64(-1)
    for q in range(order.size):
        n_unsafe += code[order[q]] & 1
        last_of_tie = q + 1 == order.size or code[order[q + 1]] >> 1 != code[order[q]] >> 1
        if last_of_tie and n_unsafe / (n_above + q + 1) <= rate:
            found = order[q]
    return found
