"""Column spaces of the fixed part and some terms, as coordinates in an orthonormal basis.

A reduction in sum of squares is R(F) = y'M y with M the projector on the columns of [X Z_F], where
F is a set of terms treated as fixed (docs/explanation/mathematics.md, section 2.4). With an
orthonormal basis B of this space M = BB', so that all quadratic forms follow from the coordinates
B'y and B'Z_u. These need cross-products only:

* a term that is coarser than another term of F adds nothing to the space, and is left out;
* the largest of the other terms leads: its groups are orthogonal and contribute the columns
  Z D^(−1/2) to B, and the coordinates are sparse;
* the remaining part of the other terms and of X, the tail, is dense; a pivoted Cholesky
  factorisation of its cross-products determines its rank and makes it orthonormal.

MINQUE uses the same coordinates in :class:`SpaceContrasts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, cast

import numpy as np

from vcomp._typing import FloatArray, IntArray
from vcomp.estimators.likelihood import LikelihoodEngine
from vcomp.numerics import available_bytes, check_memory, limited_blas, solve
from vcomp.numerics.kernels import weighted_gram
from vcomp.statistics import CrossProducts, Statistics

DEPENDENT = 1e-11
"""A squared residual norm below this fraction of a column's squared norm is rounding error."""

_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Z_u'B of one term: sparse for the leading term's part of B, dense for the tail."""

    lead: Any  # (q_u, groups of the leading term)
    tail: FloatArray  # (q_u, tail rank)

    def dense(self) -> FloatArray:
        """Return both parts side by side, (q_u, rank)."""
        return np.concatenate([self.lead.toarray(), self.tail], axis=1)


class Space:
    """The space that the columns of X and of some terms span.

    Parameters
    ----------
    stats : cross-products, centred
    terms : positions of the terms, in any order; none for X alone
    free_bytes : returns the free memory

    Raises
    ------
    EstimationError
        If its dense part would not fit into memory.
    """

    def __init__(
        self,
        stats: CrossProducts,
        terms: frozenset[int],
        free_bytes: Callable[[], float] = available_bytes,
    ) -> None:
        self.stats = stats
        self.terms = terms
        finest = sorted(finest_terms(stats, terms), key=lambda t: (-stats.sizes[t], t))
        self.lead = finest[0] if finest else None
        self._others = finest[1:]
        self._traces: dict[int, float] = {}
        self._scale, self._kept, self._factor = self._factorise(free_bytes)

    @property
    def rank(self) -> int:
        """Dimension of the space."""
        lead = 0 if self.lead is None else self.stats.sizes[self.lead]
        return lead + self.tail_rank

    @property
    def tail_rank(self) -> int:
        """Dimension that the other terms and X add to the leading term's space."""
        return int(self._kept.size)

    def reduction(self, stats: CrossProducts) -> float:
        """Return R(F) = y'M y of the centred y of statistics of the same rows."""
        return float(np.square(self.coordinates_of_response(stats)).sum())

    def coordinates_of_response(self, stats: CrossProducts) -> FloatArray:
        """Return B'y of the response of statistics of the same rows, (rank,)."""
        sums = np.concatenate([*(stats.Zy[t] for t in self._others), stats.Xy])[None, :]
        if self.lead is None:
            return self._tail_coordinates(sums).ravel()
        n, lead_sums = self.stats.group_n[self.lead], stats.Zy[self.lead]
        tail = self._tail_coordinates(sums - self._coupled((lead_sums / n)[None, :]))
        return np.concatenate([lead_sums / np.sqrt(n), tail[0]])

    def trace(self, term: int) -> float:
        """Return tr(Z_u'N Z_u) with N = I − M; exactly 0 for a term of the space."""
        if term in self.terms:
            return 0.0
        if term not in self._traces:
            self._traces[term] = self._trace(term)
        return self._traces[term]

    def _trace(self, term: int) -> float:
        stats = self.stats
        total = float(stats.group_n[term].sum())
        if self.lead is not None:
            table = stats.gram(term, self.lead)
            total -= float((table.multiply(table) @ (1.0 / stats.group_n[self.lead])).sum())
        return total - sum(float(np.square(slab).sum()) for slab in self._tail_slabs(term))

    def coordinates(self, term: int) -> Coordinates:
        """Return Z_u'B."""
        from scipy.sparse import csr_array, diags_array

        tail = np.concatenate([*self._tail_slabs(term)])
        if self.lead is None:
            return Coordinates(csr_array((tail.shape[0], 0)), tail)
        weights = diags_array(1.0 / np.sqrt(self.stats.group_n[self.lead]))
        return Coordinates((self.stats.gram(term, self.lead) @ weights).tocsr(), tail)

    def coordinates_of_fixed(self) -> FloatArray:
        """Return X'B, (p, rank)."""
        stats = self.stats
        columns = np.concatenate([*(stats.ZX[t] for t in self._others), stats.XX]).T
        if self.lead is None:
            return self._tail_coordinates(columns)
        means = stats.ZX[self.lead] / stats.group_n[self.lead][:, None]
        tail = self._tail_coordinates(columns - self._coupled(means.T))
        lead = means * np.sqrt(stats.group_n[self.lead])[:, None]
        return np.concatenate([lead.T, tail], axis=1)

    def basis_products(self, other: Space) -> FloatArray:
        """Return B'B_o for the basis B_o of another space, (rank, rank of the other), dense."""
        stats = self.stats
        parts = [other.coordinates(t).dense() for t in self._others]
        tail = np.concatenate([*parts, other.coordinates_of_fixed()])
        if self.lead is None:
            return self._tail_coordinates(tail.T).T
        lead = other.coordinates(self.lead).dense()
        means = lead / stats.group_n[self.lead][:, None]
        rest = self._tail_coordinates(tail.T - self._coupled(means.T)).T
        return np.concatenate([means * np.sqrt(stats.group_n[self.lead])[:, None], rest])

    def common_squares(self, other: Space) -> float:
        """Return ‖B'B_o‖² of two spaces with different leading terms, without their product.

        What the leading terms have in common is sparse; the tails should be short.
        """
        stats, a, b = self.stats, cast("int", self.lead), cast("int", other.lead)
        table = stats.gram(a, b).tocoo()
        total = float((table.data**2 / stats.group_n[a][table.row] / stats.group_n[b][table.col])
                      .sum())  # fmt: skip
        for space, term, n in ((other, a, stats.group_n[a]), (self, b, stats.group_n[b])):
            total += float((np.square(space.coordinates(term).tail) / n[:, None]).sum())
        parts = [other.coordinates(t).tail for t in self._others]
        of_fixed = other.coordinates_of_fixed()[:, other.rank - other.tail_rank :]
        products = np.concatenate([*parts, of_fixed])
        means = other.coordinates(a).tail / stats.group_n[a][:, None]
        tails = self._tail_coordinates(products.T - self._coupled(means.T))
        return total + float(np.square(tails).sum())

    def tail_products(self, other: Space) -> FloatArray:
        """Return B'B_o of the tails of two spaces with the same leading term.

        Both tails are orthogonal to the leading term's part of the bases, which they share.
        """
        parts = [other.coordinates(t).tail for t in self._others]
        of_fixed = other.coordinates_of_fixed()[:, other.rank - other.tail_rank :]
        return self._tail_coordinates(np.concatenate([*parts, of_fixed]).T).T

    # The tail ---------------------------------------------------------------------------------

    @cached_property
    def _coupling(self) -> Any:
        """Z_lead'Z of the other terms, side by side."""
        from scipy.sparse import csr_array, hstack

        lead = cast("int", self.lead)
        if not self._others:
            return csr_array((self.stats.sizes[lead], 0))
        tables = hstack([self.stats.gram(lead, t) for t in self._others]).tocsr()
        tables.sort_indices()
        return tables

    def _coupled(self, rows: FloatArray) -> FloatArray:
        """Return rows times Z_lead'[Z_others X], dense, for dense or sparse rows."""
        sparse = rows @ self._coupling
        dense = sparse if isinstance(sparse, np.ndarray) else sparse.toarray()
        return np.concatenate([dense, rows @ self.stats.ZX[cast("int", self.lead)]], axis=1)

    def _factorise(
        self, free_bytes: Callable[[], float]
    ) -> tuple[FloatArray, IntArray, FloatArray]:
        """Return scales, positions and Cholesky factor of the tail's independent columns."""
        S = self._cross_products_of_others(free_bytes)
        scale = np.sqrt(np.diagonal(S))
        if self.lead is not None:
            S -= self._cross_products_with_lead()
        S /= np.outer(scale, scale)
        with limited_blas(S.shape[0]):
            kept, factor = _independent(S)
        return scale[kept], kept, factor

    def _cross_products_of_others(self, free_bytes: Callable[[], float]) -> FloatArray:
        stats, others = self.stats, self._others
        ends = np.cumsum([0, *(stats.sizes[t] for t in others)])
        m = int(ends[-1])
        order = m + stats.n_fixed
        check_memory(
            4.0 * 8.0 * order**2,
            f"adjusting these terms for each other takes a dense matrix of order {order:,}, which "
            "needs",
            "with a constant mean method='anova' needs no such matrix",
            free_bytes=free_bytes,
        )
        S = np.empty((order, order))
        for i, t in enumerate(others):
            rows = slice(ends[i], ends[i + 1])
            for j, u in enumerate(others):
                S[rows, ends[j] : ends[j + 1]] = stats.gram(t, u).toarray()
            S[rows, m:] = stats.ZX[t]
            S[m:, rows] = stats.ZX[t].T
        S[m:, m:] = stats.XX
        return S

    def _cross_products_with_lead(self) -> FloatArray:
        """Return [Z_others X]'M_lead [Z_others X]."""
        lead = cast("int", self.lead)
        weights, coupling = 1.0 / self.stats.group_n[lead], self._coupling
        m = coupling.shape[1]
        X = self.stats.ZX[lead]
        weighted = X * weights[:, None]
        explained = np.empty((m + X.shape[1], m + X.shape[1]))
        explained[:m, :m] = weighted_gram(
            coupling.indptr.astype(np.int64),
            coupling.indices.astype(np.int32),
            coupling.data.astype(float),
            weights,
            m,
        )
        explained[:m, m:] = coupling.T @ weighted
        explained[m:, :m] = explained[:m, m:].T
        explained[m:, m:] = X.T @ weighted
        return explained

    def _tail_coordinates(self, products: FloatArray) -> FloatArray:
        """Return coordinates in the tail of B from rows of products with [Z_others X]."""
        from scipy.linalg import solve_triangular

        independent = products[:, self._kept] / self._scale
        if independent.size == 0:
            return independent
        with limited_blas(self._kept.size):
            solved: FloatArray = solve_triangular(
                self._factor, independent.T, lower=True, check_finite=False
            ).T
        return solved

    def _tail_slabs(self, term: int) -> Iterator[FloatArray]:
        """Yield Z_u'B for the tail of B, some groups at a time."""
        stats = self.stats
        if self.tail_rank == 0:
            yield np.zeros((stats.sizes[term], 0))
            return
        tables = [stats.gram(term, t) for t in self._others]
        to_lead = None
        if self.lead is not None:
            to_lead = stats.gram(term, self.lead).multiply(1.0 / stats.group_n[self.lead]).tocsr()
        for start in range(0, stats.sizes[term], _ROWS_AT_ONCE):
            slab = slice(start, start + _ROWS_AT_ONCE)
            products = np.concatenate(
                [*(t[slab].toarray() for t in tables), stats.ZX[term][slab]], axis=1
            )
            if to_lead is not None:
                products -= self._coupled(to_lead[slab])
            yield self._tail_coordinates(products)


def finest_terms(stats: CrossProducts, terms: frozenset[int]) -> list[int]:
    """Return the terms that are not coarser than another of them."""
    return [t for t in terms if not any(u != t and stats.is_finer(u, t) for u in terms)]


def _independent(S: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return independent columns of a semidefinite matrix and the Cholesky factor of their block.

    Parameters
    ----------
    S : cross-products of residuals, scaled by the norms of the columns before adjustment
    """
    from scipy.linalg.lapack import dpstrf

    # dpstrf does not check its first pivot against the tolerance.
    nonzero = np.flatnonzero(np.diagonal(S) > DEPENDENT)
    if nonzero.size == 0:
        return nonzero.astype(np.int32), np.zeros((0, 0))
    L, pivots, rank, _ = dpstrf(S[np.ix_(nonzero, nonzero)].T, tol=DEPENDENT, lower=1)
    kept: IntArray = nonzero[pivots[:rank] - 1].astype(np.int32)
    return kept, np.tril(L[:rank, :rank])


_SINGULAR = 1e-6
"""A pivot of V below this fraction of the residual component counts as zero."""


@dataclass(frozen=True, slots=True)
class PriorForms:
    """MINQUE's equations at one prior.

    Attributes
    ----------
    w : (k + 1,) the prior components at which the forms were computed
    matrix : (k + 1, k + 1) tr(P V_t P V_u), the residual last
    right : (k + 1,) y'P V_t P y
    second : (k + 1, k + 1) y'P V_t P V_u P y
    samples : (b, k + 1, k + 1) the matrix by each random probe; None if it is exact
    """

    w: FloatArray
    matrix: FloatArray
    right: FloatArray
    second: FloatArray
    samples: FloatArray | None = None

    @property
    def monte_carlo(self) -> FloatArray | None:
        """Monte Carlo standard errors of the solution, (k + 1,); None if the matrix is exact."""
        if self.samples is None:
            return None
        b = len(self.samples)
        away = solve(self.matrix, ((self.samples - self.matrix) @ self.solution).T)
        return np.sqrt(np.square(away).sum(axis=1) / (b * (b - 1.0)))

    @property
    def solution(self) -> FloatArray:
        """The MINQUE estimates at this prior.

        Raises
        ------
        numpy.linalg.LinAlgError
            If the equations are linearly dependent.
        """
        return solve(self.matrix, self.right)

    @property
    def information(self) -> FloatArray:
        """Observed information of the restricted likelihood, eq. (5.6)."""
        return self.second - 0.5 * self.matrix


class Priors(Protocol):
    """MINQUE's equations as a function of the prior."""

    def at(self, w: FloatArray) -> PriorForms:
        """Return the forms at components `w`, or at a multiple of them.

        Raises
        ------
        numpy.linalg.LinAlgError
            If the covariance matrix is not positive definite there.
        """

    def rights(self, w: FloatArray, stats: Sequence[Statistics]) -> FloatArray:
        """Return y'P V_t P y of other responses of the same rows, (b, k + 1).

        Parameters
        ----------
        w : (k + 1,) the prior
        stats : of the same rows with b responses
        """

    def covariance(self, forms: PriorForms, v: FloatArray) -> FloatArray | None:
        """Return the covariance of the right-hand side of `forms` at true components `v`.

        It is the bracket of eq. (2.13). None if it is known for v = w only: twice the matrix.
        """


class SpaceContrasts:
    """MINQUE's equations from contrasts of the data: priors may be negative.

    The contrasts are coordinates in an orthonormal basis of the space that the terms add to X.

    Parameters
    ----------
    stats : cross-products, centred
    """

    def __init__(self, stats: CrossProducts) -> None:
        from scipy.linalg import qr

        space = Space(stats, frozenset(range(stats.n_terms)))
        fixed = space.coordinates_of_fixed()
        p, rank = fixed.shape
        with limited_blas(rank):
            basis = qr(fixed.T)[0][:, p:] if p else np.eye(rank)
            Z = [basis.T @ space.coordinates(t).dense().T for t in range(stats.n_terms)]
        self._Z = np.concatenate(Z, axis=1)
        self._space, self._basis = space, basis
        self._y = self._contrasts_of(stats)
        self._starts = np.cumsum([0, *stats.sizes[:-1]])
        self._sizes = np.array(stats.sizes)
        self._n_outside = stats.n - rank
        self._rss_outside = self._outside(stats)
        self._last: tuple[bytes, FloatArray] | None = None

    def at(self, w: FloatArray) -> PriorForms:
        """Return the forms at components `w`, which may be negative."""
        with limited_blas(self._y.size):
            P = self._inverse(w)
            outside = 1.0 / w[-1] ** 2
            PZ, Py = P @ self._Z, P @ self._y
            matrix = self._forms(PZ, P, self._n_outside * outside)
            ZPy = self._Z.T @ Py
            starts = self._starts.tolist()
            slices = [slice(a, b) for a, b in pairwise([*starts, ZPy.size])]
            f = np.column_stack([*(self._Z[:, s] @ ZPy[s] for s in slices), Py])
            second = f.T @ P @ f
        right = np.append(self._by_term(np.square(ZPy)), Py @ Py + self._rss_outside * outside)
        second[-1, -1] += self._rss_outside * outside / w[-1]
        return PriorForms(w, matrix, right, second)

    def rights(self, w: FloatArray, stats: Sequence[Statistics]) -> FloatArray:
        """Return y'P V_t P y of other responses at components `w`, which may be negative."""
        sums = [s.cross_products for s in stats]
        with limited_blas(self._y.size):
            Py = self._inverse(w) @ np.column_stack([self._contrasts_of(s) for s in sums])
            of_terms = np.add.reduceat(np.square(self._Z.T @ Py), self._starts, axis=0)
        rest = np.square(Py).sum(axis=0) + [self._outside(s) / w[-1] ** 2 for s in sums]
        return np.vstack([of_terms, rest]).T

    def _contrasts_of(self, stats: CrossProducts) -> FloatArray:
        return self._basis.T @ self._space.coordinates_of_response(stats)

    def _outside(self, stats: CrossProducts) -> float:
        """Return the sum of squares that neither X nor the terms explain."""
        return max(stats.yy - self._space.reduction(stats), 0.0)

    def covariance(self, forms: PriorForms, v: FloatArray) -> FloatArray:
        """Return 2 tr(P V_t P V P V_u P V) with P at the prior and V at `v`, eq. (2.13)."""
        w = forms.w
        with limited_blas(self._y.size):
            P = self._inverse(w)
            PZ = P @ self._Z
            D = (PZ * np.repeat(v[:-1], self._sizes)) @ PZ.T + v[-1] * (P @ P)
            outside = self._n_outside * (v[-1] / w[-1] ** 2) ** 2
            return 2.0 * self._forms(D @ self._Z, D, outside)

    def _forms(self, DZ: FloatArray, D: FloatArray, outside: float) -> FloatArray:
        """Return ‖Z_t'D Z_u‖²; for the residual ‖D Z_t‖², and ‖D‖² + `outside`."""
        k = self._sizes.size
        forms = np.empty((k + 1, k + 1))
        rows = np.add.reduceat(np.square(self._Z.T @ DZ), self._starts, axis=0)
        forms[:k, :k] = np.add.reduceat(rows, self._starts, axis=1)
        forms[:k, k] = forms[k, :k] = self._by_term(np.square(DZ).sum(axis=0))
        forms[k, k] = np.square(D).sum() + outside
        return forms

    def _by_term(self, values: FloatArray) -> FloatArray:
        return np.add.reduceat(values, self._starts)

    def _inverse(self, w: FloatArray) -> FloatArray:
        """Return V⁻¹ in the basis; the last one is kept for the covariance at the same prior."""
        from scipy.linalg import cho_factor, cho_solve

        key = w.tobytes()
        if self._last is None or self._last[0] != key:
            if not w[-1] > 0.0:
                raise np.linalg.LinAlgError("the residual component is not positive")
            S = (self._Z * np.repeat(w[:-1], self._sizes)) @ self._Z.T
            S[np.diag_indices_from(S)] += w[-1]
            factor = cho_factor(S, overwrite_a=True, check_finite=False)
            # A pivot can be smaller than the residual only if another component is negative.
            if np.square(np.diagonal(factor[0])).min(initial=w[-1]) < _SINGULAR * w[-1]:
                raise np.linalg.LinAlgError("V is singular to rounding")
            self._last = key, cho_solve(factor, np.eye(len(S)), check_finite=False)
        return self._last[1]


class ExpectingEngine(LikelihoodEngine, Protocol):
    """An engine that computes the expected information exactly."""

    def quadratics(self, v: FloatArray) -> FloatArray:
        """Return y'P V_t P y at `v`, the residual last."""


@dataclass(frozen=True, slots=True)
class EngineForms:
    """MINQUE's equations from an engine of the restricted likelihood, for non-negative priors.

    Attributes
    ----------
    likelihood : the engine
    of_response : returns the engine of statistics of the same rows with another response
    """

    likelihood: ExpectingEngine
    of_response: Callable[[Statistics], ExpectingEngine]

    def mivque0(self) -> FloatArray:
        """Return the MIVQUE(0) estimates."""
        return self.likelihood.mivque0()

    def at(self, w: FloatArray) -> PriorForms:
        """Return the forms at a multiple of components `w`, none of them negative.

        The multiple makes y'P y = N − p; at others the right-hand side, a sum with the score,
        would lose digits.
        """
        degrees = self.likelihood.n - self.likelihood.n_fixed
        first = self.likelihood.derivatives(w).score
        scaled = w * ((2.0 * float(w @ first) + degrees) / degrees)
        matrix = 2.0 * self.likelihood.information(scaled, "expected")
        here = self.likelihood.derivatives(scaled)
        right = 2.0 * here.score + matrix @ scaled
        return PriorForms(scaled, matrix, right, 2.0 * here.average)

    def rights(self, w: FloatArray, stats: Sequence[Statistics]) -> FloatArray:
        """Return y'P V_t P y of other responses at components `w`, none of them negative."""
        return np.array([self.of_response(s).quadratics(w) for s in stats])

    def covariance(self, forms: PriorForms, v: FloatArray) -> None:
        """Return None: the covariance is known for v = w only."""
        return
