"""Differences between systems: pairs by size, signed ranks, and means over random sets of topics.

Counts by size store nothing for each pair. Systems come in the order of their means, so that the
differences from one of them rise, and so do their bins.

With ν degrees of freedom and s² = t²/(ν + t²), z = 1 − s², a two-sided p-value is z^(ν/2) h(s)
with h(s) = ₂F₁(ν/2, ½; ν/2 + 1; z)/(ν/2 · B(ν/2, ½)), which is smooth and between h(1) and 1
(Abramowitz & Stegun 1964, eqs. 26.5.2, 26.7.1 and 15.1.1): a table of it serves all pairs.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.numerics.kernels import at_once, njit

_KNOTS, _FEW_DF, _MOST_KNOTS = 8192, 24.0, 1 << 17
"""Knots up to `_FEW_DF` degrees of freedom; beyond, their number grows with √ν, to `_MOST_KNOTS`
at most. The largest relative error is then 2e-13."""


_LEAST_LOG = -600.0


@lru_cache(maxsize=8)
def tail_table(df: int) -> FloatArray:
    """Return h(s) at equally spaced s from 0 to 1, with one extra knot beyond either end.

    Parameters
    ----------
    df : degrees of freedom, at least 1
    """
    from scipy.special import betaln, hyp2f1, stdtr

    n = int(min(_KNOTS * max(1.0, math.sqrt(df / _FEW_DF)), _MOST_KNOTS))
    s = np.linspace(0.0, 1.0, n + 1)
    a, z = df / 2.0, (1.0 - s) * (1.0 + s)
    # the series converges fast where z^a is too small to divide by
    small = a * np.log(z, out=np.full_like(z, -np.inf), where=z > 0.0) < _LEAST_LOG
    h = np.empty_like(z)
    t = s[~small] * np.sqrt(df / z[~small])
    h[~small] = 2.0 * stdtr(df, -t) / z[~small] ** a
    h[small] = hyp2f1(a, 0.5, a + 1.0, z[small]) * math.exp(-betaln(a, 0.5)) / a
    table = np.empty(n + 3)
    table[1:-1] = h
    # cubics through the four nearest knots
    table[0] = 4.0 * h[0] - 6.0 * h[1] + 4.0 * h[2] - h[3]
    table[-1] = 4.0 * h[-1] - 6.0 * h[-2] + 4.0 * h[-3] - h[-4]
    table.flags.writeable = False
    return table


@njit(cache=True, nogil=True)
def _tail(z: float, square: float, df: int, table: FloatArray) -> float:
    """Return z^(df/2) h(√square), with z = 1 − square."""
    n = table.size - 3
    at = math.sqrt(square) * n
    k = min(int(at), n - 1)
    x = at - k
    a, b, c, d = table[k], table[k + 1], table[k + 2], table[k + 3]
    # Lagrange's cubic through the knots −1, 0, 1 and 2
    h = (x + 1.0) * (x - 2.0) * ((x - 1.0) * b - x * c) / 2.0
    h += x * (x - 1.0) * ((x + 1.0) * d - (x - 2.0) * a) / 6.0
    power: float = h
    base, left = z, df // 2
    while left > 0:
        if left & 1:
            power *= base
        base *= base
        left >>= 1
    return power * math.sqrt(z) if df & 1 else power


@njit(cache=True, nogil=True)
def _variance(X: FloatArray, i: int, j: int) -> float:
    """Return the variance of the differences between two rows."""
    n, mean, squares = X.shape[1], 0.0, 0.0
    for t in range(n):
        mean += X[j, t] - X[i, t]
    mean /= n
    for t in range(n):
        squares += (X[j, t] - X[i, t] - mean) ** 2
    return squares / (n - 1)


@njit(cache=True, nogil=True)
def binned_differences(
    X: FloatArray,
    means: FloatArray,
    others: FloatArray,
    S: FloatArray,
    bounds: FloatArray,
    zero: tuple[float, float, float],
    cancelled: float,
    critical: float,
    table: FloatArray,
) -> FloatArray:
    """Return the counts of pairs and of swapped pairs in each bin, and their sum of p-values.

    Parameters
    ----------
    X : (k, n) scores, systems in the order of their means
    means, others : (k,) their means, rising, and means on other topics
    S : (k, k) covariances of the systems
    bounds : (bins + 1,) of the differences
    zero : differences of means and of the other means up to which they are rounding, and the
        variance of a difference up to which it is
    cancelled : share of the two variances up to which that of the difference is computed directly
    critical : t that a pair has to exceed to be counted; negative if all count
    table : of :func:`tail_table`
    """
    k, n = X.shape
    df, n_bins = n - 1, bounds.size - 1
    counts = np.zeros((3, n_bins))
    slack = 1e-12 * (means[k - 1] - means[0])
    for i in range(k):
        place = -1
        for j in range(i + 1, k):
            d = means[j] - means[i]
            if d <= zero[0]:
                continue
            while place < n_bins and bounds[place + 1] <= d + slack:
                place += 1
            if place < 0:
                continue
            if place >= n_bins:
                break
            total = S[i, i] + S[j, j]
            variance = total - 2.0 * S[i, j]
            if variance <= cancelled * total:
                variance = _variance(X, i, j)
            if variance <= zero[2]:
                variance = 0.0
            elif d * math.sqrt(n / variance) <= critical:
                continue
            between = n * d * d
            within = df * variance
            counts[0, place] += 1.0
            if others[j] - others[i] < -zero[1]:
                counts[1, place] += 1.0
            counts[2, place] += _tail(
                within / (within + between), between / (within + between), df, table
            )
    return counts


DROPPED, PRATT, SPLIT = 0, 1, 2
"""Zeros: left out; ranked, then left out; ranked, half of the ranks to either side."""


@njit(cache=True, nogil=True)
def signed_ranks(
    D: FloatArray, order: LongArray, zeros: int, tolerance: float, exact_up_to: int
) -> FloatArray:
    """Return the signed-rank statistic of each pair of systems, and its exact tails.

    Absolute differences that are equal have the mean of their ranks. The null distribution is
    that of random signs of the differences, given these ranks; zeros have no sign.

    Parameters
    ----------
    D : (m, n) differences of m pairs on n topics
    order : (m, n) places of each row of `D` by absolute size, the smallest first
    zeros : :data:`DROPPED`, :data:`PRATT` or :data:`SPLIT`
    tolerance : differences that are at most this far apart are equal
    exact_up_to : number of ranks with a sign up to which tails are exact, at most 50

    Returns
    -------
    (m, 6) array
        Sum of the ranks of positive differences; its mean and variance under the null hypothesis;
        the number of ranks with a sign; the probabilities of sums up to and from this one on, nan
        beyond `exact_up_to`.
    """
    m, n = D.shape
    out = np.empty((m, 6))
    doubled = np.empty(n, np.int64)
    for pair in range(m):
        d, places = D[pair], order[pair]
        n_zeros = 0
        while n_zeros < n and abs(d[places[n_zeros]]) <= tolerance:
            n_zeros += 1
        kept = n - n_zeros
        shift = 0 if zeros == DROPPED else n_zeros
        positive = 0  # twice the sum of the ranks of positive differences
        first = 0
        while first < kept:
            last = first
            size = abs(d[places[n_zeros + first]])
            while last + 1 < kept:
                following = abs(d[places[n_zeros + last + 1]])
                if following - size > tolerance:
                    break
                size = following
                last += 1
            rank = 2 * shift + first + last + 2
            for place in range(first, last + 1):
                doubled[place] = rank
                if d[places[n_zeros + place]] > 0.0:
                    positive += rank
            first = last + 1
        whole, squares = 0, 0.0
        for place in range(kept):
            whole += doubled[place]
            squares += float(doubled[place]) ** 2
        # Zeros have no sign to flip: half of the sum of their ranks is in every sum.
        of_zeros = n_zeros * (n_zeros + 1) / 4.0 if zeros == SPLIT else 0.0
        out[pair, 0] = positive / 2.0 + of_zeros
        out[pair, 1] = whole / 4.0 + of_zeros
        out[pair, 2] = squares / 16.0
        out[pair, 3] = kept
        out[pair, 4] = np.nan
        out[pair, 5] = np.nan
        if kept <= exact_up_to:
            # The distribution is symmetric: sums from s on are as likely as those up to whole - s.
            smaller = min(positive, whole - positive)
            counts = _counts_up_to(doubled, kept, smaller)
            below = 0.0
            for total in range(smaller):
                below += counts[total]
            scale = 2.0 ** (-kept)
            small = (below + counts[smaller]) * scale
            large = 1.0 - below * scale
            is_low = positive == smaller
            out[pair, 4] = small if is_low else large
            out[pair, 5] = large if is_low else small
    return out


@njit(cache=True, nogil=True)
def _counts_up_to(ranks: LongArray, n: int, most: int) -> FloatArray:
    """Return how many sets of the first n ranks have each sum up to `most`; exact below 2**53."""
    counts, previous = np.zeros(most + 1), np.zeros(most + 1)
    counts[0] = 1.0
    reached = 0
    for place in range(n):
        rank = ranks[place]
        for s in range(reached + 1):
            previous[s] = counts[s]
        reached = min(reached + rank, most)
        for s in range(rank, reached + 1):
            counts[s] += previous[s - rank]
    return counts


_SECONDS = 3e-9
"""Seconds per added score with arrays."""


@njit(cache=True, nogil=True)
def disjoint_sets(uniform: FloatArray, n: int) -> LongArray:
    """Draw two disjoint sets of places in each row, uniformly at random.

    The first steps of a shuffle by Fisher and Yates: as many as places are wanted.

    Parameters
    ----------
    uniform : (m, 2 size) random numbers in [0, 1), with 53 bits each
    n : number of places, at least 2 size

    Returns
    -------
    places : (2, m, size) from 0 to n - 1
    """
    m, size = uniform.shape[0], uniform.shape[1] // 2
    places = np.empty((2, m, size), np.int64)
    deck = np.empty(n, np.int64)
    for row in range(m):
        for i in range(n):
            deck[i] = i
        for i in range(2 * size):
            j = i + np.int64(
                uniform[row, i] * (n - i)
            )  # less than n: 53 bits never round up to it
            drawn = deck[j]
            deck[j] = deck[i]
            places[i // size, row, i % size] = drawn
    return places


def means_of_sets(X: FloatArray, places: LongArray) -> FloatArray:
    """Return the means of the columns of X over sets of its rows, unchecked.

    Parameters
    ----------
    X : (n, k) scores
    places : (m, size) rows of each set

    Returns
    -------
    means : (m, k)
    """
    means = np.zeros((len(places), X.shape[1]))
    add = at_once(_add_means, places.size * X.shape[1] * _SECONDS, _add_means_by_arrays)
    add(X, places, means, np.zeros(X.shape[1]))
    return means


def _add_means_by_arrays(
    X: FloatArray, places: LongArray, means: FloatArray, _: FloatArray
) -> None:
    size = places.shape[1]
    rest = size % 4
    for q in range(rest):
        means += X[places[:, q]]
    for q in range(rest, size, 4):
        a, b, c, d = (X[rows] for rows in places[:, q : q + 4].T)
        means += (a + b) + (c + d)
    means /= size


@njit(cache=True, nogil=True)
def _add_means(X: FloatArray, places: LongArray, means: FloatArray, total: FloatArray) -> None:
    """Write the means of :func:`means_of_sets` to `means`; they and `total` are zero.

    Four rows are added up before they join the sum, which is then read and written less often. No
    array is made, and no row taken out of one: that would take longer to compile than the rest.
    """
    (m, size), k = places.shape, X.shape[1]
    rest = size % 4
    for row in range(m):
        for q in range(rest):
            a = places[row, q]
            for j in range(k):
                total[j] += X[a, j]
        for q in range(rest, size, 4):
            a, b = places[row, q], places[row, q + 1]
            c, d = places[row, q + 2], places[row, q + 3]
            for j in range(k):
                total[j] += (X[a, j] + X[b, j]) + (X[c, j] + X[d, j])
        for j in range(k):
            means[row, j], total[j] = total[j] / size, 0.0


@njit(cache=True, nogil=True)
def shuffled_ranges(X: FloatArray, uniform: FloatArray) -> FloatArray:
    """Return the range of the means of systems after the scores of each topic are shuffled.

    Parameters
    ----------
    X : (n, k) scores
    uniform : (r, n, k - 1) random numbers in [0, 1), with 53 bits each

    Returns
    -------
    (r,) largest mean less smallest
    """
    r, (n, k) = uniform.shape[0], X.shape
    ranges = np.empty(r)
    deck, sums = np.empty(k), np.empty(k)
    for replicate in range(r):
        sums[:] = 0.0
        for topic in range(n):
            deck[:] = X[topic]
            for place in range(k - 1):
                other = place + np.int64(uniform[replicate, topic, place] * (k - place))
                drawn = deck[other]
                deck[other] = deck[place]
                sums[place] += drawn
            sums[k - 1] += deck[k - 1]
        ranges[replicate] = (sums.max() - sums.min()) / n
    return ranges
