"""Sums of the influences of rows over groups of levels, for robust intervals.

Rows come from memory, in parts, or as partitions on workers. Two threads share the rows in memory;
each has its own sums. The largest table, such as that of systems by documents, is made for a few
levels (a slab) at a time, so that it stays in a cache, and only its products are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.design import Chunk
from vcomp.exceptions import EstimationError
from vcomp.inference.intervals.kernels import add_level_sums, write_constants, write_slopes
from vcomp.inference.intervals.margin_sums import Groups
from vcomp.numerics import MANY_ROWS, THREADS, check_memory
from vcomp.numerics.kernels import at_once

_AT_ONCE = 65_536
"""Rows whose codes are copied into one array at a time."""

_SLAB = 2**19
"""Numbers in the sums of a slab, which fit into a cache."""

_FEW_ROWS = 2**15
"""Rows up to which arrays are about as fast as the kernel."""

_ROW_SECONDS, _GROUP_SECONDS = 3e-7, 4e-8
"""Time of a row, and of a group, by arrays."""

_MANY = 2**25
"""Largest number of sums for which each thread has its own; with more there is one thread."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Sums over groups.

    Attributes
    ----------
    size : number of all groups
    keys : the groups that have sums, sorted; None for all
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
        values[np.searchsorted(keys, self.keys)] += self.values
        values[np.searchsorted(keys, other.keys)] += other.values
        return Table(self.size, keys, values)


@dataclass(frozen=True, slots=True, eq=False)
class LevelSums:
    """Sums and products of influences.

    Attributes
    ----------
    products : (k + 3, k + 2) products over single rows (lower triangle), with the sums of all rows
        in the last row
    tables : for each of the finest sets the sums over its groups; None for the set of `slabs`
    slabs : (k + 2, k + 2) products of the sums over the groups of one set
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
    """The values from which a pass over rows computes and sums their influences.

    Attributes
    ----------
    beta : fixed effects
    terms, leaves : groups of the terms, and of the finest sets
    starts, pulls, finer, own : as for `add_level_sums`
    n_rows : of all data
    slabs : position of the leaf of which only products are needed
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
        return len(self.terms) + 2


def sum_influences(
    work: LevelWork, chunk: Chunk, *, many_rows: int = MANY_ROWS, slab: int = _SLAB
) -> LevelSums:
    """Return the sums of the influences of some rows.

    Parameters
    ----------
    work : what to sum
    chunk : the rows
    many_rows : number of rows below which one thread makes tables of all sets
    slab : numbers in the sums of the levels that are summed together
    """
    n, width = chunk.response.size, work.n_columns
    if n < many_rows:
        return _Pass.of(work, chunk).sums(slice(0, n))
    if work.slabs is not None and chunk.n == work.n_rows:
        found = _by_slabs(work, chunk, slab)
        if found is not None:
            return found
    whole = _Pass.of(work, chunk)
    threads = THREADS if sum(whole.sizes) * width <= _MANY else 1
    ends = [n * i // threads for i in range(threads + 1)]
    return _added([partial(whole.sums, slice(a, b)) for a, b in pairwise(ends)])


def write_pulls(
    pulls: FloatArray,
    counts: FloatArray,
    u: FloatArray,
    effects: FloatArray,
    variances: FloatArray | None,
    left: FloatArray | None,
    within: FloatArray | None,
    own: float,
    error: float,
) -> None:
    """Write the numbers of each group of a term from which influences are computed.

    They are the predicted effect, the constant and the slope of the influence (linear in the
    residual plus the effects of finer terms), and the share of its expectation, eq. (10.17);
    zeros for groups without rows.

    Parameters
    ----------
    pulls : (q, 4), which is written
    counts : (q,) rows of each group
    u, effects : Z'Py and predicted effects
    variances : prediction error variances; None if they are not known
    left : sums of the effects of finer terms; None without finer terms
    within : Σ σ² n² over the groups of finer terms; None without finer terms
    own, error : component of the term, and of the residual
    """
    write, finish = _write_slopes, _write_constants
    if counts.size > _FEW_ROWS:
        seconds = _GROUP_SECONDS * counts.size
        write = at_once(write_slopes, seconds, _write_slopes)
        finish = at_once(write_constants, seconds, _write_constants)
    given = [np.zeros(0) if x is None else x for x in (variances, within, left)]
    square, whole = write(pulls, counts, u, effects, given[0], given[1], own, error)
    finish(pulls, counts, u, given[2], own, error, square / whole if whole > 0.0 else 0.0)


def _write_slopes(
    pulls: FloatArray,
    counts: FloatArray,
    u: FloatArray,
    effects: FloatArray,
    variances: FloatArray,
    within: FloatArray,
    own: float,
    error: float,
) -> tuple[float, float]:
    """Do what the kernel `write_slopes` does, with arrays."""
    n, there = np.maximum(counts, 1.0), counts > 0.0
    # The variance of the mean of a group.
    spread = own + error / n
    if within.size:
        spread += within / (n * n)
    form = there / spread
    if variances.size:
        form = there * np.maximum(own - variances, 0.0) / (own * own)
    known = there * u
    pulls[:, 0] = effects
    pulls[:, 2], pulls[:, 3] = known / (n * spread), form / n
    return float(known @ known), float(form.sum())


def _write_constants(
    pulls: FloatArray,
    counts: FloatArray,
    u: FloatArray,
    left: FloatArray,
    own: float,
    error: float,
    scale: float,
) -> None:
    """Do what the kernel `write_constants` does, with arrays."""
    n, known = np.maximum(counts, 1.0), (counts > 0.0) * u
    rest = error * known + left if left.size else error * known
    slope, share = pulls[:, 2], pulls[:, 3].copy()
    pulls[:, 1] = (known * known - slope * rest) / n - scale * share
    # The factor of an expectation in that of the squared residual is σ² / scale.
    pulls[:, 3] = own * share if scale > 0.0 else 0.0


def _added(parts: Sequence[partial[LevelSums]]) -> LevelSums:
    """Return the sum of parts that are computed by threads, added in order."""
    if len(parts) == 1:
        return parts[0]()
    with ThreadPoolExecutor(THREADS) as pool:
        first, *rest = [future.result() for future in [pool.submit(part) for part in parts]]
    for one in rest:
        first = first + one
    return first


def _by_slabs(work: LevelWork, chunk: Chunk, slab: int) -> LevelSums | None:
    """Return the sums of all rows, with the largest table computed by slabs.

    None if the table is small, or the facet has too few levels.
    """
    assert work.slabs is not None
    leaf, width = work.leaves[work.slabs], work.n_columns
    if leaf.size * width <= slab:
        return None
    facet, order = _facet_of_slabs(leaf, chunk)
    levels = chunk.facet_sizes[facet]
    per_level = leaf.size // levels
    at_once = max(slab // (per_level * width), 1)
    others = sum(g.size for i, g in enumerate(work.leaves) if i != work.slabs)
    if levels < 2 * THREADS or others * width > _MANY:
        return None
    # With the facet as the first digit, the groups of consecutive levels are consecutive.
    at = leaf.places.index(facet)
    places = (facet, *leaf.places[:at], *leaf.places[at + 1 :])
    sizes = (levels, *leaf.sizes[:at], *leaf.sizes[at + 1 :])
    leaves = [*work.leaves]
    leaves[work.slabs] = Groups(places, sizes)
    made = _Pass.of(replace(work, leaves=tuple(leaves)), chunk)
    codes = chunk.compact_codes[facet]
    if order is None:
        first = np.searchsorted(codes, np.arange(levels, dtype=codes.dtype))
        starts = np.append(first, codes.size)
    else:
        starts = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=levels))])
    bounds = [levels * i // THREADS for i in range(THREADS + 1)]
    return _added([
        partial(made.slabs, a, b, at_once, per_level, starts, order) for a, b in pairwise(bounds)
    ])  # fmt: skip


def _facet_of_slabs(leaf: Groups, chunk: Chunk) -> tuple[int, LongArray | None]:
    """Return the facet of the slabs, and the order of rows by it; None if they are in order."""
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
    """Coded rows, with the sums to which their influences are added.

    Attributes
    ----------
    work, chunk : the values of the fit, and the rows
    codes : levels, or numbers of groups, of the rows, each as a compact integer array
    steps, set_steps : (k, f) and (m, f) weights of the codes in the groups of terms and sets
    sizes : numbers of groups of the sets
    keys : for each set the groups that have sums; None for all
    """

    work: LevelWork
    chunk: Chunk
    codes: tuple[Any, ...]
    steps: LongArray
    set_steps: LongArray
    sizes: tuple[int, ...]
    keys: tuple[LongArray | None, ...]

    @classmethod
    def of(cls, work: LevelWork, chunk: Chunk) -> _Pass:
        codes: list[Any] = list(chunk.compact_codes)
        by_place, n = dict(enumerate(codes)), chunk.response.size
        columns: list[dict[int, int]] = []
        sizes: list[int] = []
        keys: list[LongArray | None] = []
        numbered: dict[Groups, Any] = {}
        for i, groups in enumerate((*work.terms, *work.leaves)):
            is_set, size = i >= len(work.terms), groups.size
            found: LongArray | None = None
            few = is_set and chunk.n < work.n_rows and size > 4 * n
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
                steps = groups.digits.steps(len(by_place))
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
        check_memory(
            8.0 * width * float(ends[-1]),
            "the sums of influences over the groups of facets need",
            "use interval='mls'",
            EstimationError,
        )
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
        work, chunk, m = self.work, self.chunk, len(self.sizes)
        add = _add_few
        if chunk.response.size > _FEW_ROWS:
            add = at_once(add_level_sums, _ROW_SECONDS * chunk.response.size, _add_few)
        away = chunk.origin
        constant = chunk.response.size > 0 and chunk.is_mean  # one row stands for all
        if constant:
            away = away + float(chunk.X[0] @ work.beta)
        for rows in blocks:
            rest = chunk.response[rows] - away
            if not constant:
                rest -= chunk.columns[rows] @ (work.beta + chunk.beta_origin)
            codes = np.empty((len(self.codes), rest.size), dtype=np.int32)
            for row, column in zip(codes, self.codes, strict=True):
                row[:] = column[rows]
            weights = np.zeros(0) if chunk.counts is None else chunk.counts[rows]
            if chunk.scores is not None:
                at, apart, weights = chunk.scores(rows)
                rest, codes = rest[at] + apart, np.ascontiguousarray(codes[:, at])
            add(
                rest, codes, self.steps, work.starts, work.pulls, work.finer, work.own,
                self.set_steps, ends[:m], sums, products, weights,
            )  # fmt: skip

    def _tables(self, ends: LongArray, sums: FloatArray) -> tuple[Table | None, ...]:
        return tuple(
            Table(leaf.size, keys, sums[a:b])
            for leaf, keys, (a, b) in zip(self.work.leaves, self.keys, pairwise(ends), strict=True)
        )


def _add_few(
    rest: FloatArray,
    codes: IntArray,
    steps: LongArray,
    starts: LongArray,
    pulls: FloatArray,
    finer: FloatArray,
    own: FloatArray,
    set_steps: LongArray,
    set_starts: LongArray,
    sums: FloatArray,
    of_rows: FloatArray,
    weights: FloatArray,
) -> None:
    """Do what the kernel `add_level_sums` does, with arrays."""
    k = len(steps)
    of_groups = pulls[starts[:, None] + steps @ codes]  # (k, n, 4)
    effects = of_groups[:, :, 0]
    r = rest - effects.sum(axis=0)
    influences = np.empty((k + 2, rest.size))
    influences[:k] = of_groups[:, :, 1] + of_groups[:, :, 2] * (r + finer @ effects)
    influences[k] = own[0] * r * r
    influences[k + 1] = own[1] - of_groups[:, :, 3].sum(axis=0)
    weighted = influences * weights if weights.size else influences
    for start, places in zip(set_starts, set_steps @ codes, strict=True):
        np.add.at(sums, start + places, weighted.T)
    of_rows[:-1] += weighted @ influences.T
    of_rows[-1] += weighted.sum(axis=1)
