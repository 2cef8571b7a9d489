"""Estimates of data that were drawn again, by the estimator that the fit was made with."""

from __future__ import annotations

from functools import partial

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.anova import ANOVA
from vcomp.estimators.estimate import Estimate
from vcomp.estimators.likelihood import LikelihoodMethod
from vcomp.estimators.refit import refit_without_negative, residual_alone
from vcomp.resampling.by_likelihood import ByLikelihood
from vcomp.resampling.compiled import Compiled
from vcomp.resampling.refitted import Recipe, Refit, Refitted
from vcomp.statistics import Statistics

__all__ = ["InClosedForm", "Recipe", "Refit", "Refitted", "refit_of"]


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
        if isinstance(recipe.estimator, ANOVA) and recipe.negative == "keep":
            values, beta = recipe.estimator.point(stats)
            return Refitted(values, beta, np.nan, converged=True)
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
    """Return the refit of a recipe; each worker needs one of its own.

    Parameters
    ----------
    stats : of the data
    recipe : how the fit was made
    start : (k + 1,) components that data are drawn at
    """
    options = recipe.estimator
    if not isinstance(options, LikelihoodMethod):
        return InClosedForm(recipe)
    nested = stats.strata is not None and stats.strata.remainder.parents is not None
    made = Compiled if nested else ByLikelihood
    return made(stats, options, recipe.names, start)
