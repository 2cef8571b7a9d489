"""The loop of all maximisers: of components, of covariance matrices, along profiles.

See docs/explanation/mathematics.md, section 6.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from vcomp._typing import FloatArray

INSIDE = 0.1
"""Smallest factor of the residual in one step: at zero the likelihood is undefined."""

STUCK = 1e-4
"""Decrement and violation up to which a climb without a higher point has converged: rounding error
stopped it."""

OTHER_STEPS = 60
"""Step limit of a climb from another start."""

ROUNDING = 1e-14
"""Relative rounding error of a log-likelihood, a sum of logarithms and squares of all rows."""

_BETWEEN = 10.0
"""Largest difference of equal maxima between engines, models and processors, in rounding
errors."""

_LAST = 1e-4
"""Decrement up to which the one after the next step is predicted: decrement²/previous."""

AnyPlace = TypeVar("AnyPlace", bound="Place")


def loglike_margin(value: float, n: int = 0) -> float:
    """Return the difference of log-likelihoods of `n` rows below which they are equal.

    Examples
    --------
    >>> print(f"{loglike_margin(-80.0, 100):.1g}")
    1e-11
    """
    return _BETWEEN * ROUNDING * max(abs(value), n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A point of a climb and its proposed step.

    Attributes
    ----------
    decrement : estimated distance to the maximum in standard errors
    violation : scaled violation of the conditions of a maximum, without a unit
    rate : factor of the decrement in a step, if the decrement is more than rounding error
    """

    HIGHER: ClassVar[float] = 1e-8
    """Gain in log-likelihood below which the first maximum is kept."""

    decrement: float
    violation: float = 0.0
    rate: float = 0.5

    @property
    def value(self) -> float:
        """The log-likelihood."""
        raise NotImplementedError

    @staticmethod
    def is_higher(value: float, than: float) -> bool:
        """Return whether a maximum is higher than the first one by more than the tolerance."""
        return value > than + max(Place.HIGHER, loglike_margin(than))

    def leads_to(self: AnyPlace, end: AnyPlace) -> bool:
        """Whether the proposed step ends near a known maximum."""
        raise NotImplementedError

    def climb(
        self: AnyPlace,
        move: Callable[[AnyPlace], AnyPlace | None],
        *,
        sought: tuple[float, float],
        stalled: tuple[float, float],
        max_iter: int,
        known: Sequence[AnyPlace] = (),
        unseen: float = 0.0,
    ) -> tuple[list[AnyPlace], bool]:
        """Return the path of the climb, and whether it reached a maximum.

        The path is empty if it leads to a known maximum.

        Parameters
        ----------
        move : returns the next point, or None if no step raises the value
        sought : decrement and violation at a maximum
        stalled : the same where the decrement falls more slowly than its rate; not smaller
        max_iter : largest number of steps
        known : ends of other climbs
        unseen : predicted decrement up to which the last step is not evaluated
        """
        path, previous = [self], np.inf
        while True:
            here = path[-1]
            if known and any(here.leads_to(end) for end in known):
                return [], True
            limits = stalled if here.decrement > here.rate * previous else sought
            reached = here.decrement <= limits[0] or here.is_one_step_away(previous, unseen)
            if reached and here.violation <= limits[1]:
                return path, True
            if len(path) > max_iter:
                return path, False
            following = move(here)
            if following is None:
                return path, max(here.decrement, here.violation) <= STUCK
            previous = here.decrement
            path.append(following)

    def is_one_step_away(self, previous: float, unseen: float) -> bool:
        """Return whether the next step is expected to reach the maximum.

        Parameters
        ----------
        previous : decrement at the point before
        unseen : decrement that may remain
        """
        is_near = self.decrement <= _LAST and previous < np.inf
        # If its factor is that of the step before, decrement²/previous remains.
        return self.decrement <= unseen or (is_near and self.decrement**2 <= unseen * previous)

    @staticmethod
    def highest(
        first: tuple[list[AnyPlace], bool],
        starts: Iterable[AnyPlace],
        climb: Callable[[AnyPlace, Sequence[AnyPlace]], tuple[list[AnyPlace], bool]],
    ) -> tuple[list[AnyPlace], bool, list[AnyPlace]]:
        """Return the highest climb, whether it reached a maximum, and the ends of the others.

        A climb that did not reach a maximum is the highest only if none did.

        Parameters
        ----------
        first : path of the first climb, and whether it reached a maximum
        starts : of further climbs
        climb : climbs from a start, given the ends that are known
        """
        best, ended = first, [first]
        for start in starts:
            # A climb that rounding ended would end there again; at the step limit it may go on.
            known = [p[-1] for p, reached in ended if reached or len(p) <= OTHER_STEPS]
            path, done = climb(start, known)
            if not path:
                continue
            ended.append((path, done))
            higher = Place.is_higher(path[-1].value, best[0][-1].value)
            if done > best[1] or (done == best[1] and higher):
                best = path, done
        return *best, [path[-1] for path, _ in ended if path is not best[0]]

    @staticmethod
    def required(
        value: Any, gain: Any, decrement: Any, n: Any, *, rounding: float = ROUNDING
    ) -> Any:
        """Return the log-likelihood that a step has to reach; arrays are of several climbs.

        Parameters
        ----------
        value : log-likelihood before the step, of `n` rows
        gain : predicted by the slope; a small part of it is required
        decrement : Newton decrement; where it is small, more rounding of the value is allowed
        rounding : relative error of the value
        """
        lost = np.where(decrement < 1e-3, 100.0 * rounding, rounding)
        return value + 1e-4 * gain - lost * np.maximum(np.abs(value), n)

    @staticmethod
    def lowest_step(v: FloatArray) -> FloatArray:
        """Return the bounds of a step from components: at zero, for the residual above it."""
        lower = -v
        lower[..., -1] *= 1.0 - INSIDE
        return lower
