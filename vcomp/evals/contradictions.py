"""What the scores of an evaluation contradict in its model: in sentences, and in its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from vcomp import display
from vcomp.evals.model_fits import sums_cells
from vcomp.evals.roles import MOST_NAMED, Roles
from vcomp.inference.assumptions import unequal_differences
from vcomp.inference.intervals import below_zero
from vcomp.inference.pairwise import PairwiseComparisons

if TYPE_CHECKING:
    import pandas as pd

EvalStudy: TypeAlias = Any
"""The study of an evaluation, whose module imports this one."""

_LEVEL = 0.001
"""Level of the test of equal variances of differences."""

_UNEQUAL = 1.5
"""Ratio of the largest standard error of a pair to the smallest that matters."""

_FEWEST = 6
"""Items, of each model too, that show how their effects vary, as in robust variances."""

_ELEMENTS = 2**25
"""Largest number of scores times models whose own errors are computed without being asked for:
more take longer than the study."""


def contradictions(study: EvalStudy) -> list[str]:
    """Return what the scores contradict in the model, in sentences.

    Parameters
    ----------
    study : of several models
    """
    found = [str(of) for of in below_zero(study.plan.components) if of.is_sure]
    own = study.own_errors
    found += [] if own is None else [_on_errors(study, own)]
    return found + _on_copies(study.roles, study.data)


def vary_unequally(roles: Roles, table: pd.DataFrame) -> bool:
    """Return whether differences of models vary unequally over items, as far as rows show it.

    Parameters
    ----------
    roles : of the columns
    table : a row for each score
    """
    import pandas as pd

    items, k = _items(roles), roles.levels[roles.model]
    if not any(items in term for term in roles.terms):  # each item has one score
        return False
    if k < 3 or roles.levels[items] < _FEWEST:
        return False
    if len(table) * k > _ELEMENTS or sums_cells(roles, table):
        return False
    of_means = table.groupby([roles.model, *roles.fixed], observed=True)[roles.score]
    (rows, levels), (models, _) = (pd.factorize(table[f]) for f in (items, roles.model))
    cells, size = rows.astype(np.int64) * k + models, len(levels) * k
    counts = np.bincount(cells, minlength=size)
    sums = np.bincount(cells, table[roles.score] - of_means.transform("mean"), size)
    values = np.divide(sums, counts, out=np.full(size, np.nan), where=counts > 0).reshape(-1, k)
    if (~np.isnan(values)).sum(axis=0).min() < _FEWEST:
        return False
    return unequal_differences(values) <= _LEVEL


def are_unequal(pairs: PairwiseComparisons | None) -> bool:
    """Return whether the errors of pairs, each its own, differ so much that it matters.

    Parameters
    ----------
    pairs : with an error of each, if there are any
    """
    if pairs is None:
        return False
    errors = pairs.table["std_error"]
    return bool(errors.max() >= _UNEQUAL * errors.min())


def _on_copies(roles: Roles, table: pd.DataFrame) -> list[str]:
    """Return a sentence on models that have the same scores everywhere; none without any.

    Models whose scores are all equal may be alike without being copies.
    """
    import pandas as pd

    others = [name for name in roles.cell if name != roles.model]
    known = [*others, *([roles.repetition] if roles.repetition else [])]
    scores = table[roles.score] + 0.0  # 0 and −0 have one hash
    hashes = pd.util.hash_pandas_object(table[known].assign(**{roles.score: scores}), index=False)
    # Sums of hashes do not depend on the order of the rows.
    sums = hashes.groupby(table[roles.model], observed=True).sum()
    ends = scores.groupby(table[roles.model], observed=True).agg(["min", "max"])
    sums = sums[ends["min"] < ends["max"]]
    alike = [list(map(str, of.index)) for _, of in sums.groupby(sums, sort=False) if len(of) > 1]
    which = "; ".join(
        display.listed([*names[:MOST_NAMED], *["others"] * (len(names) > MOST_NAMED)])
        for names in alike[:MOST_NAMED]
    ) + "; …" * (len(alike) > MOST_NAMED)
    models, every = display.levels_of(roles.model), display.listed(others)
    said = f"These {models} have the same score on every {every}: {which}."
    return [f"{said} Is one a copy of the other?"] if alike else []


def _items(roles: Roles) -> str:
    return max(roles.sampled, key=lambda f: roles.levels[f])


def _on_errors(study: EvalStudy, own: PairwiseComparisons) -> str:
    """Return the sentence on pairs whose errors are unequal."""
    errors, models = own.table["std_error"], display.levels_of(study.roles.model)
    ends = " to ".join(
        f"{display.number(float(of['std_error']), 2)} for {of['first']} and {of['second']}"
        for _, of in own.table.loc[[errors.idxmin(), errors.idxmax()]].iterrows()
    )
    why = f"Differences of {models} vary unequally over {display.levels_of(_items(study.roles))}"
    if study.cov_type == "robust":
        return f"{why}: each pair has the standard error of its own scores, from {ends}."
    error = display.number(float(study.comparisons.table["std_error"].median()), 2)
    return (
        f"{why}, and all pairs have one standard error, about {error}: by their own scores it is "
        f"from {ends}. With cov_type='robust' each pair has its own."
    )
