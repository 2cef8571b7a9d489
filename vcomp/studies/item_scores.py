"""Scores of objects on items as a matrix, read from any form by :mod:`vcomp.data.score_forms`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.data import ORIENTATIONS
from vcomp.exceptions import DataError, DesignError, EstimationError
from vcomp.gtheory import crossed_components, matrix_components
from vcomp.inference import TwoWayMeanSquares, VarianceComponents

if TYPE_CHECKING:
    import pandas as pd


class TopicSystemScores(Protocol):
    """A labelled topic × system matrix, such as :class:`vcomp.ir.ScoreMatrix`."""

    @property
    def scores(self) -> FloatArray:
        """The numbers, one row per topic; nan where missing."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Names of the rows."""

    @property
    def systems(self) -> tuple[str, ...]:
        """Names of the columns."""


ScoresOfItems: TypeAlias = (
    "ArrayLike | pd.DataFrame | TopicSystemScores | Mapping[str, Any] | str | os.PathLike[str]"
)
"""Forms of scores that :func:`read_scores` reads."""

_LARGEST = 1e100
"""Largest score; products of variances of larger scores overflow."""


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

    @property
    def missing_in_words(self) -> str:
        """How many cells are missing, for messages and notes."""
        n_cells = display.count(self.values.size)
        return f"{display.count(self.n_missing)} of {n_cells} cells are missing"

    def incomplete(self, using: str) -> DataError:
        """Return the error for missing cells where none are allowed.

        Parameters
        ----------
        using : the values of ``missing`` that use the available cells, with their verb
        """
        return DataError(
            f"{self.missing_in_words}; missing={using} the available ones, 'listwise' leaves out "
            "the objects with missing ones"
        )

    def rows(self, keep: BoolArray) -> ItemScores:
        """Return some of the objects."""
        return replace(self, values=self.values[keep], objects=self.objects[keep])

    def with_scores(self) -> ItemScores:
        """Return the objects with at least one score."""
        return self.rows(np.asarray(~np.isnan(self.values).all(axis=1)))


def read_scores(
    scores: ScoresOfItems,
    object_: str | None = None,
    item: str | None = None,
    score: str | None = None,
    *,
    item_name: Literal["item", "rater"] = "item",
    what: str = "alpha",
) -> ItemScores:
    """Return scores of any form as a matrix: **a row for each object, a column for each item**.

    Parameters
    ----------
    scores : matrix, wide or long table, path, or :class:`vcomp.ir.ScoreMatrix`
    object_, item, score : columns of a long table. If one of them is given, each other is the
        column of its own name
    item_name : ``"item"`` or ``"rater"``: what the caller's parameter for `item` is called
    what : the quantity that is computed, for messages

    Raises
    ------
    DataError
        If `scores` cannot be read (see :meth:`vcomp.data.score_forms.Orientation.read`), a score
        is infinite or beyond 1e100, or there are fewer than two objects or items.
    """
    names = {"object": object_, item_name: item, "score": score}
    table = ORIENTATIONS[item_name].read(scores, names)
    if any(name is not None for name in names.values()):
        table = table.in_order()
    matrix = ItemScores(table.values, table.rows, table.columns)
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
            f"{str(matrix.items[i])!r} is infinite",
            level=matrix.objects[p],
        )
    largest = np.nanmax(np.abs(matrix.values), initial=0.0)
    if largest > _LARGEST:
        size = display.number(largest)
        raise DataError(f"scores of {size} are too large to be squared; rescale them")
    return matrix


def complete_rows(matrix: ItemScores) -> tuple[ItemScores, str]:
    """Return the objects that have a score on every item, and how many were left out, in words.

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
    left_out = display.count(int((~complete).sum()))
    words = f"{matrix.missing_in_words}: {left_out} objects were left out (listwise)."
    return matrix.rows(complete), words


def mean_squares_of(matrix: ItemScores) -> TwoWayMeanSquares:
    """Return the mean squares of complete scores, objects in rows and raters in columns.

    Raises
    ------
    DataError
        If all scores are equal.
    """
    if np.ptp(matrix.values) == 0.0:
        raise DataError("all scores are equal, so there is no variance to divide into components")
    return TwoWayMeanSquares.of(matrix.values, "object", "rater")


def two_way_components(matrix: ItemScores) -> VarianceComponents:
    """Return the components of object, item and residual.

    Parameters
    ----------
    matrix : scores, nan where there is none

    Raises
    ------
    DataError
        If all scores are equal, if the components cannot be distinguished with these cells, as
        where every object has one score, or if no degrees of freedom are left for the residual.

    Warns
    -----
    VcompWarning
        If the estimation did not converge.
    """
    return _components(matrix, ("object", "item"))


def one_way_components(matrix: ItemScores) -> VarianceComponents:
    """Return the components of object and residual, with items as replicates."""
    return _components(matrix, ("object",))


def _components(matrix: ItemScores, facets: tuple[str, ...]) -> VarianceComponents:
    estimated = matrix_components(matrix.values, facets)
    if estimated is not None:
        return estimated
    rows, columns = np.nonzero(~np.isnan(matrix.values))
    if rows.size == 0:
        raise DataError("no object has a score on any item")
    scores = matrix.values[rows, columns]
    if np.ptp(scores) == 0.0:
        raise DataError("all scores are equal, so there is no variance to divide into components")
    levels = {"object": rows, "item": columns}
    try:
        chosen = {facet: levels[facet] for facet in facets}
        components, _ = crossed_components(scores, chosen, "reml")
        return components
    except DesignError as error:
        raise DataError(
            "variance components cannot be estimated from the available scores: "
            f"{_without_advice(error)}"
        ) from error
    except EstimationError as error:
        raise DataError(
            f"REML has no estimate from the available scores: {_without_advice(error)}; "
            "missing='listwise' uses the objects that have all scores"
        ) from error


def _without_advice(error: Exception) -> str:
    """Return the reason that an error of a fit has, without what to change in a formula."""
    return str(error).partition("; leave ")[0].partition("; keep one")[0]
