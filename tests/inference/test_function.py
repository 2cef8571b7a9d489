"""Functions of the user and their gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vcomp.exceptions import EstimationError
from vcomp.inference.expression import smooth_of

NAMES = ["a", "b", "Residual"]
V = np.array([2.0, 3.0, 5.0])
NOTHING = np.zeros(0)


@pytest.mark.parametrize(
    ("function", "gradient"),
    [
        (lambda v: v["a"] * v["b"] / v["Residual"] ** 2, [3 / 25, 2 / 25, -2 * 6 / 125]),
        (lambda v: np.log(v["a"]), [0.5, 0.0, 0.0]),
        (lambda v: v.sum() ** 0.5, [0.5 / np.sqrt(10.0)] * 3),
    ],
)
def test_gradients_are_exact(function, gradient):
    found = smooth_of(function, NAMES).slopes(V, NOTHING)[0]
    np.testing.assert_allclose(found, gradient, rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize(
    ("function", "gradient"),
    [
        (lambda v: math.sqrt(v["a"]), [0.5 / math.sqrt(2.0), 0.0, 0.0]),  # no complex numbers
        (lambda v: abs(v["a"] - v["b"]), [-1.0, 1.0, 0.0]),  # loses the imaginary part
        (lambda v: max(v["a"], v["b"]), [0.0, 1.0, 0.0]),  # cannot compare complex numbers
    ],
)
def test_other_functions_have_differences(function, gradient):
    found = smooth_of(function, NAMES).slopes(V, NOTHING)[0]
    # Central differences keep two thirds of the digits.
    np.testing.assert_allclose(found, gradient, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_differences_at_zero_have_the_size_of_the_other_components(scale):
    v = np.array([0.0, 3.0, 5.0]) * scale
    found = smooth_of(lambda v: max(v["a"], -scale) * v["b"], NAMES).slopes(v, NOTHING)[0]
    np.testing.assert_allclose(found, [3.0 * scale, 0.0, 0.0], rtol=1e-8, atol=1e-9 * scale)
    nothing = smooth_of(lambda v: max(v["a"], -1.0), NAMES).slopes(np.zeros(3), NOTHING)[0]
    np.testing.assert_allclose(nothing, [1.0, 0.0, 0.0], rtol=1e-8, atol=1e-9)


def test_errors():
    with pytest.raises(
        EstimationError, match=r"uses component 'c'.* components are a, b, Residual"
    ):
        smooth_of(lambda v: v["c"], NAMES).function(V, NOTHING)
    with pytest.raises(EstimationError, match="must return one number, not Series"):
        smooth_of(lambda v: v, NAMES).function(V, NOTHING)
