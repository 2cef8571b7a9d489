"""A number for every cell that a row can be in, from the levels that tell it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.design.grid import Grid, is_redundant, join_facets
from vcomp.design.survey import Survey
from vcomp.exceptions import EstimationError
from vcomp.kernels.codes import place_rows

__all__ = ["CellPlaces"]

_MOST_PLACES = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class CellPlaces:
    """Where each combination of levels is.

    Facets that others tell take no part: a document tells its topic.

    Attributes
    ----------
    n_levels : of all facets
    free : the facets that tell the cells; first those that neither tell nor are told by another
    n_bound : how many of `free`, the last ones, tell others
    told : for each other facet one of `free` that tells it, and the level of each level of that
    """

    n_levels: tuple[int, ...]
    free: tuple[int, ...]
    n_bound: int
    told: Mapping[int, tuple[int, IntArray]]

    @classmethod
    def of(cls, survey: Survey, names: Sequence[str]) -> CellPlaces:
        """Return the places of the levels that a survey of all rows found.

        Raises
        ------
        EstimationError
            If there are too many to be numbered.
        """
        n_levels = tuple(len(facet.levels) for facet in survey.facets)
        every = range(len(n_levels))
        rest = [f for f in every if not is_redundant(f, every, survey.told)]
        told = {}
        for outer in every:
            if outer not in rest:
                inner = next(f for f in rest if (f, outer) in survey.told)
                told[outer] = inner, survey.told[inner, outer]
        binding = {inner for inner, _ in told.values()}
        free = (*(f for f in rest if f not in binding), *(f for f in rest if f in binding))
        if prod(n_levels[f] for f in free) > _MOST_PLACES:
            shown = " × ".join(f"{n_levels[f]:,} {names[f]}" for f in free)
            raise EstimationError(f"{shown} are too many cells to be numbered; leave a facet out")
        return cls(n_levels, free, len(binding), told)

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of levels of the facets that tell the cells."""
        return tuple(self.n_levels[f] for f in self.free)

    @property
    def size(self) -> int:
        """Number of places."""
        return prod(self.shape)

    def of_rows(self, codes: Sequence[IntArray]) -> LongArray:
        """Return the place of each row.

        Parameters
        ----------
        codes : (n,) level of each row in each facet
        """
        places = np.zeros(codes[0].size, dtype=np.int64)
        for facet, size in zip(self.free, self.shape, strict=True):
            place_rows(places, codes[facet], size)
        return places

    def codes(self, places: LongArray) -> tuple[IntArray, ...]:
        """Return the level in each facet of the cells at some places."""
        levels = dict(zip(self.free, self._unravelled(places), strict=True))
        for facet, (inner, outer_level) in self.told.items():
            levels[facet] = outer_level[levels[inner]]
        return tuple(levels[f] for f in range(len(self.n_levels)))

    def _unravelled(self, places: LongArray) -> Iterator[IntArray]:
        rest, found = places, []
        for size in reversed(self.shape):
            rest, level = np.divmod(rest, size)
            found.append(level.astype(np.int32))
        return reversed(found)

    def grid(self, counts: Any, *, terms_are_nested: bool) -> Grid | None:
        """Return the complete grid that the rows fill, with as many axes as they allow.

        Parameters
        ----------
        counts : (size,) rows of each cell
        terms_are_nested : whether the random terms are nested in each other; only then is there a
            grid without any axis
        """
        table = counts.reshape(self.shape)
        candidates = range(len(self.free) - self.n_bound)
        # Facets that are each crossed with all others are also crossed jointly.
        positions = [k for k in candidates if _is_constant_along(table, k)]
        if not positions and not terms_are_nested:
            return None
        rest = [k for k in range(len(self.free)) if k not in positions]
        inside = table[tuple(0 if k in positions else slice(None) for k in range(table.ndim))]
        filled = np.flatnonzero(inside)
        cell_n: FloatArray = inside.ravel()[filled].astype(float)
        axes = sorted(self.free[k] for k in positions)
        finest = [self.free[k] for k in rest]
        found = np.unravel_index(filled, inside.shape) if rest else ()
        codes = {f: level.astype(np.int32) for f, level in zip(finest, found, strict=True)}
        for facet, (inner, outer_level) in self.told.items():
            codes[facet] = outer_level[codes[inner]]
        return Grid(
            axes=tuple(axes),
            shape=tuple(self.n_levels[f] for f in axes),
            rest=tuple(sorted(codes)),
            joins=join_facets(finest, codes, self.n_levels)[0],
            levels=tuple(codes[f] for f in sorted(codes)),
            cell_n=cell_n,
        )


def _is_constant_along(table: Any, axis: int) -> bool:
    first = np.take(table, [0], axis=axis)
    return bool((table == first).all())
