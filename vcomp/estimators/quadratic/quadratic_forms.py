"""The covariance of the T terms of Henderson's Method I, from pair tables alone.

Under normality Cov(T_α, T_β) = 2 tr(A_α V A_β V) with the projectors A_α = Z_α D_α⁻¹ Z_α'. This is
a sum of traces of chains, products of pair tables (docs/explanation/mathematics.md, eqs. (2.6) and
(2.7)). Chains are shortened: a projector next to a coarser term drops out (A_α Z_t = Z_t if α is
finer than t), adjacent tables of the same term are joined (N_aa is diagonal), and the incidence
matrix of the residual and of the total sum of squares is the identity. A shortened chain is the
sum of an elementwise product of two matrices between the two terms with the fewest groups; the
groups of large terms are summed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.numerics import available_bytes
from vcomp.statistics import CrossProducts, StratumStatistics

_BYTES_PER_ELEMENT = 40.0
"""Bytes of an element of a sparse product: an index and a value, two arrays of each at a time."""

Chain = list[tuple[int, int]]
"""The trace of N_ab D_b^p N_bc D_c^r …, as terms with the powers of their group sizes."""


@dataclass(frozen=True, slots=True)
class ChainLimits:
    """Size limits for the evaluation of chains of pair tables.

    Attributes
    ----------
    dense_below : elements up to which a product of pair tables is kept as a dense matrix
    most_elements : elements of a product above which a chain takes many seconds, so that probes
        are used
    many_terms : number of terms from which one dense product of all tables, if small, is faster
        than chains, whose number grows with the fourth power of the number of terms
    few_groups : groups of all terms together up to which that product is small
    free_bytes : returns the free memory
    """

    dense_below: int = 1_000_000
    most_elements: int = 5_000_000
    many_terms: int = 8
    few_groups: int = 3000
    free_bytes: Callable[[], float] = available_bytes


CHAIN_LIMITS = ChainLimits()


class TooLargeError(Exception):
    """A matrix of the computation would need too much memory or time."""


def quadratic_covariance(
    stats: CrossProducts, v: FloatArray, limits: ChainLimits = CHAIN_LIMITS
) -> FloatArray:
    """Return the covariance of T − T_μ, eq. (2.6), of the terms and, last, of all scores.

    Parameters
    ----------
    stats : cross-products
    v : (k + 1,) components, the residual last; some may be negative
    limits : sizes up to which chains are evaluated

    Raises
    ------
    TooLargeError
        If a matrix between the groups of two terms would need too much memory or time.
    """
    if stats.n_terms >= limits.many_terms and sum(stats.sizes) <= limits.few_groups:
        return _less_the_mean(_dense_forms(stats, v))
    chains = _Chains(stats, limits)
    return _less_the_mean(_projector_forms(chains, list(range(stats.n_terms + 2)), v))


def stratum_quadratic_covariance(
    stats: StratumStatistics, v: FloatArray, limits: ChainLimits = CHAIN_LIMITS
) -> FloatArray:
    """Return the covariance of :func:`quadratic_covariance` from orthogonal strata.

    Raises
    ------
    TooLargeError
        As :func:`quadratic_covariance`, for the groups of the cells.
    """
    chains = _Chains(stats.remainder.tables, limits)
    forms = np.zeros((stats.n_terms + 2, stats.n_terms + 2))
    for part in stratum_parts(stats, v):
        forms += part.spread(_projector_forms(chains, part.positions, part.v))
    return _less_the_mean(forms)


@dataclass(frozen=True, slots=True)
class StratumPart:
    """The contribution of one stratum to the forms of the model's terms.

    Attributes
    ----------
    positions : the projectors of the remainder that the stratum needs: its groupings by number,
        then ``n_terms`` of its tables for the mean, and one more for all observations
    v : the components of the stratum's covariance matrix
    multiplicity : number of the stratum's independent vectors
    inside : the terms of the model (then the mean, then the total) that contribute to the stratum
    places : index of the projector of each of these in `positions`
    n_forms : number of the model's terms, plus two for the mean and the total
    """

    positions: list[int]
    v: FloatArray
    multiplicity: int
    inside: list[int]
    places: list[int]
    n_forms: int

    def spread(self, traces: FloatArray) -> FloatArray:
        """Return the forms of the model's terms from the (..., m, m) traces of the stratum."""
        forms = np.zeros((*traces.shape[:-2], self.n_forms, self.n_forms))
        rows, columns = np.ix_(self.inside, self.inside)
        forms[..., rows, columns] = (
            self.multiplicity * traces[..., self.places, :][..., self.places]
        )
        return forms


def stratum_parts(stats: StratumStatistics, v: FloatArray) -> list[StratumPart]:
    """Return the projectors and components of each stratum.

    In a stratum, the projector of a term that has the stratum's contrasts is that of its grouping;
    the projectors of other terms are zero. Traces add up over strata.
    """
    k, single = stats.n_terms, stats.remainder.tables.n_terms
    mean, total = single, single + 1
    every = frozenset(range(len(stats.shape)))
    axes = [*stats.term_axes, frozenset(), every]
    of_term = [*(total if g == single else g for g in stats.term_groupings), mean, total]
    parts = []
    for stratum in stats.strata:
        inside = [a for a in range(k + 2) if axes[a].issuperset(stratum.contrasts)]
        used = sorted({of_term[a] for a in inside})
        places = [used.index(of_term[a]) for a in inside]
        v_s = stratum.coefficients @ v
        parts.append(StratumPart(used, v_s, stratum.multiplicity, inside, places, k + 2))
    return parts


def _dense_forms(stats: CrossProducts, v: FloatArray) -> FloatArray:
    """Return tr(A_a V A_b V) of all terms, then the mean, then all observations.

    Let G = Z'Z of all terms and the mean, D the diagonal matrix of their groups' components, and
    σ² the residual. Then Z'VZ = G D G + σ² G and Z'V²Z = G D G D G + 2σ² G D G + σ⁴ G, of which
    the diagonal is needed only.
    """
    k, s2 = stats.n_terms, v[-1]
    n = np.concatenate([*stats.group_n, [float(stats.n)]])
    starts = np.cumsum([0, *stats.sizes])
    G = np.empty((n.size, n.size))
    for t in range(k):
        for u in range(k):
            G[starts[t] : starts[t + 1], starts[u] : starts[u + 1]] = stats.gram(t, u).toarray()
    G[-1] = G[:, -1] = n
    d = np.concatenate([np.repeat(v[:-1], stats.sizes), [0.0]])
    GDG = (G * d) @ G
    of_pairs = np.square(GDG + s2 * G) / np.outer(n, n)
    forms = np.empty((k + 2, k + 2))
    by_rows = np.add.reduceat(of_pairs, starts, axis=0)
    forms[:-1, :-1] = np.add.reduceat(by_rows, starts, axis=1)
    squares = (GDG * G) @ d + 2.0 * s2 * np.diagonal(GDG) + s2**2 * n
    forms[-1, :-1] = forms[:-1, -1] = np.add.reduceat(squares / n, starts)
    forms[-1, -1] = d @ np.square(G) @ d + 2.0 * s2 * (d @ n) + s2**2 * stats.n
    return forms


def _projector_forms(chains: _Chains, positions: list[int], v: FloatArray) -> FloatArray:
    """Return tr(A_a V A_b V) of some projectors: terms, then the mean, then all observations."""
    # All chains are planned before the first is evaluated, as one of them may be too large.
    planned = {
        (i, j): [(weight, chains.planned(chain)) for weight, chain in _weighted_chains(a, b, v)]
        for i, a in enumerate(positions)
        for j, b in enumerate(positions[: i + 1])
    }
    forms = np.empty((len(positions), len(positions)))
    for (i, j), terms in planned.items():
        forms[i, j] = forms[j, i] = sum(weight * chains.trace(chain) for weight, chain in terms)
    return forms


def contrast_with_mean(k: int) -> FloatArray:
    """Return the (k + 1, k + 2) matrix of T − T_μ, for T of the terms, the mean and the total."""
    contrast = np.zeros((k + 1, k + 2))
    contrast[:k, :k] = np.eye(k)
    contrast[k, k + 1] = 1.0
    contrast[:, k] = -1.0
    return contrast


def _less_the_mean(forms: FloatArray) -> FloatArray:
    """Return 2 tr((A_α − A_μ) V (A_β − A_μ) V) from tr(A_a V A_b V)."""
    contrast = contrast_with_mean(forms.shape[0] - 2)
    return 2.0 * contrast @ forms @ contrast.T


def _weighted_chains(a: int, b: int, v: FloatArray) -> Iterator[tuple[float, Chain]]:
    """Yield the chains of tr(A_a V A_b V), eq. (2.7), with their weights.

    a and b are terms, k for the mean, or k + 1 for the total.
    """
    k = v.size - 1
    for t, u in combinations_with_replacement(range(k + 1), 2):
        weight = v[t] * v[u] * (1.0 if t == u else 2.0)
        if weight == 0.0:
            continue
        # The incidence matrix of the total (a, b = k + 1) and the residual (t, u = k) is I.
        chain = [(a, -1)] if a <= k else []
        chain += [(t, 0)] if t < k else []
        chain += [(b, -1)] if b <= k else []
        chain += [(u, 0)] if u < k else []
        yield float(weight), chain


class _Chains:
    """Traces of closed chains of pair tables; the mean is a term with one group."""

    def __init__(self, stats: CrossProducts, limits: ChainLimits) -> None:
        self.n = stats.n
        self._stats = stats
        self._group_n = [*stats.group_n, np.array([float(stats.n)])]
        self._tables: dict[tuple[int, int], Any] = {}
        self._products: dict[tuple[int, int, int, int], Any] = {}
        free = 0.4 * limits.free_bytes() / _BYTES_PER_ELEMENT
        self._limit = min(free, limits.most_elements)
        self._dense_below = limits.dense_below

    def planned(self, chain: Chain) -> Chain:
        """Return the shortened chain, rotated so that the larger of its two products is smallest.

        Raises
        ------
        TooLargeError
            If one of these products would need too much memory or time.
        """
        chain = self._shortened(chain)
        if len(chain) < 3:
            return chain
        turns = [chain[i:] + chain[:i] for i in range(len(chain))]
        best = min(turns, key=self._largest)
        if self._largest(best) > max(self._limit, self._dense_below):
            raise TooLargeError
        return best

    def trace(self, chain: Chain) -> float:
        """Return the trace of a chain from :meth:`planned`."""
        if not chain:
            return float(self.n)
        if len(chain) == 1:
            ((a, p),) = chain
            return float((self._group_n[a] ** (p + 1)).sum())
        if len(chain) == 2:
            (a, p), (b, r) = chain
            table = self._table(a, b)
            return self._inner(table, table, a, p, b, r)
        (a, p), (b, s), (c, r) = chain[:3]
        other = self._product(a, *chain[3], c) if len(chain) == 4 else self._table(a, c)
        return self._inner(self._product(a, b, s, c), other, a, p, c, r)

    def _shortened(self, chain: Chain) -> Chain:
        """Return the chain without projectors next to coarser terms, equal neighbours joined."""
        chain = _joined(chain)
        for i, (term, power) in enumerate(chain):
            neighbours = (chain[i - 1][0], chain[(i + 1) % len(chain)][0])
            if power == -1 and len(chain) > 1 and any(self._finer(term, x) for x in neighbours):
                return self._shortened(chain[:i] + chain[i + 1 :])
        return chain

    def _finer(self, a: int, b: int) -> bool:
        """Whether term a is finer than term b; every term is finer than the mean."""
        mean = self._stats.n_terms
        return b == mean or (a != mean and self._stats.is_finer(a, b))

    def _dense_elements(self, a: int, c: int) -> float:
        """Return the number of elements of a dense matrix between the groups of two terms."""
        return float(self._group_n[a].size) * float(self._group_n[c].size)

    def _largest(self, turn: Chain) -> float:
        """Return an upper bound of the elements of the larger of a chain's two products."""
        a, *between = [term for term, _ in turn]
        b, c = between[:2]
        return max(self._elements(a, through, c) for through in (b, *between[2:]))

    def _elements(self, a: int, b: int, c: int) -> float:
        """Return an upper bound of the entries of N_ab N_bc: few if b is finer than a or c."""
        bound = self._dense_elements(a, c)
        if self._finer(b, a):
            bound = min(bound, self._entries(b, c))
        if self._finer(b, c):
            bound = min(bound, self._entries(a, b))
        return bound

    def _entries(self, a: int, b: int) -> float:
        """Return the number of entries of N_ab."""
        if a == b or self._stats.n_terms in (a, b):
            return float(max(self._group_n[a].size, self._group_n[b].size))
        return float(self._stats.pairs[min(a, b), max(a, b)].indices.size)

    def _inner(self, X: Any, Y: Any, a: int, p: int, c: int, r: int) -> float:
        """Return Σ_ij n_i^p X_ij Y_ij n_j^r."""
        both = X * Y if isinstance(X, np.ndarray) else X.multiply(Y)
        return float(self._group_n[a] ** float(p) @ (both @ self._group_n[c] ** float(r)))

    def _product(self, a: int, b: int, p: int, c: int) -> Any:
        """Return N_ab diag(n_b^p) N_bc; small products are kept."""
        key = (a, b, p, c)
        if key in self._products:
            return self._products[key]
        left = self._stored(a, b)
        scaled = left * (self._group_n[b] ** float(p))[None, :]
        product = scaled @ self._stored(b, c)
        small = self._dense_elements(a, c) <= self._dense_below
        if not isinstance(product, np.ndarray):
            product = product.toarray() if small else product.tocsr()
        if small:
            self._products[key] = product
        return product

    def _table(self, a: int, b: int) -> Any:
        """Return N_ab, dense if products of this shape are dense."""
        table = self._stored(a, b)
        small = self._dense_elements(a, b) <= self._dense_below
        return table.toarray() if small and not isinstance(table, np.ndarray) else table

    def _stored(self, a: int, b: int) -> Any:
        """Return N_ab, sparse; that of the mean is a row or column of group sizes."""
        from scipy.sparse import csr_array

        if (a, b) not in self._tables:
            mean = self._stats.n_terms
            if mean in (a, b):
                column = self._group_n[b if a == mean else a]
                shaped = column[None, :] if a == mean else column[:, None]
                self._tables[a, b] = csr_array(shaped)
            else:
                self._tables[a, b] = self._stats.gram(a, b)
        return self._tables[a, b]


def _joined(chain: Chain) -> Chain:
    """Join neighbours that are the same term: N_aa is the diagonal matrix of its group sizes."""
    joined: Chain = []
    for term, power in chain:
        if joined and joined[-1][0] == term:
            joined[-1] = (term, joined[-1][1] + power + 1)
        else:
            joined.append((term, power))
    if len(joined) > 1 and joined[0][0] == joined[-1][0]:
        term, power = joined.pop()
        joined[0] = (term, joined[0][1] + power + 1)
    return joined
