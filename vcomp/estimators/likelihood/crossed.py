"""The levels engine for two crossed facets without further terms, from sums and holes.

With one score in a cell and no other terms, the covariance of the levels of the longer facet is
known in closed form, and those of the shorter one add a matrix of the order of its levels
(docs/explanation/mathematics.md, eqs. (4.13) and (4.14)). No evaluation passes over the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood.engine import Cancellation, Curvature, Squares
from vcomp.estimators.likelihood.totals import Totals, TotalsEngine, with_last, with_residual_forms
from vcomp.numerics import COSTS, Positive, limited_blas
from vcomp.statistics import CrossedTable

_SMALL = 1e-3
"""Relative size in V of the shorter facet's component below which a difference would cancel."""

_LITTLE = 1e-2
"""Share of y'y below which σ²_e y'Py is computed in extended precision."""

_QUICK = 0.01
"""Seconds of an evaluation below which the last step, too, is by the observed information."""

_LAST = 1e-9
"""Newton decrement below which the last step is by the average information. The observed one costs
half an evaluation."""


@dataclass(slots=True)
class _Point:
    """V = σ²_e I + σ²_a AA' + σ²_b BB' at one point; a is the longer facet, b the shorter one.

    Attributes
    ----------
    v : (3,) components in the order of the model
    share : (n_a,) w = 1/(σ²_e + σ²_a n_i), so that A'U⁻¹y = w ∘ A'y with U = V − σ²_b BB'
    shrink : S = (I + σ²_b M)⁻¹ with M = B'U⁻¹B; None for I
    own : B'V⁻¹B = SM
    squared : F' diag(w²) F, if S is not I
    projected : for each term Z_t'V⁻¹[y X], in the order of the model
    total : the forms
    """

    v: FloatArray
    share: FloatArray
    shrink: FloatArray | None
    own: FloatArray
    squared: FloatArray | None
    projected: tuple[FloatArray, FloatArray]
    total: Totals


class CrossedLikelihood(TotalsEngine[_Point]):
    """Restricted or full log-likelihood of two crossed facets.

    Parameters
    ----------
    table : sums by level, and the holes
    reml : whether the likelihood is the restricted one
    """

    name: ClassVar[str] = "levels"
    sums_of: ClassVar[str] = "crossed"
    cancellation: ClassVar[Cancellation] = "levels"
    rounding_decrement: ClassVar[float] = 1e-7

    def __init__(self, table: CrossedTable, *, reml: bool) -> None:
        self.stats = self.table = table
        self.reml = reml
        self._a, self._b = table.longer, 1 - table.longer

    @property
    def reason(self) -> str:
        """Why this engine was chosen: numbers of levels and cells, share of empty cells."""
        levels, cells = self.table.sizes[self._a], self.table.sizes[self._b]
        empty = 1.0 - self.n / (float(levels) * cells)
        how = "by their holes" if self.table.is_by_holes else "in one table"
        return f"{levels:,} levels of {cells:,} cells, {empty:.1%} of them empty, {how}"

    @property
    def seconds(self) -> float:
        """Expected time of one evaluation in seconds."""
        cube = float(self.table.sizes[self._b]) ** 3
        return COSTS.crossed.call + 2.0 * self.table.seconds + COSTS.crossed.cube * cube

    @property
    def bytes(self) -> float:
        """Expected memory of one evaluation."""
        return 56.0 * float(self.table.sizes[self._b]) ** 2 + self.table.slab_bytes

    def curvature(
        self, v: FloatArray, decrement: float, squares: Squares | None = None
    ) -> Curvature | None:
        """Return the observed information near the maximum, except for the last step."""
        is_last = decrement < _LAST and self.seconds >= _QUICK
        return None if is_last else super().curvature(v, decrement, squares)

    def _projections(self, point: _Point) -> list[FloatArray]:
        return [rows.T for rows in point.projected]

    def _diagonal(self, point: _Point, term: int) -> FloatArray:
        if term == self._b:
            return np.diagonal(point.own).copy()
        w, n = point.share, self.table.counts[self._a]
        diagonal: FloatArray = w * n
        if point.shrink is not None:
            diagonal = diagonal - w * w * self.table.forms(point.v[self._b] * point.shrink)
        return diagonal

    def _forms_of_effects(
        self, v: FloatArray, terms: Sequence[int]
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        point, a, b = self._at(v), self._a, self._b
        blocks = {(b, b): point.own}
        if a in terms:
            shares = point.share[:, None] * self.table.times(np.eye(len(point.own)))
            across = shares if point.shrink is None else shares @ point.shrink
            blocks[a, b], blocks[b, a] = across, across.T
            own = np.diag(point.share * self.table.counts[a])
            blocks[a, a] = own - point.v[b] * (across @ shares.T)
        full = np.block([[blocks[t, u] for u in terms] for t in terms])
        right = np.concatenate([point.projected[t] for t in terms]).T
        return full, right[1:], point.total.contrast @ right

    # At one point -------------------------------------------------------------------------------

    def _total(self, point: _Point) -> Totals:
        return point.total

    def _evaluated(self, v: FloatArray) -> _Point:
        table, a, b = self.table, self._a, self._b
        e, n = float(v[-1]), table.counts[a]
        w = 1.0 / (e + v[a] * n)
        M = np.diag(table.counts[b] / e)
        if v[a] > 0.0:  # else a pass over the table for nothing
            M -= table.weighted(v[a] / e * w)
        log_det = (table.n - n.size) * np.log(e) - float(np.log(w).sum())
        shrink, own, of_b = self._absorbed(v, M)
        squared = None if shrink is None else table.weighted(w * w)
        log_det += of_b
        projected = self._projected(v, w, shrink, table.sums)
        gram = table.gram.copy()
        for u, sums, rows in zip(v[:-1], table.sums, projected, strict=True):
            gram -= u * (sums.T @ rows)
        total = self._totals(v, w, shrink, own, squared, projected, gram)
        if total.rss * e < _LITTLE * table.yy:
            projected, gram = self._refined(v, w, shrink, projected)
            total = self._totals(v, w, shrink, own, squared, projected, gram)
        total.log_det = log_det
        return _Point(v, w, shrink, own, squared, projected, total)

    def _absorbed(
        self, v: FloatArray, M: FloatArray
    ) -> tuple[FloatArray | None, FloatArray, float]:
        """Return S, SM and log|I + σ²_b M|."""
        u = float(v[self._b])
        if u == 0.0:
            return None, M, 0.0
        with limited_blas(len(M)):
            A = u * M
            A.flat[:: len(M) + 1] += 1.0
            factor = Positive(A)
            shrink = factor.inverse()
            if u * float(np.diagonal(M).max()) < _SMALL:
                own = shrink @ M
                own = 0.5 * (own + own.T)
            else:
                own = -shrink / u
                own.flat[:: len(M) + 1] += 1.0 / u
        return shrink, own, float(factor.log_determinant())

    def _projected(
        self,
        v: FloatArray,
        w: FloatArray,
        shrink: FloatArray | None,
        sums: tuple[FloatArray, FloatArray],
    ) -> tuple[FloatArray, FloatArray]:
        """Return Z_t'V⁻¹[y X] of the terms in the order of the model, from Z_t'[y X]."""
        table, a, b = self.table, self._a, self._b
        of_a = w[:, None] * sums[a]
        of_b = (sums[b] - v[a] * table.transposed_times(of_a)) / v[-1]  # B'U⁻¹[y X]
        if shrink is not None:
            of_b = shrink @ of_b
            of_a = of_a - v[b] * w[:, None] * table.times(of_b)
        return (of_a, of_b) if a == 0 else (of_b, of_a)

    def _refined(
        self,
        v: FloatArray,
        w: FloatArray,
        shrink: FloatArray | None,
        projected: tuple[FloatArray, FloatArray],
    ) -> tuple[tuple[FloatArray, FloatArray], FloatArray]:
        """Return Z_t'V⁻¹[y X] after a step of refinement in extended precision.

        And σ²_e [y X]'V⁻¹[y X], whose error is of second order in theirs.
        """
        table, long = self.table, np.longdouble
        u = [x * rows.astype(long) for x, rows in zip(v[:-1], projected, strict=True)]
        rests = []
        for t, rows in enumerate(projected):
            others = table.extended(u[1 - t], transposed=t == self._b)
            rest = table.sums[t] - table.counts[t][:, None] * u[t] - others
            rests.append(rest - long(v[-1]) * rows)
        gram = table.gram.astype(long)
        for effects, sums, rest in zip(u, table.sums, rests, strict=True):
            gram -= effects.T @ (sums + rest)
        first, second = (np.asarray(rest, dtype=float) for rest in rests)
        more = self._projected(v, w, shrink, (first, second))
        return (projected[0] + more[0], projected[1] + more[1]), np.asarray(gram, dtype=float)

    def _totals(
        self,
        v: FloatArray,
        w: FloatArray,
        shrink: FloatArray | None,
        own: FloatArray,
        squared: FloatArray | None,
        projected: tuple[FloatArray, FloatArray],
        gram: FloatArray,
    ) -> Totals:
        """Return the forms without the squares; `gram` is σ²_e [y X]'V⁻¹[y X]."""
        table, a, b = self.table, self._a, self._b
        n = table.counts[a]
        total = Totals(3, 1 + table.n_fixed)
        total.gram[:] = 0.5 * (gram + gram.T) / v[-1]
        first = np.array([rows.T @ rows for rows in projected])
        total.first[:] = with_last(first, total.gram, v)
        # Z_t'V⁻¹Z_u of the projected columns, eq. (5.5)
        second = np.empty((2, 2, *gram.shape))
        of_a, of_b = projected[a], projected[b]
        within = w[:, None] * of_a
        between = table.transposed_times(within)  # F'w
        shrunk = between if shrink is None else shrink @ between
        second[a, a] = of_a.T @ (n[:, None] * within) - v[b] * (between.T @ shrunk)
        second[a, b] = shrunk.T @ of_b
        second[b, a] = second[a, b].T
        second[b, b] = of_b.T @ (own @ of_b)
        second = 0.5 * (second + second.transpose(1, 0, 3, 2))
        total.second[:] = with_residual_forms(second, first, total.gram, v)
        traces = np.empty(2)
        traces[a] = float(w @ n)
        traces[b] = float(np.trace(own))
        if shrink is not None and squared is not None:
            traces[a] -= v[b] * float(np.vdot(shrink, squared))
        total.traces[:] = with_last(traces, float(table.n), v)
        return total

    def _squares(self, point: _Point) -> Totals:
        """Return the totals with tr(V⁻¹V_tV⁻¹V_u), for the expected information."""
        total, table, v = point.total, self.table, point.v
        if total.squares.any():
            return total
        a, b, w, n = self._a, self._b, point.share, self.table.counts[self._a]
        squares = np.empty((2, 2))
        squares[b, b] = float(np.vdot(point.own, point.own))
        squares[a, a] = float(np.square(w * n).sum())
        S = point.shrink
        if S is None or point.squared is None:
            squares[a, b] = squares[b, a] = float((w * w) @ n)
        else:
            u = float(v[b])
            with limited_blas(len(S)):
                product = point.squared @ S
            squares[a, b] = squares[b, a] = float(np.vdot(product, S))
            third = float(np.vdot(S, table.weighted(w**3 * n)))
            squares[a, a] += u * (u * float(np.vdot(product, product.T)) - 2.0 * third)
        traces = total.traces[:-1]
        total.squares[:] = with_residual_forms(squares, traces, float(table.n), v)
        return total
