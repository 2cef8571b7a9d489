"""The parametric bootstrap: data are drawn at the estimates and estimated again.

If nested orthogonal strata are sufficient for the estimator, their statistics are drawn, and the
cost of a replicate does not depend on the number of rows (docs/explanation/mathematics.md, eq.
(10.11)); otherwise responses are drawn for all rows and summed. Data are drawn without fixed
effects, which are added to the estimates: components and likelihoods do not depend on them.

References
----------
Efron and Tibshirani (1993), An Introduction to the Bootstrap, sec. 6.5; Davison and Hinkley
(1997), Bootstrap Methods and their Application, sec. 2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TypeVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import VcompError
from vcomp.inference.resampling.collection import GeneratingFit, Work, collect
from vcomp.inference.resampling.draws import Draws, Responses, RowDraws, draws_of
from vcomp.inference.resampling.nested_surfaces import NestedSurface
from vcomp.inference.resampling.refits import InClosedForm, Recipe, Refitted, refit_of
from vcomp.inference.resampling.replicates import Replicates
from vcomp.inference.resampling.stacked_refits import StackedRefits, StrataRefits
from vcomp.inference.resampling.surfaces import DrawnSurface
from vcomp.numerics import (
    BatchedWork,
    check_count,
    check_rng,
    check_time_limit,
    run,
    seed_from,
    stream,
)
from vcomp.statistics import Statistics

Row = TypeVar("Row")


def parametric_bootstrap(
    fit: GeneratingFit,
    n: int,
    *,
    rng: int | np.random.Generator | None = None,
    workers: int = 1,
    time_limit: float | None = None,
    path: str | PathLike[str] | None = None,
    progress: bool | None = None,
    draws: Draws | None = None,
) -> Replicates:
    """Return estimates of `n` data sets drawn at the estimates of a fit.

    Parameters
    ----------
    fit : from which data are drawn; negative components are set to zero, with a warning
    n : number of replicates
    rng : seed, or a generator from which one is drawn; 0 if not given. Replicate b has its own
        stream ``SeedSequence(seed, spawn_key=(b,))``
    workers : number of threads, which changes the numbers by rounding at most: many
        small data sets, or alike ones, are fitted together
    time_limit : seconds after which no replicate is started; finished ones are kept, with a
        warning. Data sets are then not collected for a surface, but fitted one by one
    path : of a file to which replicates are saved every half minute, at the end and at an
        interruption; if it exists, only missing ones are computed
    progress : whether to show a bar; None shows one if stderr is a terminal
    draws : draws the statistics; None for strata if they are sufficient, else rows

    Raises
    ------
    EstimationError
        If an option is invalid, or no component is positive.
    DataError
        If the file is not one of replicates, or of another fit or seed.
    """
    n, workers = check_count(n, "n"), check_count(workers, "workers")
    check_time_limit(time_limit)
    check_rng(rng)
    v = fit.positive_part()

    def begin(seed: int) -> Callable[[], Work]:
        drawn = draws_of(fit.stats, fit.recipe) if draws is None else draws
        return lambda: _replicates(fit, drawn, v, seed, n, limited=time_limit is not None)

    return collect(
        fit,
        "parametric",
        {},
        begin,
        n,
        rng=rng,
        workers=workers,
        time_limit=time_limit,
        path=path,
        progress=progress,
        label="bootstrap",
        what="replicates",
    )


def drawn_refits(
    stats: Statistics,
    recipes: Sequence[Recipe],
    v: FloatArray,
    n: int,
    *,
    rng: int | np.random.Generator | None = None,
    workers: int = 1,
    time_limit: float | None = None,
    progress: bool | None = None,
    label: str = "fits of drawn data",
) -> list[list[Refitted]]:
    """Return the estimates of drawn data by several recipes, a list for each data set.

    The null distribution of a statistic that compares the estimates follows from them. Data sets
    after the time limit are missing; a failed estimation has ``converged=False``.

    Parameters
    ----------
    stats : of the data
    recipes : at least one
    v : (k + 1,) components at which data are drawn and iterations start, not negative, the
        residual positive
    n : number of data sets
    rng : as for :func:`parametric_bootstrap`; the numbers are those of its replicates
    workers : number of threads, which changes the numbers by rounding at most: many
        small data sets, or alike ones, are fitted together
    time_limit : seconds after which no data set is drawn
    progress : whether to show a bar; None shows one if stderr is a terminal
    label : of the bar
    """
    seed = seed_from(rng)
    sources = [draws_of(stats, recipe) for recipe in recipes]
    # Statistics of rows serve all estimators; strata that are drawn directly serve some.
    draws = next((source for source in sources if isinstance(source, RowDraws)), sources[0])

    def make() -> Callable[[int], list[Refitted]] | BatchedWork[list[Refitted]]:
        works = [
            _of_draws(stats, draws, recipe, v, n, limited=time_limit is not None)
            for recipe in recipes
        ]
        most = max(work.most for work in works)

        def several(numbers: Sequence[int]) -> list[list[Refitted]]:
            drawn = Responses(draws.draw(v, stream(seed, b)) for b in numbers)
            made = [work.work(drawn) for work in works]
            return [list(row) for row in zip(*made, strict=True)]

        return _at_once(several, most)

    rows = run(
        make, range(n), workers=workers, time_limit=time_limit, progress=progress, label=label
    )
    return [rows[b] for b in sorted(rows)]


@dataclass(frozen=True, slots=True)
class _OfDraws:
    """Refits of drawn data by one recipe.

    Attributes
    ----------
    work : returns the estimates of several data sets
    most : how many at once
    """

    work: Callable[[Responses], list[Refitted]]
    most: int


def _of_draws(
    stats: Statistics,
    draws: Draws,
    recipe: Recipe,
    v: FloatArray,
    n: int,
    *,
    limited: bool,
) -> _OfDraws:
    """Return the refits of drawn data: many at once if that is faster, else one by one.

    Where time is limited, data sets are not collected for a surface.
    """
    refit = refit_of(stats, recipe, v)
    several: StackedRefits | StrataRefits | DrawnSurface | NestedSurface | InClosedForm | None = (
        None
    )
    most = 1
    if isinstance(refit, InClosedForm):
        several, most = refit, 1 if limited else DrawnSurface.most(stats)
    elif isinstance(draws, RowDraws):
        several = stacked = StackedRefits.of(stats, recipe, v)
        most = 1 if stacked is None else stacked.most_responses
        if not limited:
            seconds = None if stacked is None else stacked.seconds
            surface = DrawnSurface.of(stats, recipe, v, n, alone=seconds)
            if surface is not None:
                several, most = surface, surface.most(stats)
    else:
        several = strata = StrataRefits.of(stats, recipe, v)
        most = 1 if strata is None else strata.most
        nested = None if limited else NestedSurface.of(stats, recipe, v, n)
        if nested is not None:
            several, most = nested, nested.most

    def alone(drawn: Statistics) -> Refitted:
        try:
            return refit(drawn)
        except (VcompError, np.linalg.LinAlgError):
            return Refitted.failed(v.size, stats.Xy.size)

    def work(drawn: Responses) -> list[Refitted]:
        found: list[Refitted | None] = [None] * len(drawn)
        if several is not None:
            found = several.with_responses(drawn)
        return [made or alone(one) for made, one in zip(found, drawn, strict=True)]

    return _OfDraws(work, most)


def _replicates(
    fit: GeneratingFit, draws: Draws, v: FloatArray, seed: int, n: int, *, limited: bool
) -> Work:
    refits = _of_draws(fit.stats, draws, fit.recipe, v, n, limited=limited)

    def several(numbers: Sequence[int]) -> list[Refitted]:
        drawn = Responses(draws.draw(v, stream(seed, b)) for b in numbers)
        # Data are drawn without fixed effects; those of the fit are added to the estimates.
        return [replace(made, beta=fit.beta + made.beta) for made in refits.work(drawn)]

    return _at_once(several, refits.most)


def _at_once(
    several: Callable[[Sequence[int]], list[Row]], most: int
) -> Callable[[int], Row] | BatchedWork[Row]:
    return BatchedWork(several, most) if most > 1 else lambda number: several([number])[0]
