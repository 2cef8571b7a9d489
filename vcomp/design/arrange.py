"""Finds out how facets are arranged: crossed, nested, balanced, connected, replicated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TypeAlias

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.components import REPLICATE, RESIDUAL, closure
from vcomp.design.combine import number_combinations
from vcomp.design.structure import Structure
from vcomp.formula import Formula
from vcomp.kernels.groups import group_counts
from vcomp.kernels.pairs import pair_counts

__all__ = ["describe_structure"]

Units: TypeAlias = Mapping[str, tuple[IntArray, int]]
"""For each facet the unit of every row, and how many there are."""

PairTable: TypeAlias = tuple[LongArray, IntArray, FloatArray]
"""Compressed sparse rows: how often each pair occurs."""

PairTables: TypeAlias = Mapping[tuple[str, str], PairTable]


def describe_structure(
    formula: Formula, n_levels: Sequence[int], codes: Sequence[IntArray], n_rows: int
) -> Structure:
    """Find out how the facets of `formula` are arranged in the coded rows.

    Parameters
    ----------
    n_levels : number of levels of each facet
    codes : (n,) level of each row in each facet
    """
    facets = formula.facets
    columns = {f: (codes[k], n_levels[k]) for k, f in enumerate(facets)}
    pairs = {
        (a, b): pair_counts(columns[a][0], columns[b][0], columns[a][1], columns[b][1])
        for a, b in combinations(facets, 2)
    }
    by_label = _nested_by_label(columns, pairs)
    nested_in = _combined(by_label, _nested_by_formula(formula))
    units = {f: _join(sorted({f, *nested_in[f]}), facets, n_levels, codes) for f in facets}
    # A facet that is not nested is its own unit, and its tables are there already.
    pairs = {pair: t for pair, t in pairs.items() if not any(nested_in[f] for f in pair)}
    crossed, partly = _crossings(nested_in, units, pairs)
    cell_n = _cell_sizes(facets, units, pairs, n_levels, codes)
    children = _children(nested_in, units)
    n_possible = np.prod([n.mean() for n in children.values()])
    equal = all(np.ptp(n) == 0 for n in children.values())
    sizes = _sizes(nested_in, units, pairs, children)
    if cell_n.max() > 1 and REPLICATE not in facets:
        sizes[REPLICATE] = _harmonic_mean(cell_n)
    return Structure(
        facets=facets,
        n_levels=tuple(units[f][1] for f in facets),
        nested_in=nested_in,
        implicit=tuple(f for f in facets if by_label[f]),
        fully_crossed=crossed,
        partly_crossed=partly,
        n_rows=n_rows,
        n_cells=cell_n.size,
        cell_min=int(cell_n.min()),
        cell_max=int(cell_n.max()),
        balanced=bool(equal and round(n_possible) == cell_n.size and np.ptp(cell_n) == 0),
        sizes=sizes,
        n_parts=_count_parts([f for f in facets if not nested_in[f]], units, pairs),
        terms=_effects(formula, nested_in, replicated=bool(cell_n.max() > 1)),
    )


def _nested_by_label(columns: Units, pairs: PairTables) -> dict[str, frozenset[str]]:
    """Return for each facet the coarser ones that each of its levels occurs in once."""
    above: dict[str, set[str]] = {f: set() for f in columns}
    for (a, b), (_, indices, _) in pairs.items():
        n_a, n_b = columns[a][1], columns[b][1]
        if indices.size == n_a > n_b:
            above[a].add(b)
        elif indices.size == n_b > n_a:
            above[b].add(a)
    return {f: frozenset(s) for f, s in above.items()}


def _nested_by_formula(formula: Formula) -> dict[str, frozenset[str]]:
    """Return for each facet those that stand in every term it is in, and in others besides.

    ``(1|topic/doc)`` gives no term in which doc stands alone: its component cannot be told from
    that of topic:doc, which is what being nested means for a D-study.
    """
    terms_of = {
        f: frozenset(k for k, term in enumerate(formula.random) if f in term.facets)
        for f in formula.facets
    }
    return {
        f: frozenset(g for g in formula.facets if terms_of[f] < terms_of[g])
        for f in formula.facets
    }


def _combined(
    by_label: Mapping[str, frozenset[str]], by_formula: Mapping[str, frozenset[str]]
) -> dict[str, frozenset[str]]:
    """Return all that each facet is nested in; where the two contradict, labels are facts."""
    nested_in = dict(by_label)
    for facet, above in by_formula.items():
        for other in sorted(above):
            if facet not in closure(frozenset({other}), nested_in):
                nested_in[facet] |= {other}
    return {f: closure(frozenset({f}), nested_in) - {f} for f in nested_in}


def _join(
    names: Sequence[str],
    facets: Sequence[str],
    n_levels: Sequence[int],
    codes: Sequence[IntArray],
) -> tuple[IntArray, int]:
    """Return the number of each row's combination of some facets, and how many there are."""
    first, *others = (facets.index(name) for name in names)
    groups, size = codes[first], n_levels[first]
    for facet in others:
        known, groups = number_combinations(groups, size, codes[facet], n_levels[facet])
        size = known.size
    return groups, size


def _table(a: str, b: str, units: Units, pairs: PairTables) -> PairTable:
    """Return how often each pair of units occurs, counted anew only where it has to be."""
    if (a, b) in pairs:
        return pairs[a, b]
    (codes_a, n_a), (codes_b, n_b) = units[a], units[b]
    table: PairTable = pair_counts(codes_a, codes_b, n_a, n_b)
    return table


def _cell_sizes(
    facets: Sequence[str],
    units: Units,
    pairs: PairTables,
    n_levels: Sequence[int],
    codes: Sequence[IntArray],
) -> FloatArray:
    """Return the number of rows of every cell that has any."""
    if tuple(facets) in pairs:
        return pairs[facets[0], facets[1]][2]
    cells, n_cells = _join(facets, facets, n_levels, codes)
    sizes: FloatArray = group_counts(cells, n_cells)
    return sizes


def _crossings(
    nested_in: Mapping[str, frozenset[str]], units: Units, pairs: PairTables
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Sort the pairs of facets without nesting into fully and partly crossed ones."""
    fully: list[tuple[str, str]] = []
    partly: list[tuple[str, str]] = []
    for a, b in combinations(nested_in, 2):
        if a in nested_in[b] or b in nested_in[a] or nested_in[a] & nested_in[b]:
            continue
        n_pairs = _table(a, b, units, pairs)[1].size
        (fully if n_pairs == units[a][1] * units[b][1] else partly).append((a, b))
    return tuple(fully), tuple(partly)


def _children(nested_in: Mapping[str, frozenset[str]], units: Units) -> dict[str, FloatArray]:
    """Return for each facet the number of its levels within each group that it is nested in."""
    children = {}
    for facet, parents in nested_in.items():
        codes, size = units[facet]
        if parents:
            groups, n_groups = _join_units(parents, units)
            children[facet] = np.diff(pair_counts(groups, codes, n_groups, size)[0]).astype(float)
        else:
            children[facet] = np.array([float(size)])
    return children


def _sizes(
    nested_in: Mapping[str, frozenset[str]],
    units: Units,
    pairs: PairTables,
    children: Mapping[str, FloatArray],
) -> dict[str, float]:
    """Return the sizes that a D-study takes where it is given none."""
    sizes = {}
    top = [f for f, above in nested_in.items() if not above]
    for facet, counts in children.items():
        other = next((f for f in top if f != facet), None)
        if facet in top and other is not None:
            counts = _met(other, facet, units, pairs)
        sizes[facet] = _harmonic_mean(counts)
    return sizes


def _met(a: str, b: str, units: Units, pairs: PairTables) -> FloatArray:
    """Return how many levels of b each level of a occurs with."""
    if (b, a) in pairs:
        return np.bincount(pairs[b, a][1], minlength=units[a][1]).astype(float)
    return np.diff(_table(a, b, units, pairs)[0]).astype(float)


def _harmonic_mean(counts: FloatArray) -> float:
    # Of equal counts exactly that count, which rounding of the sum would move.
    return float(counts[0] if np.ptp(counts) == 0 else counts.size / np.sum(1.0 / counts))


def _join_units(names: frozenset[str], units: Units) -> tuple[IntArray, int]:
    ordered = sorted(names)
    return _join(ordered, ordered, [units[f][1] for f in ordered], [units[f][0] for f in ordered])


def _count_parts(top: Sequence[str], units: Units, pairs: PairTables) -> int:
    """Return the number of connected parts of the graph whose edges are the rows.

    Its nodes are the levels of the facets that are not nested; a nested level always hangs on the
    one that it is nested in.
    """
    if len(top) < 2:
        return 1
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    hub, *others = top
    n_hub = offset = units[hub][1]
    rows, cols = [], []
    for other in others:
        indptr, indices, _ = _table(hub, other, units, pairs)
        rows.append(np.repeat(np.arange(n_hub), np.diff(indptr)))
        cols.append(indices + offset)
        offset += units[other][1]
    i, j = np.concatenate(rows), np.concatenate(cols)
    graph = coo_array((np.ones(i.size), (i, j)), shape=(offset, offset))
    return int(connected_components(graph, directed=False)[0])


def _effects(
    formula: Formula, nested_in: Mapping[str, frozenset[str]], *, replicated: bool
) -> dict[str, tuple[str, ...]]:
    """Return the crossed effects that each component holds under the nesting of the design.

    An effect that the model has no term for is in the residual when all its facets are.
    """
    facets = formula.facets
    subsets = [frozenset(s) for r in range(1, len(facets) + 1) for s in combinations(facets, r)]
    by_closure: dict[frozenset[str], list[str]] = {}
    for s in subsets:
        label = ":".join(f for f in facets if f in s)
        by_closure.setdefault(closure(s, nested_in), []).append(label)
    held: dict[str, tuple[str, ...]] = {}
    for term in formula.random:
        effects = by_closure.pop(closure(frozenset(term.facets), nested_in), [])
        held[term.name] = tuple(effects) or (term.name,)
    everything = frozenset(facets)
    left = by_closure.get(everything, [])
    held[RESIDUAL] = (*left, "replication and error" if replicated else "error")
    return held
