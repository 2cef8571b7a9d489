"""Ends of profile intervals of many quantities, each searched from that of one that is alike.

The ends of the interval of a quantity θ are its extremes in the region where the log-likelihood is
at least ℓ_max − z²/2 (Venzon & Moolgavkar 1988). Where the weights of two quantities differ a
little, as in two plans of a D-study, so do the components at their ends. From those of one, Newton
steps on the conditions of an extreme, n + μ s = 0 and ℓ = ℓ_max − z²/2 with the gradients n of θ
and s of ℓ, lead to those of the other (docs/explanation/mathematics.md, section 10.6).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.likelihood import LikelihoodEngine
from vcomp.inference.profile.constrained import SearchPoint, is_positive_within, search_point
from vcomp.inference.profile.constraints import LinearConstraint, RatioConstraint
from vcomp.inference.profile.trace import ProfileCurve

_NEAR = 1.0
"""Length of a first step, in standard errors, up to which an end is near another one."""

_UNSEEN = 1e-3
"""A Newton step below this is not evaluated: the remaining error is its cube."""

_STEPS, _RECENT = 8, 24


@dataclass(frozen=True, slots=True)
class _NearbyStep:
    d: FloatArray
    length: float


@dataclass(slots=True)
class NearbyEnds:
    """The points at which intervals of quantities of one fit end.

    Attributes
    ----------
    engine : restricted or full likelihood with an exact value
    held : (k + 1,) components that were not estimated
    level : of the log-likelihood at the ends
    known : points, by side and by the components that the quantity is made of
    """

    engine: LikelihoodEngine
    held: BoolArray
    level: float
    known: dict[tuple[float, bytes], list[SearchPoint]] = field(default_factory=dict)

    def interval(
        self, constraint: LinearConstraint | RatioConstraint
    ) -> tuple[float, float] | None:
        """Return the interval of a quantity; None if an end is not near a known one."""
        low = self._end(constraint, -1.0)
        high = None if low is None else self._end(constraint, 1.0)
        return None if low is None or high is None else (low, high)

    def add(self, constraint: LinearConstraint | RatioConstraint, curve: ProfileCurve) -> None:
        """Add the ends of a curve that was traced, if they are not those of the range."""
        if curve.notes:
            return
        for side, end in ((-1.0, curve.low), (1.0, curve.high)):
            nearest = int(np.abs(curve.theta - end).argmin())
            try:
                point = search_point(self.engine, curve.components[nearest])
            except np.linalg.LinAlgError:
                continue
            self._points(constraint, side).append(point)

    def _points(
        self, constraint: LinearConstraint | RatioConstraint, side: float
    ) -> list[SearchPoint]:
        return self.known.setdefault((side, _pattern(constraint)), [])

    def _end(self, constraint: LinearConstraint | RatioConstraint, side: float) -> float | None:
        points = self._points(constraint, side)[-_RECENT:]
        steps = [(self._step(p, constraint, side), p) for p in points]
        near = [(step, p) for step, p in steps if step is not None and step.length <= _NEAR]
        if not near:
            return None
        step, point = min(near, key=lambda pair: pair[0].length)
        for _ in range(_STEPS):
            v = point.v + step.d
            if step.length <= _UNSEEN:
                self._points(constraint, side).append(point)
                return constraint.value(v)
            try:
                point = search_point(self.engine, v)
            except np.linalg.LinAlgError:
                return None
            following = self._step(point, constraint, side)
            if following is None or following.length > 0.5 * step.length:
                return None
            step = following
        return None

    def _step(
        self, point: SearchPoint, constraint: LinearConstraint | RatioConstraint, side: float
    ) -> _NearbyStep | None:
        """Return the Newton step to the end, None where the likelihood is not concave."""
        normal = side * constraint.surface(constraint.value(point.v)).normal(point.v)
        free = ~self.held & (point.v > 0.0)
        if point.observed is None or not normal[free].any():
            return None
        s, n = point.score[free], normal[free]
        information = point.observed[np.ix_(free, free)]
        # At an extreme the likelihood need be concave along its level only.
        if not is_positive_within(information, n):
            return None
        scale = np.sqrt(np.abs(np.diagonal(information)))
        scaled = information / np.outer(scale, scale)
        try:
            x, w = np.linalg.solve(scaled, np.column_stack([s, n]) / scale[:, None]).T / scale
        except np.linalg.LinAlgError:
            return None
        # Of d = J⁻¹(s + n/μ) with ℓ + s'd − ½ d'Jd at the level.
        squared = (2.0 * (point.loglike - self.level) + s @ x) / (n @ w)
        if not squared > 0.0:
            return None
        rate = np.sqrt(squared)
        d = np.zeros_like(point.v)
        d[free] = x + rate * w
        # No component at zero may move the end outwards as it rises.
        at_zero = ~self.held & (point.v <= 0.0)
        outwards = (normal[at_zero] * rate + point.score[at_zero] > 0.0).any()
        if outwards or (point.v + d < 0.0).any():
            return None
        return _NearbyStep(d, float(np.sqrt(d @ point.average @ d)))


def _pattern(constraint: LinearConstraint | RatioConstraint) -> bytes:
    """Return which components a quantity is made of."""
    if isinstance(constraint, LinearConstraint):
        return b"linear" + np.sign(constraint.weights).tobytes()
    signs = np.sign([constraint.numerator, constraint.denominator])
    return b"ratio" + signs.tobytes()
