"""Differences of systems over topics, one pair after another and in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from vcomp.ir.rank.paired import difference_variances


def exact_variances(X, i, j):
    found = []
    for a, b in zip(i, j, strict=True):
        d = [Fraction(x) - Fraction(y) for x, y in zip(X[:, a], X[:, b], strict=True)]
        mean = sum(d) / len(d)
        found.append(float(sum((x - mean) ** 2 for x in d) / (len(d) - 1)))
    return np.array(found)


@pytest.mark.parametrize("n", [2, 3, 40])
@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e-5, 1e-8])
@pytest.mark.parametrize("unit", [1.0, 1e6])
def test_variances_of_differences_keep_their_digits(n, spread, unit):
    """Of systems that differ much, by little, and by a little constant."""
    rng = np.random.default_rng(n)
    first = rng.uniform(0.2, 0.9, n)
    near = np.column_stack([first, first + spread * rng.normal(size=n), first - spread])
    X = unit * np.column_stack([near, rng.uniform(size=(n, 2))])
    i, j = np.triu_indices(5, 1)
    found = difference_variances(X, (i, j))
    expected = exact_variances(X, i, j)
    least = (64 * np.finfo(float).eps * np.abs(X).max()) ** 2
    certain = expected > 2.0 * least
    assert found[(i == 0) & (j == 2)] == [0.0]
    # A variance of rounding error has none; others lose the digits of their scores.
    np.testing.assert_array_equal(found[~certain], 0.0)
    rtol = np.maximum(1e-9, 8 * np.finfo(float).eps * unit / np.sqrt(expected[certain]))
    assert (np.abs(found[certain] / expected[certain] - 1.0) < rtol).all()
