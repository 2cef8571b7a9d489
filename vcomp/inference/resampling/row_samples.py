"""Samples of rows by the levels of a facet, which get new codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vcomp._typing import IntArray, LongArray
from vcomp.design import (
    Chunk,
    Design,
    find_grid,
    find_partial_grid,
    find_terms,
    number_combinations,
)
from vcomp.exceptions import DesignError, EstimationError, did_you_mean
from vcomp.statistics import Statistics


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of the data, possibly repeated, with new level codes.

    Attributes
    ----------
    rows : (n,) positions of the rows
    codes : for each facet the (n,) level of each row
    n_levels : numbers of levels
    """

    rows: LongArray
    codes: tuple[IntArray, ...]
    n_levels: tuple[int, ...]

    @classmethod
    def whole(cls, chunk: Chunk) -> Sample:
        """Return the sample of all rows or cells."""
        return cls(np.arange(chunk.response.size), chunk.facet_codes, chunk.facet_sizes)

    def statistics(self, design: Design, chunk: Chunk) -> Statistics:
        """Return the statistics of the sample.

        Parameters
        ----------
        design : of the data
        chunk : all rows of the data

        Raises
        ------
        DesignError
            If a facet has only one level in the sample, or a term one row in each group.
        """
        self._check(design)
        formula, codes, n_levels = design.formula, self.codes, self.n_levels
        grid = find_grid(codes, n_levels, formula.positions)
        chosen = chunk.of_rows(self.rows)
        has_weights = chunk.weights is not None
        terms = find_terms(formula, codes, n_levels, grid, None if has_weights else chosen.n)
        made = replace(chosen, compact_codes=self.codes, facet_sizes=self.n_levels, terms=terms)
        if has_weights:
            return Statistics.from_rows(made, None)
        partial = find_partial_grid(codes, n_levels) if grid is None else None
        return Statistics.from_rows(made, grid, partial)

    def groups(self, design: Design) -> tuple[IntArray, ...]:
        """Return the group of each row in each term.

        Raises
        ------
        DesignError
            As :meth:`statistics` does.
        """
        self._check(design)
        terms = find_terms(design.formula, self.codes, self.n_levels, None, self.rows.size)
        return tuple(term.groups(self.codes, self.n_levels) for term in terms)

    def _check(self, design: Design) -> None:
        for facet, n in zip(design.facets, self.n_levels, strict=True):
            if n < 2:
                raise DesignError(
                    f"only one level of facet {facet.name!r} is left", column=facet.name
                )


@dataclass(frozen=True, slots=True)
class Levels:
    """The rows of a sample by the levels of one facet, within those that it is nested in.

    Attributes
    ----------
    facet : its position
    inner : positions of the facets that are nested in it
    order : (n,) the rows, sorted by level
    starts : (m + 1,) start of each level in `order`; m is the total number of levels
    first, last : (m,) for each level, the range of the levels in the same group of outer levels;
        the last is not included
    """

    facet: int
    inner: tuple[int, ...]
    order: LongArray
    starts: LongArray
    first: LongArray
    last: LongArray

    @classmethod
    def of(cls, sample: Sample, facets: Sequence[str], nested: Mapping[str, frozenset[str]],
           facet: str) -> Levels:  # fmt: skip
        """Group the rows of a sample by a facet."""
        place = facets.index(facet)
        outer, n_outer = np.zeros(sample.rows.size, np.int32), 1
        for above in sorted(facets.index(f) for f in nested[facet]):
            keys, outer = number_combinations(
                outer, n_outer, sample.codes[above], sample.n_levels[above]
            )
            n_outer = keys.size
        n = sample.n_levels[place]
        keys, level = number_combinations(outer, n_outer, sample.codes[place], n)
        order = np.argsort(level, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(level, minlength=keys.size))])
        outer_of = keys // n
        inner = tuple(p for p, f in enumerate(facets) if facet in nested[f])
        first = np.searchsorted(outer_of, outer_of, side="left")
        last = np.searchsorted(outer_of, outer_of, side="right")
        return cls(place, inner, order, starts, first, last)

    @property
    def n(self) -> int:
        """Total number of levels."""
        return int(self.first.size)

    @property
    def per_group(self) -> LongArray:
        """Numbers of levels within each group that the facet is nested in."""
        return (self.last - self.first)[np.unique(self.first)]

    def draw(self, rng: np.random.Generator) -> LongArray:
        """Return as many levels as in the data, drawn with replacement within their group."""
        return rng.integers(self.first, self.last)

    def rows(self, level: int) -> LongArray:
        """Return the rows of a level, by their places in the sample."""
        return self.order[self.starts[level] : self.starts[level + 1]]

    def without(self, level: int) -> LongArray:
        """Return all levels but one."""
        return np.delete(np.arange(self.n), level)

    def take(self, sample: Sample, chosen: LongArray) -> Sample:
        """Return the rows of chosen levels; each choice becomes a new level.

        Levels of facets nested in this one become new levels within each choice. Levels of other
        facets that no longer occur are dropped.
        """
        lengths = np.diff(self.starts)[chosen]
        ends = np.cumsum(lengths)
        within = np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)
        rows = self.order[np.repeat(self.starts[chosen], lengths) + within]
        slot = np.repeat(np.arange(chosen.size, dtype=np.int32), lengths)
        codes, sizes = [], []
        for place, (column, n) in enumerate(zip(sample.codes, sample.n_levels, strict=True)):
            if place == self.facet:
                levels, size = slot, chosen.size
            elif place in self.inner:
                keys, levels = number_combinations(slot, chosen.size, column[rows], n)
                size = keys.size
            else:
                levels, size = _without_unused(column[rows], n)
            codes.append(levels)
            sizes.append(size)
        return Sample(sample.rows[rows], tuple(codes), tuple(sizes))


def check_facets(design: Design, facets: str | Sequence[str]) -> tuple[str, ...]:
    """Return the facets to be resampled, checked; nested facets come last.

    Raises
    ------
    EstimationError
        If one is not a facet of the random part, or is given twice.
    """
    known = tuple(facet.name for facet in design.facets)
    names = (facets,) if isinstance(facets, str) else tuple(facets)
    if not names:
        raise EstimationError(f"no facet is given; facets are {', '.join(known)}")
    for name in names:
        if name not in known:
            raise EstimationError(_unknown(name, design))
        if names.count(name) > 1:
            raise EstimationError(f"facet {name!r} is given twice", column=name)
    nested = design.structure.nested_in
    return tuple(sorted(names, key=lambda f: (len(nested[f]), known.index(f))))


def _unknown(name: object, design: Design) -> str:
    known = [facet.name for facet in design.facets]
    if name in design.structure.facets:
        return (
            f"each level of {name!r} is one score, and single scores are not drawn; draw levels "
            f"of {', '.join(known)}"
        )
    what = f"{name!r} is not a facet of the random part"
    which = f", which has {', '.join(known)}"
    if name in design.formula.fixed_names:
        return f"{what}{which}: it is a column of the fixed part, whose levels are not drawn"
    return f"{what}{did_you_mean(name, known)}{which}"


def _without_unused(levels: IntArray, n: int) -> tuple[IntArray, int]:
    """Return levels renumbered without those that do not occur."""
    occurs = np.bincount(levels, minlength=n) > 0
    if occurs.all():
        return levels, n
    number = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
    return number[levels], int(number[-1]) + 1
