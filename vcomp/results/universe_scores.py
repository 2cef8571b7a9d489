"""Universe scores of the objects of measurement, and how well each is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.components import VarianceComponents
from vcomp.dstudy.layout import joined
from vcomp.dstudy.plan import DStudyPlan, make_plans
from vcomp.dstudy.project import Weights, weights
from vcomp.estimators.prediction_errors import prediction_variances
from vcomp.exceptions import PlanError, check_alpha
from vcomp.results.conditional_errors import within_objects
from vcomp.uncertainty.delta import wald_interval
from vcomp.uncertainty.taken import check_policy

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.results.rows import RowAccess

__all__ = ["universe_scores"]


def universe_scores(
    access: RowAccess,
    components: VarianceComponents,
    object_: str | Sequence[str] | None,
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
    sums = np.bincount(errors.objects, access.model.chunk.y)
    counts = np.bincount(errors.objects)
    scores, se = _predicted(access, term, errors.parts)
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


def _predicted(access: RowAccess, term: int, parts: list[int]) -> tuple[FloatArray, FloatArray]:
    """Return μ̂ + Σ û of every level of a term and its standard error, at the mean of X.

    The sum is over the terms that are parts of the object, such as doctor and doctor:patient.
    """
    model, solution, v = access.model, access.solution, access.components
    mean = np.asarray(model.chunk.X).mean(axis=0)
    n_levels = model.statistics.sizes[term]
    groups = np.full((n_levels, v.size - 1), -1, dtype=np.int64)
    for part in parts:
        groups[model.chunk.codes[term], part] = model.chunk.codes[part]
    scores = np.full(n_levels, model.design.origin + mean @ solution.beta)
    for part in parts:
        scores += solution.effects[part][groups[:, part]]
    if not v.any():
        return scores, np.zeros(scores.size)
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
        """The term whose levels are the objects."""
        if self.plan.objects not in self.components.facets[:-1]:
            raise PlanError(
                f"the model has no term {self.plan.object}, whose levels are the objects; it has "
                f"{', '.join(self.components.names)}"
            )
        return self.components.facets.index(self.plan.objects)

    @property
    def parts(self) -> list[int]:
        """The terms whose effects the universe score is made of."""
        facets = self.components.facets[:-1]
        return [k for k, effect in enumerate(facets) if effect <= self.plan.objects]

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
        chunk = self.access.model.chunk
        effects = [facets - self.plan.objects for facets in self.components.facets]
        # A term that within an object is what the residual is has no place of its own.
        distinct = [e for e in dict.fromkeys(effects) if e and e != effects[-1]]
        codes = [chunk.codes[effects.index(e)].astype(np.int64) for e in distinct]
        y = self.access.model.chunk.y
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
        if within.shared is None or len(self.plan.objects) > 1:
            return np.full(absolute.size, np.nan), absolute
        of_facets = dict(zip(self.components.facets, self.values, strict=True))
        alone = np.array([of_facets.get(e, 0.0) for e in everything])
        shared = np.where(own, 0.0, alone - 2.0 * within.shared)
        return (self._taken(within.components + shared) * inverse).sum(axis=1), absolute

    @property
    def _nested(self) -> frozenset[str]:
        """The facets that are nested in the object."""
        nested_in, objects = self.components.nested_in, self.plan.objects
        return frozenset(f for f, above in nested_in.items() if above & objects) - objects

    def _taken(self, values: FloatArray) -> FloatArray:
        return np.maximum(values, 0.0) if self.negative == "zero" else values

    def _cells(self) -> LongArray:
        """Return the combination of all facets but the object, and what is nested in it."""
        design, chunk = self.access.model.design, self.access.model.chunk
        apart = self._nested | self.plan.objects
        cells = np.zeros(chunk.n, dtype=np.int64)
        for position, facet in enumerate(design.facets):
            if facet.name not in apart:
                cells = joined(cells, chunk.level_codes(position).astype(np.int64))
        return cells
