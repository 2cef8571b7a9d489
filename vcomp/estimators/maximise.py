"""Maximise a log-likelihood over components that cannot be negative, and show that it was done.

Average-information steps projected on σ² ≥ 0 with an active set; near the maximum Newton steps
with the observed information, which converge quadratically; EM steps where a line search fails.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.engine import Derivatives, LikelihoodEngine
from vcomp.linalg.dense import solve

__all__ = ["Maximum", "maximise"]

_NEWTON_BELOW = 0.05
"""Newton decrement (in standard errors) below which the observed information takes over."""

_TINY = 1e-9
"""A falling component below this share of the total variance is put on its bound."""

_HALVINGS = 12


@dataclass(frozen=True, slots=True)
class Maximum:
    """Where an iteration ended."""

    v: FloatArray
    loglike: float
    score: FloatArray
    free: BoolArray
    newton_decrement: float
    kkt_residual: float
    converged: bool
    iterations: int
    evaluations: int


@dataclass(slots=True)
class _Counter:
    """Counts evaluations, and turns a failed factorisation into a value that is never taken."""

    likelihood: LikelihoodEngine
    evaluations: int = 0

    def loglike(self, v: FloatArray) -> float:
        self.evaluations += 1
        try:
            return self.likelihood.loglike(v)
        except np.linalg.LinAlgError:
            return -np.inf


def maximise(
    likelihood: LikelihoodEngine,
    start: FloatArray,
    group_sizes: FloatArray,
    *,
    max_iter: int = 200,
    tol: float = 1e-10,
) -> Maximum:
    """Return the maximum over non-negative components.

    Parameters
    ----------
    likelihood : value, score and information
    start : (k + 1,) first values, positive; the residual is the last
    group_sizes : (k + 1,) numbers of random effects, for EM steps
    max_iter : steps
    tol : Newton decrement, in standard errors, at which the iteration ends
    """
    counter = _Counter(likelihood)
    v = start.copy()
    previous = np.inf
    for iteration in range(max_iter + 1):
        here = likelihood.derivatives(v)
        counter.evaluations += 1
        bounded, free = _active_set(v, here.score)
        if (bounded != v).any():
            v = bounded
            here = likelihood.derivatives(v)
            counter.evaluations += 1
            v, free = _active_set(v, here.score)
        step, decrement = _step(likelihood, v, here, free)
        # Rounding ends the descent of the decrement: at 1e-6 standard errors, that is an end too.
        stalled = decrement < 1e-6 and decrement > 0.2 * previous
        done = decrement <= tol or stalled
        if done or iteration == max_iter:
            break
        previous = decrement
        moved = _line_search(counter, v, step, here.loglike, decrement)
        if moved is None:
            moved = _em_step(counter, v, here, group_sizes)
        if moved is None:
            done = decrement < 1e-6
            break
        v = moved
    kkt = _kkt_residual(v, here.score, free)
    return Maximum(
        v, here.loglike, here.score, free, decrement, kkt, done, iteration, counter.evaluations
    )


def _active_set(v: FloatArray, score: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Put tiny falling components on their bound; free are the others and those that rise."""
    v = v.copy()
    falling = score < 0.0
    falling[-1] = False
    v[falling & (v <= _TINY * v.sum())] = 0.0
    return v, ~(falling & (v == 0.0))


def _step(
    likelihood: LikelihoodEngine, v: FloatArray, here: Derivatives, free: BoolArray
) -> tuple[FloatArray, float]:
    """Return the step on the free components, and the Newton decrement."""
    step, decrement = _solve(here.average, here.score, free)
    interior = bool((v[free] > 0.0).all())
    if interior and decrement < _NEWTON_BELOW:
        observed = likelihood.information(v, "observed", positive_only=True)
        newton, newton_decrement = _solve(observed, here.score, free)
        if newton @ here.score > 0.0 and _is_positive(observed[np.ix_(free, free)]):
            return newton, newton_decrement
    return step, decrement


def _solve(
    information: FloatArray, score: FloatArray, free: BoolArray
) -> tuple[FloatArray, float]:
    """Solve I d = s on the free components, scaled so that decades of difference do not matter."""
    block, s = information[np.ix_(free, free)], score[free]
    # Rounding can leave a negative diagonal where almost nothing is known of a component.
    scale = np.sqrt(np.abs(np.diagonal(block)))
    scale[scale == 0.0] = 1.0
    slope = s / scale
    try:
        direction = solve(block / np.outer(scale, scale), slope)
    except np.linalg.LinAlgError:
        direction = slope
    gain = float(direction @ slope)
    if not gain > 0.0:
        # Not a way up: a decrement of zero here would pass for convergence.
        direction, gain = slope, float(slope @ slope)
    step = np.zeros_like(score)
    step[free] = direction / scale
    return step, float(np.sqrt(gain))


def _is_positive(matrix: FloatArray) -> bool:
    scale = np.diagonal(matrix)
    if (scale <= 0.0).any():
        return False
    return bool(np.linalg.eigvalsh(matrix / np.sqrt(np.outer(scale, scale))).min() > 1e-10)


def _line_search(
    counter: _Counter, v: FloatArray, step: FloatArray, loglike: float, decrement: float
) -> FloatArray | None:
    """Return the first of v + d, v + d/2, … projected on the bounds that does not fall."""
    slack = 1e-12 * max(abs(loglike), 1.0) if decrement < 1e-3 else 0.0
    fraction = 1.0
    for _ in range(_HALVINGS):
        trial = np.maximum(v + fraction * step, 0.0)
        # The residual stays inside: at zero there is no likelihood.
        trial[-1] = max(trial[-1], 0.1 * v[-1])
        if counter.loglike(trial) >= loglike - slack:
            return trial
        fraction *= 0.5
    return None


def _em_step(
    counter: _Counter, v: FloatArray, here: Derivatives, group_sizes: FloatArray
) -> FloatArray | None:
    """Return σ² + 2σ⁴ s/q, which never lowers the likelihood; None if rounding says it does."""
    trial = np.maximum(v + 2.0 * v**2 * here.score / group_sizes, 0.0)
    return trial if counter.loglike(trial) > here.loglike else None


def _kkt_residual(v: FloatArray, score: FloatArray, free: BoolArray) -> float:
    interior = np.abs(v * score)[free].max(initial=0.0)
    at_bound = (v.sum() * np.maximum(score, 0.0))[~free | (v == 0.0)].max(initial=0.0)
    return float(max(interior, at_bound))
