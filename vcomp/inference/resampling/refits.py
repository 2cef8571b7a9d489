"""Refits: point estimates of drawn data by the estimator of the original fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from vcomp._typing import FloatArray
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
    OtherStarts,
    Place,
    choose_engine,
    maximise,
)
from vcomp.exceptions import EstimationError, VcompError
from vcomp.inference.kernels.nested_strata import NOTHING, Strata, Tree, climb_nested
from vcomp.numerics import seed_from
from vcomp.numerics.kernels import is_at_hand
from vcomp.statistics import Statistics, StratumStatistics

_WORTH_COMPILING = 30_000
"""Refits, times forms of each, that take about as long in Python as compiling the kernel.

The forms are those of every component and level of groups in every stratum.
"""

_FORM_SECONDS, _CLIMB = 1.5e-4, 3.0
"""Time of such a form in Python by REML in balanced data, where a refit starts at its end, and how
many times as long a climb takes."""

_CLEAR = 1e-10
"""Share of the total variance above which an estimate is positive, and no rounding error."""

_UNKNOWN = np.zeros(0), np.zeros(0)
"""No maximum to which a climb could lead."""


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

    def __call__(self, stats: Statistics) -> Refitted:
        """Return the estimate from statistics that differ in their response only."""


TOLERANCE = 1e-8
_TOLERANCE_OF_PROBES = 1e-4
"""Newton decrements at which refits end, far below the differences between replicates."""

_UNSEEN = 1e-6
"""Newton decrement that a last step may leave which is not evaluated."""


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
        self._options, self._names, self._held = options, names, known.held
        self._once = once
        self._start = np.where(known.held, known.values, start)
        # A generator has advanced since the fit, and would give each worker different probes.
        moved_on = isinstance(options.rng, np.random.Generator)
        self._seed = 0 if moved_on else seed_from(options.rng)
        self._sizes = np.array([*stats.sizes, stats.n], dtype=float)
        self._engine: LikelihoodEngine | None = None
        self._is_balanced = (
            options.is_restricted and not known.held.any() and _is_balanced(stats.strata)
        )

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
        engine = choose_engine(
            stats,
            self._options.engine,
            reml=self._options.is_restricted,
            names=self._names[:-1],
            n_probes=self._options.n_probes,
            seed=self._seed,
            repeated=True,
        )
        self._engine = engine.prepared(self._start)
        return self._engine


def _is_balanced(strata: StratumStatistics | None) -> bool:
    """Whether the groups of each grouping are equal, so that mean squares say all."""
    return strata is not None and all(np.ptp(n) == 0.0 for n in strata.remainder.tables.group_n)


class Packed:
    """The strata of a design as plain arrays for the compiled kernel.

    Parameters
    ----------
    stats : strata with a nested remainder
    """

    def __init__(self, stats: StratumStatistics) -> None:
        parents, strata = stats.remainder.parents, stats.strata
        assert parents is not None
        sizes = [1, *(p.size for p in parents)]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        above = [p + first for p, first in zip(parents, offsets, strict=False)]
        parent = np.concatenate([[-1], *above]).astype(np.int64)
        self.tree: Tree = (stats.remainder.tables.group_n[-1], parent, offsets)
        self.coefficients = np.array([s.coefficients for s in strata])
        self.multiplicity = np.array([s.multiplicity for s in strata], dtype=float)
        self.n_columns = np.array([1 + len(s.fixed) for s in strata], dtype=np.int64)
        self.n_fixed = stats.n_fixed
        self.places = np.zeros((len(strata), 1 + self.n_fixed), dtype=np.int64)
        for s, stratum in enumerate(strata):
            self.places[s, 1 : 1 + len(stratum.fixed)] = [1 + j for j in stratum.fixed]

    def has_one_maximum(self) -> bool:
        """Whether any restricted likelihood of this design has one maximum, if no term is held.

        In a complete table without replicates, whose mean is its only fixed effect, the likelihood
        is concave in the inverse expected mean squares. If each component is one mean square, or
        a difference of two, then its bound at zero is linear in these inverses.
        """
        only_mean = self.n_fixed == 1 and self.n_columns[0] == 2 and self.multiplicity[0] == 1.0
        if not (only_mean and self.tree[0].tolist() == [1.0]):
            return False
        expected = np.unique(self.coefficients[1:].sum(axis=1), axis=0)
        k1 = expected.shape[1]
        if expected.shape[0] != k1 or np.linalg.matrix_rank(expected) < k1:
            return False
        solved = np.linalg.inv(expected)
        solved /= np.abs(solved).max(axis=1, keepdims=True)
        plus, minus = np.abs(solved - 1.0) < 1e-9, np.abs(solved + 1.0) < 1e-9
        zero = np.abs(solved) < 1e-9
        # As all of them have the residual once, one is added and at most one is subtracted.
        return bool((plus | minus | zero).all() and (plus.sum(axis=1) == 1).all())

    def filled(self, stats: StratumStatistics) -> Strata:
        """Return the arrays of strata with a response, as arguments of the kernel."""
        tables = [s.columns.means[0].ravel() for s in stats.strata]
        starts = np.concatenate([[0], np.cumsum([t.size for t in tables])]).astype(np.int64)
        within = np.zeros((len(tables), 1 + self.n_fixed, 1 + self.n_fixed))
        for s, stratum in enumerate(stats.strata):
            b = self.n_columns[s]
            within[s, :b, :b] = stratum.columns.within
        return (
            np.concatenate(tables),
            starts,
            within,
            self.coefficients,
            self.multiplicity,
            self.places,
            self.n_columns,
        )


class Compiled(ByLikelihood):
    """REML or ML of nested strata by the compiled kernel, started at the generating components.

    Parameters
    ----------
    stats : of the data, with nested strata
    options, names, start, once : as for :class:`ByLikelihood`
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
        super().__init__(stats, options, names, start, once=once)
        assert stats.strata is not None
        self._packed = Packed(stats.strata)
        certain = options.is_restricted and not self._held.any()
        self._once = once or (certain and self._packed.has_one_maximum())
        self._others = OtherStarts(self._held, self._sizes, stats.Xy.size)

    def __call__(self, stats: Statistics) -> Refitted:
        """Return the maximum; by the engine in Python if the kernel does not find it."""
        found = self.by_kernel(stats)
        return super().__call__(stats) if found is None else found

    def by_kernel(self, stats: Statistics) -> Refitted | None:
        """Return the maximum that the kernel finds; None if it finds none."""
        assert stats.strata is not None
        packed, options, start = self._packed, self._options, self._start
        # Whether a likelihood is unbounded next to a residual of zero, Python finds out.
        unbounded = self._others.is_crowded and not self._once
        if unbounded or start[-1] <= NOTHING * start.max():
            return None
        tol = TOLERANCE if options.tol is None else float(options.tol)
        rule = self._held, tol, int(options.max_iter)
        strata = packed.filled(stats.strata)
        likelihood = packed.tree, strata, packed.n_fixed, options.is_restricted
        ended, v, found = climb_nested(start, rule, likelihood, _UNKNOWN)
        if ended != 1:
            return None
        first, average, best = v, found[3], found
        for shares in self._elsewhere(v, average, found[4]):
            begin = np.where(self._held, first, first.sum() * shares)
            known = first, np.sqrt(np.maximum(np.diagonal(average), 0.0))
            ended, there, found = climb_nested(begin, rule, likelihood, known)
            if ended >= 0 and Place.is_higher(found[1], best[1]):
                if ended == 0:  # Python finds out what it is
                    return None
                v, best = there, found
        return Refitted(v, best[5], best[1])

    def _elsewhere(self, v: FloatArray, average: FloatArray, observed: FloatArray) -> FloatArray:
        """Return shares of the total at other starts, if the first climb leaves a doubt."""
        if not self._once:
            doubtful = self._others.doubtful(v, average, lambda: observed)
            if doubtful.any():
                return self._others.elsewhere(v, doubtful)
        return np.zeros((0, v.size))


class InClosedForm:
    """Refits by the analyses of variance and MINQUE.

    What does not depend on the response is computed for the first of them.

    Parameters
    ----------
    recipe : the estimator, and the policy for negative estimates
    """

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


def refit_of(stats: Statistics, recipe: Recipe, start: FloatArray, n: int = 1) -> Refit:
    """Return the refit of a recipe; each worker needs its own.

    Few refits do not wait for the compilation of the kernel, whose estimates are those of the
    engine in Python up to rounding.

    Parameters
    ----------
    stats : of the data
    recipe : the estimator and its options
    start : (k + 1,) components at which data are drawn
    n : number of refits that are to come

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
    made: type[ByLikelihood] = ByLikelihood
    strata = stats.strata
    if strata is not None and strata.remainder.parents is not None:
        forms = len(strata.strata) * start.size * strata.remainder.n_groupings
        at_end = options.is_restricted and _is_balanced(strata)
        seconds = n * forms * _FORM_SECONDS * (1.0 if at_end else _CLIMB)
        if n * forms >= _WORTH_COMPILING or is_at_hand(climb_nested, seconds):
            made = Compiled
    return made(stats, options, recipe.names, start, once=recipe.once)
