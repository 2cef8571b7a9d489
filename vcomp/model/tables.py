"""The tables of a result: frames with fixed columns, for users, plots and exports.

Their functions take the record of the fit, and an interval source if they have intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators import Estimate, Iteration
from vcomp.exceptions import EstimationError
from vcomp.inference import Quantities
from vcomp.inference.hypotheses import fixed_intervals
from vcomp.inference.intervals import (
    FromComponents,
    IntervalSource,
    Limits,
    unbiased_covariance,
)
from vcomp.model.record import FitRecord

if TYPE_CHECKING:
    import pandas as pd

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
    """Return fixed effects, then components as ``var(sys)``, …, ``var(Residual)``."""
    import pandas as pd

    both: pd.Series = pd.concat([fixed, components.rename(index=lambda term: f"var({term})")])
    return both.rename(name)


def with_components(record: FitRecord, fixed: pd.Series, name: str) -> pd.Series:
    """Return values of the fixed effects, then nan for the components."""
    names = record.estimate.names
    return joined(fixed, series(np.full(len(names), np.nan), names, name), name)


def params(record: FitRecord) -> pd.Series:
    """Return fixed effects, then components as ``var(sys)``, …, ``var(Residual)``."""
    estimate = record.estimate
    fixed = series(estimate.beta, record.exog_names, "coef")
    return joined(fixed, series(estimate.values, estimate.names, "variance"), "params")


def n_parameters(record: FitRecord) -> int:
    """Return the number of fixed effects and of components that were estimated."""
    estimate = record.estimate
    return len(record.exog_names) + len(estimate.names) - len(estimate.held)


def component_covariance(record: FitRecord, cov_type: CovarianceType | None) -> pd.DataFrame:
    """Return a covariance matrix of the components; the first of the method if None.

    Raises
    ------
    EstimationError
        If the method has no such matrix.
    """
    estimate = record.estimate
    covariances = dict(estimate.covariances)
    unbiased = unbiased_covariance(record.components) if cov_type == "unbiased" else None
    if unbiased is not None:
        covariances["unbiased"] = unbiased
    chosen = next(iter(covariances)) if cov_type is None else cov_type
    if chosen not in covariances:
        raise EstimationError(
            f"method {estimate.method!r} has no {cov_type!r} covariance; it has "
            f"{', '.join(map(repr, covariances))}"
        )
    return matrix(covariances[chosen], estimate.names)


def component_errors(record: FitRecord) -> pd.Series:
    """Return standard errors of the components; nan at a bound or where held."""
    variances = np.diagonal(component_covariance(record, None).to_numpy())
    se = np.sqrt(np.where(variances > 0.0, variances, np.nan))
    return series(se, record.estimate.names, "std_error")


def parameter_covariance(record: FitRecord) -> pd.DataFrame:
    """Return the covariance matrix of fixed effects and components, block diagonal."""
    estimate, p = record.estimate, len(record.exog_names)
    k = len(estimate.names)
    of_fixed = dense_covariance(estimate)
    covariance = np.zeros((p + k, p + k))
    covariance[:p, :p] = of_fixed
    covariance[p:, p:] = component_covariance(record, None).to_numpy()
    return matrix(covariance, tuple(params(record).index))


def dense_covariance(estimate: Estimate) -> FloatArray:
    """Return the covariance matrix of the fixed effects as an array.

    Raises
    ------
    EstimationError
        If it does not fit into memory.
    """
    cov: Any = estimate.cov_beta
    found: FloatArray = cov if isinstance(cov, np.ndarray) else cov.toarray()
    return found


def mc_errors(estimate: Estimate) -> pd.Series:
    """Return the Monte Carlo standard errors of the components; 0 without random probes."""
    errors = np.array([estimate.monte_carlo.get(name, 0.0) for name in estimate.names])
    return series(errors, estimate.names, "mc_error")


def mc_errors_of_standard_errors(estimate: Estimate) -> pd.Series:
    """Return the relative Monte Carlo errors of the standard errors; 0 where these are exact."""
    errors = np.array([estimate.covariance_error.get(name, 0.0) for name in estimate.names])
    return series(errors, estimate.names, "mc_error_bse")


def conf_int(record: FitRecord, alpha: float, source: IntervalSource) -> pd.DataFrame:
    """Return intervals of all parameters in columns 0 and 1."""
    import pandas as pd

    fixed = fixed_intervals(record.estimate, alpha)
    components = component_limits(record.estimate, alpha, source)
    ends = zip(fixed, (components.low, components.high), strict=True)
    low, high = (np.concatenate(both) for both in ends)
    return pd.DataFrame({0: low, 1: high}, index=params(record).index)


def component_limits(estimate: Estimate, alpha: float, source: IntervalSource) -> Limits:
    """Return intervals of the components; those that are held have none."""
    found = source.limits(Quantities("linear", np.eye(len(estimate.names))), alpha)
    held = np.isin(np.array(estimate.names, dtype=object), estimate.held)
    low, high = (np.where(held, np.nan, end) for end in (found.low, found.high))
    return replace(found, low=low, high=high)


def errors_beside(record: FitRecord, source: IntervalSource) -> FloatArray:
    """Return the standard errors of the components that are shown with intervals of a source."""
    if not (isinstance(source, FromComponents) and source.interval == "robust"):
        return component_errors(record).to_numpy()
    estimate = record.estimate
    se = source.standard_errors(Quantities("linear", np.eye(len(estimate.names))))
    return np.where(np.isin(np.array(estimate.names, dtype=object), estimate.held), np.nan, se)


def gstudy(record: FitRecord, alpha: float, source: IntervalSource) -> pd.DataFrame:
    """Return estimate, se, interval and share of every component."""
    import pandas as pd

    estimate = record.estimate
    values, se = np.array(estimate.values), errors_beside(record, source)
    found = component_limits(estimate, alpha, source)
    positive = np.maximum(values, 0.0)
    total = positive.sum()
    # Divided first, so that the share of a single positive component is exactly 100.
    percent = 100.0 * (positive / total) if total > 0.0 else np.full(values.size, np.nan)
    columns = {"estimate": values, "se": se}
    probed = mc_errors(estimate)
    if probed.any():
        columns["mc_error"] = probed.to_numpy()
    columns |= {"ci_low": found.low, "ci_high": found.high, "percent": percent}
    return pd.DataFrame(columns, index=list(estimate.names)).rename_axis("component")


def tidy(record: FitRecord, alpha: float, source: IntervalSource) -> pd.DataFrame:
    """Return a row for each parameter: term, kind, estimate, std_error, conf_low, conf_high."""
    import pandas as pd

    estimate = record.estimate
    intervals = conf_int(record, alpha, source)
    errors_of_fixed = np.sqrt(estimate.cov_beta.diagonal())
    return pd.DataFrame(
        {
            "term": [*record.exog_names, *estimate.names],
            "kind": ["fixed"] * len(record.exog_names) + ["variance"] * len(estimate.names),
            "estimate": np.concatenate([estimate.beta, estimate.values]),
            "std_error": np.concatenate([errors_of_fixed, errors_beside(record, source)]),
            "conf_low": intervals[0].to_numpy(),
            "conf_high": intervals[1].to_numpy(),
        }
    )


def aic(record: FitRecord) -> float:
    """Return −2 llf + 2 (fixed effects + components that were estimated)."""
    return -2.0 * record.estimate.llf + 2.0 * n_parameters(record)


def bic(record: FitRecord) -> float:
    """Return −2 llf + log(nobs) (fixed effects + components that were estimated)."""
    return float(
        -2.0 * record.estimate.llf + np.log(record.structure.n_rows) * n_parameters(record)
    )


def glance(record: FitRecord) -> pd.DataFrame:
    """Return one row: method, nobs, df_resid, llf, aic, bic, converged, status."""
    import pandas as pd

    estimate, n = record.estimate, record.structure.n_rows
    row = {
        "method": estimate.method,
        "nobs": n,
        "df_resid": n - len(record.exog_names),
        "llf": estimate.llf,
        "aic": aic(record),
        "bic": bic(record),
        "converged": estimate.converged,
        "status": estimate.status,
    }
    return pd.DataFrame({name: [value] for name, value in row.items()})


def iterations(log: Sequence[Iteration], names: Sequence[str]) -> pd.DataFrame:
    """Return a row for each point of the iteration, with the components in ``var(…)``."""
    import pandas as pd

    columns: dict[str, Sequence[object]] = {
        "llf": [point.loglike for point in log],
        "step": [point.step for point in log],
        "fraction": [point.fraction for point in log],
        "newton_decrement": [point.newton_decrement for point in log],
        "kkt_residual": [point.kkt_residual for point in log],
        "n_bound": [point.n_bound for point in log],
    }
    for place, name in enumerate(names):
        columns[f"var({name})"] = [point.components[place] for point in log]
    return pd.DataFrame(columns).rename_axis("iteration")


def anova(record: FitRecord) -> pd.DataFrame:
    """Return the analysis of variance with its expected mean squares.

    Raises
    ------
    EstimationError
        If the mean is not constant, and the method is not an analysis of variance.
    """
    import pandas as pd

    table = record.table
    if table is None:
        raise EstimationError(
            "the analysis of variance by Henderson's Method I needs a constant mean, and the "
            f"fixed part is {' + '.join(record.exog_names) or '0'}; "
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
