"""Sums in cells for another formula of the same rows, which are not read again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from vcomp.data import Reading
from vcomp.formula import FixedPart, Formula
from vcomp.statistics.batches.cell_sums import CellSums, check_table, dense_places
from vcomp.statistics.batches.cell_table import CellTable, EveryCell, joined
from vcomp.statistics.batches.collapsed_cells import collapse_plan
from vcomp.statistics.batches.passes import coding_in_cells
from vcomp.statistics.batches.row_coding import RowCoding
from vcomp.statistics.batches.survey import ColumnKinds, Survey


def restated(sums: CellSums, formula: Formula, columns: Mapping[str, str]) -> CellSums | None:
    """Return the sums of the same rows for another formula, without reading the rows again.

    Parameters
    ----------
    formula : of the same response, with some of the facets under other names
    columns : other names of facets of the sums, by their names in the formula

    Returns
    -------
    Sums of the cells of the formula's facets; None if cells were collapsed into other groups than
    the formula needs.
    """
    known = sums.coding.formula.level_columns
    kept = [known.index(columns.get(f, f)) for f in formula.level_columns]
    survey = _survey_of(sums.coding.survey, kept)
    coding = replace(sums.coding, formula=formula, survey=survey)
    same = kept == list(range(len(known)))
    if sums.collapsed is None:
        table = sums.table if same else _joined(sums, coding, kept)
        return CellSums(coding, table)
    plan, before = collapse_plan(coding) if same else None, sums.collapsed.plan.groupings
    if plan is None:
        return None
    now = plan.groupings
    alike = len(now.codes) == len(before.codes) and np.array_equal(now.order, before.order)
    if not (alike and all(map(np.array_equal, now.codes, before.codes))):
        return None
    return replace(sums, coding=coding, collapsed=replace(sums.collapsed, plan=plan))


def with_formula(sums: CellSums, formula: Formula, reading: Reading) -> CellSums | None:
    """Return the sums of the same rows for a formula with another fixed part.

    Parameters
    ----------
    sums : whose fixed part follows from the levels of the cells
    formula : of the same response
    reading : the calling scope of the formula

    Returns
    -------
    The sums; None if they lack a facet, or the fixed part does not follow from the levels.
    """
    known, columns = sums.coding, formula.covariates
    lacking = {*formula.level_columns} - {*known.formula.level_columns}
    if lacking or not known.fixed_in_cells or not set(columns) <= set(known.kinds.levels):
        return None
    found = restated(sums, formula, {})
    assert found is not None  # cells of a fixed part are not collapsed
    kinds = ColumnKinds({f: known.kinds.levels[f] for f in columns}, known.kinds.booleans)
    coding = replace(
        found.coding, kinds=kinds, fixed=FixedPart(("Intercept",)), fixed_in_cells=False
    )
    if not formula.intercept_only:
        fixed = coding_in_cells(coding, reading.environment)
        if fixed is None:
            return None
        coding = replace(coding, fixed=fixed, fixed_in_cells=True)
    return replace(found, coding=coding)


def _survey_of(survey: Survey, kept: list[int]) -> Survey:
    """Return the survey of some of the facets, in another order."""
    now = {facet: k for k, facet in enumerate(kept)}
    determined = {
        (now[inner], now[outer]): level
        for (inner, outer), level in survey.determined.items()
        if inner in now and outer in now
    }
    return replace(survey, facets=tuple(survey.facets[k] for k in kept), determined=determined)


def _joined(sums: CellSums, coding: RowCoding, kept: list[int]) -> CellTable:
    """Return the cells of some of the facets, each the sum of several of the present cells."""
    old, places, table = sums.coding.places, coding.places, sums.table
    of_places = [kept[f] for f in places.free]
    if table.places is None and sorted(of_places) == sorted(old.free):
        return _transposed(table, old.shape, [old.free.index(f) for f in of_places])
    at, table = table.filled()
    codes = old.codes(at)
    moved = places.of_rows([codes[k] for k in kept])
    if not table.may_fill_grid:
        return joined(replace(table, places=moved))
    if dense_places(places.size, coding.survey.n):
        check_table(places.size, coding.n_columns)
        every = EveryCell(places.size, coding.n_columns, powers=True).made()
        return every + replace(table, places=moved)
    distinct, at = np.unique(moved, return_inverse=True)
    nothing = EveryCell(distinct.size, coding.n_columns, powers=True).made()
    return replace(nothing + replace(table, places=at), places=distinct)


def _transposed(table: CellTable, shape: tuple[int, ...], order: list[int]) -> CellTable:
    """Return a table of all cells, (m,) in the order of some axes, in another order of these."""

    def moved(values: Any) -> Any:
        whole = values.reshape(*values.shape[:-1], *shape)
        n = values.ndim - 1
        axes = [*range(n), *(n + axis for axis in order)]
        return whole.transpose(axes).reshape(values.shape)

    powers = table.powers
    return replace(
        table,
        counts=moved(table.counts),
        means=moved(table.means),
        powers=moved(powers) if powers is not None and powers.shape[1] else powers,
    )
