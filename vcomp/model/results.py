"""The result of a fit: a façade over its record and rows.

Its public interface is in six files, by subject: :mod:`~vcomp.model.estimates`,
:mod:`~vcomp.model.uncertainty` (intervals, resampling), :mod:`~vcomp.model.hypothesis_tests`,
:mod:`~vcomp.model.universe_scores` (with D-studies), :mod:`~vcomp.model.rank_accuracy` and this
one (tables, pictures, the diagnosis of assumptions, predictions, storage). The methods call
functions whose arguments are the record of the fit (:class:`~vcomp.model.record.FitRecord`), its
rows (:class:`~vcomp.model.row_access.RowAccess`) or both.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from vcomp import display
from vcomp.data import read_json, write_json
from vcomp.exceptions import guarded
from vcomp.model import estimates, prediction, presentation
from vcomp.model.estimates import Estimates
from vcomp.model.hypothesis_tests import HypothesisTests
from vcomp.model.other_names import refuse_name
from vcomp.model.prediction import Level, NewLevels, Prediction
from vcomp.model.presentation import PictureName
from vcomp.model.rank_accuracy import RankAccuracy
from vcomp.model.record import FitRecord
from vcomp.model.row_access import RowAccess, StoredEffects
from vcomp.model.uncertainty import IntervalMethod, Uncertainty

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from vcomp.inference.assumptions import Diagnosis


class VarianceComponentsResults(
    Estimates, Uncertainty, HypothesisTests, RankAccuracy, display.Printed
):
    """Variance components with their uncertainty, D-studies, predictions and tables.

    Made by :meth:`VarianceComponentsModel.fit` and :func:`vcomp.fit`. All that needs no rows
    (tables, D-studies, rank accuracy, the summary) also works after pickling or :meth:`from_json`.
    Universe scores and comparisons of levels do where they were stored (:meth:`to_json`). A
    pickle also keeps the predicted effects with their errors (:attr:`random_effects`).

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

    def __init__(
        self,
        record: FitRecord,
        rows: RowAccess | None = None,
        effects: StoredEffects | None = None,
    ) -> None:
        self._record = record
        self._rows = rows
        self._effects = effects

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Refuse an attribute that there is not, with what to write for names elsewhere."""
            refuse_name(self, name)

    # Tables ---------------------------------------------------------------------------------

    @guarded
    def tidy(self, alpha: float = 0.05, interval: IntervalMethod = "auto") -> pd.DataFrame:
        """Return a row for each parameter: term, kind, estimate, std_error, conf_low, conf_high.

        Where a component has no standard error or interval (nan), :meth:`gstudy` notes the reason.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        interval : how intervals of components are made, as in :meth:`conf_int`

        Raises
        ------
        EstimationError, PlanError
            As :meth:`conf_int`.
        """
        return estimates.tidy(self._record, alpha, self.interval_source(interval))

    def glance(self) -> pd.DataFrame:
        """Return one row: method, nobs, df_resid, llf, aic, bic, converged, status."""
        return estimates.glance(self._record)

    @guarded
    def summary(self, alpha: float = 0.05, interval: IntervalMethod = "auto") -> Any:
        """Return a summary as a table of statsmodels: ``print`` it, or ``.as_html()``.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        interval : how intervals of components are made, as in :meth:`conf_int`

        Raises
        ------
        EstimationError, PlanError
            As :meth:`conf_int`.
        """
        source = self.interval_source(interval)
        return presentation.summary(self._record, self._rows, alpha, source)

    @guarded
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
        term : of the effects; may be left out if the model has one term
        alpha : intervals have confidence 1 − alpha
        interval : how intervals of components are made, see :meth:`conf_int`
        ax : matplotlib axes to draw on; those of a new figure if None

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        DataError
            If the term is not one of the model's, or the result was loaded without its rows and
            without predicted effects.
        PlanError
            If alpha is not between 0 and 1.
        VcompError
            If the kind is not known, a term or an interval is given that it does not use, or
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
        return presentation.draw(
            self._record, self._rows, self._random_effects, kind, term, alpha, interval, ax
        )

    @guarded
    def diagnose(
        self,
        *,
        object: str | None = None,  # noqa: A002 - the word of the field
        n: int | None = None,
        rng: int | np.random.Generator | None = None,
    ) -> Diagnosis:
        """Return tests of the assumptions, and which numbers the deviations matter for.

        Normality and outliers of predicted effects and of residuals; equal residual variances of
        the levels of every facet; and of every two crossed facets additivity, and correlations
        of the residuals of a facet's levels with the effects of the other and with each other.

        Parameters
        ----------
        object : the facet whose levels are correlated, such as systems; the first facet of the
            formula if None
        n : number of draws of each null distribution; None for 99 to 999, the fewer the more rows
        rng : seed or ``numpy.random.Generator``; 0 if not given

        Returns
        -------
        Diagnosis
            with ``table``, ``verdicts``, ``outliers``, ``variances(facet)``, ``correlations()``,
            ``summary()`` and ``plot()``

        Raises
        ------
        DataError
            If the rows are not kept, or the result was loaded without them.
        EstimationError
            If there is no random term, the residual is estimated at zero, `rng` is neither a seed
            nor a generator, or the diagnosis would not fit into memory.
        PlanError
            If `object` is not a facet, or `n` is less than 19.

        Notes
        -----
        At 5 % each test rejects in 4 to 6 % of data sets that meet all assumptions. Predicted
        effects are compared with draws in units of their own standard deviation, residuals with
        draws of normal errors from which all effects are removed as from the data. Variances are
        compared with permuted residuals, correlations with residuals of random signs, and
        additivity has Tukey's F. That topics are a random sample cannot be seen in their scores.

        References
        ----------
        Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Section 1, Fig. 1 and
        section 4.2.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
        >>> diagnosis = res.diagnose(n=99)
        >>> diagnosis.verdicts["matters"].iloc[:3].tolist()
        ['no', 'slightly', 'yes']
        """
        from vcomp.model.model_checks import diagnose  # deferred for start-up time

        return diagnose(self._row_access, object, n, rng)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.formula} by {self.method.upper()}>"

    # Predictions ----------------------------------------------------------------------------

    @property
    @guarded
    def random_effects(self) -> dict[str, pd.DataFrame]:
        """Predicted effects (BLUPs) of every term.

        Frames with the levels as index and the columns ``estimate``, ``se`` (of the prediction
        error, fixed effects estimated) and ``conditional_se`` (fixed effects treated as known, as
        in lme4). Both are nan where effects are solved for iteratively, as every standard error
        would need another solve.

        A pickled result keeps the effects, unless they are larger than the data: three numbers
        an effect against the response and the facets of every row. JSON has none.

        Rows need not be kept. If cells were collapsed while rows were read, and a term has an
        effect for every cell, the cells are summed in another pass, which is refused if they do
        not fit into memory.
        """
        return self._random_effects()

    @property
    @guarded
    def fittedvalues(self) -> pd.Series:
        """Fixed part plus predicted effects of every row that was used."""
        return prediction.fitted_values(self._row_access)

    @property
    @guarded
    def resid(self) -> pd.Series:
        """Response minus :attr:`fittedvalues`."""
        return prediction.residuals(self._row_access)

    @guarded
    def predict(
        self, data: Any = None, *, level: Level = "all", new_levels: NewLevels = "raise"
    ) -> pd.Series:
        """Return fixed part plus predicted effects for rows, seen or new.

        Parameters
        ----------
        data : rows with the columns of the formula (the response may be absent), in any
            container that :func:`vcomp.fit` accepts; None for the rows that were used
        level : the terms whose effects are added to the fixed part: ``"all"``, the name of a term,
            a list of names, or ``"population"`` for none
        new_levels : treatment of levels, or combinations of levels, that did not occur in the fit:
            ``"raise"`` refuses them, as they may be misspelled; ``"zero"`` predicts their effects
            as zero, the best prediction

        Returns
        -------
        pandas.Series on the scale of the response

        Raises
        ------
        DataError
            If a column is missing, a term of `level` is not in the model, a level is new and
            ``new_levels="raise"``, or the result was loaded without its rows.

        Warns
        -----
        VcompWarning
            If no level of a facet occurred in the fit, and ``new_levels="zero"``.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
        >>> res.predict(data.head(3), level="sys").round(3).tolist()
        [0.624, 0.624, 0.624]
        """
        return prediction.predict(self._row_access, data, level, new_levels)

    @guarded
    def get_prediction(
        self,
        data: Any = None,
        *,
        level: Level = "all",
        new_levels: NewLevels = "raise",
        alpha: float = 0.05,
    ) -> Prediction:
        """Return predictions with standard errors and intervals, as statsmodels does.

        Errors are those of the joint prediction (Henderson 1975, Biometrics 31, 423-447): effects
        of different terms and fixed effects have correlated errors. Components are treated as
        known, negative ones as zero.

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
            If the residual is estimated at zero; or if effects are solved for iteratively, and the
            rows have too many different combinations of them.
        """
        return prediction.get_prediction(
            self._row_access, data, level, new_levels, alpha, self._record.caveats
        )

    @overload
    def augment(self, path: None = None, *, progress: bool | None = None) -> pd.DataFrame: ...

    @overload
    def augment(self, path: str | PathLike[str], *, progress: bool | None = None) -> Path: ...

    @guarded
    def augment(
        self, path: str | PathLike[str] | None = None, *, progress: bool | None = None
    ) -> pd.DataFrame | Path:
        """Return a row for each score, with fitted value and residual; or write them to a file.

        The columns are the response, the facets, the covariates, ``fitted`` and ``resid``.

        With `path`, rows that were read in batches are read again, and never all in memory.
        Effects come from the statistics of the fit; if cells were collapsed in these, and a term
        has an effect for every cell, the cells are first summed in another pass.

        Parameters
        ----------
        path : of a Parquet file, ending in ``.parquet``, with the rows that were used in the order
            of reading; an existing file is replaced only when the new one is complete
        progress : with `path`, whether to show a bar of the rows that are read; None shows one on
            long runs if stderr is a terminal

        Returns
        -------
        pandas.DataFrame, indexed as the rows are; with `path` that path

        Raises
        ------
        DataError
            If the rows are not kept and `path` is not given, they cannot be read again (saved
            statistics, Dask) or have changed, or the file cannot be written; an incomplete file is
            removed.
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
            return prediction.augment(self._row_access)
        return prediction.write_augmented(self._row_access, path, progress)

    @guarded
    def simulate(self, n: int = 1, rng: int | np.random.Generator | None = None) -> pd.DataFrame:
        """Return new responses drawn from the fitted model.

        Fixed effects are at their estimates; random effects and residuals are drawn from normal
        distributions with the estimated components (negative ones as zero, with a warning).

        Parameters
        ----------
        n : number of responses
        rng : seed, or a ``numpy.random.Generator`` from which one is drawn; 0 if not given.
            Response j does not depend on the number of responses

        Returns
        -------
        pandas.DataFrame
            (nobs, n), on the scale of the data, with the index of the rows that were used

        Raises
        ------
        EstimationError
            If an option is invalid, no component is positive, or the responses would not fit into
            memory.
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
        return self._row_access.simulate(n, rng)

    # Storage ----------------------------------------------------------------------------------

    @guarded
    def to_json(self, path: str | Path | None = None, *, scores: bool | None = None) -> str:
        """Return the result as JSON text, without the rows; also write it to a file.

        Parameters
        ----------
        path : of the file; None writes none. An existing file is replaced when the new one is
            complete; a pipe or a device is written to
        scores : whether :meth:`universe_scores` and :meth:`compare_levels` are possible after
            loading. If None, where they are cheap: of data with up to 250,000 rows and 5,000
            effects, for terms of up to 2,000 levels; True stores those of any size, False none.
            Differences of random terms are stored for up to 300 levels

        Raises
        ------
        DataError
            If the file cannot be written, or is one of those that the rows are read from; or
            ``scores=True``, and the result was loaded without them.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
        >>> loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
        >>> loaded.universe_scores("sys").equals(res.universe_scores("sys"))
        True
        """
        files = () if self._rows is None else self._rows.files
        return write_json(self._stored_record(scores), path, files)

    @classmethod
    @guarded
    def from_json(cls, source: str | Path) -> VarianceComponentsResults:
        """Return a result from JSON text or from the file that :meth:`to_json` wrote.

        Parameters
        ----------
        source : JSON text, or path of a file

        Raises
        ------
        DataError
            If it is not such a text or file, or of another version of the format.
        """
        return cls(read_json(FitRecord, source))

    def __copy__(self) -> VarianceComponentsResults:
        return type(self)(self._record, self._rows, self._effects)

    def __deepcopy__(self, memo: dict[int, Any]) -> VarianceComponentsResults:
        # A result is immutable, and the rows are shared.
        return self.__copy__()

    def __getstate__(self) -> dict[str, Any]:
        return self._state() | {"_record": self._stored_record()}

    def _stored_record(self, scores: bool | None = None) -> FitRecord:
        """Return the record with the values of the levels, see :meth:`to_json`."""
        from vcomp.model.levels_of_rows import with_levels  # deferred for start-up time

        return with_levels(self._record, self._rows, scores)
