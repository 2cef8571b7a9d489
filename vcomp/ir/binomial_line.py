"""Maximum likelihood fit of a logistic curve to shares at a few points."""

from __future__ import annotations

import math

import numpy as np

from vcomp._typing import FloatArray

_MOST_STEPS = 100

_NEAR = 1e-13
"""Tolerance of Newton steps, relative to the linear predictor."""


def fit_binomial_line(
    x: FloatArray, means: FloatArray, counts: FloatArray
) -> tuple[float, float, bool]:
    """Return a and b of logit μ = a + b x, and whether Newton's method converged.

    Parameters
    ----------
    x : (g,) points, about zero
    means, counts : (g,) mean of the shares observed at each, and their number
    """
    start = float(counts @ means) / float(counts.sum())
    a, b = math.log(start) - math.log1p(-start), 0.0
    fit = _log_likelihood(a, b, x, means, counts)
    for _ in range(_MOST_STEPS):
        step_a, step_b = _newton_step(a, b, x, means, counts)
        if not (math.isfinite(step_a) and math.isfinite(step_b)):
            break
        if max(abs(step_a), abs(step_b)) <= _NEAR * max(1.0, abs(a), abs(b)):
            return a, b, True
        further = fit
        # The likelihood is concave: a step is too long if it does not raise it.
        for _ in range(_MOST_STEPS):
            further = _log_likelihood(a + step_a, b + step_b, x, means, counts)
            if further >= fit - _NEAR * abs(fit):
                break
            step_a, step_b = step_a / 2.0, step_b / 2.0
        a, b, fit = a + step_a, b + step_b, further
    return a, b, False


def _newton_step(
    a: float, b: float, x: FloatArray, means: FloatArray, counts: FloatArray
) -> tuple[float, float]:
    """Return Newton steps in a and b, solved about the weighted centre of x; nan if singular."""
    from scipy.special import expit

    line = a + b * x
    mean = expit(line)
    weight, left = counts * mean * expit(-line), counts * (means - mean)
    total = weight.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        centre = weight @ x / total
        deviation = x - centre
        slope = left @ deviation / (weight @ np.square(deviation))
        return float(left.sum() / total - slope * centre), float(slope)


def _log_likelihood(
    a: float, b: float, x: FloatArray, means: FloatArray, counts: FloatArray
) -> float:
    line = a + b * x
    return float(counts @ (means * line - np.logaddexp(0.0, line)))
