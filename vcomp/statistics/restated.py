"""Sums in cells of all facets of a design → what occurs together, and sums for a formula of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from vcomp.design.estimable import Occurring
from vcomp.design.grid import Grid
from vcomp.design.survey import Survey
from vcomp.formula import Formula
from vcomp.statistics.cell_sums import CellSums, check_table, dense_places
from vcomp.statistics.cell_table import CellTable, EveryCell
from vcomp.statistics.learned import Learned
from vcomp.statistics.sealed import sealing_of

__all__ = ["occurring", "restated"]


def occurring(sums: CellSums, columns: Mapping[str, str]) -> Occurring:
    """Return which levels occur together in the cells.

    Parameters
    ----------
    columns : facets of the sums by the names that they are to have
    """
    learned = sums.learned
    positions = {f: learned.formula.facets.index(column) for f, column in columns.items()}
    sizes = learned.places.n_levels
    n_levels = {f: sizes[k] for f, k in positions.items()}
    grid = _grid(sums)
    if grid is not None:
        return Occurring.on_grid(grid, positions, n_levels, learned.survey.n)
    every = learned.places.codes(sums.table.filled()[0])
    codes = {f: every[k] for f, k in positions.items()}
    return Occurring(n_levels, codes, learned.survey.n)


def _grid(sums: CellSums) -> Grid | None:
    """Return the facets that are crossed with all others, and the cells of these."""
    if sums.sealed is not None:
        return sums.sealed.sealing.grid
    if sums.table.places is not None:
        return None
    return sums.learned.places.grid(sums.table.counts, terms_are_nested=True)


def restated(sums: CellSums, formula: Formula, columns: Mapping[str, str]) -> CellSums | None:
    """Return the sums of the same rows as a formula needs them; none of the rows is read again.

    Parameters
    ----------
    formula : of the same response, with some of the facets under other names
    columns : facets of the sums by their names in the formula

    Returns
    -------
    sums with cells of the formula's facets; None if cells were put together in groups, and those
    that the formula needs are others
    """
    kept = [sums.learned.formula.facets.index(columns[f]) for f in formula.facets]
    survey = _survey_of(sums.learned.survey, kept)
    learned = replace(sums.learned, formula=formula, survey=survey)
    same = kept == list(range(len(sums.learned.formula.facets)))
    if sums.sealed is None:
        table = sums.table if same else _joined(sums, learned, kept)
        return CellSums(learned, table)
    sealing, before = sealing_of(learned) if same else None, sums.sealed.sealing.groupings
    if sealing is None:
        return None
    now = sealing.groupings
    alike = len(now.codes) == len(before.codes) and np.array_equal(now.order, before.order)
    if not (alike and all(map(np.array_equal, now.codes, before.codes))):
        return None
    return replace(sums, learned=learned, sealed=replace(sums.sealed, sealing=sealing))


def _survey_of(survey: Survey, kept: list[int]) -> Survey:
    """Return the survey of some of the facets, in another order."""
    now = {facet: k for k, facet in enumerate(kept)}
    told = {
        (now[inner], now[outer]): level
        for (inner, outer), level in survey.told.items()
        if inner in now and outer in now
    }
    return replace(survey, facets=tuple(survey.facets[k] for k in kept), told=told)


def _joined(sums: CellSums, learned: Learned, kept: list[int]) -> CellTable:
    """Return the cells of some of the facets, each of several of those there are."""
    at, table = sums.table.filled()
    every, places = sums.learned.places.codes(at), learned.places
    moved = places.of_rows([every[k] for k in kept])
    if dense_places(places.size, learned.survey.n):
        check_table(places.size, learned.n_columns)
        return EveryCell(places.size, learned.n_columns).made() + replace(table, places=moved)
    found, at = np.unique(moved, return_inverse=True)
    nothing = EveryCell(found.size, learned.n_columns).made()
    return replace(nothing + replace(table, places=at), places=found)
