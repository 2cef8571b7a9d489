"""Shuffled scores of a topic: the range of the means of systems that are all alike."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray
from vcomp.numerics.kernels import njit


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
    found = np.empty(r)
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
        found[replicate] = (sums.max() - sums.min()) / n
    return found
