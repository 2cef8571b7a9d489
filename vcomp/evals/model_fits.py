"""Fits of scores: models fixed or sampled, their means and pairs, and the sources of noise."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from vcomp import display
from vcomp.evals.next_data import plan_of
from vcomp.evals.partitions import Partitions
from vcomp.evals.roles import FIXED, Roles, of_lacking
from vcomp.evals.score_rows import check_varying, distinct
from vcomp.exceptions import DataError, EstimationError, VcompWarning
from vcomp.formula import RESIDUAL
from vcomp.gtheory import DStudy
from vcomp.inference.hypotheses import CovarianceOfFixed
from vcomp.inference.pairwise import PairwiseComparisons
from vcomp.model import VarianceComponentsModel, VarianceComponentsResults, model_of_same_rows

if TYPE_CHECKING:
    import pandas as pd

SCORE = ["mean", "std_error", "df", "low", "high"]
"""Columns of a score."""

DDF: Literal["unbounded"] = "unbounded"
"""Prompts and judges are few: an interaction that is estimated at 0 is not known to be 0."""

PairsTest: TypeAlias = Literal["t", "tukey", "max-t"]

_HALF = "half_of_rows"

_DEPENDENT = r"(?s).* of the fixed part (is a|are) linear combination"

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


def noise_of_score(
    fit: VarianceComponentsResults, roles: Roles, table: pd.DataFrame, shares: Mapping[Any, float]
) -> pd.DataFrame:
    """Return the components of one model, and what they add to the error of its score.

    A score is Σ w y with equal weights w in each task, so that a component σ² adds σ² Σ_g w_g²,
    with w_g the sum of the weights of one of its effects.

    Parameters
    ----------
    fit : of its scores
    roles : of the columns
    table : a row for each score
    shares : weights of tasks; empty if they are equal

    Returns
    -------
    pandas.DataFrame
        Index: the components; columns ``variance``, ``share`` of the error variance, and
        ``facets``, whose levels divide it
    """
    import pandas as pd

    cells = [table[f] for f in roles.fixed]
    n = table.groupby(cells, observed=True)[roles.score].transform("size") if cells else len(table)
    weights = pd.Series(1.0, table.index) / n
    for name, of in zip(roles.fixed, cells, strict=True):
        known = shares if name == FIXED[0] else {}
        weights = weights * (of.map(known).astype(float) if known else 1.0 / of.nunique())
    of_fit, parts = fit.components, []
    for facets in of_fit.facets[:-1]:
        by = [table[f] for f in facets if f in table]
        sums = weights.groupby(by, observed=True).sum() if by else weights
        parts.append(float(np.square(sums).sum()))
    parts.append(float(np.square(weights).sum()))
    # More of any facet are more scores, each with a residual.
    divided_by = [*of_fit.facets[:-1], frozenset((*roles.sampled, roles.repetition))]
    added = np.array(parts) * np.maximum(of_fit.values, 0.0)
    index = pd.Index(of_fit.names, name="component")
    columns = {"variance": of_fit.values, "share": added / added.sum(), "facets": divided_by}
    return pd.DataFrame(columns, index=index).drop(_HALF, errors="ignore")


def compared(
    fit: VarianceComponentsResults,
    roles: Roles,
    only: object,
    weights: Mapping[Any, float],
    test: PairsTest | None,
    alpha: float,
    cov_type: CovarianceOfFixed,
) -> tuple[pd.DataFrame, PairwiseComparisons | None, tuple[Any, ...]]:
    """Return the means of models with their errors, their pairs, and models without a mean.

    Parameters
    ----------
    fit : with models fixed
    roles : of the columns
    only : the name of the model if there is one
    weights : of tasks; empty if they are equal
    test, alpha : as for :func:`vcomp.evals.study`
    cov_type : of the errors

    Raises
    ------
    DataError
        If the only model has no mean.
    """
    at = {FIXED[0]: weights} if weights else None
    several = roles.levels[roles.model] > 1
    default: PairsTest = "t" if cov_type == "robust" else "tukey"
    means = fit.marginal_means(
        [roles.model] if several else [],
        at=at,
        test=test or default,
        alpha=alpha,
        ddf=DDF,
        cov_type=cov_type,
    )
    table, pairs = means.table[SCORE], means.comparisons.get(())
    if not several:
        table = table.set_axis([only]).rename_axis(roles.model)
    lacking = tuple(table.index[table["mean"].isna()])
    if lacking and pairs is None:
        raise DataError(of_lacking(roles, lacking), column=roles.model)
    return table, pairs, lacking


def without_rounding(means: pd.Series, scores: pd.Series) -> pd.Series:
    """Return means, or their differences, with 0 for those that are rounding errors.

    Parameters
    ----------
    means : of scores
    scores : of all models
    """
    # Of many scores the absolute values would be a copy of all.
    largest = max(abs(float(scores.min())), abs(float(scores.max())))
    return means.mask(means.abs() <= 1e-12 * largest, 0.0)


def fit_of_models(roles: Roles, table: pd.DataFrame) -> VarianceComponentsResults:
    """Return the fit in which models are fixed.

    Parameters
    ----------
    roles : of the columns
    table : a row for each score
    """
    if roles.terms:
        return fitted(roles.formula, table, roles)
    return _least_squares(roles, table)


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

    Raises
    ------
    DataError
        If the scores are sums of effects.
    """
    model = None if known is None else model_of_same_rows(known, formula)
    if model is None:
        model = _model(formula, table, stream=True if sums_cells(roles, table) else None)
    try:
        return model.fit()
    except EstimationError as error:
        if error.term != RESIDUAL:
            raise
        terms = [":".join(t) for t in _largest([(roles.model,), *roles.terms])]
        raise DataError(
            f"the scores are sums of effects of {display.listed(terms)}, without a rest: "
            "differences show no errors. Were scores read under two names, of a "
            f"{roles.model} or of another column?",
            column=roles.score,
        ) from None


def sums_cells(roles: Roles, table: pd.DataFrame) -> bool:
    """Return whether many repeated scores are summed in cells, without their rows."""
    return bool(roles.repetition) and len(table) >= _SUMMED


def _largest(terms: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the terms whose facets no other one has."""
    return [term for term in terms if not any(set(term) < set(other) for other in terms)]


def _least_squares(roles: Roles, table: pd.DataFrame) -> VarianceComponentsResults:
    """Return the fit without random terms, where each item has one score."""
    # A model needs a random term: of this one, held at zero, nothing depends. Halves of each mean
    # are not those of the means, as of tasks by turns.
    half = table.groupby([roles.model, *roles.fixed], observed=True).cumcount() % 2
    formula = f"{roles.formula} + (1|{_HALF})"
    return _model(formula, table.assign(**{_HALF: half})).fit(hold={_HALF: 0.0})


def _model(
    formula: str, table: pd.DataFrame, stream: Literal[True] | None = None
) -> VarianceComponentsModel:
    """Return the model without a warning of means that are not known, since a study names them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _DEPENDENT, VcompWarning)
        return VarianceComponentsModel.from_formula(formula, table, stream=stream)
