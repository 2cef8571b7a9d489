"""Degrees of freedom of tests of fixed effects with n × n matrices and complex steps."""

from __future__ import annotations

import numpy as np

from tests.helpers.dense_likelihood import STEP, DenseLikelihood, hessian_of


class DenseMatrices(DenseLikelihood):
    """V = Σ v_t K_t of a model of intercepts and slopes; a covariance has Z_aZ_b' + Z_bZ_a'."""

    def __init__(self, res):
        model = res.model
        rows, blocks = model.statistics.cells, model.design.blocks
        self.reml, self.X, self.y = res.method == "reml", model.exog, model.endog
        columns = blocks.values(model.rows.fixed, res.nobs, centred=False)
        Z = [
            np.eye(q)[c] if z is None else np.eye(q)[c] * z[:, None]
            for c, q, z in zip(rows.codes, rows.sizes, columns, strict=True)
        ]
        K = [np.eye(res.nobs)] * len(res.vcomp)  # the residual is the last
        for matrix in blocks.matrices:
            places = np.array(matrix.places)
            for a, t in enumerate(np.diagonal(places)):
                for b, u in enumerate(np.diagonal(places)):
                    product = Z[t] @ Z[u].T
                    K[places[a, b]] = product if a == b else product + product.T
        self._know(K)


def slopes_of(dense, v):
    """Return ∂(X'V⁻¹X)⁻¹/∂σ²_t by complex steps."""
    found = []
    for t in range(len(v)):
        moved = np.asarray(v, dtype=complex)
        moved[t] += 1j * STEP
        found.append(dense.matrices(moved)[3].imag / STEP)
    return np.array(found)


def satterthwaite(dense, v, free, L):
    """Return the degrees of freedom of the rows of L."""
    A = np.linalg.inv(-hessian_of(dense, v)[np.ix_(free, free)])
    g = np.einsum("mi,tij,mj->mt", L, slopes_of(dense, v)[free], L)
    q = np.einsum("mi,ij,mj->m", L, dense.matrices(v)[3], L)
    return 2.0 * q**2 / np.einsum("mt,tu,mu->m", g, A, g)


def kenward_roger(dense, v, free, L):
    """Return Φ_A and, of one hypothesis, m and λ (Kenward & Roger 1997), all written out."""
    _, Vi, _, phi, _ = dense.matrices(v)
    K = [k for k, is_free in zip(dense.K, free, strict=True) if is_free]
    W = np.linalg.inv(dense.expected(v)[np.ix_(free, free)])
    X = dense.X
    P = [-X.T @ Vi @ k @ Vi @ X for k in K]
    inside = sum(
        W[t, u] * (X.T @ Vi @ K[t] @ Vi @ K[u] @ Vi @ X - P[t] @ phi @ P[u])
        for t in range(len(K))
        for u in range(len(K))
    )
    theta = L.T @ np.linalg.inv(L @ phi @ L.T) @ L
    M = [theta @ phi @ p @ phi for p in P]
    q, pairs = L.shape[0], [(t, u) for t in range(len(K)) for u in range(len(K))]
    A1 = sum(W[t, u] * np.trace(M[t]) * np.trace(M[u]) for t, u in pairs)
    A2 = sum(W[t, u] * np.trace(M[t] @ M[u]) for t, u in pairs)
    B = (A1 + 6 * A2) / (2 * q)
    g = ((q + 1) * A1 - (q + 4) * A2) / ((q + 2) * A2)
    c1 = g / (3 * q + 2 * (1 - g))
    c2 = (q - g) / (3 * q + 2 * (1 - g))
    c3 = (q + 2 - g) / (3 * q + 2 * (1 - g))
    mean = 1 / (1 - A2 / q)
    variance = 2 / q * (1 + c1 * B) / ((1 - c2 * B) ** 2 * (1 - c3 * B))
    rho = variance / (2 * mean**2)
    m = 4 + (q + 2) / (q * rho - 1)
    return phi + 2 * phi @ inside @ phi, m, m / (mean * (m - 2))


def several(dense, v, free, L):
    """Return F of Lβ = 0 and its degrees of freedom by eigenvectors (Fai and Cornelius 1996)."""
    _, _, _, phi, beta = dense.matrices(v)
    L = L / np.sqrt(np.einsum("ij,jk,ik->i", L, phi, L))[:, None]
    d, P = np.linalg.eigh(L @ phi @ L.T)
    t2 = np.square(P.T @ L @ beta) / d
    nu = satterthwaite(dense, v, free, P.T @ L)
    total = (nu / (nu - 2.0)).sum()
    return t2.mean(), 2.0 * total / (total - len(L))
