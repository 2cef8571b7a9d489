"""Margins against distributions of scipy, and against sums and integrals written out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from vcomp.exceptions import DataError, EstimationError, PlanError
from vcomp.ir.simulate.margin import GRID
from vcomp.ir.simulate.margin_families import (
    _EDGE,
    CONTINUOUS,
    _truncated_quantiles,
    beta_kernel_margin,
    beta_margin,
    beta_start,
    density_bandwidth,
    kernel_margin,
    normal_margin,
    score_margin,
    truncated_kernel_margin,
    truncated_normal_margin,
)

X = np.random.default_rng(7).beta(1.3, 3.0, 60)
P = np.array([1e-6, 0.01, 0.2, 0.5, 0.77, 0.99, 1 - 1e-6])
TABLE = 5e-5
"""Between entries a table is on a straight line, which is off by this share of the spread."""


def test_beta_is_that_of_scipy():
    margin = beta_margin(X)
    a, b, _, _ = stats.beta.fit(X, floc=0, fscale=1)
    found = stats.beta(margin.parameters["a"], margin.parameters["b"])
    # Neither optimiser ends exactly at the top: the likelihood is flat there.
    assert margin.log_likelihood >= stats.beta(a, b).logpdf(X).sum() - 1e-8
    assert margin.log_likelihood == pytest.approx(found.logpdf(X).sum(), rel=1e-12)
    np.testing.assert_allclose([margin.parameters["a"], margin.parameters["b"]], [a, b], rtol=1e-4)
    np.testing.assert_allclose(margin.quantile(P), found.ppf(P), atol=TABLE)
    assert margin.mean == pytest.approx(found.mean(), abs=1e-6)
    assert margin.variance == pytest.approx(found.var(), rel=1e-4)
    assert margin.aic == pytest.approx(4.0 - 2.0 * margin.log_likelihood, rel=1e-14)


@pytest.mark.parametrize("at", [0.05, 0.3, 0.95])
def test_truncated_normal_is_that_of_scipy(at):
    x = np.clip(np.random.default_rng(2).normal(at, 0.2, 80), 0.0, 1.0)
    margin = truncated_normal_margin(x)
    mu, sd = margin.parameters["mu"], margin.parameters["sigma"]
    found = stats.truncnorm(-mu / sd, (1.0 - mu) / sd, mu, sd)
    assert margin.log_likelihood == pytest.approx(found.logpdf(x).sum(), rel=1e-9)
    np.testing.assert_allclose(margin.quantile(P), found.ppf(P), atol=TABLE)
    assert margin.mean == pytest.approx(found.mean(), abs=1e-6)
    # The first moment is matched where σ is free and µ within its bounds.
    if -9.9 < mu < 10.9:
        assert margin.mean == pytest.approx(x.mean(), abs=1e-5)
    near = [
        stats.truncnorm(-m / s, (1 - m) / s, m, s).logpdf(x).sum()
        for m in mu + np.array([-0.01, 0.01])
        for s in sd * np.array([0.98, 1.02])
        if s >= 0.05
    ]
    assert margin.log_likelihood > max(near)


def test_truncated_kernel_density():
    margin = truncated_kernel_margin(X)
    h = density_bandwidth(X)
    kernels = stats.norm(X[:, None], h)
    mass = (kernels.cdf(1.0) - kernels.cdf(0.0)).mean()

    def density(t):
        return stats.norm.pdf(t, X, h).mean() / mass

    assert margin.log_likelihood == pytest.approx(sum(np.log(density(t)) for t in X), rel=1e-12)
    for p in P:
        upto = integrate.quad(density, 0.0, float(margin.quantile(p)), epsabs=1e-12)[0]
        assert upto == pytest.approx(p, abs=2 * TABLE)
    mean = integrate.quad(lambda t: t * density(t), 0.0, 1.0)[0]
    assert margin.mean == pytest.approx(mean, abs=1e-6)
    influence = [stats.norm.pdf(0.0, scale=h) / (density(t) * mass) for t in X]
    assert margin.df == pytest.approx(np.mean(influence), rel=1e-12)


def test_beta_kernel_density():  # Chen (1999), estimator (2.1)
    margin = beta_kernel_margin(X)
    b = len(X) ** (-2 / 5)

    def density(t):
        return stats.beta.pdf(X, t / b + 1.0, (1.0 - t) / b + 1.0).mean()

    total = integrate.quad(density, 0.0, 1.0)[0]
    # The density is tabulated at 1024 points.
    log_likelihood = sum(np.log(density(t) / total) for t in X)
    assert margin.log_likelihood == pytest.approx(log_likelihood, rel=1e-6)
    for p in P[1:-1]:
        upto = integrate.quad(density, 0.0, float(margin.quantile(p)))[0] / total
        assert upto == pytest.approx(p, abs=2 * TABLE)
    # At each score its own part of the density, which is the mean of as many kernels.
    own = [stats.beta.pdf(t, t / b + 1.0, (1.0 - t) / b + 1.0) / density(t) for t in X]
    assert margin.df == pytest.approx(np.mean(own), rel=1e-9)


def test_kernel_of_effects_is_cut_off():
    effects = X - X.mean()
    margin = kernel_margin(effects, -0.3, 0.3)
    assert margin.quantiles.min() >= min(-0.3, effects.min())
    assert margin.quantiles.max() <= max(0.3, effects.max())
    # A wide range: the variance is that of the effects and of the kernel.
    h = margin.parameters["bandwidth"]
    wide = kernel_margin(effects, -np.inf, np.inf)
    assert wide.mean == pytest.approx(0.0, abs=1e-6)
    assert wide.variance == pytest.approx(effects.var() + h**2, rel=1e-4)


def test_normal_margin():
    margin = normal_margin(X - X.mean())
    np.testing.assert_allclose(margin.quantiles, X.std(ddof=1) * GRID, rtol=1e-14)
    assert margin.variance == pytest.approx(X.var(ddof=1), rel=1e-6)  # cut off at ±6 σ


@pytest.mark.parametrize("family", CONTINUOUS)
@pytest.mark.parametrize("mean", [0.05, 0.4, 0.8])
def test_means_can_be_given(family, mean):
    fitted = CONTINUOUS[family](X)
    moved = fitted.with_mean(mean)
    assert moved.mean == pytest.approx(mean, abs=1e-10)
    # F^a, or 1 - (1 - F)^b, in terms of the quantile function; shape by another search.
    u = (np.arange(40_000) + 0.5) / 40_000

    def quantiles(shape):
        at = u ** (1.0 / shape) if mean > fitted.mean else 1.0 - (1.0 - u) ** (1.0 / shape)
        return fitted.quantile(at)

    shape = optimize.brentq(lambda s: quantiles(s).mean() - mean, 1.0, 500.0)
    # Midpoints and tables, the one against the other.
    np.testing.assert_allclose(moved.quantile(u[200:-200]), quantiles(shape)[200:-200], atol=2e-4)


def test_a_mean_that_cannot_be():
    with pytest.raises(EstimationError, match=r"cannot have the mean 1\.2"):
        beta_margin(X).with_mean(1.2)
    # Between the last scores, but nearer to one than any shape leads.
    margin = beta_margin(X)
    low, high = margin.quantiles[[0, -1]]
    for end in (low, low + 1e-13, high - 1e-13, high):
        with pytest.raises(EstimationError, match="cannot have the mean"):
            margin.with_mean(end)
    same = beta_margin(X)
    assert same.with_mean(same.mean) is same


def test_the_best_has_the_smallest_aic():
    best = score_margin(X, "auto", None, "bm25")
    assert best.aic == min(fit(X).aic for fit in CONTINUOUS.values())
    assert score_margin(X, "beta", None, "bm25").name == "beta"


def test_a_margin_is_refused_in_words():
    with pytest.raises(DataError, match=r"system .bm25. scores 0\.3 on every topic"):
        score_margin(np.full(9, 0.3), "beta", None, "bm25")
    with pytest.raises(PlanError, match="needs support="):
        score_margin(X, "beta_binomial", None, "bm25")
    with pytest.raises(PlanError, match="not only those of support="):
        score_margin(X, "beta", np.array([0.0, 1.0]), "bm25")


def test_margins_print():
    assert repr(normal_margin(np.array([-1.0, 0.0, 1.0]))) == "Margin('normal', mean=0, sd=1)"
    assert repr(normal_margin(np.array([-4.0, 0.0, 4.0]))) == "Margin('normal', mean=0, sd=4)"


@pytest.mark.parametrize("family", [beta_margin, beta_kernel_margin])
def test_scores_of_0_and_1_are_next_to_0_and_1(family):
    few = np.random.default_rng(4).beta(2.0, 3.0, 30)
    found = family(np.concatenate([few, [0.0, 1.0]]))
    expected = family(np.concatenate([few, [_EDGE, 1.0 - _EDGE]]))
    np.testing.assert_array_equal(found.quantiles, expected.quantiles)
    assert found.log_likelihood == expected.log_likelihood


@pytest.mark.parametrize("family", [beta_margin, truncated_normal_margin])
def test_two_shapes_are_two_parameters(family):
    margin = family(X)
    assert len(margin.parameters) == margin.df == 2.0
    assert margin.aic == pytest.approx(4.0 - 2.0 * margin.log_likelihood, rel=1e-14)


@pytest.mark.parametrize("family", [beta_margin, truncated_normal_margin])
@pytest.mark.parametrize("x", [X, np.geomspace(1e-4, 0.1, 20)])
def test_mirrored_scores_have_the_mirrored_distribution(family, x):
    """Also where the likelihood rises up to a limit, as for scores near 0."""
    one, other = family(x), family(1.0 - x)
    mean, mirrored = (
        ("mu", lambda m: 1.0 - m["mu"]) if "mu" in one.parameters else ("a", lambda m: m["b"])
    )
    # The search ends at a small gradient, from starts that are not mirrored to the last digit.
    assert one.parameters[mean] == pytest.approx(mirrored(other.parameters), rel=1e-3)
    np.testing.assert_allclose(one.quantile(P), 1.0 - other.quantile(1.0 - P), atol=TABLE)


@pytest.mark.parametrize(("mean", "variance"), [(0.3, 0.02), (0.8, 0.1), (0.5, 0.001)])
def test_searches_start_from_the_mean_and_variance(mean, variance):
    found = stats.beta(*beta_start(mean, variance))
    assert (found.mean(), found.var()) == pytest.approx((mean, variance), rel=1e-12)


@pytest.mark.parametrize("mu", [0.6, 0.9, 1.0, 3.0])
def test_quantiles_of_a_mirrored_truncated_normal_keep_their_digits(mu):
    one, other = _truncated_quantiles(mu, 0.1), _truncated_quantiles(1.0 - mu, 0.1)
    np.testing.assert_allclose(one, 1.0 - other[::-1], rtol=1e-12)
