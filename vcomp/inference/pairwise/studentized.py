"""Upper tails of the studentized range (Tukey) and of the largest of correlated |t| (Dunnett).

scipy's functions for them have absolute accuracy and take milliseconds a value. Those here have
relative accuracy, so that small p-values have their leading digits, and serve many pairs at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from vcomp._typing import FloatArray

_STEP_U, _STEPS_A_WIDTH = 0.1, 0.6
_DECAY = 40.0
"""exp(-40) is lost in the last digit."""

_UNDERFLOW = -2000.0
"""Logarithm below which a number is zero in double precision."""

_AT_ONCE = 2**18

_STEP_W = 1.0 / 32.0
_LARGEST_RANGE, _LARGEST_MAXIMUM = 52.0, 37.0
"""Standard deviations beyond which the probabilities of normal variables underflow."""

_STEP_Z, _REACH_Z = 1.0 / 16.0, 8.5
_STEPS_A_SPREAD = 8.0
_NARROWEST = 1.0 / 256.0
"""A correlation that is closer to 1 than its square is treated as that close."""

_ALIKE = 1e-8
"""Error up to which correlations are products of loadings: the rounding of covariances."""

_POINTS = 2**13
_KNOTS = np.concatenate([np.arange(0.0, 6.0, 0.25), np.arange(6.0, _LARGEST_MAXIMUM + 0.5)])
"""Points at which a probability is averaged, and values of w between which it is interpolated."""


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
        top = np.maximum(terms.max(axis=1), _UNDERFLOW)
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
    return constant + df * u - 0.5 * df * np.exp(2.0 * u)


def _interpolated(
    w: FloatArray, logs: FloatArray, largest: float, degree: int = 7
) -> Callable[[FloatArray], FloatArray]:
    """Return a spline of log S(w) up to the largest w that does not underflow."""
    from scipy.interpolate import make_interp_spline

    spline = make_interp_spline(w, logs, k=degree)

    def log_sf(values: FloatArray) -> FloatArray:
        inside = np.minimum(spline(np.minimum(values, largest)), 0.0)
        return np.where(values > largest, _UNDERFLOW, inside)

    return log_sf


# Tukey: the range of independent variables ------------------------------------------------------


@lru_cache(maxsize=32)
def range_of_normals(k: int) -> Tail:
    """Return the tail of the range of k independent standard normal variables.

    For Tukey's test of all pairs of k means the studentized range is √2 |t|.

    Parameters
    ----------
    k : number of variables, at least 2

    Notes
    -----
    S(w) = k ∫ φ(z) {Φ(z)ᵏ⁻¹ − [Φ(z) − Φ(z − w)]ᵏ⁻¹} dz, where the difference of powers is computed
    without cancellation.

    References
    ----------
    Tukey, J. W. (1953). *The problem of multiple comparisons*. Princeton University.

    Examples
    --------
    >>> studentized_sf(np.array([3.5, 20.0]), 20.0, range_of_normals(3)).round(6)
    array([0.055892, 0.      ])
    """
    from scipy.special import ndtr

    w = np.arange(0.0, _LARGEST_RANGE + 8.5 * _STEP_W, _STEP_W)
    z = np.arange(-_REACH_Z, 0.5 * w[-1] + _REACH_Z, _STEP_Z)
    below = ndtr(z)
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    weights = _STEP_Z * k * density * below ** (k - 1)
    logs = np.empty_like(w)
    for place, shift in enumerate(w):
        with np.errstate(divide="ignore"):
            missed = -np.expm1((k - 1) * np.log1p(-ndtr(z - shift) / below))
        logs[place] = math.log(float((weights * missed).sum()))
    return Tail(_interpolated(w, logs, _LARGEST_RANGE), 0.5)


# Dunnett: the largest of correlated variables ----------------------------------------------------


def product_loadings(correlations: FloatArray) -> FloatArray | None:
    """Return the l of correlations ρ_ij = l_i l_j; None if they are not of this form.

    Differences of several means to one have such correlations if the errors of the means are
    independent, or equally correlated, as in balanced layouts.

    Parameters
    ----------
    correlations : (m, m)

    Examples
    --------
    >>> product_loadings(np.array([[1.0, 0.5, 0.5], [0.5, 1.0, 0.5], [0.5, 0.5, 1.0]])).round(4)
    array([0.7071, 0.7071, 0.7071])
    """
    m = len(correlations)
    if m == 1:
        return np.zeros(1)
    off = ~np.eye(m, dtype=bool)
    if m == 2:  # the largest |t| does not depend on the sign of their correlation
        return np.full(2, math.sqrt(min(abs(float(correlations[0, 1])), 1.0)))
    if not (correlations[off] > 0.0).all():
        return None
    logs = np.log(correlations)
    np.fill_diagonal(logs, 0.0)
    total = logs.sum() / (2.0 * (m - 1.0))
    loadings: FloatArray = np.exp((logs.sum(axis=1) - total) / (m - 2.0))
    error = np.abs(np.outer(loadings, loadings) - correlations)[off].max()
    return loadings if error < _ALIKE and loadings.max() <= 1.0 + _ALIKE else None


def maximum_of_normals(loadings: FloatArray) -> Tail:
    """Return the tail of the largest of |Z_i|, standard normal with correlations l_i l_j.

    Parameters
    ----------
    loadings : (m,) l, between 0 and 1

    Notes
    -----
    Given a standard normal z, the Z_i are independent about l_i z with variance 1 − l_i², so that

    S(w) = ∫ φ(z) {1 − Π [Φ((w − l_i z)/c_i) − Φ((−w − l_i z)/c_i)]} dz,  c_i² = 1 − l_i²,

    by the trapezoidal rule (Dunnett, 1955; docs/explanation/mathematics.md, eq. (11.13)).

    References
    ----------
    Dunnett, C. W. (1955). A multiple comparison procedure for comparing several treatments with a
    control. *Journal of the American Statistical Association*, 50, 1096-1121.

    Dunnett, C. W. and Sobel, M. (1955). Approximations to the probability integral and certain
    percentage points of a multivariate analogue of Student's t-distribution. *Biometrika*, 42,
    258-260.
    """
    values, counts = np.unique(np.round(loadings, 10), return_counts=True)
    key = tuple(zip(values.tolist(), counts.tolist(), strict=True))
    return _maximum_of_normals(key)


@lru_cache(maxsize=32)
def _maximum_of_normals(key: tuple[tuple[float, int], ...]) -> Tail:
    """Return the tail of the largest |Z_i| by loadings and how many variables have each."""
    from scipy.special import ndtr

    loadings, counts = (np.array(column) for column in zip(*key, strict=True))
    spreads = np.sqrt(np.maximum(1.0 - loadings**2, _NARROWEST**2))
    step = min(_STEP_Z, float(spreads.min()) / _STEPS_A_SPREAD)
    w = np.arange(0.0, _LARGEST_MAXIMUM + 0.5 * _STEP_W, _STEP_W)
    # The integrand is even; for large w it has its maximum at z = l w.
    z = np.arange(0.0, float(loadings.max()) * _LARGEST_MAXIMUM + _REACH_Z, step)
    weights = 2.0 * step * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    weights[0] *= 0.5
    logs = np.empty_like(w)
    for place, value in enumerate(w):
        none = np.zeros_like(z)
        for loading, spread, count in zip(loadings, spreads, counts, strict=True):
            out = ndtr((-value - loading * z) / spread) + ndtr((loading * z - value) / spread)
            with np.errstate(divide="ignore"):
                none += count * np.log1p(-np.minimum(out, 1.0))
        logs[place] = math.log(float((weights * -np.expm1(none)).sum()))
    return Tail(_interpolated(w, logs, _LARGEST_MAXIMUM), 1.0)


def maximum_of_correlated(correlations: FloatArray) -> Tail:
    """Return the tail of the largest of |Z_i|, standard normal with any correlations.

    Parameters
    ----------
    correlations : (m, m)

    Notes
    -----
    With N the number of |Z_j| above w,

    S(w) = Σ_i P(|Z_i| > w) E(1/N given Z_i > w),

    whose relative error does not grow with w (Adler, Blanchet and Liu, 2012). The expectations are
    averages over scrambled Sobol points, the same at every call: about three digits are right.

    References
    ----------
    Adler, R. J., Blanchet, J. H. and Liu, J. (2012). Efficient Monte Carlo for high excursions of
    Gaussian random fields. *Annals of Applied Probability*, 22, 1167-1214.
    """
    from scipy.special import log_ndtr, ndtri, ndtri_exp
    from scipy.stats import qmc

    m = len(correlations)
    points = qmc.Sobol(m, rng=np.random.default_rng(0)).random(_POINTS)
    first, others = np.log1p(-points[:, 0]), ndtri(np.maximum(points[:, 1:], 1e-300))
    log_tails, shares = log_ndtr(-_KNOTS), np.zeros(_KNOTS.size)
    beyond = [-ndtri_exp(first + log_tail) for log_tail in log_tails]
    for i in range(m):
        rest = np.delete(np.arange(m), i)
        c = correlations[rest, i]
        values, vectors = np.linalg.eigh(correlations[np.ix_(rest, rest)] - np.outer(c, c))
        apart = others @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
        for place, (w, z) in enumerate(zip(_KNOTS, beyond, strict=True)):
            above = np.abs(apart + z[:, None] * c) > w
            shares[place] += float((1.0 / (1.0 + above.sum(axis=1))).mean())
    logs = np.log(2.0 * shares) + log_tails
    return Tail(_interpolated(_KNOTS, logs, _LARGEST_MAXIMUM, degree=3), 1.0)
