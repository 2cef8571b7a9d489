"""Index of dependability Φ: how well absolute scores are measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vcomp._typing import FloatArray
from vcomp.ir.agreement import MeanMeasure, rounding
from vcomp.ir.measures.erho2 import share_of_truth, share_of_variance
from vcomp.ir.scores import ScoreMatrix
from vcomp.ir.significance import TwoWay


@dataclass(frozen=True, slots=True)
class DependabilityIndex(MeanMeasure):
    """Index of dependability Φ (Urbano, 2016, eqs. 19-21 and 30).

    With ν_s = μ_s - μ the true effect of a system and Δ_s = X̄_s - μ_s the error of its observed
    mean, σ²(ν) / (σ²(ν) + σ²(Δ)), where σ² is the mean square over systems. Unlike Eρ² it
    depends on how hard the topics are.

    Notes
    -----
    The estimate is that of a D-study, with components by the ANOVA method, negative ones set to
    zero: ``vcomp.fit(...).dstudy(...)`` has the same and more. The actual value is undefined (nan)
    if all true means are the same and there is no error.

    References
    ----------
    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Sections 3.2.2 and 4.2.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> round(DependabilityIndex().actual(scores, [0.3, 0.4, 0.2]), 3)
    0.581
    >>> DependabilityIndex().estimate(scores, [3, 30]).round(3)
    array([0.775, 0.972])
    """

    name: ClassVar[str] = "Phi"
    symbol: ClassVar[str] = "Φ"
    has_estimator: ClassVar[bool] = True
    undefined: ClassVar[str] = "all true means are the same, and there is no error"

    def actual_of_means(self, means: FloatArray, true_means: FloatArray) -> FloatArray:
        """Return Φ of each collection."""
        effects = true_means - true_means.mean(axis=-1, keepdims=True)
        return share_of_truth(effects, means - true_means, rounding(means) + rounding(true_means))

    def estimate_of_matrix(self, matrix: ScoreMatrix, n: FloatArray) -> FloatArray:
        """Return Φ̂ = σ²(s) / (σ²(s) + (σ²(t) + σ²(st))/n')."""
        components = TwoWay.from_scores(matrix)
        error = components.topic + components.residual
        return share_of_variance(components.system, error, n)
