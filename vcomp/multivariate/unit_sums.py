"""Sums over the units of the stages of an elimination.

A unit has the scores that were observed together. Units in which the same variables were observed
have the same residual matrix; with R_p⁻¹ that of a pattern p, zero where a variable is missing,
every block of the mixed model equations is Σ_p n_p R_p⁻¹, where n_p are the units of both effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.multivariate.elimination_plan import Elimination
from vcomp.multivariate.variable_layout import Layout

_FEW_GROUPS = 4
"""Groups of a level below which products of groups cost less than a product for each level."""


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Scores as a matrix: a row for each unit, those of one pattern together.

    Attributes
    ----------
    Y : (units, v) the scores, 0 where missing
    observed : (p, v) the variables of each pattern
    parts : the units of each pattern
    order : (units,) number of each unit in the layout
    """

    Y: FloatArray
    observed: BoolArray
    parts: tuple[slice, ...]
    order: LongArray

    @property
    def sizes(self) -> LongArray:
        """Number of units of each pattern."""
        return np.array([part.stop - part.start for part in self.parts])

    @property
    def pattern(self) -> LongArray:
        """The pattern of every unit."""
        return np.repeat(np.arange(len(self.parts)), self.sizes)

    def times(self, X: FloatArray, blocks: FloatArray) -> FloatArray:
        """Return the rows of X times the (p, v, v) matrix of their pattern."""
        made = np.empty_like(X)
        for part, block in zip(self.parts, blocks, strict=True):
            made[part] = X[part] @ block
        return made

    def products(self, X: FloatArray) -> FloatArray:
        """Return the sums of products of the columns of X in every pattern, (p, c, c)."""
        return np.array([X[part].T @ X[part] for part in self.parts])


def units_of(layout: Layout, y: FloatArray) -> Units:
    """Return the units of a layout, with scores on any scale.

    Parameters
    ----------
    layout : of the scores
    y : (n,) the scores
    """
    scores, v = layout.scores, layout.n_variables
    Y = np.zeros((scores.n_units, v))
    there = np.zeros((scores.n_units, v), dtype=bool)
    Y[scores.unit, scores.variable] = y
    there[scores.unit, scores.variable] = True
    name = there @ np.left_shift(np.int64(1), np.arange(v))
    order = np.argsort(name, kind="stable")
    starts = np.flatnonzero(np.diff(name[order], prepend=-1))
    ends = np.append(starts[1:], order.size)
    parts = tuple(slice(int(a), int(b)) for a, b in zip(starts, ends, strict=True))
    return Units(Y[order], there[order][starts], parts, order)


def of_units(layout: Layout, values: Any, order: LongArray) -> Any:
    """Return the value of every unit, in an order, from those of its scores."""
    found = np.zeros(layout.scores.n_units, dtype=np.int32)
    found[layout.scores.unit] = values
    return found[order]


@dataclass(frozen=True, slots=True, eq=False)
class StageSums:
    """Sums over the units of the effects of one stage.

    Attributes
    ----------
    places : (q, units) ones where an effect is in a unit
    by_pattern : (entries, units) the same, a row for each pattern of an effect
    patterns : (entries,) those patterns, ascending within an effect
    starts : (q + 1,) first entry of each effect
    """

    places: Any
    by_pattern: Any
    patterns: LongArray
    starts: LongArray


def stage_sums(positions: Sequence[LongArray], q: int, pattern: LongArray, n: int) -> StageSums:
    """Return the sums of a stage.

    Parameters
    ----------
    positions : for each term of the stage the (units,) effect of every unit
    q : number of effects
    pattern : (units,) pattern of every unit
    n : number of patterns
    """
    from scipy.sparse import csr_array

    units = pattern.size
    effect = np.concatenate([np.zeros(0, dtype=np.int64), *positions])
    unit = np.tile(np.arange(units), len(positions))
    ones = np.ones(effect.size)
    keys, entry = np.unique(effect * n + pattern[unit], return_inverse=True)
    return StageSums(
        places=csr_array((ones, (effect, unit)), shape=(q, units)),
        by_pattern=csr_array((ones, (entry, unit)), shape=(keys.size, units)),
        patterns=keys % n,
        starts=np.searchsorted(keys // n, np.arange(q + 1)),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Numbers of units of pairs of effects, (pairs, patterns), sparse.

    Attributes
    ----------
    own : of each group of the first stage
    inner : of a group, and the positions of the second stage in its level
    outer : of a group, and the columns of its class
    slots : of two positions of one level
    mixed : of a position of a level and a column
    columns : of two columns
    """

    own: Any
    inner: Any
    outer: Any
    slots: Any
    mixed: Any
    columns: Any


def count_units(plan: Elimination, pattern: LongArray, n: int) -> Counts:
    """Return the numbers of units of all pairs of effects that an evaluation needs."""
    from scipy.sparse import csr_array

    def counted(rows: list[LongArray], size: int) -> Any:
        if not rows:
            return csr_array((size, n))
        row = np.concatenate(rows)
        column = np.tile(pattern, len(rows))
        return csr_array((np.ones(row.size), (row, column)), shape=(size, n))

    e, q = plan.n_slots, plan.n_columns
    local = [slot % e for slot in plan.slots]
    return Counts(
        own=counted([plan.group], plan.n_groups),
        inner=counted([plan.group * e + slot for slot in local], plan.n_groups * e),
        outer=counted(_outer_pairs(plan), sum(plan.pairs_per_class)),
        slots=counted(
            [a * e + b for a in plan.slots for b in local],
            plan.n_levels * e * e,
        ),
        mixed=counted(
            [slot * q + column for slot in plan.slots for column in plan.columns],
            plan.n_levels * e * q,
        ),
        columns=counted([a * q + b for a in plan.columns for b in plan.columns], q * q),
    )


def _outer_pairs(plan: Elimination) -> list[LongArray]:
    """Return for each column of a unit the pair with its group, class after class."""
    sizes = np.array([c.columns.size for c in plan.classes])
    of_group = np.repeat(np.arange(sizes.size), [c.levels.size for c in plan.classes])
    starts = np.cumsum(sizes[of_group]) - sizes[of_group]
    known = np.concatenate([k * plan.n_columns + c.columns for k, c in enumerate(plan.classes)])
    before = (np.cumsum(sizes) - sizes)[of_group]
    found = []
    for column in plan.columns:
        key = of_group[plan.group] * plan.n_columns + column
        found.append((starts - before)[plan.group] + np.searchsorted(known, key))
    return found


def subtract_by_level(
    totals: FloatArray, levels: LongArray, left: FloatArray, right: FloatArray
) -> None:
    """Subtract the sums of left'right over the groups of each level from its total.

    Parameters
    ----------
    totals : (levels, x, y), or of that size
    levels : (q,) level of each group, ascending
    left, right : (q, r, x) and (q, r, y) of the groups
    """
    from scipy.sparse import csr_array

    starts = np.flatnonzero(np.diff(levels, prepend=-1))
    shape = totals.shape[1:]
    if levels.size < _FEW_GROUPS * starts.size:
        made = (left.transpose(0, 2, 1) @ right).reshape(levels.size, -1)
        sums = csr_array((np.ones(levels.size), np.arange(levels.size), [*starts, levels.size]))
        totals[levels[starts]] -= (sums @ made).reshape(-1, *shape)
        return
    rows = left.shape[1]
    left, right = left.reshape(-1, left.shape[2]), right.reshape(-1, right.shape[2])
    for start, stop in pairwise([*starts.tolist(), levels.size]):
        part = slice(start * rows, stop * rows)
        totals[levels[start]] -= (left[part].T @ right[part]).reshape(shape)
