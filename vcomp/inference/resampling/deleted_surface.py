"""Refits of all rows without those of one level after another, from one factor at a few points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.estimators.likelihood import NodeValues
from vcomp.inference.resampling.refits import Recipe, Refitted
from vcomp.inference.resampling.surfaces import (
    LIMITS,
    PRODUCT_SECONDS,
    Absorbing,
    Surface,
    SurfaceLimits,
    dense_table,
)
from vcomp.numerics.kernels import inverse_by_factor
from vcomp.statistics import Statistics

_SPREAD = 7.0
"""Half the width of a box in standard errors of a level's influence, which has heavy tails; the
box is small anyway."""

_MOST_ROWS = 400
"""Rows of a level that is deleted."""

_BATCH_BYTES, _PADDING = 3e7, 8
"""Memory of blocks that are computed at once, and the steps of their sizes."""

_BLOCK_SECONDS = 4e-5
"""Time of a point for one of many deleted levels, products not counted."""

_TOLERANCE, _DIGITS = 1e-7, 11.0
"""Largest error of a maximum, in standard errors, and digits of likelihoods that it needs: those
of a jackknife are of differences."""


class DeletedSurface:
    """Refits of all rows without some of them.

    Parameters
    ----------
    surface : around the estimate from all rows
    stats : of all rows
    deleted : the rows of each data set that it is without
    limits : where surfaces are faster
    """

    def __init__(
        self,
        surface: Surface,
        stats: Statistics,
        deleted: Sequence[LongArray],
        limits: SurfaceLimits = LIMITS,
    ) -> None:
        self._limits = limits
        self._surface, self._stats, self._deleted = surface, stats, deleted
        rows = stats.cells
        self._X, self._y = rows.X, rows.y
        sizes, k = stats.sizes, len(stats.sizes)
        products = [_inversions(sizes, rows.codes, deleted, t) for t in range(k)]
        self._lead, self._products = int(np.argmin(products)), min(products) / len(deleted)
        self._rest = [t for t in range(k) if t != self._lead]
        self._absorbing = Absorbing(stats.cross_products, self._lead, self._rest)
        begin = np.cumsum([0, *(sizes[t] for t in self._rest)])
        self._own = rows.codes[self._lead]
        self._places = np.array(
            [rows.codes[t] + first for t, first in zip(self._rest, begin, strict=False)],
            dtype=np.int64,
        ).reshape(len(self._rest), rows.n)
        self._right = np.column_stack([rows.X, rows.y])

    @classmethod
    def of(
        cls,
        stats: Statistics,
        recipe: Recipe,
        v: FloatArray,
        deleted: Sequence[LongArray],
        limits: SurfaceLimits = LIMITS,
        *,
        alone: float | None = None,
    ) -> DeletedSurface | None:
        """Return the refits, None where they are as fast otherwise.

        Parameters
        ----------
        stats : of all rows
        recipe : its estimator and options
        v : (k + 1,) the estimate from all rows
        deleted : the rows of each data set that it is without
        limits : where surfaces are faster
        alone : seconds that a refit takes otherwise; None for one by the engine of the fit
        """
        most = max(rows.size for rows in deleted)
        if most > _MOST_ROWS or sum(stats.sizes) > limits.effects or len(v) > 4:
            return None
        surface = Surface.of(stats, recipe, v)
        if surface is None or surface.terms.size < len(stats.sizes):
            return None
        if stats.cells.multiplicity is not None:
            return None
        found = cls(surface, stats, deleted, limits)
        points = surface.n_nodes(found._width(_SPREAD), _DIGITS) ** (len(v) - 1)
        seconds = points * (_BLOCK_SECONDS + PRODUCT_SECONDS * found._products)
        return found if seconds < (surface.seconds(limits) if alone is None else alone) else None

    def _width(self, spread: float) -> FloatArray:
        """Return half the widths of the box: one level changes an estimate by SE/√levels."""
        width: FloatArray = spread * self._surface.errors / np.sqrt(len(self._deleted))
        return np.minimum(width, 1.0)

    def refitted(self) -> list[Refitted | None]:
        """Return the estimates; outliers in a wider box, None where one is not certain."""
        found: list[Refitted | None] = [None] * len(self._deleted)
        for spread in (_SPREAD, 3.0 * _SPREAD):
            left = [b for b, made in enumerate(found) if made is None]
            nodes = self._surface.n_nodes(self._width(spread), _DIGITS)
            points = nodes ** len(self._surface.centre)
            if points >= self._limits.evaluations * len(left):
                break
            try:
                made = self._in_box(left, spread)
            except np.linalg.LinAlgError:  # fixed effects that the other rows do not determine
                break
            for b, one in zip(left, made, strict=True):
                found[b] = one
        return found

    def _in_box(self, numbers: Sequence[int], spread: float) -> list[Refitted | None]:
        engine, p = self._surface.engine, self._X.shape[1]
        rows = [self._deleted[b] for b in numbers]
        degrees = np.array([engine.n - r.size - p * engine.reml for r in rows], dtype=float)
        batches = self._batches(rows)
        parts: Callable[[_Batch], _Parts] = self._parts
        if sum(batch.bytes_of_parts for batch in batches) <= self._limits.kept_bytes:
            parts = cache(self._parts)  # for all points
        return self._surface.refitted(
            lambda ratios: self._values(ratios, len(rows), batches, parts),
            self._width(spread),
            degrees,
            _TOLERANCE,
            digits=_DIGITS,
        )

    def _batches(self, deleted: Sequence[LongArray]) -> list[_Batch]:
        """Return the data sets by the number of their deleted rows, and that of their effects."""
        columns = [self._effects_of(rows) for rows in deleted]
        shapes: dict[tuple[int, int], list[int]] = {}
        for b, (rows, own) in enumerate(zip(deleted, columns, strict=True)):
            shape = _rounded_up(rows.size), _rounded_up(own.size)
            shapes.setdefault(shape, []).append(b)
        batches = []
        for (height, width), members in shapes.items():
            most = max(1, int(_BATCH_BYTES / (8.0 * (height + width) * max(height, width, 1))))
            for first in range(0, len(members), most):
                some = members[first : first + most]
                batches.append(
                    _Batch(
                        np.array(some),
                        _padded([deleted[b] for b in some], height),
                        _padded([columns[b] for b in some], width),
                    )
                )
        return batches

    def _effects_of(self, rows: LongArray) -> LongArray:
        """Return the effects that the rows, and those in the same groups of the lead, have."""
        across = self._absorbing.across
        groups = np.unique(self._own[rows])
        parts = [across.indices[across.indptr[g] : across.indptr[g + 1]] for g in groups]
        return np.unique(np.concatenate(parts)).astype(np.int64)

    def _values(
        self,
        ratios: FloatArray,
        n: int,
        batches: Sequence[_Batch],
        parts: Callable[[_Batch], _Parts],
    ) -> NodeValues:
        """Return the values without the rows of each data set, by the blocks of P."""
        reml, p = self._surface.engine.reml, self._X.shape[1]
        inverse, D, log_v = self._inverse(ratios)
        sums, lead = self._stats.cross_products, self._lead
        across = self._absorbing.across
        # V⁻¹[X y] of the rows, and (X'V⁻¹X)⁻¹ of all of them.
        own = np.column_stack([sums.ZX[lead], sums.Zy[lead]])
        nothing = np.zeros((0, p + 1))
        others = [np.column_stack([sums.ZX[t], sums.Zy[t]]) for t in self._rest]
        effects = inverse @ (np.concatenate([nothing, *others]) - across.T @ (own / D[:, None]))
        moved = self._right - ((own - across @ effects) / D[:, None])[self._own]
        for places in self._places:
            moved -= effects[places]
        VX, Vy = moved[:, :p], moved[:, p]
        cov = np.linalg.inv(self._X.T @ VX) if p else np.zeros((0, 0))
        beta = cov @ (VX.T @ self._y)
        Py = Vy - VX @ beta
        whole = float(self._y @ Py)
        log_det = log_v - (np.linalg.slogdet(cov)[1] if reml and p else 0.0)
        rss, logs, betas = np.empty(n), np.empty(n), np.empty((n, p))
        for batch in batches:
            V = self._blocks_of_V(parts(batch), batch, inverse, D)
            there = batch.rows >= 0
            X, right = VX[batch.rows] * there[:, :, None], (Py[batch.rows] * there)[:, :, None]
            P = V - X @ cov @ X.swapaxes(1, 2)
            left = np.linalg.solve(P, right)
            rss[batch.numbers] = whole - (right * left).sum(axis=(1, 2))
            factor = np.linalg.cholesky(P if reml else V)
            diagonal = np.diagonal(factor, axis1=1, axis2=2)
            logs[batch.numbers] = log_det + 2.0 * np.log(diagonal).sum(axis=1)
            betas[batch.numbers] = beta - (cov @ (X.swapaxes(1, 2) @ left))[:, :, 0]
        return NodeValues(rss, logs, betas)

    def _blocks_of_V(
        self, parts: _Parts, batch: _Batch, inverse: FloatArray, D: FloatArray
    ) -> FloatArray:
        """Return the blocks of V⁻¹ of deleted rows, (B, height, height); the identity of none.

        V⁻¹ = I − Z₁D⁻¹Z₁' − U S⁻¹ U' with U = Z₂ − Z₁D⁻¹Z₁'Z₂, of which a row has the effects of
        its group only.
        """
        weights = (1.0 / D[parts.group])[:, :, None]
        V: FloatArray = np.eye(batch.rows.shape[1]) - parts.same * weights
        if self._rest:
            U = parts.own - parts.shares * weights
            inner = inverse[batch.effects[:, :, None], batch.effects[:, None, :]]
            V -= U @ inner @ U.swapaxes(1, 2)
        return V

    def _parts(self, batch: _Batch) -> _Parts:
        """Return what blocks of V⁻¹ are made of at any components."""
        there, used = batch.rows >= 0, batch.effects >= 0
        group = np.where(there, self._own[batch.rows], -1)
        same = (group[:, :, None] == group[:, None, :]) & there[:, :, None]
        if not self._rest:
            return _Parts(group, same, np.zeros(0), np.zeros(0))
        both = there[:, :, None] & used[:, None, :]
        own = np.zeros(both.shape)
        for places in self._places:
            own += places[batch.rows][:, :, None] == batch.effects[:, None, :]
        shares = self._dense_across[group[:, :, None], batch.effects[:, None, :]]
        return _Parts(group, same, own * both, shares * both)

    @cached_property
    def _dense_across(self) -> FloatArray:
        return dense_table(self._absorbing.across)

    def _inverse(self, ratios: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Return S⁻¹ of the terms but the absorbed one, D of this, and log|V|."""
        lower, D, log_det = self._absorbing.factor(ratios)
        return inverse_by_factor(lower), D, log_det


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """Data sets whose deleted rows and effects are as many, up to the next multiple of eight.

    Attributes
    ----------
    numbers : (B,) of the data sets
    rows, effects : (B, height) and (B, width) of each, −1 for none
    """

    numbers: LongArray
    rows: LongArray
    effects: LongArray

    @property
    def bytes_of_parts(self) -> float:
        """Memory of what its blocks of V⁻¹ are made of."""
        height, width = self.rows.shape[1], self.effects.shape[1]
        return float(self.rows.shape[0] * height * (height + 16.0 * width))


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """What the blocks of V⁻¹ of a batch are made of at any components.

    Attributes
    ----------
    group : (B, height) of the lead, −1 of no row
    same : (B, height, height) whether two rows are in the same group of the lead
    own, shares : (B, height, width) Z₂ and Z₁Z₁'Z₂ of the rows and effects
    """

    group: LongArray
    same: BoolArray
    own: FloatArray
    shares: FloatArray


def _inversions(
    sizes: Sequence[int], codes: Sequence[Any], deleted: Sequence[LongArray], lead: int
) -> float:
    """Return the multiplications of a point, about, if a term is absorbed."""
    rest = float(sum(sizes) - sizes[lead])
    touched = np.mean([np.unique(codes[lead][rows]).size for rows in deleted])
    size = np.mean([rows.size for rows in deleted])
    # Rows of the groups that lose rows, which have that many effects or fewer.
    width = min(rest, (len(sizes) - 1) * touched * codes[lead].size / sizes[lead])
    return float(rest**3 + len(deleted) * (size * width**2 + size**2 * width + size**3))


def _rounded_up(number: int) -> int:
    return -(-number // _PADDING) * _PADDING


def _padded(parts: Sequence[LongArray], size: int) -> LongArray:
    found = np.full((len(parts), size), -1, dtype=np.int64)
    for row, part in zip(found, parts, strict=True):
        row[: part.size] = part
    return found
