"""The sums of one set of rows, each kind made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

from vcomp._typing import FloatArray
from vcomp.design import Chunk, Grid, PartialGrid
from vcomp.exceptions import DataError
from vcomp.statistics.completed_grid import CompletedGrid, complete, refill
from vcomp.statistics.cross_products import CrossProducts, RollUp, accumulate, resum
from vcomp.statistics.groupings import (
    Groupings,
    GroupSums,
    find_groupings,
    group_sums,
    resum_strata,
    stratum_group_sums,
)
from vcomp.statistics.strata import StratumStatistics
from vcomp.statistics.stratification import stratify

__all__ = [
    "Statistics",
]


class Statistics:
    """Sufficient statistics of coded rows.

    Where facets are fully crossed with everything, or all terms are nested, the strata say all.
    Cross-products are made for data without them, and for what works on cross-products only.

    Parameters
    ----------
    chunk : all rows
    grid : the complete grid that they fill, if they do
    partial_grid : the grid that they nearly fill, if they do

    Attributes
    ----------
    strata : the orthogonal strata, None where there are none
    """

    def __init__(
        self, chunk: Chunk, grid: Grid | None, partial_grid: PartialGrid | None = None
    ) -> None:
        self._rows: Callable[[], Chunk] | None = lambda: chunk
        self._grid, self._partial_grid = grid, partial_grid
        self._like: Statistics | None = None
        self._accumulate: Callable[[], CrossProducts] = partial(accumulate, chunk)
        self._complete: Callable[[], CompletedGrid | None] = lambda: None
        if partial_grid is not None:
            self._complete = partial(complete, chunk, partial_grid)
        self.strata: StratumStatistics | None = None if grid is None else stratify(chunk, grid)

    @classmethod
    def from_cross_products(cls, cross_products: CrossProducts) -> Statistics:
        """Return the statistics of rows that were summed elsewhere, in parts that were added."""
        return cls._made(lambda: cross_products)

    @classmethod
    def from_strata(cls, strata: StratumStatistics, like: Statistics | None = None) -> Statistics:
        """Return statistics that have strata only; to ask for cross-products is a DataError.

        Parameters
        ----------
        strata : the strata
        like : statistics of the same design with another response, whose groups are not counted
            again
        """
        made = cls._made(_no_cross_products, strata)
        made._like = like
        return made

    @classmethod
    def from_cells(
        cls,
        cells: Callable[[], Chunk],
        strata: StratumStatistics | None,
        grid: Grid | None,
        partial_grid: PartialGrid | None,
    ) -> Statistics:
        """Return the statistics of rows that were summed in cells, and not kept.

        Parameters
        ----------
        cells : makes the cells, as rows that stand for one score or several each
        strata : of a complete grid
        grid, partial_grid : as for :class:`Statistics`
        """

        def completed() -> CompletedGrid | None:
            return None if partial_grid is None else complete(cells(), partial_grid)

        made = cls._made(lambda: accumulate(cells()), strata, completed)
        made._rows, made._grid, made._partial_grid = cells, grid, partial_grid
        return made

    @classmethod
    def _made(
        cls,
        cross_products: Callable[[], CrossProducts],
        strata: StratumStatistics | None = None,
        completed: Callable[[], CompletedGrid | None] = lambda: None,
    ) -> Statistics:
        made = cls.__new__(cls)
        made._rows = made._grid = made._partial_grid = made._like = None
        made._accumulate, made._complete, made.strata = cross_products, completed, strata
        return made

    def with_response(self, y: FloatArray, within: FloatArray | None = None) -> Statistics:
        """Return the statistics of the same rows, or cells, with another response.

        Only what the response has a part in is computed anew; the rest is shared.

        Parameters
        ----------
        y : (n,) centred as the columns of X are; of cells the means
        within : of cells the squares and products of y and X in them, (1 + p, 1 + p)

        Raises
        ------
        DataError
            If the rows are not there.
        """
        chunk = self.cells.with_response(y, within)
        strata = None
        if self.strata is not None and self._grid is not None:
            strata = stratify(chunk, self._grid, self._groupings)

        def cross_products() -> CrossProducts:
            return resum(self.cross_products, chunk, self._rolled)

        def completed() -> CompletedGrid | None:
            if self.completed is None or self._partial_grid is None:
                return None
            return refill(self.completed, chunk, self._partial_grid)

        made = self._made(cross_products, strata, completed)
        made._rows, made._grid, made._partial_grid = (
            lambda: chunk,
            self._grid,
            self._partial_grid,
        )
        return made

    def of_terms(self, terms: Sequence[int]) -> Statistics:
        """Return the statistics of a model with some of the terms, by ascending positions."""
        return self._made(
            lambda: self.cross_products.of_terms(terms),
            None if self.strata is None else self.strata.of_terms(terms),
        )

    @cached_property
    def cells(self) -> Chunk:
        """The rows, or cells that stand for several of them.

        Raises
        ------
        DataError
            If they were summed elsewhere, or are not kept.
        """
        if self._rows is None:
            raise DataError(
                "this needs rows, and these statistics have no rows: they were made from parts; "
                "fit the data as a whole"
            )
        return self._rows()

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
        assert self._grid is not None
        return find_groupings(self.cells.terms, self._grid)

    @cached_property
    def cross_products(self) -> CrossProducts:
        """Cross-products of [Z₁ … Z_k X y]."""
        return self._accumulate()

    @cached_property
    def completed(self) -> CompletedGrid | None:
        """The grid that the rows nearly fill, None where there is none or its rest is crossed."""
        return self._complete()

    @cached_property
    def group_sums(self) -> GroupSums:
        """Sums over groups and pairs of groups, for analysis of variance."""
        if self.strata is not None and self._like is not None:
            return resum_strata(self._like.group_sums, self.strata)
        if self.strata is not None:
            return stratum_group_sums(self.strata)
        return group_sums(self.cross_products)

    @property
    def _either(self) -> StratumStatistics | CrossProducts:
        return self.cross_products if self.strata is None else self.strata

    @property
    def n(self) -> int:
        """Number of rows."""
        return self._either.n

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of groups of the terms."""
        return self._either.sizes

    @property
    def n_terms(self) -> int:
        """Number of random terms, the residual not counted."""
        return self._either.n_terms

    @property
    def XX(self) -> FloatArray:
        """Cross-products of the columns of X."""
        return self._either.XX

    @property
    def Xy(self) -> FloatArray:
        """Cross-products of the columns of X with y."""
        return self._either.Xy

    @property
    def yy(self) -> float:
        """Sum of squares of y."""
        return self._either.yy


def _no_cross_products() -> CrossProducts:
    raise DataError("these statistics have strata only: cross-products need the rows")
