"""Rows with fitted values and residuals: as a frame, or written to a file a batch at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.data import (
    CompleteRows,
    Reading,
    fixed_columns,
    parquet_path,
    refuse_to_replace,
    write_parquet,
)
from vcomp.design import Design, centred_matrix, facet_codes, term_codes
from vcomp.estimators.likelihood import Solution
from vcomp.exceptions import DataError
from vcomp.model.prediction import fitted_values
from vcomp.model.row_access import FittedModel, RowAccess

if TYPE_CHECKING:
    import pandas as pd

_ROWS = 262_144
"""Of a row group, where rows are in memory."""

_INSTEAD = "a path on a disk with more room"


def augment(access: RowAccess) -> pd.DataFrame:
    """Return response, facets, fitted values and residuals of the rows that were used."""
    import pandas as pd

    check_columns(access.model.design)
    rows, response = access.model.rows, access.model.design.formula.response
    fitted = fitted_values(access).to_numpy()
    facets = {name: column.to_numpy() for name, column in rows.facets.items()}
    columns: dict[str, Any] = {response: rows.y.copy(), **facets}
    columns |= {"fitted": fitted, "resid": rows.y - fitted}
    return pd.DataFrame(columns, index=rows.labels)


def check_columns(design: Design) -> None:
    """Refuse columns of the data that have the name of the fitted values or residuals.

    Raises
    ------
    DataError
    """
    formula = design.formula
    clashing = {"fitted", "resid"}.intersection([formula.response, *formula.facets])
    if clashing:
        name = min(clashing)
        raise DataError(
            f"the column {name!r} of the data has the name of one that is added; rename it"
        )


def write_augmented(access: RowAccess, to: str | os.PathLike[str], progress: bool | None) -> Path:
    """Write a row a score to a Parquet file, a batch at a time.

    Parameters
    ----------
    access : model and components
    to, progress : as of ``VarianceComponentsResults.augment``

    Returns
    -------
    the path
    """
    Reading(progress=progress)  # refuses other values before anything is read
    target = parquet_path(to, "to")
    kept = access.model.keeps_rows
    frames = _kept(access, target) if kept else _streamed(access, target, progress)
    write_parquet(frames, target, _INSTEAD)
    return target


def _kept(access: RowAccess, target: Path) -> Iterator[pd.DataFrame]:
    refuse_to_replace(target, access.model.rows.files)
    frame = augment(access).reset_index(drop=True)
    for first in range(0, len(frame), _ROWS):
        yield frame.iloc[first : first + _ROWS]


def _streamed(access: RowAccess, target: Path, progress: bool | None) -> Iterator[pd.DataFrame]:
    """Yield the rows of the fit in batches, after the effects were solved for.

    Raises
    ------
    DataError
        If the rows cannot be read again, have changed, or are in the file itself.
    """
    model, n = access.model, 0
    check_columns(model.design)
    batches = model.batches(progress)
    refuse_to_replace(target, batches.files)
    solution = access.solution
    for part in batches.each():
        n += part.y.size
        if part.y.size:
            yield _augmented(model, solution, part)
    if n != model.design.structure.n_rows:
        raise DataError(
            f"the fit is of {model.design.structure.n_rows:,} rows, and {n:,} were read now; they "
            "have to stay as they were"
        )


def _augmented(model: FittedModel, solution: Solution, part: CompleteRows) -> pd.DataFrame:
    """Return response, facets, fitted values and residuals of some rows."""
    import pandas as pd

    design = model.design
    codes = [np.asarray(facet_codes(f, part.frame[f.name])) for f in design.facets]
    fitted = _fitted(design, solution, codes, _matrix(model, part))
    columns: dict[str, Any] = {design.formula.response: part.y}
    for facet, found in zip(design.facets, codes, strict=True):
        columns[facet.name] = pd.Categorical.from_codes(found, categories=facet.levels)
    return pd.DataFrame(columns | {"fitted": fitted, "resid": part.y - fitted}, copy=False)


def _matrix(model: FittedModel, part: CompleteRows) -> FloatArray:
    fixed = fixed_columns(model.design.formula, part.frame, model.fixed_columns)
    return centred_matrix(model.design, fixed, part.y.size)


def _fitted(design: Design, solution: Solution, codes: list[Any], X: FloatArray) -> FloatArray:
    fitted: FloatArray = design.origin + X @ solution.beta
    for term, effects in zip(design.terms, solution.effects, strict=True):
        groups = term_codes(term, codes, design.n_levels)
        if groups.min() < 0:
            raise DataError(
                f"term {term.name!r} has a level, or a combination, that was not there when the "
                "rows were fitted; they have to stay as they were"
            )
        fitted += effects[groups]
    return fitted
