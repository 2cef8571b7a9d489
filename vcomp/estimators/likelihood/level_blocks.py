"""Blocks of V within levels: small grids of cells with holes, without terms over levels.

With K the inverse of a whole block and m its holes, the inverse of the filled part is
K − K_·m K_mm⁻¹ K_m· (docs/explanation/mathematics.md, eq. (4.6)); a block with more holes than
filled cells is inverted itself. Either way a level is described by a matrix of the size of its
fewer cells, and levels with the same holes share it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property, partial

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.estimators.likelihood.kernels import add_embedded, fill_inside, invert_positive
from vcomp.numerics import Positive, in_threads, inverses
from vcomp.numerics.kernels import at_once
from vcomp.statistics import Alike, LevelGrid

_BLOCK = 2**17
"""Number of matrix elements per batch, which fit into a cache."""

_OWN = 4
"""Mean number of levels per pattern up to which each level gets a copy of the matrix."""

_SECONDS = 2e-7
"""Seconds of one operation of a kernel in Python."""


def inside(a: Alike, matrices: FloatArray) -> FloatArray:
    """Return the rows and columns of symmetric matrices in the cells of levels, (pairs, s, s).

    Parameters
    ----------
    a : the levels
    matrices : (nodes, C, C), or one of all patterns (C, C)
    """
    of_nodes = matrices.ndim == 3
    pattern = a.pair_pattern if of_nodes else np.arange(len(a.cells))
    node = a.pair_node if of_nodes else np.zeros(pattern.size, dtype=np.int64)
    out = np.empty((pattern.size, a.size, a.size))
    whole = np.ascontiguousarray(matrices if of_nodes else matrices[None])
    at_once(fill_inside, out.size * _SECONDS)(whole, a.cells, pattern, node, out)
    return out


def _inverted_by_loops(A: FloatArray, logs: FloatArray) -> FloatArray:
    """Return the inverses of small matrices, as `inverses` takes them."""
    X = A.copy()
    if not at_once(invert_positive, len(A) * A.shape[1] ** 3 * _SECONDS)(X, logs):
        raise np.linalg.LinAlgError("a block is not positive definite")
    return X


def _applied(a: Alike, X: FloatArray, inner: FloatArray) -> FloatArray:
    """Return the products of the matrices of patterns (P, s, s) with (c, L, s)."""
    if len(X) * _OWN < a.n:
        return np.concatenate(
            [inner[:, i:j] @ x for x, i, j in zip(X, a.bounds[:-1], a.bounds[1:], strict=True)],
            axis=1,
        )
    return (inner.swapaxes(0, 1) @ a.of_levels(X)).swapaxes(0, 1)


class LevelBlocks:
    """The inverses W_i of the blocks of all levels, at given components.

    Parameters
    ----------
    grid : the cells
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

    def __init__(self, grid: LevelGrid, v: FloatArray) -> None:
        self.grid, self._error = grid, float(v[-1])
        self.terms = [t for t, term in enumerate(grid.terms) if term.depth == 0]
        shape = grid.n_cells, grid.n_cells
        self._shared = np.zeros(shape)
        for t in self.terms:
            self._shared += v[t] * grid.terms[t].alike
        self.log_det = grid.log_counts - grid.log_weights
        self.log_det += (grid.n - grid.n_filled) * np.log(v[-1])
        self.n_by_holes = np.zeros(grid.n_nodes[1])
        for a in grid.alike:
            if a.by_holes:
                self.log_det += a.n * self._whole.log_determinant()
                self.n_by_holes += np.bincount(a.pair_node, a.pair_n, self.n_by_holes.size)
        self._inverses: list[FloatArray] = []
        for inverse, log_det in in_threads(partial(self._inverted, self.K), grid.alike, self.cost):
            self._inverses.append(inverse)
            self.log_det += log_det

    @property
    def cost(self) -> float:
        """Number of multiplications for the inverses."""
        return float(sum(len(a.cells) * a.size**3 for a in self.grid.alike))

    @cached_property
    def _whole(self) -> Positive:
        """The block of a level without holes, factored."""
        assert self.grid.replicates is not None
        return Positive(
            self._shared + self._error / self.grid.replicates * np.eye(self.grid.n_cells)
        )

    @cached_property
    def K(self) -> FloatArray:
        """Inverse of the block of a level without holes; zero if none is treated by its holes."""
        if not any(a.by_holes for a in self.grid.alike):
            return np.zeros_like(self._shared)
        return self._whole.inverse()

    def _inverted(self, K: FloatArray, a: Alike) -> tuple[FloatArray, float]:
        """Return the inverses of K_mm of holes m, or V_oo of filled cells o, (P, s, s).

        And the log-determinant of the blocks of all levels.
        """
        block = inside(a, K if a.by_holes else self._shared)
        if not a.by_holes:
            np.einsum("pii->pi", block)[:] += self._error / a.counts
        logs = np.zeros(len(block))
        inverse = inverses(block, logs, _inverted_by_loops)
        return inverse, float(np.diff(a.bounds) @ logs)

    def each(self) -> Iterator[tuple[Alike, FloatArray]]:
        """Yield levels with the inverse matrices of their patterns, (P, s, s)."""
        for a, inverse in zip(self.grid.alike, self._inverses, strict=True):
            if a.size:
                yield a, inverse

    def add_embedded(
        self, a: Alike, values: FloatArray, into: FloatArray, *, of_pairs: bool = False
    ) -> None:
        """Add the lower triangles of matrices of the cells of levels to those of their nodes.

        Parameters
        ----------
        a : the levels
        values : symmetric matrices of patterns, or of pairs of patterns and nodes if `of_pairs`
        into : (nodes, C, C)
        """
        of_value = np.arange(len(values)) if of_pairs else a.pair_pattern
        add = at_once(add_embedded, a.pair_n.size * a.size**2 * _SECONDS)
        add(values, of_value, a.cells, a.pair_pattern, a.pair_node, a.pair_n, into)

    def empty_sums(self) -> FloatArray:
        """Return zeros for each node, (nodes, C, C)."""
        return np.zeros((self.n_by_holes.size, *self._shared.shape))

    @cached_property
    def holes(self) -> FloatArray:
        """H: Σ of the embedded K_mm⁻¹ of levels by holes, (nodes, C, C)."""
        return self._summed(by_holes=True)

    @cached_property
    def _by_holes(self) -> FloatArray:
        """The sums of W_i over levels by holes, (nodes, C, C)."""
        return self.n_by_holes[:, None, None] * self.K - self.K @ self.holes @ self.K

    @cached_property
    def _by_filled(self) -> FloatArray:
        """The sums of W_i over the other levels, (nodes, C, C)."""
        return self._summed(by_holes=False)

    def _summed(self, *, by_holes: bool) -> FloatArray:
        total = self.empty_sums()
        for a, inverse in self.each():
            if a.by_holes == by_holes:
                self.add_embedded(a, inverse, total)
        return mirrored(total)

    @property
    def sums(self) -> FloatArray:
        """M: the sums of W_i over the levels of each node above, (nodes, C, C)."""
        return self._by_holes + self._by_filled

    # Products with columns of cells -------------------------------------------------------------

    def _above(self, a: Alike) -> LongArray:
        """Return the places of the cells of levels in a table of the nodes above, (L, s)."""
        up = self.grid.parents[0][a.levels] - np.arange(a.n)
        return a.at + (self.grid.n_cells * up)[:, None]

    def _added(self, a: Alike, inner: FloatArray) -> FloatArray:
        """Return the sums of values of cells (c, L, s) within the nodes above, (c, nodes, C)."""
        at, shape = self._above(a).ravel(), (self.n_by_holes.size, self.grid.n_cells)
        sums = [np.bincount(at, x.ravel(), shape[0] * shape[1]).reshape(shape) for x in inner]
        return np.array(sums)

    def reduced(self, Y: FloatArray) -> tuple[list[FloatArray], FloatArray]:
        """Return K_mm⁻¹[K y]_m, or V_oo⁻¹y_o, of levels that are alike, and Σ W_i y_i of nodes.

        Parameters
        ----------
        Y : columns of cells, zero in empty ones, (c, I, C)

        Returns
        -------
        (c, L, s) each, and (c, nodes, C)
        """
        solved, by_filled = [], np.zeros((len(Y), self.n_by_holes.size, self.grid.n_cells))
        by_holes = self.grid.sums_by_holes(Y)
        for a, X in zip(self.grid.alike, self._inverses, strict=True):
            inner = _taken(Y[:, a.levels] @ self.K if a.by_holes else Y[:, a.levels], a.at)
            solved.append(_applied(a, X, inner))
            if a.size:
                sums = self._added(a, solved[-1])
                if a.by_holes:
                    by_holes -= sums
                else:
                    by_filled += sums
        return solved, by_holes @ self.K + by_filled

    def times(self, Y: FloatArray, reduced: list[FloatArray], away: FloatArray) -> FloatArray:
        """Return W_i(y_i − w) of all levels, (c, I, C), zero in empty cells.

        Holes are filled so that they have no influence: K(y − w − E K_mm⁻¹[K(y − w)]_m).

        Parameters
        ----------
        Y, reduced : columns, and what `reduced` returns of them
        away : w of the node above, (c, nodes, C)
        """
        found, outer = np.zeros(Y.shape), away @ self.K
        for a, X, inner in zip(self.grid.alike, self._inverses, reduced, strict=True):
            places, here = self._above(a), found[:, a.levels]
            rest = inner - _applied(a, X, _taken(outer if a.by_holes else away, places))
            if not a.by_holes:
                _put(here, a.at, rest)
                continue
            y = Y[:, a.levels] - away[:, self.grid.parents[0][a.levels]]
            _put(y, a.at, _taken(y, a.at) - rest)
            np.matmul(y, self.K, out=here)
            _put(here, a.at, 0.0)
        return found

    def moved_forms(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return f'W f and Σ W f of the columns f = V_t z of terms within levels and the residual.

        Parameters
        ----------
        z : columns of cells, zero in empty ones, (c, I, C)

        Returns
        -------
        (qc, qc) forms and (qc, nodes, C) sums over levels, by term, the residual last
        """
        K, n, B, c = self.K, self.grid.n_by_holes, self.between, len(z)
        ZZ = np.array([[x.T @ y for y in z[:, :n]] for x in z[:, :n]])
        q, nodes, C = len(B), self.n_by_holes.size, self.grid.n_cells
        both = np.empty((q, c, q, c))
        # With B_t = Z_t Z_t', f_t'K f_u adds up products of elements of Z_t'K Z_u and Z_t'zz'Z_u.
        Z = [self.grid.terms[t].indicator for t in self.terms]
        ZK = [x.T @ K for x in Z]
        halves = [(of_K, x.T @ ZZ, 1.0) for x, of_K in zip(Z, ZK, strict=True)]
        halves.append((K, ZZ, 1.0 / (self.grid.replicates or 1.0)))
        for t, (of_K, of_z, r) in enumerate(halves):
            for u, x in enumerate(Z):
                both[t, :, u] = r * np.tensordot(of_z @ x, of_K @ x, 2)
            both[t, :, -1] = r * halves[-1][2] * np.tensordot(of_z, of_K, 2)
        forms = both.reshape(q * c, q * c)
        by_holes = self.grid.sums_by_holes(z)
        by_holes = np.array([by_holes @ b for b in B]).reshape(q * c, nodes, C)
        by_filled = np.zeros_like(by_holes)
        for a, X in self.each():
            inner = self._moved_inside(a, z[:, a.levels], Z, ZK)
            solved = _applied(a, X, inner)
            here, sums = product(inner, solved), self._added(a, solved)
            if a.by_holes:
                forms -= here
                by_holes -= sums
            else:
                forms += here
                by_filled += sums
        return 0.5 * (forms + forms.T), by_holes @ K + by_filled

    def _moved_inside(
        self, a: Alike, z: FloatArray, Z: Sequence[FloatArray], ZK: Sequence[FloatArray]
    ) -> FloatArray:
        """Return [K V_t z]_m, or [V_t z]_o, of levels that are alike, (qc, L, s)."""
        right = ZK if a.by_holes else [x.T for x in Z]
        moved = [_taken((z @ x) @ y, a.at) for x, y in zip(Z, right, strict=True)]
        if a.by_holes:
            moved.append(_taken(z @ self.K, a.at) / (self.grid.replicates or 1.0))
        else:
            moved.append(_taken(z, a.at) / a.of_levels(a.counts))
        return np.concatenate(moved)

    @cached_property
    def between(self) -> list[FloatArray]:
        """B_t of the terms within levels, and of the residual of whole blocks, (C, C)."""
        replicates = self.grid.replicates or 1.0
        terms = self.grid.terms
        return [*(terms[t].alike for t in self.terms), np.eye(self.grid.n_cells) / replicates]

    def group_diagonal(self, Z: FloatArray, Q: FloatArray) -> FloatArray:
        """Return the diagonal of Z'(W_i − W_i Q W_i)Z of each level, (I, s).

        Parameters
        ----------
        Z : (C, s) groups of cells
        Q : (nodes, C, C), that of the node above each level
        """
        found, C = np.empty((self.grid.n_nodes[0], Z.shape[1])), self.grid.n_cells
        KZ = self.K @ Z
        for a, inverse in zip(self.grid.alike, self._inverses, strict=True):
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
        KQK, gone, filled = K @ Q @ K, self.empty_sums(), self.empty_sums()
        diagonal = (grid.n - grid.n_filled) / self._error

        def part(both: tuple[Alike, FloatArray]) -> tuple[FloatArray, float]:
            a, inverse = both
            X, own = a.of_pairs(inverse), 0.0
            XQX = X @ inside(a, KQK if a.by_holes else Q) @ X
            if not a.by_holes:
                rest = np.einsum("pii->pi", X - XQX) / a.of_pairs(a.counts)
                own = float(a.pair_n @ rest.sum(axis=1))
            return XQX, own

        every = list(self.each())
        for (a, _), (XQX, own) in zip(every, in_threads(part, every, self.cost), strict=True):
            diagonal += own
            self.add_embedded(a, XQX, gone if a.by_holes else filled, of_pairs=True)
        gone, filled = mirrored(gone), self._by_filled - mirrored(filled)
        once = KQK @ self.holes @ K
        whole = self._by_holes - self.n_by_holes[:, None, None] * KQK
        whole += once + once.swapaxes(1, 2) - K @ gone @ K
        totals = np.zeros(grid.n_terms + 1)
        total = (whole + filled).sum(axis=0)
        for t in self.terms:
            totals[t] = float(np.vdot(grid.terms[t].alike, total))
        totals[-1] = diagonal + float(np.einsum("nii->", whole)) / (grid.replicates or 1.0)
        return totals


def mirrored(lower: FloatArray) -> FloatArray:
    """Copy the lower triangles of symmetric matrices to the upper ones, in place."""
    i, j = np.tril_indices(lower.shape[-1], -1)
    lower[..., j, i] = lower[..., i, j]
    return lower


def _taken(table: FloatArray, at: LongArray) -> FloatArray:
    """Return the cells of levels in tables (c, L, C), (c, L, s)."""
    return table.reshape(len(table), -1).take(at, axis=1)


def _put(table: FloatArray, at: LongArray, values: FloatArray | float) -> None:
    """Write the cells of levels in tables (c, L, C)."""
    for x, row in zip(table, np.broadcast_to(values, (len(table), *at.shape)), strict=True):
        np.put(x, at, row)


def product(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the cross-products of columns of cells, (c, …) and (d, …), (c, d)."""
    n = math.prod(a.shape[1:])
    return a.reshape(len(a), n) @ b.reshape(len(b), n).T
