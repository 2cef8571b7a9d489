"""Factor of a symmetric positive definite matrix, with leading columns sparse and the rest dense.

A likelihood and its derivatives need the log-determinant, solutions, the diagonal of the inverse
and the squared norms of its blocks. All follow from L (docs/explanation/mathematics.md, section
7.2); of the inverse only the dense corner and the entries on the pattern of L are formed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.numerics.kernels import ldl, selected_inverse
from vcomp.numerics.parallel import limited_blas
from vcomp.numerics.sparse.elimination_order import EliminationOrder, LeafPairs

_CANCELS = 1e-6
"""A pivot below this share of its diagonal has lost half of its digits."""

_WORTH_COMPILING = 1e6
"""Entries of L times columns from which a solution by leaves uses compiled loops."""

_KEPT = 2**22
"""Entries of products with the dense corner that are kept for all pairs of directions."""

_WORKERS_BYTES = 2.0**29
"""Bytes that threads for several blocks may use together."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Sparsity patterns of the matrix and of L, the same for all diagonals.

    Attributes
    ----------
    order : (n,) the unknowns in the order of elimination, None if it is the original order
    n : order of the matrix
    places, entries : positions in L and values of the matrix's entries in the leading columns
    leading : which entries of the lower triangle, row by row, are in the leading columns
    rest, rest_entries : positions, row by row, in the dense part of the others below the diagonal
    parent : elimination tree
    ptr, rows : the leading columns of L, rows ascending
    first : start of the dense part in each of these columns
    heads : for each leading row the columns of L with an entry there, and its positions
    tail_ptr, tail_cols : for each row of the dense part the columns of L with an entry there
    leaf : whether each leading column is a leaf of the elimination tree
    pairs : of the entries of the leading columns, if all are leaves and these are few
    """

    order: LongArray | None
    n: int
    places: LongArray
    entries: FloatArray
    leading: BoolArray
    rest: LongArray
    rest_entries: FloatArray
    parent: IntArray
    ptr: LongArray
    rows: IntArray
    first: LongArray
    heads: tuple[LongArray, IntArray, LongArray]
    tail_ptr: LongArray
    tail_cols: IntArray
    leaf: BoolArray
    pairs: LeafPairs | None

    @property
    def cut(self) -> int:
        """Number of leading, sparse columns."""
        return self.leaf.size

    @property
    def n_dense(self) -> int:
        """Order of the dense part."""
        return self.n - self.cut

    @classmethod
    def of(cls, plan: EliminationOrder) -> Pattern:
        """Return the pattern of an order of elimination."""
        from scipy.sparse import csc_array

        indptr = plan.lower.indptr.astype(np.int64)
        indices = plan.lower.indices.astype(np.int32)
        n, cut, pairs = indptr.size - 1, plan.cut, plan.pairs
        if pairs is None:
            ptr, rows, places = ldl.fill_pattern(indptr, indices, plan.parent, plan.counts, cut)
        else:  # L has the entries of the matrix
            ptr, rows, places = pairs.ptr, pairs.rows + np.int32(cut), pairs.places(indices, cut)
        sparse_rows = np.concatenate([[0], np.cumsum(rows < cut)])
        columns = csc_array((np.arange(rows.size), rows, ptr), shape=(n, cut)).tocsr()
        columns.sort_indices()
        start = columns.indptr[cut]
        leaf = np.ones(cut, bool)
        leaf[rows[rows < cut]] = False
        leading, data = indices < cut, plan.lower.data.astype(float)
        below = np.repeat(np.arange(n) - cut, np.diff(indptr))[~leading]
        return cls(
            order=plan.order,
            n=n,
            places=places[leading],
            entries=data[leading],
            leading=leading,
            rest=below * (n - cut) + (indices[~leading] - cut),
            rest_entries=data[~leading],
            parent=plan.parent,
            ptr=ptr,
            rows=rows,
            first=ptr[:-1] + sparse_rows[ptr[1:]] - sparse_rows[ptr[:-1]],
            heads=(
                columns.indptr[: cut + 1].astype(np.int64),
                columns.indices[:start].astype(np.int32),
                columns.data[:start],
            ),
            tail_ptr=columns.indptr[cut:].astype(np.int64) - start,
            tail_cols=columns.indices[start:].astype(np.int32),
            leaf=leaf,
            pairs=pairs,
        )

    def with_entries(self, data: FloatArray) -> Pattern:
        """Return the pattern of a matrix with other entries in the same places.

        Parameters
        ----------
        data : entries of the lower triangle in the order of elimination, row by row
        """
        leading, rest = data[self.leading], data[~self.leading]
        return replace(self, entries=leading, rest_entries=rest, pairs=None)

    @property
    def of_kernels(
        self,
    ) -> tuple[LongArray, IntArray, LongArray, tuple[LongArray, IntArray, LongArray]]:
        """The leading columns of L and their rows, as kernels take them."""
        return self.ptr, self.rows, self.first, self.heads

    def permuted(self, x: Any) -> Any:
        """Return a copy of x, (n, …), in the order of elimination."""
        return x.copy() if self.order is None else x[self.order]

    def restored(self, x: FloatArray) -> FloatArray:
        """Return x, (n, …), in the original order of the unknowns."""
        if self.order is None:
            return x
        restored = np.empty_like(x)
        restored[self.order] = x
        return restored

    def place(self) -> LongArray:
        """Return the position of each unknown in the order of elimination."""
        place = np.arange(self.n, dtype=np.int64)
        if self.order is not None:
            place[self.order] = np.arange(self.n)
        return place


@dataclass(frozen=True, slots=True, eq=False)
class Direction:
    """A symmetric matrix with entries in some of the places of a pattern.

    Attributes
    ----------
    diagonal : (n,) in the original order of the unknowns
    data : entries of the lower triangle in the order of elimination, row by row; None without any
    """

    diagonal: FloatArray
    data: FloatArray | None = None

    def trace(self, diagonal: FloatArray, below: FloatArray | None) -> float:
        """Return tr(AD) of a symmetric A, from its diagonal and its entries in the places."""
        trace = float(diagonal @ self.diagonal)
        if self.data is not None and below is not None:
            trace += 2.0 * float(below @ self.data)
        return trace


class Factor:
    """The factor LDL' of a matrix with a given pattern.

    Parameters
    ----------
    pattern : pattern and entries of the matrix below its diagonal
    diagonal : (n,) diagonal of the matrix

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrix is not positive definite up to rounding error.
    """

    def __init__(self, pattern: Pattern, diagonal: FloatArray) -> None:
        self.pattern, self.pairs = pattern, pattern.pairs
        diagonal = pattern.permuted(diagonal)
        corner, failed = self._factored(pattern, diagonal)
        if self.pairs is not None and (failed or _cancels(corner, diagonal[pattern.cut :])):
            # Sums row by row lose fewer digits than those of pairs.
            self.pairs = None
            corner, failed = self._factored(pattern, diagonal)
        if failed != 0:
            raise np.linalg.LinAlgError(f"pivot {failed} is not positive")
        self.corner: FloatArray = corner

    def _factored(self, pattern: Pattern, diagonal: FloatArray) -> tuple[FloatArray, int]:
        """Return the factor of the dense part, and the first bad pivot (from 1) or 0."""
        from scipy.linalg.lapack import dpotrf

        corner, failed = self._eliminated(pattern, diagonal)
        if failed == 0 and pattern.n_dense:
            # The lower triangle in C order is the upper one of the transpose in Fortran order,
            # which LAPACK overwrites without a copy. The other triangle stays zero.
            with limited_blas(pattern.n_dense):
                upper, failed = dpotrf(corner.T, lower=0, clean=0, overwrite_a=1)
            corner = upper.T
            failed += pattern.cut if failed else 0
        return corner, failed

    def _eliminated(self, pattern: Pattern, diagonal: FloatArray) -> tuple[FloatArray, int]:
        """Compute the leading columns; return the rest, and the first bad pivot (from 1) or 0."""
        if self.pairs is not None:
            self.pivots = diagonal[: pattern.cut]
            bad = np.flatnonzero(~(self.pivots > 0.0))
            if bad.size:
                return np.zeros((0, 0)), int(bad[0]) + 1
            self.values = self.pairs.values(self.pivots)
            return self.pairs.complement(self.pivots, diagonal[pattern.cut :]), 0
        self.values = np.zeros(pattern.rows.size)
        self.values[pattern.places] = pattern.entries
        corner = np.diag(diagonal[pattern.cut :])
        corner.flat[pattern.rest] = pattern.rest_entries
        self.pivots, failed = ldl.factor(*pattern.of_kernels, diagonal, self.values, corner)
        return corner, failed

    @cached_property
    def _leaves(self) -> Any:
        """The leading columns of L where all are leaves: they have rows in the dense part only."""
        from scipy.sparse import csc_array

        ptr, rows, values = self._columns
        shape = self.pattern.n_dense, self.pattern.cut
        return csc_array((values, rows - np.int32(self.pattern.cut), ptr), shape=shape)

    @property
    def _columns(self) -> tuple[LongArray, IntArray, FloatArray]:
        return self.pattern.ptr, self.pattern.rows, self.values

    def log_determinant(self) -> float:
        """Return the logarithm of the determinant."""
        dense = 2.0 * np.log(np.diagonal(self.corner)).sum()
        return float(np.log(self.pivots).sum() + dense)

    def solve(self, right: FloatArray, *, overwrite: bool = False) -> FloatArray:
        """Solve for right-hand sides of shape (n, k); they may be overwritten on request."""
        pattern = self.pattern
        kept = overwrite and pattern.order is None and right.flags.c_contiguous
        x = right if kept else np.ascontiguousarray(pattern.permuted(right))
        cut, few = pattern.cut, self.values.size * x.shape[1] < _WORTH_COMPILING
        leaves = self._leaves if few and pattern.leaf.all() else None
        if leaves is None:
            ldl.forward(*self._columns, x)
        else:
            x[cut:] -= leaves @ x[:cut]
        if pattern.n_dense:
            x[cut:] = self._solve_corner(x[cut:])
        if leaves is None:
            ldl.backward(*self._columns, self.pivots, x)
        else:
            x[:cut] = x[:cut] / self.pivots[:, None] - leaves.T @ x[cut:]
        return pattern.restored(x)

    @property
    def tails(self) -> tuple[LongArray, IntArray, LongArray, IntArray, FloatArray, int]:
        """The rows of L in the dense part by its columns, as kernels take them."""
        pattern = self.pattern
        places = pattern.tail_ptr, pattern.tail_cols, pattern.first, pattern.rows
        return *places, self.values, pattern.cut

    def leaf_columns(self, columns: slice) -> FloatArray | None:
        """Return rows of the dense part in leading columns of the inverse, (n_dense, columns).

        They are −ZL₂₁ with the dense corner Z of the inverse; None where not all leading columns
        are leaves of the elimination tree.
        """
        if not self.pattern.leaf.all():
            return None
        return -(self._leaves[:, columns].T @ self.inverse.corner).T

    def _solve_corner(self, right: FloatArray) -> FloatArray:
        from scipy.linalg.lapack import dpotrs

        # As an upper triangle in Fortran order the factor is not copied.
        with limited_blas(self.pattern.n_dense):
            x, _ = dpotrs(self.corner.T, right, lower=0)
        return x

    @cached_property
    def inverse(self) -> Inverse:
        """The parts of the inverse."""
        return Inverse(self)

    def quadratics(self, rows: Any) -> FloatArray:
        """Return b'C⁻¹b for every row b of a sparse matrix, (g, n)."""
        from scipy.sparse import csr_array

        place = self.pattern.place()
        rows = rows.tocsr()
        indices = place[rows.indices].astype(np.int32)
        # A copy, as sorting would reorder the caller's data.
        ordered = csr_array((rows.data.copy(), indices, rows.indptr), shape=rows.shape)
        ordered.sort_indices()
        return ldl.sparse_quadratics(
            ordered.indptr.astype(np.int64),
            ordered.indices.astype(np.int32),
            ordered.data.astype(float),
            self.pattern.parent,
            *self._columns,
            self.pivots,
            self.inverse.corner,
        )


class Inverse:
    """The dense corner of the inverse, its diagonal, and the entries on the pattern of L."""

    def __init__(self, factor: Factor) -> None:
        self._factor = factor
        pattern = factor.pattern
        with limited_blas(pattern.n_dense):
            self.corner = ldl.inverse_by_factor(factor.corner)
        self._entries = np.zeros(0)
        if pattern.leaf.all():
            self._leading = 1.0 / factor.pivots + self._leaf_forms
        else:
            self._entries, self._leading = selected_inverse.selected_inverse(
                pattern.ptr, pattern.rows, factor.values, factor.pivots, pattern.leaf, self.corner
            )

    @cached_property
    def _leaf_forms(self) -> FloatArray:
        """Forms l'Zl of the rows l of each leading column, if all are leaves."""
        factor = self._factor
        if factor.pairs is not None:
            return factor.pairs.forms(factor.pivots, self.corner)
        return selected_inverse.leaf_diagonal(*factor.tails, self.corner)

    @cached_property
    def diagonal(self) -> FloatArray:
        """(n,) the diagonal, in the original order of the unknowns."""
        whole = np.concatenate([self._leading, np.diagonal(self.corner)])
        return self._factor.pattern.restored(whole)

    def _n_workers(self, n_blocks: int) -> int:
        """Return the number of blocks that are processed at a time: one if arrays are large."""
        pattern = self._factor.pattern
        n_bytes = 16.0 * (pattern.rows.size + pattern.n_dense**2)
        return max(1, min(n_blocks, os.cpu_count() or 1, int(_WORKERS_BYTES / max(n_bytes, 1.0))))

    def _gram_of_leaves(self) -> FloatArray:
        """Return L₂₁L₂₁', symmetric."""
        factor = self._factor
        if factor.pairs is not None:
            gram = factor.pairs.gram(factor.pivots)
            ldl.mirror_lower(gram)
            return gram
        return ldl.tail_gram(*factor.tails)

    def _derivative(
        self, slope: FloatArray, data: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the derivative of the inverse: its diagonal, its entries and the dense corner.

        Parameters
        ----------
        slope, data : derivative of the matrix, in the order of elimination; no `data` if it is
            diagonal
        """
        factor, pattern = self._factor, self._factor.pattern
        d_values, d_corner = np.zeros(pattern.rows.size), np.diag(slope[pattern.cut :])
        if data is not None:
            d_values[pattern.places] = data[pattern.leading]
            d_corner.flat[pattern.rest] = data[~pattern.leading]
        d_pivots = ldl.factor_derivative(
            pattern.parent,
            *pattern.of_kernels,
            factor.values,
            factor.pivots,
            slope,
            d_values,
            d_corner,
        )
        ldl.mirror_lower(d_corner)
        d_inverse = -(self.corner @ d_corner @ self.corner)
        d_entries, d_leading = selected_inverse.inverse_derivative(
            pattern.ptr,
            pattern.rows,
            factor.values,
            factor.pivots,
            self._entries if data is None else self.entries,
            self._leading,
            self.corner,
            d_values,
            d_pivots,
            d_inverse,
        )
        return np.concatenate([d_leading, np.diagonal(d_inverse)]), d_entries, d_inverse

    @cached_property
    def entries(self) -> FloatArray:
        """The entries on the pattern of L, also those of leaves."""
        factor, pattern = self._factor, self._factor.pattern
        none = np.zeros(pattern.cut, dtype=bool)
        return selected_inverse.selected_inverse(
            pattern.ptr, pattern.rows, factor.values, factor.pivots, none, self.corner
        )[0]

    def below(self, entries: FloatArray, corner: FloatArray) -> FloatArray:
        """Return the entries in the places of the matrix's lower triangle, row by row.

        Parameters
        ----------
        entries, corner : those on the pattern of L, and the dense part
        """
        pattern = self._factor.pattern
        found = np.empty(pattern.leading.size)
        found[pattern.leading] = entries[pattern.places]
        found[~pattern.leading] = corner.flat[pattern.rest]
        return found

    def traces(self, directions: Sequence[Direction]) -> FloatArray:
        """Return tr(C⁻¹D) of each direction D."""
        are_diagonal = all(d.data is None for d in directions)
        below = None if are_diagonal else self.below(self.entries, self.corner)
        return np.array([d.trace(self.diagonal, below) for d in directions])

    def squares(self, directions: Sequence[Direction]) -> FloatArray:
        """Return tr(C⁻¹D_iC⁻¹D_j) of all pairs of directions.

        With entries in the sparse columns they are derivatives of traces,
        docs/explanation/mathematics.md, eq. (7.10); else they follow from the dense corner.
        """
        pattern, products = self._factor.pattern, np.empty((len(directions),) * 2)
        slopes = [pattern.permuted(d.diagonal) for d in directions]
        sparse = [i for i, d in enumerate(directions) if _has_sparse(pattern, slopes[i], d)]
        dense = [i for i in range(len(directions)) if i not in sparse]
        by_leaves = len(sparse) == 1 and self._has_leaves_only(
            slopes[sparse[0]], directions[sparse[0]]
        )

        def changed(i: int) -> FloatArray:
            diagonal, *rest = self._derivative(slopes[i], directions[i].data)
            below = None if all(d.data is None for d in directions) else self.below(*rest)
            restored = pattern.restored(diagonal)
            return np.array([-d.trace(restored, below) for d in directions])

        def times_corner(i: int) -> tuple[slice | LongArray, FloatArray]:
            return self._times_corner(slopes[i], directions[i])

        with limited_blas(pattern.n_dense):
            if sparse and not by_leaves:
                with ThreadPoolExecutor(self._n_workers(len(sparse))) as pool:
                    for i, column in zip(sparse, pool.map(changed, sparse), strict=True):
                        products[i] = column
                        products[dense, i] = column[dense]
            whole = sum(directions[i].data is not None for i in dense)
            if whole * pattern.n_dense**2 <= _KEPT:
                times_corner = cache(times_corner)
            for k, i in enumerate(dense):
                span, own = times_corner(i)
                for j in dense[: k + 1]:
                    other, second = (span, own) if i == j else times_corner(j)
                    value = np.einsum("ij,ji->", own[:, other], second[:, span])
                    products[i, j] = products[j, i] = value
            if by_leaves:
                self._fill_of_leaves(products, sparse[0], {i: times_corner(i) for i in dense})
        return 0.5 * (products + products.T)

    def _has_leaves_only(self, slope: FloatArray, direction: Direction) -> bool:
        """Whether a direction has ones for all sparse columns, which are leaves, and no more."""
        pattern = self._factor.pattern
        ones = np.arange(pattern.n) < pattern.cut
        is_diagonal = pattern.leaf.all() and direction.data is None
        return bool(is_diagonal and np.array_equal(slope, ones))

    def _fill_of_leaves(
        self,
        products: FloatArray,
        leaves: int,
        others: dict[int, tuple[slice | LongArray, FloatArray]],
    ) -> None:
        """Write the products with the direction of the leaves.

        With Y = −L₂₁' the first rows of the inverse are [D⁻¹ + YZY', YZ], Z the dense corner.
        """
        pivots = self._factor.pivots
        mixed = self._gram_of_leaves() @ self.corner
        alone = (pivots**-2 + 2.0 * self._leaf_forms / pivots).sum()
        products[leaves, leaves] = alone + np.vdot(mixed, mixed.T)
        for i, (span, rows) in others.items():
            products[leaves, i] = products[i, leaves] = np.einsum("ij,ji->", rows, mixed[:, span])

    def _times_corner(
        self, slope: FloatArray, direction: Direction
    ) -> tuple[slice | LongArray, FloatArray]:
        """Return DZ of a direction D of the dense part, Z the dense corner of the inverse.

        Only the rows that D has are returned, with their places.
        """
        from scipy.sparse import csr_array

        pattern = self._factor.pattern
        at = np.flatnonzero(slope[pattern.cut :])
        entries = slope[pattern.cut :][at]
        if direction.data is None:
            return span_of(at), entries[:, None] * self.corner[span_of(at)]
        below = direction.data[~pattern.leading]
        used = np.flatnonzero(below)
        low, high = np.divmod(pattern.rest[used], pattern.n_dense)
        places = np.concatenate([at, low, high]), np.concatenate([at, high, low])
        entries = np.concatenate([entries, below[used], below[used]])
        D = csr_array((entries, places), shape=(pattern.n_dense,) * 2)
        own = np.flatnonzero(np.diff(D.indptr))
        return span_of(own), D[own] @ self.corner


def _has_sparse(pattern: Pattern, slope: FloatArray, direction: Direction) -> bool:
    """Whether a direction has entries in the sparse columns."""
    data = direction.data
    return bool(slope[: pattern.cut].any() or (data is not None and data[pattern.leading].any()))


def _cancels(corner: FloatArray, diagonal: FloatArray) -> bool:
    """Whether a pivot of the dense part is much smaller than its diagonal: digits cancelled."""
    return bool((np.diagonal(corner) ** 2 < _CANCELS * diagonal).any())


def span_of(places: LongArray) -> slice | LongArray:
    """Return consecutive places as a slice, which needs no copy."""
    if places.size and (np.diff(places) == 1).all():
        return slice(int(places[0]), int(places[-1]) + 1)
    return places
