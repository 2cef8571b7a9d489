"""Upper tails of statistics of normal variables that are divided by the root of a mean square."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray

_STEP_U, _STEPS_A_WIDTH = 0.1, 0.6
_DECAY = 40.0
"""exp(-40) is lost in the last digit."""

UNDERFLOW = -2000.0
"""Logarithm of what is zero in double precision."""

_AT_ONCE = 2**18


@dataclass(frozen=True, slots=True)
class Tail:
    """The upper tail of a statistic of standard normal variables.

    Attributes
    ----------
    log_sf : returns log S(w), the logarithm of the probability that the statistic exceeds w > 0
    rate : S(w) falls about as exp(−rate w²/2)
    """

    log_sf: Callable[[FloatArray], FloatArray]
    rate: float


def studentized_sf(q: FloatArray, df: float, tail: Tail) -> FloatArray:
    """Return the probability that a statistic, divided by the root of a mean square, exceeds q.

    Parameters
    ----------
    q : (m,) values, at least 0; infinity has probability 0
    df : degrees of freedom of the mean square, positive; may be infinite
    tail : of the statistic

    Returns
    -------
    (m,) array

    Notes
    -----
    P = ∫ f(s) S(qs) ds, where f is the density of the root of the mean square. The integrand falls
    off as a double exponential or a normal density, so that the trapezoidal rule over log s
    converges exponentially.
    """
    values = np.asarray(q, dtype=float)
    out = np.where(values > 0.0, 0.0, 1.0)
    inside = np.isfinite(values) & (values > 0.0)
    out[inside] = np.exp(_log_sf(values[inside], df, tail))
    return out


def studentized_isf(p: float, df: float, tail: Tail) -> float:
    """Return the value that a statistic, divided by the root of a mean square, exceeds with p.

    Parameters
    ----------
    p : between 0 and 1
    df, tail : as for :func:`studentized_sf`
    """
    from scipy.optimize import brentq

    def excess(log_q: float) -> float:
        return float(_log_sf(np.array([math.exp(log_q)]), df, tail)[0]) - math.log(p)

    low, high = -1.0, 1.0
    while excess(low) < 0.0:
        low -= 1.0
    while excess(high) > 0.0:
        high += 1.0
    return math.exp(float(brentq(excess, low, high, xtol=1e-13, rtol=1e-14)))


def _log_sf(q: FloatArray, df: float, tail: Tail) -> FloatArray:
    """Return log P of positive and finite values."""
    if math.isinf(df):
        return tail.log_sf(q)
    made = [np.empty(0)]
    step = min(_STEP_U, _STEPS_A_WIDTH / math.sqrt(2.0 * df))
    order = np.argsort(q)
    largest = float(q.max(initial=1.0))
    few = max(1, _AT_ONCE // _places(largest, df, step, tail.rate).size)
    for at in range(0, q.size, few):
        part = q[order[at : at + few]]
        u = _places(float(part[-1]), df, step, tail.rate)
        terms = _log_density(u, df) + tail.log_sf(np.outer(part, np.exp(u)))
        top = np.maximum(terms.max(axis=1), UNDERFLOW)
        sums = np.exp(terms - top[:, None]).sum(axis=1)
        made.append(top + np.log(step * np.maximum(sums, 1.0)))
    out = np.empty_like(q)
    out[order] = np.concatenate(made)
    np.minimum(out, 0.0, out=out)
    return out


def _places(largest: float, df: float, step: float, rate: float) -> FloatArray:
    """Return where log s is evaluated: wherever the integrand is not negligible for some q.

    With S(qs) about exp(-rate q²s²/2) the integrand has its maximum at s² = df/(df + rate q²),
    with S = 1 at s = 1; to the left it falls as s to the power df, to the right faster than a
    normal density.
    """
    narrow = _DECAY / df
    peak = -math.log(math.hypot(1.0, largest * math.sqrt(rate / df)))
    left = peak - math.sqrt(narrow) - narrow
    right = min(math.sqrt(narrow), 0.5 * math.log(4.0 * narrow + 4.0))
    steps = np.arange(math.floor(left / step), math.ceil(right / step) + 1)
    return steps.astype(float) * step


def _log_density(u: FloatArray, df: float) -> FloatArray:
    """Return the log density of u = log s, where df s² has a χ² distribution."""
    constant = math.log(2.0) + 0.5 * df * math.log(0.5 * df) - math.lgamma(0.5 * df)
    density: FloatArray = constant + df * u - 0.5 * df * np.exp(2.0 * u)
    return density
