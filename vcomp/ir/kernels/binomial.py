"""Maximum likelihood fit of a logistic curve to shares at a few points."""

from __future__ import annotations

import math

import numpy as np

from vcomp._typing import FloatArray
from vcomp.numerics.kernels import njit

_MOST_STEPS = 100

_NEAR = 1e-13
"""Tolerance of Newton steps, relative to the linear predictor."""


@njit(cache=True, nogil=True)
def fit_binomial_line(
    x: FloatArray, means: FloatArray, counts: FloatArray
) -> tuple[float, float, bool]:
    """Return a and b of logit μ = a + b x, and whether Newton's method converged.

    Parameters
    ----------
    x : (g,) points, about zero
    means, counts : (g,) mean of the shares observed at each, and their number
    """
    above = total = 0.0
    for i in range(x.size):
        above += counts[i] * means[i]
        total += counts[i]
    start = above / total
    a, b = math.log(start) - math.log1p(-start), 0.0
    fit = _log_likelihood(a, b, x, means, counts)
    for _ in range(_MOST_STEPS):
        step_a, step_b = _newton_step(a, b, x, means, counts)
        if not (np.isfinite(step_a) and np.isfinite(step_b)):
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


@njit(cache=True, nogil=True)
def _newton_step(
    a: float, b: float, x: FloatArray, means: FloatArray, counts: FloatArray
) -> tuple[float, float]:
    """Return Newton steps in a and b, solved about the weighted centre of x; nan if singular."""
    weight, left = np.empty(x.size), np.empty(x.size)
    total = centre = 0.0
    for i in range(x.size):
        line = a + b * x[i]
        away = math.exp(-abs(line))
        small, large = away / (1.0 + away), 1.0 / (1.0 + away)
        weight[i] = counts[i] * small * large
        left[i] = counts[i] * (means[i] - (large if line > 0.0 else small))
        total += weight[i]
        centre += weight[i] * x[i]
    if not total > 0.0:
        return np.nan, np.nan
    centre /= total
    spread = slope = rest = 0.0
    for i in range(x.size):
        deviation = x[i] - centre
        spread += weight[i] * deviation * deviation
        slope += left[i] * deviation
        rest += left[i]
    if not spread > 0.0:
        return np.nan, np.nan
    slope /= spread
    return rest / total - slope * centre, slope


@njit(cache=True, nogil=True)
def _log_likelihood(
    a: float, b: float, x: FloatArray, means: FloatArray, counts: FloatArray
) -> float:
    total = 0.0
    for i in range(x.size):
        line = a + b * x[i]
        log_of_both = max(line, 0.0) + math.log1p(math.exp(-abs(line)))
        total += counts[i] * (means[i] * line - log_of_both)
    return total
