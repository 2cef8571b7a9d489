"""Profile likelihood: intervals of any quantity of the components, and of fixed effects.

PL(θ) is the largest log-likelihood at which the quantity is θ, and the signed root
z(θ) = ± √(2 (ℓ_max − PL(θ))) is nearly normal (docs/explanation/mathematics.md, eq. (10.9);
Venzon & Moolgavkar 1988; Pinheiro & Bates 2000, section 2.4). An interval contains the θ whose z
is within normal quantiles. It does not depend on the parametrisation, stays within the range of
the quantity, and needs no standard error.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.likelihood import LikelihoodEngine, loglike_margin, maximise
from vcomp.exceptions import EstimationError, check_alpha
from vcomp.inference.profile.constrained import (
    Constraint,
    LinearConstraint,
    Range,
    RatioConstraint,
    SearchPoint,
    is_positive_within,
    maximise_on,
    rescaled,
    search_point,
)
from vcomp.inference.profile.trace import (
    Coordinate,
    ProfileCurve,
    Trace,
    Visit,
    check_engine,
    checked_maximum,
    signed_root,
    trace_curve,
)

_SOFT = 0.1
"""κ of an end of the range that is attained, in odds relative to those of the estimate."""

_LITTLE = 0.01
"""Fraction of the total below which another start raises a component."""

_POINTS = 9


def profile_quantity(
    engine: LikelihoodEngine,
    v_hat: FloatArray,
    constraint: Constraint,
    *,
    held: BoolArray | None = None,
    alpha: float = 0.05,
    name: str = "quantity",
    points: int = _POINTS,
) -> ProfileCurve:
    """Return the profile of a quantity of the components.

    At an end of the interval z is at the normal quantile, with a relative error of about 1e-9; if
    z does not reach it, the end is that of the quantity's range, with a note. If the estimate
    itself is at the end of its range (a component of zero) the other end is at the same quantile:
    as an upper confidence limit alone its level is at least 1 − alpha/2.

    Parameters
    ----------
    engine : restricted or full likelihood with an exact value
    v_hat : (k + 1,) components at its maximum
    constraint : the quantity
    held : (k + 1,) components that were not estimated
    alpha : the interval has confidence 1 − alpha
    name : for messages and frames
    points : number of points between the ends, for plots, in addition to those of the search

    Raises
    ------
    PlanError
        If alpha is not between 0 and 1.
    EstimationError
        If the engine has random probes, the components are not a maximum, the quantity is 0/0 or
        does not depend on estimated components, or the profile cannot be traced.

    Examples
    --------
    >>> import vcomp
    >>> from vcomp.estimators.likelihood.choose import choose_engine
    >>> data = vcomp.datasets.load("bodoff2007_alpha")
    >>> model = vcomp.VarianceComponentsModel("score ~ (1|sys) + (1|topic)", data)
    >>> engine = choose_engine(model.statistics, reml=True)
    >>> v = model.fit().vcomp.to_numpy()
    >>> share = RatioConstraint(np.array([1.0, 0.0, 0.0]), np.ones(3))
    >>> curve = profile_quantity(engine, v, share, name="share of sys")
    >>> round(curve.low, 3) < round(curve.estimate, 3) < round(curve.high, 3)
    True
    """
    check_alpha(alpha)
    check_engine(engine)
    known = np.zeros(v_hat.size, dtype=bool) if held is None else held
    estimate = constraint.value(v_hat)
    if np.isinf(estimate):
        return _of_reciprocal(engine, v_hat, constraint, known, alpha, name, points)
    span = constraint.range(v_hat, known)
    here = checked_maximum(engine, v_hat, known)
    quantity = _Quantity(engine, constraint, known, span, here, estimate)
    return trace_curve(quantity.trace(alpha), span, quantity.guess, name, alpha, points)


# Quantities of components -----------------------------------------------------------------------


@dataclass(slots=True)
class _Quantity:
    """The profile of a quantity of the components: its points, and first guesses of its ends."""

    engine: LikelihoodEngine
    constraint: Constraint
    held: BoolArray
    span: Range
    here: SearchPoint
    estimate: float
    scale: Coordinate | None = None

    def trace(self, alpha: float) -> Trace:
        """Return the trace with the estimate as its only point."""
        from scipy.special import ndtri

        level = -float(ndtri(0.5 * alpha))
        self.scale = coordinate_of(
            self.span, self.estimate, *(self._distance(side, level) for side in (-1.0, 1.0))
        )
        start = Visit(self.estimate, 0.0, self._slope(1.0), self.here.v, self.here)
        return Trace(self.visit, self.edge, self.other, self.scale, [start])

    def guess(self, level: float) -> float:
        """Return t at which z is about at a level, by Wald's approximation."""
        assert self.scale is not None
        side = float(np.sign(level))
        distance = self._distance(side, abs(level))
        at_bound = self.estimate in (self.span.low, self.span.high)
        if at_bound:
            return self.scale.t_of(self.estimate + side * distance)
        t = self.scale.t_of(self.estimate)
        return t + side * distance / self.scale.theta_of(t)[1]

    def visit(self, theta: float, near: Visit) -> Visit:
        """Return the point of the profile at θ."""
        return self._found(theta, near.point)

    def other(self, theta: float, near: Visit) -> Visit | None:
        """Return the best point at θ from other starts; None for a single component.

        For a single component there is usually one maximum. In a sum one component may substitute
        for another, with a maximum for each, and the planes of a ratio meet where its components
        are zero.
        """
        surface = self.constraint.surface(theta)
        matters = ~self.held & (surface.normal(near.v) != 0.0)
        if surface.is_flat and np.count_nonzero(matters) == 1:
            return None
        starts = [self.here.v]
        total = float(near.v[~self.held].sum())
        for place in np.flatnonzero(matters & (near.v <= _LITTLE * total)):
            starts.append(near.v.copy())
            starts[-1][place] = 0.5 * total
        found = []
        for start in starts:
            try:
                v = rescaled(start, surface, self.held)
                found.append(self._found(theta, search_point(self.engine, v)))
            except (np.linalg.LinAlgError, EstimationError):
                continue
        return min(found, key=lambda visit: abs(visit.z), default=None)

    def _found(self, theta: float, start: SearchPoint) -> Visit:
        surface = self.constraint.surface(theta)
        found = maximise_on(self.engine, start, surface, self.held)
        slope = found.multiplier * self.constraint.slope_factor(found.v)
        return Visit(theta, self._root(theta, found.loglike), slope, found.v, found.point)

    def edge(self, side: float) -> Visit | None:
        """Return the point at the end of the range, None if it is not attained."""
        low = side < 0.0
        zero = self.span.zero_low if low else self.span.zero_high
        if zero is None:
            return None
        sizes = np.array([*self.engine.sizes, self.engine.n], dtype=float)
        start = np.where(zero, 0.0, self.here.v)
        found = maximise(self.engine, start, sizes, held=self.held | zero)
        if found.saturated or not found.converged:
            raise EstimationError(
                "the maximum of the likelihood with components at zero was not found, so "
                "that it is not known whether the profile interval ends there; use a Wald interval"
            )
        theta = self.span.low if low else self.span.high
        return Visit(
            theta,
            self._root(theta, found.loglike),
            0.0,
            found.v,
            search_point(self.engine, found.v),
        )

    def _root(self, theta: float, loglike: float) -> float:
        best = self.here.loglike
        margin = loglike_margin(best, self.engine.n)
        return signed_root(theta - self.estimate, best - loglike, margin)

    def _free(self, side: float) -> BoolArray:
        """Return the components that can change as the quantity moves from its estimate."""
        normal = self.constraint.surface(self.estimate).normal(self.here.v)
        return ~self.held & ((self.here.v > 0.0) | (side * normal > 0.0))

    def _slope(self, side: float) -> float:
        """Return the slope of the profile at the estimate: zero unless that is at a bound."""
        normal = self.constraint.surface(self.estimate).normal(self.here.v)
        inside = ~self.held & (self.here.v > 0.0) & (normal != 0.0)
        rises = ~self.held & (side * normal > 0.0)
        if inside.any() or not rises.any():
            return 0.0
        steepest = float((self.here.score[rises] / (side * normal[rises])).max())
        return min(steepest, 0.0) * self.constraint.slope_factor(self.here.v)

    def _distance(self, side: float, level: float) -> float:
        """Return the approximate distance δ to a level of z, from λδ − δ²/2V = −z²/2."""
        normal = self.constraint.surface(self.estimate).normal(self.here.v)
        moves = self._free(side)
        a, information = normal[moves], self.here.average[np.ix_(moves, moves)]
        scale = np.sqrt(np.maximum(np.diagonal(information), 1e-300))
        solved = np.linalg.pinv(information / np.outer(scale, scale), rcond=1e-12) @ (a / scale)
        variance = float(solved @ (a / scale)) / self.constraint.slope_factor(self.here.v) ** 2
        slope = self._slope(side)
        if variance <= 0.0 or not np.isfinite(variance):
            return level * (abs(self.estimate) or float(self.here.v.sum()))
        root = np.sqrt(slope**2 + level**2 / variance)
        return float(level**2 / (root - slope))


def coordinate_of(span: Range, estimate: float, below: float, above: float) -> Coordinate:
    """Return a scale whose unit is the estimate, or a standard error if that is less."""
    low, high = span.low, span.high
    inner = estimate
    if span.zero_low is not None or estimate <= low:
        inner = max(inner, low + 0.5 * min(above, high - low if np.isfinite(high) else above))
    if span.zero_high is not None or estimate >= high:
        inner = min(inner, high - 0.5 * min(below, high - low if np.isfinite(low) else below))
    if np.isinf(low) and np.isinf(high):
        unit = max(below, above)
    elif np.isinf(high):
        unit = inner - low
    elif np.isinf(low):
        unit = high - inner
    else:
        unit = (high - inner) / (inner - low)
    return Coordinate(
        low,
        high,
        inner,
        unit,
        0.0 if span.zero_low is None else _SOFT,
        0.0 if span.zero_high is None else _SOFT,
    )


def _of_reciprocal(
    engine: LikelihoodEngine,
    v_hat: FloatArray,
    constraint: Constraint,
    held: BoolArray,
    alpha: float,
    name: str,
    points: int,
) -> ProfileCurve:
    """Return the profile of an infinite ratio, from that of its reciprocal."""
    if not isinstance(constraint, RatioConstraint) or (constraint.numerator < 0.0).any():
        raise EstimationError(
            f"{name} is infinite at the estimates; profile its reciprocal or its odds instead"
        )
    turned = RatioConstraint(constraint.denominator, constraint.numerator)
    curve = profile_quantity(
        engine, v_hat, turned, held=held, alpha=alpha, name=name, points=points
    )
    return curve.reciprocal()


def profile_fixed_effect(
    engine: LikelihoodEngine,
    v_hat: FloatArray,
    combination: FloatArray,
    *,
    offset: float = 0.0,
    held: BoolArray | None = None,
    alpha: float = 0.05,
    name: str = "combination",
    points: int = 9,
) -> ProfileCurve:
    """Return the profile of l'β + offset by maximum likelihood.

    Parameters
    ----------
    engine : full likelihood with an exact value, made from strata or cross-products
    v_hat : (k + 1,) components at its maximum
    combination : (p,) l, for the centred columns of X
    offset : constant that centring subtracted
    held : (k + 1,) components that were not estimated
    alpha : the interval has confidence 1 − alpha
    name : for messages and frames
    points : number of points between the ends, for plots, in addition to those of the search

    Raises
    ------
    PlanError
        If alpha is not between 0 and 1.
    EstimationError
        If the likelihood is restricted or not exact, the components are not its maximum, or the
        combination is zero.
    """
    check_alpha(alpha)
    check_engine(engine)
    if engine.reml:
        raise EstimationError(
            f"the restricted likelihood does not contain the fixed effects, so that {name} has no "
            "profile by REML; fit with method='ml', or use a Wald interval"
        )
    if not combination.any():
        raise EstimationError(f"{name} is 0 for all fixed effects: it has no profile")
    known = np.zeros(v_hat.size, dtype=bool) if held is None else held
    here = checked_maximum(engine, v_hat, known)
    effect = _Effect(engine, combination, offset, known, here.loglike)
    estimate, variance = effect.generalised(v_hat)
    deviation = float(np.sqrt(variance))
    effect.estimate = estimate
    span = Range(-np.inf, np.inf)
    scale = Coordinate(-np.inf, np.inf, estimate, deviation, 0.0, 0.0)
    start = Visit(estimate, 0.0, 0.0, v_hat, None)
    trace = Trace(effect.visit, lambda side: None, lambda theta, near: None, scale, [start])
    return trace_curve(trace, span, lambda z: z, name, alpha, points)


@dataclass(slots=True)
class _Effect:
    """The profile of a linear combination l'β of the fixed effects: its points."""

    engine: LikelihoodEngine
    combination: FloatArray
    offset: float
    held: BoolArray
    loglike: float
    estimate: float = 0.0
    given: LikelihoodEngine | None = None

    def generalised(self, v: FloatArray) -> tuple[float, float]:
        """Return the generalised least squares estimate of l'β at components, and its variance."""
        beta, cov_beta = self.engine.fixed_effects(v)
        l = self.combination  # noqa: E741 - its letter
        return float(l @ beta) + self.offset, float(l @ cov_beta @ l)

    def visit(self, theta: float, near: Visit) -> Visit:
        """Return the point of the profile at l'β + offset = θ."""
        engine = self._engine_at(theta - self.offset)
        sizes = np.array([*engine.sizes, engine.n], dtype=float)
        found = maximise(engine, near.v, sizes, held=self.held, tol=1e-8)
        if not found.converged:
            raise EstimationError(
                f"the profile cannot be traced to {theta:.6g}: no maximum of the likelihood was "
                "found there; use a Wald interval"
            )
        margin = loglike_margin(self.loglike, engine.n)
        z = signed_root(theta - self.estimate, self.loglike - found.loglike, margin)
        estimate, variance = self.generalised(found.v)
        return Visit(theta, z, (estimate - theta) / variance, found.v, None)

    def _engine_at(self, value: float) -> LikelihoodEngine:
        """Return the engine of the model with given l'β; its equations are analysed once."""
        self.given = engine_without(self.engine, self.combination, value, self.given)
        return self.given


def engine_without(
    engine: LikelihoodEngine,
    combination: FloatArray,
    value: float,
    like: LikelihoodEngine | None = None,
) -> LikelihoodEngine:
    """Return the ML engine of the model with a given value of l'β, with one column of X fewer.

    Parameters
    ----------
    engine : of the whole model
    combination : (p,) l
    value : of l'β
    like : the engine of another value

    Raises
    ------
    EstimationError
        If the engine has no columns that can be recombined.
    """
    return engine.recombined(_columns(combination, value), like)


def _columns(combination: FloatArray, value: float) -> FloatArray:
    """Return the (1 + p, p) matrix that maps [y X] to [y* X*], given l'β = b, section 10.6.

    With β_j = (b − Σ l_i β_i)/l_j:  y* = y − (b/l_j) x_j,  x_i* = x_i − (l_i/l_j) x_j.
    """
    p = combination.size
    j = int(np.argmax(np.abs(combination)))
    matrix = np.eye(1 + p)
    matrix[1 + j, 0] = -value / combination[j]
    matrix[1 + j, 1:] -= combination / combination[j]
    return np.delete(matrix, 1 + j, axis=1)


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
