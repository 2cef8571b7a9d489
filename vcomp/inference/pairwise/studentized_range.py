"""Upper tail of the studentized range, with relative accuracy, for many values at once."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from vcomp._typing import FloatArray

_STEP_Z, _REACH_Z = 1.0 / 16.0, 8.5
_STEP_W, _LARGEST_W = 1.0 / 32.0, 52.0
"""Beyond so many standard deviations the probability of a range underflows."""

_STEP_U, _STEPS_A_WIDTH = 0.1, 0.6
_DECAY = 40.0
"""exp(-40) is lost in the last digit."""

_UNDERFLOW = -2000.0
"""Logarithm of what is zero in double precision."""

_AT_ONCE = 2**18


def studentized_range_sf(q: FloatArray, k: int, df: float) -> FloatArray:
    """Return the probability that a studentized range exceeds q.

    The range of k independent standard normal variables is divided by the root of an independent
    mean square with `df` degrees of freedom. For Tukey's test of all pairs of k means,
    q = √2 |difference| / standard error of the difference.

    Parameters
    ----------
    q : (m,) values, at least 0; infinity has probability 0
    k : number of means, at least 2
    df : degrees of freedom of the mean square, positive; may be infinite

    Returns
    -------
    (m,) array

    Notes
    -----
    P = ∫ f(s) S(qs) ds, where f is the density of the root of the mean square, and S(w) the
    probability that the range exceeds w:

    S(w) = k ∫ φ(z) {Φ(z)ᵏ⁻¹ − [Φ(z) − Φ(z − w)]ᵏ⁻¹} dz.

    Both integrands fall off as double exponentials or normal densities, so that the trapezoidal
    rule, over z and over log s, converges exponentially. The difference of powers is computed
    without cancellation, so that small probabilities have their leading digits.

    References
    ----------
    Tukey, J. W. (1953). *The problem of multiple comparisons*. Princeton University.

    Examples
    --------
    >>> studentized_range_sf(np.array([3.5, 20.0]), 3, 20.0).round(6)
    array([0.055892, 0.      ])
    """
    values = np.asarray(q, dtype=float)
    out = np.where(values > 0.0, 0.0, 1.0)
    inside = np.isfinite(values) & (values > 0.0)
    out[inside] = np.exp(_log_sf(values[inside], k, df))
    return out


def studentized_range_isf(p: float, k: int, df: float) -> float:
    """Return the value that a studentized range exceeds with probability p.

    Parameters
    ----------
    p : between 0 and 1
    k : number of means, at least 2
    df : degrees of freedom of the mean square, positive; may be infinite

    Examples
    --------
    >>> print(round(studentized_range_isf(0.05, 3, 20.0), 4))
    3.5779
    """
    from scipy.optimize import brentq

    def excess(log_q: float) -> float:
        return float(_log_sf(np.array([math.exp(log_q)]), k, df)[0]) - math.log(p)

    low, high = -1.0, 1.0
    while excess(low) < 0.0:
        low -= 1.0
    while excess(high) > 0.0:
        high += 1.0
    return math.exp(float(brentq(excess, low, high, xtol=1e-13, rtol=1e-14)))


def _log_sf(q: FloatArray, k: int, df: float) -> FloatArray:
    """Return log P of positive and finite values."""
    if math.isinf(df):
        return _log_range_sf(q, k)
    made = [np.empty(0)]
    step = min(_STEP_U, _STEPS_A_WIDTH / math.sqrt(2.0 * df))
    order = np.argsort(q)
    largest = float(q.max(initial=1.0))
    few = max(1, _AT_ONCE // _places(largest, df, step).size)
    for at in range(0, q.size, few):
        part = q[order[at : at + few]]
        u = _places(float(part[-1]), df, step)
        terms = _log_density(u, df) + _log_range_sf(np.outer(part, np.exp(u)), k)
        top = np.maximum(terms.max(axis=1), _UNDERFLOW)
        sums = np.exp(terms - top[:, None]).sum(axis=1)
        made.append(top + np.log(step * np.maximum(sums, 1.0)))
    out = np.empty_like(q)
    out[order] = np.concatenate(made)
    np.minimum(out, 0.0, out=out)
    return out


def _places(largest: float, df: float, step: float) -> FloatArray:
    """Return where log s is evaluated: wherever the integrand is not negligible for some q.

    With S(qs) about exp(-q²s²/4) the integrand has its maximum at s² = df/(df + q²/2), with S = 1
    at s = 1; to the left it falls as s to the power df, to the right faster than a normal density.
    """
    narrow = _DECAY / df
    peak = -math.log(math.hypot(1.0, largest * math.sqrt(0.5 / df)))
    left = peak - math.sqrt(narrow) - narrow
    right = min(math.sqrt(narrow), 0.5 * math.log(4.0 * narrow + 4.0))
    steps = np.arange(math.floor(left / step), math.ceil(right / step) + 1)
    return steps.astype(float) * step


def _log_density(u: FloatArray, df: float) -> FloatArray:
    """Return the log density of u = log s, where df s² has a χ² distribution."""
    constant = math.log(2.0) + 0.5 * df * math.log(0.5 * df) - math.lgamma(0.5 * df)
    density: FloatArray = constant + df * u - 0.5 * df * np.exp(2.0 * u)
    return density


def _log_range_sf(w: FloatArray, k: int) -> FloatArray:
    """Return log S(w), of a range of k standard normal variables."""
    found: FloatArray = _spline(k)(np.minimum(w, _LARGEST_W))
    inside: FloatArray = np.minimum(found, 0.0)
    inside[w > _LARGEST_W] = _UNDERFLOW
    return inside


@lru_cache(maxsize=32)
def _spline(k: int) -> Any:
    """Return a spline of log S(w) through many values of w."""
    from scipy.interpolate import make_interp_spline
    from scipy.special import ndtr

    w = np.arange(0.0, _LARGEST_W + 8.5 * _STEP_W, _STEP_W)
    z = np.arange(-_REACH_Z, 0.5 * w[-1] + _REACH_Z, _STEP_Z)
    below = ndtr(z)
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    weights = _STEP_Z * k * density * below ** (k - 1)
    logs = np.empty_like(w)
    for place, shift in enumerate(w):
        with np.errstate(divide="ignore"):
            missed = -np.expm1((k - 1) * np.log1p(-ndtr(z - shift) / below))
        logs[place] = math.log(float((weights * missed).sum()))
    return make_interp_spline(w, logs, k=7)
