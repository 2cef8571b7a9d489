"""Which effects are eliminated first, where they are, and what they share with others.

Units are distributed to the levels of a partition: the levels of a facet, or the groups of a term.
A term is inside if each of its groups lies in one level. Effects are eliminated in three stages:

1. the inside term with the most groups, group by group;
2. the other inside terms, level by level;
3. all other terms and the means, together.

Groups of the first stage that are in the same groups of all outer terms in which their term is
nested form a class: they share the columns of the third stage that they can touch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vcomp._typing import IntArray, LongArray
from vcomp.design import number_combinations


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
        """Return the multiplications of an evaluation, about, for v variables."""
        first = sum(c.levels.size * float(c.columns.size * v) ** 2 * v for c in self.classes)
        width, columns = float(self.n_slots * v), float(self.n_columns * v)
        second = self.n_levels * width * (width**2 + columns**2)
        return 3.0 * (first + second) + 8.0 * columns**3

    def numbers(self, v: int) -> float:
        """Return how many numbers an evaluation keeps, about, for v variables."""
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
    key = np.zeros(sizes[first], dtype=np.int64)
    for t in outer:
        if _is_nested(groups[first], sizes[first], groups[t], sizes[t]):
            own = np.zeros(sizes[first], dtype=np.int64)
            own[groups[first]] = groups[t]
            key = np.unique(key * sizes[t] + own, return_inverse=True)[1].astype(np.int64)
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
    found, start = [], 0
    for t in outer:
        found.append(start + groups[t].astype(np.int64))
        start += sizes[t]
    return (*found, np.full(groups[0].size, start, dtype=np.int64)), start + 1


def _slots(
    groups: Sequence[IntArray],
    sizes: Sequence[int],
    level: IntArray,
    n_levels: int,
    inner: tuple[int, ...],
) -> tuple[tuple[LongArray, ...], IntArray]:
    """Return the positions of the inner terms in the second stage, and the terms of a level's."""
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
