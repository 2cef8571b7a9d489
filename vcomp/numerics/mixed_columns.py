"""A wide matrix with mostly sparse columns, such as those of a factor with many levels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.numerics.kernels import count_levels
from vcomp.numerics.parallel import available_bytes, check_memory, slices

_BLOCK = 2**16
"""Rows whose levels are found at once."""


@dataclass(frozen=True, slots=True, eq=False)
class MixedColumns:
    """The columns of a matrix (n, p), some of them dense, the others sparse.

    Attributes
    ----------
    dense : (n, d) dense columns
    sparse : (n, s) sparse columns, a ``scipy.sparse.csr_array``
    dense_at, sparse_at : (d,) and (s,) positions of the columns
    """

    dense: FloatArray
    sparse: Any
    dense_at: LongArray
    sparse_at: LongArray

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.dense.shape[0], self.dense_at.size + self.sparse_at.size

    def sparse_levels(self) -> IntArray | None:
        """Return the sparse column that is 1 in each row, or their number where all are 0, (n,).

        None if a row has several columns that are not 0, or a value that is not 1.
        """
        levels = np.full(self.shape[0], self.sparse_at.size, dtype=np.int32)
        for rows in slices(levels.size, _BLOCK):  # rows may be as many as cells: no copies of all
            starts = self.sparse.indptr[rows.start : rows.stop + 1]
            n_entries, own = np.diff(starts), slice(starts[0], starts[-1])
            if (n_entries > 1).any() or not (self.sparse.data[own] == 1.0).all():
                return None
            levels[rows][n_entries == 1] = self.sparse.indices[own]
        return levels

    def toarray(self, free_bytes: Callable[[], float] = available_bytes) -> FloatArray:
        """Return the matrix as a dense array.

        Raises
        ------
        EstimationError
            If it does not fit into memory.
        """
        n, p = self.shape
        check_memory(
            8.0 * n * p,
            f"{p:,} columns of the fixed part in {n:,} rows need",
            "factors with many levels need no columns as random terms",
            free_bytes=free_bytes,
        )
        whole = np.zeros((n, p))
        whole[:, self.dense_at] = self.dense
        entries = self.sparse.tocoo()
        whole[entries.row, self.sparse_at[entries.col]] = entries.data
        return whole

    def minus(self, origin: FloatArray) -> MixedColumns:
        """Return the columns less their origins, (p,), which are zero for sparse columns."""
        assert not origin[self.sparse_at].any()
        shift = origin[self.dense_at]
        return replace(self, dense=self.dense - shift) if shift.any() else self

    def of_columns(self, kept: LongArray) -> MixedColumns:
        """Return some of the columns, given by ascending positions."""
        place = np.full(self.shape[1], -1)
        place[kept] = np.arange(kept.size)
        dense_at, sparse_at = place[self.dense_at], place[self.sparse_at]
        return MixedColumns(
            self.dense[:, dense_at >= 0],
            self.sparse[:, np.flatnonzero(sparse_at >= 0)],
            dense_at[dense_at >= 0],
            sparse_at[sparse_at >= 0],
        )

    def __getitem__(self, rows: Any) -> MixedColumns:
        """Return the same columns of some rows."""
        return replace(self, dense=self.dense[rows], sparse=self.sparse[rows])

    def __matmul__(self, coefficients: FloatArray) -> FloatArray:
        """Return the product with coefficients (p,)."""
        product: FloatArray = self.dense @ coefficients[self.dense_at]
        product += self.sparse @ coefficients[self.sparse_at]
        return product

    def transposed_times(self, values: FloatArray) -> FloatArray:
        """Return the sums (p,) of the columns times values (n,)."""
        sums = np.empty(self.shape[1])
        sums[self.dense_at] = self.dense.T @ values
        sums[self.sparse_at] = self.sparse.T @ values
        return sums

    def mean(self, axis: int = 0) -> FloatArray:
        """Return the means of the columns, (p,)."""
        assert axis == 0
        return self.ends()[2]

    def ends(self, counts: FloatArray | None = None) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return smallest value, largest value and mean of the columns, (p,) each.

        Parameters
        ----------
        counts : (n,) how many rows each stands for; None for one
        """
        low, high, mean = (np.empty(self.shape[1]) for _ in range(3))
        low[self.dense_at], high[self.dense_at] = self.dense.min(axis=0), self.dense.max(axis=0)
        low[self.sparse_at], high[self.sparse_at] = self._sparse_ends()
        if counts is not None:
            return low, high, self.transposed_times(counts) / counts.sum()
        mean[self.dense_at] = self.dense.mean(axis=0)
        mean[self.sparse_at] = self.sparse.sum(axis=0) / self.shape[0]
        return low, high, mean

    def _sparse_ends(self) -> tuple[Any, Any]:
        """Return smallest and largest values of the sparse columns, (s,) each."""
        values = self.sparse.data
        if not values.size or (values != values[0]).any():
            return self.sparse.min(axis=0).toarray(), self.sparse.max(axis=0).toarray()
        # Entries of a factor are ones: they are counted, and not sorted by columns.
        n = count_levels(self.sparse.indices, self.sparse_at.size)
        low, high = (np.full(n.size, end(0.0, values[0])) for end in (min, max))
        low[n == self.shape[0]] = high[n == self.shape[0]] = values[0]
        high[n == 0] = low[n == 0] = 0.0
        return low, high

    def times(self, multiplicity: FloatArray | None) -> MixedColumns:
        """Return the columns with each row as often as it counts, (n,); themselves for None."""
        if multiplicity is None:
            return self
        from scipy.sparse import diags_array

        sparse = (diags_array(multiplicity) @ self.sparse).tocsr()
        return replace(self, dense=self.dense * multiplicity[:, None], sparse=sparse)

    def gram(self, multiplicity: FloatArray | None = None) -> FloatArray:
        """Return the squares and products of the columns, (p, p).

        Parameters
        ----------
        multiplicity : (n,) how often each row counts; None for once
        """
        other = self.times(multiplicity)
        return self._assembled(
            self.dense.T @ other.dense,
            self.sparse.T @ other.dense,
            (self.sparse.T @ other.sparse).toarray(),
        )

    def group_sums(self, codes: Any, size: int) -> FloatArray:
        """Return the sums (size, p) of the columns within groups of rows.

        Parameters
        ----------
        codes : (n,) group of each row
        size : number of groups
        """
        return self.gathered(codes, size)[0]

    def gathered(self, codes: Any, size: int) -> tuple[FloatArray, Any]:
        """Return the sums within groups, and those of the sparse columns as a sparse matrix."""
        from scipy.sparse import csr_array

        n = self.shape[0]
        groups = csr_array((np.ones(n), (codes, np.arange(n))), shape=(size, n))
        sums, of_sparse = np.empty((size, self.shape[1])), groups @ self.sparse
        sums[:, self.dense_at] = groups @ self.dense
        sums[:, self.sparse_at] = of_sparse.toarray()
        return sums, of_sparse

    def within(self, values: FloatArray, codes: Any, counts: FloatArray) -> tuple[Any, FloatArray]:
        """Return means of a response and the columns in groups, and their products about these.

        Dense columns are centred first. Of the sparse columns squares of the sums are subtracted:
        these columns have zeros and small numbers, so that nothing cancels.

        Parameters
        ----------
        values : (n,) the response
        codes : (n,) group of each row
        counts : (q,) rows of each group, none of them 0

        Returns
        -------
        (1 + p, q) means, the response first, and (1 + p, 1 + p) squares and products
        """
        sums, of_sparse = self.gathered(codes, counts.size)
        of_values = np.bincount(codes, values, counts.size)
        means = np.concatenate([of_values[:, None], sums], axis=1) / counts[:, None]
        away = np.column_stack([values, self.dense])
        away -= means[:, [0, *(1 + self.dense_at)]][codes]
        products = (self.sparse.T @ self.sparse).toarray()
        products -= _squares(of_sparse, 1.0 / np.sqrt(counts))
        with_response = replace(self, dense=away, dense_at=np.append(0, 1 + self.dense_at),
                                sparse_at=1 + self.sparse_at)  # fmt: skip
        within = with_response._assembled(away.T @ away, self.sparse.T @ away, products)
        return np.ascontiguousarray(means.T), within

    def _assembled(self, dense: FloatArray, mixed: FloatArray, sparse: FloatArray) -> FloatArray:
        """Return the (p, p) matrix of blocks between dense and sparse columns."""
        p = self.shape[1]
        whole = np.empty((p, p))
        whole[np.ix_(self.dense_at, self.dense_at)] = dense
        whole[np.ix_(self.sparse_at, self.dense_at)] = mixed
        whole[np.ix_(self.dense_at, self.sparse_at)] = mixed.T
        whole[np.ix_(self.sparse_at, self.sparse_at)] = sparse
        return whole


_DENSE_ELEMENTS = 2.0**26
_FASTER = 50.0
"""Ratio of multiplications in a dense and a sparse product that take the same time."""


def _squares(sums: Any, weights: FloatArray) -> FloatArray:
    """Return S'W²S of sparse sums S (q, s) and weights W (q,)."""
    from scipy.sparse import diags_array

    scaled = (diags_array(weights) @ sums).tocsr()
    of_rows = np.diff(scaled.indptr).astype(float)
    is_dense = float(of_rows @ of_rows) * _FASTER > float(sums.shape[0]) * sums.shape[1] ** 2
    if is_dense and float(sums.shape[0]) * sums.shape[1] <= _DENSE_ELEMENTS:
        table = scaled.toarray()
        return np.asarray(table.T @ table)
    return np.asarray((scaled.T @ scaled).toarray())


def dense_columns(columns: FloatArray | MixedColumns) -> FloatArray:
    """Return columns as a dense array.

    Raises
    ------
    EstimationError
        If they do not fit into memory.
    """
    return columns.toarray() if isinstance(columns, MixedColumns) else columns
