"""The groups of sets of facets, and sums of rows over them: in memory, in parts, on workers.

A group has a number by which it is found in a table: its levels as digits, where there is room for
all combinations, else its place among those that occur. Facets that others determine (the topic of
a document) are no digits. Sums are made for the finest sets only and added up for coarser ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any, TypeAlias

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.design import Chunk, Design
from vcomp.formula import closure
from vcomp.numerics import MANY_ROWS, THREADS

Total: TypeAlias = Callable[..., Any]
"""``total(of, *known)`` is the sum of ``of(*known, chunk)`` over parts of the coded rows."""

_AT_ONCE = 65_536
"""Rows whose codes are copied side by side at a time."""

_SLAB = 2**19
"""Numbers in the sums of the levels that are summed together: they fit into a cache."""

_MANY = 2**25
"""Numbers in the sums of one thread; of more there is one thread."""

_ROOM = 1_000_000
"""Combinations of levels for which a table has room, whatever the number of rows."""

_LARGEST = 2**62
"""Joined levels are smaller than this."""


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The groups of a set of facets.

    Attributes
    ----------
    places, sizes : of the facets whose levels are digits, and their numbers of levels
    keys : joined levels of the groups that occur, sorted; None if all have a place
    head : groups whose number is the first digit, where all digits would be too large a number
    """

    places: tuple[int, ...]
    sizes: tuple[int, ...]
    keys: LongArray | None = None
    head: Groups | None = None

    @property
    def possible(self) -> int:
        """Number of combinations of digits."""
        return prod(self.sizes) * (1 if self.head is None else self.head.size)

    @property
    def size(self) -> int:
        """Number of groups, or of their places."""
        return self.possible if self.keys is None else self.keys.size

    def steps(self, n_places: int) -> LongArray:
        """Return the weights of the levels of all facets in the number of a group."""
        steps, step = np.zeros(n_places, dtype=np.int64), 1
        for place, size in zip(reversed(self.places), reversed(self.sizes), strict=True):
            steps[place], step = step, step * size
        return steps

    def joined(self, codes: Mapping[int, Any]) -> Any:
        """Return the joined levels of rows, from their levels by place of the facet."""
        joined: Any = np.int64(0) if self.head is None else self.head.numbers(codes)
        for place, size in zip(self.places, self.sizes, strict=True):
            joined = joined * np.int64(size) + codes[place]
        return joined

    def numbers(self, codes: Mapping[int, Any]) -> Any:
        """Return the group of each row, from their levels by place of the facet."""
        joined = self.joined(codes)
        return joined if self.keys is None else np.searchsorted(self.keys, joined)

    def levels(self) -> dict[int, Any]:
        """Return the levels of all groups by place of the facet; they broadcast to all groups."""
        if self.keys is None and self.head is None:
            n = len(self.sizes)
            return {
                place: np.arange(size).reshape([-1 if i == j else 1 for j in range(n)])
                for i, (place, size) in enumerate(zip(self.places, self.sizes, strict=True))
            }
        rest = np.arange(self.size) if self.keys is None else self.keys
        found = {}
        for place, size in zip(reversed(self.places), reversed(self.sizes), strict=True):
            rest, found[place] = np.divmod(rest, size)
        if self.head is not None:
            shape = (self.head.size,) if self.head.keys is not None else self.head.sizes
            found |= {
                place: np.broadcast_to(level, shape).ravel()[rest]
                for place, level in self.head.levels().items()
            }
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape to which :meth:`levels` broadcast."""
        return self.sizes if self.keys is None and self.head is None else (self.size,)

    def places_of(self, design: Design, term: int) -> LongArray | None:
        """Return the group of each group of a term; None if they are the same."""
        found = design.terms[term]
        if (
            self.keys is None
            and found.facets == self.places
            and not any(keys is not None for keys in found.keys)
        ):
            return None
        levels = found.level_codes(design.n_levels)
        numbers: LongArray = self.numbers(dict(zip(found.facets, levels, strict=True)))
        return numbers


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Sums over groups.

    Attributes
    ----------
    size : number of all groups
    keys : the groups that the sums are of, sorted; None for all
    values : (groups, …)
    """

    size: int
    keys: LongArray | None
    values: FloatArray

    @property
    def dense(self) -> FloatArray:
        """The sums of all groups."""
        if self.keys is None:
            return self.values
        found = np.zeros((self.size, *self.values.shape[1:]))
        found[self.keys] = self.values
        return found

    def __add__(self, other: Table) -> Table:
        if self.keys is None or other.keys is None:
            whole, part = (self, other) if self.keys is None else (other, self)
            values = whole.values.copy()
            values[slice(None) if part.keys is None else part.keys] += part.values
            return Table(self.size, None, values)
        keys = np.union1d(self.keys, other.keys)
        values = np.zeros((keys.size, *self.values.shape[1:]))
        for each in (self, other):
            values[np.searchsorted(keys, each.keys)] += each.values
        return Table(self.size, keys, values)


@dataclass(frozen=True, slots=True, eq=False)
class Occurring:
    """Which groups occur in some rows, and how often.

    Attributes
    ----------
    joined : of some groups the joined levels, sorted, and their rows
    counts : of others the rows of all
    told : the level in one facet that goes with each level in another, −1 if it does not occur
    """

    joined: tuple[tuple[LongArray, FloatArray], ...]
    counts: tuple[FloatArray, ...]
    told: tuple[LongArray, ...]

    @classmethod
    def of(
        cls,
        sparse: Sequence[Groups],
        dense: Sequence[Groups],
        pairs: Sequence[tuple[int, int]],
        chunk: Chunk,
    ) -> Occurring:
        """Return the groups that occur in the rows of a chunk, and the pairs of levels."""
        codes = dict(enumerate(chunk.compact_codes))
        joined = [
            np.unique(g.joined(codes), return_inverse=True, return_counts=True) for g in sparse
        ]
        told = []
        for inner, outer in pairs:
            levels = np.full(chunk.facet_sizes[inner], -1, dtype=np.int64)
            levels[codes[inner]] = codes[outer]
            told.append(levels)
        return cls(
            tuple((keys, counts.astype(float)) for keys, _, counts in joined),
            tuple(np.bincount(g.numbers(codes), minlength=g.size).astype(float) for g in dense),
            tuple(told),
        )

    def __add__(self, other: Occurring) -> Occurring:
        joined = []
        for (a, n), (b, m) in zip(self.joined, other.joined, strict=True):
            keys = np.union1d(a, b)
            counts = np.zeros(keys.size)
            counts[np.searchsorted(keys, a)] += n
            counts[np.searchsorted(keys, b)] += m
            joined.append((keys, counts))
        return Occurring(
            tuple(joined),
            tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)),
            tuple(np.maximum(a, b) for a, b in zip(self.told, other.told, strict=True)),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The groups of all sets of sampled facets.

    Attributes
    ----------
    design : of the data
    sets : the sets of facets that pairs of rows may share, without that of single rows
    terms : for each random term its set
    leaves : the sets that lie in no other one
    groups, counts : of each set the groups, and their rows
    told : the level in one facet that goes with each level in another, by their places
    """

    design: Design
    sets: tuple[frozenset[str], ...]
    terms: tuple[frozenset[str], ...]
    leaves: tuple[frozenset[str], ...]
    groups: Mapping[frozenset[str], Groups]
    counts: dict[frozenset[str], FloatArray]
    told: Mapping[tuple[int, int], LongArray]

    @classmethod
    def of(cls, design: Design, sets: tuple[frozenset[str], ...], total: Total) -> Layout:
        """Return the groups of some sets; of a complete grid they follow from its cells."""
        nested_in = design.structure.nested_in
        terms = tuple(closure(frozenset(t.facets), nested_in) for t in design.formula.random)
        every = sorted({*sets, *terms}, key=lambda s: (len(s), sorted(s)))
        leaves = tuple(s for s in every if not any(s < other for other in every))
        pairs = _determined(design)
        room = max(_ROOM, 4 * design.structure.n_rows)
        groups = {s: _groups(design, s, terms, pairs, room, total) for s in every}
        layout = cls(design, sets, terms, leaves, groups, {}, {})
        return layout._counted(pairs, room, total)

    def _counted(self, pairs: list[tuple[int, int]], room: int, total: Total) -> Layout:
        grid, groups = self.design.grid, dict(self.groups)
        sparse = [s for s, g in groups.items() if g.possible > room]
        dense = [s for s in self.leaves if s not in sparse]
        if grid is not None and not sparse:
            told = {}
            for inner, outer in pairs:
                levels = np.zeros(self.design.n_levels[inner], dtype=np.int64)
                levels[grid.levels[grid.rest.index(inner)]] = grid.levels[grid.rest.index(outer)]
                told[inner, outer] = levels
            counts = {s: _counts_of_grid(self.design, groups[s]) for s in dense}
        else:
            arguments = [groups[s] for s in sparse], [groups[s] for s in dense], pairs
            found: Occurring = total(Occurring.of, *arguments)
            told = dict(zip(pairs, found.told, strict=True))
            counts = dict(zip(dense, found.counts, strict=True))
            for s, (keys, n) in zip(sparse, found.joined, strict=True):
                groups[s], counts[s] = replace(groups[s], keys=keys), n
        layout = replace(self, groups=groups, counts=counts, told=told)
        for leaf in self.leaves:
            folded = Folded(layout, leaf, counts[leaf])
            for s in groups:
                if s < leaf and s not in counts:
                    counts[s] = folded.to(s)
        return layout

    def size(self, chosen: frozenset[str]) -> int:
        """Return the number of groups of a set."""
        return self.groups[chosen].size

    def dead_end(self) -> int | None:
        """Return the largest of the finest sets if no other one is added up from it."""
        if not self.leaves:
            return None
        place = max(range(len(self.leaves)), key=lambda i: self.size(self.leaves[i]))
        others = [s for i, s in enumerate(self.leaves) if i != place]
        leaf = self.leaves[place]
        if any(s < leaf and not any(s < other for other in others) for s in self.sets):
            return None
        return place if self.groups[leaf].keys is None else None


class Folded:
    """Sums over the groups of a set, added up for coarser sets when they are requested."""

    def __init__(self, layout: Layout, chosen: frozenset[str], values: FloatArray) -> None:
        self._layout, self._chosen = layout, chosen
        self._found = {chosen: values}

    def to(self, target: frozenset[str]) -> FloatArray:
        """Return the sums over the groups of a coarser set."""
        if target not in self._found:
            sets = self._layout.groups
            between = [s for s in sets if target < s < self._chosen]
            source = min(between, key=self._layout.size) if between else self._chosen
            self._found[target] = self._add_up(source, target)
        return self._found[target]

    def _add_up(self, source: frozenset[str], target: frozenset[str]) -> FloatArray:
        values, layout = self.to(source), self._layout
        inner, outer = layout.groups[source], layout.groups[target]
        levels = inner.levels()
        for place in outer.places if outer.head is None else range(len(layout.design.facets)):
            if place not in levels:
                for by in list(levels):
                    if (by, place) in layout.told:
                        levels[place] = layout.told[by, place][levels[by]]
                        break
        group = np.broadcast_to(outer.numbers(levels), inner.shape).ravel()
        if values.ndim == 1:
            return np.bincount(group, values, minlength=outer.size)
        columns = [np.bincount(group, c, minlength=outer.size) for c in values.T]
        return np.array(columns).T.copy()


def _determined(design: Design) -> list[tuple[int, int]]:
    """Return the pairs of facets of which the labels of the first determine the second."""
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
    room: int,
    total: Total,
) -> Groups:
    """Return the groups of a set; those of large sets still without the keys that occur."""
    inside = [i for i, f in enumerate(design.facets) if f.name in chosen]
    if chosen in terms:  # in its order, so that their groups agree
        own = design.terms[terms.index(chosen)].facets
        inside = [*own, *(i for i in inside if i not in own)]
    digits = [i for i in inside if not any(outer == i and by in inside for by, outer in pairs)]
    sizes = [design.n_levels[i] for i in digits]
    head: Groups | None = None
    first = 0
    for at in range(1, len(digits) + 1):
        above = 1 if head is None else head.size
        if above * prod(sizes[first:at]) >= _LARGEST:
            wide = Groups(tuple(digits[first : at - 1]), tuple(sizes[first : at - 1]), None, head)
            (keys, _), *_ = total(Occurring.of, [wide], [], []).joined
            head, first = replace(wide, keys=keys), at - 1
    found = Groups(tuple(digits[first:]), tuple(sizes[first:]), None, head)
    if head is not None and found.possible <= room:
        (keys, _), *_ = total(Occurring.of, [found], [], []).joined
        return replace(found, keys=keys)
    return found


def _counts_of_grid(design: Design, groups: Groups) -> FloatArray:
    """Return the rows of each group of a complete grid."""
    grid = design.grid
    assert grid is not None
    kept = [p for p in groups.places if p in grid.axes]
    rest = [p for p in groups.places if p not in grid.axes]
    outside = prod(n for axis, n in zip(grid.axes, grid.shape, strict=True) if axis not in kept)
    inner = Groups(tuple(rest), tuple(design.n_levels[p] for p in rest))
    numbers = inner.numbers({p: grid.levels[grid.rest.index(p)] for p in rest})
    cells = np.broadcast_to(numbers, grid.cell_n.shape)
    counts = np.bincount(cells, grid.cell_n * outside, minlength=inner.size)
    shape = [1 if p in kept else n for p, n in zip(groups.places, groups.sizes, strict=True)]
    return np.broadcast_to(counts.reshape(shape), groups.sizes).ravel()


# Passes over rows -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class LevelSums:
    """Sums and products of influences.

    Attributes
    ----------
    products : (k + 3, k + 2) of single rows, the lower triangle, and the sums of all rows
    tables : for each of the finest sets the sums over its groups; None if only `slabs` are kept
    slabs : (k + 2, k + 2) products of the sums over the groups of one of the sets
    """

    products: FloatArray
    tables: tuple[Table | None, ...]
    slabs: FloatArray | None = None

    @property
    def of_rows(self) -> FloatArray:
        """The products of single rows."""
        lower = np.tril(self.products[:-1])
        return lower + np.tril(lower, -1).T

    def __add__(self, other: LevelSums) -> LevelSums:
        pairs = zip(self.tables, other.tables, strict=True)
        tables = tuple(a if a is None or b is None else a + b for a, b in pairs)
        slabs = self.slabs
        if slabs is not None and other.slabs is not None:
            slabs = slabs + other.slabs
        return LevelSums(self.products + other.products, tables, slabs)


@dataclass(frozen=True, slots=True, eq=False)
class LevelWork:
    """What a pass over rows needs to sum their influences.

    Attributes
    ----------
    beta : fixed effects
    terms, leaves : groups of the terms, and of the finest sets
    starts, pulls : of the terms, as for `add_level_sums`
    finer, own : as there
    n_rows : of all data
    slabs : place of the leaf of which only products are wanted
    """

    beta: FloatArray
    terms: tuple[Groups, ...]
    leaves: tuple[Groups, ...]
    starts: LongArray
    pulls: FloatArray
    finer: FloatArray
    own: FloatArray
    n_rows: int
    slabs: int | None

    @property
    def n_columns(self) -> int:
        """Number of influences."""
        return self.finer.shape[0] + 2


def sum_influences(work: LevelWork, chunk: Chunk) -> LevelSums:
    """Return the sums of the influences of some rows."""
    n, width = chunk.response.size, work.n_columns
    if n < MANY_ROWS:
        return _Pass.of(work, chunk).sums(slice(0, n))
    if work.slabs is not None and n == work.n_rows:
        found = _by_slabs(work, chunk)
        if found is not None:
            return found
    whole = _Pass.of(work, chunk)
    threads = THREADS if sum(whole.sizes) * width <= _MANY else 1
    ends = [n * i // threads for i in range(threads + 1)]
    return _added([partial(whole.sums, slice(a, b)) for a, b in pairwise(ends)])


def _added(parts: Sequence[partial[LevelSums]]) -> LevelSums:
    """Return the sum of parts that threads work on, added in their order."""
    if len(parts) == 1:
        return parts[0]()
    with ThreadPoolExecutor(THREADS) as pool:
        first, *rest = [future.result() for future in [pool.submit(part) for part in parts]]
    for one in rest:
        first = first + one
    return first


def _by_slabs(work: LevelWork, chunk: Chunk) -> LevelSums | None:
    """Return the sums of all rows, the largest table made for a few levels of a facet at a time.

    None if the table is small, or the facet has too few levels.
    """
    assert work.slabs is not None
    leaf, width = work.leaves[work.slabs], work.n_columns
    if leaf.size * width <= _SLAB:
        return None
    facet, order = _facet_of_slabs(leaf, chunk)
    levels = chunk.facet_sizes[facet]
    per_level = leaf.size // levels
    at_once = max(_SLAB // (per_level * width), 1)
    others = sum(g.size for i, g in enumerate(work.leaves) if i != work.slabs)
    if levels < 2 * THREADS or others * width > _MANY:
        return None
    # The facet is the first digit, so that a few of its levels have their groups side by side.
    at = leaf.places.index(facet)
    places = (facet, *leaf.places[:at], *leaf.places[at + 1 :])
    sizes = (levels, *leaf.sizes[:at], *leaf.sizes[at + 1 :])
    leaves = [*work.leaves]
    leaves[work.slabs] = Groups(places, sizes)
    made = _Pass.of(replace(work, leaves=tuple(leaves)), chunk)
    ends = np.cumsum(np.bincount(chunk.compact_codes[facet], minlength=levels))
    starts = np.concatenate([[0], ends])
    bounds = [levels * i // THREADS for i in range(THREADS + 1)]
    return _added([
        partial(made.slabs, a, b, at_once, per_level, starts, order) for a, b in pairwise(bounds)
    ])  # fmt: skip


def _facet_of_slabs(leaf: Groups, chunk: Chunk) -> tuple[int, LongArray | None]:
    """Return a facet of a set, and the rows in the order of its levels; None if they are."""
    for place in leaf.places:
        codes = chunk.compact_codes[place]
        if chunk.facet_sizes[place] >= 2 * THREADS and bool((codes[1:] >= codes[:-1]).all()):
            return place, None
    facet = min(
        leaf.places, key=lambda p: (chunk.facet_sizes[p] < 2 * THREADS, chunk.facet_sizes[p])
    )
    codes = chunk.compact_codes[facet]
    if chunk.facet_sizes[facet] < 2**15:
        codes = codes.astype(np.int16)  # sorted by radix
    return facet, np.argsort(codes, kind="stable")


@dataclass(frozen=True, slots=True, eq=False)
class _Pass:
    """Coded rows, and where their influences are added.

    Attributes
    ----------
    work, chunk : what to do, and the rows
    codes : levels, or numbers of groups, of which few bytes are kept for each row
    steps, set_steps : (k, f) and (m, f) weights of the codes in the groups of terms and sets
    sizes : numbers of groups of the sets
    keys : of each set the groups that the sums are of; None for all
    """

    work: LevelWork
    chunk: Chunk
    codes: tuple[IntArray, ...]
    steps: LongArray
    set_steps: LongArray
    sizes: tuple[int, ...]
    keys: tuple[LongArray | None, ...]

    @classmethod
    def of(cls, work: LevelWork, chunk: Chunk) -> _Pass:
        codes: list[IntArray] = list(chunk.compact_codes)
        by_place, n = dict(enumerate(codes)), chunk.response.size
        columns: list[dict[int, int]] = []
        sizes: list[int] = []
        keys: list[LongArray | None] = []
        numbered: dict[Groups, IntArray] = {}
        for i, groups in enumerate((*work.terms, *work.leaves)):
            is_set, size = i >= len(work.terms), groups.size
            found: LongArray | None = None
            few = is_set and n < work.n_rows and size > 4 * n
            if few or groups.keys is not None or groups.head is not None:
                if groups not in numbered:
                    numbered[groups] = groups.numbers(by_place)
                numbers = numbered[groups]
                if few:
                    found, numbers = np.unique(numbers, return_inverse=True)
                    size = found.size
                codes.append(numbers)
                columns.append({len(codes) - 1: 1})
            else:
                steps = groups.steps(len(by_place))
                columns.append({f: int(s) for f, s in enumerate(steps) if s})
            if is_set:
                sizes.append(size)
                keys.append(found)
        matrix = np.zeros((len(columns), len(codes)), dtype=np.int64)
        for row, weights in zip(matrix, columns, strict=True):
            row[list(weights)] = list(weights.values())
        k = len(work.terms)
        return cls(work, chunk, tuple(codes), matrix[:k], matrix[k:], tuple(sizes), tuple(keys))

    def sums(self, rows: slice) -> LevelSums:
        """Return the sums of some rows, with tables of all sets."""
        width = self.work.n_columns
        ends = np.cumsum([0, *self.sizes])
        sums, products = np.zeros((int(ends[-1]), width)), np.zeros((width + 1, width))
        blocks = range(rows.start, rows.stop, _AT_ONCE)
        self._add((slice(a, min(a + _AT_ONCE, rows.stop)) for a in blocks), ends, sums, products)
        return LevelSums(products, self._tables(ends, sums))

    def slabs(
        self,
        first: int,
        last: int,
        at_once: int,
        per_level: int,
        starts: LongArray,
        order: LongArray | None,
    ) -> LevelSums:
        """Return the sums of the rows of some levels, a few levels at a time.

        Parameters
        ----------
        first, last : levels of the facet that is the first digit of the set
        at_once, per_level : levels at a time, and groups of each
        starts : first row of each level
        order : of the rows; None if they are in order
        """
        place, width = self.work.slabs, self.work.n_columns
        assert place is not None
        sizes = [*self.sizes]
        sizes[place] = min(at_once, last - first) * per_level
        ends = np.cumsum([0, *sizes])
        sums, products = np.zeros((int(ends[-1]), width)), np.zeros((width + 1, width))
        slab = sums[ends[place] : ends[place + 1]]
        total = np.zeros((width, width))
        for level in range(first, last, at_once):
            a, b = int(starts[level]), int(starts[min(level + at_once, last)])
            shifted = ends.copy()
            shifted[place] -= level * per_level
            blocks = (slice(i, min(i + _AT_ONCE, b)) for i in range(a, b, _AT_ONCE))
            chosen = blocks if order is None else (order[rows] for rows in blocks)
            self._add(chosen, shifted, sums, products)
            total += slab.T @ slab
            slab[:] = 0.0
        tables = [*self._tables(ends, sums)]
        tables[place] = None
        return LevelSums(products, tuple(tables), total)

    def _add(
        self,
        blocks: Iterator[slice] | Iterator[LongArray],
        ends: LongArray,
        sums: FloatArray,
        products: FloatArray,
    ) -> None:
        # Deferred for start-up time: numba takes a second to import.
        from vcomp.inference.kernels.level_sums import add_level_sums

        work, chunk, m = self.work, self.chunk, len(self.sizes)
        away = chunk.origin
        constant = chunk.response.size > 0 and chunk.X.strides[0] == 0  # one row stands for all
        if constant:
            away = away + float(chunk.X[0] @ work.beta)
        for rows in blocks:
            rest = chunk.response[rows] - away
            if not constant:
                rest -= chunk.X[rows] @ work.beta
            codes = np.empty((len(self.codes), rest.size), dtype=np.int32)
            for row, column in zip(codes, self.codes, strict=True):
                row[:] = column[rows]
            add_level_sums(
                rest, codes, self.steps, work.starts, work.pulls, work.finer, work.own,
                self.set_steps, ends[:m], sums, products,
            )  # fmt: skip

    def _tables(self, ends: LongArray, sums: FloatArray) -> tuple[Table | None, ...]:
        return tuple(
            Table(leaf.size, keys, sums[a:b])
            for leaf, keys, (a, b) in zip(self.work.leaves, self.keys, pairwise(ends), strict=True)
        )
