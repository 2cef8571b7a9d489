"""What the scores of an evaluation contradict in its model, in sentences."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.inference.intervals import below_zero

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
    means = study.data.pivot_table(roles.score, items, roles.model, observed=True).dropna()
    k = means.shape[1]
    if not 3 <= k <= min(_MOST, len(means) // 2):
        return []
    values = means.to_numpy()
    if mauchly(values) > _LEVEL:
        return []
    deviations = np.var(values[:, :, None] - values[:, None, :], axis=0, ddof=1)
    first, second = np.triu_indices(k, 1)
    ratios = np.sqrt(deviations[first, second] / deviations[first, second].mean())
    if not ratios.max() >= _UNEQUAL * ratios.min():
        return []
    error, names = float(pairs["std_error"].median()), list(map(str, means.columns))

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


def mauchly(values: FloatArray) -> float:
    """Return the p-value of Mauchly's test that all differences of columns have one variance.

    Parameters
    ----------
    values : (n, k), with more rows than columns

    References
    ----------
    Mauchly, J. W. (1940). Significance test for mauchly of a normal n-variate distribution.
    *Annals of Mathematical Statistics*, 11, 204-209; with Box's approximation.
    """
    from scipy.linalg import null_space
    from scipy.special import chdtrc

    n, k = values.shape
    contrasts = null_space(np.ones((1, k)))
    p = k - 1
    cov = contrasts.T @ np.cov(values, rowvar=False) @ contrasts
    trace = float(np.trace(cov))
    if not trace > 0.0:
        return 1.0
    sign, log_det = np.linalg.slogdet(cov / (trace / p))
    if sign <= 0.0:
        return 0.0
    factor = n - 1.0 - (2.0 * p**2 + p + 2.0) / (6.0 * p)
    return float(chdtrc(p * (p + 1) / 2.0 - 1.0, max(-factor * float(log_det), 0.0)))
