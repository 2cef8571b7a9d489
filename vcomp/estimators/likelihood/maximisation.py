"""Maximise a log-likelihood over non-negative components.

Each step maximises the quadratic model s'd − ½ d'Id above the bounds (docs/explanation/
mathematics.md, eq. (6.1)): with the average information (AI) far from the maximum and with the
observed one (Newton) near it, where convergence is quadratic. If the likelihood would fall, the
step is halved or replaced by an EM step. A start of the wrong scale is first rescaled, which has a
closed form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.estimate import Iteration, StepKind
from vcomp.estimators.likelihood.engine import Derivatives, LikelihoodEngine
from vcomp.numerics import bounded_step

_NEWTON_BELOW = 0.05
"""Newton decrement (in standard errors) below which the observed information is used."""

_HALVINGS = 12

VANISHED = 1e-20
"""A residual below this fraction of the total variance is zero: responses have 16 digits."""

_INSIDE = 0.1
"""The residual keeps at least this fraction in one step: at zero there is no likelihood."""

_ROUNDING = 1e-6
"""A decrement below this that does not fall further is rounding error and ends the iteration."""


_STUCK = 1e-4
"""A decrement below this ends the iteration as well if no step raises the likelihood."""


@dataclass(frozen=True, slots=True)
class Maximum:
    """The end of an iteration.

    Attributes
    ----------
    v : (k + 1,) components
    loglike, score : log-likelihood and its gradient at `v`
    held : (k + 1,) held components
    newton_decrement, kkt_residual : violations of the conditions of a maximum, section 6.2
    converged : the decrement fell below the tolerance, or to its rounding error (at most 1e-4)
    at_limit : the limit of steps was reached
    evaluations : number of evaluations of the likelihood
    log : the points of the iteration, the start first
    """

    v: FloatArray
    loglike: float
    score: FloatArray
    held: BoolArray
    newton_decrement: float
    kkt_residual: float
    converged: bool
    at_limit: bool
    evaluations: int
    log: tuple[Iteration, ...]

    @property
    def iterations(self) -> int:
        """Number of steps."""
        return len(self.log) - 1


@dataclass(frozen=True, slots=True)
class _Iterate:
    """A point with its derivatives and the next step."""

    v: FloatArray
    derivatives: Derivatives
    kind: StepKind
    step: FloatArray
    decrement: float


def maximise(
    likelihood: LikelihoodEngine,
    start: FloatArray,
    group_sizes: FloatArray,
    *,
    held: BoolArray | None = None,
    max_iter: int = 200,
    tol: float = 1e-10,
) -> Maximum:
    """Return the maximum over non-negative components.

    Parameters
    ----------
    likelihood : the engine: value, score and information
    start : (k + 1,) first values, not negative; the residual is last and positive (it is raised if
        it is too small relative to the others for the likelihood to be computed)
    group_sizes : (k + 1,) numbers of random effects, for EM steps
    held : (k + 1,) components that keep their start; none if not given
    max_iter : largest number of steps
    tol : Newton decrement, in standard errors, at which the iteration ends

    Raises
    ------
    numpy.linalg.LinAlgError
        If the likelihood cannot be computed at the start.
    """
    known = np.zeros(start.size, dtype=bool) if held is None else held
    search = _Maximisation(likelihood, group_sizes, known, tol)
    here = search.first(start.astype(float))
    log = [search.logged(here, "start", np.nan)]
    previous, done = np.inf, False
    while True:
        done = search.has_small_scores(here) and (
            here.decrement <= tol or _stalled(here, previous)
        )
        if done or len(log) > max_iter or search.vanished(here):
            break
        previous = here.decrement
        moved = search.move(here)
        if moved is None:
            done = search.has_small_scores(here) and here.decrement < _STUCK
            break
        here, kind, fraction = moved
        log.append(search.logged(here, kind, fraction))
    if done:
        here, log[-1] = search.with_bounds_reached(here, log[-1])
    last = log[-1]
    return Maximum(
        v=here.v,
        loglike=here.derivatives.loglike,
        score=here.derivatives.score,
        held=known,
        newton_decrement=here.decrement,
        kkt_residual=last.kkt_residual,
        converged=done,
        at_limit=not done and len(log) > max_iter,
        evaluations=search.evaluations,
        log=tuple(log),
    )


def _stalled(here: _Iterate, previous: float) -> bool:
    """Whether the decrement is small and falls more slowly than its kind of step implies."""
    rate = 0.2 if here.kind == "Newton" else 0.9
    return here.decrement < _ROUNDING and here.decrement > rate * previous


@dataclass(slots=True)
class _Maximisation:
    """One maximisation: its fixed arguments and the number of evaluations."""

    likelihood: LikelihoodEngine
    group_sizes: FloatArray
    held: BoolArray
    tol: float
    evaluations: int = 0

    def first(self, v: FloatArray) -> _Iterate:
        """Return the start, with its residual raised until the likelihood can be computed."""
        while True:
            try:
                return self.at(v)
            except np.linalg.LinAlgError:
                if self.held[-1] or v[-1] > v.sum() / v.size:
                    raise
            v = np.append(v[:-1], 1e3 * v[-1])

    def at(self, v: FloatArray) -> _Iterate:
        """Return the derivatives at `v` and the next step."""
        derivatives = self.likelihood.derivatives(v)
        self.evaluations += 1
        moves = ~self.held & ~self._stays_at_zero(v, derivatives)
        if not _is_positive(derivatives.average[np.ix_(moves, moves)], least=-1e-8):
            # Far from the maximum only rounding error is left of the average information. That of
            # the effects themselves gives the EM step.
            moves &= v > 0.0
            effects = np.diag(0.5 * self.group_sizes / np.square(np.where(moves, v, 1.0)))
            return _Iterate(v, derivatives, "EM", *_step(effects, derivatives.score, v, moves))
        step, decrement = _step(derivatives.average, derivatives.score, v, moves)
        if decrement < _NEWTON_BELOW and (v[moves] > 0.0).all() and moves.any():
            newton = self._newton(v, derivatives.score, moves)
            if newton is not None:
                return _Iterate(v, derivatives, "Newton", *newton)
        return _Iterate(v, derivatives, "AI", step, decrement)

    def move(self, here: _Iterate) -> tuple[_Iterate, StepKind, float] | None:
        """Return the next point, the kind of step and the fraction used, or None."""
        factor = self._scale_factor(here)
        if not 0.5 <= factor <= 2.0:
            return self.at(factor * here.v), "scale", 1.0
        if self.likelihood.exact_value:
            return self._uphill(here)
        return self._towards_zero_score(here)

    def has_small_scores(self, here: _Iterate) -> bool:
        """Whether all scores are near zero; an information of rounding error would not show it."""
        relative = np.abs(here.v * here.derivatives.score)[~self.held]
        return bool(relative.max(initial=0.0) <= 1e-4 * np.sqrt(self.likelihood.n))

    def vanished(self, here: _Iterate) -> bool:
        """Whether the residual goes to zero, where the likelihood is unbounded."""
        return not self.held[-1] and bool(here.v[-1] <= VANISHED * here.v.sum())

    def with_bounds_reached(self, here: _Iterate, logged: Iteration) -> tuple[_Iterate, Iteration]:
        """Return the end with components set to 0 that are within 1e-7 standard errors of it."""
        with np.errstate(invalid="ignore"):
            distance = here.v * np.sqrt(np.diagonal(here.derivatives.average))
        near = (here.v > 0.0) & (distance <= 1e-7) & ~self.held
        near[-1] = False
        if not near.any():
            return here, logged
        there = self.at(np.where(near, 0.0, here.v))
        if there.decrement > max(self.tol, here.decrement, 1e-7):
            return here, logged
        return there, self.logged(there, logged.step, logged.fraction)

    def logged(self, here: _Iterate, kind: StepKind, fraction: float) -> Iteration:
        """Return the entry of the log for a point."""
        return Iteration(
            step=kind,
            fraction=fraction,
            loglike=here.derivatives.loglike,
            newton_decrement=here.decrement,
            kkt_residual=_kkt_residual(here.v, here.derivatives.score, self.held),
            n_bound=int(((here.v == 0.0) & ~self.held).sum()),
            components=tuple(here.v.tolist()),
        )

    # Parts of a step --------------------------------------------------------------------------

    def _stays_at_zero(self, v: FloatArray, derivatives: Derivatives) -> BoolArray:
        """Return which components are zero with a score that is not above the tolerance."""
        unit = np.sqrt(np.maximum(np.diagonal(derivatives.average), 0.0))
        stays: BoolArray = (v == 0.0) & (derivatives.score <= self.tol * unit)
        return stays

    def _newton(
        self, v: FloatArray, score: FloatArray, moves: BoolArray
    ) -> tuple[FloatArray, float] | None:
        """Return the Newton step, or None if the observed information is not positive definite."""
        if "observed" not in self.likelihood.kinds:
            return None
        observed = self.likelihood.information(v, "observed", positive_only=True)
        if not _is_positive(observed[np.ix_(moves, moves)], least=1e-10):
            return None
        return _step(observed, score, v, moves)

    def _scale_factor(self, here: _Iterate) -> float:
        """Return ρ = y'Py/df, the best factor of all components: Σ σ²_t s_t = ½ (y'Py − df)."""
        if self.held.any():
            return 1.0
        likelihood = self.likelihood
        degrees = likelihood.n - (likelihood.n_fixed if likelihood.reml else 0)
        factor = 1.0 + 2.0 * float(here.v @ here.derivatives.score) / degrees
        # If components are far too large, rounding may leave y'Py at zero or below.
        return factor if np.isfinite(factor) and factor > 0.0 else 1.0

    def _uphill(self, here: _Iterate) -> tuple[_Iterate, StepKind, float] | None:
        """Return the first of the step, its halves and the EM step that raises the likelihood."""
        value = here.derivatives.loglike
        # Rounding error of the value; near the end the step is more exact than the value.
        lost = 1e-12 if here.decrement < 1e-3 else 1e-14
        slack = lost * max(abs(value), self.likelihood.n)
        gain = float(here.step @ here.derivatives.score)

        def rises(found: float, fraction: float) -> bool:
            return found >= value + 1e-4 * fraction * gain - slack

        # Almost every full step is accepted, and its derivatives are then needed anyway.
        there = self._tried(_moved(here, 1.0))
        if there is not None and rises(there.derivatives.loglike, 1.0):
            return there, here.kind, 1.0
        # EM is best if a component is far too large, a shorter step almost always otherwise.
        trials: list[tuple[FloatArray, StepKind, float]] = [
            (_moved(here, 0.5), here.kind, 0.5),
            (self._em(here), "EM", 1.0),
        ]
        values = [self._loglike(v) for v, _, _ in trials]
        best = int(np.argmax(values))
        if values[best] > value:
            v, kind, fraction = trials[best]
            return self.at(v), kind, fraction
        for halving in range(2, _HALVINGS):
            fraction = 0.5**halving
            trial = _moved(here, fraction)
            if rises(self._loglike(trial), fraction):
                return self.at(trial), here.kind, fraction
        return None

    def _towards_zero_score(self, here: _Iterate) -> tuple[_Iterate, StepKind, float] | None:
        """Return the first of the step, its halves and the EM step with a smaller decrement.

        Used without an exact value. Far from the maximum the decrement may grow in good steps as
        well, so that the best of all is used if none has a smaller one.
        """
        best: tuple[_Iterate, StepKind, float] | None = None
        steps: list[tuple[FloatArray, StepKind, float]] = [
            (_moved(here, 0.5**h), here.kind, 0.5**h) for h in range(4)
        ]
        for v, kind, fraction in [*steps, (self._em(here), "EM", 1.0)]:
            there = self._tried(v)
            if there is None:
                continue
            if best is None or there.decrement < best[0].decrement:
                best = there, kind, fraction
            if there.decrement < here.decrement:
                break
        return best

    def _tried(self, v: FloatArray) -> _Iterate | None:
        """Return the derivatives at `v`, or None if they cannot be computed."""
        try:
            return self.at(v)
        except np.linalg.LinAlgError:
            return None

    def _em(self, here: _Iterate) -> FloatArray:
        """Return σ² + 2σ⁴ s/q, which never lowers the likelihood."""
        v, score = here.v, here.derivatives.score
        moved = np.maximum(v + 2.0 * v**2 * score / self.group_sizes, 0.0)
        moved[-1] = max(moved[-1], _INSIDE * v[-1])
        em: FloatArray = np.where(self.held, v, moved)
        return em

    def _loglike(self, v: FloatArray) -> float:
        """Return the log-likelihood, −∞ if it cannot be computed."""
        self.evaluations += 1
        try:
            value = self.likelihood.loglike(v)
        except np.linalg.LinAlgError:
            return -np.inf
        return value if np.isfinite(value) else -np.inf


def _moved(here: _Iterate, fraction: float) -> FloatArray:
    """Return the point after a fraction of the step, with rounding below zero cut off."""
    return np.maximum(here.v + fraction * here.step, 0.0)


def _step(
    information: FloatArray, score: FloatArray, v: FloatArray, moves: BoolArray
) -> tuple[FloatArray, float]:
    """Return the bounded step on the components that move, and the Newton decrement."""
    lower = -v
    lower[-1] *= 1.0 - _INSIDE
    step = np.zeros_like(v)
    step[moves], decrement = bounded_step(
        information[np.ix_(moves, moves)], score[moves], lower[moves]
    )
    return step, decrement


def _is_positive(matrix: FloatArray, least: float) -> bool:
    """Whether all eigenvalues on a unit diagonal are larger than `least`."""
    scale = np.diagonal(matrix)
    if not (scale > 0.0).all() or not np.isfinite(matrix).all():
        return False
    values = np.linalg.eigvalsh(matrix / np.sqrt(np.outer(scale, scale)))
    return bool(values.min(initial=1.0) > least)


def _kkt_residual(v: FloatArray, score: FloatArray, held: BoolArray) -> float:
    interior = np.abs(v * score)[(v > 0.0) & ~held].max(initial=0.0)
    at_bound = (v.sum() * np.maximum(score, 0.0))[(v == 0.0) & ~held].max(initial=0.0)
    return float(max(interior, at_bound))
