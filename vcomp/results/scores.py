"""The cell means of a two-facet fit, which travel with it for rank accuracy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray, Json
from vcomp.design import Design
from vcomp.dstudy.paired import PairedDifferences
from vcomp.statistics import ScoreTable

__all__ = ["CellMeans"]


@dataclass(frozen=True, slots=True)
class CellMeans:
    """Means and numbers of scores in the cells of two crossed facets.

    Attributes
    ----------
    facets : names of the rows' and the columns' facet
    levels : their levels as text
    means : (n_rows, n_columns) on the scale of the response, nan where a cell is empty
    counts : (n_rows, n_columns) scores in each cell
    """

    facets: tuple[str, str]
    levels: tuple[tuple[str, ...], tuple[str, ...]]
    means: FloatArray
    counts: FloatArray

    @classmethod
    def of(cls, design: Design, table: ScoreTable) -> CellMeans:
        """Return the cell means of a design with two facets."""
        first, second = design.facets
        with np.errstate(invalid="ignore"):
            means = np.where(table.counts > 0, table.sums / np.maximum(table.counts, 1), np.nan)
        return cls(
            facets=(first.name, second.name),
            levels=(tuple(map(str, first.levels)), tuple(map(str, second.levels))),
            means=means + design.origin,
            counts=table.counts,
        )

    def differences(self, system: str) -> PairedDifferences:
        """Return the paired differences between the levels of one facet over the other."""
        if system == self.facets[0]:
            return PairedDifferences.from_scores(self.means.T, self.levels[0])
        return PairedDifferences.from_scores(self.means, self.levels[1])

    def matrix(self, system: str) -> tuple[FloatArray, tuple[str, ...], tuple[str, ...]]:
        """Return the means, the levels of `system` across, and the names of rows and columns."""
        rows, columns = self.levels
        return (
            (self.means.T, columns, rows)
            if system == self.facets[0]
            else (self.means, rows, columns)
        )

    def to_json(self) -> Json:
        """Return plain lists and dicts; a count that is the same everywhere is stored once."""
        equal = np.ptp(self.counts) == 0
        return {
            "facets": list(self.facets),
            "levels": [list(names) for names in self.levels],
            "means": [[None if np.isnan(x) else float(x) for x in row] for row in self.means],
            "counts": float(self.counts.flat[0]) if equal else self.counts.astype(int).tolist(),
        }

    @classmethod
    def from_json(cls, stored: Json) -> CellMeans:
        """Return what :meth:`to_json` stored."""
        means = np.array(stored["means"], dtype=float)
        first, second = stored["levels"]
        return cls(
            facets=(stored["facets"][0], stored["facets"][1]),
            levels=(tuple(first), tuple(second)),
            means=means,
            counts=np.broadcast_to(np.array(stored["counts"], dtype=float), means.shape).copy(),
        )
