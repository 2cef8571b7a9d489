"""Tails of the largest statistic of many: Tukey's range, Dunnett's maximum, correlated estimates.

scipy's functions for the studentized range (Tukey) and the largest of correlated t (Dunnett) have
absolute accuracy and take milliseconds a value. Those here have relative accuracy, so that small
p-values have their leading digits, and serve many values at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from vcomp._typing import FloatArray, LongArray

_STEP_U, _STEPS_A_WIDTH = 0.1, 0.6
_DECAY = 40.0
"""exp(-40) is lost in the last digit."""

_UNDERFLOW = -2000.0
"""Logarithm below which a number is zero in double precision."""

_LARGEST_LOG = 300.0
"""Logarithm of the largest critical value: its square is a number."""

_LEAST_DEGREES = 0.005
"""Degrees of freedom below which probabilities are those of as many: they are near 1, and the
integrand is as wide as the reciprocal of the degrees of freedom."""

_AT_ONCE = 2**18

_LAST_STEP = 1e-13
"""Step of the logarithm of a critical value that is lost in its digits."""

_STEP_OF_MANY = 0.05
"""Step of log w for tails of many variables, which fall more steeply than those of one."""

_STEP_W = 1.0 / 32.0
_LARGEST_RANGE, LARGEST_MAXIMUM = 52.0, 37.0
"""Standard deviations beyond which the probabilities of normal variables underflow."""

_STEP_Z, _REACH_Z = 1.0 / 16.0, 8.5
_STEPS_A_SPREAD = 8.0
_NARROWEST = 1.0 / 256.0
"""A correlation that is closer to 1 than its square is treated as that close."""

_ALIKE = 1e-8
"""Error up to which correlations are products of loadings: the rounding of covariances."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The upper tail of a statistic of standard normal variables.

    Attributes
    ----------
    log_sf : returns log S(w), the logarithm of the probability that the statistic exceeds w > 0
    rate : S(w) falls about as exp(−rate w²/2)
    step : largest step of log w in which S is smooth
    """

    log_sf: Callable[[FloatArray], FloatArray]
    rate: float
    step: float = math.inf


Pairs: TypeAlias = tuple[LongArray, LongArray]
"""The first and the second level of each pair."""


def studentized_sf(q: FloatArray, df: Any, tail: Tail) -> FloatArray:
    """Return the probability that a statistic, divided by the root of a mean square, exceeds q.

    Parameters
    ----------
    q : (m,) values, at least 0; infinity has probability 0
    df : degrees of freedom of the mean squares, one number or (m,); positive, may be infinite
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
    degrees = np.broadcast_to(np.asarray(df, dtype=float), values.shape)
    out = np.where(values > 0.0, 0.0, 1.0)
    inside = np.isfinite(values) & (values > 0.0)
    out[inside] = np.exp(_log_sf(values[inside], degrees[inside], tail))
    return out


def studentized_isf(p: float, df: Any, tail: Tail) -> Any:
    """Return the values that a statistic, divided by the root of a mean square, exceeds with p.

    Parameters
    ----------
    p : between 0 and 1
    df, tail : as for :func:`studentized_sf`

    Returns
    -------
    a number, or (m,) numbers for as many degrees of freedom; ∞ where they would exceed 1e130, as
    with less than a hundredth of a degree of freedom
    """
    degrees, log_p = np.atleast_1d(np.asarray(df, dtype=float)), math.log(p)

    def excess(log_q: FloatArray, of: LongArray) -> FloatArray:
        return _log_sf(np.exp(log_q), degrees[of], tail) - log_p

    every = np.arange(degrees.size)
    low, high = np.full(degrees.size, -1.0), np.ones(degrees.size)
    while (wrong := excess(low, every) < 0.0).any():
        low -= wrong
    while (wrong := excess(high, every) > 0.0).any() and high.max() < _LARGEST_LOG:
        high = np.where(wrong, np.minimum(2.0 * high, _LARGEST_LOG), high)
    found = np.full(degrees.size, np.inf)
    found[~wrong] = np.exp(_roots(excess, low, high, np.flatnonzero(~wrong)))
    return found.reshape(np.shape(df))[()]


def _roots(
    f: Callable[[FloatArray, LongArray], FloatArray],
    low: FloatArray,
    high: FloatArray,
    numbers: LongArray,
) -> FloatArray:
    """Return the roots of decreasing functions between two places, by the Illinois algorithm.

    Parameters
    ----------
    f : returns the values of some of the functions, given by their numbers
    low, high : (m,) places, of all functions
    numbers : (n,) of the functions whose roots are returned

    References
    ----------
    Dowell, M. and Jarratt, P. (1971). A modified regula falsi method. *BIT*, 11, 168-174.
    """
    roots, of, low, high = np.empty(low.size), numbers, low[numbers], high[numbers]
    f_low, f_high, x, last = f(low, of), f(high, of), low, np.zeros(low.size)
    while of.size:
        before = x
        x = (low * f_high - high * f_low) / (f_high - f_low)
        x = np.clip(x, low, high)
        value = f(x, of)
        is_low = value > 0.0
        # An end that stays twice counts half, so that the other one comes near the root, too.
        f_high = np.where(is_low, np.where(last > 0.0, 0.5, 1.0) * f_high, value)
        f_low = np.where(is_low, value, np.where(last < 0.0, 0.5, 1.0) * f_low)
        low, high = np.where(is_low, x, low), np.where(is_low, high, x)
        last = np.where(is_low, 1.0, -1.0)
        near = np.minimum(np.abs(x - before), high - low) <= _LAST_STEP
        near |= value == 0.0
        roots[of[near]] = x[near]
        of = of[~near]
        low, high, f_low, f_high, x, last = (a[~near] for a in (low, high, f_low, f_high, x, last))
    return roots[numbers]


def _log_sf(q: FloatArray, df: FloatArray, tail: Tail) -> FloatArray:
    """Return log P of positive and finite values, with their degrees of freedom."""
    df = np.maximum(df, _LEAST_DEGREES)
    out, is_known = np.empty_like(q), np.isinf(df)
    out[is_known] = tail.log_sf(q[is_known])
    left = np.flatnonzero(~is_known)
    left = left[np.argsort(df[left], kind="stable")]
    # With up to twice as many degrees of freedom, values share the places of the integrand.
    while left.size:
        least = float(df[left[0]])
        n = int(np.searchsorted(df[left], 2.0 * least, side="right"))
        step = min(_STEP_U, _STEPS_A_WIDTH / math.sqrt(2.0 * float(df[left[n - 1]])), tail.step)
        order = left[:n][np.argsort(q[left[:n]])]
        few = max(1, _AT_ONCE // _places(float(q[order[-1]]), least, step, tail.rate).size)
        for at in range(0, n, few):
            own = order[at : at + few]
            part = q[own]
            u = _places(float(part[-1]), least, step, tail.rate)
            terms = _log_density(u, df[own, None]) + tail.log_sf(np.outer(part, np.exp(u)))
            top = np.maximum(terms.max(axis=1), _UNDERFLOW)
            sums = np.exp(terms - top[:, None]).sum(axis=1)
            out[own] = top + np.log(step * np.maximum(sums, 1.0))
        left = left[n:]
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


def _log_density(u: FloatArray, df: FloatArray) -> FloatArray:
    """Return the log density (m, l) of u = log s, where df s² has a χ² distribution.

    Parameters
    ----------
    u : (l,) places
    df : (m, 1) degrees of freedom
    """
    from scipy.special import gammaln

    constant = math.log(2.0) + 0.5 * df * np.log(0.5 * df) - gammaln(0.5 * df)
    return np.asarray(constant + df * (u - 0.5 * np.exp(2.0 * u)))


def interpolated(
    w: FloatArray, logs: FloatArray, largest: float, degree: int = 7
) -> Callable[[FloatArray], FloatArray]:
    """Return a spline of log S(w) up to the largest w that does not underflow.

    Parameters
    ----------
    w, logs : knots, increasing, and log S there
    largest : of the w
    degree : of the spline
    """
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
    return Tail(interpolated(w, logs, _LARGEST_RANGE), 0.5, _STEP_OF_MANY)


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
    w = np.arange(0.0, LARGEST_MAXIMUM + 0.5 * _STEP_W, _STEP_W)
    # The integrand is even; for large w it has its maximum at z = l w.
    z = np.arange(0.0, float(loadings.max()) * LARGEST_MAXIMUM + _REACH_Z, step)
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
    return Tail(interpolated(w, logs, LARGEST_MAXIMUM), 1.0, _STEP_OF_MANY)


# Correlated estimates, and which level is the best -----------------------------------------------

_KNOTS = np.concatenate([np.arange(0.0, 6.0, 0.25), np.arange(6.0, LARGEST_MAXIMUM + 0.5)])
"""Values of w between which a probability is interpolated."""

_POINTS_OF_EACH, _FEWEST = 2**13, 2**10
"""Points for each of few variables, and least number of points for all."""

_MOST_VALUES, _VALUES_AT_ONCE = 2**21, 2**20
"""Points × variables, of all and at once."""

_SCRAMBLES, _DRAWS, _FEWEST_DRAWS = 8, 2**13, 2**9
"""Independent sets of points, whose differences give an error; most and fewest points of each."""

_MOST_DEGREES = 1e10
"""Degrees of freedom from which on a variance is as if known."""


def root_of_differences(variances: FloatArray) -> FloatArray:
    """Return R with R R' the covariance of differences to the first level.

    Parameters
    ----------
    variances : (k, k) of the differences between levels, symmetric, 0 on the diagonal

    Returns
    -------
    (k, k − 1) array
        Its first row is 0. The variance of the difference of levels i and j is that of
        (R_i − R_j) z with z standard normal.

    Examples
    --------
    >>> R = root_of_differences(np.array([[0.0, 2.0, 5.0], [2.0, 0.0, 5.0], [5.0, 5.0, 0.0]]))
    >>> round(float(np.square(R[1] - R[2]).sum()), 12)
    5.0
    """
    own = variances[0]
    cov = 0.5 * (own[1:, None] + own[None, 1:] - variances[1:, 1:])
    return root_of_covariance(cov)


def root_of_covariance(covariance: FloatArray) -> FloatArray:
    """Return R with R R' a covariance matrix below a row of zeros, of the level they are from.

    Parameters
    ----------
    covariance : (k − 1, k − 1) of differences to one level
    """
    try:
        # Vectors of equal eigenvalues are arbitrary, and numerical errors with them.
        root = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(np.vstack([np.zeros(len(root)), root]))


def maximum_of_correlated(loadings: FloatArray) -> Tail:
    """Return the tail of the largest of |Z_i|, standard normal with any correlations.

    Parameters
    ----------
    loadings : (m, r) rows of length 1: Z = loadings @ z with z standard normal

    Notes
    -----
    With N the number of |Z_j| above w,

    S(w) = Σ_i P(|Z_i| > w) E(1/N given Z_i > w),

    whose relative error does not grow with w (Adler, Blanchet and Liu, 2012). The expectations are
    averages over scrambled Sobol points, the same at every call: about three digits are right, two
    of thousands of variables.

    References
    ----------
    Adler, R. J., Blanchet, J. H. and Liu, J. (2012). Efficient Monte Carlo for high excursions of
    Gaussian random fields. *Annals of Applied Probability*, 22, 1167-1214.
    """
    from scipy.special import log_ndtr, ndtri, ndtri_exp
    from scipy.stats import qmc

    m, r = loadings.shape
    few = np.clip(_MOST_VALUES // m, _FEWEST, _POINTS_OF_EACH * m)
    n = 2 ** int(np.log2(few))
    # seed=, as scipy 1.14 has no rng=
    points = qmc.Sobol(r + 2, seed=np.random.default_rng(0)).random(n)
    chosen = np.minimum((points[:, 1] * m).astype(np.int64), m - 1)
    beyond, log_tails = np.log1p(-points[:, 0]), log_ndtr(-_KNOTS)
    normal = ndtri(np.maximum(points[:, 2:], 1e-300))
    shares = np.zeros(_KNOTS.size)
    block = max(1, _VALUES_AT_ONCE // m)
    for at in range(0, n, block):
        own, z = loadings[chosen[at : at + block]], normal[at : at + block]
        apart = (z - (z * own).sum(axis=1)[:, None] * own) @ loadings.T
        along = own @ loadings.T
        for place, (w, log_tail) in enumerate(zip(_KNOTS, log_tails, strict=True)):
            size = -ndtri_exp(beyond[at : at + block] + log_tail)
            above = (np.abs(apart + size[:, None] * along) > w).sum(axis=1)
            shares[place] += float((1.0 / np.maximum(above, 1)).sum())
    logs = np.log(2.0 * m * shares / n) + log_tails
    return Tail(interpolated(_KNOTS, np.minimum(logs, 0.0), LARGEST_MAXIMUM, degree=3), 1.0)


_BY_POINTS = (
    "Differences have other correlations than in balanced layouts: p-values and intervals are by "
    "quasi-Monte Carlo, to about three digits."
)


def largest_difference(
    covariance: FloatArray, std_errors: FloatArray, pairs: Pairs | None = None
) -> tuple[Tail, str]:
    """Return the tail of the largest difference in its standard errors, and a note on its digits.

    Parameters
    ----------
    covariance : of differences to one level: the baseline, or the first of all pairs
    std_errors : (m,) of the compared differences, above zero
    pairs : of levels that are compared; those with the baseline if None
    """
    root = root_of_covariance(covariance)
    if pairs is None:
        loadings = product_loadings(covariance / np.outer(std_errors, std_errors))
        if loadings is not None:
            return maximum_of_normals(loadings), ""
        rows = root[1:]
    else:
        rows = root[pairs[0]] - root[pairs[1]]
    lengths = np.sqrt(np.square(rows).sum(axis=1))
    return maximum_of_correlated(rows / lengths[:, None]), _BY_POINTS


def probabilities_of_best(
    means: FloatArray, root: FloatArray, df: float | FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the probability that each level has the largest true mean, with its error.

    It is that of a flat prior: true differences to the first level are about the estimates as t
    with their own degrees of freedom, of normal errors with the covariance of the estimates.

    Parameters
    ----------
    means : (k,) estimates
    root : (k, r) of :func:`root_of_differences`
    df : (k,) degrees of freedom of the differences to the first level, or those of all; may be
        infinite

    Returns
    -------
    (k,) and (k,) arrays
        The probabilities, averages over scrambled Sobol points, the same at every call; and the
        standard errors that other points would show.

    Examples
    --------
    >>> root = root_of_differences(np.array([[0.0, 2.0], [2.0, 0.0]]))
    >>> p, error = probabilities_of_best(np.array([1.0, 0.0]), root, np.inf)
    >>> p.round(3), bool((error < 1e-3).all())
    (array([0.76, 0.24]), True)
    """
    from scipy.interpolate import CubicSpline
    from scipy.special import gammaincinv, ndtr, ndtri
    from scipy.stats import qmc

    k, r = root.shape
    found, top = np.zeros((_SCRAMBLES, k)), int(np.argmax(means))
    distances = np.sqrt(np.square(root - root[top]).sum(axis=1))
    n = 2 ** int(np.log2(np.clip(_VALUES_AT_ONCE // k, _FEWEST_DRAWS, _DRAWS)))
    known, places = np.unique(np.minimum(df, np.full(k, _MOST_DEGREES)), return_inverse=True)
    # Each quantile of χ² is solved for, and their logarithm is smooth: nine digits.
    z = np.linspace(-9.0, 8.2, 513)
    quantiles = 2.0 * gammaincinv(0.5 * known, ndtr(z)[:, None]) / known
    log_scale = CubicSpline(z, -0.5 * np.log(np.maximum(quantiles, 1e-300)))
    for scramble in range(_SCRAMBLES):
        points = qmc.Sobol(r + 1, seed=np.random.default_rng(scramble)).random(n)
        first, drawn = np.split(ndtri(np.clip(points, 1e-300, 1.0 - 2.0**-53)), [1], axis=1)
        scales = np.exp(log_scale(np.clip(first[:, 0], z[0], z[-1])))[:, places]
        # Levels that are farther from the best estimate than any draw reaches are never the best.
        reach = np.sqrt(np.square(drawn).sum(axis=1).max()) * scales.max(axis=0)
        may = means[top] - means <= distances * reach
        values = means[may] + scales[:, may] * (drawn @ root[may].T)
        largest = values == values.max(axis=1, keepdims=True)
        found[scramble, may] = (largest / largest.sum(axis=1, keepdims=True)).mean(axis=0)
    return found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(_SCRAMBLES)
