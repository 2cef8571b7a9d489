"""Upper tail of the largest of several correlated |t|, for Dunnett's test of a baseline."""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.inference.pairwise.studentized import UNDERFLOW, Tail

_STEP_W, _LARGEST_W = 1.0 / 32.0, 37.0
"""Beyond so many standard deviations the probability underflows."""

_REACH_Z, _STEP_Z, _STEPS_A_WIDTH = 8.5, 1.0 / 16.0, 8.0
_NARROWEST = 1.0 / 256.0
"""A correlation that is closer to 1 than its square is treated as that close."""

_ALIKE = 1e-8
"""Error up to which correlations are products of loadings: the rounding of covariances."""


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
    return Tail(partial(_log_sf, key=key), 1.0)


_POINTS = 2**13
_KNOTS = np.concatenate([np.arange(0.0, 6.0, 0.25), np.arange(6.0, _LARGEST_W + 0.5)])
"""Points at which a probability is averaged, and values of w between which it is interpolated."""


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
    from scipy.interpolate import make_interp_spline
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
    spline = make_interp_spline(_KNOTS, np.log(2.0 * shares) + log_tails, k=3)

    def log_sf(w: FloatArray) -> FloatArray:
        found: FloatArray = np.minimum(spline(np.minimum(w, _LARGEST_W)), 0.0)
        return np.where(w > _LARGEST_W, UNDERFLOW, found)

    return Tail(log_sf, 1.0)


def _log_sf(w: FloatArray, key: tuple[tuple[float, int], ...]) -> FloatArray:
    found: FloatArray = _spline(key)(np.minimum(w, _LARGEST_W))
    inside: FloatArray = np.minimum(found, 0.0)
    inside[w > _LARGEST_W] = UNDERFLOW
    return inside


@lru_cache(maxsize=32)
def _spline(key: tuple[tuple[float, int], ...]) -> Any:
    """Return a spline of log S(w) through many values of w."""
    from scipy.interpolate import make_interp_spline
    from scipy.special import ndtr

    loadings, counts = (np.array(column) for column in zip(*key, strict=True))
    spreads = np.sqrt(np.maximum(1.0 - loadings**2, _NARROWEST**2))
    step = min(_STEP_Z, float(spreads.min()) / _STEPS_A_WIDTH)
    w = np.arange(0.0, _LARGEST_W + 0.5 * _STEP_W, _STEP_W)
    # The integrand is even; for large w it has its maximum at z = l w.
    z = np.arange(0.0, float(loadings.max()) * _LARGEST_W + _REACH_Z, step)
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
    return make_interp_spline(w, logs, k=7)
