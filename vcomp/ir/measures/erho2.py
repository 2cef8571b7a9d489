"""Generalizability coefficient Eρ²: how well differences between systems are measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError
from vcomp.ir.agreement import MeanMeasure, rounding
from vcomp.ir.scores import ScoreMatrix
from vcomp.ir.significance import TwoWay


@dataclass(frozen=True, slots=True)
class GeneralizabilityCoefficient(MeanMeasure):
    """Generalizability coefficient Eρ² (Urbano, 2016, eqs. 16-18 and 29).

    With ν_s = μ_s - μ the true effect of a system and δ_s = (X̄_s - X̄) - ν_s the error of the
    observed one, σ²(ν) / (σ²(ν) + σ²(δ)), where σ² is the mean square over systems.

    Notes
    -----
    The estimate is that of a D-study, with components by the ANOVA method, negative ones set to
    zero: ``vcomp.fit(...).dstudy(...)`` has the same and more, such as intervals. The actual value
    is undefined (nan) if all true means are the same and there is no error.

    References
    ----------
    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Sections 3.2.1 and 4.2.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> round(GeneralizabilityCoefficient().actual(scores, [0.3, 0.4, 0.2]), 3)
    0.794
    >>> GeneralizabilityCoefficient().estimate(scores, [3, 30]).round(3)
    array([0.802, 0.976])
    """

    name: ClassVar[str] = "Erho2"
    symbol: ClassVar[str] = "Eρ²"
    has_estimator: ClassVar[bool] = True
    undefined: ClassVar[str] = "all true means are the same, and there is no error"

    def actual_of_means(self, means: FloatArray, true_means: FloatArray) -> FloatArray:
        """Return Eρ² of each collection."""
        effects = true_means - true_means.mean(axis=-1, keepdims=True)
        errors = means - means.mean(axis=-1, keepdims=True) - effects
        return share_of_truth(effects, errors, rounding(means) + rounding(true_means))

    def estimate_of_matrix(self, matrix: ScoreMatrix, n: FloatArray) -> FloatArray:
        """Return Eρ̂² = σ²(s) / (σ²(s) + σ²(st)/n')."""
        components = TwoWay.from_scores(matrix)
        return share_of_variance(components.system, components.residual, n)


def share_of_truth(effects: FloatArray, errors: FloatArray, tolerance: FloatArray) -> FloatArray:
    """Return the share of effects in the mean square of effects and errors; nan if both are 0."""
    truth, error = np.square(effects).mean(axis=-1), np.square(errors).mean(axis=-1)
    total = np.asarray(truth + error)
    known = total > np.square(tolerance)
    return np.divide(truth, total, out=np.full(total.shape, np.nan), where=known)


def share_of_variance(system: float, error: float, n: FloatArray) -> FloatArray:
    """Return σ²(s) / (σ²(s) + error/n)."""
    if system == 0 and error == 0:
        raise DataError("the scores have no variance: systems are the same, and there is no error")
    return system / (system + error / n)
