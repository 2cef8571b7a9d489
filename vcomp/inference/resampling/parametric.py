"""The parametric bootstrap: data are drawn at the estimates and estimated again.

If nested orthogonal strata are sufficient for the estimator, their statistics are drawn, and the
cost of a replicate does not depend on the number of rows (docs/explanation/mathematics.md, eq.
(10.11)); otherwise responses are drawn for all rows and summed. Data are drawn without fixed
effects, which are added to the estimates: components and likelihoods do not depend on them.

Many refits of nested data follow from likelihoods at a few points. At given ratios of the
components a group of rows enters all groups above it by one weight, so that the forms of all drawn
responses are products of matrices (docs/explanation/mathematics.md, section 7.4). A component may
be zero, as in the null distribution of a test: the box ends at this bound.

References
----------
Efron and Tibshirani (1993), An Introduction to the Bootstrap, sec. 6.5; Davison and Hinkley
(1997), Bootstrap Methods and their Application, sec. 2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TypeVar

import numpy as np

from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.estimators.likelihood import (
    InformationKind,
    LikelihoodMethod,
    NodeValues,
    choose_engine,
    surface_maxima,
)
from vcomp.exceptions import VcompError
from vcomp.inference.resampling.collection import (
    Advice,
    GeneratingFit,
    Work,
    check_refits,
    collect,
    for_each_thread,
    with_limit,
)
from vcomp.inference.resampling.draws import Draws, Responses, RowDraws, draws_of
from vcomp.inference.resampling.refits import (
    TOLERANCE,
    InClosedForm,
    Recipe,
    Refitted,
    StackedRefits,
    StrataRefits,
    refit_of,
)
from vcomp.inference.resampling.replicates import Replicates
from vcomp.inference.resampling.surfaces import DrawnSurface
from vcomp.numerics import (
    PATIENCE,
    BatchedWork,
    check_count,
    check_rng,
    check_time_limit,
    run,
    seed_from,
    stream,
)
from vcomp.statistics import Statistics, StratumStatistics

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
    patience: float = PATIENCE,
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
    patience : expected seconds up to which data sets are fitted one by one without `time_limit`

    Raises
    ------
    EstimationError
        If an option is invalid, no component is positive, or more time is expected than that.
    DataError
        If the file is not one of replicates, or of another fit or seed.
    """
    n, workers = check_count(n, "n"), check_count(workers, "workers")
    check_time_limit(time_limit)
    check_rng(rng)
    v = fit.positive_part()

    limited = time_limit is not None

    def begin(seed: int) -> Callable[[], Work]:
        drawn = draws_of(fit.stats, fit.recipe) if draws is None else draws

        def refits() -> _OfDraws:
            return _of_draws(fit.stats, drawn, fit.recipe, v, n, limited=limited)

        first = refits()
        if not limited:
            check_refits(first.seconds / workers, n, with_limit, patience)
        refits_of_thread = for_each_thread(first, refits)
        return lambda: _replicates(fit, drawn, refits_of_thread(), v, seed)

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
    advice: Advice = with_limit,
    patience: float = PATIENCE,
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
    advice, patience : as for :func:`check_refits`, without `time_limit`

    Raises
    ------
    EstimationError
        If the fits are expected to take longer than that.
    """
    seed, limited = seed_from(rng), time_limit is not None
    sources = [draws_of(stats, recipe) for recipe in recipes]
    # Statistics of rows serve all estimators; strata that are drawn directly serve some.
    draws = next((source for source in sources if isinstance(source, RowDraws)), sources[0])

    def works_of() -> list[_OfDraws]:
        return [_of_draws(stats, draws, recipe, v, n, limited=limited) for recipe in recipes]

    first = works_of()
    if not limited:
        check_refits(sum(work.seconds for work in first) / workers, n, advice, patience)
    works_of_thread = for_each_thread(first, works_of)

    def make() -> Callable[[int], list[Refitted]] | BatchedWork[list[Refitted]]:
        works = works_of_thread()
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
    seconds : expected time of a data set that is fitted alone; 0 if not known, or if several are
        fitted together
    """

    work: Callable[[Responses], list[Refitted]]
    most: int
    seconds: float = 0.0


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
    elif stats.blocks is not None:
        several = None
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

    return _OfDraws(work, most, refit.seconds if several is None else 0.0)


def _replicates(
    fit: GeneratingFit, draws: Draws, refits: _OfDraws, v: FloatArray, seed: int
) -> Work:
    def several(numbers: Sequence[int]) -> list[Refitted]:
        drawn = Responses(draws.draw(v, stream(seed, b)) for b in numbers)
        # Data are drawn without fixed effects; those of the fit are added to the estimates.
        return [replace(made, beta=fit.beta + made.beta) for made in refits.work(drawn)]

    return _at_once(several, refits.most)


def _at_once(
    several: Callable[[Sequence[int]], list[Row]], most: int
) -> Callable[[int], Row] | BatchedWork[Row]:
    return BatchedWork(several, most) if most > 1 else lambda number: several([number])[0]


# Nested data from a few points --------------------------------------------------------------

_FEWEST_GROUPS, _MOST_TERMS = 100, 3
"""Innermost groups from which, and terms up to which, this is faster than refits one by one."""

_SPREAD, _WIDEST, _CERTAIN = 4.5, 1.5, 6.0
"""Half the width of a box in standard errors and its largest value; components in standard errors
from which no other maximum is looked for."""

_STEEPEST = 1e5
"""Variance of the mean of a group relative to that of a row's residual up to which digits of
squares do not cancel."""

_TOLERANCE, _TOLERANCE_AT_ONCE = 1e-6, 1e-4
"""Largest errors of maxima in standard errors; a likelihood ratio errs by the latter's square."""

_BYTES, _MOST = 1e8, 500
"""Memory and number of responses at once; memory of those whose innermost groups are absorbed."""


@dataclass(frozen=True, slots=True, eq=False)
class _Box:
    """Where maxima are expected: (k,) of each of the free terms, the innermost first."""

    centre: FloatArray
    width: FloatArray
    shift: FloatArray
    bounded: BoolArray

    def n_nodes(self, rows: int) -> int:
        """Return the number of points in each direction for eight digits of a row's share.

        With the shift by the largest precision of a group the singularities are at ±iπ.
        """
        far = np.pi / self.width.max()
        rate = far + np.sqrt(far**2 + 1.0)
        return max(5, int(np.ceil(np.log(1e8 * rows) / np.log(rate))))


class NestedSurface:
    """Refits of responses that are drawn for the same nested groups.

    Parameters
    ----------
    stats : one stratum, whose groupings are nested
    terms : positions of the free terms, the innermost first
    groupings : of these terms
    box : where maxima are expected
    reml : whether the likelihoods are the restricted ones
    tolerance : largest error of a maximum in standard errors
    """

    def __init__(
        self,
        stats: StratumStatistics,
        terms: Sequence[int],
        groupings: Sequence[int],
        box: _Box,
        *,
        reml: bool,
        tolerance: float,
    ) -> None:
        self._terms, self._groupings, self._box = terms, groupings, box
        self._reml, self._tolerance = reml, tolerance
        self._n_terms, self._rows = stats.n_terms, stats.n
        self._n = stats.remainder.tables.group_n[-1]
        self._parents: tuple[IntArray, ...] = stats.remainder.parents or ()
        columns = stats.strata[0].columns
        self._X, self._within = columns.means[0][:, 1:, 0], columns.within[1:, 1:]

    @classmethod
    def of(cls, data: Statistics, recipe: Recipe, v: FloatArray, n: int) -> NestedSurface | None:
        """Return the refits; None where `n` of them one by one are as fast, or needed.

        Parameters
        ----------
        data : whose groups are kept
        recipe : REML or ML
        v : (k + 1,) components at which responses are drawn
        n : number of responses
        """
        stats, options = data.strata, recipe.estimator
        if stats is None or not isinstance(options, LikelihoodMethod):
            return None
        usual = options.engine == "auto" and (options.tol is None or options.tol >= TOLERANCE)
        known = options.known(recipe.names)
        free = np.flatnonzero(~known.held[:-1])
        groupings = _groupings_of(stats)
        enough = stats.remainder.tables.group_n[-1].size >= _FEWEST_GROUPS
        if not (usual and enough) or groupings is None or not 0 < free.size <= _MOST_TERMS:
            return None
        if known.held[-1] or (known.values[:-1][known.held[:-1]] != 0.0).any():
            return None
        order = sorted(free.tolist(), key=lambda t: -groupings[t])
        box = _box(stats, v, order, groupings, certain=not recipe.once)
        if box is None or box.n_nodes(stats.n) ** len(order) > n:
            return None
        used = [groupings[t] for t in order]
        tolerance = _TOLERANCE_AT_ONCE if recipe.once else _TOLERANCE
        return cls(stats, order, used, box, reml=options.is_restricted, tolerance=tolerance)

    @property
    def most(self) -> int:
        """Number of responses that are refitted at once."""
        return int(np.clip(_BYTES / (24.0 * self._n.size), 1, _MOST))

    def with_responses(self, drawn: Responses) -> list[Refitted | None]:
        """Return the estimates of drawn statistics; None where a maximum is not certain."""
        forms = drawn.shared("nested forms", lambda: _Forms(self, drawn))
        degrees = np.full(len(drawn), float(self._rows - self._X.shape[1] * self._reml))
        box = self._box
        try:
            found = surface_maxima(
                lambda ratios: self._values(forms, ratios),
                box.centre,
                box.width,
                degrees,
                n_nodes=box.n_nodes(self._rows),
                tolerance=self._tolerance,
                shift=box.shift,
                bounded=box.bounded,
            )
        except np.linalg.LinAlgError:  # a corner of the box has no likelihood
            return [None] * len(drawn)
        v = np.zeros((len(drawn), self._n_terms + 1))
        v[:, self._terms] = found.ratios
        v[:, -1] = 1.0
        v *= found.residual[:, None]
        return [
            Refitted(v[b], found.beta[b], float(found.loglike[b])) if there else None
            for b, there in enumerate(found.found)
        ]

    def _values(self, forms: _Forms, ratios: FloatArray) -> NodeValues:
        """Return the values of all responses at the ratios of the free terms."""
        level = forms.at(dict(zip(self._groupings, ratios.tolist(), strict=True)))
        log_dets, p = np.full(level.yy.size, level.log_det), level.XX.shape[0]
        if p == 0:
            return NodeValues(level.yy, log_dets, np.zeros((level.yy.size, 0)))
        beta = np.linalg.solve(level.XX, level.Xy)
        if self._reml:
            log_dets += float(np.linalg.slogdet(level.XX)[1])
        rss = level.yy - (level.Xy * beta).sum(axis=0)
        return NodeValues(rss, log_dets, np.asarray(beta.T, dtype=float))


@dataclass(frozen=True, slots=True, eq=False)
class _GroupingLevel:
    """Likelihood at groups of one grouping, all finer groupings absorbed.

    Attributes
    ----------
    W, S : (q,) precisions and (q, B + p) weighted sums of y and X
    yy, Xy, XX, log_det : what is known of y'V⁻¹y, X'V⁻¹y and X'V⁻¹X, and of log|V|
    """

    W: FloatArray
    S: FloatArray
    yy: FloatArray
    Xy: FloatArray
    XX: FloatArray
    log_det: float


class _Forms:
    """The forms of B responses; the innermost groups are absorbed once for a ratio of theirs.

    Parameters
    ----------
    surface : of the groups; any surface of the same statistics has the same forms
    drawn : the responses
    """

    def __init__(self, surface: NestedSurface, drawn: Sequence[Statistics]) -> None:
        n, X, self._parents = surface._n, surface._X, surface._parents
        columns = [one.strata.strata[0].columns for one in drawn if one.strata is not None]
        sums = np.empty((n.size, len(columns)))
        for b, own in enumerate(columns):
            np.multiply(own.means[0][:, 0, 0], n, out=sums[:, b])
        within = np.array([c.within[0] for c in columns]).T
        self._B = len(columns)
        self._squares = np.square(sums)
        self._inner = len(self._parents)
        self._start = _GroupingLevel(
            W=n,
            S=np.concatenate([sums, n[:, None] * X], axis=1),
            yy=within[0] + (1.0 / n) @ self._squares,
            Xy=within[1:] + X.T @ sums,
            XX=surface._within + (X * n[:, None]).T @ X,
            log_det=0.0,
        )
        self._absorbed: dict[float, _GroupingLevel] = {}

    def at(self, ratios: Mapping[int, float]) -> _GroupingLevel:
        """Return the sums with all groupings absorbed, at ratios by grouping."""
        first = ratios.get(self._inner, 0.0)
        if first not in self._absorbed:
            level = self._without_groups(self._start, self._inner, first)
            if (len(self._absorbed) + 1.0) * level.S.nbytes > _BYTES:
                self._absorbed.clear()
            self._absorbed[first] = level
        level = self._absorbed[first]
        for grouping in range(self._inner - 1, -1, -1):
            level = self._without_groups(level, grouping, ratios.get(grouping, 0.0))
        return level

    def _without_groups(
        self, level: _GroupingLevel, grouping: int, ratio: float
    ) -> _GroupingLevel:
        """Return the level above, after the groups' effects with this variance are absorbed."""
        from scipy.sparse import csr_array

        B, factor = self._B, 1.0 + ratio * level.W
        y, X = level.S[:, :B], level.S[:, B:]
        share = ratio / factor
        squares = self._squares if grouping == self._inner else np.square(y)
        scaled = X * share[:, None]
        W, S = level.W / factor, level.S
        if grouping > 0:
            parent = self._parents[grouping - 1]
            q = int(parent.max()) + 1
            rows = csr_array((1.0 / factor, (parent, np.arange(parent.size))), (q, parent.size))
            W = np.bincount(parent, W, minlength=q).astype(float)
            S = rows @ S
        return _GroupingLevel(
            W=W,
            S=S,
            yy=level.yy - share @ squares,
            Xy=level.Xy - scaled.T @ y,
            XX=level.XX - scaled.T @ X,
            log_det=level.log_det + float(np.log(factor).sum()),
        )


def _groupings_of(stats: StratumStatistics) -> list[int] | None:
    """Return the grouping of each term if the design is one nested stratum, else None."""
    if len(stats.strata) != 1 or stats.remainder.parents is None:
        return None
    # All different, and none of single rows, as those would be confounded.
    return list(stats.term_groupings)


def _box(
    stats: StratumStatistics,
    v: FloatArray,
    order: Sequence[int],
    groupings: Sequence[int],
    *,
    certain: bool,
) -> _Box | None:
    """Return the box around components; None if it is too wide for a few points.

    Parameters
    ----------
    certain : whether no component may be near zero, as other maxima are not looked for
    """
    try:
        # The average information is of these scores, which a null hypothesis need not fit.
        kind: InformationKind = "average" if certain else "expected"
        engine = choose_engine(Statistics.from_strata(stats), reml=True)
        cov = np.linalg.inv(engine.information(v, kind))
    except np.linalg.LinAlgError:
        return None
    if not (np.diagonal(cov) > 0.0).all():
        return None
    if certain and (v < _CERTAIN * np.sqrt(np.diagonal(cov))).any():
        return None
    k = len(order)
    jump = np.zeros((k, v.size))
    jump[np.arange(k), list(order)] = 1.0
    ratio = v[list(order)] / v[-1]
    jump[:, -1] = -ratio
    errors = np.sqrt(np.diagonal(jump @ cov @ jump.T)) / v[-1]
    lowest = np.maximum(ratio - _SPREAD * errors, 0.0)
    highest = ratio + _SPREAD * errors
    low = np.zeros(len(groupings))
    low[list(order)] = lowest
    precisions = _largest_precisions(stats, low, groupings)
    shift = 1.0 / precisions[[groupings[t] for t in order]]
    below, above = np.log(lowest + shift), np.log(highest + shift)
    width = 0.5 * (above - below)
    if (width > _WIDEST).any() or (highest / shift > _STEEPEST).any():
        return None
    return _Box(0.5 * (above + below), width, shift, lowest == 0.0)


def _largest_precisions(
    stats: StratumStatistics, low: FloatArray, groupings: Sequence[int]
) -> FloatArray:
    """Return for each grouping the largest precision of a group's mean, at these ratios below."""
    W: FloatArray = stats.remainder.tables.group_n[-1].astype(float)
    parents: tuple[IntArray | LongArray, ...] = stats.remainder.parents or ()
    at = {grouping: low[t] for t, grouping in enumerate(groupings)}
    found = np.empty(len(parents) + 1)
    for grouping in range(len(parents), -1, -1):
        found[grouping] = W.max()
        W = W / (1.0 + at.get(grouping, 0.0) * W)
        if grouping:
            W = np.bincount(parents[grouping - 1], W).astype(float)
    return found
