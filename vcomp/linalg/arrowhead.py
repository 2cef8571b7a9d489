"""Henderson's equations with one diagonal block eliminated through its diagonal.

The matrix of the equations is arrow-shaped: the block of the largest term is diagonal (a), it is
coupled to the rest by a sparse block B and a few dense columns, and the rest is dense:

    C = [ diag(a)  B ]        S = K − B' diag(1/a) B
        [ B'       K ]

Everything that the likelihood and its derivatives need comes from a and the Cholesky factor of S:
log-determinant, solutions, traces and squared norms of the blocks of the inverse. No inverse of
the size of C is formed. MATHS: Henderson's mixed-model equations, "blocked elimination".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.kernels.schur import mirror_upper, row_quadratics, weighted_gram
from vcomp.linalg.dense import solve_positive

__all__ = ["Arrowhead", "ArrowheadFactor", "InverseBlocks", "factorise", "inverse_blocks"]


@dataclass(frozen=True, slots=True)
class Arrowhead:
    """The parts of C that do not depend on the variance components.

    Attributes
    ----------
    lead : (q,) diagonal of the eliminated block before its ridge
    indptr, indices, data : the sparse coupling to the first m columns of the tail, in rows
    dense : (q, p) the coupling to the last p columns
    tail : (m + p, m + p) the rest, full and symmetric, before its ridge
    n_sparse : m
    """

    lead: FloatArray
    indptr: LongArray
    indices: IntArray
    data: FloatArray
    dense: FloatArray
    tail: FloatArray
    n_sparse: int

    def coupling_times(self, x: FloatArray) -> FloatArray:
        """Return ``B x`` for x of shape (m + p, c)."""
        m = self.n_sparse
        product: FloatArray = self._csr() @ x[:m] + self.dense @ x[m:]
        return product

    def coupling_transposed_times(self, x: FloatArray) -> FloatArray:
        """Return ``B' x`` for x of shape (q, c)."""
        product: FloatArray = np.concatenate([self._csr().T @ x, self.dense.T @ x])
        return product

    def coupling_gram(self, weights: FloatArray, order: int) -> FloatArray:
        """Return ``B' diag(w) B`` for the first `order` columns (m, or m + p)."""
        m = self.n_sparse
        sparse: FloatArray = weighted_gram(self.indptr, self.indices, self.data, weights, m)
        if order == m:
            return sparse
        weighted = self.dense * weights[:, None]
        gram = np.empty((order, order))
        gram[:m, :m] = sparse
        gram[:m, m:] = self._csr().T @ weighted
        gram[m:, :m] = gram[:m, m:].T
        gram[m:, m:] = self.dense.T @ weighted
        return gram

    def row_quadratics(self, matrix: FloatArray) -> FloatArray:
        """Return ``b'Mb`` for every row b of the coupling; M has order m or m + p."""
        m = self.n_sparse
        sparse_part = np.ascontiguousarray(matrix[:m, :m])
        values: FloatArray = row_quadratics(self.indptr, self.indices, self.data, sparse_part)
        if matrix.shape[0] > m:
            mixed = 2.0 * (self._csr() @ matrix[:m, m:]) + self.dense @ matrix[m:, m:]
            values += np.einsum("ij,ij->i", mixed, self.dense)
        return values

    def _csr(self) -> Any:
        from scipy.sparse import csr_array

        shape = (self.lead.size, self.n_sparse)
        return csr_array((self.data, self.indices, self.indptr), shape=shape)


@dataclass(frozen=True, slots=True)
class ArrowheadFactor:
    """a and the lower Cholesky factor of S, at given ridges."""

    matrix: Arrowhead
    a: FloatArray
    L: FloatArray

    @property
    def n_sparse(self) -> int:
        """Order of the tail without its last p (dense) columns."""
        return self.matrix.n_sparse

    def log_determinants(self) -> tuple[float, float]:
        """Return log|C| without its last p rows and columns, and of their Schur complement."""
        pivots = np.log(np.diagonal(self.L))
        m = self.n_sparse
        return float(np.log(self.a).sum() + 2.0 * pivots[:m].sum()), float(2.0 * pivots[m:].sum())

    def solve(self, lead: FloatArray, tail: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Solve C x = b for right-hand sides of shape (q, c) and (m + p, c)."""
        from scipy.linalg import cho_solve

        reduced = lead / self.a[:, None]
        x = cho_solve(
            (self.L, True),
            tail - self.matrix.coupling_transposed_times(reduced),
            check_finite=False,
        )
        return reduced - self.matrix.coupling_times(x) / self.a[:, None], x

    def half_solve(self, lead: FloatArray, tail: FloatArray, order: int) -> FloatArray:
        """Return h with b'C⁻¹b = Σ lead²/a + Σ h², of the leading `order` of the tail."""
        from scipy.linalg import solve_triangular

        reduced = tail - self.matrix.coupling_transposed_times(lead / self.a[:, None])
        solved: FloatArray = solve_triangular(
            self.L[:order, :order], reduced[:order], lower=True, check_finite=False
        )
        return solved


def factorise(matrix: Arrowhead, lead_ridge: float, tail_ridge: FloatArray) -> ArrowheadFactor:
    """Factor C after adding ridges to its diagonal.

    Parameters
    ----------
    lead_ridge : added to every element of the eliminated block
    tail_ridge : (m + p,) added to the diagonal of the tail

    Raises
    ------
    numpy.linalg.LinAlgError
        If S is not positive definite.
    """
    from scipy.linalg.lapack import dpotrf

    a = matrix.lead + lead_ridge
    S = matrix.tail - matrix.coupling_gram(1.0 / a, matrix.tail.shape[0])
    S[np.diag_indices_from(S)] += tail_ridge
    if S.size == 0:
        return ArrowheadFactor(matrix, a, S)
    # The transpose of a symmetric C-ordered matrix is itself in Fortran order: no copy.
    L, info = dpotrf(S.T, lower=1, clean=1, overwrite_a=1)
    if info != 0:
        raise np.linalg.LinAlgError(f"pivot {info} is not positive")
    return ArrowheadFactor(matrix, a, L)


@dataclass(frozen=True, slots=True)
class InverseBlocks:
    """What is needed of C⁻¹: the tail's block, and the coupling's weighted Gram matrices.

    With the last p columns (X) it is the inverse of the whole, without them (ML) that of the
    random part alone.
    """

    factor: ArrowheadFactor
    tail: FloatArray  # (order, order) S⁻¹
    gram2: FloatArray  # (order, order) B' diag(a⁻²) B

    def without_dense(self) -> InverseBlocks:
        """Return the blocks for the random part alone, from those of the whole.

        With the inverse in blocks, (C_zz)⁻¹ = C^zz − C^zx (C^xx)⁻¹ C^xz.
        """
        m = self.factor.n_sparse
        mixed = self.tail[:m, m:]
        tail = self.tail[:m, :m] - mixed @ solve_positive(self.tail[m:, m:], mixed.T)
        return InverseBlocks(self.factor, tail, self.gram2[:m, :m])

    def lead_trace(self) -> float:
        """Return the trace of the eliminated block of C⁻¹."""
        return float((1.0 / self.factor.a).sum() + np.vdot(self.gram2, self.tail))

    def lead_diagonal(self) -> FloatArray:
        """Return the diagonal of the eliminated block of C⁻¹."""
        a = self.factor.a
        diagonal: FloatArray = 1.0 / a + self.factor.matrix.row_quadratics(self.tail) / a**2
        return diagonal

    def squared_norms(self, blocks: list[slice]) -> FloatArray:
        """Return the squared Frobenius norms of the blocks of C⁻¹.

        Parameters
        ----------
        blocks : the terms of the tail as slices

        Returns
        -------
        (1 + b, 1 + b) norms; the eliminated block is the first
        """
        a, order = self.factor.a, self.tail.shape[0]
        gram3 = self.factor.matrix.coupling_gram(a**-3, order)
        mixed = self.gram2 @ self.tail
        norms = np.empty((len(blocks) + 1, len(blocks) + 1))
        norms[0, 0] = (a**-2).sum() + 2.0 * np.vdot(gram3, self.tail) + np.vdot(mixed, mixed.T)
        columns = np.einsum("ij,ij->j", self.tail, mixed)
        for i, rows in enumerate(blocks, start=1):
            norms[0, i] = norms[i, 0] = columns[rows].sum()
            for j, cols in enumerate(blocks[:i], start=1):
                norms[i, j] = norms[j, i] = np.square(self.tail[rows, cols]).sum()
        return norms


def inverse_blocks(factor: ArrowheadFactor, order: int) -> InverseBlocks:
    """Return the blocks of C⁻¹ for the leading `order` of the tail: m, or m + p."""
    from scipy.linalg.lapack import dpotri

    gram2 = factor.matrix.coupling_gram(factor.a**-2, order)
    if order == 0:
        return InverseBlocks(factor, np.zeros((0, 0)), gram2)
    lower, _ = dpotri(np.array(factor.L[:order, :order], order="F"), lower=1, overwrite_c=1)
    # The lower triangle of a matrix in Fortran order is the upper one of its transpose in C order.
    inverse = lower.T
    mirror_upper(inverse)
    return InverseBlocks(factor, inverse, gram2)
