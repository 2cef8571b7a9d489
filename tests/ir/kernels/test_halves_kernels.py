"""Sets of topics and means over them, against permutations and numpy."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from vcomp.ir.kernels.topic_sets import (
    _add_means,
    _add_means_by_arrays,
    disjoint_sets,
    means_of_sets,
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
