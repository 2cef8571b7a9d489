"""Further starts of a maximisation, for terms that may be larger at a higher maximum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray

_FEW = 12.0
"""Degrees of freedom, 2 σ⁴ I_tt, below which a component above zero may have several maxima."""

_MANY_LEVELS = 100
"""Levels from which the likelihood of a component is nearly normal."""

_TINY, _SMALL, _ALL_SETS = 20, 50, 3
"""Rows up to which few degrees of freedom alone call for other starts; rows and free terms up to
which all sets of terms are starts."""

_MOST = 0.8
"""Share of the total above which a component keeps its share in other starts of a small table."""

_NEARLY_ALL = 0.95
"""Share of the total above which a term may have absorbed the mean, as another term could."""

_UNLIKE = 0.02
"""Relative difference of observed and average information below which there is one maximum with
positive components, as for balanced data."""


@dataclass(frozen=True, slots=True)
class OtherStarts:
    """Starts of further climbs, where there may be a higher maximum than the first.

    Attributes
    ----------
    held : (k + 1,) held components
    sizes : (k + 1,) numbers of random effects, and of rows; zeros where unknown
    n_fixed : number of fixed effects
    """

    held: BoolArray
    sizes: FloatArray
    n_fixed: int = 0

    @property
    def is_crowded(self) -> bool:
        """Whether a small table has about as many effects as rows, so that they may fit it."""
        effects = self.sizes[:-1][~self.held[:-1]] - 1.0
        # Without a fixed mean, the mean of the effects adds one.
        rank = effects.sum() + max(self.n_fixed, 1)
        return bool(self._is_small and rank >= self.sizes[-1] - 1.0)

    @property
    def _is_small(self) -> bool:
        return bool(self.sizes[-1] <= _SMALL and (~self.held[:-1]).sum() <= _ALL_SETS)

    def doubtful(
        self, v: FloatArray, average: FloatArray, observed: Callable[[], FloatArray] | None
    ) -> BoolArray:
        """Return the terms that may be larger at a higher maximum than this one, (k + 1,).

        Parameters
        ----------
        v : (k + 1,) components at the maximum
        average, observed : informations there; the second is computed if needed, None if unknown
        """
        terms = self.free
        zero: BoolArray = terms & (v == 0.0)
        at_zero: BoolArray = zero & (self.sizes < _MANY_LEVELS)
        if at_zero.any() or observed is None:
            return at_zero
        # With hardly any information on a term, rounding may make it negative.
        unit = np.sqrt(np.maximum(np.diagonal(average), 0.0))
        few: BoolArray = (
            terms & ~zero & (self.sizes < _MANY_LEVELS) & (2.0 * np.square(v * unit) < _FEW)
        )
        # Without fixed effects any term can absorb the mean.
        has_mean = v[:-1].max() > _NEARLY_ALL * v.sum()
        if not few.any() or self.sizes[-1] <= _TINY or has_mean:
            return few
        inside = (v > 0.0) & ~self.held
        chosen = np.ix_(inside, inside)
        alike = np.abs(observed() - average)[chosen] < _UNLIKE * np.outer(unit, unit)[chosen]
        return at_zero if alike.all() else few

    @property
    def free(self) -> BoolArray:
        """Whether each component is that of a term and not held, (k + 1,)."""
        return ~self.held & (np.arange(self.held.size) < self.held.size - 1)

    @property
    def with_few_levels(self) -> BoolArray:
        """Which free terms have few levels, (k + 1,)."""
        return self.free & (self.sizes < _MANY_LEVELS)

    @property
    def are_along_components(self) -> bool:
        """Whether other maxima are sought along single components.

        In small tables with several terms, maxima may differ in all components.
        """
        return not self._is_small or int(self.free.sum()) == 1

    def elsewhere(self, v: FloatArray, doubtful: BoolArray) -> FloatArray:
        """Return shares of the components at other starts, a row each.

        Starts of small tables are all sets of terms, equal, with a large and with a small
        residual, and the residual alone. A term or residual with most of the total also keeps its
        share in some. If effects may fit the rows, the residual is also near zero. Starts of other
        tables are equal components, and each doubtful term above the others.

        Parameters
        ----------
        v, doubtful : (k + 1,) components at the end of the first climb, and terms that may be
            larger elsewhere
        """
        free, size = np.flatnonzero(self.free), v.size
        if not self._is_small:
            equal = np.where(self.held, 0.0, 1.0)
            starts: FloatArray = np.vstack([0.1 * equal, *np.eye(size)[doubtful]])
            starts[1:] = 0.1 * equal + free.size * starts[1:]
            starts /= starts.sum(axis=1, keepdims=True)
            return starts
        shares = (0.5, 0.01, 1e-7) if self.is_crowded else (0.5, 0.01)
        of_residual = v[-1] / v.sum()
        if of_residual > _MOST:
            shares = of_residual, *shares
        alone = np.eye(size)[-1:]
        rows = np.vstack([_sets(free, size, shares), alone])
        top = np.argmax(np.where(self.held, 0.0, v)[:-1])
        share = v[top] / v.sum()
        if _MOST < share < 1.0:
            below_top = (1.0 - share) * _sets(free[free != top], size, (0.5, 0.1))
            below_top[:, top] = share
            rows = np.vstack([rows, below_top])
        return rows


def _sets(free: LongArray, size: int, residuals: Sequence[float]) -> FloatArray:
    """Return shares of sets of free terms, large sets first, for each share of the residual."""
    masks = sorted(range(1, 2**free.size), key=lambda mask: -mask.bit_count())
    rows = np.zeros((len(masks) * len(residuals), size))
    for row, (mask, residual) in zip(rows, product(masks, residuals), strict=True):
        chosen = free[[bool(mask >> i & 1) for i in range(free.size)]]
        row[chosen], row[-1] = (1.0 - residual) / chosen.size, residual
    return rows
