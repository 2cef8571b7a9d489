"""What needs the rows: predicted effects, fitted values, predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcomp.results.fitted import FittedComponents

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Predictions"]


class Predictions(FittedComponents):
    """Predicted effects, fitted values and predictions of a fit whose rows are there."""

    @property
    def random_effects(self) -> dict[str, pd.DataFrame]:
        """Predicted effects (BLUPs) of every term.

        Frames with the levels as index and the columns ``estimate``, ``se`` (of the prediction
        error, fixed effects estimated) and ``conditional_se`` (fixed effects taken as known: what
        lme4 prints). Both are nan where effects can only be solved for iteratively: each would
        need a solve of its own.
        """
        return self._access().random_effects()

    @property
    def fittedvalues(self) -> pd.Series:
        """Fixed part plus predicted effects of every row that was used."""
        return self._access().fitted_values()

    @property
    def resid(self) -> pd.Series:
        """Response less :attr:`fittedvalues`."""
        return self._access().residuals()

    def predict(self, data: Any = None) -> pd.Series:
        """Return fixed part plus predicted effects for new rows.

        Parameters
        ----------
        data : rows with the columns of the formula (the response may be absent), in any
            container that :func:`vcomp.fit` takes; None for the rows that were used. A level that
            the fit has not seen contributes nothing: the best prediction of its effect is zero

        Raises
        ------
        DataError
            If a column is missing, or the result was loaded without its rows.
        """
        return self._access().predict(data)

    def augment(self) -> pd.DataFrame:
        """Return a row a score: response, facets, fitted, resid."""
        return self._access().augment()
