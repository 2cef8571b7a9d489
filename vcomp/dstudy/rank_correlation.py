"""τ and τ_AP of swaps that have probabilities, and of swaps that are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from vcomp._typing import FloatArray
from vcomp.dstudy.swaps import Swaps

__all__ = ["RankCorrelation"]


@dataclass(frozen=True, slots=True)
class RankCorrelation:
    """τ or τ_AP, and what becomes of equal systems.

    Attributes
    ----------
    ap : whether it is τ_AP
    ties : ``"a"`` or ``"b"``, see :func:`vcomp.dstudy.rank_accuracy.expected_tau`
    """

    ap: bool
    ties: Literal["a", "b"]

    def weights(self, k: int) -> FloatArray:
        """Return what each pair counts; they add up to one."""
        if not self.ap:
            n_pairs = k * (k - 1) // 2
            return np.full(n_pairs, 1.0 / n_pairs)
        n_above = np.triu_indices(k, 1)[1].astype(np.float64)
        return np.asarray(1.0 / ((k - 1.0) * n_above))

    def estimate(self, swaps: Swaps, weights: FloatArray, n: float) -> tuple[float, float]:
        """Return the expectation and the variance of independent swaps."""
        ahead, behind = swaps.probabilities(n)
        if swaps.threshold == 0.0:
            spread = 4.0 * (weights**2 @ (behind * ahead))
            return float(1.0 - 2.0 * (weights @ behind)), float(spread)
        unequal = swaps.unequal
        agreement = np.where(unequal, ahead - behind, 0.0)
        apart = ahead + behind
        mean = float(weights @ agreement)
        variance = float(weights**2 @ np.where(unequal, apart - agreement**2, 0.0))
        if self.ties == "a":
            return mean, variance
        product = float((weights @ unequal) * (weights @ apart))
        if product == 0.0:
            return np.nan, np.nan
        return mean / np.sqrt(product), variance / product

    def of_counts(self, counts: FloatArray, k: int) -> FloatArray:
        """Return the correlation in each draw."""
        if self.ap:
            return np.asarray(counts[:, 1] / (k - 1))
        if self.ties == "a":
            return np.asarray(counts[:, 0] / (k * (k - 1) / 2))
        product = counts[:, 2] * counts[:, 3]
        tau_b: FloatArray = np.divide(
            counts[:, 0],
            np.sqrt(product),
            out=np.full(len(counts), np.nan),
            where=product > 0,
        )
        return tau_b
