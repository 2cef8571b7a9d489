"""Design and statistics of data of every kind: in memory, in batches, or on Dask.

The steps from data to statistics in the pipe formula → design → statistics → estimate → result →
D-study; :mod:`vcomp.model` does the next ones.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from vcomp.data import OffsetOfRows, Reading, Rows
from vcomp.design import CountedPairs, Design, learn
from vcomp.formula import Formula
from vcomp.statistics import batches
from vcomp.statistics.batches import SummedData, finish
from vcomp.statistics.statistics import Statistics


def sum_rows(formula: Formula, rows: Rows, reading: Reading) -> SummedData:
    """Return the design and the statistics of rows that are kept.

    Parameters
    ----------
    formula : the parsed formula
    rows : the selected rows
    reading : how the rows were read

    Raises
    ------
    DataError, DesignError, FormulaError, EstimationError
        As :func:`vcomp.design.learn`, and if the sums would not fit into memory.
    """
    begun = perf_counter()
    counted: CountedPairs = {}
    design = learn(formula, rows, reading.environment, counted)
    learned = perf_counter()
    chunk = design.encode(rows)
    encoded = perf_counter()
    statistics = Statistics.from_rows(chunk, design.grid, design.partial_grid, counted)
    sums = _response_sums(design, rows, statistics)
    seconds = {
        "learn": learned - begun,
        "encode": encoded - learned,
        "accumulate": perf_counter() - encoded,
    }
    return SummedData(
        design=design,
        statistics=statistics,
        fixed_columns=rows.fixed,
        cells_as_rows=lambda: chunk,
        response_sums=sums,
        reading=reading,
        rows=rows,
        weights=rows.used,
        offset=None if rows.offset is None else OffsetOfRows(float(rows.offset.mean())),
        seconds=seconds,
    )


def _response_sums(design: Design, rows: Rows, statistics: Statistics) -> tuple[float, float]:
    """Return the mean of the response and the sum of squares about it."""
    sums = None if statistics.strata is None else statistics.strata.response_sums()
    if sums is not None:
        return design.origin + sums[0], sums[1]
    mean = float(rows.y.mean())
    away = len(rows) * (mean - design.origin) ** 2
    if rows.weights is None and away <= 1e-3 * statistics.yy:
        return mean, statistics.yy - away
    # Sums about an origin far from the mean would cancel.
    return mean, float(np.square(rows.y - mean).sum())


def read_data(formula: Formula, data: Any, reading: Reading) -> SummedData:
    """Return the design and the statistics of data that are read in memory, batches or on Dask.

    Parameters
    ----------
    formula : the parsed formula
    data : as of :class:`vcomp.VarianceComponentsModel`
    reading : how the rows are read

    Raises
    ------
    FormulaError, DataError, DesignError, EstimationError
        If the data cannot be read or used, or their sums do not fit into memory.
    """
    begun = perf_counter()
    if reading.is_on_dask(data):
        summed = finish(batches.gather_on_dask(formula, data, reading, collapse=True), reading)
        return replace(
            summed,
            parts=partial(batches.parts_on_dask, formula, data),
            seconds={"gather": perf_counter() - begun},
        )
    source = reading.open(formula, data)
    names = reading.columns(formula, source)
    if not reading.in_batches(source, len(names)):
        rows = Rows.select(formula, source, reading, names)
        read = perf_counter() - begun
        summed = sum_rows(formula, rows, reading)
        return replace(summed, seconds={"read": read, **summed.seconds})
    decided = perf_counter()
    summed = finish(batches.gather(formula, source, reading, collapse=True), reading)
    seconds = {"read": decided - begun, "gather": perf_counter() - decided}
    again = partial(batches.Batches, formula, source)
    return replace(summed, again=again, parts=again, seconds=seconds)


def sum_again(data: SummedData, formula: Formula) -> SummedData | None:
    """Return the design and the statistics of the same rows for another formula.

    Parameters
    ----------
    data : of a formula of the same response
    formula : with facets and columns of that

    Returns
    -------
    Those of the cells that `data` have; None if these do not suffice.

    Raises
    ------
    DesignError
        As :func:`vcomp.fit`.
    """
    begun = perf_counter()
    sums = None if data.sums is None else batches.with_formula(data.sums, formula, data.reading)
    if sums is None:
        return None
    found = finish(sums, data.reading)
    seconds = {"gather": perf_counter() - begun}
    return replace(found, again=data.again, parts=data.parts, seconds=seconds)
