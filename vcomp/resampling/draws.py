"""Which statistics of drawn data serve which estimator: those of strata, or those of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood import LikelihoodMethod
from vcomp.estimators.registry import ClosedForm
from vcomp.exceptions import DataError, EstimationError
from vcomp.linalg.memory import available_bytes, gib
from vcomp.resampling.refits import Recipe
from vcomp.resampling.row_draws import RowDraws
from vcomp.resampling.strata_draws import StrataDraws
from vcomp.statistics import Statistics, StratumStatistics

__all__ = ["Draws", "draws_of"]


class Draws(Protocol):
    """Statistics of data as a fit has them, with another response."""

    def draw(self, v: FloatArray, rng: np.random.Generator) -> Statistics:
        """Return the statistics of a response drawn at the components `v`, and no mean."""


@dataclass(frozen=True, slots=True)
class _OfStrata:
    strata: StrataDraws
    data: Statistics

    def draw(self, v: FloatArray, rng: np.random.Generator) -> Statistics:
        return Statistics.from_strata(self.strata.draw(v, rng), like=self.data)


def draws_of(stats: Statistics, recipe: Recipe) -> Draws:
    """Return how data are drawn for an estimator.

    Parameters
    ----------
    stats : of the data
    recipe : the estimator; REML and ML take strata where there are some, whatever engine was asked
        for: the likelihood is the same

    Raises
    ------
    EstimationError
        If the rows that are needed would not fit into memory.
    DataError
        If they are not there.
    """
    strata = stats.strata
    by_likelihood = isinstance(recipe.estimator, LikelihoodMethod)
    nested = strata is not None and strata.remainder.parents is not None
    if strata is not None and nested and (by_likelihood or _needs_strata_only(strata, recipe)):
        return _OfStrata(StrataDraws(strata), stats)
    # A response, its square in the making, and the groups of every row in every term.
    needed = stats.cells.response.size * (24.0 + 4.0 * stats.n_terms)
    free = available_bytes()
    if needed > 0.8 * free:
        raise EstimationError(
            f"drawing {stats.n:,} rows needs {gib(needed)}, and {gib(free)} are free; take fewer "
            "rows, or one worker"
        )
    return RowDraws(stats)


def _needs_strata_only(strata: StratumStatistics, recipe: Recipe) -> bool:
    """Whether an estimator in closed form asks for nothing but strata."""
    if recipe.estimator.name == "anova":
        return True
    if recipe.negative == "refit":
        return False
    try:
        cast(ClosedForm, recipe.estimator).point(Statistics.from_strata(strata), recipe.names)
    except DataError:
        return False
    return True
