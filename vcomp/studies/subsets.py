"""Random parts of data: some levels of each facet, and the components estimated from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.components import VarianceComponents
from vcomp.design import Design
from vcomp.exceptions import EstimationError
from vcomp.resampling import Generating
from vcomp.resampling.facet import SampleRefit, refit_sample
from vcomp.resampling.levels import Levels, Sample, statistics_of
from vcomp.resampling.refitted import Refitted
from vcomp.statistics import Statistics
from vcomp.studies.balanced import BalancedEstimator, BalancedTable, is_closed

__all__ = ["Subsets", "draw_levels"]

_LIKE_ANOVA = ("type1", "henderson3", "reml")
"""Methods that give the estimates of the analysis of variance, in balanced data with all terms."""


@dataclass(frozen=True, slots=True, eq=False)
class Subsets:
    """Draws levels of facets without replacement, and fits what is left.

    Levels of a nested facet are drawn within each combination of what it is nested in. Balanced
    data are estimated in closed form where that gives what the method gives; else the method is
    applied to the rows.

    Parameters
    ----------
    fit : that is made again
    design : of its data
    components : its estimates, with their facets and nesting
    facets : that are drawn, those that others are nested in first
    """

    fit: Generating
    design: Design
    components: VarianceComponents
    facets: tuple[str, ...]
    table: BalancedTable | None

    @classmethod
    def of(
        cls,
        fit: Generating,
        design: Design,
        components: VarianceComponents,
        facets: Sequence[str],
    ) -> Subsets:
        """Return what draws from the data of a fit, with their table if it is of use."""
        estimator = fit.recipe.estimator
        name, closed = estimator.name, is_closed(components)
        usable = name == "anova" or (name in _LIKE_ANOVA and closed)
        usable = usable and design.formula.intercept_only and not components.held
        table = BalancedTable.of(design, fit.stats.rows) if usable else None
        return cls(fit, design, components, tuple(facets), table)

    def most(self, facet: str) -> int:
        """Return how many levels of a facet there are, in the smallest group of a nested one."""
        return int(self._levels(self._whole(), facet).per_group.min())

    def estimator(self, sizes: Mapping[str, int]) -> BalancedEstimator | None:
        """Return the closed form of subsets of these sizes, None if there is none."""
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
    ) -> SampleRefit:
        """Return the components of one random subset; a failure with its reason.

        Parameters
        ----------
        sizes : numbers of levels of the facets that are drawn
        rng : its random numbers
        closed_form : of :meth:`estimator` for these sizes
        """
        if closed_form is None or self.table is None:
            return refit_sample(
                self.fit, self.design, lambda: self._statistics(self._drawn(sizes, rng))
            )
        return self._of_levels(self._chosen(sizes, rng), closed_form)

    def without(self, facet: str, level: int) -> SampleRefit:
        """Return the components without one level of a facet that is nested in no other.

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

    # What is drawn ------------------------------------------------------------------------------

    def _of_levels(
        self, chosen: Sequence[LongArray], closed_form: BalancedEstimator | None
    ) -> SampleRefit:
        """Return the estimate of levels that were chosen from the table."""
        assert self.table is not None
        if closed_form is not None:
            values, mean = closed_form(self.table.take(chosen))
            if self._agrees(values):
                return SampleRefit(Refitted(values, np.array([mean]), np.nan, True))
        return refit_sample(self.fit, self.design, lambda: self._statistics(self._taken(chosen)))

    def _agrees(self, values: FloatArray) -> bool:
        """Whether the method gives these estimates of the analysis of variance as well."""
        recipe = self.fit.recipe
        if recipe.estimator.name == "reml":
            return bool((values > 0.0).all())
        return recipe.negative == "keep" or bool((values[:-1] >= 0.0).all())

    def _chosen(self, sizes: Mapping[str, int], rng: np.random.Generator) -> list[LongArray]:
        """Return the levels that stay of each facet of a balanced table."""
        assert self.table is not None
        names, above = self.design.structure.facets, self.table.above
        shape = self.table.scores.shape
        n = [sizes.get(f, size) for f, size in zip(names, shape, strict=False)]
        chosen: dict[str, LongArray] = {}
        for facet in self.facets:
            place = names.index(facet)
            groups = [n[p] for p in above[place]]
            counts = np.full(int(np.prod(groups)), shape[place])
            levels = draw_levels(counts, sizes[facet], rng)
            chosen[facet] = levels.reshape(*groups, sizes[facet])
        return self._every(chosen)

    def _every(self, chosen: Mapping[str, LongArray]) -> list[LongArray]:
        """Return chosen levels with all levels of the facets that none were chosen of."""
        assert self.table is not None
        names, shape = self.design.structure.facets, self.table.scores.shape
        n = [chosen[f].shape[-1] if f in chosen else shape[p] for p, f in enumerate(names)]
        levels = []
        for place, facet in enumerate(names):
            groups = [n[p] for p in self.table.above[place]]
            every = np.broadcast_to(np.arange(shape[place]), (*groups, shape[place]))
            levels.append(chosen.get(facet, every))
        return levels

    def _drawn(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Sample:
        """Return the rows of a random subset."""
        sample = self._whole()
        for facet in self.facets:
            levels = self._levels(sample, facet)
            counts, n = levels.per_group, sizes[facet]
            if counts.min() < n:
                raise EstimationError(
                    f"only {int(counts.min())} levels of {facet!r} are left somewhere in a subset "
                    f"of the other facets, which is fewer than {n}"
                )
            starts = np.unique(levels.first)
            chosen = (starts[:, None] + draw_levels(counts, n, rng)).ravel()
            sample = levels.take(sample, chosen)
        return sample

    def _taken(self, chosen: Sequence[LongArray]) -> Sample:
        """Return the rows of levels that were chosen from the table."""
        sample, names = self._whole(), self.design.structure.facets
        for facet in self.facets:
            levels = self._levels(sample, facet)
            starts = np.unique(levels.first)
            within = chosen[names.index(facet)].reshape(starts.size, -1)
            sample = levels.take(sample, (starts[:, None] + within).ravel())
        return sample

    def _statistics(self, sample: Sample) -> Statistics:
        return statistics_of(self.design, self.fit.stats.rows, sample)

    def _whole(self) -> Sample:
        return Sample.whole(self.fit.stats.rows)

    def _levels(self, sample: Sample, facet: str) -> Levels:
        structure = self.design.structure
        return Levels.of(sample, structure.facets, structure.nested_in, facet)


def draw_levels(counts: LongArray, n: int, rng: np.random.Generator) -> LongArray:
    """Return n levels of every group, drawn without replacement and sorted.

    Parameters
    ----------
    counts : (g,) levels of each group
    n : how many are drawn; nothing is drawn of a group that has no more
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
