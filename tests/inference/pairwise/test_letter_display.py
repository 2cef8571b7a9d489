"""Groups of levels that are not distinct: what letters promise, on any graph."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vcomp.inference.pairwise import groups_of, letters


@st.composite
def graphs(draw):
    k = draw(st.integers(1, 9))
    edges = draw(st.lists(st.booleans(), min_size=k * (k - 1) // 2, max_size=k * (k - 1) // 2))
    distinct = np.zeros((k, k), dtype=bool)
    distinct[np.triu_indices(k, 1)] = edges
    return distinct | distinct.T


@given(graphs())
def test_levels_share_a_group_if_and_only_if_they_are_not_distinct(distinct):
    k = len(distinct)
    groups = groups_of(distinct)
    together = np.zeros((k, k), dtype=bool)
    for members in groups:
        together[np.ix_(members, members)] = True
    np.testing.assert_array_equal(together, ~distinct)
    names = letters(groups, k)
    for a in range(k):
        for b in range(a):
            assert bool(set(names[a]) & set(names[b])) == (not distinct[a, b])


@given(graphs())
def test_no_group_can_grow(distinct):
    for members in groups_of(distinct):
        others = np.setdiff1d(np.arange(len(distinct)), members)
        assert all(distinct[other, members].any() for other in others)


def test_if_only_far_levels_are_distinct_groups_are_the_longest_runs():
    means = np.array([9.0, 8.0, 7.5, 5.0, 4.0, 1.0])
    distinct = np.abs(means[:, None] - means) > 3.0
    groups = [group.tolist() for group in groups_of(distinct)]
    assert groups == [[0, 1, 2], [1, 2, 3], [3, 4], [4, 5]]


def test_letters_go_on_after_z():
    groups = [np.array([level]) for level in range(30)]
    assert letters(groups, 30)[24:] == ["y", "z", "aa", "ab", "ac", "ad"]
