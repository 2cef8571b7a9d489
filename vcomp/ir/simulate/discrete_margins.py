"""Discrete margins, for measures such as P@k and RR that only take so many values.

References
----------
Urbano, J. and Nagler, T. (2018). Stochastic simulation of test collections: evaluation scores.
*SIGIR*, 695-704. Section 3.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import ArrayLike

from vcomp._typing import FloatArray, LongArray
from vcomp.exceptions import DataError, EstimationError
from vcomp.ir.simulate.continuous_margins import beta_start
from vcomp.ir.simulate.margin import Margin, discrete

_TOLERANCE = 5.1e-5
"""Scores may be this far from a value of the support: trec_eval writes four decimals, so that 1/32
is 0.0312 and off by half a unit of the last."""

_RR_DEPTH = 1000
_NAMED = re.compile(r"(P|RR)(?:@?(\d+))?", re.IGNORECASE)


def support_of(support: ArrayLike | str) -> FloatArray:
    """Return the values that a measure may take, in ascending order.

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
    """Return the place of each score in the support; -1 where a score is not in it."""
    right = np.clip(np.searchsorted(support, x), 1, support.size - 1)
    places = np.where(x - support[right - 1] <= support[right] - x, right - 1, right)
    places[np.abs(support[places] - x) > _TOLERANCE] = -1
    return np.asarray(places, dtype=np.int64)


def beta_binomial_margin(places: LongArray, support: FloatArray) -> Margin:
    """Return the Beta-binomial distribution of maximum likelihood.

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
    start = np.log(np.maximum(beta_start(min(max(mean, 1e-3), 1.0 - 1e-3), spread), 1e-3))
    found = minimize(
        lambda at: -float(counts @ logs(at)) / counts.sum(),
        start,
        method="L-BFGS-B",
        bounds=[(-12.0, 12.0)] * 2,
        options={"ftol": 1e-15, "gtol": 1e-9},
    )
    if not np.isfinite(found.fun):
        raise EstimationError("a margin 'beta_binomial' could not be fitted")
    a, b = np.exp(found.x)
    likelihood = float(counts @ logs(found.x))
    shapes = {"a": float(a), "b": float(b)}
    return discrete("beta_binomial", support, np.exp(logs(found.x)), shapes, likelihood, 2.0)


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
    """Return the width of geometric kernels that least-squares cross-validation selects.

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

    # The loss may have several valleys: look everywhere, then closely at the lowest.
    tried = np.linspace(0.0, 1.0, 51)
    losses = [loss(w) for w in tried]
    best = int(np.argmin(losses))
    bracket = tried[max(best - 1, 0)], tried[min(best + 1, tried.size - 1)]
    found = minimize_scalar(loss, bounds=bracket, method="bounded", options={"xatol": 1e-10})
    return float(found.x if found.fun < losses[best] else tried[best])


def _apart(size: int, seen: LongArray) -> LongArray:
    """Return how many places lie between each value of the support and each that was seen."""
    return np.asarray(np.abs(np.subtract.outer(np.arange(size), seen)), dtype=np.int64)


def _geometric(apart: LongArray, width: float) -> FloatArray:
    kernels = 0.5 * (1.0 - width) * width ** apart.astype(float)
    return np.where(apart == 0, 1.0 - width, kernels)
