"""Choose the likelihood engine for the data, by docs/explanation/mathematics.md, section 8.1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.likelihood.engine import LikelihoodEngine
from vcomp.estimators.likelihood.incomplete import N_PROBES, CompletedLikelihood
from vcomp.estimators.likelihood.iterative import IterativeLikelihood
from vcomp.estimators.likelihood.strata_likelihood import StrataLikelihood
from vcomp.exceptions import EstimationError
from vcomp.statistics import CompletedGrid, CrossProducts, Statistics

_SECONDS = 0.1
"""Nearly complete grids: time of a blocked evaluation above which the holes engine is used."""

_PLANNED = 30_000
"""Nearly complete grids: number of random effects above which no elimination order is computed, as
the ordering alone would take longer than that."""

_MANY_SECONDS = 10.0
"""Other data: time of a blocked evaluation above which the iterative engine is used."""

_FOR_VARIANCES = 60.0
"""Variances of predicted effects: time of a blocked evaluation above which it is not used."""

_FEW_HOLES = 0.2
"""Fraction of empty cells up to which the holes engine is preferred to the iterative one."""

_SECONDS_PER_CUBE = 3.5e-11
"""Seconds of a dense factorisation and inverse of order m, divided by m³; one thread."""


def choose_engine(
    stats: Statistics,
    engine: str = "auto",
    *,
    reml: bool,
    names: Sequence[str] | None = None,
    n_probes: int | None = None,
    seed: int = 0,
) -> LikelihoodEngine:
    """Return the requested engine, or the best one for the data.

    Parameters
    ----------
    stats : sums of the data
    engine : ``"strata"`` if facets are fully crossed with all others or all terms are nested;
        ``"blocked"``, exact for any data; ``"iterative"``, with random probes, if the blocked
        engine would be too slow or would not fit into memory. ``"auto"`` uses the first of these
        that is suitable
    reml : whether the likelihood is the restricted one
    names : of the terms, for messages
    n_probes, seed : random probes of the iterative engine

    Raises
    ------
    EstimationError
        If the requested engine does not apply to these data, or no engine fits into memory.
    """
    if engine == "auto":
        return _best(stats, reml=reml, names=names, n_probes=n_probes, seed=seed)
    if engine == "strata":
        if stats.strata is not None:
            return StrataLikelihood(stats.strata, reml=reml)
        raise EstimationError(
            "engine='strata' needs a facet that is fully crossed with all others, each cell "
            "equally often, or terms that are all nested; use engine='auto'"
        )
    if engine == "blocked":
        other = "iterative" if stats.strata is None else "strata"
        advice = f"use engine={other!r}, or method='anova'"
        return BlockedLikelihood(stats.cross_products, reml=reml, names=names, advice=advice)
    return _iterative(stats, reml=reml, n_probes=n_probes, seed=seed)


def engine_without_cancellation(
    stats: Statistics, tried: LikelihoodEngine
) -> LikelihoodEngine | None:
    """Return the holes engine in place of the blocked one for a nearly complete grid, else None.

    If the residual is 1e-10 of the other components or less, it is a difference of large numbers
    in Henderson's equations. In strata, differences of means are formed first, so that nothing
    cancels.
    """
    if tried.name != "blocked" or stats.completed is None:
        return None
    return CompletedLikelihood(stats.cross_products, stats.completed, reml=tried.reml)


def prediction_engine(stats: Statistics) -> LikelihoodEngine:
    """Return an engine that computes predicted effects, with their variances if possible."""
    strata = None if stats.strata is None else StrataLikelihood(stats.strata, reml=True)
    if strata is not None and strata.gives_effects:
        return strata
    return blocked_for_variances(stats) or _iterative(stats, reml=True)


def blocked_for_variances(stats: Statistics) -> BlockedLikelihood | None:
    """Return the blocked engine if variances of predicted effects are affordable, else None."""
    return _blocked_within(stats, _FOR_VARIANCES, reml=True, names=None)


def _fills_up(sums: CrossProducts, seconds: float) -> bool:
    """Whether eliminating the largest term leaves a full matrix that takes longer than `seconds`.

    This is a cheap test before any matrix is formed. Eliminating a group with d neighbours fills
    d² entries. If these add up to half of all entries, no order of elimination keeps the rest
    sparse.
    """
    sizes = sums.sizes
    lead = max(range(len(sizes)), key=lambda t: sizes[t])
    rest = float(sum(sizes) - sizes[lead])
    if _SECONDS_PER_CUBE * rest**3 <= seconds:
        return False
    degrees = np.zeros(sizes[lead])
    for t in range(len(sizes)):
        if t < lead:
            degrees += np.bincount(sums.pairs[t, lead].indices, minlength=sizes[lead])
        elif t > lead:
            degrees += np.diff(sums.pairs[lead, t].indptr)
    return bool(degrees @ degrees > 0.5 * rest**2)


def _blocked_within(
    stats: Statistics, seconds: float, *, reml: bool, names: Sequence[str] | None
) -> BlockedLikelihood | None:
    """Return the blocked engine if it fits and evaluates in at most `seconds`, else None."""
    sums = stats.cross_products
    if _fills_up(sums, seconds):
        return None
    try:
        blocked = BlockedLikelihood(sums, reml=reml, names=names)
    except EstimationError:
        return None
    return blocked if blocked.seconds <= seconds else None


def _best(
    stats: Statistics, *, reml: bool, names: Sequence[str] | None, n_probes: int | None, seed: int
) -> LikelihoodEngine:
    """Return the engine of ``engine="auto"``."""
    if stats.strata is not None:
        return StrataLikelihood(stats.strata, reml=reml)
    limit, grid = _MANY_SECONDS, _grid(stats)
    if grid is not None:
        limit = _SECONDS if sum(stats.sizes) <= _PLANNED else 0.0
    blocked = _blocked_within(stats, limit, reml=reml, names=names) if limit else None
    return blocked or _iterative(stats, reml=reml, n_probes=n_probes, seed=seed)


def _grid(stats: Statistics) -> CompletedGrid | None:
    """Return the nearly complete grid if the holes engine is faster, else None.

    With few terms, the iterative engine's solves for all effects converge as fast, and a
    half-filled grid has as many holes as rows.
    """
    grid = stats.completed
    if grid is None:
        return None
    n_cells = grid.tables[0].size
    return grid if grid.holes.n <= _FEW_HOLES * n_cells or stats.n_terms > 3 else None


def _iterative(
    stats: Statistics, *, reml: bool, n_probes: int | None = None, seed: int = 0
) -> LikelihoodEngine:
    """Return the holes engine for a nearly complete grid, else the iterative engine."""
    sums, grid = stats.cross_products, _grid(stats)
    if grid is None:
        return IterativeLikelihood(sums, reml=reml, n_probes=n_probes, seed=seed)
    return CompletedLikelihood(sums, grid, reml=reml, n_probes=n_probes or N_PROBES, seed=seed)
