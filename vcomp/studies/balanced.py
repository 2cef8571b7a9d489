"""Variance components of subsets of a balanced table in closed form.

The sum of squares of a balanced table is the sum of those of its mean and of the contrasts of
every set s of its axes. A stratum s has df_s = Π_{f∈s} (n_f − 1), and its expected mean square is
the sum of σ²_t Π_{f∉t} n_f over the terms t that contain all facets of s, with those that they
are nested in. Sums of squares of the terms are sums over strata, so that estimates are linear in
these, with coefficients that depend on the numbers of levels only (Brennan 2001, Generalizability
Theory, sec. 3.2 and 3.3; Tjur 1984).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.design import Chunk, Design
from vcomp.formula import REPLICATE
from vcomp.inference import VarianceComponents
from vcomp.inference.resampling import Levels, Sample
from vcomp.numerics import solve
from vcomp.statistics import split_axes


@dataclass(frozen=True, slots=True, eq=False)
class BalancedTable:
    """The scores of a balanced design as an array.

    Attributes
    ----------
    scores : (n_1, …, n_F, r) minus the origin: an axis for each facet and one for replicates.
        Levels of a nested facet are numbered within each combination that it is nested in
    above : for each facet the positions of those that it is nested in
    """

    scores: FloatArray
    above: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, design: Design, chunk: Chunk) -> BalancedTable | None:
        """Return the rows as a table; None if they are not balanced.

        Parameters
        ----------
        design : of the data
        chunk : its rows
        """
        if not design.structure.balanced:
            return None
        structure, whole = design.structure, Sample.whole(chunk)
        places = np.zeros(chunk.n, dtype=np.int64)
        shape, above = [], []
        for facet in structure.facets:
            outer = structure.nested_in[facet]
            levels = Levels.of(whole, structure.facets, structure.nested_in, facet)
            sizes = levels.per_group
            if sizes.min() < sizes.max():
                return None
            places = places * int(sizes[0]) + _within(levels)
            shape.append(int(sizes[0]))
            above.append(tuple(p for p, f in enumerate(structure.facets) if f in outer))
        counts = np.bincount(places, minlength=prod(shape))
        if counts.min() < counts.max():
            return None
        order = np.argsort(places, kind="stable")
        return cls(chunk.y[order].reshape(*shape, -1), tuple(above))

    def take(self, chosen: Sequence[LongArray]) -> FloatArray:
        """Return a subset of the table.

        Parameters
        ----------
        chosen : for each facet the chosen levels, with an axis for each facet that it is nested in
            and then its own: ``(n,)``, or ``(n_outer, n)``
        """
        n_axes = self.scores.ndim - 1
        places = []
        for facet, levels in enumerate(chosen):
            shape = [1] * n_axes
            for axis, size in zip((*self.above[facet], facet), levels.shape, strict=True):
                shape[axis] = size
            # Axes are in the order of the facets, in which outer ones need not be first.
            order = np.argsort((*self.above[facet], facet))
            places.append(levels.transpose(order).reshape(shape))
        return self.scores[tuple(places)]


class BalancedEstimator:
    """The analysis of variance of balanced tables of one shape, from their sums of squares.

    Parameters
    ----------
    components : whose facets and nesting are used, not their values
    facets : of the table, in the order of its axes
    shape : (n_1, …, n_F, r) of the tables

    Raises
    ------
    numpy.linalg.LinAlgError
        If the components cannot be distinguished in tables of this shape.
    """

    def __init__(
        self, components: VarianceComponents, facets: Sequence[str], shape: Sequence[int]
    ) -> None:
        self._axes = tuple(int(n) for n in (shape if shape[-1] > 1 else shape[:-1]))
        everything = frozenset(range(len(self._axes)))
        numbers = {facet: f for f, facet in enumerate((*facets, REPLICATE))}
        terms = [frozenset(numbers[f] for f in t) & everything for t in components.facets[:-1]]
        terms.append(everything)
        # The order of stratum_squares(), which splits one axis after the other.
        strata: list[frozenset[int]] = [frozenset()]
        for axis in range(len(self._axes)):
            strata = [part for s in strata for part in (s, s | {axis})]
        inside = np.array([[bool(s) and s <= t for s in strata] for t in terms], dtype=float)
        df = np.array([prod(self._axes[f] - 1 for f in s) for s in strata], dtype=float)
        sizes = np.array([prod(self._axes[f] for f in everything - t) for t in terms], dtype=float)
        expected = (inside * df) @ (inside.T * sizes)
        self._from_squares = solve(expected, inside)

    def __call__(self, table: FloatArray) -> tuple[FloatArray, float]:
        """Return the (k + 1,) components, negative ones as estimated, and the mean."""
        squares, mean = stratum_squares(table, self._axes)
        return self._from_squares @ squares, mean


def stratum_squares(table: FloatArray, axes: tuple[int, ...]) -> tuple[FloatArray, float]:
    """Return the sum of squares of every stratum of a balanced table, and the mean of the table.

    Parameters
    ----------
    table : of scores
    axes : its numbers of levels

    Returns
    -------
    squares : (2^F,), the mean's first; of each further axis its means before its contrasts
    mean : of all scores

    Examples
    --------
    >>> stratum_squares(np.array([[1.0, 3.0], [5.0, 11.0]]), (2, 2))
    (array([100.,  16.,  36.,   4.]), 5.0)
    """
    # A copy, as it is overwritten; squares of contrasts keep their digits if the mean is large.
    parts = split_axes(table.reshape(-1).copy(), axes)
    squares = np.array([np.vdot(part, part) for part in parts.values()])
    return squares, float(table.mean())


def _within(levels: Levels) -> LongArray:
    """Return the number of each row's level within its group."""
    level = np.empty(levels.order.size, dtype=np.int64)
    level[levels.order] = np.repeat(np.arange(levels.n), np.diff(levels.starts))
    return level - levels.first[level]
