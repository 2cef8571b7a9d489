"""Cross-products of [Z₁ … Z_k X y]: the sufficient statistics of the general engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from vcomp._typing import FloatArray
from vcomp.design import Chunk
from vcomp.formula import SQUARES
from vcomp.numerics import MixedColumns, check_memory
from vcomp.numerics.kernels import FEW_ROWS, add_group_sums, centre_groups, group_sums
from vcomp.numerics.sparse import SparseTable
from vcomp.statistics.roll_up import LazyPairs, PairTable, RollUp, row_blocks


def joined_gram(XX: FloatArray, Xy: FloatArray, yy: float) -> FloatArray:
    """Return the cross-products of [y X].

    Parameters
    ----------
    XX, Xy, yy : their parts
    """
    top = np.concatenate([[yy], Xy])
    return np.vstack([top, np.column_stack([Xy, XX])])


@dataclass(frozen=True)
class CrossProducts:
    """Sums over rows for the likelihood and Henderson's Method I.

    y and the columns of X are centred at ``Design.origin``; raw cross-products would lose digits.

    Attributes
    ----------
    n : number of rows
    group_n : for each term t the (q_t,) numbers of rows of its levels, the diagonal of Z_t'Z_t
    pairs : for each pair t < u the sparse (q_t, q_u) table Z_t'Z_u
    Zy : for each term the (q_t,) sums of y within levels
    ZX : for each term the (q_t, p) sums of the columns of X within levels
    XX, Xy, yy : (p, p), (p,) and a number
    log_weights : sum of the logarithms of the weights of rows; all sums but `n` have weights
    """

    n: int
    group_n: tuple[FloatArray, ...]
    pairs: Mapping[tuple[int, int], PairTable]
    Zy: tuple[FloatArray, ...]
    ZX: tuple[FloatArray, ...]
    XX: FloatArray
    Xy: FloatArray
    yy: float
    log_weights: float = 0.0

    factor: ClassVar[None] = None
    """The sums with a factor of many levels among the columns of X: none."""

    @property
    def products(self) -> Self:
        """The cross-products of all terms that are eliminated."""
        return self

    @property
    def random(self) -> Self:
        """The cross-products of the random terms alone."""
        return self

    @property
    def dense(self) -> Self:
        """The cross-products with all columns of X dense."""
        return self

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of levels of the terms."""
        return tuple(n.size for n in self.group_n)

    @cached_property
    def n_terms(self) -> int:
        """Number of random terms, the residual not counted."""
        return len(self.group_n)

    @cached_property
    def n_fixed(self) -> int:
        """Number of columns of X."""
        return int(self.XX.shape[0])

    @property
    def mean_weight(self) -> float:
        """Mean weight of the rows, 1 if they count alike."""
        return float(self.group_n[0].sum()) / self.n if self.group_n else 1.0

    def of_terms(self, terms: Sequence[int]) -> CrossProducts:
        """Return the sums of some of the terms, given by ascending positions."""
        of = {t: place for place, t in enumerate(terms)}
        return replace(
            self,
            group_n=tuple(self.group_n[t] for t in terms),
            pairs={(of[t], of[u]): p for (t, u), p in self.pairs.items() if t in of and u in of},
            Zy=tuple(self.Zy[t] for t in terms),
            ZX=tuple(self.ZX[t] for t in terms),
        )

    def recombined(self, columns: FloatArray) -> CrossProducts:
        """Return the statistics of other columns in place of y and X.

        Parameters
        ----------
        columns : (1 + p, 1 + q) matrix that maps [y X] to them
        """
        pairs = zip(self.Zy, self.ZX, strict=True)
        sums = [np.column_stack([Zy, ZX]) @ columns for Zy, ZX in pairs]
        gram = columns.T @ joined_gram(self.XX, self.Xy, self.yy) @ columns
        return replace(
            self,
            Zy=tuple(np.ascontiguousarray(s[:, 0]) for s in sums),
            ZX=tuple(np.ascontiguousarray(s[:, 1:]) for s in sums),
            XX=gram[1:, 1:],
            Xy=gram[1:, 0],
            yy=float(gram[0, 0]),
        )

    @property
    def n_entries(self) -> int:
        """Number of entries that a product with all random effects visits."""
        return sum(pair.indices.size for pair in self.pairs.values()) + sum(self.sizes)

    def gram(self, t: int, u: int) -> Any:
        """Return Z_t'Z_u as a sparse matrix, in either order and on the diagonal."""
        from scipy.sparse import diags_array

        if t == u:
            return diags_array(self.group_n[t]).tocsr()
        if t < u:
            return self.pairs[t, u].matrix
        return self.pairs[u, t].matrix.T.tocsr()

    def table(self, t: int, u: int) -> SparseTable:
        """Return Z_t'Z_u of two different terms for products, a row for each group of t."""
        return self.pairs[t, u].rows if t < u else self.pairs[u, t].columns

    def times(self, t: int, u: int, x: FloatArray) -> FloatArray:
        """Return Z_t'Z_u x for the (q_u, c) columns of `x`, by compiled loops."""
        return self.group_n[t][:, None] * x if t == u else self.table(t, u).times(x)

    @cached_property
    def projector_forms(self) -> FloatArray:
        """tr(Q V_t Q V_u) of all components, Q = I − X(X'X)⁻¹X', the residual last.

        A LinAlgError says that the columns of X are dependent.
        """
        k, p = self.n_terms, self.n_fixed
        # X'X = R'R: with X R⁻¹ the projector is a product, and (X'X)⁻¹ is not formed.
        R = np.linalg.cholesky(self.XX).T if p else np.zeros((0, 0))
        H = [np.linalg.solve(R.T, ZX.T).T if p else ZX for ZX in self.ZX]
        forms = np.empty((k + 1, k + 1))
        for t in range(k):
            for u in range(t + 1):
                plain = self.group_squares(t) if t == u else self.pairs[u, t].sum_of_squares
                is_small = t == u or self.pairs[u, t].indices.size <= FEW_ROWS
                product = self.gram(u, t) @ H[t] if is_small else self.times(u, t, H[t])
                both = float(np.vdot(H[t].T @ H[t], H[u].T @ H[u]))
                forms[t, u] = forms[u, t] = plain - 2.0 * float(np.vdot(H[u], product)) + both
            forms[t, k] = forms[k, t] = self.group_n[t].sum() - np.square(H[t]).sum()
        forms[k, k] = self.n - p
        return forms

    def group_squares(self, term: int) -> float:
        """Return Σ_g n_g² over the groups of a term."""
        return float(np.square(self.group_n[term]).sum())

    def is_finer(self, t: int, u: int) -> bool:
        """Whether every group of term t lies within one group of term u."""
        return t == u or self.pairs[min(t, u), max(t, u)].indices.size == self.sizes[t]

    def passing_pairs(self) -> Iterable[tuple[tuple[int, int], PairTable]]:
        """Return the tables of pairs one by one, without keeping those that are new.

        With very many effects they are as large as the rows, and engines of levels need none.
        """
        return self.pairs.passing() if isinstance(self.pairs, LazyPairs) else self.pairs.items()

    def __add__(self, other: CrossProducts) -> CrossProducts:
        return CrossProducts(
            n=self.n + other.n,
            group_n=_added(self.group_n, other.group_n),
            pairs={key: table + other.pairs[key] for key, table in self.pairs.items()},
            Zy=_added(self.Zy, other.Zy),
            ZX=_added(self.ZX, other.ZX),
            XX=self.XX + other.XX,
            Xy=self.Xy + other.Xy,
            yy=self.yy + other.yy,
            log_weights=self.log_weights + other.log_weights,
        )


def _added(a: tuple[FloatArray, ...], b: tuple[FloatArray, ...]) -> tuple[FloatArray, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def accumulate(chunk: Chunk, rolled: RollUp | None = None) -> CrossProducts:
    """Sum the rows of one chunk; the statistics of several chunks add up with ``+``.

    Parameters
    ----------
    chunk : rows coded by one :class:`~vcomp.design.Design`, centred at its origin
    rolled : how their terms are summed from each other, if that is known
    """
    y, rolled, times = chunk.y, rolled or RollUp(chunk), chunk.multiplicity
    within = np.zeros((1 + chunk.n_fixed,) * 2) if chunk.within is None else chunk.within
    # The mean of a cell is weighted by its number of scores.
    total_y = y if times is None else y * times
    if isinstance(chunk.columns, MixedColumns):
        ZX, XX = _mixed_sums(chunk, chunk.columns)
    elif chunk.is_mean:
        # A column of ones adds up to the size of each group.
        ZX, XX = tuple(n[:, None] for n in rolled.group_n), np.array([[chunk.total]])
    elif chunk.columns.size > FEW_ROWS:
        sums, products = rolled.sums_and_products(y, chunk.columns)
        products += within
        return CrossProducts(
            n=chunk.n,
            group_n=rolled.group_n,
            pairs=LazyPairs(rolled),
            Zy=tuple(np.ascontiguousarray(s[:, 0]) for s in sums),
            ZX=tuple(np.ascontiguousarray(s[:, 1:]) for s in sums),
            XX=np.ascontiguousarray(products[1:, 1:]),
            Xy=np.ascontiguousarray(products[1:, 0]),
            yy=float(products[0, 0]),
            log_weights=chunk.log_weights,
        )
    else:
        X = np.ascontiguousarray(chunk.columns)
        total_X = X if times is None else X * times[:, None]
        ZX, XX = rolled.sums(total_X), X.T @ total_X
    return CrossProducts(
        n=chunk.n,
        group_n=rolled.group_n,
        pairs=LazyPairs(rolled),
        Zy=tuple(s[:, 0] for s in rolled.sums(total_y[:, None])),
        ZX=ZX,
        XX=XX + within[1:, 1:],
        Xy=_products_with(chunk, total_y) + within[1:, 0],
        yy=float(y @ total_y) + float(within[0, 0]),
        log_weights=chunk.log_weights,
    )


def _mixed_sums(chunk: Chunk, X: MixedColumns) -> tuple[tuple[FloatArray, ...], FloatArray]:
    """Return Z'X of each term and X'X, refused where X'X does not fit into memory."""
    times = chunk.multiplicity
    check_memory(
        8.0 * SQUARES * float(X.shape[1]) ** 2,
        f"matrices of the {X.shape[1]:,} columns of the fixed part need",
        "method='reml' and 'ml' form none for one factor of many levels beside an intercept; or "
        "make a factor a random term (1|…) whose variance is held at a million times that of the "
        "scores, hold={…}",
    )
    total, groups = X.times(times), zip(chunk.codes, chunk.sizes, strict=True)
    return tuple(total.group_sums(codes, size) for codes, size in groups), X.gram(times)


def resum(stats: CrossProducts, chunk: Chunk, rolled: RollUp) -> CrossProducts:
    """Return the cross-products of the same rows with the response of `chunk`.

    Only sums that depend on the response are computed.

    Parameters
    ----------
    stats : of the rows, with another response
    chunk : the rows
    rolled : how their terms are summed from each other
    """
    y = chunk.y
    total_y = y if chunk.multiplicity is None else y * chunk.multiplicity
    within = np.zeros((1 + chunk.n_fixed,) * 2) if chunk.within is None else chunk.within
    return replace(
        stats,
        Zy=tuple(s[:, 0] for s in rolled.sums(total_y[:, None])),
        Xy=_products_with(chunk, total_y) + within[1:, 0],
        yy=float(y @ total_y) + float(within[0, 0]),
    )


def _products_with(chunk: Chunk, values: FloatArray) -> FloatArray:
    """Return X'v of values of the rows."""
    if chunk.is_mean:
        return np.array([values.sum()])
    if isinstance(chunk.columns, MixedColumns):
        return chunk.columns.transposed_times(values)
    return chunk.columns.T @ values


def cell_moments(
    places: Any, y: FloatArray, X: FloatArray | MixedColumns, counts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the means of y and X in cells, and their squares and products within them.

    Columns are centred before they are multiplied, a block of rows at a time.

    Parameters
    ----------
    places : (n,) cell of each row
    y, X : (n,) the response and (n, p) the columns
    counts : (q,) rows of each cell, none of them 0

    Returns
    -------
    (1 + p, q) means, y's first, and (1 + p, 1 + p) squares and products
    """
    if isinstance(X, MixedColumns):
        return X.within(y, places, counts)
    n, p = X.shape
    is_small = n * (1 + p) <= FEW_ROWS
    if is_small:
        sums = group_sums(places, np.column_stack([y, X]), counts.size)
    else:
        sums = np.zeros((counts.size, 1 + p))
        for rows, block in row_blocks(y, X):
            add_group_sums(places[rows], block, sums)
    means = sums / counts[:, None]
    within = np.zeros((1 + p, 1 + p))
    for rows, block in row_blocks(y, X):
        if is_small:
            block -= means[places[rows]]
        else:
            centre_groups(places[rows], means, block)
        within += block.T @ block
    return np.ascontiguousarray(means.T), within
