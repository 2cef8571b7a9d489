"""The loop of every climb: of components, of matrices in ``multivariate``, along profiles.

See docs/explanation/mathematics.md, section 6.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np

from vcomp._typing import FloatArray

INSIDE = 0.1
"""The residual keeps at least this fraction in one step: at zero there is no likelihood."""

STUCK = 1e-4
"""Decrement and violation below which it is rounding error that no step raises the value."""

OTHER_STEPS = 60
"""Largest number of steps from another start."""

ROUNDING = 1e-14
"""Relative rounding error of a log-likelihood, a sum of logarithms and squares of all rows."""

_BETWEEN = 10.0
"""Rounding errors by which the same maximum may differ between engines, models and processors."""

_LAST = 1e-4
"""Decrement above which a step is evaluated in any case."""

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
    """What a climb has to know of a point and the step that is proposed there.

    Attributes
    ----------
    decrement : estimated distance to the maximum in standard errors
    violation : of the conditions of a maximum, without a unit
    rate : factor of the decrement in a step, if the decrement is more than rounding error
    """

    HIGHER: ClassVar[float] = 1e-8
    """Difference of log-likelihoods below which the maximum that was found first is kept."""

    decrement: float
    violation: float = 0.0
    rate: float = 0.5

    @property
    def value(self) -> float:
        """The log-likelihood."""
        raise NotImplementedError

    @staticmethod
    def is_higher(value: float, than: float) -> bool:
        """Return whether a maximum is higher than the one that was found first."""
        return value > than + max(Place.HIGHER, loglike_margin(than))

    def leads_to(self: AnyPlace, end: AnyPlace) -> bool:
        """Whether the step from here ends near a known maximum."""
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
        """Return the points from here to the end, and whether a maximum was reached.

        There are no points if the climb leads to a maximum that is known.

        Parameters
        ----------
        move : returns the next point, or None if no step raises the value
        sought : decrement and violation at a maximum
        stalled : the same, not smaller, where the decrement falls more slowly than at its rate
        max_iter : largest number of steps
        known : ends of other climbs
        unseen : decrement after the next step at which that is not evaluated
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
            there = move(here)
            if there is None:
                return path, max(here.decrement, here.violation) <= STUCK
            previous = here.decrement
            path.append(there)

    def is_one_step_away(self, previous: float, unseen: float) -> bool:
        """Return whether the next step is the last, if it is as good as the one before.

        Parameters
        ----------
        previous : decrement before that step
        unseen : decrement that is to be left
        """
        is_near = self.decrement <= _LAST and previous < np.inf
        # Such a step leaves decrement²/previous.
        return self.decrement <= unseen or (is_near and self.decrement**2 <= unseen * previous)

    @staticmethod
    def highest(
        first: tuple[list[AnyPlace], bool],
        starts: Iterable[AnyPlace],
        climb: Callable[[AnyPlace, Sequence[AnyPlace]], tuple[list[AnyPlace], bool]],
    ) -> tuple[list[AnyPlace], bool, list[AnyPlace]]:
        """Return the highest of several climbs, whether it reached a maximum, and the other ends.

        A climb that did not reach a maximum is the highest only if none did.

        Parameters
        ----------
        first : path of the climb that left a doubt, and whether it reached a maximum
        starts : where to climb again
        climb : climbs from a start, given the ends that are known
        """
        found, ended = first, [first]
        for start in starts:
            # Where rounding ended a climb, another one would end; not so at the limit of steps.
            known = [p[-1] for p, reached in ended if reached or len(p) <= OTHER_STEPS]
            path, done = climb(start, known)
            if not path:
                continue
            ended.append((path, done))
            higher = Place.is_higher(path[-1].value, found[0][-1].value)
            if done > found[1] or (done == found[1] and higher):
                found = path, done
        return *found, [path[-1] for path, _ in ended if path is not found[0]]

    @staticmethod
    def required(
        value: float, gain: float, decrement: float, n: int, *, rounding: float = ROUNDING
    ) -> float:
        """Return the log-likelihood that a step has to reach.

        Parameters
        ----------
        value : log-likelihood before the step, of `n` rows
        gain : that its slope promises, of which a small part must be kept
        decrement : near the end a step is more exact than the value shows
        rounding : relative error of the value
        """
        lost = 100.0 * rounding if decrement < 1e-3 else rounding
        return value + 1e-4 * gain - lost * max(abs(value), n)

    @staticmethod
    def lowest_step(v: FloatArray) -> FloatArray:
        """Return the bounds of a step from components: at zero, for the residual above it."""
        lower = -v
        lower[..., -1] *= 1.0 - INSIDE
        return lower
