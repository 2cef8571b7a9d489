"""Rows in memory → design and sufficient statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from vcomp._timing import timed
from vcomp.design import Design, Rows, encode, learn
from vcomp.formula import Formula
from vcomp.statistics.statistics import Statistics
from vcomp.statistics.summed import Gathered

__all__ = ["sum_rows"]


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
        As :func:`vcomp.design.learn`, and if the sums would not fit into memory.
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
