"""Pairs of levels with adjusted p-values, and the tails of the largest of their statistics.

scipy's functions for the studentized range (Tukey) and the largest of correlated t (Dunnett) have
absolute accuracy and take milliseconds a value. Those here have relative accuracy, so that small
p-values have their leading digits, and serve many pairs at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.exceptions import DataError, check_one_of

if TYPE_CHECKING:
    import pandas as pd

_STEP_U, _STEPS_A_WIDTH = 0.1, 0.6
_DECAY = 40.0
"""exp(-40) is lost in the last digit."""

_UNDERFLOW = -2000.0
"""Logarithm below which a number is zero in double precision."""

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
    a number, or (m,) numbers for as many degrees of freedom
    """
    degrees, log_p = np.atleast_1d(np.asarray(df, dtype=float)), math.log(p)

    def excess(log_q: FloatArray, of: LongArray) -> FloatArray:
        return _log_sf(np.exp(log_q), degrees[of], tail) - log_p

    every = np.arange(degrees.size)
    low, high = np.full(degrees.size, -1.0), np.ones(degrees.size)
    while (wrong := excess(low, every) < 0.0).any():
        low -= wrong
    while (wrong := excess(high, every) > 0.0).any():
        high += wrong
    return np.exp(_roots(excess, low, high)).reshape(np.shape(df))[()]


def _roots(
    f: Callable[[FloatArray, LongArray], FloatArray], low: FloatArray, high: FloatArray
) -> FloatArray:
    """Return the roots of decreasing functions between two places, by the Illinois algorithm.

    Parameters
    ----------
    f : returns the values of some of the functions, given by their numbers
    low, high : (m,) places

    References
    ----------
    Dowell, M. and Jarratt, P. (1971). A modified regula falsi method. *BIT*, 11, 168-174.
    """
    roots, of = np.empty(low.size), np.arange(low.size)
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
    return roots


def _log_sf(q: FloatArray, df: FloatArray, tail: Tail) -> FloatArray:
    """Return log P of positive and finite values, with their degrees of freedom."""
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


Pairs: TypeAlias = tuple[LongArray, LongArray]
"""The first and the second level of each pair."""

CorrectionName: TypeAlias = Literal["none", "bonferroni", "holm", "fdr_bh", "fdr_by"]

CORRECTIONS: tuple[CorrectionName, ...] = get_args(CorrectionName)

_METHODS: Mapping[str, Any] = {"fdr_bh": "bh", "fdr_by": "by"}
"""Corrections under their names in scipy."""

_SAME_DF = 1e-9
"""Relative difference up to which degrees of freedom are equal."""


def pairs_with_baseline(n_levels: int, baseline: int) -> Pairs:
    """Return the pairs of every other level with a baseline, which is the second.

    Parameters
    ----------
    n_levels : number of levels
    baseline : place of one of them

    Examples
    --------
    >>> [of.tolist() for of in pairs_with_baseline(3, 1)]
    [[0, 2], [1, 1]]
    """
    others = np.delete(np.arange(n_levels), baseline)
    return others, np.full(others.size, baseline)


def simultaneous(
    values: FloatArray, df: FloatArray, tail: Tail, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return p-values and critical values of statistics of all pairs at once.

    Parameters
    ----------
    values : (m,) statistics, such as √2 |t| for Tukey's test
    df : (m,) degrees of freedom of their standard errors; ∞, or nan, for the normal distribution
    tail : of the largest of the statistics, with errors that are known
    alpha : level of the critical values

    Returns
    -------
    (m,) and (m,) arrays
    """
    degrees = np.where(np.isnan(df), np.inf, df)
    order = np.argsort(degrees, kind="stable")
    in_order = degrees[order]
    with np.errstate(invalid="ignore"):
        is_other = np.append(True, np.diff(in_order) > _SAME_DF * in_order[:-1])[: order.size]
    distinct, number = in_order[is_other], np.cumsum(is_other) - 1
    p, critical = np.empty(values.size), np.empty(values.size)
    p[order] = studentized_sf(values[order], distinct[number], tail)
    critical[order] = studentized_isf(alpha, distinct, tail)[number]
    return p, critical


def adjusted(p_values: FloatArray, correction: CorrectionName) -> FloatArray:
    """Return p-values adjusted for testing all of them.

    A hypothesis is rejected at level α if its adjusted p-value is at most α. Bonferroni and Holm
    then bound the probability of any false rejection by α (the family-wise error rate), Benjamini
    and Hochberg the expected share of rejections that are false (the false discovery rate), if
    p-values are independent or positively dependent; Benjamini and Yekutieli always.

    Parameters
    ----------
    p_values : (m,) of the family
    correction : ``"none"``, ``"bonferroni"``, ``"holm"``, ``"fdr_bh"`` (Benjamini and Hochberg) or
        ``"fdr_by"`` (Benjamini and Yekutieli), as statsmodels' ``multipletests`` calls them

    Returns
    -------
    (m,) array

    Raises
    ------
    PlanError
        If `correction` is not one of these.
    DataError
        If a p-value is not between 0 and 1.

    References
    ----------
    Holm, S. (1979). A simple sequentially rejective multiple test procedure. *Scandinavian Journal
    of Statistics*, 6, 65-70.

    Benjamini, Y. and Hochberg, Y. (1995). Controlling the false discovery rate: a practical and
    powerful approach to multiple testing. *Journal of the Royal Statistical Society B*, 57,
    289-300.

    Benjamini, Y. and Yekutieli, D. (2001). The control of the false discovery rate in multiple
    testing under dependency. *Annals of Statistics*, 29, 1165-1188.

    Examples
    --------
    >>> adjusted(np.array([0.01, 0.04, 0.03]), "holm").round(4).tolist()
    [0.03, 0.06, 0.06]
    >>> adjusted(np.array([0.01, 0.04, 0.03]), "fdr_bh").round(4).tolist()
    [0.03, 0.04, 0.04]
    """
    check_one_of("correction", correction, CORRECTIONS)
    p = np.asarray(p_values, dtype=float)
    if not ((p >= 0.0) & (p <= 1.0)).all():
        raise DataError("p-values must be between 0 and 1, and none may be missing")
    if correction == "none":
        return p.copy()
    if correction == "bonferroni":
        return np.asarray(np.minimum(p.size * p, 1.0))
    if correction != "holm":
        from scipy.stats import false_discovery_control  # deferred for start-up time

        return np.asarray(false_discovery_control(p, method=_METHODS[correction]))
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    holm = np.empty_like(p)
    holm[order] = np.minimum(stepped, 1.0)
    return holm


def by_level(p_values: FloatArray, alpha: float) -> BoolArray:
    """Return which pairs differ in the family of each level alone, by Holm's method.

    Parameters
    ----------
    p_values : (k, k) of all pairs, symmetric; the diagonal is not read
    alpha : family-wise level of the k − 1 pairs of each level

    Returns
    -------
    (k, k) array
        Row j has the decisions on the pairs of level j: not symmetric.
    """
    others = ~np.eye(len(p_values), dtype=bool)
    found = np.zeros_like(others)
    for level, of in enumerate(others):
        p = adjusted(p_values[level, of], "holm")
        found[level, of] = display.snapped(p, alpha) <= alpha
    return found


def equivalence_p(
    difference: FloatArray, std_error: FloatArray, df: FloatArray, margin: float
) -> FloatArray:
    """Return the larger p-value of the two one-sided tests that |difference| < margin.

    Parameters
    ----------
    difference, std_error, df : (m,) of each pair; df ∞, or nan, for the normal distribution
    margin : positive

    References
    ----------
    Schuirmann, D. J. (1987). A comparison of the two one-sided tests procedure and the power
    approach for assessing the equivalence of average bioavailability. *Journal of
    Pharmacokinetics and Biopharmaceutics*, 15, 657-680.

    Examples
    --------
    >>> equivalence_p(np.array([0.5]), np.array([1.0]), np.array([np.inf]), 2.0).round(4)
    array([0.0668])
    """
    return one_sided_p(margin - np.abs(difference), std_error, df)


def two_sided_p(difference: FloatArray, std_error: FloatArray, df: FloatArray) -> FloatArray:
    """Return the p-value of the t-test of each pair for itself.

    Parameters
    ----------
    difference, std_error, df : (m,) of each pair; df ∞, or nan, for the normal distribution

    Examples
    --------
    >>> two_sided_p(np.array([1.0]), np.array([1.0]), np.array([2.0])).round(4)
    array([0.4226])
    """
    return np.minimum(1.0, 2.0 * one_sided_p(np.abs(difference), std_error, df))


def one_sided_p(room: FloatArray, std_error: FloatArray, df: FloatArray) -> FloatArray:
    """Return the probability of a larger t than room/std_error, where there is no error 0 or 1.

    Parameters
    ----------
    room, std_error, df : of the same shape; df ∞, or nan, for the normal distribution

    Examples
    --------
    >>> one_sided_p(np.array([1.5]), np.array([1.0]), np.array([np.inf])).round(4)
    array([0.0668])
    """
    from scipy.special import ndtr, stdtr

    unreached = np.where(room > 0.0, np.inf, -np.inf)
    distance = np.divide(room, std_error, out=unreached, where=std_error > 0.0)
    degrees = np.where(np.isnan(df), np.inf, df)
    exact = np.isfinite(degrees)
    p = ndtr(-distance)
    p[exact] = stdtr(degrees[exact], -distance[exact])
    return np.asarray(p)


def pairs_table(
    names: Sequence[Any],
    pairs: Pairs,
    counts: Mapping[str, LongArray],
    tests: Mapping[str, FloatArray],
    correction: CorrectionName | None,
    alpha: float,
) -> pd.DataFrame:
    """Return the table of a :class:`PairwiseComparisons`.

    Parameters
    ----------
    names : of the levels
    pairs : that were compared
    counts : numbers of observations of each pair, such as ``n_topics``
    tests : ``difference``, ``statistic``, ``p_value``, ``low`` and ``high`` of each pair;
        ``std_error`` and ``df`` if the test has them
    correction : of the p-values; None if they are of all pairs at once
    alpha : level of significance
    """
    import pandas as pd

    labels = np.empty(len(names), dtype=object)
    labels[:] = list(names)
    p = tests["p_value"]
    p_adjusted = p if correction is None else adjusted(p, correction)
    extra = {name: tests[name] for name in ("std_error", "df") if name in tests}
    return pd.DataFrame(
        {
            "first": labels[pairs[0]],
            "second": labels[pairs[1]],
            **counts,
            "difference": tests["difference"],
            **extra,
            "statistic": tests["statistic"],
            "p_value": p,
            "p_adjusted": p_adjusted,
            "significant": display.snapped(p_adjusted, alpha) <= alpha,
            "low": tests["low"],
            "high": tests["high"],
        }
    )
