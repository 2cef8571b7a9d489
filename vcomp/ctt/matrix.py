"""Scores of objects on items, whatever form they come in: a matrix, a table, or long data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.data import Reading, as_levels, from_arrow, open_source, select_rows
from vcomp.design import encode, learn
from vcomp.estimators import check_terms, get_estimator
from vcomp.exceptions import DataError, DesignError, EstimationError, did_you_mean, warn
from vcomp.formula import REPLICATE, RESIDUAL, caller_environment, parse
from vcomp.inference import VarianceComponents
from vcomp.numerics import available_bytes, gib
from vcomp.statistics import Statistics

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ItemScores",
    "ScoresOfItems",
    "check_choice",
    "complete_rows",
    "one_way_components",
    "read_scores",
    "two_way_components",
]


ScoresOfItems: TypeAlias = "ArrayLike | pd.DataFrame | Mapping[str, Any] | str | os.PathLike[str]"
"""What :func:`read_scores` reads."""

_NUMBERS = ("boolean", "integer", "floating", "mixed-integer-float", "integer-na", "decimal")
"""What a column of Python objects may hold and be scores, by pandas' names."""

_WIDE = (
    "set it as the index of a pandas frame, or drop it. (Long data, a row a score, need the names "
    "of their three columns, such as object=, item= and response=.)"
)


_LARGEST = 1e100
"""Of larger scores the products of variances overflow."""


@dataclass(frozen=True, slots=True, eq=False)
class ItemScores:
    """Scores of objects on items.

    Attributes
    ----------
    values : (n_objects, n_items) numbers; nan where there is none
    objects : (n_objects,) labels
    items : (n_items,) labels
    """

    values: FloatArray
    objects: pd.Index
    items: pd.Index

    @property
    def n_missing(self) -> int:
        """Number of cells without a score."""
        return int(np.isnan(self.values).sum())

    def rows(self, keep: BoolArray) -> ItemScores:
        """Return some of the objects."""
        return replace(self, values=self.values[keep], objects=self.objects[keep])

    def with_scores(self) -> ItemScores:
        """Return the objects that have a score at all."""
        return self.rows(np.asarray(~np.isnan(self.values).all(axis=1)))


def read_scores(
    scores: ScoresOfItems,
    object_: str | None = None,
    item: str | None = None,
    response: str | None = None,
    *,
    item_name: str = "item",
    what: str = "alpha",
) -> ItemScores:
    """Read a matrix of objects by items, or long data where the columns are named.

    Parameters
    ----------
    scores : matrix, frame, table or path; **objects in rows, items in columns**. Long data where
        the three columns are named
    object_, item, response : columns of long data: all three, or none
    item_name : what the caller's parameter for `item` is called
    what : is computed, for messages

    Raises
    ------
    DataError
        If `scores` is neither, holds what is no number or is infinite, has fewer than two objects
        or items; or if long data have two scores of one object on one item.
    """
    names = {"object": object_, item_name: item, "response": response}
    if any(name is not None for name in names.values()):
        matrix = _from_long(scores, names, item_name)
    else:
        matrix = _from_wide(scores)
    n, k = matrix.values.shape
    if n < 2 or k < 2:
        raise DataError(
            f"{what} needs at least two rows (objects) and two columns ({item_name}s); "
            f"there are {n} × {k}"
        )
    infinite = np.argwhere(np.isinf(matrix.values))
    if infinite.size:
        p, i = infinite[0]
        raise DataError(
            f"the score of object {str(matrix.objects[p])!r} on {item_name} "
            f"{str(matrix.items[i])!r} is infinite"
        )
    largest = np.nanmax(np.abs(matrix.values), initial=0.0)
    if largest > _LARGEST:
        size = display.number(largest)
        raise DataError(f"scores of {size} are too large to be squared; divide them")
    return matrix


def complete_rows(matrix: ItemScores) -> ItemScores:
    """Return the objects that have a score on every item.

    Raises
    ------
    DataError
        If fewer than two do.
    """
    complete = np.asarray(~np.isnan(matrix.values).any(axis=1))
    if complete.sum() < 2:
        empty = np.isnan(matrix.values).all(axis=0)
        why = ""
        if empty.any():
            why = f": item {str(matrix.items[int(empty.argmax())])!r} has no score; leave it out"
        raise DataError(
            f"missing='listwise' leaves {int(complete.sum())} of {complete.size:,} objects, "
            f"those with a score on every item{why}"
        )
    return matrix.rows(complete)


def check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Refuse a value of an option that is not one of those allowed.

    Raises
    ------
    DataError
        Naming those that are.
    """
    if value not in allowed:
        raise DataError(
            f"{name}={value!r} is not known{did_you_mean(value, allowed)}; it is "
            f"{', '.join(map(repr, allowed[:-1]))} or {allowed[-1]!r}"
        )


# A matrix ------------------------------------------------------------------------------------


def _from_wide(scores: Any) -> ItemScores:
    import pandas as pd

    if isinstance(scores, str | os.PathLike | Mapping) or hasattr(scores, "collect"):
        source = open_source(scores)
        scores = source.read(source.columns)
    elif not isinstance(scores, pd.DataFrame) and hasattr(scores, "__arrow_c_stream__"):
        scores = from_arrow(_arrow_table(scores))
    if isinstance(scores, pd.DataFrame):
        return ItemScores(_numbers_of(scores, _WIDE), scores.index, scores.columns)
    values = _numbers(scores)
    if values.ndim != 2:
        raise DataError(
            f"scores must be a matrix, objects by items; it has {values.ndim} dimension(s). Long "
            "data, a row a score, need the names of their columns"
        )
    n, k = values.shape
    return ItemScores(values, pd.RangeIndex(n), pd.RangeIndex(k))


def _arrow_table(table: Any) -> Any:
    import pyarrow as pa

    try:
        return pa.table(table)
    except (TypeError, ValueError) as error:
        kind = type(table).__name__
        raise DataError(f"scores must be an object × item table, not a {kind}") from error


def _numbers_of(frame: pd.DataFrame, advice: str) -> FloatArray:
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    converted = {}
    for position, dtype in enumerate(frame.dtypes):
        if is_numeric_dtype(dtype) and not is_complex_dtype(dtype):
            continue
        converted[position] = _objects_as_numbers(frame.iloc[:, position], advice)
    if not converted:
        return frame.to_numpy(dtype=float, na_value=np.nan)
    columns = [
        converted[j] if j in converted else frame.iloc[:, j].to_numpy(dtype=float, na_value=np.nan)
        for j in range(frame.shape[1])
    ]
    return np.column_stack(columns)


def _objects_as_numbers(column: pd.Series, advice: str) -> FloatArray:
    """Return numbers that stand as Python objects: truth values with a missing one among them."""
    from pandas.api.types import infer_dtype

    missing = column.isna().to_numpy()
    if missing.all() and len(column):
        return np.full(len(column), np.nan)
    if column.dtype != object or infer_dtype(column, skipna=True) not in _NUMBERS:
        raise DataError(f"column {str(column.name)!r} does not hold numbers; {advice}")
    values = np.full(len(column), np.nan)
    values[~missing] = column.to_numpy()[~missing].astype(float)
    return values


def _numbers(scores: Any) -> FloatArray:
    if isinstance(scores, np.ma.MaskedArray):
        scores = np.ma.filled(scores.astype(float), np.nan)
    try:
        raw = np.asarray(scores)
        if raw.dtype.kind in "biufO":
            return raw.astype(float)
    except (TypeError, ValueError) as error:
        raise DataError(f"scores must be a matrix of numbers: {error}") from error
    raise DataError(f"scores must be numbers; they are {raw.dtype.name}")


# Long data -----------------------------------------------------------------------------------


def _from_long(data: Any, names: dict[str, str | None], item_name: str) -> ItemScores:
    import pandas as pd

    absent = [parameter for parameter, column in names.items() if column is None]
    if absent:
        raise DataError(
            f"long data need the names of three columns, object=, {item_name}= and response=; "
            f"{absent[0]}= is missing"
        )
    object_, item, response = (str(column) for column in names.values())
    if len({object_, item, response}) < 3:
        raise DataError(f"object=, {item_name}= and response= are three different columns")
    frame = open_source(data).read([object_, item, response])
    for name in (object_, item):
        n_missing = int(frame[name].isna().sum())
        if n_missing:
            raise DataError(f"column {name!r} is missing in {n_missing} of {len(frame)} rows")
    y = _numbers_of(frame[[response]], "response= is the column of the scores")[:, 0]
    rows, columns = as_levels(object_, frame[object_]).cat, as_levels(item, frame[item]).cat
    objects, items = pd.Index(rows.categories), pd.Index(columns.categories)
    n, k = len(objects), len(items)
    if 8.0 * n * k > available_bytes() / 4.0:
        raise DataError(
            f"the matrix of {n:,} objects by {k:,} {item_name}s would take {gib(8.0 * n * k)}, "
            "more than there is; vcomp.fit estimates components from long data"
        )
    cells = rows.codes.to_numpy().astype(np.int64) * k + columns.codes.to_numpy()
    counts = np.bincount(cells, minlength=0)
    if counts.size and counts.max() > 1:
        p, i = divmod(int(counts.argmax()), k)
        raise DataError(
            f"there are {counts.max()} scores of {object_} {str(objects[p])!r} on {item} "
            f"{str(items[i])!r}; take their mean, or estimate the components with vcomp.fit"
        )
    values = np.full(n * k, np.nan)
    values[cells] = y
    return ItemScores(values.reshape(n, k), objects, items)


def two_way_components(matrix: ItemScores) -> VarianceComponents:
    """Return the components of object, item and residual.

    Parameters
    ----------
    matrix : scores, nan where there is none

    Raises
    ------
    DataError
        If all scores are equal, if the components cannot be told apart with these cells, as where
        every object has one score, or if nothing is left for the residual.

    Warns
    -----
    VcompWarning
        If the estimation did not converge.
    """
    return _fit(matrix, "score ~ (1|object) + (1|item)")


def one_way_components(matrix: ItemScores) -> VarianceComponents:
    """Return the components of object and residual, whoever gave the scores; see above."""
    return _fit(matrix, "score ~ (1|object)")


def _fit(matrix: ItemScores, formula: str) -> VarianceComponents:
    rows, columns = np.nonzero(~np.isnan(matrix.values))
    if rows.size == 0:
        raise DataError("no object has a score on any item")
    scores = matrix.values[rows, columns]
    if np.ptp(scores) == 0.0:
        raise DataError("all scores are equal, so there is no variance to share")
    data = {"score": scores, "object": rows, "item": columns}
    environment = caller_environment(0, 0)
    parsed = parse(formula)
    selected = select_rows(parsed, data, Reading(environment, "raise"))
    try:
        design = learn(parsed, selected, environment)
        stats = Statistics.from_rows(encode(design, selected), design.grid, design.partial_grid)
        terms = tuple(term.name for term in parsed.random)
        check_terms(stats, terms)
    except DesignError as error:
        raise DataError(
            f"variance components cannot be estimated from the cells that are there: {error}"
        ) from error
    try:
        estimate = get_estimator("reml").estimate(stats, (*terms, RESIDUAL))
    except EstimationError as error:
        raise DataError(
            f"REML has no estimate from the cells that are there: {error}. The objects with all "
            "scores may have one: missing='listwise'"
        ) from error
    if not estimate.converged:
        warn(estimate.status)
    everything = frozenset(terms) if len(terms) > 1 else frozenset({*terms, REPLICATE})
    return VarianceComponents(
        names=estimate.names,
        facets=(*(frozenset({term}) for term in terms), everything),
        values=estimate.values,
        cov=next(iter(estimate.covariances.values())),
        without_bounds=estimate.without_bounds,
    )
