"""The inverse covariance matrix of a whole grid, between the cells that have no row.

Let V be the covariance of a complete grid, P = V⁻¹ and m the cells without a row. What the rows
have is Henderson's absorption of the others: with P known in strata,

    log|V_oo| = log|V| + log|P_mm|
    V_oo⁻¹ = P_oo − P_om P_mm⁻¹ P_mo
    tr(V_oo⁻¹ V_t,oo) = tr(P V_t) − tr(P_mm⁻¹ [P V_t P]_mm)

P_mm is well conditioned whatever main effects there are, and has only as many rows as there are
holes. A product with it costs sums over those holes that share a cell or a group: nothing of the
size of the grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.nested import NestedCovariance
from vcomp.kernels.groups import group_sums
from vcomp.statistics.completed import CompletedGrid
from vcomp.statistics.split import split_axes

__all__ = ["HoleColumns", "HoleMatrix"]


@dataclass(frozen=True, slots=True)
class HoleColumns:
    """Columns of the grid in one stratum: their values in the holes, their means in groups.

    Attributes
    ----------
    values : (h, c)
    means : (q, c, r) means in the innermost groups of cells
    """

    values: FloatArray
    means: FloatArray


class HoleMatrix:
    """P_mm at given components, and forms of P V_t P in the holes.

    Parameters
    ----------
    grid : the grid with its holes
    covariances : of the strata, whatever columns they hold
    v : (k + 1,) components
    """

    def __init__(
        self,
        grid: CompletedGrid,
        covariances: Mapping[tuple[int, ...], NestedCovariance],
        v: FloatArray,
    ) -> None:
        self._grid = grid
        self._covariances = covariances
        self._c = {s: M @ v for s, M in grid.coefficients.items()}
        self._places = {s: grid.holes.place(s, grid.shape) for s in grid.coefficients}
        self._group = grid.groupings.inner[grid.holes.cell]
        self._n = grid.groupings.remainder.tables.group_n[-1]
        every = tuple(range(len(grid.shape)))
        self._group_place = self._places[every] * self._n.size + self._group
        self._n_group_places = prod(grid.shape) * self._n.size

    def project(
        self, contrasts: tuple[int, ...], means: FloatArray
    ) -> tuple[list[FloatArray], FloatArray]:
        """Return sums in all groupings and predictions of one stratum, from means (q, b, r)."""
        return self._covariances[contrasts].project(self._c[contrasts], means)

    def diagonal(self) -> FloatArray:
        """Return the diagonal of P_mm."""
        total = np.zeros(self._grid.holes.n)
        for contrasts, covariance in self._covariances.items():
            kept = prod(1.0 - 1.0 / self._grid.shape[f] for f in contrasts)
            share = kept * self._scale(contrasts) ** 2
            total += share * covariance.single_diagonal(self._c[contrasts])[self._group]
        return total

    def times(self, x: FloatArray) -> FloatArray:
        """Return P_mm x for columns x (h, c)."""
        means = self._group_means(x)
        product = np.zeros_like(x)
        for subset, sums in self._shared(x):
            product += self._weight(subset) * sums
        for contrasts, covariance in self._covariances.items():
            c = self._c[contrasts]
            _, predicted = covariance.project(c, means[contrasts])
            product -= self._scale(contrasts) / c[-1] * self._at_holes(contrasts, predicted)
        return product

    def columns(self, x: FloatArray) -> dict[tuple[int, ...], HoleColumns]:
        """Return columns that are zero but in the holes, (h, c), in every stratum."""
        means = self._group_means(x)
        values = {s: np.zeros_like(x) for s in self._covariances}
        for subset, sums in self._shared(x):
            for contrasts, total in values.items():
                if set(subset) <= set(contrasts):
                    away = prod(-1.0 / self._grid.shape[f] for f in contrasts if f not in subset)
                    total += self._scale(contrasts) * away * sums
        return {s: HoleColumns(values[s], means[s]) for s in values}

    def inverse_times(self, columns: Mapping[tuple[int, ...], HoleColumns]) -> FloatArray:
        """Return [P x]_m of columns of the grid, (h, c)."""
        product = np.zeros_like(columns[()].values)
        for contrasts, column in columns.items():
            c = self._c[contrasts]
            _, predicted = self._covariances[contrasts].project(c, column.means)
            rest = column.values - self._at_holes(contrasts, predicted)
            product += self._scale(contrasts) / c[-1] * rest
        return product

    def derivatives(self, columns: Mapping[tuple[int, ...], HoleColumns]) -> FloatArray:
        """Return [P V_t P x]_m for every component, (k + 1, h, c)."""
        values = columns[()].values
        size = next(iter(self._grid.coefficients.values())).shape[1]
        total = np.zeros((size, *values.shape))
        for contrasts, column in columns.items():
            M = self._grid.coefficients[contrasts]
            for level, twice in enumerate(self._twice(contrasts, column)):
                for t in np.flatnonzero(M[level]):
                    total[t] += self._scale(contrasts) * M[level, t] * twice
        return total

    def _twice(self, contrasts: tuple[int, ...], column: HoleColumns) -> list[FloatArray]:
        """Return V⁻¹K_l V⁻¹x of one stratum in the holes, for every grouping and the residual."""
        covariance, c = self._covariances[contrasts], self._c[contrasts]
        sums, predicted = covariance.project(c, column.means)
        found = []
        for level, r in enumerate(sums):
            inner = covariance.spread(level, r)
            _, again = covariance.project(c, inner)
            found.append(self._at_holes(contrasts, inner - again) / c[-1])
        once = (column.values - self._at_holes(contrasts, predicted)) / c[-1]
        _, again = covariance.project(c, (column.means - predicted) / c[-1])
        return [*found, (once - self._at_holes(contrasts, again)) / c[-1]]

    # Sums over holes ----------------------------------------------------------------------------

    def _shared(self, x: FloatArray) -> list[tuple[tuple[int, ...], FloatArray]]:
        """Return for each set of axes the sum over the holes with a hole's level and cell."""
        shared = []
        for subset, (codes, size) in self._grid.holes.alike.items():
            alone = size == codes.size
            shared.append((subset, x if alone else group_sums(codes, x, size)[codes]))
        return shared

    def _group_means(self, x: FloatArray) -> dict[tuple[int, ...], FloatArray]:
        """Return the means of columns in the innermost groups, (q, c, r), in every stratum."""
        sums = group_sums(self._group_place, x, self._n_group_places)
        table = sums.reshape(-1, self._n.size, x.shape[1]) / self._n[:, None]
        parts = split_axes(table, self._grid.shape)
        return {s: np.ascontiguousarray(part.transpose(1, 2, 0)) for s, part in parts.items()}

    def _at_holes(self, contrasts: tuple[int, ...], groups: FloatArray) -> FloatArray:
        """Return values of groups, (q, c, r), in the holes, (h, c)."""
        return groups[self._group, :, self._places[contrasts]]

    def _scale(self, contrasts: tuple[int, ...]) -> float:
        """Return what a mean over the other axes has to be multiplied with for each level."""
        others = [n for f, n in enumerate(self._grid.shape) if f not in contrasts]
        return float(1.0 / np.sqrt(prod(others)))

    def _weight(self, subset: tuple[int, ...]) -> float:
        """Return what sums over the other axes contribute to P, but for what groups predict."""
        total = 0.0
        for contrasts, c in self._c.items():
            if set(subset) <= set(contrasts):
                away = prod(-1.0 / self._grid.shape[f] for f in contrasts if f not in subset)
                total += away * self._scale(contrasts) ** 2 / c[-1]
        return float(total)
