"""Sufficient statistics of one set of rows, with which all estimators work.

They are the step between design and estimate, and hold strata, cross-products or both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vcomp._typing import FloatArray, LongArray
from vcomp.design import Chunk, CountedPairs, CovarianceBlocks, Grid, PartialGrid
from vcomp.exceptions import DataError
from vcomp.statistics.cross_products import CrossProducts, accumulate, resum
from vcomp.statistics.groupings import (
    Groupings,
    GroupSums,
    find_groupings,
    product_group_sums,
    resum_groups,
    stratum_group_sums,
)
from vcomp.statistics.nested_tables import (
    LEAST_GROUPS,
    ColumnTable,
    NestedTable,
    find_column_table,
    find_nested_table,
)
from vcomp.statistics.roll_up import RollUp
from vcomp.statistics.slope_sums import accumulate_slopes, resum_slopes
from vcomp.statistics.strata import StratumStatistics, has_wide_factor
from vcomp.statistics.stratification import CompletedGrid, complete, refill, stratify
from vcomp.statistics.two_term_tables import CrossedTable, find_crossed_table
from vcomp.statistics.wide_products import WideProducts, find_wide_products

if TYPE_CHECKING:
    from vcomp.statistics.level_grid import LevelGrid


class Kept(dict[str, Any]):
    """Values that estimators keep for one set of data; copies and pickles are empty."""

    def __reduce__(self) -> tuple[type[Kept], tuple[()]]:
        return Kept, ()


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sufficient statistics of coded rows.

    If facets are fully crossed with everything, or all terms are nested, the strata are
    sufficient. Cross-products are made for data without strata, and for estimators that need them.
    Each kind of sum is made when it is first used.

    Attributes
    ----------
    strata : the orthogonal strata, None if there are none
    make_cells : makes the rows, or cells that hold several of them; None if neither is kept
    make_products : makes the cross-products; None to make them from the cells
    grid : the complete grid that the rows fill, if they do
    partial_grid : the grid that the rows nearly fill, if they do
    known_table : the table of two crossed facets, if there are no rows
    known_wide : the cross-products with a wide factor, if there are no rows
    alike : statistics of the same groups with another response, whose groups are not counted again
    blocks : covariance matrices and columns of effects; None if all variances are single, with one
        residual
    log_weights : sum of the logarithms of the weights of the rows; None where all count alike
    counted : pair tables of the rows that are known, by positions of facets
    kept : values that estimators keep from one call to the next
    """

    strata: StratumStatistics | None = None
    make_cells: Callable[[], Chunk] | None = None
    make_products: Callable[[], CrossProducts] | None = None
    grid: Grid | None = None
    partial_grid: PartialGrid | None = None
    known_table: CrossedTable | None = None
    known_wide: WideProducts | None = None
    alike: Statistics | None = None
    blocks: CovarianceBlocks | None = None
    log_weights: float | None = None
    counted: CountedPairs | None = None
    kept: Kept = field(default_factory=Kept, init=False, repr=False)

    @classmethod
    def from_rows(
        cls,
        chunk: Chunk,
        grid: Grid | None,
        partial_grid: PartialGrid | None = None,
        counted: CountedPairs | None = None,
    ) -> Statistics:
        """Return the statistics of all rows.

        Parameters
        ----------
        chunk : the rows
        grid, partial_grid : that they fill, or nearly fill
        counted : pair tables of the rows that are known
        """
        if chunk.blocks is not None:
            return cls(
                make_cells=lambda: chunk, blocks=chunk.blocks, log_weights=chunk.log_weights
            )
        if chunk.weights is not None:  # strata and grids are of scores of one variance
            return cls(make_cells=lambda: chunk, log_weights=chunk.log_weights)
        strata = None if grid is None else stratify(chunk, grid)
        return cls(strata, lambda: chunk, None, grid, partial_grid, counted=counted)

    @classmethod
    def from_crossed(cls, crossed: CrossedTable) -> Statistics:
        """Return the statistics of a table of two crossed facets, without its rows.

        Parameters
        ----------
        crossed : the table; cross-products are a DataError
        """
        return cls(make_products=_no_pairs, known_table=crossed)

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
        cells : makes the cells, as rows of one score or several each
        strata : of a complete grid
        grid, partial_grid : that the rows fill, or nearly fill
        """
        return cls(strata, cells, None, grid, partial_grid)

    def with_response(
        self, y: FloatArray, within: FloatArray | None = None, products: FloatArray | None = None
    ) -> Statistics:
        """Return the statistics of the same rows, or cells, with another response.

        Only what depends on the response is computed anew; the rest is shared.

        Parameters
        ----------
        y : (n,) centred as the columns of X are; of cells the means
        within, products : as for :meth:`vcomp.design.Chunk.with_response`

        Raises
        ------
        DataError
            If the rows are not kept.
        """
        return self._of_same_rows(self.cells.with_response(y, within, products))

    def without_fixed(self, beta: FloatArray) -> Statistics:
        """Return the statistics of the same rows, less a fixed part.

        Parameters
        ----------
        beta : (p,) coefficients of the centred columns

        Raises
        ------
        DataError
            If the rows are not kept.
        """
        return self._of_same_rows(self.cells.without_fixed(beta))

    def without_effects(self, effects: Sequence[FloatArray], beta: FloatArray) -> Statistics:
        """Return the statistics of the same rows, less predicted effects and a fixed part.

        Parameters
        ----------
        effects : of the levels of each term, with a column of effects
        beta : (p,) coefficients of the centred columns
        """
        return self._of_same_rows(self.cells.without_fixed(beta).without_effects(effects))

    def _of_same_rows(self, chunk: Chunk) -> Statistics:
        strata = None
        if self.strata is not None and self.grid is not None:
            strata = stratify(chunk, self.grid, self._groupings)
        return replace(self, strata=strata, make_cells=lambda: chunk, alike=self)

    def of_terms(self, terms: Sequence[int]) -> Statistics:
        """Return the statistics of a model with some of the terms, by ascending positions."""
        return Statistics(
            None if self.strata is None else self.strata.of_terms(terms),
            make_products=lambda: self.cross_products.of_terms(terms),
            known_wide=None if self.wide is None else self.wide.of_terms(terms),
        )

    def of_columns(self, kept: LongArray, beta_origin: FloatArray | float = 0.0) -> Statistics:
        """Return the statistics with some of the columns of X, given by ascending positions.

        Parameters
        ----------
        beta_origin : as for :meth:`vcomp.design.Chunk.of_columns`
        """
        strata = None if self.strata is None else self.strata.of_columns(kept)

        def cells() -> Chunk:
            return self.cells.of_columns(kept, beta_origin)

        return replace(
            self,
            strata=strata,
            make_cells=cells,
            make_products=None,
            known_table=None,
            known_wide=None,
            alike=None,
        )

    @cached_property
    def cells(self) -> Chunk:
        """The rows, or cells that hold several of them.

        Raises
        ------
        DataError
            If they were summed elsewhere, or are not kept.
        """
        if self.make_cells is None:
            raise DataError(
                "this needs rows, and these statistics, made from parts, have none; "
                "fit the data as a whole"
            )
        return self.make_cells()

    @property
    def rows(self) -> Chunk:
        """The rows, each of them one score.

        Raises
        ------
        DataError
            As for :attr:`single_rows`, and if they have weights.
        """
        rows = self.single_rows
        if rows.weights is not None:
            raise DataError(
                "this is for scores that count alike, and these have weights: it needs a fit "
                "without weights= and known_variance="
            )
        return rows

    @property
    def single_rows(self) -> Chunk:
        """The rows, each of them one score, which may have a weight.

        Raises
        ------
        DataError
            As for :attr:`cells`, and if only cells are kept.
        """
        if self.cells.counts is not None:
            raise DataError(
                "this needs single rows, and the fit has sums of cells, as its rows were read in "
                "batches, on Dask, or in parts that were merged; fit the rows with stream=False"
            )
        return self.cells

    @property
    def separable_rows(self) -> Chunk:
        """The rows, or cells that keep their own products, so that levels can be left out.

        Raises
        ------
        DataError
            As for :attr:`cells`, and if only the products of all cells together are kept.
        """
        return self.single_rows if self.cells.products is None else self.cells

    @cached_property
    def _rolled(self) -> RollUp:
        return RollUp(self.cells, self.counted)

    @cached_property
    def _groupings(self) -> Groupings:
        assert self.grid is not None
        return find_groupings(self.cells.terms, self.grid)

    @cached_property
    def cross_products(self) -> CrossProducts:
        """Cross-products of [Z₁ … Z_k X y]."""
        if self.make_products is not None:
            return self.make_products()
        if self.alike is not None:
            if self.blocks is not None:
                return resum_slopes(self.alike.cross_products, self.cells, self.mean_weight)
            return resum(self.alike.cross_products, self.cells, self.alike._rolled)
        if self.blocks is None:
            return accumulate(self.cells, self._rolled)
        return accumulate_slopes(self.cells, self.mean_weight)

    @cached_property
    def by_residual(self) -> tuple[CrossProducts, ...]:
        """Cross-products of the rows of each residual variance; of all with one."""
        if self.cells.residual_codes is None:
            return (self.cross_products,)
        parts = list(self.cells.residual_parts())
        if self.alike is None:
            return tuple(accumulate_slopes(part, self.mean_weight) for part in parts)
        pairs = zip(self.alike.by_residual, parts, strict=True)
        return tuple(resum_slopes(known, part, self.mean_weight) for known, part in pairs)

    @cached_property
    def completed(self) -> CompletedGrid | None:
        """The completed grid; None if rows do not nearly fill one, or its remainder is crossed."""
        if self.partial_grid is None or self.make_cells is None or self.blocks is not None:
            return None
        if self.alike is None:
            return complete(self.cells, self.partial_grid)
        known = self.alike.completed
        return None if known is None else refill(known, self.cells, self.partial_grid)

    @cached_property
    def levels(self) -> LevelGrid | None:
        """The cells of the levels of one facet; None without rows, or with too many cells."""
        if self.make_cells is None or self.blocks is not None:
            return None
        if self.alike is not None:
            known = self.alike.levels
            return None if known is None else known.with_response(self.cells)
        from vcomp.statistics.level_grid import find_level_grid  # deferred for start-up time

        return find_level_grid(self.cells)

    @cached_property
    def crossed(self) -> CrossedTable | None:
        """The table of two crossed facets with holes; None if the rows are no such table."""
        if self.make_cells is None or self.blocks is not None:
            return self.known_table
        if self.alike is None:
            return find_crossed_table(self.cells)
        known = self.alike.crossed
        return None if known is None else known.with_response(self.cells)

    @cached_property
    def nested_table(self) -> NestedTable | None:
        """The table of two nested terms of many groups; None for other designs."""
        if self.strata is not None or self.make_cells is None or self.blocks is not None:
            return None
        if self.alike is None:
            return find_nested_table(self.cells) if sum(self.cells.sizes) >= LEAST_GROUPS else None
        known = self.alike.nested_table
        return None if known is None else known.with_response(self.cells)

    @cached_property
    def column_table(self) -> ColumnTable | None:
        """The table of two nested terms of many groups and a term of its columns, or None."""
        if self.strata is not None or self.make_cells is None or self.blocks is not None:
            return None
        if self.alike is None:
            return find_column_table(self.cells) if sum(self.cells.sizes) >= LEAST_GROUPS else None
        known = self.alike.column_table
        return None if known is None else known.with_response(self.cells)

    @property
    def needed_wide(self) -> WideProducts | None:
        """The same as :attr:`wide`; None where a table has the products of all columns of X."""
        return self.wide if self.nested_table is None else None

    @cached_property
    def wide(self) -> WideProducts | None:
        """Cross-products with the sparse columns of a factor of very many levels, if X has one."""
        if self.strata is not None or self.make_cells is None or self.blocks is not None:
            return self.known_wide
        if self.alike is None:
            has_factor = has_wide_factor(self.cells)
            return find_wide_products(self.cells, self._rolled) if has_factor else None
        known = self.alike.wide
        return None if known is None else known.with_response(self.cells, self.alike._rolled)

    @property
    def eliminated(self) -> CrossProducts | WideProducts:
        """The cross-products that elimination uses."""
        return self.wide or self.cross_products

    @cached_property
    def group_sums(self) -> GroupSums:
        """Sums over groups and pairs of groups, for analysis of variance."""
        if (table := self.nested_table or self.column_table) is not None:
            return table.group_sums()
        if self.alike is not None:
            sums = self.cross_products if self.strata is None else self.strata
            return resum_groups(self.alike.group_sums, sums)
        if self.strata is not None:
            return stratum_group_sums(self.strata)
        # Sums of the columns of a wide factor, which are not needed, would be large tables.
        products = self.cross_products if self.wide is None else self.wide.random
        if vars(self).get("levels") is not None:
            return product_group_sums(products, products.passing_pairs())
        return product_group_sums(products)

    @cached_property
    def sums(
        self,
    ) -> (
        StratumStatistics | NestedTable | ColumnTable | WideProducts | CrossedTable | CrossProducts
    ):
        """The strata, or the sums that take the least memory."""
        if self.strata is not None:
            return self.strata
        if (table := self.nested_table or self.column_table) is not None:
            return table
        if self.wide is not None:
            return self.wide
        return self.cross_products if self.crossed is None else self.crossed

    @cached_property
    def n(self) -> int:
        """Number of rows."""
        return self.sums.n

    @cached_property
    def mean_weight(self) -> float:
        """Mean weight of the rows, 1 if they count alike."""
        return 1.0 if self.log_weights is None else self.cells.total / self.cells.n

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


def _no_pairs() -> CrossProducts:
    raise DataError("these statistics are a table of two facets: cross-products need the rows")


def _no_cross_products() -> CrossProducts:
    raise DataError("these statistics have strata only: cross-products need the rows")
