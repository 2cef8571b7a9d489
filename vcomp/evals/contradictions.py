"""What the scores of an evaluation contradict in its model, in sentences."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from vcomp import display
from vcomp.inference.assumptions import mauchly
from vcomp.inference.intervals import below_zero
from vcomp.model import cell_means

EvalStudy: TypeAlias = Any
"""The study of an evaluation, whose module imports this one."""

_LEVEL = 0.001
"""Level of the test of equal variances of differences."""

_UNEQUAL = 1.5
"""Ratio of the largest standard error of a pair to the smallest that is named."""

_MOST = 40
"""Models whose differences are compared."""


def contradictions(study: EvalStudy) -> list[str]:
    """Return what the scores contradict in the model, in sentences.

    Parameters
    ----------
    study : of several models
    """
    found = [str(of) for of in below_zero(study.plan.components) if of.is_sure]
    return [*found, *_unequal_errors(study)]


def _unequal_errors(study: EvalStudy) -> list[str]:
    """Return the sentence on pairs whose differences vary unequally over items, if they do."""
    roles, pairs = study.roles, study.comparisons.table
    items = max(roles.sampled, key=lambda f: roles.levels[f])
    k = roles.levels[roles.model]
    if not any(items in term for term in roles.terms):  # each item has one score
        return []
    if not 3 <= k <= min(_MOST, roles.levels[items] // 2):
        return []
    values, levels = cell_means(study.components, items, roles.model)
    values = values[~np.isnan(values).any(axis=1)]
    if k > len(values) // 2:
        return []
    covariance = np.cov(values, rowvar=False)
    if mauchly(covariance, len(values) - 1.0) > _LEVEL:
        return []
    first, second = np.triu_indices(k, 1)
    variances = np.diagonal(covariance)
    deviations = (variances[:, None] + variances - 2.0 * covariance)[first, second]
    ratios = np.sqrt(deviations / deviations.mean())
    if not ratios.max() >= _UNEQUAL * ratios.min():
        return []
    error, names = float(pairs["std_error"].median()), list(map(str, levels))

    def said(j: int) -> str:
        of_pair = display.number(error * float(ratios[j]), 2)
        return f"{of_pair} for {names[first[j]]} and {names[second[j]]}"

    j = int(ratios.argmax())
    of_two = f"where={{{roles.model!r}: [{names[first[j]]!r}, {names[second[j]]!r}]}}"
    sentence = (
        f"All pairs have one standard error, about {display.number(error, 2)}, but differences "
        f"vary unequally over {display.levels_of(items)}: by them alone it would be from "
        f"{said(int(ratios.argmin()))} to {said(j)}. A pair has its own error in a study of these "
        f"two, {of_two}; multiply its p-value by the number of pairs, {display.count(len(pairs))}."
    )
    return [sentence]
