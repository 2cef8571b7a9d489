"""Ranges of quantities over non-negative components, and what is zero at their ends."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from vcomp.exceptions import EstimationError
from vcomp.inference.profile.constrained import (
    LinearConstraint,
    RatioConstraint,
    SmoothConstraint,
    _rounded,
)

V = np.array([2.0, 3.0, 1.0])


def mask(text):
    return None if text is None else np.array([c == "1" for c in text])


def check(constraint, held, v, low, high, zero_low, zero_high):
    found = constraint.range(np.array(v), mask(held))
    assert (found.low, found.high) == (low, high)
    for zero, expected in ((found.zero_low, zero_low), (found.zero_high, zero_high)):
        np.testing.assert_array_equal(zero, mask(expected))


@pytest.mark.parametrize(
    ("weights", "held", "low", "high", "zero_low", "zero_high"),
    [
        ((1, 1, 0), "000", 0.0, inf, "110", None),
        ((1, 2, 1), "000", 0.0, inf, None, None),  # the residual is positive
        ((1, -1, 0), "000", -inf, inf, None, None),
        ((-1, -1, 0), "000", -inf, 0.0, None, "110"),
        ((-1, 0, -1), "000", -inf, 0.0, None, None),
        ((1, 2, 0), "010", 6.0, inf, "100", None),
        ((-1, 2, 0), "010", -inf, 6.0, None, "100"),
        ((1, 2, 5), "001", 5.0, inf, "110", None),
    ],
)
def test_sums(weights, held, low, high, zero_low, zero_high):
    constraint = LinearConstraint(np.array(weights, dtype=float))
    check(constraint, held, V, low, high, zero_low, zero_high)


@pytest.mark.parametrize(
    ("a", "b", "held", "v", "low", "high", "zero_low", "zero_high"),
    [
        ((1, 0, 0), (1, 1, 1), "000", V, 0.0, 1.0, "100", None),
        ((1, 0, 0), (1, 1, 0), "000", V, 0.0, 1.0, "100", "010"),
        ((1, 0, 0), (0, 1, 0), "000", V, 0.0, inf, "100", "010"),
        ((-1, 0, 0), (0, 1, 0), "000", V, -inf, 0.0, "010", "100"),
        ((1, 0, 0), (0, 0, 1), "000", V, 0.0, inf, "100", None),
        ((1, 3, 0), (1, 1, 1), "000", V, 0.0, 3.0, "110", None),
        # The second is held at 3: the ratio is between 0 and 1, which it does not reach.
        ((1, 0, 0), (1, 1, 1), "010", V, 0.0, 1.0, "100", None),
        # The first is held at 2: 2/2 and 0 are not attained while it is there.
        ((1, 1, 0), (1, 1, 1), "100", V, 0.0, 1.0, None, None),
        ((1, 1, 0), (1, 1, 1), "100", (0, 3, 1), 0.0, 1.0, "010", None),
        # Of held ones alone 0/0 says nothing, and 6/2 is beyond the others.
        ((1, 0, 0), (1, 1, 1), "100", (0, 3, 1), None, None, None, None),
        ((3, 1, 0), (1, 1, 1), "100", V, 0.0, 3.0, None, None),
    ],
)
def test_ratios(a, b, held, v, low, high, zero_low, zero_high):
    constraint = RatioConstraint(np.array(a, dtype=float), np.array(b, dtype=float))
    if low is None:
        with pytest.raises(EstimationError, match="does not depend on the estimated components"):
            constraint.range(np.array(v), mask(held))
    else:
        check(constraint, held, v, low, high, zero_low, zero_high)


def test_what_is_constant_has_no_range():
    smooth = SmoothConstraint(lambda v: v[0] ** 2, lambda v: np.array([2.0 * v[0], 0.0, 0.0]))
    assert smooth.range(V, mask("010")).high == inf
    for constraint in (
        LinearConstraint(np.array([1.0, 0.0, 0.0])),
        RatioConstraint(np.array([1.0, 1.0, 1.0]), np.ones(3)),
        smooth,
    ):
        with pytest.raises(EstimationError, match="does not depend on the estimated components"):
            constraint.range(V, mask("100"))


def test_ratios_of_nothing():
    constraint = RatioConstraint(np.array([1.0, -1.0, 0.0]), np.array([0.0, 0.0, 1.0]))
    assert constraint.value(np.array([3.0, 1.0, 4.0])) == 0.5
    assert constraint.value(np.array([3.0, 1.0, 0.0])) == inf
    assert constraint.value(np.array([1.0, 3.0, 0.0])) == -inf
    with pytest.raises(EstimationError, match="the ratio is 0/0"):
        constraint.value(np.array([1.0, 1.0, 0.0]))
    for wrong in ((0.0, 0.0, 0.0), (1.0, -1e-9, 1.0)):
        with pytest.raises(EstimationError, match="non-negative weights that are not all zero"):
            RatioConstraint(np.ones(3), np.array(wrong))


def test_gaps_that_are_rounding_are_none():
    assert _rounded(3e-16, 1.0) == 0.0
    assert _rounded(-3e-16, -1.0) == 0.0
    assert _rounded(5e-16, 1.0) == 5e-16
    assert _rounded(-5e-16, 1.0) == -5e-16
