"""The levels engine: the likelihood of many levels of one facet, each a grid of few cells.

Cells may be empty or have several scores, and the facet may be nested in others. Levels are
absorbed one by one, and all else takes place in the space of the cells of one level
(:mod:`~vcomp.estimators.likelihood.level_covariance`). Nothing is approximate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood.engine import Solution
from vcomp.estimators.likelihood.level_covariance import LevelCovariance, find_alike
from vcomp.estimators.likelihood.level_squares import squares_of
from vcomp.estimators.likelihood.totals import Totals, TotalsEngine
from vcomp.numerics import solve
from vcomp.statistics import LevelGrid

_QUICK = 0.01
"""Time of an evaluation below which digits are worth two more."""


@dataclass(slots=True)
class _Point:
    """V at one value of the components, with what was computed from it."""

    v: FloatArray
    covariance: LevelCovariance
    projected: FloatArray  # V⁻¹[y X] of cell means, (b, I, C)
    total: Totals
    average: FloatArray | None = None


class LevelsLikelihood(TotalsEngine[_Point]):
    """Restricted or full log-likelihood of the levels of one facet.

    Parameters
    ----------
    grid : the cells of its levels
    reml : whether the likelihood is the restricted one
    """

    name: ClassVar[str] = "levels"

    def __init__(self, grid: LevelGrid, *, reml: bool) -> None:
        self.grid = self.stats = grid
        self.reml = reml
        self._alike = find_alike(grid)

    @property
    def newton_below(self) -> float:
        """Newton decrement below which steps are Newton's, which end with more digits.

        The observed information costs as much as two evaluations, and saves less than one.
        """
        return 0.05 if self.seconds < _QUICK else 0.0

    @property
    def _cubes(self) -> float:
        """Products in the matrices of all levels, the same ones once."""
        return float(sum(a.pair_n.size * a.size**3 for a in self._alike))

    @property
    def reason(self) -> str:
        """Why this engine was chosen: the numbers of levels and cells, and the empty ones."""
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
        squares = sum(a.pair_n.size * a.size**2 for a in self._alike)
        nodes = (sum(grid.n_nodes[1:]) + grid.n_terms) * float(cells) ** 3
        # Measured on 19 shapes of 10 to 1,000 cells, which these hit within a third.
        of_levels = 5.9e-8 * squares + 7.6e-11 * self._cubes
        rest = 1.8e-8 * values + 1.5e-10 * products + 1.5e-10 * nodes
        return float(1e-3 + 1.9e-4 * len(self._alike) + of_levels + rest)

    @property
    def bytes(self) -> float:
        """Expected memory of one evaluation."""
        grid = self.grid
        vectors = 3.0 * grid.counts.size * (grid.n_terms + grid.n_fixed + 2.0)
        inverses = sum(a.cells.shape[0] * a.size**2 for a in self._alike)
        nodes = 6.0 * sum(grid.n_nodes[1:]) * grid.n_cells**2
        return float(8.0 * (vectors + inverses + nodes))

    def mivque0(self) -> FloatArray:
        """Return the MIVQUE(0) estimates, which may be negative."""
        grid = self.grid
        contrast = np.concatenate([[1.0], -self.least_squares()])
        columns = self._group_sums(grid.tables * grid.counts)
        right = [float(np.square(contrast @ c.reshape(len(c), -1)).sum()) for c in columns]
        return solve(self._projector_forms(columns), np.array([*right, self.rss]))

    def _group_sums(self, z: FloatArray) -> list[FloatArray]:
        return [self.grid.group_sums(z, t) for t in range(self.grid.n_terms)]

    def _projector_forms(self, columns: list[FloatArray]) -> FloatArray:
        """Return tr(Q V_t Q V_u) with Q = I − X(X'X)⁻¹X', the residual last."""
        grid, k = self.grid, self.grid.n_terms
        R = np.linalg.cholesky(grid.XX) if grid.n_fixed else np.zeros((0, 0))
        H = [np.linalg.solve(R, c[1:].reshape(grid.n_fixed, c[0].size)) for c in columns]
        forms = np.empty((k + 1, k + 1))
        for t in range(k):
            for u in range(t + 1):
                if t == u:
                    n = grid.group_sums(grid.counts, t).ravel()
                    plain, mixed = float(n @ n), float(np.sum(H[t] * H[t] * n))
                else:
                    n, of_t, of_u = grid.pair_sums(t, u)
                    plain = float(np.square(n).sum())
                    mixed = float(
                        sum(np.sum(h[of_t] * g[of_u] * n) for h, g in zip(H[t], H[u], strict=True))
                    )
                both = float(np.vdot(H[t] @ H[t].T, H[u] @ H[u].T))
                forms[t, u] = forms[u, t] = plain - 2.0 * mixed + both
            forms[t, k] = forms[k, t] = grid.n - np.square(H[t]).sum()
        forms[k, k] = grid.n - grid.n_fixed
        return forms

    def solution(self, v: FloatArray) -> Solution:
        """Return fixed effects and predicted effects at `v`."""
        point, grid = self._at(v), self.grid
        beta, cov_beta = self.fixed_effects(v)
        sums = self._group_sums(point.projected)
        effects = tuple(
            grid.of_groups(v[t] * np.tensordot(point.total.contrast, s, 1), t)
            for t, s in enumerate(sums)
        )
        return Solution(beta, cov_beta, effects, lambda: self._variances(point, sums, cov_beta))

    def _variances(
        self, point: _Point, sums: list[FloatArray], cov_beta: FloatArray
    ) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return the variances of prediction, and those with known fixed effects."""
        grid, prediction, conditional = self.grid, [], []
        for t, v in enumerate(point.v[:-1].tolist()):
            if v == 0.0:
                conditional.append(np.zeros(self.sizes[t]))
                prediction.append(conditional[-1])
                continue
            own = v * (1.0 - v * point.covariance.group_diagonal(t))
            columns = sums[t][1:]
            fixed = np.einsum("j...,j...->...", np.tensordot(cov_beta, columns, 1), columns)
            conditional.append(grid.of_groups(own, t))
            prediction.append(grid.of_groups(own + v * v * fixed, t))
        return prediction, conditional

    # At one point -------------------------------------------------------------------------------

    def _total(self, point: _Point) -> Totals:
        return point.total

    def _traces(self, point: _Point) -> FloatArray:
        return point.covariance.traces

    def _evaluated(self, v: FloatArray) -> _Point:
        grid, k = self.grid, self.grid.n_terms
        covariance = LevelCovariance(grid, self._alike, v)
        z = covariance.solve(grid.tables)
        total = Totals(k + 1, 1 + grid.n_fixed)
        total.log_det = covariance.log_det
        total.gram[:] = _symmetric(_product(grid.tables, z)) + grid.within / v[-1]
        for t, sums in enumerate(self._group_sums(z)):
            total.first[t] = _product(sums, sums)
        total.first[k] = _product(z / grid.divisors, z) + grid.within / v[-1] ** 2
        return _Point(v, covariance, z, total)

    def _average(self, point: _Point) -> FloatArray:
        """Return the average information ½ y'P V_t P V_u P y, eq. (5.5)."""
        if point.average is None:
            total, c = point.total, point.total.contrast
            forms = self._twice(point, np.tensordot(c, point.projected, 1)[None])[:, 0, :, 0]
            forms[-1, -1] += c @ self.grid.within @ c / point.v[-1] ** 3
            mixed = total.first[:, 1:] @ c
            if total.beta.size:
                forms = forms - mixed @ total.XVX.solve(mixed.T)
            point.average = 0.5 * forms
        return point.average

    def _twice(self, point: _Point, z: FloatArray) -> FloatArray:
        """Return z_i'V_t V⁻¹V_u z_j of cells z (c, I, C), (k + 1, c, k + 1, c).

        Terms over all levels have the same values in all of them, so that V⁻¹ of a node serves.
        """
        grid, covariance = self.grid, point.covariance
        k, c, root = grid.n_terms, len(z), len(grid.parents)
        sums = self._group_sums(z)
        over = [t for t in range(k) if grid.terms[t].depth == root]
        own = [*(t for t in range(k) if t not in over), k]
        moved = np.concatenate([*(grid.in_cells(sums[t], t) for t in own[:-1]), z / grid.divisors])
        solved = covariance.solve(moved)
        forms = np.empty((k + 1, c, k + 1, c))
        shape = len(own), c, len(own), c
        forms[np.ix_(own, range(c), own)] = _symmetric(_product(moved, solved)).reshape(shape)
        if over:
            # (c, C) for each term over all levels
            values = np.concatenate([sums[t][:, 0] @ grid.terms[t].indicator.T for t in over])
            mixed = values @ grid.node_sums(solved, root)[:, 0].T
            mixed = mixed.reshape(len(over), c, len(own), c)
            forms[np.ix_(over, range(c), own)] = mixed
            forms[np.ix_(own, range(c), over)] = mixed.transpose(2, 3, 0, 1)
            both = _symmetric(values @ covariance.inverse_of_nodes(root)[0] @ values.T)
            forms[np.ix_(over, range(c), over)] = both.reshape(len(over), c, len(over), c)
        return forms

    def _squares(self, point: _Point) -> Totals:
        """Return the totals with the forms that the expected information is made of."""
        total = point.total
        if not total.squares.any():
            total.squares[:] = squares_of(point.covariance)
            if total.beta.size:
                second = self._twice(point, point.projected[1:]).transpose(0, 2, 1, 3)
                total.second[:, :, 1:, 1:] = second
                total.second[-1, -1, 1:, 1:] += self.grid.within[1:, 1:] / point.v[-1] ** 3
        return total


def _product(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the cross-products of columns of cells, (c, …) and (d, …), (c, d)."""
    product: FloatArray = a.reshape(len(a), -1) @ b.reshape(len(b), -1).T
    return product


def _symmetric(matrix: FloatArray) -> FloatArray:
    return 0.5 * (matrix + matrix.T)
