"""What simulated scores are in expectation: the true means of the systems."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray
from vcomp.ir.simulate.copula import Copula
from vcomp.ir.simulate.margin import GRID, Margin, normal_weights

SMOOTHING = 0.05
"""What Urbano (2016) adds to a score and to its complement before taking the logit."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Scores as they are, or logits of scores between 0 and 1.

    Attributes
    ----------
    logit : whether scores are taken to logits
    """

    logit: bool

    @property
    def smoothing(self) -> float:
        """Smoothing of the logit; negative for scores as they are."""
        return SMOOTHING if self.logit else -1.0

    @property
    def reach(self) -> float:
        """Effects of scores between 0 and 1 are cut off at plus and minus this."""
        return float(np.log((1.0 + SMOOTHING) / SMOOTHING)) if self.logit else 1.0

    def forward(self, scores: FloatArray) -> FloatArray:
        """Return scores on the scale: log((x + a) / (1 - x + a)), or x.

        Examples
        --------
        >>> Scale(logit=True).forward(np.array([0.0, 0.5, 1.0])).round(4)
        array([-3.0445,  0.    ,  3.0445])
        """
        if not self.logit:
            return scores
        return np.asarray(np.log((scores + SMOOTHING) / (1.0 - scores + SMOOTHING)))

    def backward(self, values: FloatArray) -> FloatArray:
        """Return values of the scale as scores, cut off at 0 and 1 where they were logits.

        Examples
        --------
        >>> Scale(logit=True).backward(np.array([-3.5, 0.0, np.log(1.05 / 0.05)])).round(4)
        array([0. , 0.5, 1. ])
        """
        if not self.logit:
            return values
        from scipy.special import expit

        scores = (1.0 + 2.0 * SMOOTHING) * expit(values) - SMOOTHING
        return np.asarray(np.clip(scores, 0.0, 1.0))


_EVERY = 4
"""Steps of the table between points of the quadrature: .047 standard deviations."""

_STEPS = 50
_CLOSE = 1e-8
"""After a step of Newton's method this small, twice as many digits are right."""


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
            expected, slope = self._with_slope(at, scale)
            low, high = (low, at) if expected > mean else (at, high)
            step = (mean - expected) / slope
            if abs(step) <= _CLOSE * reach:
                return at + step
            at = at + step if low < at + step < high else 0.5 * (low + high)
        return at

    def _with_slope(self, offset: float, scale: Scale) -> tuple[float, float]:
        """Return the expected score and its derivative by the offset."""
        from scipy.special import expit

        share = expit(offset + self.values)
        stretch = 1.0 + 2.0 * scale.smoothing
        scores = stretch * share - scale.smoothing
        inside = (scores > 0.0) & (scores < 1.0)
        slope = stretch * float(self.weights @ (inside * share * (1.0 - share)))
        return float(self.weights @ np.clip(scores, 0.0, 1.0)), max(slope, 1e-300)


def spread_of(topic: Margin, residual: Margin, copula: Copula, correlation: float) -> Spread:
    """Return topic effect plus residual by quadrature over two normals.

    Parameters
    ----------
    topic, residual : margins
    copula : that ties them together
    correlation : of the two in it
    """
    z = GRID[::_EVERY]
    weights = normal_weights(z)
    other = copula.conditional(correlation, z)
    sums = topic.quantiles[::_EVERY, None] + np.interp(other, GRID, residual.quantiles)
    return Spread(sums.ravel(), np.outer(weights, weights).ravel())
