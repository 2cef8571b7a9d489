"""Quantities at the ends of their ranges, their slopes, and components as they are used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcomp.gtheory import from_components
from vcomp.inference.expression import EstimatedQuantity
from vcomp.inference.quantities import Quantities, used_components

A = np.array([[1.0, 0.0, 0.5], [1.0, -1.0, 0.0], [0.0, 0.0, 2.0]])
B = np.array([[0.0, 1.0, 0.5], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]])


def test_values_at_the_ends():
    """The root of zero is zero; nothing below is a root, and nothing is divided by zero."""
    v = np.array([[2.0, 2.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 4.0]])
    nan = np.nan
    root = Quantities("root", A).values(v)
    np.testing.assert_array_equal(root, [[2**0.5, 0.0, 0.0], [0.0, nan, 0.0], [2**0.5, 0, 8**0.5]])
    ratio = Quantities("ratio", A, B).values(v)
    np.testing.assert_array_equal(ratio, [[1.0, nan, 0.0], [0.0, nan, 0.0], [1.0, 0.0, nan]])
    share = Quantities("share", A, B).values(v)
    np.testing.assert_array_equal(share, [[0.5, nan, 0.0], [0.0, nan, 0.0], [0.5, 0.0, 1.0]])


@pytest.mark.parametrize("form", ["linear", "root", "ratio", "share"])
@given(v=st.lists(st.floats(0.1, 5.0), min_size=3, max_size=3))
def test_gradients_are_slopes_of_the_values(form, v):
    q = Quantities(form, np.abs(A), None if form in ("linear", "root") else B)
    v, h = np.array(v), 1e-4
    slopes = [(q.values(v + e) - q.values(v - e)) / (2 * h) for e in h * np.eye(3)]
    np.testing.assert_allclose(q.gradients(v).T, slopes, rtol=1e-4, atol=1e-5)
    used = np.abs(A) + (B if q.b is not None else 0.0) != 0.0
    np.testing.assert_array_equal(q.used, used)


def test_slopes_where_there_are_none():
    v = np.array([0.0, 1.0, 0.0])
    assert np.isnan(Quantities("root", A).gradients(v)).all()
    ratio = Quantities("ratio", A, B).gradients(v)
    assert np.isnan(ratio).any(axis=1).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("se", "low", "high", "text"),
    [
        (0.5, 1.0, 3.0, "q = 2 (standard error 0.5), 95 % interval [1, 3] by a; b"),
        (np.nan, 1.0, 3.0, "q = 2, 95 % interval [1, 3] by a; b"),
        (0.5, np.nan, 3.0, "q = 2 (standard error 0.5), no interval; b"),
        (0.5, 1.0, np.nan, "q = 2 (standard error 0.5), no interval; b"),
    ],
)
def test_words_of_a_quantity(se, low, high, text):
    assert str(EstimatedQuantity("q", 2.0, se, low, high, 0.05, "a", ("b",))) == text


def test_components_as_they_are_used():
    """Held and zeroed components, and those at a bound, are known; the last are named."""
    cov = np.diag([0.1, 0.2, np.nan, np.nan, 0.3])
    cov[0, 1] = cov[1, 0] = 0.05
    names = ("p", "i", "h", "b", "Residual")
    made = from_components(dict(zip(names, [2.0, -0.1, 0.5, 0.0, 4.0], strict=True)))
    g = replace(made.components, cov=cov, held=("h",))
    zero, keep = used_components(g, "zero"), used_components(g, "keep")
    np.testing.assert_array_equal(zero.values, [2.0, 0.0, 0.5, 0.0, 4.0])
    np.testing.assert_array_equal(keep.values, g.values)
    assert (zero.zeroed, zero.bounded) == (("i",), ("b",))
    assert (keep.zeroed, keep.bounded) == ((), ("b",))
    np.testing.assert_array_equal(zero.cov, np.diag([0.1, 0.0, 0.0, 0.0, 0.3]))
    expected = np.where(np.isnan(cov), 0.0, cov)
    np.testing.assert_array_equal(keep.cov, expected)
    assert used_components(replace(g, cov=None), "zero").cov is None
