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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.estimators import below_zero, get_estimator
from vcomp.exceptions import EstimationError, warn
from vcomp.inference.resampling.collection import GeneratingFit, SampleRefit, collect
from vcomp.inference.resampling.draws import Draws, draws_of
from vcomp.inference.resampling.refits import Recipe, Refit, refit_of
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
    v = positive_part(fit.values, fit.recipe.names)

    def begin(seed: int) -> Callable[[], Callable[[int], SampleRefit]]:
        draws = draws_of(fit.stats, fit.recipe)
        return lambda: _one(fit, draws, v, seed)

    made, _ = collect(
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
    )
    _report(made, n, time_limit)
    return made


def likelihoods_under(
    stats: Statistics,
    names: tuple[str, ...],
    v0: FloatArray,
    holds: Sequence[Mapping[str, float]],
    n: int,
    *,
    rng: int | np.random.Generator | None = None,
    reml: bool = True,
    workers: int = 1,
    progress: bool | None = False,
) -> FloatArray:
    """Return maximised log-likelihoods of drawn data under several sets of held components.

    For the null distribution of a likelihood ratio: each data set is fitted under each set. Fixed
    effects are profiled out and need not be given.

    Parameters
    ----------
    stats : of the data
    names : of the components, the residual last
    v0 : (k + 1,) components at which data are drawn, not negative, the residual positive;
        iterations start there
    holds : for each model its held components: ``{}`` for none, ``{"topic": 0.0}``
    n : number of data sets
    rng : as for :func:`parametric_bootstrap`; the numbers are those of its replicates
    reml : restricted likelihoods, or full ones
    workers : number of threads, which does not change the numbers
    progress : whether to show a bar; None shows one if stderr is a terminal

    Returns
    -------
    (n, number of sets); nan if an iteration did not converge

    Raises
    ------
    EstimationError
        If a component is not known, or a number is invalid.
    """
    n, workers = check_count(n, "n"), check_count(workers, "workers")
    seed, v0 = seed_from(rng), np.asarray(v0, dtype=float)
    if v0.shape != (len(names),) or not (v0 >= 0.0).all() or not v0[-1] > 0.0:
        raise EstimationError(
            f"v0 must have {len(names)} non-negative components, the residual positive; it is "
            f"{v0!r}"
        )
    recipes = [
        Recipe(get_estimator("reml" if reml else "ml", hold=dict(hold)), names) for hold in holds
    ]
    if not recipes:
        return np.zeros((n, 0))
    draws = draws_of(stats, recipes[0])

    def make() -> Callable[[int], FloatArray]:
        refits = [refit_of(stats, recipe, v0) for recipe in recipes]

        def one(number: int) -> FloatArray:
            drawn = draws.draw(v0, stream(seed, number))
            found = [refit(drawn) for refit in refits]
            return np.array([f.llf if f.converged else np.nan for f in found])

        return one

    rows = run(make, range(n), workers=workers, progress=progress, label="likelihood ratios")
    return np.array([rows[b] for b in range(n)]).reshape(n, len(recipes))


def positive_part(values: FloatArray, names: Sequence[str]) -> FloatArray:
    """Return components with negative ones set to zero, with a warning, for drawing data.

    Raises
    ------
    EstimationError
        If no component is positive.
    """
    v = np.maximum(values, 0.0)
    if not np.isfinite(values).all() or not (v > 0.0).any():
        raise EstimationError(
            "no variance component is estimated above zero: data cannot be drawn"
        )
    below = below_zero(names, values)
    if below:
        warn(
            f"{below} and set to 0 where data are drawn: replicates are centred there, and not "
            "on the estimate"
        )
    return v


def _one(
    fit: GeneratingFit, draws: Draws, v: FloatArray, seed: int
) -> Callable[[int], SampleRefit]:
    refit: Refit = refit_of(fit.stats, fit.recipe, v)

    def one(number: int) -> SampleRefit:
        found = refit(draws.draw(v, stream(seed, number)))
        # Data are drawn without fixed effects; those of the fit are added to the estimates.
        return SampleRefit(replace(found, beta=fit.beta + found.beta))

    return one


def _report(made: Replicates, n: int, time_limit: float | None) -> None:
    if len(made) < n:
        limit = display.number(float(time_limit or 0.0), 3)
        warn(
            f"the time limit of {limit} s ended the bootstrap: {len(made):,} of {n:,} replicates "
            "were made (with path= another call continues them)"
        )
    failed = int((~made.converged).sum())
    if failed:
        warn(
            f"{failed:,} of {len(made):,} replicates did not converge; their rows have "
            "converged=False"
        )
