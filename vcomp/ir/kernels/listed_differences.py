"""The sensitivity of Urbano's code, which goes through pairs of systems as they are listed."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.numerics.kernels import njit

_GRID = 2.0**36
"""Differences whose ratio to the largest agrees to 36 bits are tied."""

_BINS = 2**9

_SHIFT = 28
"""The highest bits of a place, up to 2 on the grid, are the number of its bin."""

_ORDER = 25
"""Bits of a code for the place of a pair in its bin; a tally has as many bits for all pairs."""

_LOW = 2**_ORDER - 1

_RIGHT, _SWAPPED = 1, -1
"""How a pair agrees in both rankings; 0 if it is tied in one of them."""

LARGEST_LISTED = 8_192
"""Systems whose pairs have places in 25 bits."""


@njit(cache=True, nogil=True)
def listed_safe_difference(
    means: FloatArray,
    truth: FloatArray,
    tolerances: FloatArray,
    truth_tolerances: FloatArray,
    rate: float,
    relative: bool,
) -> FloatArray:
    """Find the last difference at which, going down a list, at most `rate` are swapped so far.

    Pairs are listed by falling differences, ties as the systems come. Pairs that are tied in one
    of the two rankings are listed, but neither swapped nor right. Relative differences have the
    sign of the larger mean, and may be infinite; what is returned is 1 at most.

    Parameters
    ----------
    means, truth : (m, k) two scores of each system, k up to :data:`LARGEST_LISTED`
    tolerances, truth_tolerances : (m,) largest difference of tied systems
    rate : largest share of swapped pairs
    relative : whether differences are divided by the larger of the two means

    Returns
    -------
    delta : (m,) nan where there is none
    """
    m, k = means.shape
    n_pairs = k * (k - 1) // 2
    size, place = np.empty(n_pairs), np.empty(n_pairs, np.int64)
    agrees = np.empty(n_pairs, np.int64)
    tally, swapped = np.empty(_BINS + 1, np.int64), np.empty(_BINS + 1, np.int64)
    delta = np.full(m, np.nan)
    for row in range(m):
        x = means[row]
        span = x.max() - x.min()
        if not span < np.inf:  # nan is refused too
            continue
        scale = _GRID if relative else _GRID / max(span, 1e-290)
        count = _listed(
            x, truth[row], tolerances[row], truth_tolerances[row], relative, scale, size, place,
            agrees, tally, swapped,
        )  # fmt: skip
        right, wrong = np.int64(0), np.int64(0)
        for b in range(_BINS + 1):
            right += tally[b] >> _ORDER
            wrong += swapped[b]
        for b in range(_BINS + 1):
            most = right
            right -= tally[b] >> _ORDER  # above this bin
            wrong -= swapped[b]
            n_here = tally[b] & _LOW
            if n_here == 0 or wrong > rate * (most + wrong):
                continue
            found = _last_in_bin(b, n_here, size, place, agrees, count, right, wrong, rate)
            if not np.isnan(found):
                delta[row] = min(1.0, found)
                break
    return delta


@njit(cache=True, nogil=True)
def _listed(
    x: FloatArray,
    y: FloatArray,
    ex: float,
    ey: float,
    relative: bool,
    scale: float,
    size: FloatArray,
    place: LongArray,
    agrees: LongArray,
    tally: LongArray,
    swapped: LongArray,
) -> int:
    """Fill in the pairs in their order, and count those of each bin, right and swapped ones.

    A tally counts pairs in its lower bits, and right pairs in its upper ones.

    Relative differences above 100 % are at 2 - 1/d, so that all of them are at 2 at most.
    """
    tally[:] = 0
    swapped[:] = 0
    count = 0
    for i in range(x.size):
        for j in range(i + 1, x.size):
            d, dy = x[i] - x[j], y[i] - y[j]
            tied, right = abs(d) <= ex, (d > 0.0) == (dy > 0.0)
            d = 0.0 if tied else abs(d)
            if relative:
                larger = max(x[i], x[j])
                if larger == 0.0:
                    if tied:
                        continue  # 0/0 is at the end of the list, and has no rate
                    d = np.inf
                else:
                    d /= abs(larger)
                    right = right == (larger > 0.0)
            ratio = d if d <= 1.0 or not relative else 2.0 - 1.0 / d
            size[count], place[count] = d, np.int64(ratio * scale + 0.5)
            agrees[count] = 0 if tied or abs(dy) <= ey else (_RIGHT if right else _SWAPPED)
            b = place[count] >> _SHIFT
            tally[b] += 1 + (np.int64(agrees[count] == _RIGHT) << _ORDER)
            swapped[b] += agrees[count] == _SWAPPED
            count += 1
    return count


@njit(cache=True, nogil=True)
def _last_in_bin(
    b: int,
    n_here: int,
    size: FloatArray,
    place: LongArray,
    agrees: LongArray,
    count: int,
    right: int,
    wrong: int,
    rate: float,
) -> float:
    """Return the last difference of a bin at which the rate holds, nan if there is none."""
    code, pair, end = np.empty(n_here, np.int64), np.empty(n_here, np.int64), 0
    for p in range(count):
        if place[p] >> _SHIFT == b:
            code[end], pair[end] = (-place[p] << _ORDER) + end, p
            end += 1
    _sort(code)
    found = np.nan
    for c in code:
        p = pair[c & _LOW]
        right += agrees[p] == _RIGHT
        wrong += agrees[p] == _SWAPPED
        if right + wrong > 0 and wrong / (right + wrong) <= rate:
            found = size[p]
    return found


@njit(cache=True, nogil=True)
def _sort(values: LongArray) -> None:
    """Sort in place by Shell's method: ``np.sort`` takes seconds to compile."""
    gap = values.size // 2
    while gap > 0:
        for p in range(gap, values.size):
            value, q = values[p], p
            while q >= gap and values[q - gap] > value:
                values[q] = values[q - gap]
                q -= gap
            values[q] = value
        gap //= 2
