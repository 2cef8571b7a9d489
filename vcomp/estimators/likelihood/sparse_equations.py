"""Henderson's equations for the iterative engine: the largest term eliminated, nothing factored.

Let A be the diagonal block of the largest term, B its coupling with the other terms, and K their
block. S = K − B'A⁻¹B (docs/explanation/mathematics.md, eq. (7.8)) is not formed: systems in S are
solved by conjugate gradients, which need products with S and its diagonal. The few fixed effects
are added by generalised least squares, eq. (8.1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.exceptions import EstimationError
from vcomp.numerics.sparse import Solved, SparseTable, solve_reduced, stacked
from vcomp.statistics import CrossProducts

_MAX_PRODUCTS = 2000


@dataclass(frozen=True)
class SparseEquations:
    """The parts of the equations that do not depend on the components.

    Attributes
    ----------
    active : the terms with positive components, largest first; the first is eliminated
    sizes : numbers of groups of the active terms
    slices : positions of the other terms' effects in S
    lead_n : (q,) numbers of rows of the groups of the eliminated term
    tail_n : (m,) those of the other terms
    coupling : (q, m) B
    rest : (m, q + m) the rows [B' K], without the diagonal of K
    """

    active: tuple[int, ...]
    sizes: tuple[int, ...]
    slices: tuple[slice, ...]
    lead_n: FloatArray
    tail_n: FloatArray
    coupling: SparseTable
    rest: SparseTable

    def at(self, v: FloatArray) -> SparseSystem:
        """Return the equations at components `v`, the residual last."""
        ridges = np.array([v[-1] / v[t] for t in self.active])
        tail = np.repeat(ridges[1:], self.sizes[1:])
        return SparseSystem(self, self.lead_n + ridges[:1], self.tail_n + tail, tail, v[-1])


@dataclass(frozen=True)
class Reduced:
    """Right-hand sides after the elimination of the largest term."""

    lead: FloatArray  # (q, c) A⁻¹b₁
    tail: FloatArray  # (m, c) b₂ − B'A⁻¹b₁
    form: FloatArray  # (c, c) b₁'A⁻¹b₁


@dataclass(frozen=True)
class SparseSystem:
    """The equations at one value of the components.

    Attributes
    ----------
    equations : the parts that do not depend on the components
    lead : (q,) the diagonal of A
    tail : (m,) the diagonal of K
    ridge : (m,) its part σ²_e/σ²_t
    residual : σ²_e
    """

    equations: SparseEquations
    lead: FloatArray
    tail: FloatArray
    ridge: FloatArray
    residual: float

    @cached_property
    def inverse_lead(self) -> FloatArray:
        """The diagonal of A⁻¹."""
        return 1.0 / self.lead

    @cached_property
    def diagonal(self) -> FloatArray:
        """The diagonal of S."""
        weights = np.append(self.inverse_lead, np.zeros_like(self.tail))[:, None]
        return self.tail - self.equations.rest.squared_times(weights)[:, 0]

    def lead_of(self, x: FloatArray) -> FloatArray:
        """Return −A⁻¹B x, the effects of the eliminated term that belong to others."""
        of_lead = self.equations.coupling.times(x)
        of_lead *= -self.inverse_lead[:, None]
        return of_lead

    def product(self, x: FloatArray) -> FloatArray:
        """Return S x."""
        product = self.equations.rest.times(np.concatenate([self.lead_of(x), x]))
        product += self.tail[:, None] * x
        return product

    def product_with_constants(self, U: FloatArray) -> FloatArray:
        """Return S U for the (m, k) indicators of the terms that are not eliminated."""
        n = self.equations.tail_n[:, None]
        shares = self.inverse_lead * self.equations.lead_n
        of_lead = self.equations.rest.times(shares[:, None])
        product: FloatArray = np.where(U > 0.0, self.tail[:, None], n) - of_lead
        return product

    def reduce(self, lead: FloatArray, tail: FloatArray) -> Reduced:
        """Return right-hand sides b₁ (q, c), b₂ (m, c) after elimination of the largest term."""
        solved = self.inverse_lead[:, None] * lead
        rest = tail - self.equations.rest.times(solved)
        return Reduced(solved, rest, lead.T @ solved)

    def solve(
        self,
        b: FloatArray,
        start: FloatArray | None,
        tol: float | FloatArray,
        most_products: int = _MAX_PRODUCTS,
    ) -> Solved:
        """Solve S x = b, in the memory of `b` and `start`.

        Parameters
        ----------
        b : right-hand sides, (m, c)
        start : first values, zeros if None
        tol : as a share of the right-hand side; it may be one for each
        most_products : number of products with S after which it is given up

        Raises
        ------
        EstimationError
            If the iteration does not converge.
        numpy.linalg.LinAlgError
            If S is indefinite due to rounding error.
        """
        solved = solve_reduced(
            self.equations.coupling,
            self.equations.rest,
            self.inverse_lead,
            self.tail,
            self.diagonal,
            b,
            start,
            tol=tol,
            max_iter=most_products,
        )
        if not solved.converged:
            raise EstimationError(
                f"the equations of the iterative engine did not converge in {most_products:,} "
                "steps: groups are too loosely connected, or components differ by many orders of "
                "magnitude; use engine='blocked' if it fits into memory, or leave out a term with "
                "almost no variance"
            )
        return solved

    def back(self, reduced: Reduced, x: FloatArray) -> FloatArray:
        """Return the effects of the eliminated term from those of the others."""
        return reduced.lead + self.lead_of(x)

    def forms(self, reduced: Reduced, x: FloatArray, residual: FloatArray) -> FloatArray:
        """Return b'C⁻¹b for all pairs of right-hand sides.

        With the residual r of the solution x, x'b + x'r = b'S⁻¹b − r'S⁻¹r: the error is of second
        order in that of the solution.
        """
        tail = x.T @ (reduced.tail + residual)
        return reduced.form + 0.5 * (tail + tail.T)


def build_sparse_equations(stats: CrossProducts, active: tuple[int, ...]) -> SparseEquations:
    """Return the equations of the terms in `active`, largest first."""
    sizes, others = tuple(stats.sizes[t] for t in active), active[1:]
    ends = np.cumsum([0, *sizes[1:]])
    slices = tuple(slice(int(a), int(b)) for a, b in pairwise(ends))
    nothing = np.zeros(0)

    def block(t: int, u: int) -> SparseTable:
        return SparseTable.empty(stats.sizes[t], stats.sizes[t]) if t == u else stats.table(t, u)

    coupling = [[stats.table(active[0], t) for t in others]]
    # With one other term, K has no other entries than its diagonal.
    rest = [[block(t, u) for u in active if t != u or others[1:]] for t in others]
    return SparseEquations(
        active=active,
        sizes=sizes,
        slices=slices,
        lead_n=stats.group_n[active[0]] if active else nothing,
        tail_n=np.concatenate([nothing, *(stats.group_n[t] for t in others)]),
        coupling=stacked(coupling) if others else SparseTable.empty(sum(sizes), 0),
        rest=replace(stacked(rest) if others else SparseTable.empty(0, 0), n_cols=sum(sizes)),
    )


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
        B, n = system.equations.coupling, system.equations.lead_n
        self._BH = BH = B.times(H)
        # The groups of a term have all rows of a group of the eliminated one: B times a column of
        # U is `n`.
        own = B.squared_times(1.0 / D[:, None])[:, 0] - np.square(n) * self._weights.sum()
        # The diagonals of HLH' + M − M(S − D)M, and of A⁻¹B(HLH' + M)B'A⁻¹.
        own += np.einsum("ij,jk,ik->i", BH, self._L, BH)
        self.lead_diagonal = system.inverse_lead**2 * own
        self._SU = system.product_with_constants(U)
        apart = self._SU - D[:, None] * U
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
        own = scale[:, None] * (U.T @ self._SU) * scale
        return np.sqrt(D)[:, None] * U * scale, logs - own + np.eye(scale.size)

    def samples(self, z: FloatArray, x: FloatArray) -> Samples:
        """Return what each probe z adds to the two diagonals, with x = S⁻¹z."""
        system, by_M = self._system, self._by_M(z)
        rest = x - self._H @ (self._L @ (self._H.T @ z)) - by_M
        tail = rest + self._by_M(system.product(by_M) - system.diagonal[:, None] * by_M)
        between = system.lead_of(rest)
        return Samples(system.lead_of(z) * between, z * tail, between, rest, z)

    def crossed_with_lead(self, a: LongArray, b: LongArray) -> FloatArray:
        """Return the known part of C⁻¹ between effects a of the eliminated term and b of others.

        It is −A⁻¹B(HLH' + M).
        """
        system = self._system
        table = system.equations.coupling.matrix.astype(float)
        own = np.asarray(table[a, b]).ravel() / system.diagonal[b]
        own -= system.equations.lead_n[a] * (self._U[b] @ self._weights)
        own += np.einsum("ij,jk,ik->i", self._BH[a], self._L, self._H[b])
        known: FloatArray = -system.inverse_lead[a] * own
        return known

    def crossed(self, a: LongArray, b: LongArray) -> FloatArray:
        """Return the known part of S⁻¹ between effects of two terms."""
        return np.einsum("ij,jk,ik->i", self._H[a], self._L, self._H[b])
