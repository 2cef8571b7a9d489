"""Plug-in widths against sums over pairs with Hermite polynomials, and against normal samples."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial import HermiteE, Polynomial
from scipy.stats import norm

from vcomp.ir.simulate.margin_families import cdf_bandwidth, density_bandwidth


def functional(x, g, order):
    """Return n⁻² ΣΣ φ^(r)((x_i - x_j) / g) / g^(r + 1), pair by pair."""
    hermite = HermiteE.basis(order).convert(kind=Polynomial)
    sign = (-1) ** order
    total = sum(sign * hermite((a - b) / g) * norm.pdf((a - b) / g) for a in x for b in x)
    return total / g ** (order + 1) / len(x) ** 2


def at_zero(order):
    return HermiteE.basis(order).convert(kind=Polynomial)(0.0) / np.sqrt(2 * np.pi)


SAMPLES = [
    np.random.default_rng(1).gamma(1.0, 0.2, 15),
    np.array([0.0, 0.0, 0.0, 0.5, 1.0]),
    np.array([-2.0, 3.0]),
]


@pytest.mark.parametrize("x", SAMPLES, ids=["gamma", "ties", "two"])
def test_for_distributions(x):  # Polansky and Baker (2000); Wand and Jones (1995, p. 70)
    n, sd = len(x), x.std(ddof=1)
    psi6 = -15.0 / (16.0 * np.sqrt(np.pi) * sd**7)
    g4 = (-2.0 * at_zero(4) / (psi6 * n)) ** (1 / 7)
    g2 = (-2.0 * at_zero(2) / (functional(x, g4, 4) * n)) ** (1 / 5)
    h = (2.0 * (4.0 * np.pi) ** -0.5 / (-functional(x, g2, 2) * n)) ** (1 / 3)
    assert cdf_bandwidth(x) == pytest.approx(h, rel=1e-12)


@pytest.mark.parametrize("x", SAMPLES, ids=["gamma", "ties", "two"])
def test_for_densities(x):  # R: KernSmooth::dpik, its pilot widths as printed there
    n = len(x)
    low, high = np.quantile(x, [0.25, 0.75])
    scale = min(x.std(ddof=1), (high - low) / (norm.ppf(0.75) - norm.ppf(0.25)))
    g6 = (2.0 * (np.sqrt(2.0) * scale) ** 9 / (7.0 * n)) ** (1 / 9)
    g4 = (-3.0 * np.sqrt(2.0 / np.pi) / (functional(x, g6, 6) * n)) ** (1 / 7)
    h = (1.0 / (2.0 * np.sqrt(np.pi) * functional(x, g4, 4) * n)) ** (1 / 5)
    assert density_bandwidth(x) == pytest.approx(h, rel=1e-12)


def test_half_of_the_scores_may_be_one_number():
    x = np.array([0.0] * 8 + [0.3, 0.9])
    assert density_bandwidth(x) > 0.0


def test_normal_samples_have_the_normal_rule():
    x = norm.ppf((np.arange(3000) + 0.5) / 3000)
    # Both rules estimate functionals with kernels, which flatten them by a few per cent.
    assert cdf_bandwidth(x) == pytest.approx(4.0 ** (1 / 3) * 3000 ** (-1 / 3), rel=0.02)
    assert density_bandwidth(x) == pytest.approx((4 / 3) ** 0.2 * 3000**-0.2, rel=0.05)


def test_widths_scale_with_the_sample():
    x = np.random.default_rng(4).normal(size=30)
    for rule in (cdf_bandwidth, density_bandwidth):
        assert rule(5.0 + 3.0 * x) == pytest.approx(3.0 * rule(x), rel=1e-10)
