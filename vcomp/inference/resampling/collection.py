"""Fits that are repeated on drawn data, and the collection of their replicates.

The parametric bootstrap, the bootstrap of levels, the jackknife and studies of subsets share this:
each replicate has a number, and random numbers that depend on the seed and that number only.
Replicates can be computed in parallel, saved to a file and continued from it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.design import Chunk, Design
from vcomp.estimators import below_zero, check_identified
from vcomp.exceptions import DataError, EstimationError, VcompError, warn
from vcomp.inference.resampling.draws import simulate_responses
from vcomp.inference.resampling.refits import (
    Recipe,
    Refitted,
    StackedRefits,
    StrataRefits,
    refit_of,
)
from vcomp.inference.resampling.replicates import Replicates, check_same
from vcomp.inference.resampling.row_samples import Sample
from vcomp.numerics import PATIENCE, BatchedWork, check_seconds, run, seed_from
from vcomp.statistics import StackTables, Statistics

Made = TypeVar("Made")

_SAVED_OPTIONS = {"hold": "hold", "prior": "weights", "iterated": "iterated"}
"""Options of estimators that the replicates depend on, with their names in stored files."""


Work: TypeAlias = Callable[[int], Refitted] | BatchedWork[Refitted]
"""Makes the estimates of replicates by number, one by one or many at once."""


@dataclass(frozen=True, slots=True)
class GeneratingFit:
    """A fit from which data are drawn, and which is repeated on them.

    Attributes
    ----------
    stats : of its data
    recipe : its estimator and options
    values : (k + 1,) components, negative estimates as they are
    beta : (p,) fixed effects of the (centred) columns of X in the statistics
    fixed_names : their names
    uncentre : transforms such fixed effects to those of X as given
    formula : text of the formula
    """

    stats: Statistics
    recipe: Recipe
    values: FloatArray
    beta: FloatArray
    fixed_names: tuple[str, ...]
    uncentre: Callable[[FloatArray], FloatArray]
    formula: str

    def fingerprint(self) -> dict[str, Any]:
        """Return text and numbers that identify this fit."""
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

    def positive_part(self) -> FloatArray:
        """Return the components with negative ones set to zero, with a warning, to draw data.

        Raises
        ------
        EstimationError
            If no component is positive.
        """
        if self.stats.blocks is not None:  # a covariance may be below zero
            return self.values
        v = np.maximum(self.values, 0.0)
        if not np.isfinite(self.values).all() or not (v > 0.0).any():
            raise EstimationError(
                "no variance component is estimated above zero: data cannot be drawn"
            )
        below = below_zero(self.recipe.names, self.values)
        if below:
            warn(
                f"{below} and set to 0 where data are drawn: replicates are centred at 0, not at "
                "the estimate"
            )
        return v

    def simulate(
        self, rows: Chunk, n: int, rng: int | np.random.Generator | None = None
    ) -> FloatArray:
        """Return `n` responses drawn from the fit, (rows, n); see :func:`simulate_responses`."""
        return simulate_responses(rows, self.positive_part(), self.beta, n, rng)

    @property
    def _start(self) -> FloatArray:
        """Components to start from: a covariance of slopes may be below zero."""
        is_matrix = self.stats.blocks is not None
        return self.values if is_matrix else np.maximum(self.values, 0.0)

    def refit(
        self, design: Design, draw: Callable[[], Statistics], kept: BoolArray | None = None
    ) -> Refitted:
        """Return the estimate from drawn rows, or the reason of its failure.

        Parameters
        ----------
        design : of the data
        draw : returns the statistics of the rows; may raise a ``VcompError``
        kept : (k + 1,) components that the drawn rows have; None for all. Others are nan
        """
        names = self.recipe.names
        try:
            stats = draw()
            terms = names[: len(stats.sizes)]  # covariances of slopes follow
            check_identified(stats, terms, self.fixed_names, design.x_origin)
            start = self._start if kept is None else self._start[kept]
            found = refit_of(stats, self.recipe, start)(stats)
        except (VcompError, np.linalg.LinAlgError) as error:
            return Refitted.failed(len(names), len(self.fixed_names), str(error))
        if kept is not None:
            values = np.full(kept.size, np.nan)
            values[kept] = found.values
            found = replace(found, values=values)
        return found if found.converged else replace(found, reason=_NOT_CONVERGED)

    @property
    def seconds(self) -> float:
        """Expected time of a refit that is made alone; 0 if not known."""
        return refit_of(self.stats, self.recipe, self._start).seconds

    def components_of(self, rows: LongArray) -> BoolArray | None:
        """Return which components some of the rows have; None where they have all."""
        codes = self.stats.cells.residual_codes
        if codes is None:
            return None
        left = np.bincount(codes[rows], minlength=int(codes.max()) + 1) > 0
        kept = np.ones(self.values.size, dtype=bool)
        kept[-left.size :] = left
        return None if left.all() else kept

    def refits_of_strata(
        self, design: Design, draw: Callable[[int], Statistics]
    ) -> BatchedWork[Refitted] | None:
        """Return the work of a thread that refits samples with nested strata, many at once.

        Parameters
        ----------
        design : of the data
        draw : returns the statistics of a sample by number; may raise a ``VcompError``
        """
        strata = StrataRefits.of(self.stats, self.recipe, self._start)
        if strata is None:
            return None

        def work(numbers: Sequence[int]) -> list[Refitted]:
            made: dict[int, Statistics] = {}
            for number in numbers:
                with suppress(VcompError, np.linalg.LinAlgError):  # its refit has the reason
                    made[number] = draw(number)
            found = dict(zip(made, strata.of_samples(list(made.values())), strict=True))
            return [
                found.get(number) or self.refit(design, partial(draw, number))
                for number in numbers
            ]

        return BatchedWork(work, strata.most)

    def stacked(self) -> StackedRefits | None:
        """Return the refits of many parts of the rows at once; None if that is not faster."""
        if self.stats.log_weights is not None:  # sums without a part would have rounding errors
            return None
        return StackedRefits.of(self.stats, self.recipe, self._start)

    def refits_of_samples(self, design: Design, draw: Callable[[int], Sample]) -> Work:
        """Return the work of a thread that refits samples of rows by number.

        Parameters
        ----------
        design : of the data
        draw : returns a sample, the same one for the same number; may raise a ``VcompError``
        """
        rows, stacked = self.stats.separable_rows, self.stacked()

        def drawn(number: int) -> Statistics:
            return draw(number).statistics(design, rows)

        def alone(number: int) -> Refitted:
            kept = None if rows.residual_codes is None else self.components_of(draw(number).rows)
            return self.refit(design, partial(drawn, number), kept)

        def tables(numbers: Sequence[int]) -> dict[int, StackTables]:
            assert stacked is not None
            made = {}
            for number in numbers:
                try:
                    sample = draw(number)
                    made[number] = sample.rows, sample.groups(design)
                except VcompError:  # its refit alone has the reason
                    continue
            if not made:
                return {}
            return dict(zip(made, stacked.of_samples(list(made.values())), strict=True))

        if stacked is None:
            several = self.refits_of_strata(design, drawn)
            return alone if several is None else several
        return stacked.together(tables, alone)


_NOT_CONVERGED = "the estimation did not converge"


def collect(
    fit: GeneratingFit,
    kind: str,
    details: dict[str, Any],
    begin: Callable[[int], Callable[[], Work]],
    n: int,
    *,
    rng: int | np.random.Generator | None,
    workers: int,
    time_limit: float | None,
    path: str | PathLike[str] | None,
    progress: bool | None,
    label: str,
    what: str,
) -> Replicates:
    """Return replicates 0 to n − 1, without those that the time limit prevented.

    Parameters
    ----------
    fit : the fit that is repeated
    kind : of the replicates
    details : their identification besides the fit, text and numbers by name
    begin : called once with the seed, unless the file contains all replicates; returns a function
        that makes the work of one thread, a function of the replicate's number
    n : number of replicates
    rng, workers, time_limit, path, progress : as for :func:`parametric_bootstrap`
    label : of the progress bar
    what : the replicates, in the plural, for messages

    Raises
    ------
    DataError
        If the file is not one of replicates, or holds those of another kind, fit or seed.
    EstimationError
        If all replicates failed, for reasons that are known.

    Warns
    -----
    VcompWarning
        If some replicates failed, or the time limit ended the work.
    """
    seed = seed_from(rng)
    fingerprint = {**fit.fingerprint(), **details}
    drawn = isinstance(rng, np.random.Generator)
    known = continued_from(path, kind, fingerprint, seed, drawn=drawn)
    seed = seed if known is None else known.seed
    there = set() if known is None else set(known.numbers.tolist())
    missing = [b for b in range(n) if b not in there]

    def gathered(rows: dict[int, Refitted]) -> Replicates:
        new = replicates_of(fit, rows, kind, fingerprint, seed, n)
        return new if known is None else joined(known, new)

    save = None if path is None else (lambda rows: gathered(rows).save(path))
    rows: dict[int, Refitted] = {}
    if missing:
        rows = run(
            begin(seed),
            missing,
            workers=workers,
            time_limit=time_limit,
            progress=progress,
            label=label,
            save=save,
        )
    if save is not None and rows:
        save(rows)
    made = gathered(rows).first(n)
    report_failures(made, rows.values(), what)
    if time_limit is not None and len(made) < n:
        limit = display.number(time_limit, 3)
        warn(
            f"the time limit of {limit} s ended the work: {len(made):,} of {n:,} {what} were made "
            "(with path= another call continues them)"
        )
    return made


def replicates_of(
    fit: GeneratingFit,
    rows: dict[int, Refitted],
    kind: str,
    fingerprint: dict[str, Any],
    seed: int,
    requested: int,
) -> Replicates:
    """Return the estimates as replicates, by number."""
    k, p, numbers = len(fit.recipe.names), len(fit.fixed_names), sorted(rows)
    found = [rows[b] for b in numbers]
    return Replicates(
        kind=kind,
        names=fit.recipe.names,
        fixed_names=fit.fixed_names,
        numbers=np.array(numbers, dtype=np.int64),
        values=np.array([f.values for f in found]).reshape(len(found), k),
        beta=np.array([fit.uncentre(f.beta) for f in found]).reshape(len(found), p),
        llf=np.array([f.llf for f in found], dtype=float),
        converged=np.array([f.converged for f in found], dtype=bool),
        seed=seed,
        requested=requested,
        fingerprint=fingerprint,
    )


def report_failures(made: Replicates, rows: Iterable[Refitted], what: str) -> None:
    """Warn if some refits failed, with the most frequent reason.

    Raises
    ------
    EstimationError
        If all failed, for reasons that are known.
    """
    failed, n = int((~made.converged).sum()), len(made)
    if not failed:
        return
    reasons = Counter(row.reason for row in rows if row.reason is not None)
    if not reasons:
        warn(f"{failed:,} of {n:,} {what} did not converge; their rows have converged=False")
        return
    reason = reasons.most_common(1)[0][0]
    if failed == n:
        raise EstimationError(f"none of the {failed:,} {what} could be fitted: {reason}")
    warn(
        f"{failed:,} of {n:,} {what} could not be fitted, and have converged=False; the most "
        f"frequent reason: {reason}"
    )


def continued_from(
    path: str | PathLike[str] | None,
    kind: str,
    fingerprint: dict[str, Any],
    seed: int,
    *,
    drawn: bool,
) -> Replicates | None:
    """Return the replicates of an existing file, or None.

    Parameters
    ----------
    path : of the file, or None
    kind, fingerprint, seed : of the requested replicates
    drawn : whether the seed was drawn from a generator; the seed of the file is then used

    Raises
    ------
    DataError
        If the path is invalid, or the file contains replicates of another kind, fit or seed.
    """
    if path is not None and not isinstance(path, (str, PathLike)):
        raise DataError(f"path must be the name of a file for the estimates, not {path!r}")
    if path is None or not Path(path).exists():
        return None
    known = Replicates.load(path)
    check_same(known, kind, fingerprint, path)
    if known.seed != seed and not drawn:
        raise DataError(
            f"{path} holds replicates from seed {known.seed}, and the seed here is {seed}; give "
            f"rng={known.seed} to continue them, or another path"
        )
    return known


def joined(known: Replicates, new: Replicates) -> Replicates:
    """Return the replicates of both sets, by number."""
    order = np.argsort(np.concatenate([known.numbers, new.numbers]), kind="stable")
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(known, name), getattr(new, name)])[order]
        for name in ("numbers", "values", "beta", "llf", "converged")
    }
    return replace(new, adjusted=None, **arrays)


Advice: TypeAlias = Callable[[int, int], str]
"""Returns the end of a message, from the number of fits that are not too long, and the seconds
that all take."""


def with_limit(few: int, seconds: int) -> str:
    """Return the advice where fits end at a time limit."""
    return (
        f"request at most n={few}, or pass time_limit={seconds}: those that are completed by then "
        "are kept"
    )


def with_number(few: int, seconds: int) -> str:
    """Return the advice where no fit may be missing."""
    return f"request at most n={few}"


def check_refits(seconds: float, n: int, advice: Advice, patience: float = PATIENCE) -> None:
    """Refuse data sets that would be fitted one by one for longer than expected.

    Parameters
    ----------
    seconds : of each, 0 if not known
    n : number of data sets
    advice : end of the message
    patience : expected seconds up to which all are fitted

    Raises
    ------
    EstimationError
        If more are expected.
    """
    few = max(int(patience / seconds), 1) if seconds else n
    if n > few:
        what = f"{n:,} fits of these data, one by one, take"
        check_seconds(n * seconds, what, advice(few, math.ceil(n * seconds)), patience)


def for_each_thread(first: Made, make: Callable[[], Made]) -> Callable[[], Made]:
    """Return a function that makes a value at each call, except for the first.

    Parameters
    ----------
    first : value of the first call
    make : makes the others
    """
    unused = iter([first])
    return lambda: next(unused, None) or make()
