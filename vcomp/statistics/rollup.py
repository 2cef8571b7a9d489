"""Sums of coarser groups from those of finer ones: rows are passed over only where they must be.

A term whose facets are all in a finer term, or told by facets of it, is summed from that term's
groups instead of the rows; of several finer terms the one with the fewest groups serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import permutations

import numpy as np

from vcomp._typing import FloatArray, IntArray
from vcomp.design import Chunk
from vcomp.design.design import term_codes
from vcomp.exceptions import EstimationError
from vcomp.kernels.codes import determined_levels
from vcomp.kernels.groups import group_counts, group_sums
from vcomp.kernels.pairs import ONCE, pair_counts
from vcomp.linalg.memory import available_bytes, gib
from vcomp.statistics.cross_products import PairTable

__all__ = ["RollUp"]

_ROWS = -1


class RollUp:
    """Group sizes, sums and pair tables of the terms of one chunk of rows.

    Parameters
    ----------
    chunk : rows, coded
    """

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._told = _told_facets(chunk)
        facets = [frozenset(term.facets) for term in chunk.terms]
        self._facets = facets
        self._known = [
            own | {outer for inner, outer in self._told if inner in own} for own in facets
        ]
        self._maps: dict[tuple[int, int], IntArray] = {}

    @cached_property
    def group_n(self) -> tuple[FloatArray, ...]:
        """Numbers of rows of the groups of every term."""
        found: dict[int, FloatArray] = {}
        for t in self._finest_first:
            source, codes = self._source([t]), self._codes
            size = self._chunk.sizes[t]
            weights = self._chunk.counts if source == _ROWS else found[source]
            if weights is None:
                found[t] = group_counts(codes(t, source), size)
            else:
                found[t] = group_sums(codes(t, source), weights[:, None], size)[:, 0]
        return tuple(found[t] for t in range(len(self._facets)))

    def sums(self, columns: FloatArray) -> tuple[FloatArray, ...]:
        """Return the sums of columns (n, m) of the rows within the groups of every term."""
        found: dict[int, FloatArray] = {}
        for t in self._finest_first:
            source = self._source([t])
            values = columns if source == _ROWS else found[source]
            found[t] = group_sums(self._codes(t, source), values, self._chunk.sizes[t])
        return tuple(found[t] for t in range(len(self._facets)))

    def pairs(self) -> dict[tuple[int, int], PairTable]:
        """Return how often the groups of every two terms occur together.

        Raises
        ------
        EstimationError
            If the tables might not fit into memory; nothing is allocated then.
        """
        self._check_memory()
        sizes, tables = self._chunk.sizes, dict[tuple[int, int], PairTable]()
        for u in range(len(sizes)):
            for t in range(u):
                source = self._source([t, u])
                rows, cols = self._codes(t, source), self._codes(u, source)
                of_rows = ONCE if self._chunk.counts is None else self._chunk.counts
                weights = of_rows if source == _ROWS else self.group_n[source]
                if weights.size and weights.min() == 0.0:  # groups that other rows have
                    there = weights > 0.0
                    rows, cols, weights = rows[there], cols[there], weights[there]
                indptr, indices, counts = pair_counts(rows, cols, sizes[t], sizes[u], weights)
                tables[t, u] = PairTable(indptr, indices, counts, sizes[u])
        return tables

    def _check_memory(self) -> None:
        sizes, n_rows, needed = self._chunk.sizes, self._chunk.response.size, 0.0
        for u in range(len(sizes)):
            for t in range(u):
                source = self._source([t, u])
                most = n_rows if source == _ROWS else sizes[source]
                needed += 12.0 * min(float(sizes[t]) * sizes[u], most) + 8.0 * sizes[t]
        # Two copies of the rows are sorted on the way.
        needed, free = needed + 24.0 * n_rows, available_bytes()
        if needed > 0.8 * free:
            raise EstimationError(
                f"tables of the pairs of groups that occur in {self._chunk.n:,} rows may need "
                f"{gib(needed)}, and {gib(free)} are free; leave out terms, or rows "
                "(engine='auto' needs no tables where facets are fully crossed with all others)"
            )

    @property
    def _finest_first(self) -> Sequence[int]:
        sizes, facets = self._chunk.sizes, self._known
        return sorted(range(len(sizes)), key=lambda t: (-len(facets[t]), -sizes[t]))

    def _source(self, terms: Sequence[int]) -> int:
        """Return the smallest term that tells the groups of all these, or that rows have to."""
        wanted = frozenset().union(*(self._facets[t] for t in terms))
        alone = len(terms) == 1
        finer = [
            w
            for w, known in enumerate(self._known)
            if wanted <= known and not (alone and self._is_no_finer(w, terms[0]))
        ]
        sizes = self._chunk.sizes
        return min(finer, key=lambda w: (sizes[w], w), default=_ROWS)

    def _is_no_finer(self, w: int, t: int) -> bool:
        """Whether term t is as fine as term w, so that it cannot be summed from it."""
        return self._known[w] == self._known[t]

    def _codes(self, term: int, source: int) -> IntArray:
        """Return the group of a term in each group of another one, or in each row."""
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
                inner = next(f for f in levels if (f, facet) in self._told)
                levels[facet] = self._told[inner, facet][levels[inner]].astype(np.int64)
            codes = [
                levels.get(f, np.zeros(0, np.int64)) for f in range(len(self._chunk.facet_sizes))
            ]
            self._maps[term, source] = term_codes(
                self._chunk.terms[term], codes, self._chunk.facet_sizes
            )
        return self._maps[term, source]


def _told_facets(chunk: Chunk) -> dict[tuple[int, int], IntArray]:
    """Return for pairs of facets of which the first tells the second that level of each."""
    sizes = chunk.facet_sizes
    found = {}
    for inner, outer in permutations(range(len(sizes)), 2):
        if sizes[inner] > sizes[outer]:
            level = determined_levels(
                chunk.level_codes(inner), chunk.level_codes(outer), sizes[inner]
            )
            # A part of the rows may lack levels: what it does not show it does not tell.
            if level.size and level.min() >= 0:
                found[inner, outer] = level
    return found
