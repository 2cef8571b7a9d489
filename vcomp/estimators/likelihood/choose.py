"""Choose the likelihood engine for the data, by docs/explanation/mathematics.md, section 8.1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood.engine import LikelihoodEngine, Solution, predicting
from vcomp.estimators.likelihood.strata_likelihood import StrataLikelihood
from vcomp.exceptions import EstimationError
from vcomp.numerics import COSTS, available_bytes, check_memory, solve_positive
from vcomp.numerics.kernels import count_levels
from vcomp.statistics import CrossProducts, Statistics

if TYPE_CHECKING:
    from vcomp.estimators.likelihood.blocked import BlockedLikelihood
    from vcomp.estimators.likelihood.column_likelihood import ColumnTermLikelihood
    from vcomp.estimators.likelihood.crossed import CrossedLikelihood
    from vcomp.estimators.likelihood.levels import LevelsLikelihood
    from vcomp.estimators.likelihood.matrices_likelihood import MatricesLikelihood
    from vcomp.estimators.likelihood.nested_likelihood import NestedTableLikelihood
    from vcomp.statistics import CompletedGrid

# Imports of engines are deferred for start-up time: a fit uses one of them.


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Limits of each engine for ``engine="auto"``.

    Attributes
    ----------
    grid_seconds : nearly complete grids: time of a blocked evaluation above which the holes engine
        is used
    quick, quick_per_row : time of an evaluation, and more of it for each row, below which no other
        engine is considered than the blocked one: to find the levels takes as long as a fit
    planned : nearly complete grids, and levels: number of random effects above which no order of
        elimination is computed, as the ordering alone would take longer than that
    cheap_order, order_per_entry : levels of more effects than `planned`: how many times longer
        than theirs the expected evaluation of the blocked engine may be, and its search for an
        order, in seconds for each entry of the equations and term. Most of the effects are
        then those of single cells, which take less time to order and eliminate than expected
    exact : time of an evaluation up to which an exact engine is used in any case: a fit then takes
        about a second
    many_rows, exact_ratio : number of rows from which it is so only up to so many times an
        iterative evaluation: the errors of probes are then far below a hundredth of a standard
        error
    patience : how many times longer than an iterative evaluation an exact one may take otherwise
    seconds : time of an evaluation above which no exact engine is used
    for_variances : variances of predicted effects of many rows: time of a blocked evaluation above
        which it is not used
    few_holes : fraction of empty cells up to which the holes engine is preferred to the iterative
        one
    seconds_per_cube : seconds of a dense factorisation and inverse of order m, divided by m³; one
        thread
    seconds_per_entry, seconds_per_effect : seconds that an elimination takes at least for each
        pair of levels with scores in common, and for each level
    free_bytes : returns the free memory
    """

    grid_seconds: float = 0.1
    quick: float = 2e-3
    quick_per_row: float = 1e-7
    planned: int = 30_000
    exact: float = 0.125
    cheap_order: float = 2.0
    order_per_entry: float = 5e-8
    many_rows: int = 100_000
    exact_ratio: float = 5.0
    patience: float = 4.0 / 3.0
    seconds: float = 10.0
    for_variances: float = 60.0
    few_holes: float = 0.2
    seconds_per_cube: float = 3.5e-11
    seconds_per_entry: float = 6e-8
    seconds_per_effect: float = COSTS.elimination.column
    free_bytes: Callable[[], float] = available_bytes

    def allow(self, engine: LikelihoodEngine) -> bool:
        """Return whether an exact engine evaluates in time and fits into memory."""
        return engine.seconds <= self.seconds and engine.bytes <= 0.8 * self.free_bytes()


ENGINE_LIMITS = EngineLimits()

_ORDINARY = "forms of the strata at V = I"

_ANALYSED = "analysed equations"
"""Cache key of the analysed equations with their last factor: intervals and effects of a fit reuse
that of its maximum."""

_NOT_FACTORED = "limits without a factor"
"""Cache key of the limits within which no order of elimination was fast enough."""


def choose_engine(
    stats: Statistics,
    engine: str = "auto",
    *,
    reml: bool = True,
    names: Sequence[str] | None = None,
    n_probes: int | None = None,
    seed: int = 0,
    repeated: bool = False,
    limits: EngineLimits = ENGINE_LIMITS,
) -> LikelihoodEngine:
    """Return the requested engine, or the best one for the data.

    Parameters
    ----------
    stats : sums of the data
    engine : ``"strata"`` if facets are fully crossed with all others or all terms are nested;
        ``"levels"`` if one facet has many levels and the others few combinations, which may be
        missing; ``"blocked"``, exact for any data; ``"iterative"``, with random probes, if the
        exact ones would be too slow or would not fit into memory. ``"auto"`` uses the strata if it
        can, else the faster one of levels and blocked if a fit takes about a second, or not more
        than a third longer than an iterative one
    reml : whether the likelihood is the restricted one; fixed effects, their variances and
        predicted effects are the same by either
    names : of the terms, for messages
    n_probes, seed : random probes of the iterative engine; by default 8, and more if the Monte
        Carlo error of a single fit would be above a hundredth of a standard error
    repeated : whether many fits are made: each then has 8 probes by default, and strata are used
        if there are any
    limits : of each engine

    Raises
    ------
    EstimationError
        If the requested engine does not apply to these data, or no engine fits into memory.
    """
    if stats.blocks is not None:
        raise EstimationError("this is for intercepts with one residual variance")
    iterative = partial(
        _iterative, stats, limits, reml=reml, n_probes=n_probes, seed=seed, repeated=repeated
    )
    if stats.strata is not None and (repeated or engine == "auto"):
        return _of_strata(stats, reml=reml)
    if engine == "auto":
        return _without_strata(stats, limits, iterative, reml=reml, names=names)
    if engine == "strata":
        _check_columns(stats, engine)
        if stats.strata is not None:
            return _of_strata(stats, reml=reml)
        raise EstimationError(
            "engine='strata' needs a facet that is fully crossed with all others, each cell "
            "equally often, or terms that are all nested; use engine='auto'"
        )
    if engine == "levels":
        if (table := _of_table(stats, reml=reml)) is not None:
            return table
        _check_columns(stats, engine)
        if stats.crossed is not None:
            from vcomp.estimators.likelihood.crossed import CrossedLikelihood

            return CrossedLikelihood(stats.crossed, reml=reml)
        if stats.levels is not None:
            from vcomp.estimators.likelihood.levels import LevelsLikelihood

            levels = LevelsLikelihood(stats.levels, reml=reml)
            check_memory(
                levels.bytes,
                "engine='levels' needs",
                "use engine='auto'",
                free_bytes=limits.free_bytes,
            )
            return levels
        raise EstimationError(
            "engine='levels' needs rows, and one facet with many levels, the other facets having "
            "few combinations; use engine='auto'"
        )
    if engine == "blocked":
        other = "iterative" if stats.strata is None else "strata"
        advice = f"use engine={other!r}, or with a constant mean method='anova'"
        return _blocked(stats, limits, reml=reml, names=names, advice=advice)
    return iterative()


def _of_strata(stats: Statistics, *, reml: bool) -> StrataLikelihood:
    assert stats.strata is not None
    return StrataLikelihood(stats.strata, reml=reml, ordinary=stats.kept.get(_ORDINARY))


def _check_columns(stats: Statistics, engine: str) -> None:
    if stats.wide is not None:
        raise EstimationError(
            f"engine={engine!r} needs matrices of the {stats.wide.n_fixed:,} columns of the fixed "
            "part, which are not formed for a factor of so many levels; use engine='blocked'"
        )


def engine_without_cancellation(
    stats: Statistics, tried: LikelihoodEngine
) -> LikelihoodEngine | None:
    """Return an engine that loses fewer digits than `tried`; None if no other does.

    A residual of at most 1e-10 of the other components is a difference of large numbers in
    Henderson's equations; in the blocks of levels it is so at 1e-6 already. In the strata of a
    nearly
    complete grid, differences of means are formed first, so that nothing cancels.
    """
    if tried.cancellation == "none":
        return None
    if (grid := _with_few_holes(stats)) is not None:
        from vcomp.estimators.likelihood.incomplete import CompletedLikelihood

        return CompletedLikelihood(stats.cross_products, grid, reml=tried.reml)
    if tried.cancellation == "equations":
        return None
    seconds = ENGINE_LIMITS.seconds
    return _blocked_within(stats, seconds, ENGINE_LIMITS, reml=tried.reml, names=None)


def residual_forms(stats: Statistics) -> FloatArray:
    """Return tr(Q V_t Q V_u) of all components; singular if they cannot be distinguished.

    Q = I − X(X'X)⁻¹X'. The residual is the last.
    """
    if stats.strata is not None:
        engine = _of_strata(stats, reml=True)
        stats.kept[_ORDINARY] = engine.ordinary
        return engine.ordinary.expected(reml=True)
    if (table := _of_table(stats, reml=True)) is not None:
        return table.quadratic_forms()
    from vcomp.estimators.likelihood.fixed_part import Projector

    if stats.wide is not None:
        return Projector.of(stats.wide).forms()
    if stats.crossed is not None:
        from vcomp.estimators.likelihood.crossed import CrossedLikelihood

        return CrossedLikelihood(stats.crossed, reml=True).quadratic_forms()
    # Pair tables of many groups take longer than the levels, which the fit then needs anyway.
    if sum(stats.sizes) > ENGINE_LIMITS.planned and stats.levels is not None:
        return stats.levels.projector_forms
    return stats.cross_products.projector_forms


def least_squares(stats: Statistics) -> tuple[FloatArray, float]:
    """Return the ordinary least squares estimate of the fixed effects, and its sum of squares."""
    if (wide := stats.needed_wide) is not None:
        from vcomp.estimators.likelihood.fixed_part import Projector

        projector = Projector.of(wide)
        return projector.beta, projector.rss
    beta = solve_positive(stats.XX, stats.Xy)
    return beta, float(stats.yy - beta @ stats.Xy)


def prediction_engine(stats: Statistics, engine: str = "auto") -> LikelihoodEngine:
    """Return the engine of a fit, or another one if that cannot predict effects.

    Parameters
    ----------
    stats : sums of the data
    engine : as requested for the fit
    """
    if stats.strata is not None and engine in ("auto", "strata"):
        strata = _of_strata(stats, reml=True)
        if strata.gives_effects:
            return strata
    elif engine != "auto":
        return choose_engine(stats, engine, reml=True)
    iterative = partial(_iterative, stats, ENGINE_LIMITS, reml=True)
    return _without_strata(stats, ENGINE_LIMITS, iterative, reml=True)


def predicted(engine: LikelihoodEngine | MatricesLikelihood, v: FloatArray) -> Solution:
    """Return fixed effects and predicted effects at some components.

    Raises
    ------
    EstimationError
        If the residual is too small relative to the other components.
    """
    with predicting():
        return engine.solution(v)


def blocked_for_variances(
    stats: Statistics,
    limits: EngineLimits = ENGINE_LIMITS,
    *,
    most: float = np.inf,
    below: float = np.inf,
) -> BlockedLikelihood | None:
    """Return the blocked engine if variances of predicted effects are affordable, else None.

    Parameters
    ----------
    stats : sums of the data
    limits : of its use
    most : time of an evaluation above which another way is faster
    below : the same of another exact way
    """
    seconds = min(limits.for_variances, max(most, limits.exact), below)
    return _blocked_within(stats, seconds, limits, reml=True, names=None)


def _fills_up(sums: CrossProducts, seconds: float, seconds_per_cube: float) -> bool:
    """Whether eliminating the largest term leaves a full matrix that takes longer than `seconds`.

    This is a cheap test before any matrix is formed. Eliminating a group with d neighbours fills
    d² entries. If these add up to half of all entries, no order of elimination keeps the rest
    sparse.
    """
    sizes = sums.sizes
    lead = max(range(len(sizes)), key=lambda t: sizes[t])
    rest = float(sum(sizes) - sizes[lead])
    if seconds_per_cube * rest**3 <= seconds:
        return False
    degrees = np.zeros(sizes[lead])
    for t in range(len(sizes)):
        if t < lead:
            degrees += count_levels(sums.pairs[t, lead].indices, sizes[lead])
        elif t > lead:
            degrees += np.diff(sums.pairs[lead, t].indptr)
    if degrees @ degrees > 0.5 * rest**2:
        return True
    a, b = sorted(sorted(range(len(sizes)), key=lambda t: -sizes[t])[:2])
    largest, fewest = _MOST_LEFT, float(min(sizes[a], sizes[b]))
    if seconds_per_cube * (largest * fewest) ** 3 <= seconds:
        return False
    left = min(_LEFT_PER_GROWTH * _growth(sums.pairs[a, b].matrix), largest)
    return bool(seconds_per_cube * (left * fewest) ** 3 > seconds)


_STARTS, _LEAST_GROWTH = 5, 2.0
"""Levels from which growth is followed, and a growth that is too small to tell."""

_LEFT_PER_GROWTH, _MOST_LEFT = 0.025, 0.5
"""Share of the levels that a minimum degree order leaves full, by the growth, and the largest that
is assumed. Of random tables the orders leave more: 0.1 at a growth of 3, 0.3 at 9, 0.6 at 20."""


def _growth(cells: Any) -> float:
    """Return the least growth of what a level reaches by steps until it is half of the rows.

    A step is from levels of the rows to all that meet them in a level of the other term. Where
    levels meet at random, every step multiplies them, and so does every elimination. In blocks,
    such as schools, and along a line they stop or grow slowly: 0 is returned.
    """
    crowded = count_levels(cells.indices, cells.shape[1])
    crowded = crowded > max(32.0, 4.0 * np.sqrt(sum(cells.shape)))  # are eliminated last
    if crowded.any():
        cells = cells[:, ~crowded]
    q = cells.shape[0]
    reached, count, least = np.zeros((q, _STARTS)), 1.0, np.inf
    reached[np.linspace(0, q - 1, _STARTS).astype(np.int64), np.arange(_STARTS)] = 1.0
    while True:
        reached = np.minimum(cells @ (cells.T @ reached), 1.0)
        growth = float(np.median(reached.sum(axis=0))) / count
        count *= growth
        if count > 0.5 * q:  # the last step has met its end
            return growth if np.isinf(least) else least
        if growth < _LEAST_GROWTH:
            return 0.0
        least = min(least, growth)


_MANY_COLUMNS = (
    "with a factor of {:,} columns in the fixed part, a random term with its variance held at a "
    "million times that of the scores has the same results, and more engines: put (1|...) in "
    "place of the factor, with hold={{...}}; or request engine='iterative', which solves for "
    "every column"
)


def _blocked(
    stats: Statistics,
    limits: EngineLimits,
    *,
    reml: bool,
    names: Sequence[str] | None,
    advice: str | None = None,
    most_seconds: float = np.inf,
) -> BlockedLikelihood:
    from vcomp.estimators.likelihood.blocked import BlockedLikelihood
    from vcomp.estimators.likelihood.blocked_covariance import OTHER_ENGINE, Eliminations
    from vcomp.numerics.sparse import plan_elimination

    sums = stats.eliminated
    if sums.factor is not None:
        advice = _MANY_COLUMNS.format(sums.factor.sparse_at.size)
    planner = partial(plan_elimination, most_seconds=most_seconds)
    eliminations = Eliminations(
        sums, names, advice or OTHER_ENGINE, planner=planner, free_bytes=limits.free_bytes
    )
    if sums.factor is not None and eliminations.seconds > most_seconds:
        raise EstimationError(
            f"elimination takes about {eliminations.seconds:.0f} seconds at every step, and is "
            f"used if engine='blocked' requests it; {advice}"
        )
    return BlockedLikelihood(sums, reml=reml, eliminations=eliminations)


def _blocked_within(
    stats: Statistics,
    seconds: float,
    limits: EngineLimits,
    *,
    reml: bool,
    names: Sequence[str] | None,
) -> BlockedLikelihood | None:
    """Return the blocked engine if it fits and evaluates in at most `seconds`, else None."""
    from vcomp.estimators.likelihood.blocked import BlockedLikelihood

    sums = stats.cross_products
    kept = stats.kept.get(_ANALYSED) if limits is ENGINE_LIMITS else None
    if kept is not None and kept.seconds <= seconds and kept.are_named(names):
        return BlockedLikelihood(sums, reml=reml, eliminations=kept)
    # Bounds before any matrix is formed: of a factor in any order, and of a full matrix.
    least = limits.seconds_per_entry * sums.n_entries
    if least + limits.seconds_per_effect * sum(sums.sizes) > seconds:
        return None
    if _fills_up(sums, seconds, limits.seconds_per_cube):
        return None
    try:
        # The search for an order takes at most `seconds`: a longer one finds no faster factor.
        blocked = _blocked(stats, limits, reml=reml, names=names, most_seconds=seconds)
    except EstimationError:
        return None
    if blocked.seconds > seconds:
        return None
    if limits is ENGINE_LIMITS and blocked.eliminations.are_small:
        stats.kept[_ANALYSED] = blocked.eliminations
    return blocked


def _is_ordered_within(stats: Statistics, entries: float) -> bool:
    """Whether the equations have so few entries; without pair tables if groups show it."""
    least = sum(max(pair) for pair in combinations(stats.sizes, 2))
    return least <= entries and stats.cross_products.n_entries <= entries


def _without_strata(
    stats: Statistics,
    limits: EngineLimits,
    iterative: Callable[[], LikelihoodEngine],
    *,
    reml: bool,
    names: Sequence[str] | None = None,
) -> LikelihoodEngine:
    """Return the best engine other than strata: an exact one, or that of `iterative`."""
    table = _of_table(stats, reml=reml)
    if table is not None and limits.allow(table):
        return table
    if stats.wide is not None:
        # Other engines form (p, p) matrices.
        return _blocked(stats, limits, reml=reml, names=names, most_seconds=limits.seconds)
    if stats.kept.get(_NOT_FACTORED) == limits:
        return iterative()
    few = sum(stats.sizes) <= limits.planned
    quick = min(limits.quick + limits.quick_per_row * stats.n, limits.seconds)
    if crossed := _crossed(stats, limits, reml=reml):
        return crossed
    if (
        few
        and quick > 0.0
        and (blocked := _blocked_within(stats, quick, limits, reml=reml, names=names))
    ):
        return blocked
    levels, grid = _levels(stats, limits, reml=reml), _grid(stats, limits)
    if levels is not None and grid is not None and levels.seconds > limits.grid_seconds:
        levels = None  # that of the holes is faster
    # With more effects, their order and pair tables take longer than a short fit by levels.
    if levels is not None and not few:
        most = min(limits.cheap_order * levels.seconds, limits.seconds)
        if not _is_ordered_within(stats, most / limits.order_per_entry / len(stats.sizes)):
            return levels
        return _blocked_within(stats, most, limits, reml=reml, names=names) or levels
    most = limits.seconds if grid is not None else _seconds_of_exact(stats, limits)
    # With two large facets, solves are faster than blocks of levels.
    if levels is not None and levels.seconds > most:
        levels = None
    if levels is not None:
        most = levels.seconds
    elif grid is not None:
        most = limits.grid_seconds if few else 0.0
    if most > 0.0 and (blocked := _blocked_within(stats, most, limits, reml=reml, names=names)):
        return blocked
    if levels is not None:
        return levels
    stats.kept[_NOT_FACTORED] = limits
    return iterative()


def _seconds_of_exact(stats: Statistics, limits: EngineLimits) -> float:
    """Return the time of an evaluation above which the iterative engine is preferred."""
    from vcomp.estimators.likelihood.iterative_context import seconds_of

    by_solves = seconds_of(stats.cross_products)
    exact = limits.exact
    if stats.n >= limits.many_rows:
        exact = min(exact, limits.exact_ratio * by_solves)
    return min(limits.seconds, max(exact, limits.patience * by_solves))


def _crossed(stats: Statistics, limits: EngineLimits, *, reml: bool) -> CrossedLikelihood | None:
    """Return the engine of two crossed facets if it evaluates in time and fits into memory."""
    if stats.crossed is None:
        return None
    from vcomp.estimators.likelihood.crossed import CrossedLikelihood

    crossed = CrossedLikelihood(stats.crossed, reml=reml)
    return crossed if limits.allow(crossed) else None


def _of_table(
    stats: Statistics, *, reml: bool
) -> NestedTableLikelihood | ColumnTermLikelihood | None:
    """Return the engine of two nested terms, or also one of columns, in a table; None without."""
    if stats.nested_table is not None:
        from vcomp.estimators.likelihood.nested_likelihood import NestedTableLikelihood

        return NestedTableLikelihood(stats.nested_table, reml=reml)
    if stats.column_table is not None:
        from vcomp.estimators.likelihood.column_likelihood import ColumnTermLikelihood

        return ColumnTermLikelihood(stats.column_table, reml=reml)
    return None


def _levels(stats: Statistics, limits: EngineLimits, *, reml: bool) -> LevelsLikelihood | None:
    """Return the levels engine if it evaluates in time and fits into memory, else None."""
    if stats.levels is None:
        return None
    from vcomp.estimators.likelihood.levels import LevelsLikelihood

    levels = LevelsLikelihood(stats.levels, reml=reml)
    return levels if limits.allow(levels) else None


def _with_few_holes(stats: Statistics) -> CompletedGrid | None:
    """Return the nearly complete grid if the matrix of its holes is small, else None."""
    from vcomp.estimators.likelihood.incomplete import MOST_HOLES

    grid = stats.completed
    return grid if grid is not None and grid.holes.n <= MOST_HOLES else None


def _grid(stats: Statistics, limits: EngineLimits) -> CompletedGrid | None:
    """Return the nearly complete grid if the holes engine is faster, else None.

    With few terms, the iterative engine's solves for all effects converge as fast, and a
    half-filled grid has as many holes as rows.
    """
    grid = _with_few_holes(stats)
    if grid is None:
        return None
    n_cells = grid.tables[0].size
    return grid if grid.holes.n <= limits.few_holes * n_cells or stats.n_terms > 3 else None


def _iterative(
    stats: Statistics,
    limits: EngineLimits,
    *,
    reml: bool,
    n_probes: int | None = None,
    seed: int = 0,
    repeated: bool = False,
) -> LikelihoodEngine:
    """Return the holes engine for a nearly complete grid, else the iterative engine."""
    sums, grid = stats.cross_products, _grid(stats, limits)
    if grid is None:
        if not repeated and stats.make_cells is not None:
            stats.cells.forget_columns()
        from vcomp.estimators.likelihood.iterative import GOAL, IterativeLikelihood

        if n_probes is not None:
            return IterativeLikelihood(sums, reml=reml, n_probes=n_probes, seed=seed)
        goal = np.inf if repeated else GOAL
        return IterativeLikelihood(sums, reml=reml, goal=goal, seed=seed)
    from vcomp.estimators.likelihood.incomplete import CompletedLikelihood

    return CompletedLikelihood(sums, grid, reml=reml)
