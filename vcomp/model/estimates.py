"""Methods of a result for its estimates: the model, convergence, components, fixed effects.

Below are the frames that users, plots and exports share; intervals take an interval source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from vcomp._typing import FloatArray
from vcomp.data import WeightsOfRows
from vcomp.design import Structure
from vcomp.estimators import Certificate, Estimate
from vcomp.exceptions import EstimationError, guarded
from vcomp.formula import parameter_names, refuse
from vcomp.inference import Quantities
from vcomp.inference.hypotheses import FixedFit, degrees_of_freedom
from vcomp.inference.intervals import (
    FromComponents,
    IntervalSource,
    Limits,
    unbiased_covariance,
)
from vcomp.model.record import FitRecord
from vcomp.model.row_access import Fitted, RowAccess

if TYPE_CHECKING:
    import pandas as pd


class Estimates(Fitted):
    """Estimates with their covariance and convergence."""

    # The model --------------------------------------------------------------------------

    @property
    def model(self) -> Any:
        """The model that was fitted; None after loading."""
        return None if self._rows is None else self._rows.model

    @property
    def formula(self) -> str:
        """The formula as given."""
        return self._record.formula

    @property
    def method(self) -> str:
        """The name of the method, such as ``"reml"``."""
        return self._record.estimate.method

    @property
    def design(self) -> Structure:
        """The design of the data; ``print(res.design)`` describes it in words."""
        return self._record.structure

    @property
    def nobs(self) -> int:
        """Number of scores that were used."""
        return self._record.structure.n_rows

    @property
    def df_resid(self) -> int:
        """Number of scores minus number of fixed effects."""
        return self.nobs - len(self._record.exog_names)

    # Convergence ---------------------------------------------------------------------------

    @property
    def converged(self) -> bool:
        """Whether the estimation converged; components may be at their bound zero."""
        return self._record.estimate.converged

    @property
    def status(self) -> str:
        """A sentence on how the estimation ended."""
        return self._record.estimate.status

    @property
    def certificate(self) -> Certificate | None:
        """Gradient, Newton decrement and bounds at convergence; None for closed forms."""
        return self._record.estimate.certificate

    @property
    def iterations(self) -> pd.DataFrame:
        """The iterations: a row for each point, the first the start; empty without steps.

        The columns are ``llf``, ``step`` (its kind: start, scale, AI, Newton or EM), ``fraction``
        of it, ``newton_decrement`` (in standard errors), ``kkt_residual``,
        ``n_bound`` (components at zero) and ``var(…)`` or ``cov(…)`` for every component.
        """
        import pandas as pd

        log = self._record.estimate.log
        columns: dict[str, Sequence[object]] = {
            "llf": [point.loglike for point in log],
            "step": [point.step for point in log],
            "fraction": [point.fraction for point in log],
            "newton_decrement": [point.newton_decrement for point in log],
            "kkt_residual": [point.kkt_residual for point in log],
            "n_bound": [point.n_bound for point in log],
        }
        for place, name in enumerate(parameter_names(self._record.estimate.names)):
            columns[name] = [point.components[place] for point in log]
        return pd.DataFrame(columns).rename_axis("iteration")

    @property
    def engine(self) -> str:
        """Which engine computed the estimates, and why."""
        return self._record.estimate.engine

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds that each stage took."""
        return dict(self._record.estimate.seconds)

    @property
    def llf(self) -> float:
        """Log-likelihood (restricted for REML), constants kept as in lme4; nan for ANOVA."""
        return self._record.estimate.llf

    @property
    def aic(self) -> float:
        """−2 llf + 2 (fixed effects + components that were estimated), as in lme4."""
        return -2.0 * self.llf + 2.0 * self._n_parameters

    @property
    def bic(self) -> float:
        """−2 llf + log(nobs) (fixed effects + estimated components), as in lme4."""
        return float(-2.0 * self.llf + np.log(self.nobs) * self._n_parameters)

    @property
    def _n_parameters(self) -> int:
        """Number of fixed effects and of components that were estimated."""
        estimate = self._record.estimate
        return len(self._record.exog_names) + len(estimate.names) - len(estimate.held)

    def glance(self) -> pd.DataFrame:
        """Return one row: method, nobs, df_resid, llf, aic, bic, converged, status."""
        import pandas as pd

        names = ("method", "nobs", "df_resid", "llf", "aic", "bic", "converged", "status")
        return pd.DataFrame({name: [getattr(self, name)] for name in names})

    # Estimates ------------------------------------------------------------------------------

    @property
    def vcomp(self) -> pd.Series:
        """Variance components, negative ANOVA estimates as estimated; the residual is the last."""
        return series(self._record.estimate.values, self._record.estimate.names, "variance")

    @property
    def scale(self) -> float:
        """Residual variance.

        Raises
        ------
        EstimationError
            If there are several.
        """
        components = self._record.components
        if components.groups is not None:
            raise EstimationError(
                f"there is a residual variance for each level of {components.groups.written}, and "
                "scale is one; see error_variances()"
            )
        return float(components.values[-1])

    @property
    def cov_re(self) -> pd.DataFrame:
        """Covariance matrix of the effects of a row's levels, a row for each random term.

        Effects of one bar, such as intercept and slope, are correlated.
        """
        components = self._record.components
        n_residuals = components.n_residuals
        names, v = components.names[:-n_residuals], components.values
        covariance = np.diag(v[:-n_residuals])
        for effects in components.matrices:
            places = np.array(effects.places)
            at = np.diagonal(places)
            covariance[np.ix_(at, at)] = v[places]
        n_terms = len(names) - len(components.covariance_names)
        return matrix(covariance[:n_terms, :n_terms], names[:n_terms])

    @property
    def bse_vcomp(self) -> pd.Series:
        """Standard errors of the components for normal effects, from :meth:`cov_vcomp`.

        nan for a component at its bound or held. :attr:`bse` and :meth:`summary` show robust ones
        where intervals are robust.
        """
        se = standard_errors(self.cov_vcomp().to_numpy())
        return series(se, self._record.estimate.names, "std_error")

    def cov_vcomp(self, cov_type: CovarianceType | None = None) -> pd.DataFrame:
        """Return the covariance matrix of the components.

        Parameters
        ----------
        cov_type : for REML and ML the inverse of the ``"observed"`` (default), ``"expected"`` or
            ``"average"`` information; for ANOVA ``"sampling"``, under normality at the
            estimates: exact, or by Monte Carlo where that takes long (:attr:`mc_error_bse`). For
            all ``"unbiased"``: from mean squares with 2 MS²/(df + 2) instead of 2 MS²/df, as
            GENOVA prints them (Brennan's normal procedure). nan where a component is at its bound
            or held

        Raises
        ------
        EstimationError
            If the method has no such matrix.
        """
        estimate = self._record.estimate
        covariances = dict(estimate.covariances)
        if cov_type == "unbiased":
            unbiased = unbiased_covariance(self._record.components)
            if unbiased is not None:
                covariances["unbiased"] = unbiased
        chosen = next(iter(covariances)) if cov_type is None else cov_type
        if chosen not in covariances:
            raise EstimationError(
                f"method {estimate.method!r} has no {cov_type!r} covariance; it has "
                f"{', '.join(map(repr, covariances))}"
            )
        return matrix(covariances[chosen], estimate.names)

    @property
    def weights(self) -> WeightsOfRows | None:
        """The weights of the rows, or their known variances; None where all count alike."""
        return self._record.weights

    @property
    def held(self) -> tuple[str, ...]:
        """Components that were held at a given value, and not estimated."""
        return self._record.estimate.held

    @property
    def mc_error(self) -> pd.Series:
        """Monte Carlo errors of the components from the engine's random probes; 0 without.

        They include the distance of the last iteration from the maximum.
        """
        return mc_errors(self._record.estimate)

    @property
    def mc_error_llf(self) -> float:
        """Monte Carlo standard error of the log-likelihood; 0 without random probes."""
        return self._record.estimate.llf_error

    @property
    def mc_error_bse(self) -> pd.Series:
        """Relative Monte Carlo errors of the standard errors: 0.01 is one per cent; 0 if exact.

        Standard errors of ANOVA come from random probes where the data are large; ``n_probes=``
        sets their number.
        """
        estimate = self._record.estimate
        errors = np.array([estimate.covariance_error.get(name, 0.0) for name in estimate.names])
        return series(errors, estimate.names, "mc_error_bse")

    @property
    def fe_params(self) -> pd.Series:
        """Fixed effects."""
        return series(self._record.estimate.beta, self._record.exog_names, "coef")

    @property
    def bse_fe(self) -> pd.Series:
        """Standard errors of the fixed effects."""
        variances = self._record.estimate.cov_beta.diagonal()
        return series(np.sqrt(variances), self._record.exog_names, "std_error")

    @property
    def df_fe(self) -> pd.Series:
        """Satterthwaite's degrees of freedom of the fixed effects (Giesbrecht & Burns 1985).

        ∞ where all components are held, nan where their covariance is not known.
        """
        df = degrees_of_freedom(self._record.estimate)
        return series(df, self._record.exog_names, "df")

    @property
    def params(self) -> pd.Series:
        """Fixed effects, then components as ``var(…)``, covariances of slopes as ``cov(…)``."""
        return joined(self.fe_params, self.vcomp, "params")

    @property
    @guarded
    def bse(self) -> pd.Series:
        """Standard errors of :attr:`params` from :meth:`cov_params`, as in :meth:`summary`.

        Those of components are robust where the default intervals are (``interval="auto"``), else
        they are :attr:`bse_vcomp`.
        """
        se = standard_errors(covariance_beside(self._record, self._record.of_components()))
        return joined(self.bse_fe, series(se, self._record.estimate.names, "std_error"), "bse")

    @property
    def tvalues(self) -> pd.Series:
        """Fixed effects over their standard errors; nan for components, which have no t-test.

        :meth:`test` tests a component.
        """
        return with_components(self._record, self.fe_params / self.bse_fe, "tvalues")

    @property
    @guarded
    def pvalues(self) -> pd.Series:
        """P-values of the fixed effects, with Satterthwaite's degrees of freedom; else nan."""
        p = fixed_fit(self._record, self._rows).table(0.05, "satterthwaite")["p_value"]
        return with_components(self._record, p, "pvalues")

    @guarded
    def cov_params(self) -> pd.DataFrame:
        """Return the covariance matrix of :attr:`params`, block diagonal.

        That of components is robust where the default intervals are, else :meth:`cov_vcomp`; nan
        where a component is at its bound or held.
        """
        record, p = self._record, len(self._record.exog_names)
        k = len(record.estimate.names)
        # That of very many fixed effects is a matrix in parts.
        fixed: Any = record.estimate.cov_beta
        covariance = np.zeros((p + k, p + k))
        covariance[:p, :p] = fixed if isinstance(fixed, np.ndarray) else fixed.toarray()
        covariance[p:, p:] = covariance_beside(record, record.of_components())
        return matrix(covariance, tuple(self.params.index))

    def anova_table(self) -> pd.DataFrame:
        """Return the analysis of variance: df, sum_sq, mean_sq and expected mean squares.

        The columns ``E[…]`` hold the coefficients of the components in the expected mean squares.
        Sums of squares are sequential after ``method="type1"``, and those of each term adjusted
        for all others after ``"henderson3"``. After any other method they are those of Henderson's
        Method I: for unbalanced data "analogous" ones, each T term less those of coarser terms.

        Raises
        ------
        EstimationError
            If the mean is not constant: Method I does not allow covariates.
        """
        import pandas as pd

        table = self._record.tables.table
        see, has = "see fixed_effects() and test()", self._record.traits
        refuse("the analysis of variance", has, slopes=see, residuals=see, weights=see)
        if table is None:
            raise EstimationError(
                "the analysis of variance by Henderson's Method I needs a constant mean, and the "
                f"fixed part is {' + '.join(self._record.exog_names) or '0'}; "
                "method='type1' and 'henderson3' have one with covariates"
            )
        with np.errstate(divide="ignore", invalid="ignore"):
            mean_sq = np.where(table.df > 0, table.sum_sq / table.df, np.nan)
        frame = pd.DataFrame(
            {"df": table.df.astype(int), "sum_sq": table.sum_sq, "mean_sq": mean_sq},
            index=pd.Index(table.names, name="term"),
        )
        for name, column in zip(table.names, table.expected.T, strict=True):
            frame[f"E[{name}]"] = column
        return frame


CovarianceType: TypeAlias = Literal["observed", "expected", "average", "sampling", "unbiased"]


def series(values: FloatArray, names: Sequence[str], name: str) -> pd.Series:
    """Return a copy of the values under their names."""
    import pandas as pd

    return pd.Series(np.array(values), index=list(names), name=name, dtype=float)


def matrix(values: FloatArray, names: Sequence[str]) -> pd.DataFrame:
    """Return a copy of a square matrix with the names on both sides."""
    import pandas as pd

    return pd.DataFrame(np.array(values), index=list(names), columns=list(names))


def joined(fixed: pd.Series, components: pd.Series, name: str) -> pd.Series:
    """Return fixed effects, then components as ``var(…)``, covariances of slopes as ``cov(…)``."""
    import pandas as pd

    renamed = components.set_axis(parameter_names(list(components.index)))
    both: pd.Series = pd.concat([fixed, renamed])
    return both.rename(name)


def with_components(record: FitRecord, fixed: pd.Series, name: str) -> pd.Series:
    """Return values of the fixed effects, then nan for the components."""
    names = record.estimate.names
    return joined(fixed, series(np.full(len(names), np.nan), names, name), name)


def standard_errors(covariance: FloatArray) -> FloatArray:
    """Return roots of the diagonal; nan where that is not above zero."""
    variances = np.diagonal(covariance)
    return np.sqrt(np.where(variances > 0.0, variances, np.nan))


def mc_errors(estimate: Estimate) -> pd.Series:
    """Return the Monte Carlo standard errors of the components; 0 without random probes."""
    errors = np.array([estimate.monte_carlo.get(name, 0.0) for name in estimate.names])
    return series(errors, estimate.names, "mc_error")


def component_limits(estimate: Estimate, alpha: float, source: IntervalSource) -> Limits:
    """Return intervals of the components; those that are held have none."""
    limits = source.limits(Quantities("linear", np.eye(len(estimate.names))), alpha)
    held = np.isin(np.array(estimate.names, dtype=object), estimate.held)
    low, high = (np.where(held, np.nan, end) for end in (limits.low, limits.high))
    return replace(limits, low=low, high=high)


def covariance_beside(record: FitRecord, source: IntervalSource) -> FloatArray:
    """Return the covariance of the components that matches the intervals of a source.

    Rows and columns of components that are held or at their bound are nan.
    """
    if isinstance(source, FromComponents) and source.interval == "robust":
        k, robust = len(record.estimate.names), source.robust_covariance
        return np.full((k, k), np.nan) if robust is None else robust
    return next(iter(record.estimate.covariances.values()))


def gstudy(record: FitRecord, source: IntervalSource, limits: Limits) -> pd.DataFrame:
    """Return estimate, se, interval and share of every component; a note where one is missing.

    Parameters
    ----------
    source, limits : of the intervals, and the intervals
    """
    import pandas as pd

    estimate = record.estimate
    values, se = np.array(estimate.values), standard_errors(covariance_beside(record, source))
    if record.components.matrices:  # variances of slopes have other units
        return pd.DataFrame(
            {"estimate": values, "se": se, "low": limits.low, "high": limits.high},
            index=pd.Index(estimate.names, name="component"),
        )
    positive = np.maximum(values, 0.0)
    if record.weights is not None and record.weights.of_known_variances:
        positive[-1] = np.nan  # of no score in particular
    total = np.nansum(positive)
    # Divided first, so that the share of a single positive component is exactly 100.
    percent = 100.0 * (positive / total) if total > 0.0 else np.full(values.size, np.nan)
    columns = {"estimate": values, "se": se}
    if any(estimate.monte_carlo.values()):
        columns["mc_error"] = mc_errors(estimate).to_numpy()
    columns |= {"low": limits.low, "high": limits.high, "percent": percent}
    frame = pd.DataFrame(columns, index=list(estimate.names)).rename_axis("component")
    missing = frame.isna().any(axis=1)
    if missing.any():
        reasons = [_why_missing(row, estimate.held) for row in frame.itertuples()]
        frame["note"] = np.where(missing, reasons, "")
    return frame


def _why_missing(row: Any, held: Sequence[str]) -> str:
    """Return in few words why a component has no standard error, interval or share."""
    if row.Index in held:
        return "held"
    if np.isnan(row.percent):
        return "no variance"
    if row.estimate == 0.0:
        return "at bound 0"
    return "se undefined" if np.isnan(row.se) else "no interval"


def fixed_fit(record: FitRecord, rows: RowAccess | None) -> FixedFit:
    """Return the values that tests of fixed effects use."""
    return FixedFit(
        estimate=record.estimate,
        names=record.exog_names,
        stats=None if rows is None else rows.data.statistics,
        design=None if rows is None else rows.data.design,
        components=record.components,
        levels=record.fixed_levels,
        left_out=record.left_out,
    )
