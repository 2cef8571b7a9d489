"""Which terms leave a doubt, and where a maximisation starts again."""

from __future__ import annotations

import numpy as np
import pytest

from vcomp.estimators.likelihood import OtherStarts

FREE = np.zeros(3, dtype=bool)


def test_a_term_of_which_the_data_say_nothing_leaves_a_doubt():
    """Rounding may make its average information negative."""
    v, some = np.array([2.0, 1.0, 3.0]), np.diag([100.0, 100.0, 10.0])
    starts = OtherStarts(FREE, np.array([5.0, 5.0, 40.0]))
    assert starts.doubtful(v, some, lambda: some).tolist() == [False, False, False]
    for least in (-1e-17, 0.0):
        average = np.diag([100.0, least, 10.0])
        found = starts.doubtful(v, average, lambda average=average: average)
        assert found.tolist() == [False, True, False]


@pytest.mark.parametrize("rows", [40.0, 60.0])
def test_shares_add_up_to_the_total(rows):
    """Of all starts, in small tables and in others; a held component has none."""
    for held in (FREE, np.array([False, True, False])):
        for top in (0.5, 0.9):
            v = np.array([top, 0.0, 1.0 - top])
            starts = OtherStarts(held, np.array([5.0, 4.0, rows]))
            shares = starts.elsewhere(v, starts.free)
            assert len(shares) > 1
            assert (shares >= 0.0).all()
            assert (shares[:, held] == 0.0).all()
            np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-14)


def test_a_term_with_most_of_the_total_keeps_it_at_some_starts():
    """Beside it the other terms are exchanged: they would not be from equal shares."""
    v = np.array([0.97, 0.02, 0.0, 0.01])
    starts = OtherStarts(np.zeros(4, dtype=bool), np.array([2.0, 5.0, 6.0, 12.0]))
    beside = [row for row in starts.elsewhere(v, starts.free) if row[0] == 0.97]
    assert {tuple(row[1:3] > 0.0) for row in beside} == {
        (True, True),
        (True, False),
        (False, True),
    }


def test_crowded_tables_have_about_as_many_effects_as_rows():
    for rows, crowded in ((8.0, True), (9.0, True), (10.0, False)):
        for n_fixed in (0, 1):  # the effects have a mean, if the fixed part has none
            starts = OtherStarts(FREE, np.array([5.0, 4.0, rows]), n_fixed=n_fixed)
            assert starts.is_crowded is crowded
            least = starts.elsewhere(np.ones(3), starts.free)[:, -1].min()
            assert bool(least < 1e-6) is crowded
