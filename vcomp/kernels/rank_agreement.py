"""How far two rankings of the same systems agree, for many pairs of rankings at once.

Systems whose means differ by `tolerance` or less are tied. All pairs of systems are compared: at
the sizes of evaluations (tens to a few hundreds of systems) that takes less time than sorting.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from vcomp._typing import FloatArray, LongArray

__all__ = ["above_in_both", "ordinal_ranks", "pair_agreement"]


@njit(cache=True, nogil=True)
def pair_agreement(
    means: FloatArray, truth: FloatArray, tolerances: FloatArray, truth_tolerances: FloatArray
) -> LongArray:
    """Count pairs of systems, in each row: agreeing less disagreeing; untied in each ranking.

    Parameters
    ----------
    means, truth : (m, k) two scores of each system
    tolerances, truth_tolerances : (m,) largest difference of tied systems

    Returns
    -------
    counts : (m, 3) concordant less discordant pairs; pairs untied in `means`, and in `truth`
    """
    m, k = means.shape
    counts = np.zeros((m, 3), np.int64)
    for row in range(m):
        x, y = means[row], truth[row]
        ex, ey = tolerances[row], truth_tolerances[row]
        score = untied_x = untied_y = np.int64(0)
        for i in range(k):
            xi, yi = x[i], y[i]
            for j in range(i):
                dx, dy = x[j] - xi, y[j] - yi
                sx = np.int64(dx > ex) - np.int64(dx < -ex)
                sy = np.int64(dy > ey) - np.int64(dy < -ey)
                score += sx * sy
                untied_x += sx * sx
                untied_y += sy * sy
        counts[row, 0], counts[row, 1], counts[row, 2] = score, untied_x, untied_y
    return counts


@njit(cache=True, nogil=True)
def above_in_both(
    means: FloatArray, truth: FloatArray, tolerances: FloatArray, truth_tolerances: FloatArray
) -> LongArray:
    """Count, for each system of each row, the systems above it in one ranking and in both.

    Parameters
    ----------
    means, truth : (m, k) two scores of each system
    tolerances, truth_tolerances : (m,) largest difference of tied systems

    Returns
    -------
    counts : (4, m, k) systems above it in `truth`; tied with it there, itself included; above it
        in both rankings; above it in `truth` and tied with it in `means`
    """
    m, k = means.shape
    counts = np.zeros((4, m, k), np.int64)
    for row in range(m):
        x, y = means[row], truth[row]
        ex, ey = tolerances[row], truth_tolerances[row]
        for i in range(k):
            xi, yi = x[i], y[i]
            above = tied = both = half = np.int64(0)
            for j in range(k):
                dx, dy = x[j] - xi, y[j] - yi
                better = np.int64(dy > ey)
                above += better
                tied += np.int64(abs(dy) <= ey)
                both += better * np.int64(dx > ex)
                half += better * np.int64(abs(dx) <= ex)
            counts[0, row, i], counts[1, row, i] = above, tied
            counts[2, row, i], counts[3, row, i] = both, half
    return counts


@njit(cache=True, nogil=True)
def ordinal_ranks(means: FloatArray, tolerances: FloatArray) -> FloatArray:
    """Rank the systems of each row, the best first; tied systems in the order in which they came.

    Parameters
    ----------
    means : (m, k) mean scores
    tolerances : (m,) largest difference of tied systems

    Returns
    -------
    ranks : (m, k) from 1 to k
    """
    m, k = means.shape
    ranks = np.empty((m, k))
    for row in range(m):
        x, tolerance = means[row], tolerances[row]
        for i in range(k):
            above = np.int64(1)
            for j in range(k):
                d = x[j] - x[i]
                above += np.int64(d > tolerance) + np.int64(j < i) * np.int64(abs(d) <= tolerance)
            ranks[row, i] = above
    return ranks
