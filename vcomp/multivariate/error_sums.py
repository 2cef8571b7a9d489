"""Sums of the covariances of errors of effects, stage by stage of the elimination."""

from __future__ import annotations

from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.multivariate.elimination_plan import Elimination
from vcomp.multivariate.unit_sums import Counts


class ErrorSums:
    """Sums of the covariances of errors over the pairs of effects in the units of each pattern.

    Parameters
    ----------
    counts : of the pairs of effects of each stage, by pattern
    plan : of the elimination
    v : number of variables
    """

    def __init__(self, counts: Counts, plan: Elimination, v: int) -> None:
        self._counts, self._plan, self._v = counts, plan, v
        self._starts = np.cumsum([0, *plan.pairs_per_class])
        self._total = np.zeros((counts.columns.shape[1], v, v))

    def total(self) -> FloatArray:
        """Return the sums, (patterns, v, v)."""
        return self._total

    def _add(self, counts: Any, blocks: FloatArray, *, mixed: bool) -> None:
        """Add blocks (rows, v, columns, v), once or with their transposes."""
        v = self._v
        flat = np.ascontiguousarray(blocks.transpose(0, 2, 1, 3)).reshape(-1, v * v)
        made = (counts.T @ flat).reshape(-1, v, v)
        self._total += made + made.transpose(0, 2, 1) if mixed else made

    def add_columns(self, psi: FloatArray) -> None:
        """Add the errors of the third stage."""
        q = self._plan.n_columns
        self._add(self._counts.columns, psi.reshape(q, self._v, q, self._v), mixed=False)

    def add_levels(self, part: slice, C: FloatArray, mixed: FloatArray) -> None:
        """Add the errors of the second stage, and its covariances with the third."""
        v, e, q = self._v, self._plan.n_slots, self._plan.n_columns
        rows = slice(part.start * e * e, part.stop * e * e)
        self._add(self._counts.slots[rows], C.reshape(-1, v, e, v), mixed=False)
        rows = slice(part.start * e * q, part.stop * e * q)
        self._add(self._counts.mixed[rows], mixed.reshape(-1, v, q, v), mixed=True)

    def add_groups(self, groups: slice, C: FloatArray, inner: FloatArray) -> None:
        """Add the errors of groups of the first stage, and their covariances with the second."""
        v, e = self._v, self._plan.n_slots
        self._add(self._counts.own[groups], C[:, :, None, :], mixed=False)
        if e:
            rows = slice(groups.start * e, groups.stop * e)
            self._add(self._counts.inner[rows], inner.reshape(-1, v, e, v), mixed=True)

    def add_outer(self, place: int, part: slice, outer: FloatArray) -> None:
        """Add the covariances of the errors of groups of a class with its columns."""
        c = self._plan.classes[place].columns.size
        first = int(self._starts[place])
        rows = slice(first + part.start * c, first + part.stop * c)
        self._add(self._counts.outer[rows], outer.reshape(-1, self._v, c, self._v), mixed=True)
