"""The smallest difference of systems that is seldom swapped, for many rankings at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.ir.kernels.bits import (
    ONE,
    WordArray,
    add_bit,
    bits_from,
    first_word,
    lowest_bit,
    words_for,
)
from vcomp.numerics import slices
from vcomp.numerics.kernels import njit

_GRID = 2.0**36
"""Differences whose ratio to the largest agrees to 36 bits are one threshold: they are ties."""

_SHIFT = 29
"""The highest bits of a code are the number of its bin."""

_BINS = 2**8 + 1

_WIDTH = _GRID / (_BINS - 1)
"""Places on the grid in one bin."""

_HALF = 32
"""A tally counts pairs in its lower half, and swapped pairs in its upper half."""

_LOW = 2**_HALF - 1

_PAIRS = 2**18
"""Pairs that are compared at once by arrays."""

_TINY = float(np.finfo(np.float64).tiny) * _GRID
"""What the grid can be divided by without overflow."""


@njit(cache=True, nogil=True)
def smallest_safe_difference(
    means: FloatArray,
    truth: FloatArray,
    tolerances: FloatArray,
    truth_tolerances: FloatArray,
    swapped: LongArray,
    order: LongArray,
    truth_order: LongArray,
    rate: float,
    relative: bool,
) -> FloatArray:
    """Find the smallest δ such that of the pairs at least δ apart at most `rate` are swapped.

    Parameters
    ----------
    means, truth : (m, k) two scores of each system; differences are those in `means`
    tolerances, truth_tolerances : (m,) largest difference of tied systems; their pairs do not
        count
    swapped : (m,) number of swapped pairs where no systems are tied, in either; -1 where some are
        or it is not known, which is slower
    order, truth_order : (m, k) systems in the order of falling means, and of falling true means;
        not used where some are tied
    rate : largest share of swapped pairs
    relative : whether differences are divided by the larger of the two means, in absolute value

    Returns
    -------
    delta : (m,) nan where there is none
    """
    m, k = means.shape
    n_pairs = k * (k - 1) // 2
    delta = np.full(m, np.nan)
    size, unit = np.empty(n_pairs + 1), np.empty(n_pairs + 1)
    code = np.empty(n_pairs, np.int64)
    start: Any = np.int64(0)
    tally, z = np.empty(_BINS, np.int64), np.empty(k)
    rank, by_truth, first = np.empty(k, np.uint64), np.empty(k, np.uint64), np.empty(k, np.uint64)
    for row in range(m):
        x, y = means[row], truth[row]
        least, most = _range(x)
        span = most - least
        if not max(tolerances[row], _TINY) < span < np.inf:  # nan is refused too
            continue
        scale = _GRID if relative else _GRID / span
        tally[:] = 0
        if swapped[row] >= 0 and (least > _TINY or not relative):
            for p in range(k):
                z[p], rank[order[row, p]] = x[order[row, p]], p
            for p in range(k):
                by_truth[p] = rank[truth_order[row, p]]
            delta[row], start = _of_ranking(
                z, by_truth, swapped[row], start, rate, relative, scale, first, size, unit, tally
            )
        else:
            ex, ey = tolerances[row], truth_tolerances[row]
            delta[row] = _of_pairs(x, y, ex, ey, rate, relative, scale, size, code, tally)
    return delta


def smallest_by_arrays(
    means: FloatArray,
    truth: FloatArray,
    tolerances: FloatArray,
    truth_tolerances: FloatArray,
    swapped: LongArray,
    order: LongArray,
    truth_order: LongArray,
    rate: float,
    relative: bool,
) -> FloatArray:
    """Do what :func:`smallest_safe_difference` does, by sorting the pairs of each row."""
    delta = np.full(len(means), np.nan)
    i, j = np.tril_indices(means.shape[1], -1)
    least, most = means.min(axis=1), means.max(axis=1)
    span = most - least
    kept = np.flatnonzero((np.maximum(tolerances, _TINY) < span) & (span < np.inf))
    for some in slices(kept.size, 1 + _PAIRS // max(i.size, 1)):
        at = kept[some]
        x, y = means[at], truth[at]
        dx, dy = x[:, j] - x[:, i], y[:, j] - y[:, i]
        size = np.abs(dx)
        if relative:
            larger = np.maximum(np.abs(x[:, i]), np.abs(x[:, j]))
            size = np.minimum(1.0, size / np.maximum(larger, _TINY))
        scale = _GRID if relative else _GRID / span[at, None]
        ranked = (swapped[at] >= 0) & ((least[at] > _TINY) | (not relative))
        code = np.floor(size * scale + 0.5).astype(np.int64) << 1 | ((dx > 0) != (dy > 0))
        untied = (np.abs(dx) > tolerances[at, None]) & (np.abs(dy) > truth_tolerances[at, None])
        code[~(untied | ranked[:, None])] = -1
        rising = np.sort(code, axis=1)
        # Shares of the swapped pairs from each on; the first of a tie is its threshold.
        unsafe = np.cumsum((rising & (rising >= 0))[:, ::-1] & 1, axis=1)[:, ::-1]
        safe = unsafe / np.arange(i.size, 0, -1) <= rate
        safe &= rising >= 0
        safe[:, 1:] &= rising[:, 1:] >> 1 != rising[:, :-1] >> 1
        first, there = safe.argmax(axis=1), safe.any(axis=1)
        found = np.take_along_axis(rising, first[:, None], axis=1)
        smallest = np.where(code >> 1 >= found >> 1, size, np.inf).min(axis=1)
        one = np.take_along_axis(size, (code == found).argmax(axis=1)[:, None], axis=1)[:, 0]
        delta[at] = np.where(there, np.where(ranked, smallest, one), np.nan)
    return delta


@njit(cache=True, nogil=True)
def _of_ranking(
    z: FloatArray,
    by_truth: WordArray,
    n_swapped: int,
    start: Any,
    rate: float,
    relative: bool,
    scale: float,
    first: WordArray,
    place: FloatArray,
    unit: FloatArray,
    tally: LongArray,
) -> tuple[float, int]:
    """Return δ of systems without ties, with positive means where it is relative.

    Only swapped pairs are examined one by one, and of them only those from bin `start` on if they
    are so many that no smaller difference will do. In the order of the means the pairs more than
    some difference apart are counted without that. With s swapped pairs above a difference, it
    will do if there are s / `rate` pairs above it at least: as their number can only fall on the
    way up, most differences are passed over without counting.

    Parameters
    ----------
    z : (k,) falling means
    by_truth : (k,) their places in the order of falling true means
    start : any bin; what is returned beside δ is likely to suit a similar ranking
    """
    k = z.size
    n = k * (k - 1) // 2
    most = _most_unsafe(n, rate)
    if n_swapped <= most:
        return _apart(z, -1.0, relative, scale, first)[1], start
    left = _swapped_pairs(z, by_truth, start * _WIDTH - 1.0, relative, scale, first, place, unit)
    if left <= most:
        start = np.int64(0)
        left = _swapped_pairs(z, by_truth, -1.0, relative, scale, first, place, unit)
    swapped = place[:left]
    _swapped_places(swapped, unit, relative, scale, tally)
    suits = -1
    for b in range(start, _BINS):
        here = tally[b]
        left -= here  # swapped pairs above this bin
        if left > most:
            continue
        if suits < 0:
            suits = 3 * b // 4
        below = b * _WIDTH - 1.0
        n, least = _apart(z, below, relative, scale, first)
        if n == 0:
            break
        most = _most_unsafe(n, rate)
        if left > most:
            continue
        if left + here <= most:
            return least, suits
        within = _within(swapped, below, here)
        for q in range(here):
            unsafe = left + here - 1 - q
            if unsafe > most or (q + 1 < here and within[q + 1] == within[q]):
                continue
            n, least = _apart(z, float(within[q]), relative, scale, first)
            most = _most_unsafe(n, rate)
            if n == 0 or unsafe <= most:
                return least, suits
    return np.nan, max(suits, 0)


@njit(cache=True, nogil=True)
def _most_unsafe(n: int, rate: float) -> int:
    """Return how many of n pairs may be swapped: the most whose share is not above the rate."""
    most = int(rate * n)
    if n > 0 and most / n > rate:
        return most - 1
    if n > 0 and (most + 1) / n <= rate:
        return most + 1
    return most


@njit(cache=True, nogil=True)
def _swapped_pairs(
    z: FloatArray,
    by_truth: WordArray,
    below: float,
    relative: bool,
    scale: float,
    first: WordArray,
    size: FloatArray,
    unit: FloatArray,
) -> int:
    """Fill in differences and larger means of swapped pairs above a place; return how many.

    Systems come in by their true ranks: a pair is swapped if the better mean comes in later.
    """
    _first_apart(z, below, relative, scale, first)
    seen = np.zeros(words_for(z.size), np.uint64)
    end = np.uint64(0)  # unsigned: see bits
    for r in by_truth:
        larger = z[r]
        for w in range(first_word(first[r]), seen.size):
            word = bits_from(seen, w, first[r])
            while word:
                size[end], unit[end] = larger - z[lowest_bit(w, word)], larger
                word &= word - ONE
                end += ONE
        add_bit(seen, r)
    return int(np.int64(end))


@njit(cache=True, nogil=True)
def _swapped_places(
    place: FloatArray, unit: FloatArray, relative: bool, scale: float, tally: LongArray
) -> None:
    """Make places on the grid of differences, and count those of each bin."""
    if relative:
        for q in range(place.size):
            place[q] /= unit[q]
    for q in range(place.size):
        place[q] = _place(place[q], scale)
    for q in range(place.size):
        tally[np.uint64(place[q] / _WIDTH)] += 1


@njit(cache=True, nogil=True)
def _within(places: FloatArray, below: float, count: int) -> LongArray:
    """Return the places of one bin in order."""
    found, end = np.empty(count + 1, np.int64), np.uint64(0)  # unsigned: see bits
    for q in range(places.size):
        found[end] = np.int64(places[q])
        end += np.uint64((places[q] > below) & (places[q] <= below + _WIDTH))
    _sort(found, count)
    return found


@njit(cache=True, nogil=True)
def _range(x: FloatArray) -> tuple[float, float]:
    """Return the least and the largest number, nan where one is."""
    least, most = x[0], x[0]
    for value in x:
        if not value >= least:
            least = value
        if not value <= most:
            most = value
    return least, most


@njit(cache=True, nogil=True)
def _sort(values: LongArray, count: int) -> None:
    """Sort the first numbers in place, by a heap: ``np.sort`` takes seconds to compile."""
    for done in range(-(count // 2), count):
        # First every number from the middle down finds its place in the heap, then the largest is
        # taken from the top again and again.
        place, end = -done - 1, count
        if done >= 0:
            place, end = 0, count - 1 - done
            values[0], values[end] = values[end], values[0]
        value = values[place]
        below = 2 * place + 1
        while below < end:
            if below + 1 < end and values[below + 1] > values[below]:
                below += 1
            if values[below] <= value:
                break
            values[place], place = values[below], below
            below = 2 * place + 1
        values[place] = value


@njit(cache=True, nogil=True)
def _place(size: float, scale: float) -> float:
    """Return the place of a difference on the grid."""
    return float(np.floor(size * scale + 0.5))


@njit(cache=True, nogil=True)
def _size(larger: float, smaller: float, relative: bool) -> float:
    return (larger - smaller) / larger if relative else larger - smaller


@njit(cache=True, nogil=True)
def _apart(
    z: FloatArray, below: float, relative: bool, scale: float, first: WordArray
) -> tuple[int, float]:
    """Count the pairs of falling means above a place on the grid, and find the least of them."""
    _first_apart(z, below, relative, scale, first)
    k, count, least = z.size, 0, np.inf
    for i in range(k):
        p = int(np.int64(first[i]))
        if p < k:
            count += k - p
            least = min(least, _size(z[i], z[p], relative))
    return count, least if count else np.nan


@njit(cache=True, nogil=True)
def _first_apart(
    z: FloatArray, below: float, relative: bool, scale: float, first: WordArray
) -> None:
    """Fill in where, from each of the falling means on, those above a place on the grid begin.

    The first mean far enough below each moves down with it. A threshold says where it is but for
    rounding, and the place itself decides.
    """
    k, p = z.size, 1
    threshold = (below + 0.5) / scale
    for i in range(k):
        zi = z[i]
        enough = zi - (threshold * zi if relative else threshold)
        p = max(p, i + 1)
        while p < k and z[p] > enough:
            p += 1
        while p > i + 1 and _place(_size(zi, z[p - 1], relative), scale) > below:
            p -= 1
        while p < k and _place(_size(zi, z[p], relative), scale) <= below:
            p += 1
        first[i] = p


@njit(cache=True, nogil=True)
def _of_pairs(
    x: FloatArray,
    y: FloatArray,
    ex: float,
    ey: float,
    rate: float,
    relative: bool,
    scale: float,
    size: FloatArray,
    code: LongArray,
    tally: LongArray,
) -> float:
    """Return δ of any systems.

    Pairs go into bins by their difference, and only a bin in which δ may lie is sorted: most pairs
    are never compared with one another.
    """
    count = _untied_pairs(x, y, ex, ey, relative, scale, size, code, tally)
    n_above, n_unsafe = count, np.int64(0)
    for b in range(_BINS):
        n_unsafe += tally[b] >> _HALF
    for b in range(_BINS):
        n_here, n_unsafe_here = tally[b] & _LOW, tally[b] >> _HALF
        most_safe = n_above - n_unsafe_here
        n_above -= n_here
        n_unsafe -= n_unsafe_here
        if n_here == 0 or most_safe == 0 or n_unsafe / most_safe > rate:
            continue
        p = _last_safe(b, n_here, code, count, n_above, n_unsafe, rate)
        if p >= 0:
            return float(size[p])
    return np.nan


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
    b: int, n_here: int, code: LongArray, count: int, n_above: int, n_unsafe: int, rate: float
) -> int:
    """Return a pair of a bin at the smallest acceptable difference, or -1."""
    codes, end = np.empty(n_here, np.int64), 0
    for q in range(count):
        if code[q] >> _SHIFT == b:
            codes[end] = code[q]
            end += 1
    _sort(codes, n_here)
    found = np.int64(-1)
    for q in range(n_here):
        here = codes[n_here - 1 - q]
        n_unsafe += here & 1
        last_of_tie = q + 1 == n_here or codes[n_here - 2 - q] >> 1 != here >> 1
        if last_of_tie and n_unsafe / (n_above + q + 1) <= rate:
            found = here
    for q in range(count):
        if code[q] == found:
            return q
    return -1
