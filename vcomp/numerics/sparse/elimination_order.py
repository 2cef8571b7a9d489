"""Elimination order of a symmetric matrix, and its split into sparse and dense columns.

If all leading columns are leaves of the elimination tree, no such column depends on another: the
Schur complement of the dense part, the forms of its inverse and the cross-products of L are sums
over columns (:class:`LeafPairs`). Each is one sparse product, so that nothing is compiled, and as
fast as a compiled loop, as long as the products of all pairs of entries can be stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.numerics.costs import COSTS
from vcomp.numerics.kernels.ordering import elimination_tree, minimum_degree

_NEARLY, _MOMENT = 1.2, 1e-3
"""Factor and seconds by which a cut at a block's end may exceed the cheapest and is still used."""

_GOOD_ENOUGH = 0.5
"""Estimated seconds up to which no other order is tried."""

_MOST_SECONDS, _VISITS_PER_SECOND = 3.0, 1e8
"""Time that the search for an order may take, and how many entries it visits in a second."""

_DENSE_SHARE = 0.6
"""The rest counts as dense if each unknown is coupled with a larger fraction of it."""

_MOST_ENTRIES = 450_000_000
"""Entries of L above which counting stops: 5 GiB, or a dense matrix of order 30,000."""

_LEAST_COUNTED = 1_000_000
"""Entries of L that are counted in any case."""


@dataclass(frozen=True, slots=True)
class EliminationOrder:
    """An order of elimination with its cost.

    Attributes
    ----------
    order : (n,) the unknowns in the order of elimination, None if it is the original order
    cut : number of unknowns that are eliminated as a sparse matrix
    lower : the strictly lower triangle of the matrix in that order, sparse rows
    parent, counts : (cut,) elimination tree, and numbers of entries of L below the diagonal
    seconds : estimated time of one factorisation and inverse
    pairs : of the entries of the leading columns, if all are leaves and these are few
    """

    order: LongArray | None
    cut: int
    lower: Any
    parent: IntArray
    counts: LongArray
    seconds: float
    pairs: LeafPairs | None = None

    @property
    def n_dense(self) -> int:
        """Order of the dense part."""
        return int(self.lower.shape[0] - self.cut)

    @property
    def bytes_for_traces(self) -> float:
        """Bytes of factor and inverse, without squared norms."""
        pairs = self.pairs.products.nnz if self.pairs else 0
        return 36.0 * float(self.counts.sum()) + 12.0 * pairs + 8.0 * 3.0 * self.n_dense**2

    @property
    def bytes_for_norms(self) -> float:
        """Bytes of factor and inverse, with the squared norms of the inverse's blocks."""
        return self.bytes_for_traces + 20.0 * float(self.counts.sum()) + 16.0 * self.n_dense**2


def plan_elimination(
    matrix: Any,
    sizes: list[int],
    *,
    good_enough: float = _GOOD_ENOUGH,
    most_seconds: float = np.inf,
    most_entries: int = _MOST_ENTRIES,
) -> EliminationOrder | None:
    """Return the cheaper of the original and a minimum degree order; None if L is too large.

    Parameters
    ----------
    matrix : (n, n) symmetric, sparse rows, without its diagonal
    sizes : sizes of the diagonal blocks, the first of which has no entries
    good_enough : seconds below which no other order is tried
    most_seconds : which a factorisation, and the search for another order, may take
    most_entries : entries of L above which counting stops
    """
    from scipy.sparse import tril

    # A triangle of m²/2 entries, and columns: with more of them no cut is fast enough.
    most = most_seconds * (1.0 / COSTS.elimination.entry + 0.5 / COSTS.elimination.square)
    most_entries = int(min(most_entries, max(most, _LEAST_COUNTED)))
    lower = tril(matrix, -1, format="csr")
    lower.sort_indices()
    ends = [0, *np.cumsum(sizes).tolist()]
    best = _of_leaves(lower, ends[min(1, len(sizes))], most_entries) or _cheapest(
        lower, None, lower.shape[0], ends, most_entries
    )
    if best is None or best.seconds > good_enough:
        order, last = _minimum_degree(matrix, min(most_seconds, _MOST_SECONDS))
        lower = tril(matrix[order][:, order], -1, format="csr")
        lower.sort_indices()
        other = _cheapest(lower, order, last, [0, last], most_entries)
        if best is None or (other is not None and other.seconds < 0.8 * best.seconds):
            best = other
    return best


def _minimum_degree(matrix: Any, seconds: float) -> tuple[LongArray, int]:
    """Return a minimum degree order and the number of its sparse columns.

    Unknowns with very many neighbours come last, as they would slow down the search.
    """
    degree = np.diff(matrix.indptr)
    crowded = degree > max(32.0, 4.0 * np.sqrt(degree.size))
    kept = np.flatnonzero(~crowded)
    part = matrix[kept][:, kept]
    order, last = minimum_degree(
        part.indptr.astype(np.int64),
        part.indices.astype(np.int32),
        _DENSE_SHARE,
        _VISITS_PER_SECOND * seconds,
    )
    return np.concatenate([kept[order], np.flatnonzero(crowded)]), last


def _of_leaves(lower: Any, first: int, most_entries: int) -> EliminationOrder | None:
    """Return the original order, cut after its first block, if no other cut is much cheaper.

    That block has no entries: its columns of L have the pattern of the matrix. Later columns have
    at least the entries of the Schur complement. None if that does not decide, or there are too
    many entries.
    """
    if _is_sparse_beyond(lower, first):
        return None
    n = lower.shape[0]
    unfilled = np.zeros(n, np.int64)
    unfilled[:first] = np.bincount(lower.indices, minlength=n)[:first]
    least = _seconds(unfilled, n, [0, first])
    if least[0] <= least.min():  # whatever is filled: products of entries take longer to form
        none = np.zeros(0, np.int32), unfilled[:0]
        return EliminationOrder(None, 0, lower, *none, float(least[0]), LeafPairs.of(lower, 0))
    pairs = LeafPairs.of(lower, first)
    if pairs is None or pairs.leading.nnz > most_entries:
        return None
    counts = np.diff(pairs.leading.indptr)
    least = _seconds(np.concatenate([counts, pairs.filled()]), n, [0, first])
    cut = first if least[first] < least[0] else 0
    if least[cut] > _NEARLY * least.min() + _MOMENT:
        return None
    parent = np.full(first, n, np.int32)
    parent[counts > 0] = pairs.rows[pairs.ptr[:-1][counts > 0]] + first
    parts = parent[:cut], counts[:cut], float(least[cut])
    return EliminationOrder(None, cut, lower, *parts, pairs if cut else LeafPairs.of(lower, 0))


def _is_sparse_beyond(lower: Any, first: int) -> bool:
    """Whether a later cut is much cheaper even if no two leaves fill the same entries.

    This is a test before the products of all pairs of entries are formed.
    """
    n = lower.shape[0]
    counts = np.bincount(lower.indices, minlength=n)
    # Column u fills at most the rows of its leaves; what later columns fill is not counted.
    leaves = np.where(lower.indices < first, counts[lower.indices], 0)
    ends = np.concatenate([[0], np.cumsum(leaves)])[lower.indptr]
    most = np.minimum(counts + np.diff(ends), n - 1 - np.arange(n))
    seconds = _seconds(np.concatenate([counts[:first], most[first:]]), n, [0, first])
    later = seconds[first:].min()
    return bool(seconds[0] > later and seconds[first] > _NEARLY * later + _MOMENT)


def _cheapest(
    lower: Any, order: LongArray | None, last: int, ends: list[int], most_entries: int
) -> EliminationOrder | None:
    """Return an order with the cheapest cut up to `last`, or at a block's end if nearly as cheap.

    None if L has too many entries even for the first block.
    """
    n = lower.shape[0]
    parent, counts = elimination_tree(
        lower.indptr.astype(np.int64), lower.indices.astype(np.int32), last, most_entries
    )
    if counts.size < last:
        # Only the leading block as sparse: its columns of L have the pattern of the matrix.
        last = int(ends[1])
        parent, counts = elimination_tree(
            lower.indptr.astype(np.int64), lower.indices.astype(np.int32), last, most_entries
        )
        if counts.size < last:
            return None
    seconds = _seconds(counts, n, ends if order is None else [0])
    cut = int(np.argmin(seconds))
    at_ends = [e for e in ends if e <= last]
    end = min(at_ends, key=lambda e: seconds[e])
    if seconds[end] <= _NEARLY * seconds[cut] + _MOMENT:
        cut = int(end)
    parent = np.where(parent[:cut] >= 0, parent[:cut], np.int32(n)).astype(np.int32)
    return EliminationOrder(order, cut, lower, parent, counts[:cut], float(seconds[cut]))


def _seconds(counts: LongArray, n: int, ends: list[int]) -> FloatArray:
    """Return the estimated time with a cut before each column, and after the last.

    Parameters
    ----------
    counts : entries of each column
    n : order of the matrix
    ends : of the diagonal blocks, in the order of the columns
    """
    each, entries, cut = COSTS.elimination, counts.astype(float), np.arange(counts.size + 1)
    columns = each.pair * entries**2 + each.entry * entries + each.column
    sparse = np.concatenate([[0.0], np.cumsum(columns)])
    dense = n - cut.astype(float)
    # Products beyond one, which the norms of a dense block and sparse leaves take at most.
    blocks = np.maximum(np.searchsorted(ends, cut), 1 if len(ends) > 1 else 2)
    products = np.where(np.isin(cut, [0, *ends[1:2]]), 0.0, 2.0 * blocks - 1.0)
    of_dense = (each.cube + each.product * products) * dense**3 + each.square * dense**2
    return each.call + sparse + of_dense


# Leaves -----------------------------------------------------------------------------------------

_MOST_PAIRS = 3_000_000
"""Products that are stored, in 12 bytes each."""

_SCATTERED = 30
"""Matrix elements per product above which products are sorted instead of put in a table."""


@dataclass(frozen=True, slots=True, eq=False)
class LeafPairs:
    """The products of each two entries of a leading column of a matrix with c leaves.

    Attributes
    ----------
    leading : (m, c) the dense part's rows of the leading columns, sparse columns
    products : (m², c + 1) sparse columns: the products of each leaf, in the lower triangle of a
        matrix of order m with rows one after the other; last that triangle of the matrix itself
    """

    leading: Any
    products: Any

    @classmethod
    def of(cls, lower: Any, cut: int, most: int = _MOST_PAIRS) -> LeafPairs | None:
        """Return the products; None if there are too many, or a leading column is not a leaf.

        Parameters
        ----------
        lower : (n, n) strictly lower triangle of the matrix, sparse rows in order
        cut : c
        most : number of products that are stored
        """
        from scipy.sparse import csc_array

        m = lower.shape[0] - cut
        leading, rest = lower[cut:, :cut].tocsc(), lower[cut:, cut:].tocoo()
        counts = np.diff(leading.indptr)
        per_leaf = counts * (counts + 1) // 2
        ptr = np.concatenate([[0], np.cumsum(per_leaf), [per_leaf.sum() + rest.nnz]])
        if lower.indptr[cut] > 0 or ptr[-1] > most or m * m > np.iinfo(np.int32).max:
            return None
        first, up_to = _earlier(leading.indptr, counts)
        at, data = np.empty(ptr[-1], np.int32), np.empty(ptr[-1])
        n = first.size
        at[n:] = rest.row * m + rest.col
        data[n:] = rest.data
        np.add(np.repeat(leading.indices * m, up_to), leading.indices[first], out=at[:n])
        np.multiply(np.repeat(leading.data, up_to), leading.data[first], out=data[:n])
        return cls(leading, csc_array((data, at, ptr.astype(np.int32)), shape=(m * m, cut + 1)))

    @property
    def n_dense(self) -> int:
        """Order of the dense part, m."""
        return int(self.leading.shape[0])

    @property
    def ptr(self) -> LongArray:
        """(c + 1,) starts of the columns of L."""
        return self.leading.indptr.astype(np.int64)

    @property
    def rows(self) -> IntArray:
        """Rows of the entries of L, in the dense part."""
        return self.leading.indices.astype(np.int32)

    def places(self, indices: IntArray, cut: int) -> LongArray:
        """Return the positions among the entries of L of the entries of the matrix.

        Parameters
        ----------
        indices : columns of the matrix's entries below the diagonal, row by row
        cut : c; entries of later columns have any number
        """
        places = np.zeros(indices.size, np.int64)
        leading = np.flatnonzero(indices < cut)
        places[leading[np.argsort(indices[leading], kind="stable")]] = np.arange(leading.size)
        return places

    def filled(self) -> LongArray:
        """Return the entries below the diagonal of each column of the Schur complement, (m,)."""
        m, places = self.n_dense, self.products.indices
        if m * m > _SCATTERED * places.size:
            places = np.sort(places)
            row, column = np.divmod(places[np.diff(places, prepend=-1) != 0], m)
            return np.bincount(column[row != column], minlength=m)
        used = np.zeros(m * m, bool)
        used[places] = True
        used[:: m + 1] = False
        return np.bincount(np.flatnonzero(used) % max(m, 1), minlength=m)

    def values(self, pivots: FloatArray) -> FloatArray:
        """Return the entries of L, for the pivots of the leaves."""
        return self.leading.data / np.repeat(pivots, np.diff(self.leading.indptr))

    def complement(self, pivots: FloatArray, diagonal: FloatArray) -> FloatArray:
        """Return the lower triangle of the Schur complement of the dense part, (m, m).

        Parameters
        ----------
        pivots : (c,) diagonal of the matrix at the leaves
        diagonal : (m,) that of the dense part
        """
        corner = self._summed(np.append(-1.0 / pivots, 1.0))
        corner[np.diag_indices_from(corner)] += diagonal
        return corner

    def gram(self, pivots: FloatArray) -> FloatArray:
        """Return the lower triangle of Σ l l' over the leading columns l of L, (m, m)."""
        return self._summed(np.append(pivots**-2.0, 0.0))

    def forms(self, pivots: FloatArray, inverse: FloatArray) -> FloatArray:
        """Return l'Zl of each leading column l of L, (c,).

        Parameters
        ----------
        inverse : (m, m) Z, symmetric
        """
        # The products have the lower triangle only.
        alone = self.leading.power(2).T @ np.diagonal(inverse)
        both = (self.products.T @ inverse.ravel())[:-1]
        return (2.0 * both - alone) / pivots**2

    def _summed(self, weights: FloatArray) -> FloatArray:
        return (self.products @ weights).reshape(self.n_dense, self.n_dense)


def _earlier(ptr: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return the places of the entries up to each entry in its column, and how many these are."""
    starts = np.repeat(ptr[:-1], counts)
    up_to = np.arange(1, ptr[-1] + 1, dtype=np.int32) - starts
    skipped = np.cumsum(up_to, dtype=np.int32) - up_to - starts
    first = np.arange(up_to.sum(), dtype=np.int32)
    first -= np.repeat(skipped, up_to)
    return first, up_to
