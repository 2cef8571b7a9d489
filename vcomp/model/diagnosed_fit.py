"""The diagnosis of a fit: its predicted effects, rows and tables of crossed facets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vcomp.design import Chunk, Design
from vcomp.estimators.likelihood import Solution
from vcomp.exceptions import EstimationError, PlanError, did_you_mean
from vcomp.inference.assumptions import (
    CrossedTable,
    DiagnosedRows,
    Diagnosis,
    PredictedEffects,
    Projection,
    assess,
)
from vcomp.model.row_access import RowAccess
from vcomp.numerics import check_memory, limited_blas, seed_from

_FEWEST, _FILLED = 3, 0.5
"""A table has so many levels of both facets, and this share of its cells is filled."""

_ROUNDING = 1e-8
_LARGEST_TABLE = 2_000_000
_BYTES_A_ROW = 8.0 * 60


def diagnose(
    access: RowAccess, object_: str | None, n: int | None, rng: int | np.random.Generator | None
) -> Diagnosis:
    """Return the diagnosis of a fit; see :meth:`VarianceComponentsResults.diagnose`.

    Parameters
    ----------
    access : model and estimate
    object_ : facet in the columns of tables; None for the first of the formula
    n : number of draws of each null distribution, or None
    rng : seed or generator
    """
    model, seed = access.model, seed_from(rng)
    design = model.design
    names = [facet.name for facet in design.facets]
    if not names:
        raise EstimationError("the model has no random term, so that there is nothing to diagnose")
    if object_ is not None and object_ not in names:
        raise PlanError(
            f"object={object_!r} is not a facet of the fit{did_you_mean(object_, names)}; facets "
            f"are {', '.join(names)}",
            column=object_,
        )
    chunk, rows = model.chunk, model.rows
    check_memory(
        _BYTES_A_ROW * rows.y.size, f"the diagnosis of {rows.y.size:,} rows needs",
        "diagnose a part of the data", EstimationError,
    )  # fmt: skip
    with limited_blas(0):
        solution = access.solution
        diagnosed = _rows(design, chunk, rows.labels)
        tables, left = _tables(design, chunk, solution, object_ or _first(design))
        effects = _effects(access, solution)
        title = design.structure.title()
        return assess(title, effects, diagnosed, tables, left, n=n, seed=seed)


def _first(design: Design) -> str:
    """Return the facet that comes first in the formula."""
    return str(design.formula.facets[0])


def _effects(access: RowAccess, solution: Solution) -> list[PredictedEffects]:
    """Return the predicted effects, each in units of its standard deviation under the model.

    A predicted effect has the variance σ² less that of its prediction error.
    """
    design, components = access.model.design, access.components
    found = []
    for t in range(len(design.terms)):
        values, of_error = solution.effects[t], solution.prediction_var[t]
        variance = components[t] - of_error
        is_known = bool(np.isfinite(of_error).all()) and components[t] > 0.0
        if is_known:
            scale = np.sqrt(np.maximum(variance, 1e-12 * components[t]))
            known = float((variance / components[t]).mean())
            values = values / scale
        index = design.group_index(t)
        found.append(
            PredictedEffects(
                access.estimate.names[t],
                np.asarray(values),
                known if is_known else np.nan,
                _label(index),
            )
        )
    return found


def _label(index: Any) -> Any:
    def label(number: int) -> str:
        level = index[number]
        return ":".join(map(str, level)) if isinstance(level, tuple) else str(level)

    return label


def _rows(design: Design, chunk: Chunk, names: Any) -> DiagnosedRows:
    structure = design.structure
    codes = {f.name: chunk.level_codes(k).astype(np.int64) for k, f in enumerate(design.facets)}
    crossed: dict[str, list[str]] = {name: [] for name in codes}
    for a, b in (*structure.fully_crossed, *structure.partly_crossed):
        crossed[a].append(b)
        crossed[b].append(a)
    levels = [chunk.level_codes(k) for k in range(len(design.facets))]
    groups = [term.groups(levels, design.n_levels).astype(np.int64) for term in design.terms]
    labels = {f.name: [str(level) for level in f.levels] for f in design.facets}
    return DiagnosedRows(
        chunk.y, codes, labels, groups, chunk.X, crossed, names, float(design.origin)
    )


def _tables(
    design: Design,
    chunk: Chunk,
    solution: Solution,
    object_: str,
    *,
    most_cells: int = _LARGEST_TABLE,
) -> tuple[list[CrossedTable], list[str]]:
    """Return the tables of every two crossed facets, and what cannot be tested."""
    structure, names = design.structure, [f.name for f in design.facets]
    outer = [name for name in design.formula.facets if not structure.nested_in[name]]
    order = sorted(outer, key=lambda name: name != object_)
    tables, left = [], []
    for k, column in enumerate(order):
        for row in order[k + 1 :]:
            places = names.index(column), names.index(row)
            sizes = design.n_levels[places[1]], design.n_levels[places[0]]
            what = f"Additivity and correlations of {column} and {row} are not tested: "
            if min(sizes) < _FEWEST:
                left.append(what + f"each needs {_FEWEST} levels.")
                continue
            if len(names) > 2 and not structure.balanced:
                left.append(what + "with more than two facets that needs balanced data.")
                continue
            if sizes[0] * sizes[1] > most_cells:
                left.append(what + "the table is too large.")
                continue
            table = _cell_means(design, chunk, solution, places)
            if table.observed.mean() < _FILLED or table.df < 2.0:
                left.append(what + "more than half of the cells are empty.")
                continue
            tables.append(table)
    return tables, left


def _cell_means(
    design: Design, chunk: Chunk, solution: Solution, places: Sequence[int]
) -> CrossedTable:
    """Return the means of two facets' cells, of scores without the effects of covariates.

    Fixed effects that only rows or columns of the table have stay in.
    """
    column, row = (design.facets[k] for k in places)
    y = chunk.response
    of_cells = Projection.of([chunk.level_codes(k).astype(np.int64) for k in places]).residuals(
        chunk.X
    )
    # Each column in its own unit.
    if (np.abs(of_cells) > _ROUNDING * np.abs(chunk.X).max(axis=0, initial=0.0)).any():
        y = y - chunk.X @ solution.beta
    codes = chunk.level_codes(places[1]).astype(np.int64) * column.size
    codes = codes + chunk.level_codes(places[0])
    size = row.size * column.size
    counts = np.bincount(codes, minlength=size)
    sums = np.bincount(codes, y, minlength=size)
    means = np.divide(sums, counts, out=np.full(size, np.nan), where=counts > 0)
    return CrossedTable(
        row.name,
        column.name,
        tuple(map(str, row.levels)),
        tuple(map(str, column.levels)),
        means.reshape(row.size, column.size),
    )
