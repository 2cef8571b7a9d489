"""Cells of rows with weights, or with products in each, against sums that are written out."""

import numpy as np
import pytest

from vcomp.statistics.batches.cell_table import joined, sum_weighted_cells


def made(seed, n=60, far=0.0):
    """Return places, columns and weights of rows."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 7, n) * 5, far + rng.normal(size=(3, n)), rng.uniform(0.1, 9.0, n)


def by_definition(places, values, weights):
    """Return for each cell its rows, sums of weights and logarithms, mean, and products."""
    found = {}
    for place in np.unique(places):
        rows = places == place
        w, z = weights[rows], values[:, rows]
        mean = z @ w / w.sum()
        away = z - mean[:, None]
        sums = [w.sum(), np.log(w).sum()]
        found[place] = rows.sum(), sums, mean, (away * w) @ away.T
    return found


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("far", [0.0, 1e6])
def test_cells_are_those_of_the_definition(weighted, far):
    places, values, weights = made(1, far=far)
    weights = weights if weighted else np.ones_like(weights)
    table = sum_weighted_cells(places, values, weights if weighted else None, products=True)
    expected = by_definition(places, values, weights)
    assert table.places.tolist() == list(expected)
    for k, (n, sums, mean, products) in enumerate(expected.values()):
        assert table.counts[k] == n
        if weighted:
            np.testing.assert_allclose(table.weights[:, k], sums, rtol=1e-13)
        np.testing.assert_allclose(table.means[:, k], mean, rtol=1e-13)
        # The means of numbers near 1e6 have ten digits after the point.
        np.testing.assert_allclose(
            table.products[:, :, k], products, rtol=1e-12 if far == 0.0 else 1e-8, atol=1e-12
        )
    np.testing.assert_allclose(table.within, table.products.sum(axis=2), rtol=1e-14)


@pytest.mark.parametrize("products", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [1, 7, 59])
def test_parts_add_up_to_the_whole(weighted, products, size):
    places, values, weights = made(2)

    def table(rows):
        known = weights[rows] if weighted else None
        return sum_weighted_cells(places[rows], values[:, rows], known, products=products)

    whole = table(slice(None))
    total = table(slice(0, size))
    for first in range(size, places.size, size):
        total = total + table(slice(first, first + size))
    for name in ("places", "counts"):
        np.testing.assert_array_equal(getattr(total, name), getattr(whole, name))
    for name in ("means", "within", "weights", "products"):
        found, expected = getattr(total, name), getattr(whole, name)
        assert (found is None) == (expected is None)
        if expected is not None:
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


def test_equal_columns_have_no_rounding_error():
    places, _, weights = made(3)
    table = sum_weighted_cells(places, np.full((1, places.size), 0.1), weights, products=True)
    assert (table.means == 0.1).all()
    assert not table.products.any()


def test_cells_are_joined_where_a_facet_is_left_out():
    places, values, weights = made(4)
    finer = sum_weighted_cells(places * 2 + (values[1] > 0.0), values, weights, products=True)
    coarse = finer.at(np.arange(finer.counts.size), finer.places // 2)
    whole = sum_weighted_cells(places, values, weights, products=True)
    found = joined(coarse)
    for name in ("places", "counts", "means", "weights", "products", "within"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(whole, name), rtol=1e-11, atol=1e-12
        )
