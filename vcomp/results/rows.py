"""What a result can say of rows, as long as its model is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from vcomp._typing import FloatArray
from vcomp.design import Chunk, Design, Rows
from vcomp.design.design import term_codes
from vcomp.design.encode import facet_codes
from vcomp.design.rows import select_predictors
from vcomp.estimators.choose import prediction_engine
from vcomp.estimators.engine import Solution
from vcomp.estimators.estimate import Estimate
from vcomp.exceptions import EstimationError, warn
from vcomp.linalg.dense import solve_positive
from vcomp.statistics import Statistics

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RowAccess"]


class FittedModel(Protocol):
    """What is needed of a model."""

    design: Design
    rows: Rows
    chunk: Chunk
    statistics: Statistics
    environment: Any


@dataclass(frozen=True, slots=True)
class RowAccess:
    """The model of a fit with its components: predicted effects, fitted values, predictions."""

    model: FittedModel
    estimate: Estimate

    def random_effects(self) -> dict[str, pd.DataFrame]:
        """Return a frame of predicted effects for every term."""
        import pandas as pd

        solution, design = self._solution(), self.model.design
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
        import pandas as pd

        chunk, solution = self.model.chunk, self._solution()
        fitted = self.model.design.origin + chunk.X @ solution.beta
        for codes, effects in zip(chunk.codes, solution.effects, strict=True):
            fitted = fitted + effects[codes]
        return pd.Series(fitted, self.model.rows.labels, name="fittedvalues")

    def residuals(self) -> pd.Series:
        """Return response less fitted values."""
        import pandas as pd

        rest = self.model.rows.y - self.fitted_values().to_numpy()
        return pd.Series(rest, self.model.rows.labels, name="resid")

    def predict(self, data: Any) -> pd.Series:
        """Return predictions for new rows, unseen levels contributing nothing."""
        import pandas as pd

        if data is None:
            return self.fitted_values().rename("predicted")
        design, solution = self.model.design, self._solution()
        facets, fixed, labels = select_predictors(
            design.formula, data, self.model.environment, self.model.rows.fixed
        )
        X = design.fixed.matrix(fixed, len(labels)) - design.x_origin
        predicted = design.origin + X @ solution.beta
        codes = [facet_codes(facet, facets[facet.name]) for facet in design.facets]
        for facet, known in zip(design.facets, codes, strict=True):
            if known.size and (known < 0).all():
                warn(
                    f"no level of facet {facet.name!r} was there in the fit (levels such as "
                    f"{facet.levels[0]!r}): its effects are predicted as zero"
                )
        for term, effects in zip(design.terms, solution.effects, strict=True):
            groups = term_codes(term, codes, design.n_levels)
            predicted = predicted + np.where(groups < 0, 0.0, effects[groups])
        return pd.Series(predicted, labels, name="predicted")

    def augment(self) -> pd.DataFrame:
        """Return response, facets, fitted values and residuals."""
        import pandas as pd

        rows, y, fitted = self.model.rows, self.response(), self.fitted_values().to_numpy()
        facets = {name: column.to_numpy() for name, column in rows.facets.items()}
        columns: dict[str, Any] = {str(y.name): y.to_numpy(), **facets}
        columns |= {"fitted": fitted, "resid": y.to_numpy() - fitted}
        return pd.DataFrame(columns, index=rows.labels)

    def _solution(self) -> Solution:
        """Solve Henderson's equations at the estimates, negative ones as zero."""
        v: FloatArray = np.maximum(self.estimate.values, 0.0)
        if v[-1] == 0.0:
            if (v == 0.0).all():
                return self._nothing()
            raise EstimationError(
                "effects cannot be predicted where the residual variance is estimated at 0"
            )
        return prediction_engine(self.model.statistics).solution(v)

    def _nothing(self) -> Solution:
        stats = self.model.statistics
        zeros = tuple(np.zeros(q) for q in stats.sizes)
        beta = solve_positive(stats.XX, stats.Xy)
        return Solution(beta, np.zeros((beta.size, beta.size)), zeros, zeros, zeros)
