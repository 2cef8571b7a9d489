"""The model: formula and data, read and summed once, for any estimator.

It performs the first steps of the pipe (formula, design, statistics), applies an estimator, and
makes the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from time import perf_counter
from types import SimpleNamespace
from typing import Any, TypeAlias, get_args

import numpy as np

from vcomp._typing import FloatArray
from vcomp.data import Missing, Reading, RowColumns, Rows, level_columns
from vcomp.estimators import (
    Estimate,
    Estimator,
    MethodName,
    Negative,
    check_digits,
    check_identified,
    dominant_fixed_part,
    find_left_out,
    get_estimator,
    refit_without_negative,
)
from vcomp.estimators.likelihood import (
    InformationKind,
    LikelihoodEngine,
    LikelihoodMethod,
    MatricesLikelihood,
    choose_engine,
)
from vcomp.exceptions import EstimationError, VcompError, guarded, warn
from vcomp.formula import (
    RESIDUAL,
    caller_environment,
    left_out_note,
    parameter_names,
    parse,
    refuse,
    traits_of,
)
from vcomp.inference.hypotheses import fixed_errors_of
from vcomp.model.record import FitRecord, TablesOfFit
from vcomp.model.results import VarianceComponentsResults
from vcomp.model.row_access import RowAccess
from vcomp.statistics import Statistics, read_data
from vcomp.statistics.batches import SummedData


class LikelihoodOfData:
    """The likelihood of the data at given components, with its derivatives."""

    component_names: tuple[str, ...]
    statistics: Statistics

    @guarded
    def loglike(self, params: Components, *, reml: bool = True) -> float:
        """Return the log-likelihood at given components, fixed effects profiled out.

        Parameters
        ----------
        params : (k + 1,) components in the order of :attr:`component_names`, or a mapping or
            Series by name; not negative, the residual positive, and with random slopes positive
            semidefinite matrices
        reml : the restricted likelihood, or the full one

        Raises
        ------
        EstimationError
            If the components are not of that form.
        """
        if self.statistics.blocks is not None:
            return self._of_matrices(reml=reml).loglike_of(self._components(params))
        return self._engine(reml=reml).loglike(self._components(params))

    @guarded
    def score(self, params: Components, *, reml: bool = True) -> FloatArray:
        """Return the gradient of :meth:`loglike`, (k + 1,).

        Parameters
        ----------
        params : as for :meth:`loglike`
        reml : of the restricted likelihood, or of the full one
        """
        if self.statistics.blocks is not None:
            return self._of_matrices(reml=reml).score_of(self._components(params))
        return self._engine(reml=reml).derivatives(self._components(params)).score

    @guarded
    def information(
        self,
        params: Components,
        *,
        information: InformationKind = "observed",
        reml: bool = True,
    ) -> FloatArray:
        """Return an information matrix of the components, (k + 1, k + 1).

        Parameters
        ----------
        params : as for :meth:`loglike`
        information : ``"observed"`` (minus the Hessian), ``"expected"`` (Fisher) or ``"average"``
        reml : of the restricted likelihood, or of the full one

        Raises
        ------
        EstimationError
            If the matrix is not one of these, or the components are not as for :meth:`loglike`.
        """
        if information not in ("observed", "expected", "average"):
            raise EstimationError(
                f"information={information!r} is not known; it is 'observed', 'expected' or "
                "'average'"
            )
        if self.statistics.blocks is not None:
            likelihood = self._of_matrices(reml=reml)
            return likelihood.information_of(self._components(params), information)
        return self._engine(reml=reml).information(self._components(params), information)

    def hessian(self, params: Components, *, reml: bool = True) -> FloatArray:
        """Return the matrix of second derivatives of :meth:`loglike`.

        Parameters
        ----------
        params : as for :meth:`loglike`
        reml : of the restricted likelihood, or of the full one
        """
        return -self.information(params, information="observed", reml=reml)

    def _engine(self, *, reml: bool) -> LikelihoodEngine:
        return self._restricted if reml else self._full

    def _of_matrices(self, *, reml: bool) -> MatricesLikelihood:
        return MatricesLikelihood(self.statistics, reml=reml)

    @cached_property
    def _restricted(self) -> LikelihoodEngine:
        """The engine of the restricted likelihood, with its last factor."""
        return choose_engine(self.statistics, reml=True, names=self.component_names[:-1])

    @cached_property
    def _full(self) -> LikelihoodEngine:
        """The engine of the full likelihood, with its last factor."""
        return choose_engine(self.statistics, reml=False, names=self.component_names[:-1])

    def _components(self, params: Components) -> FloatArray:
        names = self.component_names
        in_order = _by_name(params, names)
        try:
            v = np.asarray(in_order, dtype=np.float64)
        except (TypeError, ValueError):
            raise EstimationError(
                f"components must be {len(names)} numbers ({', '.join(names)}), not {params!r}"
            ) from None
        if v.shape != (len(names),):
            raise EstimationError(
                f"components have shape {v.shape}; there are {len(names)}: {', '.join(names)}"
            )
        blocks = self.statistics.blocks
        if blocks is not None and np.isfinite(v).all() and (v[-blocks.n_residuals :] > 0.0).all():
            blocks.check_matrices(v)
            return v
        if not np.isfinite(v).all() or (v < 0.0).any() or v[-1] == 0.0:
            raise EstimationError("components must not be negative, and the residual positive")
        return v


def _by_name(params: Components, names: tuple[str, ...]) -> Any:
    """Return the components of a mapping or Series in order; other values unchanged."""
    if not hasattr(params, "keys"):
        return params
    known = set(params.keys())
    absent = [name for name in names if name not in known]
    if absent:
        raise EstimationError(
            f"component {absent[0]!r} is missing; components are {', '.join(names)}",
            term=absent[0],
        )
    by_name: Any = params
    return [by_name[name] for name in names]


Components: TypeAlias = FloatArray | Mapping[str, float]


class VarianceComponentsModel(LikelihoodOfData):
    """A linear model with random intercepts, after statsmodels' model protocol.

    Rows are coded and summed when the model is made. ``fit`` uses the sums and does not change the
    model.

    Parameters
    ----------
    formula : such as ``"score ~ x + (1|sys) + (1|topic/doc)"``
    data : pandas or polars frame, pyarrow Table, dict of arrays, or path of a CSV or Parquet file;
        None uses the variables of the calling scope, as patsy does; or accumulated statistics
    weights, frequency, known_variance, offset : columns or arrays with a number for each row, as
        for :func:`vcomp.fit`
    missing : ``"drop"`` rows with a missing value in a used column and warn, or ``"raise"``
    residual : as for :func:`vcomp.fit`
    stream : True to read the rows in batches without keeping them, False to keep them in memory;
        None reads data in batches that are not in memory and may not fit into it
    progress : whether to show a bar of the rows that are read in batches, with their number per
        second; None shows one after two seconds if stderr is a terminal
    eval_env : as in patsy: 0 for the scope of the caller, 1 for the one above, or an
        ``EvalEnvironment``

    Attributes
    ----------
    design : levels, origin and structure of the data
    component_names : names of the variance components, the residual last
    nobs : number of scores used
    seconds : seconds that reading, the design and the sums took

    Raises
    ------
    FormulaError, DataError, DesignError
        If something cannot be read, found or estimated; the message names it.

    Examples
    --------
    >>> import vcomp
    >>> model = vcomp.VarianceComponentsModel(
    ...     "score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha")
    ... )
    >>> model.component_names
    ('sys', 'topic', 'Residual')
    >>> round(model.loglike(model.fit().vcomp), 4) == round(model.fit().llf, 4)
    True
    """

    def __init__(
        self,
        formula: str,
        data: Any = None,
        *,
        weights: Any = None,
        frequency: Any = None,
        known_variance: Any = None,
        offset: Any = None,
        missing: Missing = "drop",
        residual: str | None = None,
        stream: bool | None = None,
        progress: bool | None = None,
        eval_env: Any = 0,
    ) -> None:
        if not isinstance(data, SummedData):
            columns = RowColumns(weights, frequency, known_variance, offset)
            environment = caller_environment(eval_env, 1)
            reading = Reading(environment, missing, stream, progress, row_columns=columns)
            data = read_data(parse(formula, level_columns(data), residual), data, reading)
        begun = perf_counter()
        has_columns = data.design.fixed.names and not data.design.formula.intercept_only
        if has_columns:
            data = _without_dependent(data)
        data.design.formula.check_parameters(data.statistics.n, len(data.design.fixed.names))
        self._data: SummedData = _without_dominant(data) if has_columns else data
        self.design = design = self._data.design
        self.component_names = (
            *design.formula.component_names,
            *design.formula.residual_names,
        )
        self.statistics = self._data.statistics
        terms = [term.name for term in design.terms]
        weights = data.weights
        check_identified(
            self.statistics,
            terms,
            design.fixed.names,
            design.x_origin,
            knows_residual=weights is not None and weights.of_known_variances,
        )
        self.seconds: Mapping[str, float] = {**data.seconds, "check": perf_counter() - begun}

    @property
    def rows(self) -> Rows:
        """The rows that were used.

        Raises
        ------
        DataError
            If they were read in batches, and not kept.
        """
        return self._data.kept_rows

    @classmethod
    @guarded
    def from_formula(
        cls,
        formula: str,
        data: Any = None,
        *,
        weights: Any = None,
        frequency: Any = None,
        known_variance: Any = None,
        offset: Any = None,
        missing: Missing = "drop",
        residual: str | None = None,
        stream: bool | None = None,
        progress: bool | None = None,
        eval_env: Any = 0,
    ) -> VarianceComponentsModel:
        """Return ``VarianceComponentsModel(formula, data)``, under statsmodels' name.

        Parameters
        ----------
        formula, data, weights, frequency, known_variance, offset : as for the class
        missing, residual, stream, progress, eval_env : as for the class
        """
        environment = caller_environment(eval_env, 1)
        return cls(
            formula,
            data,
            weights=weights,
            frequency=frequency,
            known_variance=known_variance,
            offset=offset,
            missing=missing,
            residual=residual,
            stream=stream,
            progress=progress,
            eval_env=environment,
        )

    # Statsmodels' protocol --------------------------------------------------------------------

    @property
    def formula(self) -> str:
        """The formula as given."""
        return self.design.formula.text

    @property
    def endog(self) -> FloatArray:
        """The response, shape (nobs,); read-only, as changes would not reach the sums."""
        y = self.rows.response.view()
        y.flags.writeable = False
        return y

    @property
    def exog(self) -> FloatArray:
        """The fixed-effects matrix X, shape (nobs, p)."""
        return self.design.fixed.matrix(self.rows.fixed, self.nobs)

    @property
    def endog_names(self) -> str:
        """Name of the response."""
        return self.design.formula.response

    @property
    def exog_names(self) -> list[str]:
        """Names of the columns of X."""
        return list(self.design.fixed.names)

    @property
    def data(self) -> Any:
        """Names as statsmodels' tables read them: ``param_names``, ``xnames`` and ``ynames``."""
        components = parameter_names(self.component_names)
        return SimpleNamespace(
            param_names=[*self.exog_names, *components],
            xnames=self.exog_names,
            ynames=self.endog_names,
        )

    @property
    def nobs(self) -> int:
        """Number of scores used."""
        return self.statistics.n

    @guarded
    def fit(
        self, method: MethodName = "reml", *, negative: Negative = "keep", **options: Any
    ) -> VarianceComponentsResults:
        """Estimate the components.

        Parameters
        ----------
        method : ``"reml"``, ``"ml"``, ``"anova"`` (Henderson's Method I), ``"type1"``,
            ``"henderson3"`` or ``"minque"``
        negative : treatment of negative estimates of a closed form: ``"keep"`` uses them as
            estimated; ``"refit"`` drops the term with the most negative one and estimates the
            others again, until none is negative. Dropped components are 0, and the status names
            them
        **options : of the method. For REML and ML: ``max_iter``, the largest number of steps;
            ``tol``, the Newton decrement in standard errors at which they end;
            ``hold={"topic": 0.01}``, components that are known and not estimated;
            ``start={"topic": 0.02}`` (or all components in order), the start instead of MIVQUE(0);
            ``engine`` of the likelihood; ``n_probes`` and ``rng`` of its random probes, if it has
            any. For ANOVA: ``n_probes`` and ``rng`` of the standard errors, which are exact
            without random probes where that is affordable. For MINQUE: ``prior``, the prior
            components (a number, a mapping or a sequence), and ``iterated``, True or a number of
            rounds

        Returns
        -------
        VarianceComponentsResults

        Raises
        ------
        EstimationError
            If the method is not known, does not apply, or would not fit into memory; or an option
            is not one of its options.

        Warns
        -----
        VcompWarning
            If the estimation did not converge, or the method is inaccurate for these data.
        """
        design = self.design
        if not design.constant.any():
            names, response = design.fixed.names, design.formula.response
            check_digits(self.statistics, names, response, self._data.response_sums)
        weights, instead = self._data.weights, "use method='reml' or 'ml'"
        if weights is not None and weights.of_known_variances:
            has = traits_of(design.formula, weights)
            v = f"data[{weights.column!r}]" if weights.column else "v"
            held = f"the same model has weights=1 / {v} and hold={{{RESIDUAL!r}: 1.0}}"
            refuse(weights.option, has, slopes=held, residuals="leave residual= out")
            if method not in ("reml", "ml"):  # before the held residual, an option of these
                refuse(f"method={method!r}", has, weights=instead)
            options = _with_known_residual(options)
        estimator = get_estimator(method, **options)
        if not isinstance(estimator, LikelihoodMethod):
            # The forms of MINQUE are those of the rows multiplied by √w.
            has = traits_of(design.formula, None if estimator.name == "minque" else weights)
            refuse(f"method={method!r}", has, slopes=instead, residuals=instead, weights=instead)
        if negative != "keep":
            _check_negative(negative, estimator.name)
        if estimator.name == "anova":
            self._check_anova()
        begun = perf_counter()
        estimate = estimator.estimate(self.statistics, self.component_names)
        if negative == "refit":
            of_terms = partial(self._estimate_of, estimator)
            estimate = refit_without_negative(estimate, self.statistics, of_terms)
        stages = dict(self.seconds)
        if not estimate.seconds:  # likelihood methods measure their own stages
            stages["estimate"] = perf_counter() - begun
        estimate = estimate.with_seconds(stages)
        if not estimate.converged:
            warn(estimate.status)
        return VarianceComponentsResults(
            self._result(estimate), RowAccess(self, self._data, estimate, estimator, negative)
        )

    def __getstate__(self) -> Any:
        raise VcompError(
            "a model refers to its rows and to the scope of its caller and cannot be stored; "
            "store its result (res.to_json() or pickle), or formula and data"
        )

    # Parts of a fit ---------------------------------------------------------------------------

    def _check_anova(self) -> None:
        formula, structure = self.design.formula, self.design.structure
        if not formula.intercept_only:
            raise EstimationError(
                "method='anova' (Henderson's Method I) needs a constant mean, and the fixed part "
                f"is {' + '.join(formula.fixed) or '0'}; use method='reml' or 'ml'"
            )
        if structure.partly_crossed:
            (a, b), *_ = structure.partly_crossed
            warn(
                f"{a} and {b} are not fully crossed: Henderson's Method I is unbiased here but "
                "can be far off, as it does not adjust the terms for each other; "
                "method='reml' is better"
            )

    def _estimate_of(self, estimator: Estimator, terms: tuple[int, ...]) -> Estimate:
        """Return the estimate of some of the terms."""
        names, whole = self.component_names, self.statistics
        if self._data.rows is None:
            stats = whole.of_terms(terms)
        else:
            chunk = replace(whole.rows, terms=tuple(whole.rows.terms[t] for t in terms))
            stats = Statistics.from_rows(chunk, self.design.grid, self.design.partial_grid)
        return estimator.estimate(stats, (*(names[t] for t in terms), RESIDUAL))

    def _result(self, estimate: Estimate) -> FitRecord:
        """Return the record of an estimate, with fixed effects of the uncentred columns."""
        data, design, fixed = self._data, self.design, self.design.fixed
        beta, cov_beta = design.uncentre(estimate.beta, estimate.cov_beta)
        errors = fixed_errors_of(self.statistics, estimate, design, cov_beta)
        estimate = replace(estimate, beta=beta, cov_beta=cov_beta, fixed_errors=errors)
        return FitRecord(
            formula=design.formula.text,
            response=design.formula.response,
            exog_names=fixed.names,
            structure=design.structure,
            estimate=estimate,
            tables=TablesOfFit(data, estimate),
            response_sums=data.response_sums,
            weights=data.weights,
            offset=data.offset,
            left_out=() if fixed.left_out is None else fixed.left_out.left_out_names,
        )


def _without_dependent(data: SummedData) -> SummedData:
    """Return the data without columns of X that are linear combinations of others, and warn."""
    design = data.design
    left_out = find_left_out(data.statistics, design.fixed.names, design.x_origin, design.constant)
    if left_out is None:
        return data
    warn(left_out_note(left_out[0].left_out_names))
    return data.without_columns(*left_out)


def _without_dominant(data: SummedData) -> SummedData:
    """Return the data less the fixed part if that dwarfs the rest.

    Raises
    ------
    DataError
        If too few digits of the rest are left.
    """
    design, sums = data.design, data.response_sums
    response, known = design.formula.response, design.beta_origin
    beta = dominant_fixed_part(data.statistics, response, sums, known)
    return data if beta is None else data.without_fixed(beta)


def _with_known_residual(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a fit whose scores have known variances: the residual is held at 1."""
    hold: Any = options.get("hold")
    if hasattr(hold, "keys") and RESIDUAL in list(hold.keys()):
        raise EstimationError(
            f"hold={{{RESIDUAL!r}: …}} and known_variance= exclude each other: with known "
            "variances the residual is their unit, 1; leave it out of hold="
        )
    if hold is not None and not hasattr(hold, "keys"):
        return dict(options)  # refused with the other options
    return {**options, "hold": {**(hold or {}), RESIDUAL: 1.0}}


def _check_negative(negative: str, method: str) -> None:
    """Refuse an unknown policy for negative estimates, and ``"refit"`` for REML and ML."""
    if negative not in get_args(Negative):
        raise EstimationError(f"negative={negative!r} is not known; it is 'keep' or 'refit'")
    if negative == "refit" and method in ("reml", "ml"):
        raise EstimationError(
            f"method={method!r} never estimates a component below zero; negative='refit' is for "
            "'anova' and the like"
        )
