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
from dataclasses import replace
from os import PathLike

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import VcompError
from vcomp.inference.resampling.collection import GeneratingFit, collect
from vcomp.inference.resampling.draws import Draws, RowDraws, draws_of
from vcomp.inference.resampling.refits import Recipe, Refit, Refitted, refit_of
from vcomp.inference.resampling.replicates import Replicates
from vcomp.numerics import check_count, check_rng, check_time_limit, run, seed_from, stream
from vcomp.statistics import Statistics


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
    workers : number of threads, which does not change the numbers
    time_limit : seconds after which no replicate is started; finished ones are kept, with a
        warning
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

    def begin(seed: int) -> Callable[[], Callable[[int], Refitted]]:
        drawn = draws_of(fit.stats, fit.recipe) if draws is None else draws
        return lambda: _one(fit, drawn, v, seed, n)

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
    workers : number of threads, which does not change the numbers
    time_limit : seconds after which no data set is drawn
    progress : whether to show a bar; None shows one if stderr is a terminal
    label : of the bar
    """
    seed = seed_from(rng)
    sources = [draws_of(stats, recipe) for recipe in recipes]
    # Statistics of rows serve all estimators; strata that are drawn directly serve some.
    draws = next((source for source in sources if isinstance(source, RowDraws)), sources[0])

    def make() -> Callable[[int], list[Refitted]]:
        refits = [refit_of(stats, recipe, v, n) for recipe in recipes]

        def refitted(refit: Refit, drawn: Statistics) -> Refitted:
            try:
                return refit(drawn)
            except (VcompError, np.linalg.LinAlgError):
                return Refitted.failed(v.size, stats.Xy.size)

        def one(number: int) -> list[Refitted]:
            drawn = draws.draw(v, stream(seed, number))
            return [refitted(refit, drawn) for refit in refits]

        return one

    rows = run(
        make, range(n), workers=workers, time_limit=time_limit, progress=progress, label=label
    )
    return [rows[b] for b in sorted(rows)]


def _one(
    fit: GeneratingFit, draws: Draws, v: FloatArray, seed: int, n: int
) -> Callable[[int], Refitted]:
    refit: Refit = refit_of(fit.stats, fit.recipe, v, n)

    def one(number: int) -> Refitted:
        found = refit(draws.draw(v, stream(seed, number)))
        # Data are drawn without fixed effects; those of the fit are added to the estimates.
        return replace(found, beta=fit.beta + found.beta)

    return one
