"""Sufficient statistics of one set of rows, with which all estimators work.

They stand between design and estimate, and hold strata, cross-products or both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from vcomp._typing import FloatArray, LongArray
from vcomp.design import Chunk, Grid, PartialGrid
from vcomp.exceptions import DataError
from vcomp.statistics.cross_products import CrossProducts, RollUp, accumulate, resum
from vcomp.statistics.groupings import (
    Groupings,
    GroupSums,
    find_groupings,
    group_sums,
    resum_groups,
    stratum_group_sums,
)
from vcomp.statistics.strata import StratumStatistics
from vcomp.statistics.stratification import stratify
from vcomp.statistics.wide_products import WideProducts, find_wide_products, has_wide_factor

if TYPE_CHECKING:
    from vcomp.statistics.completed_grid import CompletedGrid
    from vcomp.statistics.crossed_table import CrossedTable
    from vcomp.statistics.level_grid import LevelGrid

# Imports of sums of incomplete tables are deferred for start-up time: a fit uses one kind at most.


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sufficient statistics of coded rows.

    If facets are fully crossed with everything, or all terms are nested, the strata are
    sufficient. Cross-products are made for data without strata, and for estimators that need them.
    Each kind of sum is made when it is first used.

    Attributes
    ----------
    strata : the orthogonal strata, None if there are none
    make_cells : makes the rows, or cells that stand for several of them; None if neither is kept
    make_products : makes the cross-products; None to make them from the cells
    grid : the complete grid that the rows fill, if they do
    partial_grid : the grid that the rows nearly fill, if they do
    complete_grid : makes the completed grid from the cells
    make_levels : makes the cells of levels; None to make them from the cells
    make_crossed : makes the table of two crossed facets; None to make it from the cells
    make_wide : makes the cross-products with a wide factor; None to make them from the cells
    alike : statistics of the same groups with another response, whose groups are not counted again
    """

    strata: StratumStatistics | None = None
    make_cells: Callable[[], Chunk] | None = None
    make_products: Callable[[], CrossProducts] | None = None
    grid: Grid | None = None
    partial_grid: PartialGrid | None = None
    complete_grid: Callable[[], CompletedGrid | None] | None = None
    make_levels: Callable[[], LevelGrid | None] | None = None
    make_crossed: Callable[[], CrossedTable | None] | None = None
    make_wide: Callable[[], WideProducts | None] | None = None
    alike: Statistics | None = None

    @classmethod
    def from_rows(
        cls, chunk: Chunk, grid: Grid | None, partial_grid: PartialGrid | None = None
    ) -> Statistics:
        """Return the statistics of all rows.

        Parameters
        ----------
        chunk : the rows
        grid, partial_grid : that they fill, or nearly fill
        """
        # A factor with many levels has a sparse elimination of its own.
        strata = None if grid is None or has_wide_factor(chunk) else stratify(chunk, grid)
        if partial_grid is None:
            return cls(strata, lambda: chunk, grid=grid)
        return cls.from_cells(lambda: chunk, strata, grid, partial_grid)

    @classmethod
    def from_crossed(cls, crossed: CrossedTable) -> Statistics:
        """Return the statistics of a table of two crossed facets, without its rows.

        Parameters
        ----------
        crossed : the table; cross-products are a DataError
        """
        return cls(make_products=_no_pairs, make_crossed=lambda: crossed)

    @classmethod
    def from_cross_products(cls, cross_products: CrossProducts) -> Statistics:
        """Return the statistics of rows that were summed elsewhere, in parts that were added."""
        return cls(make_products=lambda: cross_products)

    @classmethod
    def from_strata(cls, strata: StratumStatistics, like: Statistics | None = None) -> Statistics:
        """Return statistics that have strata only; requesting cross-products is a DataError.

        Parameters
        ----------
        strata : the strata
        like : statistics of the same design with another response, whose groups are not counted
            again
        """
        return cls(strata, make_products=_no_cross_products, alike=like)

    @classmethod
    def from_cells(
        cls,
        cells: Callable[[], Chunk],
        strata: StratumStatistics | None,
        grid: Grid | None,
        partial_grid: PartialGrid | None,
    ) -> Statistics:
        """Return the statistics of rows, or of cells of rows that are not kept.

        Parameters
        ----------
        cells : makes the cells, as rows that stand for one score or several each
        strata : of a complete grid
        grid, partial_grid : that the rows fill, or nearly fill
        """
        completed = None
        if partial_grid is not None:
            completed = partial(_completed, cells, partial_grid)
        return cls(strata, cells, None, grid, partial_grid, completed)

    def with_response(self, y: FloatArray, within: FloatArray | None = None) -> Statistics:
        """Return the statistics of the same rows, or cells, with another response.

        Only what depends on the response is computed anew; the rest is shared.

        Parameters
        ----------
        y : (n,) centred as the columns of X are; of cells the means
        within : of cells the squares and products of y and X in them, (1 + p, 1 + p)

        Raises
        ------
        DataError
            If the rows are not kept.
        """
        chunk = self.cells.with_response(y, within)
        strata = None
        if self.strata is not None and self.grid is not None:
            strata = stratify(chunk, self.grid, self._groupings)

        def completed() -> CompletedGrid | None:
            if self.completed is None or self.partial_grid is None:
                return None
            from vcomp.statistics.completed_grid import refill

            return refill(self.completed, chunk, self.partial_grid)

        return replace(
            self,
            strata=strata,
            make_cells=lambda: chunk,
            make_products=lambda: resum(self.cross_products, chunk, self._rolled),
            complete_grid=completed,
            make_levels=lambda: None if self.levels is None else self.levels.with_response(chunk),
            make_crossed=lambda: (
                None if self.crossed is None else self.crossed.with_response(chunk)
            ),
            make_wide=lambda: (
                None if self.wide is None else self.wide.with_response(chunk, self._rolled)
            ),
            alike=self,
        )

    def of_terms(self, terms: Sequence[int]) -> Statistics:
        """Return the statistics of a model with some of the terms, by ascending positions."""
        return Statistics(
            None if self.strata is None else self.strata.of_terms(terms),
            make_products=lambda: self.cross_products.of_terms(terms),
            make_wide=lambda: None if self.wide is None else self.wide.of_terms(terms),
        )

    def of_columns(self, kept: LongArray) -> Statistics:
        """Return the statistics with some of the columns of X, given by ascending positions."""
        strata = None if self.strata is None else self.strata.of_columns(kept)

        def cells() -> Chunk:
            return self.cells.of_columns(kept)

        return Statistics.from_cells(cells, strata, self.grid, self.partial_grid)

    @cached_property
    def cells(self) -> Chunk:
        """The rows, or cells that stand for several of them.

        Raises
        ------
        DataError
            If they were summed elsewhere, or are not kept.
        """
        if self.make_cells is None:
            raise DataError(
                "this needs rows, and these statistics have no rows: they were made from parts; "
                "fit the data as a whole"
            )
        return self.make_cells()

    @property
    def rows(self) -> Chunk:
        """The rows, each of them one score.

        Raises
        ------
        DataError
            As for :attr:`cells`, and if only cells are kept.
        """
        rows = self.cells
        if rows.counts is not None:
            raise DataError(
                "this needs rows, and these were read in batches: of each cell only the mean of "
                "its scores is kept. Fit with stream=False"
            )
        return rows

    @cached_property
    def _rolled(self) -> RollUp:
        return RollUp(self.cells)

    @cached_property
    def _groupings(self) -> Groupings:
        assert self.grid is not None
        return find_groupings(self.cells.terms, self.grid)

    @cached_property
    def cross_products(self) -> CrossProducts:
        """Cross-products of [Z₁ … Z_k X y]."""
        return accumulate(self.cells) if self.make_products is None else self.make_products()

    @cached_property
    def completed(self) -> CompletedGrid | None:
        """The completed grid; None if rows do not nearly fill one, or its remainder is crossed."""
        return None if self.complete_grid is None else self.complete_grid()

    @cached_property
    def levels(self) -> LevelGrid | None:
        """The cells of the levels of one facet; None without rows, or with too many cells."""
        if self.make_levels is not None:
            return self.make_levels()
        from vcomp.statistics.level_grid import find_level_grid

        return None if self.make_cells is None else find_level_grid(self.cells)

    @cached_property
    def crossed(self) -> CrossedTable | None:
        """The table of two crossed facets with holes; None if the rows are no such table."""
        if self.make_crossed is not None:
            return self.make_crossed()
        from vcomp.statistics.crossed_table import find_crossed_table

        return None if self.make_cells is None else find_crossed_table(self.cells)

    @cached_property
    def wide(self) -> WideProducts | None:
        """Cross-products with the sparse columns of a factor of very many levels, if X has one."""
        if self.make_wide is not None:
            return self.make_wide()
        if self.strata is not None or self.make_cells is None:
            return None
        return find_wide_products(self.cells, self._rolled)

    @cached_property
    def group_sums(self) -> GroupSums:
        """Sums over groups and pairs of groups, for analysis of variance."""
        if self.alike is not None:
            sums = self.cross_products if self.strata is None else self.strata
            return resum_groups(self.alike.group_sums, sums)
        if self.strata is not None:
            return stratum_group_sums(self.strata)
        products = self.cross_products
        if vars(self).get("levels") is not None:
            return group_sums(products, products.passing_pairs())
        return group_sums(products)

    @cached_property
    def sums(self) -> StratumStatistics | WideProducts | CrossedTable | CrossProducts:
        """The strata, or the sums that take the least memory."""
        if self.strata is not None:
            return self.strata
        if self.wide is not None:
            return self.wide
        return self.cross_products if self.crossed is None else self.crossed

    @cached_property
    def n(self) -> int:
        """Number of rows."""
        return self.sums.n

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of groups of the terms."""
        return self.sums.sizes

    @cached_property
    def n_terms(self) -> int:
        """Number of random terms, the residual not counted."""
        return len(self.sizes)

    @cached_property
    def XX(self) -> FloatArray:
        """Cross-products of the columns of X."""
        return self.sums.XX

    @cached_property
    def Xy(self) -> FloatArray:
        """Cross-products of the columns of X with y."""
        return self.sums.Xy

    @cached_property
    def yy(self) -> float:
        """Sum of squares of y."""
        return self.sums.yy


def _completed(cells: Callable[[], Chunk], partial_grid: PartialGrid) -> CompletedGrid | None:
    from vcomp.statistics.completed_grid import complete

    return complete(cells(), partial_grid)


def _no_pairs() -> CrossProducts:
    raise DataError("these statistics are a table of two facets: cross-products need the rows")


def _no_cross_products() -> CrossProducts:
    raise DataError("these statistics have strata only: cross-products need the rows")
