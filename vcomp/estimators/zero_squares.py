"""Squared norms of the forms of terms at zero that have very many groups.

‖Z_t'Q Z_u‖² could be taken over the columns of Q Z_t, one a group. With A = [Z X] of the positive
terms and the fixed part, F_t = A'Z_t and N_tu = Z_t'Z_u, Henderson's equations C say

    σ²_e Z_t'Q Z_u = N_tu − F_t'C⁻¹F_u,   Z_u'Q Z_t = [C⁻¹F_t]_u / σ²_u  where σ²_u > 0

so that, with G_t = F_t F_t', no matrix is larger than C or a pair table:

    σ⁴_e ‖Z_t'Q Z_u‖² = ‖N_tu‖² − 2 ⟨C⁻¹, F_t N_tu F_u'⟩ + tr(C⁻¹G_t C⁻¹G_u)
    σ⁴_u ‖Z_u'Q Z_t‖² = tr [C⁻¹G_t C⁻¹]_uu  where σ²_u > 0

The first cancels where A spans most of Z_t, which it cannot if t has many more groups than A has
columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray

if TYPE_CHECKING:
    from vcomp.estimators.equations import Point

__all__ = ["large_at_zero", "squares_at_zero"]

_MANY_ELEMENTS = 2e7
"""Elements of all columns of a term's forms above which they are not computed."""

_MOST_EFFECTS = 3000
"""Positive effects up to which a dense matrix between them takes less time than the columns."""

_TIMES_AS_MANY = 4
"""Groups of a term for each column of A from which on nothing cancels."""


def large_at_zero(point: Point) -> list[int]:
    """Return the terms at zero whose squares :func:`squares_at_zero` is to compute."""
    sizes, n_fixed = point.stats.sizes, point.stats.n_fixed
    rank = sum(sizes[t] for t in point.active) + n_fixed
    if rank > _MOST_EFFECTS:
        return []
    return [
        t
        for t, size in enumerate(sizes)
        if point.v[t] == 0.0
        and size * sum(sizes) > _MANY_ELEMENTS
        and size >= _TIMES_AS_MANY * rank
    ]


def squares_at_zero(point: Point, terms: Sequence[int], *, with_fixed: bool) -> FloatArray:
    """Return ‖Z_t'Q Z_u‖² of some terms at zero (rows) with all that are positive or among them.

    Parameters
    ----------
    point : the equations, factored
    terms : at zero
    with_fixed : Q is P, or else V⁻¹

    Returns
    -------
    (len(terms), k), nan for other terms at zero
    """
    stats, v = point.stats, point.v
    inverse = _inverse(point, with_fixed=with_fixed)
    between = {t: _with_positive(point, t, with_fixed=with_fixed) for t in terms}
    halves = {t: inverse @ _dense(F @ F.T) for t, F in between.items()}
    squares = np.full((len(terms), stats.n_terms), np.nan)
    for i, t in enumerate(terms):
        W = halves[t] @ inverse
        for u, place in zip(point.active, point.equations.slices, strict=True):
            squares[i, u] = np.trace(W[place, place]) / v[u] ** 2
        for u in terms:
            N = stats.gram(t, u)
            explained = np.sum(inverse * _dense(between[t] @ N @ between[u].T))
            twice = np.sum(halves[t] * halves[u].T)
            squares[i, u] = (np.square(N.data).sum() - 2.0 * explained + twice) / point.residual**2
    return squares


def _inverse(point: Point, *, with_fixed: bool) -> FloatArray:
    """Return C⁻¹, of the random part alone without X."""
    m = point.equations.group_n.size
    p = point.stats.n_fixed if with_fixed else 0
    units = np.eye(m + p)
    effects, beta = point.solve(units[:m], units[m:] if with_fixed else None)
    return np.concatenate([effects, beta]) if p else effects


def _with_positive(point: Point, term: int, *, with_fixed: bool) -> Any:
    """Return A'Z_t, sparse."""
    from scipy.sparse import csr_array, vstack

    stats, tables = point.stats, point.equations.tables
    blocks = [csr_array((0, stats.sizes[term])), *(tables.between(u, term) for u in point.active)]
    if with_fixed and stats.n_fixed:
        blocks.append(csr_array(stats.ZX[term].T))
    return vstack(blocks, format="csr")


def _dense(matrix: Any) -> FloatArray:
    dense: FloatArray = matrix.toarray()
    return dense
