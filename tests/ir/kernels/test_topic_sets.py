"""Sets of topics, means over them and shuffles, against permutations and numpy."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vcomp.ir.kernels.pair_differences import (
    _add_means,
    _add_means_by_arrays,
    disjoint_sets,
    means_of_sets,
    shuffled_ranges,
)


def test_every_choice_of_steps_is_another_arrangement():
    """All arrangements of 4 of 5 places come from as many ways to draw, each of them once."""
    steps = itertools.product(range(5), range(4), range(3), range(2))
    uniform = np.array([[(j + 0.5) / (5 - i) for i, j in enumerate(row)] for row in steps])
    one, other = disjoint_sets(uniform, 5)
    rows = [tuple(row) for row in np.hstack([one, other]).tolist()]
    assert sorted(rows) == sorted(itertools.permutations(range(5), 4))


@settings(deadline=None)
@given(st.integers(1, 700), st.data())
def test_the_largest_random_number_draws_the_last_place(n, data):
    size = data.draw(st.integers(1, n)) // 2
    last = np.full((1, 2 * size), np.nextafter(1.0, 0.0))
    drawn = np.hstack(disjoint_sets(last, n))[0]
    assert drawn[:1].tolist() == [n - 1][: 2 * size]
    assert len(set(drawn.tolist())) == 2 * size
    first = np.hstack(disjoint_sets(0.0 * last, n))[0]
    assert first.tolist() == list(range(2 * size))


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 13), st.integers(1, 9))
def test_means_of_sets(seed, size, k):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(13, k)) + 100.0
    places = np.array([rng.permutation(13)[:size] for _ in range(4)])
    got = means_of_sets(X, places)
    np.testing.assert_allclose(got, X[places].mean(axis=1), rtol=1e-14)
    for add in (_add_means, _add_means_by_arrays):  # the same bits, compiled or not
        means = np.zeros((4, k))
        add(X, places, means, np.zeros(k))
        np.testing.assert_array_equal(means, got)


def test_shuffles_are_uniform():
    """With weights 0, 1, 3 the range of one topic is that of the scores, whatever the order."""
    rng = np.random.default_rng(4)
    X = np.array([[0.0, 1.0, 3.0]])
    assert (shuffled_ranges(X, rng.random((50, 1, 2))) == 3.0).all()
    two = np.array([[0.0, 1.0, 3.0], [0.0, 10.0, 30.0]])
    ranges = shuffled_ranges(two, rng.random((3000, 2, 2)))
    values, counts = np.unique(ranges.round(9), return_counts=True)
    expected = {}
    for a in itertools.permutations(two[0]):
        for b in itertools.permutations(two[1]):
            size = round(np.ptp(np.add(a, b)) / 2, 9)
            expected[size] = expected.get(size, 0) + 1 / 36
    assert values.tolist() == sorted(expected)
    assert stats.chisquare(counts, [3000 * expected[v] for v in values]).pvalue > 1e-4


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
