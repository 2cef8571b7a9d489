"""The structure of the data: which facets are crossed, nested, balanced, connected, replicated.

It is found from the coded rows or from the cells of a grid, as the last part of the design.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.design.grid import Grid, number_combinations
from vcomp.design.structure import ConnectedPart, Structure
from vcomp.formula import REPLICATE, BrennanDesign, Formula, closure
from vcomp.numerics.kernels import ONCE, connected_sets, count_levels, pair_counts

PairTable: TypeAlias = tuple[LongArray, IntArray, FloatArray]
"""Compressed sparse rows: how often each pair occurs."""

PairTables: TypeAlias = Mapping[tuple[str, str], PairTable]

CountedPairs: TypeAlias = dict[tuple[int, ...], PairTable]
"""Pair tables of rows by the positions of two facets, which later steps need not count again."""


@dataclass(frozen=True, slots=True)
class Incidence:
    """Which units of the facets occur together.

    Attributes
    ----------
    axes : facets that are fully crossed with everything, with their numbers of levels
    units : for each other facet the unit of every row, and how many there are
    pairs : pair tables of the others that were counted already
    """

    axes: Mapping[str, int]
    units: Mapping[str, tuple[IntArray, int]]
    pairs: PairTables

    def size(self, facet: str) -> int:
        """Return the number of units of a facet."""
        return self.axes[facet] if facet in self.axes else self.units[facet][1]

    def table(self, a: str, b: str) -> PairTable:
        """Return how often each pair of units occurs; a known table is not counted again."""
        if (a, b) in self.pairs:
            return self.pairs[a, b]
        (codes_a, n_a), (codes_b, n_b) = self.units[a], self.units[b]
        return pair_counts(codes_a, codes_b, n_a, n_b, ONCE)

    def is_complete(self, a: str, b: str) -> bool:
        """Return whether every unit of a facet occurs with every unit of another."""
        return int(self.table(a, b)[1].size) == self.size(a) * self.size(b)

    def met(self, a: str, b: str) -> FloatArray:
        """Return how many units of b each unit of a occurs with."""
        if a in self.axes or b in self.axes:
            return np.full(self.size(a), float(self.size(b)))
        if (b, a) in self.pairs:
            return count_levels(self.pairs[b, a][1], self.size(a)).astype(float)
        return np.diff(self.table(a, b)[0]).astype(float)


def describe_structure(
    formula: Formula,
    n_levels: Sequence[int],
    codes: Sequence[IntArray],
    n_rows: int,
    grid: Grid | None = None,
    labels: Sequence[Any] | None = None,
    counts: FloatArray | None = None,
    fixed: Collection[frozenset[str]] = (),
    counted: CountedPairs | None = None,
) -> Structure:
    """Return which facets of the coded rows are nested, crossed, balanced and connected.

    Parameters
    ----------
    n_levels : number of levels of each facet
    codes : (n,) level of each row in each facet
    grid : the complete grid of the rows, if they have one: its cells then suffice, and no row is
        read again
    labels : names of the levels of each facet; without them levels are numbers from 0 on
    counts : (n,) rows of each cell, where `codes` are those of cells
    fixed : facets of each effect in the fixed part
    counted : receives the pair tables of the rows by positions of facets; None to keep none
    """
    facets, by_formula = formula.facets, _nested_by_formula(formula, fixed)
    axes, columns = _reduced(facets, n_levels, codes, grid, by_formula)
    pairs = {
        (a, b): pair_counts(columns[a][0], columns[b][0], columns[a][1], columns[b][1], ONCE)
        for a, b in combinations(columns, 2)
    }
    if counted is not None and grid is None:
        counted.update({(facets.index(a), facets.index(b)): t for (a, b), t in pairs.items()})
    by_label = _nested_by_label(columns, pairs) | dict.fromkeys(axes, frozenset())
    nested_in = {f: by_label[f] for f in facets}
    if any(by_formula.values()) or any(by_label.values()):
        nested_in = _combined(nested_in, by_formula)
    units = {f: _join(sorted({f, *nested_in[f]}), columns) for f in columns}
    # A facet that is not nested is its own unit, and its tables are there already.
    pairs = {pair: t for pair, t in pairs.items() if not any(nested_in[f] for f in pair)}
    incidence = Incidence(axes, units, pairs)
    crossed, partly = _crossings(nested_in, incidence)
    if counts is not None:
        cell_n, n_cells = counts, counts.size
    elif grid is None:
        cell_n, n_cells = _cell_sizes(facets, columns, pairs)
    else:
        cell_n, n_cells = grid.cell_n, grid.n_cells * grid.n_combinations
    children = _children(nested_in, incidence)
    n_possible = np.prod([n.mean() for n in children.values()])
    equal = all(np.ptp(n) == 0 for n in children.values())
    sizes = _sizes(nested_in, incidence, children)
    names = labels if labels is not None else [range(n) for n in n_levels]
    top = {f: names[k] for k, f in enumerate(facets) if not nested_in[f]}
    n_parts, parts = 1, tuple[ConnectedPart, ...]()
    if len(top) > 1 and not any(f in axes for f in top):
        n_parts, parts = _parts(top, incidence)
    if cell_n.max() > 1 and REPLICATE not in facets:
        sizes[REPLICATE] = _harmonic_mean(cell_n)
    return Structure(
        facets=facets,
        n_levels=tuple(incidence.size(f) for f in facets),
        nested_in=nested_in,
        implicit=tuple(f for f in facets if by_label[f]),
        fully_crossed=crossed,
        partly_crossed=partly,
        n_rows=n_rows,
        n_cells=n_cells,
        cell_min=int(cell_n.min()),
        cell_max=int(cell_n.max()),
        balanced=bool(equal and round(n_possible) == n_cells and np.ptp(cell_n) == 0),
        sizes=sizes,
        n_parts=n_parts,
        terms=BrennanDesign(facets, nested_in).held_effects(
            list(dict.fromkeys(term.facets for term in formula.random)),
            replicated=bool(cell_n.max() > 1),
        ),
        parts=parts,
        fixed=tuple(":".join(f for f in facets if f in e) for e in fixed if e <= set(facets)),
        slopes=_slopes(formula) if formula.has_slopes else {},
    )


def _slopes(formula: Formula) -> dict[str, tuple[str, ...]]:
    """Return for each random term with slopes the names of its variances."""
    names: dict[str, tuple[str, ...]] = {}
    for term in formula.random:
        groups = ":".join(term.facets)
        names[groups] = (*names.get(groups, ()), term.name)
    return {groups: own for groups, own in names.items() if own != (groups,)}


def _reduced(
    facets: Sequence[str],
    n_levels: Sequence[int],
    codes: Sequence[IntArray],
    grid: Grid | None,
    by_formula: Mapping[str, frozenset[str]],
) -> tuple[dict[str, int], dict[str, tuple[IntArray, int]]]:
    """Return the axes that need no counting, and the other facets on the cells of the grid.

    An axis is counted if the formula nests it in other facets, or others in it: its units are
    combinations.
    """
    if grid is None:
        return {}, {f: (codes[k], n_levels[k]) for k, f in enumerate(facets)}
    nested = {f for f, above in by_formula.items() if above}
    nested = nested.union(*by_formula.values())
    free = {facets[k]: n for k, n in zip(grid.axes, grid.shape, strict=True)}
    joined = [k for k in grid.axes if facets[k] in nested]
    shape = (*(n_levels[k] for k in joined), grid.n_cells)
    places = np.indices(shape, dtype=np.int32, sparse=True)
    columns = {}
    for k, place in zip(joined, places, strict=False):
        columns[facets[k]] = np.broadcast_to(place, shape).ravel(), n_levels[k]
    for k, levels in zip(grid.rest, grid.levels, strict=True):
        columns[facets[k]] = np.broadcast_to(levels, shape).ravel(), n_levels[k]
    axes = {f: n for f, n in free.items() if f not in nested}
    return axes, {f: columns[f] for f in facets if f in columns}


def _nested_by_label(
    columns: Mapping[str, tuple[IntArray, int]], pairs: PairTables
) -> dict[str, frozenset[str]]:
    """Return for each facet the coarser facets in which it is nested by its labels."""
    above: dict[str, set[str]] = {f: set() for f in columns}
    for (a, b), (_, indices, _) in pairs.items():
        n_a, n_b = columns[a][1], columns[b][1]
        if indices.size == n_a > n_b:
            above[a].add(b)
        elif indices.size == n_b > n_a:
            above[b].add(a)
    return {f: frozenset(s) for f, s in above.items()}


def _nested_by_formula(
    formula: Formula, fixed: Collection[frozenset[str]]
) -> dict[str, frozenset[str]]:
    """Return the facets in which the formula nests each facet: in all of its terms, and in others.

    ``(1|topic/doc)`` has no term of doc alone: its component cannot be
    distinguished from that of topic:doc, which is what being nested means for a D-study.
    """
    terms = [*dict.fromkeys(frozenset(term.facets) for term in formula.random), *fixed]
    terms_of = {
        f: frozenset(k for k, term in enumerate(terms) if f in term) for f in formula.facets
    }
    return {
        f: frozenset(g for g in formula.facets if terms_of[f] < terms_of[g])
        for f in formula.facets
    }


def _combined(
    by_label: Mapping[str, frozenset[str]], by_formula: Mapping[str, frozenset[str]]
) -> dict[str, frozenset[str]]:
    """Return for each facet all outer facets; labels prevail over the formula.

    The formula does not nest a facet in another if a facet nested in the first by labels is
    crossed with the second: digits are not nested in seeds if images of digits are crossed with
    seeds.
    """
    nested_in = dict(by_label)
    for facet, above in by_formula.items():
        inner = [f for f in by_label if facet in by_label[f]]
        for other in sorted(above):
            within = all(other in by_label[f] | by_formula[f] for f in inner)
            if within and facet not in closure(frozenset({other}), nested_in):
                nested_in[facet] |= {other}
    return {f: closure(frozenset({f}), nested_in) - {f} for f in nested_in}


def _join(
    names: Sequence[str], columns: Mapping[str, tuple[IntArray, int]]
) -> tuple[IntArray, int]:
    """Return the number of each row's combination of some facets, and how many there are."""
    first, *others = names
    groups, size = columns[first]
    for name in others:
        known, groups = number_combinations(groups, size, *columns[name])
        size = known.size
    return groups, size


def _cell_sizes(
    facets: Sequence[str], columns: Mapping[str, tuple[IntArray, int]], pairs: PairTables
) -> tuple[FloatArray, int]:
    """Return the numbers of rows of the filled cells, and the number of these cells."""
    if tuple(facets) in pairs:
        counts = pairs[facets[0], facets[1]][2]
        return counts, counts.size
    cells, n_cells = _join(facets, columns)
    sizes: FloatArray = count_levels(cells, n_cells).astype(float)
    return sizes, n_cells


def _crossings(
    nested_in: Mapping[str, frozenset[str]], incidence: Incidence
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Sort the pairs of facets without nesting into fully and partly crossed ones."""
    fully: list[tuple[str, str]] = []
    partly: list[tuple[str, str]] = []
    for a, b in combinations(nested_in, 2):
        if a in nested_in[b] or b in nested_in[a] or nested_in[a] & nested_in[b]:
            continue
        complete = a in incidence.axes or b in incidence.axes or incidence.is_complete(a, b)
        (fully if complete else partly).append((a, b))
    return tuple(fully), tuple(partly)


def _children(
    nested_in: Mapping[str, frozenset[str]], incidence: Incidence
) -> dict[str, FloatArray]:
    """Return for each facet the number of its levels within each group that it is nested in."""
    children = {}
    for facet, parents in nested_in.items():
        if parents:
            codes, size = incidence.units[facet]
            groups, n_groups = _join(sorted(parents), incidence.units)
            starts = pair_counts(groups, codes, n_groups, size, ONCE)[0]
            children[facet] = np.diff(starts).astype(float)
        else:
            children[facet] = np.array([float(incidence.size(facet))])
    return children


def _sizes(
    nested_in: Mapping[str, frozenset[str]],
    incidence: Incidence,
    children: Mapping[str, FloatArray],
) -> dict[str, float]:
    """Return the default sizes of a D-study."""
    sizes = {}
    top = [f for f, above in nested_in.items() if not above]
    for facet, counts in children.items():
        other = next((f for f in top if f != facet), None)
        if facet in top and other is not None:
            counts = incidence.met(other, facet)
        sizes[facet] = _harmonic_mean(counts)
    return sizes


def _harmonic_mean(counts: FloatArray) -> float:
    # Equal counts return exactly that count, without the rounding of a sum.
    return float(counts[0] if np.ptp(counts) == 0 else counts.size / np.sum(1.0 / counts))


def _parts(top: Mapping[str, Any], incidence: Incidence) -> tuple[int, tuple[ConnectedPart, ...]]:
    """Return the number of connected parts of the design, and the largest parts.

    The nodes of the graph are the levels of the facets that are not nested, its edges the rows.
    A nested level is always in the part of its outer level.

    Parameters
    ----------
    top : these facets with the names of their levels; none of them is an axis
    """
    hub, *others = top
    # A level that meets all levels of the hub joins them, and these join all others.
    if any(incidence.met(other, hub).max() == incidence.size(hub) for other in others):
        return 1, ()
    ends = np.cumsum([incidence.size(f) for f in top])
    tables = [
        (*incidence.table(hub, other)[:2], int(offset))
        for other, offset in zip(others, ends, strict=False)
    ]
    n_parts, part_of = connected_sets(tables, int(ends[-1]))
    if n_parts == 1:
        return 1, ()
    by_facet = dict(zip(top, np.split(part_of, ends[:-1]), strict=True))
    # Largest number of connected parts that are described
    largest = np.argsort(-np.bincount(part_of), kind="stable")[:5]
    return n_parts, tuple(_part(int(number), by_facet, top) for number in largest)


def _part(
    number: int, by_facet: Mapping[str, LongArray], names: Mapping[str, Any]
) -> ConnectedPart:
    """Return a connected part: its numbers of levels by facet, and the first of their names."""
    levels = {f: np.flatnonzero(part_of == number) for f, part_of in by_facet.items()}
    return ConnectedPart(
        sizes={f: int(members.size) for f, members in levels.items()},
        examples={
            # Largest number of levels of a facet that are named in a part
            f: tuple(str(names[f][k]) for k in members[:3])
            for f, members in levels.items()
        },
    )
