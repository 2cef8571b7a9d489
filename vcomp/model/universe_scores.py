"""Universe scores of the objects of measurement, with standard and conditional errors.

:func:`object_scores` finds the values that depend on the rows, :func:`universe_scores` the errors
of a measurement; a stored result has the former (:mod:`~vcomp.model.stored_levels`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.data import refuse_known_variances
from vcomp.design import Chunk, number_combinations
from vcomp.estimators.likelihood import prediction_variances
from vcomp.exceptions import PlanError, check_alpha, guarded
from vcomp.formula import REPLICATE, refuse_blocks
from vcomp.gtheory import (
    DStudyPlan,
    HasDStudies,
    MeanOfScores,
    all_sizes,
    make_plans,
    weights,
)
from vcomp.inference import Projected, VarianceComponents, check_policy
from vcomp.inference.intervals import FromComponents, IntervalSource, wald_interval
from vcomp.model.interval_sources import IntervalMethod, pooled_source, source_of
from vcomp.model.record import FitRecord
from vcomp.model.row_access import EffectSolution, Fitted, RowAccess
from vcomp.model.stored_levels import EffectsWithin, ObjectScores, Within

if TYPE_CHECKING:
    import pandas as pd

_SINGULAR = 1e-10
"""Relative singular value of scaled coefficients below which equations are singular."""


_ROWS = 262_144
"""Largest number of rows whose groups are in memory at once, unless one object has more."""


_OF_DSTUDIES = ("fixed", "universe", "within", "layout")
"""Options of D-studies that universe scores do not have."""


class UniverseScores(HasDStudies, Fitted):
    """D-studies of a fit, and the universe scores of its objects of measurement."""

    @property
    def components(self) -> VarianceComponents:
        """Components with facets, nesting, sizes and covariance, as D-studies use them.

        Raises
        ------
        PlanError
            If cells hold several scores and a facet of the formula has the name ``replicate``,
            which a D-study needs for them.
        """
        components = self._record.tables.components
        refuse_blocks(
            components,
            "a D-study" if components.has_slopes else "an error variance that all objects share",
            "universe scores depend on the covariate then: fit intercepts alone, for instance to "
            "the scores at one value",
            "see res.random_effects, dstudy() and error_variances()",
        )
        self._check_planned()
        return components

    def _check_planned(self) -> None:
        """Refuse known variances, and a facet that has the name of repeated scores."""
        record = self._record
        refuse_known_variances(
            record.weights,
            "a D-study",
            "vcomp.from_components() projects the components with a residual that you state",
        )
        if record.structure.replicated and REPLICATE in record.structure.facets:
            raise PlanError(
                f"the cells hold several scores, which a D-study calls {REPLICATE!r}, and a facet "
                "of the formula has that name; rename the column for a D-study"
            )

    def _planned_components(self) -> VarianceComponents:
        components = self._record.tables.components
        if components.groups is None or components.has_slopes:
            return self.components
        self._check_planned()
        return components.with_one_residual()  # their mean: the error of an object drawn at random

    def _planned_source(self, interval: IntervalMethod, negative: Projected) -> IntervalSource:
        components = self._record.tables.components
        if components.groups is None:
            return self._source(interval, negative)
        return pooled_source(self._record, self._rows, interval, negative)

    def _residuals(self, source: IntervalSource) -> VarianceComponents | None:
        components = self._record.tables.components
        if components.groups is None:
            return None
        robust = isinstance(source, FromComponents) and source.components.levels is not None
        return self._record.robust_components() if robust else components

    def _planned_notes(self) -> tuple[str, ...]:
        groups, weights = self._record.tables.components.groups, self._record.weights
        notes: tuple[str, ...] = ()
        if weights is not None:
            of_weight = f"A score is one of weight 1: {weights.option}."
            notes = (of_weight, *self._record.on_interaction)
        if groups is None:
            return notes
        on_levels = (
            "By level (by_level, error_variances()): all scores of a measurement are at that "
            f"level of {groups.written}. The errors are conditional error variances (Brennan "
            "2001, section 5.4), of all objects there together."
        )
        which = f"the mean of the residual variances of the levels of {groups.written}"
        return (f"Residual: {which}.", on_levels, *notes)

    def _components(self) -> VarianceComponents:
        return self._record.tables.components

    def _source(self, interval: IntervalMethod, negative: Projected) -> IntervalSource:
        return source_of(self._record, self._rows, interval, negative)

    def _mean_of_scores(self) -> MeanOfScores:
        estimate, columns = self._record.estimate, self._record.exog_names
        is_mean = columns == ("Intercept",) and self._record.offset is None
        return MeanOfScores(estimate.beta, estimate.cov_beta, is_mean)

    @guarded
    def universe_scores(
        self,
        object: str | Sequence[str] | None = None,  # noqa: A002 - the word of the field
        *,
        alpha: float = 0.05,
        negative: Projected = "zero",
        sizes: Mapping[str, Any] | None = None,
        **n: Any,
    ) -> pd.DataFrame:
        """Return a row for each object of measurement: its universe score and standard errors.

        Parameters
        ----------
        object : the object of measurement, a facet or several (``"doctor:patient"``, whose
            universe score is the sum of the doctor's and the patient's effects); if None, the
            first facet without a size
        alpha : intervals have confidence 1 − alpha
        negative : ``"zero"`` sets negative components to zero in the errors, ``"keep"`` uses them
            as estimated; an error variance below zero then has no root (nan)
        sizes, **n : one size for each of the other facets in the measurement whose errors are
            computed, ``topic=25``; if there is none, each object's own numbers of levels

        Returns
        -------
        pandas.DataFrame
            with the objects as index and the columns

            ``n``, ``mean``
                its number of scores and their mean
            ``universe_score``, ``se``, ``low``, ``high``
                μ̂ + û, its best linear prediction at the mean of the covariates, with the standard
                error of the prediction (components treated as known) and a normal interval. In
                balanced data it is Kelley's: the mean score, shrunken towards the grand mean
            ``sem_rel``, ``sem_abs``
                √σ²(δ) and √σ²(Δ), the relative and absolute standard errors of measurement.
                Without `n` they use its own numbers of levels, and the mean of their squares over
                the objects is the error variance of the D-study
            ``csem_rel``, ``csem_abs``
                conditional standard errors, from the scores of this object (the relative one also
                from their covariance with the scores of the other objects). ``csem_rel`` is nan
                if objects do not all have the same cells equally often, as that covariance is then
                not estimable, and for objects of several facets; both are nan for an object with
                too few scores to estimate its error components
            ``note``
                where one of these is nan, why; only in a table with such values

        Raises
        ------
        PlanError
            If the object is not known or has no component, a size is not one positive number,
            alpha is not between 0 and 1, or the fit has an offset.
        DataError
            If the result was stored without scores of the object
            (:meth:`~vcomp.VarianceComponentsResults.to_json`).
        EstimationError
            If the residual is estimated at zero; or if effects are solved for iteratively, and the
            objects are too many for one solve each.

        References
        ----------
        Brennan (2001), Generalizability Theory, sections 5.4 and 5.5; Brennan (1998), Raw-score
        conditional standard errors of measurement in generalizability theory, Applied
        Psychological Measurement 22, 307-331.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
        >>> columns = ["mean", "universe_score", "sem_abs", "csem_abs"]
        >>> res.universe_scores("sys")[columns].round(3).head(2)  # doctest: +NORMALIZE_WHITESPACE
                     mean  universe_score  sem_abs  csem_abs
        sys
        algorithm 1  0.60           0.624    0.054     0.058
        algorithm 2  0.72           0.721    0.054     0.061
        """
        record, rows = self._record, self._rows
        wanted = all_sizes(sizes, n, record.structure.facets, alpha=alpha, object=object)
        for name in _OF_DSTUDIES:
            if name in n and name not in record.structure.facets:
                raise PlanError(
                    f"universe_scores() has no {name}=: its scores are of the universe in which "
                    f"all facets are random; res.dstudy(…, {name}=…) has the coefficients and "
                    "error variances of others"
                )
        if record.offset is not None:
            raise PlanError(
                "universe_scores() is for scores without an offset, as its means would depend on "
                "the offsets of each object's scores; subtract the offset from the response, or "
                "see compare_levels(), whose means have the mean offset"
            )
        return universe_scores(record, rows, self.components, object, wanted, alpha, negative)


def object_scores(
    access: RowAccess, components: VarianceComponents, term: int, effects: EffectSolution
) -> ObjectScores:
    """Return the values of a term's levels as objects of measurement, from the rows.

    Parameters
    ----------
    access : model and components
    components : of the G-study
    term : whose levels are the objects
    effects : predicted, of all terms
    """
    chunk = access.data.statistics.rows
    within = EffectsWithin.of(components, components.facets[term])
    rows = _RowsOfObjects.of(chunk, term)
    terms = [within.all.index(e) for e in within.distinct]
    profile, cells = None, None
    if not within.own.all() and rows.have_one_size():
        cells = _cells(access, within)
        if _is_complete(rows.objects, cells):
            profile = rows.profile(cells)
    blocks = [_within(rows, block, terms, cells, profile) for block in rows.blocks()]
    scores, se = _predicted(access, term, within.parts, effects)
    shared = [block.shared for block in blocks if block.shared is not None]
    return ObjectScores(
        n=rows.n,
        mean=access.data.design.origin + np.concatenate([rows.means(b) for b in rows.blocks()]),
        score=scores,
        se=se,
        within=Within(
            np.concatenate([block.components for block in blocks]),
            np.concatenate(shared) if shared else None,
            np.concatenate([block.inverse_n for block in blocks]),
        ),
    )


@dataclass(frozen=True, slots=True)
class _RowsOfObjects:
    """The rows in the order of their objects, read in blocks of whole objects.

    Attributes
    ----------
    chunk : of all rows
    objects : (n,) the object of each row
    order : (n,) the rows, those of an object together
    n : (P,) scores of each object
    """

    chunk: Chunk
    objects: IntArray
    order: Any
    n: Any

    @classmethod
    def of(cls, chunk: Chunk, term: int) -> _RowsOfObjects:
        objects = _groups(chunk, term)
        return cls(chunk, objects, np.argsort(objects, kind="stable"), np.bincount(objects))

    def have_one_size(self) -> bool:
        """Whether all objects have as many scores."""
        return bool((self.n == self.n[0]).all())

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield the first object of each block, and the one after its last."""
        ends, first = np.cumsum(self.n), 0
        while first < ends.size:
            before = ends[first] - self.n[first]
            last = max(first + 1, int(np.searchsorted(ends, before + _ROWS, side="right")))
            yield first, last
            first = last

    def rows(self, block: tuple[int, int]) -> Any:
        """Return the rows of a block."""
        first = int(self.n[: block[0]].sum())
        return self.order[first : first + int(self.n[block[0] : block[1]].sum())]

    def means(self, block: tuple[int, int]) -> FloatArray:
        """Return the mean of the centred scores of each object."""
        sums = np.bincount(self.objects[self.rows(block)] - block[0], self._y(block))
        return sums / self.n[block[0] : block[1]]

    def deviations(self, block: tuple[int, int]) -> FloatArray:
        """Return deviations from the object's mean: differences of T terms keep digits."""
        found: FloatArray = self._y(block)
        found -= np.repeat(self.means(block), self.n[block[0] : block[1]])
        return found

    def profile(self, cells: IntArray) -> FloatArray:
        """Return the mean deviation in each cell."""
        n = np.bincount(cells)
        sums = np.zeros(n.size)
        for block in self.blocks():
            sums += np.bincount(cells[self.rows(block)], self.deviations(block), n.size)
        return sums / n

    def _y(self, block: tuple[int, int]) -> FloatArray:
        return self.chunk.response[self.rows(block)] - self.chunk.origin


def _groups(chunk: Chunk, term: int) -> IntArray:
    """Return the group of each row in a term, computed at every call."""
    return chunk.terms[term].groups(chunk.compact_codes, chunk.facet_sizes)


def _within(
    rows: _RowsOfObjects,
    block: tuple[int, int],
    terms: Sequence[int],
    cells: IntArray | None,
    profile: FloatArray | None,
) -> Within:
    """Return an analysis of variance of the scores of every object in a block.

    Parameters
    ----------
    rows, block : of the objects
    terms : of the effects except the residual
    cells : (n,) combination of all facets whose levels objects can share
    profile : the mean deviation in each cell; None if objects do not have the same cells
    """
    at, chunk = rows.rows(block), rows.chunk
    objects = rows.objects[at] - block[0]
    n = rows.n[block[0] : block[1]].astype(float)
    x = rows.deviations(block)
    codes = [column[at] for column in chunk.compact_codes]
    groups = [_joined(objects, chunk.terms[t].groups(codes, chunk.facet_sizes)) for t in terms]
    coefficients, inverse_n = _coefficients(objects, n, groups)
    shared = None
    if profile is not None and cells is not None:
        # In products between objects, the scores of a cell are replaced by their mean.
        own = _joined(objects, cells[at])
        mean = (np.bincount(own, x) / np.bincount(own))[own]
        crossed = _squares(objects, groups, x, profile[cells[at]])
        alone = _squares(objects, groups, x, mean)
        shared = _solved(coefficients, (rows.n.size * crossed - alone) / (rows.n.size - 1.0))
    return Within(_solved(coefficients, _squares(objects, groups, x, x)), shared, inverse_n)


def _is_complete(objects: IntArray, cells: IntArray) -> bool:
    """Whether all objects have the same cells, with the same numbers of scores."""
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


def _owner(groups: IntArray, coarser: IntArray) -> LongArray:
    """Return for each group the coarser group that contains it."""
    owner = np.empty(int(groups.max()) + 1, dtype=np.int64)
    owner[groups] = coarser
    return owner


def _squares(
    objects: IntArray, groups: Sequence[IntArray], x: FloatArray, z: FloatArray
) -> FloatArray:
    """Return Σ_g (Σ x)(Σ z)/n_g of every object and effect, Σ x z as the last, (P, k + 1)."""
    squares = []
    for g in groups:
        product = np.bincount(g, x) * np.bincount(g, z) / np.bincount(g)
        squares.append(np.bincount(_owner(g, objects), product))
    return np.column_stack([*squares, np.bincount(objects, x * z)])


def _solved(coefficients: FloatArray, T: FloatArray) -> FloatArray:
    """Return the components of every object, nan where its equations are singular."""
    scale = np.abs(coefficients).max(axis=2, keepdims=True)
    scaled = coefficients / np.where(scale > 0.0, scale, 1.0)
    values = np.linalg.svd(scaled, compute_uv=False)
    regular = values[:, -1] > _SINGULAR * values[:, 0]
    solved = np.full(T.shape, np.nan)
    right = T[regular] / scale[regular, :, 0]
    solved[regular] = np.linalg.solve(scaled[regular], right[..., None])[..., 0]
    return solved


def universe_scores(
    record: FitRecord,
    access: RowAccess | None,
    components: VarianceComponents,
    object_: str | Sequence[str] | None,
    n: Mapping[str, Any],
    alpha: float,
    negative: Projected,
) -> pd.DataFrame:
    """Return a row for each level of the object of measurement.

    Parameters
    ----------
    record, access : of the fit; None without rows
    components : of the G-study
    object_, n, alpha, negative : as of ``VarianceComponentsResults.universe_scores``
    """
    import pandas as pd

    check_alpha(alpha)
    check_policy(negative)
    plan = make_plans(components, object=object_, n=n)
    if len(plan) > 1:
        raise PlanError("errors of objects need one size of each facet, or no sizes")
    term = own_term(components, plan)
    objects, index = scores_of_term(record, access, term)
    errors = Errors(objects.within, components, plan, negative)
    low, high = wald_interval(objects.score, objects.se, alpha)
    relative, absolute = errors.of_plan()
    conditional_relative, conditional_absolute = errors.conditional()
    frame = pd.DataFrame(
        {
            "n": objects.n,
            "mean": objects.mean,
            "universe_score": objects.score,
            "se": objects.se,
            "low": low,
            "high": high,
            "sem_rel": _root(relative),
            "sem_abs": _root(absolute),
            "csem_rel": _root(conditional_relative),
            "csem_abs": _root(conditional_absolute),
        },
        index=index,
    )
    if frame[["csem_rel", "csem_abs"]].isna().to_numpy().any():
        frame["note"] = _reasons(conditional_relative, conditional_absolute, len(plan.objects))
    return frame


_DIFFERENT_CELLS = (
    "no csem_rel: objects do not all have the same cells equally often, so that the covariance "
    "with their scores is not estimable"
)

_TOO_FEW = "no csem_rel, csem_abs: too few scores for the error components of this object"


def _reasons(relative: FloatArray, absolute: FloatArray, n_facets: int) -> Any:
    """Return for each object why it has no conditional errors, or nothing."""
    of_all = _DIFFERENT_CELLS if n_facets == 1 else "no csem_rel: the object has several facets"
    below = (relative < 0.0) | (absolute < 0.0)
    reasons = np.where(below, "an error variance is estimated below 0", "").astype(object)
    reasons[np.isnan(relative)] = of_all
    reasons[np.isnan(absolute)] = _TOO_FEW
    return reasons


def scores_of_term(
    record: FitRecord, access: RowAccess | None, term: int
) -> tuple[ObjectScores, pd.Index]:
    """Return the universe scores of the levels of a term, and their names.

    Raises
    ------
    DataError
        If there are no rows, and the result was stored without them.
    """
    if access is None:
        return record.stored_levels().scores(record.estimate.names[term])
    objects = object_scores(access, record.components, term, access.effects)
    return objects, access.data.design.group_index(term)


def own_term(components: VarianceComponents, plan: DStudyPlan) -> int:
    """Return the term whose levels are the objects.

    Raises
    ------
    PlanError
        If there is none.
    """
    if plan.objects not in components.facets[:-1]:
        raise PlanError(
            f"the model has no term {plan.object}, the object of measurement; its terms "
            f"are {', '.join(components.names)}"
        )
    return components.facets.index(plan.objects)


def _root(variances: FloatArray) -> FloatArray:
    """Return square roots, nan for kept estimates below zero."""
    return np.sqrt(np.where(variances >= 0.0, variances, np.nan))


def _predicted(
    access: RowAccess, term: int, parts: Sequence[int], effects: EffectSolution
) -> tuple[FloatArray, FloatArray]:
    """Return μ̂ + Σ û of every level of a term and its standard error, at the mean of X.

    The sum is over the terms that are parts of the object, such as doctor and doctor:patient.
    """
    design, stats, v = access.data.design, access.data.statistics, access.components
    chunk, mean = stats.rows, stats.rows.columns.mean(axis=0)
    n_levels = stats.sizes[term]
    groups = np.full((n_levels, v.size - 1), -1, dtype=np.int64)
    scores = np.full(n_levels, design.origin + mean @ effects.beta)
    for part in parts:
        if part == term:
            groups[:, part] = np.arange(n_levels)
        else:
            groups[_groups(chunk, term), part] = _groups(chunk, part)
        scores += effects.of_terms[part][groups[:, part]]
    if not v.any():
        return scores, np.zeros(scores.size)
    X = np.broadcast_to(mean, (scores.size, mean.size))
    return scores, np.sqrt(prediction_variances(stats, v, groups, X))


def _cells(access: RowAccess, effects: EffectsWithin) -> IntArray:
    """Return the combination of all facets except the object and the facets nested in it."""
    design, chunk = access.data.design, access.data.statistics.rows
    cells = np.zeros(chunk.response.size, dtype=np.int32)
    for position, facet in enumerate(design.facets):
        if facet.name not in effects.excluded:
            cells = _joined(cells, chunk.level_codes(position))
    return cells


@dataclass(frozen=True)
class Errors:
    """Error variances of the objects' mean scores."""

    within: Within
    components: VarianceComponents
    plan: DStudyPlan
    negative: Projected

    @property
    def values(self) -> FloatArray:
        """The components, negative ones under the policy ``negative``."""
        return self._without_negative(self.components.values)

    @property
    def _effects(self) -> EffectsWithin:
        return EffectsWithin.of(self.components, self.plan.objects)

    def of_plan(self) -> tuple[FloatArray, FloatArray]:
        """Return σ²(δ) and σ²(Δ) of every object.

        In the design of the G-study each object has its own numbers of levels; the mean over the
        objects is that of the D-study.
        """
        shares = weights(self.components, self.plan)
        relative, absolute = shares.relative, shares.absolute
        if self.plan.inverse_n is not None:
            inverse = self._own_inverse_n()
            absolute, relative = inverse * (absolute > 0.0), inverse * (relative > 0.0)
        shape = (len(self.within.components), self.values.size)
        return (
            np.broadcast_to(relative, shape) @ self.values,
            np.broadcast_to(absolute, shape) @ self.values,
        )

    def _own_inverse_n(self) -> FloatArray:
        """Return Σ n²/(Σ n)² over the groups of every component within each object, (P, k + 1)."""
        effects = self._effects
        inverse = dict(zip(effects.everything, self.within.inverse_n.T, strict=True))
        alone = np.ones(len(self.within.inverse_n))  # effects of the object are one group
        return np.column_stack([inverse.get(e, alone) for e in effects.all])

    def conditional(self) -> tuple[FloatArray, FloatArray]:
        """Return σ̂²(δ_p) and σ̂²(Δ_p); the first nan where objects differ in their cells."""
        within, effects = self.within, self._effects
        inverse = within.inverse_n
        if self.plan.inverse_n is None:
            of_components = weights(self.components, self.plan).absolute[0]
            inverse = np.array([of_components[effects.all.index(e)] for e in effects.everything])
        absolute = (self._without_negative(within.components) * inverse).sum(axis=1)
        # Effects of facets that are nested in the object are not shared with other objects.
        own = effects.own
        if own.all():
            return absolute, absolute
        if within.shared is None or len(self.plan.objects) > 1:
            return np.full(absolute.size, np.nan), absolute
        of_facets = dict(zip(self.components.facets, self.values, strict=True))
        alone = np.array([of_facets.get(e, 0.0) for e in effects.everything])
        shared = np.where(own, 0.0, alone - 2.0 * within.shared)
        return (self._without_negative(within.components + shared) * inverse).sum(axis=1), absolute

    def _without_negative(self, values: FloatArray) -> FloatArray:
        return np.maximum(values, 0.0) if self.negative == "zero" else values
