"""Cells of rows that are not kept as coded rows that each represent several scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from vcomp._typing import FloatArray
from vcomp.design import Chunk, TermDesign
from vcomp.numerics import check_memory
from vcomp.statistics.batches.cell_table import CellTable
from vcomp.statistics.batches.row_coding import RowCoding


def rows_of_cells(coding: RowCoding, table: CellTable, terms: tuple[TermDesign, ...]) -> Chunk:
    """Return the filled cells, each as one weighted row."""
    places, filled = table.filled()
    p = len(coding.fixed.names)
    is_single = bool((filled.counts == 1).all())
    return Chunk(
        response=filled.means[0],
        origin=0.0,
        columns=_X(coding, filled),
        compact_codes=coding.places.codes(places),
        facet_sizes=coding.places.n_levels,
        terms=terms,
        counts=None if is_single else filled.counts.astype(float),
        within=None if is_single else coding.products(filled.within)[: 1 + p, : 1 + p],
        weights=None if filled.weights is None else filled.weights[0],
        log_sums=None if filled.weights is None else filled.weights[1],
    )


def with_effects(cells: Chunk, coding: RowCoding, table: CellTable) -> Chunk:
    """Return cells with the columns of effects by term, and their products with y and X."""
    assert cells.blocks is not None
    _, filled = table.filled()
    assert filled.products is not None
    p, m = len(coding.fixed.names), filled.counts.size
    check_memory(
        16.0 * (1 + p + len(coding.formula.random)) ** 2 * m,
        f"the products of y, X and effects in {m:,} cells need",
        "leave terms or a facet out, or use a part of the rows",
    )
    # Columns of [y X Z] in the sums, and by what they are divided; −1 is a column of ones.
    at, scale = list(range(1 + p)), [1.0] * (1 + p)
    effects: list[FloatArray | None] = []
    places = () if coding.slopes is None else coding.slopes.places
    for own, place in zip(
        cells.blocks.columns, places or (None,) * len(cells.blocks.columns), strict=True
    ):
        if own is None or place is None:
            effects.append(None)
            at.append(-1)
            scale.append(1.0)
            continue
        for k, origin, unit in zip(place.tolist(), own.origin, own.scale, strict=True):
            effects.append(None if k < 0 else _column(coding, filled, p + k, origin, unit))
            at.append(-1 if k < 0 else 1 + p + k)
            scale.append(float(unit))
    products = np.zeros((len(at), len(at), m))
    there = np.flatnonzero(np.array(at) >= 0)
    every, chosen = coding.products(filled.products), [at[k] for k in there]
    products[np.ix_(there, there)] = every[np.ix_(chosen, chosen)]
    products /= np.multiply.outer(scale, scale)[:, :, None]
    return replace(cells, effects=tuple(effects), products=products)


def _column(coding: RowCoding, table: CellTable, j: int, origin: float, unit: float) -> FloatArray:
    """Return the means in cells of the j-th of the columns of X and slopes, in its unit."""
    first = float(coding.x_origin[j]) - origin
    if not coding.varying[j]:
        return np.full(table.counts.size, (float(coding.constants[j]) + first) / unit)
    means = table.means[1 + int(coding.varying[:j].sum())]
    return np.ascontiguousarray((means + first) / unit)


def rows_of_moments(table: CellTable, cells_as_rows: Callable[[], Chunk]) -> Chunk | None:
    """Return weighted rows with the moments of the scores in each cell.

    None if these are not known, or columns of the fixed part vary within cells.
    """
    _, filled = table.filled()
    found = filled.as_scores()
    between = np.square(filled.means[1:]) @ filled.counts
    # Rounding of origins in added sums, relative to standard deviations
    constant = np.diagonal(filled.within)[1:] <= 1e-8**2 * between
    if found is None or not constant.all():
        return None
    at, scores, weights = found
    cells = cells_as_rows()
    return replace(
        cells,
        response=scores,
        columns=np.broadcast_to(1.0, (at.size, 1)) if cells.is_mean else cells.X[at],
        compact_codes=tuple(codes[at] for codes in cells.compact_codes),
        counts=weights,
        within=None,
    )


def _X(coding: RowCoding, table: CellTable) -> FloatArray:
    """Return the means of the columns of X in the cells."""
    if coding.formula.intercept_only:
        return np.broadcast_to(1.0, (table.counts.size, 1))
    p = len(coding.fixed.names)
    varying = coding.varying[:p]
    X = np.tile(coding.constants[:p], (table.counts.size, 1))
    X[:, varying] = table.means[1 : 1 + int(varying.sum())].T
    return X
