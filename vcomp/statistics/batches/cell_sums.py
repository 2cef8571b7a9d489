"""Cell tables with levels, origins and coding: sums that can be stored, and added to others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.data import kind_of
from vcomp.design import Centre, Chunk, Facet, Grid, TermDesign, are_nested
from vcomp.exceptions import DataError
from vcomp.formula import FixedPart
from vcomp.numerics import check_memory
from vcomp.statistics.batches.cell_table import CellTable, EveryCell
from vcomp.statistics.batches.collapsed_cells import PartSums
from vcomp.statistics.batches.row_coding import CellPlaces, RowCoding
from vcomp.statistics.batches.survey import FacetSurvey, Survey, united_facets
from vcomp.statistics.groupings import Groupings
from vcomp.statistics.strata import Cells

if TYPE_CHECKING:
    import pandas as pd


_FEW_PLACES = 2**22
"""Largest number of cells for which a table of all cells is always made. It serves to sum batches
of rows, and to find facets that are crossed with all others."""

_MOST_EMPTY = 2
"""Largest number of cells per row at which a larger table of all cells is made."""


def dense_places(size: int, n_rows: int, few: int = _FEW_PLACES) -> bool:
    """Whether a table of all possible cells is made, instead of one of the cells that have rows.

    Parameters
    ----------
    size : number of possible cells
    few : number of cells up to which it is made, however many rows there are
    """
    return size <= max(few, _MOST_EMPTY * n_rows)


def table_bytes(size: int, n_columns: int) -> float:
    """Return the memory of a table of all places in bytes."""
    return (8.0 * n_columns + 1.0) * size


def check_table(size: int, n_columns: int) -> None:
    """Refuse a table of cells that would not fit into memory.

    Raises
    ------
    EstimationError
    """
    check_memory(
        table_bytes(size, n_columns),
        f"the means of {size:,} cells need",
        "leave a facet out, or use a part of the rows",
    )


@dataclass(frozen=True, slots=True, eq=False)
class CellSums:
    """The cells of rows, to which cells of rows with other levels or origins can be added.

    Attributes
    ----------
    coding : levels, origins and columns of the rows
    table : the cells
    collapsed : sums of complete cells, which are not in the table; None if all cells are in it
    again : sums the rows once more, into a table of all cells; None if all cells are in `table`
    """

    coding: RowCoding
    table: CellTable
    collapsed: PartSums | None = None
    again: Callable[[], CellTable] | None = None

    def grid(self) -> Grid | None:
        """Return the facets that are crossed with all others, and the cells of these."""
        if self.collapsed is not None:
            return self.collapsed.plan.grid
        if self.table.places is not None:
            return None
        return self.coding.places.grid(self.table.counts, terms_are_nested=True)

    def check_same(self, other: CellSums) -> list[int]:
        """Return the position of each facet in `other`, whose terms may be in another order.

        Raises
        ------
        DataError
            If the two cannot be added; the message has the reason.
        """
        if self.collapsed is not None or other.collapsed is not None:
            raise DataError("sums of complete cells cannot be added to those of other rows")
        return _check_same(self.coding, other.coding)

    def __add__(self, other: CellSums) -> CellSums:
        order = self.check_same(other)
        coding, maps = _united(self, other, order)
        places = coding.places
        parts = [
            _moved(self, coding, places, maps[0], range(len(order))),
            _moved(other, coding, places, maps[1], order),
        ]
        coding, table = _centred(coding, parts[0] + parts[1])
        found = CellSums(coding, table)
        fills = table.may_fill_grid and found._fill_places(0)
        return found._of_all_cells() if fills else found

    def compact(self) -> CellSums:
        """Return the sums without the cells that have no rows, if these are most."""
        return self if self._fill_places(0) else replace(self, table=self.table.filled()[1])

    def for_grid(self) -> CellSums:
        """Return the sums with a table of all cells, if that may show a grid and is small."""
        places_of_table = self.table.places
        fills = self.table.may_fill_grid and self._fill_places()
        if places_of_table is None or not fills:
            return self
        places = self.coding.places
        nested = are_nested(self.coding.formula.positions, self.coding.survey.determined)
        return self._of_all_cells() if nested or places.may_cross(places_of_table) else self

    def _fill_places(self, few: int = _FEW_PLACES) -> bool:
        return dense_places(self.coding.places.size, self.coding.survey.n, few)

    def _of_all_cells(self) -> CellSums:
        size, n_columns = self.coding.places.size, self.coding.n_columns
        check_table(size, n_columns)
        every = EveryCell(size, n_columns, powers=self.table.powers is not None).made()
        return replace(self, table=every + self.table)

    def x_mean(self) -> FloatArray:
        """Return the (p + k,) means of the columns over all rows, with their weights."""
        coding, times = self.coding, self.table.multiplicity
        mean = coding.constants + coding.x_origin
        means = (self.table.means[1:] @ times) / times.sum()
        mean[coding.varying] = means + coding.x_origin[coding.varying]
        return mean


def _check_same(a: RowCoding, b: RowCoding) -> list[int]:
    """Return the position of each facet of `a` in `b`, whose terms may be in another order.

    Raises
    ------
    DataError
        If the sums cannot be added; the message has the reason.
    """
    first, second = a.formula, b.formula
    cannot = f"statistics of {first.text!r} and {second.text!r} cannot be added: the"
    if first.response != second.response or first.fixed != second.fixed:
        raise DataError(f"{cannot} formulas must be the same")
    terms = [{frozenset(term.facets) for term in formula.random} for formula in (first, second)]
    if first.has_slopes or second.has_slopes:  # their columns have an order
        same = [term.written for term in first.random] == [term.written for term in second.random]
    else:
        same = terms[0] == terms[1]
    if not same:
        raise DataError(f"{cannot} random terms must be the same")
    groups = [() if f.groups is None else f.groups.facets for f in (first, second)]
    if groups[0] != groups[1]:
        raise DataError(f"{cannot} levels of residual= must be the same")
    if a.of_rows != b.of_rows:
        raise DataError(
            f"{cannot} options weights=, frequency=, known_variance= and offset= must be the same"
        )
    order = [second.level_columns.index(name) for name in first.level_columns]
    for mine, k in zip(a.facets, order, strict=True):
        _check_levels(mine, b.facets[k])
    if a.kinds.levels.keys() != b.kinds.levels.keys():
        raise DataError(f"{cannot} fixed parts have other columns")
    for name, found in a.kinds.levels.items():
        _check_factor(name, found, b.kinds.levels[name])
    parts = [[p for p in (c.fixed, *_slope_parts(c)) if p is not None] for c in (a, b)]
    if any(x is not y and (x.is_stateful or y.is_stateful) for x, y in zip(*parts, strict=True)):
        raise DataError(
            "the fixed part or a slope has a transform that depends on all rows (as center() "
            "does), so that columns of separate data are not the same: read all rows together"
        )
    names = [tuple(name for part in own for name in part.names) for own in parts]
    if names[0] != names[1]:
        only = sorted({*names[0]} ^ {*names[1]})
        raise DataError(
            f"the fixed parts have other columns ({', '.join(only[:5])} in one of the two): read "
            "all rows together"
        )
    return order


def _slope_parts(coding: RowCoding) -> tuple[FixedPart | None, ...]:
    return () if coding.slopes is None else coding.slopes.parts


def _check_levels(mine: Facet, theirs: Facet) -> None:
    """Refuse levels whose types differ, so that no two levels can be equal."""
    kinds = [kind_of(facet.levels) for facet in (mine, theirs)]
    if all(kinds) and kinds[0] != kinds[1]:
        raise DataError(
            f"the levels of facet {mine.name!r} are {kinds[0]} in one of the two and {kinds[1]} "
            f"in the other ({_shown(mine)} and {_shown(theirs)}), so that none are the same; "
            f"read both as {kinds[0]}, or both as {kinds[1]}",
            column=mine.name,
        )


def _check_rounding(name: str, mine: FacetSurvey, theirs: FacetSurvey) -> None:
    """Refuse whole numbers that would be rounded in the common type of both facets."""
    a, b = mine.levels, theirs.levels
    if a.dtype != b.dtype and not a.append(b[a.get_indexer(b) < 0]).is_unique:
        raise DataError(
            f"facet {name!r} has whole numbers beyond 2**53 as levels in one of the two, and "
            "numbers of another type in the other; as one type they would be rounded: read both "
            "as text",
            column=name,
        )


def _shown(facet: Facet) -> str:
    return repr(next(iter(facet.levels)))


def _check_factor(name: str, mine: FacetSurvey | None, theirs: FacetSurvey | None) -> None:
    """Refuse a factor of the fixed part that has other columns in one of the two."""
    if (mine is None) != (theirs is None):
        raise DataError(
            f"column {name!r} holds numbers in one of the two, text in the other", column=name
        )
    if mine is None or theirs is None:
        return
    levels, others = mine.used()[0], theirs.used()[0]
    if levels.equals(others):
        return
    only = levels.symmetric_difference(others, sort=False).tolist()
    if only:
        has = f"other levels in one of the two ({', '.join(map(repr, only[:5]))})"
    else:
        both = " and ".join(map(_in_words, (levels, others)))
        has = f"its levels in another order in one of the two ({both})"
    raise DataError(
        f"factor {name!r} of the fixed part has {has}, and so other columns: read all rows "
        "together",
        column=name,
    )


def _in_words(levels: pd.Index) -> str:
    return " < ".join(map(repr, levels[:5].tolist())) + (" < …" if len(levels) > 5 else "")


def _united(
    one: CellSums, other: CellSums, order: Sequence[int]
) -> tuple[RowCoding, tuple[list[IntArray], list[IntArray]]]:
    """Return the coding of both together, and the positions of the levels of each in it.

    Its origins are the means of the rows, whether the columns of X make up a constant or not.
    """
    a, b = one.coding, other.coding
    theirs = _in_order(b.survey, order)
    facets = []
    for name, x, y in zip(a.formula.level_columns, a.survey.facets, theirs.facets, strict=True):
        _check_rounding(name, x, y)
        facets.append(united_facets(x, y))
    survey = a.survey + theirs
    values = [part.constants + part.x_origin for part in (a, b)]
    varying = a.varying | b.varying | (values[0] != values[1])
    means = [one.x_mean(), other.x_mean()]
    p = len(a.fixed.names)
    x_origin = (means[0] + (means[1] - means[0]) * (b.survey.n / survey.n))[:p]
    if "Intercept" in a.fixed.names:
        x_origin[a.fixed.names.index("Intercept")] = 0.0
    sums = None if a.sums is None or b.sums is None else a.sums + b.sums
    coding = replace(
        a,
        survey=survey,
        centre=Centre(survey.mean, x_origin, np.zeros(p)),
        kinds=a.kinds + b.kinds,
        varying=varying,
        sums=sums,
    )
    coding = replace(coding, constants=np.where(varying, 0.0, values[0] - coding.x_origin))
    return coding, ([m for _, m, _ in facets], [m for _, _, m in facets])


def _centred(coding: RowCoding, table: CellTable) -> tuple[RowCoding, CellTable]:
    """Return coding and cells about the origins of the model of all rows.

    The columns of X may contain a constant in each part but not in all rows: a covariate that is 2
    in one part and 3 in the other. Rows with other levels can have the opposite effect.

    Parameters
    ----------
    coding : of all rows, whose origins are their means
    table : the cells that have rows, about them
    """
    names, mean = coding.fixed.names, coding.centre.x_origin
    if "Intercept" in names:
        constant = np.array([float(name == "Intercept") for name in names])
    else:
        constant = _constant(coding, table)
    origin = coding.centre.origin if constant.any() else 0.0
    x_origin = np.where(constant != 0.0, 0.0, mean) if constant.any() else np.zeros(mean.size)
    means = table.means.copy()
    means[0] += coding.centre.origin - origin
    shift = np.zeros(coding.varying.size)
    shift[: mean.size] = mean - x_origin
    means[1:] += shift[coding.varying][:, None]
    constants = np.where(coding.varying, 0.0, coding.constants + shift)
    centre = Centre(origin, x_origin, constant)
    return replace(coding, centre=centre, constants=constants), replace(table, means=means)


_WITHIN = 1e-13
"""Relative variance within cells below which a combination of columns is constant in them."""


def _constant(coding: RowCoding, table: CellTable) -> FloatArray:
    """Return a with X a = 1 in all rows of the cells; zeros without such an a."""
    p = len(coding.fixed.names)
    zeros, varying = np.zeros(p), coding.varying[:p]
    if not p:
        return zeros
    rows = slice(1, 1 + int(varying.sum()))
    means, within, times = table.means[rows], table.within[rows, rows], table.multiplicity
    total = float(times.sum())
    cov = np.zeros((p, p))
    cov[np.ix_(varying, varying)] = (means * (times / total)) @ means.T + within / total
    mean = coding.centre.x_origin
    a = Centre.constant_of(coding.fixed.names, mean, cov)
    coefficients = a[varying]
    away = float(np.abs(coefficients @ means + (float(a @ mean) - 1.0)).max(initial=0.0))
    inside = float(coefficients @ within @ coefficients) <= _WITHIN * float(
        np.square(coefficients) @ np.diagonal(within)
    )
    return a if Centre.is_one(away) and inside else zeros


def _in_order(survey: Survey, order: Sequence[int]) -> Survey:
    """Return the survey with its facets in another order."""
    at = {k: position for position, k in enumerate(order)}
    return replace(
        survey,
        facets=tuple(survey.facets[k] for k in order),
        determined={(at[i], at[j]): level for (i, j), level in survey.determined.items()},
    )


def _moved(
    part: CellSums,
    coding: RowCoding,
    places: CellPlaces,
    levels: Sequence[IntArray],
    of_facets: Sequence[int],
) -> CellTable:
    """Return the table of a part with the places and origins of another coding."""
    old = part.coding
    at, table = part.table.filled()
    found = list(old.places.codes(at))
    codes = [m[found[k]] for m, k in zip(levels, of_facets, strict=True)]
    moved = places.of_rows(codes)
    means = np.empty((coding.n_columns, at.size))
    means[0] = table.means[0] + (old.centre.origin - coding.centre.origin)
    shift = old.x_origin - coding.x_origin
    rows = _rows_of(old.varying)
    for row, j in enumerate(np.flatnonzero(coding.varying), start=1):
        known = table.means[rows[j]] if old.varying[j] else old.constants[j]
        means[row] = known + shift[j]
    within = np.zeros((coding.n_columns,) * 2)
    kept = [
        0,
        *(row for row, j in enumerate(np.flatnonzero(coding.varying), 1) if old.varying[j]),
    ]
    within[np.ix_(kept, kept)] = table.within
    products = table.products
    if products is not None:
        products = np.zeros((coding.n_columns, coding.n_columns, at.size))
        products[np.ix_(kept, kept)] = table.products
    table = replace(table, means=means, within=within, products=products)
    return table.at(np.argsort(moved, kind="stable"), moved)


def _rows_of(varying: BoolArray) -> IntArray:
    """Return the row of each varying column of X in a table."""
    return np.cumsum(varying, dtype=np.int32)


def rows_of_cells(coding: RowCoding, table: CellTable, terms: tuple[TermDesign, ...]) -> Chunk:
    """Return the filled cells, each as one weighted row."""
    places, filled = (None, table) if table.is_full else table.filled()
    p = len(coding.fixed.names)
    is_single = bool((filled.counts == 1).all())
    response, beta_origin = filled.means[0], coding.centre.beta_origin
    X = np.ones((1, 1)) if coding.fixed_in_cells else _X(coding, filled)
    if isinstance(beta_origin, np.ndarray):
        response = response + X @ beta_origin
    return Chunk(
        response=response,
        origin=0.0,
        beta_origin=beta_origin,
        columns=X,
        compact_codes=coding.places.codes(places),
        facet_sizes=coding.places.n_levels,
        terms=terms,
        counts=None if is_single else filled.counts.astype(float),
        within=None if is_single else coding.products(filled.within)[: 1 + p, : 1 + p],
        weights=None if filled.weights is None else filled.weights[0],
        log_sums=None if is_single or filled.weights is None else filled.weights[1],
    )


def cells_of_grid(coding: RowCoding, table: CellTable, grid: Grid, groupings: Groupings) -> Cells:
    """Return the cells of a complete grid, in the order of the groupings."""
    places = coding.places
    axes = [places.free.index(f) for f in grid.axes]
    rest = [k for k in range(len(places.free)) if k not in axes]
    inside = table.counts.reshape(places.shape)[
        tuple(0 if k in axes else slice(None) for k in range(len(places.free)))
    ]
    order = np.flatnonzero(inside)[groupings.order]
    tables = []
    for means in table.means:
        cube = means.reshape(places.shape).transpose([*axes, *rest])
        flat = cube.reshape(grid.n_combinations, -1)
        tables.append(flat if _is_arange(order, flat.shape[1]) else flat[:, order])
    y, *varying = tables
    every = iter(varying)
    X = [
        next(every) if varies else np.full((grid.n_combinations, 1), value)
        for varies, value in zip(coding.varying, coding.constants, strict=True)
    ]
    n = grid.cell_n[groupings.order]
    return Cells(grid.shape, n, (y, *X), coding.products(table.within))


def _is_arange(order: Any, size: int) -> bool:
    return order.size == size and bool((order == np.arange(size)).all())


def with_effects(cells: Chunk, coding: RowCoding, table: CellTable) -> Chunk:
    """Return cells with the columns of effects by term, and their products with y and X.

    Cells of one score have no products, so that they are rows like those that are kept.
    """
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
    slopes = coding.slopes
    places = () if slopes is None else tuple(zip(slopes.parts, slopes.places, strict=True))
    for own in cells.blocks.columns:
        place = next((at for part, at in places if own is not None and part is own.part), None)
        if own is None or place is None:
            effects.append(None)
            at.append(-1)
            scale.append(1.0)
            continue
        for k, origin, unit in zip(place.tolist(), own.origin, own.scale, strict=True):
            effects.append(None if k < 0 else _column(coding, filled, p + k, origin, unit))
            at.append(-1 if k < 0 else 1 + p + k)
            scale.append(float(unit))
    if cells.counts is None:
        return replace(cells, effects=tuple(effects))
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


def cells_with_scores(
    coding: RowCoding, table: CellTable, cells_as_rows: Callable[[], Chunk]
) -> Chunk | None:
    """Return cells with weighted scores that have the moments of those in each cell.

    None if these are not known, or columns of the fixed part vary within cells.
    """
    _, filled = table.filled()
    between = np.square(filled.means[1:]) @ filled.counts
    # Rounding of origins in added sums, relative to standard deviations
    constant = np.diagonal(filled.within)[1:] <= 1e-8**2 * between
    values, origin, two = coding.survey.values, coding.centre.origin, None
    is_less_fixed = isinstance(coding.centre.beta_origin, np.ndarray)
    if values is not None and len(values) == 2 and not is_less_fixed:
        two = values[0] - origin, values[1] - origin
    if (two is None and filled.powers is None) or not constant.all():
        return None

    def scores(cells: Any) -> tuple[LongArray, FloatArray, FloatArray]:
        found = filled.as_scores(cells, two)
        assert found is not None
        return found

    return replace(cells_as_rows(), scores=scores)


def _X(coding: RowCoding, table: CellTable) -> FloatArray:
    """Return the means of the columns of X in the cells."""
    if coding.formula.intercept_only:
        return np.broadcast_to(1.0, (table.counts.size, 1))
    p = len(coding.fixed.names)
    varying = coding.varying[:p]
    X = np.tile(coding.constants[:p], (table.counts.size, 1))
    X[:, varying] = table.means[1 : 1 + int(varying.sum())].T
    return X
