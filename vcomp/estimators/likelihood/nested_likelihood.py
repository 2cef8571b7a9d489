"""The levels engine for two nested terms whose fixed part varies between columns of a table alone.

The groups of the outer term are independent. Within one of them V is a diagonal matrix and a
matrix of rank one, so that all forms are products of tables of weights, which differ between
columns of the fixed part in nothing but the column (docs/explanation/mathematics.md, eqs. (4.15)
and (4.16)). An evaluation is a pass over the table, and no column of X has a solution of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood.engine import Cancellation, Solution
from vcomp.estimators.likelihood.totals import Totals, TotalsEngine, with_last, with_residual_forms
from vcomp.numerics import COSTS, in_threads, limited_blas, slices
from vcomp.statistics import NestedTable, Statistics

_SLAB = 2**20
"""Number of cells whose weights are computed at once."""


@dataclass(slots=True)
class _TablePoint:
    """The forms at one point; the second forms are added when they are needed."""

    v: FloatArray
    total: Totals
    average: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class _OuterGroups:
    """Weights of some groups of the outer term.

    With V_g⁻¹ = diag(w) − κ ww' for the sums of the cells, w = n/(σ²_e + σ²_b n),
    W = Σ w and κ = σ²_a/(1 + σ²_a W).

    Attributes
    ----------
    n, y : (r, m) numbers of scores and means
    w : (r, m) weights
    W, left, kappa : (r,) Σ w, 1/(1 + σ²_a W) and κ
    """

    n: FloatArray
    y: FloatArray
    w: FloatArray
    W: FloatArray
    left: FloatArray
    kappa: FloatArray

    def sums(self, power: int) -> FloatArray:
        """Return sums of w^power times y and times the indicators of the columns, (r, 1 + m)."""
        weights = self.w**power if power > 1 else self.w
        return np.column_stack([np.einsum("rm,rm->r", weights, self.y), weights])

    def squares(self, power: int) -> FloatArray:
        """Return the products of y and the indicators weighted by w^power, (1 + m, 1 + m)."""
        weights = self.w**power if power > 1 else self.w
        of_y = weights * self.y
        products = np.diag(np.append(np.vdot(of_y, self.y), weights.sum(axis=0)))
        products[0, 1:] = products[1:, 0] = of_y.sum(axis=0)
        return products


class NestedTableLikelihood(TotalsEngine[_TablePoint]):
    """Restricted or full log-likelihood of two nested terms in a table.

    Parameters
    ----------
    table : means and numbers of scores
    reml : whether the likelihood is the restricted one
    """

    name: ClassVar[str] = "levels"
    cancellation: ClassVar[Cancellation] = "equations"
    newton_below: ClassVar[float] = 0.0  # the observed information costs two evaluations

    def __init__(self, table: NestedTable, *, reml: bool) -> None:
        self.stats = self.table = table
        self.reml = reml
        self._a, self._b = table.outer, 1 - table.outer

    def with_response(self, stats: Statistics) -> Self:
        """Return the engine of the same rows with another response."""
        self._last = None  # its memory is free for the next
        return type(self)(self.table.with_response(stats.cells), reml=self.reml)

    @property
    def reason(self) -> str:
        """Why this engine was chosen: numbers of groups and columns, share of empty cells."""
        q, m = self.table.counts.shape
        empty = 1.0 - self.table.cells.size / (float(q) * m)
        return f"{q:,} levels of {m:,} cells, {empty:.1%} of them empty, in one table"

    @property
    def _multiplications(self) -> float:
        q, m = self.table.counts.shape
        return 4.0 * q * float(m) ** 2

    @property
    def seconds(self) -> float:
        """Expected time of one evaluation in seconds."""
        return COSTS.crossed.call + COSTS.crossed.cell * self._multiplications

    @property
    def bytes(self) -> float:
        """Expected memory of one evaluation."""
        return 8.0 * (24.0 * min(_SLAB, self.table.counts.size) + 40.0 * self.n_fixed**2)

    def _forms_of_effects(self, v: FloatArray, terms: Sequence[int]) -> None:
        """Return None: the groups are many."""

    def solution(self, v: FloatArray) -> Solution:
        """Return fixed effects and predicted effects at `v`."""
        beta, cov_beta = self.fixed_effects(v)
        levels = self.table.levels

        def variances() -> tuple[tuple[FloatArray, ...], tuple[FloatArray, ...]]:
            return self.variances(v, levels @ cov_beta @ levels.T)

        return Solution(beta, cov_beta, self.effects(v, levels @ beta), variances)

    def effects(self, v: FloatArray, fitted: FloatArray) -> tuple[FloatArray, ...]:
        """Return the predicted effects of the terms.

        Parameters
        ----------
        v : components, the residual last
        fitted : (m,) what the scores of each column have without them
        """
        table, a, b = self.table, self._a, self._b
        of_outer, of_cells = np.empty(len(table.counts)), np.empty(table.counts.shape)
        for part, rows in self._parts(v):
            away = rows.y - fitted
            sums = np.einsum("rm,rm->r", rows.w, away)
            of_outer[part] = v[a] * rows.left * sums
            of_cells[part] = v[b] * rows.w * (away - (rows.kappa * sums)[:, None])
        return self._in_order(of_outer, of_cells)

    def variances(
        self, v: FloatArray, H: FloatArray
    ) -> tuple[tuple[FloatArray, ...], tuple[FloatArray, ...]]:
        """Return the variances of prediction and conditional ones, eqs. (9.3) and (9.4).

        Parameters
        ----------
        v : components, the residual last
        H : (m, m) covariances of the fixed parts of the columns
        """
        table, a, b = self.table, float(v[self._a]), float(v[self._b])
        of_outer = np.empty((2, len(table.counts)))
        of_cells = np.empty((2, *table.counts.shape))
        for part, rows in self._parts(v):
            w, kappa = rows.w, rows.kappa[:, None]
            across = w @ H
            fixed = np.einsum("rm,rm->r", across, w)
            of_outer[1, part] = a * rows.left
            of_outer[0, part] = a * rows.left + np.square(a * rows.left) * fixed
            own = b * (1.0 - b * w * (1.0 - kappa * w))
            of_cells[1, part] = own
            spread = np.diagonal(H) - 2.0 * kappa * across + kappa**2 * fixed[:, None]
            of_cells[0, part] = own + np.square(b * w) * spread
        return (
            self._in_order(of_outer[0], of_cells[0]),
            self._in_order(of_outer[1], of_cells[1]),
        )

    def _in_order(self, of_outer: FloatArray, of_cells: FloatArray) -> tuple[FloatArray, ...]:
        both = (of_outer, of_cells.ravel()[self.table.cells])
        return both if self._a == 0 else both[::-1]

    # At one point -------------------------------------------------------------------------------

    def _slabs(self) -> list[slice]:
        q, m = self.table.counts.shape
        return list(slices(q, max(_SLAB // m, 1)))

    def _rows(self, v: FloatArray, part: slice) -> _OuterGroups:
        a, b, e = v[self._a], v[self._b], v[-1]
        n = self.table.counts[part]
        w = n / (e + b * n)
        W = w.sum(axis=1)
        left = 1.0 / (1.0 + a * W)
        return _OuterGroups(n, self.table.means[part], w, W, left, a * left)

    def _parts(self, v: FloatArray) -> Iterator[tuple[slice, _OuterGroups]]:
        for part in self._slabs():
            yield part, self._rows(v, part)

    def totals(self, v: FloatArray, *, second: bool) -> Totals:
        """Return the forms at `v`, with second ones if requested."""
        point = self._at(v)
        return self._squares(point) if second else point.total

    def _total(self, point: _TablePoint) -> Totals:
        return point.total

    def _recombined(self, products: FloatArray) -> FloatArray:
        """Return forms of [y X] from those (…, 1 + m, 1 + m) of y and the indicators."""
        C = np.zeros((1 + len(self.table.levels), 1 + self.n_fixed))
        C[0, 0], C[1:, 1:] = 1.0, self.table.levels
        return np.asarray(C.T @ products @ C)

    def _evaluated(self, v: FloatArray) -> _TablePoint:
        table, a, b, e = self.table, self._a, self._b, float(v[-1])

        def work(part: slice) -> tuple[FloatArray, FloatArray, FloatArray]:
            rows = self._rows(v, part)
            S, Q, kappa = rows.sums(1), rows.sums(2), rows.kappa[:, None]
            W2 = Q[:, 1:].sum(axis=1, keepdims=True)
            forms = np.empty((3, S.shape[1], S.shape[1]))
            forms[0] = rows.squares(1) - S.T @ (kappa * S)
            forms[1] = S.T @ (rows.left[:, None] ** 2 * S)
            across = S.T @ (kappa * (Q - 0.5 * kappa * W2 * S))
            forms[2] = rows.squares(2) - across - across.T
            W3 = np.einsum("rm,rm,rm->r", rows.w, rows.w, rows.w)
            W2 = W2[:, 0]
            values = np.array([
                -np.log(rows.left).sum() + np.log1p(v[b] / e * rows.n).sum(),
                rows.W @ rows.left,
                rows.W.sum() - rows.kappa @ W2,
            ])  # fmt: skip
            squares = np.array([
                np.square(rows.W * rows.left).sum(),
                W2 @ np.square(rows.left),
                W2.sum() - 2.0 * (rows.kappa @ W3) + np.square(rows.kappa * W2).sum(),
            ])  # fmt: skip
            return forms, values, squares

        forms, values, squares = self._added(work)
        total = Totals(3, 1 + self.n_fixed)
        total.log_det = table.n * np.log(e) + float(values[0])
        gram, of_outer, of_inner = self._recombined(forms)
        gram[0, 0] += table.within / e
        total.gram[:] = gram
        first = np.empty((2, *gram.shape))
        first[a], first[b] = of_outer, of_inner
        total.first[:] = with_last(first, gram, v)
        traces, both = np.empty(2), np.empty((2, 2))
        traces[a], traces[b] = values[1], values[2]
        total.traces[:] = with_last(traces, float(table.n), v)
        both[a, a], both[b, b], both[a, b], both[b, a] = *squares[[0, 2]], *squares[[1, 1]]
        total.squares[:] = with_residual_forms(both, traces, float(table.n), v)
        return _TablePoint(v, total)

    def _squares(self, point: _TablePoint) -> Totals:
        """Return the totals with the second forms, for the expected information."""
        total, v, a, b = point.total, point.v, self._a, self._b
        if total.second.any():
            return total

        def work(part: slice) -> tuple[FloatArray]:
            rows = self._rows(v, part)
            S, T, kappa, left = rows.sums(1), rows.sums(3), rows.kappa[:, None], rows.left[:, None]
            E = rows.sums(2)
            E -= kappa * E[:, 1:].sum(axis=1, keepdims=True) * S
            W3 = T[:, 1:].sum(axis=1, keepdims=True)
            across = S.T @ (kappa * (T - 0.5 * kappa * W3 * S))
            forms = np.array([
                S.T @ (rows.W[:, None] * left**3 * S),
                S.T @ (left**2 * E),
                rows.squares(3) - across - across.T - E.T @ (kappa * E),
            ])  # fmt: skip
            return (forms,)

        (forms,) = self._added(work)
        of_outer, mixed, of_inner = self._recombined(forms)
        second = np.empty((2, 2, *of_outer.shape))
        second[a, a], second[b, b], second[a, b], second[b, a] = of_outer, of_inner, mixed, mixed.T
        total.second[:] = with_residual_forms(second, total.first[:2], total.gram, v)
        return total

    def _average(self, point: _TablePoint) -> FloatArray:
        """Return the average information, by a pass for the residuals alone."""
        if point.average is None:
            point.average = self._of_residuals(point)
        return point.average

    def _of_residuals(self, point: _TablePoint) -> FloatArray:
        total, v, a, b = point.total, point.v, self._a, self._b
        fitted = self.table.levels @ total.beta

        def work(part: slice) -> tuple[FloatArray]:
            rows = self._rows(v, part)
            w, left, kappa = rows.w, rows.left, rows.kappa
            sums = np.einsum("rm,rm->r", w, rows.y - fitted)
            # Z_b'V⁻¹r of the cells, and its sums weighted by w
            own = w * (rows.y - fitted - (kappa * sums)[:, None])
            again = np.einsum("rm,rm->r", w, own)
            return (
                np.array([
                    np.square(sums * left) @ (rows.W * left),
                    (sums * left) @ (again * left),
                    np.einsum("rm,rm,rm->", w, own, own) - kappa @ np.square(again),
                ]),
            )  # fmt: skip

        (forms,) = self._added(work)
        plain = np.empty((2, 2))
        plain[a, a], plain[b, b], plain[a, b], plain[b, a] = *forms[[0, 2]], *forms[[1, 1]]
        plain = with_residual_forms(plain, total.quadratics[:2], total.rss, v)
        mixed = total.first[:, 1:] @ total.contrast
        return np.asarray(0.5 * (plain - mixed @ total.XVX.solve(mixed.T)))

    def _added(self, work: Callable[[slice], tuple[FloatArray, ...]]) -> tuple[FloatArray, ...]:
        """Return the sums of what `work` returns for the slabs."""
        sums: list[FloatArray] = []
        with limited_blas(0):
            for found in in_threads(work, self._slabs(), self._multiplications):
                if not sums:
                    sums = list(found)
                    continue
                for total, part in zip(sums, found, strict=True):
                    total += part
        return tuple(sums)
