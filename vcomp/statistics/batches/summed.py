"""Cells of all rows → design and sufficient statistics, with which every estimator works."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np

from vcomp._typing import FloatArray, IntArray
from vcomp.data import CompleteRows, OffsetOfRows, Reading, Rows, WeightsOfRows
from vcomp.design import (
    Centre,
    Chunk,
    Design,
    Grid,
    TermDesign,
    are_nested,
    find_facets,
    find_terms,
    learn_blocks,
    learn_residual,
    make_design,
    number_combinations,
)
from vcomp.display import memory
from vcomp.exceptions import DataError, EstimationError
from vcomp.formula import OmittedColumns
from vcomp.numerics import MixedColumns, slices
from vcomp.statistics.batches.cell_sums import (
    CellSums,
    cells_of_grid,
    cells_with_scores,
    rows_of_cells,
    with_effects,
)
from vcomp.statistics.groupings import find_groupings, split_columns
from vcomp.statistics.statistics import Statistics
from vcomp.statistics.strata import Cells, StratumStatistics
from vcomp.statistics.stratification import MOST_AXES, layout_of, strata_of

if TYPE_CHECKING:
    from vcomp.statistics.batches.cell_table import CellTable
    from vcomp.statistics.batches.collapsed_cells import CollapsePlan, PartSums
    from vcomp.statistics.batches.passes import Batches
    from vcomp.statistics.batches.row_coding import RowCoding
    from vcomp.statistics.batches.survey import Addable, XSums

_BLOCK = 2**17
"""Number of cells in a block of a sum."""

_COPIES = 5.0
"""Copies of the table of cells in memory while effects are predicted."""


_NOT_KEPT = (
    "the rows were read in batches and are not kept; res.augment(path='out.parquet') reads them "
    "again and writes fitted values and residuals to a file, and stream=False keeps them in "
    "memory, about {}"
)
_NO_SOURCE = (
    "there are no rows to read again: the fit is of saved statistics, or of sums made by Dask; "
    "fit the data themselves, with stream=True if they are large"
)
_NO_ROWS = (
    "this needs the rows, and the fit is of saved or merged statistics, or of sums made by Dask; "
    "fit the rows with stream=False"
)

ReadAgain: TypeAlias = "Callable[[Reading], Batches]"
"""Function that reads the same rows again, with another ``Reading``."""


Sum = TypeVar("Sum", bound="Addable")


class Parts(Protocol):
    """Rows in parts, for functions whose results are added."""

    def total(self, of: Callable[..., Sum], *known: Any) -> Sum | None:
        """Return the sum of ``of(*known, part)`` over the parts; None without parts."""


@dataclass(frozen=True, slots=True, eq=False)
class SummedData:
    """Design and statistics of the rows of one analysis.

    Attributes
    ----------
    design : levels, origin and structure
    statistics : sufficient statistics
    fixed_columns : columns of the fixed part; without rows, but with all levels of factors, if the
        rows are not kept
    cells_as_rows : makes the coded rows, or cells of several rows each if the rows are not kept
    response_sums : mean of the response, and sum of squares about it
    reading : how the rows were read
    rows : None if they are not kept
    again : reads the rows once more; None where they are kept, or cannot be read again
    response_values : of rows that are not kept the values of the response in order; None if they
        are more than a few
    parts : reads the rows once more as parts, on the workers of Dask too; None as for `again`
    cells_with_scores : makes cells with weighted scores that have the moments of those in each
        cell, or None if these are not known
    weights : of the rows; None if they count alike
    offset : the offsets of the rows; None without
    moments : of the columns of X, each row counted once, where the sums have weights
    sums : cells whose levels determine the columns of X, from which other formulas have theirs;
        None of other data
    seconds : time of each stage
    """

    design: Design
    statistics: Statistics
    fixed_columns: Mapping[str, Any]
    cells_as_rows: Callable[[], Chunk]
    response_sums: tuple[float, float]
    reading: Reading
    rows: Rows | None = None
    again: ReadAgain | None = None
    response_values: tuple[float, ...] | None = None
    parts: Callable[[Reading], Parts] | None = None
    cells_with_scores: Callable[[], Chunk | None] | None = None
    weights: WeightsOfRows | None = None
    offset: OffsetOfRows | None = None
    moments: XSums | None = None
    sums: CellSums | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)

    def without_columns(self, left_out: OmittedColumns, constant: FloatArray) -> SummedData:
        """Return the same rows without columns of X that are linear combinations of others.

        Parameters
        ----------
        left_out : the columns
        constant : (p,) the combination of those kept that is the constant
        """
        kept, scores = left_out.kept, self.cells_with_scores
        design = self.design.without_columns(left_out, constant)
        fewer = self.statistics.of_columns(kept, design.beta_origin)

        def cells_with_scores() -> Chunk | None:
            found = None if scores is None else scores()
            return None if found is None else found.of_columns(kept, design.beta_origin)

        return replace(
            self,
            design=design,
            statistics=fewer,
            cells_as_rows=lambda: fewer.cells,
            cells_with_scores=cells_with_scores,
            moments=None if self.moments is None else self.moments.of_columns(kept),
        )

    def without_fixed(self, beta: FloatArray) -> SummedData:
        """Return the same rows, from whose response a fixed part is subtracted as well.

        Parameters
        ----------
        beta : (p,) coefficients of the centred columns of X

        Raises
        ------
        DataError
            If neither rows nor cells are kept.
        """
        statistics, scores = self.statistics.without_fixed(beta), self.cells_with_scores

        def cells_with_scores() -> Chunk | None:
            found = None if scores is None else scores()
            return None if found is None else found.without_fixed(beta)

        return replace(
            self,
            design=replace(self.design, beta_origin=self.design.beta_origin + beta),
            statistics=statistics,
            cells_as_rows=lambda: statistics.cells,
            cells_with_scores=cells_with_scores,
        )

    def column_products(self, b: FloatArray) -> FloatArray:
        """Return X'Xb, each row counted once, for the centred columns of X.

        Parameters
        ----------
        b : (p,) coefficients
        """
        if self.moments is not None:
            away = self.moments.mean - self.design.x_origin
            return self.moments.gram @ b + self.moments.n * away * float(away @ b)
        wide = self.unweighted.needed_wide
        return self.unweighted.XX @ b if wide is None else wide.products_with(b)

    @property
    def unweighted(self) -> Statistics:
        """The statistics of the same rows without weights, for numbers of scores."""
        if self.weights is None:
            return self.statistics
        rows = self.cells_as_rows().unweighted
        return Statistics.from_rows(rows, self.design.grid, self.design.partial_grid)

    @property
    def kept_rows(self) -> Rows:
        """The rows.

        Raises
        ------
        DataError
            If they were read in batches, and not kept.
        """
        if self.rows is None:
            n_columns = len(self.design.facets) + len(self.design.fixed.names)
            size = self.reading.memory_of_rows(self.statistics.n, n_columns)
            raise DataError(_NO_ROWS if self.again is None else _NOT_KEPT.format(size))
        return self.rows

    def read_again(self, progress: bool | None = False) -> Batches:
        """Return the rows that were not kept, to be read again.

        Parameters
        ----------
        progress : whether to show a bar

        Raises
        ------
        DataError
            If they cannot be read again, as after saved statistics or Dask.
        """
        if self.again is None:
            raise DataError(_NO_SOURCE)
        return self.again(replace(self.reading, progress=progress))

    def total(self, of: Callable[..., Sum], *known: Any) -> Sum:
        """Return the sum of ``of(*known, chunk)`` over parts of the coded rows.

        The rows are one part if they are kept, or are the cells that are kept. Else they are
        replaced by weighted scores with the same first four moments in each cell, or read again,
        in batches or on the workers of Dask.

        Raises
        ------
        DataError
            If they can neither be read again nor be derived from the cells, or have changed.
        """
        if self.rows is not None:
            return of(*known, self.cells_as_rows())
        cells = self._single_cells()
        if cells is not None:
            return of(*known, cells)
        cells = None if self.cells_with_scores is None else self.cells_with_scores()
        if cells is not None:
            return of(*known, cells)
        if self.parts is None:
            raise DataError(
                "this needs single rows, which are not kept and cannot be read again: of the "
                "cells, which hold several scores, only means and sums of squares are known. "
                "Fit the rows themselves, or use interval='mls'"
            )
        parts = self.parts(self.reading)
        counted = parts.total(_of_part, self.design, self.fixed_columns, of, known)
        n = 0 if counted is None else counted.n
        if counted is None or n != self.design.structure.n_rows:
            raise DataError(
                f"the fit has {self.design.structure.n_rows:,} rows, and {n:,} were read now; "
                "the rows must not change after the fit"
            )
        return counted.sum

    def _single_cells(self) -> Chunk | None:
        """Return the cells if each of them is one row, else None."""
        try:
            cells = self.cells_as_rows()
        except DataError:  # collapsed cells
            return None
        return cells if cells.counts is None else None


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """A sum over rows, and their number."""

    n: int
    sum: Any

    def __add__(self, other: _Counted) -> _Counted:
        return _Counted(self.n + other.n, self.sum + other.sum)


def _of_part(
    design: Design,
    fixed_columns: Mapping[str, Any],
    of: Callable[..., Any],
    known: tuple[Any, ...],
    part: CompleteRows,
) -> _Counted:
    """Return the result of :meth:`SummedData.total` for one part, with its number of rows."""
    facets = {str(name): column for name, column in part.frame.items()}
    fixed = part.fixed_columns(design.formula, fixed_columns)
    rows = Rows(part.y, facets, fixed, part.frame.index, weights=part.weights)
    return _Counted(part.y.size, of(*known, design.encode(rows)))


def finish(sums: CellSums, reading: Reading) -> SummedData:
    """Return the design of rows that were summed in cells, and their statistics.

    Parameters
    ----------
    sums : the cells
    reading : how the rows were read

    Raises
    ------
    DesignError
        If a facet has one level only, or a term has one row in every group.
    """
    sums = sums.for_grid()
    coding, table = sums.coding, sums.table
    weights, of_rows = None, coding.of_rows
    if table.weights is not None:
        mean, mean_log = (float(total.sum()) / coding.survey.n for total in table.weights)
        weights = of_rows.used(mean, mean_log)
    levels = {facet.name: facet.levels for facet in coding.facets_of_terms}
    find_facets(levels, coding.kinds.of_no_rows())
    if sums.collapsed is not None:
        assert sums.again is not None
        summed = _of_collapsed(coding, sums.collapsed, sums.again, reading)
    elif coding.fixed_in_cells:
        summed = _of_cells_with_levels(coding, table, reading)
    elif not table.may_fill_grid:
        summed = _of_weighted_cells(coding, table, reading)
    else:
        grid = _grid(coding, table)
        if grid is not None and len(grid.axes) <= MOST_AXES:
            summed = _of_grid(coding, table, grid, reading)
        else:
            cells, totals = rows_of_cells(coding, table, ()), _response_sums(coding, table)
            scores_of = None
            if table.powers is not None or coding.survey.values is not None:
                scores_of = partial(cells_with_scores, coding, table)
            del sums, table, grid  # as large as the cells, which do not need them
            summed = _of_cells(coding, cells, totals, scores_of, reading)
    moments = None if coding.sums is None else coding.sums.split(len(coding.fixed.names))[0]
    survey, offset = coding.survey, None
    if summed.design.formula.offsets or reading.row_columns.offset is not None:
        offset = OffsetOfRows(None if survey.offset is None else survey.offset / survey.n)
    return replace(
        summed,
        response_values=survey.values,
        weights=weights,
        moments=moments,
        offset=offset,
    )


def _grid(coding: RowCoding, table: CellTable) -> Grid | None:
    nested = are_nested(coding.formula.positions, coding.survey.determined)
    if table.places is None:
        return coding.places.grid(table.counts, terms_are_nested=nested)
    return None


def _of_collapsed(
    coding: RowCoding,
    sums: PartSums,
    again: Callable[[], CellTable],
    reading: Reading,
) -> SummedData:
    """Return the statistics of a complete grid whose cells were collapsed."""
    plan, collapsed = sums.plan, sums.collapsed
    assert collapsed is not None
    grid, groupings = plan.grid, plan.groupings
    layout = layout_of(plan.terms, coding.places.n_levels, grid, groupings)
    intercept = not coding.varying.all()
    split = collapsed.columns(coding.columns, sums.open.within)
    strata = strata_of(split, layout, groupings, intercept=intercept)
    if groupings.remainder.n_groupings in groupings.of_term:
        strata = replace(strata, cells=partial(_cells_again, coding, plan, again, reading))

    def rows() -> Chunk:
        size = reading.memory_of_rows(coding.survey.n, len(coding.facets) + coding.n_columns)
        raise DataError(
            "these rows were read in batches, and cells were collapsed as soon as they were "
            f"complete; this needs the rows in memory, about {size}: fit with stream=False (a "
            "Dask DataFrame after .compute())"
        )

    return SummedData(
        _design(coding, plan.terms, grid),
        Statistics.from_cells(rows, strata, grid, None),
        coding.kinds.of_no_rows(),
        rows,
        _response_sums(coding, sums.open, strata),
        reading,
    )


def _cells_again(
    coding: RowCoding,
    plan: CollapsePlan,
    again: Callable[[], CellTable],
    reading: Reading,
) -> Cells:
    """Return the cells that were collapsed, from one more pass over the rows.

    Raises
    ------
    EstimationError
        If they would not fit into memory.
    """
    from vcomp.statistics.batches.cell_sums import table_bytes  # deferred for start-up time

    needed = _COPIES * table_bytes(coding.places.size, coding.n_columns)
    free = reading.free_bytes()
    if needed > 0.8 * free:
        raise EstimationError(
            f"effects of {plan.grid.n_cells:,} single cells, each with "
            f"{plan.n_axes:,} combinations of other levels, need {memory(needed)}, and "
            f"{memory(free)} are free; use a part of the rows, such as some of the files"
        )
    return cells_of_grid(coding, again(), plan.grid, plan.groupings)


def _design(
    coding: RowCoding,
    terms: tuple[TermDesign, ...],
    grid: Grid | None,
    codes: Sequence[IntArray] = (),
    counts: FloatArray | None = None,
) -> Design:
    fixed, centre, n = coding.fixed, coding.centre, coding.survey.n
    return make_design(
        coding.formula, coding.facets_of_terms, terms, fixed, centre, n, grid, codes, counts
    )


def _of_grid(coding: RowCoding, table: CellTable, grid: Grid, reading: Reading) -> SummedData:
    n_levels = coding.places.n_levels
    terms = find_terms(coding.formula, (), n_levels, grid, coding.survey.n)
    design = _design(coding, terms, grid)
    groupings = find_groupings(terms, grid)
    cells = cells_of_grid(coding, table, grid, groupings)
    layout = layout_of(terms, n_levels, grid, groupings)
    intercept = not coding.varying.all()
    strata = strata_of(split_columns(cells, groupings), layout, groupings, intercept=intercept)
    if groupings.remainder.n_groupings in groupings.of_term:
        strata = replace(strata, cells=partial(cells_of_grid, coding, table, grid, groupings))
    rows = partial(rows_of_cells, coding, table, terms)
    statistics = Statistics.from_cells(rows, strata, grid, None)
    columns, sums = coding.kinds.of_no_rows(), _response_sums(coding, table, strata)
    scores = partial(cells_with_scores, coding, table, rows)
    return SummedData(
        design, statistics, columns, rows, sums, reading, cells_with_scores=scores
    )  # fmt: skip


def _of_cells(
    coding: RowCoding,
    cells: Chunk,
    totals: tuple[float, float],
    scores_of: Callable[[Callable[[], Chunk]], Chunk | None] | None,
    reading: Reading,
) -> SummedData:
    """Return the statistics of data that do not fill a grid, with their cells as rows."""
    formula, survey, n_levels = coding.formula, coding.survey, coding.places.n_levels
    codes = cells.compact_codes
    terms = find_terms(formula, codes, n_levels, None, survey.n)
    design = _design(coding, terms, None, codes, cells.counts)
    chunk = replace(cells, terms=terms)

    def rows() -> Chunk:
        return chunk

    statistics = Statistics.from_cells(rows, None, None, design.partial_grid)
    scores = None if scores_of is None else partial(scores_of, rows)
    columns = coding.kinds.of_no_rows()
    return SummedData(
        design, statistics, columns, rows, totals, reading, cells_with_scores=scores
    )  # fmt: skip


def _of_cells_with_levels(coding: RowCoding, table: CellTable, reading: Reading) -> SummedData:
    """Return the statistics of cells whose levels determine the columns of X."""
    formula, survey, fixed = coding.formula, coding.survey, coding.fixed
    n_levels, grid = coding.places.n_levels, _grid(coding, table)
    if not table.is_full:  # of cells without rows nothing is kept
        places, filled = table.filled()
        table = filled if places.size == coding.places.size else replace(filled, places=places)
    cells = rows_of_cells(coding, table, ())
    codes, m, counts = cells.compact_codes, cells.response.size, cells.counts
    columns = coding.fixed_columns(codes)
    X = fixed.mixed(columns, m) or fixed.matrix(columns, m)
    y = survey.low, survey.high, survey.mean
    centre = Centre.of_columns(
        formula, fixed.names, y, X, np.ones(m) if counts is None else counts
    )
    within = None
    if cells.within is not None:
        within = np.zeros((1 + len(fixed.names),) * 2)
        within[0, 0] = cells.within[0, 0]
    terms = find_terms(formula, codes, n_levels, grid, survey.n)
    shift = coding.centre.origin - centre.origin  # none of an intercept: the means are no copy
    chunk = replace(
        cells,
        response=cells.response + shift if shift else cells.response,
        columns=X.minus(centre.x_origin) if isinstance(X, MixedColumns) else X - centre.x_origin,
        terms=terms,
        within=within,
    )
    design = _design(replace(coding, centre=centre), terms, grid, codes, counts)

    def rows() -> Chunk:
        return chunk

    return SummedData(
        design,
        Statistics.from_rows(chunk, grid, design.partial_grid),
        coding.kinds.of_no_rows(),
        rows,
        _response_sums(coding, table),
        reading,
        cells_with_scores=partial(cells_with_scores, coding, table, rows),
        sums=CellSums(coding, table),
    )


def _cells_of_terms(
    codes: Sequence[IntArray], n_levels: tuple[int, ...], counts: Any
) -> tuple[tuple[IntArray, ...], FloatArray]:
    """Return codes and counts of the cells of the terms' facets, which residual groups may split.

    Parameters
    ----------
    codes, n_levels : of these facets
    counts : (m,) rows of the cells
    """
    number, size = np.zeros(len(counts), np.int32), 1
    for levels, n in zip(codes, n_levels, strict=True):
        keys, number = number_combinations(number, size, levels, n)
        size = keys.size
    _, first = np.unique(number, return_index=True)
    return tuple(levels[first] for levels in codes), np.bincount(number, counts).astype(float)


def _of_weighted_cells(coding: RowCoding, table: CellTable, reading: Reading) -> SummedData:
    """Return the statistics of cells of rows with weights, slopes or residual groups."""
    n_facets = len(coding.formula.facets)
    cells = rows_of_cells(coding, table, ())
    codes, counts = cells.compact_codes, table.filled()[1].counts
    formula, residual, blocks = coding.formula, None, None
    if formula.groups is not None:
        names = list(formula.level_columns)
        at = [names.index(name) for name in formula.groups.facets]
        facets, levels = tuple(coding.facets[k] for k in at), [codes[k] for k in at]
        residual = learn_residual(formula.groups, facets, levels, counts)
        formula = replace(formula, groups=residual.groups)
        in_groups = residual.term.groups(levels, tuple(facet.size for facet in facets))
        cells = replace(cells, residual_codes=in_groups)
    if table.products is not None:
        formula, blocks = learn_blocks(formula, coding.bars())
        coding = replace(coding, formula=formula)
        cells = with_effects(replace(cells, blocks=blocks), coding, table)
    codes, n_levels = codes[:n_facets], cells.facet_sizes[:n_facets]
    n_groups = coding.survey.n if table.weights is None else None
    terms = find_terms(formula, codes, n_levels, None, n_groups)
    design = _design(coding, terms, None, *_cells_of_terms(codes, n_levels, counts))
    chunk = replace(cells, terms=terms, compact_codes=codes, facet_sizes=n_levels)
    return SummedData(
        replace(design, blocks=blocks, residual=residual),
        Statistics.from_rows(chunk, None),
        coding.kinds.of_no_rows(),
        lambda: chunk,
        _response_sums(coding, table),
        reading,
    )


def _response_sums(
    coding: RowCoding, table: CellTable, strata: StratumStatistics | None = None
) -> tuple[float, float]:
    """Return the mean of the response, and the sum of squares about it.

    Parameters
    ----------
    table : of all cells, if not all are in nested groups of the strata
    """
    survey = coding.survey
    if survey.squares is not None:
        return survey.mean, survey.squares
    sums = None if strata is None else strata.response_sums()
    if sums is not None:
        return coding.centre.origin + sums[0], sums[1]
    counts, means = table.counts, table.means[0]
    # In blocks: there may be as many cells as rows.
    blocks = list(slices(counts.size, _BLOCK))
    away = math.fsum(float(means[b] @ counts[b]) for b in blocks) / coding.survey.n
    within = float(table.within[0, 0])
    squares = math.fsum(float(counts[b] @ np.square(means[b] - away)) for b in blocks)
    return coding.centre.origin + away, squares + within
