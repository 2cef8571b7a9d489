"""Fixed effects by generalised least squares at given components of closed forms.

Components may be negative ones that were kept, as by SAS with NOBOUND; or there are many responses
of the same rows, each with its own components.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.estimate import FixedErrors
from vcomp.estimators.likelihood import PairProducts
from vcomp.numerics import slices, solve_positive
from vcomp.numerics.sparse import conjugate_gradients
from vcomp.statistics import CrossProducts, Statistics

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


_TOLERANCE, _STEPS = 1e-10, 500
"""Relative residual at which the equations are solved, for about nine digits of β̂; and largest
number of products."""

_ELEMENTS = 4_000_000
"""Elements of the columns in a batch of solves."""


def fixed_effects_of(
    stats: Sequence[CrossProducts], values: FloatArray, *, steps: int = _STEPS
) -> list[FloatArray | None]:
    """Return the generalised least squares estimates; None where the equations did not converge.

    Parameters
    ----------
    stats : of the same rows with several responses
    values : (b, k + 1) components of each, not negative, the residual positive
    steps : largest number of products
    """
    first = stats[0]
    pairs = PairProducts(first)
    at_once = max(1, _ELEMENTS // max(sum(first.sizes) * first.n_fixed, 1))
    betas: list[FloatArray | None] = []
    for part in slices(len(stats), at_once):
        betas += _solved(pairs, stats[part], values[part], steps)
    return betas


def _solved(
    pairs: PairProducts, stats: Sequence[CrossProducts], v: FloatArray, steps: int
) -> list[FloatArray | None]:
    first, b, p = stats[0], len(stats), stats[0].n_fixed
    ends = np.cumsum([0, *first.sizes])
    of_term = np.repeat(np.arange(first.n_terms), first.sizes)
    # A term at zero has no effects: its equations are left out of those of this response.
    is_positive = (v[:, :-1] > 0.0).T[of_term]
    with np.errstate(divide="ignore"):
        ridge = (v[:, -1:] / v[:, :-1]).T[of_term]
    diagonal = np.where(is_positive, np.concatenate(first.group_n)[:, None] + ridge, 1.0)
    diagonal, kept = np.repeat(diagonal, p, axis=1), np.repeat(is_positive, p, axis=1)
    ZX = np.concatenate(first.ZX)

    def product(x: FloatArray) -> FloatArray:
        out = diagonal * x
        for t in range(first.n_terms):
            for u in range(first.n_terms):
                if t != u:
                    part = np.ascontiguousarray(x[ends[u] : ends[u + 1]])
                    out[ends[t] : ends[t + 1]] += pairs.times(t, u, part)
        out *= kept
        return out

    right = np.tile(ZX, b) * kept
    solved = conjugate_gradients(product, diagonal, right, tol=_TOLERANCE, max_iter=steps)
    if not solved.converged:
        return [None] * b
    U = solved.x.reshape(len(ZX), b, p)
    XX = first.XX - np.einsum("mi,mbj->bij", ZX, U)
    Zy = np.stack([np.concatenate(s.Zy) for s in stats])
    Xy = np.stack([s.Xy for s in stats]) - np.einsum("mbj,bm->bj", U, Zy)
    return list(np.linalg.solve(XX, Xy[:, :, None])[:, :, 0])
