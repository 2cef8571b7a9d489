"""Data of every kind → design and statistics, by the road that is theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from vcomp._timing import timed
from vcomp.data import Missing, Rows, select_rows, source_of, used_columns
from vcomp.design import Design, encode, learn
from vcomp.formula import Formula
from vcomp.statistics.batches import (
    Batches,
    Gathered,
    check_streams,
    finish,
    gather,
    gather_on_dask,
    is_on_dask,
    should_stream,
)
from vcomp.statistics.statistics import Statistics

__all__ = [
    "ReadAgain",
    "ReadData",
    "read_data",
    "sum_rows",
]


def sum_rows(
    formula: Formula, rows: Rows, environment: Any, seconds: dict[str, float]
) -> Gathered:
    """Learn the design of rows that are kept, and sum them.

    Parameters
    ----------
    environment : patsy's ``EvalEnvironment`` of the caller
    seconds : the times of the stages are put there

    Raises
    ------
    DataError, DesignError, FormulaError, EstimationError
        As :func:`vcomp.design.learning`, and if the sums would not fit into memory.
    """
    with timed(seconds, "learn"):
        design = learn(formula, rows, environment)
    with timed(seconds, "encode"):
        chunk = encode(design, rows)
    with timed(seconds, "accumulate"):
        statistics = Statistics(chunk, design.grid, design.partial_grid)
        sums = _response_sums(design, rows, statistics)
    return Gathered(design, statistics, rows.fixed, lambda: chunk, sums, rows)


def _response_sums(design: Design, rows: Rows, statistics: Statistics) -> tuple[float, float]:
    """Return the mean of the response and the sum of squares about it."""
    found = None if statistics.strata is None else statistics.strata.response_sums()
    if found is not None:
        return design.origin + found[0], found[1]
    mean = float(rows.y.mean())
    if len(rows) * (mean - design.origin) ** 2 <= 1e-3 * statistics.yy:
        return mean, statistics.yy - len(rows) * (mean - design.origin) ** 2
    # Sums about an origin so far from the mean would cancel.
    return mean, float(np.square(rows.y - mean).sum())


ReadAgain: TypeAlias = "Callable[[bool | None], Batches] | None"
"""Whether to show a bar → the rows, to be read once more; None if they cannot be."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadData:
    """What was found in data, and whether they can be read again.

    Attributes
    ----------
    found : design and statistics
    again : the rows, where they were not kept
    """

    found: Gathered
    again: ReadAgain = None


def read_data(
    formula: Formula,
    data: Any,
    environment: Any,
    missing: Missing,
    *,
    stream: bool | None,
    progress: bool | None,
    seconds: dict[str, float],
) -> ReadData:
    """Read data into memory, in batches or on Dask, and sum them.

    Parameters
    ----------
    data, missing, stream, progress : as of :class:`vcomp.VarianceComponentsModel`; `data` may also
        be rows that were read
    environment : patsy's ``EvalEnvironment`` of the caller
    seconds : the times of the stages are put there

    Raises
    ------
    FormulaError, DataError, DesignError, EstimationError
        If they cannot be read, used, or summed in the memory there is.
    """
    if isinstance(data, Rows):
        return ReadData(sum_rows(formula, data, environment, seconds))
    if is_on_dask(data):
        with timed(seconds, "gather"):
            check_streams(stream)
            sums = gather_on_dask(formula, data, environment, missing, seal=True)
            return ReadData(finish(sums))
    with timed(seconds, "read"):
        source = source_of(formula, data, environment)
        names = used_columns(formula, source, environment)
        streamed = should_stream(source, len(names), stream)
        rows = None if streamed else select_rows(formula, source, environment, missing)
    if rows is not None:
        return ReadData(sum_rows(formula, rows, environment, seconds))
    with timed(seconds, "gather"):
        sums = gather(formula, source, environment, missing, seal=True, progress=progress)
        return ReadData(finish(sums), partial(Batches, formula, source, environment))
