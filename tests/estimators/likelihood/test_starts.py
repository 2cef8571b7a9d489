"""Which terms leave a doubt, and where a maximisation starts again."""

from __future__ import annotations

from itertools import combinations, product

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


def sets_of(free, size, residuals):
    """Return the shares of all sets of terms, large sets first, beside residuals of any share."""
    every = [c for n in range(len(free), 0, -1) for c in combinations(free, n)]
    shares = []
    for chosen, residual in product(every, residuals):
        row = [0.0] * size
        for term in chosen:
            row[term] = (1.0 - residual) / len(chosen)
        row[-1] = residual
        shares.append(row)
    return shares


def alike(found, expected):
    """Compare rows, which sets of equal size may have in any order."""
    expected = np.array(expected)
    assert found.shape == expected.shape
    order = [np.lexsort(np.round(rows, 12).T) for rows in (found, expected)]
    np.testing.assert_allclose(found[order[0]], expected[order[1]], rtol=1e-14, atol=1e-16)
    sizes = [np.count_nonzero(rows[:, :-1], axis=1) for rows in (found, expected)]
    np.testing.assert_array_equal(*sizes)


@pytest.mark.parametrize("held", [(), (1,), (0, 2)])
@pytest.mark.parametrize("crowded", [True, False])
@pytest.mark.parametrize(
    "v", [[1.0, 1.0, 1.0, 1.0], [0.05, 0.05, 0.0, 0.9], [0.9, 0.03, 0.0, 0.07], [0.8, 0.1, 0, 0.1]]
)
def test_starts_of_small_tables_are_all_sets_of_terms(held, crowded, v):
    """Also next to no residual if effects may fit the rows, and as the first climb found it."""
    v = np.array(v)
    mask = np.isin(np.arange(4), held)
    free = [t for t in range(3) if t not in held]
    effects = 4 * len(free)
    rows = effects + 2 if crowded else effects + 3  # of 5 levels each, less one, and a mean
    starts = OtherStarts(mask, np.array([5.0, 5.0, 5.0, rows]))
    assert starts.is_crowded is crowded
    shares = [0.5, 0.01, 1e-7] if crowded else [0.5, 0.01]
    if v[-1] > 0.8 * v.sum():
        shares = [v[-1] / v.sum(), *shares]
    expected = [*sets_of(free, 4, shares), [0.0, 0.0, 0.0, 1.0]]
    top = max((t for t in range(3)), key=lambda t: v[t] if t in free else 0.0)
    share = v[top] / v.sum()
    if 0.8 < share < 1.0:
        beside = sets_of([t for t in free if t != top], 4, [0.5, 0.1])
        for row in beside:
            own = [(1.0 - share) * x for x in row]
            own[top] = share
            expected.append(own)
    alike(starts.elsewhere(v, starts.free), expected)


@pytest.mark.parametrize(("terms", "rows"), [(3, 51.0), (4, 30.0)])
def test_starts_of_other_tables_are_doubtful_terms_above_the_others(terms, rows):
    held = np.zeros(terms + 1, dtype=bool)
    held[1] = terms == 4
    sizes = np.append(np.full(terms, 5.0), rows)
    starts = OtherStarts(held if rows > 50 else np.zeros(terms + 1, dtype=bool), sizes)
    doubtful = np.arange(terms + 1) == 2
    found = starts.elsewhere(np.ones(terms + 1), doubtful)
    equal = np.full(terms + 1, 1.0 / (terms + 1))
    above = np.full(terms + 1, 0.1)
    above[2] += terms
    np.testing.assert_allclose(found, [equal, above / above.sum()], rtol=1e-14)


@pytest.mark.parametrize("n_free", [3, 4])
def test_up_to_three_terms_and_fifty_rows_are_a_small_table(n_free):
    held = np.arange(6) >= n_free
    held[-1] = False
    starts = OtherStarts(held, np.append(np.full(5, 20.0), 50.0))
    n_starts = len(starts.elsewhere(np.ones(6), starts.free))
    assert n_starts == (7 * 3 + 1 if n_free == 3 else 1 + 4)
    larger = OtherStarts(held, np.append(np.full(5, 20.0), 51.0))
    assert len(larger.elsewhere(np.ones(6), starts.free)) == 1 + n_free


def doubtful(v, sizes, average, observed=None, held=(False, False, False)):
    starts = OtherStarts(np.array(held), np.array(sizes))
    inner = None if observed is None else lambda: observed
    return starts.doubtful(np.array(v), np.diag(average), inner).tolist()


def test_a_component_at_zero_leaves_a_doubt_if_its_levels_are_few():
    far = [1e3, 1e3, 1e3]
    for levels, expected in ((99.0, True), (100.0, False)):
        for observed in (None, np.diag(far)):
            found = doubtful([0.0, 1.0, 1.0], [levels, 500.0, 900.0], far, observed)
            assert found == [expected, False, False]
    assert (
        doubtful([0.0, 1.0, 1.0], [9.0, 9.0, 90.0], far, held=(True, False, False)) == [False] * 3
    )
    # The residual is no term.
    assert doubtful([1.0, 1.0, 0.0], [9.0, 9.0, 9.0], far) == [False] * 3


def test_few_degrees_of_freedom_leave_a_doubt():
    """2 σ⁴ I is below 12, the data are not as if balanced, and no term has all of the variance."""
    v, sizes = [1.0, 1.0, 1.0], [9.0, 9.0, 90.0]
    for information, expected in ((5.99, True), (6.01, False)):
        average = [information, 50.0, 50.0]
        unlike = np.diag([2.0 * information, 50.0, 50.0])
        assert doubtful(v, sizes, average, unlike) == [expected, False, False]
        assert doubtful(v, sizes, average) == [False] * 3  # not known to be unlike
    average = [5.0, 50.0, 50.0]
    for change, expected in ((0.019, False), (0.021, True)):
        observed = np.diag(average)
        observed[0, 1] = observed[1, 0] = change * np.sqrt(5.0 * 50.0)
        assert doubtful(v, sizes, average, observed) == [expected, False, False]
    same = np.diag(average)
    for rows, expected in ((20.0, True), (21.0, False)):
        assert doubtful(v, [9.0, 9.0, rows], average, same) == [expected, False, False]
    for top, expected in ((0.951, True), (0.949, False)):
        shares = [0.5 * (1.0 - top), top, 0.5 * (1.0 - top)]
        average = [1e5, 5.0, 1e5]
        assert doubtful(shares, sizes, average, np.diag(average)) == [False, expected, False]


def test_held_terms_and_the_residual_leave_no_doubt():
    """Whatever few degrees of freedom they have, and however unlike their informations are."""
    v, sizes = [1.0, 1.0, 1.0, 1.0], [9.0, 9.0, 9.0, 90.0]
    average = [5.0, 50.0, 5.0, 5.0]
    held = (True, False, False, False)
    unlike = np.diag([5.0, 50.0, 6.0, 5.0])
    assert doubtful(v, sizes, average, unlike, held) == [False, False, True, False]
    # Those of a held term and of one at zero are not compared; both tables are as if balanced.
    alike = np.diag([9.0, 50.0, 5.0, 5.0])
    assert doubtful(v, sizes, average, alike, held) == [False] * 4
    free = (False,) * 4
    assert doubtful(v, sizes, average, alike, free) == [True, False, True, False]
    at_zero = doubtful([0.0, 1.0, 1.0, 1.0], [500.0, 9.0, 9.0, 90.0], average, alike, free)
    assert at_zero == [False] * 4


@pytest.mark.parametrize(
    ("held", "rows", "along"),
    [
        ((), 51.0, True),
        ((), 50.0, False),  # a small table
        ((0,), 50.0, False),
        ((0, 1), 50.0, True),  # one term is left
    ],
)
def test_maxima_are_sought_along_single_components(held, rows, along):
    is_held = np.isin(np.arange(4), held)
    starts = OtherStarts(is_held, np.array([5.0, 4.0, 7.0, rows]))
    assert starts.are_along_components is along


def test_terms_with_few_levels_have_fewer_than_100():
    starts = OtherStarts(np.arange(4) == 2, np.array([99.0, 100.0, 7.0, 400.0]))
    assert starts.with_few_levels.tolist() == [True, False, False, False]


def test_starts_have_a_residual():
    """Also beside a term that has all of the total but for less than its rounding."""
    starts = OtherStarts(FREE, np.array([5.0, 4.0, 40.0]))
    for v in ([1.0, 0.0, 1e-17], [1.0, 0.0, 1e-15]):
        assert v[0] / sum(v) == 1.0 or v[2] == 1e-15
        shares = starts.elsewhere(np.array(v), starts.free)
        assert (shares[:, -1] > 0.0).all()
