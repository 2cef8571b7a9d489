"""Universe scores of the objects of measurement, with standard and conditional errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray, IntArray
from vcomp.design import number_combinations
from vcomp.estimators.likelihood import prediction_variances
from vcomp.exceptions import PlanError, check_alpha
from vcomp.gtheory import DStudyPlan, Weights, make_plans, weights
from vcomp.inference import Projected, VarianceComponents, check_policy
from vcomp.inference.intervals import wald_interval

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.model.row_access import RowAccess

_SINGULAR = 1e-10
"""Relative singular value of scaled coefficients below which equations are singular."""


@dataclass(frozen=True, slots=True)
class Within:
    """An analysis of variance of each object's scores; columns are effects S, the residual last.

    Attributes
    ----------
    components : (P, k + 1) σ̂²(S|p); nan for an object from whose scores they are not estimable
    shared : (P, k + 1) σ̂_S(p, others), None where objects do not have the same cells
    inverse_n : (P, k + 1) 1/n_S: Σ n²/(Σ n)² over the groups of S
    """

    components: FloatArray
    shared: FloatArray | None
    inverse_n: FloatArray


def within_objects(
    y: FloatArray, objects: IntArray, effects: Sequence[IntArray], cells: IntArray
) -> Within:
    """Return an analysis of variance of the scores of every object.

    Parameters
    ----------
    y : (n,) scores
    objects : (n,) object of each score, numbered without gaps, at least two
    effects : for each effect except the residual, its (n,) groups
    cells : (n,) combination of all facets whose levels objects can share
    """
    n = np.bincount(objects).astype(float)
    # Deviations from the object's mean keep digits in differences of T terms.
    x = y - (np.bincount(objects, y) / n)[objects]
    groups = [_joined(objects, codes) for codes in effects]
    coefficients, inverse_n = _coefficients(objects, n, groups)
    T = _squares(objects, groups, x, x)
    shared = None
    if _is_complete(objects, cells):
        # In products between objects, the scores of a cell are replaced by their mean.
        profile = (np.bincount(cells, x) / np.bincount(cells))[cells]
        own = _joined(objects, cells)
        mean = (np.bincount(own, x) / np.bincount(own))[own]
        crossed = _squares(objects, groups, x, profile)
        alone = _squares(objects, groups, x, mean)
        shared = _solved(coefficients, (n.size * crossed - alone) / (n.size - 1.0))
    return Within(_solved(coefficients, T), shared, inverse_n)


def _is_complete(objects: IntArray, cells: IntArray) -> bool:
    """Whether all objects have the same cells, equally often."""
    n_objects, n_cells = int(objects.max()) + 1, int(cells.max()) + 1
    if n_objects * n_cells > objects.size:
        return False
    counts = np.bincount(objects * n_cells + cells, minlength=n_objects * n_cells)
    counts = counts.reshape(n_objects, n_cells)
    return bool((counts == counts[0]).all())


def _coefficients(
    objects: IntArray, n: FloatArray, groups: Sequence[IntArray]
) -> tuple[FloatArray, FloatArray]:
    """Return the coefficients of E(T − T_μ), (P, k + 1, k + 1), and Σ n²/(Σ n)², (P, k + 1)."""
    k, P = len(groups), n.size
    coefficients, inverse_n = np.empty((P, k + 1, k + 1)), np.empty((P, k + 1))
    sizes = [np.bincount(g).astype(float) for g in groups]
    owner = [_owner(g, objects) for g in groups]
    for s in range(k):
        coefficients[:, s, k] = np.bincount(owner[s], minlength=P) - 1.0
        squares = np.bincount(owner[s], sizes[s] ** 2, minlength=P) / n
        inverse_n[:, s] = squares / n
        coefficients[:, k, s] = n - squares
        for u in range(s + 1):
            both = groups[s] if u == s else _joined(groups[s], groups[u])
            squares = np.square(np.bincount(both), dtype=float)
            for one, other in {(s, u), (u, s)}:
                inside = _owner(both, groups[one])
                terms = squares / sizes[one][inside]
                coefficients[:, one, other] = np.bincount(owner[one][inside], terms, minlength=P)
    for u in range(k):
        coefficients[:, :k, u] -= (inverse_n[:, u] * n)[:, None]
    coefficients[:, k, k] = n - 1.0
    inverse_n[:, k] = 1.0 / n
    return coefficients, inverse_n


def _joined(left: IntArray, right: IntArray) -> IntArray:
    """Return the combination of two columns of codes in each row, numbered in order."""
    (a, n_a), (b, n_b) = (
        (codes.astype(np.int32, copy=False), int(codes.max()) + 1) for codes in (left, right)
    )
    return number_combinations(a, n_a, b, n_b)[1]


def _owner(groups: IntArray, coarser: IntArray) -> IntArray:
    """Return for each group the coarser group that contains it."""
    owner = np.empty(int(groups.max()) + 1, dtype=np.int64)
    owner[groups] = coarser
    return owner


def _squares(
    objects: IntArray, groups: Sequence[IntArray], x: FloatArray, z: FloatArray
) -> FloatArray:
    """Return Σ_g (Σ x)(Σ z)/n_g of every object and effect, Σ x z as the last, (P, k + 1)."""
    found = []
    for g in groups:
        product = np.bincount(g, x) * np.bincount(g, z) / np.bincount(g)
        found.append(np.bincount(_owner(g, objects), product))
    return np.column_stack([*found, np.bincount(objects, x * z)])


def _solved(coefficients: FloatArray, T: FloatArray) -> FloatArray:
    """Return the components of every object, nan where its equations are singular."""
    scale = np.abs(coefficients).max(axis=2, keepdims=True)
    scaled = coefficients / np.where(scale > 0.0, scale, 1.0)
    values = np.linalg.svd(scaled, compute_uv=False)
    regular = values[:, -1] > _SINGULAR * values[:, 0]
    found = np.full(T.shape, np.nan)
    right = T[regular] / scale[regular, :, 0]
    found[regular] = np.linalg.solve(scaled[regular], right[..., None])[..., 0]
    return found


def universe_scores(
    access: RowAccess,
    components: VarianceComponents,
    object_: str | Sequence[str] | None,
    n: Mapping[str, Any],
    alpha: float,
    negative: Projected,
) -> pd.DataFrame:
    """Return a row for each level of the object of measurement.

    Parameters
    ----------
    access : model and components
    components : of the G-study
    object_, n, alpha, negative : as of ``VarianceComponentsResults.universe_scores``
    """
    import pandas as pd

    check_alpha(alpha)
    errors = Errors.of(access, components, object_, n, negative)
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
    """Return square roots, nan for kept estimates below zero."""
    return np.sqrt(np.where(variances >= 0.0, variances, np.nan))


def _predicted(access: RowAccess, term: int, parts: list[int]) -> tuple[FloatArray, FloatArray]:
    """Return μ̂ + Σ û of every level of a term and its standard error, at the mean of X.

    The sum is over the terms that are parts of the object, such as doctor and doctor:patient.
    """
    model, solution, v = access.model, access.solution, access.components
    mean = model.chunk.columns.mean(axis=0)
    n_levels = model.statistics.sizes[term]
    groups = np.full((n_levels, v.size - 1), -1, dtype=np.int64)
    for part in parts:
        groups[model.chunk.codes[term], part] = model.chunk.codes[part]
    scores = np.full(n_levels, model.design.origin + mean @ solution.beta)
    for part in parts:
        scores += solution.effects[part][groups[:, part]]
    del solution  # an engine at its point, as large as the one that is made next
    if not v.any():
        return scores, np.zeros(scores.size)
    X = np.broadcast_to(mean, (scores.size, mean.size))
    return scores, np.sqrt(prediction_variances(model.statistics, v, groups, X))


@dataclass(frozen=True)
class Errors:
    """Error variances of the objects' mean scores."""

    access: RowAccess
    components: VarianceComponents
    plan: DStudyPlan
    weights: Weights
    negative: Projected

    @classmethod
    def of(
        cls,
        access: RowAccess,
        components: VarianceComponents,
        object_: str | Sequence[str] | None,
        n: Mapping[str, Any],
        negative: Projected,
    ) -> Errors:
        """Return the errors for the arguments of :func:`universe_scores`."""
        check_policy(negative)
        plan = make_plans(components, object=object_, n=n)
        if len(plan) > 1:
            raise PlanError("errors of objects need one size of each facet, or no sizes")
        return cls(access, components, plan, weights(components, plan), negative)

    @property
    def own_term(self) -> int:
        """The term whose levels are the objects."""
        if self.plan.objects not in self.components.facets[:-1]:
            raise PlanError(
                f"the model has no term {self.plan.object}, the object of measurement; its terms "
                f"are {', '.join(self.components.names)}"
            )
        return self.components.facets.index(self.plan.objects)

    @property
    def parts(self) -> list[int]:
        """The terms whose effects make up the universe score."""
        facets = self.components.facets[:-1]
        return [k for k, effect in enumerate(facets) if effect <= self.plan.objects]

    @property
    def objects(self) -> IntArray:
        """The object of each row."""
        return self.access.model.chunk.codes[self.own_term]

    @property
    def values(self) -> FloatArray:
        """The components, negative ones under the policy ``negative``."""
        return self._without_negative(self.components.values)

    def of_plan(self) -> tuple[FloatArray, FloatArray]:
        """Return σ²(δ) and σ²(Δ) of every object.

        In the design of the G-study each object has its own numbers of levels; the mean over the
        objects is that of the D-study.
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
            group = _joined(objects, codes)
            owner = np.empty(int(group.max()) + 1, dtype=np.int64)
            owner[group] = objects
            sizes = np.bincount(group).astype(float)
            columns.append(np.bincount(owner, sizes**2) / n**2)
        return np.column_stack([*columns, 1.0 / n])

    def conditional(self) -> tuple[FloatArray, FloatArray]:
        """Return σ̂²(δ_p) and σ̂²(Δ_p); the first nan where objects differ in their cells."""
        chunk = self.access.model.chunk
        effects = [facets - self.plan.objects for facets in self.components.facets]
        # A term that is confounded with the residual within an object belongs to the residual.
        distinct = [e for e in dict.fromkeys(effects) if e and e != effects[-1]]
        codes = [chunk.codes[effects.index(e)] for e in distinct]
        y = self.access.model.chunk.y
        within = within_objects(y, self.objects, codes, self._cells())
        everything = [*distinct, effects[-1]]
        inverse = within.inverse_n
        if self.plan.inverse_n is None:
            inverse = np.array([self.weights.absolute[0, effects.index(e)] for e in everything])
        absolute = (self._without_negative(within.components) * inverse).sum(axis=1)
        # Effects of facets that are nested in the object are not shared with other objects.
        own = np.array([bool(e & self._nested) for e in everything])
        if own.all():
            return absolute, absolute
        if within.shared is None or len(self.plan.objects) > 1:
            return np.full(absolute.size, np.nan), absolute
        of_facets = dict(zip(self.components.facets, self.values, strict=True))
        alone = np.array([of_facets.get(e, 0.0) for e in everything])
        shared = np.where(own, 0.0, alone - 2.0 * within.shared)
        return (self._without_negative(within.components + shared) * inverse).sum(axis=1), absolute

    @property
    def _nested(self) -> frozenset[str]:
        """The facets that are nested in the object."""
        nested_in, objects = self.components.nested_in, self.plan.objects
        return frozenset(f for f, above in nested_in.items() if above & objects) - objects

    def _without_negative(self, values: FloatArray) -> FloatArray:
        return np.maximum(values, 0.0) if self.negative == "zero" else values

    def _cells(self) -> IntArray:
        """Return the combination of all facets except the object and the facets nested in it."""
        design, chunk = self.access.model.design, self.access.model.chunk
        excluded = self._nested | self.plan.objects
        cells = np.zeros(chunk.n, dtype=np.int32)
        for position, facet in enumerate(design.facets):
            if facet.name not in excluded:
                cells = _joined(cells, chunk.level_codes(position))
        return cells
