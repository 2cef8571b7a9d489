"""A logistic curve by maximum likelihood: its equations, and a general maximiser."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from vcomp.ir.binomial_line import _log_likelihood, _newton_step, fit_binomial_line


def test_a_line_of_logits_at_its_maximum():
    """No step in any direction raises the likelihood of unequal numbers of observations."""
    rng = np.random.default_rng(8)
    x, counts = rng.normal(size=12), rng.integers(1, 400, 12).astype(float)
    means = rng.uniform(0.01, 0.99, 12)
    a, b, found = fit_binomial_line(x, means, counts)
    assert found
    left = counts * (means - expit(a + b * x))
    assert abs(left.sum()) < 1e-11 * counts.sum()
    assert abs(left @ x) < 1e-11 * counts.sum()


def drawn(seed):
    rng = np.random.default_rng(seed)
    x, counts = rng.normal(size=7), rng.integers(1, 60, 7).astype(float)
    return x, rng.uniform(0.02, 0.98, 7), counts


def log_likelihood(at, x, means, counts):
    p = expit(at[0] + at[1] * x)
    return float(counts @ (means * np.log(p) + (1.0 - means) * np.log1p(-p)))


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_maximum(seed):
    x, means, counts = drawn(seed)
    a, b, found = fit_binomial_line(x, means, counts)
    assert found
    best = minimize(lambda at: -log_likelihood(at, x, means, counts), [0.0, 0.0], tol=1e-12)
    np.testing.assert_allclose([a, b], best.x, rtol=1e-5, atol=1e-6)
    at = (a, b, x, means, counts)
    assert _log_likelihood(*at) == pytest.approx(
        log_likelihood((a, b), x, means, counts), rel=1e-12
    )


def test_a_step_of_newton():
    """It solves X'WX s = X'(y − μ) with the weights of the counts."""
    x, means, counts = drawn(4)
    for a, b in ((0.3, -0.8), (-2.0, 1.5), (0.0, 0.0), (14.0, 0.5)):
        p = expit(a + b * x)
        X, w = np.column_stack([np.ones(7), x]), counts * p * expit(-a - b * x)
        expected = np.linalg.solve(X.T @ (w[:, None] * X), X.T @ (counts * (means - p)))
        np.testing.assert_allclose(_newton_step(a, b, x, means, counts), expected, rtol=1e-12)


def test_there_is_no_step_where_all_shares_are_one():
    """But for rounding: they have no variance there."""
    assert np.isnan(_newton_step(1e4, 0.0, *drawn(4))).all()


@pytest.mark.parametrize("seed", range(40))
def test_steep_lines_are_found(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=6)
    counts = np.exp(rng.uniform(0.0, 6.0, 6))
    means = expit(rng.normal(scale=4.0, size=6) + 8.0 * x)
    a, b, found = fit_binomial_line(x, means, counts)
    assert found
    left = counts * (means - expit(a + b * x))
    np.testing.assert_allclose([left.sum(), left @ x], 0.0, atol=1e-10 * counts.sum())


def test_far_away_starts_come_back():
    """One of the whole steps from the mean share overshoots, and lowers the likelihood."""
    x, means = np.array([-0.3, 0.3, -1.3, 0.8]), np.array([0.15, 0.54, 0.99, 0.04])
    counts = np.array([3.0, 15.0, 182.0, 21.0])
    mean = counts @ means / counts.sum()
    path = [np.array([np.log(mean / (1.0 - mean)), 0.0])]
    for _ in range(8):
        path.append(path[-1] + _newton_step(*path[-1], x, means, counts))
    assert (np.diff([_log_likelihood(*at, x, means, counts) for at in path]) < -1.0).any()
    a, b, found = fit_binomial_line(x, means, counts)
    assert found
    left = counts * (means - expit(a + b * x))
    np.testing.assert_allclose([left.sum(), left @ x], 0.0, atol=1e-11 * counts.sum())


def test_what_has_no_slope_or_no_maximum():
    one = np.zeros(3)
    a, b, found = fit_binomial_line(one, np.array([0.2, 0.4, 0.3]), np.ones(3))
    assert not found
    assert (a, b) == (pytest.approx(np.log(0.3 / 0.7), rel=1e-14), 0.0)
    # Shares of 0 and 1 alone are separated: the likelihood rises for ever.
    assert not fit_binomial_line(np.array([-1.0, 1.0]), np.array([0.0, 1.0]), np.ones(2))[2]
