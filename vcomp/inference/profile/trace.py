"""Ends of profile intervals: root finding on a scale on which the signed root is nearly linear.

The signed root z(θ) = ± √(2 (ℓ_max − PL(θ))) (docs/explanation/mathematics.md, eq. (10.9)) is
nearly linear in log θ for a variance and in log odds for a ratio. Newton steps on it need the
slope of PL, which the multiplier of the constrained maximum gives, eq. (10.10).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.likelihood import LikelihoodEngine
from vcomp.exceptions import EstimationError, check_alpha
from vcomp.inference.profile.constrained import NotReachedError, Range, SearchPoint, search_point
from vcomp.numerics import bounded_step, limited_blas

if TYPE_CHECKING:
    import pandas as pd

_CLOSE = 1e-6
"""Step on the coordinate below which the search ends: the remaining error is its square."""

_FAR = 20.0
_FARTHER = 100.0
"""Distance from the start, and next step, in units of the coordinate, beyond which an interval is
open."""

_NARROW = 1e-12
"""Width of a bracket on the coordinate below which the search ends."""

_NEXT = 1e-3
"""Step on the coordinate to a value that no components have, as a share of the coordinate, below
which the range of the quantity ends."""

_JUMP = 1e-3
"""Change of z within such a bracket above which there is another maximum."""

_SAME = 1e-6
"""Tolerance of z at a level."""

_MOST = 100
_RESTARTS = 8


@dataclass(frozen=True, slots=True)
class Coordinate:
    """A scale t on which the profile of a quantity is nearly normal.

    With o the odds of θ within its range (relative to those of the estimate where that is inside):
    t = log (o + κ) − log (1 + κ' o), with κ and κ' zero except for ends of the range that are
    attained, which then have a finite t.

    Attributes
    ----------
    low, high : range of θ
    centre, unit : an inner θ, and a unit of its scale
    soft_low, soft_high : κ, κ'
    """

    low: float
    high: float
    centre: float
    unit: float
    soft_low: float
    soft_high: float

    def t_of(self, theta: float) -> float:
        """Return t at θ, infinite at an end of the range with κ = 0."""
        if np.isinf(self.low) and np.isinf(self.high):
            return (theta - self.centre) / self.unit
        odds = self._odds(theta)
        if np.isinf(odds):
            return -np.log(self.soft_high) if self.soft_high else np.inf
        above, below = odds + self.soft_low, 1.0 + self.soft_high * odds
        return float(np.log(above) - np.log(below)) if above > 0.0 else -np.inf

    def theta_of(self, t: float) -> tuple[float, float]:
        """Return θ at t, and dθ/dt."""
        if np.isinf(self.low) and np.isinf(self.high):
            return float(self.centre + self.unit * t), self.unit
        y = float(np.exp(t))
        below = 1.0 - self.soft_high * y
        odds = max((y - self.soft_low) / below, 0.0)
        slope = y * (1.0 - self.soft_low * self.soft_high) / below**2
        if np.isinf(self.high):
            return self.low + self.unit * odds, self.unit * slope
        if np.isinf(self.low):
            return self.high - self.unit / odds, self.unit / odds**2 * slope
        width, total = self.high - self.low, self.unit + odds
        # Computed from the nearer end, so that no digits are lost.
        theta = (
            self.low + width * odds / total
            if odds < self.unit
            else (self.high - width * self.unit / total)
        )
        return theta, width * self.unit / total**2 * slope

    def _odds(self, theta: float) -> float:
        if np.isinf(self.high):
            return (theta - self.low) / self.unit
        rest = self.high - theta
        if rest <= 0.0:
            return np.inf
        if np.isinf(self.low):
            return self.unit / rest
        return self.unit * (theta - self.low) / rest


@dataclass(frozen=True, slots=True)
class Visit:
    """A point of a profile.

    Attributes
    ----------
    theta : the quantity
    z : signed root of the likelihood ratio
    slope : dPL/dθ
    v : (k + 1,) components there
    point : start of the next search
    """

    theta: float
    z: float
    slope: float
    v: FloatArray
    point: Any


@dataclass(frozen=True, slots=True)
class End:
    """An end of an interval.

    Attributes
    ----------
    theta : θ at which z is at the level, or the end of the range
    reached : whether z reaches the level there
    """

    theta: float
    reached: bool = True


@dataclass(slots=True)
class Trace:
    """The visited points of a profile, kept for further searches.

    Attributes
    ----------
    visit : computes a point at θ, from a point nearby
    edge : computes the point at an end of the range (side −1 or 1), None if it is not attained
    other : computes the point at θ from other starts, as the likelihood may have several maxima
        on a surface; None if it has one
    coordinate : the scale to search on
    visits : in the order of θ, the estimate among them
    branched : the sides (−1 below the estimate, 1 above) on which there are two maxima
    """

    visit: Callable[[float, Visit], Visit]
    edge: Callable[[float], Visit | None]
    other: Callable[[float, Visit], Visit | None]
    coordinate: Coordinate
    visits: list[Visit] = field(default_factory=list)
    branched: set[float] = field(default_factory=set)

    def at(self, theta: float) -> Visit:
        """Return the point at θ, searched from the nearest point between it and the estimate.

        A maximum is traced outwards from the estimate; a start farther out may lead to another.
        """
        middle, t = min(self.visits, key=lambda v: abs(v.z)), self.coordinate.t_of(theta)
        side = 1.0 if theta >= middle.theta else -1.0
        inside = [v for v in self.visits if side * (v.theta - middle.theta) >= 0.0]
        near = min(
            (v for v in inside if side * (theta - v.theta) >= 0.0),
            key=lambda v: abs(self._t(v) - t),
        )
        if near.theta == theta:
            return near
        found = self.visit(float(theta), near)
        beyond = [v for v in self.visits if side * (v.theta - theta) > 0.0]
        if side in self.branched and beyond:
            # There are two maxima: the other one is traced from farther out.
            other = self.visit(float(theta), min(beyond, key=lambda v: abs(self._t(v) - t)))
            found = min(found, other, key=lambda v: abs(v.z))
        return self.add(found)

    def add(self, found: Visit) -> Visit:
        """Add a visited point."""
        self.visits.append(found)
        self.visits.sort(key=lambda v: v.theta)
        return found

    def crossing(self, level: float, guess: float) -> End:
        """Return the θ at which z is at a nonzero level, on its side of the estimate.

        Parameters
        ----------
        level : value of z; negative below the estimate
        guess : first t

        Raises
        ------
        EstimationError
            If the search does not converge.
        """
        for _ in range(_RESTARTS):
            end = self._search(level, guess)
            better = self._better(end.theta, level) if end.reached else None
            if better is None:
                return end
            t = self._t(better)
            guess = t + self._newton(better, t, level)
        raise self._lost(level)

    def _better(self, theta: float, level: float) -> Visit | None:
        """Return a point of higher likelihood at a crossing; the lower maximum is dropped."""
        side, near = float(np.sign(level)), min(self.visits, key=lambda v: abs(v.theta - theta))
        found = self.other(theta, near)
        if found is None or side * found.z >= side * level - _SAME:
            return None
        self.branched.add(side)
        ends = (self.coordinate.low, self.coordinate.high)
        self.visits = [
            v
            for v in self.visits
            if v.theta in ends or (side * v.theta < side * theta and side * v.z < side * found.z)
        ]
        return self.add(found)

    def _lost(self, level: float) -> EstimationError:
        word = "lower" if level < 0.0 else "upper"
        return EstimationError(
            f"the search for the {word} end of the profile interval does not converge, as may "
            "happen if the likelihood has several maxima; use a Wald interval or the "
            "parametric bootstrap"
        )

    def _search(self, level: float, guess: float) -> End:
        side = float(np.sign(level))
        limit = self.coordinate.low if side < 0.0 else self.coordinate.high
        wall = self.coordinate.t_of(limit)
        inner, outer = self._bracket(level)
        start, t, previous, beyond = self._t(inner), guess, np.inf, side * np.inf
        for _ in range(_MOST):
            if outer is None and side * (t - wall) >= 0.0:
                outer = self._edge(side, limit)
                if outer is None or side * outer.z <= side * level:
                    return End(limit, reached=False)
            t = self._safe(t, inner, outer, level)
            if side * t >= side * beyond:
                t = 0.5 * (self._t(inner) + beyond)
            try:
                here = self.at(self.coordinate.theta_of(t)[0])
            except NotReachedError:
                if abs(t - self._t(inner)) <= _NEXT * (1.0 + abs(t)):
                    raise
                beyond = t
                continue
            if side * here.z < side * level:
                inner = here
            else:
                outer = here
            step = self._newton(here, t, level)
            if abs(step) <= _CLOSE:
                return End(self.coordinate.theta_of(t + step)[0])
            if outer is not None and abs(self._t(outer) - self._t(inner)) <= _NARROW:
                if abs(outer.z - inner.z) > _JUMP:
                    break
                return End(here.theta)
            if outer is None and abs(t - start) > _FAR and abs(step) > _FARTHER:
                return End(limit, reached=False)
            # Newton steps that alternate between the two sides are replaced by interpolation.
            slow = outer is not None and abs(step) > 0.5 * previous
            t, previous = np.inf if slow else t + step, abs(step)
        raise self._lost(level)

    def fill(self, low: float, high: float, points: int) -> None:
        """Visit points about equally spaced in z between the ends of an interval."""
        # Visits next to the ends may lie on either side by rounding error.
        least, most = low - 1e-6 * abs(low), high + 1e-6 * abs(high)
        inside = [v.z for v in self.visits if least <= v.theta <= most]
        first, last = min(inside), max(inside)
        for level in np.linspace(first, last, points):
            nearest = min(abs(v.z - level) for v in self.visits)
            if nearest <= 0.5 * (last - first) / points:
                continue
            finite = [v for v in self.visits if np.isfinite(self._t(v))]
            inner = max((v for v in finite if v.z < level), key=lambda v: v.z)
            outer = min((v for v in finite if v.z >= level), key=lambda v: v.z)
            self.at(self.coordinate.theta_of(self._between(inner, outer, float(level)))[0])

    def _edge(self, side: float, limit: float) -> Visit | None:
        known = [v for v in self.visits if v.theta == limit]
        found = known[0] if known else self.edge(side)
        return found if known or found is None else self.add(found)

    def _t(self, visit: Visit) -> float:
        return self.coordinate.t_of(visit.theta)

    def _bracket(self, level: float) -> tuple[Visit, Visit | None]:
        """Return the visited points around a level, the one nearer to the estimate first."""
        side = np.sign(level)
        mine = [v for v in self.visits if side * v.z >= 0.0]
        mine.sort(key=lambda v: float(side * v.theta))
        inner, outer = mine[0], None
        for visit in mine:
            if side * visit.z >= side * level:
                outer = visit
                break
            inner = visit
        return inner, outer

    def _between(self, inner: Visit, outer: Visit, level: float) -> float:
        a, b = self._t(inner), self._t(outer)
        return float(a + (b - a) * (level - inner.z) / (outer.z - inner.z))

    def _safe(self, t: float, inner: Visit, outer: Visit | None, level: float) -> float:
        """Return a trial within the bracket; without one, not too far from the inner point."""
        a, side = self._t(inner), float(np.sign(level))
        if outer is None:
            if not side * (t - a) > 0.0:
                return a + side * 0.5
            return t if abs(t - a) <= 3.0 + abs(a) else a + side * (3.0 + abs(a))
        b = self._t(outer)
        if min(a, b) < t < max(a, b):
            return t
        between = self._between(inner, outer, level)
        share = (between - a) / (b - a)
        return between if 0.1 < share < 0.9 else 0.5 * (a + b)

    def _newton(self, here: Visit, t: float, level: float) -> float:
        """Return the step on t to the level along the tangent of z."""
        pace = self.coordinate.theta_of(t)[1]
        rate = -here.slope * pace / here.z if here.z else 0.0
        # z increases with θ if the likelihood has one maximum.
        return (level - here.z) / rate if rate > 0.0 else float(np.sign(level)) * 1e3


_AT_MAXIMUM = 1e-3
"""Newton decrement above which components are not a maximum."""

_RISES = 1e-7
"""A profile that rises above the maximum by more than this shows another maximum."""


@dataclass(frozen=True, slots=True)
class ProfileCurve:
    """The profile of one quantity, with its interval.

    Attributes
    ----------
    name : of the quantity
    estimate : its value at the maximum
    theta : (m,) visited values, in order
    z : (m,) signed roots of the likelihood ratio at these values
    components : (m, k + 1) components of largest likelihood at these values
    low, high : ends of the interval with confidence 1 − alpha
    alpha : 1 − confidence
    notes : remarks on the interval, such as an end at the end of the range
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
        """Return an interval; the profile is traced further if needed.

        Parameters
        ----------
        alpha : the interval has confidence 1 − alpha

        Raises
        ------
        PlanError
            If alpha is not between 0 and 1.
        EstimationError
            If the profile cannot be traced so far.
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
        """A row for each visited value: parameter, value, z."""
        import pandas as pd

        return pd.DataFrame({"parameter": self.name, "value": self.theta, "z": self.z})


def trace_curve(
    trace: Trace,
    span: Range,
    guess: Callable[[float], float],
    name: str,
    alpha: float,
    points: int,
) -> ProfileCurve:
    """Return the curve with its interval.

    Parameters
    ----------
    trace : with the estimate as its only point
    span : the range of the quantity
    guess : first t for a level of z
    name, alpha, points : as in :func:`profile_quantity`
    """
    from scipy.special import ndtri

    (start,) = trace.visits

    def ends(level: float) -> tuple[End, End]:
        z = -float(ndtri(0.5 * level))
        at_low, at_high = start.theta <= span.low, start.theta >= span.high
        with limited_blas(0):
            low = End(span.low, False) if at_low else trace.crossing(-z, guess(-z))
            high = End(span.high, False) if at_high else trace.crossing(z, guess(z))
        return low, high

    low, high = ends(alpha)
    if points:
        with limited_blas(0):
            trace.fill(low.theta, high.theta, points)
    # Trials far beyond an end, or at infinity, are left out.
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
                f"the interval of {name} has no {word} end: the likelihood stays above the level "
                f"at all values {sign} the estimate"
            )
    return tuple(notes)


def _reciprocal(theta: float) -> float:
    return 1.0 / theta if theta > 0.0 else np.inf


def check_engine(engine: LikelihoodEngine) -> None:
    """Refuse an engine whose likelihood is not exact.

    Raises
    ------
    EstimationError
        If it is not; the message has the alternatives.
    """
    if not engine.exact_value:
        raise EstimationError(
            f"the likelihood of the {engine.name} engine has the error of random probes, and a "
            "profile consists of differences of likelihoods; use a Wald or Satterthwaite "
            "interval, the parametric bootstrap, or fit with engine='blocked' if it fits into "
            "memory"
        )


def checked_maximum(engine: LikelihoodEngine, v: FloatArray, held: BoolArray) -> SearchPoint:
    """Return the point of an estimate, and refuse one that is not a maximum.

    Raises
    ------
    EstimationError
        If it is not; the message has the distance to the maximum.
    """
    if (v < 0.0).any() or not v[-1] > 0.0:
        raise EstimationError(
            "a profile needs non-negative components and a positive residual, as from REML and "
            f"ML, not {v.tolist()}"
        )
    here = search_point(engine, v)
    free = ~held
    _, decrement = bounded_step(here.average[np.ix_(free, free)], here.score[free], -v[free])
    if decrement > _AT_MAXIMUM:
        raise EstimationError(
            "the components are not a maximum of this likelihood: it is "
            f"{display.number(decrement, 2)} standard errors away; a profile needs a fit by REML "
            "or ML that converged"
        )
    return here


def signed_root(difference: float, drop: float, margin: float = 0.0) -> float:
    """Return ± √(2 drop) with the sign of a difference.

    Parameters
    ----------
    difference : of the quantity from its estimate
    drop : of the log-likelihood from its maximum
    margin : drop, up or down, that may be rounding error

    Raises
    ------
    EstimationError
        If the likelihood has risen above its maximum.
    """
    if drop < -max(_RISES, margin):
        raise EstimationError(
            "the profile rises above the maximum of the likelihood (by "
            f"{display.number(-drop, 2)}): the fit ended at another maximum; fit again from "
            "another start="
        )
    return float(np.copysign(np.sqrt(2.0 * max(drop, 0.0)), difference))
