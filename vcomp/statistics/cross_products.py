"""Cross-products of [Z₁ … Z_k X y]: the sufficient statistics of the general engines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from typing import Any, ClassVar, Self

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.design import Chunk
from vcomp.formula import SQUARES
from vcomp.numerics import MixedColumns, available_bytes, check_memory, slices
from vcomp.numerics.kernels import (
    FEW_ROWS,
    ONCE,
    add_group_sums,
    centre_groups,
    count_levels,
    determined_levels,
    group_sums,
    pair_counts,
)


def joined_gram(XX: FloatArray, Xy: FloatArray, yy: float) -> FloatArray:
    """Return the cross-products of [y X].

    Parameters
    ----------
    XX, Xy, yy : their parts
    """
    top = np.concatenate([[yy], Xy])
    return np.vstack([top, np.column_stack([Xy, XX])])


_LARGE = 2**24
"""Entries of a table from which on its matrix has no copy of the indices."""


@dataclass(frozen=True, slots=True)
class PairTable:
    """``Z_a'Z_b`` in compressed sparse rows: how often two levels occur together.

    Attributes
    ----------
    indptr, indices : starts of the rows, and columns of the entries
    entries : numbers of rows or sums of weights, of any type in which their squares are exact
    n_cols : number of columns
    """

    indptr: LongArray
    indices: IntArray
    entries: FloatArray
    n_cols: int

    @property
    def counts(self) -> FloatArray:
        """The entries in double precision; a copy if they are of another type."""
        return self.entries.astype(float, copy=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of levels of the two terms."""
        return self.indptr.size - 1, self.n_cols

    @property
    def matrix(self) -> Any:
        """The same as a ``scipy.sparse.csr_array``."""
        from scipy.sparse import csr_array

        # With starts of eight bytes the indices would be copied to eight bytes.
        is_large = _LARGE <= self.indices.size < 2**31
        starts = self.indptr.astype(np.int32) if is_large else self.indptr
        return csr_array((self.counts, self.indices, starts), shape=self.shape)

    @classmethod
    def from_matrix(cls, matrix: Any) -> PairTable:
        """Return the table of a sparse matrix."""
        csr = matrix.tocsr()
        csr.sum_duplicates()
        return cls(
            csr.indptr.astype(np.int64),
            csr.indices.astype(np.int32),
            csr.data.astype(float),
            csr.shape[1],
        )

    def __add__(self, other: PairTable) -> PairTable:
        return PairTable.from_matrix(self.matrix + other.matrix)


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
        return self.pairs.passing() if isinstance(self.pairs, _LazyPairs) else self.pairs.items()

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


_ROWS = -1


class RollUp:
    """Group sizes, sums and pair tables of the terms of one chunk of rows.

    Parameters
    ----------
    chunk : rows, coded
    """

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._outer = _nested_facets(chunk)
        facets = [frozenset(term.facets) for term in chunk.terms]
        self._facets = facets
        self._known = [
            own | {outer for inner, outer in self._outer if inner in own} for own in facets
        ]
        self._maps: dict[tuple[int, int], IntArray] = {}

    @cached_property
    def group_n(self) -> tuple[FloatArray, ...]:
        """Numbers of rows of the groups of every term."""
        counts: dict[int, FloatArray] = {}
        for t in self._finest_first:
            source, codes = self._source([t]), self._codes
            size = self._chunk.sizes[t]
            weights = self._chunk.multiplicity if source == _ROWS else counts[source]
            if weights is None:
                counts[t] = count_levels(codes(t, source), size).astype(float)
            else:
                counts[t] = group_sums(codes(t, source), weights[:, None], size)[:, 0]
        return tuple(counts[t] for t in range(len(self._facets)))

    def sums(self, columns: FloatArray) -> tuple[FloatArray, ...]:
        """Return the sums of columns (n, m) of the rows within the groups of every term."""
        totals: dict[int, FloatArray] = {}
        for t in self._finest_first:
            source = self._source([t])
            values = columns if source == _ROWS else totals[source]
            totals[t] = group_sums(self._codes(t, source), values, self._chunk.sizes[t])
        return tuple(totals[t] for t in range(len(self._facets)))

    def sums_and_products(
        self, y: FloatArray, X: FloatArray
    ) -> tuple[tuple[FloatArray, ...], FloatArray]:
        """Return sums of [y X] within the groups of every term, and their squares and products.

        Rows are read once, in blocks that the cache holds.

        Parameters
        ----------
        y : (n,) the response
        X : (n, p) the columns, in any order in memory
        """
        counts, b = self._chunk.multiplicity, 1 + X.shape[1]
        of_rows = [t for t in self._finest_first if self._source([t]) == _ROWS]
        totals = {t: np.zeros((self._chunk.sizes[t], b)) for t in of_rows}
        products = np.zeros((b, b))
        for rows, block in row_blocks(y, X):
            weighted = block if counts is None else block * counts[rows, None]
            for t in of_rows:
                add_group_sums(self._chunk.codes[t][rows], weighted, totals[t])
            products += block.T @ weighted
        for t in self._finest_first:
            if t not in totals:
                source = self._source([t])
                codes = self._codes(t, source)
                totals[t] = group_sums(codes, totals[source], self._chunk.sizes[t])
        return tuple(totals[t] for t in range(len(self._facets))), products

    def pairs(
        self, *, free_bytes: Callable[[], float] = available_bytes
    ) -> dict[tuple[int, int], PairTable]:
        """Return how often the groups of every two terms occur together.

        Parameters
        ----------
        free_bytes : returns the free memory

        Raises
        ------
        EstimationError
            If the tables might not fit into memory; nothing is allocated then.
        """
        self._check_memory(free_bytes)
        return dict(self.each_pair())

    def each_pair(self) -> Iterator[tuple[tuple[int, int], PairTable]]:
        """Yield the table of every two terms."""
        sizes = self._chunk.sizes
        for u in range(len(sizes)):
            for t in range(u):
                source = self._source([t, u])
                rows, cols = self._codes(t, source), self._codes(u, source)
                of_rows = ONCE if self._chunk.multiplicity is None else self._chunk.multiplicity
                weights = of_rows if source == _ROWS else self.group_n[source]
                if weights.size and weights.min() == 0.0:  # groups without rows in this chunk
                    filled = weights > 0.0
                    rows, cols, weights = rows[filled], cols[filled], weights[filled]
                indptr, indices, counts = pair_counts(rows, cols, sizes[t], sizes[u], weights)
                yield (t, u), PairTable(indptr, indices, counts, sizes[u])

    def _check_memory(self, free_bytes: Callable[[], float]) -> None:
        sizes, n_rows, needed = self._chunk.sizes, self._chunk.response.size, 0.0
        for u in range(len(sizes)):
            for t in range(u):
                source = self._source([t, u])
                most = n_rows if source == _ROWS else sizes[source]
                needed += 12.0 * min(float(sizes[t]) * sizes[u], most) + 8.0 * sizes[t]
        # Sorting takes two copies of the rows.
        check_memory(
            needed + 24.0 * n_rows,
            f"tables of the pairs of groups that occur in {self._chunk.n:,} rows may need",
            "leave out terms, or rows (engine='auto' needs no tables where facets are fully "
            "crossed with all others)",
            free_bytes=free_bytes,
        )

    @property
    def _finest_first(self) -> Sequence[int]:
        return sorted(range(len(self._known)), key=lambda t: -len(self._known[t]))

    def _source(self, terms: Sequence[int]) -> int:
        """Return the smallest term that is finer than all these; ``_ROWS`` without such a term."""
        wanted = frozenset().union(*(self._facets[t] for t in terms))
        alone = len(terms) == 1
        finer = [
            w
            for w, known in enumerate(self._known)
            # To sum a term from one with the same groups would gain nothing.
            if wanted <= known and not (alone and known == self._known[terms[0]])
        ]
        sizes = self._chunk.sizes
        return min(finer, key=lambda w: (sizes[w], w), default=_ROWS)

    def _codes(self, term: int, source: int) -> IntArray:
        """Return the group of a term for each group of another one, or for each row."""
        if source == _ROWS:
            return self._chunk.codes[term]
        if source == term:
            return np.arange(self._chunk.sizes[term], dtype=np.int32)
        if (term, source) not in self._maps:
            levels = dict(
                zip(
                    self._chunk.terms[source].facets,
                    self._chunk.terms[source].level_codes(self._chunk.facet_sizes),
                    strict=True,
                )
            )
            for facet in self._facets[term] - levels.keys():
                inner = next(f for f in levels if (f, facet) in self._outer)
                levels[facet] = self._outer[inner, facet][levels[inner]].astype(np.int64)
            design = self._chunk.terms[term]
            self._maps[term, source] = design.groups(levels, self._chunk.facet_sizes)
        return self._maps[term, source]


def _nested_facets(chunk: Chunk) -> dict[tuple[int, int], IntArray]:
    """Return the outer level of each inner level for nested pairs of facets (inner, outer)."""
    sizes = chunk.facet_sizes
    nested = {}
    for inner, outer in permutations(range(len(sizes)), 2):
        if sizes[inner] > sizes[outer]:
            level = determined_levels(
                chunk.level_codes(inner), chunk.level_codes(outer), sizes[inner]
            )
            # Nesting is not known from rows that lack levels.
            if level.size and level.min() >= 0:
                nested[inner, outer] = level
    return nested


class _LazyPairs(Mapping[tuple[int, int], PairTable]):
    """The tables of pairs of groups, computed at the first use: some engines need none.

    Parameters
    ----------
    rolled : how the terms are summed
    """

    def __init__(self, rolled: RollUp) -> None:
        self._rolled = rolled

    @cached_property
    def _tables(self) -> dict[tuple[int, int], PairTable]:
        return self._rolled.pairs()

    def __getitem__(self, pair: tuple[int, int]) -> PairTable:
        return self._tables[pair]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def passing(self) -> Iterable[tuple[tuple[int, int], PairTable]]:
        """Return the tables one by one; new ones are not kept."""
        made = vars(self).get("_tables")
        return self._rolled.each_pair() if made is None else made.items()

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self._tables,)


def accumulate(chunk: Chunk) -> CrossProducts:
    """Sum the rows of one chunk; the statistics of several chunks add up with ``+``.

    Parameters
    ----------
    chunk : rows coded by one :class:`~vcomp.design.Design`, centred at its origin
    """
    y, rolled, times = chunk.y, RollUp(chunk), chunk.multiplicity
    within = np.zeros((1 + chunk.n_fixed,) * 2) if chunk.within is None else chunk.within
    # The mean of a cell is weighted by its number of scores.
    total_y = y if times is None else y * times
    if isinstance(chunk.columns, MixedColumns):
        ZX, XX = _mixed_sums(chunk, chunk.columns)
    elif chunk.is_mean:
        # A column of ones adds up to the size of each group.
        ZX, XX = tuple(n[:, None] for n in rolled.group_n), np.array([[chunk.total]])
    elif chunk.X.size > FEW_ROWS:
        sums, products = rolled.sums_and_products(y, chunk.X)
        products += within
        return CrossProducts(
            n=chunk.n,
            group_n=rolled.group_n,
            pairs=_LazyPairs(rolled),
            Zy=tuple(np.ascontiguousarray(s[:, 0]) for s in sums),
            ZX=tuple(np.ascontiguousarray(s[:, 1:]) for s in sums),
            XX=np.ascontiguousarray(products[1:, 1:]),
            Xy=np.ascontiguousarray(products[1:, 0]),
            yy=float(products[0, 0]),
            log_weights=chunk.log_weights,
        )
    else:
        X = np.ascontiguousarray(chunk.X)
        total_X = X if times is None else X * times[:, None]
        ZX, XX = rolled.sums(total_X), X.T @ total_X
    return CrossProducts(
        n=chunk.n,
        group_n=rolled.group_n,
        pairs=_LazyPairs(rolled),
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


_VALUES = 32_768
"""Size of a block of rows, in numbers, that fits into the cache of a core."""


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


def row_blocks(y: FloatArray, X: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
    """Yield blocks of rows of [y X] that fit into the cache; each overwrites the one before.

    Parameters
    ----------
    y : (n,) the response
    X : (n, p) the columns, in any order in memory
    """
    n, p = X.shape
    width = max(64, _VALUES // (1 + p))
    buffer = np.empty((min(width, n), 1 + p))
    for rows in slices(n, width):
        block = buffer[: rows.stop - rows.start]
        block[:, 0], block[:, 1:] = y[rows], X[rows]
        yield rows, block
