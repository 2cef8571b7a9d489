"""Cells of parts add up to the cells of all rows; numbers, means and squares as of all at once."""

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from vcomp.design import Chunk
from vcomp.statistics.batches.cell_sums import cells_with_scores, table_bytes
from vcomp.statistics.batches.cell_table import (
    CellTable,
    EveryCell,
    add_tables,
    sum_cells,
    united,
)
from vcomp.statistics.batches.summed import _response_sums
from vcomp.statistics.batches.survey import add_up


def at_once(places, values, size):
    """Return numbers, means and squares of cells by looking at each of them."""
    counts = np.bincount(places, minlength=size)
    means = np.zeros((len(values), size))
    within = np.zeros((len(values), len(values)))
    for cell in np.flatnonzero(counts):
        there = values[:, places == cell]
        means[:, cell] = there.mean(axis=1)
        away = there - there.mean(axis=1, keepdims=True)
        within += away @ away.T
    return counts, means, within


def same(table: CellTable, places, values, size):
    counts, means, within = at_once(places, values, size)
    found, filled = table.filled()
    np.testing.assert_array_equal(found, np.flatnonzero(counts))
    np.testing.assert_array_equal(filled.counts, counts[found])
    np.testing.assert_allclose(filled.means, means[:, found], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(filled.within, within, rtol=1e-12, atol=1e-11)
    assert table.n == places.size


@settings(max_examples=examples(30), deadline=None)
@given(
    st.integers(1, 200), st.integers(1, 30), st.integers(1, 3), st.integers(1, 5),
    st.sampled_from(["sparse", "every", "mixed"]), st.integers(0, 1000),
)  # fmt: skip
def test_parts_add_up(n, size, columns, parts, kind, seed):
    rng = np.random.default_rng(seed)
    places = rng.integers(0, size, n)
    values = rng.normal(size=(columns, n)) + 5.0 * rng.normal(size=(columns, size))[:, places]
    made = []
    for k, part in enumerate(np.array_split(np.arange(n), parts)):
        if kind == "sparse" or (kind == "mixed" and k % 2):
            made.append(sum_cells(places[part], values[:, part]))
        else:
            every = EveryCell(size, columns)
            every.add(places[part], values[:, part])
            made.append(every.made())
    whole = made[0]
    for table in made[1:]:
        whole = whole + table
    same(whole, places, values, size)


@settings(max_examples=examples(30), deadline=None)
@given(
    st.integers(1, 200), st.integers(1, 30), st.integers(1, 3), st.integers(1, 5),
    st.sampled_from(["sparse", "every", "mixed"]), st.integers(1, 4), st.integers(0, 1000),
)  # fmt: skip
def test_weighted_scores_have_the_moments_of_each_cell(n, size, columns, parts, kind, few, seed):
    """Sums of up to fourth powers about any point, whatever was added to what."""
    rng = np.random.default_rng(seed)
    places = rng.integers(0, size, n)
    values = rng.normal(size=(columns, n))
    values[0] = np.where(rng.random() < 0.5, values[0], rng.integers(0, few, n)) + 3.0 * places
    made = []
    for k, part in enumerate(np.array_split(np.arange(n), parts)):
        if kind == "sparse" or (kind == "mixed" and k % 2):
            made.append(sum_cells(places[part], values[:, part], powers=True))
        else:
            every = EveryCell(size, columns, powers=True)
            every.add(places[part], values[:, part])
            made.append(every.made())
    at, table = sum(made[1:], made[0]).filled()
    cells, away, weights = table.as_scores()
    scores = table.means[0][cells] + away
    assert (weights > 0).all()
    assert np.bincount(cells).max() <= 3
    for power in range(5):
        for about in (0.0, table.means[0]):
            away = about if power else 0.0
            mine = np.bincount(
                cells, weights * (scores - np.broadcast_to(away, at.shape)[cells]) ** power
            )
            centre = np.broadcast_to(away, at.shape)[np.searchsorted(at, places)]
            expected = np.bincount(np.searchsorted(at, places), (values[0] - centre) ** power)
            np.testing.assert_allclose(mine, expected, rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_rare_value_keeps_its_digits_among_weighted_scores(sign):
    """Of a million scores one is 1, the others are 0."""
    n, p = 10**6, Fraction(1, 10**6)
    second = n * p * (1 - p)
    third, fourth = second * (1 - 2 * p), second * ((1 - p) ** 3 + p**3)
    powers = [[float(second)], [sign * float(third)], [float(fourth)]]
    table = CellTable(
        np.zeros(1, np.int64), np.array([n]), np.array([[sign * float(p)]]), np.eye(1),
        np.array(powers),
    )  # fmt: skip
    cells, away, weights = table.as_scores()
    scores = table.means[0][cells] + away
    rare = np.argmax(sign * scores)
    assert scores[rare] == pytest.approx(sign, rel=1e-14)
    assert weights[rare] == pytest.approx(1.0, rel=1e-9)


@settings(max_examples=examples(30), deadline=None)
@given(
    st.integers(1, 300), st.integers(1, 9), st.integers(1, 2), st.booleans(),
    st.sampled_from([1, 10, 10**6]), st.integers(0, 1000),
)  # fmt: skip
def test_many_tables_are_added_in_place(n, parts, columns, powers, spread, seed):
    """Those that are added stay as they are."""
    rng = np.random.default_rng(seed)
    places = rng.integers(0, 30, n)
    values = rng.normal(size=(columns, n))
    at = np.array_split(np.arange(n), parts)
    tables = [sum_cells(spread * places[k], values[:, k], powers=powers) for k in at]
    before = [(t.places.copy(), t.counts.copy(), t.means.copy()) for t in tables]
    whole = add_tables(iter(tables))
    for table, (where, counts, means) in zip(tables, before, strict=True):
        np.testing.assert_array_equal(table.places, where)
        np.testing.assert_array_equal(table.counts, counts)
        np.testing.assert_array_equal(table.means, means)
    same(replace(whole, places=whole.places // spread), places, values, 30)
    if powers:
        cells, away, weights = whole.as_scores()
        cubes = np.bincount(cells, weights * (whole.means[0, cells] + away) ** 3)
        expected = np.bincount(np.searchsorted(whole.places, spread * places), values[0] ** 3)
        np.testing.assert_allclose(cubes, expected, rtol=1e-10, atol=1e-9)


def test_no_tables_have_no_sum():
    assert add_tables([]) is None


@pytest.mark.parametrize(("n_repeats", "stays"), [(0, True), (10, True), (11, False)])
def test_rows_stay_rows_while_hardly_any_two_are_in_a_cell(n_repeats, stays):
    """The repeats are in other parts than what they repeat; the hundredth of a thousand is 10."""
    n = 1000
    places = 10**6 * np.append(np.arange(n - n_repeats), 7 * np.arange(n_repeats))
    values = np.random.default_rng(1).normal(size=(1, n))
    parts = [
        sum_cells(places[k], values[:, k], repeats=True) for k in np.array_split(np.arange(n), 4)
    ]
    for whole in (add_tables(parts), sum_cells(places, values, repeats=True)):
        assert whole.n == n
        if stays:
            order = np.lexsort((np.arange(n), places))
            assert whole.places.tolist() == places[order].tolist()
            assert whole.means[0].tolist() == values[0, order].tolist()
            assert whole.counts.max() == 1
        else:
            same(replace(whole, places=whole.places // 10**6), places // 10**6, values, n)


def test_repeats_are_joined_to_cells_without():
    places, values = 10**6 * np.arange(200), np.random.default_rng(1).normal(size=(1, 200))
    rows, cells = sum_cells(places, values, repeats=True), sum_cells(places[:3], values[:, :3])
    for whole in (rows + cells, cells + rows):
        assert whole.counts.tolist() == [2, 2, 2, *[1] * 197]


class Joined:
    """A text whose sums show what was added to what."""

    def __init__(self, text):
        self.text = text

    def __add__(self, other):
        return Joined(f"({self.text}{other.text})")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [("a", "a"), ("abc", "((ab)c)"), ("abcdefg", "(((ab)(cd))((ef)g))"),
     ("abcdefgh", "(((ab)(cd))((ef)(gh)))")],
)  # fmt: skip
def test_parts_are_added_as_in_a_tree(parts, expected):
    """So that what many parts share is copied a few times."""
    assert add_up(map(Joined, parts)).text == expected


def test_moments_are_unknown_once_those_of_a_part_are():
    places, values = np.zeros(2, dtype=np.int64), np.array([[1.0, 2.0]])
    known, unknown = sum_cells(places, values, powers=True), sum_cells(places, values)
    assert known.as_scores() is not None
    for table in (unknown, known + unknown, unknown + known):
        assert table.as_scores() is None


@pytest.mark.parametrize("n", [255, 256, 257, 70_000])
def test_counts_of_any_size(n):
    places = np.zeros(n + 1, dtype=np.int64)
    places[-1] = 1
    values = np.random.default_rng(0).normal(size=(1, n + 1))
    every = EveryCell(2, 1)
    every.add(places[: n // 2], values[:, : n // 2])
    every.add(places[n // 2 :], values[:, n // 2 :])
    same(every.made(), places, values, 2)


def test_a_large_mean_costs_no_digits():
    """Squares about means of 1e8 are those about 0."""
    rng = np.random.default_rng(1)
    places, noise = rng.integers(0, 5, 4000), np.round(rng.normal(size=(1, 4000)), 6)
    away = sum_cells(places, noise + 1e8) + sum_cells(places, noise + 1e8)
    near = sum_cells(places, noise) + sum_cells(places, noise)
    # A mean of 1e8 is known to 1.5e-8, and 4000 deviations of size 1 are off by that.
    np.testing.assert_allclose(away.within, near.within, rtol=1e-10)


@given(
    places=st.lists(st.integers(0, 30), max_size=40),
    stretch=st.sampled_from([1, 9, 10**9]),
    first=st.sampled_from([0, 7, 2**40]),
)
def test_places_far_apart_and_close_together(places, stretch, first):
    """A table of all places between, and of those that occur alone."""
    at = np.array(places, dtype=np.int64) * stretch + first
    values = np.random.default_rng(len(places)).normal(size=(2, at.size))
    table = sum_cells(at, values)
    assert table.places.tolist() == sorted(set(at.tolist()))
    dense = at_once(np.array(places, dtype=np.int64), values, 31)
    there = np.flatnonzero(dense[0])
    assert table.counts.tolist() == dense[0][there].tolist()
    np.testing.assert_allclose(table.means, dense[1][:, there], rtol=0, atol=1e-14)
    np.testing.assert_allclose(table.within, dense[2], rtol=0, atol=1e-12)
    packed = table.packed()
    assert packed.counts.itemsize == 1
    assert packed.counts.tolist() == table.counts.tolist()


@pytest.mark.parametrize("columns", [1, 3])
def test_bytes_of_a_table_of_all_places(columns):
    made = EveryCell(1000, columns).made()
    assert table_bytes(1000, columns) == made.means.nbytes + made.counts.nbytes


@given(a=st.sets(st.integers(0, 2**62), max_size=20), b=st.sets(st.integers(0, 9), max_size=9))
def test_places_of_either(a, b):
    parts = [np.array(sorted(x), dtype=np.int64) for x in (a, b)]
    assert united(*parts).tolist() == sorted(a | b)


def test_squares_about_the_mean_are_those_between_and_within_cells():
    rng = np.random.default_rng(2)
    places, y = rng.integers(6, size=40), rng.normal(size=40)
    counts, means, within = at_once(places, y[None], 6)
    table = SimpleNamespace(counts=counts, means=means, within=within)
    coding = SimpleNamespace(
        survey=SimpleNamespace(n=40, squares=None), centre=SimpleNamespace(origin=5.0)
    )
    mean, squares = _response_sums(coding, table)
    assert mean == pytest.approx(5.0 + y.mean(), rel=1e-14)
    assert squares == pytest.approx(((y - y.mean()) ** 2).sum(), rel=1e-13)


@pytest.mark.parametrize("varies", [1, 2])
@pytest.mark.parametrize("share", [0.9e-8, 1.1e-8])
def test_weighted_scores_need_covariates_that_are_constant_in_cells(varies, share):
    """Up to the rounding of their origins: 1e-8 of their root mean square."""
    places = np.repeat(np.arange(5), 4)
    y = np.random.default_rng(1).normal(size=20)
    x, z = 3.0 + np.arange(5.0), np.array([2.0, 9.0, -4.0, 0.5, 1.0])
    values = np.array([y, x[places], z[places]])
    size = np.sqrt(np.square(values[varies]).sum())
    values[varies, :2] += np.array([1.0, -1.0]) * share * size / np.sqrt(2.0)
    table = sum_cells(places, values, powers=True)
    chunk = Chunk(
        response=table.means[0],
        origin=0.0,
        columns=np.column_stack([np.ones(5), x, z]),
        compact_codes=(np.arange(5, dtype=np.int32),),
        facet_sizes=(5,),
        terms=(),
        counts=table.counts.astype(float),
    )
    coding = SimpleNamespace(
        survey=SimpleNamespace(values=None), centre=SimpleNamespace(origin=0.0, beta_origin=0.0)
    )
    found = cells_with_scores(coding, table, lambda: chunk)
    if share > 1e-8:
        assert found is None
        return
    found = found.single_scores
    (cells,) = found.compact_codes
    np.testing.assert_array_equal(found.X, chunk.X[cells])
    np.testing.assert_allclose(np.bincount(cells, found.counts), 4.0, rtol=1e-13)
    moments = [np.bincount(cells, found.counts * found.response**p) for p in (1, 2, 3, 4)]
    expected = [np.bincount(places, y**p) for p in (1, 2, 3, 4)]
    np.testing.assert_allclose(moments, expected, rtol=1e-11, atol=1e-11)
    mean = replace(chunk, columns=np.broadcast_to(1.0, (5, 1)))
    ones = cells_with_scores(coding, table, lambda: mean).single_scores.X
    np.testing.assert_array_equal(ones, np.ones((cells.size, 1)))
