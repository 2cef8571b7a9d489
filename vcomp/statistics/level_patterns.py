"""Levels in the order of their holes: what those with equally many have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vcomp._typing import FloatArray, LongArray

_BLOCK = 2**17
"""Numbers of the matrices and of a table that are worked on at once, which fit into a cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """Adjacent levels with equally many holes, or filled cells, in the order of their patterns.

    Attributes
    ----------
    by_holes : whether `cells` are holes
    levels : places of the levels
    cells : (P, s) cells of each distinct pattern
    counts : (P, s) scores of filled cells; ones by holes
    bounds : (P + 1,) first level of each pattern, and their number L
    at : (L, s) places of the cells in the (L, C) table of these levels
    pair_pattern, pair_node, pair_n : distinct pairs of patterns and nodes above, and how many
        levels have them
    pair : (L,) the pair of each level
    """

    by_holes: bool
    levels: slice
    cells: LongArray
    counts: FloatArray
    bounds: LongArray
    at: LongArray
    pair_pattern: LongArray
    pair_node: LongArray
    pair_n: FloatArray
    pair: LongArray

    @property
    def size(self) -> int:
        """Number of cells of each pattern."""
        return int(self.cells.shape[1])

    @property
    def n(self) -> int:
        """Number of levels."""
        return int(self.bounds[-1])

    def of_levels(self, values: FloatArray) -> FloatArray:
        """Return values of the patterns for each of their levels."""
        is_alone = len(values) == self.n
        return values if is_alone else np.repeat(values, np.diff(self.bounds), axis=0)

    def of_pairs(self, values: FloatArray) -> FloatArray:
        """Return values of the patterns for each of their pairs with nodes."""
        return values if len(values) == self.pair_n.size else values[self.pair_pattern]


def find_alike(
    counts: FloatArray, parents: LongArray, *, equal: bool
) -> tuple[tuple[Alike, ...], LongArray]:
    """Return the levels by the number of their holes, or of filled cells if these are fewer.

    Holes are filled in blocks that are all the same: if cells have different numbers of scores,
    filled cells are used throughout.

    Parameters
    ----------
    counts : (I, C) numbers of scores
    parents : (I,) node above each level
    equal : whether all filled cells have equally many scores

    Returns
    -------
    the levels that are alike, and the (I,) levels in their order
    """
    filled = counts > 0.0
    n_cells = counts.shape[1]
    n_filled = np.count_nonzero(filled, axis=1)
    by_holes = (2 * n_filled >= n_cells) & equal
    sizes = np.where(by_holes, n_cells - n_filled, n_filled)
    found, orders, start = [], [np.zeros(0, dtype=np.int64)], 0
    for holes in (True, False):
        for s in np.unique(sizes[by_holes == holes]).tolist():
            levels = np.flatnonzero((by_holes == holes) & (sizes == s))
            cells = np.nonzero(filled[levels] ^ holes)[1].reshape(levels.size, s)
            own = np.ones(cells.shape) if holes else counts[levels[:, None], cells]
            # Levels of the same pattern come into the same block, and are adjacent there.
            order = np.lexsort([parents[levels], _hashed(cells, own)])
            step = max(_BLOCK // max(n_cells, s * s), 1)
            for first in range(0, levels.size, step):
                some = order[first : first + step]
                places = slice(start, start + some.size)
                found.append(
                    _patterns(
                        holes, places, cells[some], own[some], parents[levels[some]], n_cells
                    )
                )
                orders.append(levels[some])
                start += some.size
    return tuple(found), np.concatenate(orders)


def _hashed(cells: LongArray, own: FloatArray) -> NDArray[np.uint64]:
    """Return a number that is the same for equal rows, and for few others, (L,)."""
    odd = np.uint64(0x9E3779B97F4A7C15)
    weights = np.cumprod(np.full(2 * cells.shape[1], odd))
    both = np.hstack([cells.view(np.uint64), own.view(np.uint64)])
    hashed: NDArray[np.uint64] = (both * weights).sum(axis=1, dtype=np.uint64)
    return hashed


def _patterns(
    holes: bool,
    levels: slice,
    cells: LongArray,
    own: FloatArray,
    parents: LongArray,
    n_cells: int,
) -> Alike:
    """Return sorted levels as patterns, and these as pairs with their nodes."""
    differs = (cells[1:] != cells[:-1]).any(axis=1) | (own[1:] != own[:-1]).any(axis=1)
    first = np.flatnonzero(np.append(True, differs))
    pattern = np.cumsum(np.append(False, differs))
    is_new = np.append(True, differs | (parents[1:] != parents[:-1]))
    pairs = np.flatnonzero(is_new)
    at = cells + n_cells * np.arange(len(cells))[:, None]
    return Alike(
        by_holes=holes,
        levels=levels,
        cells=cells[first],
        counts=own[first],
        bounds=np.append(first, len(cells)),
        at=at,
        pair_pattern=pattern[pairs],
        pair_node=parents[pairs],
        pair_n=np.diff(np.append(pairs, len(cells))).astype(float),
        pair=np.cumsum(is_new) - 1,
    )
