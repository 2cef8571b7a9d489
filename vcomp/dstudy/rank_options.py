"""How rank accuracy is to be estimated: words that are known, and numbers that are allowed."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Literal, TypeAlias

import numpy as np

from vcomp.estimators.options import check_rng
from vcomp.exceptions import PlanError, check_alpha, did_you_mean

__all__ = [
    "INTERVALS",
    "METHODS",
    "RankInterval",
    "RankMethod",
    "RankOptions",
    "check_one_of",
    "usual_interval",
]

RankMethod: TypeAlias = Literal["shrunken", "urbano"]
RankInterval: TypeAlias = Literal["prediction", "confidence", "independent"]

METHODS: tuple[RankMethod, ...] = ("shrunken", "urbano")
INTERVALS: tuple[RankInterval, ...] = ("prediction", "confidence", "independent")


@dataclass(frozen=True, slots=True)
class RankOptions:
    """How to estimate, as it was asked for; made only of what is allowed."""

    method: RankMethod
    threshold: float
    interval: RankInterval | None
    alpha: float
    draws: int
    rng: int | np.random.Generator | None

    def __post_init__(self) -> None:
        check_one_of("method", self.method, METHODS)
        if self.interval is not None:
            check_one_of("interval", self.interval, INTERVALS)
        check_alpha(self.alpha)
        check_rng(self.rng)
        number = self.threshold
        if not isinstance(number, Real) or isinstance(number, bool) or not 0 <= number < np.inf:
            raise PlanError(
                f"threshold is the largest difference of equal systems, a number from 0 on, not "
                f"{number!r}"
            )
        is_whole = isinstance(self.draws, int | np.integer) and not isinstance(self.draws, bool)
        if not is_whole or self.draws < 1:
            raise PlanError(f"draws is a whole number from 1 on, not {self.draws!r}")

    @property
    def kind(self) -> RankInterval:
        """The interval that is asked for, or goes with the method."""
        return self.interval or usual_interval(self.method)


def usual_interval(method: RankMethod) -> RankInterval:
    """Return the interval that goes with a method if none is asked for."""
    return "prediction" if method == "shrunken" else "independent"


def check_one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    """Refuse what is none of the words that are known."""
    if value not in known:
        listed = ", ".join(map(repr, known[:-1])) + f" or {known[-1]!r}"
        raise PlanError(f"{name} must be {listed}, not {value!r}{did_you_mean(value, known)}")
