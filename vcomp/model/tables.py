"""Frames with fixed columns: what plots, exports and other libraries read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators import Iteration
from vcomp.estimators.quadratic import AnovaTable
from vcomp.inference import Quantities
from vcomp.inference.intervals import IntervalSource, Limits
from vcomp.model.fixed_tables import fixed_intervals

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.model.fitted import FittedComponents
    from vcomp.model.inference import IntervalMethod
    from vcomp.model.results import VarianceComponentsResults


def series(values: FloatArray, names: Sequence[str], name: str) -> pd.Series:
    """Return a copy of the values under their names."""
    import pandas as pd

    return pd.Series(np.array(values), index=list(names), name=name, dtype=float)


def matrix(values: FloatArray, names: Sequence[str]) -> pd.DataFrame:
    """Return a copy of a square matrix with the names on both sides."""
    import pandas as pd

    return pd.DataFrame(np.array(values), index=list(names), columns=list(names))


def conf_int(res: FittedComponents, alpha: float, source: IntervalSource) -> pd.DataFrame:
    """Return intervals of all parameters in columns 0 and 1."""
    import pandas as pd

    fixed = fixed_intervals(res._record.estimate, alpha)
    components = component_limits(res, alpha, source)
    ends = zip(fixed, (components.low, components.high), strict=True)
    low, high = (np.concatenate(both) for both in ends)
    return pd.DataFrame({0: low, 1: high}, index=res.params.index)


def component_limits(res: FittedComponents, alpha: float, source: IntervalSource) -> Limits:
    """Return intervals of the components; those that are held have none."""
    found = source.limits(Quantities("linear", np.eye(len(res.vcomp))), alpha)
    held = np.isin(np.array(res.vcomp.index, dtype=object), res.held)
    low, high = (np.where(held, np.nan, end) for end in (found.low, found.high))
    return replace(found, low=low, high=high)


def gstudy(res: FittedComponents, alpha: float, source: IntervalSource) -> pd.DataFrame:
    """Return estimate, se, interval and share of every component."""
    import pandas as pd

    values, se = res.vcomp.to_numpy(), res.bse_vcomp.to_numpy()
    found = component_limits(res, alpha, source)
    positive = np.maximum(values, 0.0)
    total = positive.sum()
    # A constant response has no variance to share out.
    # A share first: of the only component it is then 100 to the last digit.
    percent = 100.0 * (positive / total) if total > 0.0 else np.full(values.size, np.nan)
    columns = {"estimate": values, "se": se}
    if res.mc_error.any():
        columns["mc_error"] = res.mc_error.to_numpy()
    columns |= {"ci_low": found.low, "ci_high": found.high, "percent": percent}
    return pd.DataFrame(columns, index=res.vcomp.index).rename_axis("component")


def tidy(res: VarianceComponentsResults, alpha: float, interval: IntervalMethod) -> pd.DataFrame:
    """Return a row a parameter."""
    import pandas as pd

    intervals = res.conf_int(alpha, interval)
    names = [*res.fe_params.index, *res.vcomp.index]
    kinds = ["fixed"] * len(res.fe_params) + ["variance"] * len(res.vcomp)
    return pd.DataFrame(
        {
            "term": names,
            "kind": kinds,
            "estimate": res.params.to_numpy(),
            "std_error": res.bse.to_numpy(),
            "conf_low": intervals[0].to_numpy(),
            "conf_high": intervals[1].to_numpy(),
        }
    )


def glance(res: VarianceComponentsResults) -> pd.DataFrame:
    """Return one row a fit."""
    import pandas as pd

    names = ("method", "nobs", "df_resid", "llf", "aic", "bic", "converged", "status")
    return pd.DataFrame({name: [getattr(res, name)] for name in names})


def iterations(log: Sequence[Iteration], names: Sequence[str]) -> pd.DataFrame:
    """Return a row a point of the iteration, the components in columns ``var(…)``."""
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


def anova(table: AnovaTable) -> pd.DataFrame:
    """Return the analysis of variance with its expected mean squares."""
    import pandas as pd

    with np.errstate(divide="ignore", invalid="ignore"):
        mean_sq = np.where(table.df > 0, table.sum_sq / table.df, np.nan)
    frame = pd.DataFrame(
        {"df": table.df.astype(int), "sum_sq": table.sum_sq, "mean_sq": mean_sq},
        index=pd.Index(table.names, name="term"),
    )
    for name, column in zip(table.names, table.expected.T, strict=True):
        frame[f"E[{name}]"] = column
    return frame
