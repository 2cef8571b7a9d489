"""Upper tail of the studentized range, with relative accuracy, for many values at once."""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.inference.pairwise.studentized import (
    UNDERFLOW,
    Tail,
    studentized_isf,
    studentized_sf,
)

_STEP_Z, _REACH_Z = 1.0 / 16.0, 8.5
_STEP_W, _LARGEST_W = 1.0 / 32.0, 52.0
"""Beyond so many standard deviations the probability of a range underflows."""


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
    S(w) = k ∫ φ(z) {Φ(z)ᵏ⁻¹ − [Φ(z) − Φ(z − w)]ᵏ⁻¹} dz is the probability that the range exceeds
    w. The difference of powers is computed without cancellation, so that small probabilities have
    their leading digits; :func:`~vcomp.inference.pairwise.studentized.studentized_sf` divides by
    the root of the mean square.

    References
    ----------
    Tukey, J. W. (1953). *The problem of multiple comparisons*. Princeton University.

    Examples
    --------
    >>> studentized_range_sf(np.array([3.5, 20.0]), 3, 20.0).round(6)
    array([0.055892, 0.      ])
    """
    return studentized_sf(q, df, range_of_normals(k))


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
    return studentized_isf(p, df, range_of_normals(k))


def range_of_normals(k: int) -> Tail:
    """Return the distribution of the range of k independent standard normal variables.

    Parameters
    ----------
    k : number of variables, at least 2
    """
    return Tail(partial(_log_range_sf, k=k), 0.5)


def _log_range_sf(w: FloatArray, k: int) -> FloatArray:
    """Return log S(w), of a range of k standard normal variables."""
    found: FloatArray = _spline(k)(np.minimum(w, _LARGEST_W))
    inside: FloatArray = np.minimum(found, 0.0)
    inside[w > _LARGEST_W] = UNDERFLOW
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
