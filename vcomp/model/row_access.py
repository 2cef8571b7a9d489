"""Predictions, fitted values and residuals of the rows, while their model is in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from vcomp._typing import FloatArray
from vcomp.data import (
    CompleteRows,
    Reading,
    Rows,
    fixed_columns,
    parquet_path,
    refuse_to_replace,
    write_parquet,
)
from vcomp.design import Chunk, Design, centred_matrix, facet_codes, term_codes
from vcomp.estimators import Estimate, Estimator, Negative
from vcomp.estimators.likelihood import Solution, prediction_engine
from vcomp.exceptions import DataError, EstimationError
from vcomp.inference.resampling import GeneratingFit, Recipe, positive_part, simulate_responses
from vcomp.model.prediction import predict
from vcomp.numerics import solve_positive
from vcomp.statistics import Statistics
from vcomp.statistics.batches import Batches

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.model.fitted import FittedComponents

_ROWS = 262_144
"""Of a row group, where rows are in memory."""

_INSTEAD = "a path on a disk with more room"


def check_columns(design: Design) -> None:
    """Refuse names that the columns of fitted values and residuals have.

    Raises
    ------
    DataError
    """
    formula = design.formula
    used = {"fitted", "resid"}.intersection([formula.response, *formula.facets])
    if used:
        name = min(used)
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
    frame = access.augment().reset_index(drop=True)
    for first in range(0, len(frame), _ROWS):
        yield frame.iloc[first : first + _ROWS]


def _streamed(access: RowAccess, target: Path, progress: bool | None) -> Iterator[pd.DataFrame]:
    """Yield the rows of the fit in batches; nothing is written before effects are there.

    Raises
    ------
    DataError
        If the rows cannot be read again, are others than before, or are in the file itself.
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


class FittedModel(Protocol):
    """What is needed of a model."""

    design: Design
    statistics: Statistics

    @property
    def rows(self) -> Rows:
        """The rows of the fit."""

    @property
    def chunk(self) -> Chunk:
        """The rows as codes of levels."""

    @property
    def fixed_columns(self) -> Mapping[str, Any]:
        """Columns of the fixed part by name."""

    @property
    def reading(self) -> Reading:
        """How the rows were read."""

    @property
    def keeps_rows(self) -> bool:
        """Whether the rows are in memory."""

    def batches(self, progress: bool | None = False) -> Batches:
        """Return the rows in batches."""


@dataclass(frozen=True, slots=True)
class RowAccess:
    """The model of a fit with its components: predicted effects, fitted values, predictions.

    Attributes
    ----------
    model : that was fitted
    estimate : of its components, fixed effects as of the centred columns of X
    estimator, negative : how it was made
    """

    model: FittedModel
    estimate: Estimate
    estimator: Estimator
    negative: Negative = "keep"

    def recipe(self) -> Recipe:
        """Return how the fit was made, so that it can be made again."""
        return Recipe(self.estimator, self.estimate.names, self.negative)

    def generating(self) -> GeneratingFit:
        """Return what data are drawn from, and estimated again."""
        estimate, design = self.estimate, self.model.design

        def uncentred(beta: FloatArray) -> FloatArray:
            return design.uncentre(beta, np.zeros((beta.size, beta.size)))[0]

        return GeneratingFit(
            stats=self.model.statistics,
            recipe=self.recipe(),
            values=estimate.values,
            beta=estimate.beta,
            fixed_names=design.fixed.names,
            uncentre=uncentred,
            formula=design.formula.text,
        )

    def simulate(self, n: int, rng: int | np.random.Generator | None) -> pd.DataFrame:
        """Return new responses, a column each."""
        import pandas as pd

        estimate, rows = self.estimate, self.model.rows
        v = positive_part(estimate.values, estimate.names)
        responses = simulate_responses(self.model.chunk, v, estimate.beta, n, rng)
        return pd.DataFrame(responses, index=rows.labels, copy=False)

    def random_effects(self) -> dict[str, pd.DataFrame]:
        """Return a frame of predicted effects for every term."""
        import pandas as pd

        solution, design = self.solution, self.model.design
        return {
            term.name: pd.DataFrame(
                {
                    "estimate": solution.effects[t],
                    "se": np.sqrt(solution.prediction_var[t]),
                    "conditional_se": np.sqrt(solution.conditional_var[t]),
                },
                index=design.group_index(t),
            )
            for t, term in enumerate(design.terms)
        }

    def response(self) -> pd.Series:
        """Return the response of the rows that were used."""
        import pandas as pd

        rows = self.model.rows
        return pd.Series(rows.y.copy(), rows.labels, name=self.model.design.formula.response)

    def fitted_values(self) -> pd.Series:
        """Return fixed part plus predicted effects of the rows that were used."""
        return predict(self, None, "all", "zero").rename("fittedvalues")

    def residuals(self) -> pd.Series:
        """Return response less fitted values."""
        import pandas as pd

        rest = self.model.rows.y - self.fitted_values().to_numpy()
        return pd.Series(rest, self.model.rows.labels, name="resid")

    def augment(self) -> pd.DataFrame:
        """Return response, facets, fitted values and residuals."""
        import pandas as pd

        check_columns(self.model.design)
        rows, y, fitted = self.model.rows, self.response(), self.fitted_values().to_numpy()
        facets = {name: column.to_numpy() for name, column in rows.facets.items()}
        columns: dict[str, Any] = {str(y.name): y.to_numpy(), **facets}
        columns |= {"fitted": fitted, "resid": y.to_numpy() - fitted}
        return pd.DataFrame(columns, index=rows.labels)

    @property
    def components(self) -> FloatArray:
        """The estimates, negative ones as zero.

        Raises
        ------
        EstimationError
            If the residual is not positive, and the others are not all zero.
        """
        v: FloatArray = np.maximum(self.estimate.values, 0.0)
        if v[-1] == 0.0 and v.any():
            raise EstimationError(
                "effects cannot be predicted where the residual variance is estimated at 0"
            )
        return v

    @property
    def solution(self) -> Solution:
        """The solution of Henderson's equations at the estimates, negative ones as zero."""
        v = self.components
        return prediction_engine(self.model.statistics).solution(v) if v.any() else self._nothing()

    def _nothing(self) -> Solution:
        stats = self.model.statistics
        zeros = tuple(np.zeros(q) for q in stats.sizes)
        beta = solve_positive(stats.XX, stats.Xy)
        return Solution(beta, np.zeros((beta.size, beta.size)), zeros, zeros, zeros)


def fitted_again(res: FittedComponents) -> tuple[GeneratingFit, Design]:
    """Return how a fit was made, with the statistics of its rows, and the design of its data.

    Parameters
    ----------
    res : the fit

    Raises
    ------
    DataError
        If the result was loaded without its rows.
    """
    access = res._access()
    return access.generating(), access.model.design
