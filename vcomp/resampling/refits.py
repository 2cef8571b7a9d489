"""Estimates of data that were drawn again, by the estimator that the fit was made with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.blocked import BlockedLikelihood
from vcomp.estimators.choose import choose_engine
from vcomp.estimators.engine import LikelihoodEngine
from vcomp.estimators.estimate import Estimate
from vcomp.estimators.likelihood import LikelihoodMethod
from vcomp.estimators.maximise import maximise
from vcomp.estimators.options import known_components, seed_of
from vcomp.estimators.refit import Negative, refit_without_negative, residual_alone
from vcomp.estimators.registry import Estimator
from vcomp.estimators.strata import StrataLikelihood
from vcomp.statistics import Statistics

__all__ = ["ByLikelihood", "InClosedForm", "Recipe", "Refit", "Refitted", "refit_of"]

_TOLERANCE = 1e-8
_TOLERANCE_OF_PROBES = 1e-4
"""Newton decrements, in standard errors: what is left is far below what replicates differ by."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a fit was made, so that it can be made again.

    Attributes
    ----------
    estimator : with its options
    names : of the components, the residual last
    negative : what was done with terms estimated below zero
    """

    estimator: Estimator
    names: tuple[str, ...]
    negative: Negative = "keep"


@dataclass(frozen=True, slots=True)
class Refitted:
    """What a replicate keeps of an estimate.

    Attributes
    ----------
    values : (k + 1,) components
    beta : (p,) fixed effects, of the columns of X as they are in the statistics
    llf : log-likelihood, nan for closed forms
    converged : whether it is the estimate that the method defines; if not, values may be nan
    """

    values: FloatArray
    beta: FloatArray
    llf: float
    converged: bool

    @classmethod
    def failed(cls, n_components: int, n_fixed: int) -> Refitted:
        """Return what is left where there is no estimate."""
        return cls(np.full(n_components, np.nan), np.full(n_fixed, np.nan), np.nan, False)


class Refit(Protocol):
    """An estimator with everything that does not depend on the response worked out."""

    def __call__(self, stats: Statistics) -> Refitted:
        """Return the estimate from statistics that differ in their response only."""


class ByLikelihood:
    """REML or ML, started where the data were generated.

    An engine of equations is ordered and analysed once; one worker's refits share it.

    Parameters
    ----------
    stats : of the data
    options : of the method
    names : of the components
    start : (k + 1,) where iterations begin; held components come from the options
    """

    def __init__(
        self,
        stats: Statistics,
        options: LikelihoodMethod,
        names: tuple[str, ...],
        start: FloatArray,
    ) -> None:
        known = known_components(options.hold, names)
        self._options, self._names, self._held = options, names, known.held
        self._start = np.where(known.held, known.values, start)
        self._seed = seed_of(options.rng)
        self._sizes = np.array([*stats.sizes, stats.n], dtype=float)
        self._engine: LikelihoodEngine | None = None

    def __call__(self, stats: Statistics) -> Refitted:
        """Return the maximum of the likelihood."""
        engine = self._engine_of(stats)
        tol = self._options.tol
        if tol is None:
            tol = _TOLERANCE if engine.exact_value else _TOLERANCE_OF_PROBES
        try:
            found = maximise(
                engine,
                self._start,
                self._sizes,
                held=self._held,
                max_iter=int(self._options.max_iter),
                tol=tol,
            )
            beta, _ = engine.fixed_effects(found.v)
            llf = found.loglike if engine.exact_value else engine.loglike(found.v)
        except np.linalg.LinAlgError:
            return Refitted.failed(self._start.size, stats.Xy.size)
        return Refitted(found.v, beta, llf, found.converged)

    def _engine_of(self, stats: Statistics) -> LikelihoodEngine:
        if stats.strata is not None:
            return StrataLikelihood(stats.strata, reml=self._options.is_restricted)
        if isinstance(self._engine, BlockedLikelihood):
            self._engine = self._engine.with_response(stats.cross_products)
            return self._engine
        self._engine = choose_engine(
            stats,
            self._options.engine,
            reml=self._options.is_restricted,
            names=self._names[:-1],
            n_probes=self._options.n_probes,
            seed=self._seed,
        )
        return self._engine


class InClosedForm:
    """The analyses of variance and MINQUE.

    Parameters
    ----------
    recipe : the estimator, and what is done with negative estimates
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe

    def __call__(self, stats: Statistics) -> Refitted:
        """Return the estimate, by the same policy about what is below zero."""
        recipe = self._recipe
        found = recipe.estimator.estimate(stats, recipe.names)
        if recipe.negative == "refit":
            found = refit_without_negative(found, partial(self._of_terms, stats))
        return Refitted(found.values, found.beta, found.llf, found.converged)

    def _of_terms(self, stats: Statistics, terms: tuple[int, ...]) -> Estimate:
        recipe, names = self._recipe, self._recipe.names
        if not terms:
            return residual_alone(recipe.estimator.name, stats.n, stats.XX, stats.Xy, stats.yy)
        chosen = (*(names[t] for t in terms), names[-1])
        return recipe.estimator.estimate(stats.of_terms(terms), chosen)


def refit_of(stats: Statistics, recipe: Recipe, start: FloatArray) -> Refit:
    """Return the refit of a recipe; each worker needs one of its own."""
    if isinstance(recipe.estimator, LikelihoodMethod):
        return ByLikelihood(stats, recipe.estimator, recipe.names, start)
    return InClosedForm(recipe)
