"""Generalised least squares at negative components that were kept, as by SAS with NOBOUND."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.estimate import FixedErrors
from vcomp.numerics import solve_positive
from vcomp.statistics import Statistics

_MOST_GROUPS = 2000
"""Number of groups of the terms up to which their equations are solved as a dense matrix."""

_DISTINCT = 1e-10
"""Relative absolute value of an eigenvalue below which its sign is rounding error."""


def at_negative_components(
    stats: Statistics, values: FloatArray
) -> tuple[FloatArray, FloatArray, FixedErrors] | None:
    """Return the fixed effects, their covariance matrix and its derivatives at some components.

    With D = σ²_e/σ²_t for the groups of each term, V⁻¹ = (I − Z (Z'Z + D)⁻¹ Z')/σ²_e. V is
    positive definite if, and only if, Z'Z + D has as many negative eigenvalues as D: the inertia
    of [[I, Z], [Z', −D]] by its two Schur complements (Haynsworth 1968).

    Parameters
    ----------
    stats : sums of the data
    values : (k + 1,) components, some of them negative, the residual positive

    Returns
    -------
    None if V is not positive definite, there are too many groups, or the sums were drawn by
    strata, without their cross-products
    """
    drawn = stats.strata is not None and not stats.strata.by_level
    if drawn or sum(stats.sizes) > _MOST_GROUPS:
        return None
    sums, v = stats.cross_products, values[:-1]
    used, sizes = np.flatnonzero(v), np.array(sums.sizes)
    ratios = np.repeat(values[-1] / v[used], sizes[used])
    gram = [[sums.gram(t, u).toarray() for u in range(v.size)] for t in range(v.size)]
    K = np.block([[gram[t][u] for u in used] for t in used]) + np.diag(ratios)
    eigenvalues = np.linalg.eigvalsh(K)
    if (eigenvalues < 0.0).sum() != (ratios < 0.0).sum():
        return None
    if np.abs(eigenvalues).min() < _DISTINCT * np.abs(eigenvalues).max():
        return None
    ZX = np.vstack([sums.ZX[t] for t in used])
    Zy = np.concatenate([sums.Zy[t] for t in used])
    effects = np.linalg.solve(K, np.column_stack([ZX, Zy]))
    of_X, of_y = effects[:, :-1], effects[:, -1]
    information = (sums.XX - ZX.T @ of_X) / values[-1]
    cov_beta = solve_positive(information, np.eye(len(information)))
    beta = cov_beta @ (sums.Xy - ZX.T @ of_y) / values[-1]
    slopes = np.empty((values.size, *cov_beta.shape))
    for t in range(v.size):
        weighted = sums.ZX[t] - np.hstack([gram[t][u] for u in used]) @ of_X
        half = weighted @ cov_beta / values[-1]
        slopes[t] = half.T @ half
    # Cov(β̂) is homogeneous of degree 1 in the components.
    slopes[-1] = (cov_beta - np.tensordot(v, slopes[:-1], 1)) / values[-1]
    return beta, cov_beta, FixedErrors(slopes, np.zeros(0), keeps_negative=True)
