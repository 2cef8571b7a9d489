"""The blocked engine: the likelihood of any design by elimination of Henderson's equations.

It allows any number of crossed and nested terms and any fixed effects. Leading terms are
eliminated as a sparse matrix, the others as a dense one. Value, score and informations
(docs/explanation/mathematics.md, eqs. (5.1) to (5.6)) follow from one factorisation, without
finite differences. The algebra of the equations is in
:mod:`~vcomp.estimators.likelihood.term_point`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood.blocked_covariance import (
    OTHER_ENGINE,
    Eliminations,
    with_residual_forms,
)
from vcomp.estimators.likelihood.engine import (
    Cancellation,
    Curvature,
    Derivatives,
    ExactEngine,
    FixedForms,
    InformationKind,
    LikelihoodEngine,
    Solution,
    Squares,
)
from vcomp.estimators.likelihood.fixed_part import (
    CrossProductsEngine,
    fixed_effects_at,
    forms_of_point,
)
from vcomp.estimators.likelihood.starts import EffectForms
from vcomp.estimators.likelihood.surface import NodeValues
from vcomp.estimators.likelihood.term_point import TermPoint
from vcomp.numerics import limited_blas
from vcomp.statistics import CrossProducts, Statistics, WideProducts

_QUICK = 0.01
"""Seconds of an evaluation up to which squares are computed at each point near the maximum."""

_FAR = 0.05
"""Newton decrement above which Fisher's steps are better than Newton's: they are exact for
balanced data, but converge linearly."""

_SLOW = 0.3
"""Ratio of successive decrements above which carried squares are computed anew."""

_SMALL_RESIDUAL = 1e-4
"""Share of the largest component below which the residual's form of X cancels in eq. (5.9)."""

_CHEAP_SECONDS, _EVALUATIONS = 0.1, 5.0
"""Seconds, and evaluations, up to which the expected information is cheap."""


class BlockedLikelihood(ExactEngine, CrossProductsEngine):
    """Restricted or full log-likelihood of a variance components model, with derivatives.

    Parameters
    ----------
    stats : cross-products, centred; a factor of many levels in their fixed part is eliminated with
        the random effects
    reml : whether the likelihood is the restricted one
    names : of the terms, for messages
    advice : end of the message if the factor does not fit into memory
    eliminations : equations of these statistics that are already analysed; None analyses them
    squares : first squares of climbs that start near their components

    Attributes
    ----------
    eliminations : the analysed equations, with the last factor

    Raises
    ------
    EstimationError
        If the factor would not fit into memory.
    """

    name: ClassVar[str] = "blocked"
    cancellation: ClassVar[Cancellation] = "equations"

    def __init__(
        self,
        stats: CrossProducts | WideProducts,
        *,
        reml: bool,
        names: Sequence[str] | None = None,
        advice: str = OTHER_ENGINE,
        eliminations: Eliminations | None = None,
        squares: Squares | None = None,
    ) -> None:
        self.stats = stats
        self.reml = reml
        self._squares = squares
        self.eliminations = eliminations or Eliminations(stats, names, advice)

    def with_response(self, stats: Statistics) -> BlockedLikelihood:
        """Return the engine of the same rows with another response, without a new analysis.

        The two share working memory, so that only one of them can be used at a time.
        """
        return self._like(stats.eliminated, self._squares)

    def recombined(
        self, columns: FloatArray, like: LikelihoodEngine | None = None
    ) -> LikelihoodEngine:
        """Return the ML engine of the same rows with other columns.

        Raises
        ------
        EstimationError
            If a factor of many levels is among the columns, as these are not formed.
        """
        sums = self.stats.recombined(columns)
        if like is None:
            return BlockedLikelihood(sums, reml=False)
        return like.with_response(Statistics.from_cross_products(sums))

    @property
    def solves_many(self) -> bool:
        """Whether one factorisation serves many responses: if all columns of X are dense."""
        return self.stats.factor is None

    def node_values(
        self, sums: Sequence[CrossProducts], centre: FloatArray, width: FloatArray
    ) -> Callable[[FloatArray], NodeValues]:
        """Return the values of many responses of the same rows as a function of (k,) ratios."""
        Zy = [np.column_stack(columns) for columns in zip(*(s.Zy for s in sums), strict=True)]
        Xy, yy = np.column_stack([s.Xy for s in sums]), np.array([s.yy for s in sums])

        def values(ratios: FloatArray) -> NodeValues:
            point = self.point(np.append(ratios, 1.0))
            right = point.stacked(Zy)
            effects, beta = point.solve(right, Xy)
            rss = yy - (right * effects).sum(axis=0) - (Xy * beta).sum(axis=0)
            log_v, log_fixed = point.log_determinants()
            log_det = log_v + log_fixed if self.reml else log_v
            return NodeValues(rss, np.full(yy.size, log_det), beta.T)

        return values

    def _like(self, stats: Any, squares: Squares | None) -> BlockedLikelihood:
        """Return the engine of another response, for climbs that start with some squares."""
        shared = self.eliminations.with_response(stats)
        return type(self)(stats, reml=self.reml, eliminations=shared, squares=squares)

    def prepared(self, v: FloatArray) -> BlockedLikelihood:
        """Return the engine for many responses whose climbs start at `v`.

        They share the factor and the squares there.

        Parameters
        ----------
        v : components, the residual last

        Raises
        ------
        numpy.linalg.LinAlgError
            If the equations cannot be factored at `v`.
        """
        self.eliminations.keep(v)
        if self.seconds < _QUICK or "observed" not in self.kinds:
            return self
        return self._like(self.stats, self._squares_at(self.point(v), positive_only=True))

    @property
    def reason(self) -> str:
        """How the equations are eliminated: a clause for the result."""
        return self.eliminations.in_words()

    @property
    def kinds(self) -> tuple[InformationKind, ...]:
        """The kinds of information whose computation fits into memory."""
        exact = self.eliminations.norms_fit()
        return ("observed", "expected", "average") if exact else ("average",)

    @property
    def seconds(self) -> float:
        """Expected time of one evaluation in seconds."""
        return self.eliminations.seconds

    def point(self, v: FloatArray) -> TermPoint:
        """Return the equations factored at components `v`, the residual last."""
        return self.eliminations.at(v)

    def loglike(self, v: FloatArray) -> float:
        """Return the log-likelihood at components `v`, the residual last; equal to lme4's."""
        return self._loglike(self.point(v))

    def derivatives(self, v: FloatArray) -> Derivatives:
        """Return log-likelihood, score and average information at `v`; components may be 0."""
        with limited_blas(0):
            point = self.point(v)
            traces = self._of_traces(point).traces(with_fixed=self.reml)
            score = self._score(point, traces)
            return Derivatives(self._loglike(point), score, self._average(point))

    def information(
        self,
        v: FloatArray,
        kind: InformationKind = "observed",
        *,
        positive_only: bool = False,
    ) -> FloatArray:
        """Return an information matrix of the components at `v`.

        ``"expected"`` is ½ tr(P V_t P V_u) (for ML with V⁻¹ in place of P), ``"average"`` is
        ½ y'P V_t P V_u P y, and the observed one, −∂²ℓ, is twice the average less the expected.

        Parameters
        ----------
        positive_only : whether rows of components at zero, which cost much more, are left nan

        Raises
        ------
        EstimationError
            If the kind is not among `kinds`.
        """
        if kind != "average":
            self.eliminations.check_norms(kind)
        with limited_blas(0):
            point = self.point(v)
            average = self._average(point)
            if kind == "average":
                return average
            expected = self._expected(self._squares_at(point, positive_only=positive_only))
        return expected if kind == "expected" else 2.0 * average - expected

    def curvature(
        self, v: FloatArray, decrement: float, squares: Squares | None = None
    ) -> Curvature | None:
        """Return the information of the next step, None if the average one is to be used.

        Squares are computed once near the maximum, or before a climb if the engine is
        :meth:`prepared`, and then carried along.
        """
        if self.seconds < _QUICK or "observed" not in self.kinds:
            return super().curvature(v, decrement)
        point = self.point(v)
        here = self._carried(squares or self._squares, point, decrement)
        if here is None:
            if decrement >= self.newton_below:
                return None
            here = replace(self._squares_at(point, positive_only=True), decrement=decrement)
        expected = self._expected(here)
        if here.is_exact and decrement > _FAR:
            return Curvature("Fisher", expected, here)
        return Curvature("Newton", 2.0 * self._average(point) - expected, here)

    def _carried(
        self, known: Squares | None, point: TermPoint, decrement: float
    ) -> Squares | None:
        """Return squares carried from another point; None if they are too far or too slow."""
        if known is None or (
            decrement < self.newton_below and decrement > _SLOW * known.decrement
        ):
            return None
        traces = self._of_traces(point).traces(with_fixed=self.reml)[: len(self.sizes)]
        carried = known.carried(self._components(point), traces)
        return None if carried is None else replace(carried, decrement=decrement)

    def expects_cheaply(self, v: FloatArray) -> bool:
        """Return whether the expected information of all components costs a few evaluations.

        Each group of a component at zero may need a solve.
        """
        seconds = self.point(v).seconds_at_zero()
        return seconds <= max(_CHEAP_SECONDS, _EVALUATIONS * self.seconds)

    def effect_forms(self, v: FloatArray, terms: Sequence[int]) -> EffectForms | None:
        """Return forms of the effects of terms with few levels; None if they are not cheap."""
        point = self.point(v)
        affordable = max(_CHEAP_SECONDS, _EVALUATIONS * self.seconds)
        if point.seconds_of_columns(terms) > affordable:
            return None
        within = full = point.between_groups(terms, with_fixed=True)
        if not self.reml:
            full = self._without_fixed(point).between_groups(terms, with_fixed=False)
        term = np.repeat(terms, [self.sizes[t] for t in terms])
        return EffectForms(v, term, within, full, np.concatenate([point.PZy[t] for t in terms]))

    def fixed_effects(self, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return β̂ and its covariance matrix at `v`, not formed for a factor of many levels."""
        return fixed_effects_at(self.point(v), self.stats)

    def quadratics(self, v: FloatArray) -> FloatArray:
        """Return y'P V_t P y at `v`, the residual last."""
        point = self.point(v)
        squares = np.array([r @ r for r in point.PZy])
        total = point.solution[2] / point.residual
        rest = (total - self._components(point)[:-1] @ squares) / point.residual
        return np.append(squares, rest)

    def fixed_forms(self, v: FloatArray, *, second: bool = False) -> FixedForms:
        """Return forms of X in V⁻¹ at `v`, the second ones if requested.

        Raises
        ------
        EstimationError
            If there are too many columns for matrices of columns by columns.
        """
        sums = self.stats.dense
        if sums is not self.stats:
            return BlockedLikelihood(sums, reml=self.reml).fixed_forms(v, second=second)
        if not second and (v[:-1] > 0.0).all() and v[-1] < _SMALL_RESIDUAL * v.max():
            return self.eliminations.refined_forms(v)
        return forms_of_point(self.point(v), second=second)

    def solution(self, v: FloatArray) -> Solution:
        """Return fixed effects and predicted effects at `v`."""
        point = self.point(v)
        terms = range(len(self.sizes))
        beta, cov_beta = self.fixed_effects(v)

        def variances(*, with_fixed: bool) -> list[FloatArray]:
            at = point if with_fixed else self._without_fixed(point)
            return [self._variance(at, t, with_fixed=with_fixed) for t in terms]

        return Solution(
            beta=beta,
            cov_beta=cov_beta,
            effects=tuple(
                point.effects_of(t).copy() if point.v[t] > 0.0 else np.zeros(self.sizes[t])
                for t in terms
            ),
            variances=lambda: (variances(with_fixed=True), variances(with_fixed=False)),
        )

    def _variance(self, point: TermPoint, term: int, *, with_fixed: bool) -> FloatArray:
        if point.v[term] == 0.0:
            return np.zeros(self.sizes[term])
        return point.residual * point.block_diagonal(term, with_fixed=with_fixed)

    # Value and score ------------------------------------------------------------------------

    @cached_property
    def _degrees(self) -> int:
        return self.n - (self.n_fixed if self.reml else 0)

    def _without_fixed(self, point: TermPoint) -> TermPoint:
        """Return the point from which forms of V⁻¹ follow, if `point` has those of P."""
        random = self._random_part
        return point if random is None else random.at(self._components(point))

    @cached_property
    def _random_part(self) -> Eliminations | None:
        """The equations without the factor of many levels; None without such a factor."""
        if self.stats.factor is None:
            return None
        return self.eliminations.of_random(self.stats)

    def _of_traces(self, point: TermPoint) -> TermPoint:
        """Return the point with the traces of the likelihood."""
        return point if self.reml else self._without_fixed(point)

    def _components(self, point: TermPoint) -> FloatArray:
        """Return the components (k + 1,) of the random terms and the residual."""
        return np.append(point.v[: len(self.sizes)], point.residual)

    def _loglike(self, point: TermPoint) -> float:
        """Return ℓ by docs/explanation/mathematics.md, eqs. (5.1) for REML and (5.2) for ML."""
        log_v, log_fixed = self._of_traces(point).log_determinants()
        deviance = log_v + point.solution[2] / point.residual + self._degrees * np.log(2.0 * np.pi)
        return float(-0.5 * (deviance + log_fixed if self.reml else deviance))

    def _score(self, point: TermPoint, traces: FloatArray) -> FloatArray:
        """Return the likelihood score, eq. (5.3); that of the residual follows as in (5.9)."""
        k, v = len(self.sizes), self._components(point)
        score = np.empty(k + 1)
        score[:-1] = [0.5 * (r @ r - t) for r, t in zip(point.PZy, traces[:k], strict=True)]
        total = 0.5 * (point.solution[2] / point.residual - self._degrees)
        score[-1] = (total - v[:-1] @ score[:-1]) / point.residual
        return score

    # Information ----------------------------------------------------------------------------

    def _average(self, point: TermPoint) -> FloatArray:
        """Return the average information ½ y'P V_t P V_u P y, eq. (5.5).

        For the residual, P(Σ σ²_t V_t + σ²_e I)P = P gives y'P P V_u P y without the rows.
        """
        squares = np.array([r @ r for r in point.PZy])
        total = point.solution[2] / point.residual
        return 0.5 * with_residual_forms(point.forms, squares, total, self._components(point))

    def _squares_at(self, point: TermPoint, *, positive_only: bool) -> Squares:
        """Return tr(Q V_t Q V_u), Q = P or V⁻¹, from squared norms of the blocks of Z'QZ."""
        k, of_traces = len(self.sizes), self._of_traces(point)
        traces = of_traces.traces(with_fixed=self.reml)
        squares = of_traces.squares(traces, with_fixed=self.reml, positive_only=positive_only)
        return Squares(self._components(point), traces[:k], squares[:k, :k])

    def _expected(self, known: Squares) -> FloatArray:
        """Return ½ tr(Q V_t Q V_u), eq. (5.4); nan for terms without squares."""
        k = len(self.sizes)
        kept = np.flatnonzero(~np.isnan(np.diagonal(known.squares)))
        whole = [*kept, k]
        information = np.full((k + 1, k + 1), np.nan)
        information[np.ix_(whole, whole)] = 0.5 * with_residual_forms(
            known.squares[np.ix_(kept, kept)],
            known.traces[kept],
            float(self._degrees),
            known.v[whole],
        )
        return information
