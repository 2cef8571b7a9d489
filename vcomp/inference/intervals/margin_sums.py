"""Groups of sets of facets: their numbers, and sums over them that add up to coarser sets.

A group is a combination of levels of the facets in a set. Its number is its place among all
combinations if there are not too many, else its position among those that occur. Facets that
others determine, such as the topic of a document, do not enter the number. Robust intervals sum
the influences of rows over the finest sets only, and add these sums up to coarser ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.design import Chunk, Design, JoinedLevels
from vcomp.formula import closure

Total: TypeAlias = Callable[..., Any]
"""``total(of, *known)`` is the sum of ``of(*known, chunk)`` over parts of the coded rows."""


@dataclass(frozen=True, slots=True)
class DenseLimits:
    """Largest numbers of combinations of levels in a dense table.

    Attributes
    ----------
    combinations : whatever the number of rows
    per_row : for each row
    largest : bound of joined levels, which are 64-bit integers
    """

    combinations: int = 2**16
    per_row: int = 4
    largest: int = 2**62


_LIMITS = DenseLimits()


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The groups of a set of facets.

    Attributes
    ----------
    places, sizes : positions of the facets whose levels determine the group, and their numbers of
        levels. The levels are joined as the digits of one integer
    keys : joined levels of the groups that occur, sorted; None if all combinations are numbered
    head : groups whose number is the first digit, if the levels of all facets would overflow
    """

    places: tuple[int, ...]
    sizes: tuple[int, ...]
    keys: LongArray | None = None
    head: Groups | None = None

    @property
    def possible(self) -> int:
        """Number of combinations of levels."""
        return prod(self.sizes) * (1 if self.head is None else self.head.size)

    @property
    def size(self) -> int:
        """Number of groups; that of combinations if all are numbered."""
        return self.possible if self.keys is None else self.keys.size

    @property
    def digits(self) -> JoinedLevels:
        """The facets whose levels are joined."""
        return JoinedLevels(self.places, self.sizes)

    def joined(self, codes: Mapping[int, Any]) -> Any:
        """Return the joined levels of rows, from their levels by position of the facet."""
        head = 0 if self.head is None else self.head.numbers(codes)
        return self.digits.numbers(codes, head)

    def numbers(self, codes: Mapping[int, Any]) -> Any:
        """Return the group of each row, from their levels by position of the facet."""
        joined = self.joined(codes)
        return joined if self.keys is None else np.searchsorted(self.keys, joined)

    def levels(self) -> dict[int, Any]:
        """Return the levels of all groups by position of the facet, as arrays that broadcast."""
        if self.keys is None and self.head is None:
            n = len(self.sizes)
            return {
                place: np.arange(size).reshape([-1 if i == j else 1 for j in range(n)])
                for i, (place, size) in enumerate(zip(self.places, self.sizes, strict=True))
            }
        numbers = np.arange(self.size) if self.keys is None else self.keys
        rest, found = self.digits.levels(numbers)
        if self.head is not None:
            shape = (self.head.size,) if self.head.keys is not None else self.head.sizes
            found |= {
                place: np.broadcast_to(level, shape).ravel()[rest]
                for place, level in self.head.levels().items()
            }
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape to which the arrays of :meth:`levels` broadcast."""
        return self.sizes if self.keys is None and self.head is None else (self.size,)

    @property
    def facets(self) -> tuple[int, ...]:
        """Positions of all facets whose levels determine the group."""
        return self.places if self.head is None else (*self.head.facets, *self.places)


@dataclass(frozen=True, slots=True, eq=False)
class ObservedGroups:
    """The groups that occur in some rows, with their numbers of rows.

    Attributes
    ----------
    joined : for each set with too many combinations, the joined levels that occur, sorted, and
        their numbers of rows
    counts : for each of the other sets, the numbers of rows of all groups
    outer_levels : for each pair of facets of which the first determines the second, the level in
        the second for each level in the first; −1 for levels that do not occur
    """

    joined: tuple[tuple[LongArray, FloatArray], ...]
    counts: tuple[FloatArray, ...]
    outer_levels: tuple[LongArray, ...]

    @classmethod
    def of(
        cls,
        sparse: Sequence[Groups],
        dense: Sequence[Groups],
        pairs: Sequence[tuple[int, int]],
        chunk: Chunk,
    ) -> ObservedGroups:
        """Return the groups that occur in the rows of a chunk.

        Parameters
        ----------
        sparse, dense : groups with too many combinations for a dense table, and others
        pairs : positions of facets of which the first determines the second
        chunk : the rows
        """
        codes, of_row = dict(enumerate(chunk.compact_codes)), chunk.counts
        joined = [np.unique(g.joined(codes), return_inverse=True) for g in sparse]
        outer_levels = []
        for inner, outer in pairs:
            levels = np.full(chunk.facet_sizes[inner], -1, dtype=np.int64)
            levels[codes[inner]] = codes[outer]
            outer_levels.append(levels)
        return cls(
            tuple((keys, np.bincount(at, of_row).astype(float)) for keys, at in joined),
            tuple(np.bincount(g.numbers(codes), of_row, g.size).astype(float) for g in dense),
            tuple(outer_levels),
        )

    def __add__(self, other: ObservedGroups) -> ObservedGroups:
        joined = []
        for (a, n), (b, m) in zip(self.joined, other.joined, strict=True):
            keys = np.union1d(a, b)
            counts = np.zeros(keys.size)
            counts[np.searchsorted(keys, a)] += n
            counts[np.searchsorted(keys, b)] += m
            joined.append((keys, counts))
        return ObservedGroups(
            tuple(joined),
            tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)),
            tuple(
                np.maximum(a, b)
                for a, b in zip(self.outer_levels, other.outer_levels, strict=True)
            ),
        )


@dataclass(frozen=True, slots=True, eq=False)
class LevelLayout:
    """The groups of all sets of facets, with their numbers of rows.

    Attributes
    ----------
    design : of the data
    sets : the sets of facets of which two rows may share the levels, except that of single rows
    terms : for each random term its set
    leaves : the finest sets, which are not subsets of another
    groups, counts : of each set the groups, and their numbers of rows
    outer_levels : for facets of which the first determines the second, by their positions, the
        level in the second for each level in the first
    """

    design: Design
    sets: tuple[frozenset[str], ...]
    terms: tuple[frozenset[str], ...]
    leaves: tuple[frozenset[str], ...]
    groups: Mapping[frozenset[str], Groups]
    counts: dict[frozenset[str], FloatArray]
    outer_levels: Mapping[tuple[int, int], LongArray]

    @classmethod
    def of(
        cls,
        design: Design,
        sets: tuple[frozenset[str], ...],
        total: Total,
        limits: DenseLimits = _LIMITS,
    ) -> LevelLayout:
        """Return the groups of some sets, from the cells of a complete grid or from the rows."""
        nested_in = design.structure.nested_in
        terms = tuple(closure(frozenset(t.facets), nested_in) for t in design.formula.random)
        every = sorted({*sets, *terms}, key=lambda s: (len(s), sorted(s)))
        leaves = tuple(s for s in every if not any(s < other for other in every))
        pairs = _determined(design)
        most = max(limits.combinations, limits.per_row * design.structure.n_rows)
        limits = replace(limits, combinations=most)
        groups = {s: _groups(design, s, terms, pairs, limits, total) for s in every}
        layout = cls(design, sets, terms, leaves, groups, {}, {})
        return layout._counted(pairs, limits, total)

    def _counted(
        self, pairs: list[tuple[int, int]], limits: DenseLimits, total: Total
    ) -> LevelLayout:
        grid, groups = self.design.grid, dict(self.groups)
        sparse = [
            s for s, g in groups.items() if g.head is not None or g.possible > limits.combinations
        ]
        dense = [s for s in self.leaves if s not in sparse]
        if grid is not None and not sparse:
            outer_levels = {}
            for inner, outer in pairs:
                levels = np.zeros(self.design.n_levels[inner], dtype=np.int64)
                levels[grid.levels[grid.rest.index(inner)]] = grid.levels[grid.rest.index(outer)]
                outer_levels[inner, outer] = levels
            counts = {s: _counts_of_grid(self.design, groups[s]) for s in dense}
        else:
            arguments = [groups[s] for s in sparse], [groups[s] for s in dense], pairs
            found: ObservedGroups = total(ObservedGroups.of, *arguments)
            outer_levels = dict(zip(pairs, found.outer_levels, strict=True))
            counts = dict(zip(dense, found.counts, strict=True))
            for s, (keys, n) in zip(sparse, found.joined, strict=True):
                groups[s], counts[s] = replace(groups[s], keys=keys), n
        layout = replace(self, groups=groups, counts=counts, outer_levels=outer_levels)
        for leaf in self.leaves:
            sums = MarginSums(layout, leaf, counts[leaf])
            for s in groups:
                if s < leaf and s not in counts:
                    counts[s] = sums.to(s)
        return layout

    def size(self, chosen: frozenset[str]) -> int:
        """Return the number of groups of a set."""
        return self.groups[chosen].size

    def places_of(self, term: int) -> LongArray | None:
        """Return the number of each group of a term in its set; None if the numbers agree."""
        design, chosen = self.design, self.terms[term]
        found, groups = design.terms[term], self.groups[chosen]
        if (
            groups.keys is None
            and found.facets == groups.places
            and not any(keys is not None for keys in found.keys)
        ):
            return None
        if set(groups.facets) <= set(found.facets):
            levels = found.level_codes(design.n_levels)
            return np.asarray(groups.numbers(dict(zip(found.facets, levels, strict=True))))
        # The term has not all facets that its own are nested in: its groups as they occur.
        there = np.flatnonzero(self.counts[chosen])
        codes = {
            place: np.broadcast_to(level, groups.shape).ravel()[there]
            for place, level in groups.levels().items()
        }
        numbers = np.empty(found.size, dtype=np.int64)
        numbers[
            found.groups([codes.get(f) for f in range(len(design.facets))], design.n_levels)
        ] = there
        return numbers

    def dead_end(self) -> int | None:
        """Return the position of the largest leaf if no other set needs its sums, else None."""
        if not self.leaves:
            return None
        place = max(range(len(self.leaves)), key=lambda i: self.size(self.leaves[i]))
        others = [s for i, s in enumerate(self.leaves) if i != place]
        leaf = self.leaves[place]
        if any(s < leaf and not any(s < other for other in others) for s in self.sets):
            return None
        return place if self.groups[leaf].keys is None else None


class MarginSums:
    """Sums over the groups of a set, added up for coarser sets when they are requested."""

    def __init__(self, layout: LevelLayout, chosen: frozenset[str], values: FloatArray) -> None:
        self._layout, self._chosen = layout, chosen
        self._found = {chosen: values}

    def to(self, target: frozenset[str]) -> FloatArray:
        """Return the sums over the groups of a coarser set."""
        if target not in self._found:
            above = (s for s in self._layout.groups if target < s <= self._chosen)
            source = min(above, key=self._layout.size)
            self._found[target] = self._add_up(source, target)
        return self._found[target]

    def _add_up(self, source: frozenset[str], target: frozenset[str]) -> FloatArray:
        layout = self._layout
        inner, outer = layout.groups[source], layout.groups[target]
        levels = inner.levels()
        used = set()
        for place in outer.places if outer.head is None else range(len(layout.design.facets)):
            if place in levels:
                used.add(place)
                continue
            for by in list(levels):
                if (by, place) in layout.outer_levels:
                    levels[place] = layout.outer_levels[by, place][levels[by]]
                    used.add(by)
                    break
        values, shape = self.to(source), inner.shape
        columns = values.reshape(*shape, -1)
        if inner.keys is None and inner.head is None:
            # A table is summed along the axes of other facets, before its groups are.
            others = tuple(i for i, place in enumerate(inner.places) if place not in used)
            columns = columns.sum(axis=others, keepdims=True) if others else columns
            shape = columns.shape[:-1]
        group = np.broadcast_to(outer.numbers(levels), shape).ravel()
        columns = columns.reshape(group.size, -1)
        added: FloatArray = np.empty((outer.size, columns.shape[1]))
        for j, column in enumerate(columns.T):
            added[:, j] = np.bincount(group, column, minlength=outer.size)
        return added[:, 0] if values.ndim == 1 else added


def _determined(design: Design) -> list[tuple[int, int]]:
    """Return the pairs of facets, the first nested in the second."""
    structure = design.structure
    place = {facet.name: i for i, facet in enumerate(design.facets)}
    units = dict(zip(structure.facets, structure.n_levels, strict=True))
    return [
        (place[inner], place[outer])
        for inner, above in structure.nested_in.items()
        if inner in place and units[inner] == design.n_levels[place[inner]]
        for outer in sorted(above)
        if outer in place
    ]


def _groups(
    design: Design,
    chosen: frozenset[str],
    terms: Sequence[frozenset[str]],
    pairs: list[tuple[int, int]],
    limits: DenseLimits,
    total: Total,
) -> Groups:
    """Return the groups of a set; the keys of large sets are found later."""
    inside = [i for i, f in enumerate(design.facets) if f.name in chosen]
    if chosen in terms:  # in its order, so that the numbers of the groups agree
        own = design.terms[terms.index(chosen)].facets
        inside = [*own, *(i for i in inside if i not in own)]
    digits = [i for i in inside if not any(outer == i and by in inside for by, outer in pairs)]
    sizes = [design.n_levels[i] for i in digits]
    head: Groups | None = None
    first = 0
    for at in range(2, len(digits) + 1):  # levels of one facet do not overflow
        above = 1 if head is None else head.size
        if above * prod(sizes[first:at]) >= limits.largest:
            wide = Groups(tuple(digits[first : at - 1]), tuple(sizes[first : at - 1]), None, head)
            (keys, _), *_ = total(ObservedGroups.of, [wide], [], []).joined
            head, first = replace(wide, keys=keys), at - 1
    return Groups(tuple(digits[first:]), tuple(sizes[first:]), None, head)


def _counts_of_grid(design: Design, groups: Groups) -> FloatArray:
    """Return the number of rows of each group in a complete grid."""
    grid = design.grid
    assert grid is not None
    kept = [p for p in groups.places if p in grid.axes]
    rest = [p for p in groups.places if p not in grid.axes]
    outside = prod(n for axis, n in zip(grid.axes, grid.shape, strict=True) if axis not in kept)
    inner = Groups(tuple(rest), tuple(design.n_levels[p] for p in rest))
    numbers = inner.numbers({p: grid.levels[grid.rest.index(p)] for p in rest})
    cells = np.broadcast_to(numbers, grid.cell_n.shape)
    counts = np.zeros(inner.size)
    counts += np.bincount(cells, grid.cell_n * outside, minlength=inner.size)
    shape = [1 if p in kept else n for p, n in zip(groups.places, groups.sizes, strict=True)]
    return np.broadcast_to(counts.reshape(shape), groups.sizes).ravel()
