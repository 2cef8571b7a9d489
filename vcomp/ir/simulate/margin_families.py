"""Families of margins and their fits: normal and kernel for effects, those of simIReff for scores.

References
----------
Urbano, J. and Nagler, T. (2018). Stochastic simulation of test collections: evaluation scores.
*SIGIR*, 695-704. Section 3.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import factorial, gamma, pi, sqrt

import numpy as np
from numpy.typing import ArrayLike

from vcomp._typing import FloatArray, LongArray
from vcomp.exceptions import DataError, EstimationError, PlanError
from vcomp.ir.simulate.margin import GRID, Margin, continuous, discrete

_NORMAL_IQR = 1.3489795003921634
"""Interquartile range of the standard normal distribution."""

_BLOCK = 2**20

_MOST_LOG = 12.0
"""Bound of the absolute log shapes of Beta distributions."""

_LOG_SIZE = _MOST_LOG + np.log(2.0)
"""Log of the sum of Beta shapes that approximates the limit of large shapes, the binomial."""

_FLAT = 1e-8
"""Gain in log-likelihood per score for a maximum to differ from the limit: logs of Beta functions
of such shapes, of size 1e6, are rounded to 1e-10."""


def cdf_bandwidth(x: FloatArray) -> float:
    """Return the width of normal kernels for the distribution function of a sample.

    The plug-in rule of Polansky and Baker (2000), in two stages from a normal reference: the
    default of ``ks::kcde``, and so of Urbano (2016); eq. 16.3 of the mathematics.

    Parameters
    ----------
    x : (n,) sample, not constant

    References
    ----------
    Polansky, A. M. and Baker, E. R. (2000). *Journal of Statistical Computation and Simulation*,
    65(1-4), 63-80.

    Examples
    --------
    >>> round(cdf_bandwidth(np.array([0.1, 0.2, 0.4, 0.9])), 4)
    0.3471
    """
    n = x.size
    g4 = _pilot(4, _normal_functional(6, float(x.std(ddof=1))), n)
    g2 = _pilot(2, _functional(x, g4, 4), n)
    return float((-1.0 / (sqrt(pi) * _functional(x, g2, 2) * n)) ** (1.0 / 3.0))


def density_bandwidth(x: FloatArray) -> float:
    """Return the width of normal kernels for the density of a sample.

    The direct plug-in rule of Sheather and Jones (1991) in two stages, as in Wand and Jones
    (1995, p. 72): the default of ``ks::kde``, and so of simIReff.

    Parameters
    ----------
    x : (n,) sample, not constant

    References
    ----------
    Wand, M. P. and Jones, M. C. (1995). *Kernel Smoothing*. Chapman and Hall.

    Examples
    --------
    >>> round(density_bandwidth(np.array([0.1, 0.2, 0.4, 0.9])), 4)
    0.1836
    """
    n, scale = x.size, float(x.std(ddof=1))
    low, high = np.quantile(x, [0.25, 0.75])
    if high > low:
        scale = min(scale, float(high - low) / _NORMAL_IQR)
    g6 = _pilot(6, _normal_functional(8, scale), n)
    g4 = _pilot(4, _functional(x, g6, 6), n)
    return float((1.0 / (2.0 * sqrt(pi) * _functional(x, g4, 4) * n)) ** 0.2)


def _normal_functional(order: int, scale: float) -> float:
    """Return ψ_r of a normal distribution (Wand and Jones, 1995, eq. 3.7)."""
    half = order // 2
    sign = -1.0 if half % 2 else 1.0
    return sign * factorial(order) / ((2.0 * scale) ** (order + 1) * factorial(half) * sqrt(pi))


def _pilot(order: int, functional: float, n: int) -> float:
    """Return the optimal width for estimating ψ_r, given ψ_{r+2} (Wand and Jones, 1995, p. 70)."""
    at_zero = (-2.0) ** (order / 2) * gamma((order + 1) / 2) / (sqrt(2.0) * pi)
    return float((-2.0 * at_zero / (functional * n)) ** (1.0 / (order + 3)))


def _functional(x: FloatArray, g: float, order: int) -> float:
    """Return the kernel estimate of ψ_r, with pairs of a point with itself."""
    total = 0.0
    step = max(1, _BLOCK // x.size)
    for at in range(0, x.size, step):
        u2 = ((x[at : at + step, None] - x) / g) ** 2
        hermite = {
            2: u2 - 1.0,
            4: u2**2 - 6.0 * u2 + 3.0,
            6: u2**3 - 15.0 * u2**2 + 45.0 * u2 - 15.0,
        }[order]
        total += float((hermite * np.exp(-0.5 * u2)).sum())
    return total / (sqrt(2.0 * pi) * g ** (order + 1) * x.size**2)


_EDGE = 1e-6
"""Least distance of scores from 0 and 1, where densities may be infinite, as in simIReff."""

_LEAST_SD, _MOST_SD = 0.05, 10.0
"""Smallest (as in simIReff) and largest σ of a truncated normal."""

_FARTHEST = 10.0
"""Largest distance of μ of a truncated normal from the scores."""

_BETA_POINTS = 1024


def normal_margin(x: FloatArray) -> Margin:
    """Return the normal distribution with mean zero and the variance of centred effects."""
    sd = float(x.std(ddof=1))
    return continuous("normal", sd * GRID, {"sd": sd})


def kernel_margin(x: FloatArray, low: float, high: float) -> Margin:
    """Return a kernel estimate of the distribution of effects (Urbano, 2016, Algorithm 1).

    Parameters
    ----------
    x : (n,) effects
    low, high : the distribution ends there, or at the smallest or largest effect beyond
    """
    from vcomp.ir.kernels.quantile_tables import kernel_quantiles

    h = cdf_bandwidth(x)
    ends = min(low, float(x.min())), max(high, float(x.max()))
    return continuous("kernel", kernel_quantiles(np.sort(x), h, *ends, GRID), {"bandwidth": h})


def truncated_kernel_margin(x: FloatArray) -> Margin:
    """Return a kernel density of scores, cut off at 0 and 1.

    Parameters
    ----------
    x : (n,) scores between 0 and 1
    """
    from scipy.special import ndtr

    from vcomp.ir.kernels.quantile_tables import kernel_quantiles

    h = density_bandwidth(x)
    density = _normal_density((x[:, None] - x) / h).mean(axis=1) / h
    mass = float(np.mean(ndtr((1.0 - x) / h) - ndtr(-x / h)))
    return continuous(
        "truncated_kernel",
        kernel_quantiles(np.sort(x), h, 0.0, 1.0, GRID),
        {"bandwidth": h},
        float(np.log(density / mass).sum()),
        float(np.mean(_normal_density(np.zeros(1)) / h / density)),
    )


def beta_margin(x: FloatArray) -> Margin:
    """Fit a Beta distribution by maximum likelihood.

    Parameters
    ----------
    x : (n,) scores between 0 and 1, not all the same
    """
    from scipy.special import betaincinv, betaln, ndtr

    x = np.clip(x, _EDGE, 1.0 - _EDGE)
    log_x, log_rest = float(np.log(x).mean()), float(np.log1p(-x).mean())

    def negative(a: float, b: float) -> float:
        return -((a - 1.0) * log_x + (b - 1.0) * log_rest - float(betaln(a, b)))

    a, b = _maximise(negative, beta_start(float(x.mean()), float(x.var(ddof=1))), "beta")
    quantiles = np.where(
        GRID > 0, 1.0 - betaincinv(b, a, ndtr(-GRID)), betaincinv(a, b, ndtr(GRID))
    )
    shapes = {"a": a, "b": b}
    return continuous("beta", quantiles, shapes, -x.size * negative(a, b), 2.0)


def truncated_normal_margin(x: FloatArray) -> Margin:
    """Fit a normal distribution truncated to [0, 1] by maximum likelihood.

    Parameters
    ----------
    x : (n,) scores between 0 and 1, not all the same
    """
    from scipy.optimize import minimize
    from scipy.special import log_ndtr

    mean, square = float(x.mean()), float(x @ x) / x.size

    def negative(at: FloatArray) -> float:
        mu, sd = float(at[0]), float(np.exp(at[1]))
        quadratic = (square - 2.0 * mu * mean + mu * mu) / (2.0 * sd * sd)
        # The smaller tails at 0 and 1, mirrored if mu < 1/2: their difference keeps more digits.
        nearer = max(mu, 1.0 - mu)
        ends = float(log_ndtr((1.0 - nearer) / sd)), float(log_ndtr(-nearer / sd))
        mass = _log_difference(*ends)
        return quadratic + float(np.log(sd)) + 0.5 * float(np.log(2.0 * np.pi)) + mass

    start = np.array([mean, np.log(max(float(x.std(ddof=1)), _LEAST_SD))])
    bounds = [(-_FARTHEST, 1.0 + _FARTHEST), (np.log(_LEAST_SD), np.log(_MOST_SD))]
    options = {"ftol": 1e-14, "gtol": 1e-9}
    minimum = minimize(negative, start, method="L-BFGS-B", bounds=bounds, options=options)
    if not np.isfinite(minimum.fun):
        raise EstimationError("a truncated normal distribution could not be fitted")
    mu, sd = float(minimum.x[0]), float(np.exp(minimum.x[1]))
    quantiles = _truncated_quantiles(mu, sd)
    fit = {"mu": mu, "sigma": sd}
    return continuous("truncated_normal", quantiles, fit, -x.size * float(minimum.fun), 2.0)


def beta_kernel_margin(x: FloatArray) -> Margin:
    """Return a kernel density of scores with Beta kernels, whose support is [0, 1].

    The first estimator of Chen (1999), its width n^(-2/5) as in R's ``bde``, scaled to add up to
    one: the estimator of simIReff.

    Parameters
    ----------
    x : (n,) scores between 0 and 1

    References
    ----------
    Chen, S. X. (1999). Beta kernel estimators for density functions. *Computational Statistics and
    Data Analysis*, 31, 131-145.
    """
    from scipy.special import ndtr

    x = np.clip(x, _EDGE, 1.0 - _EDGE)
    width = float(x.size) ** (-0.4)
    # Cells are narrower towards 0 and 1, where the density may be steep.
    edges = 0.5 - 0.5 * np.cos(np.linspace(0.0, np.pi, _BETA_POINTS + 1))
    middles = 0.5 * (edges[1:] + edges[:-1])
    density = _beta_kernels(middles, x, width).mean(axis=1)
    masses = density * np.diff(edges)
    total = float(masses.sum())
    lower = np.concatenate([[0.0], np.cumsum(masses) / total])
    upper = np.concatenate([np.cumsum(masses[::-1])[::-1] / total, [0.0]])
    quantiles = np.where(
        GRID > 0,
        np.interp(-ndtr(-GRID), -upper, edges),
        np.interp(ndtr(GRID), lower, edges),
    )
    kernels = _beta_kernels(x, x, width)
    at_x = kernels.mean(axis=1)
    return continuous(
        "beta_kernel",
        quantiles,
        {"bandwidth": width},
        float(np.log(at_x / total).sum()),
        float(np.mean(np.diag(kernels) / at_x)),
    )


def beta_start(mean: float, variance: float) -> tuple[float, float]:
    """Return the shapes of the Beta distribution with a given mean and variance, or near these."""
    most = mean * (1.0 - mean)
    size = max(most / max(variance, 1e-12) - 1.0, 1e-2)
    return mean * size, (1.0 - mean) * size


def _maximise(
    negative: Callable[[float, float], float], start: tuple[float, float], name: str
) -> tuple[float, float]:
    """Minimise a function of two positive numbers."""
    from scipy.optimize import minimize

    minimum = minimize(
        lambda at: negative(float(np.exp(at[0])), float(np.exp(at[1]))),
        np.log(start),
        method="L-BFGS-B",
        bounds=[(-_MOST_LOG, _MOST_LOG)] * 2,
        options={"ftol": 1e-15, "gtol": 1e-9},
    )
    if not np.isfinite(minimum.fun):
        raise EstimationError(f"a margin {name!r} could not be fitted")
    return float(np.exp(minimum.x[0])), float(np.exp(minimum.x[1]))


def _truncated_quantiles(mu: float, sd: float) -> FloatArray:
    """Return the quantiles of a normal truncated to [0, 1], computed in the smaller tail."""
    from scipy.special import log_ndtr, ndtri_exp

    flip = mu > 0.5
    centre = 1.0 - mu if flip else mu  # mirror image, with the mean below one half
    z = -GRID if flip else GRID
    # P(X > t) = Φ((centre - t) / sd); between that at 1 and that at 0.
    most, least = float(log_ndtr(centre / sd)), float(log_ndtr((centre - 1.0) / sd))
    logs = np.logaddexp(most + log_ndtr(-z), least + log_ndtr(z))
    values = np.clip(centre - sd * ndtri_exp(logs), 0.0, 1.0)
    return np.asarray(1.0 - values if flip else values)


def _log_difference(larger: float, smaller: float) -> float:
    return larger + float(np.log(-np.expm1(smaller - larger)))


def _normal_density(u: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-0.5 * u * u) / np.sqrt(2.0 * np.pi))


def _beta_kernels(at: FloatArray, x: FloatArray, width: float) -> FloatArray:
    """Return the density at x of the Beta kernel of each point, (at, x)."""
    from scipy.special import betaln

    a, b = at[:, None] / width, (1.0 - at[:, None]) / width
    logs: FloatArray = a * np.log(x) + b * np.log1p(-x) - betaln(a + 1.0, b + 1.0)
    return np.asarray(np.exp(logs))


_TOLERANCE = 5.1e-5
"""Tolerance of scores for values of the support: trec_eval writes four decimals, so that 1/32
is 0.0312 and off by half a unit of the last."""

_RR_DEPTH = 1000
_NAMED = re.compile(r"(P|RR)(?:@?(\d+))?", re.IGNORECASE)


def support_of(support: ArrayLike | str) -> FloatArray:
    """Return the possible values of a measure in ascending order.

    Parameters
    ----------
    support : the values; or ``"P@20"`` for precision at a depth, ``"RR@20"`` or ``"RR"`` for the
        reciprocal rank, of the first 1000 documents where no depth is given

    Raises
    ------
    DataError
        If it is another name, or not two or more different numbers.

    Examples
    --------
    >>> support_of("P@4"), support_of("RR@3").round(3)
    (array([0.  , 0.25, 0.5 , 0.75, 1.  ]), array([0.   , 0.333, 0.5  , 1.   ]))
    """
    if isinstance(support, str):
        match = _NAMED.fullmatch(support.strip())
        depth = int(match[2] or 0) if match else 0
        if match and match[1].upper() == "P" and depth > 0:
            return np.arange(depth + 1) / depth
        if match and match[1].upper() == "RR" and (depth > 0 or match[2] is None):
            return np.concatenate([[0.0], 1.0 / np.arange(depth or _RR_DEPTH, 0, -1)])
        raise DataError(
            f"support={support!r} is not known; it is 'P@k', 'RR@k', 'RR' or the possible scores"
        )
    try:
        values = np.unique(np.asarray(support, dtype=float))
    except (TypeError, ValueError) as error:
        raise DataError(f"support holds the possible scores, as numbers: {error}") from error
    if values.size < 2 or not np.isfinite(values).all():
        raise DataError("support holds the possible scores: two or more different finite numbers")
    return values


def places_on(support: FloatArray, x: FloatArray) -> LongArray:
    """Return the place of each score in the support, or -1."""
    right = np.clip(np.searchsorted(support, x), 1, support.size - 1)
    places = np.where(x - support[right - 1] <= support[right] - x, right - 1, right)
    places[np.abs(support[places] - x) > _TOLERANCE] = -1
    return np.asarray(places, dtype=np.int64)


def beta_binomial_margin(places: LongArray, support: FloatArray) -> Margin:
    """Fit a Beta-binomial distribution by maximum likelihood.

    Scores that vary less than those of one coin have no such maximum: the likelihood rises towards
    the binomial distribution, which large shapes stand for.

    Parameters
    ----------
    places : (n,) of the scores in the support, from 0
    support : (m,) possible scores; the number of trials is m - 1
    """
    from scipy.optimize import minimize
    from scipy.special import betaln, gammaln

    m = support.size - 1
    k = np.arange(m + 1.0)
    counts = np.bincount(places, minlength=m + 1).astype(float)
    chosen = gammaln(m + 1.0) - gammaln(k + 1.0) - gammaln(m - k + 1.0)

    def logs(at: FloatArray) -> FloatArray:
        a, b = np.exp(at)
        return np.asarray(chosen + betaln(k + a, m - k + b) - betaln(a, b))

    mean = float(places.mean()) / m
    spread = float(places.var(ddof=1)) / m**2
    inner = min(max(mean, 1e-9), 1.0 - 1e-9)
    start = np.log(np.maximum(beta_start(inner, spread), 1e-9))
    minimum = minimize(
        lambda at: -float(counts @ logs(at)) / counts.sum(),
        start,
        method="L-BFGS-B",
        bounds=[(-_MOST_LOG, _MOST_LOG)] * 2,
        options={"ftol": 1e-15, "gtol": 1e-9},
    )
    if not np.isfinite(minimum.fun):
        raise EstimationError("a margin 'beta_binomial' could not be fitted")
    at, likelihood = minimum.x, float(counts @ logs(minimum.x))
    # Near its limit the likelihood is so flat that rounding determines the end of the search.
    limit = np.log([inner, 1.0 - inner]) + _LOG_SIZE
    of_limit = float(counts @ logs(limit))
    if of_limit >= likelihood - _FLAT * counts.sum():
        at, likelihood = limit, of_limit
    a, b = np.exp(at)
    shapes = {"a": float(a), "b": float(b)}
    return discrete("beta_binomial", support, np.exp(logs(at)), shapes, likelihood, 2.0)


def discrete_kernel_margin(
    places: LongArray, support: FloatArray, wider: float = 1.0, selected: float | None = None
) -> Margin:
    """Return a kernel estimate with the geometric kernels of Wang and van Ryzin (1981).

    Parameters
    ----------
    places : (n,) of the scores in the support, from 0
    support : (m,) possible scores
    wider : times the width that is selected
    selected : the width by :func:`selected_width`, where it is known

    Raises
    ------
    EstimationError
        If the width is then not below one.

    References
    ----------
    Wang, M.-C. and van Ryzin, J. (1981). A class of smooth estimators for discrete distributions.
    *Biometrika*, 68, 301-309.
    """
    width = wider * (selected_width(places, support.size) if selected is None else selected)
    if width >= 1.0:
        raise EstimationError(f"kernels {wider:g} times as wide as selected have no end")
    seen, counts = np.unique(places, return_counts=True)
    p = _geometric(_apart(support.size, seen), width) @ (counts / counts.sum())
    p /= p.sum()
    likelihood = float(counts @ np.log(p[seen]))
    df = float(counts @ ((1.0 - width) / p[seen]) / counts.sum())
    name = "discrete_kernel" if wider == 1.0 else f"discrete_kernel × {wider:g}"
    return discrete(name, support, p, {"bandwidth": width}, likelihood, df)


def selected_width(places: LongArray, size: int) -> float:
    """Select the width of geometric kernels by least-squares cross-validation.

    Parameters
    ----------
    places : (n,) of the scores in the support, from 0
    size : of the support
    """
    from scipy.optimize import minimize_scalar

    seen, counts = np.unique(places, return_counts=True)
    n = float(counts.sum())
    apart = _apart(size, seen)

    def loss(width: float) -> float:
        sums = _geometric(apart, width) @ counts
        left_out = (sums[seen] - (1.0 - width)) / (n - 1.0)
        return float(sums @ sums / n**2 - 2.0 * (counts @ left_out) / n)

    # The loss may have several minima: scan a grid, then refine the lowest.
    tried = np.linspace(0.0, 1.0, 51)
    losses = [loss(w) for w in tried]
    best = int(np.argmin(losses))
    bracket = tried[max(best - 1, 0)], tried[min(best + 1, tried.size - 1)]
    minimum = minimize_scalar(loss, bounds=bracket, method="bounded", options={"xatol": 1e-10})
    return float(minimum.x if minimum.fun < losses[best] else tried[best])


def _apart(size: int, seen: LongArray) -> LongArray:
    """Return distances, in places, between all values of the support and the observed ones."""
    return np.asarray(np.abs(np.subtract.outer(np.arange(size), seen)), dtype=np.int64)


def _geometric(apart: LongArray, width: float) -> FloatArray:
    kernels = 0.5 * (1.0 - width) * width ** apart.astype(float)
    return np.where(apart == 0, 1.0 - width, kernels)


EFFECTS = ("kernel", "normal")
"""Margins of residuals that are added to system and topic effects (Urbano, 2016)."""

CONTINUOUS: dict[str, Callable[[FloatArray], Margin]] = {
    "truncated_normal": truncated_normal_margin,
    "beta": beta_margin,
    "truncated_kernel": truncated_kernel_margin,
    "beta_kernel": beta_kernel_margin,
}
"""Continuous margins of scores between 0 and 1."""

DISCRETE: dict[str, Callable[[LongArray, FloatArray], Margin]] = {
    "beta_binomial": beta_binomial_margin,
    "discrete_kernel": discrete_kernel_margin,
}
"""Margins of scores with a finite support."""

FAMILIES = (*EFFECTS, *CONTINUOUS, *DISCRETE, "auto")

_WIDER = (2.0, 5.0, 10.0)
"""Additional factors of the kernel width that ``"auto"`` tries, as in simIReff."""


def score_margin(x: FloatArray, family: str, support: FloatArray | None, system: str) -> Margin:
    """Fit the margin of one system's scores.

    Parameters
    ----------
    x : (n,) scores between 0 and 1
    family : a continuous or discrete family; or ``"auto"``, of all that can be fitted that with
        the smallest AIC: the discrete ones if there is a support, else the continuous ones
    support : possible scores, for discrete families
    system : its name, for messages

    Raises
    ------
    DataError
        If a score is not in the support, or all scores are the same.
    PlanError
        If a discrete family has no support, or a continuous one has one.
    EstimationError
        If no family can be fitted.
    """
    if float(np.ptp(x)) == 0.0:
        raise DataError(
            f"system {system!r} scores {x[0]:g} on every topic, so that its scores have no "
            "distribution to fit; leave it out, or use margins='kernel' or 'normal'",
            level=system,
        )
    if support is None:
        if family in DISCRETE:
            raise PlanError(f"margins={family!r} needs support=, the scores that are possible")
        return _best(system, [f for name, f in CONTINUOUS.items() if family in (name, "auto")], x)
    if family in CONTINUOUS:
        raise PlanError(
            f"margins={family!r} gives any score between 0 and 1, not only those of support=; "
            "use 'beta_binomial', 'discrete_kernel' or 'auto'"
        )
    places = places_on(support, x)
    if (places < 0).any():
        raise DataError(
            f"system {system!r} has the score {x[int((places < 0).argmax())]:g}, which support= "
            "does not have",
            level=system,
        )
    if family != "auto":
        return _best(system, [_on(DISCRETE[family], support)], places)
    width = selected_width(places, support.size)
    ways = [_on(beta_binomial_margin, support)]
    ways += [_on_wider(support, wider, width) for wider in (1.0, *_WIDER)]
    return _best(system, ways, places)


def _on(fit: Callable[[LongArray, FloatArray], Margin], support: FloatArray) -> _Fit:
    return lambda places: fit(places, support)


def _on_wider(support: FloatArray, wider: float, width: float) -> _Fit:
    return lambda places: discrete_kernel_margin(places, support, wider, width)


_Fit = Callable[..., Margin]


def _best(system: str, ways: list[_Fit], x: FloatArray | LongArray) -> Margin:
    """Return the margin with the smallest AIC among those that can be fitted."""
    fitted, reasons = [], []
    for fit in ways:
        try:
            fitted.append(fit(x))
        except EstimationError as error:
            reasons.append(str(error))
    if not fitted:
        raise EstimationError(f"system {system!r}: {'; '.join(reasons)}", level=system)
    return min(fitted, key=lambda margin: margin.aic)
