"""What simulated scores are in expectation: the true means of the systems."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray
from vcomp.simulate.margin import GRID, Margin, normal_weights
from vcomp.simulate.scale import Scale

__all__ = ["Spread", "spread_of"]

_EVERY = 4
"""Steps of the table between points of the quadrature: .047 standard deviations."""

_STEPS = 50
_CLOSE = 1e-13


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """The sum of topic effect and residual of one system, over all topics there could be.

    Attributes
    ----------
    values : (q,) on the scale of effects
    weights : (q,) that add up to one
    """

    values: FloatArray
    weights: FloatArray

    def mean(self, offset: float, scale: Scale) -> float:
        """Return the expected score, given grand mean plus system effect."""
        return float(self.weights @ scale.backward(offset + self.values))

    def offset(self, mean: float, scale: Scale, start: float) -> float:
        """Return the grand mean plus system effect with which scores have a mean.

        Newton's method within a bracket; the expected score increases with the offset.

        Parameters
        ----------
        mean : on the scale of scores, between 0 and 1 where effects add up as logits
        start : a first guess
        """
        if not scale.logit:
            return mean - float(self.weights @ self.values)
        reach = float(np.abs(self.values).max()) + scale.reach
        low, high, at = -reach, reach, start
        for _ in range(_STEPS):
            excess = self.mean(at, scale) - mean
            low, high = (low, at) if excess > 0.0 else (at, high)
            new = at - excess / self._slope(at, scale)
            if not low < new < high:
                new = 0.5 * (low + high)
            if abs(new - at) <= _CLOSE * reach:
                return new
            at = new
        return at

    def _slope(self, offset: float, scale: Scale) -> float:
        from scipy.special import expit

        share = expit(offset + self.values)
        inside = np.abs(offset + self.values) < scale.reach
        slope = float(self.weights @ (inside * share * (1.0 - share)))
        return max((1.0 + 2.0 * scale.smoothing) * slope, 1e-300)


def spread_of(topic: Margin, residual: Margin, correlation: float) -> Spread:
    """Return topic effect plus residual by quadrature over the two normals of the copula.

    Parameters
    ----------
    topic, residual : margins
    correlation : of the two normals
    """
    z = GRID[::_EVERY]
    weights = normal_weights(z)
    other = correlation * z[:, None] + np.sqrt(max(1.0 - correlation**2, 0.0)) * z
    sums = topic.quantiles[::_EVERY, None] + np.interp(other, GRID, residual.quantiles)
    return Spread(sums.ravel(), np.outer(weights, weights).ravel())
