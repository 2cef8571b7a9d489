"""What one pass over the rows tells of them, some at a time: levels, nesting, origin.

Surveys of parts add up, in any order and on any machine, to the survey of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.design.levels import as_categories, united_levels
from vcomp.kernels.codes import count_levels, determined_levels

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FacetSurvey", "Survey", "survey_rows", "united_facets"]


@dataclass(frozen=True, slots=True, eq=False)
class FacetSurvey:
    """The levels of a facet, with their numbers of rows.

    Attributes
    ----------
    levels : in order; of categories also those that do not occur
    counts : (L,) rows of each
    """

    levels: pd.Index
    counts: LongArray

    def used(self) -> tuple[pd.Index, LongArray]:
        """Return the levels that occur, and where each of them was."""
        places = np.flatnonzero(self.counts)
        return self.levels[places], places


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """Levels of the facets, and sums of the response.

    Attributes
    ----------
    facets : of the formula, in its order
    told : for pairs of facets (inner, outer) of which the first tells the second that level of
        each level of the first, −1 for those that do not occur
    n : number of rows
    total : sum of the response, in as many digits as the machine has
    low, high : its smallest and largest value
    """

    facets: tuple[FacetSurvey, ...]
    told: Mapping[tuple[int, int], IntArray]
    n: int
    total: np.longdouble
    low: float
    high: float

    def __add__(self, other: Survey) -> Survey:
        if not other.n:
            return self
        if not self.n:
            return other
        united = [united_facets(a, b) for a, b in zip(self.facets, other.facets, strict=True)]
        maps = [(a, b) for _, a, b in united]
        return Survey(
            facets=tuple(facet for facet, _, _ in united),
            told=_told_by_both(self.told, other.told, maps, [f.counts.size for f, _, _ in united]),
            n=self.n + other.n,
            total=self.total + other.total,
            low=min(self.low, other.low),
            high=max(self.high, other.high),
        )

    @property
    def mean(self) -> float:
        """Mean of the response; of a constant one the constant itself."""
        return self.low if self.low == self.high else float(self.total / self.n)

    def of_used_levels(self) -> Survey:
        """Return the survey without the levels that do not occur."""
        found = [facet.used() for facet in self.facets]
        told = {}
        for (inner, outer), level in self.told.items():
            place = np.full(self.facets[outer].counts.size, -1, np.int32)
            place[found[outer][1]] = np.arange(found[outer][1].size, dtype=np.int32)
            told[inner, outer] = place[level[found[inner][1]]]
        facets = tuple(
            FacetSurvey(levels, facet.counts[places])
            for facet, (levels, places) in zip(self.facets, found, strict=True)
        )
        return Survey(facets, told, self.n, self.total, self.low, self.high)


def survey_rows(y: FloatArray, facets: Mapping[str, pd.Series]) -> Survey:
    """Return the survey of some rows.

    Parameters
    ----------
    y : (n,) response, none of it missing
    facets : the grouping columns

    Raises
    ------
    DataError
        If a column holds what cannot be a level (lists, dicts).
    """
    columns = [as_categories(name, column) for name, column in facets.items()]
    codes = [np.asarray(column.codes, dtype=np.int32) for column in columns]
    found = tuple(
        FacetSurvey(column.categories, count_levels(c, len(column.categories)))
        for column, c in zip(columns, codes, strict=True)
    )
    told = {}
    if y.size:
        for inner, outer in permutations(range(len(codes)), 2):
            level = determined_levels(codes[inner], codes[outer], found[inner].counts.size)
            if level.size:
                told[inner, outer] = level
    low, high = (float(y.min()), float(y.max())) if y.size else (np.inf, -np.inf)
    return Survey(found, told, int(y.size), np.longdouble(y.sum(dtype=np.longdouble)), low, high)


_Map = IntArray
"""Where each level of a part is among those of the whole."""


def united_facets(a: FacetSurvey, b: FacetSurvey) -> tuple[FacetSurvey, _Map, _Map]:
    """Return the levels of both, and where those of each are among them."""
    levels, in_a, in_b = united_levels(a.levels, b.levels)
    counts = np.zeros(len(levels), np.int64)
    counts[in_a] += a.counts
    counts[in_b] += b.counts
    return FacetSurvey(levels, counts), in_a, in_b


def _told_by_both(
    a: Mapping[tuple[int, int], IntArray],
    b: Mapping[tuple[int, int], IntArray],
    maps: Sequence[tuple[_Map, _Map]],
    sizes: Sequence[int],
) -> dict[tuple[int, int], IntArray]:
    """Return the pairs that both parts show, and that agree where they show the same level."""
    told = {}
    for pair in a.keys() & b.keys():
        inner, outer = pair
        whole = [np.full(sizes[inner], -1, np.int32) for _ in range(2)]
        for level, part, k in ((whole[0], a[pair], 0), (whole[1], b[pair], 1)):
            there = part >= 0
            level[maps[inner][k][there]] = maps[outer][k][part[there]]
        both = (whole[0] >= 0) & (whole[1] >= 0)
        if (whole[0][both] == whole[1][both]).all():
            told[pair] = np.maximum(whole[0], whole[1])
    return told
