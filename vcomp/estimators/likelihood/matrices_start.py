"""Matrices to start from: MIVQUE(0) of their elements, from the sums of rows.

With M = I − X(X'X)⁻¹X', the forms y'MV_jMy have the expectations Σ_k tr(V_jMV_kM) θ_k in the
elements θ. The traces are sums over entries of N_ab = Z_a'MZ_b = Z_a'Z_b − U_aU_b', where
U = Z'X(X'X)^{-½}.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood.block_equations import BlockEquations
from vcomp.numerics import solve_positive

_MOST = 15
"""Largest number of elements for which it is computed: traces are as many as their squares."""


def mivque_elements(equations: BlockEquations) -> FloatArray | None:
    """Return MIVQUE(0) of the elements of all matrices, row by row, and of the residual.

    None with several residual variances, for many elements, or if the forms do not distinguish
    them.

    Parameters
    ----------
    equations : of the effects
    """
    keys = [
        (term[a], term[b])
        for term, pairs in zip(equations.sums.terms, equations.pairs, strict=True)
        for a, b in pairs
    ]
    if len(equations.rows) > 1 or not 0 < len(keys) <= _MOST:
        return None
    try:
        return solve_positive(*_forms(equations, keys))
    except np.linalg.LinAlgError:
        return None


def _forms(
    equations: BlockEquations, keys: Sequence[tuple[int, int]]
) -> tuple[FloatArray, FloatArray]:
    """Return the traces tr(V_jMV_kM) and the forms y'MV_jMy, of the residual last."""
    part, sums, places = equations.rows[0], equations.sums.groups[0], equations.places
    n, J = equations.n_effects, len(keys)
    root = np.linalg.cholesky(sums.XX)
    scaled = np.linalg.solve(root, part.border.T).T
    beta = np.linalg.solve(root, sums.Xy)
    rest = part.right[:n] - scaled @ beta
    matrix = part.matrix[:n][:, :n].astype(float)
    Z = {(a, b): matrix[places[a]][:, places[b]] for a, b in product(places, places)}
    U = {c: scaled[at] for c, at in places.items()}
    u = {c: rest[at] for c, at in places.items()}

    def squares(a: int, b: int, c: int, d: int) -> float:
        """Return Σ N_bc N_ad over their entries."""
        of_rows = Z[b, c].multiply(Z[a, d]).sum()
        mixed = (U[a] * (Z[b, c] @ U[d])).sum() + (U[b] * (Z[a, d] @ U[c])).sum()
        of_fixed = ((U[b].T @ U[a]) * (U[c].T @ U[d])).sum()
        return float(of_rows - mixed + of_fixed)

    traces, q = np.empty((J + 1, J + 1)), np.empty(J + 1)
    for j, (a, b) in enumerate(keys):
        twice = 1.0 + (a != b)
        q[j] = twice * float(u[a] @ u[b])
        traces[j, J] = traces[J, j] = twice * (Z[a, b].diagonal().sum() - (U[a] * U[b]).sum())
        for k, (c, d) in enumerate(keys[: j + 1]):
            orders = sorted({(a, b, c, d), (b, a, c, d), (a, b, d, c), (b, a, d, c)})
            traces[j, k] = traces[k, j] = sum(squares(*order) for order in orders)
    q[J], traces[J, J] = sums.yy - float(beta @ beta), float(sums.n - sums.n_fixed)
    return traces, q
