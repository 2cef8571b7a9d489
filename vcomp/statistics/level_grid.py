"""Rows as levels of one facet, each a small grid of cells, some of them empty.

Where one facet has many levels (items, topics, documents, persons), the others have few
combinations: the cells. Groups of a term are sets of cells within a level of this facet, within a
level of a facet in which it is nested, or over all levels
(docs/explanation/mathematics.md, section 4.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.design import Chunk, TermDesign, number_combinations
from vcomp.numerics import available_bytes
from vcomp.numerics.kernels import determined_levels
from vcomp.statistics.cross_products import cell_moments

_MOST_CELLS = 2_048
"""Largest number of cells of a level: matrices of cells by cells are factored."""

_LEAST_FILLED, _LEAST_PER_CELL = 0.02, 1.0 / 8_192
"""Smallest share of filled cells of rows that are laid out as a table, and that share divided by
the number of cells: the cubes of these are the same for empty ones."""


@dataclass(frozen=True)
class LevelTerm:
    """Position of the groups of a term in the grid.

    Attributes
    ----------
    depth : 0 if its groups are within the levels, 1 if within those of the first facet in which
        the levels are nested, …; the largest depth is that of all levels together
    codes : (C,) group of each cell
    size : number of groups of cells
    places : (q,) ``node * size + code`` of each group of the term
    """

    depth: int
    codes: IntArray
    size: int
    places: LongArray

    @cached_property
    def indicator(self) -> FloatArray:
        """1 where a cell is in a group, (C, size)."""
        return np.asarray(self.codes[:, None] == np.arange(self.size), dtype=float)

    @cached_property
    def alike(self) -> FloatArray:
        """1 where two cells are in the same group, (C, C)."""
        return np.asarray(self.codes[:, None] == self.codes, dtype=float)


@dataclass(frozen=True)
class LevelGrid:
    """Cell means of y and the columns of X, by level, in the order of their holes.

    Attributes
    ----------
    n : number of scores
    place : the cell of each row, ``level * C + cell``
    counts : (I, C) numbers of scores
    n_fixed : number of columns of X
    make_means : makes `tables` and `within`
    parents : for each depth but the largest, the (nodes,) node above each node
    terms : the groups of each term
    alike : the levels by their holes
    log_weights : sum of the logarithms of the weights of the rows, whose sums are `counts` then
    """

    n: int
    place: LongArray
    counts: FloatArray
    n_fixed: int
    make_means: Callable[[], tuple[FloatArray, FloatArray]]
    parents: tuple[LongArray, ...]
    terms: tuple[LevelTerm, ...]
    alike: tuple[Alike, ...]
    log_weights: float = 0.0

    def with_response(self, chunk: Chunk) -> LevelGrid:
        """Return the same cells with another response of the same rows."""
        return replace(self, make_means=partial(_means, chunk, self.place, self.counts))

    def recombined(self, columns: FloatArray) -> LevelGrid:
        """Return the statistics of other columns in place of y and X.

        Parameters
        ----------
        columns : (1 + p, 1 + q) matrix that maps [y X] to them
        """
        tables = np.einsum("bic,bd->dic", self.tables, columns)
        within = columns.T @ self.within @ columns
        n_fixed = columns.shape[1] - 1
        return replace(self, n_fixed=n_fixed, make_means=lambda: (tables, within))

    @cached_property
    def _means(self) -> tuple[FloatArray, FloatArray]:
        return self.make_means()

    @property
    def tables(self) -> FloatArray:
        """Means of y and the columns of X, zero in empty cells, (b, I, C)."""
        return self._means[0]

    @property
    def within(self) -> FloatArray:
        """Squares and products of y and the columns of X within cells, (b, b)."""
        return self._means[1]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of random effects of the terms."""
        return tuple(term.places.size for term in self.terms)

    @cached_property
    def n_terms(self) -> int:
        """Number of random terms, the residual not counted."""
        return len(self.terms)

    @property
    def mean_weight(self) -> float:
        """Mean weight of the rows, 1 if they count alike."""
        return float(self.counts.sum()) / self.n

    @cached_property
    def n_cells(self) -> int:
        """Number of cells of a level."""
        return int(self.counts.shape[1])

    @cached_property
    def n_nodes(self) -> tuple[int, ...]:
        """Numbers of nodes of each depth."""
        return (*(up.size for up in self.parents), 1)

    @cached_property
    def filled(self) -> FloatArray:
        """1 where a cell has scores, (I, C)."""
        return (self.counts > 0.0).astype(float)

    @cached_property
    def divisors(self) -> FloatArray:
        """The numbers of scores, 1 in empty cells, (I, C)."""
        return _divisors(self.counts)

    @cached_property
    def n_filled(self) -> int:
        """Number of cells with scores."""
        return int(np.count_nonzero(self.counts))

    @cached_property
    def log_counts(self) -> float:
        """The sum of the logarithms of the numbers of scores of filled cells."""
        return float(np.log(self.divisors).sum())

    @cached_property
    def n_by_holes(self) -> int:
        """Number of levels that are described by their holes; they come first."""
        return sum(a.n for a in self.alike if a.by_holes)

    def sums_by_holes(self, z: FloatArray) -> FloatArray:
        """Return the sums of columns (c, I, C) over those levels, (c, nodes, C)."""
        n, n_nodes = self.n_by_holes, self.n_nodes[1]
        sums = np.zeros((len(z), n_nodes, self.n_cells))
        nodes, parents = np.unique(self.parents[0][:n], return_inverse=True)
        if n:
            sums[:, nodes] = added_up(z[:, :n], parents, axis=1)
        return sums

    @cached_property
    def replicates(self) -> float | None:
        """The number of scores of each filled cell; None if it differs."""
        return _replicates(self.counts)

    @cached_property
    def gram(self) -> FloatArray:
        """Cross-products of y and the columns of X, (b, b)."""
        flat = self.tables.reshape(len(self.tables), -1)
        return (flat * self.counts.ravel()) @ flat.T + self.within

    @cached_property
    def XX(self) -> FloatArray:
        """Cross-products of the columns of X."""
        return self.gram[1:, 1:]

    @cached_property
    def Xy(self) -> FloatArray:
        """Cross-products of the columns of X with y."""
        return self.gram[1:, 0]

    @cached_property
    def yy(self) -> float:
        """Sum of squares of y."""
        return float(self.gram[0, 0])

    def node_sums(self, z: FloatArray, depth: int) -> FloatArray:
        """Return the sums of (…, I, C) over the levels within the nodes of a depth."""
        for up in self.parents[:depth]:
            z = added_up(z, up, axis=-2)
        return z

    def group_sums(self, z: FloatArray, term: int) -> FloatArray:
        """Return the sums of (…, I, C) over the groups of a term, (…, nodes, size)."""
        groups = self.terms[term]
        return self.node_sums(z, groups.depth) @ groups.indicator

    def in_cells(self, effects: FloatArray, term: int) -> FloatArray:
        """Return the values (…, nodes, size) of groups in the filled cells, (…, I, C)."""
        groups, node = self.terms[term], np.arange(self.n_nodes[0])
        for up in self.parents[: groups.depth]:
            node = up[node]
        return effects[..., node[:, None], groups.codes] * self.filled

    def of_groups(self, values: FloatArray, term: int) -> FloatArray:
        """Return values (…, nodes, size) in the order of the groups of a term, (…, q)."""
        flat = values.reshape(*values.shape[:-2], -1)
        return flat[..., self.terms[term].places]

    @cached_property
    def column_sums(self) -> list[FloatArray]:
        """Sums of y and the columns of X within the groups of each term, (b, nodes, size)."""
        z = self.tables if self.is_single else self.tables * self.counts
        return [self.group_sums(z, t) for t in range(self.n_terms)]

    @cached_property
    def is_single(self) -> bool:
        """Whether no cell has several scores."""
        return self.n == self.n_filled and self.replicates == 1.0

    @cached_property
    def projector_forms(self) -> FloatArray:
        """tr(Q V_t Q V_u) with Q = I − X(X'X)⁻¹X', the residual last, (k + 1, k + 1)."""
        k, p = self.n_terms, self.n_fixed
        R = np.linalg.cholesky(self.XX) if p else np.zeros((0, 0))
        H = [np.linalg.solve(R, c[1:].reshape(p, c[0].size)) for c in self.column_sums]
        forms = np.empty((k + 1, k + 1))
        for u in range(k):
            mixed = self._mixed_forms(u, H)
            for t in range(u + 1):
                both = float(np.vdot(H[t] @ H[t].T, H[u] @ H[u].T))
                forms[t, u] = forms[u, t] = self._pair_squares(t, u) - 2.0 * mixed[t] + both
            forms[u, k] = forms[k, u] = self.counts.sum() - np.square(H[u]).sum()
        forms[k, k] = self.n - p
        return forms

    def _mixed_forms(self, u: int, H: Sequence[FloatArray]) -> FloatArray:
        """Return tr(H_t'Z_t'Z_u H_u) for the terms t up to u, of H (columns, groups)."""
        mixed = np.zeros(u + 1)
        for j, h in enumerate(H[u]):
            cells = self.in_cells(h.reshape(-1, self.terms[u].size), u)
            if not self.is_single:
                cells *= self.counts
            for t in range(u + 1):
                mixed[t] += float(np.vdot(self.group_sums(cells, t), H[t][j]))
        return mixed

    def _pair_squares(self, t: int, u: int) -> float:
        """Return the sum of squares of the scores in each pair of groups of two terms."""
        inner, outer = sorted((self.terms[t], self.terms[u]), key=lambda term: term.depth)
        keys, both = number_combinations(inner.codes, inner.size, outer.codes, outer.size)
        counts = self.node_sums(self.counts, inner.depth)
        if keys.size < self.n_cells:
            counts = counts @ (both[:, None] == np.arange(keys.size)).astype(float)
        return float(np.vdot(counts, counts))


def added_up(values: FloatArray, parents: LongArray, axis: int = 0) -> FloatArray:
    """Return the sums of nodes that have the same parent, along an axis."""
    n = int(parents.max()) + 1
    if n == 1:
        return values.sum(axis=axis, keepdims=True)
    order = np.argsort(parents, kind="stable")
    starts = np.searchsorted(parents[order], np.arange(n))
    return np.add.reduceat(values.take(order, axis=axis), starts, axis=axis)


def find_level_grid(
    chunk: Chunk, *, free_bytes: Callable[[], float] = available_bytes
) -> LevelGrid | None:
    """Return the cells of rows by level; None if they are too many, or too few are filled.

    Parameters
    ----------
    chunk : the rows, or cells of them
    free_bytes : returns the free memory
    """
    used = sorted({f for term in chunk.terms for f in term.facets})
    if not used:
        return None
    sizes, codes = chunk.facet_sizes, {f: chunk.level_codes(f) for f in used}
    leaf = max(used, key=lambda f: sizes[f])
    chain, parents = _chain(leaf, codes, sizes)
    # A level without rows, such as one that was left out, has no node.
    if not all(np.bincount(codes[f], minlength=sizes[f]).all() for f in chain):
        return None
    axes = [f for f in used if f not in chain]
    keys, cell = np.zeros(1, dtype=np.int64), np.zeros(chunk.response.size, dtype=np.int32)
    for f in axes:
        keys, cell = number_combinations(cell, keys.size, codes[f], sizes[f])
        if keys.size > _MOST_CELLS:
            return None
    shape = sizes[leaf], keys.size
    n_places, b = float(shape[0] * shape[1]), 1 + chunk.n_fixed
    few = chunk.response.size < max(_LEAST_FILLED, _LEAST_PER_CELL * keys.size) * n_places
    if few or 8.0 * n_places * (4.0 * b + 3.0 * len(chunk.terms)) > 0.5 * free_bytes():
        return None
    row = np.zeros(keys.size, dtype=np.int64)
    row[cell] = np.arange(cell.size)
    levels = {f: codes[f][row] for f in axes}
    place = codes[leaf] * np.int64(keys.size) + cell
    counts = (
        np.bincount(place, chunk.multiplicity, minlength=int(n_places))
        .astype(float)
        .reshape(shape)
    )
    alike, order = find_alike(counts, parents[0], equal=_replicates(counts) is not None)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    terms = tuple(_term(term, chain, levels, sizes, rank) for term in chunk.terms)
    place = rank[codes[leaf]] * keys.size + cell
    parents, counts = (parents[0][order], *parents[1:]), counts[order]
    # An engine that needs no means may be chosen.
    means = partial(_means, chunk, place, counts)
    return LevelGrid(
        chunk.n, place, counts, chunk.n_fixed, means, parents, terms, alike, chunk.log_weights
    )


def _replicates(counts: FloatArray) -> float | None:
    """Return the number of scores of each filled cell, None if it differs."""
    most = float(counts.max())
    return most if (counts[counts > 0.0] == most).all() else None


def _chain(
    leaf: int, codes: dict[int, IntArray], sizes: Sequence[int]
) -> tuple[list[int], tuple[LongArray, ...]]:
    """Return the facets above the first one, inner ones first, and the nodes above each node."""

    def determined(inner: int, outer: int) -> LongArray:
        return determined_levels(codes[inner], codes[outer], sizes[inner]).astype(np.int64)

    chain, parents = [leaf], list[LongArray]()
    for facet in sorted(codes, key=lambda f: -sizes[f]):
        if sizes[facet] < sizes[chain[-1]] and (level := determined(chain[-1], facet)).size:
            chain.append(facet)
            parents.append(level)
    return chain, (*parents, np.zeros(sizes[chain[-1]], dtype=np.int64))


def _term(
    term: TermDesign,
    chain: list[int],
    levels: dict[int, IntArray],
    sizes: tuple[int, ...],
    rank: LongArray,
) -> LevelTerm:
    """Return the position of a term's groups in the grid, for levels of this rank."""
    of_groups = dict(zip(term.facets, term.level_codes(sizes), strict=True))
    depth = min((chain.index(f) for f in term.facets if f in chain), default=len(chain))
    n_cells = next((x.size for x in levels.values()), 1)
    joined, own = np.zeros(n_cells, dtype=np.int64), np.zeros(term.size, dtype=np.int64)
    for f in term.facets:
        if f in levels:
            joined = joined * sizes[f] + levels[f]
            own = own * sizes[f] + of_groups[f]
    keys, code = np.unique(joined, return_inverse=True)
    node = of_groups[chain[depth]] if depth < len(chain) else np.zeros(term.size, dtype=np.int64)
    if depth == 0:
        node = rank[node]
    places = node * keys.size + np.searchsorted(keys, own)
    return LevelTerm(depth, code.ravel().astype(np.int32), keys.size, places)


def _divisors(counts: FloatArray) -> FloatArray:
    """Return the numbers of scores, whole or not, with 1 in place of 0."""
    return np.where(counts > 0.0, counts, 1.0)


def _means(chunk: Chunk, place: LongArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return means in cells, and squares and products within them."""
    weights, flat, b = chunk.multiplicity, counts.ravel(), 1 + chunk.n_fixed
    if weights is None and not chunk.is_mean:
        means, products = cell_moments(place, chunk.y, chunk.columns, _divisors(flat))
        is_single = np.count_nonzero(flat) == place.size
        return means.reshape(b, *counts.shape), np.zeros((b, b)) if is_single else products
    columns = [chunk.y, *chunk.X.T]
    tables = np.empty((b, flat.size))
    for table, column in zip(tables, columns, strict=True):
        table[:] = np.bincount(place, column if weights is None else column * weights, flat.size)
    tables /= _divisors(flat)
    within = np.zeros((b, b)) if chunk.within is None else chunk.within.copy()
    if np.count_nonzero(flat) < place.size:  # several rows in a cell
        away = np.array([c - table[place] for c, table in zip(columns, tables, strict=True)])
        within += (away if weights is None else away * weights) @ away.T
    return tables.reshape(b, *counts.shape), within


_BLOCK = 2**17
"""Size of a block in numbers: its matrices and a table fit into a cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """Adjacent levels with equally many holes or filled cells, sorted by pattern.

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

    Holes serve only if all filled cells have equally many scores; else filled cells are used
    throughout.

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
    blocks, orders, start = [], [np.zeros(0, dtype=np.int64)], 0
    for holes in (True, False):
        for s in np.unique(sizes[by_holes == holes]).tolist():
            levels = np.flatnonzero((by_holes == holes) & (sizes == s))
            cells = np.nonzero(filled[levels] ^ holes)[1].reshape(levels.size, s)
            scores = np.ones(cells.shape) if holes else counts[levels[:, None], cells]
            # Levels of the same pattern are adjacent, in the same block.
            order = np.lexsort([parents[levels], _hashed(cells, scores)])
            step = max(_BLOCK // max(n_cells, s * s), 1)
            for first in range(0, levels.size, step):
                some = order[first : first + step]
                places = slice(start, start + some.size)
                blocks.append(
                    _patterns(
                        holes, places, cells[some], scores[some], parents[levels[some]], n_cells
                    )
                )
                orders.append(levels[some])
                start += some.size
    return tuple(blocks), np.concatenate(orders)


def _hashed(cells: LongArray, scores: FloatArray) -> NDArray[np.uint64]:
    """Return a hash of each row, (L,)."""
    odd = np.uint64(0x9E3779B97F4A7C15)
    weights = np.cumprod(np.full(2 * cells.shape[1], odd))
    both = np.hstack([cells.view(np.uint64), scores.view(np.uint64)])
    return (both * weights).sum(axis=1, dtype=np.uint64)


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
