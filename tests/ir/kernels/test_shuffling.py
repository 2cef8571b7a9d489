"""Shuffled scores of topics: uniform, and the shuffles of Fisher and Yates."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from scipy import stats

from vcomp.ir.kernels import shuffled_ranges


def test_shuffles_are_uniform():
    """With weights 0, 1, 3 the range of one topic is that of the scores, whatever the order."""
    rng = np.random.default_rng(4)
    X = np.array([[0.0, 1.0, 3.0]])
    assert (shuffled_ranges(X, rng.random((50, 1, 2))) == 3.0).all()
    two = np.array([[0.0, 1.0, 3.0], [0.0, 10.0, 30.0]])
    ranges = shuffled_ranges(two, rng.random((6000, 2, 2)))
    values, counts = np.unique(ranges.round(9), return_counts=True)
    expected = {}
    for a in permutations(two[0]):
        for b in permutations(two[1]):
            size = round(np.ptp(np.add(a, b)) / 2, 9)
            expected[size] = expected.get(size, 0) + 1 / 36
    assert values.tolist() == sorted(expected)
    assert stats.chisquare(counts, [6000 * expected[v] for v in values]).pvalue > 1e-4


def test_shuffles_of_fisher_and_yates():
    """From the first place on, each is swapped with one drawn from it and those behind it."""
    rng = np.random.default_rng(6)
    X, uniform = rng.normal(size=(3, 5)), rng.random((20, 3, 4))
    expected = []
    for draws in uniform:
        sums = np.zeros(5)
        for scores, own in zip(X, draws, strict=True):
            left = list(scores)
            for place, u in enumerate(own):
                at = int(u * len(left))
                left[0], left[at] = left[at], left[0]
                sums[place] += left.pop(0)
            sums[4] += left[0]
        expected.append(np.ptp(sums) / 3)
    np.testing.assert_allclose(shuffled_ranges(X, uniform), expected, rtol=1e-13)
