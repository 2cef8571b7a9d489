"""Any number of collections as the rows of two matrices, which is what kernels take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.ir.kernels import falling_order, swaps

_ROUNDING = 64 * float(np.finfo(float).eps)
"""Means this close, relative to the largest, differ by rounding alone and are tied."""


def rounding(means: FloatArray) -> FloatArray:
    """Return how far means on the last axis may be apart and still differ by rounding alone."""
    largest: FloatArray = np.abs(means).max(axis=-1)
    return _ROUNDING * largest


@dataclass(frozen=True, eq=False)
class MeanRows:
    """Means of collections and true means; what several measures need of them is found once.

    Attributes
    ----------
    means, truth : (m, k) a row a collection, a column a system

    Examples
    --------
    >>> rows, shape = MeanRows.of(np.zeros((5, 4, 3)), np.zeros(3))
    >>> rows.truth.shape, shape
    ((20, 3), (5, 4))
    """

    means: FloatArray
    truth: FloatArray

    @classmethod
    def of(cls, means: FloatArray, true_means: FloatArray) -> tuple[MeanRows, tuple[int, ...]]:
        """Return the rows of two arrays that broadcast, and the shape of one value a row."""
        x, y = np.broadcast_arrays(means, true_means)
        k, shape = x.shape[-1], x.shape[:-1]
        rows = (np.ascontiguousarray(a, dtype=float).reshape(-1, k) for a in (x, y))
        return cls(*rows), shape

    @property
    def n_systems(self) -> int:
        """Number of systems k."""
        return int(self.means.shape[1])

    @cached_property
    def tolerances(self) -> tuple[FloatArray, FloatArray]:
        """(m,) and (m,): how far means, and true means, are apart by rounding alone."""
        return rounding(self.means), rounding(self.truth)

    @cached_property
    def orders(self) -> tuple[LongArray, LongArray]:
        """(m, k) and (m, k): systems by falling means, and by falling true means."""
        return falling_order(self.means), falling_order(self.truth)

    @cached_property
    def swaps(self) -> tuple[LongArray, FloatArray]:
        """Pairs in another order, and their shares; see the kernel. Rows with ties have none."""
        pairs, shares = swaps(self.means, self.truth, *self.tolerances, *self.orders)
        return pairs, shares

    def filled(self, untied: FloatArray, of_tied: Callable[[MeanRows], FloatArray]) -> FloatArray:
        """Return values of rows without ties, and of the others what `of_tied` gives for them."""
        tied = self.swaps[0] < 0
        if tied.any():
            untied[tied] = of_tied(MeanRows(self.means[tied], self.truth[tied]))
        return untied
