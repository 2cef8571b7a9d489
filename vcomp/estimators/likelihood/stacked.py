"""The likelihoods of many data sets of one model at once, and their maxima.

:func:`maximise_stack` takes a step in all data sets at a time. The steps are those of
``maximisation``: by the average information far from the maximum, Newton's near it, within the
bounds at zero. A maximum that leaves a doubt is climbed to again from other starts (``starts``).
Data sets whose climb fails are left to ``maximise``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, Self

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.estimators.likelihood.climbing import Place
from vcomp.estimators.likelihood.stacked_forms import StackedForms
from vcomp.estimators.likelihood.starts import OtherStarts

_NEWTON_BELOW = 1.0
"""Newton decrement (in standard errors) below which the observed information is used."""

_LAST = 1e-3
"""Largest Newton decrement at which a step may be the last."""

_SOUGHT, _EXPECTED = 1e-8, 1e-9
"""Decrement at which the climb ends, and largest expected decrement after a last step. Newton's
steps square it, up to a factor that two steps show."""

_BEFORE = 0.01
"""Decrement that is assumed before the first Newton step."""

_NONE = 1e-300
"""Smallest square of a previous decrement in the prediction of the next one."""

_STEPS, _HALVINGS = 30, 8

_SINGULAR = 1e-8
"""Eigenvalue on a unit diagonal below which a data set is left to ``maximise``."""

_SMALL_RESIDUAL = 1e-6
"""Share of the residual below which digits may cancel, or the likelihood be unbounded."""

_AT_BOUND = 1e-6
"""Component in standard errors below which it may be at its bound up to rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class StackedDerivatives:
    """The log-likelihoods of B data sets with their derivatives; nan where undefined.

    Attributes
    ----------
    loglike : (B,)
    score : (B, k + 1), the residual last
    average, observed : (B, k + 1, k + 1) informations
    beta, slopes : (B, p) fixed effects and (B, k + 1, p) their derivatives by the components
    scale_factor : (B,) best factor of all components
    """

    loglike: FloatArray
    score: FloatArray
    average: FloatArray
    observed: FloatArray
    beta: FloatArray
    slopes: FloatArray
    scale_factor: FloatArray

    def take(self, chosen: np.ndarray) -> StackedDerivatives:
        """Return those of some data sets."""
        return StackedDerivatives(*(getattr(self, name)[chosen] for name in _FIELDS))

    def put(self, chosen: np.ndarray, other: StackedDerivatives) -> None:
        """Replace those of some data sets in place."""
        for name in _FIELDS:
            getattr(self, name)[chosen] = getattr(other, name)


_FIELDS = tuple(StackedDerivatives.__dataclass_fields__)


@dataclass(frozen=True, slots=True, eq=False)
class StackedMaxima:
    """The maxima of B likelihoods.

    Attributes
    ----------
    found : (B,) whether the maximum is certain; the other values are not defined where it is not
    v, loglike, beta : (B, k + 1) components, (B,) log-likelihoods and (B, p) fixed effects
    """

    found: BoolArray
    v: FloatArray
    loglike: FloatArray
    beta: FloatArray


class Stacked(Protocol):
    """Sums over the rows of B data sets of one model, and forms of V⁻¹.

    Attributes
    ----------
    n_fixed : number of columns of X
    n, sizes : (B,) numbers of rows and (B, k) of groups of the terms
    XX : (B or 1, p, p) cross-products of the columns of X, in units of their own
    """

    n_fixed: int
    n: FloatArray
    sizes: FloatArray
    XX: FloatArray

    def __len__(self) -> int:
        """Return the number of data sets."""

    def take(self, chosen: LongArray) -> Self:
        """Return the sums of some data sets, also repeatedly."""

    def forms(self, v: FloatArray, *, reml: bool) -> StackedForms:
        """Return the forms at (B, k + 1) components, the residual positive."""


class StackedLikelihood:
    """Restricted or full log-likelihoods of data sets of one model.

    Parameters
    ----------
    sums : of the data sets
    reml : whether the likelihoods are the restricted ones
    """

    def __init__(self, sums: Stacked, *, reml: bool) -> None:
        self.sums, self.reml = sums, reml

    def __len__(self) -> int:
        return len(self.sums)

    def take(self, chosen: LongArray) -> StackedLikelihood:
        """Return the likelihoods of some data sets, also repeatedly."""
        return StackedLikelihood(self.sums.take(chosen), reml=self.reml)

    def derivatives(self, v: FloatArray) -> StackedDerivatives:
        """Return value, score and informations at (B, k + 1) components, the residual positive."""
        forms = self.sums.forms(v, reml=self.reml)
        degrees = self.sums.n - self.sums.n_fixed if self.reml else self.sums.n
        average = 0.25 * (forms.twice + forms.twice.swapaxes(1, 2))
        return StackedDerivatives(
            loglike=-0.5 * (forms.log_det + forms.rss + degrees * np.log(2.0 * np.pi)),
            score=0.5 * (forms.quadratics - forms.traces),
            average=average,
            observed=2.0 * average - 0.5 * forms.squares,
            beta=forms.beta,
            slopes=forms.slopes,
            scale_factor=forms.rss / degrees,
        )


def maximise_stack(
    stack: StackedLikelihood, start: FloatArray, held: BoolArray, *, once: bool = False
) -> StackedMaxima:
    """Return the maxima over non-negative components.

    Parameters
    ----------
    stack : the likelihoods
    start : (k + 1,) first values, not negative, the residual positive
    held : (k + 1,) components that keep their start
    once : whether one climb is enough, though there may be a higher maximum
    """
    try:
        climb = _Climb(stack, held, np.tile(start, (len(stack), 1)))
    except np.linalg.LinAlgError:  # a column of X is zero somewhere
        nothing = np.full((len(stack), start.size), np.nan)
        return StackedMaxima(np.zeros(len(stack), dtype=bool), nothing, nothing[:, 0], nothing)
    usable = climb.is_identified() & (stack.sums.sizes >= 2.0).all(axis=1)
    climb.run()
    first = climb.maxima()
    best = replace(first, found=first.found & usable)
    if once or not best.found.any():
        return best
    return _highest(stack, held, best, climb.at)


def _highest(
    stack: StackedLikelihood, held: BoolArray, first: StackedMaxima, at: StackedDerivatives
) -> StackedMaxima:
    """Return the highest maxima, after climbs from other starts where there may be several."""
    sums, certain = stack.sums, first.found.copy()
    places: list[LongArray] = []
    begins: list[FloatArray] = []
    for b in np.flatnonzero(certain):
        starts = OtherStarts(held, np.append(sums.sizes[b], sums.n[b]), sums.n_fixed)
        if starts.is_crowded:
            certain[b] = False
            continue
        v = first.v[b]
        doubtful = starts.doubtful(v, at.average[b], partial(at.observed.__getitem__, b))
        if doubtful.any():
            shares = starts.elsewhere(v, doubtful)
            places.append(np.full(len(shares), b))
            begins.append(np.where(held, v, v.sum() * shares))
    if not places:
        return replace(first, found=certain)
    of, again = np.concatenate(places), _Climb.of_starts(stack, held, places, begins)
    best = StackedMaxima(certain, first.v.copy(), first.loglike.copy(), first.beta.copy())
    for row, b in enumerate(of):
        if not again.found[row]:
            best.found[b] = False
        elif Place.is_higher(again.loglike[row], best.loglike[b]):
            best.v[b], best.loglike[b] = again.v[row], again.loglike[row]
            best.beta[b] = again.beta[row]
    return best


class _Climb:
    """Simultaneous climbs of a stack, one for each data set, each with its own start."""

    def __init__(self, stack: StackedLikelihood, held: BoolArray, start: FloatArray) -> None:
        self.stack, self.held = stack, held
        self.v = start.copy()
        self.at = self._derivatives(stack, self.v)
        self.done = np.zeros(len(stack), dtype=bool)
        self.failed = ~np.isfinite(self.at.loglike)
        self.step = np.zeros_like(self.v)
        self.decrement = np.full(len(stack), np.inf)
        self.newton = np.full(len(stack), _BEFORE)
        self.is_last = np.zeros(len(stack), dtype=bool)
        self._plan(np.flatnonzero(~self.failed))

    @classmethod
    def of_starts(
        cls,
        stack: StackedLikelihood,
        held: BoolArray,
        places: list[LongArray],
        begins: list[FloatArray],
    ) -> StackedMaxima:
        """Return the ends of climbs from several starts of the data sets at `places`."""
        of, start = np.concatenate(places), np.concatenate(begins)
        parts = []
        for begin in range(0, of.size, len(stack)):
            some = slice(begin, begin + len(stack))
            climb = cls(stack.take(of[some]), held, start[some])
            climb.run()
            parts.append(climb.maxima())
        names = StackedMaxima.__dataclass_fields__
        return StackedMaxima(*(np.concatenate([getattr(p, n) for p in parts]) for n in names))

    def is_identified(self) -> BoolArray:
        """Whether the data sets can distinguish components, and columns of X."""
        expected = 2.0 * self.at.average - self.at.observed
        well = _smallest(expected) > _SINGULAR
        if self.stack.sums.n_fixed:
            well &= _smallest(self.stack.sums.XX) > _SINGULAR
        return well

    def maxima(self) -> StackedMaxima:
        """Return the ends of the climbs."""
        v, at = self.v, self.at
        with np.errstate(invalid="ignore"):
            unit = np.sqrt(np.maximum(np.diagonal(at.average, axis1=1, axis2=2), 0.0))
            near = ((v > 0.0) & (v * unit <= _AT_BOUND) & ~self.held).any(axis=1)
            usual = v[:, -1] > _SMALL_RESIDUAL * v.sum(axis=1)
        return StackedMaxima(self.done & usual & ~near, v, at.loglike, at.beta)

    def run(self) -> None:
        """Climb until every data set is at its maximum, or has failed."""
        fraction = np.ones(len(self.v))
        for _ in range(_STEPS):
            self._finish()
            going = np.flatnonzero(~self.done & ~self.failed)
            if not going.size:
                return
            trial = np.maximum(self.v[going] + fraction[going, None] * self.step[going], 0.0)
            factor = self.at.scale_factor[going, None]
            scaled = ((factor > 2.0) | (factor < 0.5)) & np.isfinite(factor) & (factor > 0.0)
            scaled &= ~self.held.any() & (fraction[going, None] == 1.0)
            trial = np.where(scaled, factor * self.v[going], trial)
            whole = going.size == len(self.v)
            at_trial = self._derivatives(self.stack if whole else self.stack.take(going), trial)
            with np.errstate(invalid="ignore"):
                gain = fraction[going] * (self.step * self.at.score).sum(axis=1)[going]
                accepted = at_trial.loglike >= Place.required(
                    self.at.loglike[going], gain, self.decrement[going], self.stack.sums.n[going]
                )
            kept = np.flatnonzero(accepted)
            self.v[going[kept]] = trial[kept]
            self.at.put(going[kept], at_trial.take(kept))
            fraction[going[kept]] = 1.0
            self._plan(going[kept])
            back = going[~accepted]
            fraction[back] *= 0.5
            self.failed[back] |= fraction[back] < 0.5**_HALVINGS

    def _finish(self) -> None:
        """Take the last step of the data sets that are next to their maximum."""
        last = np.flatnonzero(~self.done & ~self.failed & self.is_last)
        if last.size:
            step = self.step[last]
            self.v[last] += step
            self.at.beta[last] += (step[:, None] @ self.at.slopes[last])[:, 0]
            self.at.loglike[last] += 0.5 * self.decrement[last] ** 2
            self.done[last] = True

    def _derivatives(self, stack: StackedLikelihood, v: FloatArray) -> StackedDerivatives:
        with np.errstate(all="ignore"):
            return stack.derivatives(v)

    def _plan(self, some: LongArray) -> None:
        """Set the next steps of some data sets."""
        v, at = self.v[some], self.at.take(some)
        unit = np.sqrt(np.maximum(np.diagonal(at.average, axis1=1, axis2=2), 0.0))
        moves = ~self.held & ((v > 0.0) | (at.score > _SOUGHT * unit))
        step, decrement, _, well = _bounded_steps(at.average, at.score, v, moves)
        near = np.flatnonzero(well & (decrement < _NEWTON_BELOW))
        newton, less, inside, positive = _bounded_steps(
            at.observed[near], at.score[near], v[near], moves[near]
        )
        used = near[positive]
        step[used], decrement[used] = newton[positive], less[positive]
        slow = np.abs(v * at.score)[:, ~self.held].max(axis=1, initial=0.0)
        still = slow <= 1e-4 * np.sqrt(self.stack.sums.n[some])
        last = decrement <= _SOUGHT
        before = self.newton[some][used]
        expected = less[positive] ** 3 / np.maximum(np.square(before), _NONE)
        last[used] |= inside[positive] & (less[positive] <= _LAST) & (expected <= _EXPECTED)
        self.newton[some] = _BEFORE
        self.newton[some[used]] = less[positive]
        self.failed[some] |= ~well
        self.step[some], self.decrement[some], self.is_last[some] = step, decrement, last & still


def _bounded_steps(
    information: FloatArray, score: FloatArray, v: FloatArray, moves: BoolArray
) -> tuple[FloatArray, FloatArray, BoolArray, BoolArray]:
    """Return steps within the bounds of components, for each of B data sets.

    A component whose step goes beyond its bound gets there, and the others move accordingly.

    Parameters
    ----------
    information, score, v : (B, m, m), (B, m) and (B, m)
    moves : (B, m) components that are not kept

    Returns
    -------
    Steps, decrements, whether no bound was reached, and whether the information is positive
    definite.
    """
    m = score.shape[1]
    diagonal = np.diagonal(information, axis1=1, axis2=2)
    with np.errstate(all="ignore"):
        unit = np.sqrt(np.where(moves & (diagonal > 0.0), diagonal, 1.0))
        scaled = information / (unit[:, :, None] * unit[:, None, :])
    eye = np.eye(m)
    scaled = np.where(moves[:, :, None] & moves[:, None, :], scaled, eye)
    well = np.isfinite(scaled).all(axis=(1, 2)) & np.isfinite(score).all(axis=1)
    scaled[~well] = eye
    well &= np.linalg.eigvalsh(scaled)[:, 0] > 1e-10
    scaled[~well] = eye
    slope = np.where(moves & well[:, None], score / unit, 0.0)
    bound = Place.lowest_step(v)
    lower = bound * unit
    fixed, d = ~moves, np.zeros_like(v)
    for _ in range(m + 1):
        free = ~fixed
        matrix = np.where(free[:, :, None] & free[:, None, :], scaled, eye)
        at_bound = np.where(free, 0.0, d)
        rest = np.where(free, slope - (scaled @ at_bound[:, :, None])[:, :, 0], 0.0)
        solved = np.linalg.solve(matrix, rest[:, :, None])[:, :, 0]
        d = np.where(free, solved, d)
        beyond = free & (d < lower)
        if not beyond.any():
            break
        d = np.where(beyond, lower, d)
        fixed = fixed | beyond
    inside: BoolArray = np.logical_not((fixed & moves).any(axis=1))
    gain = (slope * d).sum(axis=1) - 0.5 * (d * (scaled @ d[:, :, None])[:, :, 0]).sum(axis=1)
    step: FloatArray = np.where(moves & (d == lower), bound, d / unit)
    return step, np.sqrt(np.maximum(2.0 * gain, 0.0)), inside, well


def _smallest(matrices: FloatArray) -> FloatArray:
    """Return the smallest eigenvalues on a unit diagonal, nan where that scaling is not finite."""
    with np.errstate(all="ignore"):
        unit = np.sqrt(np.diagonal(matrices, axis1=1, axis2=2))
        scaled = matrices / (unit[:, :, None] * unit[:, None, :])
    finite = np.isfinite(scaled).all(axis=(1, 2))
    scaled[~finite] = 0.0
    return np.where(finite, np.linalg.eigvalsh(scaled)[:, 0], np.nan)
