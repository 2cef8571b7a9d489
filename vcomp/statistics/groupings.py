"""How the terms group the cells of the facets that are no axes of the grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from vcomp._typing import FloatArray, IntArray
from vcomp.design import TermDesign
from vcomp.design.combine import number_combinations
from vcomp.design.grid import Grid
from vcomp.kernels.pairs import pair_counts
from vcomp.statistics.cross_products import CrossProducts, PairTable
from vcomp.statistics.strata import Remainder

__all__ = ["Groupings", "find_groupings"]


@dataclass(frozen=True, slots=True)
class Groupings:
    """The groupings of the cells, coarsest first, the first of them with one group.

    Attributes
    ----------
    order : (M,) the cells in an order in which nested groups are contiguous
    rank : (M,) place of each cell in it
    codes : for each grouping the (M,) group of the cells, in that order
    of_term : for each term its grouping, or their number if it tells single observations apart
    term_axes : for each term the positions of the axes in it
    remainder : numbers of rows in groups and pairs of groups
    """

    order: IntArray
    rank: IntArray
    codes: tuple[IntArray, ...]
    of_term: tuple[int, ...]
    term_axes: tuple[frozenset[int], ...]
    remainder: Remainder

    @property
    def are_nested(self) -> bool:
        """Whether each grouping is nested in the one before it."""
        return self.remainder.parents is not None

    @property
    def inner(self) -> IntArray:
        """The finest grouping."""
        return self.codes[-1]

    @property
    def kept(self) -> tuple[IntArray, ...]:
        """The groupings in which sums of columns are needed."""
        return self.codes[-1:] if self.are_nested else self.codes


def find_groupings(terms: Sequence[TermDesign], grid: Grid) -> Groupings:
    """Return the groupings that the terms make of the cells of a grid, each once."""
    found: list[tuple[IntArray, int]] = [(np.zeros(grid.n_cells, np.int32), 1)]
    places = [_place(_term_groups(term, grid), found, grid) for term in terms]
    by_size = sorted(range(len(found)), key=lambda g: found[g][1])
    position = {g: k for k, g in enumerate(by_size)} | {-1: len(found)}
    ordered = [found[g] for g in by_size]
    order = np.lexsort([codes for codes, _ in reversed(ordered)])
    rank = np.empty(order.size, dtype=np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    nested = all(
        number_combinations(*coarse, *fine)[0].size == fine[1]
        for coarse, fine in pairwise(ordered)
    )
    codes = tuple(
        _renumbered(c[order]) if nested else np.ascontiguousarray(c[order]) for c, _ in ordered
    )
    n = grid.cell_n[order]
    return Groupings(
        order=order.astype(np.int32),
        rank=rank,
        codes=codes,
        of_term=tuple(position[p] for p in places),
        term_axes=tuple(
            frozenset(a for a, facet in enumerate(grid.axes) if facet in term.facets)
            for term in terms
        ),
        remainder=_nested_remainder(codes, n) if nested else _crossed_remainder(codes, n),
    )


def _term_groups(term: TermDesign, grid: Grid) -> tuple[IntArray, int]:
    """Return the group that each cell belongs to by the facets of a term that are no axes."""
    groups, size = np.zeros(grid.n_cells, np.int32), 1
    for facet, levels in zip(grid.rest, grid.levels, strict=True):
        if facet in term.facets:
            n_levels = int(levels.max()) + 1
            keys, groups = number_combinations(groups, size, levels, n_levels)
            size = keys.size
    return groups, size


def _place(groups: tuple[IntArray, int], found: list[tuple[IntArray, int]], grid: Grid) -> int:
    """Return the place of a grouping among those found, −1 if its groups are single observations.

    A new one joins them.
    """
    codes, size = groups
    if size == grid.n_cells > 1 and (grid.cell_n == 1.0).all():
        return -1
    for place, (known, n_known) in enumerate(found):
        if n_known == size and number_combinations(known, size, codes, size)[0].size == size:
            return place
    found.append(groups)
    return len(found) - 1


def _renumbered(codes: IntArray) -> IntArray:
    """Return numbers of contiguous groups in their order."""
    numbered: IntArray = np.cumsum(np.diff(codes, prepend=codes[:1]) != 0, dtype=np.int32)
    return numbered


def _nested_remainder(codes: tuple[IntArray, ...], n: FloatArray) -> Remainder:
    """Return the tables of nested groupings, which follow from the sizes of the groups."""
    group_n = tuple(np.bincount(c, weights=n).astype(float) for c in codes)
    parents = [_outer_groups(fine, coarse) for coarse, fine in pairwise(codes)]
    pairs = {}
    for u in range(len(codes)):
        for t in range(u):
            outer = _outer_groups(codes[u], codes[t])
            starts = np.searchsorted(outer, np.arange(group_n[t].size + 1))
            inner = np.arange(group_n[u].size, dtype=np.int32)
            pairs[t, u] = PairTable(starts.astype(np.int64), inner, group_n[u], inner.size)
    return Remainder(_tables(group_n, pairs), tuple(parents))


def _outer_groups(fine: IntArray, coarse: IntArray) -> IntArray:
    """Return the coarse group that each fine one lies in."""
    return coarse[np.flatnonzero(np.diff(fine, prepend=-1))]


def _crossed_remainder(codes: tuple[IntArray, ...], n: FloatArray) -> Remainder:
    sizes = [int(c.max()) + 1 for c in codes]
    group_n = tuple(np.bincount(c, weights=n).astype(float) for c in codes)
    pairs = {}
    for u in range(len(codes)):
        for t in range(u):
            indptr, indices, counts = pair_counts(codes[t], codes[u], sizes[t], sizes[u], n)
            pairs[t, u] = PairTable(indptr, indices, counts, sizes[u])
    return Remainder(_tables(group_n, pairs), None)


def _tables(
    group_n: tuple[FloatArray, ...], pairs: dict[tuple[int, int], PairTable]
) -> CrossProducts:
    """Return cross-products of groupings alone, without columns."""
    return CrossProducts(
        n=round(float(group_n[0].sum())),
        group_n=group_n,
        pairs=pairs,
        Zy=tuple(np.zeros(n.size) for n in group_n),
        ZX=tuple(np.zeros((n.size, 0)) for n in group_n),
        XX=np.zeros((0, 0)),
        Xy=np.zeros(0),
        yy=0.0,
    )
