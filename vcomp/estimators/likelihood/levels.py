"""The levels engine: the likelihood of many levels of one facet, each a grid of few cells.

Cells may be empty or have several scores, and the facet may be nested in others. Levels are
absorbed one by one, and all else takes place in the space of the cells of one level
(:mod:`~vcomp.estimators.likelihood.level_covariance`). Nothing is approximate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood.component_scan import EffectForms
from vcomp.estimators.likelihood.engine import Cancellation
from vcomp.estimators.likelihood.level_blocks import product
from vcomp.estimators.likelihood.level_covariance import LevelCovariance, squares_of
from vcomp.estimators.likelihood.totals import Totals, TotalsEngine
from vcomp.numerics import solve
from vcomp.statistics import LevelGrid

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
        of_nodes = 1.0e-10 * cubes + 1.2e-8 * n_nodes * (grid.n_terms + 2.0) * cells**2
        # Fitted to 30 shapes of 9 to 600 cells, within a third for times of 10 ms or more, and to
        # some of 10 to 2,000 rows, where the number of calls decides.
        of_levels = 1.6e-8 * squares + 1.2e-10 * self._cubes
        of_vectors = 5.9e-9 * values + 1.0e-10 * products
        return float(1e-3 + 1.6e-4 * len(grid.alike) + of_levels + of_vectors + of_nodes)

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
        total.gram[:] = _symmetric(product(grid.tables, z)) + grid.within / v[-1]
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


def _symmetric(matrix: FloatArray) -> FloatArray:
    return 0.5 * (matrix + matrix.T)
