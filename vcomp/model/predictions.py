"""What needs the rows: predicted effects, fitted values, predictions."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from vcomp.model import prediction
from vcomp.model.fitted import FittedComponents
from vcomp.model.prediction import Level, NewLevels, Prediction
from vcomp.model.row_access import write_augmented

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


class Predictions(FittedComponents):
    """Predicted effects, fitted values and predictions of a fit whose rows are there."""

    @property
    def random_effects(self) -> dict[str, pd.DataFrame]:
        """Predicted effects (BLUPs) of every term.

        Frames with the levels as index and the columns ``estimate``, ``se`` (of the prediction
        error, fixed effects estimated) and ``conditional_se`` (fixed effects taken as known: what
        lme4 prints). Both are nan where effects can only be solved for iteratively: each would
        need a solve of its own.

        Rows that were not kept are not needed, however many the levels. But where cells were put
        together as they came and a term tells single cells, they are summed in one more pass, and
        refused if they do not fit into memory.
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

    def predict(
        self, data: Any = None, *, level: Level = "all", new_levels: NewLevels = "zero"
    ) -> pd.Series:
        """Return fixed part plus predicted effects for rows, seen or new.

        Parameters
        ----------
        data : rows with the columns of the formula (the response may be absent), in any
            container that :func:`vcomp.fit` takes; None for the rows that were used
        level : whose effects are added to the fixed part: ``"all"`` terms, those of one term or of
            a list of terms by name, or ``"population"``, none
        new_levels : what a level, or a combination of levels, that the fit has not seen does:
            ``"zero"`` predicts its effect by the best prediction, zero; ``"raise"`` refuses it

        Returns
        -------
        pandas.Series on the scale of the response

        Raises
        ------
        DataError
            If a column is missing, a term of `level` is not there, a level is new and
            ``new_levels="raise"``, or the result was loaded without its rows.

        Warns
        -----
        VcompWarning
            If no level of a facet was there in the fit.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
        >>> res.predict(data.head(3), level="sys").round(3).tolist()
        [0.624, 0.624, 0.624]
        """
        return prediction.predict(self._access(), data, level, new_levels)

    def get_prediction(
        self,
        data: Any = None,
        *,
        level: Level = "all",
        new_levels: NewLevels = "zero",
        alpha: float = 0.05,
    ) -> Prediction:
        """Return predictions with standard errors and intervals, as statsmodels does.

        Errors are those of the joint prediction (Henderson 1975, Biometrics 31, 423-447): effects
        of different terms and fixed effects err together. Components are taken as known, negative
        ones as zero.

        Parameters
        ----------
        data, level, new_levels : as for :meth:`predict`
        alpha : intervals have confidence 1 − alpha

        Returns
        -------
        Prediction
            with ``predicted_mean``, ``se_mean``, ``se_obs``, ``conf_int()``, ``summary_frame()``

        Raises
        ------
        DataError
            As for :meth:`predict`.
        PlanError
            If alpha is not between 0 and 1.
        EstimationError
            If the residual is estimated at zero; or if effects can only be solved for iteratively,
            and the rows are too many different combinations of them.
        """
        return prediction.get_prediction(self._access(), data, level, new_levels, alpha)

    @overload
    def augment(self, path: None = None, *, progress: bool | None = None) -> pd.DataFrame: ...

    @overload
    def augment(self, path: str | PathLike[str], *, progress: bool | None = None) -> Path: ...

    def augment(
        self, path: str | PathLike[str] | None = None, *, progress: bool | None = None
    ) -> pd.DataFrame | Path:
        """Return a row a score, or write it to a file: response, facets, fitted, resid.

        With `path` rows that were read in batches are read once more, and never are in memory as a
        whole. Effects come from the statistics of the fit; where these hold groups of cells only,
        and a term tells single cells, the cells are summed in another pass before.

        Parameters
        ----------
        path : of a Parquet file, ending in ``.parquet``, with the rows that were used in the
            order in which they were read; one that is there is replaced once the new one is whole
        progress : with `path`, whether to show a bar of the rows that are read; None for one on
            long runs where stderr is a terminal

        Returns
        -------
        pandas.DataFrame, indexed as the rows are; with `path` that path

        Raises
        ------
        DataError
            If the rows are not kept and `path` is not given, they cannot be read again (saved
            statistics, Dask) or are others than before, or the file cannot be written; nothing
            half-written is left.
        EstimationError
            If the residual is estimated at zero, so that effects cannot be predicted, or effects
            would not fit into memory.

        Examples
        --------
        >>> import tempfile, pathlib, vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data, stream=True)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = res.augment(path=pathlib.Path(folder, "rows.parquet"))
        ...     vcomp.io.open_source(path).columns
        ('score', 'sys', 'topic', 'fitted', 'resid')
        """
        if path is None:
            return self._access().augment()
        return write_augmented(self._access(), path, progress)

    def simulate(self, n: int = 1, rng: int | np.random.Generator | None = None) -> pd.DataFrame:
        """Return new responses drawn from the fitted model.

        Fixed effects at their estimates, random effects and residuals drawn anew from normal
        distributions with the estimated components (negative ones as zero, with a warning).

        Parameters
        ----------
        n : how many responses
        rng : seed, or a ``numpy.random.Generator`` that one is drawn from once; 0 if not given.
            Response j is the same however many others there are

        Returns
        -------
        pandas.DataFrame
            (nobs, n), on the scale of the data, indexed as the rows that were used

        Raises
        ------
        EstimationError
            If an option is not of that form, no component is positive, or the responses would not
            fit into memory.
        DataError
            If the result was loaded without its rows.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
        >>> res.simulate(2, rng=1).shape == (len(data), 2)
        True
        """
        return self._access().simulate(n, rng)
