"""What a result can say of rows, as long as its model is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from vcomp._typing import FloatArray
from vcomp.design import Chunk, Design, Rows
from vcomp.estimators.choose import prediction_engine
from vcomp.estimators.engine import Solution
from vcomp.estimators.estimate import Estimate
from vcomp.estimators.refit import Negative
from vcomp.estimators.registry import Estimator
from vcomp.exceptions import EstimationError
from vcomp.linalg.dense import solve_positive
from vcomp.resampling import Generating, Recipe, positive_part, simulate_responses
from vcomp.results.augmented import check_columns
from vcomp.results.prediction import predict
from vcomp.statistics import Statistics
from vcomp.statistics.gather import Batches

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RowAccess"]


class FittedModel(Protocol):
    """What is needed of a model."""

    design: Design
    statistics: Statistics

    @property
    def rows(self) -> Rows: ...

    @property
    def chunk(self) -> Chunk: ...

    @property
    def fixed_columns(self) -> Mapping[str, Any]: ...

    environment: Any

    @property
    def keeps_rows(self) -> bool: ...

    def batches(self, progress: bool | None = False) -> Batches: ...


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

    def generating(self) -> Generating:
        """Return what data are drawn from, and estimated again."""
        estimate, design = self.estimate, self.model.design

        def uncentred(beta: FloatArray) -> FloatArray:
            return design.uncentre(beta, np.zeros((beta.size, beta.size)))[0]

        return Generating(
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
