"""Which measures are compared: responses, groups of rows, or data by name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp.exceptions import DataError, FormulaError
from vcomp.formula import parse
from vcomp.io import Source, open_source
from vcomp.ir import ScoreMatrix, as_score_matrix
from vcomp.notation import parse_design
from vcomp.results.results import VarianceComponentsResults

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Measure", "measures_of"]

MATRIX_FORMULA = "score ~ (1|sys) + (1|topic)"
"""The model of a topic × system matrix."""


@dataclass(frozen=True, slots=True, eq=False)
class Measure:
    """What is fitted under a name.

    Attributes
    ----------
    name : of the measure
    formula : of its model; or its design in Brennan's notation, with the response apart
    data : its rows; or a result that is there already
    labels : the columns that tell it from others, ``{"track": "web"}``
    response : of a design, else None
    """

    name: str
    formula: str
    data: Any
    labels: Mapping[str, Any] = field(default_factory=dict)
    response: str | None = None


def measures_of(
    data: Any,
    formula: str | None,
    responses: str | Sequence[str] | Mapping[str, str] | None,
    by: str | Sequence[str] | None,
) -> list[Measure]:
    """Return the measures, two or more, of different names.

    Parameters
    ----------
    data : a mapping of names to data, matrices or results; or one table
    formula : of the model, or a design; None for matrices and results
    responses : columns of the one table, under their names or those of a mapping
    by : columns of the one table whose levels are the groups

    Raises
    ------
    DataError
        If a column is not there, or there are fewer than two measures.
    FormulaError
        If there is no formula where one is needed.
    """
    if isinstance(data, str) and "~" in data and "|" in data:  # ~/scores.csv is a path
        raise FormulaError(
            f"the formula comes second, after the data: compare_measures(data, {data!r}, ...)"
        )
    if isinstance(formula, str) and "~" not in formula and responses is None:
        raise FormulaError(
            f"{formula!r} has no ~: write a formula such as 'score ~ (1|sys) + (1|topic)', or "
            "with a design in Brennan's notation say which columns are the scores, "
            "responses=['ap', 'p20']"
        )
    if responses is None and by is None:
        measures = _named(data, formula)
    else:
        if formula is None:
            raise FormulaError(
                "responses= and by= need a formula, such as '~ (1|sys) + (1|topic)'"
            )
        measures = _of_one_table(data, formula, responses, by)
    if len(measures) < 2:
        which = repr(measures[0].name) if measures else "none"
        raise DataError(
            f"a comparison needs two measures or more, and there is {which}; vcomp.fit() fits one"
        )
    return measures


# Data by name -----------------------------------------------------------------------------------


def _named(data: Any, formula: str | None) -> list[Measure]:
    if not isinstance(data, Mapping) or not data:
        raise DataError(
            "data are a mapping of names to tables, {'AP': ap, 'P@20': p20}; of one table say "
            "which columns are the measures, responses=['ap', 'p20'], or what groups it, "
            f"by='track'; given was {type(data).__name__}"
        )
    if formula is not None and all(_is_column(value) for value in data.values()):
        raise DataError(
            "data are one table, a mapping of columns: say which are the measures, "
            "responses=['ap', 'p20'], or what groups it, by='track'"
        )
    measures = []
    for name, value in data.items():
        if isinstance(value, VarianceComponentsResults):
            measures.append(Measure(str(name), value.formula, value))
        elif formula is not None:
            measures.append(Measure(str(name), formula, _rows(value)))
        else:
            measures.append(Measure(str(name), MATRIX_FORMULA, _matrix(str(name), value)))
    return _distinct(measures)


def _is_column(value: Any) -> bool:
    return isinstance(value, list | tuple) or getattr(value, "ndim", 0) == 1


def _rows(value: Any) -> Any:
    return _long(value) if isinstance(value, ScoreMatrix) else value


def _matrix(name: str, value: Any) -> Any:
    """Return the rows of a topic × system matrix, also of one in a file."""
    try:
        if isinstance(value, str | os.PathLike):
            source = open_source(value)
            value = source.read(source.columns)
        return _long(as_score_matrix(value))
    except DataError as error:
        raise DataError(
            f"measure {name!r}: without a formula data are topic × system matrices, and {error}"
        ) from None


def _long(matrix: ScoreMatrix) -> pd.DataFrame:
    """Return a row a score; what is missing is left out."""
    import pandas as pd

    topics = np.repeat(np.arange(matrix.n_topics), matrix.n_systems)
    systems = np.tile(np.arange(matrix.n_systems), matrix.n_topics)
    there = ~np.isnan(matrix.scores.ravel())
    return pd.DataFrame(
        {
            "sys": pd.Categorical.from_codes(systems, categories=pd.Index(matrix.systems)),
            "topic": pd.Categorical.from_codes(topics, categories=pd.Index(matrix.topics)),
            "score": matrix.scores.ravel(),
        }
    )[there]


# Parts of one table -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Model:
    """A response with its formula, or with a design that its formula is written from."""

    name: str
    formula: str
    response: str | None

    @property
    def facets(self) -> tuple[str, ...]:
        """The grouping columns."""
        if self.response is None:
            return parse(self.formula).facets
        return parse_design(self.formula).facets


def _of_one_table(
    data: Any,
    formula: str,
    responses: str | Sequence[str] | Mapping[str, str] | None,
    by: str | Sequence[str] | None,
) -> list[Measure]:
    source = open_source(data)
    models = _models(source, formula, responses)
    groups = _names("by", by)
    for column in (*groups, *(f for model in models for f in model.facets)):
        if column not in source.columns:
            raise source.no_column(column)
    frame = source.read(_used(source, models, groups))
    if not groups:
        return [Measure(m.name, m.formula, frame, response=m.response) for m in models]
    n_missing = int(frame[groups].isna().any(axis=1).sum())
    if n_missing:
        raise DataError(f"{n_missing:,} rows have no value in {' or '.join(map(repr, groups))}")
    used = [g for g in groups if any(g in m.facets for m in models)]
    if used:
        raise DataError(
            f"by={used[0]!r} is a facet of the formula, of which a group has one level; "
            "leave it out of one of them"
        )
    measures = []
    for model, (key, part) in product(models, list(frame.groupby(groups, observed=True))):
        labels = dict(zip(groups, key if isinstance(key, tuple) else (key,), strict=True))
        words = [*([model.name] if len(models) > 1 else []), *map(str, labels.values())]
        both = {"response": model.name, **labels} if len(models) > 1 else labels
        rows = part.reset_index(drop=True)
        measures.append(Measure(", ".join(words), model.formula, rows, both, model.response))
    return _distinct(measures)


def _models(
    source: Source, formula: str, responses: str | Sequence[str] | Mapping[str, str] | None
) -> list[_Model]:
    """Return what is fitted to the rows, under its name."""
    left, tilde, right = formula.partition("~")
    if responses is None:
        return [_Model(left.strip(), formula, None)]
    if isinstance(responses, Mapping):
        pairs = [(str(name), column) for name, column in responses.items()]
    else:
        pairs = [(column, column) for column in _names("responses", responses)]
    for _, column in pairs:
        if column not in source.columns:
            raise source.no_column(column)
    if not tilde:
        return [_Model(name, formula, _quoted(column)) for name, column in pairs]
    return [_Model(name, f"{_quoted(column)} ~{right}", None) for name, column in pairs]


def _quoted(column: str) -> str:
    return column if column.isidentifier() else f"Q({column!r})"


def _names(what: str, given: str | Sequence[str] | None) -> list[str]:
    if given is not None and not isinstance(given, Iterable):
        raise DataError(f"{what} is a column or a list of columns, not {given!r}")
    names = [given] if isinstance(given, str) else [] if given is None else list(given)
    for name in names:
        if not isinstance(name, str):
            raise DataError(f"{what} names columns, and {name!r} is no text")
        if names.count(name) > 1:
            raise DataError(f"{what} names {name!r} twice")
    return names


def _used(source: Source, models: Sequence[_Model], groups: Sequence[str]) -> list[str]:
    """Return the columns that are read: those that a formula may mean."""
    texts = [f"{m.formula} {m.response or ''}" for m in models]
    return [c for c in source.columns if c in groups or any(c in text for text in texts)]


def _distinct(measures: list[Measure]) -> list[Measure]:
    names = [m.name for m in measures]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise DataError(f"two measures are called {twice!r}")
    return measures
