"""Rows → :class:`Chunk`: levels become small integers, y and X are centred."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.design.design import Chunk, Design, Facet
from vcomp.design.rows import Rows
from vcomp.exceptions import DataError
from vcomp.kernels.codes import look_up

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FacetCodes", "encode", "facet_codes"]

_DIRECT = 2**20
"""A table of this many possible levels is made whatever their number."""

_SPARSE = 8
"""And one of more if at least one value in so many is a level."""


def encode(design: Design, rows: Rows) -> Chunk:
    """Code `rows`, all of the data or some, by the levels that `design` has learned.

    Raises
    ------
    DataError
        If a facet has a level that the design does not know.
    """
    codes = tuple(_known_codes(facet, rows.facets[facet.name]) for facet in design.facets)
    return Chunk(
        response=rows.y,
        origin=design.origin,
        X=centred_matrix(design, rows.fixed, len(rows)),
        compact_codes=codes,
        facet_sizes=design.n_levels,
        terms=design.terms,
    )


def centred_matrix(design: Design, fixed: Any, n_rows: int) -> FloatArray:
    """Return X less its origin, which is zero in the intercept's column."""
    if design.formula.intercept_only:
        return np.broadcast_to(1.0, (n_rows, 1))  # one number, however many rows
    return design.fixed.matrix(fixed, n_rows) - design.x_origin


def facet_codes(facet: Facet, column: pd.Series) -> Any:
    """Return the level of each row, −1 where the design does not know it, in few bytes."""
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype):
        if column.cat.categories is facet.levels:
            return column.cat.codes.to_numpy()
        # A few categories are looked up, not every row.
        of_category = facet.levels.get_indexer(column.cat.categories)
        codes = column.cat.codes.to_numpy()
        return np.where(codes < 0, -1, of_category[codes]).astype(np.int32)
    rows = pd.Index(column, tupleize_cols=False)
    return facet.levels.get_indexer(rows).astype(np.int32)


class FacetCodes:
    """Looks the levels of rows up, of whole numbers that are close together in a table of them.

    For part after part of the data this is several times faster than a hash of the levels.

    Parameters
    ----------
    facet : with its levels
    """

    def __init__(self, facet: Facet) -> None:
        self._facet = facet
        self.name = facet.name
        self._low, self._table = 0, None
        levels = facet.levels
        if len(levels) and isinstance(levels.dtype, np.dtype) and levels.dtype.kind in "iu":
            low, high = int(levels.min()), int(levels.max())
            if high - low < max(_DIRECT, _SPARSE * len(levels)) and high < 2**63:
                values = levels.to_numpy().astype(np.int64)
                table = np.full(high - low + 1, -1, np.int32)
                table[values - low] = np.arange(len(levels), dtype=np.int32)
                self._low, self._table = low, table

    def __call__(self, column: pd.Series) -> Any:
        """Return the level of each row, −1 where the facet has none."""
        dtype = column.dtype
        plain = isinstance(dtype, np.dtype) and dtype.kind in "iu" and dtype != np.uint64
        if self._table is None or not plain:
            return facet_codes(self._facet, column)
        return look_up(column.to_numpy(), np.int64(self._low), self._table)


def _known_codes(facet: Facet, column: pd.Series) -> Any:
    codes = facet_codes(facet, column)
    if codes.min() < 0:
        unknown = column.iloc[[int(np.argmax(codes < 0))]].tolist()[0]
        raise DataError(f"facet {facet.name!r} has a level that was not learned: {unknown!r}")
    return codes
