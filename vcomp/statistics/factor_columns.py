"""The sparse columns of X that one factor has, and those of them that follow an axis of a grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.design import Chunk, Grid
from vcomp.formula import WIDE
from vcomp.numerics import MixedColumns
from vcomp.statistics.strata import GroupedColumns

_BLOCK = 2**20
"""Rows that are compared at once."""


def has_wide_factor(chunk: Chunk, least: int = WIDE.factor) -> bool:
    """Return whether the sparse columns of X are those of one factor with many levels."""
    columns = chunk.columns
    return (
        isinstance(columns, MixedColumns)
        and columns.sparse_at.size >= least
        and columns.sparse_levels() is not None
    )


@dataclass(frozen=True, slots=True)
class AxisColumns:
    """Sparse columns of X whose values depend on the level of one axis alone.

    They are zero in all strata but those of the mean and of the axis' contrasts, in which they are
    known without a table of their values in cells.

    Attributes
    ----------
    axis : position of the axis in the grid
    columns : the matrix that has them
    values : (n, s) their values at the levels of the axis
    """

    axis: int
    columns: MixedColumns
    values: FloatArray

    def without(self, chunk: Chunk) -> Chunk:
        """Return the rows with the dense columns alone, and the same response."""
        within = chunk.within
        if within is not None:
            kept = np.append(0, 1 + self.columns.dense_at)
            within = within[np.ix_(kept, kept)]
        plain = chunk if not isinstance(chunk.beta_origin, np.ndarray) else chunk.with_response(
            chunk.y
        )  # fmt: skip
        return replace(plain, columns=self.columns.dense, within=within)

    def added(
        self,
        split: Mapping[tuple[int, ...], GroupedColumns],
        present: Mapping[tuple[int, ...], Sequence[int]],
        shape: tuple[int, ...],
    ) -> tuple[dict[tuple[int, ...], GroupedColumns], dict[tuple[int, ...], list[int]]]:
        """Return the columns of every stratum with these, and which of [y X] each has.

        Parameters
        ----------
        split, present : the same of y and the dense columns, where all facets are axes
        shape : numbers of levels of the axes
        """
        place = np.append(0, 1 + self.columns.dense_at)
        mean = self.values.mean(axis=0)
        here = {
            (): np.sqrt(prod(shape)) * mean[:, None],
            (self.axis,): np.sqrt(prod(shape) / shape[self.axis]) * (self.values - mean).T,
        }
        every, of_strata = {}, {}
        for contrasts, grouped in split.items():
            at = place[present[contrasts]]
            if contrasts in here:
                grouped, at = _joined(grouped, at, here[contrasts], 1 + self.columns.sparse_at)
            every[contrasts], of_strata[contrasts] = grouped, at.tolist()
        return every, of_strata


def _joined(
    grouped: GroupedColumns, at: LongArray, values: FloatArray, sparse_at: LongArray
) -> tuple[GroupedColumns, LongArray]:
    """Return the columns with others that do not vary within cells, by positions in [y X]."""
    (means,) = grouped.means
    both = np.append(at, sparse_at)
    order = np.argsort(both)
    joined = np.concatenate([means, values[None]], axis=1)
    old = np.argsort(order)[: at.size]
    within = np.zeros((both.size, both.size))
    within[np.ix_(old, old)] = grouped.within
    return GroupedColumns((np.ascontiguousarray(joined[:, order]),), within), both[order]


def find_axis_columns(chunk: Chunk, grid: Grid) -> AxisColumns | None:
    """Return the sparse columns of X if they depend on one axis alone; None otherwise.

    Parameters
    ----------
    chunk : all rows, coded
    grid : the complete grid that they fill, all facets of it axes
    """
    columns = chunk.columns
    if not isinstance(columns, MixedColumns) or columns.sparse_at.size > WIDE.formed:
        return None
    levels = columns.sparse_levels()
    if levels is None or grid.n_cells > 1:
        return None
    for position, axis in enumerate(grid.axes):
        codes, size = chunk.level_codes(axis), grid.shape[position]
        row = np.empty(size, np.int64)
        row[codes] = np.arange(codes.size)
        known = levels[row]
        if all(
            np.array_equal(known[codes[at : at + _BLOCK]], levels[at : at + _BLOCK])
            for at in range(0, codes.size, _BLOCK)
        ):
            return AxisColumns(position, columns, columns.sparse[row].toarray())
    return None
