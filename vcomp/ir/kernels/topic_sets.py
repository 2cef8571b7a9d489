"""Random sets of topics, their mean scores, and ranges of means of shuffled scores."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.numerics.kernels import at_once, njit

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
