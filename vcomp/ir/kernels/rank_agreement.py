"""Agreement of two rankings of the same systems, for many pairs of rankings at once.

Systems whose means differ by `tolerance` or less are tied. All pairs of systems are compared. Most
rankings have no ties: `swaps` processes them in order and serves several measures.

For the order, numpy sorts rows of whole numbers with the widest instructions that the processor
has. So numbers are written as whole ones of the same order, whose lowest bits are the number of
the column, and errors due to the replaced bits are corrected afterwards.

Systems of drawn rankings come sorted by their true means, the best first.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.numerics import slices
from vcomp.numerics.kernels import njit

WordArray: TypeAlias = NDArray[np.uint64]

_ALL_BUT_SIGN = np.int64(2**63 - 1)

_AT_ONCE = 2**15
"""Numbers sorted at once, few enough for the cache."""


def pair_agreement(
    means: FloatArray, truth: FloatArray, tolerances: FloatArray, truth_tolerances: FloatArray
) -> LongArray:
    """Count pairs of systems in each row: agreeing less disagreeing, and untied in each ranking.

    Parameters
    ----------
    means, truth : (m, k) two scores of each system
    tolerances, truth_tolerances : (m,) largest difference of tied systems

    Returns
    -------
    counts : (m, 3) concordant less discordant pairs; pairs untied in `means`, and in `truth`
    """
    above, _, both, below = _above(means, truth, tolerances, truth_tolerances)
    above_in_means = _above(truth, means, truth_tolerances, tolerances)[0]
    return np.stack([both - below, above_in_means, above], axis=2).sum(axis=1)


def above_in_both(
    means: FloatArray, truth: FloatArray, tolerances: FloatArray, truth_tolerances: FloatArray
) -> LongArray:
    """Count, for each system of each row, the systems above it in `truth` and in both rankings.

    Parameters
    ----------
    means, truth : (m, k) two scores of each system
    tolerances, truth_tolerances : (m,) largest difference of tied systems

    Returns
    -------
    counts : (2, m, k)
    """
    return np.asarray(_above(means, truth, tolerances, truth_tolerances)[::2])


def mean_share_above(
    means: FloatArray, truth: FloatArray, tolerances: FloatArray, truth_tolerances: FloatArray
) -> FloatArray:
    """Return Σ_{m≥2} C(m)/(m-1) over the ranks m of `truth`, its mean over all orders of ties.

    C(m) is the number of systems above the one at rank m that are above it in `means` too. One
    with p - 1 systems above it, in a group of t tied, is at each of the ranks m = p, …, p + t - 1
    in as many orders; a system tied in `means` counts ½, and so do the m - p of its own group.

    Parameters
    ----------
    means, truth : (m, k) two scores of each system
    tolerances, truth_tolerances : (m,) largest difference of tied systems

    Returns
    -------
    sums : (m,)
    """
    above, tied, both, below = _above(means, truth, tolerances, truth_tolerances)
    H = np.append(0.0, np.cumsum(1.0 / np.arange(1, means.shape[1])))  # 1/1 + … + 1/n
    least = np.maximum(above, 1)  # smallest m - 1 that counts
    reciprocals = H[above + tied - 1] - H[least - 1]
    from_above = 0.5 * (above + both - below) * reciprocals
    from_within = 0.5 * (above + tied - least - above * reciprocals)
    return np.asarray(((from_above + from_within) / tied).sum(axis=1))


@njit(cache=True, nogil=True)
def _above(
    means: FloatArray, truth: FloatArray, tolerances: FloatArray, truth_tolerances: FloatArray
) -> LongArray:
    """Count systems above each in `truth`, tied with it there, and above and below in `means`.

    Those of the last two counts are above it in `truth`. Every system is tied with itself.

    Returns
    -------
    counts : (4, m, k)
    """
    m, k = means.shape
    counts = np.empty((4, m, k), np.int64)
    for row in range(m):
        x, y = means[row], truth[row]
        ex, ey = tolerances[row], truth_tolerances[row]
        for i in range(k):
            xi, yi = x[i], y[i]
            above = tied = both = below = np.int64(0)
            for j in range(k):
                dx, dy = x[j] - xi, y[j] - yi
                better = np.int64(dy > ey)
                above += better
                tied += np.int64(abs(dy) <= ey)
                both += better * np.int64(dx > ex)
                below += better * np.int64(dx < -ex)
            counts[0, row, i], counts[1, row, i] = above, tied
            counts[2, row, i], counts[3, row, i] = both, below
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


@njit(cache=True, nogil=True)
def swaps(
    means: FloatArray,
    truth: FloatArray,
    tolerances: FloatArray,
    truth_tolerances: FloatArray,
    order: LongArray,
    truth_order: LongArray,
) -> tuple[LongArray, FloatArray]:
    """Count the pairs in different order in `means` and `truth`, in each row without ties.

    S(i) are the systems above the one at rank i in one ranking and below it in the other.

    Parameters
    ----------
    means, truth : (m, k) two scores of each system
    tolerances, truth_tolerances : (m,) largest difference of tied systems
    order, truth_order : (m, k) systems in the order of falling means, and of falling true means

    Returns
    -------
    pairs : (m,) Σ S(i); -1 in a row with a tie, or with a number that is not finite
    shares : (2, m) Σ_{i≥2} S(i)/(i-1) by the ranks of `means`, and of `truth`; nan there
    """
    m, k = means.shape
    pairs, shares = np.full(m, -1, np.int64), np.full((2, m), np.nan)
    rank, seen = np.empty(k, np.uint64), np.empty(words_for(k), np.uint64)
    weights = np.ones(k)
    for p in range(2, k):
        weights[p] = 1.0 / p
    for row in range(m):
        if not (
            _is_untied(means[row], tolerances[row], order[row])
            and _is_untied(truth[row], truth_tolerances[row], truth_order[row])
        ):
            continue
        for p in range(k):
            rank[order[row, p]] = p
        for w in range(seen.size):
            seen[w] = 0
        count, share, share_of_truth = np.int64(0), 0.0, 0.0
        for p in range(k):
            r = rank[truth_order[row, p]]
            both = count_below(seen, r)
            count += p - both
            share += weights[r] * (np.int64(r) - both)
            share_of_truth += weights[p] * (p - both)
            add_bit(seen, r)
        pairs[row], shares[0, row], shares[1, row] = count, share, share_of_truth
    return pairs, shares


def swaps_by_arrays(
    means: FloatArray,
    truth: FloatArray,
    tolerances: FloatArray,
    truth_tolerances: FloatArray,
    order: LongArray,
    truth_order: LongArray,
) -> tuple[LongArray, FloatArray]:
    """NumPy version of :func:`swaps`: compare all ranks of some rows at once."""
    m, k = means.shape
    pairs, shares = np.full(m, -1, np.int64), np.full((2, m), np.nan)
    if k < 2:
        return pairs, shares
    place, weights = np.arange(k), 1.0 / np.maximum(np.arange(k), 1)
    untied = _are_untied(means, tolerances, order) & _are_untied(
        truth, truth_tolerances, truth_order
    )
    kept = np.flatnonzero(untied)
    for some in slices(kept.size, 1 + _AT_ONCE // k):
        at = kept[some]
        rank = np.empty((at.size, k), np.int64)
        np.put_along_axis(rank, order[at], place[None, :], axis=1)
        r = np.take_along_axis(rank, truth_order[at], axis=1)
        both = np.tril(r[:, None, :] < r[:, :, None]).sum(axis=2)
        pairs[at] = (place - both).sum(axis=1)
        # Added in sequence, as in the kernel.
        shares[0, at] = np.cumsum(weights[r] * (r - both), axis=1)[:, -1]
        shares[1, at] = np.cumsum(weights * (place - both), axis=1)[:, -1]
    return pairs, shares


def _are_untied(x: FloatArray, tolerances: FloatArray, order: LongArray) -> BoolArray:
    falling = np.take_along_axis(x, order, axis=1)
    apart = falling[:, :-1] - falling[:, 1:] > tolerances[:, None]
    return np.asarray(apart.all(axis=1), dtype=bool)


@njit(cache=True, nogil=True)
def _is_untied(x: FloatArray, tolerance: float, order: LongArray) -> bool:
    """Whether no neighbours in the order, and so no pairs, are tied; needs at least one pair."""
    untied = x.size > 1
    for p in range(1, x.size):
        untied &= x[order[p - 1]] - x[order[p]] > tolerance
    return untied


# Sets of small whole numbers as the bits of words -----------------------------------------------

# Unsigned throughout: signed indices are checked for negative values at every step.
_NONE, _ONE = np.uint64(0), np.uint64(1)
_SHIFT = np.uint64(6)
_WITHIN = np.uint64(63)
_EVERY_2ND = np.uint64(0x5555555555555555)
_PAIRS = np.uint64(0x3333333333333333)
_NIBBLES = np.uint64(0x0F0F0F0F0F0F0F0F)
_BYTES = np.uint64(0x0101010101010101)


@njit(cache=True, nogil=True)
def words_for(n: int) -> int:
    """Return the number of words that hold the numbers from 0 to n."""
    return n // 64 + 1


@njit(cache=True, nogil=True)
def add_bit(words: WordArray, place: np.uint64) -> None:
    """Add a number to the set."""
    words[place >> _SHIFT] |= _ONE << (place & _WITHIN)


@njit(cache=True, nogil=True)
def count_bits(word: np.uint64) -> np.int64:
    """Count the bits of a word that are set.

    In pairs, fours and eights side by side; the compiler knows this for the instruction that
    counts bits, where there is one.
    """
    word = word - ((word >> _ONE) & _EVERY_2ND)
    word = (word & _PAIRS) + ((word >> np.uint64(2)) & _PAIRS)
    word = (word + (word >> np.uint64(4))) & _NIBBLES
    return np.int64((word * _BYTES) >> np.uint64(56))


@njit(cache=True, nogil=True)
def count_below(words: WordArray, place: np.uint64) -> np.int64:
    """Count the numbers of the set below one."""
    last, part = place >> _SHIFT, (_ONE << (place & _WITHIN)) - _ONE
    count = np.int64(0)
    for w in range(words.size):  # no branch: which word is the last one cannot be predicted
        word = np.uint64(w)
        whole = _NONE - np.uint64(word < last)
        count += count_bits(words[word] & (whole | (part * np.uint64(word == last))))
    return count


# The order of systems ---------------------------------------------------------------------------


def falling_order(values: FloatArray) -> LongArray:
    """Return the columns of each row in descending order of values; ties in any order.

    Parameters
    ----------
    values : (m, k) finite numbers; in a row with others the order has no meaning

    Returns
    -------
    order : (m, k) permutations of 0, …, k - 1

    Examples
    --------
    >>> falling_order(np.array([[0.2, 0.5, 0.3]])).tolist()
    [[1, 2, 0]]
    """
    n_bits = max(values.shape[1] - 1, 0).bit_length()
    # Integers that ascend as values descend, with the column in the lowest bits.
    order: LongArray = np.empty(values.shape, np.int64)
    for rows in slices(len(values), 1 + _AT_ONCE // max(values.shape[1], 1)):
        keys = order[rows]
        np.negative(values[rows], out=keys.view(np.float64))
        keys ^= (keys >> 63) & _ALL_BUT_SIGN
        keys &= ~((1 << n_bits) - 1)
        keys |= np.arange(values.shape[1])
        keys.sort(axis=1)
        keys &= (1 << n_bits) - 1
        # Values that differ in the lowest bits only may be out of order.
        falling = np.take_along_axis(values[rows], keys, axis=1)
        late = np.flatnonzero((falling[:, 1:] > falling[:, :-1]).any(axis=1))
        again = np.argsort(-falling[late], axis=1, kind="stable")
        keys[late] = np.take_along_axis(keys[late], again, axis=1)
    return order


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
