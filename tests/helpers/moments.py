"""Moments of what is drawn, against those that theory gives, within Monte Carlo error."""

from __future__ import annotations

import numpy as np


def agree_in_mean(samples, mean, variance=None, sigmas=4.5):
    """Assert that (n, ...) samples have a mean; with their own variance, if none is given."""
    samples = np.asarray(samples, dtype=float)
    n = samples.shape[0]
    variance = samples.var(axis=0, ddof=1) if variance is None else np.asarray(variance)
    # What is constant in theory is so but for rounding.
    slack = 1e-12 * np.abs(samples).max(initial=0.0)
    away = np.abs(samples.mean(axis=0) - mean)
    assert (away <= sigmas * np.sqrt(variance / n) + slack).all(), (away, np.sqrt(variance / n))


def score_agrees(draw, engine_of, v, n=400):
    """Assert that the score at the components of the draws has mean 0 and variance information.

    Both hold exactly for normal data, whatever the design: every sum that the likelihood looks at
    has a part in them.
    """
    scores, expected, betas, cov_beta = [], None, [], None
    for b in range(n):
        engine = engine_of(draw(b))
        scores.append(engine.derivatives(v).score)
        beta, cov_beta = engine.fixed_effects(v)
        betas.append(beta)
        if expected is None:
            expected = engine.information(v, "expected")
    scores, betas = np.array(scores), np.array(betas)
    agree_in_mean(scores, 0.0, np.diagonal(expected))
    agree_in_mean(scores[:, :, None] * scores[:, None, :], expected)
    agree_in_mean(betas, 0.0, np.diagonal(cov_beta))
    agree_in_mean(betas[:, :, None] * betas[:, None, :], cov_beta)
