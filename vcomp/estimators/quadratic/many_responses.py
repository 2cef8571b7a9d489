"""Fixed effects of many responses of the same rows, each at its own components.

β̂ = (X'V⁻¹X)⁻¹X'V⁻¹y needs the solution U of Henderson's equations (Z'Z + Λ⁻¹)U = Z'X, since
σ²_e X'V⁻¹b = X'b − U'Z'b for b = X and y. The equations of all responses differ in Λ only, and are
solved side by side by conjugate gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood import PairProducts
from vcomp.numerics import slices
from vcomp.numerics.sparse import conjugate_gradients
from vcomp.statistics import CrossProducts

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
