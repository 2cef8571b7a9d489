"""The first passes over rows in batches: levels, origins and coding, before cells are summed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.data import CompleteRows, Reading, Tally
from vcomp.design import Centre, Facet
from vcomp.exceptions import DataError
from vcomp.formula import FixedPart, Formula
from vcomp.statistics.batches.cell_index import CellPlaces
from vcomp.statistics.batches.cell_table import Addable
from vcomp.statistics.batches.survey import ColumnKinds, Survey, XSums, kinds_of, survey_rows


@dataclass(frozen=True, slots=True, eq=False)
class RowCoding:
    """The coding of rows, determined before they are summed in cells.

    Attributes
    ----------
    formula : the parsed formula
    survey : survey of all rows, with the levels that occur
    centre : origins of the response and of the columns of X
    fixed : coding of the fixed part
    kinds : contents of its columns
    varying : (p,) which columns of X vary between rows
    constants : (p,) centred values of the other columns
    """

    formula: Formula
    survey: Survey
    centre: Centre
    fixed: FixedPart
    kinds: ColumnKinds
    varying: BoolArray
    constants: FloatArray

    @property
    def facets(self) -> tuple[Facet, ...]:
        """The grouping columns with their levels."""
        found = zip(self.formula.facets, self.survey.facets, strict=True)
        return tuple(Facet(name, facet.levels) for name, facet in found)

    @property
    def places(self) -> CellPlaces:
        """Places of the cells."""
        return CellPlaces.of(self.survey, self.formula.facets)

    @property
    def columns(self) -> tuple[float | None, ...]:
        """Value of y and of each column of X if it is the same in all rows, else None."""
        of_x = zip(self.varying, self.constants, strict=True)
        return (None, *(None if varies else float(value) for varies, value in of_x))

    @property
    def n_columns(self) -> int:
        """Number of columns whose cell means are needed: y, and the columns of X that vary."""
        return 1 + int(self.varying.sum())

    def products(self, within: FloatArray) -> FloatArray:
        """Return squares and products of y and all columns of X from those that vary."""
        rows = [0, *(1 + np.flatnonzero(self.varying))]
        every = np.zeros((1 + self.varying.size,) * 2)
        every[np.ix_(rows, rows)] = within
        return every


_ROWS = 2**20
"""Rows of the largest part for which a matrix X is made."""

Part = TypeVar("Part", bound=Addable)


class Passes(Protocol):
    """Rows in parts, which can be read several times."""

    def total(self, of: Callable[..., Part], *known: Any) -> Part | None:
        """Return the sum of ``of(*known, part)`` over the parts; None if there are none."""

    def each(self, why: str) -> Iterable[CompleteRows]:
        """Return the parts one after another.

        Raises
        ------
        DataError
            If they cannot be read here; `why` says what they are needed for.
        """


@dataclass(frozen=True, slots=True, eq=False)
class FirstPass:
    """Results of the first pass over some rows: survey, kinds of columns, missing values."""

    survey: Survey
    kinds: ColumnKinds
    tally: Tally

    def __add__(self, other: FirstPass) -> FirstPass:
        return FirstPass(
            self.survey + other.survey, self.kinds + other.kinds, self.tally + other.tally
        )


def _first(formula: Formula, part: CompleteRows) -> FirstPass:
    facets = {f: part.frame[f] for f in formula.facets}
    kinds = kinds_of(_with_all_categories(part.fixed_columns(formula), part))
    return FirstPass(survey_rows(part.y, facets), kinds, part.tally)


def _with_all_categories(columns: dict[str, Any], part: CompleteRows) -> dict[str, Any]:
    """Return factors with all their categories, also those that do not occur in these rows.

    The first of the levels is the one that the others are compared with.
    """
    import pandas as pd

    return {
        name: part.frame[name].array
        if isinstance(column, pd.Categorical)
        and isinstance(part.frame[name].dtype, pd.CategoricalDtype)
        else column
        for name, column in columns.items()
    }


def matrix_of(coding: RowCoding, part: CompleteRows) -> FloatArray:
    """Return X of some rows, not centred."""
    columns = coding.kinds.recoded(part.fixed_columns(coding.formula))
    return coding.fixed.matrix(columns, part.y.size)


def learn_in_passes(formula: Formula, passes: Passes, reading: Reading) -> RowCoding:
    """Return the coding of rows, from one pass; with a fixed part from two or three passes.

    Parameters
    ----------
    formula : the parsed formula
    passes : passes over the rows
    reading : the calling scope, and the treatment of missing values

    Raises
    ------
    DataError, FormulaError
        If the rows cannot be used.
    """
    whole = passes.total(_first, formula)
    if whole is None:
        raise DataError("the data have no rows")
    whole.tally.check(formula, reading.missing)
    survey = whole.survey.of_used_levels()
    ends, intercept = (survey.low, survey.high, survey.mean), ("Intercept",)
    coding = RowCoding(
        formula=formula,
        survey=survey,
        centre=Centre.of(formula, intercept, np.ones(1), ends),
        fixed=FixedPart(intercept),
        kinds=whole.kinds,
        varying=np.zeros(1, dtype=bool),
        constants=np.ones(1),
    )
    if formula.intercept_only:
        return coding
    fixed = _coding(formula, whole.kinds, passes, reading.environment)
    return _with_columns(replace(coding, fixed=fixed), passes)


def _coding(formula: Formula, kinds: ColumnKinds, passes: Passes, environment: Any) -> FixedPart:
    """Return the coding of the fixed part, from levels alone or, if necessary, from all rows."""
    fixed = FixedPart.of_few_rows(formula, kinds.few_rows(), environment, _ROWS)
    if not fixed.depends_on_rows(kinds.numbers):
        return fixed
    why = f"the fixed part ({' + '.join(formula.fixed)}) depends on all rows together"

    def columns() -> Iterable[dict[str, Any]]:
        for part in passes.each(why):
            if part.y.size:
                yield kinds.recoded(part.fixed_columns(formula))

    return FixedPart.of_rows(formula, columns, environment, _ROWS)


def _x_sums(coding: RowCoding, part: CompleteRows) -> XSums:
    coding.fixed.check_by_row(coding.kinds.recoded(part.fixed_columns(coding.formula)))
    return XSums.of(matrix_of(coding, part))


def _away(coding: RowCoding, constant: FloatArray, part: CompleteRows) -> _Largest:
    return _Largest(float(np.abs(matrix_of(coding, part) @ constant - 1.0).max(initial=0.0)))


@dataclass(frozen=True, slots=True)
class _Largest:
    value: float

    def __add__(self, other: _Largest) -> _Largest:
        return _Largest(max(self.value, other.value))


def _with_columns(coding: RowCoding, passes: Passes) -> RowCoding:
    """Return the coding with the origins of the columns of X."""
    names, survey = coding.fixed.names, coding.survey
    sums = passes.total(_x_sums, coding)
    assert sums is not None
    constant = sums.constant(names)
    if constant.any() and "Intercept" not in names:
        # Sums of squares have too few digits to decide this.
        away = passes.total(_away, coding, constant)
        if away is None or not Centre.is_one(away.value):
            constant = np.zeros(constant.size)
    y, X = (survey.low, survey.high, survey.mean), (sums.low, sums.high, sums.mean)
    centre = Centre.of(coding.formula, names, constant, y, X)
    return replace(
        coding,
        centre=centre,
        varying=sums.low < sums.high,
        constants=sums.low - centre.x_origin,
    )
