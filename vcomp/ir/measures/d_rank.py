"""Distance d_rank between a collection and a ranking (Carterette, 2009)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError, is_real
from vcomp.ir.agreement import TopicMeasure, rounding
from vcomp.ir.measures.larger_tests import Extrapolated


@dataclass(frozen=True, slots=True)
class RankDistance(Extrapolated, TopicMeasure):
    """Distance of scores to the true ranking, in units of sampling error.

    Swaps of systems whose scores go together over topics are strong evidence, swaps of systems
    that differ by chance are not: Kendall's τ counts both the same. With D̄ the mean differences
    of neighbours in the true ranking and S their covariance matrix over n topics,

        d_rank² = min n (θ - D̄)' S⁻¹ (θ - D̄)    over θ ≥ 0:

    the distance, in units of sampling error, to the nearest means that are in the true order. Zero
    if the collection ranks all systems as the truth does.

    Parameters
    ----------
    shrinkage : share, at least 0 and at most 1, of a diagonal matrix in the covariance matrix of
        the systems (topic means removed), which with fewer topics than systems is singular

    Raises
    ------
    PlanError
        If `shrinkage` is out of range.

    Notes
    -----
    The definition follows the abstract of the paper, by which the distance accounts for the
    correlations between systems over topics and has a distribution to test against; the quadratic
    programme, S with n - 1, n in front and the root are also those of an independent
    implementation in R (``drank.r`` of github.com/adrianalbert/EnergyAnalytics), which adds 1e-5
    to the diagonal of S instead of a share. Systems of equal true means are our own addition.

    It depends on the truth through its ranking only; systems with equal true means may come in any
    order. Undefined (nan) where S is singular, as with no more topics than systems and no
    `shrinkage`. Found as a least distance problem by non-negative least squares (Lawson and
    Hanson, 1974, ch. 23), without the inverse.

    Curves of halves lie between 0 and 1, so :meth:`estimate` fails if the distance of a half is
    larger. d_rank need not fall as tests grow, since its unit, the sampling error, falls too.

    References
    ----------
    Carterette, B. (2009). On rank correlation and the distance between rankings. *Proc. ACM
    SIGIR*, 436-443.

    Lawson, C. L. and Hanson, R. J. (1974). *Solving Least Squares Problems*. Prentice-Hall.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3], [0.3, 0.7, 0.2]]
    >>> RankDistance().actual(scores, [0.2, 0.4, 0.1])
    0.0
    >>> round(RankDistance().actual(scores, [0.2, 0.4, 0.3]), 3)
    0.775
    """

    shrinkage: float = 0.0

    name: ClassVar[str] = "d_rank"
    symbol: ClassVar[str] = "d_rank"
    limits: ClassVar[tuple[float, float]] = (0.0, np.inf)
    larger_is_better: ClassVar[bool] = False
    undefined: ClassVar[str] = (
        "the covariance of the systems is singular, with too few topics or with systems that "
        "differ by a constant; try a shrinkage such as 0.1"
    )

    def __post_init__(self) -> None:
        if not is_real(self.shrinkage) or not 0 <= self.shrinkage <= 1:
            raise PlanError(f"shrinkage must be between 0 and 1, not {self.shrinkage!r}")

    def actual_of_scores(self, X: FloatArray, Y: FloatArray) -> float:
        """Return d_rank of a collection, unchecked: for loops."""
        G = _order_constraints(Y.mean(axis=0) if Y.ndim == 2 else Y)
        means = X.mean(axis=0)
        differences = G @ means
        differences[np.abs(differences) <= rounding(means)] = 0.0
        if (differences >= 0).all():
            return 0.0
        L = _error_factor(X, self.shrinkage)
        if L is None:
            return np.nan
        return _least_distance(G @ L, -differences)


def _order_constraints(truth: FloatArray) -> FloatArray:
    """Return contrasts of means that are all nonnegative if and only if the order is true.

    One for each pair of neighbours; between groups of tied systems, one for each pair.
    """
    order = np.argsort(-truth, kind="stable")
    gaps = -np.diff(truth[order]) > rounding(truth)
    groups = np.split(order, np.flatnonzero(gaps) + 1)
    pairs = [(i, j) for upper, lower in pairwise(groups) for i in upper for j in lower]
    G = np.zeros((len(pairs), truth.size))
    for row, (i, j) in enumerate(pairs):
        G[row, i], G[row, j] = 1.0, -1.0
    return G


def _error_factor(X: FloatArray, shrinkage: float) -> FloatArray | None:
    """Return L with LL' the covariance of mean scores less topic means; None if singular."""
    n, k = X.shape
    Z = X - X.mean(axis=1, keepdims=True)
    Z -= Z.mean(axis=0)
    L: FloatArray = Z.T / np.sqrt(n * (n - 1))
    if shrinkage > 0:
        spread = np.sqrt(np.square(L).sum(axis=1))
        L = np.hstack([np.sqrt(1 - shrinkage) * L, np.sqrt(shrinkage) * np.diag(spread)])
    singular = np.linalg.svd(L, compute_uv=False)
    rounded = max(L.shape) * np.finfo(float).eps
    tiny = rounded * np.abs(X).max()
    # Contrasts have one dimension less than systems.
    if singular.size < k - 1 or singular[k - 2] <= max(tiny, rounded * singular[0]):
        return None
    return L


def _least_distance(E: FloatArray, f: FloatArray) -> float:
    """Return the smallest ‖u‖ with E u ≥ f."""
    from scipy.optimize import nnls

    # Scaled, since numbers below 1e-8 of the largest are lost.
    unit, scale = np.abs(E).max(), np.abs(f).max()
    A = np.vstack([E.T / unit, f / scale])
    b = np.zeros(len(A))
    b[-1] = 1.0
    weights, _ = nnls(A, b, maxiter=30 * A.shape[1])
    residual = A @ weights - b
    u = residual[:-1] / residual[-1] * (scale / unit)
    return float(np.sqrt(u @ u))
