"""Estimates of data that were drawn again, by the estimator that the fit was made with."""

from __future__ import annotations

from functools import partial
from typing import cast

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.estimate import Point
from vcomp.estimators.likelihood import LikelihoodMethod
from vcomp.estimators.refit import drop_negative, residual_alone
from vcomp.estimators.registry import ClosedForm
from vcomp.exceptions import EstimationError
from vcomp.resampling.by_likelihood import ByLikelihood
from vcomp.resampling.compiled import Compiled
from vcomp.resampling.refitted import Recipe, Refit, Refitted
from vcomp.statistics import Statistics

__all__ = ["InClosedForm", "Recipe", "Refit", "Refitted", "refit_of"]


class InClosedForm:
    """The analyses of variance and MINQUE, without standard errors, which nobody reads here.

    Parameters
    ----------
    recipe : the estimator, and what is done with negative estimates
    """

    def __init__(self, recipe: Recipe) -> None:
        self._estimator, self._names = cast(ClosedForm, recipe.estimator), recipe.names
        self._drops = recipe.negative == "refit"

    def __call__(self, stats: Statistics) -> Refitted:
        """Return the estimate, by the same policy about what is below zero."""
        found = self._estimator.point(stats, self._names)
        values = found.values
        if self._drops:
            found, kept, _ = drop_negative(found, partial(self._of_terms, stats))
            values = np.zeros(len(self._names))
            values[[*kept, -1]] = found.values
        return Refitted(values, found.beta, np.nan, found.converged)

    def _of_terms(self, stats: Statistics, terms: tuple[int, ...]) -> Point:
        names = self._names
        if not terms:
            alone = residual_alone(self._estimator.name, stats.n, stats.XX, stats.Xy, stats.yy)
            return Point(alone.values, alone.beta)
        chosen = (*(names[t] for t in terms), names[-1])
        return self._estimator.point(stats.of_terms(terms), chosen)


def refit_of(stats: Statistics, recipe: Recipe, start: FloatArray) -> Refit:
    """Return the refit of a recipe; each worker needs one of its own.

    Parameters
    ----------
    stats : of the data
    recipe : how the fit was made
    start : (k + 1,) components that data are drawn at

    Raises
    ------
    EstimationError
        If the method is one of likelihood, and there is no residual to begin with.
    """
    options = recipe.estimator
    if not isinstance(options, LikelihoodMethod):
        return InClosedForm(recipe)
    if not start[-1] > 0.0:
        raise EstimationError(
            f"the residual is estimated at zero, where refits by {options.name!r} cannot begin"
        )
    nested = stats.strata is not None and stats.strata.remainder.parents is not None
    made = Compiled if nested else ByLikelihood
    return made(stats, options, recipe.names, start)
