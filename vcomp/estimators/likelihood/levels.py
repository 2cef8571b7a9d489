"""The levels engine: the likelihood of many levels of one facet, each a grid of few cells.

Cells may be empty or have several scores, and the facet may be nested in others. Levels are
absorbed one by one (:mod:`~vcomp.estimators.likelihood.level_blocks`), and all else takes place in
the space of the cells of one level. Nothing is approximate.

Terms over several levels have a covariance between cells, the same for all levels: they are added
to the blocks of the levels at the nodes above, docs/explanation/mathematics.md, eqs. (4.7) to
(4.10). For the squares tr(V⁻¹V_tV⁻¹V_u) the forms R_t = P'V⁻¹V_tV⁻¹P, with P the selection of a
cell, are carried upwards. The reduction by terms of nodes above follows from Q, eqs. (4.11) and
(4.12). The trace of a product of matrices of two terms is the sum of the products of their
elements: matrices are multiplied for each term, and for a pair of terms only elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood.engine import Cancellation
from vcomp.estimators.likelihood.level_blocks import LevelBlocks, inside, mirrored, product
from vcomp.estimators.likelihood.starts import EffectForms
from vcomp.estimators.likelihood.totals import Totals, TotalsEngine
from vcomp.numerics import COSTS, in_threads, solve
from vcomp.statistics import Alike, LevelGrid, added_up

_QUICK = 0.01
"""Seconds of an evaluation below which more digits are worth two more evaluations."""


@dataclass(slots=True)
class _LevelsPoint:
    """V at one value of the components, with what was computed from it."""

    v: FloatArray
    covariance: LevelCovariance
    projected: FloatArray  # V⁻¹[y X] of cell means, (b, I, C)
    total: Totals
    average: FloatArray | None = None


class LevelsLikelihood(TotalsEngine[_LevelsPoint]):
    """Restricted or full log-likelihood of the levels of one facet.

    Parameters
    ----------
    grid : the cells of its levels
    reml : whether the likelihood is the restricted one
    """

    name: ClassVar[str] = "levels"
    sums_of: ClassVar[str] = "levels"
    cancellation: ClassVar[Cancellation] = "levels"
    rounding_decrement: ClassVar[float] = 1e-7

    def __init__(self, grid: LevelGrid, *, reml: bool) -> None:
        self.grid = self.stats = grid
        self.reml = reml

    @property
    def mean_weight(self) -> float:
        """Mean weight of the rows."""
        return self.grid.mean_weight

    @property
    def newton_below(self) -> float:
        """Newton decrement below which steps are Newton's; these give more digits.

        The observed information costs as much as two evaluations, and saves less than one.
        """
        return 0.05 if self.seconds < _QUICK else 0.0

    @property
    def _cubes(self) -> float:
        """Multiplications of the matrices of all levels, equal ones counted once."""
        return float(sum(a.pair_n.size * a.size**3 for a in self.grid.alike))

    @property
    def reason(self) -> str:
        """Why this engine was chosen: numbers of levels and cells, share of empty cells."""
        levels, cells = self.grid.counts.shape
        empty = 1.0 - self.grid.n_filled / (levels * cells)
        return f"{levels:,} levels of {cells:,} cells, {empty:.1%} of them empty, one by one"

    @property
    def seconds(self) -> float:
        """Expected time of one evaluation in seconds."""
        grid = self.grid
        levels, cells = grid.counts.shape
        values = grid.counts.size * (grid.n_terms + grid.n_fixed + 2.0)
        products = levels * cells**2 * (1.0 + grid.n_fixed)
        squares = sum(a.pair_n.size * a.size**2 for a in grid.alike)
        n_nodes = sum(grid.n_nodes[1:])
        cubes = (n_nodes + grid.n_terms) * float(cells) ** 3
        each = COSTS.levels
        of_nodes = (
            each.node_cube * cubes + each.node_square * n_nodes * (grid.n_terms + 2.0) * cells**2
        )
        of_levels = each.square * squares + each.cube * self._cubes
        of_vectors = each.value * values + each.product * products
        of_calls = each.call + each.pattern * len(grid.alike)
        return float(of_calls + of_levels + of_vectors + of_nodes)

    @property
    def bytes(self) -> float:
        """Expected memory of one evaluation."""
        grid = self.grid
        vectors = 3.0 * grid.counts.size * (grid.n_terms + grid.n_fixed + 2.0)
        inverses = sum(len(a.cells) * a.size**2 for a in self.grid.alike)
        # For each node: 16 matrices for a score; for an information 22, and 8 for each term.
        nodes = (22.0 + 8.0 * grid.n_terms) * sum(grid.n_nodes[1:]) * grid.n_cells**2
        # For each pair of columns of X: products of their cells, and forms of all components.
        columns = float(grid.n_fixed) ** 2
        forms = columns * (3.0 * grid.n_cells**2 + 8.0 * (grid.n_terms + 1.0) ** 2)
        return float(8.0 * (vectors + inverses + nodes + forms))

    def mivque0(self) -> FloatArray:
        """Return the MIVQUE(0) estimates, which may be negative."""
        grid = self.grid
        contrast = np.concatenate([[1.0], -self.least_squares()])
        columns = [np.tensordot(contrast, c, 1) for c in grid.column_sums]
        return solve(grid.projector_forms, np.array([*map(_square, columns), self.rss]))

    def _group_sums(self, z: FloatArray) -> list[FloatArray]:
        return [self.grid.group_sums(z, t) for t in range(self.grid.n_terms)]

    def effect_forms(self, v: FloatArray, terms: Sequence[int]) -> EffectForms | None:
        """Return forms of the effects of terms with few levels."""
        return super().effect_forms(v, sorted(terms, key=lambda t: self.grid.terms[t].depth))

    def _forms_of_effects(
        self, v: FloatArray, terms: Sequence[int]
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        grid, point = self.grid, self._at(v)
        sums = [grid.group_sums(point.projected, t) for t in terms]
        sizes = [table.shape[-2] * table.shape[-1] for table in sums]
        begins = np.cumsum([0, *sizes[:-1]])
        occurring = np.concatenate(
            [begin + grid.terms[t].places for begin, t in zip(begins, terms, strict=True)]
        )
        full = point.covariance.between_groups(terms)[np.ix_(occurring, occurring)]
        right = np.concatenate([grid.of_groups(s, t) for s, t in zip(sums, terms, strict=True)], 1)
        return full, right[1:], point.total.contrast @ right

    def between_groups(self, v: FloatArray, terms: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Return Z'V⁻¹Z, (q, q), and X'V⁻¹Z, (p, q), of terms over several levels at `v`.

        Parameters
        ----------
        v : components
        terms : with a depth from 1 on, in order of depth
        """
        if not terms:
            return np.zeros((0, 0)), np.zeros((self.grid.n_fixed, 0))
        return self._forms_of_effects(v, terms)[:2]

    def _projections(self, point: _LevelsPoint) -> list[FloatArray]:
        sums = enumerate(self._group_sums(point.projected))
        return [self.grid.of_groups(table, t) for t, table in sums]

    def _diagonal(self, point: _LevelsPoint, term: int) -> FloatArray:
        return self.grid.of_groups(point.covariance.group_diagonal(term), term)

    # At one point -------------------------------------------------------------------------------

    def _total(self, point: _LevelsPoint) -> Totals:
        return point.total

    def _traces(self, point: _LevelsPoint) -> FloatArray:
        return point.covariance.traces

    def _evaluated(self, v: FloatArray) -> _LevelsPoint:
        grid, k = self.grid, self.grid.n_terms
        covariance = LevelCovariance(grid, v)
        z = covariance.solve(grid.tables)
        total = Totals(k + 1, 1 + grid.n_fixed)
        total.log_det = covariance.log_det
        gram = product(grid.tables, z)
        total.gram[:] = 0.5 * (gram + gram.T) + grid.within / v[-1]
        for t, sums in enumerate(self._group_sums(z)):
            total.first[t] = product(sums, sums)
        own = z / (grid.divisors if grid.replicates is None else grid.replicates)
        total.first[k] = product(own, z) + grid.within / v[-1] ** 2
        return _LevelsPoint(v, covariance, z, total)

    def _average(self, point: _LevelsPoint) -> FloatArray:
        """Return the average information ½ y'P V_t P V_u P y, eq. (5.5)."""
        if point.average is None:
            total, c = point.total, point.total.contrast
            z = np.tensordot(c, point.projected, 1)[None]
            forms = point.covariance.twice(z)[:, 0, :, 0]
            forms[-1, -1] += c @ self.grid.within @ c / point.v[-1] ** 3
            mixed = total.first[:, 1:] @ c
            if total.beta.size:
                forms = forms - mixed @ total.XVX.solve(mixed.T)
            point.average = 0.5 * forms
        return point.average

    def _squares(self, point: _LevelsPoint) -> Totals:
        """Return the totals with the forms for the expected information."""
        total = point.total
        if not total.squares.any():
            total.squares[:] = squares_of(point.covariance)
            if total.beta.size:
                second = point.covariance.twice(point.projected[1:]).transpose(0, 2, 1, 3)
                total.second[:, :, 1:, 1:] = second
                total.second[-1, -1, 1:, 1:] += self.grid.within[1:, 1:] / point.v[-1] ** 3
        return total


def _square(values: FloatArray) -> float:
    return float(np.square(values).sum())


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
    grid, v : as for `LevelBlocks`
    """

    def __init__(self, grid: LevelGrid, v: FloatArray) -> None:
        self.grid, self.v = grid, v
        self.blocks = LevelBlocks(grid, v)
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
        reduced, once = self.blocks.reduced(Y)
        sums = [once]
        for nodes, up in zip(self.nodes, parents[1:], strict=False):
            sums.append(added_up(_each(nodes.shrink, sums[-1]), up, axis=1))
        predicted: FloatArray | None = None
        for depth in range(len(self.nodes), 0, -1):
            nodes = self.nodes[depth - 1]
            values = _each(nodes.gain, sums[depth - 1])
            if predicted is not None:
                values += _each(nodes.shrink.swapaxes(1, 2), predicted[:, parents[depth]])
            predicted = values
        assert predicted is not None
        return self.blocks.times(Y, reduced, predicted)

    def twice(self, z: FloatArray) -> FloatArray:
        """Return z_i'V_t V⁻¹V_u z_j of cells z (c, I, C), (k + 1, c, k + 1, c).

        V_t z is carried upwards as its form and its sums P'V⁻¹V_t z. Columns of a term of a node
        enter once its covariance is in V, so that parts common to many levels do not cancel.
        """
        grid, c, sums = self.grid, len(z), z
        order, added = [*self.blocks.terms, grid.n_terms], []
        for depth, up in enumerate(grid.parents, 1):
            sums = added_up(sums, up, axis=1)
            here = [t for t, term in enumerate(grid.terms) if term.depth == depth]
            added.append([sums @ grid.terms[t].alike for t in here])
            order += here
        forms = self._carried(*self.blocks.moved_forms(z), added)
        whole = np.empty((len(order), c, len(order), c))
        whole[np.ix_(order, range(c), order)] = forms.reshape(whole.shape)
        return whole

    def between_groups(self, terms: Sequence[int]) -> FloatArray:
        """Return Z'V⁻¹Z of all groups of terms, in order of depth, by node and group, (q, q)."""
        grid, added = self.grid, [list[FloatArray]() for _ in self.nodes]
        if grid.terms[terms[0]].depth == 0:
            return self._between_all_groups(terms)
        for t in terms:
            term, n = grid.terms[t], grid.n_nodes[grid.terms[t].depth]
            columns = np.einsum("nm,cs->nsmc", np.eye(n), term.indicator)
            added[term.depth - 1].append(columns.reshape(n * term.size, n, -1))
        none = np.zeros((0, self.grid.n_nodes[1], self.grid.n_cells))
        return self._carried(product(none, none), none, added)

    def _between_all_groups(self, terms: Sequence[int]) -> FloatArray:
        """Return Z'V⁻¹Z by a column of cells for each group."""
        grid, columns = self.grid, []
        for t in terms:
            shape = grid.n_nodes[grid.terms[t].depth], grid.terms[t].size
            q = shape[0] * shape[1]
            columns.append(grid.in_cells(np.eye(q).reshape(q, *shape), t))
        solved = self.solve(np.concatenate(columns))
        rows = [grid.group_sums(solved, t).reshape(len(solved), -1) for t in terms]
        return np.concatenate(rows, axis=1)

    def _carried(
        self, forms: FloatArray, r: FloatArray, added: Sequence[Sequence[FloatArray]]
    ) -> FloatArray:
        """Return the forms f'V⁻¹f of columns, by carrying their forms and sums upwards.

        Parameters
        ----------
        forms, r : f'W f and Σ W f of columns of levels, (c, c) and (c, nodes, C)
        added : for each depth columns that are constant within its nodes, (…, nodes, C); they come
            after those of lower depths
        """
        for depth, nodes in enumerate(self.nodes, 1):
            forms = forms - product(r, _each(nodes.gain, r))
            r = _each(nodes.shrink, r)
            if added[depth - 1]:
                g = np.concatenate(added[depth - 1])
                Wg = _each(nodes.outer, g)
                mixed = product(g, r)
                forms = np.block([[forms, mixed.T], [mixed, product(g, Wg)]])
                r = np.concatenate([r, Wg])
            if depth < len(self.nodes):
                r = added_up(r, self.grid.parents[depth], axis=1)
        return 0.5 * (forms + forms.T)

    @cached_property
    def above(self) -> list[FloatArray]:
        """Q of the nodes at depths 1 and higher, eq. (4.9)."""
        Qs: list[FloatArray] = []
        for depth in range(len(self.nodes), 0, -1):
            nodes = self.nodes[depth - 1]
            Q = nodes.gain
            if Qs:
                S = nodes.shrink
                Q = Q + S.swapaxes(1, 2) @ Qs[-1][self.grid.parents[depth]] @ S
            Qs.append(Q)
        return Qs[::-1]

    def inverse_of_nodes(self, depth: int) -> FloatArray:
        """Return P'V⁻¹P of the nodes at a depth of at least 1, (nodes, C, C)."""
        W = self.nodes[depth - 1].outer
        if depth == len(self.nodes):
            return W
        return W - W @ self.above[depth][self.grid.parents[depth]] @ W

    def group_diagonal(self, term: int) -> FloatArray:
        """Return the diagonal of Z_t'V⁻¹Z_t, (nodes, size)."""
        of_term = self.grid.terms[term]
        if of_term.depth == 0:
            return self.blocks.group_diagonal(of_term.indicator, self.above[0])
        inverse = self.inverse_of_nodes(of_term.depth) @ of_term.indicator
        return np.einsum("cs,ncs->ns", of_term.indicator, inverse)

    @cached_property
    def traces(self) -> FloatArray:
        """tr(V⁻¹V_t) of all components, (k + 1,)."""
        totals, grid = self.blocks.traces(self.above[0]), self.grid
        for depth in range(1, len(grid.n_nodes)):
            inverse = self.inverse_of_nodes(depth).sum(axis=0)
            for t, term in enumerate(grid.terms):
                if term.depth == depth:
                    totals[t] = float(np.vdot(term.alike, inverse))
        return totals


def _each(matrices: FloatArray, columns: FloatArray) -> FloatArray:
    """Return the products of the matrices of nodes, (nodes, C, C), with (c, nodes, C)."""
    return np.einsum("nij,cnj->cni", matrices, columns, optimize=True)


# Squares, for the expected information -----------------------------------------------------------

Sums = dict[int, FloatArray]
"""R_t of the components so far, each (nodes, C, C)."""


def squares_of(covariance: LevelCovariance) -> FloatArray:
    """Return tr(V⁻¹V_tV⁻¹V_u) of all components, (k + 1, k + 1)."""
    grid = covariance.grid
    squares = np.zeros((grid.n_terms + 1, grid.n_terms + 1))
    sums = _of_levels(covariance.blocks, covariance.above[0], squares)
    squares[-1, -1] += (grid.n - grid.n_filled) / covariance.v[-1] ** 2
    for depth in range(1, len(grid.n_nodes)):
        here = [t for t, term in enumerate(grid.terms) if term.depth == depth]
        sums = _absorbed(covariance, depth, here, sums, squares)
        if depth < len(grid.parents):
            sums = {t: added_up(R, grid.parents[depth]) for t, R in sums.items()}
    return squares


def _traces(
    left: Sequence[FloatArray], right: Sequence[FloatArray], weights: FloatArray | None = None
) -> FloatArray:
    """Return tr(X_t Y_u) of matrices X_t, Y_u (nodes, C, C), summed over nodes with weights."""
    rows = np.array([x if weights is None else x * weights[:, None, None] for x in left])
    columns = np.array([y.swapaxes(-1, -2) for y in right])
    return rows.reshape(len(left), -1) @ columns.reshape(len(right), -1).T


def _add(squares: FloatArray, terms: Sequence[int], forms: FloatArray) -> None:
    """Add forms of pairs of terms, which are symmetric but for rounding."""
    squares[np.ix_(terms, terms)] += 0.5 * (forms + forms.T)


def _absorbed(
    covariance: LevelCovariance, depth: int, own: list[int], sums: Sums, squares: FloatArray
) -> Sums:
    """Return R_t after the terms of one depth were added, and add to the squares."""
    if not own:
        return sums
    nodes = covariance.nodes[depth - 1]
    T, S, W = nodes.gain, nodes.shrink, nodes.outer
    away = covariance.above[depth - 1] - T  # S'Q S of the nodes above
    below = list(sums)
    RT = [R @ T for R in sums.values()]
    once = [x + 2.0 * (R @ away) for x, R in zip(RT, sums.values(), strict=True)]
    _add(squares, below, _traces(RT, once))
    moved = {t: S @ R @ S.swapaxes(1, 2) for t, R in sums.items()}
    B = {t: covariance.grid.terms[t].alike for t in own}
    once = [np.broadcast_to(B[u], T.shape) for u in own]
    if depth < len(covariance.nodes):
        WQ = W @ covariance.above[depth][covariance.grid.parents[depth]]
        once = [b - 2.0 * (b @ WQ) for b in once]
    found = {t: W @ B[t] @ W for t in own}
    mixed = _traces(list(moved.values()), once)
    squares[np.ix_(below, own)] += mixed
    squares[np.ix_(own, below)] += mixed.T
    _add(squares, own, _traces(list(found.values()), once))
    return moved | found


def _of_levels(blocks: LevelBlocks, Q: FloatArray, squares: FloatArray) -> Sums:
    """Return R_t of the terms within levels and of the residual, and add to the squares."""
    K, k = blocks.K, blocks.grid.n_terms
    own = [*blocks.terms, k]
    B = dict(zip(own, blocks.between, strict=True))
    KBK = {t: K @ B[t] @ K for t in own}
    KQK = K @ Q @ K
    # By holes: H = Σ E X E', HAH = Σ E X A_mm X E' with A = K B_t K, and J = Σ E X (KQK)_mm X E'.
    found, HAH = ({t: blocks.empty_sums() for t in own} for _ in range(2))
    J = blocks.empty_sums()

    def part(both: tuple[Alike, FloatArray]) -> tuple[list[FloatArray], FloatArray]:
        a, inverse = both
        X = a.of_pairs(inverse)
        XQ = X @ inside(a, KQK if a.by_holes else Q)
        if a.by_holes:
            XA = [X @ a.of_pairs(inside(a, KBK[t])) for t in own]
            once = [2.0 * (XQ @ x) for x in XA]
        else:
            XA = [X @ a.of_pairs(inside(a, B[t])) for t in blocks.terms]
            XA.append(X / a.of_pairs(a.counts)[:, None, :])
            once = [x - 2.0 * (XQ @ x) for x in XA]
        return [x @ X for x in [*XA, XQ]], _traces(once, XA, a.pair_n)

    every = list(blocks.each())
    for (a, _), (products, forms) in zip(every, in_threads(part, every, blocks.cost), strict=True):
        _add(squares, own, forms)
        into = HAH if a.by_holes else found
        for t, values in zip(own, products, strict=False):
            blocks.add_embedded(a, values, into[t], of_pairs=True)
        if a.by_holes:
            blocks.add_embedded(a, products[-1], J, of_pairs=True)
    for sums in (*found.values(), *HAH.values(), J):
        mirrored(sums)
    H = blocks.holes
    if not blocks.n_by_holes.any():
        return found
    n = blocks.n_by_holes[:, None, None]
    whole = {}
    for t in own:
        mixed = KBK[t] @ H @ K
        whole[t] = n * KBK[t] - mixed - mixed.swapaxes(1, 2) + K @ HAH[t] @ K
        found[t] += whole[t]
    _add(squares, own, _traces([w.sum(axis=0) for w in whole.values()], [B[t] for t in own]))
    _add(squares, own, -2.0 * _crossed_by_nodes(blocks, Q, KBK, B, H, HAH, J.sum(axis=0)))
    return found


def _crossed_by_nodes(
    blocks: LevelBlocks,
    Q: FloatArray,
    KBK: Mapping[int, FloatArray],
    B: Mapping[int, FloatArray],
    H: FloatArray,
    HAH: Mapping[int, FloatArray],
    J: FloatArray,
) -> FloatArray:
    """Return tr(W B_t W B_u W Q) of the levels by holes, without the part within holes.

    W = K − K E X E' K of each level. Products with three or more factors in X are in the caller.
    """
    K, KQ = blocks.K, blocks.K @ Q
    n = blocks.n_by_holes[:, None, None]
    # Σ nQ − QKH − HKQ + J: the factor (…) of tr(K B_t K B_u K (…)).
    QKH = KQ.swapaxes(1, 2) @ H
    between = (n * Q - QKH - QKH.swapaxes(1, 2)).sum(axis=0) + J
    once = [b @ K for b in B.values()]
    forms = _traces(once, [x @ between @ K for x in once])
    # tr(HAH_u A_t Q …): the same product in two orders, whose forms are the transpose.
    inner = [K @ (KQ.swapaxes(1, 2) @ hah).sum(axis=0) @ K for hah in HAH.values()]
    mixed = _traces(list(B.values()), inner)
    forms += mixed + mixed.T
    forms -= _traces([a @ H for a in KBK.values()], [a @ Q for a in KBK.values()])
    return forms
