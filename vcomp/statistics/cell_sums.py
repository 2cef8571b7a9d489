"""Cells of rows with what was learned of them: sums that can be stored, and added to others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vcomp._typing import BoolArray, IntArray
from vcomp.design.design import Facet
from vcomp.design.learn import Centre
from vcomp.design.places import CellPlaces
from vcomp.design.survey import united_facets
from vcomp.exceptions import DataError, EstimationError
from vcomp.linalg.memory import available_bytes, gib
from vcomp.statistics.cell_table import CellTable, EveryCell
from vcomp.statistics.learned import Learned
from vcomp.statistics.sealed import PartSums

__all__ = ["CellSums", "check_table", "dense_places", "table_bytes"]

_FEW_PLACES = 2**22
"""A table of so many cells is made however many rows there are."""

_MOST_EMPTY = 2
"""And one of more if at least one place in so many has a row."""


def dense_places(size: int, n_rows: int) -> bool:
    """Whether a table of all places is smaller than one of those that have rows."""
    return size <= max(_FEW_PLACES, _MOST_EMPTY * n_rows)


def table_bytes(size: int, n_columns: int) -> float:
    """Return the bytes that a table of all places takes."""
    return (8.0 * n_columns + 1.0) * size


def check_table(size: int, n_columns: int) -> None:
    """Refuse a table of cells that would not fit into memory.

    Raises
    ------
    EstimationError
    """
    needed, free = table_bytes(size, n_columns), available_bytes()
    if needed > 0.8 * free:
        raise EstimationError(
            f"the means of {size:,} cells need {gib(needed)}, and {gib(free)} are free; leave a "
            "facet out, or take a part of the rows"
        )


@dataclass(frozen=True, slots=True, eq=False)
class CellSums:
    """The cells of rows; those of other rows, with other levels or origins, can be added.

    Attributes
    ----------
    learned : levels, origins and coding
    table : the cells
    sealed : sums of cells that are complete, and not in the table; None if all are there
    again : sums the rows once more, into a table of all cells; None where they are not to be had
    """

    learned: Learned
    table: CellTable
    sealed: PartSums | None = None
    again: Callable[[], CellTable] | None = None

    def __add__(self, other: CellSums) -> CellSums:
        if self.sealed is not None or other.sealed is not None:
            raise DataError("sums of complete cells cannot be added to those of other rows")
        _check_same(self.learned, other.learned)
        learned, maps = _united(self.learned, other.learned)
        places = learned.places
        parts = [
            _moved(part, learned, places, levels)
            for part, levels in zip((self, other), maps, strict=True)
        ]
        if not dense_places(places.size, learned.survey.n):
            return CellSums(learned, parts[0] + parts[1])
        check_table(places.size, learned.n_columns)
        every = EveryCell(places.size, learned.n_columns).made()
        return CellSums(learned, every + parts[0] + parts[1])


def _check_same(a: Learned, b: Learned) -> None:
    """Refuse to add sums that do not belong together, with the reason."""
    first, second = a.formula, b.formula
    if first.response != second.response or first.fixed != second.fixed:
        raise DataError(
            f"statistics of {first.text!r} and {second.text!r} cannot be added: the formulas must "
            "be the same"
        )
    if {t.facets for t in first.random} != {t.facets for t in second.random} or (
        first.facets != second.facets
    ):
        raise DataError(
            f"statistics of {first.text!r} and {second.text!r} cannot be added: the random terms "
            "must be the same"
        )
    for mine, theirs in zip(a.facets, b.facets, strict=True):
        if _are_numbers(mine) != _are_numbers(theirs):
            raise DataError(
                f"the levels of facet {mine.name!r} are text in one of the two and numbers in the "
                f"other ({_shown(mine)} and {_shown(theirs)}), so that none are the same; read "
                "both as text, or both as numbers"
            )
    for name, found in a.kinds.levels.items():
        there = b.kinds.levels[name]
        if (found is None) != (there is None):
            raise DataError(f"column {name!r} holds numbers in one of the two, text in the other")
        if found is not None and there is not None:
            levels, others = found.used()[0], there.used()[0]
            if not levels.equals(others):
                only = [*levels.difference(others), *others.difference(levels)]
                shown = ", ".join(map(repr, only[:5]))
                raise DataError(
                    f"factor {name!r} of the fixed part has other levels in one of the two "
                    f"({shown}), and so other columns: read all rows together"
                )
    if a.fixed is not b.fixed and (a.fixed.is_stateful or b.fixed.is_stateful):
        raise DataError(
            "the fixed part has a transform that depends on all rows (as center() does), so that "
            "columns of separate data are not the same: read all rows together"
        )
    if a.fixed.names != b.fixed.names:
        raise DataError("the fixed parts have other columns: read all rows together")


def _are_numbers(facet: Facet) -> bool:
    return facet.levels.dtype.kind in "biuf"


def _shown(facet: Facet) -> str:
    return repr(facet.levels[:1].tolist()[0])


def _united(a: Learned, b: Learned) -> tuple[Learned, tuple[list[IntArray], list[IntArray]]]:
    """Return what both say together, and where the levels of each are in it."""
    survey = a.survey + b.survey
    found = [united_facets(x, y) for x, y in zip(a.survey.facets, b.survey.facets, strict=True)]
    constant = a.centre.constant
    origin = survey.mean if constant.any() else 0.0
    weights = np.array([a.survey.n, b.survey.n]) / survey.n
    x_origin = weights[0] * a.centre.x_origin + weights[1] * b.centre.x_origin
    values = [part.constants + part.centre.x_origin for part in (a, b)]
    varying = a.varying | b.varying | (values[0] != values[1])
    learned = replace(
        a,
        survey=survey,
        centre=Centre(origin, np.where(constant != 0.0, 0.0, x_origin), constant),
        kinds=a.kinds + b.kinds,
        varying=varying,
        constants=np.where(varying, 0.0, values[0] - x_origin),
    )
    return learned, ([m for _, m, _ in found], [m for _, _, m in found])


def _moved(
    part: CellSums, learned: Learned, places: CellPlaces, levels: Sequence[IntArray]
) -> CellTable:
    """Return the table of a part at other places, about another origin."""
    old = part.learned
    at, table = part.table.filled()
    codes = [m[c] for m, c in zip(levels, old.places.codes(at), strict=True)]
    moved = places.of_rows(codes)
    order = np.argsort(moved, kind="stable")
    means = np.empty((learned.n_columns, at.size))
    means[0] = table.means[0] + (old.centre.origin - learned.centre.origin)
    shift = old.centre.x_origin - learned.centre.x_origin
    rows = _rows_of(old.varying)
    for row, j in enumerate(np.flatnonzero(learned.varying), start=1):
        known = table.means[rows[j]] if old.varying[j] else old.constants[j]
        means[row] = known + shift[j]
    within = np.zeros((learned.n_columns,) * 2)
    kept = [
        0,
        *(row for row, j in enumerate(np.flatnonzero(learned.varying), 1) if old.varying[j]),
    ]
    within[np.ix_(kept, kept)] = table.within
    counts = table.counts.astype(np.int64)
    return CellTable(moved[order], counts[order], means[:, order], within)


def _rows_of(varying: BoolArray) -> IntArray:
    """Return the row of each varying column of X in a table."""
    rows: IntArray = np.cumsum(varying, dtype=np.int32)
    return rows
