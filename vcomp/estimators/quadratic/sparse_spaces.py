"""Spaces of two crossed terms with many groups: rank, reduction and traces without dense matrices.

The groups of two crossed terms a and b span q_a + q_b − c dimensions, where c is the number of
connected parts of the graph whose edges are the cells (Searle, Casella & McCulloch 1992, sec.
5.5). Projections of y and X on this space are solutions of its normal equations, which are
consistent, by conjugate gradients; what X adds to it is decided by the remainders.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.estimators.likelihood import PairProducts, SparseSystem, build_sparse_equations
from vcomp.estimators.quadratic.spaces import DEPENDENT, finest_terms
from vcomp.numerics import solve_positive
from vcomp.numerics.sparse import conjugate_gradients
from vcomp.statistics import CrossProducts

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
        equations = build_sparse_equations(stats, PairProducts(stats), (a, b))
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
