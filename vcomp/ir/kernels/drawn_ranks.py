"""Agreement of drawn rankings, and Student's distribution function.

Systems of each draw come sorted by their true means, the best first. Two of them are equal if
they are no further apart than a threshold.
"""

from __future__ import annotations

import math

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.numerics import slices
from vcomp.numerics.kernels import njit

_BLOCK = 2048
"""Points evaluated at once, few enough for the cache."""

_FEW_PAIRS = 2**24
"""Largest draws · k² that NumPy counts, in less time than the loop takes to compile."""

_MANY_SYSTEMS = 700
"""Smallest number of systems that sorting ranks faster than pairwise comparison."""


def drawn_agreement(means: FloatArray, truth: FloatArray, threshold: float) -> FloatArray:
    """Count agreements of pairs of systems in two rankings, in each draw.

    Parameters
    ----------
    means : (m, k) mean scores in the test, of systems in the order of their true means
    truth : (m, k) true means, in descending order
    threshold : largest difference of equal systems

    Returns
    -------
    sums : (m, 4) concordant less discordant pairs; the same, each pair divided by the number of
        systems truly ahead of its second; pairs that are not equal in truth, and in the test
    """
    m, k = means.shape
    if m * k * k > _FEW_PAIRS:
        count = _drawn_agreement if k < _MANY_SYSTEMS else _counted_agreement
        return count(means, truth, threshold)
    sums = np.zeros((4, m))
    x, y = np.ascontiguousarray(means.T), np.ascontiguousarray(truth.T)
    for i in range(1, k):
        ahead = (x[:i] > x[i] + threshold).astype(np.int8)
        behind = (x[:i] < x[i] - threshold).astype(np.int8)
        untied = (y[:i] > y[i] + threshold).astype(np.int8)
        score = (untied * (ahead - behind)).sum(axis=0)
        sums += score, score / i, untied.sum(axis=0), (ahead + behind).sum(axis=0)
    return np.ascontiguousarray(sums.T)


@njit(cache=True, nogil=True)
def _drawn_agreement(means: FloatArray, truth: FloatArray, threshold: float) -> FloatArray:
    m, k = means.shape
    sums = np.zeros((m, 4))
    for row in range(m):
        x, y = means[row], truth[row]
        for i in range(1, k):
            xi, yi = x[i] + threshold, y[i] + threshold
            x_below = x[i] - threshold
            score = untied_x = untied_y = np.int64(0)
            for j in range(i):
                ahead, behind = np.int64(x[j] > xi), np.int64(x[j] < x_below)
                untied = np.int64(y[j] > yi)
                score += untied * (ahead - behind)
                untied_x += ahead + behind
                untied_y += untied
            sums[row, 0] += score
            sums[row, 1] += score / i
            sums[row, 2] += untied_y
            sums[row, 3] += untied_x
    return sums


@njit(cache=True, nogil=True)
def _counted_agreement(means: FloatArray, truth: FloatArray, threshold: float) -> FloatArray:
    """Count agreements by sorting, in k log k steps per draw.

    The systems that are truly ahead of one are the first ones, and a binary indexed tree over the
    order of means in the test says how many of them are ahead of it there.
    """
    m, k = means.shape
    sums = np.zeros((m, 4))
    rank, below, not_above = np.empty(k, np.int64), np.empty(k, np.int64), np.empty(k, np.int64)
    for row in range(m):
        x, y = means[row], truth[row]
        order = np.argsort(x)
        first = last = 0
        for s in range(k):
            i = order[s]
            rank[i] = s
            while last < k and not x[order[last]] > x[i] + threshold:
                last += 1
            while x[order[first]] < x[i] - threshold:
                first += 1
            below[i], not_above[i] = first, last
        before, ahead = np.zeros(k + 1, np.int64), np.zeros(k + 1, np.int64)
        n_ahead = 0
        for i in range(1, k):
            _count(before, rank[i - 1])
            yi = y[i] + threshold
            while n_ahead < i and y[n_ahead] > yi:
                _count(ahead, rank[n_ahead])
                n_ahead += 1
            score = n_ahead - _counted(ahead, not_above[i]) - _counted(ahead, below[i])
            sums[row, 0] += score
            sums[row, 1] += score / i
            sums[row, 2] += n_ahead
            sums[row, 3] += i - _counted(before, not_above[i]) + _counted(before, below[i])
    return sums


@njit(cache=True, nogil=True)
def _count(tree: LongArray, place: int) -> None:
    """Add one at a place in a binary indexed tree."""
    i = place + 1
    while i < tree.size:
        tree[i] += 1
        i += i & -i


@njit(cache=True, nogil=True)
def _counted(tree: LongArray, end: int) -> np.int64:
    """Return the total count of a binary indexed tree at the places before `end`."""
    total, i = np.int64(0), end
    while i > 0:
        total += tree[i]
        i -= i & -i
    return total


@njit(cache=True, nogil=True)
def drawn_expectation(
    truth: FloatArray,
    order: LongArray,
    precision: FloatArray,
    scales: FloatArray,
    threshold: float,
) -> FloatArray:
    """Return the expected counts of a new test, in each draw: see :func:`drawn_agreement`.

    Parameters
    ----------
    truth : (m, k) true means, in descending order
    order : (m, k) which systems these are
    precision : (k, k) 1 / (√2 s), s the standard deviation over topics of the difference between
        two systems; infinite where it does not vary
    scales : (m,) what `precision` is multiplied by, √n' for a test of n' topics
    threshold : largest difference of equal systems

    Returns
    -------
    sums : (m, 4)
    """
    m, k = truth.shape
    sums = np.zeros((m, 4))
    for row in range(m):
        for i in range(1, k):
            score = untied_x = untied_y = 0.0
            for j in range(i):
                d = truth[row, j] - truth[row, i]
                p = precision[order[row, i], order[row, j]] * scales[row]
                if threshold == 0.0:
                    score += math.erf(d * p) if d > 0.0 else 0.0
                    untied_x += 1.0
                    untied_y += 1.0
                else:
                    ahead, behind = _tails(d, p, threshold)
                    apart = 1.0 if d > threshold else 0.0
                    score += apart * (ahead - behind)
                    untied_x += ahead + behind
                    untied_y += apart
            sums[row, 0] += score
            sums[row, 1] += score / i
            sums[row, 2] += untied_y
            sums[row, 3] += untied_x
    return sums


@njit(cache=True, nogil=True)
def _tails(d: float, p: float, threshold: float) -> tuple[float, float]:
    """Return the probabilities of a difference above the threshold, and below its negative."""
    if p == math.inf:
        return (1.0 if d > threshold else 0.0), 0.0
    return 0.5 * math.erfc((threshold - d) * p), 0.5 * math.erfc((threshold + d) * p)


def student_cdf(x: FloatArray, df: int) -> FloatArray:
    """Return Student's distribution function, to 1e-15 of its largest value.

    The sums of Abramowitz and Stegun (1964), 26.7.3 and 26.7.4, whose df/2 terms are nested.

    Parameters
    ----------
    x : (m,) points, infinite ones too
    df : degrees of freedom, a whole number of at least 1
    """
    out, odd = np.empty(x.size), df % 2
    for some in slices(x.size, _BLOCK):
        t = np.clip(x[some], -1e150, 1e150)
        cosine2, nested = df / (df + t * t), np.ones(t.size)
        for j in range((df - 2 - odd) // 2, 0, -1):
            share = 2.0 * j / (2.0 * j + 1.0) if odd else (2.0 * j - 1.0) / (2.0 * j)
            nested *= cosine2
            nested *= share
            nested += 1.0
        sine = t / np.sqrt(df + t * t)
        if odd:
            inner = sine * np.sqrt(cosine2) * nested if df > 1 else 0.0
            within = (np.arctan(t / np.sqrt(df)) + inner) * 2.0 / np.pi
        else:
            within = sine * nested
        out[some] = 0.5 + 0.5 * within
    return out
