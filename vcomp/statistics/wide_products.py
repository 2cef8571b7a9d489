"""Cross-products of rows with a fixed factor of many levels, whose columns are kept sparse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.design import Chunk
from vcomp.exceptions import EstimationError
from vcomp.formula import WIDE
from vcomp.numerics import check_memory
from vcomp.numerics.kernels import ONCE, group_sums, pair_counts
from vcomp.statistics.cross_products import CrossProducts, resum
from vcomp.statistics.roll_up import PairTable, RollUp
from vcomp.statistics.strata import has_wide_factor


@dataclass(frozen=True)
class WideProducts:
    """Cross-products with the columns of a wide factor as a further term, after the random ones.

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
    def factor(self) -> Self:
        """The sums with a factor of many levels among the columns of X: these."""
        return self

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
            If there are too many columns for matrices of columns by columns.
        """
        if self.n_fixed > WIDE.formed:
            raise EstimationError(
                f"this needs matrices of the {self.n_fixed:,} columns of the fixed part, "
                "which are not formed for a factor of so many levels"
            )
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

    @cached_property
    def rest(self) -> FloatArray:
        """X'QX of the dense columns, Q = I − F(F'F)⁻¹F' of the columns F of the factor."""
        B = self.products.ZX[-1]
        return self.products.XX - B.T @ (B / self.products.group_n[-1][:, None])

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
        whole = np.empty((self.n_fixed, *dense.shape[1:]))
        whole[self.sparse_at], whole[self.dense_at] = sparse, dense
        return whole

    def recombined(self, columns: FloatArray) -> CrossProducts:
        """Refuse other columns in place of y and X.

        Raises
        ------
        EstimationError
            Always: the columns of the factor are not formed.
        """
        raise EstimationError(
            "fixed effects have no profile if a fixed factor has so many levels "
            f"({self.n_fixed:,} columns); use a Wald interval"
        )

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
        y = chunk.y
        random = resum(self.random, replace(chunk.with_response(y), columns=columns.dense), rolled)
        times = chunk.multiplicity
        of_factor = columns.sparse.T @ (y if times is None else y * times)
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
    if chunk.within is not None:  # in cells the factor does not vary
        kept = np.append(0, 1 + columns.dense_at)
        gram = gram + chunk.within[np.ix_(kept, kept)]
    values, times = np.column_stack([chunk.y, columns.dense]), chunk.multiplicity
    if times is not None:
        values *= times[:, None]
    of_factor = group_sums(levels, values, size + 1)[:size]
    of_levels = np.bincount(levels, times, minlength=size + 1)[:size].astype(float)
    if not of_levels.all():
        return None  # a column of zeros is refused
    k, tables = len(chunk.sizes), dict(rolled.pairs())
    for t, (codes, q) in enumerate(zip(chunk.codes, chunk.sizes, strict=True)):
        of_rows = ONCE if times is None else times
        indptr, indices, counts = pair_counts(codes, levels, q, size + 1, of_rows)
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
