"""Which engine serves which data."""

from __future__ import annotations

from vcomp.estimators.blocked import BlockedLikelihood
from vcomp.estimators.engine import LikelihoodEngine
from vcomp.estimators.strata import StrataLikelihood
from vcomp.exceptions import EstimationError
from vcomp.statistics import Statistics

__all__ = ["ENGINES", "choose_engine", "prediction_engine"]

ENGINES = ("auto", "strata", "blocked", "iterative")


def choose_engine(stats: Statistics, engine: str = "auto", *, reml: bool) -> LikelihoodEngine:
    """Return the engine that was asked for, or the one that is best for the data.

    Parameters
    ----------
    stats : sums of the data
    engine : ``"strata"`` where facets are fully crossed with everything or all terms are nested,
        ``"blocked"`` for general data, ``"iterative"`` where no factorisation fits; ``"auto"``
        takes the first of them that can serve
    reml : restricted likelihood, or the full one

    Raises
    ------
    EstimationError
        If the engine that was asked for cannot serve these data.
    """
    if engine in ("auto", "strata") and stats.strata is not None:
        return StrataLikelihood(stats.strata, reml=reml)
    if engine == "strata":
        raise EstimationError(
            "engine='strata' needs a facet that is fully crossed with all others, each cell "
            "equally often, or terms that are all nested, and columns of the fixed part that "
            "each vary with such facets only or not at all; use engine='auto'"
        )
    return BlockedLikelihood(stats.cross_products, reml=reml)


def prediction_engine(stats: Statistics) -> LikelihoodEngine:
    """Return an engine that gives predicted effects with their variances."""
    if stats.strata is not None and stats.strata.remainder.parents is not None:
        return StrataLikelihood(stats.strata, reml=True)
    return BlockedLikelihood(stats.cross_products, reml=True)
