"""The result of a fit: a façade that names, labels and delegates.

Its parts are :mod:`~vcomp.model.fitted` (estimates), :mod:`~vcomp.model.inference` (intervals
and tests), :mod:`~vcomp.model.decisions` (D-studies, rank accuracy),
:mod:`~vcomp.model.decisions` (more measures of accuracy) and
:mod:`~vcomp.model.predictions` (what needs the rows).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcomp import display
from vcomp.model import tables
from vcomp.model.by_levels import ByLevels
from vcomp.model.decisions import Accuracies
from vcomp.model.fixed_tables import Hypotheses
from vcomp.model.inference import IntervalMethod
from vcomp.model.predictions import Predictions
from vcomp.model.record import FitRecord
from vcomp.model.storage import read_json, write_json

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from vcomp.model.pictures import PictureName


class VarianceComponentsResults(Accuracies, Hypotheses, ByLevels, Predictions, display.Printed):
    """Variance components with their uncertainty, and what follows from them.

    Made by :meth:`VarianceComponentsModel.fit` and :func:`vcomp.fit`. What needs no rows (tables,
    D-studies, rank accuracy, the summary) also works after pickling or :meth:`from_json`.

    Examples
    --------
    >>> import vcomp
    >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
    >>> res.vcomp.round(5)
    sys         0.00973
    topic       0.00176
    Residual    0.00687
    Name: variance, dtype: float64
    >>> res.converged, res.status
    (True, 'Converged.')
    """

    # Tables ---------------------------------------------------------------------------------

    def tidy(self, alpha: float = 0.05, interval: IntervalMethod = "auto") -> pd.DataFrame:
        """Return a row a parameter: term, kind, estimate, std_error, conf_low, conf_high.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        interval : how intervals of components are made, as in :meth:`conf_int`

        Raises
        ------
        EstimationError, PlanError
            As :meth:`conf_int`.
        """
        return tables.tidy(self, alpha, interval)

    def glance(self) -> pd.DataFrame:
        """Return one row: method, nobs, df_resid, llf, aic, bic, converged, status."""
        return tables.glance(self)

    def summary(self, alpha: float = 0.05, interval: IntervalMethod = "auto") -> Any:
        """Return a summary on statsmodels' table classes: ``print`` it, or ``.as_html()``.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        interval : how intervals of components are made, as in :meth:`conf_int`

        Raises
        ------
        EstimationError, PlanError
            As :meth:`conf_int`.
        """
        from vcomp.model.summary import summary

        return summary(self, alpha, interval)

    def plot(
        self,
        kind: PictureName = "components",
        *,
        term: str | None = None,
        alpha: float = 0.05,
        interval: IntervalMethod = "auto",
        ax: Any | None = None,
    ) -> Any:
        """Draw the components, or the predicted effects of a term, with their intervals.

        Parameters
        ----------
        kind : ``"components"`` draws :meth:`gstudy`; ``"effects"`` the predicted effects of a
            term, sorted, with estimate ± z se of the prediction error
        term : of the effects; may be left out where the model has one
        alpha : intervals have confidence 1 − alpha
        interval : how intervals of components are made, see :meth:`conf_int`
        ax : matplotlib axes to draw on; those of a new figure if None

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        DataError
            If the term is not one of the model's, or the result was loaded without its rows, which
            predicted effects need.
        PlanError
            If alpha is not between 0 and 1.
        VcompError
            If the kind is not known, a term or an interval is given that does not belong to it, or
            matplotlib is not installed.

        Examples
        --------
        >>> import vcomp
        >>> from matplotlib.figure import Figure
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
        >>> ax = res.plot("effects", term="sys", ax=Figure().subplots())
        >>> print(ax.get_xlabel())
        predicted effect of sys, 95 % interval
        """
        from vcomp.model.pictures import draw

        return draw(self, kind, term, alpha, interval, ax)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.formula} by {self.method.upper()}>"

    # Travel -----------------------------------------------------------------------------------

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the result as JSON text, without the rows; also write it to `path` if given."""
        return write_json(self._record, path)

    @classmethod
    def from_json(cls, source: str | Path) -> VarianceComponentsResults:
        """Return a result from JSON text or from the file that :meth:`to_json` wrote.

        Parameters
        ----------
        source : JSON text, or path of a file

        Raises
        ------
        DataError
            If it is not such a text or file, or has another version of the format.
        """
        return cls(read_json(FitRecord, source))

    def __copy__(self) -> VarianceComponentsResults:
        return type(self)(self._record, self._rows)

    def __deepcopy__(self, memo: dict[int, Any]) -> VarianceComponentsResults:
        # Nothing in a result can be changed; the rows are shared.
        return self.__copy__()

    def __getstate__(self) -> dict[str, Any]:
        return {"_record": self._record, "_rows": None}
