"""One quantity with its estimate, standard error and interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vcomp import display

__all__ = ["EstimatedQuantity"]


@dataclass(frozen=True, slots=True)
class EstimatedQuantity:
    """What is known of one quantity.

    Attributes
    ----------
    name : of the quantity, as it was asked for
    estimate : its value at the estimated components
    se : standard error by the delta method; nan where there is none
    low, high : ends of the interval; nan where there is none, infinite where it is open
    alpha : the interval has confidence 1 − alpha
    method : how the interval was made
    notes : what a reader should know of it

    Examples
    --------
    >>> print(EstimatedQuantity("sys", 0.5, 0.1, 0.3, 0.8, 0.05, "Wald"))
    sys = 0.5 (standard error 0.1), 95 % interval [0.3, 0.8] by Wald
    """

    name: str
    estimate: float
    se: float
    low: float
    high: float
    alpha: float
    method: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{self.name} = {display.number(self.estimate)}"
        if not math.isnan(self.se):
            text += f" (standard error {display.number(self.se, 3)})"
        if math.isnan(self.low) or math.isnan(self.high):
            text += ", no interval"
        else:
            ends = f"[{display.number(self.low, 3)}, {display.number(self.high, 3)}]"
            text += f", {display.level(self.alpha)} interval {ends} by {self.method}"
        return "; ".join([text, *self.notes])
