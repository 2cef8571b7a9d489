"""The residual variances of a fit by level, with the errors of measurement that follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vcomp.exceptions import EstimationError, check_alpha
from vcomp.formula import ResidualGroups
from vcomp.gtheory import DStudy
from vcomp.inference.intervals import IntervalSource
from vcomp.model.estimates import component_limits, gstudy
from vcomp.model.record import FitRecord

if TYPE_CHECKING:
    import pandas as pd


def error_variances(record: FitRecord, source: IntervalSource, alpha: float) -> pd.DataFrame:
    """Return a row for each residual variance: scores, estimate, error and interval.

    Parameters
    ----------
    record : of the fit
    source : of the intervals
    alpha : intervals have confidence 1 − alpha

    Raises
    ------
    EstimationError
        If there is one residual variance.
    PlanError
        If alpha is not between 0 and 1.
    """
    import pandas as pd

    groups = residual_groups(record)
    check_alpha(alpha)
    limits = component_limits(record.estimate, alpha, source)
    rows = gstudy(record, source, limits).iloc[-len(groups.n) :]
    columns = {
        "n": groups.n,
        "variance": rows["estimate"].to_numpy(),
        "se": rows["se"].to_numpy(),
        "low": rows["low"].to_numpy(),
        "high": rows["high"].to_numpy(),
        "std_dev": np.sqrt(rows["estimate"].to_numpy()),
    }
    return pd.DataFrame(columns, index=_index(groups.facets, groups.levels))


def residual_groups(record: FitRecord) -> ResidualGroups:
    """Return the groups of rows that have a residual variance each.

    Raises
    ------
    EstimationError
        If there is one residual variance.
    """
    groups = record.components.groups
    if groups is None:
        raise EstimationError(
            "there is one residual variance for all scores; fit with residual='sys' for one for "
            "each level of sys"
        )
    return groups


def _index(facets: tuple[str, ...], levels: Sequence[tuple[str, ...]]) -> pd.Index:
    import pandas as pd

    if len(facets) == 1:
        return pd.Index([level for (level,) in levels], name=facets[0])
    return pd.MultiIndex.from_tuples(levels, names=list(facets))


def errors_by_level(study: DStudy) -> pd.DataFrame:
    """Return the D-studies of the residual variance of each level, a row for each level and plan.

    Parameters
    ----------
    study : with several residual variances
    """
    import pandas as pd

    assert study.residuals is not None
    groups, tables = study.residuals.groups, []
    assert groups is not None
    for level, own in zip(groups.levels, study.by_level.values(), strict=True):
        sems = {sem: own.quantity(sem)["estimate"] for sem in ("rel_sem", "abs_sem")}
        table = own.table.assign(**sems)
        tables.append(table.set_axis(_index(groups.facets, [level] * len(table))))
    return pd.concat(tables)
