"""The curve that a profile likelihood leaves: visited points, interval, notes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.constrained import Place, place_at
from vcomp.estimators.engine import LikelihoodEngine
from vcomp.estimators.profile_constraints import Limits
from vcomp.estimators.profile_trace import End, Trace
from vcomp.exceptions import EstimationError, check_alpha
from vcomp.linalg.bounded import bounded_step

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ProfileCurve", "check_engine", "checked_maximum", "signed_root", "trace_curve"]

_AT_MAXIMUM = 1e-3
"""Newton decrement above which components are no maximum."""

_RISES = 1e-7
"""A profile that rises above the maximum by more than this shows that there is another one."""


@dataclass(frozen=True, slots=True)
class ProfileCurve:
    """The profile of one quantity, with its interval.

    Attributes
    ----------
    name : of the quantity
    estimate : its value at the maximum
    theta : (m,) values that were visited, in order
    z : (m,) signed roots of the likelihood ratio there
    components : (m, k + 1) components that are likeliest there
    low, high : ends of the interval with confidence 1 − alpha
    alpha : its level
    notes : what the interval does not say by itself: an end that is the end of the range
    """

    name: str
    estimate: float
    theta: FloatArray
    z: FloatArray
    components: FloatArray
    low: float
    high: float
    alpha: float
    notes: tuple[str, ...]
    _ends: Callable[[float], tuple[End, End]] = field(repr=False, compare=False)

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return the interval with confidence 1 − alpha, traced further where it has to be.

        Raises
        ------
        PlanError
            If alpha is not between 0 and 1.
        EstimationError
            If the profile cannot be followed so far.
        """
        check_alpha(alpha)
        if alpha == self.alpha:
            return self.low, self.high
        low, high = self._ends(alpha)
        return low.theta, high.theta

    def reciprocal(self) -> ProfileCurve:
        """Return the curve of 1/θ, for θ that is not negative."""

        def ends(level: float) -> tuple[End, End]:
            low, high = self._ends(level)
            turned = (End(_reciprocal(e.theta), e.reached) for e in (high, low))
            return next(turned), next(turned)

        low, high = ends(self.alpha)
        estimate = _reciprocal(self.estimate)
        return ProfileCurve(
            name=self.name,
            estimate=estimate,
            theta=np.array([_reciprocal(t) for t in self.theta[::-1]]),
            z=-self.z[::-1],
            components=self.components[::-1],
            low=low.theta,
            high=high.theta,
            alpha=self.alpha,
            notes=_notes(self.name, estimate, low, high),
            _ends=ends,
        )

    @property
    def frame(self) -> pd.DataFrame:
        """A row a visited value: parameter, value, z."""
        import pandas as pd

        return pd.DataFrame({"parameter": self.name, "value": self.theta, "z": self.z})


def trace_curve(
    trace: Trace,
    limits: Limits,
    guess: Callable[[float], float],
    name: str,
    alpha: float,
    points: int,
) -> ProfileCurve:
    """Return the curve with its interval.

    Parameters
    ----------
    trace : with the estimate as its only point
    limits : the range of the quantity
    guess : from a level of z to where it may be on the coordinate
    name, alpha, points : as in :func:`profile_quantity`
    """
    from scipy.special import ndtri

    (start,) = trace.visits

    def ends(level: float) -> tuple[End, End]:
        z = -float(ndtri(0.5 * level))
        at_low, at_high = start.theta <= limits.low, start.theta >= limits.high
        low = End(limits.low, False) if at_low else trace.crossing(-z, guess(-z))
        high = End(limits.high, False) if at_high else trace.crossing(z, guess(z))
        return low, high

    low, high = ends(alpha)
    if points:
        trace.fill(low.theta, high.theta, points)
    # Trials that went far beyond an end, or to infinity, are no part of a picture.
    far = 0.5 - float(ndtri(0.5 * alpha))
    visits = [v for v in trace.visits if np.isfinite(v.theta) and abs(v.z) <= far]
    return ProfileCurve(
        name=name,
        estimate=start.theta,
        theta=np.array([v.theta for v in visits]),
        z=np.array([v.z for v in visits]),
        components=np.array([v.v for v in visits]),
        low=low.theta,
        high=high.theta,
        alpha=alpha,
        notes=_notes(name, start.theta, low, high),
        _ends=ends,
    )


def _notes(name: str, estimate: float, low: End, high: End) -> tuple[str, ...]:
    notes = []
    for end, word, sign in ((low, "lower", "below"), (high, "upper", "above")):
        if end.reached:
            continue
        bound = display.number(end.theta, 6) if np.isfinite(end.theta) else "infinity"
        if estimate == end.theta:
            notes.append(
                f"{name} is estimated at its bound {bound}: the interval is one-sided, and its "
                "other end is where the likelihood ratio reaches the same χ² quantile"
            )
        elif np.isfinite(end.theta):
            notes.append(
                f"the data do not exclude {bound} for {name}: the {word} end of the interval is "
                "the end of its range"
            )
        else:
            notes.append(
                f"the interval of {name} has no {word} end: the likelihood stays within the "
                f"level however far {sign} the estimate it is"
            )
    return tuple(notes)


def _reciprocal(theta: float) -> float:
    return 1.0 / theta if theta > 0.0 else np.inf


def check_engine(engine: LikelihoodEngine) -> None:
    """Refuse an engine whose likelihood is not exact.

    Raises
    ------
    EstimationError
        With what can be used instead.
    """
    if not engine.exact_value:
        raise EstimationError(
            f"the {engine.name} engine gives its likelihood with the error of random probes, and "
            "differences of it are what a profile is made of; use a Wald or Satterthwaite "
            "interval, the parametric bootstrap, or fit with engine='blocked' if it fits into "
            "memory"
        )


def checked_maximum(engine: LikelihoodEngine, v: FloatArray, held: BoolArray) -> Place:
    """Return the place of an estimate, and refuse one that is no maximum.

    Raises
    ------
    EstimationError
        With how far it is from the maximum.
    """
    if (v < 0.0).any() or not v[-1] > 0.0:
        raise EstimationError(
            "a profile needs components above zero and a positive residual, as REML and ML give "
            f"them, not {v.tolist()}"
        )
    here = place_at(engine, v)
    free = ~held
    _, decrement = bounded_step(here.average[np.ix_(free, free)], here.score[free], -v[free])
    if decrement > _AT_MAXIMUM:
        raise EstimationError(
            "the components are no maximum of this likelihood: it is "
            f"{display.number(decrement, 2)} standard errors away; a profile needs a fit by REML "
            "or ML that converged"
        )
    return here


def signed_root(difference: float, drop: float) -> float:
    """Return ± √(2 drop) with the sign of a difference.

    Raises
    ------
    EstimationError
        If the likelihood has risen above its maximum.
    """
    if drop < -_RISES:
        raise EstimationError(
            "the profile rises above the maximum of the likelihood (by "
            f"{display.number(-drop, 2)}): the fit ended at another maximum; fit again from "
            "another start="
        )
    return float(np.copysign(np.sqrt(2.0 * max(drop, 0.0)), difference))
