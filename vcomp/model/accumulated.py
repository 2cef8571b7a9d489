"""Sufficient statistics of rows, which can be stored, merged with others and fitted later."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from vcomp import display
from vcomp.data import Missing, Reading, RowColumns, level_columns
from vcomp.design import Design
from vcomp.estimators import MethodName
from vcomp.exceptions import EstimationError, guarded
from vcomp.formula import caller_environment, parse
from vcomp.markup import encodable
from vcomp.model.model import VarianceComponentsModel
from vcomp.model.results import VarianceComponentsResults
from vcomp.statistics.batches import (
    CellSums,
    PendingSum,
    finish,
    gather,
    gather_on_dask,
    pending,
    read_sums,
    write_sums,
)


class AccumulatedStatistics:
    """Sufficient statistics of rows, made by :func:`accumulate`; no row is kept.

    They are a table of cells with their numbers of scores, means and squares. Statistics of other
    rows are merged with ``+``; their levels may differ. With random slopes or residual variances
    by level each cell keeps the squares and products of its rows, so that these are exact as well.

    Examples
    --------
    >>> import vcomp
    >>> data = vcomp.datasets.load("bodoff2007_alpha")
    >>> formula = "score ~ (1|sys) + (1|topic)"
    >>> yesterday = vcomp.accumulate(formula, data[data["topic"] != "query 3"])
    >>> today = vcomp.accumulate(formula, data[data["topic"] == "query 3"])
    >>> together = yesterday + today
    >>> together.fit().vcomp.round(5).equals(vcomp.fit(formula, data).vcomp.round(5))
    True
    """

    def __init__(self, sums: CellSums | PendingSum[CellSums]) -> None:
        # Parts are added when the whole is needed, as in a tree.
        self._parts = pending(sums) if isinstance(sums, CellSums) else sums

    @cached_property
    def _sums(self) -> CellSums:
        whole = self._parts.total()
        assert whole is not None
        return whole

    @property
    def formula(self) -> str:
        """The formula as given."""
        return self._sums.coding.formula.text

    @property
    def nobs(self) -> int:
        """Number of scores."""
        return self._sums.coding.survey.n

    @property
    def n_levels(self) -> dict[str, int]:
        """Number of levels of each facet in these rows."""
        return {facet.name: facet.size for facet in self._sums.coding.facets}

    @property
    def n_cells(self) -> int:
        """Number of cells that have scores."""
        return int((self._sums.table.counts > 0).sum())

    @property
    def design(self) -> Design:
        """The design of the data: levels, structure and origin."""
        return self.model().design

    def model(self) -> VarianceComponentsModel:
        """Return the model of these statistics, for several estimates or its likelihood.

        Raises
        ------
        DataError, DesignError
            If there are too few rows or levels for the terms of the formula.
        """
        of_rows = self._sums.coding.of_rows
        reading = Reading(caller_environment(0, 0), row_columns=of_rows)
        return VarianceComponentsModel(self.formula, finish(self._sums, reading))

    @guarded
    def fit(self, method: MethodName = "reml", **options: Any) -> VarianceComponentsResults:
        """Estimate the components, as :meth:`VarianceComponentsModel.fit` does.

        Parameters
        ----------
        method, **options : as for :meth:`VarianceComponentsModel.fit`

        Returns
        -------
        VarianceComponentsResults

        Raises
        ------
        DataError, DesignError, EstimationError
            As :meth:`model`, and if the method does not apply, or is a formula: statistics have
            one of their own.
        """
        if "~" in str(method):
            raise EstimationError(
                f"these statistics are of {self.formula!r}, and cannot be fitted with another "
                "formula; accumulate the rows anew"
            )
        return self.model().fit(method, **options)

    @guarded
    def save(self, path: str | Path) -> None:
        """Write the statistics to a file, which :meth:`load` reads again.

        It is a zip archive of plain arrays and JSON, about 9 bytes per cell, and 24 more if cells
        have several scores. An existing file is replaced only when the new one is complete.

        Parameters
        ----------
        path : of the file

        Raises
        ------
        DataError
            If it cannot be written, or levels are neither numbers, dates nor text.
        """
        write_sums(self._sums, path)

    @classmethod
    @guarded
    def load(cls, path: str | Path) -> AccumulatedStatistics:
        """Return the statistics from a file that :meth:`save` wrote.

        Parameters
        ----------
        path : of a file that :meth:`save` wrote

        Raises
        ------
        DataError
            If there is no such file, or it is incomplete, of another kind or of a later version.
        """
        return cls(read_sums(path))

    def __add__(self, other: object) -> AccumulatedStatistics:
        if not isinstance(other, AccumulatedStatistics):
            return NotImplemented
        (_, mine), (_, theirs) = self._parts.parts[0], other._parts.parts[0]
        mine.check_same(theirs)
        return AccumulatedStatistics(self._parts + other._parts)

    def __radd__(self, other: object) -> AccumulatedStatistics:
        return self if other == 0 else NotImplemented  # sum() starts there

    def __repr__(self) -> str:
        levels = " × ".join(display.sized(n, facet) for facet, n in self.n_levels.items())
        return encodable(
            f"<statistics of {display.count(self.nobs)} scores in {display.count(self.n_cells)} "
            f"cells of {levels}>"
        )


@guarded
def accumulate(
    formula: str,
    data: Any = None,
    *,
    weights: str | None = None,
    frequency: str | None = None,
    known_variance: str | None = None,
    offset: str | None = None,
    missing: Missing = "drop",
    residual: str | None = None,
    progress: bool | None = None,
    eval_env: Any = 0,
) -> AccumulatedStatistics:
    """Sum rows, in batches, to the sufficient statistics of any later estimate.

    Parameters
    ----------
    formula : as for :func:`vcomp.fit`
    data : as for :func:`vcomp.fit`: frames, files, folders and patterns of files, and iterables of
        frames. They are read twice, more often if the formula has a fixed part, and once if the
        rows are few enough to be kept meanwhile
    weights : column of weights w: the residual variance of a row is σ²_e/w, as in lme4
    frequency : column of the numbers of equal rows that the rows stand for
    known_variance : column of variances of the scores about their expectation, in place of σ²_e
    offset : column of known parts of the expectations of the scores
    missing : ``"drop"`` rows with a missing value in a used column and warn, or ``"raise"``
    residual : as for :func:`vcomp.fit`
    progress : whether to show a bar of the rows, with their number per second; None shows one
        after two seconds if stderr is a terminal
    eval_env : as in patsy: 0 for the scope of the caller, 1 for the one above, or an
        ``EvalEnvironment``

    Returns
    -------
    AccumulatedStatistics
        to be stored (:meth:`~AccumulatedStatistics.save`), added (``+``) and fitted
        (:meth:`~AccumulatedStatistics.fit`)

    Raises
    ------
    FormulaError, DataError
        If something cannot be read or found; the message names it.
    EstimationError
        If the cells would not fit into memory.

    Examples
    --------
    >>> import vcomp
    >>> data = vcomp.datasets.load("bodoff2007_alpha")
    >>> vcomp.accumulate("score ~ (1|sys) + (1|topic)", data)
    <statistics of 15 scores in 15 cells of 5 sys × 3 topics>
    """
    columns = RowColumns(weights, frequency, known_variance, offset)
    columns.check_in_parts("summed")
    environment = caller_environment(eval_env, 1)
    reading = Reading(environment, missing, progress=progress, row_columns=columns)
    return AccumulatedStatistics(cell_sums_of(formula, data, reading, residual))


def cell_sums_of(
    formula: str, data: Any, reading: Reading, residual: str | None = None
) -> CellSums:
    """Return the sums of rows in cells; no cell is collapsed, so that others can be merged.

    Parameters
    ----------
    formula, data, residual : as for :func:`accumulate`
    reading : how the rows are read
    """
    on_dask, parsed = reading.is_on_dask(data), parse(formula, level_columns(data), residual)
    if on_dask:
        return gather_on_dask(parsed, data, reading, collapse=False)
    source = reading.open(parsed, data)
    if not source.is_repeatable:
        raise source.one_pass_only()
    return gather(parsed, source, reading).compact()
