"""The record of a fit: all values of a result without the rows, as they are stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, Json, LongArray
from vcomp.codec import Format, stored
from vcomp.data import OffsetOfRows, WeightsOfRows
from vcomp.design import Design, Structure
from vcomp.estimators import Estimate, quadratic
from vcomp.exceptions import DataError, EstimationError, VcompError
from vcomp.formula import REPLICATE, RESIDUAL, FixedPart, closure, in_formula, traits_of
from vcomp.inference import (
    NOT_CONVERGED,
    LevelVariances,
    Projected,
    TwoWayMeanSquares,
    VarianceComponents,
    object_key,
)
from vcomp.inference.hypotheses import fixed_level_variances
from vcomp.inference.intervals import (
    FromComponents,
    IntervalName,
    level_variances,
    positive_residual,
    with_influences,
)
from vcomp.ir.rank import PairedDifferences
from vcomp.model.stored_levels import StoredLevels, check_record
from vcomp.statistics import CellTotals, GroupSums, tabulate
from vcomp.statistics.batches import SummedData, few_values


def label(
    design: Design,
    sums: GroupSums | None,
    estimate: Estimate,
    table: CellTotals | None,
    response_values: tuple[float, ...] | None = None,
) -> VarianceComponents:
    """Return the estimated components with their facets, nesting, sizes and covariance."""
    structure = design.structure
    facets = tuple(
        closure(frozenset(facets), structure.nested_in)
        for facets in design.formula.facets_of_components
    )
    everything = frozenset(structure.facets)
    nested_in = dict(structure.nested_in)
    if structure.replicated and REPLICATE not in structure.facets:
        nested_in[REPLICATE] = everything
        everything |= {REPLICATE}
    facets = (*facets, *(everything for _ in design.formula.residual_names))
    # Intervals from mean squares would ignore that components are held.
    mean_squares = None
    if table is not None and not estimate.held:
        mean_squares = two_way_mean_squares(structure, facets, table)
    return VarianceComponents(
        names=estimate.names,
        facets=facets,
        values=estimate.values,
        cov=next(iter(estimate.covariances.values())),
        nested_in=nested_in,
        sizes={f: n for f, n in structure.sizes.items() if f in everything},
        inverse_n={} if sums is None else _inverse_n(sums, facets, estimate.names),
        mean_squares=mean_squares,
        held=estimate.held,
        without_bounds=estimate.without_bounds,
        response_values=response_values,
        converged=estimate.converged,
        matrices=design.formula.matrices,
        groups=design.formula.groups,
    )


def _inverse_n(
    sums: GroupSums, facets: tuple[frozenset[str], ...], names: tuple[str, ...]
) -> dict[str, dict[str, float]]:
    """Return the exact 1/n of every component, with the groups of each term as objects."""
    return {
        object_key(objects): dict(zip(names, inverse.tolist(), strict=True))
        for objects, inverse in zip(facets[:-1], sums.inverse_n, strict=True)
    }


def two_way_mean_squares(
    structure: Structure, facets: tuple[frozenset[str], ...], table: CellTotals
) -> TwoWayMeanSquares | None:
    """Return the mean squares of the cell means if exact intervals follow from them, else None.

    This needs two fully crossed facets, equal cells, and a term for their interaction if cells
    hold several scores: without it, the model attributes differences of cell means to error only.
    """
    if not (structure.balanced and structure.fully_crossed):
        return None
    n_replicates = structure.cell_max
    if n_replicates > 1 and frozenset(structure.facets) not in facets[:-1]:
        return None
    means = table.sums / table.counts
    rows, columns = structure.facets
    return replace(TwoWayMeanSquares.of(means, rows, columns), n_replicates=n_replicates)


_MAX_CELLS = 1_000_000
"""Largest number of cell means in a result: a thousand systems by a thousand topics."""


def _compact(counts: FloatArray) -> float | LongArray:
    """Return counts for a file: only of filled cells if most are empty, one number if equal."""
    kept = counts[counts > 0.0] if _mostly(counts == 0.0) else counts
    return float(kept.flat[0]) if np.ptp(kept) == 0 else kept.astype(np.int64)


def _spread(counts: Any, cells: Json) -> FloatArray:
    found = np.array(counts, dtype=float)
    if not (found > 0.0).any():
        raise ValueError("cells without scores")
    if isinstance(cells["means"], dict):
        return _unfolded(cells, found, 0.0)
    return np.broadcast_to(found, np.shape(cells["means"])).copy()


def _folded(means: FloatArray) -> FloatArray | Json:
    """Return means for a file: only of filled cells if most are empty."""
    if not _mostly(np.isnan(means)):
        return means
    filled = np.flatnonzero(~np.isnan(means))
    return {"filled": filled, "values": means.ravel()[filled]}


def _mean_of_cells(means: Any, cells: Json) -> FloatArray:
    if isinstance(means, dict):
        return _unfolded(cells, np.array(means["values"], dtype=float), np.nan)
    return np.array(means, dtype=float)


def _unfolded(cells: Json, values: FloatArray, empty: float) -> FloatArray:
    """Return a table of all cells from the values of filled ones."""
    shape = tuple(len(levels) for levels in cells["levels"])
    if np.prod(shape) > _MAX_CELLS:
        raise ValueError(f"a table of {shape[0]:,} × {shape[1]:,} cells")
    table = np.full(shape, empty)
    table.flat[np.array(cells["means"]["filled"], dtype=np.int64)] = values
    return table


def _mostly(empty: BoolArray) -> bool:
    return bool(2 * np.count_nonzero(empty) > empty.size)


@dataclass(frozen=True, slots=True)
class CellMeans:
    """Means and numbers of scores in the cells of two crossed facets.

    Attributes
    ----------
    facets : names of the rows' and the columns' facet
    levels : their levels as text
    means : (n_rows, n_columns) on the scale of the response, nan where a cell is empty
    counts : (n_rows, n_columns) scores in each cell
    """

    facets: tuple[str, str]
    levels: tuple[tuple[str, ...], tuple[str, ...]]
    means: FloatArray = field(metadata=stored(write=_folded, read=_mean_of_cells))
    counts: FloatArray = field(metadata=stored(write=_compact, read=_spread))

    @classmethod
    def of(cls, design: Design, table: CellTotals) -> CellMeans:
        """Return the cell means of a design with two facets."""
        first, second = design.facets
        with np.errstate(invalid="ignore"):
            means = np.where(table.counts > 0, table.sums / np.maximum(table.counts, 1), np.nan)
        return cls(
            facets=(first.name, second.name),
            levels=(tuple(map(str, first.levels)), tuple(map(str, second.levels))),
            means=means + design.origin,
            counts=table.counts,
        )

    def differences(self, system: str) -> PairedDifferences:
        """Return the paired differences between the levels of one facet over the other."""
        if system == self.facets[0]:
            return PairedDifferences.from_scores(self.means.T, self.levels[0])
        return PairedDifferences.from_scores(self.means, self.levels[1])

    def matrix(self, system: str) -> tuple[FloatArray, tuple[str, ...], tuple[str, ...]]:
        """Return the means with a column for each level of `system`, and names of both sides."""
        rows, columns = self.levels
        return (
            (self.means.T, columns, rows)
            if system == self.facets[0]
            else (self.means, rows, columns)
        )


_MOST_COLUMNS, _ELEMENTS = 100, 2_000_000
"""Columns of the fixed part up to which products of their contributions are stored, and elements
of the sums over groups that they are made of: their number grows with the square of the columns,
and the time with the cube."""


@dataclass(frozen=True, slots=True)
class StoredTables:
    """The tables of :class:`TablesOfFit` as values, for a loaded or pickled result.

    Attributes
    ----------
    components : the components with their facets, for D-studies
    table : analysis of variance; None if the mean is not constant
    cells : cell means of two facets; None for other designs, and if there are very many
    levels : products of influences by level, for robust intervals; None if the rows could not be
        read again, or the file is of an older version
    fixed_levels : the same of contributions to the fixed effects, for their robust errors; None if
        there are many
    """

    components: VarianceComponents
    table: quadratic.AnovaTable | None
    cells: CellMeans | None
    levels: LevelVariances | None = None
    fixed_levels: LevelVariances | None = None

    @classmethod
    def of(cls, tables: TablesOfFit | StoredTables) -> StoredTables:
        """Return tables as values."""
        levels = _known(lambda: tables.levels)
        without = levels is None
        if levels is not None and isinstance(tables, TablesOfFit):
            without = _is_large(tables.found.design.fixed, levels)
        fixed_levels = None if without else _known(lambda: tables.fixed_levels)
        return cls(tables.components, tables.table, tables.cells, levels, fixed_levels)


def _is_large(fixed: FixedPart, levels: LevelVariances) -> bool:
    """Whether the contributions to the fixed effects are too many to be stored.

    Parameters
    ----------
    fixed : part of the model, whose factors are no sample
    levels : with the sets of groups of the data
    """
    factors, has_covariates = fixed.factor_columns
    sampled = [not (has_covariates or s & factors) for s in levels.sets[:-1]]
    elements = levels.sizes[:-1][sampled].sum() * len(fixed.names) ** 2
    return bool(len(fixed.names) > _MOST_COLUMNS or elements > _ELEMENTS)


def _known(made: Callable[[], LevelVariances | None]) -> LevelVariances | None:
    """Return products that need the rows; None if they cannot be computed."""
    try:
        return made()
    except VcompError:
        return None


def _check_single_rows(found: SummedData, what: str, instead: str) -> None:
    """Refuse slopes, residual groups and weights of rows that are not in memory."""
    if found.rows is None and (found.design.blocks is not None or found.weights is not None):
        raise DataError(
            f"{what} of random slopes, several residual variances or weights needs the rows in "
            f"memory, and they were read in parts; fit them with stream=False, or use {instead}"
        )


@dataclass(frozen=True, eq=False)
class TablesOfFit:
    """The tables of a fit whose data are in memory; a pickle holds them as :class:`StoredTables`.

    Attributes
    ----------
    found : design and statistics of the data
    estimate : of the components
    """

    found: SummedData
    estimate: Estimate

    @cached_property
    def components(self) -> VarianceComponents:
        """The components with their facets, for D-studies."""
        found = self.found
        return label(
            found.design,
            None if found.statistics.blocks is not None else found.unweighted.group_sums,
            self.estimate,
            self._scores(),
            found.response_values if found.rows is None else few_values(found.rows.y),
        )

    @cached_property
    def table(self) -> quadratic.AnovaTable | None:
        """The analysis of variance of the method; that of Method I if it has none."""
        method = self.estimate.method
        if self.found.design.blocks is not None or self.found.weights is not None:
            return None
        if not (method in ("type1", "henderson3") or self.found.design.formula.intercept_only):
            return None
        return quadratic.analysis_of_variance(method, self.found.statistics, self.estimate.names)

    @cached_property
    def cells(self) -> CellMeans | None:
        """The cell means of two crossed facets, unless there are too many."""
        scores = self._scores()
        return None if scores is None else CellMeans.of(self.found.design, scores)

    @cached_property
    def levels(self) -> LevelVariances:
        """The products of influences by level, for robust intervals; reads the rows.

        Raises
        ------
        DataError
            If the rows cannot be read again.
        EstimationError
            If the residual or all components are estimated at zero.
        """
        found = self.found
        estimate = self.estimate
        covariance = None if found.design.blocks is None else estimate.covariances["expected"]
        _check_single_rows(found, "interval='robust'", "interval='mls'")
        return level_variances(
            found.design, found.statistics, found.total, estimate.values, covariance
        )

    @cached_property
    def fixed_levels(self) -> LevelVariances | None:
        """The products of contributions to the fixed effects, None without any; reads the rows.

        Raises
        ------
        DataError
            If the rows cannot be read again.
        EstimationError
            If the residual is estimated at zero.
        """
        found, v = self.found, self.estimate.values
        _check_single_rows(found, "cov_type='robust'", "cov_type='model'")
        if found.design.blocks is None:
            v = positive_residual(v, "cov_type='robust'", "cov_type='model'")
        if not found.design.fixed.names:
            return None
        means = self.estimate.method == "anova"
        return fixed_level_variances(found.design, found.statistics, found.total, v, means=means)

    def _scores(self) -> CellTotals | None:
        design = self.found.design
        crossed = len(design.facets) == 2 and not any(design.structure.nested_in.values())
        if not (crossed and design.formula.intercept_only) or self.found.weights is not None:
            return None
        if np.prod(design.n_levels) > _MAX_CELLS:
            return None
        return tabulate(self.found.cells_as_rows(), 0, 1)

    def __reduce__(self) -> tuple[Any, ...]:
        stored = StoredTables.of(self)
        return StoredTables, (
            stored.components, stored.table, stored.cells, stored.levels, stored.fixed_levels,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class FitRecord:
    """The values of a fit; a few kilobytes that can be stored and loaded again.

    Attributes
    ----------
    formula : as given
    response : its left-hand side
    exog_names : columns of the fixed part
    structure : of the design
    estimate : components and fixed effects
    tables : components with their facets, analysis of variance and cell means
    response_sums : mean of the response and sum of squares about it, which show whether another
        fit is of the same rows; None in files of older versions
    left_out : columns of the fixed part that are linear combinations of others
    level_values : universe scores and differences of levels, in a result without rows; None
        without
    weights : those of the rows; None where all count alike
    offset : offsets of the rows; None without
    """

    formula: str
    response: str
    exog_names: tuple[str, ...]
    structure: Structure
    estimate: Estimate
    tables: TablesOfFit | StoredTables = field(
        metadata=stored(flat=StoredTables, write=StoredTables.of)
    )
    response_sums: tuple[float, float] | None = None
    left_out: tuple[str, ...] = ()
    level_values: StoredLevels | None = None
    weights: WeightsOfRows | None = None
    offset: OffsetOfRows | None = None

    # Format 1 had no held components, iterations and seconds.
    _FORMAT: ClassVar[Format] = Format("VarianceComponentsResults", 2, "a result")

    @property
    def traits(self) -> Mapping[str, tuple[str, str | None]]:
        """What the model has beyond intercepts and one residual variance of all scores."""
        return traits_of(self.tables.components, self.weights)

    @property
    def written(self) -> str:
        """The formula, with ``residual=`` if it was given."""
        groups = self.components.groups
        return self.formula if groups is None else f"{self.formula}, residual={groups.written!r}"

    @property
    def caveats(self) -> tuple[str, ...]:
        """The sentence on all standard errors and intervals of a fit that did not converge."""
        return () if self.estimate.converged else (display.sentence(NOT_CONVERGED),)

    @property
    def on_interaction(self) -> tuple[str, ...]:
        """The sentence on an interaction that the residual of weighted scores holds."""
        weights = self.weights
        if weights is None or weights.of_known_variances or self.structure.replicated:
            return ()
        held = [e for e in self.structure.effects[-1:] if e.component == RESIDUAL]
        names = [e.effect.term for e in held if len(e.holds) > 1]
        return tuple(
            f"Residual holds {name} as if a weight reduced it as error: with weights that differ, "
            f"(1|{in_formula(name)}) in the formula separates the two."
            for name in names
        )

    @property
    def mean_offset(self) -> float:
        """The part of means of scores that is known, 0 without offsets.

        Raises
        ------
        DataError
            If the rows were read in batches.
        """
        return 0.0 if self.offset is None else self.offset.known_mean

    @property
    def on_offset(self) -> tuple[str, ...]:
        """The sentence on means of a fit with offsets."""
        if self.offset is None:
            return ()
        mean = display.number(self.offset.known_mean)
        return (f"Means include the mean offset of the rows, {mean}.",)

    def _check(self) -> None:
        """Raise a ValueError if names, numbers of levels and shapes contradict each other."""
        check_record(self)

    @property
    def components(self) -> VarianceComponents:
        """The components with their facets, for D-studies."""
        return self.tables.components

    def stored_levels(self) -> StoredLevels:
        """Return the values of the levels of a result without rows.

        Raises
        ------
        DataError
            If the result was stored without them.
        """
        if self.level_values is None:
            raise DataError(
                "this result was loaded without its rows, and without the values of its levels "
                "that universe scores and comparisons need; fit the model again, and store it by "
                "to_json() of this version, without scores=False"
            )
        return self.level_values

    def robust_components(self) -> VarianceComponents:
        """Return the components with the influences of the rows, for robust intervals and tests.

        Raises
        ------
        DataError
            If the result was stored without them, or the rows cannot be read again.
        EstimationError
            If the residual is estimated at zero.
        """
        levels = self.tables.levels
        if levels is None:
            raise DataError(
                "interval='robust' and test='robust' need the influences of the rows, and this "
                "result was stored without them; fit the model again"
            )
        return replace(self.tables.components, levels=levels)

    def of_components(
        self, interval: IntervalName = "auto", negative: Projected = "keep"
    ) -> FromComponents:
        """Return a source of intervals from the components and their covariance matrix.

        Parameters
        ----------
        interval : its name; ``"auto"`` is robust if the influences of the rows can be computed
        negative : treatment of negative components

        Raises
        ------
        DataError, EstimationError
            As :meth:`robust_components`, if `interval` is ``"robust"``.
        """
        components, reason = self.tables.components, ""
        if interval == "robust":
            components = self.robust_components()
        elif interval == "auto":
            n_levels = dict(zip(self.structure.facets, self.structure.n_levels, strict=True))
            components, reason = with_influences(components, n_levels, lambda: self.tables.levels)
        fixed = self.estimate.beta, self.estimate.cov_beta
        return FromComponents(components, interval, negative, *fixed, reason)

    def fixed_levels(self) -> LevelVariances:
        """Return the products of contributions of the rows to the fixed effects.

        Raises
        ------
        DataError
            If the result was stored without them, or the rows cannot be read again.
        EstimationError
            If the residual is estimated at zero, or there are no fixed effects.
        """
        levels = self.tables.fixed_levels
        if levels is None and not self.exog_names:
            raise EstimationError("this model has no fixed effects")
        if levels is None:
            raise DataError(
                "cov_type='robust' needs the contributions of the rows, and this result was "
                "stored without them; fit the model again"
            )
        return levels
