"""Classical test theory."""

from __future__ import annotations

from vcomp.ctt.alpha import cronbach_alpha
from vcomp.ctt.lengthen import spearman_brown, spearman_brown_factor
from vcomp.ctt.reliability import Reliability, reliability

__all__ = [
    "Reliability",
    "cronbach_alpha",
    "reliability",
    "spearman_brown",
    "spearman_brown_factor",
]
