"""The model of a G-study, from a design in Brennan's notation.

Rows are read with all facets of the design. The effects that the data can estimate are found by
:mod:`~vcomp.model.estimable_effects`, and the sums are restated for the formula of these effects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp.data import Reading, Rows, Source, open_source
from vcomp.design import find_grid
from vcomp.exceptions import DataError, FormulaError, PlanError, did_you_mean, warn
from vcomp.formula import (
    BrennanDesign,
    Formula,
    ResidualGroups,
    design_effects,
    formula_text,
    parse,
    parse_design,
    quoted,
)
from vcomp.model.estimable_effects import Cooccurrence, Estimable, estimable_terms
from vcomp.model.model import VarianceComponentsModel
from vcomp.statistics import sum_rows
from vcomp.statistics.batches import (
    Batches,
    CellSums,
    SummedData,
    finish,
    gather,
    gather_on_dask,
    parts_on_dask,
    restated,
    source_on_dask,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Claim:
    """A design in Brennan's notation, and the columns that it is claimed for.

    Attributes
    ----------
    design : as claimed
    columns : the column of each facet, by its name in the design, in the order in which a formula
        with all effects of the design names the facets
    response : as in a formula
    widest : formula with a term for each column that is read
    groups : of rows that have a residual variance each, facets by their names in the design
    source : the data; None for variables of the calling scope
    """

    design: BrennanDesign
    columns: Mapping[str, str]
    response: str
    widest: Formula
    groups: ResidualGroups | None
    source: Source | None


def read_claim(
    design: str,
    response: str,
    facets: Mapping[str, str] | None,
    residual: str | None,
    opened: Callable[[], Source | None],
) -> Claim:
    """Return the design of a G-study with the columns of its facets.

    Parameters
    ----------
    design : in Brennan's notation
    response : the column of the scores, or a Python expression
    facets : columns by the names of the facets in the design
    residual : facets or columns whose levels have a residual variance each
    opened : opens the data after the design was read; returns None for variables of the calling
        scope

    Raises
    ------
    PlanError
        If the design cannot be read, or `facets` does not fit it.
    FormulaError
        If the response is not text.
    DataError
        If the data cannot be opened, or a column is missing.
    """
    read = parse_design(design)
    read.check_names()
    if not isinstance(response, str) or not response.strip():
        raise FormulaError(
            "response must be the name of the column of the scores, such as response='score', not "
            f"{response!r}"
        )
    columns = _columns(read, facets)
    source, left = opened(), response.strip()
    if source is not None:
        _check_columns(columns, left, source)
        left = quoted(left) if left in source.columns else left
    text = formula_text(left, [[column] for column in columns.values()])
    widest, groups = parse(text, residual=residual), None
    if widest.groups is not None:
        own = [columns.get(f, f) for f in widest.groups.facets]
        facet_of = {column: facet for facet, column in columns.items()}
        groups = ResidualGroups(tuple(facet_of.get(column, column) for column in own))
        widest = replace(widest, groups=ResidualGroups(tuple(own)))
    return Claim(read, columns, left, widest, groups, source)


def _in_order(design: BrennanDesign) -> tuple[str, ...]:
    """Return the facets in the order in which the formula of all effects names them."""
    effects = [[f for f in design.outer_first if f in e.facets] for e in design_effects(design)]
    return tuple(dict.fromkeys(f for facets in effects for f in facets))


def _columns(design: BrennanDesign, facets: Mapping[str, str] | None) -> dict[str, str]:
    """Return the column of every facet of the design."""
    if facets is not None and not isinstance(facets, Mapping):
        raise PlanError(
            "facets must be a mapping from the names in the design to columns, such as "
            f"{{'p': 'person'}}, not {facets!r}"
        )
    given = dict(facets or {})
    for name, column in given.items():
        if name not in design.facets:
            swapped = column in design.facets
            hint = (
                f"; facets= maps names in the design to columns: {{{column!r}: {name!r}}}"
                if swapped
                else did_you_mean(name, design.facets)
            )
            raise PlanError(
                f"{name!r} is not a facet of the design '{design}', which has "
                f"{', '.join(design.facets)}{hint}",
                column=name,
            )
        if not isinstance(column, str):
            raise PlanError(
                f"the column of facet {name!r} must be a name, not {column!r}", column=name
            )
    columns = {f: given.get(f, f) for f in _in_order(design)}
    for facet, column in columns.items():
        others = [f for f, c in columns.items() if c == column and f != facet]
        if others:
            raise PlanError(
                f"the facets {facet!r} and {others[0]!r} are both column {column!r}; each facet "
                "needs its own column",
                column=column,
            )
    return columns


def _check_columns(columns: Mapping[str, str], response: str, source: Source) -> None:
    """Refuse columns that are missing, with a proposal for facets=."""
    for facet, column in columns.items():
        if column in source.columns:
            continue
        missing = source.no_column(column)
        if facet != column:
            raise missing
        used = {*columns.values(), response}
        start = [c for c in source.columns if c.startswith(facet) and c not in used]
        meant = start[0] if len(start) == 1 else "…"
        raise DataError(
            f"{missing}; name the column of a facet by facets={{{facet!r}: {meant!r}}}",
            column=facet,
        )


def claimed_model(
    design: str,
    response: str,
    data: Any,
    facets: Mapping[str, str] | None,
    reading: Reading,
    residual: str | None = None,
) -> VarianceComponentsModel:
    """Return the model of a design, with a term for each effect that the data can estimate.

    Parameters
    ----------
    design, response, data, facets : as for :func:`vcomp.gstudy`
    reading : how the rows are read
    residual : as for :func:`vcomp.gstudy`

    Warns
    -----
    VcompWarning
        If the data confound effects of the design.
    """
    if reading.row_columns.known_variance is not None:
        raise DataError(
            "gstudy() leaves the highest interaction to the residual, which known_variance= "
            "replaces: fit a formula that has a term for it"
        )
    on_dask = reading.is_on_dask(data)
    opened = partial(_opened, data, on_dask=on_dask)
    claim = read_claim(design, response, facets, residual, opened)
    if on_dask:
        estimable, summed = _on_dask(claim, data, reading)
    else:
        source = reading.open(claim.widest, claim.source)
        n_columns = len(reading.columns(claim.widest, source))
        if reading.in_batches(source, n_columns):
            estimable, summed = _in_batches(claim, source, reading)
        else:
            estimable, summed = _in_memory(claim, source, reading)
    described = replace(summed.design, structure=estimable.described(summed.design.structure))
    return VarianceComponentsModel(summed.design.formula.text, replace(summed, design=described))


def _opened(data: Any, *, on_dask: bool) -> Source | None:
    """Open the data, if not on Dask; a stream can be opened only once."""
    if data is None:
        return None
    return source_on_dask(data) if on_dask else open_source(data)


def _estimable(claim: Claim, occurring: Cooccurrence) -> tuple[Estimable, Formula]:
    """Return the effects that the data can estimate, with their formula.

    Warns
    -----
    VcompWarning
        If the data confound effects of the design.
    """
    estimable = estimable_terms(claim.design, occurring)
    text = formula_text(claim.response, estimable.terms)
    if estimable.findings:
        warn(
            f"some effects of the design '{claim.design}' are confounded in these data. "
            f"{' '.join(estimable.findings)} The formula is '{text}'"
        )
    return estimable, replace(parse(text), groups=claim.groups)


def _in_memory(claim: Claim, source: Source, reading: Reading) -> tuple[Estimable, SummedData]:
    rows = Rows.select(claim.widest, source, reading)
    renamed = {f: rows.facets[column].rename(f) for f, column in claim.columns.items()}
    estimable, formula = _estimable(claim, _occurring_in_rows(renamed))
    known = {**rows.facets, **renamed}
    kept = replace(rows, facets={f: known[f] for f in formula.level_columns})
    return estimable, sum_rows(formula, kept, reading)


def _occurring_in_rows(facets: Mapping[str, pd.Series]) -> Cooccurrence:
    codes = {f: np.asarray(c.cat.codes, dtype=np.int32) for f, c in facets.items()}
    n_levels = {f: len(c.cat.categories) for f, c in facets.items()}
    n_rows = len(next(iter(facets.values())))
    grid = find_grid(list(codes.values()), list(n_levels.values()), ())
    if grid is None:
        return Cooccurrence(n_levels, codes, n_rows)
    positions = {f: k for k, f in enumerate(codes)}
    return Cooccurrence.on_grid(grid, positions, n_levels, n_rows)


def _occurring_in_cells(sums: CellSums, columns: Mapping[str, str]) -> Cooccurrence:
    """Return the combinations of levels that occur in the cells.

    Parameters
    ----------
    columns : facets of the sums by their names in the design
    """
    coding = sums.coding
    positions = {f: coding.formula.facets.index(column) for f, column in columns.items()}
    sizes = coding.places.n_levels
    n_levels = {f: sizes[k] for f, k in positions.items()}
    grid = sums.grid()
    if grid is not None:
        return Cooccurrence.on_grid(grid, positions, n_levels, coding.survey.n)
    every = coding.places.codes(sums.table.filled()[0])
    codes = {f: every[k] for f, k in positions.items()}
    return Cooccurrence(n_levels, codes, coding.survey.n)


def _in_batches(claim: Claim, source: Source, reading: Reading) -> tuple[Estimable, SummedData]:
    sums = gather(claim.widest, source, reading, collapse=True)

    def every_cell() -> CellSums:
        assert sums.again is not None
        return CellSums(sums.coding, sums.again())

    estimable, found = _of_sums(claim, sums, every_cell, reading)
    # Rows with a missing value in any column of the design are left out.
    names = {column: facet for facet, column in claim.columns.items()}
    again = partial(Batches, claim.widest, source, renamed=names)
    return estimable, replace(found, again=again, parts=again)


def _on_dask(claim: Claim, data: Any, reading: Reading) -> tuple[Estimable, SummedData]:
    gathered = partial(gather_on_dask, claim.widest, data, reading)
    every_cell = partial(gathered, collapse=False)
    estimable, found = _of_sums(claim, gathered(collapse=True), every_cell, reading)
    names = {column: facet for facet, column in claim.columns.items()}
    parts = partial(parts_on_dask, claim.widest, data, renamed=names)
    return estimable, replace(found, parts=parts)


def _of_sums(
    claim: Claim, sums: CellSums, every_cell: Callable[[], CellSums], reading: Reading
) -> tuple[Estimable, SummedData]:
    """Return the effects that sums in cells of all facets can estimate, with their statistics.

    Parameters
    ----------
    every_cell : sums the rows again without collapsing cells
    """
    estimable, formula = _estimable(claim, _occurring_in_cells(sums, claim.columns))
    wanted = restated(sums, formula, claim.columns)
    wanted = wanted or restated(every_cell(), formula, claim.columns)
    assert wanted is not None
    return estimable, finish(wanted, reading)
