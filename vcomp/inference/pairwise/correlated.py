"""Correlated estimates: the tail of the largest difference, and which level is the best."""

from __future__ import annotations

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.inference.pairwise.level_pairs import LARGEST_MAXIMUM, Tail, interpolated

_KNOTS = np.concatenate([np.arange(0.0, 6.0, 0.25), np.arange(6.0, LARGEST_MAXIMUM + 0.5)])
"""Values of w between which a probability is interpolated."""

_POINTS_OF_EACH, _FEWEST = 2**13, 2**10
"""Points for each of few variables, and least number of points for all."""

_MOST_VALUES, _AT_ONCE = 2**21, 2**20
"""Points × variables, of all and at once."""

_SCRAMBLES, _DRAWS, _FEWEST_DRAWS = 8, 2**13, 2**9
"""Independent sets of points, whose differences give an error; most and fewest points of each."""


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
    points = qmc.Sobol(r + 2, rng=np.random.default_rng(0)).random(n)
    chosen = np.minimum((points[:, 1] * m).astype(np.int64), m - 1)
    beyond, log_tails = np.log1p(-points[:, 0]), log_ndtr(-_KNOTS)
    normal = ndtri(np.maximum(points[:, 2:], 1e-300))
    shares = np.zeros(_KNOTS.size)
    block = max(1, _AT_ONCE // m)
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


def probabilities_of_best(
    means: FloatArray, root: FloatArray, df: float
) -> tuple[FloatArray, FloatArray]:
    """Return the probability that each level has the largest true mean, with its error.

    It is that of a flat prior: true means about the estimates have the multivariate t distribution
    of their errors.

    Parameters
    ----------
    means : (k,) estimates
    root : (k, r) of :func:`root_of_differences`
    df : degrees of freedom of the errors; may be infinite

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
    from scipy.special import gammaincinv, ndtri
    from scipy.stats import qmc

    k, r = root.shape
    found = np.empty((_SCRAMBLES, k))
    n = 2 ** int(np.log2(np.clip(_AT_ONCE // k, _FEWEST_DRAWS, _DRAWS)))
    for scramble in range(_SCRAMBLES):
        points = qmc.Sobol(r + 1, rng=np.random.default_rng(scramble)).random(n)
        points = np.clip(points, 1e-300, 1.0 - 2.0**-53)
        drawn = ndtri(points[:, 1:])
        if np.isfinite(df):
            drawn /= np.sqrt(2.0 * gammaincinv(0.5 * df, points[:, :1]) / df)
        best = _largest(means + drawn @ root.T)
        found[scramble] = best.mean(axis=0)
    return found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(_SCRAMBLES)


def _largest(values: FloatArray) -> FloatArray:
    """Return the share that each level has in being the largest of its row."""
    top: BoolArray = values == values.max(axis=1, keepdims=True)
    return np.asarray(top / top.sum(axis=1, keepdims=True))
