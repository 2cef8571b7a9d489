"""Forms of a factor whose leading columns are all leaves of the elimination tree.

No such column depends on another: the Schur complement of the dense part, the forms of its inverse
and the cross-products of L are sums over columns. Each is one sparse product, so that nothing is
compiled, and as fast as a compiled loop as long as the products of all pairs of entries are few
enough to be stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray

_MOST_PAIRS = 3_000_000
"""Products that are stored, in 12 bytes each."""

_SCATTERED = 30
"""Elements of a matrix for each product above which products are sorted, and no table is made."""


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
        ptr: LongArray = self.leading.indptr.astype(np.int64)
        return ptr

    @property
    def rows(self) -> IntArray:
        """Rows of the entries of L, in the dense part."""
        rows: IntArray = self.leading.indices.astype(np.int32)
        return rows

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
        there = np.zeros(m * m, bool)
        there[places] = True
        there[:: m + 1] = False
        return np.bincount(np.flatnonzero(there) % max(m, 1), minlength=m)

    def values(self, pivots: FloatArray) -> FloatArray:
        """Return the entries of L, for the pivots of the leaves."""
        values: FloatArray = self.leading.data / np.repeat(pivots, np.diff(self.leading.indptr))
        return values

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
        forms: FloatArray = (2.0 * both - alone) / pivots**2
        return forms

    def _summed(self, weights: FloatArray) -> FloatArray:
        summed: FloatArray = (self.products @ weights).reshape(self.n_dense, self.n_dense)
        return summed


def _earlier(ptr: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return the places of the entries up to each entry in its column, and how many these are."""
    starts = np.repeat(ptr[:-1], counts)
    up_to = np.arange(1, ptr[-1] + 1, dtype=np.int32) - starts
    skipped = np.cumsum(up_to, dtype=np.int32) - up_to - starts
    first = np.arange(up_to.sum(), dtype=np.int32)
    first -= np.repeat(skipped, up_to)
    return first, up_to
