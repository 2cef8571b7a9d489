"""Correlations of the normal variables behind pairs of grades.

References
----------
Olsson, U. (1979). Maximum likelihood estimation of the polychoric correlation coefficient.
*Psychometrika*, 44(4), 443-460. The two-step estimator: thresholds by the shares of grades.

Owen, D. B. (1956). Tables for computing bivariate normal probabilities. *Annals of Mathematical
Statistics*, 27(4), 1075-1090. Equation (2.1).
"""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray

_FARTHEST = 30.0
"""Thresholds are cut off here, where no probability is left."""

_HIGHEST = 1.0 - 1e-6
_HALVINGS = 60
_TINY = 1e-300


def thresholds(shares: FloatArray) -> FloatArray:
    """Return the cuts of a standard normal that give the shares of the grades.

    Parameters
    ----------
    shares : (..., m) of the grades, which add up to 1

    Returns
    -------
    numpy.ndarray
        (..., m - 1)

    Examples
    --------
    >>> thresholds(np.array([0.5, 0.4772499, 0.0227501])).round(4).tolist()
    [0.0, 2.0]
    """
    from scipy.special import ndtri

    below = np.cumsum(shares, axis=-1)[..., :-1]
    return np.asarray(np.clip(ndtri(np.minimum(below, 1.0)), -_FARTHEST, _FARTHEST))


def bivariate_normal(h: FloatArray, k: FloatArray, rho: FloatArray) -> FloatArray:
    """Return the probability that two standard normals are below h and k.

    Parameters
    ----------
    h, k : limits
    rho : correlations, between -1 and 1

    Examples
    --------
    >>> float(bivariate_normal(np.zeros(1), np.zeros(1), np.full(1, 0.5))[0])  # 1/4 + asin ρ / 2π
    0.3333333333333333
    """
    from scipy.special import ndtr, owens_t

    h = np.where(h == 0.0, _TINY, h)
    k = np.where(k == 0.0, _TINY, k)
    slope = np.sqrt((1.0 - rho) * (1.0 + rho))
    with np.errstate(over="ignore"):
        parts = owens_t(h, (k / h - rho) / slope) + owens_t(k, (h / k - rho) / slope)
    opposite = np.where(np.sign(h) == np.sign(k), 0.0, 0.5)
    return np.asarray(0.5 * (ndtr(h) + ndtr(k)) - parts - opposite)


def polychoric_correlations(tables: FloatArray, shares: FloatArray) -> FloatArray:
    """Return the correlation with the highest likelihood of each table of pairs of grades.

    Parameters
    ----------
    tables : (n, m, m) weights of pairs, symmetric
    shares : (n, m) of the grades, from which thresholds follow

    Returns
    -------
    numpy.ndarray
        (n,), nan where a table is empty

    Examples
    --------
    >>> third = np.array([[[2.0, 1.0], [1.0, 2.0]]])  # both below with probability 1/3
    >>> polychoric_correlations(third, np.array([[0.5, 0.5]])).round(9).tolist()
    [0.5]
    """
    at = thresholds(shares)
    h, k = np.broadcast_arrays(at[:, :, np.newaxis], at[:, np.newaxis, :])
    low, high = np.full(len(tables), -_HIGHEST), np.full(len(tables), _HIGHEST)
    for _ in range(_HALVINGS):
        rho = 0.5 * (low + high)
        rises = _slope(tables, h, k, rho[:, np.newaxis, np.newaxis]) > 0.0
        low, high = np.where(rises, rho, low), np.where(rises, high, rho)
    found = 0.5 * (low + high)
    return np.where(tables.sum(axis=(1, 2)) > 0.0, found, np.nan)


def _slope(tables: FloatArray, h: FloatArray, k: FloatArray, rho: FloatArray) -> FloatArray:
    """Return a multiple, above 0, of the derivative of the log likelihood by the correlation."""
    free = (1.0 - rho) * (1.0 + rho)
    density = np.exp(-0.5 * (h * h - 2.0 * rho * h * k + k * k) / free)
    cumulated = bivariate_normal(h, k, rho)
    probability = _rectangles(cumulated, _borders(h, k))
    derivative = _rectangles(density, None)
    return np.asarray((tables * derivative / np.maximum(probability, _TINY)).sum(axis=(1, 2)))


def _borders(h: FloatArray, k: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the cumulated shares of rows and columns, where the other limit is infinite."""
    from scipy.special import ndtr

    return ndtr(h[:, :, 0]), ndtr(k[:, 0, :])


def _rectangles(inner: FloatArray, borders: tuple[FloatArray, FloatArray] | None) -> FloatArray:
    """Return the differences of a function over the cells, from its values at the cuts."""
    n, m = len(inner), inner.shape[1] + 1
    padded = np.zeros((n, m + 1, m + 1))
    padded[:, 1:m, 1:m] = inner
    if borders is not None:
        padded[:, 1:m, m], padded[:, m, 1:m] = borders
        padded[:, m, m] = 1.0
    return np.diff(np.diff(padded, axis=1), axis=2)
