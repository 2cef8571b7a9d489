"""The parametric bootstrap: data drawn at the estimates, and estimated again.

Where orthogonal strata with a nested remainder say all that the estimator needs, their statistics
are drawn, and a replicate costs nothing that grows with the rows; elsewhere responses are drawn
row by row, and summed. Fixed effects are left out of what is drawn and added to what is estimated:
components and restricted or full likelihoods do not depend on them.

References
----------
Efron and Tibshirani (1993), An Introduction to the Bootstrap, sec. 6.5; Davison and Hinkley
(1997), Bootstrap Methods and their Application, sec. 2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.estimators import below_zero, get_estimator
from vcomp.exceptions import DataError, EstimationError, warn
from vcomp.inference.resampling.draws import Draws, draws_of
from vcomp.inference.resampling.refits import Recipe, Refit, Refitted, refit_of
from vcomp.inference.resampling.replicates import Replicates, check_same
from vcomp.numerics import check_count, check_time_limit, run, seed_from, stream
from vcomp.statistics import Statistics

__all__ = [
    "Generating",
    "likelihoods_under",
    "parametric_bootstrap",
    "positive_part",
]


_SAVED_OPTIONS = {"hold": "hold", "prior": "weights", "iterated": "iterated"}
"""Options of estimators that the replicates depend on, with their names in stored files."""


@dataclass(frozen=True, slots=True)
class Generating:
    """A fit that data are drawn from.

    Attributes
    ----------
    stats : of its data
    recipe : how it was made
    values : (k + 1,) components, negative estimates as they are
    beta : (p,) fixed effects of the columns of X as they are in the statistics
    fixed_names : their names
    uncentre : turns such fixed effects into those of X as given
    formula : as given
    """

    stats: Statistics
    recipe: Recipe
    values: FloatArray
    beta: FloatArray
    fixed_names: tuple[str, ...]
    uncentre: Callable[[FloatArray], FloatArray]
    formula: str

    def fingerprint(self) -> dict[str, Any]:
        """Return what tells this fit from others, in plain text and numbers."""
        recipe = self.recipe
        options = {
            _SAVED_OPTIONS[f.name]: repr(getattr(recipe.estimator, f.name))
            for f in fields(recipe.estimator)  # type: ignore[arg-type]
            if f.name in _SAVED_OPTIONS
        }
        return {
            "formula": self.formula,
            "method": recipe.estimator.name,
            "options": {**options, "negative": recipe.negative},
            "number of rows": int(self.stats.n),
            "components": list(recipe.names),
            "estimates": self.values.tolist(),
            "fixed effects": self.uncentre(self.beta).tolist(),
        }


def parametric_bootstrap(
    fit: Generating,
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
    fit : that is drawn from and made again; negative components are drawn as zero, with a warning
    n : number of replicates
    rng : seed, or a generator that one is drawn from once; 0 if not given. Replicate b has the
        stream ``SeedSequence(seed, spawn_key=(b,))`` to itself
    workers : threads; the numbers are the same for any number of them
    time_limit : seconds after which no replicate is begun; what is done is kept, with a warning
    path : of a file that the replicates are saved to every half minute, at the end and when the
        work is interrupted; if it is there already, only what is missing is made
    progress : whether to show a bar; None for one where stderr is a terminal

    Raises
    ------
    EstimationError
        If an option is not of that form, or no component is positive.
    DataError
        If the file is not one of replicates, or of another fit or seed.
    """
    n, workers = check_count(n, "n"), check_count(workers, "workers")
    check_time_limit(time_limit)
    seed = seed_from(rng)
    v = positive_part(fit.values, fit.recipe.names)
    known = _known(fit, path, seed, drawn=isinstance(rng, np.random.Generator))
    seed = seed if known is None else known.seed
    there = set() if known is None else set(known.numbers.tolist())
    wanted = [b for b in range(n) if b not in there]
    draws = draws_of(fit.stats, fit.recipe) if wanted else None

    def gathered(rows: dict[int, Refitted]) -> Replicates:
        return _gathered(fit, n, seed, known, rows)

    save = None if path is None else (lambda rows: gathered(rows).save(path))
    rows = run(
        lambda: _one(fit, draws, v, seed),
        wanted,
        workers=workers,
        time_limit=time_limit,
        progress=progress,
        label="bootstrap",
        save=save,
    )
    made = gathered(rows)
    if save is not None and rows:
        save(rows)
    _report(made.first(n), n, time_limit)
    return made.first(n)


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

    The null distribution of a likelihood ratio: every data set is fitted under each set, from the
    same draws. Fixed effects are profiled out, so that none have to be given.

    Parameters
    ----------
    stats : of the data
    names : of the components, the residual last
    v0 : (k + 1,) components that data are drawn at; not negative, the residual positive. Where a
        set does not hold them, iterations start there
    holds : for each model the components that it holds: ``{}`` for all free, ``{"topic": 0.0}``
    n : number of data sets
    rng : as for :func:`parametric_bootstrap`; the numbers are those of its replicates
    reml : restricted likelihoods, or full ones
    workers : threads; the numbers are the same for any number of them
    progress : whether to show a bar; None for one where stderr is a terminal

    Returns
    -------
    (n, number of sets); nan where an iteration did not reach a maximum

    Raises
    ------
    EstimationError
        If a component is not known, or a number is not one that it can have.
    """
    n, workers = check_count(n, "n"), check_count(workers, "workers")
    seed, v0 = seed_from(rng), np.asarray(v0, dtype=float)
    if v0.shape != (len(names),) or not (v0 >= 0.0).all() or not v0[-1] > 0.0:
        raise EstimationError(
            f"v0 has {len(names)} components that are not negative, the residual positive; it is "
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
    """Return components that can be drawn from: negative ones as zero, with a warning.

    Raises
    ------
    EstimationError
        If no component is positive: every response would be the same.
    """
    v = np.maximum(values, 0.0)
    if not np.isfinite(values).all() or not (v > 0.0).any():
        raise EstimationError(
            "no variance component is estimated above zero: there is nothing to draw from"
        )
    below = below_zero(names, values)
    if below:
        warn(
            f"{below} and taken as 0 where data are drawn: replicates are centred there, and not "
            "on the estimate"
        )
    return v


def _one(
    fit: Generating, draws: Draws | None, v: FloatArray, seed: int
) -> Callable[[int], Refitted]:
    refit: Refit = refit_of(fit.stats, fit.recipe, v)

    def one(number: int) -> Refitted:
        assert draws is not None
        return refit(draws.draw(v, stream(seed, number)))

    return one


def _known(
    fit: Generating, path: str | PathLike[str] | None, seed: int, *, drawn: bool
) -> Replicates | None:
    """Return what the file holds, None if there is none."""
    if path is None or not Path(path).exists():
        return None
    known = Replicates.load(path)
    check_same(known, "parametric", fit.fingerprint(), path)
    if known.seed != seed and not drawn:
        raise DataError(
            f"{path} holds replicates from seed {known.seed}, and the seed here is {seed}; give "
            f"rng={known.seed} to continue them, or another path"
        )
    return known


def _gathered(
    fit: Generating, n: int, seed: int, known: Replicates | None, rows: dict[int, Refitted]
) -> Replicates:
    """Return new replicates with those that were there, by number."""
    k, p, new = len(fit.recipe.names), len(fit.fixed_names), sorted(rows)
    numbers = np.array(new, dtype=np.int64)
    values = np.array([rows[b].values for b in new]).reshape(-1, k)
    beta = np.array([fit.uncentre(fit.beta + rows[b].beta) for b in new]).reshape(-1, p)
    llf = np.array([rows[b].llf for b in new], dtype=float)
    converged = np.array([rows[b].converged for b in new], dtype=bool)
    if known is not None:
        numbers = np.concatenate([known.numbers, numbers])
        values, beta = np.concatenate([known.values, values]), np.concatenate([known.beta, beta])
        llf = np.concatenate([known.llf, llf])
        converged = np.concatenate([known.converged, converged])
    order = np.argsort(numbers, kind="stable")
    return Replicates(
        kind="parametric",
        names=fit.recipe.names,
        fixed_names=fit.fixed_names,
        numbers=numbers[order],
        values=values[order],
        beta=beta[order],
        llf=llf[order],
        converged=converged[order],
        seed=seed,
        asked=n,
        fingerprint=fit.fingerprint(),
    )


def _report(made: Replicates, n: int, time_limit: float | None) -> None:
    if len(made) < n:
        limit = display.number(float(time_limit or 0.0), 3)
        warn(
            f"the time limit of {limit} s ended the bootstrap: {len(made):,} of {n:,} replicates "
            "were made (with path= they are continued in another call)"
        )
    failed = int((~made.converged).sum())
    if failed:
        warn(
            f"{failed:,} of {len(made):,} replicates did not converge; their rows have "
            "converged=False"
        )
