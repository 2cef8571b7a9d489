"""Cross-products of a fixed part with a factor of very many levels, whose columns are sparse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.design import Chunk
from vcomp.formula import WIDE
from vcomp.numerics import MixedColumns, check_memory
from vcomp.numerics.kernels import ONCE, group_sums, pair_counts
from vcomp.statistics.cross_products import CrossProducts, PairTable, RollUp, resum


@dataclass(frozen=True)
class WideProducts:
    """Cross-products in which the columns of a factor are one more term, after the random ones.

    At most one of these columns is 1 in a row, all others are 0. The columns are orthogonal
    therefore, and have pair tables with the random terms.

    Attributes
    ----------
    products : of the k random terms, and the factor as the last; its X are the other columns
    dense_at, sparse_at : positions of these and of the factor's columns in X
    """

    products: CrossProducts
    dense_at: LongArray
    sparse_at: LongArray

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.products.n

    @property
    def yy(self) -> float:
        """Sum of squares of y."""
        return self.products.yy

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of levels of the random terms."""
        return self.products.sizes[:-1]

    @property
    def n_terms(self) -> int:
        """Number of random terms, the residual not counted."""
        return len(self.sizes)

    @property
    def n_fixed(self) -> int:
        """Number of columns of X."""
        return self.dense_at.size + self.sparse_at.size

    @cached_property
    def random(self) -> CrossProducts:
        """The random terms with the dense columns."""
        return self.products.of_terms(range(self.n_terms))

    @cached_property
    def dense(self) -> CrossProducts:
        """The random terms with all columns of X, none of them sparse.

        Raises
        ------
        EstimationError
            If they do not fit into memory.
        """
        XX, sums, k = self.XX, self.products, self.n_terms
        tables = (sums.gram(t, k).toarray() for t in range(k))
        ZX = (self.assembled(A.T, B.T).T for A, B in zip(tables, sums.ZX[:k], strict=True))
        return replace(self.random, ZX=tuple(map(np.ascontiguousarray, ZX)), XX=XX, Xy=self.Xy)

    @cached_property
    def XX(self) -> FloatArray:
        """Cross-products of the columns of X as a dense matrix.

        Raises
        ------
        EstimationError
            If it does not fit into memory.
        """
        p = self.n_fixed
        check_memory(
            8.0 * float(p) ** 2,
            f"the products of {p:,} columns of the fixed part need",
            "use method='reml' or 'ml', which need no such matrix",
        )
        whole = np.zeros((p, p))
        whole[self.sparse_at, self.sparse_at] = self.products.group_n[-1]
        whole[np.ix_(self.sparse_at, self.dense_at)] = self.products.ZX[-1]
        whole[np.ix_(self.dense_at, self.sparse_at)] = self.products.ZX[-1].T
        whole[np.ix_(self.dense_at, self.dense_at)] = self.products.XX
        return whole

    @property
    def Xy(self) -> FloatArray:
        """Cross-products of the columns of X with y."""
        return self.assembled(self.products.Zy[-1], self.products.Xy)

    def products_with(self, coefficients: FloatArray) -> FloatArray:
        """Return X'Xa of coefficients a, (p,)."""
        sparse, dense = coefficients[self.sparse_at], coefficients[self.dense_at]
        n, B = self.products.group_n[-1], self.products.ZX[-1]
        return self.assembled(n * sparse + B @ dense, B.T @ sparse + self.products.XX @ dense)

    def assembled(self, sparse: FloatArray, dense: FloatArray) -> FloatArray:
        """Return values of the factor's columns and of the others in the order of X."""
        found = np.empty((self.n_fixed, *dense.shape[1:]))
        found[self.sparse_at], found[self.dense_at] = sparse, dense
        return found

    def group_squares(self, term: int) -> float:
        """Return Σ_g n_g² over the groups of a random term."""
        return self.products.group_squares(term)

    def is_finer(self, t: int, u: int) -> bool:
        """Whether every group of random term t lies within one group of random term u."""
        return self.products.is_finer(t, u)

    def of_terms(self, terms: Sequence[int]) -> WideProducts:
        """Return the sums of some of the random terms, given by ascending positions."""
        return replace(self, products=self.products.of_terms([*terms, self.n_terms]))

    def with_response(self, chunk: Chunk, rolled: RollUp) -> WideProducts:
        """Return the cross-products of the same rows with the response of `chunk`."""
        columns: Any = chunk.columns
        random = resum(self.random, replace(chunk, columns=columns.dense), rolled)
        of_factor = columns.sparse.T @ chunk.y
        products = replace(self.products, Zy=(*random.Zy, of_factor), Xy=random.Xy, yy=random.yy)
        return replace(self, products=products)


def find_wide_products(
    chunk: Chunk, rolled: RollUp, least: int = WIDE.factor
) -> WideProducts | None:
    """Return the cross-products of rows with a factor of many levels; None without such a factor.

    Parameters
    ----------
    chunk : rows, coded
    rolled : how their terms are summed from each other
    least : smallest number of columns of the factor
    """
    if not has_wide_factor(chunk, least):
        return None
    columns: Any = chunk.columns
    levels, size = columns.sparse_levels(), columns.sparse_at.size
    sums, gram = rolled.sums_and_products(chunk.y, columns.dense)
    values = np.column_stack([chunk.y, columns.dense])
    of_factor = group_sums(levels, values, size + 1)[:size]
    of_levels = np.bincount(levels, minlength=size + 1)[:size].astype(float)
    if not of_levels.all():
        return None  # a column of zeros, which is refused
    k, tables = len(chunk.sizes), dict(rolled.pairs())
    for t, (codes, q) in enumerate(zip(chunk.codes, chunk.sizes, strict=True)):
        indptr, indices, counts = pair_counts(codes, levels, q, size + 1, ONCE)
        # The last column has the rows of the reference level.
        whole = PairTable(indptr, indices, counts, size + 1).matrix
        tables[t, k] = PairTable.from_matrix(whole[:, :size])
    both = (*sums, of_factor)
    products = CrossProducts(
        n=chunk.n,
        group_n=(*rolled.group_n, of_levels),
        pairs=tables,
        Zy=tuple(np.ascontiguousarray(s[:, 0]) for s in both),
        ZX=tuple(np.ascontiguousarray(s[:, 1:]) for s in both),
        XX=np.ascontiguousarray(gram[1:, 1:]),
        Xy=np.ascontiguousarray(gram[1:, 0]),
        yy=float(gram[0, 0]),
    )
    return WideProducts(products, columns.dense_at, columns.sparse_at)


def has_wide_factor(chunk: Chunk, least: int = WIDE.factor) -> bool:
    """Return whether the sparse columns of X are those of one factor with many levels."""
    columns = chunk.columns
    return (
        isinstance(columns, MixedColumns)
        and columns.sparse_at.size >= least
        and chunk.counts is None
        and columns.sparse_levels() is not None
    )
