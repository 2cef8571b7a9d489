"""Quantiles of F against their closed form."""

from __future__ import annotations

import numpy as np
import pytest

from vcomp.numerics import f_quantile


@pytest.mark.parametrize("error", [0.0, 6.6e-14, 7.8e-14, -3e-14, 1e-11])
@pytest.mark.parametrize("other", [0.0, 1.3e-15, -4.4e-15])
@pytest.mark.parametrize("m", [1, 2, 3, 5, 40])
def test_quantiles_of_f_whatever_the_rounding_of_their_degrees_of_freedom(error, other, m):
    """With two degrees of freedom above, P(F > f) = (1 + 2f/m)^(-m/2)."""
    nu, above = np.array([2.0 * (1.0 + error)]), np.array([m * (1.0 + other)])
    for tail in (0.025, 0.005):
        exact = 0.5 * m * (tail ** (-2.0 / m) - 1.0)
        assert f_quantile(1.0 - tail, nu, above)[0] == pytest.approx(exact, rel=1e-9)
