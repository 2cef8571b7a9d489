"""Fits of scores: models fixed or sampled, their means and pairs, and the sources of noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vcomp.evals.next_data import plan_of
from vcomp.evals.roles import FIXED, Partitions, Roles, of_lacking
from vcomp.evals.score_rows import check_varying, distinct
from vcomp.exceptions import DataError
from vcomp.gtheory import DStudy
from vcomp.inference.pairwise import PairwiseComparisons
from vcomp.model import VarianceComponentsModel, VarianceComponentsResults, model_of_same_rows

if TYPE_CHECKING:
    import pandas as pd

SCORE = ["mean", "std_error", "df", "low", "high"]
"""Columns of a score."""

DDF: Literal["unbounded"] = "unbounded"
"""Prompts and judges are few: an interaction that is estimated at 0 is not known to be 0."""

_HALF = "half_of_rows"

_SUMMED = 1_000_000
"""Scores from which on repeated ones are summed in cells, and single rows are not kept."""


def noise(table: pd.DataFrame, roles: Roles, alpha: float) -> tuple[Roles, pd.DataFrame]:
    """Return the roles after repetitions that are equal are dropped, and the sources of noise.

    Models are sampled, so that there may be any number of them.

    Parameters
    ----------
    table : a row for each score
    roles : of its columns
    alpha : of the limit that an error states
    """
    groups = Partitions(table)
    check_varying(table, roles, groups, alpha)
    table, roles = distinct(table, roles, groups)
    if roles.levels[roles.model] == 1:
        return roles, sources_of(fit_of_models(roles, table), None)
    fit = fitted(roles.planning, table, roles)
    return roles, sources_of(fit, plan_of(fit, roles, table, {}))


def sources_of(fit: VarianceComponentsResults, plan: DStudy | None) -> pd.DataFrame:
    """Return components, and their shares in the error of a difference where it is planned.

    Parameters
    ----------
    fit : of the scores
    plan : of the same fit, or None
    """
    import pandas as pd

    found = fit.vcomp.drop(_HALF, errors="ignore")
    shares = np.full(len(found), np.nan)
    if plan is not None:
        parts = plan.projected("rel_err_var").a[0] * np.maximum(plan.components.values, 0.0)
        shares = parts / parts.sum() if parts.any() else parts
    index = pd.Index(found.index, name="component")
    return pd.DataFrame({"variance": found.to_numpy(), "share": shares}, index=index)


def compared(
    fit: VarianceComponentsResults,
    roles: Roles,
    only: object,
    weights: Mapping[Any, float],
    test: Literal["t", "tukey", "max-t"],
    alpha: float,
) -> tuple[pd.DataFrame, PairwiseComparisons | None, tuple[Any, ...]]:
    """Return the means of models with their errors, their pairs, and models without a mean.

    Parameters
    ----------
    fit : with models fixed
    roles : of the columns
    only : the name of the model if there is one
    weights : of tasks; empty if they are equal
    test, alpha : as for :func:`vcomp.evals.study`

    Raises
    ------
    DataError
        If the only model has no mean.
    """
    at = {FIXED[0]: weights} if weights else None
    several = roles.levels[roles.model] > 1
    means = fit.marginal_means(
        [roles.model] if several else [], at=at, test=test, alpha=alpha, ddf=DDF
    )
    table, pairs = means.table[SCORE], means.comparisons.get(())
    if not several:
        table = table.set_axis([only]).rename_axis(roles.model)
    lacking = tuple(table.index[table["mean"].isna()])
    if lacking and pairs is None:
        raise DataError(of_lacking(roles, lacking), column=roles.model)
    return table, pairs, lacking


def fit_of_models(roles: Roles, table: pd.DataFrame) -> VarianceComponentsResults:
    """Return the fit in which models are fixed.

    Parameters
    ----------
    roles : of the columns
    table : a row for each score
    """
    if roles.terms:
        return fitted(roles.formula, table, roles)
    return _least_squares(roles.formula, table)


def fitted(
    formula: str, table: pd.DataFrame, roles: Roles, known: VarianceComponentsResults | None = None
) -> VarianceComponentsResults:
    """Return the fit, of many repeated scores from their sums in cells.

    Parameters
    ----------
    formula : with models fixed or sampled
    table : a row for each score
    roles : of its columns
    known : another fit of the table, whose sums are used where they suffice
    """
    model = None if known is None else model_of_same_rows(known, formula)
    if model is not None:
        return model.fit()
    stream = True if roles.repetition and len(table) >= _SUMMED else None
    return VarianceComponentsModel.from_formula(formula, table, stream=stream).fit()


def _least_squares(formula: str, table: pd.DataFrame) -> VarianceComponentsResults:
    """Return the fit without random terms, where each item has one score."""
    # A model needs a random term: of this one, held at zero, nothing depends.
    half = {_HALF: np.arange(len(table)) % 2}
    made = VarianceComponentsModel.from_formula(f"{formula} + (1|{_HALF})", table.assign(**half))
    return made.fit(hold={_HALF: 0.0})
