"""Group sizes, sums and pair tables of the terms of rows, rolled up from finer terms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.design import Chunk, CountedPairs
from vcomp.numerics import available_bytes, check_memory, slices
from vcomp.numerics.kernels import (
    ONCE,
    add_group_sums,
    count_levels,
    determined_levels,
    group_sums,
    pair_counts,
)
from vcomp.numerics.sparse import SparseTable

_LARGE = 2**24
"""Entries of a table from which on its matrix has no copy of the indices."""


@dataclass(frozen=True)
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

    @cached_property
    def rows(self) -> SparseTable:
        """The same for products with columns, a row for each level of the first term."""
        return SparseTable.of(self.indptr, self.indices, self.entries, self.n_cols)

    @cached_property
    def columns(self) -> SparseTable:
        """The same, a row for each level of the second term."""
        return self.rows.transposed()

    @property
    def sum_of_squares(self) -> float:
        """The sum of the squares of the entries."""
        return float(np.einsum("i,i->", self.entries, self.entries, dtype=float))

    def __reduce__(self) -> tuple[Any, ...]:
        return PairTable, (self.indptr, self.indices, self.entries, self.n_cols)

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


_ROWS = -1


class RollUp:
    """Group sizes, sums and pair tables of the terms of one chunk of rows.

    Parameters
    ----------
    chunk : rows, coded
    counted : pair tables of the rows that are known, by positions of facets
    """

    def __init__(self, chunk: Chunk, counted: CountedPairs | None = None) -> None:
        self._chunk = chunk
        # Of single rows: cells and weighted rows have other numbers.
        self._counted = counted if counted and chunk.multiplicity is None else {}
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
                facets = self._chunk.terms[t].facets + self._chunk.terms[u].facets
                if source == _ROWS and facets in self._counted:
                    yield (t, u), PairTable(*self._counted[facets], sizes[u])
                    continue
                rows, cols = self._codes(t, source), self._codes(u, source)
                of_rows = ONCE if self._chunk.multiplicity is None else self._chunk.multiplicity
                weights = of_rows if source == _ROWS else self.group_n[source]
                if weights.size and weights.min() == 0.0:  # groups without rows in this chunk
                    filled = weights > 0.0
                    rows, cols, weights = rows[filled], cols[filled], weights[filled]
                indptr, indices, counts = pair_counts(rows, cols, sizes[t], sizes[u], weights)
                yield (t, u), PairTable(indptr, indices, counts, sizes[u])

    def _check_memory(self, free_bytes: Callable[[], float]) -> None:
        sizes, n_rows, needed, most = self._chunk.sizes, self._chunk.response.size, 0.0, 0.0
        for u in range(len(sizes)):
            for t in range(u):
                source, cells = self._source([t, u]), float(sizes[t]) * sizes[u]
                n = n_rows if source == _ROWS else sizes[source]
                # Single rows have no weights, and few equal pairs are counted in a byte.
                is_single = source == _ROWS and self._chunk.multiplicity is None
                table = (5.0 if is_single and n <= cells else 12.0) * min(cells, n)
                needed += table + 8.0 * sizes[t]
                most = max(most, (9.0 if is_single else 24.0) * n - table)  # while it is sorted
        check_memory(
            needed + most,
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


class LazyPairs(Mapping[tuple[int, int], PairTable]):
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


_VALUES = 32_768
"""Size of a block of rows, in numbers, that fits into the cache of a core."""


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
