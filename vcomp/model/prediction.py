"""Predictions for rows, seen or new, with their variances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.data import (
    CompleteRows,
    Reading,
    of_other_kind,
    parquet_path,
    plain_label,
    select_predictors,
    write_parquet,
)
from vcomp.design import Chunk, Design, ResidualLevels, number_combinations
from vcomp.estimators.likelihood import MatricesLikelihood, Solution, prediction_variances
from vcomp.exceptions import (
    DataError,
    EstimationError,
    check_alpha,
    did_you_mean,
    guarded,
    warn,
)
from vcomp.inference.intervals import normal_quantile
from vcomp.model.row_access import Fitted, RowAccess
from vcomp.numerics import MixedColumns, dense_columns
from vcomp.statistics.batches import SummedData

if TYPE_CHECKING:
    import pandas as pd


Level: TypeAlias = str | Sequence[str]
NewLevels: TypeAlias = Literal["zero", "raise"]

_SHOWN = 3
"""Largest number of new levels that a message names."""


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
        of the residual and of the terms that are not in the level, for which groups are random
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


def included_terms(level: Level, names: Sequence[str]) -> tuple[int, ...]:
    """Return the positions of the terms that a level of prediction includes.

    Parameters
    ----------
    level : ``"population"`` for none, ``"all"``, the name of a term, or several
    names : of all terms

    Raises
    ------
    DataError
        If there is no such term; the message lists the terms.
    """
    if isinstance(level, str):
        if level == "all":
            return tuple(range(len(names)))
        if level == "population":
            return ()
        level = (level,)
    known = (*names,)
    try:
        wanted = list(dict.fromkeys(level))
    except TypeError:
        raise DataError(f"level must be a name or a list of names, not {level!r}") from None
    for name in wanted:
        if name not in known:
            hint = did_you_mean(name, [*known, "population", "all"])
            raise DataError(
                f"level {name!r} is not known{hint}; it is 'population', 'all', or terms of the "
                f"model: {', '.join(map(repr, known))}",
                term=name,
            )
    return tuple(sorted(known.index(name) for name in wanted))


@dataclass(frozen=True)
class Located:
    """Rows coded by a design: the group of each row in every term, and X.

    Attributes
    ----------
    labels : (n,) of the rows
    X : (n, p) fixed part, centred
    groups : for each term the (n,) groups, −1 for a group that did not occur in the fit
    slopes : for each term the column that its effects are multiplied by, None for ones; empty in a
        model of intercepts with one residual
    residuals : (n,) residual group; None with one for all, or where errors do not matter
    """

    labels: pd.Index
    X: FloatArray | MixedColumns
    groups: tuple[Any, ...]
    slopes: tuple[FloatArray | None, ...] = ()
    residuals: IntArray | None = None

    @classmethod
    def of(
        cls,
        fitted: SummedData,
        data: Any,
        terms: Sequence[int],
        new_levels: NewLevels,
        *,
        errors: bool = False,
    ) -> Located:
        """Return the groups of the rows of the fit, or of other data.

        Parameters
        ----------
        terms : whose groups matter
        new_levels : ``"raise"`` refuses groups of these terms that did not occur in the fit
        errors : whether the residual variance of each row is needed

        Raises
        ------
        DataError
            If a column is missing, or a level is new and ``new_levels="raise"``, or has no
            residual variance.
        """
        if new_levels not in ("zero", "raise"):
            raise DataError(f"new_levels={new_levels!r} is not known; it is 'zero' or 'raise'")
        if data is None:
            chunk, columns = fitted.statistics.rows, fitted.fixed_columns
            slopes = _slope_columns(fitted.design, columns, chunk.response.size)
            labels, residuals = fitted.kept_rows.labels, chunk.residual_codes
            return cls(labels, chunk.columns, chunk.codes, slopes, residuals)
        design = fitted.design
        needed = {f: design.facets[f].name for t in terms for f in design.terms[t].facets}
        residual = design.residual if errors else None
        of_residual = () if residual is None else residual.groups.facets
        facets, fixed, labels = select_predictors(
            design.formula,
            data,
            fitted.reading,
            fitted.fixed_columns,
            (*needed.values(), *of_residual),
        )
        n = len(labels)
        X = design.fixed.matrix(fixed, n, design.x_origin)
        codes = {f: design.facets[f].codes(facets[name]) for f, name in needed.items()}
        groups = tuple(
            term.groups(codes, design.n_levels) if t in terms else np.full(n, -1, np.int32)
            for t, term in enumerate(design.terms)
        )
        if new_levels == "raise":
            _refuse_new(design, terms, facets, codes, groups)
        else:
            _warn_of_new_facets(design, terms, facets, codes)
        residuals = None if residual is None else _residual_codes(residual, facets)
        return cls(labels, X, groups, _slope_columns(design, fixed, n), residuals)

    @cached_property
    def combinations(self) -> tuple[LongArray, LongArray]:
        """The first row of each combination of groups and X, and the combination of each row."""
        number, size = np.zeros(len(self.labels), dtype=np.int32), 1
        columns = dense_columns(self.X).T if len(self.labels) else ()
        for column in (*self.groups, *columns):
            values, codes = np.unique(column, return_inverse=True)
            if values.size > 1:
                keys, number = number_combinations(number, size, codes, values.size)
                size = keys.size
        first = np.unique(number, return_index=True)[1]
        return first, number.astype(np.int64)


def _slope_columns(design: Design, columns: Any, n_rows: int) -> tuple[FloatArray | None, ...]:
    """Return for each term the column that its effects are multiplied by; nothing without any."""
    return () if design.blocks is None else design.blocks.values(columns, n_rows, centred=False)


def _residual_codes(residual: ResidualLevels, facets: Mapping[str, pd.Series]) -> IntArray:
    """Return the residual group of new rows.

    Raises
    ------
    DataError
        If one did not occur in the fit.
    """
    codes = residual.codes(facets)
    if codes.size and codes.min() < 0:
        row = int(np.argmin(codes))
        level = tuple(str(plain_label(facets[f].iloc[row])) for f in residual.groups.facets)
        raise DataError(
            f"{residual.groups.level_name(level)} did not occur in the fit, and has no residual "
            "variance that the error of a new score needs; predict() has no errors",
            level=level[0],
        )
    return codes


_ZERO = "new_levels='zero' predicts their effects as zero"


def _refuse_new(
    design: Design, terms: Sequence[int], facets: Any, codes: Any, groups: Sequence[Any]
) -> None:
    wanted = {f for t in terms for f in design.terms[t].facets}
    for f in sorted(wanted):
        new = np.asarray(codes[f]) < 0
        if new.any():
            name = design.facets[f].name
            found = list(dict.fromkeys(facets[name][new].tolist()))
            why = of_other_kind(facets[name], design.facets[f].levels)
            raise DataError(
                f"facet {name!r} has {_named(found)}, which did not occur in the fit"
                f"{why or '; '}{'' if why else _ZERO}",
                column=name,
                level=found[0],
            )
    for t in terms:
        new = groups[t] < 0
        if new.any():
            names = [design.facets[f].name for f in design.terms[t].facets]
            columns = [facets[name][new].tolist() for name in names]
            found = list(dict.fromkeys(zip(*columns, strict=True)))
            raise DataError(
                f"term {design.terms[t].name!r} has {_named(found)}, a combination that did not "
                "occur in the fit; new_levels='zero' predicts its effect as zero",
                level=found[0],
                term=design.terms[t].name,
            )


def _named(levels: Sequence[Any]) -> str:
    shown = ", ".join(map(repr, levels[:_SHOWN]))
    more = len(levels) - _SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


def _warn_of_new_facets(design: Design, terms: Sequence[int], facets: Any, codes: Any) -> None:
    wanted = {f for t in terms for f in design.terms[t].facets}
    for f in sorted(wanted):
        facet, known = design.facets[f], np.asarray(codes[f])
        if known.size and (known < 0).all():
            why = of_other_kind(facets[facet.name], facet.levels)
            warn(
                f"no level of facet {facet.name!r} occurred in the fit"
                f"{why or f', which has levels such as {plain_label(facet.levels[0])!r}'}; its "
                "effects are predicted as zero"
            )


def predicted_values(access: RowAccess, rows: Located, terms: Sequence[int]) -> pd.Series:
    """Return fixed part plus predicted effects of some terms."""
    import pandas as pd

    # Effects belong to the generalized least-squares fit; without them the fixed effects are those
    # of the estimator, which of Henderson's Method I are plain means.
    solution = access.solution
    beta = solution.beta if terms else access.estimate.beta
    predicted = access.data.design.origin + rows.X @ beta
    for t in terms:
        groups, effects = rows.groups[t], solution.effects[t]
        z = rows.slopes[t] if rows.slopes else None
        found = np.where(groups < 0, 0.0, effects[groups])
        predicted = predicted + (found if z is None else found * z)
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
    of_score = of_mean + v[others].sum() + v[-1]
    return of_mean[number], of_score[number]


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
    rest = np.full(n, v[-1]) if rows.residuals is None else residuals[rows.residuals]
    weights = []
    for term, matrix in zip(stats.blocks.terms, stats.blocks.matrices, strict=True):
        chosen = [t for t in term if t in terms]
        if chosen and len(chosen) < len(term):
            raise EstimationError(
                f"effects of {matrix.groups} are correlated, and predictions with errors have all "
                f"of them or none: level={[names[t] for t in term]!r} or 'population'"
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
    columns: dict[str, Any] = {response: rows.y.copy(), **facets, **covariates}
    columns |= {"fitted": fitted, "resid": rows.y - fitted}
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
    slopes = _slope_columns(design, fixed, part.y.size)
    fitted = _fitted(design, solution, codes, design.centred_matrix(fixed, part.y.size), slopes)
    columns: dict[str, Any] = {design.formula.response: part.y}
    for facet, found in zip(design.facets, codes, strict=True):
        columns[facet.name] = pd.Categorical.from_codes(found, categories=facet.levels)
    columns |= {name: column for name, column in fixed.items() if name not in columns}
    return pd.DataFrame(columns | {"fitted": fitted, "resid": part.y - fitted}, copy=False)


def _fitted(
    design: Design,
    solution: Solution,
    codes: list[Any],
    X: FloatArray,
    slopes: tuple[FloatArray | None, ...],
) -> FloatArray:
    fitted: FloatArray = design.origin + X @ solution.beta
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
    slopes = _slope_columns(design, columns, rows.response.size)
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
        return pd.Series(rows.y - self.fittedvalues.to_numpy(), rows.labels, name="resid")

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
