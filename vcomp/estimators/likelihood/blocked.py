"""The general likelihood engine: blocked elimination of Henderson's equations.

For any number of crossed and nested terms and any fixed effects (the algebra is in
:mod:`vcomp.estimators.likelihood.equations`). Leading terms are eliminated sparsely, the rest is dense;
value, score and informations all come from that one factor, without finite differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.identify import mivque0, residual_sum_of_squares
from vcomp.estimators.likelihood.blocked_covariance import Eliminations
from vcomp.estimators.likelihood.engine import (
    Derivatives,
    ExactEngine,
    FixedForms,
    InformationKind,
    Solution,
    SummedEngine,
)
from vcomp.estimators.likelihood.equations import Point
from vcomp.estimators.likelihood.fixed_forms import forms_of_point
from vcomp.numerics import solve_positive
from vcomp.statistics import CrossProducts

__all__ = [
    "BlockedLikelihood",
    "CrossProductsEngine",
]


class CrossProductsEngine(SummedEngine):
    """Least squares and a start from cross-products alone."""

    stats: CrossProducts

    @cached_property
    def rss(self) -> float:
        """What ordinary least squares on X leaves of the response."""
        return residual_sum_of_squares(self.stats)

    def mivque0(self) -> FloatArray:
        """Return the MIVQUE(0) estimates, which may be negative."""
        return mivque0(self.stats)

    def least_squares(self) -> FloatArray:
        """Return the ordinary least squares estimate of the fixed effects."""
        return solve_positive(self.stats.XX, self.stats.Xy)


class BlockedLikelihood(CrossProductsEngine, ExactEngine):
    """Restricted or full log-likelihood of a variance components model, with derivatives.

    Parameters
    ----------
    stats : cross-products, centred
    reml : restricted likelihood, or the full one (ML)
    names : of the terms, for messages
    advice : what to do where the factor does not fit into memory
    eliminations : of these rows, where they were planned before

    Raises
    ------
    EstimationError
        If the factor would not fit into memory.
    """

    name: ClassVar[str] = "blocked"

    def __init__(
        self,
        stats: CrossProducts,
        *,
        reml: bool,
        names: Sequence[str] | None = None,
        advice: str = "use engine='iterative', or method='anova'",
        eliminations: Eliminations | None = None,
    ) -> None:
        self.stats = stats
        self.reml = reml
        self._eliminations = eliminations or Eliminations(stats, names, advice)

    def with_response(self, stats: CrossProducts) -> BlockedLikelihood:
        """Return the engine of the same rows with another response, nothing analysed again.

        The two share what they compute in: one of them can be used at a time.

        Parameters
        ----------
        stats : that differ in Zy, X'y and y'y only
        """
        eliminations = self._eliminations.with_response(stats)
        return BlockedLikelihood(stats, reml=self.reml, eliminations=eliminations)

    @property
    def reason(self) -> str:
        """How the equations are eliminated."""
        return self._eliminations.in_words()

    @property
    def kinds(self) -> tuple[InformationKind, ...]:
        """The informations that fit into memory."""
        exact = self._eliminations.norms_fit()
        return ("observed", "expected", "average") if exact else ("average",)

    @property
    def seconds(self) -> float:
        """How long one evaluation is expected to take."""
        return self._eliminations.seconds

    def point(self, v: FloatArray) -> Point:
        """Return the equations factored at components `v`, the residual last."""
        return self._eliminations.at(v)

    def loglike(self, v: FloatArray) -> float:
        """Return the log-likelihood at components `v`, the residual last; equal to lme4's."""
        return self._loglike(self._eliminations.at(v))

    def derivatives(self, v: FloatArray) -> Derivatives:
        """Return log-likelihood, score and average information at `v`, zeros allowed."""
        point = self._eliminations.at(v)
        PZy = self._score_vectors(point)
        traces = point.traces(with_fixed=self.reml)
        score = self._score(point, traces, PZy)
        return Derivatives(self._loglike(point), score, self._average(point, PZy))

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
        positive_only : leave nan where a component is zero, which costs much less than its rows

        Raises
        ------
        EstimationError
            If the kind is not among `kinds`.
        """
        if kind != "average":
            self._eliminations.check_norms(kind)
        point = self._eliminations.at(v)
        average = self._average(point, self._score_vectors(point))
        if kind == "average":
            return average
        expected = self._expected(point, positive_only=positive_only)
        return expected if kind == "expected" else 2.0 * average - expected

    def fixed_effects(self, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return β̂ and its covariance matrix at `v`."""
        point = self._eliminations.at(v)
        return point.solution[1].copy(), point.residual * point.fixed.inverse()

    def fixed_forms(self, v: FloatArray, *, second: bool = False) -> FixedForms:
        """Return forms of X in V⁻¹ at `v`, the second ones if asked for."""
        return forms_of_point(self._eliminations.at(v), second=second)

    def solution(self, v: FloatArray) -> Solution:
        """Return fixed effects and predicted effects at `v`."""
        point = self._eliminations.at(v)
        terms = range(self.stats.n_terms)
        beta, cov_beta = self.fixed_effects(v)
        return Solution(
            beta=beta,
            cov_beta=cov_beta,
            effects=tuple(
                point.effects_of(t).copy() if point.v[t] > 0.0 else np.zeros(self.sizes[t])
                for t in terms
            ),
            prediction_var=tuple(self._variance(point, t, with_fixed=True) for t in terms),
            conditional_var=tuple(self._variance(point, t, with_fixed=False) for t in terms),
        )

    def _variance(self, point: Point, term: int, *, with_fixed: bool) -> FloatArray:
        if point.v[term] == 0.0:
            return np.zeros(self.sizes[term])
        return point.residual * point.block_diagonal(term, with_fixed=with_fixed)

    # Value and score ------------------------------------------------------------------------

    @cached_property
    def _degrees(self) -> int:
        return self.stats.n - (self.stats.n_fixed if self.reml else 0)

    def _loglike(self, point: Point) -> float:
        """−2ℓ = log|V| + log|X'V⁻¹X| + y'Py + (N−p) log 2π; ML without the second, and N."""
        log_v, log_fixed = point.log_determinants()
        deviance = log_v + point.solution[2] / point.residual + self._degrees * np.log(2.0 * np.pi)
        return float(-0.5 * (deviance + log_fixed if self.reml else deviance))

    def _score_vectors(self, point: Point) -> list[FloatArray]:
        """Return Z_t'P y for every term."""
        effects, beta, _ = point.solution
        sums = [Zy[:, None] for Zy in self.stats.Zy]
        return [r[:, 0] for r in point.projected(sums, (effects[:, None], beta[:, None]))]

    def _score(self, point: Point, traces: FloatArray, PZy: list[FloatArray]) -> FloatArray:
        """½ (y'P V_t P y − tr(P V_t)); the residual's follows, as Σ σ² s is known."""
        score = np.empty(self.stats.n_terms + 1)
        score[:-1] = [0.5 * (r @ r - trace) for r, trace in zip(PZy, traces, strict=True)]
        total = 0.5 * (point.solution[2] / point.residual - self._degrees)
        score[-1] = (total - point.v[:-1] @ score[:-1]) / point.residual
        return score

    # Information ----------------------------------------------------------------------------

    def _average(self, point: Point, PZy: list[FloatArray]) -> FloatArray:
        """Return ½ y'P V_t P V_u P y.

        With f_u = Z_u Z_u'P y every element is (Z_t'P y)'(Z_t'P f_u). For the residual
        P(Σ σ²_t V_t + σ²_e I)P = P gives y'P P V_u P y without touching a row.
        """
        k, tables = self.stats.n_terms, point.equations.tables
        sums = [
            np.column_stack([tables.times(t, u, PZy[u][:, None]) for u in range(k)])
            for t in range(k)
        ]
        Xf = np.column_stack([ZX.T @ r for ZX, r in zip(self.stats.ZX, PZy, strict=True)])
        projected = point.projected(sums, point.solve(point.stacked(sums), Xf))
        fPf = np.array([r @ Pf for r, Pf in zip(PZy, projected, strict=True)])
        squares = np.array([r @ r for r in PZy])
        total = point.solution[2] / point.residual
        return 0.5 * _with_residual(0.5 * (fPf + fPf.T), squares, total, point.v)

    def _expected(self, point: Point, *, positive_only: bool) -> FloatArray:
        """Return ½ tr(P V_t P V_u) from squared norms of the blocks of Z'PZ."""
        v, k = point.v, self.stats.n_terms
        traces = point.traces(with_fixed=self.reml)
        squares = point.squares(traces, with_fixed=self.reml, positive_only=positive_only)
        kept = [t for t in range(k) if v[t] > 0.0 or not positive_only]
        whole = [*kept, k]
        information = np.full((k + 1, k + 1), np.nan)
        information[np.ix_(whole, whole)] = 0.5 * _with_residual(
            squares[np.ix_(kept, kept)], traces[kept], float(self._degrees), v[whole]
        )
        return information


def _with_residual(
    squares: FloatArray, traces: FloatArray, total: float, v: FloatArray
) -> FloatArray:
    """Add the residual's row to a matrix of forms a_tu = ⟨P V_t, P V_u⟩.

    Because P V P = P, with V = Σ σ²_t V_t + σ²_e I: Σ_u σ²_u a_tu + σ²_e a_te = a_t, and likewise
    Σ_u σ²_u a_u + σ²_e a_e = a, where a_t and a are the forms with one V and with none.

    Parameters
    ----------
    squares : (k, k) a_tu of the terms
    traces : (k,) a_t, the forms with one V only: tr(P V_t), or y'P V_t P y
    total : a: N − p, or y'P y
    v : (k + 1,) components
    """
    s2 = v[-1]
    mixed = (traces - squares @ v[:-1]) / s2
    alone = (total - v[:-1] @ traces) / s2
    corner = (alone - v[:-1] @ mixed) / s2
    return np.block([[squares, mixed[:, None]], [mixed[None, :], np.array([[corner]])]])
