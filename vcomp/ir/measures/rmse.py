"""Root mean squared error ε of the mean scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.ir.agreement import MeanMeasure
from vcomp.ir.scores import ScoreMatrix
from vcomp.ir.significance import TwoWay


@dataclass(frozen=True, slots=True)
class RMSE(MeanMeasure):
    """Root mean squared difference of mean scores and true means (Urbano et al., 2013, sec. 2.1).

    ε = √(Σ_s (X̄_s - μ_s)² / k), in the units of the scores. Unlike rank correlations it
    includes errors that all systems share.

    Notes
    -----
    The estimate is the square root of the absolute error variance of a D-study,
    √((σ²(t) + σ²(st)) / n'): what E ε² is for true means. Between two halves, each with errors of
    its own, ε² is twice that on average.

    References
    ----------
    Urbano, J., Marrero, M. and Martín, D. (2013). On the measurement of test collection
    reliability. *Proc. ACM SIGIR*, 393-402.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> round(RMSE().actual(scores, [0.3, 0.4, 0.2]), 4)
    0.0694
    """

    name: ClassVar[str] = "rmse"
    symbol: ClassVar[str] = "ε"
    limits: ClassVar[tuple[float, float]] = (0.0, np.inf)
    larger_is_better: ClassVar[bool] = False
    has_estimator: ClassVar[bool] = True

    def actual_of_means(self, means: FloatArray, true_means: FloatArray) -> FloatArray:
        """Return ε of each collection."""
        return np.sqrt(np.square(means - true_means).mean(axis=-1))

    def estimate_of_matrix(self, matrix: ScoreMatrix, n: FloatArray) -> FloatArray:
        """Return the standard error of mean scores, √((σ²(t) + σ²(st)) / n')."""
        components = TwoWay.from_scores(matrix)
        return np.sqrt((components.topic + components.residual) / n)
