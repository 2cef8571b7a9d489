"""The model of a G-study, from a design in Brennan's notation.

Rows are read with all facets of the design. The effects that the data can estimate are found
(:mod:`~vcomp.model.estimable`), and the sums are restated for the formula of these effects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp.data import Reading, Rows, Source, open_source
from vcomp.design import find_grid
from vcomp.exceptions import warn
from vcomp.formula import parse
from vcomp.model.estimable import Claim, Cooccurrence, Supported, read_claim
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


def claimed_model(
    design: str,
    response: str,
    data: Any,
    facets: Mapping[str, str] | None,
    reading: Reading,
) -> VarianceComponentsModel:
    """Return the model of a design, with a term for each effect that the data can estimate.

    Parameters
    ----------
    design, response, data, facets : as for :func:`vcomp.gstudy`
    reading : how the rows are read

    Warns
    -----
    VcompWarning
        If the data confound effects of the design.
    """
    on_dask = reading.is_on_dask(data)
    claim = read_claim(design, response, facets, partial(_opened, data, on_dask=on_dask))
    if on_dask:
        supported, found = _on_dask(claim, data, reading)
    else:
        source = reading.open(claim.widest, claim.source)
        n_columns = len(reading.columns(claim.widest, source))
        if reading.in_batches(source, n_columns):
            supported, found = _in_batches(claim, source, reading)
        else:
            supported, found = _in_memory(claim, source, reading)
    described = replace(found.design, structure=supported.described(found.design.structure))
    return VarianceComponentsModel(supported.formula, replace(found, design=described))


def _opened(data: Any, *, on_dask: bool) -> Source | None:
    """Open the data, if not on Dask; a stream can be opened only once."""
    if data is None:
        return None
    return source_on_dask(data) if on_dask else open_source(data)


def _supported(claim: Claim, found: Cooccurrence) -> Supported:
    """Return the effects that the data can estimate, and warn about confounded ones."""
    supported = claim.supported(found)
    confounded = supported.in_words()
    if confounded is not None:
        warn(confounded)
    return supported


def _in_memory(claim: Claim, source: Source, reading: Reading) -> tuple[Supported, SummedData]:
    rows = Rows.select(claim.widest, source, reading)
    renamed = {f: rows.facets[column].rename(f) for f, column in claim.columns.items()}
    supported = _supported(claim, _occurring_in_rows(renamed))
    formula = parse(supported.formula)
    kept = replace(rows, facets={f: renamed[f] for f in formula.facets})
    return supported, sum_rows(formula, kept, reading)


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
    """Return which levels occur together in the cells.

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


def _in_batches(claim: Claim, source: Source, reading: Reading) -> tuple[Supported, SummedData]:
    sums = gather(claim.widest, source, reading, collapse=True)

    def every_cell() -> CellSums:
        assert sums.again is not None
        return CellSums(sums.coding, sums.again())

    supported, found = _of_sums(claim, sums, every_cell, reading)
    # Rows without a value in a column of the design are left out, even if no effect needs it.
    again = partial(Batches, claim.widest, source, renamed=_names(claim))
    return supported, replace(found, again=again, parts=again)


def _on_dask(claim: Claim, data: Any, reading: Reading) -> tuple[Supported, SummedData]:
    gathered = partial(gather_on_dask, claim.widest, data, reading)
    every_cell = partial(gathered, collapse=False)
    supported, found = _of_sums(claim, gathered(collapse=True), every_cell, reading)
    parts = partial(parts_on_dask, claim.widest, data, renamed=_names(claim))
    return supported, replace(found, parts=parts)


def _names(claim: Claim) -> dict[str, str]:
    """Return the facets of a design by their columns."""
    return {column: facet for facet, column in claim.columns.items()}


def _of_sums(
    claim: Claim, sums: CellSums, every_cell: Callable[[], CellSums], reading: Reading
) -> tuple[Supported, SummedData]:
    """Return the effects that sums in cells of all facets can estimate, with their statistics.

    Parameters
    ----------
    every_cell : sums the rows again without collapsing cells
    """
    supported = _supported(claim, _occurring_in_cells(sums, claim.columns))
    formula = parse(supported.formula)
    wanted = restated(sums, formula, claim.columns)
    wanted = wanted or restated(every_cell(), formula, claim.columns)
    assert wanted is not None
    return supported, finish(wanted, reading)
