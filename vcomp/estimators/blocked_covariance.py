"""The forms of one covariance matrix V = Σ c_l Z_l Z_l' + c_e I by blocked elimination.

What an orthogonal stratum of any remaining design has to give (:mod:`vcomp.estimators.forms`),
from cross-products and without a matrix of the order of V. With λ_l = c_l/c_e, the terms of
positive c_l and C = Z'Z + Λ⁻¹ (MATHS 3b), û = C⁻¹Z'B:

    log|V| = n log c_e + log|C| + Σ q_l log λ_l
    Z_l'V⁻¹B = û_l/c_l,   V⁻¹B = (B − Z û)/c_e
    Z_l'V⁻¹Z_m = δ_lm I/c_l − c_e C^lm/(c_l c_m)

A term with c_l = 0 is not in the equations; its forms come from solutions with the columns of Z_l,
some at a time. The residual's forms follow from those of the terms, as Σ c_l Z_l Z_l' + c_e I = V.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.equations import Equations, build_equations
from vcomp.estimators.forms import Columns, Forms
from vcomp.linalg.arrowhead import ArrowheadFactor, InverseBlocks, factorise, inverse_blocks
from vcomp.linalg.threads import limited_blas
from vcomp.statistics import CrossProducts

__all__ = ["BlockedCovariance"]

_SLAB_BYTES = 2.0**26


class BlockedCovariance:
    """Forms of V⁻¹ on the columns, at any components; see :class:`vcomp.estimators.forms.Forms`.

    Parameters
    ----------
    stats : cross-products of the terms; their y and X are not used
    columns : sums of the columns within the groups of the same terms
    """

    def __init__(self, stats: CrossProducts, columns: Columns) -> None:
        self._stats = _without_columns(stats)
        self._columns = columns
        self._equations: dict[tuple[int, ...], Equations] = {}
        # The value and then the derivatives are asked for at the same point.
        self._last: tuple[bytes, _Point] | None = None

    def log_det_and_gram(self, c: FloatArray) -> tuple[float, FloatArray]:
        """Return log|V| and B'V⁻¹B only."""
        point = self._solve(c)
        return point.log_det, self._gram(point)

    def forms(self, c: FloatArray) -> Forms:
        """Return all forms at components `c`: the residual, the last, positive, others ≥ 0."""
        point = self._solve(c)
        with limited_blas(point.order):
            traces, squares = point.traces_and_squares()
            gram = self._gram(point)
            first, second = self._quadratics(point)
        second = _with_residual(second, first, gram, point.c)
        first = np.concatenate([first, [_last(gram, first, point.c)]])
        all_squares = _with_residual(squares, traces, float(self._stats.n), point.c)
        traces = np.append(traces, _last(float(self._stats.n), traces, point.c))
        return Forms(point.log_det, traces, all_squares, gram, first, second)

    def projections(self, c: FloatArray) -> tuple[FloatArray, ...]:
        """Return Z_l'V⁻¹B of every term, (q_l, b, r)."""
        point = self._solve(c)
        shapes = [ZB.shape for ZB in self._columns.ZB]
        return tuple(r.reshape(s) for r, s in zip(self._projected(point), shapes, strict=True))

    def diagonals(self, c: FloatArray) -> tuple[FloatArray, ...]:
        """Return the diagonal of Z_l'V⁻¹Z_l of every term, (q_l,)."""
        point = self._solve(c)
        with limited_blas(point.order):
            return tuple(point.diagonal(t) for t in range(self._stats.n_terms))

    # At one point -------------------------------------------------------------------------

    def _solve(self, c: FloatArray) -> _Point:
        c = np.asarray(c, dtype=float)
        key = c.tobytes()
        if self._last is not None and self._last[0] == key:
            return self._last[1]
        self._last = None
        sizes = self._stats.sizes
        positive = [t for t in range(self._stats.n_terms) if c[t] > 0.0]
        active = tuple(sorted(positive, key=lambda t: (-sizes[t], t)))
        if active not in self._equations:
            self._equations[active] = build_equations(self._stats, active)
        point = _Point(self._stats, c, self._equations[active])
        self._last = key, point
        return point

    @cached_property
    def _sums(self) -> list[FloatArray]:
        return [ZB.reshape(ZB.shape[0], -1) for ZB in self._columns.ZB]

    def _gram(self, point: _Point) -> FloatArray:
        gram = self._columns.BB.copy()
        for t, effects in zip(point.active, self._effects(point), strict=True):
            gram -= self._product(self._sums[t], effects)
        gram /= point.c[-1]
        return 0.5 * (gram + gram.T)

    def _effects(self, point: _Point) -> list[FloatArray]:
        if point.effects is None:
            point.effects = point.solve([self._sums[t] for t in point.active])
        return point.effects

    def _projected(self, point: _Point) -> list[FloatArray]:
        return point.projected(self._sums, self._effects(point))

    def _quadratics(self, point: _Point) -> tuple[FloatArray, FloatArray]:
        """Return B'V⁻¹K_l V⁻¹B and B'V⁻¹K_l V⁻¹K_m V⁻¹B of the terms."""
        k, b = self._stats.n_terms, self._columns.BB.shape[0]
        rows = self._projected(point)
        first = np.empty((k, b, b))
        second = np.empty((k, k, b, b))
        for m, r in enumerate(rows):
            first[m] = self._product(r, r)
            # Z_l'V⁻¹f for f = Z_m r, whose sums are the cross tables' times r.
            sums = [point.cross(t, m, r) for t in range(k)]
            solved = point.solve([sums[t] for t in point.active])
            for t, forms in enumerate(point.projected(sums, solved)):
                second[t, m] = self._product(rows[t], forms)
        # The two halves are the same numbers but for rounding.
        return first, 0.5 * (second + second.transpose(1, 0, 3, 2))

    def _product(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the (b, b) products of two sets of columns, summed over groups and replicates."""
        b = self._columns.BB.shape[0]
        shape = (left.shape[0], b, left.shape[1] // max(b, 1))
        product: FloatArray = np.tensordot(
            left.reshape(shape), right.reshape(shape), axes=([0, 2], [0, 2])
        )
        return product


class _Point:
    """The equations of the positive components factored at `c`."""

    def __init__(self, stats: CrossProducts, c: FloatArray, equations: Equations) -> None:
        self.stats, self.c, self.equations = stats, c, equations
        self.active = equations.active
        self.effects: list[FloatArray] | None = None
        ridges = [c[-1] / c[t] for t in self.active]
        tail_ridge = np.zeros(equations.matrix.n_sparse)
        for ridge, place in zip(ridges[1:], equations.slices, strict=True):
            tail_ridge[place] = ridge
        with limited_blas(tail_ridge.size):
            self.factor: ArrowheadFactor = factorise(
                equations.matrix, ridges[0] if ridges else 0.0, tail_ridge
            )

    @property
    def order(self) -> int:
        """Order of the dense part."""
        return self.factor.n_sparse

    @cached_property
    def inverse(self) -> InverseBlocks:
        """The blocks of C⁻¹."""
        return inverse_blocks(self.factor, self.order)

    @cached_property
    def log_det(self) -> float:
        """log|V|."""
        sizes, c = self.stats.sizes, self.c
        log_det = self.stats.n * np.log(c[-1]) + self.factor.log_determinants()[0]
        return float(log_det + sum(sizes[t] * np.log(c[t] / c[-1]) for t in self.active))

    def solve(self, right: list[FloatArray]) -> list[FloatArray]:
        """Solve C x = b for right-hand sides of the positive components, in their order."""
        if not self.active:
            return []
        width = right[0].shape[1]
        tail = np.concatenate([np.zeros((0, width)), *right[1:]])
        with limited_blas(self.order):
            lead, rest = self.factor.solve(right[0], tail)
        return [lead, *(rest[place] for place in self.equations.slices)]

    def cross(self, t: int, u: int, effects: FloatArray) -> FloatArray:
        """Return Z_t'Z_u times columns of effects of term u."""
        product: FloatArray = self.stats.gram(t, u) @ effects
        return product

    def projected(self, sums: list[FloatArray], solved: list[FloatArray]) -> list[FloatArray]:
        """Return Z_t'V⁻¹b of every term, from Z_t'b of all and C⁻¹Z'b of the positive ones."""
        rows = []
        for t in range(self.stats.n_terms):
            if self.c[t] > 0.0:
                rows.append(solved[self.active.index(t)] / self.c[t])
                continue
            rest = sums[t].copy()
            for u, effects in zip(self.active, solved, strict=True):
                rest -= self.cross(t, u, effects)
            rows.append(rest / self.c[-1])
        return rows

    def traces_and_squares(self) -> tuple[FloatArray, FloatArray]:
        """Return tr(Z_l'V⁻¹Z_l) and ‖Z_l'V⁻¹Z_m‖² of all terms."""
        k, c = self.stats.n_terms, self.c
        traces, squares = np.empty(k), np.empty((k, k))
        active = list(self.active)
        if active:
            norms = self.inverse.squared_norms(list(self.equations.slices))
            v = c[active]
            squares[np.ix_(active, active)] = c[-1] ** 2 * norms / np.outer(v, v) ** 2
        for place, t in enumerate(active):
            q = self.stats.sizes[t]
            traces[t] = q / c[t] - c[-1] * self._block_trace(place) / c[t] ** 2
            # ‖I/c − M‖² = q/c² − 2 tr(M)/c + ‖M‖², and tr(M) = q/c − tr(Z'V⁻¹Z).
            squares[t, t] += (2.0 * traces[t] - q / c[t]) / c[t]
        for t in (u for u in range(k) if c[u] == 0.0):
            traces[t], squares[t], squares[:, t] = 0.0, 0.0, 0.0
            for slab, columns in self._columns_of(t):
                traces[t] += np.trace(columns[t][slab])
                squares[t] += [np.square(block).sum() for block in columns]
            squares[:, t] = squares[t]
        return traces, squares

    def diagonal(self, t: int) -> FloatArray:
        """Return the diagonal of Z_t'V⁻¹Z_t."""
        c = self.c
        if c[t] == 0.0:
            parts = [np.diagonal(columns[t][slab]) for slab, columns in self._columns_of(t)]
            return np.concatenate([np.zeros(0), *parts])
        place = self.active.index(t)
        if place == 0:
            block = self.inverse.lead_diagonal()
        else:
            block = np.diagonal(self.inverse.tail)[self.equations.slices[place - 1]]
        diagonal: FloatArray = (1.0 - c[-1] * block / c[t]) / c[t]
        return diagonal

    def _block_trace(self, place: int) -> float:
        if place == 0:
            return self.inverse.lead_trace()
        return float(np.diagonal(self.inverse.tail)[self.equations.slices[place - 1]].sum())

    def _columns_of(self, t: int) -> Iterator[tuple[slice, list[FloatArray]]]:
        """Yield Z_u'V⁻¹Z_t of all terms u in slabs of columns, for a component at zero."""
        tables = [self.stats.gram(u, t).tocsc() for u in range(self.stats.n_terms)]
        width = max(1, int(_SLAB_BYTES / (8.0 * sum(self.stats.sizes))))
        for start in range(0, self.stats.sizes[t], width):
            slab = slice(start, min(start + width, self.stats.sizes[t]))
            sums = [table[:, slab].toarray() for table in tables]
            yield slab, self.projected(sums, self.solve([sums[u] for u in self.active]))


def _without_columns(stats: CrossProducts) -> CrossProducts:
    return replace(
        stats,
        Zy=tuple(np.zeros(q) for q in stats.sizes),
        ZX=tuple(np.zeros((q, 0)) for q in stats.sizes),
        XX=np.zeros((0, 0)),
        Xy=np.zeros(0),
        yy=0.0,
    )


def _last(total: FloatArray | float, forms: FloatArray, c: FloatArray) -> FloatArray:
    """Return the residual's form from those of the terms, which with it add up to `total`."""
    last: FloatArray = (total - np.tensordot(c[:-1], forms, axes=1)) / c[-1]
    return last


def _with_residual(
    squares: FloatArray, traces: FloatArray, total: FloatArray | float, c: FloatArray
) -> FloatArray:
    """Add the residual's row and column to forms with two K's; `traces` are those with one."""
    k = traces.shape[0]
    whole = np.empty((k + 1, k + 1, *traces.shape[1:]))
    whole[:k, :k] = squares
    mixed = _last(traces, squares.swapaxes(0, 1), c) if k else traces
    whole[:k, k] = mixed
    whole[k, :k] = mixed.swapaxes(-1, -2) if mixed.ndim == 3 else mixed
    whole[k, k] = _last(_last(total, traces, c), mixed, c)
    return whole
