"""The sums of one set of rows, each kind made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

from vcomp._typing import FloatArray
from vcomp.design import Chunk
from vcomp.design.grid import Grid, PartialGrid
from vcomp.statistics.accumulate import accumulate
from vcomp.statistics.completed import CompletedGrid, complete
from vcomp.statistics.cross_products import CrossProducts
from vcomp.statistics.group_sums import GroupSums, group_sums, stratum_group_sums
from vcomp.statistics.strata import StratumStatistics
from vcomp.statistics.stratify import stratify

__all__ = ["Statistics"]


class Statistics:
    """Sufficient statistics of coded rows.

    Where facets are fully crossed with everything, or all terms are nested, the strata say all.
    Cross-products are made for data without them, and for what works on cross-products only.

    Parameters
    ----------
    chunk : all rows
    grid : the complete grid that they fill, if they do
    partial_grid : the grid that they nearly fill, if they do
    """

    def __init__(
        self, chunk: Chunk, grid: Grid | None, partial_grid: PartialGrid | None = None
    ) -> None:
        self._accumulate: Callable[[], CrossProducts] = partial(accumulate, chunk)
        self._complete: Callable[[], CompletedGrid | None] = lambda: None
        if partial_grid is not None:
            self._complete = partial(complete, chunk, partial_grid)
        self.strata: StratumStatistics | None = None if grid is None else stratify(chunk, grid)

    @classmethod
    def from_cross_products(cls, cross_products: CrossProducts) -> Statistics:
        """Return the statistics of rows that were summed elsewhere, in parts that were added."""
        made = cls.__new__(cls)
        made._accumulate = lambda: cross_products
        made._complete = lambda: None
        made.strata = None
        return made

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
