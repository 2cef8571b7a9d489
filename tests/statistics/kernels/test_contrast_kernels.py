"""Squares in strata: against projections on means and contrasts, written as matrices."""

from itertools import product

import numpy as np
import pytest

from vcomp.statistics.kernels import squares_in_strata


def projection(shape, stratum):
    """Return the matrix onto the contrasts of some axes in the means of the others."""
    found = np.ones((1, 1))
    for axis, size in enumerate(shape):
        mean = np.full((size, size), 1.0 / size)
        found = np.kron(found, np.eye(size) - mean if stratum >> axis & 1 else mean)
    return found


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3), (3, 1, 2), (300, 2)])
def test_squares_are_those_of_projections(shape):
    rng = np.random.default_rng(len(shape))
    R, M, q = int(np.prod(shape)), 90, 4
    table, centres = rng.normal(50.0, 1.0, (R, M)), rng.normal(50.0, 1.0, (R, q))
    groups = np.sort(rng.integers(0, q, M)).astype(np.int32)
    weights = rng.integers(1, 4, M).astype(float)
    sizes = np.array(shape, dtype=np.int64)
    for first, last in ((0, M), (5, 41), (7, 8)):
        found = squares_in_strata(table, centres, groups, weights, sizes, first, last)
        away = (table - centres[:, groups])[:, first:last]
        expected = [
            float(np.square(projection(shape, s) @ away).sum(axis=0) @ weights[first:last])
            for s in range(2 ** len(shape))
        ]
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_each_axis_has_its_bit():
    """A table of effects of one axis has squares in that axis's stratum alone."""
    shape = (3, 4)
    effects = np.array([-1.0, 0.0, 1.0])
    table = np.array([[effects[i]] for i, _ in product(range(3), range(4))])
    found = squares_in_strata(
        table, np.zeros((12, 1)), np.zeros(1, np.int32), np.ones(1), np.array(shape), 0, 1
    )
    np.testing.assert_allclose(found, [0.0, 8.0, 0.0, 0.0], atol=1e-15)
