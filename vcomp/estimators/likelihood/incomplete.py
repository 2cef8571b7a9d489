"""The holes engine: the likelihood of a nearly complete grid, from its strata.

Let K = V⁻¹ of the whole grid, m its holes. In the holes, each column x is filled with its
prediction x̃_m = −K_mm⁻¹[K x]_m (docs/explanation/mathematics.md, eq. (4.3)). Each form is then
that of the filled grid, computed from its strata, with a correction for the holes, eqs. (4.1) to
(4.5). K_mm is factored, so that all forms are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood.engine import FixedForms, InformationKind, Solution
from vcomp.estimators.likelihood.fixed_part import CrossProductsEngine
from vcomp.estimators.likelihood.nested import NestedCovariance
from vcomp.estimators.likelihood.strata_likelihood import over_axes, single_cells
from vcomp.estimators.likelihood.totals import FormsLikelihood, Totals
from vcomp.numerics import Positive
from vcomp.numerics.kernels import group_sums
from vcomp.statistics import (
    Cells,
    CompletedGrid,
    CrossProducts,
    GroupedColumns,
    Statistics,
    split_axes,
    split_columns,
)


@dataclass(frozen=True, slots=True)
class HoleColumns:
    """Columns of the grid in one stratum: values in the holes, and means in groups.

    Attributes
    ----------
    values : (h, c) values in the holes
    means : (q, c, r) means in the innermost groups of cells
    """

    values: FloatArray
    means: FloatArray


class HoleMatrix:
    """The blocks of K = V⁻¹ and of K V_t K for the holes, at given components.

    Parameters
    ----------
    grid : the grid with its holes
    covariances : covariance of each stratum; their columns are not used
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
        self._group = grid.groupings.codes[-1][grid.holes.cell]
        self._n = grid.groupings.remainder.tables.group_n[-1]
        every = tuple(range(len(grid.shape)))
        self._group_place = self._places[every] * self._n.size + self._group
        self._n_group_places = prod(grid.shape) * self._n.size

    def project(
        self, contrasts: tuple[int, ...], means: FloatArray
    ) -> tuple[list[FloatArray], FloatArray]:
        """Return Z_l'V⁻¹x of each grouping and the predictions of x, from means (q, b, r)."""
        return self._covariances[contrasts].project(self._c[contrasts], means)

    def times(self, x: FloatArray) -> FloatArray:
        """Return K_mm x for columns x (h, c)."""
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
        """Return columns of the grid, zero outside the holes, split into strata, from (h, c)."""
        means = self._group_means(x)
        values = {s: np.zeros_like(x) for s in self._covariances}
        for subset, sums in self._shared(x):
            for contrasts, total in values.items():
                if set(subset) <= set(contrasts):
                    away = prod(-1.0 / self._grid.shape[f] for f in contrasts if f not in subset)
                    total += self._scale(contrasts) * away * sums
        return {s: HoleColumns(values[s], means[s]) for s in values}

    def inverse_times(self, columns: Mapping[tuple[int, ...], HoleColumns]) -> FloatArray:
        """Return [K x]_m of columns x of the grid, (h, c)."""
        product = np.zeros_like(columns[()].values)
        for contrasts, column in columns.items():
            c = self._c[contrasts]
            _, predicted = self._covariances[contrasts].project(c, column.means)
            rest = column.values - self._at_holes(contrasts, predicted)
            product += self._scale(contrasts) / c[-1] * rest
        return product

    def derivatives(self, columns: Mapping[tuple[int, ...], HoleColumns]) -> FloatArray:
        """Return [K V_t K x]_m of columns x of the grid for every component, (k + 1, h, c)."""
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
        """Return V⁻¹K_l V⁻¹x of one stratum in the holes, for each grouping and the residual."""
        covariance, c = self._covariances[contrasts], self._c[contrasts]
        sums, predicted = covariance.project(c, column.means)
        parts = []
        for level, r in enumerate(sums):
            inner = covariance.spread(level, r)
            _, again = covariance.project(c, inner)
            parts.append(self._at_holes(contrasts, inner - again) / c[-1])
        once = (column.values - self._at_holes(contrasts, predicted)) / c[-1]
        _, again = covariance.project(c, (column.means - predicted) / c[-1])
        return [*parts, (once - self._at_holes(contrasts, again)) / c[-1]]

    # Sums over holes ----------------------------------------------------------------------------

    def _shared(self, x: FloatArray) -> list[tuple[tuple[int, ...], FloatArray]]:
        """Return for each set of axes the sums over holes with equal levels of them and cell."""
        shared = []
        for subset, (codes, size) in self._grid.holes.alike.items():
            alone = size == codes.size
            shared.append((subset, x if alone else group_sums(codes, x, size)[codes]))
        return shared

    def _group_means(self, x: FloatArray) -> dict[tuple[int, ...], FloatArray]:
        """Return the means of columns in the innermost groups, (q, c, r), of each stratum."""
        sums = group_sums(self._group_place, x, self._n_group_places)
        table = sums.reshape(-1, self._n.size, x.shape[1]) / self._n[:, None]
        parts = split_axes(table, self._grid.shape)
        return {s: np.ascontiguousarray(part.transpose(1, 2, 0)) for s, part in parts.items()}

    def _at_holes(self, contrasts: tuple[int, ...], groups: FloatArray) -> FloatArray:
        """Return values of groups, (q, c, r), in the holes, (h, c)."""
        return groups[self._group, :, self._places[contrasts]]

    def _scale(self, contrasts: tuple[int, ...]) -> float:
        """Return 1/√Π n_f over the axes that a stratum averages: the scale of its values."""
        others = [n for f, n in enumerate(self._grid.shape) if f not in contrasts]
        return float(1.0 / np.sqrt(prod(others)))

    def _weight(self, subset: tuple[int, ...]) -> float:
        """Return the weight in K of sums over holes with equal levels of `subset` and cell.

        The part of the groups' predictions is not included.
        """
        total = 0.0
        for contrasts, c in self._c.items():
            if set(subset) <= set(contrasts):
                away = prod(-1.0 / self._grid.shape[f] for f in contrasts if f not in subset)
                total += away * self._scale(contrasts) ** 2 / c[-1]
        return float(total)


MOST_HOLES = 500
"""Holes up to which K_mm is factored. With more, the iterative engine takes less time."""

_COLUMNS = 32
_BLOCK = 65_536


class CompletedLikelihood(FormsLikelihood["_HolesPoint"], CrossProductsEngine):
    """Restricted or full log-likelihood of rows that nearly fill a grid.

    Parameters
    ----------
    stats : cross-products, centred, of the same rows
    grid : the columns on the grid
    reml : whether the likelihood is the restricted one
    """

    name: ClassVar[str] = "iterative"
    kinds: ClassVar[tuple[InformationKind, ...]] = ("average",)

    def __init__(self, stats: CrossProducts, grid: CompletedGrid, *, reml: bool) -> None:
        self.stats = stats
        self.grid = grid
        self.reml = reml
        self._unfilled = self._columns_in_holes()

    @property
    def reason(self) -> str:
        """Why this engine was chosen: the fraction of empty cells, and how traces are computed."""
        share = self.grid.holes.n / self.grid.tables[0].size
        return (
            f"orthogonal strata of a grid with {share:.1%} of its cells empty, traces over these "
            "exact"
        )

    def fixed_forms(self, v: FloatArray, *, second: bool = False) -> FixedForms:
        """Return the first forms of X in V⁻¹ at `v`; second forms are not available."""
        return self._at(v).total.fixed_forms(second=False)

    def solution(self, v: FloatArray) -> Solution:
        """Return fixed effects and predicted effects at `v`.

        Variances of prediction are nan, except for terms at zero: each group would need a solve of
        its own.
        """
        point = self._at(v)
        beta, cov_beta = self.fixed_effects(v)
        variances = tuple(
            np.full(size, np.nan if v[t] > 0.0 else 0.0) for t, size in enumerate(self.sizes)
        )
        return Solution(beta, cov_beta, self._effects(point), lambda: (variances, variances))

    def with_response(self, stats: Statistics) -> CompletedLikelihood:
        """Return the engine of the same rows with another response."""
        assert stats.completed is not None
        return CompletedLikelihood(stats.cross_products, stats.completed, reml=self.reml)

    # One point ------------------------------------------------------------------------------

    def _evaluated(self, v: FloatArray) -> _HolesPoint:
        groupings, holes = self.grid.groupings, self.grid.holes
        blank = GroupedColumns((np.zeros((0, 1, 1)),), np.zeros((1, 1)))
        plain = {s: NestedCovariance(groupings.remainder, blank) for s in self.grid.coefficients}
        matrix = HoleMatrix(self.grid, plain, v)
        exact = Positive(matrix.times(np.eye(holes.n)))
        fill = -exact.solve(matrix.inverse_times(self._unfilled))
        tables = self.grid.tables.copy()
        tables[:, holes.combination, holes.cell] += fill.T
        added = matrix.columns(fill)
        filled = {
            s: HoleColumns(c.values + added[s].values, c.means + added[s].means)
            for s, c in self._unfilled.items()
        }
        split = split_columns(self._cells(tables), groupings)
        columns = list(range(1 + self.n_fixed))
        total = Totals(v.size, len(columns))
        for contrasts, grouped in split.items():
            M = self.grid.coefficients[contrasts]
            forms = NestedCovariance(groupings.remainder, grouped).forms(M @ v)
            total.add(forms, M, prod(self.grid.shape[f] - 1 for f in contrasts), columns)
        total.log_det += exact.log_determinant()
        return _HolesPoint(v, matrix, exact, total, tables, filled)

    def _cells(self, tables: FloatArray) -> Cells:
        b = len(tables)
        ones = np.ones(tables.shape[2])
        return Cells(self.grid.shape, ones, tuple(tables), np.zeros((b, b)))

    def _columns_in_holes(self, block: int = _BLOCK) -> dict[tuple[int, ...], HoleColumns]:
        """Return the columns' values in the holes and group means, some cells at a time."""
        grid, holes = self.grid, self.grid.holes
        b, R, n_cells = grid.tables.shape
        values = {s: np.empty((holes.n, b)) for s in grid.coefficients}
        places = {s: holes.place(s, grid.shape) for s in grid.coefficients}
        width = max(block // R, 1)
        for first in range(0, n_cells, width):
            inside = slice(*np.searchsorted(holes.cell, [first, first + width]))
            cells = holes.cell[inside] - first
            for j, table in enumerate(grid.tables):
                some = table[:, first : first + width].copy()
                for s, part in split_axes(some, grid.shape).items():
                    values[s][inside, j] = part[places[s][inside], cells]
        split = split_columns(self._cells(grid.tables), grid.groupings)
        return {s: HoleColumns(values[s], split[s].means[0]) for s in values}

    # Forms that holes change ------------------------------------------------------------------

    def _total(self, point: _HolesPoint) -> Totals:
        return point.total

    def _traces(self, point: _HolesPoint) -> FloatArray:
        """Return tr(V⁻¹V_t), (k + 1,), eq. (4.2)."""
        if point.traces is None:
            point.traces = point.total.traces - _traces_of_holes(point)
        return point.traces

    def _average(self, point: _HolesPoint) -> FloatArray:
        """Return the average information ½ y'P V_t P V_u P y, eqs. (4.5) and (5.5)."""
        if point.average is None:
            e = point.total.contrast
            rest = {
                s: HoleColumns((c.values @ e)[:, None], np.tensordot(c.means, e, (1, 0))[:, None])
                for s, c in point.columns.items()
            }
            h = point.matrix.derivatives(rest)[:, :, 0].T
            total = point.total.average() - h.T @ point.exact.solve(h)
            point.average = 0.25 * (total + total.T)
        return point.average

    def _effects(self, point: _HolesPoint) -> tuple[FloatArray, ...]:
        """Return û_t = σ²_t Z_t'P ỹ of each term, with ỹ the filled response."""
        grid, e = self.grid, point.total.contrast
        single = grid.groupings.remainder.n_groupings
        rest = split_axes(np.tensordot(e, point.tables, (0, 0)), grid.shape)
        sums = {}
        for contrasts, column in point.columns.items():
            means = np.tensordot(column.means, e, (1, 0))[:, None]
            projected, _ = point.matrix.project(contrasts, means)
            sums[contrasts] = [r[:, 0].T for r in projected]
            values, c = rest[contrasts], grid.coefficients[contrasts] @ point.v
            sums[contrasts].append(single_cells(values, c, sums[contrasts], grid.groupings.codes))
        effects = []
        for t, (axes, grouping) in enumerate(
            zip(grid.groupings.term_axes, grid.groupings.of_term, strict=True)
        ):
            inside = {s: r[min(grouping, single)] for s, r in sums.items() if axes.issuperset(s)}
            total = over_axes(grid.shape, sorted(axes), inside).ravel()
            effects.append(point.v[t] * total[grid.layout.places(t)])
        return tuple(effects)


@dataclass(slots=True)
class _HolesPoint:
    """The filled grid at one value of the components."""

    v: FloatArray
    matrix: HoleMatrix
    exact: Positive  # K_mm factored
    total: Totals
    tables: FloatArray  # the columns, filled
    columns: Mapping[tuple[int, ...], HoleColumns]  # the same in each stratum
    traces: FloatArray | None = None
    average: FloatArray | None = None


def _traces_of_holes(point: _HolesPoint) -> FloatArray:
    """Return tr(K_mm⁻¹[K V_t K]_mm) of every component, (k + 1,)."""
    inverse, traces = point.exact.inverse(), np.zeros(point.v.size)
    for first in range(0, inverse.shape[0], _COLUMNS):
        units = np.eye(inverse.shape[0], min(_COLUMNS, inverse.shape[0] - first), -first)
        forms = point.matrix.derivatives(point.matrix.columns(units))
        traces += np.einsum("hs,ths->t", inverse[:, first : first + _COLUMNS], forms)
    return traces
