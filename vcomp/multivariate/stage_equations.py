"""The equations of several variables: elimination order, sums over units, numbers of units.

Units are distributed to the levels of a partition: the levels of a facet, or the groups of a term.
A term is inside if each of its groups lies in one level. Effects are eliminated in three stages:

1. the inside term with the most groups, group by group;
2. the other inside terms, level by level;
3. all other terms and the means, together.

Groups of the first stage that are in the same groups of all outer terms in which their term is
nested form a class: they share the columns of the third stage that they can touch.

A unit has the scores that were observed together. Units in which the same variables were observed
have the same residual matrix; with R_p⁻¹ that of a pattern p, zero where a variable is missing,
every block of the mixed model equations is Σ_p n_p R_p⁻¹, where n_p are the units of both effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.design import number_combinations
from vcomp.display import memory
from vcomp.exceptions import EstimationError
from vcomp.multivariate.variables import VariableLayout
from vcomp.numerics import available_bytes, slices


@dataclass(frozen=True, slots=True, eq=False)
class GroupClass:
    """Groups of the first stage that touch the same columns of the third.

    Attributes
    ----------
    groups : positions of the groups
    columns : (c,) the columns that at least one of them touches
    levels : (m,) level of each group, ascending
    """

    groups: slice
    columns: LongArray
    levels: LongArray

    def rows(self, v: int) -> LongArray:
        """Return the rows of Ω, of v variables, that the class touches."""
        return np.asarray((self.columns[:, None] * v + np.arange(v)).ravel())


@dataclass(frozen=True, slots=True, eq=False)
class Elimination:
    """The position of the effects of every unit in each stage.

    Attributes
    ----------
    first : the term of the first stage
    inner, outer : the terms of the second and the third stage
    group : (units,) position in the first stage
    n_groups : number of groups there
    slots : for each inner term the (units,) position in the second stage, level by level
    n_levels : number of levels
    term_of_slot : (e,) inner term of the positions of one level
    columns : for each outer term, and the means, the (units,) position in the third stage
    n_columns : number of positions there; the means are the last
    classes : of the groups of the first stage
    """

    first: int
    inner: tuple[int, ...]
    outer: tuple[int, ...]
    group: LongArray
    n_groups: int
    slots: tuple[LongArray, ...]
    n_levels: int
    term_of_slot: IntArray
    columns: tuple[LongArray, ...]
    n_columns: int
    classes: tuple[GroupClass, ...]

    @property
    def n_slots(self) -> int:
        """Number of positions of a level in the second stage."""
        return self.term_of_slot.size

    @property
    def terms(self) -> tuple[int, ...]:
        """The terms that are eliminated in the first two stages."""
        return tuple(sorted((self.first, *self.inner)))

    @property
    def pairs_per_class(self) -> list[int]:
        """Number of pairs of a group and a column in each class."""
        return [c.levels.size * c.columns.size for c in self.classes]

    def multiplications(self, v: int) -> float:
        """Return the approximate number of multiplications of an evaluation with v variables."""
        first = sum(c.levels.size * float(c.columns.size * v) ** 2 * v for c in self.classes)
        width, columns = float(self.n_slots * v), float(self.n_columns * v)
        second = self.n_levels * width * (width**2 + columns**2)
        return 3.0 * (first + second) + 8.0 * columns**3

    def numbers(self, v: int) -> float:
        """Return the approximate memory of an evaluation with v variables, in numbers."""
        first = sum(self.pairs_per_class) + self.n_groups * (self.n_slots + 2)
        second = self.n_levels * self.n_slots * (3 * self.n_slots + 3 * self.n_columns)
        return float(v) ** 2 * (first + second + 9.0 * float(self.n_columns) ** 2)


def plan_elimination(
    groups: Sequence[IntArray],
    sizes: Sequence[int],
    facets: Sequence[tuple[IntArray, int]],
    v: int,
) -> Elimination:
    """Return the elimination with the fewest multiplications.

    Parameters
    ----------
    groups : for each term the (units,) group of every unit
    sizes : numbers of groups
    facets : for each facet the (units,) level of every unit, and the number of levels
    v : number of variables
    """
    best: Elimination | None = None
    tried: set[frozenset[int]] = set()
    partitions = [*zip(groups, sizes, strict=True), *facets]
    for level, n_levels in sorted(partitions, key=lambda partition: -partition[1]):
        inside = frozenset(
            t for t, q in enumerate(sizes) if _is_nested(groups[t], q, level, n_levels)
        )
        outside = 1 + sum(q for t, q in enumerate(sizes) if t not in inside)
        if not inside or inside in tried:
            continue
        tried.add(inside)
        if best is not None and 8.0 * float(outside * v) ** 3 > best.multiplications(v):
            continue
        plan = _planned(groups, sizes, level, n_levels, inside)
        if best is None or plan.multiplications(v) < best.multiplications(v):
            best = plan
    assert best is not None, "the groups of a term are a partition that the term is inside"
    return best


def _is_nested(group: IntArray, size: int, level: IntArray, n_levels: int) -> bool:
    """Return whether each group lies in one level."""
    if n_levels > size:
        return False
    first = np.empty(size, dtype=level.dtype)
    first[group] = level
    return bool((first[group] == level).all())


def _planned(
    groups: Sequence[IntArray],
    sizes: Sequence[int],
    level: IntArray,
    n_levels: int,
    inside: frozenset[int],
) -> Elimination:
    first = max(inside, key=lambda t: (sizes[t], -t))
    inner = tuple(sorted(inside - {first}))
    outer = tuple(t for t in range(len(sizes)) if t not in inside)
    columns, n_columns = _columns(groups, sizes, outer)
    slots, term_of_slot = _slots(groups, sizes, level, n_levels, inner)
    level_of = np.zeros(sizes[first], dtype=np.int64)
    level_of[groups[first]] = level
    key, n_keys = np.zeros(sizes[first], dtype=np.int64), 1
    for t in outer:
        if _is_nested(groups[first], sizes[first], groups[t], sizes[t]):
            own = np.zeros(sizes[first], dtype=np.int32)
            own[groups[first]] = groups[t]
            keys, numbers = number_combinations(key, n_keys, own, sizes[t])
            key, n_keys = numbers.astype(np.int64), keys.size
    order = np.lexsort((level_of, key))
    place = np.empty(order.size, dtype=np.int64)
    place[order] = np.arange(order.size)
    key_of_unit = key[groups[first]]
    return Elimination(
        first=first,
        inner=inner,
        outer=outer,
        group=place[groups[first]],
        n_groups=sizes[first],
        slots=slots,
        n_levels=n_levels,
        term_of_slot=term_of_slot,
        columns=columns,
        n_columns=n_columns,
        classes=tuple(_classes(key[order], level_of[order], key_of_unit, columns, n_columns)),
    )


def _columns(
    groups: Sequence[IntArray], sizes: Sequence[int], outer: tuple[int, ...]
) -> tuple[tuple[LongArray, ...], int]:
    """Return the positions of the outer terms and the means in the third stage."""
    columns, start = [], 0
    for t in outer:
        columns.append(start + groups[t].astype(np.int64))
        start += sizes[t]
    return (*columns, np.full(groups[0].size, start, dtype=np.int64)), start + 1


def _slots(
    groups: Sequence[IntArray],
    sizes: Sequence[int],
    level: IntArray,
    n_levels: int,
    inner: tuple[int, ...],
) -> tuple[tuple[LongArray, ...], IntArray]:
    """Return the positions of the inner terms in the second stage, and the terms of a level."""
    ranks: list[LongArray] = []
    terms: list[int] = []
    for t in inner:
        level_of = np.zeros(sizes[t], dtype=np.int64)
        level_of[groups[t]] = level
        counts = np.bincount(level_of, minlength=n_levels)
        order = np.argsort(level_of, kind="stable")
        rank = np.empty(sizes[t], dtype=np.int64)
        rank[order] = np.arange(sizes[t]) - (np.cumsum(counts) - counts)[level_of[order]]
        ranks.append(len(terms) + rank)
        terms += [t] * int(counts.max())
    starts = level.astype(np.int64) * len(terms)
    slots = tuple(starts + rank[groups[t]] for t, rank in zip(inner, ranks, strict=True))
    return slots, np.array(terms, dtype=np.int32)


def _classes(
    key: LongArray,
    levels: LongArray,
    key_of_unit: LongArray,
    columns: Sequence[LongArray],
    n_columns: int,
) -> Iterator[GroupClass]:
    """Yield the classes with the columns that their units touch; keys of groups ascend."""
    n_keys = int(key[-1]) + 1
    touched = []
    for column in columns:
        code = column.astype(np.int32)
        touched.append(
            number_combinations(key_of_unit.astype(np.int32), n_keys, code, n_columns)[0]
        )
    pairs = np.unique(np.concatenate(touched))
    of_key = pairs // n_columns
    group_ends = np.searchsorted(key, np.arange(n_keys + 1))
    pair_ends = np.searchsorted(of_key, np.arange(n_keys + 1))
    for c in range(n_keys):
        groups = slice(int(group_ends[c]), int(group_ends[c + 1]))
        own = pairs[pair_ends[c] : pair_ends[c + 1]] % n_columns
        yield GroupClass(groups, own, levels[groups])


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Scores as a matrix with a row for each unit, sorted by pattern.

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
        product = np.empty_like(X)
        for part, block in zip(self.parts, blocks, strict=True):
            product[part] = X[part] @ block
        return product

    def products(self, X: FloatArray) -> FloatArray:
        """Return the sums of products of the columns of X in every pattern, (p, c, c)."""
        return np.array([X[part].T @ X[part] for part in self.parts])


def units_of(layout: VariableLayout, y: FloatArray) -> Units:
    """Return the units of a layout, with scores on any scale.

    Parameters
    ----------
    layout : of the scores
    y : (n,) the scores
    """
    scores, v = layout.scores, layout.n_variables
    Y = np.zeros((scores.n_units, v))
    observed = np.zeros((scores.n_units, v), dtype=bool)
    Y[scores.unit, scores.variable] = y
    observed[scores.unit, scores.variable] = True
    name = observed @ np.left_shift(np.int64(1), np.arange(v))
    order = np.argsort(name, kind="stable")
    starts = np.flatnonzero(np.diff(name[order], prepend=-1))
    ends = np.append(starts[1:], order.size)
    parts = tuple(slice(int(a), int(b)) for a, b in zip(starts, ends, strict=True))
    return Units(Y[order], observed[order][starts], parts, order)


def of_units(layout: VariableLayout, values: Any, order: LongArray) -> Any:
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
class PairCounts:
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


def count_units(plan: Elimination, pattern: LongArray, n: int) -> PairCounts:
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
    return PairCounts(
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
    pairs = []
    for column in plan.columns:
        key = of_group[plan.group] * plan.n_columns + column
        pairs.append((starts - before)[plan.group] + np.searchsorted(known, key))
    return pairs


_MOST_EFFECTS = 5000
"""Largest number of effects of the last stage."""

_MOST_VARIABLES = 60
"""Largest number of variables: those observed in a unit are bits of one integer."""

CHUNK = 100_000
"""Approximate number of elements of temporary arrays, which fit into a processor's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class StageEquations:
    """Sums over the units of the effects of all stages.

    Attributes
    ----------
    layout : of the scores
    reml : whether for the restricted likelihood, or the full one
    units : the scores
    plan : order of elimination
    counts : numbers of units of pairs of effects
    stages : sums over the units of the effects of each stage
    chunk : approximate number of elements of temporary arrays
    """

    layout: VariableLayout
    reml: bool
    units: Units
    plan: Elimination
    counts: PairCounts
    stages: tuple[StageSums, StageSums, StageSums]
    chunk: int = CHUNK

    @property
    def v(self) -> int:
        """Number of variables."""
        return self.layout.n_variables

    @property
    def k(self) -> int:
        """Number of terms, without the residual."""
        return len(self.layout.names) - 1

    def groups_of_outer(self) -> Iterator[tuple[int, slice]]:
        """Yield each term of the third stage with the positions of its groups."""
        first = 0
        for t in self.plan.outer:
            yield t, slice(first, first + self.layout.sizes[t])
            first += self.layout.sizes[t]

    def at_once(self, columns: int) -> int:
        """Return the number of groups or levels in a block of arrays with so many columns."""
        return max(1, self.chunk // max(1, columns * self.v**2))

    def parts(self, group_class: GroupClass, columns: int = 0) -> Iterator[tuple[slice, slice]]:
        """Yield parts of a class, and the positions of their groups.

        Parameters
        ----------
        group_class : of the first stage
        columns : number of blocks (v, v) that arrays have for each group, if more than its own
        """
        own, first = group_class.columns.size + self.plan.n_slots, group_class.groups.start
        for part in slices(group_class.levels.size, self.at_once(max(own, columns))):
            yield part, slice(first + part.start, first + part.stop)


@dataclass(frozen=True, slots=True, eq=False)
class EquationsPoint:
    """The factored equations at given covariance components.

    Attributes
    ----------
    inverses : (p, v, v) residual matrices of the patterns inverted, 0 where a variable is missing
    D, E1, F1 : (groups, v, v) U'R⁻¹U, E of the first stage, and F with FF' = E
    inner : (groups, v, w) U'R⁻¹ times the second stage, w positions times variables of a level
    outer : for each class (m, v, c v) U'R⁻¹ times its columns of the third stage
    A, E2 : (levels, w, w) U'V⁻¹U and E of the second stage, V with the first one
    mixed : (levels, w, columns v) U'V⁻¹ of the second stage times the third
    omega : Ω of the third stage
    psi, psi_v : P = V⁻¹ − V⁻¹W Ψ W'V⁻¹ and the same of the V with all terms
    half : the rows of that Ψ which the criterion needs are L times these
    Py : (units, v)
    """

    loglike: float
    S: FloatArray
    inverses: FloatArray
    D: FloatArray
    E1: FloatArray
    F1: FloatArray
    inner: FloatArray
    outer: list[FloatArray]
    A: FloatArray
    E2: FloatArray
    mixed: FloatArray
    omega: FloatArray
    psi: FloatArray
    psi_v: FloatArray
    half: FloatArray
    Py: FloatArray


def equations_of(
    layout: VariableLayout, y: FloatArray, *, reml: bool, chunk: int = CHUNK
) -> StageEquations:
    """Return the equations of scores y (n,).

    Raises
    ------
    EstimationError
        If the terms have too many effects, or there are too many variables.
    """
    _check_variables(layout.n_variables)
    units, scores = units_of(layout, y), layout.scores
    plan = plan_elimination(
        [of_units(layout, g, units.order) for g in layout.groups[:-1]],
        layout.sizes[:-1],
        [
            (of_units(layout, codes, units.order), len(levels))
            for codes, levels in zip(scores.codes, scores.levels, strict=True)
        ],
        layout.n_variables,
    )
    _check_size(layout, plan)
    pattern, n = units.pattern, len(units.parts)
    stages = (
        stage_sums([plan.group], plan.n_groups, pattern, n),
        stage_sums(plan.slots, plan.n_levels * plan.n_slots, pattern, n),
        stage_sums(plan.columns, plan.n_columns, pattern, n),
    )
    counts = count_units(plan, pattern, n)
    return StageEquations(layout, reml, units, plan, counts, stages, chunk)


def _check_variables(v: int) -> None:
    if v > _MOST_VARIABLES:
        raise EstimationError(
            f"there are {v} variables, and REML and ML are for up to {_MOST_VARIABLES}; use "
            "method='anova'"
        )


def _check_size(
    layout: VariableLayout, plan: Elimination, free_bytes: Callable[[], float] = available_bytes
) -> None:
    v = layout.n_variables
    effects = (plan.n_columns - 1) * v
    needed = 8.0 * (plan.numbers(v) + 4.0 * layout.scores.n * len(layout.names))
    if effects > _MOST_EFFECTS or needed > 0.8 * free_bytes():
        names = ", ".join(layout.names[t] for t in plan.terms)
        raise EstimationError(
            f"the terms except {names} have {effects:,} effects in {v} variables, and the "
            f"equations need {memory(needed)}; the limit is {_MOST_EFFECTS:,} effects, and 80 % "
            "of the free memory. Use method='anova', which has no limit, or fewer variables at "
            "once"
        )
