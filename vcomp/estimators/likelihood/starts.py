"""Other starts of a maximisation: which terms leave a doubt, and where to climb from again."""

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
"""Rows below which few degrees of freedom are a doubt; rows and terms whose sets are starts."""

_MOST = 0.8
"""Share of the total above which a term stays there at other starts of a small table."""

_NEARLY_ALL = 0.95
"""Share of the total of a term that may have the mean, which another term could have."""

_UNLIKE = 0.02
"""Relative difference of informations below which there is one maximum inside, as if balanced."""


@dataclass(frozen=True, slots=True)
class OtherStarts:
    """Where a maximisation starts again if its first climb leaves a doubt.

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
        """Whether the effects of a small table are about as many as its rows, and may fit them."""
        effects = self.sizes[:-1][~self.held[:-1]] - 1.0
        # Without a mean among the fixed effects, that of all effects is one more.
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
        found: BoolArray = zero & (self.sizes < _MANY_LEVELS)
        if found.any() or observed is None:
            return found
        # Where the data say next to nothing about a term, rounding may make it less than nothing.
        unit = np.sqrt(np.maximum(np.diagonal(average), 0.0))
        few: BoolArray = (
            terms & ~zero & (self.sizes < _MANY_LEVELS) & (2.0 * np.square(v * unit) < _FEW)
        )
        # Without fixed effects any of the terms can have the mean.
        has_mean = v[:-1].max() > _NEARLY_ALL * v.sum()
        if not few.any() or self.sizes[-1] <= _TINY or has_mean:
            return few
        inside = (v > 0.0) & ~self.held
        chosen = np.ix_(inside, inside)
        alike = np.abs(observed() - average)[chosen] < _UNLIKE * np.outer(unit, unit)[chosen]
        return found if alike.all() else few

    @property
    def free(self) -> BoolArray:
        """Which terms are not held; the residual is none, (k + 1,)."""
        return ~self.held & (np.arange(self.held.size) < self.held.size - 1)

    @property
    def with_few_levels(self) -> BoolArray:
        """Which free terms have few levels, (k + 1,)."""
        few: BoolArray = self.free & (self.sizes < _MANY_LEVELS)
        return few

    @property
    def are_along_components(self) -> bool:
        """Whether other maxima are sought along single components.

        In small tables with several terms, maxima may differ in all components.
        """
        return not self._is_small or int(self.free.sum()) == 1

    def elsewhere(self, v: FloatArray, doubtful: BoolArray) -> FloatArray:
        """Return shares of the components at other starts, a row each.

        For small tables these are all sets of terms, equal, with a large and with a small
        residual, also beside a term or a residual that has most of the total, and the residual
        alone; next to a residual of zero, too, if effects may fit the rows. For others they are
        equal components, and each doubtful term above the others.

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
            beside = (1.0 - share) * _sets(free[free != top], size, (0.5, 0.1))
            beside[:, top] = share
            rows = np.vstack([rows, beside])
        return rows


def _sets(free: LongArray, size: int, residuals: Sequence[float]) -> FloatArray:
    """Return shares of sets of free terms, large sets first, for each share of the residual."""
    masks = sorted(range(1, 2**free.size), key=lambda mask: -mask.bit_count())
    rows = np.zeros((len(masks) * len(residuals), size))
    for row, (mask, residual) in zip(rows, product(masks, residuals), strict=True):
        chosen = free[[bool(mask >> i & 1) for i in range(free.size)]]
        row[chosen], row[-1] = (1.0 - residual) / chosen.size, residual
    return rows
