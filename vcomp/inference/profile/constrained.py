"""The maximum of a log-likelihood over the components at which a quantity has a given value.

A constraint computes the quantity, its range over non-negative components, with the components
that are zero at the ends of the range, and the surface of the components at which it has a given
value. Each point of a profile likelihood is the maximum on such a surface. Steps maximise the
quadratic model s'd − ½ d'Id above the bounds and within the tangent plane
(docs/explanation/mathematics.md, section 10.6), with the observed information if it is positive
definite there and the average one otherwise. Steps are halved if the likelihood would fall. The
multiplier λ of the surface, s = λ a with its normal a, gives the slope of the profile, eq.
(10.10).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.likelihood import LikelihoodEngine, Place
from vcomp.exceptions import EstimationError
from vcomp.numerics import constrained_step

_NEWTON_BELOW = 1.0
"""Newton decrement below which the observed information is tried."""

_UNSEEN = 1e-4
"""A Newton step below this is not evaluated: the remaining error is its cube."""

_TOLERANCE = 1e-6
_STALLED = 1e-4
_HALVINGS = 14
_STEPS = 99


class NotReachedError(EstimationError):
    """No components were found at which a quantity has a value."""


@dataclass(frozen=True, slots=True)
class ConstraintSurface:
    """The components at which a quantity has a given value.

    Attributes
    ----------
    normal : (k + 1,) gradient a at components
    gap : value of a'd for which v + d lies on the surface, to first order
    is_flat : whether it is a hyperplane, which one step reaches exactly
    """

    normal: Callable[[FloatArray], FloatArray]
    gap: Callable[[FloatArray], float]
    is_flat: bool = True


@dataclass(frozen=True, slots=True)
class SearchPoint:
    """A point with the derivatives of the likelihood there.

    Attributes
    ----------
    v : (k + 1,) components
    loglike, score : log-likelihood and its gradient
    average : (k + 1, k + 1) average information
    observed : observed information, nan for components at zero; None if not available
    """

    v: FloatArray
    loglike: float
    score: FloatArray
    average: FloatArray
    observed: FloatArray | None


@dataclass(frozen=True, slots=True)
class ConstrainedMaximum:
    """The maximum of the likelihood on a surface.

    Attributes
    ----------
    v : (k + 1,) components
    loglike : log-likelihood at `v`
    multiplier : λ, with score = λ × normal except for components at zero
    point : the last point that was evaluated, where the next search may start
    """

    v: FloatArray
    loglike: float
    multiplier: float
    point: SearchPoint


@dataclass(frozen=True, slots=True)
class _Step:
    d: FloatArray
    multiplier: float
    length: float
    is_newton: bool


@dataclass(frozen=True, slots=True)
class _Place(Place):
    """A point on the surface with the step from it, and the distance that remains."""

    point: SearchPoint
    step: _Step
    is_last: bool  # the step leads to the maximum, which need not be evaluated


def search_point(engine: LikelihoodEngine, v: FloatArray) -> SearchPoint:
    """Return a point with its derivatives, the observed information included if available.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the likelihood cannot be computed there.
    """
    found = engine.derivatives(v)
    observed = None
    if "observed" in engine.kinds:
        observed = engine.information(v, "observed", positive_only=True)
    return SearchPoint(v, found.loglike, found.score, found.average, observed)


def maximise_on(
    engine: LikelihoodEngine, start: SearchPoint, surface: ConstraintSurface, held: BoolArray
) -> ConstrainedMaximum:
    """Return the maximum of the likelihood on a surface, with no component below zero.

    Parameters
    ----------
    engine : likelihood engine with an exact value
    start : a point, on the surface or off it
    surface : the constraint
    held : (k + 1,) components that keep their values in `start`

    Raises
    ------
    EstimationError
        If no step raises the likelihood before the conditions of a maximum are met, or no
        components above zero lie on the surface.
    """
    return _Search(engine, surface, held).from_point(start)


def rescaled(v: FloatArray, surface: ConstraintSurface, held: BoolArray) -> FloatArray:
    """Return components rescaled to a surface, those that lower the quantity inversely.

    Raises
    ------
    numpy.linalg.LinAlgError
        If rescaling does not lead to the surface.
    """
    for _ in range(50):
        gap, free = surface.gap(v), np.where(held, 0.0, surface.normal(v))
        if not (np.isfinite(gap) and np.isfinite(free).all()):
            break
        raises, lowers = (float(np.maximum(s * free, 0.0) @ v) for s in (1.0, -1.0))
        wanted = gap + raises - lowers
        if abs(gap) <= 1e-14 * (raises + lowers + abs(wanted)):
            return v
        if raises > 0.0:
            factor = (wanted + np.sqrt(wanted**2 + 4.0 * raises * lowers)) / (2.0 * raises)
        else:
            factor = -lowers / wanted if wanted else 0.0
        if not (np.isfinite(factor) and factor > 0.0):
            break
        v = v * np.where(free > 0.0, factor, np.where(free < 0.0, 1.0 / factor, 1.0))
        if surface.is_flat:
            return v
    raise np.linalg.LinAlgError("rescaling does not lead to the surface")


@dataclass(slots=True)
class _Search:
    engine: LikelihoodEngine
    surface: ConstraintSurface
    held: BoolArray
    curvature: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))

    def from_point(self, start: SearchPoint) -> ConstrainedMaximum:
        path, done = self._place(self._onto_surface(start)).climb(
            self._move,
            sought=(_TOLERANCE, 0.0),
            stalled=(_STALLED, 0.0),
            max_iter=_STEPS,
        )
        end, here, step = path[-1], path[-1].point, path[-1].step
        if not done:
            raise EstimationError(
                "the profile cannot be traced: no step along it raises the likelihood, although "
                f"the maximum is {step.length:.2g} standard errors away; use a Wald interval or "
                "the parametric bootstrap"
            )
        v, value = here.v, here.loglike
        if end.is_last:
            v, value = np.maximum(here.v + step.d, 0.0), value + 0.5 * step.length**2
        return ConstrainedMaximum(v, value, step.multiplier, here)

    def _place(self, point: SearchPoint) -> _Place:
        step = self._step(point)
        is_last = step.is_newton and step.length <= _UNSEEN and self.surface.is_flat
        return _Place(point, step, is_last, decrement=step.length ** (3 if is_last else 1))

    def _move(self, here: _Place) -> _Place | None:
        there = self._uphill(here.point, here.step)
        if there is None:
            return None
        self._update_curvature(here.point, there, here.step.multiplier)
        return self._place(there)

    # To the surface -----------------------------------------------------------------------------

    def _onto_surface(self, start: SearchPoint) -> SearchPoint:
        """Return a first point on the surface, by a tangent step or by rescaling."""
        shift = self.surface.gap(start.v)
        if shift == 0.0:
            return start
        # On a curved surface the tangent may be valid for a part of the step only.
        for part in (1.0,) if self.surface.is_flat else (1.0, 0.5, 0.25, 0.1):
            try:
                step = self._step(start, part * shift)
                return self._evaluated(self._returned(start.v + step.d))
            except np.linalg.LinAlgError:
                continue
        try:
            return self._evaluated(rescaled(start.v, self.surface, self.held))
        except np.linalg.LinAlgError:
            raise EstimationError(
                "the profile cannot be traced: no components were found at this value, or their "
                "sizes differ by too many orders of magnitude; use a Wald interval or the "
                "parametric bootstrap"
            ) from None

    def _returned(self, v: FloatArray) -> FloatArray:
        """Return the components moved back to the surface by a few damped Newton steps."""
        v = np.maximum(v, 0.0)
        if self.surface.is_flat:
            return v
        gap = self.surface.gap(v)
        for _ in range(60):
            normal = np.where(self.held, 0.0, self.surface.normal(v))
            if not (np.isfinite(gap) and np.isfinite(normal).all()):
                break
            unit = np.maximum(v, 1e-3 * v.sum())
            if abs(gap) <= 1e-14 * float(np.abs(normal) @ unit):
                return v
            step, _, _ = constrained_step(
                np.diag(1.0 / unit**2), np.zeros(v.size), Place.lowest_step(v), normal, gap
            )
            moved = self._nearer(v, step, gap)
            if moved is None:
                break
            v, gap = moved
        raise np.linalg.LinAlgError("the surface cannot be reached from here")

    def _nearer(
        self, v: FloatArray, step: FloatArray, gap: float
    ) -> tuple[FloatArray, float] | None:
        """Return the first of the step and its halves that reduces the gap, with the new gap."""
        for halving in range(_HALVINGS):
            moved = np.maximum(v + 0.5**halving * step, 0.0)
            left = self.surface.gap(moved)
            if abs(left) < abs(gap):
                return moved, left
        return None

    # Along it -----------------------------------------------------------------------------------

    def _step(self, here: SearchPoint, shift: float = 0.0) -> _Step:
        """Return the step to the maximum of the quadratic model, to the surface or along it."""
        free = ~self.held
        normal = self.surface.normal(here.v)
        if not normal[free].any():
            raise np.linalg.LinAlgError("the quantity does not change with the components here")
        step = _bounded(here, here.average, normal, free, shift)
        if here.observed is None or not (step.length < _NEWTON_BELOW or shift):
            return step
        moves = free & ((here.v > 0.0) | (step.d > 0.0))
        information = here.observed
        if self.curvature.size:
            information = information + step.multiplier * self.curvature
        matrix = information[np.ix_(moves, moves)]
        if not normal[moves].any() or not is_positive_within(matrix, normal[moves]):
            return step
        try:
            return _bounded(here, information, normal, moves, shift, is_newton=True)
        except np.linalg.LinAlgError:  # the surface meets only a corner of the bounds
            return step

    def _uphill(self, here: SearchPoint, step: _Step) -> SearchPoint | None:
        """Return the first of the step and its halves that raises the likelihood."""
        gain = 0.5 * step.length**2
        for halving in range(_HALVINGS):
            fraction = 0.5**halving
            try:
                there = self._evaluated(self._returned(here.v + fraction * step.d))
            except np.linalg.LinAlgError:
                continue
            least = Place.required(here.loglike, fraction * gain, step.length, self.engine.n)
            if there.loglike >= least:
                return there
        return None

    def _evaluated(self, v: FloatArray) -> SearchPoint:
        place = search_point(self.engine, v)
        if not np.isfinite(place.loglike):
            raise np.linalg.LinAlgError("no likelihood here")
        return place

    def _update_curvature(self, here: SearchPoint, there: SearchPoint, multiplier: float) -> None:
        """Update the surface's curvature from the change of its normal (symmetric rank one)."""
        if self.surface.is_flat or multiplier == 0.0:
            return
        if not self.curvature.size:
            self.curvature = np.zeros((here.v.size, here.v.size))
        d = there.v - here.v
        turned = self.surface.normal(there.v) - self.surface.normal(here.v)
        rest = turned - self.curvature @ d
        along = float(rest @ d)
        if abs(along) > 1e-8 * np.linalg.norm(rest) * np.linalg.norm(d):
            self.curvature = self.curvature + np.outer(rest, rest) / along


def _bounded(
    here: SearchPoint,
    information: FloatArray,
    normal: FloatArray,
    moves: BoolArray,
    shift: float,
    *,
    is_newton: bool = False,
) -> _Step:
    step, lower = np.zeros_like(here.v), Place.lowest_step(here.v)
    step[moves], multiplier, length = constrained_step(
        information[np.ix_(moves, moves)], here.score[moves], lower[moves], normal[moves], shift
    )
    return _Step(step, multiplier, length, is_newton)


def is_positive_within(matrix: FloatArray, normal: FloatArray) -> bool:
    """Whether a matrix, on a unit diagonal, is positive definite orthogonally to a normal."""
    if not np.isfinite(matrix).all():
        return False
    scale = np.sqrt(np.abs(np.diagonal(matrix)))
    if not (scale > 0.0).all():
        return False
    basis = np.linalg.qr((normal / scale)[:, None], mode="complete")[0][:, 1:]
    within = basis.T @ (matrix / np.outer(scale, scale)) @ basis
    return bool(np.linalg.eigvalsh(within).min(initial=1.0) > 1e-10)


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a quantity over non-negative components.

    Attributes
    ----------
    low, high : its least and largest value, −∞ and ∞ if unbounded
    zero_low, zero_high : (k + 1,) components that are zero at that value; None if it is not
        attained with a positive residual
    """

    low: float
    high: float
    zero_low: BoolArray | None = None
    zero_high: BoolArray | None = None


class Constraint(Protocol):
    """A quantity of the components, for a profile."""

    def value(self, v: FloatArray) -> float:
        """Return the quantity at components."""

    def surface(self, theta: float) -> ConstraintSurface:
        """Return the surface on which the quantity is `theta`."""

    def slope_factor(self, v: FloatArray) -> float:
        """Return dPL/dθ divided by the multiplier, eq. (10.10)."""

    def range(self, v: FloatArray, held: BoolArray, n_residuals: int = 1) -> Range:
        """Return the range of the quantity with held components at their values in `v`.

        The last `n_residuals` components cannot be zero.

        Raises
        ------
        EstimationError
            If the quantity does not depend on the other components.
        """


@dataclass(frozen=True, slots=True)
class LinearConstraint:
    """w'v: a component, their total, an error variance, a difference.

    Parameters
    ----------
    weights : (k + 1,) w, the residual's last

    Examples
    --------
    >>> total = LinearConstraint(np.ones(3))
    >>> total.value(np.array([1.0, 2.0, 4.0]))
    7.0
    >>> span = total.range(np.ones(3), np.array([False, True, False]))
    >>> span.low, span.high
    (1.0, inf)
    """

    weights: FloatArray

    def value(self, v: FloatArray) -> float:
        """Return w'v."""
        return float(self.weights @ v)

    def surface(self, theta: float) -> ConstraintSurface:
        """Return the plane w'v = θ."""
        w = self.weights
        return ConstraintSurface(
            normal=lambda v: w, gap=lambda v: _rounded(theta - float(w @ v), theta)
        )

    def slope_factor(self, v: FloatArray) -> float:
        """Return 1."""
        return 1.0

    def range(self, v: FloatArray, held: BoolArray, n_residuals: int = 1) -> Range:
        """Return the range of w'v."""
        free = np.where(held, 0.0, self.weights)
        if not free.any():
            raise EstimationError(_CONSTANT)
        base = float(self.weights[held] @ v[held])
        rises, falls, first = free > 0.0, free < 0.0, free.size - n_residuals
        low = -np.inf if falls.any() else base
        high = np.inf if rises.any() else base
        return Range(
            low,
            high,
            None if falls.any() or rises[first:].any() else rises,
            None if rises.any() or falls[first:].any() else falls,
        )


@dataclass(frozen=True, slots=True)
class RatioConstraint:
    """a'v / b'v: a share, an intraclass correlation, Eρ², Φ, a signal-to-noise ratio.

    Parameters
    ----------
    numerator : (k + 1,) a
    denominator : (k + 1,) b, not negative

    Raises
    ------
    EstimationError
        If a weight of the denominator is negative, or all are zero.

    Examples
    --------
    >>> share = RatioConstraint(np.array([1.0, 0.0]), np.array([1.0, 1.0]))
    >>> share.value(np.array([1.0, 3.0]))
    0.25
    >>> span = share.range(np.ones(2), np.zeros(2, dtype=bool))
    >>> span.low, span.high, span.zero_low, span.zero_high
    (0.0, 1.0, array([ True, False]), None)
    """

    numerator: FloatArray
    denominator: FloatArray

    def __post_init__(self) -> None:
        if (self.denominator < 0.0).any() or not self.denominator.any():
            raise EstimationError(
                "the denominator of a ratio must have non-negative weights that are not all zero; "
                f"they are {self.denominator.tolist()}"
            )

    def value(self, v: FloatArray) -> float:
        """Return a'v / b'v, ±∞ if only the denominator is zero.

        Raises
        ------
        EstimationError
            If both are zero.
        """
        above, below = float(self.numerator @ v), float(self.denominator @ v)
        if below > 0.0:
            return above / below
        if above == 0.0:
            raise EstimationError(
                "the ratio is 0/0: all components of its numerator and of its denominator are "
                "estimated at zero"
            )
        return float(np.copysign(np.inf, above))

    def surface(self, theta: float) -> ConstraintSurface:
        """Return the plane (a − θb)'v = 0."""
        normal = self.numerator - theta * self.denominator
        size = np.abs(normal)
        return ConstraintSurface(
            normal=lambda v: normal, gap=lambda v: _rounded(-float(normal @ v), float(size @ v))
        )

    def slope_factor(self, v: FloatArray) -> float:
        """Return b'v."""
        return float(self.denominator @ v)

    def range(self, v: FloatArray, held: BoolArray, n_residuals: int = 1) -> Range:
        """Return the range of a'v / b'v, which lies between those of single components."""
        a, b, known = self.numerator, self.denominator, ~held
        used = known & ((a != 0.0) | (b != 0.0))
        ratios = _ratios(a[used], b[used])
        of_held = _ratios(np.array([a[held] @ v[held]]), np.array([b[held] @ v[held]]))
        # A ratio 0/0 of held components is ignored.
        every = np.concatenate([ratios, of_held[np.isfinite(of_held) | np.isinf(of_held)]])
        if not ratios.size or every.min() == every.max():
            raise EstimationError(_CONSTANT)
        low, high = float(every.min()), float(every.max())
        zeros = (self._zero(end, v, held, n_residuals) for end in (low, high))
        return Range(low, high, *zeros)

    def _zero(
        self, end: float, v: FloatArray, held: BoolArray, n_residuals: int
    ) -> BoolArray | None:
        """Return the components that are zero if the ratio is at an end of its range."""
        if np.isinf(end):
            away = self.denominator != 0.0
        else:
            weight = self.numerator - end * self.denominator
            away = np.abs(weight) > 1e-14 * (np.abs(self.numerator) + abs(end) * self.denominator)
        fixed = held & (v > 0.0)
        fixed[fixed.size - n_residuals :] = True
        return None if (away & fixed).any() else away & ~held


@dataclass(frozen=True, slots=True)
class SmoothConstraint:
    """Any smooth function f(v).

    Parameters
    ----------
    function : value at (k + 1,) components
    gradient : (k + 1,) at components
    low, high : known range of the function over positive components; its ends are not evaluated
    """

    function: Callable[[FloatArray], float]
    gradient: Callable[[FloatArray], FloatArray]
    low: float = -np.inf
    high: float = np.inf

    def value(self, v: FloatArray) -> float:
        """Return f(v)."""
        return float(self.function(v))

    def surface(self, theta: float) -> ConstraintSurface:
        """Return the surface f(v) = θ."""

        def gap(v: FloatArray) -> float:
            # If the function is undefined, the caller shortens the step to the surface.
            with np.errstate(all="ignore"):
                return theta - float(self.function(v))

        def normal(v: FloatArray) -> FloatArray:
            with np.errstate(all="ignore"):
                return self.gradient(v)

        return ConstraintSurface(normal, gap, is_flat=False)

    def slope_factor(self, v: FloatArray) -> float:
        """Return 1."""
        return 1.0

    def range(self, v: FloatArray, held: BoolArray, n_residuals: int = 1) -> Range:
        """Return the given range."""
        if not np.where(held, 0.0, self.gradient(v)).any():
            raise EstimationError(_CONSTANT)
        return Range(self.low, self.high)


_CONSTANT = (
    "the quantity does not depend on the estimated components: its weights are all the same or "
    "zero, or its components were held; it has no profile"
)


def _rounded(gap: float, size: float) -> float:
    """Return a gap, set to zero if it is smaller than the rounding error of its operands."""
    return 0.0 if abs(gap) <= 4e-16 * abs(size) else float(gap)


def _ratios(above: FloatArray, below: FloatArray) -> FloatArray:
    """Return a/b, ±∞ if only b is zero, nan if both are."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios: FloatArray = above / below
    return ratios
