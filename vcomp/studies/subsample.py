"""Subsampling studies: draw levels, estimate each subset, collect the estimates."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import Any, Literal, get_args

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray, LongArray
from vcomp.data import Missing
from vcomp.design import Design, LevelGroups, codes_of_facet
from vcomp.estimators import MethodName
from vcomp.exceptions import DataError, EstimationError, PlanError, check_one_of, guarded, is_whole
from vcomp.formula import caller_environment
from vcomp.inference import VarianceComponents
from vcomp.inference.resampling import (
    GeneratingFit,
    Levels,
    Refitted,
    Replicates,
    Sample,
    Work,
    check_facets,
    collect,
)
from vcomp.model import VarianceComponentsModel, VarianceComponentsResults, fitted_again
from vcomp.numerics import check_count, check_time_limit
from vcomp.studies.balanced import BalancedEstimator, BalancedTable
from vcomp.studies.planned import options_of_fit, planned, required_facet
from vcomp.studies.subsample_result import SubsampleStudy

_LIKE_ANOVA = ("type1", "henderson3", "reml")
"""Methods equal to ANOVA in balanced data with all terms."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupedLevels:
    """Levels of a facet, drawn with the same maximum from each group.

    Attributes
    ----------
    facet : the drawn facet, not nested in another
    groups : (q,) group of each level
    """

    facet: str
    groups: LongArray

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return int(self.groups.max()) + 1

    def n_levels(self, most: int) -> int:
        """Return the number of levels with at most `most` from each group."""
        return int(np.minimum(np.bincount(self.groups), most).sum())

    def draw(self, n_levels: int, rng: np.random.Generator) -> LongArray:
        """Draw sorted levels with the maximum per group that gives `n_levels` in total."""
        sizes = np.bincount(self.groups)
        most = next(m for m in range(1, int(sizes.max()) + 1) if self.n_levels(m) == n_levels)
        order = np.argsort(rng.random(self.groups.size), kind="stable")
        order = order[np.argsort(self.groups[order], kind="stable")]
        place = np.arange(order.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.sort(order[place < most])


@dataclass(frozen=True, eq=False)
class Subsets:
    """Draws levels of facets without replacement and fits the selected scores.

    Levels of a nested facet are drawn within each combination of levels that it is nested in.
    Balanced data are estimated in closed form if that gives the estimates of the method; otherwise
    the method is applied to the rows.

    Parameters
    ----------
    fit : that is repeated
    design : of its data
    components : its estimates, with their facets and nesting
    facets : that are drawn, outer ones before those nested in them
    table : the scores as an array, if the closed form can be used
    grouped : the facet whose levels are drawn by group; None if there is none
    """

    fit: GeneratingFit
    design: Design
    components: VarianceComponents
    facets: tuple[str, ...]
    table: BalancedTable | None
    grouped: GroupedLevels | None = None

    @classmethod
    def of(
        cls,
        fit: GeneratingFit,
        design: Design,
        components: VarianceComponents,
        facets: Sequence[str],
        grouped: GroupedLevels | None = None,
    ) -> Subsets:
        """Return subsets of the data of a fit, with their table if the closed form applies."""
        estimator = fit.recipe.estimator
        name, closed = estimator.name, components.is_closed
        usable = name == "anova" or (name in _LIKE_ANOVA and closed)
        usable = usable and design.formula.intercept_only and not components.held
        table = BalancedTable.of(design, fit.stats.rows) if usable else None
        # Groups refer to level numbers of the full data, so the facet with groups comes first.
        first = sorted(facets, key=lambda f: grouped is None or f != grouped.facet)
        return cls(fit, design, components, tuple(first), table, grouped)

    def most(self, facet: str) -> int:
        """Return the number of levels of a facet; of a nested facet, in the smallest group."""
        return int(self._levels(self._whole, facet).per_group.min())

    def estimator(self, sizes: Mapping[str, int]) -> BalancedEstimator | None:
        """Return the closed form for subsets of these sizes, or None."""
        if self.table is None:
            return None
        facets = self.design.structure.facets
        shape = [sizes.get(f, n) for f, n in zip(facets, self.table.scores.shape, strict=False)]
        try:
            return BalancedEstimator(
                self.components, facets, [*shape, self.table.scores.shape[-1]]
            )
        except np.linalg.LinAlgError:
            return None

    def estimate(
        self,
        sizes: Mapping[str, int],
        rng: np.random.Generator,
        closed_form: BalancedEstimator | None,
    ) -> Refitted:
        """Return the components of one random subset, or a failure with its reason.

        Parameters
        ----------
        sizes : numbers of levels of the facets that are drawn
        rng : its random numbers
        closed_form : of :meth:`estimator` for these sizes
        """
        if self.table is None:
            return self._refit(lambda: self.drawn(sizes, rng))
        return self._of_levels(self._chosen(sizes, rng), closed_form)

    def without(self, facet: str, level: int) -> Refitted:
        """Return the components with one level of a crossed facet left out.

        Parameters
        ----------
        facet : of a balanced table
        level : its number
        """
        assert self.table is not None
        place = self.design.structure.facets.index(facet)
        left = np.delete(np.arange(self.table.scores.shape[place]), level)
        alone = replace(self, facets=(facet,))
        chosen = alone._every({facet: left})
        return alone._of_levels(chosen, alone.estimator({facet: left.size}))

    # Draws --------------------------------------------------------------------------------------

    def _of_levels(
        self, chosen: Sequence[LongArray], closed_form: BalancedEstimator | None
    ) -> Refitted:
        """Return the estimate from the selected levels of the table."""
        assert self.table is not None
        if closed_form is not None:
            values, mean = closed_form(self.table.take(chosen))
            if self._agrees(values):
                return Refitted(values, np.array([mean]), np.nan)
        return self._refit(lambda: self._rows(chosen))

    def _agrees(self, values: FloatArray) -> bool:
        """Whether the method of the fit gives the same estimates as ANOVA."""
        recipe = self.fit.recipe
        if recipe.estimator.name == "reml":
            return bool((values > 0.0).all())
        return recipe.negative == "keep" or bool((values[:-1] >= 0.0).all())

    def _chosen(self, sizes: Mapping[str, int], rng: np.random.Generator) -> list[LongArray]:
        """Draw levels of each facet of a balanced table."""
        assert self.table is not None
        names, above = self.design.structure.facets, self.table.above
        shape = self.table.scores.shape
        n = [sizes.get(f, size) for f, size in zip(names, shape, strict=False)]
        chosen: dict[str, LongArray] = {}
        for facet in self.facets:
            place = names.index(facet)
            groups = [n[p] for p in above[place]]
            counts = np.full(int(np.prod(groups)), shape[place])
            levels = self._draw(facet, counts, sizes[facet], rng)
            chosen[facet] = levels.reshape(*groups, sizes[facet])
        return self._every(chosen)

    def _every(self, chosen: Mapping[str, LongArray]) -> list[LongArray]:
        """Return the selected levels, with all levels of the other facets."""
        assert self.table is not None
        names, shape = self.design.structure.facets, self.table.scores.shape
        n = [chosen[f].shape[-1] if f in chosen else shape[p] for p, f in enumerate(names)]
        levels = []
        for place, facet in enumerate(names):
            groups = [n[p] for p in self.table.above[place]]
            every = np.broadcast_to(np.arange(shape[place]), (*groups, shape[place]))
            levels.append(chosen.get(facet, every))
        return levels

    def drawn(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Sample:
        """Return the rows of a random subset."""
        sample = self._whole
        for facet in self.facets:
            levels = self._first if sample is self._whole else self._levels(sample, facet)
            counts, n = levels.per_group, sizes[facet]
            if counts.min() < n:
                raise EstimationError(
                    f"only {display.counted(int(counts.min()), facet)} are left somewhere in a "
                    f"subset of the other facets, which is fewer than {n}"
                )
            starts = np.unique(levels.first)
            chosen = (starts[:, None] + self._draw(facet, counts, n, rng)).ravel()
            sample = levels.take(sample, chosen)
        return sample

    def _draw(self, facet: str, counts: LongArray, n: int, rng: np.random.Generator) -> LongArray:
        """Draw n levels of the facet within each combination of its outer facets, (g, n)."""
        if self.grouped is not None and self.grouped.facet == facet:
            return self.grouped.draw(n, rng)[np.newaxis, :]
        return draw_levels(counts, n, rng)

    def _rows(self, chosen: Sequence[LongArray]) -> Sample:
        """Return the rows of the selected levels of the table."""
        sample, names = self._whole, self.design.structure.facets
        for facet in self.facets:
            levels = self._levels(sample, facet)
            starts = np.unique(levels.first)
            within = chosen[names.index(facet)].reshape(starts.size, -1)
            sample = levels.take(sample, (starts[:, None] + within).ravel())
        return sample

    def _refit(self, draw: Callable[[], Sample]) -> Refitted:
        rows = self.fit.stats.rows
        return self.fit.refit(self.design, lambda: draw().statistics(self.design, rows))

    @cached_property
    def _whole(self) -> Sample:
        return Sample.whole(self.fit.stats.rows)

    @cached_property
    def _first(self) -> Levels:
        return self._levels(self._whole, self.facets[0])

    def _levels(self, sample: Sample, facet: str) -> Levels:
        structure = self.design.structure
        return Levels.of(sample, structure.facets, structure.nested_in, facet)


def draw_levels(counts: LongArray, n: int, rng: np.random.Generator) -> LongArray:
    """Draw n sorted levels of every group without replacement.

    Parameters
    ----------
    counts : (g,) levels of each group
    n : number of drawn levels; a group of n levels uses no random numbers
    rng : random numbers

    Returns
    -------
    (g, n), counted from 0 within each group
    """
    drawn = np.empty((counts.size, n), dtype=np.int64)
    for group, count in enumerate(counts.tolist()):
        if count == n:
            drawn[group] = np.arange(n)
        else:
            drawn[group] = np.sort(rng.choice(count, n, replace=False, shuffle=False))
    return drawn


Grid = Literal["all", "each"]

KIND = "subsampling"
_FEWEST = 2


@guarded
def subsample_study(
    formula: str | VarianceComponentsResults,
    data: Any = None,
    *,
    sizes: Mapping[str, Any],
    trials: int = 200,
    grid: Grid = "all",
    groups: Mapping[str, LevelGroups] | None = None,
    method: MethodName = "anova",
    missing: Missing = "drop",
    options: Mapping[str, Any] | None = None,
    dstudy: Mapping[str, Any] | None = None,
    goal: float = 0.95,
    facet: str | None = None,
    alpha: float = 0.05,
    rng: int | np.random.Generator | None = None,
    workers: int = 1,
    time_limit: float | None = None,
    path: str | PathLike[str] | None = None,
    progress: bool | None = None,
    eval_env: Any = 0,
) -> SubsampleStudy:
    """Estimate components and coefficients from random parts of the data, of several sizes.

    The coefficients of a D-study depend on the systems and topics of the G-study. Here some levels
    of the facets are drawn without replacement, the components are estimated from their scores
    only, and Eρ², Φ and the required size are computed for the same plan. The spread of the
    results over subsets of one size shows the precision of a G-study of that size.

    Parameters
    ----------
    formula : as for :func:`vcomp.fit`; or a result of it, with its data, method and options
    data : as for :func:`vcomp.fit`
    sizes : for each drawn facet one number of levels or several,
        ``{"sys": [10, 20], "topic": [10, 25, 50]}``; for a nested facet, levels in each level that
        it is nested in. Facets that are not named keep all their levels
    trials : number of subsets of each size
    grid : ``"all"`` combinations of the sizes, or ``"each"`` facet separately, with all levels of
        the others
    groups : for one drawn facet the group of each of its levels, such as the organisation of each
        system: ``{"sys": {"run1": "A", "run2": "A", "run3": "B"}}``, or a function of a level. Its
        sizes are then the most levels of each group, from 1 on: ``sizes={"sys": 1}`` draws one run
        of each organisation, and the tables have the number of runs
    method, missing, options : how data are fitted: method, treatment of missing values, and
        further arguments of :meth:`VarianceComponentsModel.fit`
    dstudy : arguments of :meth:`VarianceComponentsResults.dstudy` for one plan, such as
        ``{"topic": 50}``; the sizes of all the data if None
    goal : coefficient for the required sizes
    facet : facet whose size is required; not needed if only one has a size
    alpha : spans contain a share of 1 − alpha of the subsets
    rng : seed, or a generator from which one is drawn; 0 if not given. Random numbers of a subset
        depend on the seed, its size and its number only
    workers : number of threads, which changes the numbers by rounding at most: many
        small data sets, or alike ones, are fitted together
    time_limit : seconds after which no subset is drawn; finished ones are kept, with a warning
    path : of a file to which estimates are saved; if it exists, only missing ones are computed
    progress : whether to show a bar; None shows one if stderr is a terminal
    eval_env : as for :func:`vcomp.fit`

    Returns
    -------
    SubsampleStudy
        with ``table``, a row for each size and quantity, ``frame``, a row for each subset, and
        ``plot()``

    Raises
    ------
    FormulaError, DataError, DesignError
        As :func:`vcomp.fit`; DataError also if the file contains another study, a level has no
        group, or groups are of a nested facet.
    EstimationError
        If a facet cannot be drawn, a size is not a whole number from 2 to the number of levels
        (with groups from 1 to that of the largest group), or no subset could be fitted.
    PlanError
        If the D-study is invalid, or has several plans; or if groups are not of one drawn facet.

    Warns
    -----
    VcompWarning
        If some subsets could not be fitted, or the time limit ended the work.

    References
    ----------
    Urbano, Marrero and Martín (2013), On the Measurement of Test Collection Reliability, SIGIR,
    section 3 and Figure 1: 200 subsets, ``grid="each"``, the worst quarter of systems left out.

    Bodoff (2008), Test theory for evaluating reliability of IR test collections, Information
    Processing and Management 44, section 4.6 and Table 8: one run of each of 18 organisations.

    Examples
    --------
    >>> import vcomp
    >>> data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
    >>> study = vcomp.subsample_study(
    ...     "score ~ (1|sys) + (1|topic)", data, sizes={"topic": [10, 50]}, trials=100, rng=1
    ... )
    >>> spans = study.table.query("quantity == 'Erho2'").set_index("topic")["span"]
    >>> bool(spans[10] > spans[50])
    True
    """
    res = _fitted(formula, data, method, missing, options, caller_environment(eval_env, 1))
    trials, workers = check_count(trials, "trials"), check_count(workers, "workers")
    check_time_limit(time_limit)
    fit, design = fitted_again(res)
    if not isinstance(sizes, Mapping) or not sizes:
        raise EstimationError(
            f"sizes must be a mapping such as {{'topic': [10, 25]}}, not {sizes!r}"
        )
    facets = check_facets(design, tuple(sizes))
    grouped = _grouped(design, sizes, groups)
    subsets = Subsets.of(fit, design, res.components, facets, grouped)
    study = planned(res, dstudy, alpha)
    required_facet(study, goal, facet)
    cells = _cells(subsets, {f: _numbers(f, sizes[f]) for f in sizes}, grid)
    made = _estimates(subsets, cells, trials, rng, workers, time_limit, path, progress)
    return SubsampleStudy(
        facets=tuple(sizes),
        cells=np.array([list(c.values()) for c in cells], dtype=np.int64),
        trials=trials,
        replicates=made,
        results=res,
        dstudy=study,
        goal=goal,
        facet=facet,
        by_group=None if grouped is None else (grouped.facet, grouped.n_groups),
    )


def _grouped(
    design: Design, sizes: Mapping[str, Any], groups: Mapping[str, LevelGroups] | None
) -> GroupedLevels | None:
    """Return the facet that is drawn by group, or None."""
    if groups is None:
        return None
    if not isinstance(groups, Mapping) or len(groups) != 1 or not groups.keys() <= sizes.keys():
        raise PlanError(
            "groups= takes one drawn facet, such as {'sys': {'run1': 'A', 'run2': 'B'}}; the "
            f"drawn facets are {', '.join(map(repr, sizes))}"
        )
    (facet,) = groups
    return GroupedLevels(facet, codes_of_facet(groups[facet], design, facet))


def _fitted(
    formula: str | VarianceComponentsResults,
    data: Any,
    method: MethodName,
    missing: Missing,
    options: Mapping[str, Any] | None,
    environment: Any,
) -> VarianceComponentsResults:
    if isinstance(formula, VarianceComponentsResults):
        if data is not None or options:
            raise DataError(
                "a result has its data, method and options; give a formula to use others"
            )
        return formula
    model = VarianceComponentsModel(formula, data, missing=missing, eval_env=environment)
    return model.fit(method, **options_of_fit(options))


def _estimates(
    subsets: Subsets,
    cells: list[dict[str, int]],
    trials: int,
    rng: int | np.random.Generator | None,
    workers: int,
    time_limit: float | None,
    path: str | PathLike[str] | None,
    progress: bool | None,
) -> Replicates:
    """Return the estimates of all subsets, resumed from a file if given."""
    fit, n = subsets.fit, trials * len(cells)
    sizes = [list(cell.values()) for cell in cells]
    request: dict[str, Any] = {"sizes": sizes, "facets": list(cells[0]), "trials": trials}
    if subsets.grouped is not None:
        request["groups"] = subsets.grouped.groups.tolist()
    return collect(
        fit,
        KIND,
        request,
        lambda seed: lambda: _work(subsets, cells, trials, seed),
        n,
        rng=rng,
        workers=workers,
        time_limit=time_limit,
        path=path,
        progress=progress,
        label="subsets",
        what="subsets",
    )


def _work(subsets: Subsets, cells: list[dict[str, int]], trials: int, seed: int) -> Work:
    """Return a function that draws and fits one numbered subset; numbers run size by size."""

    def drawn(number: int) -> tuple[dict[str, int], np.random.Generator]:
        place, trial = divmod(number, trials)
        cell = cells[place]
        sequence = np.random.SeedSequence(seed, spawn_key=(*cell.values(), trial))
        return cell, np.random.Generator(np.random.PCG64(sequence))

    if subsets.table is None:
        return subsets.fit.refits_of_samples(
            subsets.design, lambda number: subsets.drawn(*drawn(number))
        )
    estimators = [subsets.estimator(cell) for cell in cells]

    def work(number: int) -> Refitted:
        return subsets.estimate(*drawn(number), estimators[number // trials])

    return work


def _cells(
    subsets: Subsets, sizes: Mapping[str, tuple[int, ...]], grid: str
) -> list[dict[str, int]]:
    """Return the sizes of the subsets as mappings."""
    most = {facet: subsets.most(facet) for facet in sizes}
    if subsets.grouped is not None:
        sizes = dict(sizes) | _levels_by_group(subsets.grouped, sizes)
    for facet, numbers in sizes.items():
        outside = [n for n in numbers if not _FEWEST <= n <= most[facet]]
        if outside:
            above = sorted(subsets.design.structure.nested_in[facet])
            where = f" in each {' and '.join(above)}" if above else ""
            raise EstimationError(
                f"sizes of {facet!r} must be between {_FEWEST} and {most[facet]}, the number of "
                f"levels{where}, not {outside[0]}",
                column=facet,
            )
    check_one_of("grid", grid, get_args(Grid))
    if grid == "all":
        return [dict(zip(sizes, row, strict=True)) for row in itertools.product(*sizes.values())]
    every = [{**most, facet: n} for facet, numbers in sizes.items() for n in numbers]
    return [dict(pairs) for pairs in dict.fromkeys(tuple(cell.items()) for cell in every)]


def _levels_by_group(
    grouped: GroupedLevels, sizes: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Convert sizes per group to total numbers of levels of the grouped facet."""
    facet, largest = grouped.facet, int(np.bincount(grouped.groups).max())
    outside = [n for n in sizes[facet] if not 1 <= n <= largest]
    if outside:
        raise EstimationError(
            f"sizes of {facet!r}, which has groups, must be between 1 and {largest}, the levels "
            f"of the largest group, not {outside[0]}",
            column=facet,
        )
    return {facet: tuple(map(grouped.n_levels, sizes[facet]))}


def _numbers(facet: str, given: Any) -> tuple[int, ...]:
    """Return the distinct sizes of a facet."""
    if getattr(given, "ndim", None) == 0:  # an array that is iterable by type only
        given = given[()]
    is_many = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    numbers = list(given) if is_many else [given]
    if not numbers:
        raise EstimationError(f"no size is given for {facet!r}: its list is empty", column=facet)
    for n in numbers:
        if not is_whole(n):
            raise EstimationError(
                f"sizes of {facet!r} must be whole numbers, not {n!r}", column=facet
            )
    return tuple(dict.fromkeys(int(n) for n in numbers))
