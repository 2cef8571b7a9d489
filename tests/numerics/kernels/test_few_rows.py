"""NumPy on few rows and the kernels on many give the same bits."""

from itertools import product

import numpy as np
import pytest

from vcomp.ir.kernels import drawn_ranks
from vcomp.numerics.kernels import codes
from vcomp.statistics.kernels import cells

N, LEVELS = 3000, 40


def same(found, expected):
    found, expected = (v if isinstance(v, tuple) else (v,) for v in (found, expected))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_array_equal(one, other)


@pytest.fixture
def rows():
    rng = np.random.default_rng(3)
    return {
        "a": rng.integers(0, LEVELS - 3, N, dtype=np.int32),  # the last levels have no rows
        "b": rng.integers(2, LEVELS, N, dtype=np.int32),
        "values": rng.normal(size=(N, 3)) * np.exp(4.0 * rng.normal(size=(N, 1))),
    }


@pytest.mark.parametrize("size", [0, 1, N])
def test_counts_and_sums_of_levels(rows, size):
    a, b, values = rows["a"][:size], rows["b"][:size], rows["values"][:size]
    for name in ("count_levels", "fill_counts", "group_counts"):
        same(getattr(codes, name)(a, LEVELS), getattr(codes, f"_{name}")(a, LEVELS))
    same(codes.group_sums(a, values, LEVELS), codes._group_sums(a, values, LEVELS))
    for outer in (b, (a // 3).astype(np.int32)):
        found = codes.determined_levels(a, outer, LEVELS)
        same(found, codes._determined_levels(a, outer, LEVELS))
    places, kernel_places = np.full(size, 7), np.full(size, 7)
    codes.place_rows(places, a, LEVELS)
    codes._place_rows(kernel_places, a, LEVELS)
    same(places, kernel_places)
    numbers = np.arange(LEVELS, dtype=np.int32)[::-1].copy()
    found, kernel_found = a.copy(), a.copy()
    codes.renumber(found, numbers)
    codes._renumber(kernel_found, numbers)
    same(found, kernel_found)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_values_from_the_least_on(dtype):
    limits = np.iinfo(np.int8 if dtype == "int8" else np.uint8)
    values = np.array([limits.max, limits.min, limits.max, 3], dtype=dtype)
    low = np.int64(limits.min)
    same(codes.count_values(values, low, 256), codes._count_values(values, low, 256))


@pytest.mark.parametrize("size", [0, 1, N])
def test_pair_tables(rows, size):
    both = (rows["a"][:size], LEVELS), (rows["b"][:size] * np.int32(3), 3 * LEVELS)
    one = both[0], (np.zeros_like(rows["b"][:size]), 1)
    for weights, ((a, n_a), (b, n_b)) in product(
        (codes.ONCE, rows["values"][:size, 0] ** 2), (both, both[::-1], one, one[::-1])
    ):
        if size == 0 and weights is not codes.ONCE:
            continue
        table = codes.pair_counts(a, b, n_a, n_b, weights)
        same(table, codes._pair_counts(a, b, n_a, n_b, weights))
        same(codes.squared_counts(*table, n_b), codes._squared_counts(*table, n_b))


@pytest.mark.parametrize("size", [0, 1, 256, 257, N])
def test_sums_and_squares_in_cells(rows, size):
    places, y = rows["a"][:size], rows["values"][:size, 0].copy()
    same(cells.cell_sums(places, y, LEVELS), cells._cell_sums(places, y, LEVELS))
    means = np.random.default_rng(1).normal(size=LEVELS)
    squares = cells.squares_within_cells(places, y, means)
    assert squares == cells._squares_within_cells(places, y, means)


@pytest.mark.parametrize("k", [1, 2, 9])
def test_agreement_of_drawn_rankings(k):
    rng = np.random.default_rng(k)
    means = rng.integers(0, 5, (50, k)).astype(float)
    truth = -np.sort(-rng.integers(0, 5, (50, k)).astype(float), axis=1)
    found = drawn_ranks.drawn_agreement(means, truth, 1.0)
    same(found, drawn_ranks._drawn_agreement(means, truth, 1.0))


COUNTED = {
    "count_values": lambda a: (a, np.int64(0), 3),
    "renumber": lambda a: (a.copy(), np.arange(3, dtype=np.int32)),
    "count_levels": lambda a: (a, 3),
    "determined_levels": lambda a: (a, a, 3),
    "place_rows": lambda a: (a.astype(np.int64), a, 3),
    "fill_counts": lambda a: (a, 3),
    "group_sums": lambda a: (a, np.ones((a.size, 1)), 3),
    "group_counts": lambda a: (a, 3),
}


@pytest.mark.parametrize("name", sorted(COUNTED))
def test_kernels_are_used_for_many_rows_only(name, monkeypatch):
    """Up to 131,072 rows nothing has to be compiled."""
    kernel, sizes = getattr(codes, f"_{name}"), []

    def noted(first, *others):
        sizes.append(first.size)
        return kernel(first, *others)

    monkeypatch.setattr(codes, f"_{name}", noted)
    for size in (2, 131_072, 131_073):
        getattr(codes, name)(*COUNTED[name]((np.arange(size) % 3).astype(np.int32)))
    assert sizes == [131_073]


@pytest.mark.parametrize("n_pairs", [0, 1, 20, 45, 90])
def test_parts_of_a_graph_by_union_and_by_minima(n_pairs):
    rng = np.random.default_rng(n_pairs)
    rows, cols = (rng.integers(0, q, n_pairs).astype(np.int32) for q in (40, 30))
    table = codes.pair_counts(rows, cols, 40, 30, codes.ONCE)
    # Another table has joined some of the nodes already, among them those of a third facet.
    above = np.arange(75, dtype=np.int32)
    above[71], above[74] = 3, 71
    found, expected = above.copy(), above.copy()
    codes._join_pairs(found, table[0], table[1], 40)
    codes.join_pairs(expected, table[0], table[1], 40)
    same(codes.number_parts(found), codes.number_parts(expected))
    assert (found <= np.arange(75)).all()
