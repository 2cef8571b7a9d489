"""Refits: point estimates of drawn data by the estimator of the original fit.

Where data sets have nested strata, or the terms but the largest have few effects, the likelihoods
of many data sets are maximised together, which takes a tenth of the time or less. Those with a
doubtful maximum are refitted alone: the maxima are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np

from vcomp._typing import BoolArray, FloatArray, IntArray
from vcomp.design import Chunk
from vcomp.estimators import (
    ClosedForm,
    Estimator,
    Negative,
    PointEstimate,
    Points,
    point_without_negative,
)
from vcomp.estimators.likelihood import (
    LikelihoodEngine,
    LikelihoodMethod,
    MatricesLikelihood,
    StackedEquations,
    StackedLikelihood,
    StackedStrata,
    VanishedResidualError,
    choose_engine,
    maximise,
    maximise_stack,
)
from vcomp.exceptions import EstimationError, VcompError
from vcomp.numerics import BatchedWork, seed_from
from vcomp.statistics import Stack, StackLayout, StackTables, Statistics, StratumStatistics

_CLEAR = 1e-10
"""Share of the total variance above which an estimate is positive, and no rounding error."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The estimator and options of a fit, with which it can be repeated.

    Attributes
    ----------
    estimator : with its options
    names : of the components, the residual last
    negative : policy for terms with negative estimates
    once : whether one climb from the components at which data are drawn is enough, as for the null
        distribution of a statistic, in which a lower maximum now and then counts for little
    prepared : what a closed form computed for these rows already, for one thread
    """

    estimator: Estimator
    names: tuple[str, ...]
    negative: Negative = "keep"
    once: bool = False
    prepared: Points | None = None


@dataclass(frozen=True, slots=True)
class Refitted:
    """The estimates of one replicate.

    Attributes
    ----------
    values : (k + 1,) components
    beta : (p,) fixed effects, of the columns of X as they are in the statistics
    llf : log-likelihood, nan for closed forms
    converged : whether the estimation converged; if not, values may be nan
    reason : why it failed, if known
    """

    values: FloatArray
    beta: FloatArray
    llf: float
    converged: bool = True
    reason: str | None = None

    @classmethod
    def failed(cls, n_components: int, n_fixed: int, reason: str | None = None) -> Refitted:
        """Return the value of a failed refit: nan everywhere."""
        values, beta = np.full(n_components, np.nan), np.full(n_fixed, np.nan)
        return cls(values, beta, np.nan, False, reason)


class Refit(Protocol):
    """An estimator for statistics that differ in their response only."""

    @property
    def seconds(self) -> float:
        """Expected time of a refit; 0 if not known."""

    def __call__(self, stats: Statistics) -> Refitted:
        """Return the estimate from statistics that differ in their response only."""


TOLERANCE = 1e-8
_TOLERANCE_OF_PROBES = 1e-4
"""Newton decrements at which refits end, far below the differences between replicates."""

_EVALUATIONS, _ITERATIVE_EVALUATIONS, _REFIT_SECONDS = 3, 8, 2e-3
"""Evaluations of a refit, fewer than it has, and by the iterative engine; seconds of what else any
refit does at least."""

_UNSEEN = 1e-6
"""Newton decrement that a last step may leave which is not evaluated."""


def engine_of_refits(
    stats: Statistics, options: LikelihoodMethod, names: tuple[str, ...]
) -> LikelihoodEngine:
    """Return the engine of many fits by some options; each worker needs its own."""
    # A generator has advanced since the fit, and would give each worker different probes.
    moved_on = isinstance(options.rng, np.random.Generator)
    return choose_engine(
        stats,
        options.engine,
        reml=options.is_restricted,
        names=names[:-1],
        n_probes=options.n_probes,
        seed=0 if moved_on else seed_from(options.rng),
        repeated=True,
    )


def seconds_of_refit(engine: LikelihoodEngine, evaluations: int = _EVALUATIONS) -> float:
    """Return the expected time of a refit from that of an evaluation.

    Parameters
    ----------
    engine : of the fit
    evaluations : of a refit by an exact engine
    """
    several = evaluations if engine.exact_value else _ITERATIVE_EVALUATIONS
    return _REFIT_SECONDS + several * engine.seconds


class ByLikelihood:
    """REML or ML, started at the generating components.

    The blocked engine is ordered and analysed once for all refits of a worker.

    Parameters
    ----------
    stats : of the data
    options : of the method
    names : of the components
    start : (k + 1,) start of the iterations; held components come from the options
    once : as in :class:`Recipe`
    """

    def __init__(
        self,
        stats: Statistics,
        options: LikelihoodMethod,
        names: tuple[str, ...],
        start: FloatArray,
        *,
        once: bool = False,
    ) -> None:
        known = options.known(names)
        self._stats, self._options, self._names, self._held = stats, options, names, known.held
        self._once = once
        self._start = np.where(known.held, known.values, start)
        self._sizes = np.array([*stats.sizes, stats.n], dtype=float)
        self._engine: LikelihoodEngine | None = None
        self._is_balanced = (
            options.is_restricted and not known.held.any() and _is_balanced(stats.strata)
        )

    @property
    def seconds(self) -> float:
        """Expected time of a refit; 0 if not known."""
        try:
            engine = self._engine_of(self._stats)
        except (EstimationError, np.linalg.LinAlgError):  # every refit has it
            return 0.0
        return seconds_of_refit(engine) if engine.seconds else 0.0

    def __call__(self, stats: Statistics) -> Refitted:
        """Return the maximum of the likelihood."""
        engine = self._engine_of(stats)
        tol, unseen = self._options.tol, 0.0
        if tol is None:
            tol = TOLERANCE if engine.exact_value else _TOLERANCE_OF_PROBES
            unseen = _UNSEEN if engine.exact_value else 0.0
        try:
            found = maximise(
                engine,
                self._start_for(engine),
                self._sizes,
                held=self._held,
                max_iter=int(self._options.max_iter),
                tol=tol,
                once=self._once,
                unseen=unseen,
            )
            beta, _ = engine.fixed_effects(found.v)
            llf = found.loglike if engine.exact_value else engine.loglike(found.v)
        except np.linalg.LinAlgError:
            return Refitted.failed(self._start.size, stats.Xy.size)
        return Refitted(found.v, beta, llf, found.converged and not found.saturated)

    def _start_for(self, engine: LikelihoodEngine) -> FloatArray:
        """Return the start: in balanced data the estimates by mean squares, if all are positive.

        They are the maximum.
        """
        if self._is_balanced:
            estimates = engine.mivque0()
            if (estimates > _CLEAR * estimates.sum()).all():
                return estimates
        return self._start

    def _engine_of(self, stats: Statistics) -> LikelihoodEngine:
        if self._engine is not None:
            self._engine = self._engine.with_response(stats)
            return self._engine
        engine = engine_of_refits(stats, self._options, self._names)
        self._engine = engine.prepared(self._start)
        return self._engine


def _is_balanced(strata: StratumStatistics | None) -> bool:
    """Whether the groups of each grouping are equal, so that mean squares say all."""
    return strata is not None and all(np.ptp(n) == 0.0 for n in strata.remainder.tables.group_n)


class OfMatrices:
    """REML or ML of models of covariance matrices, started at the generating components.

    Parameters
    ----------
    stats : of the data
    options : of the method
    start : components to start from
    """

    seconds = 0.0

    def __init__(self, stats: Statistics, options: LikelihoodMethod, start: FloatArray) -> None:
        self._likelihood = MatricesLikelihood(stats, reml=options.is_restricted)
        self._options, self._start = options, start

    def __call__(self, stats: Statistics) -> Refitted:
        """Return the maximum of the likelihood."""
        likelihood = self._likelihood.with_response(stats)
        try:
            likelihood, end = likelihood.maximum(
                likelihood.matrices_of(self._start), int(self._options.max_iter), TOLERANCE
            )
            beta, _ = likelihood.fixed_effects(end.S)
        except VanishedResidualError as error:
            return Refitted.failed(self._start.size, stats.Xy.size, str(error))
        except np.linalg.LinAlgError:
            return Refitted.failed(self._start.size, stats.Xy.size)
        return Refitted(likelihood.components(end.S), beta, end.loglike, end.converged)


class InClosedForm:
    """Refits by the analyses of variance and MINQUE.

    What does not depend on the response is computed for the first of them.

    Parameters
    ----------
    recipe : the estimator, and the policy for negative estimates
    """

    seconds = 0.0

    def __init__(self, recipe: Recipe) -> None:
        self._estimator, self._names = cast(ClosedForm, recipe.estimator), recipe.names
        self._drops = recipe.negative == "refit"
        self._prepared = recipe.prepared

    def __call__(self, stats: Statistics) -> Refitted:
        """Return the estimate under the policy for negative estimates."""
        if self._drops:
            found = point_without_negative(self._estimator.prepared, stats, self._names)
        else:
            (found,) = self._points([stats])
        return Refitted(found.values, found.beta, np.nan, found.converged)

    def _points(self, drawn: Sequence[Statistics]) -> list[PointEstimate]:
        if self._prepared is None:
            self._prepared = self._estimator.prepared(drawn[0], self._names)
        return self._prepared(drawn)

    def with_responses(self, drawn: Sequence[Statistics]) -> list[Refitted | None]:
        """Return the estimates of responses of the same rows; None where one is refitted alone."""
        try:
            points = self._points(drawn)
        except (VcompError, np.linalg.LinAlgError):
            return [None] * len(drawn)
        return [
            None
            if self._drops and (found.values[:-1] < 0.0).any()
            else Refitted(found.values, found.beta, np.nan, found.converged)
            for found in points
        ]


def refit_of(stats: Statistics, recipe: Recipe, start: FloatArray) -> Refit:
    """Return the refit of a recipe; each worker needs its own.

    Parameters
    ----------
    stats : of the data
    recipe : the estimator and its options
    start : (k + 1,) components at which data are drawn

    Raises
    ------
    EstimationError
        If the method is REML or ML and the residual is zero.
    """
    options = recipe.estimator
    if not isinstance(options, LikelihoodMethod):
        return InClosedForm(recipe)
    if not start[-1] > 0.0:
        raise EstimationError(
            f"the residual is estimated at zero, where refits by {options.name!r} cannot start"
        )
    if stats.blocks is not None:
        return OfMatrices(stats, options, start)
    return ByLikelihood(stats, options, recipe.names, start, once=recipe.once)


# Many data sets at once -----------------------------------------------------------------------

_WIDEST, _MOST_SUMS, _MOST_COUNTS = 200, 4_000_000, 64
"""Columns of W, sums of all groups, and different numbers of rows of groups, up to which many data
sets are faster together."""

_SECONDS = 2e-7
"""Time of a refit, divided by the square of the number of columns of W."""

_STEPS = 50
"""Requested largest number of steps from which the fewer ones of a stack are as good."""

_BYTES, _MOST, _WORKING = 24e6, 256, 20.0
"""Memory of a stack, data sets in it, and matrices that its likelihood works with."""


@dataclass(frozen=True, slots=True, eq=False)
class _Climbs:
    """How the likelihoods of a stack are maximised.

    Attributes
    ----------
    start, held : (k + 1,) first components, and whether a component keeps it
    reml : whether the likelihoods are the restricted ones
    once : as in :class:`Recipe`
    by_any_engine : whether no engine was requested
    """

    start: FloatArray
    held: BoolArray
    reml: bool
    once: bool
    by_any_engine: bool

    @classmethod
    def of(cls, recipe: Recipe, start: FloatArray) -> _Climbs | None:
        """Return those of a recipe; None if its refits are no such climbs."""
        options = recipe.estimator
        if not isinstance(options, LikelihoodMethod) or not start[-1] > 0.0:
            return None
        if options.max_iter < _STEPS or (options.tol is not None and options.tol < TOLERANCE):
            return None
        known = options.known(recipe.names)
        first = np.where(known.held, known.values, start)
        is_auto = options.engine == "auto"
        return cls(first, known.held, options.is_restricted, recipe.once, is_auto)

    def maxima(self, sums: StackedEquations | StackedStrata) -> list[Refitted | None]:
        """Return the maxima; None where one is not certain."""
        try:
            likelihoods = StackedLikelihood(sums, reml=self.reml)
            ends = maximise_stack(likelihoods, self.start, self.held, once=self.once)
        except np.linalg.LinAlgError:  # equations of one of them are singular
            return [None] * len(sums)
        rows = zip(ends.found, ends.v, ends.loglike, ends.beta, strict=True)
        return [Refitted(v, b, float(value)) if found else None for found, v, value, b in rows]


class StrataRefits:
    """Refits by REML or ML of data sets with nested strata.

    Parameters
    ----------
    strata : of the data
    climbs : of the likelihoods
    """

    def __init__(self, strata: StratumStatistics, climbs: _Climbs) -> None:
        self._climbs = climbs
        means = [stratum.columns.means[0] for stratum in strata.strata]
        self._values = float(sum(m.size + m.shape[0] * climbs.start.size for m in means))

    @classmethod
    def of(cls, stats: Statistics, recipe: Recipe, start: FloatArray) -> StrataRefits | None:
        """Return the refits of data like these; None if they have no nested strata.

        Parameters
        ----------
        stats : of the data
        recipe : the estimator and its options
        start : (k + 1,) components at which iterations start
        """
        climbs, strata = _Climbs.of(recipe, start), stats.strata
        if climbs is None or strata is None or strata.remainder.parents is None:
            return None
        return cls(strata, climbs)

    @property
    def most(self) -> int:
        """Number of data sets that are refitted at once."""
        return int(np.clip(_BYTES / 8.0 / self._values, 1, _MOST))

    def with_responses(self, drawn: Sequence[Statistics]) -> list[Refitted | None]:
        """Return the estimates from statistics with the same strata."""
        strata = [stats.strata for stats in drawn if stats.strata is not None]
        return self._climbs.maxima(StackedStrata(strata))

    def of_samples(self, samples: Sequence[Statistics]) -> list[Refitted | None]:
        """Return the estimates from samples; None where one is better refitted alone."""
        found: list[Refitted | None] = [None] * len(samples)
        alike: dict[tuple[object, ...], list[int]] = {}
        for place, stats in enumerate(samples):
            strata = stats.strata
            if strata is not None and strata.remainder.parents is not None:
                kinds = [
                    (s.fixed, s.multiplicity, s.coefficients.tobytes()) for s in strata.strata
                ]
                alike.setdefault((strata.remainder.n_groupings, *kinds), []).append(place)
        for places in alike.values():
            made = self.with_responses([samples[place] for place in places])
            for place, one in zip(places, made, strict=True):
                found[place] = one
        return found


class StackedRefits:
    """Refits by REML or ML of data sets that are made of rows of one data set.

    Parameters
    ----------
    chunk : its rows, with the terms of the model
    climbs : of the likelihoods
    """

    def __init__(self, chunk: Chunk, climbs: _Climbs) -> None:
        self._chunk, self._climbs = chunk, climbs
        self.layout = StackLayout.of(chunk.sizes, chunk.X.shape[1])
        self._columns = np.vstack([chunk.X.T, chunk.y])
        self._scale = np.sqrt(np.square(self._columns[:-1]).mean(axis=1))
        self.tables = StackTables.of(self.layout, chunk.codes, self._columns, chunk.weights)

    @classmethod
    def of(cls, stats: Statistics, recipe: Recipe, start: FloatArray) -> StackedRefits | None:
        """Return the refits of parts of the rows; None if they are better refitted one by one.

        Parameters
        ----------
        stats : of all rows
        recipe : the estimator and its options
        start : (k + 1,) components at which iterations start
        """
        climbs = _Climbs.of(recipe, start)
        # Orthogonal strata and slopes have engines of their own.
        own = stats.strata is not None or stats.blocks is not None
        usual = climbs is not None and climbs.by_any_engine and not own
        if climbs is None or not usual or stats.make_cells is None:
            return None
        chunk = stats.cells
        if chunk.counts is not None or not chunk.terms:
            return None
        layout = StackLayout.of(chunk.sizes, chunk.X.shape[1])
        sums = float(layout.width) * layout.sizes[layout.lead]
        if layout.width > _WIDEST or sums > _MOST_SUMS:
            return None
        numbers = np.unique(np.bincount(chunk.codes[layout.lead], chunk.weights))
        return None if numbers.size > _MOST_COUNTS else cls(chunk, climbs)

    @property
    def most(self) -> int:
        """Number of data sets that are refitted at once, each with its own rows."""
        n_counts = np.unique(self.tables.lead_n).size
        rows = (self._climbs.start.size + 2.0) * self.tables.n
        return self._most(n_counts * self.layout.width**2 + 2.0 * self.tables.lead.size + rows)

    @property
    def seconds(self) -> float:
        """Expected time of a refit, from measured ones."""
        return _SECONDS * self.layout.width**2

    @property
    def most_responses(self) -> int:
        """Number of responses of the same rows that are refitted at once."""
        return self._most(self.layout.sizes[self.layout.lead] + 3.0 * self.tables.n)

    def _most(self, numbers: float) -> int:
        working = _WORKING * self.layout.width**2
        return int(np.clip(_BYTES / (8.0 * (working + numbers)), 1, _MOST))

    def of_rows(self, rows: np.ndarray) -> StackTables:
        """Return the sums of some rows."""
        codes = [code[rows] for code in self._chunk.codes]
        return StackTables.of(self.layout, codes, self._columns[:, rows])

    def of_samples(
        self, samples: Sequence[tuple[np.ndarray, Sequence[IntArray]]]
    ) -> list[StackTables]:
        """Return the sums of samples: the positions of their rows, and their groups in each term.

        All of them have the shape of the largest.
        """
        sizes = np.array([[int(c.max()) + 1 for c in codes] for _, codes in samples])
        layout = self.layout.resized(sizes.max(axis=0).tolist())
        return [StackTables.of(layout, codes, self._columns[:, rows]) for rows, codes in samples]

    def refit(self, tables: Sequence[StackTables]) -> list[Refitted | None]:
        """Return the estimates from sums of rows; None where one is better refitted alone."""
        return self._maximised(Stack.of(tables, self._scale))

    def with_responses(self, drawn: Sequence[Statistics]) -> list[Refitted | None]:
        """Return the estimates from statistics of all rows with other responses."""
        stack = Stack.of([self.tables], self._scale)
        sums = [stats.cross_products for stats in drawn]
        lead = self.layout.lead
        rest = [np.concatenate([*(s.Zy[t] for t in self.layout.places), s.Xy]) for s in sums]
        return self._maximised(
            stack.with_responses(
                self.tables,
                np.array(rest),
                np.array([s.Zy[lead] for s in sums]),
                np.array([s.yy for s in sums]),
            )
        )

    def _maximised(self, stack: Stack) -> list[Refitted | None]:
        found = self._climbs.maxima(StackedEquations(stack))
        logs = 0.5 * self._chunk.log_weights
        return [made and replace(made, llf=made.llf + logs) for made in found]

    def together(
        self,
        tables: Callable[[Sequence[int]], Mapping[int, StackTables]],
        alone: Callable[[int], Refitted],
    ) -> BatchedWork[Refitted]:
        """Return the work of a thread that refits the data sets of several numbers at once.

        Parameters
        ----------
        tables : returns the sums of data sets by number, without those that cannot be made
        alone : refits a data set, where the stack does not; it has the reasons of failures
        """

        def work(numbers: Sequence[int]) -> list[Refitted]:
            made = tables(numbers)
            found = dict(zip(made, self.refit(list(made.values())), strict=True)) if made else {}
            return [found.get(number) or alone(number) for number in numbers]

        return BatchedWork(work, self.most)
