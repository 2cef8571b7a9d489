"""The likelihoods of many small data sets of one model at once, and their maxima.

The largest term is absorbed. All other terms are dense matrices of the order of their effects, one
for each data set: the equations of docs/explanation/mathematics.md, section 7.3, computed for a
whole stack by each call of numpy. With V = σ²_e Ṽ, Ṽ₀ the part of the residual and the absorbed
term, and A = W'Ṽ₀⁻¹W, the forms of P are those of A and of K, the inverse of Henderson's equations
in W. Components may be zero, as effects have unit variance in these equations.

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
from vcomp.estimators.likelihood.starts import OtherStarts
from vcomp.numerics import inverses
from vcomp.statistics import Stack

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


@dataclass(frozen=True, slots=True, eq=False)
class StackedForms:
    """Forms of V⁻¹ and P of B data sets by the components, the residual last.

    Q is P for the restricted likelihood, and V⁻¹ for the full one.

    Attributes
    ----------
    log_det : (B,) log|V|, with log|X'V⁻¹X| for the restricted likelihood
    rss : (B,) y'Py
    quadratics, traces : (B, k + 1) y'PV_tPy and tr(QV_t)
    twice, squares : (B, k + 1, k + 1) y'PV_tPV_uPy and tr(QV_tQV_u)
    beta, slopes : (B, p) fixed effects and (B, k + 1, p) their derivatives by the components
    """

    log_det: FloatArray
    rss: FloatArray
    quadratics: FloatArray
    traces: FloatArray
    twice: FloatArray
    squares: FloatArray
    beta: FloatArray
    slopes: FloatArray


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


@dataclass(frozen=True, slots=True, eq=False)
class _Absorbed:
    """Sums over the groups of the absorbed term with weights g(n), at one power of 1/D."""

    WW: FloatArray
    Wy: FloatArray
    yy: FloatArray


class StackedEquations:
    """Equations of small data sets without their largest term.

    Parameters
    ----------
    stack : their sums
    """

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.rest = [t for t in range(len(stack.blocks)) if t != stack.lead]
        self._blocks = stack.blocks[self.rest]
        self._is_fixed: BoolArray = stack.blocks.sum(axis=0) == 0.0
        self.n, self.sizes, self.n_fixed = stack.n, stack.sizes, stack.n_fixed
        of_fixed = slice(stack.whole.shape[1] - stack.n_fixed, None)
        self.XX = stack.whole[:, of_fixed, of_fixed]

    def __len__(self) -> int:
        return len(self.stack)

    def take(self, chosen: LongArray) -> StackedEquations:
        """Return the equations of some data sets, also repeatedly."""
        return StackedEquations(self.stack.take(chosen))

    def _weighted(self, weights: FloatArray) -> list[_Absorbed]:
        """Return Σ_d weights_d of the products of groups, for (B, 3, d) weights."""
        stack = self.stack
        d, R = stack.grams.shape[1:3]
        WW = weights @ stack.grams.reshape(-1, d, R * R)
        Wy = weights @ stack.grams_y
        yy = (weights * stack.grams_yy[:, None]).sum(axis=2)
        return [
            _Absorbed(WW[:, i].reshape(-1, R, R), Wy[:, i], yy[:, i])
            for i in range(weights.shape[1])
        ]

    def forms(self, v: FloatArray, *, reml: bool) -> StackedForms:
        """Return the forms at (B, k + 1) components, the residual positive."""
        stack, fixed = self.stack, self._is_fixed
        s2 = v[:, -1]
        ratio = v[:, stack.lead] / s2
        D = 1.0 + ratio[:, None] * stack.group_n
        powers = np.stack([ratio[:, None] / D, 1.0 / D**2, stack.group_n / D**3], axis=1)
        inner, second, third = self._weighted(powers)
        A = stack.whole - inner.WW
        a_y, a_yy = stack.whole_y - inner.Wy, stack.yy - inner.yy
        root = each(np.sqrt(v[:, self.rest] / s2[:, None]), self._blocks) + fixed
        K, K_traces, log_det = self._inverses(A, root, reml=reml)

        # Effects, and forms in P y.
        b = _times(K, a_y)
        q = a_y - _times(A, b)
        rss = a_yy - _dot(a_y, b)
        G = q[:, :, None] * self._blocks.T
        lead_y = second.Wy - _times(second.WW, b)
        quadratics = np.empty((len(s2), len(stack.blocks)))
        quadratics[:, self.rest] = each(np.square(q), self._blocks.T)
        quadratics[:, stack.lead] = second.yy - _dot(b, second.Wy) - _dot(b, lead_y)

        # Traces and squares of the blocks of Z'PZ.
        KA = K_traces @ A
        Q = A - A @ KA
        traces = np.empty_like(quadratics)
        traces[:, self.rest] = each(np.diagonal(Q, axis1=1, axis2=2), self._blocks.T)
        both = K_traces @ second.WW
        weight = stack.n_groups * stack.group_n / D
        traces[:, stack.lead] = weight.sum(axis=1) - np.trace(both, axis1=1, axis2=2)
        squares = self._squares(Q, KA, second.WW)
        squares[:, stack.lead, stack.lead] = (
            (weight * stack.group_n / D).sum(axis=1)
            - 2.0 * (K_traces * third.WW).sum(axis=(1, 2))
            + (both * both.swapaxes(1, 2)).sum(axis=(1, 2))
        )

        # V_t P y, and the forms with two of them.
        moved = np.empty((*quadratics.shape, len(fixed)))
        moved[:, self.rest] = (A @ G).swapaxes(1, 2)
        moved[:, stack.lead] = lead_y
        solved = moved @ K
        twice = np.empty_like(squares)
        twice[:, self.rest] = G.swapaxes(1, 2) @ moved.swapaxes(1, 2)
        twice[:, :, self.rest] = twice[:, self.rest].swapaxes(1, 2)
        twice[:, stack.lead, stack.lead] = (
            third.yy - 2.0 * _dot(b, third.Wy) + _dot(b, _times(third.WW, b))
        )
        twice = twice - solved @ moved.swapaxes(1, 2)

        degrees = stack.n - stack.n_fixed if reml else stack.n
        s, total, scale = s2[:, None], rss / s2, stack.scale[fixed]
        log_det = log_det + (stack.n_groups * np.log(D)).sum(axis=1) + degrees * np.log(s2)
        slopes = np.empty((*v.shape, stack.n_fixed))
        slopes[:, :-1] = -solved[:, :, fixed] / s[:, :, None]
        slopes[:, -1] = -(v[:, None, :-1] @ slopes[:, :-1])[:, 0] / s
        quadratics, traces = quadratics / s**2, traces / s
        twice = 0.5 * (twice + twice.swapaxes(1, 2)) / s[:, :, None] ** 3
        squares = squares / s[:, :, None] ** 2
        return StackedForms(
            log_det=log_det + 2.0 * np.log(scale).sum() if reml else log_det,
            rss=total,
            quadratics=_of_residual(quadratics, total, v),
            traces=_of_residual(traces, degrees, v),
            twice=_with_residual(twice, quadratics, total, v),
            squares=_with_residual(squares, traces, degrees, v),
            beta=b[:, fixed] / scale,
            slopes=slopes / scale,
        )

    def _inverses(
        self, A: FloatArray, root: FloatArray, *, reml: bool
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return K, the K of the traces, and the log-determinant of the equations.

        For the full likelihood the fixed effects are left out of the last two.
        """
        fixed = self._is_fixed
        S = A * root[:, :, None] * root[:, None, :]
        places = np.flatnonzero(~fixed)
        S[:, places, places] += 1.0
        whole, log_det = inverses_or_nan(S)
        K = whole * root[:, :, None] * root[:, None, :]
        if reml:
            return K, K, log_det
        n_random = int((~fixed).sum())
        inner, log_det = inverses_or_nan(np.ascontiguousarray(S[:, :n_random, :n_random]))
        r = root[:, :n_random]
        K_traces = np.zeros_like(K)
        K_traces[:, :n_random, :n_random] = inner * r[:, :, None] * r[:, None, :]
        return K, K_traces, log_det

    def _squares(self, Q: FloatArray, KA: FloatArray, M: FloatArray) -> FloatArray:
        """Return the squared norms of the blocks of Z'PZ, without the absorbed term's own block.

        With T = I − K A the block of the absorbed term has the squared norm of T'M T.
        """
        stack, blocks = self.stack, self._blocks
        k = len(stack.blocks)
        squares = np.zeros((len(KA), k, k))
        rest = np.array(self.rest, dtype=np.int64)
        squares[:, rest[:, None], rest] = blocks @ np.square(Q) @ blocks.T
        # diag(T'MT) of the columns of terms, T = I − KA: M − 2 M K A + A K M K A
        mixed = M @ KA
        diagonal = (
            np.diagonal(M, axis1=1, axis2=2)
            - 2.0 * np.diagonal(mixed, axis1=1, axis2=2)
            + (KA * mixed).sum(axis=1)
        )
        squares[:, rest, stack.lead] = squares[:, stack.lead, rest] = each(diagonal, blocks.T)
        return squares


def inverses_or_nan(S: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return inverses and log-determinants; nan and I for a matrix that is not positive definite.

    No digit of one depends on the others.
    """
    log_det = np.zeros(len(S))
    try:
        return inverses(S, log_det), log_det
    except np.linalg.LinAlgError:
        if len(S) == 1:
            return np.eye(S.shape[1])[None], np.array([np.nan])
    parts = [inverses_or_nan(S[b : b + 1]) for b in range(len(S))]
    found, logs = zip(*parts, strict=True)
    return np.concatenate(found), np.concatenate(logs)


def _times(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    return (matrix @ vector[:, :, None])[:, :, 0]


def each(rows: FloatArray, matrix: FloatArray) -> FloatArray:
    """Return the products of rows with a matrix; no digit depends on other rows."""
    return (rows[:, None] @ matrix)[:, 0]


def _dot(a: FloatArray, b: FloatArray) -> FloatArray:
    return (a * b).sum(axis=1)


def _of_residual(forms: FloatArray, total: FloatArray, v: FloatArray) -> FloatArray:
    """Return the forms of all components from those of the terms, eq. (5.9)."""
    rest = (total - _dot(v[:, :-1], forms)) / v[:, -1]
    return np.concatenate([forms, rest[:, None]], axis=1)


def _with_residual(
    squares: FloatArray, traces: FloatArray, total: FloatArray, v: FloatArray
) -> FloatArray:
    """Return the forms of all components from those of the terms, eq. (5.9), for each data set."""
    k, s2 = traces.shape[1], v[:, -1]
    whole = np.empty((len(v), k + 1, k + 1))
    whole[:, :k, :k] = squares
    mixed = (traces - _times(squares, v[:, :-1])) / s2[:, None]
    whole[:, :k, k] = whole[:, k, :k] = mixed
    alone = (total - _dot(v[:, :-1], traces)) / s2
    whole[:, k, k] = (alone - _dot(v[:, :-1], mixed)) / s2
    return whole
