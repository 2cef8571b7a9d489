"""Random sets of topics, and the mean scores over them."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.numerics.kernels import njit


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


@njit(cache=True, nogil=True)
def means_of_sets(X: FloatArray, places: LongArray) -> FloatArray:
    """Return the means of the columns of X over sets of its rows, unchecked.

    Four rows are added up before they join the sum, which is then read and written less often.

    Parameters
    ----------
    X : (n, k) scores
    places : (m, size) rows of each set

    Returns
    -------
    means : (m, k)
    """
    (m, size), k = places.shape, X.shape[1]
    means = np.empty((m, k))
    total = np.empty(k)
    for row in range(m):
        total[:] = 0.0
        rest = size % 4
        for q in range(rest):
            a = X[places[row, q]]
            for j in range(k):
                total[j] += a[j]
        for q in range(rest, size, 4):
            a, b = X[places[row, q]], X[places[row, q + 1]]
            c, d = X[places[row, q + 2]], X[places[row, q + 3]]
            for j in range(k):
                total[j] += (a[j] + b[j]) + (c[j] + d[j])
        for j in range(k):
            means[row, j] = total[j] / size
    return means
