"""Predictions for rows, seen or new, with their variances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from vcomp._typing import FloatArray
from vcomp.data import CompleteRows, Reading, parquet_path, write_parquet
from vcomp.design import Chunk, Design
from vcomp.estimators.likelihood import MatricesLikelihood, Solution, prediction_variances
from vcomp.exceptions import DataError, EstimationError, check_alpha, guarded
from vcomp.inference import resampling
from vcomp.inference.intervals import normal_quantile
from vcomp.model.located_rows import Level, Located, NewLevels, included_terms, slope_columns
from vcomp.model.row_access import Fitted, RowAccess
from vcomp.numerics import dense_columns
from vcomp.statistics.batches import SummedData

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.inference.resampling import LevelInfluence


@dataclass(frozen=True, repr=False)
class Prediction:
    """Predicted means with their standard errors, as statsmodels gives them.

    Components are treated as known, fixed effects as estimated. Intervals are normal.

    Attributes
    ----------
    predicted_mean : fixed part plus the predicted effects of the terms in the requested level
    se_mean : standard error of its prediction: of x'β̂ + Σ z'û about x'β + Σ z'u over these terms,
        with the covariances of the effects of different terms and of the fixed effects. A group
        that did not occur in the fit adds its variance σ²_t
    se_obs : standard error of the prediction of a new score in the same cell: with the variances
        of the residual and of the terms that are not in the level, for which groups are random.
        A score has the weight of its row, or 1 in data without the column; nan of fits with known
        variances in data without them
    alpha : intervals have confidence 1 − alpha unless another alpha is given
    notes : sentences on the standard errors

    Examples
    --------
    >>> import vcomp
    >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
    >>> frame = res.get_prediction(level="population").summary_frame()
    >>> frame[["mean", "mean_se", "mean_ci_lower", "mean_ci_upper"]].head(1).round(3)
        mean  mean_se  mean_ci_lower  mean_ci_upper
    0  0.724    0.055          0.617          0.831
    """

    predicted_mean: pd.Series
    se_mean: pd.Series
    se_obs: pd.Series
    alpha: float = 0.05
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<{len(self.predicted_mean):,} predictions>"

    def __str__(self) -> str:
        return "\n".join([str(self.summary_frame()), *self.notes])

    def _repr_html_(self) -> str:
        page: str = self.summary_frame().to_html(max_rows=60)
        return page + "".join(f"<p>{note}</p>" for note in self.notes)

    def conf_int(self, *, obs: bool = False, alpha: float | None = None) -> pd.DataFrame:
        """Return intervals for the mean, or for a new score, in columns ``lower`` and ``upper``.

        Parameters
        ----------
        obs : whether the interval is for a new score
        alpha : intervals have confidence 1 − alpha; that of the prediction if None

        Raises
        ------
        PlanError
            If alpha is not between 0 and 1.
        """
        import pandas as pd

        alpha = self.alpha if alpha is None else alpha
        check_alpha(alpha)
        half = normal_quantile(alpha) * (self.se_obs if obs else self.se_mean)
        mean = self.predicted_mean
        return pd.DataFrame({"lower": mean - half, "upper": mean + half})

    def summary_frame(self, alpha: float | None = None) -> pd.DataFrame:
        """Return a row for each prediction, with the columns of statsmodels.

        They are ``mean``, ``mean_se``, ``mean_ci_lower``, ``mean_ci_upper``, ``obs_ci_lower`` and
        ``obs_ci_upper``.

        Parameters
        ----------
        alpha : as for :meth:`conf_int`
        """
        import pandas as pd

        mean, obs = self.conf_int(alpha=alpha), self.conf_int(obs=True, alpha=alpha)
        return pd.DataFrame(
            {
                "mean": self.predicted_mean,
                "mean_se": self.se_mean,
                "mean_ci_lower": mean["lower"],
                "mean_ci_upper": mean["upper"],
                "obs_ci_lower": obs["lower"],
                "obs_ci_upper": obs["upper"],
            }
        )


def predicted_values(access: RowAccess, rows: Located, terms: Sequence[int]) -> pd.Series:
    """Return fixed part plus predicted effects of some terms."""
    import pandas as pd

    # Effects belong to the generalized least-squares fit; without them the fixed effects are those
    # of the estimator, which of Henderson's Method I are plain means.
    solution = access.solution
    beta = solution.beta if terms else access.estimate.beta
    predicted = access.data.design.mean(rows.X, beta)
    for t in terms:
        groups, effects = rows.groups[t], solution.effects[t]
        z = rows.slopes[t] if rows.slopes else None
        found = np.where(groups < 0, 0.0, effects[groups])
        predicted = predicted + (found if z is None else found * z)
    if rows.offset is not None:
        predicted = predicted + rows.offset
    return pd.Series(predicted, rows.labels, name="predicted")


def _variances(
    access: RowAccess, rows: Located, terms: Sequence[int]
) -> tuple[FloatArray, FloatArray]:
    """Return the variances of the prediction of the mean and of a new score, (n,) each."""
    v = access.components
    if not v.any():
        return np.zeros(len(rows.labels)), np.zeros(len(rows.labels))
    if rows.slopes:
        return _of_matrices(access, rows, terms)
    kept = Located(rows.labels, rows.X, tuple(rows.groups[t] for t in terms))
    first, number = kept.combinations
    groups = np.full((first.size, v.size - 1), -1, dtype=np.int64)
    for t in terms:
        groups[:, t] = rows.groups[t][first]
    X = dense_columns(rows.X[first])
    if terms:
        of_mean = prediction_variances(access.data.statistics, v, groups, X)
    else:
        of_mean = np.maximum(((X @ access.estimate.cov_beta) * X).sum(axis=1), 0.0)
    for t in terms:
        of_mean += np.where(groups[:, t] < 0, v[t], 0.0)
    others = [t for t in range(v.size - 1) if t not in terms]
    of_mean = of_mean[number]
    return of_mean, of_mean + v[others].sum() + _residual(access, rows, v[-1])


def _residual(access: RowAccess, rows: Located, residual: Any) -> Any:
    """Return the residual variances of new scores: nan where known variances are not given."""
    if rows.weights is not None:
        return residual / rows.weights
    used = access.data.weights
    return np.nan if used is not None and used.of_known_variances else residual


def _of_matrices(
    access: RowAccess, rows: Located, terms: Sequence[int]
) -> tuple[FloatArray, FloatArray]:
    """Return the variances of a model of covariance matrices, as :func:`_variances` does.

    Raises
    ------
    EstimationError
        If the level has some of the correlated effects of a bar, and not the others.
    """
    stats, v, n = access.data.statistics, access.estimate.values, len(rows.labels)
    assert stats.blocks is not None
    names, X = access.estimate.names, dense_columns(rows.X)
    residuals = v[-stats.blocks.n_residuals :]
    of_rows = v[-1] if rows.residuals is None else residuals[rows.residuals]
    weights, rest = [], np.zeros(n) + _residual(access, rows, of_rows)
    for term, matrix in zip(stats.blocks.terms, stats.blocks.matrices, strict=True):
        chosen = [t for t in term if t in terms]
        if chosen and len(chosen) < len(term):
            raise EstimationError(
                f"effects of {matrix.groups} are correlated, and predictions with errors have all "
                f"of them or none: level={[names[t] for t in term]!r} or 'population'",
                term=names[term[0]],
            )
        columns = [rows.slopes[t] for t in term]
        Z = np.column_stack([np.ones(n) if z is None else z for z in columns])
        if chosen:
            weights.append((np.asarray(rows.groups[term[0]], dtype=np.int64), Z))
            continue
        weights.append((np.full(n, -1), np.zeros_like(Z)))
        rest += ((Z @ v[np.array(matrix.places)]) * Z).sum(axis=1)
    likelihood = MatricesLikelihood(stats, reml=True)
    of_mean = likelihood.prediction_variances(v, weights, X)
    return of_mean, of_mean + rest


_ROWS = 262_144
"""Rows of a row group in the file, if the rows are in memory."""

_INSTEAD = "a path on a disk with more room"


def _augmented_rows(access: RowAccess, fitted: FloatArray) -> pd.DataFrame:
    """Return response, facets, covariates, fitted values and residuals of the rows used."""
    import pandas as pd

    check_columns(access.data.design)
    rows, response = access.data.kept_rows, access.data.design.formula.response
    facets = {name: column.to_numpy() for name, column in rows.facets.items()}
    covariates = {name: column for name, column in rows.fixed.items() if name not in facets}
    columns: dict[str, Any] = {response: rows.response.copy(), **facets, **covariates}
    columns |= {"fitted": fitted, "resid": rows.response - fitted}
    return pd.DataFrame(columns, index=rows.labels)


def check_columns(design: Design) -> None:
    """Refuse columns of the data that have the name of the fitted values or residuals.

    Raises
    ------
    DataError
        If there is one.
    """
    formula = design.formula
    clashing = {"fitted", "resid"}.intersection(formula.names())
    if clashing:
        name = min(clashing)
        raise DataError(
            f"the column {name!r} of the data has the name of a column that is added; rename it",
            column=name,
        )


def _streamed(access: RowAccess, progress: bool | None) -> Iterator[pd.DataFrame]:
    """Yield the rows of the fit in batches, after solving for the effects.

    Raises
    ------
    DataError
        If the rows cannot be read again, or have changed.
    """
    data, n = access.data, 0
    check_columns(data.design)
    batches = data.read_again(progress)
    solution = access.solution
    for part in batches.each():
        n += part.y.size
        if part.y.size:
            yield _augmented(data, solution, part)
    if n != data.design.structure.n_rows:
        raise DataError(
            f"the fit has {data.design.structure.n_rows:,} rows, and {n:,} were read now; the "
            "rows must not change after the fit"
        )


def _augmented(data: SummedData, solution: Solution, part: CompleteRows) -> pd.DataFrame:
    """Return response, facets, covariates, fitted values and residuals of some rows."""
    import pandas as pd

    design = data.design
    codes = [np.asarray(f.codes(part.frame[f.name])) for f in design.facets]
    fixed = part.fixed_columns(design.formula, data.fixed_columns)
    slopes = slope_columns(design, fixed, part.y.size)
    fitted = _fitted(design, solution, codes, design.centred_matrix(fixed, part.y.size), slopes)
    y = part.y
    if part.offset is not None:
        y, fitted = y + part.offset, fitted + part.offset
    columns: dict[str, Any] = {design.formula.response: y}
    for facet, found in zip(design.facets, codes, strict=True):
        columns[facet.name] = pd.Categorical.from_codes(found, categories=facet.levels)
    columns |= {name: column for name, column in fixed.items() if name not in columns}
    return pd.DataFrame(columns | {"fitted": fitted, "resid": y - fitted}, copy=False)


def _fitted(
    design: Design,
    solution: Solution,
    codes: list[Any],
    X: FloatArray,
    slopes: tuple[FloatArray | None, ...],
) -> FloatArray:
    fitted = design.mean(X, solution.beta)
    for t, (term, effects) in enumerate(zip(design.terms, solution.effects, strict=True)):
        groups = term.groups(codes, design.n_levels)
        if groups.min() < 0:
            raise DataError(
                f"term {term.name!r} has a level, or a combination, that did not occur in the "
                "fit; the rows must not change after the fit",
                term=term.name,
            )
        z = slopes[t] if slopes else None
        fitted += effects[groups] if z is None else effects[groups] * z
    return fitted


def fitted_values(
    design: Design, solution: Solution, rows: Chunk, columns: Mapping[str, Any]
) -> FloatArray:
    """Return fixed part plus predicted effects of the rows of a fit, (n,).

    Parameters
    ----------
    design : of the rows
    solution : of Henderson's equations
    rows : of the fit
    columns : of the fixed part and of slopes
    """
    slopes = slope_columns(design, columns, rows.response.size)
    return _fitted(design, solution, list(rows.facet_codes), rows.X, slopes)


class Predictions(Fitted):
    """Predictions for rows, seen or new."""

    @property
    @guarded
    def fittedvalues(self) -> pd.Series:
        """Fixed part plus predicted effects of every row that was used."""
        return self.predict().rename("fittedvalues")

    @property
    @guarded
    def resid(self) -> pd.Series:
        """Response minus :attr:`fittedvalues`."""
        import pandas as pd

        rows = self._row_access.data.kept_rows
        return pd.Series(rows.response - self.fittedvalues.to_numpy(), rows.labels, name="resid")

    @guarded
    def influence(
        self,
        facet: str,
        *,
        workers: int = 1,
        time_limit: float | None = None,
        progress: bool | None = None,
    ) -> LevelInfluence:
        """Return what leaving out each level of a facet does to the estimates.

        The fit is repeated without the scores of each level, by the method of the fit. Levels of a
        nested facet are those within each combination of levels of the facets that it is nested
        in. Weights and known variances of the scores stay with them, and a level that has a
        residual variance of its own takes it with it: the row has nan there.

        Parameters
        ----------
        facet : such as ``"topic"``
        workers : number of threads
        time_limit : expected seconds up to which fits are made one by one; None stands for ten
            minutes
        progress : whether to show a bar; None shows one if stderr is a terminal

        Returns
        -------
        LevelInfluence
            with ``table``, ``cooks_distance``, ``dfbeta``, ``fixed_effects``, ``components``,
            ``relative_changes``, ``summary()`` and ``plot()``

        Raises
        ------
        EstimationError
            If the facet is not one of the random part, or has fewer than three levels (a nested
            one fewer than two in every group); if more time is expected; or if no fit without a
            level succeeded.
        DataError
            If the rows are not kept, or the result was loaded without them.

        Warns
        -----
        VcompWarning
            If the model cannot be fitted without some level, for instance the only one with a
            level of a factor: its row is nan.

        References
        ----------
        Demidenko and Stukel (2005), Influence analysis for linear mixed-effects models, Statistics
        in Medicine 24; Nieuwenhuis, te Grotenhuis and Pelzer (2012), influence.ME, R Journal 4(2).

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
        >>> res.influence("topic").cooks_distance.round(3).tolist()
        [0.342, 0.134, 0.048]
        """
        access = self._row_access
        return resampling.level_influence(
            access.generating(),
            access.data.design,
            access.estimate.cov_beta,
            facet,
            workers=workers,
            progress=progress,
            time_limit=time_limit,
        )

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
        access = self._row_access
        terms = included_terms(level, [term.name for term in access.data.design.terms])
        return predicted_values(access, Located.of(access.data, data, terms, new_levels), terms)

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
        import pandas as pd

        access = self._row_access
        check_alpha(alpha)
        terms = included_terms(level, [term.name for term in access.data.design.terms])
        rows = Located.of(access.data, data, terms, new_levels, errors=True)
        mean = predicted_values(access, rows, terms).rename("mean")
        of_mean, of_score = _variances(access, rows, terms)
        return Prediction(
            predicted_mean=mean,
            se_mean=pd.Series(np.sqrt(of_mean), rows.labels, name="mean_se"),
            se_obs=pd.Series(np.sqrt(of_score), rows.labels, name="obs_se"),
            alpha=alpha,
            notes=self._record.caveats,
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
        access = self._row_access
        kept = access.data.rows is not None
        if path is None:
            return _augmented_rows(access, self.fittedvalues.to_numpy())
        Reading(progress=progress)  # refuse other values before reading
        target = parquet_path(path, "to", access.files)
        frames = self._parts() if kept else _streamed(access, progress)
        write_parquet(frames, target, _INSTEAD)
        return target

    def _parts(self) -> Iterator[pd.DataFrame]:
        frame = self.augment().reset_index(drop=True)
        for first in range(0, len(frame), _ROWS):
            yield frame.iloc[first : first + _ROWS]
