"""Wilcoxon's signed ranks of the differences between two systems, for many pairs of systems."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.numerics.kernels import njit

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
