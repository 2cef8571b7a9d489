"""Refits: point estimates of drawn data by the estimator of the original fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators import (
    ClosedForm,
    Estimator,
    Negative,
    PointEstimate,
    Points,
    point_without_negative,
)
from vcomp.estimators.likelihood import (
    LikelihoodEngine,
    LikelihoodMethod,
    choose_engine,
    maximise,
)
from vcomp.exceptions import EstimationError, VcompError
from vcomp.numerics import seed_from
from vcomp.statistics import Statistics, StratumStatistics

_CLEAR = 1e-10
"""Share of the total variance above which an estimate is positive, and no rounding error."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The estimator and options of a fit, with which it can be repeated.

    Attributes
    ----------
    estimator : with its options
    names : of the components, the residual last
    negative : policy for terms with negative estimates
    once : whether one climb from the components at which data are drawn is enough, as for the null
        distribution of a statistic, in which a lower maximum now and then counts for little
    prepared : what a closed form computed for these rows already, for one thread
    """

    estimator: Estimator
    names: tuple[str, ...]
    negative: Negative = "keep"
    once: bool = False
    prepared: Points | None = None


@dataclass(frozen=True, slots=True)
class Refitted:
    """The estimates of one replicate.

    Attributes
    ----------
    values : (k + 1,) components
    beta : (p,) fixed effects, of the columns of X as they are in the statistics
    llf : log-likelihood, nan for closed forms
    converged : whether the estimation converged; if not, values may be nan
    reason : why it failed, if known
    """

    values: FloatArray
    beta: FloatArray
    llf: float
    converged: bool = True
    reason: str | None = None

    @classmethod
    def failed(cls, n_components: int, n_fixed: int, reason: str | None = None) -> Refitted:
        """Return the value of a failed refit: nan everywhere."""
        values, beta = np.full(n_components, np.nan), np.full(n_fixed, np.nan)
        return cls(values, beta, np.nan, False, reason)


class Refit(Protocol):
    """An estimator for statistics that differ in their response only."""

    def __call__(self, stats: Statistics) -> Refitted:
        """Return the estimate from statistics that differ in their response only."""


TOLERANCE = 1e-8
_TOLERANCE_OF_PROBES = 1e-4
"""Newton decrements at which refits end, far below the differences between replicates."""

_UNSEEN = 1e-6
"""Newton decrement that a last step may leave which is not evaluated."""


class ByLikelihood:
    """REML or ML, started at the generating components.

    The blocked engine is ordered and analysed once for all refits of a worker.

    Parameters
    ----------
    stats : of the data
    options : of the method
    names : of the components
    start : (k + 1,) start of the iterations; held components come from the options
    once : as in :class:`Recipe`
    """

    def __init__(
        self,
        stats: Statistics,
        options: LikelihoodMethod,
        names: tuple[str, ...],
        start: FloatArray,
        *,
        once: bool = False,
    ) -> None:
        known = options.known(names)
        self._options, self._names, self._held = options, names, known.held
        self._once = once
        self._start = np.where(known.held, known.values, start)
        # A generator has advanced since the fit, and would give each worker different probes.
        moved_on = isinstance(options.rng, np.random.Generator)
        self._seed = 0 if moved_on else seed_from(options.rng)
        self._sizes = np.array([*stats.sizes, stats.n], dtype=float)
        self._engine: LikelihoodEngine | None = None
        self._is_balanced = (
            options.is_restricted and not known.held.any() and _is_balanced(stats.strata)
        )

    def __call__(self, stats: Statistics) -> Refitted:
        """Return the maximum of the likelihood."""
        engine = self._engine_of(stats)
        tol, unseen = self._options.tol, 0.0
        if tol is None:
            tol = TOLERANCE if engine.exact_value else _TOLERANCE_OF_PROBES
            unseen = _UNSEEN if engine.exact_value else 0.0
        try:
            found = maximise(
                engine,
                self._start_for(engine),
                self._sizes,
                held=self._held,
                max_iter=int(self._options.max_iter),
                tol=tol,
                once=self._once,
                unseen=unseen,
            )
            beta, _ = engine.fixed_effects(found.v)
            llf = found.loglike if engine.exact_value else engine.loglike(found.v)
        except np.linalg.LinAlgError:
            return Refitted.failed(self._start.size, stats.Xy.size)
        return Refitted(found.v, beta, llf, found.converged and not found.saturated)

    def _start_for(self, engine: LikelihoodEngine) -> FloatArray:
        """Return the start: in balanced data the estimates by mean squares, if all are positive.

        They are the maximum.
        """
        if self._is_balanced:
            estimates = engine.mivque0()
            if (estimates > _CLEAR * estimates.sum()).all():
                return estimates
        return self._start

    def _engine_of(self, stats: Statistics) -> LikelihoodEngine:
        if self._engine is not None:
            self._engine = self._engine.with_response(stats)
            return self._engine
        engine = choose_engine(
            stats,
            self._options.engine,
            reml=self._options.is_restricted,
            names=self._names[:-1],
            n_probes=self._options.n_probes,
            seed=self._seed,
            repeated=True,
        )
        self._engine = engine.prepared(self._start)
        return self._engine


def _is_balanced(strata: StratumStatistics | None) -> bool:
    """Whether the groups of each grouping are equal, so that mean squares say all."""
    return strata is not None and all(np.ptp(n) == 0.0 for n in strata.remainder.tables.group_n)


class InClosedForm:
    """Refits by the analyses of variance and MINQUE.

    What does not depend on the response is computed for the first of them.

    Parameters
    ----------
    recipe : the estimator, and the policy for negative estimates
    """

    def __init__(self, recipe: Recipe) -> None:
        self._estimator, self._names = cast(ClosedForm, recipe.estimator), recipe.names
        self._drops = recipe.negative == "refit"
        self._prepared = recipe.prepared

    def __call__(self, stats: Statistics) -> Refitted:
        """Return the estimate under the policy for negative estimates."""
        if self._drops:
            found = point_without_negative(self._estimator.prepared, stats, self._names)
        else:
            (found,) = self._points([stats])
        return Refitted(found.values, found.beta, np.nan, found.converged)

    def _points(self, drawn: Sequence[Statistics]) -> list[PointEstimate]:
        if self._prepared is None:
            self._prepared = self._estimator.prepared(drawn[0], self._names)
        return self._prepared(drawn)

    def with_responses(self, drawn: Sequence[Statistics]) -> list[Refitted | None]:
        """Return the estimates of responses of the same rows; None where one is refitted alone."""
        try:
            points = self._points(drawn)
        except (VcompError, np.linalg.LinAlgError):
            return [None] * len(drawn)
        return [
            None
            if self._drops and (found.values[:-1] < 0.0).any()
            else Refitted(found.values, found.beta, np.nan, found.converged)
            for found in points
        ]


def refit_of(stats: Statistics, recipe: Recipe, start: FloatArray) -> Refit:
    """Return the refit of a recipe; each worker needs its own.

    Parameters
    ----------
    stats : of the data
    recipe : the estimator and its options
    start : (k + 1,) components at which data are drawn

    Raises
    ------
    EstimationError
        If the method is REML or ML and the residual is zero.
    """
    options = recipe.estimator
    if not isinstance(options, LikelihoodMethod):
        return InClosedForm(recipe)
    if not start[-1] > 0.0:
        raise EstimationError(
            f"the residual is estimated at zero, where refits by {options.name!r} cannot start"
        )
    return ByLikelihood(stats, options, recipe.names, start, once=recipe.once)
