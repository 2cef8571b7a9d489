"""Data of every kind → design and statistics, by the road that is theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from vcomp._timing import timed
from vcomp.design import Rows, select_rows
from vcomp.design.rows import Missing, source_of, used_columns
from vcomp.formula import Formula
from vcomp.statistics.gather import Batches, check_streams, gather, should_stream
from vcomp.statistics.in_memory import sum_rows
from vcomp.statistics.on_dask import gather_on_dask, is_on_dask
from vcomp.statistics.summed import Gathered, finish

__all__ = ["ReadAgain", "ReadData", "read_data"]

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
