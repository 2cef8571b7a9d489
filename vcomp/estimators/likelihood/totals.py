"""Forms of V⁻¹ of all rows, and the engines that compute value, score and information from them.

:class:`Totals` adds up the forms of strata (docs/explanation/mathematics.md, eqs. (3.3), (3.4),
(5.7) and (5.8)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, cast

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood.engine import (
    AnyPoint,
    Derivatives,
    ExactEngine,
    FixedForms,
    InformationKind,
    LastPoint,
    LikelihoodEngine,
    Solution,
    SummedEngine,
)
from vcomp.estimators.likelihood.starts import EffectForms
from vcomp.exceptions import EstimationError
from vcomp.numerics import Positive, solve, solve_positive

if TYPE_CHECKING:
    from vcomp.statistics import Statistics


@dataclass(frozen=True, slots=True)
class Forms:
    """Forms of V⁻¹ at one point; the residual is the last of the L + 1 components.

    The b columns B (y and the columns of X) may each consist of r independent vectors with the
    same V, where r is the multiplicity of a stratum. Forms in B are summed over the vectors; the
    other forms are those of a single V.

    Attributes
    ----------
    log_det : log|V|
    traces : (L + 1,) tr(V⁻¹K_l)
    squares : (L + 1, L + 1) tr(V⁻¹K_l V⁻¹K_m)
    gram : (b, b) B'V⁻¹B
    first : (L + 1, b, b) B'V⁻¹K_l V⁻¹B
    second : (L + 1, L + 1, b, b) B'V⁻¹K_l V⁻¹K_m V⁻¹B
    """

    log_det: float
    traces: FloatArray
    squares: FloatArray
    gram: FloatArray
    first: FloatArray
    second: FloatArray


@dataclass(frozen=True, slots=True)
class Columns:
    """Sums of the b columns B of a stratum, each of r vectors.

    Attributes
    ----------
    ZB : for each term Z_t'B, (q_t, b, r)
    BB : (b, b) cross-products of the columns, summed over vectors
    """

    ZB: tuple[FloatArray, ...]
    BB: FloatArray


class Covariance(Protocol):
    """The covariance matrix V of a stratum as a function of its components, with columns B."""

    def log_det_and_gram(self, c: FloatArray) -> tuple[float, FloatArray]:
        """Return log|V| and B'V⁻¹B, from which the value of a likelihood follows."""

    def forms(self, c: FloatArray) -> Forms:
        """Return all forms at components `c`: the residual (the last) positive, others ≥ 0."""

    def squares_of(self, c: FloatArray, weights: FloatArray) -> FloatArray:
        """Return r'V⁻¹K_l V⁻¹r of the column r = B `weights`, (L + 1,)."""

    def projections(self, c: FloatArray) -> tuple[FloatArray, ...]:
        """Return Z_l'V⁻¹B of every term, (q_l, b, r)."""

    def between(self, c: FloatArray, groupings: Sequence[int]) -> FloatArray:
        """Return Z'V⁻¹Z of the groups of some groupings, (q, q)."""

    def unexplained(self, c: FloatArray, grouping: int, own: float, others: float) -> FloatArray:
        """Return 1 − own · diag(Z_l'V⁻¹Z_l) of one grouping, (q_l,).

        The conditional variance of the effects as a fraction of their component, eq. (9.3).

        Parameters
        ----------
        c : components of the stratum
        grouping : l
        own, others : parts of c_l due to one component of the model, and to the others with the
            same grouping
        """


_MANY_COLUMNS = 32
"""Smallest number of columns whose products of forms are added pair by pair."""


class Totals:
    """Forms of V⁻¹ of all rows, with the columns B = [y X], summed over strata.

    Parameters
    ----------
    n_components : k + 1, the residual included
    n_columns : b = 1 + p
    """

    def __init__(self, n_components: int, n_columns: int) -> None:
        k, b = n_components, n_columns
        self.log_det = 0.0
        self.traces = np.zeros(k)
        self.squares = np.zeros((k, k))
        self.gram = np.zeros((b, b))
        self.first = np.zeros((k, b, b))
        self.second = np.zeros((k, k, b, b))

    def add(
        self, forms: Forms, coefficients: FloatArray, multiplicity: int, columns: list[int]
    ) -> None:
        """Add the forms of one stratum, eqs. (3.3) and (3.4).

        Parameters
        ----------
        forms : forms of the stratum
        coefficients : (L + 1, k + 1) M, eq. (3.2)
        multiplicity : number of independent vectors of the stratum
        columns : positions of the stratum's columns in B
        """
        M, here = coefficients, np.ix_(columns, columns)
        self.log_det += multiplicity * forms.log_det
        self.traces += multiplicity * (M.T @ forms.traces)
        self.squares += multiplicity * (M.T @ forms.squares @ M)
        self.gram[here] += forms.gram
        used, places = np.flatnonzero(M.any(axis=0)), np.array(columns)
        first = np.tensordot(M[:, used], forms.first, (0, 0))
        self.first[np.ix_(used, places, places)] += first
        if places.size >= _MANY_COLUMNS:
            self._add_second(M, forms.second, np.ix_(places, places))
            return
        half = np.tensordot(M[:, used], forms.second, (0, 0))
        second = np.tensordot(M[:, used], half, (0, 1)).swapaxes(0, 1)
        self.second[np.ix_(used, used, places, places)] += second

    def _add_second(self, M: FloatArray, second: FloatArray, here: Any) -> None:
        """Add the second forms of many columns pair by pair, without those of coefficient 0."""
        every = here[0].size == self.gram.shape[0]
        pairs = list(zip(*np.nonzero(M), strict=True))
        for a, t in pairs:
            for b, u in pairs:
                added = (M[a, t] * M[b, u]) * second[a, b]
                if every:
                    self.second[t, u] += added
                else:
                    self.second[t, u][here] += added

    # The fixed part ---------------------------------------------------------------------------

    @cached_property
    def XVX(self) -> Positive:
        """X'V⁻¹X, factored."""
        return Positive(self.gram[1:, 1:])

    @cached_property
    def inverse(self) -> FloatArray:
        """(X'V⁻¹X)⁻¹."""
        return self.XVX.inverse()

    @cached_property
    def beta(self) -> FloatArray:
        """Generalised least squares estimates."""
        return self.XVX.solve(self.gram[1:, 0])

    @cached_property
    def contrast(self) -> FloatArray:
        """The weights of the columns [y X] in y − Xβ̂."""
        return np.concatenate([[1.0], -self.beta])

    def fixed_forms(self, *, second: bool) -> FixedForms:
        """Return the forms of X in V⁻¹, the second ones if requested."""
        return FixedForms(
            cov_beta=self.inverse.copy(),
            first=self.first[:, 1:, 1:].copy(),
            second=self.second[:, :, 1:, 1:].copy() if second else None,
        )

    # Value, score, information ------------------------------------------------------------------

    def loglike(self, n: int, *, reml: bool) -> float:
        """Return the log-likelihood by eq. (5.1) for REML and eq. (5.2) for ML."""
        total = self.log_det + self.rss
        if reml:
            total += self.XVX.log_determinant()
            n -= self.beta.size
        return float(-0.5 * (total + n * np.log(2.0 * np.pi)))

    @property
    def rss(self) -> float:
        """The quadratic form y'P y."""
        return float(self.contrast @ self.gram @ self.contrast)

    @property
    def quadratics(self) -> FloatArray:
        """The quadratic forms y'P V_t P y."""
        return self.first @ self.contrast @ self.contrast

    def fixed_traces(self) -> FloatArray:
        """Return tr(V⁻¹V_t) − tr(P V_t) = tr((X'V⁻¹X)⁻¹ X'V⁻¹V_t V⁻¹X), eq. (5.7)."""
        if not self.beta.size:
            return np.zeros_like(self.traces)
        return np.tensordot(self.first[:, 1:, 1:], self.inverse, 2)

    def average(self) -> FloatArray:
        """Return y'P V_t P V_u P y, twice the average information."""
        plain: FloatArray = self.second @ self.contrast @ self.contrast
        if not self.beta.size:
            return plain
        mixed = self.first[:, 1:] @ self.contrast
        return plain - mixed @ self.XVX.solve(mixed.T)

    def expected(self, *, reml: bool) -> FloatArray:
        """Return tr(P V_t P V_u), eq. (5.8), twice the expected information; V⁻¹ for P in ML."""
        if not reml or not self.beta.size:
            return self.squares
        inverse = self.inverse
        relative = inverse @ self.first[:, 1:, 1:]
        both = np.tensordot(relative, relative.swapaxes(1, 2), ((1, 2), (1, 2)))
        twice = np.tensordot(self.second[:, :, 1:, 1:], inverse, 2)
        return self.squares - 2.0 * twice + both


def with_last(forms: FloatArray, total: FloatArray | float, c: FloatArray) -> FloatArray:
    """Return the forms of all components, the residual's last: Σ c_l f_l is `total`, eq. (5.9)."""
    last = (total - np.tensordot(c[:-1], forms, axes=1)) / c[-1]
    return np.concatenate([forms, [last]])


def with_residual_forms(
    squares: FloatArray, traces: FloatArray, total: FloatArray | float, c: FloatArray
) -> FloatArray:
    """Return the forms with two K's of all components from those of the terms, eq. (5.9).

    Parameters
    ----------
    squares : (k, k, …) forms with K_l and K_m of two terms
    traces : (k, …) forms with K_l of one term
    total : the form without K
    c : (k + 1,) components
    """
    k = traces.shape[0]
    whole = np.empty((k + 1, k + 1, *traces.shape[1:]))
    whole[:k, :k] = squares
    mixed = with_last(squares.swapaxes(0, 1), traces, c)[-1] if k else traces
    whole[:k, k] = mixed
    whole[k, :k] = mixed.swapaxes(-1, -2) if mixed.ndim == 3 else mixed
    whole[k, k] = with_last(mixed, with_last(traces, total, c)[-1], c)[-1]
    return whole


class FormsOfTerms:
    """Forms of y in P of all components, the residual last, from those of the terms.

    With P(Σ σ²_t V_t + σ²_e I)P = P those of the residual need no rows, eq. (5.9).

    Attributes
    ----------
    PZy : Z_t'Py of each term
    forms : (k, k) y'PV_tPV_uPy of the terms
    components : (k + 1,)
    yPy : y'Py
    """

    @cached_property
    def quadratics(self: Any) -> FloatArray:
        """The forms y'PV_jPy."""
        squares = np.array([r @ r for r in self.PZy])
        return with_last(squares, self.yPy, self.components)

    @cached_property
    def products(self: Any) -> FloatArray:
        """The forms y'PV_jPV_kPy."""
        return with_residual_forms(self.forms, self.quadratics[:-1], self.yPy, self.components)


class FormsLikelihood(LastPoint[AnyPoint], ExactEngine, SummedEngine):
    """Base of engines whose points have :class:`Totals`: value, score and informations."""

    reml: bool

    def loglike(self, v: FloatArray) -> float:
        """Return the log-likelihood at components `v`, the residual last; equal to lme4's."""
        return self._total(self._at(v)).loglike(self.n, reml=self.reml)

    def derivatives(self, v: FloatArray) -> Derivatives:
        """Return log-likelihood, score and average information at `v`; components may be 0."""
        point = self._at(v)
        total, traces = self._total(point), self._traces(point)
        if self.reml:
            traces = traces - total.fixed_traces()
        score = 0.5 * (total.quadratics - traces)
        loglike = total.loglike(self.n, reml=self.reml)
        return Derivatives(loglike, score, self._average(point))

    def information(
        self, v: FloatArray, kind: InformationKind = "observed", *, positive_only: bool = False
    ) -> FloatArray:
        """Return an information matrix of the components at `v`.

        ``"expected"`` is ½ tr(P V_t P V_u) (for ML with V⁻¹ in place of P), ``"average"`` is
        ½ y'P V_t P V_u P y, and the observed one, −∂²ℓ, is twice the average less the expected.

        Parameters
        ----------
        positive_only : has no effect, as components at zero cost nothing extra

        Raises
        ------
        EstimationError
            If the kind is not among `kinds`.
        """
        if kind not in self.kinds:
            raise EstimationError(
                f"the {self.name} engine computes the average information of these data only, not "
                f"the {kind} one; use engine='blocked', which computes all"
            )
        point = self._at(v)
        average = self._average(point)
        if kind == "average":
            return average
        expected = 0.5 * self._squares(point).expected(reml=self.reml)
        return expected if kind == "expected" else 2.0 * average - expected

    def fixed_effects(self, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return β̂ and its covariance matrix at `v`, on the centred scale."""
        total = self._total(self._at(v))
        return total.beta.copy(), total.inverse.copy()

    def quadratics(self, v: FloatArray) -> FloatArray:
        """Return y'P V_t P y at `v`, the residual last."""
        return self._total(self._at(v)).quadratics

    def fixed_forms(self, v: FloatArray, *, second: bool = False) -> FixedForms:
        """Return forms of X in V⁻¹ at `v`, the second ones if requested."""
        point = self._at(v)
        total = self._squares(point) if second else self._total(point)
        return total.fixed_forms(second=second)

    # Implemented by engines ---------------------------------------------------------------------

    def _total(self, point: AnyPoint) -> Totals:
        """Return the forms; squares and second forms may be missing."""
        raise NotImplementedError

    def _squares(self, point: AnyPoint) -> Totals:
        """Return the forms, with those for the expected information."""
        return self._total(point)

    def _traces(self, point: AnyPoint) -> FloatArray:
        """Return tr(V⁻¹V_t)."""
        return self._total(point).traces

    def _average(self, point: AnyPoint) -> FloatArray:
        """Return the average information."""
        return 0.5 * self._total(point).average()


class TotalsEngine(FormsLikelihood[AnyPoint]):
    """Base of engines with exact informations of all kinds, and effects from the forms."""

    sums_of: ClassVar[str]

    def __init__(self, stats: Any, *, reml: bool) -> None:
        self.stats, self.reml = stats, reml

    def with_response(self, stats: Statistics) -> Self:
        """Return the engine of the same rows with another response."""
        self._last = None  # its memory is free for the next
        return type(self)(getattr(stats, self.sums_of), reml=self.reml)

    def recombined(
        self, columns: FloatArray, like: LikelihoodEngine | None = None
    ) -> LikelihoodEngine:
        """Return the ML engine of the same rows with other columns."""
        return cast("LikelihoodEngine", type(self)(self.stats.recombined(columns), reml=False))

    @cached_property
    def rss(self) -> float:
        """Residual sum of squares of ordinary least squares on X."""
        return float(self.yy - self.least_squares() @ self.stats.Xy)

    def least_squares(self) -> FloatArray:
        """Return the ordinary least squares estimate of the fixed effects."""
        return solve_positive(self.stats.XX, self.stats.Xy)

    def mivque0(self) -> FloatArray:
        """Return the MIVQUE(0) estimates, which may be negative."""
        total = self._squares(self._at(np.append(np.zeros(self.stats.n_terms), 1.0)))
        return solve(total.expected(reml=True), total.quadratics)

    def quadratic_forms(self) -> FloatArray:
        """Return tr(Q V_t Q V_u) with Q = I − X(X'X)⁻¹X', the residual last."""
        residual_alone = np.append(np.zeros(self.stats.n_terms), 1.0)
        return self._squares(self._at(residual_alone)).expected(reml=True)

    def effect_forms(self, v: FloatArray, terms: Sequence[int]) -> EffectForms | None:
        """Return forms of the effects of terms with few levels; None if they are not cheap."""
        forms, total = self._forms_of_effects(v, terms), self._total(self._at(v))
        if forms is None:
            return None
        full, fixed, fitted = forms
        within = full
        if self.n_fixed:
            within = full - fixed.T @ total.XVX.solve(fixed)
        term = np.repeat(terms, [self.sizes[t] for t in terms])
        return EffectForms(v, term, within, within if self.reml else full, fitted)

    def solution(self, v: FloatArray) -> Solution:
        """Return fixed effects and predicted effects at `v`."""
        point = self._at(v)
        beta, cov_beta = self.fixed_effects(v)
        rows, contrast = self._projections(point), self._total(point).contrast
        effects = tuple(u * (contrast @ r) for u, r in zip(v[:-1], rows, strict=True))

        def variances() -> tuple[list[FloatArray], list[FloatArray]]:
            prediction, conditional = [], []
            for t, u in enumerate(v[:-1].tolist()):
                own = u * (1.0 - u * self._diagonal(point, t)) if u else np.zeros(self.sizes[t])
                fixed = np.einsum("jq,jq->q", cov_beta @ rows[t][1:], rows[t][1:])
                conditional.append(own)
                prediction.append(own + u * u * fixed)
            return prediction, conditional

        return Solution(beta, cov_beta, effects, variances)

    # Implemented by engines ---------------------------------------------------------------------

    def _forms_of_effects(
        self, v: FloatArray, terms: Sequence[int]
    ) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        """Return Z'V⁻¹Z (q, q), X'V⁻¹Z (p, q) and Z'Py (q,) of terms; None if not cheap."""
        raise NotImplementedError

    def _projections(self, point: AnyPoint) -> list[FloatArray]:
        """Return Z_t'V⁻¹[y X] of each term, (1 + p, q_t)."""
        raise NotImplementedError

    def _diagonal(self, point: AnyPoint, term: int) -> FloatArray:
        """Return the diagonal of Z_t'V⁻¹Z_t, (q_t,)."""
        raise NotImplementedError
