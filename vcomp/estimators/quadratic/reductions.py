"""Analyses of variance from reductions in sum of squares, for Type I and Henderson III.

The sum of squares of a term is SS_t = R(F_t, t) − R(F_t) (docs/explanation/mathematics.md, eq.
(2.9)), with the expectation (2.10) and the covariance (2.11). With the residual makers
N_F = I − M_F of sets of terms, the covariance is a sum of traces tr(N_F V N_G V). Type I and
Henderson III differ in the set F_t (Searle, Casella & McCulloch 1992, sec. 5.5).

The groups of two crossed terms a and b span q_a + q_b − c dimensions, where c is the number of
connected parts of the graph whose edges are the cells (same section). Where the groups are many,
projections of y and X on this space are solutions of its normal equations, which are consistent,
by conjugate gradients; what X adds to it is decided by the remainders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.estimators.likelihood import SparseSystem, build_sparse_equations
from vcomp.estimators.quadratic.anova import AnovaTable
from vcomp.estimators.quadratic.quadratic_forms import TooLargeError
from vcomp.estimators.quadratic.spaces import DEPENDENT, Coordinates, Space, finest_terms
from vcomp.exceptions import EstimationError
from vcomp.numerics import available_bytes, solve_positive
from vcomp.numerics.sparse import conjugate_gradients
from vcomp.statistics import CrossProducts

Terms = frozenset[int]

_BYTES_PER_ELEMENT = 40.0
"""Bytes of an element of a sparse product: an index and a value, two arrays of each at a time."""


@dataclass(frozen=True, slots=True)
class ReductionLimits:
    """Size limits of matrices between the groups of two terms.

    Attributes
    ----------
    dense_below : elements up to which Z_u'N Z_w is formed; for larger ones inner products are
        expanded
    kept_share : share of the free memory in which such matrices are kept for further pairs of
        spaces
    most_products : multiplications up to which the bases of two spaces are compared: about half a
        second
    sparse_from : groups of the smaller of two crossed terms at which the normal equations of their
        space are solved, instead of an orthonormal basis
    free_bytes : returns the free memory
    """

    dense_below: int = 4_000_000
    kept_share: float = 0.1
    most_products: float = 4e9
    sparse_from: int = 1_000
    free_bytes: Callable[[], float] = available_bytes


REDUCTION_LIMITS = ReductionLimits()


@dataclass(frozen=True, slots=True)
class Adjustment:
    """A term and the terms that it is adjusted for."""

    term: int
    others: Terms

    @property
    def both(self) -> Terms:
        """The terms of the larger space: the others and the term itself."""
        return self.others | {self.term}


class Reductions:
    """Sums of squares of the terms, each adjusted for some others, and of the residual.

    Parameters
    ----------
    stats : cross-products, centred
    adjustments : for each term, in order, the terms that it is adjusted for
    limits : sizes up to which matrices are formed

    Attributes
    ----------
    df : (k + 1,) degrees of freedom, the residual last
    sum_sq : (k + 1,) sums of squares
    coefficients : (k + 1, k + 1) of the components (columns) in the expected sums of squares
    """

    def __init__(
        self,
        stats: CrossProducts,
        adjustments: Sequence[Adjustment],
        limits: ReductionLimits = REDUCTION_LIMITS,
    ) -> None:
        self.stats = stats
        self._limits = limits
        self.adjustments = tuple(adjustments)
        self._full: Terms = frozenset(range(stats.n_terms))
        wanted = {self._full}.union(*({a.others, a.both} for a in adjustments))
        self._spaces = {terms: self._space(terms) for terms in wanted}
        self._free_bytes = limits.kept_share * limits.free_bytes()
        self._blocks: dict[tuple[Terms, int, int], FloatArray] = {}
        self._coordinates: dict[tuple[Terms, int], Coordinates] = {}
        ranks = {terms: space.rank for terms, space in self._spaces.items()}
        self.df = np.array([*self._differences(ranks), stats.n - ranks[self._full]])
        self.sum_sq = self.squares_of(stats)
        self.coefficients = self._expectations()

    def _space(self, terms: Terms) -> Space | SparseSpace:
        if serves(self.stats, terms, self._limits.sparse_from):
            try:
                return SparseSpace(self.stats, terms)
            except np.linalg.LinAlgError:
                pass
        return Space(self.stats, terms)

    def _dense(self, terms: Terms) -> Space:
        """Return a space with a basis: that of terms that leave another one out."""
        space = self._spaces[terms]
        assert isinstance(space, Space)
        return space

    def table(self, names: tuple[str, ...]) -> AnovaTable:
        """Return the analysis of variance with its expected mean squares."""
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = np.where(self.df[:, None] > 0, self.coefficients / self.df[:, None], np.nan)
        return AnovaTable(names, self.df.astype(float), self.sum_sq, expected)

    def covariance(self, v: FloatArray) -> FloatArray:
        """Return the covariance of the sums of squares at components `v`, under normality.

        Raises
        ------
        TooLargeError
            If a matrix between the groups of two terms would not fit into memory.
        """
        k = self.stats.n_terms
        forms: dict[tuple[Terms, Terms], float] = {}

        def form(a: Terms, b: Terms) -> float:
            if (a, b) not in forms:
                forms[a, b] = forms[b, a] = self._form(a, b, v)
            return forms[a, b]

        covariance = np.zeros((k + 1, k + 1))
        covariance[k, k] = 2.0 * self.df[k] * v[k] ** 2
        for s, t in combinations_with_replacement(range(k), 2):
            a, b = self.adjustments[s], self.adjustments[t]
            trace = form(a.others, b.others) - form(a.others, b.both)
            trace += form(a.both, b.both) - form(a.both, b.others)
            covariance[s, t] = covariance[t, s] = 2.0 * trace
        return covariance

    def refuse_nothing_left(self, names: tuple[str, ...], advice: str) -> None:
        """Refuse a term, or a residual, without degrees of freedom.

        Raises
        ------
        EstimationError
            If there is one; the message names it and its adjustment, with `advice`.
        """
        for adjustment in self.adjustments:
            if self.df[adjustment.term] <= 0:
                others = ", ".join(names[t] for t in sorted(adjustment.others))
                before = f"the fixed part and {others}" if others else "the fixed part"
                raise EstimationError(
                    f"term {names[adjustment.term]!r} has no degrees of freedom after adjustment "
                    f"for {before}: {advice}",
                    term=names[adjustment.term],
                )
        if self.df[-1] <= 0:
            raise EstimationError(
                f"the residual has no degrees of freedom after adjustment for the fixed part and "
                f"{', '.join(names[:-1])}: they reproduce the response; use method='reml', or "
                "leave out a term"
            )

    # Sums of squares --------------------------------------------------------------------------

    def _differences(self, of_spaces: Mapping[Terms, float]) -> list[float]:
        return [of_spaces[a.both] - of_spaces[a.others] for a in self.adjustments]

    def squares_of(self, stats: CrossProducts) -> FloatArray:
        """Return the sums of squares of statistics of the same rows with another response."""
        explained = {terms: space.reduction(stats) for terms, space in self._spaces.items()}
        residual = stats.yy - explained[self._full]
        sums = np.array([*self._differences(explained), residual])
        # Without degrees of freedom the difference is rounding error.
        return np.where(self.df > 0, np.maximum(sums, 0.0), 0.0)

    def _expectations(self) -> FloatArray:
        k = self.stats.n_terms
        traces = {terms: [s.trace(u) for u in range(k)] for terms, s in self._spaces.items()}
        coefficients = np.zeros((k + 1, k + 1))
        coefficients[:, k] = self.df
        for row, a in enumerate(self.adjustments):
            coefficients[row, :k] = np.subtract(traces[a.others], traces[a.both])
        return coefficients

    # Covariance -------------------------------------------------------------------------------

    def _form(self, a: Terms, b: Terms, v: FloatArray) -> float:
        """Return tr(N_a V N_b V) of two spaces, from Z_u'N_a Z_w and Z_u'N_b Z_w."""
        k, left = self.stats.n_terms, [t for t in range(v.size - 1) if t not in a | b]
        total = 0.0
        for u, w in combinations_with_replacement(left, 2):
            weight = v[u] * v[w] * (1.0 if u == w else 2.0)
            if weight != 0.0:
                total += weight * self._inner(a, b, u, w)
        if v[k] == 0.0:
            return total
        if a <= b or b <= a:
            # If one space contains the other, N_a N_b is the residual maker of the larger one.
            larger = self._spaces[a | b]
            traces = [larger.trace(u) for u in left]
            alone = float(self.stats.n - larger.rank)
        else:
            traces, alone = self._products(a, b, left)
        return total + float(2.0 * v[k] * (v[left] @ traces) + v[k] ** 2 * alone)

    def _inner(self, a: Terms, b: Terms, u: int, w: int) -> float:
        """Return ⟨Z_u'N_a Z_w, Z_u'N_b Z_w⟩."""
        size = self.stats.sizes[u] * self.stats.sizes[w]
        if size <= self._limits.dense_below:
            first = self._block(a, u, w)
            return float(np.vdot(first, first if a == b else self._block(b, u, w)))
        return self._expanded(a, b, u, w)

    def _block(self, a: Terms, u: int, w: int) -> FloatArray:
        """Return Z_u'N_a Z_w, dense."""
        if (a, u, w) in self._blocks:
            return self._blocks[a, u, w]
        C, D = self._of(a, u), self._of(a, w)
        sparse = self.stats.gram(u, w) - C.lead @ D.lead.T
        block: FloatArray = sparse.toarray() - C.tail @ D.tail.T
        if block.nbytes <= self._free_bytes:
            self._free_bytes -= block.nbytes
            self._blocks[a, u, w] = block
        return block

    def _expanded(self, a: Terms, b: Terms, u: int, w: int) -> float:
        """Return :meth:`_inner` as ⟨G − C_u C_w', G − D_u D_w'⟩, expanded so that G stays sparse.

        G = Z_u'Z_w, and C and D are the coordinates in the two spaces.
        """
        G = self.stats.gram(u, w)
        total = float(np.square(G.data).sum())
        for space in (a, b):
            C, D = self._of(space, u), self._of(space, w)
            total -= float(C.lead.multiply(self._product(G, D.lead)).sum())
            total -= float(np.vdot(C.tail, G @ D.tail))
        left = self._products_of(a, b, u)
        right = left if u == w else self._products_of(a, b, w)
        total += float(left[0].multiply(right[0]).sum())
        return total + sum(float(np.vdot(x, y)) for x, y in zip(left[1:], right[1:], strict=True))

    def _products_of(self, a: Terms, b: Terms, u: int) -> tuple[Any, ...]:
        """Return the four blocks of C_u'D_u by leading term and tail; the first one is sparse."""
        C, D = self._of(a, u), self._of(b, u)
        return (
            self._product(C.lead.T.tocsr(), D.lead),
            C.lead.T @ D.tail,
            C.tail.T @ D.lead,
            C.tail.T @ D.tail,
        )

    def _products(self, a: Terms, b: Terms, left: list[int]) -> tuple[list[float], float]:
        """Return tr(Z_u'N_a N_b Z_u) of the terms `left`, and tr(N_a N_b)."""
        first, second = self._dense(a), self._dense(b)
        shared = first.lead == second.lead and first.lead is not None
        if shared:
            joint = first.tail_products(second)
        elif not left and first.lead is not None and second.lead is not None:
            common = first.common_squares(second)
            return [], float(self.stats.n - first.rank - second.rank + common)
        else:
            width = sum(self.stats.sizes[u] for u in left) + first.tail_rank
            if float(first.rank) * second.rank * width > self._limits.most_products:
                raise TooLargeError
            joint = first.basis_products(second)
        traces = []
        for u in left:
            C, D = self._of(a, u), self._of(b, u)
            trace = first.trace(u) + second.trace(u) - float(self.stats.group_n[u].sum())
            if shared:
                trace += float(np.square(C.lead.data).sum() + np.vdot(C.tail.T @ D.tail, joint))
            else:
                trace += float(np.vdot(C.dense().T @ D.dense(), joint))
            traces.append(trace)
        common = np.square(joint).sum() + (first.rank - first.tail_rank if shared else 0)
        return traces, float(self.stats.n - first.rank - second.rank + common)

    def _of(self, a: Terms, u: int) -> Coordinates:
        if (a, u) not in self._coordinates:
            space = self._dense(a)
            self._check_size(float(self.stats.sizes[u]) * space.tail_rank)
            self._coordinates[a, u] = space.coordinates(u)
        return self._coordinates[a, u]

    def _product(self, left: Any, right: Any) -> Any:
        """Return the product of sparse matrices.

        Raises
        ------
        TooLargeError
            If it could be too large for the memory.
        """
        terms = float(np.diff(right.indptr)[left.indices].sum(dtype=np.float64))
        self._check_size(min(terms, float(left.shape[0]) * right.shape[1]))
        return left @ right

    def _check_size(self, elements: float) -> None:
        if elements * _BYTES_PER_ELEMENT > 0.4 * self._limits.free_bytes():
            raise TooLargeError


# Two crossed terms with many groups --------------------------------------------------------------

_TOLERANCE = 1e-11
"""Tolerance of the normal equations, relative to their right-hand sides; the error of forms is its
square."""

_STEPS = 1000
"""Largest number of steps for the normal equations."""

_ROUNDING = 1e-12
"""Norm of a right-hand side, relative to that before elimination, below which it is rounding
error."""


class SparseSpace:
    """The space of X and of two crossed terms, with terms that are coarser than these.

    Parameters
    ----------
    stats : cross-products, centred
    terms : positions of the terms

    Raises
    ------
    numpy.linalg.LinAlgError
        If the normal equations do not converge, as where groups are loosely connected.
    """

    def __init__(self, stats: CrossProducts, terms: frozenset[int]) -> None:
        self.stats = stats
        self.terms = terms
        a, b = sorted(finest_terms(stats, terms), key=lambda t: (-stats.sizes[t], t))
        equations = build_sparse_equations(stats, (a, b))
        zero = np.zeros(stats.n_terms + 1)
        zero[[a, b]] = 1.0  # no ridges: both terms are treated as fixed
        self._system, self._pair = equations.at(zero), (a, b)
        self._left = _remainder(stats, self._system, (a, b))
        self._kept = _independent(self._left[1:, 1:], np.diagonal(stats.XX))
        self.rank = stats.sizes[a] + stats.sizes[b] - _n_parts(stats, a, b) + self._kept.size

    def reduction(self, stats: CrossProducts) -> float:
        """Return R(F) = y'M y of the centred y of statistics of the same rows."""
        left, kept = self._left, self._kept
        if stats is not self.stats:
            left = _remainder(stats, self._system, self._pair)
        of_y = left[1:, 0][kept]
        by_X = of_y @ solve_positive(left[1:, 1:][np.ix_(kept, kept)], of_y) if kept.size else 0.0
        return stats.yy - float(left[0, 0]) + float(by_X)

    def trace(self, term: int) -> float:
        """Return tr(Z_u'N Z_u), which is 0: the space has the groups of term u, or finer ones."""
        assert is_spanned(self.stats, term, self.terms)
        return 0.0


def is_spanned(stats: CrossProducts, term: int, terms: frozenset[int]) -> bool:
    """Whether the groups of a term are sums of groups of one of `terms`."""
    return any(stats.is_finer(t, term) for t in terms)


def serves(stats: CrossProducts, terms: frozenset[int], least: int) -> bool:
    """Whether a sparse space of these terms suffices for all forms.

    Parameters
    ----------
    stats : cross-products
    terms : positions of the terms
    least : smallest number of groups of the smaller term
    """
    finest = finest_terms(stats, terms)
    return (
        len(finest) == 2
        and min(stats.sizes[t] for t in finest) >= least
        and all(is_spanned(stats, t, terms) for t in range(stats.n_terms))
    )


def _remainder(stats: CrossProducts, system: SparseSystem, terms: tuple[int, int]) -> FloatArray:
    """Return the squares and products of [y X] that are left outside the space of the terms."""
    lead, tail = (np.column_stack([stats.Zy[t], stats.ZX[t]]) for t in terms)
    top = np.column_stack([np.append(stats.yy, stats.Xy), np.vstack([stats.Xy, stats.XX])])
    reduced = system.reduce(lead, tail)
    # A column of the space of term a, such as the intercept, leaves rounding errors, which are
    # not in the range of the singular equations.
    roots = np.sqrt(system.tail)[:, None]
    before, after = (np.square(c / roots).sum(axis=0) for c in (tail, reduced.tail))
    reduced = replace(reduced, tail=np.where(after > _ROUNDING**2 * before, reduced.tail, 0.0))
    # Nothing is left of a group of b that is alone in its groups of a.
    diagonal = np.where(system.diagonal > _ROUNDING * system.tail, system.diagonal, system.tail)
    solved = conjugate_gradients(
        system.product, diagonal, reduced.tail, tol=_TOLERANCE, max_iter=_STEPS
    )
    if not solved.converged:
        raise np.linalg.LinAlgError("the normal equations did not converge")
    return top - system.forms(reduced, solved.x, solved.residual)


def _independent(left: FloatArray, squares: FloatArray) -> LongArray:
    """Return the columns of X, in order, that are not in the space of the terms and the others."""
    kept: list[int] = []
    for j in range(squares.size):
        rest = left[j, j]
        if kept:
            block = left[np.ix_(kept, kept)]
            rest -= left[kept, j] @ solve_positive(block, left[kept, j])
        if rest > DEPENDENT * squares[j]:
            kept.append(j)
    return np.array(kept, dtype=np.int64)


def _n_parts(stats: CrossProducts, a: int, b: int) -> int:
    """Return the number of connected parts of the groups of two terms."""
    from scipy.sparse import block_array
    from scipy.sparse.csgraph import connected_components

    cells = stats.gram(a, b)
    graph = block_array([[None, cells], [cells.T, None]])
    return int(connected_components(graph, directed=False, return_labels=False))
