"""Cell sums of a two-facet design: what rank accuracy and exact F intervals need."""

from __future__ import annotations

from dataclasses import dataclass

from vcomp._typing import FloatArray

__all__ = ["ScoreTable"]


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """Sums and numbers of scores in the cells of two facets; tables of chunks add up.

    Attributes
    ----------
    sums : (n_rows, n_columns) sums of the centred scores of each cell
    counts : (n_rows, n_columns) their numbers, 0 where a cell is empty
    """

    sums: FloatArray
    counts: FloatArray

    def __add__(self, other: ScoreTable) -> ScoreTable:
        return ScoreTable(self.sums + other.sums, self.counts + other.counts)
