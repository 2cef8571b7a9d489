"""The scale that effects add up on: scores as they are, or their smoothed logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray

__all__ = ["SMOOTHING", "Scale"]

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
