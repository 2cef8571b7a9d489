"""The order of systems and sets of places, against Python's own sorting and sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.helpers.examples import examples
from vcomp.ir.kernels.rank_agreement import add_bit, count_below, falling_order, words_for

# Words of bits wrap around on purpose, of which plain numpy warns where kernels are not compiled.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in scalar:RuntimeWarning")

finite = st.floats(allow_nan=False, allow_infinity=False)
rows = st.integers(1, 70).flatmap(lambda k: arrays(float, (3, k), elements=finite))


@settings(deadline=None, max_examples=examples(200))
@given(rows)
def test_values_fall_in_their_order(values):
    order = falling_order(values)
    assert (np.sort(order, axis=1) == np.arange(values.shape[1])).all()
    ranked = np.take_along_axis(values, order, axis=1)
    np.testing.assert_array_equal(ranked, -np.sort(-values, axis=1))


@pytest.mark.parametrize("k", [2, 3, 64, 65, 300])
@pytest.mark.parametrize("centre", [1.0, -1.0, 0.0, 5e-324])
def test_values_that_differ_in_the_last_bits(k, centre):
    rng = np.random.default_rng(k)
    steps = np.array([rng.permutation(k), rng.integers(0, 3, k)])
    values = centre + steps * max(abs(float(np.spacing(centre))), 5e-324)
    ranked = np.take_along_axis(values, falling_order(values), axis=1)
    np.testing.assert_array_equal(ranked, -np.sort(-values, axis=1))


def test_what_is_no_number_leaves_a_permutation():
    order = falling_order(np.array([[np.nan, 1.0, np.inf, -np.inf, np.nan, 0.0]]))
    assert sorted(order[0].tolist()) == [0, 1, 2, 3, 4, 5]


def test_words_hold_all_places_and_the_one_behind():
    for n in range(600):
        assert 64 * (words_for(n) - 1) <= n < 64 * words_for(n)


@settings(deadline=None)
@given(st.sets(st.integers(0, 199)), st.integers(0, 199))
def test_numbers_below_one(places, place):
    words = np.zeros(words_for(200), np.uint64)
    for p in places:
        add_bit(words, np.uint64(p))
    assert count_below(words, np.uint64(place)) == sum(p < place for p in places)
