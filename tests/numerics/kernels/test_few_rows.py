"""NumPy on few rows and the kernels on many give the same bits."""

from itertools import product

import numpy as np
import pytest

from vcomp.ir.kernels import rank_agreement
from vcomp.numerics.kernels import codes

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
    same(codes.count_levels(a, LEVELS), codes._count_levels(a, LEVELS))
    sums = np.zeros((LEVELS, values.shape[1]))
    codes.add_group_sums(a, values, sums)
    same(codes.group_sums(a, values, LEVELS), sums)
    for outer in (b, (a // 3).astype(np.int32)):
        found = codes.determined_levels(a, outer, LEVELS)
        same(found, codes._determined_levels(a, outer, LEVELS))


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
        same(table, codes._many_pair_counts(a, b, n_a, n_b, weights))


@pytest.mark.parametrize("k", [1, 2, 9])
def test_agreement_of_drawn_rankings(k):
    rng = np.random.default_rng(k)
    means = rng.integers(0, 5, (50, k)).astype(float)
    truth = -np.sort(-rng.integers(0, 5, (50, k)).astype(float), axis=1)
    found = rank_agreement.drawn_agreement(means, truth, 1.0)
    same(found, rank_agreement._drawn_agreement(means, truth, 1.0))


COUNTED = {
    "count_values": lambda a: (a, np.int64(0), 3),
    "count_levels": lambda a: (a, 3),
    "determined_levels": lambda a: (a, a, 3),
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
