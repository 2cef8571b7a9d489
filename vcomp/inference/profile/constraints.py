"""Constraints of profile likelihoods: a quantity of the components is held at a value.

A constraint computes the quantity, the surface on which it has a given value, and its range over
non-negative components, with the components that are zero at the ends of the range
(docs/explanation/mathematics.md, section 10.6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import EstimationError
from vcomp.inference.profile.constrained import ConstraintSurface


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

    def range(self, v: FloatArray, held: BoolArray) -> Range:
        """Return the range of the quantity with held components at their values in `v`.

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

    def range(self, v: FloatArray, held: BoolArray) -> Range:
        """Return the range of w'v."""
        free = np.where(held, 0.0, self.weights)
        if not free.any():
            raise EstimationError(_CONSTANT)
        base = float(self.weights[held] @ v[held])
        rises, falls = free > 0.0, free < 0.0
        low = -np.inf if falls.any() else base
        high = np.inf if rises.any() else base
        return Range(
            low,
            high,
            None if falls.any() or rises[-1] else rises,
            None if rises.any() or falls[-1] else falls,
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

    def range(self, v: FloatArray, held: BoolArray) -> Range:
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
        return Range(low, high, self._zero(low, v, held), self._zero(high, v, held))

    def _zero(self, end: float, v: FloatArray, held: BoolArray) -> BoolArray | None:
        """Return the components that are zero if the ratio is at an end of its range."""
        if np.isinf(end):
            away = self.denominator != 0.0
        else:
            weight = self.numerator - end * self.denominator
            away = np.abs(weight) > 1e-14 * (np.abs(self.numerator) + abs(end) * self.denominator)
        fixed = held & (v > 0.0)
        return None if away[-1] or (away & fixed).any() else away & ~held


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

    def range(self, v: FloatArray, held: BoolArray) -> Range:
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
