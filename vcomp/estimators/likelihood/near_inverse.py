"""Known parts of the inverse of Henderson's equations, and the rest by probes.

See docs/explanation/mathematics.md, eqs. (8.3) and (8.4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.estimators.likelihood.sparse_equations import SparseSystem


@dataclass(frozen=True, slots=True)
class Samples:
    """What probes z add to the known parts of C⁻¹.

    Attributes
    ----------
    lead, tail : (q, c) and (m, c) on the diagonal
    between, rest : (q, c) and (m, c), z' times which is added to the rows of other effects
    z : (m, c) probes
    """

    lead: FloatArray
    tail: FloatArray
    between: FloatArray
    rest: FloatArray
    z: FloatArray


class NearInverse:
    """S⁻¹ less a matrix near it with a known diagonal, so that few probes suffice.

    See docs/explanation/mathematics.md, eqs. (8.3) and (8.4). With U a constant column for each
    term that is not eliminated, H = S⁻¹DU and L = (U'DH)⁻¹, near it is HLH' + M − M(S − D)M, where
    M = D⁻¹ − U(U'DU)⁻¹U'. HLH' is the part of S⁻¹ along U, which is far from diagonal: a constant
    may move from one term to another.

    Parameters
    ----------
    system : the equations
    constant : (m, k) U
    solved : (m, k) H
    """

    def __init__(self, system: SparseSystem, constant: FloatArray, solved: FloatArray) -> None:
        self._system, self._U, self._H = system, constant, solved
        D, U, H = system.diagonal, constant, solved
        self._weights = 1.0 / (D @ U)
        along = U.T @ (D[:, None] * H)
        self._L = np.linalg.pinv(0.5 * (along + along.T), hermitian=True)
        B, squares = system.equations.coupling, system.inverse_lead**2
        self._BU, self._BH = BU, BH = B.times(U), B.times(H)
        own = system.equations.coupling.squared_times(1.0 / D[:, None])[:, 0]
        own -= np.square(BU) @ self._weights
        # The diagonals of HLH' + M − M(S − D)M, and of A⁻¹B(HLH' + M)B'A⁻¹.
        self.lead_diagonal = squares * (own + np.einsum("ij,jk,ik->i", BH, self._L, BH))
        apart = system.product(U) - D[:, None] * U
        inner = self._weights[:, None] * (U.T @ apart) * self._weights
        self.diagonal = np.einsum("ij,jk,ik->i", H, self._L, H)
        self.diagonal += 1.0 / D - np.square(U) @ self._weights
        self.diagonal += 2.0 / D * np.einsum("ij,ij->i", apart * self._weights, U)
        self.diagonal -= np.einsum("ij,jk,ik->i", U, inner, U)

    def _by_M(self, x: FloatArray) -> FloatArray:
        product: FloatArray = x / self._system.diagonal[:, None]
        return product - self._U @ (self._weights[:, None] * (self._U.T @ x))

    def log_along(self) -> tuple[FloatArray, FloatArray]:
        """Return W = D^½U with columns of length 1, and log Ŝ − Ŝ + 1 along W, eq. (8.5a)."""
        D, U = self._system.diagonal, self._U
        scale = np.sqrt(self._weights)
        inverse = scale[:, None] * (U.T @ (D[:, None] * self._H)) * scale
        values, vectors = np.linalg.eigh(0.5 * (inverse + inverse.T))
        logs = -(vectors * np.log(np.where(values > 0.0, values, 1.0))) @ vectors.T
        own = scale[:, None] * (U.T @ self._system.product(U)) * scale
        return np.sqrt(D)[:, None] * U * scale, logs - own + np.eye(scale.size)

    def samples(self, z: FloatArray, x: FloatArray) -> Samples:
        """Return what each probe z adds to the two diagonals, with x = S⁻¹z."""
        system, by_M = self._system, self._by_M(z)
        rest = x - self._H @ (self._L @ (self._H.T @ z)) - by_M
        B, inverse = system.equations.coupling, system.inverse_lead[:, None]
        between = -inverse * B.times(rest)
        apart = system.product(by_M) - system.diagonal[:, None] * by_M
        return Samples(
            -inverse * B.times(z) * between, z * (rest + self._by_M(apart)), between, rest, z
        )

    def crossed_with_lead(self, a: LongArray, b: LongArray) -> FloatArray:
        """Return the known part of C⁻¹ between effects a of the eliminated term and b of others.

        It is −A⁻¹B(HLH' + M).
        """
        from scipy.sparse import csr_array

        system = self._system
        starts, columns, weights = system.equations.coupling.parts
        entries = weights if weights.size else np.ones(columns.size)
        table = csr_array((entries, columns, starts), shape=(starts.size - 1, self._U.shape[0]))
        own = np.asarray(table[a, b]).ravel() / system.diagonal[b]
        own -= np.einsum("ij,ij->i", self._BU[a] * self._weights, self._U[b])
        own += np.einsum("ij,jk,ik->i", self._BH[a], self._L, self._H[b])
        known: FloatArray = -system.inverse_lead[a] * own
        return known

    def crossed(self, a: LongArray, b: LongArray) -> FloatArray:
        """Return the known part of S⁻¹ between effects of two terms."""
        return np.einsum("ij,jk,ik->i", self._H[a], self._L, self._H[b])
