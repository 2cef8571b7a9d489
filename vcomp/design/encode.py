"""Rows → :class:`Chunk`: levels become small integers, y and X are centred."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.design.design import Chunk, Design, Facet
from vcomp.design.rows import Rows
from vcomp.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["encode", "facet_codes"]


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


def _known_codes(facet: Facet, column: pd.Series) -> Any:
    codes = facet_codes(facet, column)
    if codes.min() < 0:
        unknown = column.iloc[[int(np.argmax(codes < 0))]].tolist()[0]
        raise DataError(f"facet {facet.name!r} has a level that was not learned: {unknown!r}")
    return codes
