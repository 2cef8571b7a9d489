"""The general likelihood engine: blocked elimination of Henderson's equations.

For any number of crossed and nested terms and any fixed effects. The largest term is eliminated
through its diagonal block, the rest is dense. With λ_t = σ²_t/σ²_e and C = [Z'Z + Λ⁻¹, Z'X; X'Z,
X'X] (MATHS 3b):

    log|V| = N log σ²_e + log|C_zz| + Σ q_t log λ_t
    tr(P V_t) = q_t/σ²_t − σ²_e tr(C^tt)/σ⁴_t
    Z_t'P y = û_t/σ²_t

Terms with σ²_t = 0 are not in the equations; their scores come from Z_t'P Z_t itself.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.engine import Derivatives, ExactEngine, InformationKind, Solution
from vcomp.estimators.equations import (
    Equations,
    Point,
    build_equations,
    cross_columns,
    solve_equations,
)
from vcomp.estimators.identify import mivque0, residual_sum_of_squares
from vcomp.exceptions import EstimationError
from vcomp.linalg.arrowhead import InverseBlocks, inverse_blocks
from vcomp.linalg.dense import solve_positive
from vcomp.linalg.memory import available_bytes, gib
from vcomp.linalg.threads import limited_blas
from vcomp.statistics import CrossProducts

__all__ = ["BlockedLikelihood"]


class BlockedLikelihood(ExactEngine):
    """Restricted or full log-likelihood of a variance components model, with derivatives.

    Parameters
    ----------
    stats : cross-products, centred
    reml : restricted likelihood, or the full one (ML)

    Raises
    ------
    EstimationError
        If the dense part would not fit into memory.
    """

    name: ClassVar[str] = "blocked"
    reason: ClassVar[str] = "the general engine, one block eliminated and the rest dense"
    kinds: ClassVar[tuple[InformationKind, ...]] = ("observed", "expected", "average")

    def __init__(self, stats: CrossProducts, *, reml: bool) -> None:
        self.stats = stats
        self.reml = reml
        self._equations: dict[tuple[int, ...], Equations] = {}
        self._tables: dict[tuple[int, int], Any] = {}
        # Value, derivatives and information are asked for one after the other at the same point.
        self._last: tuple[bytes, Point] | None = None
        self._last_inverse: tuple[Point, InverseBlocks] | None = None
        self._last_squares: tuple[Point, tuple[FloatArray, FloatArray]] | None = None
        self._check_size()

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.stats.n

    @property
    def n_fixed(self) -> int:
        """Number of columns of X."""
        return self.stats.n_fixed

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of random effects of the terms."""
        return self.stats.sizes

    @property
    def yy(self) -> float:
        """Sum of squares of the centred response."""
        return self.stats.yy

    @cached_property
    def rss(self) -> float:
        """What ordinary least squares on X leaves of it."""
        return residual_sum_of_squares(self.stats)

    def mivque0(self) -> FloatArray:
        """Return the MIVQUE(0) estimates, which may be negative."""
        return mivque0(self.stats)

    def least_squares(self) -> FloatArray:
        """Return the ordinary least squares estimate of the fixed effects."""
        return solve_positive(self.stats.XX, self.stats.Xy)

    def loglike(self, v: FloatArray) -> float:
        """Return the log-likelihood at components `v`, the residual last; equal to lme4's."""
        point = self._solve(v)
        with limited_blas(point.factor.L.shape[0]):
            return self._loglike(point)

    def derivatives(self, v: FloatArray) -> Derivatives:
        """Return log-likelihood, score and average information at `v`, zeros allowed."""
        point = self._solve(v)
        with limited_blas(point.factor.L.shape[0]):
            traces = self._traces(point, self._inverse(point))
            PZy = self._score_vectors(point)
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
        """
        point = self._solve(v)
        with limited_blas(point.factor.L.shape[0]):
            average = self._average(point, self._score_vectors(point))
            if kind == "average":
                return average
            expected = self._expected(point, positive_only=positive_only)
        return expected if kind == "expected" else 2.0 * average - expected

    def solution(self, v: FloatArray) -> Solution:
        """Return fixed effects and predicted effects at `v`."""
        point = self._solve(v)
        m = point.factor.n_sparse
        with limited_blas(point.factor.L.shape[0]):
            whole = inverse_blocks(point.factor, point.factor.L.shape[0])
            return Solution(
                beta=point.beta.copy(),
                cov_beta=point.residual * whole.tail[m:, m:],
                effects=tuple(self._effects(point, t) for t in range(self.stats.n_terms)),
                prediction_var=self._variances(point, whole),
                conditional_var=self._variances(point, whole.without_dense()),
            )

    # The equations ------------------------------------------------------------------------

    def _check_size(self) -> None:
        sizes = sorted(self.stats.sizes)
        order = sum(sizes[:-1]) + self.stats.n_fixed
        needed, free = 6.0 * 8.0 * order**2, available_bytes()
        if needed > 0.8 * free:
            raise EstimationError(
                f"the likelihood of these terms needs a dense block of order {order:,} "
                f"({gib(needed)}), and {gib(free)} are free; method='anova' needs no such block"
            )

    def _solve(self, v: FloatArray) -> Point:
        v = np.asarray(v, dtype=float)
        sizes = self.stats.sizes
        positive = [t for t in range(self.stats.n_terms) if v[t] > 0.0]
        active = tuple(sorted(positive, key=lambda t: (-sizes[t], t)))
        if active not in self._equations:
            self._equations[active] = build_equations(self.stats, active)
        key = v.tobytes()
        if self._last is None or self._last[0] != key:
            # They are let go before the next ones are made.
            self._last = self._last_inverse = self._last_squares = None
            self._last = key, solve_equations(self._equations[active], self.stats.yy, v)
        return self._last[1]

    def _order(self, point: Point) -> int:
        return int(point.factor.L.shape[0]) if self.reml else point.factor.n_sparse

    def _inverse(self, point: Point) -> InverseBlocks:
        if self._last_inverse is None or self._last_inverse[0] is not point:
            self._last_inverse = point, inverse_blocks(point.factor, self._order(point))
        return self._last_inverse[1]

    def _cross(self, t: int, u: int, effects: FloatArray) -> FloatArray:
        """Return Z_t'Z_u times effects of term u."""
        if t == u:
            return self.stats.group_n[t] * effects
        if (t, u) not in self._tables:
            self._tables[t, u] = self.stats.gram(t, u)
        product: FloatArray = self._tables[t, u] @ effects
        return product

    # Value and score ------------------------------------------------------------------------

    @cached_property
    def _degrees(self) -> int:
        return self.stats.n - (self.stats.n_fixed if self.reml else 0)

    def _loglike(self, point: Point) -> float:
        """−2ℓ = log|V| + log|X'V⁻¹X| + y'Py + (N−p) log 2π; ML without the second, and N."""
        s2, p = point.residual, self.stats.n_fixed
        log_random, log_fixed = point.factor.log_determinants()
        log_V = self.stats.n * np.log(s2) + log_random
        for t in point.equations.active:
            log_V += self.stats.sizes[t] * np.log(point.v[t] / s2)
        deviance = log_V + point.rss / s2 + self._degrees * np.log(2.0 * np.pi)
        if self.reml:
            deviance += log_fixed - p * np.log(s2)
        return float(-0.5 * deviance)

    def _score_vectors(self, point: Point) -> list[FloatArray]:
        """Return Z_t'P y for every term."""
        vectors = []
        for t in range(self.stats.n_terms):
            if point.v[t] > 0.0:
                vectors.append(point.solution_of(t) / point.v[t])
            else:
                fitted = self.stats.ZX[t] @ point.beta
                for u in point.equations.active:
                    fitted = fitted + self._cross(t, u, point.solution_of(u))
                vectors.append((self.stats.Zy[t] - fitted) / point.residual)
        return vectors

    def _traces(self, point: Point, inverse: InverseBlocks) -> FloatArray:
        """Return tr(P V_t) of every term (V⁻¹ in place of P for ML)."""
        return np.array([self._trace(point, inverse, t) for t in range(self.stats.n_terms)])

    def _trace(self, point: Point, inverse: InverseBlocks, term: int) -> float:
        v = point.v[term]
        if v == 0.0:
            return self._trace_at_zero(point, term)
        place = point.equations.active.index(term)
        if place == 0:
            block = inverse.lead_trace()
        else:
            block = float(np.diagonal(inverse.tail)[point.equations.slices[place - 1]].sum())
        return float(self.stats.sizes[term] / v - point.residual * block / v**2)

    def _trace_at_zero(self, point: Point, term: int) -> float:
        """Return tr(Z_t'P Z_t) of a term outside the equations, some columns at a time."""
        total = float(self.stats.group_n[term].sum())
        for lead, tail in cross_columns(self.stats, point.equations, term):
            half = point.factor.half_solve(lead, tail, self._order(point))
            total -= float((np.square(lead) / point.factor.a[:, None]).sum())
            total -= float(np.square(half).sum())
        return total / point.residual

    def _score(self, point: Point, traces: FloatArray, PZy: list[FloatArray]) -> FloatArray:
        """½ (y'P V_t P y − tr(P V_t)); the residual's follows, as Σ σ² s is known."""
        score = np.empty(self.stats.n_terms + 1)
        score[:-1] = [0.5 * (r @ r - trace) for r, trace in zip(PZy, traces, strict=True)]
        total = 0.5 * (point.rss / point.residual - self._degrees)
        score[-1] = (total - point.v[:-1] @ score[:-1]) / point.residual
        return score

    # Information ----------------------------------------------------------------------------

    def _average(self, point: Point, PZy: list[FloatArray]) -> FloatArray:
        """Return ½ y'P V_t P V_u P y.

        With f_t = Z_t Z_t'P y every element is f_t'P f_u. For the residual P(Σ σ²_t V_t + σ²_e I)P
        = P gives y'P P V_u P y without touching a row.
        """
        k, s2, active = self.stats.n_terms, point.residual, point.equations.active
        Zf = [[self._cross(t, u, r) for u, r in enumerate(PZy)] for t in range(k)]
        Xf = np.column_stack([ZX.T @ r for ZX, r in zip(self.stats.ZX, PZy, strict=True)])
        blocks = [np.column_stack(Zf[t]) for t in active]
        lead = blocks[0] if blocks else np.zeros((0, k))
        tail = np.concatenate([*blocks[1:], Xf])
        solved_lead, solved_tail = point.factor.solve(lead, tail)
        ff = np.array([[r @ Zf[t][u] for u in range(k)] for t, r in enumerate(PZy)])
        fPf = (ff - lead.T @ solved_lead - tail.T @ solved_tail) / s2
        squares = np.array([r @ r for r in PZy])
        return 0.5 * _with_residual(fPf, squares, point.rss / s2, point.v)

    def _expected(self, point: Point, *, positive_only: bool) -> FloatArray:
        """Return ½ tr(P V_t P V_u) from squared norms of the blocks of C⁻¹."""
        v, k = point.v, self.stats.n_terms
        if positive_only or (v[:-1] > 0.0).all():
            kept = [*(t for t in range(k) if v[t] > 0.0), k]
            squares, traces = self._squares(point)
        else:
            kept = list(range(k + 1))
            squares, traces = _dense_squares(self.stats, point, self._order(point))
        information = np.full((k + 1, k + 1), np.nan)
        information[np.ix_(kept, kept)] = 0.5 * _with_residual(
            squares, traces, float(self._degrees), v[kept]
        )
        return information

    def _squares(self, point: Point) -> tuple[FloatArray, FloatArray]:
        """Return ‖Z_t'P Z_u‖² and tr(Z_t'P Z_t) of the positive components, in their order.

        They follow from Z_t'P Z_u = δ_tu I/σ²_t − σ²_e C^tu/(σ²_t σ²_u).
        """
        active = point.equations.active
        if not active:
            return np.zeros((0, 0)), np.zeros(0)
        if self._last_squares is not None and self._last_squares[0] is point:
            return self._last_squares[1]
        inverse, terms = self._inverse(point), sorted(active)
        places = [active.index(t) for t in terms]
        norms = inverse.squared_norms(list(point.equations.slices))[np.ix_(places, places)]
        v = point.v[terms]
        sizes = np.array([self.stats.sizes[t] for t in terms], dtype=float)
        traces = np.array([self._trace(point, inverse, t) for t in terms])
        squares = point.residual**2 * norms / np.outer(v, v) ** 2
        # ‖I/σ² − M‖² = q/σ⁴ − 2 tr(M)/σ² + ‖M‖², and tr(M) = q/σ² − tr(Z'PZ).
        squares[np.diag_indices_from(squares)] += (2.0 * traces - sizes / v) / v
        self._last_squares = point, (squares, traces)
        return squares, traces

    # Predictions ----------------------------------------------------------------------------

    def _effects(self, point: Point, term: int) -> FloatArray:
        if point.v[term] == 0.0:
            return np.zeros(self.stats.sizes[term])
        return point.solution_of(term).copy()

    def _variances(self, point: Point, inverse: InverseBlocks) -> tuple[FloatArray, ...]:
        variances = []
        for t, size in enumerate(self.stats.sizes):
            if point.v[t] == 0.0:
                variances.append(np.zeros(size))
            elif t == point.equations.active[0]:
                variances.append(point.residual * inverse.lead_diagonal())
            else:
                place = point.equations.slices[point.equations.active.index(t) - 1]
                variances.append(point.residual * np.diagonal(inverse.tail)[place])
        return tuple(variances)


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


def _dense_squares(
    stats: CrossProducts, point: Point, order: int
) -> tuple[FloatArray, FloatArray]:
    """Return ‖Z_t'P Z_u‖² and tr(Z_t'P Z_t) with Z'PZ formed: where some component is zero."""
    ends = np.cumsum([0, *stats.sizes])
    q = int(ends[-1])
    needed, free = 4.0 * 8.0 * q**2, available_bytes()
    if needed > 0.8 * free:
        raise EstimationError(
            f"the expected information with a component at zero needs {gib(needed)}, and "
            f"{gib(free)} are free; kind='average' needs no such matrix"
        )
    W = np.empty((q, q))
    slabs = []
    for t in range(stats.n_terms):
        for u in range(stats.n_terms):
            W[ends[t] : ends[t + 1], ends[u] : ends[u + 1]] = stats.gram(t, u).toarray()
        slabs += list(cross_columns(stats, point.equations, t))
    lead = np.concatenate([s[0] for s in slabs], axis=1)
    half = np.concatenate([point.factor.half_solve(s[0], s[1], order) for s in slabs], axis=1)
    W -= lead.T @ (lead / point.factor.a[:, None]) + half.T @ half
    W /= point.residual
    squares = np.add.reduceat(np.add.reduceat(np.square(W), ends[:-1], axis=0), ends[:-1], axis=1)
    return squares, np.add.reduceat(np.diagonal(W), ends[:-1])
