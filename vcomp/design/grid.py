"""The grid of a design: facets fully crossed with everything else, and the cells of the others.

In p × (d:i) every person meets every document: p is an axis of the grid, and the documents, with
the topics that they are in, are the cells along it. Axes split a design into orthogonal strata,
and nesting is found on few cells instead of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from math import prod
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.numerics.kernels import count_levels, determined_levels, place_rows

_DIRECT = 1_000_000
"""Number of possible combinations up to which a table of all is used, however few the rows."""


def number_combinations(
    groups: Any, n_groups: int, codes: Any, n_levels: int
) -> tuple[LongArray, IntArray]:
    """Return numbers for the combinations that occur, in their order.

    Parameters
    ----------
    groups, codes : (n,) two columns of codes
    n_groups, n_levels : how many codes each has

    Returns
    -------
    keys : (m,) sorted, ``group * n_levels + code`` of each combination
    numbers : (n,) the combination of each row

    Examples
    --------
    >>> a, b = np.array([0, 1, 1, 0], np.int32), np.array([2, 0, 2, 2], np.int32)
    >>> keys, numbers = number_combinations(a, 2, b, 3)
    >>> keys.tolist(), numbers.tolist()
    ([2, 3, 5], [0, 1, 2, 0])
    """
    possible = n_groups * n_levels
    joined = groups.astype(np.int32 if possible < 2**31 else np.int64)
    joined *= n_levels
    joined += codes
    if possible > max(_DIRECT, 4 * joined.size):
        keys, numbers = np.unique(joined, return_inverse=True)
        return keys.astype(np.int64), numbers.astype(np.int32)
    # A table of all combinations is several times faster than sorting the rows.
    occurs = np.zeros(possible, dtype=bool)
    occurs[joined] = True
    number = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
    return np.flatnonzero(occurs), number[joined]


@dataclass(frozen=True, slots=True)
class JoinedLevels:
    """Levels of several facets as the digits of one integer, the lowest those of the last facet.

    Attributes
    ----------
    places : positions of the facets
    sizes : their numbers of levels

    Examples
    --------
    >>> joined = JoinedLevels((2, 0), (5, 10))
    >>> joined.numbers({0: np.array([7]), 2: np.array([4])})
    array([47])
    >>> joined.steps(3)
    array([ 1,  0, 10])
    """

    places: tuple[int, ...]
    sizes: tuple[int, ...]

    def steps(self, n_places: int) -> LongArray:
        """Return the factor of each facet's level, 0 for other facets.

        Parameters
        ----------
        n_places : number of all facets
        """
        steps, step = np.zeros(n_places, dtype=np.int64), 1
        for place, size in zip(reversed(self.places), reversed(self.sizes), strict=True):
            steps[place], step = step, step * size
        return steps

    def numbers(self, codes: Any, head: Any = 0) -> Any:
        """Return the integers.

        Parameters
        ----------
        codes : levels by position of the facet, arrays that broadcast
        head : digits before the first
        """
        joined: Any = np.int64(head) if np.ndim(head) == 0 else head
        for place, size in zip(self.places, self.sizes, strict=True):
            joined = joined * np.int64(size) + codes[place]
        return joined

    def levels(self, numbers: Any, dtype: Any = np.int64) -> tuple[Any, dict[int, Any]]:
        """Return the digits before the first, and the levels by position of the facet.

        Parameters
        ----------
        numbers : the integers
        dtype : of the levels
        """
        rest, found = numbers, {}
        for place, size in zip(reversed(self.places), reversed(self.sizes), strict=True):
            rest, level = np.divmod(rest, size)
            found[place] = level.astype(dtype, copy=False)
        return rest, found


def find_combinations(keys: LongArray, wanted: LongArray) -> IntArray:
    """Return the position of each wanted key among the sorted `keys`, −1 if it is absent.

    Examples
    --------
    >>> find_combinations(np.array([2, 3, 5]), np.array([5, 4, -1])).tolist()
    [2, -1, -1]
    """
    possible = int(keys[-1]) + 1
    if possible > max(_DIRECT, 4 * wanted.size):
        positions = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
        return np.where(keys[positions] == wanted, positions, -1).astype(np.int32)
    # The last entry is for absent keys.
    number = np.full(possible + 1, -1, dtype=np.int32)
    number[keys] = np.arange(keys.size, dtype=np.int32)
    return number[np.where((wanted < 0) | (wanted >= possible), possible, wanted)]


_MIN_FILLED = 0.5
"""Smallest share of filled cells at which a partial grid is faster than none."""


@dataclass(frozen=True, slots=True)
class TermDesign:
    """A random term: how combinations of facet levels become its groups.

    Facets are joined one by one: after each join the combinations that occur are numbered again,
    so that no key exceeds (groups so far) × (levels of the next facet).
    """

    name: str
    facets: tuple[int, ...]
    """Positions of its facets in ``Design.facets``, in the order in which they are joined."""
    keys: tuple[LongArray | None, ...]
    """For each join the sorted keys ``group * n_levels + level`` that occur; None if all do."""
    size: int
    """Number of groups."""

    def level_codes(self, n_levels: tuple[int, ...]) -> tuple[LongArray, ...]:
        """Return for each facet of the term the level in each of its groups."""
        codes: list[LongArray] = []
        groups = np.arange(self.size, dtype=np.int64)
        for facet, keys in zip(reversed(self.facets[1:]), reversed(self.keys), strict=True):
            joined = groups if keys is None else keys[groups]
            codes.append(joined % n_levels[facet])
            groups = joined // n_levels[facet]
        return (groups, *reversed(codes))

    def groups(
        self, codes: Sequence[Any] | Mapping[int, Any], n_levels: tuple[int, ...]
    ) -> IntArray:
        """Return the (n,) group of each row, −1 for a level or combination that is not known.

        Parameters
        ----------
        codes : (n,) level of each row in each facet of the design, −1 where it is not known
        n_levels : numbers of levels of the facets
        """
        groups = codes[self.facets[0]]
        for facet, keys in zip(self.facets[1:], self.keys, strict=True):
            joined = groups.astype(np.int64) * n_levels[facet] + codes[facet]
            joined[(groups < 0) | (codes[facet] < 0)] = -1
            groups = joined.astype(np.int32) if keys is None else find_combinations(keys, joined)
        return np.ascontiguousarray(groups, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Grid:
    """A complete grid: every combination of axis levels has the same rows in each cell.

    Attributes
    ----------
    axes : positions of the facets that are fully crossed with all others
    shape : their numbers of levels
    rest : positions of the other facets
    joins : the facets of `rest` whose levels identify the cells, with the sorted keys of each
        join after the first, as in :class:`~vcomp.design.TermDesign`
    levels : for each facet of `rest` the (M,) level in each cell
    cell_n : (M,) rows that a cell has for each combination of axis levels
    """

    axes: tuple[int, ...]
    shape: tuple[int, ...]
    rest: tuple[int, ...]
    joins: tuple[tuple[int, LongArray], ...]
    levels: tuple[IntArray, ...]
    cell_n: FloatArray

    @classmethod
    def of_cells(
        cls,
        axes: Sequence[int],
        finest: Sequence[int],
        levels: Mapping[int, IntArray],
        n_levels: Sequence[int],
        cell_n: FloatArray,
    ) -> Grid:
        """Return the grid of some cells.

        Parameters
        ----------
        axes : positions of the axes, in order
        finest : positions of the non-redundant facets that are not axes
        levels : for each facet that is not an axis the (M,) level in each cell
        n_levels : number of levels of each facet
        cell_n : (M,) rows that a cell has for each combination of axis levels
        """
        return cls(
            axes=tuple(axes),
            shape=tuple(n_levels[f] for f in axes),
            rest=tuple(sorted(levels)),
            joins=_join_facets(finest, levels, n_levels)[0],
            levels=tuple(levels[f] for f in sorted(levels)),
            cell_n=cell_n,
        )

    @property
    def n_cells(self) -> int:
        """M, the number of cells of the facets that are not axes."""
        return int(self.cell_n.size)

    @property
    def n_combinations(self) -> int:
        """Number of combinations of axis levels."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class PartialGrid:
    """A grid with holes: most combinations of axis levels and cells have one row, some have none.

    Attributes
    ----------
    grid : the grid as it would be without holes, with one row in each cell
    holes : (h,) places of the empty cells, ``combination * M + cell``, sorted
    """

    grid: Grid
    holes: LongArray


def find_grid(
    codes: Sequence[IntArray], n_levels: Sequence[int], terms: Sequence[tuple[int, ...]]
) -> Grid | None:
    """Return the grid with as many axes as the rows allow.

    Without any axis there is a grid only where all terms are nested in each other: otherwise it
    would have as many cells as rows.

    Parameters
    ----------
    codes : (n,) level of each row in each facet
    n_levels : number of levels of each facet
    terms : the facets of each random term
    """
    determined = _determined(codes, n_levels)
    bound = {f for pair in determined for f in pair}
    n, free = codes[0].size, [f for f in range(len(codes)) if f not in bound]
    candidates = tuple(
        f
        for f in free
        if n % n_levels[f] == 0 and np.ptp(count_levels(codes[f], n_levels[f])) == 0
    )
    grid = None
    if candidates:
        grid = _complete_grid(candidates, codes, n_levels, determined)
    if grid is None and len(candidates) > 1:
        alone = [f for f in candidates if _complete_grid((f,), codes, n_levels, determined)]
        # Facets that are each crossed with all others are also crossed jointly.
        grid = _complete_grid(tuple(alone), codes, n_levels, determined) if alone else None
    if grid is None and are_nested(terms, determined):
        grid = _complete_grid((), codes, n_levels, determined)
    return grid


def find_partial_grid(codes: Sequence[IntArray], n_levels: Sequence[int]) -> PartialGrid | None:
    """Return the grid that the rows nearly fill; None if it would be mostly holes.

    Axes are all facets that are not nested in another one, and in which no other is nested.

    Parameters
    ----------
    codes, n_levels : as for :func:`find_grid`
    """
    determined = _determined(codes, n_levels)
    bound = {f for pair in determined for f in pair}
    axes = tuple(f for f in range(len(codes)) if f not in bound)
    shape = tuple(n_levels[f] for f in axes)
    n_combinations = prod(shape)
    if not axes or n_combinations > codes[0].size / _MIN_FILLED:
        return None
    rest = tuple(f for f in range(len(codes)) if f not in axes)
    finest = finest_facets(rest, determined)
    joins, cells, size = _join_facets(finest, codes, n_levels)
    if codes[0].size < _MIN_FILLED * n_combinations * size:
        return None
    counts = count_levels(_places(axes, shape, codes, cells, size), n_combinations * size)
    if counts.max() > 1:
        return None
    levels = tuple(_levels(f, joins, n_levels, size, determined) for f in rest)
    grid = Grid(axes, shape, rest, joins, levels, np.ones(size))
    return PartialGrid(grid, np.flatnonzero(counts == 0))


def are_nested(
    terms: Sequence[tuple[int, ...]], determined: Mapping[tuple[int, int], IntArray]
) -> bool:
    """Return whether the terms form a chain: of any two, one holds the closure of the other."""
    known = [
        frozenset(term) | {outer for inner, outer in determined if inner in term} for term in terms
    ]
    ordered = sorted(known, key=len)
    return all(a <= b for a, b in pairwise(ordered))


def _determined(
    codes: Sequence[IntArray], n_levels: Sequence[int]
) -> dict[tuple[int, int], IntArray]:
    """Return the outer level of each inner level, for pairs (inner, outer) of nested facets."""
    nested = {}
    for inner, outer in permutations(range(len(codes)), 2):
        if n_levels[inner] >= n_levels[outer]:
            level = determined_levels(codes[inner], codes[outer], n_levels[inner])
            if level.size:
                nested[inner, outer] = level
    return nested


def _complete_grid(
    axes: tuple[int, ...],
    codes: Sequence[IntArray],
    n_levels: Sequence[int],
    determined: dict[tuple[int, int], IntArray],
) -> Grid | None:
    """Return the grid with these axes, or None if cells hold different numbers of rows."""
    n, shape = codes[0].size, tuple(n_levels[f] for f in axes)
    n_combinations = prod(shape)
    if n % n_combinations:
        return None
    rest = tuple(f for f in range(len(codes)) if f not in axes)
    finest = finest_facets(rest, determined)
    joins, cells, size = _join_facets(finest, codes, n_levels)
    if n_combinations * size > n:
        return None
    places = _places(axes, shape, codes, cells, size)
    counts = count_levels(places, n_combinations * size).reshape(n_combinations, size)
    if (counts != counts[0]).any() or not counts[0].all():
        return None
    levels = tuple(_levels(f, joins, n_levels, size, determined) for f in rest)
    return Grid(axes, shape, rest, joins, levels, counts[0].astype(float))


def _places(
    axes: tuple[int, ...],
    shape: tuple[int, ...],
    codes: Sequence[IntArray],
    cells: IntArray,
    n_cells: int,
) -> Any:
    """Return the place of each row in the grid; `cells` are not read if it has one cell."""
    n_places = prod(shape) * n_cells
    places = np.zeros(codes[0].size, dtype=np.int32 if n_places < 2**31 else np.int64)
    for axis, size in zip(axes, shape, strict=True):
        place_rows(places, codes[axis], size)
    if n_cells > 1:
        place_rows(places, cells, n_cells)
    return places


def finest_facets(
    facets: Sequence[int], determined: Mapping[tuple[int, int], IntArray]
) -> list[int]:
    """Return the innermost facets; of two with equal levels only the first.

    Parameters
    ----------
    facets : positions
    determined : for nested pairs of facets (inner, outer) the outer level of each inner level
    """

    def is_redundant(facet: int) -> bool:
        return any(
            (other, facet) in determined and not ((facet, other) in determined and facet < other)
            for other in facets
            if other != facet
        )

    return [f for f in facets if not is_redundant(f)]


def _join_facets(
    facets: Sequence[int],
    codes: Sequence[IntArray] | Mapping[int, IntArray],
    n_levels: Sequence[int],
) -> tuple[tuple[tuple[int, LongArray], ...], IntArray, int]:
    """Return the joins of some facets, the combination of each row, and how many there are."""
    if not facets:
        return (), np.zeros(0, np.int32), 1
    cells, size = codes[facets[0]], n_levels[facets[0]]
    joins = [(facets[0], np.arange(size))]
    for facet in facets[1:]:
        keys, cells = number_combinations(cells, size, codes[facet], n_levels[facet])
        size = keys.size
        joins.append((facet, keys))
    return tuple(joins), cells, size


def _levels(
    facet: int,
    joins: tuple[tuple[int, LongArray], ...],
    n_levels: Sequence[int],
    size: int,
    determined: dict[tuple[int, int], IntArray],
) -> IntArray:
    """Return the level of one facet in each cell."""
    groups = np.arange(size, dtype=np.int64)
    level_of: dict[int, LongArray] = {}
    for joined, keys in reversed(joins[1:]):
        level_of[joined] = keys[groups] % n_levels[joined]
        groups = keys[groups] // n_levels[joined]
    level_of[joins[0][0]] = groups
    if facet in level_of:
        return level_of[facet].astype(np.int32)
    finer = next(f for f in level_of if (f, facet) in determined)
    return determined[finer, facet][level_of[finer]]
