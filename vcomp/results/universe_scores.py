"""Universe scores of the objects of measurement, and how well each is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.components import VarianceComponents
from vcomp.dstudy.plan import DStudyPlan, make_plans
from vcomp.dstudy.project import Weights, weights
from vcomp.estimators.prediction_errors import prediction_variances
from vcomp.exceptions import PlanError, check_alpha
from vcomp.results.conditional_errors import joined, within_objects
from vcomp.uncertainty.delta import wald_interval
from vcomp.uncertainty.taken import check_policy

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.results.rows import RowAccess

__all__ = ["universe_scores"]


def universe_scores(
    access: RowAccess,
    components: VarianceComponents,
    object_: str | None,
    n: Mapping[str, Any],
    alpha: float,
    negative: str,
) -> pd.DataFrame:
    """Return a row a level of the object of measurement.

    Parameters
    ----------
    access : model and components
    components : of the G-study
    object_, n, alpha, negative : as of ``VarianceComponentsResults.universe_scores``
    """
    import pandas as pd

    check_alpha(alpha)
    check_policy(negative)
    plan = make_plans(components, object=object_, n=n)
    if len(plan) > 1:
        raise PlanError("errors of objects are for one size of each facet; give one, or none")
    errors = _Errors(access, components, plan, weights(components, plan), negative)
    term = errors.own_term
    sums = np.bincount(errors.objects, access.model.rows.y - access.model.design.origin)
    counts = np.bincount(errors.objects)
    scores, se = _predicted(access, term)
    low, high = wald_interval(scores, se, alpha)
    relative, absolute = errors.of_plan()
    conditional_relative, conditional_absolute = errors.conditional()
    return pd.DataFrame(
        {
            "n": counts,
            "mean": access.model.design.origin + sums / counts,
            "universe_score": scores,
            "se": se,
            "low": low,
            "high": high,
            "sem_rel": _root(relative),
            "sem_abs": _root(absolute),
            "csem_rel": _root(conditional_relative),
            "csem_abs": _root(conditional_absolute),
        },
        index=access.model.design.group_index(term),
    )


def _root(variances: FloatArray) -> FloatArray:
    """Return the roots, nan for estimates below zero that are to be kept."""
    return np.sqrt(np.where(variances >= 0.0, variances, np.nan))


def _predicted(access: RowAccess, term: int) -> tuple[FloatArray, FloatArray]:
    """Return μ̂ + û of every level of a term and its standard error, at the mean of X."""
    model, solution, v = access.model, access.solution, access.components
    mean = np.asarray(model.chunk.X).mean(axis=0)
    scores = model.design.origin + mean @ solution.beta + solution.effects[term]
    if not v.any():
        return scores, np.zeros(scores.size)
    groups = np.full((scores.size, v.size - 1), -1, dtype=np.int64)
    groups[:, term] = np.arange(scores.size)
    X = np.broadcast_to(mean, (scores.size, mean.size))
    return scores, np.sqrt(prediction_variances(model.statistics, v, groups, X))


@dataclass(frozen=True)
class _Errors:
    """Error variances of the objects' mean scores."""

    access: RowAccess
    components: VarianceComponents
    plan: DStudyPlan
    weights: Weights
    negative: str

    @property
    def own_term(self) -> int:
        """The term of the object alone."""
        return int(np.flatnonzero(self.weights.universe[0])[0])

    @property
    def objects(self) -> LongArray:
        """The object of each row."""
        return self.access.model.chunk.codes[self.own_term].astype(np.int64)

    @property
    def values(self) -> FloatArray:
        """The components as they are taken."""
        return self._taken(self.components.values)

    def of_plan(self) -> tuple[FloatArray, FloatArray]:
        """Return σ²(δ) and σ²(Δ) of every object.

        In the G-study's own design each has its own numbers of levels; their mean is the
        D-study's.
        """
        n_objects = self.access.model.statistics.sizes[self.own_term]
        relative, absolute = self.weights.relative, self.weights.absolute
        if self.plan.inverse_n is not None:
            inverse = self._own_inverse_n()
            absolute, relative = inverse * (absolute > 0.0), inverse * (relative > 0.0)
        shape = (n_objects, self.values.size)
        return (
            np.broadcast_to(relative, shape) @ self.values,
            np.broadcast_to(absolute, shape) @ self.values,
        )

    def _own_inverse_n(self) -> FloatArray:
        """Return Σ n²/(Σ n)² over the groups of every component within each object, (P, k + 1)."""
        objects, chunk = self.objects, self.access.model.chunk
        n = np.bincount(objects).astype(float)
        columns = []
        for codes in chunk.codes:
            group = joined(objects, codes.astype(np.int64))
            owner = np.empty(int(group.max()) + 1, dtype=np.int64)
            owner[group] = objects
            sizes = np.bincount(group).astype(float)
            columns.append(np.bincount(owner, sizes**2) / n**2)
        return np.column_stack([*columns, 1.0 / n])

    def conditional(self) -> tuple[FloatArray, FloatArray]:
        """Return σ̂²(δ_p) and σ̂²(Δ_p); the first nan where objects differ in their cells."""
        object_, chunk = self.plan.object, self.access.model.chunk
        effects = [facets - {object_} for facets in self.components.facets]
        # A term that within an object is what the residual is has no place of its own.
        distinct = [e for e in dict.fromkeys(effects) if e and e != effects[-1]]
        codes = [chunk.codes[effects.index(e)].astype(np.int64) for e in distinct]
        y = self.access.model.rows.y - self.access.model.design.origin
        within = within_objects(y, self.objects, codes, self._cells())
        everything = [*distinct, effects[-1]]
        inverse = within.inverse_n
        if self.plan.inverse_n is None:
            inverse = np.array([self.weights.absolute[0, effects.index(e)] for e in everything])
        absolute = (self._taken(within.components) * inverse).sum(axis=1)
        # Effects of facets that are nested in the object are shared with no other one.
        own = np.array([bool(e & self._nested) for e in everything])
        if own.all():
            return absolute, absolute
        if within.shared is None:
            return np.full(absolute.size, np.nan), absolute
        of_facets = dict(zip(self.components.facets, self.values, strict=True))
        alone = np.array([of_facets.get(e, 0.0) for e in everything])
        shared = np.where(own, 0.0, alone - 2.0 * within.shared)
        return (self._taken(within.components + shared) * inverse).sum(axis=1), absolute

    @property
    def _nested(self) -> frozenset[str]:
        """The facets that are nested in the object."""
        nested_in = self.components.nested_in
        return frozenset(f for f, above in nested_in.items() if self.plan.object in above)

    def _taken(self, values: FloatArray) -> FloatArray:
        return np.maximum(values, 0.0) if self.negative == "zero" else values

    def _cells(self) -> LongArray:
        """Return the combination of all facets but the object, and what is nested in it."""
        design, chunk = self.access.model.design, self.access.model.chunk
        apart = self._nested | {self.plan.object}
        cells = np.zeros(chunk.n, dtype=np.int64)
        for position, facet in enumerate(design.facets):
            if facet.name not in apart:
                cells = joined(cells, chunk.level_codes(position).astype(np.int64))
        return cells
