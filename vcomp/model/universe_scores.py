"""Universe scores of the objects of measurement, with standard and conditional errors.

:func:`object_scores` finds the values that depend on the rows, :func:`universe_scores` the errors
of a measurement; a stored result has the former (:mod:`~vcomp.model.stored_levels`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError, check_alpha, guarded
from vcomp.formula import REPLICATE, refuse
from vcomp.gtheory import DStudyPlan, HasDStudies, MeanOfScores, all_sizes, make_plans, weights
from vcomp.inference import Projected, VarianceComponents, check_policy
from vcomp.inference.intervals import FromComponents, IntervalSource, wald_interval
from vcomp.model.interval_sources import IntervalMethod, pooled_source, source_of
from vcomp.model.levels_of_rows import object_scores, residuals_of_objects
from vcomp.model.record import FitRecord
from vcomp.model.row_access import Fitted, RowAccess, require_rows
from vcomp.model.stored_levels import EffectsWithin, ObjectScores, Within

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.model.slopes import ComponentsAt

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
        if components.has_slopes:
            there = f"{self._at_one_value()}.dstudy(…) for one value of it"
            why = f"universe scores depend on the covariate then: {there}"
            refuse("a D-study", self._record.traits, slopes=why)
        refuse(
            "an error variance that all objects share",
            self._record.traits,
            residuals="see res.random_effects, dstudy() and error_variances()",
        )
        self._check_planned()
        return components

    def _at_one_value(self) -> str:
        """Return how the components at one value of the covariates are written."""
        from vcomp.model.slopes import slope_names  # deferred for start-up time

        again, at = "fit the model again, and ", "…"
        if self._rows is not None:
            names = slope_names(self._rows.data.design.formula)
            again, at = "", ", ".join(f"{name!r}: …" for name in names)
        return f"{again}write res.components_at({{{at}}})"

    @guarded
    def components_at(self, at: Mapping[str, Any]) -> ComponentsAt:
        """Return the components of a model with random slopes at one value of the covariates.

        A term has one variance there, z'Λz for the columns z of its slopes, so that D-studies and
        quantities are those of a model of intercepts, with the intervals of this fit. All scores
        of a planned measurement are at that value: a mean over several values has the effects at
        the mean of z.

        Parameters
        ----------
        at : a value of each covariate of the slopes, a level of each factor

        Returns
        -------
        ComponentsAt
            with ``vcomp``, ``dstudy()`` and ``quantity()``

        Raises
        ------
        EstimationError
            If the model has no slopes.
        DataError
            If a covariate has no value, a name or value is none of the slopes, or the result was
            loaded without its rows.

        Examples
        --------
        >>> import vcomp
        >>> data = {"y": [1, 2, 4, 4, 5, 5, 3, 6, 9], "x": [0, 1, 2] * 3, "g": list("aaabbbccc")}
        >>> res = vcomp.fit("y ~ x + (x||g)", data)
        >>> res.components_at({"x": 2}).vcomp.round(2).to_dict()
        {'g': 8.78, 'Residual': 0.11}
        >>> res.components_at({"x": 2}).dstudy(replicate=1).table["Phi"].round(3).tolist()
        [0.987]
        """
        from vcomp.model.slopes import components_at  # deferred for start-up time

        self._check_planned()
        mean, notes = self._mean_of_scores(), self._on_scores()
        return components_at(self._record, self._row_access, mean, at, notes)

    def _check_planned(self) -> None:
        """Refuse known variances, and a facet that has the name of repeated scores."""
        record = self._record
        state = "vcomp.from_components() projects the components with a residual that you state"
        refuse("a D-study", record.traits, variances=state)
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
        groups = self._record.tables.components.groups
        if groups is None and self._record.weights is None:
            return ()
        notes = self._on_scores()
        if groups is None:
            return notes
        on_levels = (
            "By level (by_level, error_variances()): all scores of a measurement are at that "
            f"level of {groups.written}. The errors are conditional error variances (Brennan "
            "2001, section 5.4), of all objects there together."
        )
        return (notes[0], on_levels, *notes[1:])

    def _on_scores(self) -> tuple[str, ...]:
        """Return sentences on the residual variance of a score of a planned measurement."""
        groups, weights = self._record.tables.components.groups, self._record.weights
        notes: tuple[str, ...] = ()
        if groups is not None:
            which = f"the mean of the residual variances of the levels of {groups.written}"
            notes = (f"Residual: {which}.",)
        if weights is not None:
            of_weight = f"A score is one of weight 1: {weights.option}."
            notes = (*notes, of_weight, *self._record.on_interaction)
        return notes

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
                its number of scores and their mean, weighted if the fit has weights
            ``universe_score``, ``se``, ``low``, ``high``
                μ̂ + û, its best linear prediction at the mean of the covariates, with the standard
                error of the prediction (components treated as known) and a normal interval. In
                balanced data it is Kelley's: the mean score, shrunken towards the grand mean
            ``sem_rel``, ``sem_abs``
                √σ²(δ) and √σ²(Δ), the relative and absolute standard errors of measurement.
                Without `n` they use its own numbers of levels, and the mean of their squares over
                the objects is the error variance of the D-study. With residual variances by level
                an object has the mean of those of its own scores. With weights or known variances
                they are those of its weighted mean; with `n` those of scores of weight 1
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
            If the residual is estimated at zero; if effects are solved for iteratively, and the
            objects are too many for one solve each; or if sizes are given for a fit with known
            variances, as the score of another measurement has none.

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
                    "error variances of others",
                    column=name,
                )
        if record.offset is not None:
            raise PlanError(
                "universe_scores() is for scores without an offset, as its means would depend on "
                "the offsets of each object's scores; subtract the offset from the response, or "
                "see compare_levels(), whose means have the mean offset"
            )
        known = "variances" in record.traits and not wanted
        components = record.components if known else self._planned_components()
        return universe_scores(record, rows, components, object, wanted, alpha, negative)


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
    objects, index = scores_of_term(record, access, components, term)
    several = record.components.groups is not None
    residuals = residuals_of_objects(require_rows(access), term) if several else None
    differ = several or record.weights is not None  # errors of scores
    own_sizes = plan.inverse_n is not None or (differ and not n)
    errors = Errors(objects.within, components, plan, negative, own_sizes, residuals)
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
        frame["note"] = (
            _OTHER_WEIGHTS
            if errors.of_other_weights
            else _reasons(conditional_relative, conditional_absolute, len(plan.objects))
        )
    return frame


_DIFFERENT_CELLS = (
    "no csem_rel: objects do not all have the same cells equally often, so that the covariance "
    "with their scores is not estimable"
)

_OTHER_WEIGHTS = (
    "no csem_rel, csem_abs: from the scores of one object, a term and the residual of weight 1 "
    "cannot be distinguished; leave out the sizes"
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
    record: FitRecord, access: RowAccess | None, components: VarianceComponents, term: int
) -> tuple[ObjectScores, pd.Index]:
    """Return the universe scores of the levels of a term, and their names.

    Raises
    ------
    DataError
        If there are no rows, and the result was stored without them.
    """
    if access is None:
        return record.stored_levels().scores(record.estimate.names[term])
    objects = object_scores(access, components, term, access.effects)
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
            f"are {', '.join(components.names)}",
            term=plan.object,
        )
    return components.facets.index(plan.objects)


def _root(variances: FloatArray) -> FloatArray:
    """Return square roots, nan for kept estimates below zero."""
    return np.sqrt(np.where(variances >= 0.0, variances, np.nan))


@dataclass(frozen=True)
class Errors:
    """Error variances of the objects' mean scores.

    Attributes
    ----------
    within : analyses of variance of the objects' scores
    components : of the G-study
    plan : of the measurement
    negative : how negative components are used
    own_sizes : whether each object has its own numbers of levels
    residuals : (P,) residual variance of the scores of each object; None if all have one
    """

    within: Within
    components: VarianceComponents
    plan: DStudyPlan
    negative: Projected
    own_sizes: bool
    residuals: FloatArray | None = None

    @property
    def values(self) -> FloatArray:
        """The components, negative ones under the policy ``negative``."""
        return self._without_negative(self.components.values)

    @property
    def of_other_weights(self) -> bool:
        """Whether the errors are those of scores of weight 1, and the object's scores cannot say.

        Of a term that is confounded with the residual, weights reduce the residual alone.
        """
        effects = self._effects.all
        return (
            not self.own_sizes
            and self.within.of_scores is not None
            and effects[-1] in effects[:-1]
        )

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
        if self.own_sizes:
            inverse = self._own_inverse_n()
            absolute, relative = inverse * (absolute > 0.0), inverse * (relative > 0.0)
        return self._averaged(relative), self._averaged(absolute)

    def _averaged(self, weights: FloatArray) -> FloatArray:
        """Return the weighted sums of the components of each object, (P,)."""
        weights = np.broadcast_to(weights, (len(self.within.components), self.values.size))
        found: FloatArray = weights @ self.values
        if self.residuals is None:
            return found
        return found + weights[:, -1] * (self.residuals - self.values[-1])

    def _own_inverse_n(self) -> FloatArray:
        """Return Σ n²/(Σ n)² over the groups of every component within each object, (P, k + 1)."""
        within, effects = self.within, self._effects
        inverse = dict(zip(effects.everything, within.inverse_n.T, strict=True))
        if within.of_scores is not None:
            inverse[effects.all[-1]] = within.of_scores[:, 0]
        alone = np.ones(len(within.inverse_n))  # effects of the object are one group
        of_terms = [inverse.get(e, alone) for e in effects.all[:-1]]
        return np.column_stack([*of_terms, within.inverse_n[:, -1]])

    def conditional(self) -> tuple[FloatArray, FloatArray]:
        """Return σ̂²(δ_p) and σ̂²(Δ_p); the first nan where objects differ in their cells."""
        within, effects = self.within, self._effects
        inverse = within.inverse_n
        if self.of_other_weights:
            unknown = np.full(len(inverse), np.nan)
            return unknown, unknown
        if not self.own_sizes:
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
        alone = np.broadcast_to(alone, inverse.shape).copy()
        if within.of_scores is not None:  # the residual's unit is the variance of weight 1
            alone[:, -1:] *= within.of_scores / within.inverse_n[:, -1:]
        shared = np.where(own, 0.0, alone - 2.0 * within.shared)
        return (self._without_negative(within.components + shared) * inverse).sum(axis=1), absolute

    def _without_negative(self, values: FloatArray) -> FloatArray:
        return np.maximum(values, 0.0) if self.negative == "zero" else values
