"""V⁻¹ of levels that are grids of a few cells with holes, absorbed one by one.

Without the terms that reach over several levels, V consists of a block for each level. With K the
inverse of a whole block and m its holes, the inverse of the filled part is K − K_·m K_mm⁻¹ K_m·
(docs/explanation/mathematics.md, eq. (4.6)); a block with more holes than filled cells is inverted
itself. Either way a level is described by a matrix of the size of its fewer cells, and levels with
the same holes share it. Terms over several levels have a covariance between cells, the same for
all levels: they are added at the nodes above, eqs. (4.7) to (4.10).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.numerics import Positive, in_threads
from vcomp.statistics import LevelGrid, added_up

_FEW = 8
"""Part of the cells, as a divisor, up to which products are computed in the holes alone."""

_BLOCK = 2**20
"""Numbers of the matrices that are worked on at once, which fit into a cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """Levels with equally many holes, or filled cells.

    Attributes
    ----------
    by_holes : whether `cells` are holes
    cells : (P, s) cells of each distinct pattern
    counts : (P, s) scores of filled cells; ones by holes
    levels, pattern, pair : levels, and the pattern and the pair of each
    pair_pattern, pair_node, pair_n : distinct pairs of patterns and nodes above, and how many
        levels have them
    """

    by_holes: bool
    cells: LongArray
    counts: FloatArray
    levels: LongArray
    pattern: LongArray
    pair: LongArray
    pair_pattern: LongArray
    pair_node: LongArray
    pair_n: FloatArray

    @property
    def size(self) -> int:
        """Number of cells of each pattern."""
        return int(self.cells.shape[1])


def find_alike(grid: LevelGrid) -> list[Alike]:
    """Return the levels by the number of their holes, or of their filled cells if these are fewer.

    Holes are filled in blocks that are all the same: if cells have different numbers of scores,
    filled cells are used throughout.
    """
    filled = grid.filled > 0.0
    n_filled = np.count_nonzero(filled, axis=1)
    by_holes = (2 * n_filled >= grid.n_cells) & (grid.replicates is not None)
    sizes = np.where(by_holes, grid.n_cells - n_filled, n_filled)
    found = []
    for holes in (True, False):
        for s in np.unique(sizes[by_holes == holes]).tolist():
            levels = np.flatnonzero((by_holes == holes) & (sizes == s))
            step = max(_BLOCK // max(s * s, 1), 1)
            cells = np.nonzero(filled[levels] ^ holes)[1].reshape(levels.size, s)
            # Patterns that are alike come into the same block.
            order = np.lexsort(cells.T[::-1]) if s else np.arange(levels.size)
            for first in range(0, levels.size, step if s else levels.size):
                some = order[first : first + step] if s else order
                found.append(_patterns(grid, holes, levels[some], cells[some]))
    return found


def _patterns(grid: LevelGrid, holes: bool, levels: LongArray, cells: LongArray) -> Alike:
    own = np.ones(cells.shape) if holes else grid.counts[levels[:, None], cells]
    if cells.shape[1]:
        key = np.hstack([cells, own])
        _, first, pattern = np.unique(key, axis=0, return_index=True, return_inverse=True)
    else:
        first, pattern = np.zeros(1, dtype=np.int64), np.zeros(levels.size, dtype=np.int64)
    # In the order of their patterns, so that these are not copied where all are distinct.
    order = np.argsort(pattern.ravel(), kind="stable")
    levels, pattern = levels[order], pattern.ravel()[order]
    keys = pattern * np.int64(grid.n_nodes[1]) + grid.parents[0][levels]
    pairs, pair, n = np.unique(keys, return_inverse=True, return_counts=True)
    of_pair, node = np.divmod(pairs, grid.n_nodes[1])
    return Alike(
        holes, cells[first], own[first], levels, pattern, pair, of_pair, node, n.astype(float)
    )


def taken(values: FloatArray, sorted_places: LongArray) -> FloatArray:
    """Return ``values[sorted_places]``, which has each of the values once or several times."""
    return values if len(values) == sorted_places.size else values[sorted_places]


class LevelBlocks:
    """The inverses W_i of the blocks of all levels, at given components.

    Parameters
    ----------
    grid : the cells
    alike : `find_alike` of them
    v : (k + 1,) components, the residual last

    Attributes
    ----------
    terms : positions of the terms whose groups are within levels
    log_det : log|V| without the other terms
    n_by_holes : (nodes,) numbers of levels by holes within each node above

    Raises
    ------
    numpy.linalg.LinAlgError
        If a block is not positive definite.
    """

    def __init__(self, grid: LevelGrid, alike: list[Alike], v: FloatArray) -> None:
        self.grid, self.alike, self._error = grid, alike, float(v[-1])
        self.terms = [t for t, term in enumerate(grid.terms) if term.depth == 0]
        shape = grid.n_cells, grid.n_cells
        self._shared = np.zeros(shape)
        for t in self.terms:
            self._shared += v[t] * grid.terms[t].alike
        filled = grid.counts[grid.counts > 0.0]
        self.log_det = float(np.log(filled).sum()) + (grid.n - grid.n_filled) * np.log(v[-1])
        self.n_by_holes = np.zeros(grid.n_nodes[1])
        for a in alike:
            if a.by_holes:
                self.log_det += a.levels.size * self._whole.log_determinant()
                self.n_by_holes += np.bincount(
                    grid.parents[0][a.levels], minlength=self.n_by_holes.size
                )
        self._inverses: list[FloatArray] = []
        for inverse, log_det in in_threads(partial(self._inverted, self.K), alike, self.cost):
            self._inverses.append(inverse)
            self.log_det += log_det

    @property
    def cost(self) -> float:
        """Multiplications of the inverses."""
        return float(sum(len(a.cells) * a.size**3 for a in self.alike))

    @cached_property
    def _whole(self) -> Positive:
        """A whole block."""
        assert self.grid.replicates is not None
        return Positive(
            self._shared + self._error / self.grid.replicates * np.eye(self.grid.n_cells)
        )

    @cached_property
    def K(self) -> FloatArray:
        """The inverse of a whole block; zero if no level is treated by its holes."""
        if not any(a.by_holes for a in self.alike):
            return np.zeros_like(self._shared)
        return self._whole.inverse()

    def _inverted(self, K: FloatArray, a: Alike) -> tuple[FloatArray, float]:
        """Return the inverses of K_mm of holes m, or V_oo of filled cells o, (P, s, s).

        And the log-determinant of the blocks of all levels.
        """
        rows, columns = a.cells[:, :, None], a.cells[:, None, :]
        block = (K if a.by_holes else self._shared)[rows, columns]
        if not a.by_holes:
            np.einsum("pii->pi", block)[:] += self._error / a.counts
        lower = np.linalg.cholesky(block)
        logs = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
        log_det = 2.0 * float(np.bincount(a.pattern, minlength=logs.size) @ logs)
        return np.asarray(np.linalg.inv(block), dtype=np.float64), log_det

    def each(self) -> Iterator[tuple[Alike, FloatArray]]:
        """Yield levels with the inverse matrices of their patterns, (P, s, s)."""
        for a, inverse in zip(self.alike, self._inverses, strict=True):
            if a.size:
                yield a, inverse

    def embedded(self, a: Alike, values: FloatArray, *, of_pairs: bool = False) -> FloatArray:
        """Return the sums over levels of matrices of their cells, (nodes, C, C).

        Parameters
        ----------
        a : the levels
        values : matrices of patterns, or of pairs of patterns and nodes if `of_pairs`
        """
        C, n_nodes = self.grid.n_cells, self.n_by_holes.size
        cells = a.cells[a.pair_pattern]
        rows = a.pair_node[:, None] * C + cells
        at = rows[:, :, None] * C + cells[:, None, :]
        weighted = values if of_pairs else taken(values, a.pair_pattern)
        weighted = weighted * a.pair_n[:, None, None]
        sums: FloatArray = np.bincount(at.ravel(), weighted.ravel(), n_nodes * C * C).astype(float)
        return sums.reshape(n_nodes, C, C)

    @cached_property
    def _holes(self) -> FloatArray:
        """H: Σ of the embedded K_mm⁻¹ of levels by holes, (nodes, C, C)."""
        return self._summed(by_holes=True)

    @cached_property
    def _by_holes(self) -> FloatArray:
        """The sums of W_i over levels by holes, (nodes, C, C)."""
        return self.n_by_holes[:, None, None] * self.K - self.K @ self._holes @ self.K

    @cached_property
    def _by_filled(self) -> FloatArray:
        """The sums of W_i over the other levels, (nodes, C, C)."""
        return self._summed(by_holes=False)

    def _summed(self, *, by_holes: bool) -> FloatArray:
        total = np.zeros((self.n_by_holes.size, *self._shared.shape))
        for a, inverse in self.each():
            if a.by_holes == by_holes:
                total += self.embedded(a, inverse)
        return total

    @property
    def sums(self) -> FloatArray:
        """M: the sums of W_i over the levels of each node above, (nodes, C, C)."""
        return self._by_holes + self._by_filled

    @cached_property
    def _many_holes(self) -> bool:
        """Whether a product of all cells with K is sooner done than one in the holes alone."""
        return any(a.by_holes and a.size * _FEW > self.grid.n_cells for a in self.alike)

    def times(self, Y: FloatArray) -> FloatArray:
        """Return W_i Y_i of all levels, (c, I, C), zero in empty cells."""
        if not self.n_by_holes.any():
            return self._with_filled(np.zeros_like(Y), Y)
        # K(y − E K_mm⁻¹[K y]_m): the holes are filled so that they have no influence.
        filled, whole = Y.copy(), Y @ self.K if self._many_holes else None
        for a, inverse in self.each():
            if a.by_holes:
                rows, at = a.levels[:, None], a.cells[a.pattern]
                if whole is None:
                    inside = self.K[at] @ Y[:, a.levels].transpose(1, 2, 0)
                else:
                    inside = whole[:, rows, at].transpose(1, 2, 0)
                filled[:, rows, at] -= (taken(inverse, a.pattern) @ inside).transpose(2, 0, 1)
        return self._with_filled(self._emptied(filled @ self.K), Y)

    def times_of_nodes(self, values: FloatArray) -> FloatArray:
        """Return W_i y of all levels, (c, I, C), for y of the node above, (c, nodes, C)."""
        above = self.grid.parents[0]
        if self._many_holes or not self.n_by_holes.any():
            return self.times(values[:, above])
        product = values @ self.K
        found = product[:, above]
        for a, inverse in self.each():
            if a.by_holes:
                at = a.cells[a.pattern]
                inside = product[:, above[a.levels][:, None], at].transpose(1, 2, 0)
                gone = taken(inverse, a.pattern) @ inside
                found[:, a.levels] -= (gone.swapaxes(1, 2) @ self.K[at]).swapaxes(0, 1)
        return self._with_filled(self._emptied(found), values[:, above])

    def _emptied(self, found: FloatArray) -> FloatArray:
        """Return the same array, with zeros in the holes of levels by holes."""
        for a in self.alike:
            if a.by_holes:
                found[:, a.levels[:, None], a.cells[a.pattern]] = 0.0
        return found

    def _with_filled(self, found: FloatArray, Y: FloatArray) -> FloatArray:
        """Return the same array, with W_i Y_i of the levels that are not treated by holes."""
        for a, inverse in self.each():
            if not a.by_holes:
                rows, at = a.levels[:, None], a.cells[a.pattern]
                inside = taken(inverse, a.pattern) @ Y[:, rows, at].transpose(1, 2, 0)
                found[:, a.levels] = 0.0
                found[:, rows, at] = inside.transpose(2, 0, 1)
        return found

    def group_diagonal(self, Z: FloatArray, Q: FloatArray) -> FloatArray:
        """Return the diagonal of Z'(W_i − W_i Q W_i)Z of each level, (I, s).

        Parameters
        ----------
        Z : (C, s) groups of cells
        Q : (nodes, C, C), that of the node above each level
        """
        found, C = np.empty((self.grid.n_nodes[0], Z.shape[1])), self.grid.n_cells
        KZ = self.K @ Z
        for a, inverse in zip(self.alike, self._inverses, strict=True):
            step = max(_BLOCK // (C * Z.shape[1]), 1)
            of_pairs = np.empty((a.pair_n.size, Z.shape[1]))
            for first in range(0, a.pair_n.size, step):
                chosen = slice(first, first + step)
                pattern, node = a.pair_pattern[chosen], a.pair_node[chosen]
                at = a.cells[pattern]
                rows = np.arange(pattern.size)[:, None]
                WZ = np.zeros((pattern.size, C, Z.shape[1]))
                WZ[rows, at] = inverse[pattern] @ (KZ if a.by_holes else Z)[at]
                if a.by_holes:
                    WZ = KZ - self.K @ WZ
                    WZ[rows, at] = 0.0
                QWZ = Q[node] @ WZ if len(Q) > 1 else Q[0] @ WZ
                of_pairs[chosen] = (Z * WZ).sum(axis=1) - (WZ * QWZ).sum(axis=1)
            found[a.levels] = of_pairs[a.pair]
        return found

    def traces(self, Q: FloatArray) -> FloatArray:
        """Return Σ tr(B_t(W_i − W_i Q W_i)) of the terms within levels and the residual, (k + 1,).

        Parameters
        ----------
        Q : (nodes, C, C), that of the node above each level
        """
        K, grid = self.K, self.grid
        KQK, gone, filled = K @ Q @ K, np.zeros_like(Q), self._by_filled.copy()
        diagonal = (grid.n - grid.n_filled) / self._error

        def part(both: tuple[Alike, FloatArray]) -> tuple[FloatArray, float]:
            a, inverse = both
            cells, node = a.cells[a.pair_pattern], a.pair_node[:, None, None]
            inner = (KQK if a.by_holes else Q)[node, cells[:, :, None], cells[:, None, :]]
            X = taken(inverse, a.pair_pattern)
            XQX = X @ inner @ X
            own = 0.0
            if not a.by_holes:
                rest = np.einsum("pii->pi", X - XQX) / a.counts[a.pair_pattern]
                own = float(a.pair_n @ rest.sum(axis=1))
            return self.embedded(a, XQX, of_pairs=True), own

        every = list(self.each())
        for (a, _), (sums, own) in zip(every, in_threads(part, every, self.cost), strict=True):
            diagonal += own
            if a.by_holes:
                gone += sums
            else:
                filled -= sums
        once = KQK @ self._holes @ K
        whole = self._by_holes - self.n_by_holes[:, None, None] * KQK
        whole += once + once.swapaxes(1, 2) - K @ gone @ K
        found = np.zeros(grid.n_terms + 1)
        for t in self.terms:
            found[t] = float(np.einsum("ij,nji->", grid.terms[t].alike, whole + filled))
        replicates = 1.0 if grid.replicates is None else grid.replicates
        found[-1] = diagonal + float(np.einsum("nii->", whole)) / replicates
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """The terms within the nodes of one depth above the levels, added to V.

    Attributes
    ----------
    shrink : S = (I + MG)⁻¹, with M the sums of P'V⁻¹P before they are added
    gain : T = G(I + MG)⁻¹
    outer : W = SM, P'V⁻¹P after they are added

    Each is (nodes, C, C); P selects the rows of a cell within a node.
    """

    shrink: FloatArray
    gain: FloatArray
    outer: FloatArray


class LevelCovariance:
    """V of all rows at given components, eqs. (4.6) to (4.10).

    Parameters
    ----------
    grid, alike, v : as for `LevelBlocks`
    """

    def __init__(self, grid: LevelGrid, alike: list[Alike], v: FloatArray) -> None:
        self.grid, self.v = grid, v
        self.blocks = LevelBlocks(grid, alike, v)
        self.log_det = self.blocks.log_det
        self.nodes: list[Nodes] = []
        M = self.blocks.sums
        for depth in range(1, len(grid.n_nodes)):
            self.nodes.append(self._absorbed(depth, M))
            if depth < len(grid.parents):
                M = added_up(self.nodes[-1].outer, grid.parents[depth])

    def _absorbed(self, depth: int, M: FloatArray) -> Nodes:
        G = self._between(depth)
        if not G.any():
            eye = np.broadcast_to(np.eye(self.grid.n_cells), M.shape)
            return Nodes(eye, np.zeros_like(M), M)
        A = np.eye(self.grid.n_cells) + M @ G
        self.log_det += float(np.linalg.slogdet(A)[1].sum())
        S: FloatArray = np.asarray(np.linalg.inv(A), dtype=np.float64)
        T, W = G @ S, S @ M
        return Nodes(S, 0.5 * (T + T.swapaxes(1, 2)), 0.5 * (W + W.swapaxes(1, 2)))

    def _between(self, depth: int) -> FloatArray:
        """G: the covariance between cells due to the terms of a depth."""
        G = np.zeros((self.grid.n_cells, self.grid.n_cells))
        for t, term in enumerate(self.grid.terms):
            if term.depth == depth:
                G += self.v[t] * term.alike
        return G

    def solve(self, Y: FloatArray) -> FloatArray:
        """Return V⁻¹Y for cell means (c, I, C), zero in empty cells."""
        parents = self.grid.parents
        once = self.blocks.times(Y)
        sums = [added_up(once, parents[0], axis=1)]
        for nodes, up in zip(self.nodes, parents[1:], strict=False):
            sums.append(added_up(_each(nodes.shrink, sums[-1]), up, axis=1))
        predicted: FloatArray | None = None
        for depth in range(len(self.nodes), 0, -1):
            nodes = self.nodes[depth - 1]
            own = _each(nodes.gain, sums[depth - 1])
            if predicted is not None:
                own += _each(nodes.shrink.swapaxes(1, 2), predicted[:, parents[depth]])
            predicted = own
        assert predicted is not None
        return once - self.blocks.times_of_nodes(predicted)

    @cached_property
    def above(self) -> list[FloatArray]:
        """Q of the nodes of each depth from 1 on, eq. (4.9)."""
        found: list[FloatArray] = []
        for depth in range(len(self.nodes), 0, -1):
            nodes = self.nodes[depth - 1]
            Q = nodes.gain
            if found:
                S = nodes.shrink
                Q = Q + S.swapaxes(1, 2) @ found[-1][self.grid.parents[depth]] @ S
            found.append(Q)
        return found[::-1]

    def inverse_of_nodes(self, depth: int) -> FloatArray:
        """Return P'V⁻¹P of the nodes of a depth from 1 on, (nodes, C, C)."""
        W = self.nodes[depth - 1].outer
        if depth == len(self.nodes):
            return W
        return W - W @ self.above[depth][self.grid.parents[depth]] @ W

    def group_diagonal(self, term: int) -> FloatArray:
        """Return the diagonal of Z_t'V⁻¹Z_t, (nodes, size)."""
        own = self.grid.terms[term]
        if own.depth == 0:
            return self.blocks.group_diagonal(own.indicator, self.above[0])
        inverse = self.inverse_of_nodes(own.depth) @ own.indicator
        diagonal: FloatArray = np.einsum("cs,ncs->ns", own.indicator, inverse)
        return diagonal

    @cached_property
    def traces(self) -> FloatArray:
        """tr(V⁻¹V_t) of all components, (k + 1,)."""
        found = self.blocks.traces(self.above[0])
        for t, term in enumerate(self.grid.terms):
            if term.depth:
                inverse = self.inverse_of_nodes(term.depth)
                found[t] = float(np.einsum("ij,nji->", term.alike, inverse))
        return found


def _each(matrices: FloatArray, columns: FloatArray) -> FloatArray:
    """Return the products of the matrices of nodes, (nodes, C, C), with (c, nodes, C)."""
    product: FloatArray = np.einsum("nij,cnj->cni", matrices, columns, optimize=True)
    return product
