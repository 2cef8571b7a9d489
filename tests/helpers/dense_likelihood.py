"""The textbook formulas with n × n matrices, at complex components too.

Searle, Casella & McCulloch (1992), chapter 6. Nothing is conjugated, so that the value at v + ih
has the derivative in its imaginary part, to all digits (complex step).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

STEP = 1e-30


class DenseLikelihood:
    """V = Σ v_t Z_t Z_t' + v_e I with the response and the fixed part of a model."""

    def __init__(self, model, *, reml):
        self.reml, self.X, self.y = reml, model.exog, model.endog
        chunk, n = model.statistics.rows, model.nobs
        self.Z = [np.eye(q)[c] for c, q in zip(chunk.codes, chunk.sizes, strict=True)]
        self._know([Z @ Z.T for Z in self.Z] + [np.eye(n)])

    def _know(self, K):
        """Keep the derivatives K_t of V, and the matrices at some components."""
        self.K = K
        self._at = lru_cache(maxsize=32)(self._computed)

    def matrices(self, v):
        """Return V, V⁻¹, P, (X'V⁻¹X)⁻¹ and β̂, which value and derivatives share."""
        return self._at(tuple(np.asarray(v).tolist()))

    def _computed(self, v):
        V = sum(s * K for s, K in zip(v, self.K, strict=True))
        Vi = np.linalg.inv(V)
        ViX = Vi @ self.X
        covariance = np.linalg.inv(self.X.T @ ViX)
        return V, Vi, Vi - ViX @ covariance @ ViX.T, covariance, covariance @ ViX.T @ self.y

    def loglike(self, v):
        V, Vi, P, _, _ = self.matrices(v)
        n, p = self.X.shape
        deviance = _log_det(V) + self.y @ P @ self.y + n * np.log(2.0 * np.pi)
        if self.reml and p:
            deviance += _log_det(self.X.T @ Vi @ self.X) - p * np.log(2.0 * np.pi)
        return -0.5 * deviance

    def score(self, v):
        _, Vi, P, _, _ = self.matrices(v)
        Q, Py = P if self.reml else Vi, P @ self.y
        return np.array([0.5 * (Py @ K @ Py - np.sum(Q * K)) for K in self.K])

    def average(self, v):
        _, _, P, _, _ = self.matrices(v)
        columns = np.column_stack([K @ P @ self.y for K in self.K])
        return 0.5 * columns.T @ P @ columns

    def expected(self, v):
        _, Vi, P, _, _ = self.matrices(v)
        QK = [(P if self.reml else Vi) @ K for K in self.K]
        return 0.5 * np.array([[np.sum(a * b.T) for b in QK] for a in QK])


def _log_det(V):
    sign, log_absolute = np.linalg.slogdet(V)
    return log_absolute + (1j * np.angle(sign) if np.iscomplexobj(V) else 0.0)


def _steps(v):
    for t in range(len(v)):
        moved = np.asarray(v, dtype=complex)
        moved[t] += 1j * STEP
        yield moved


def score_of(dense, v):
    """Return the gradient of the dense log-likelihood by complex steps."""
    return np.array([dense.loglike(moved).imag / STEP for moved in _steps(v)])


def hessian_of(dense, v):
    """Return the derivatives of the dense score by complex steps."""
    return np.array([dense.score(moved).imag / STEP for moved in _steps(v)])
