"""The likelihood of a design with fully crossed facets, by its orthogonal strata.

The strata are independent, and the components of each are linear in those of the model, c_s = M_s
σ². Value, score and informations therefore add up over strata (MATHS 3a):

    ℓ = Σ_s ℓ_s(M_s σ²),   ∂ℓ = Σ_s M_s' ∂ℓ_s,   I = Σ_s M_s' I_s M_s

Columns of X live in one stratum each, and are orthogonal between strata. Nothing is divided by a
component but the residual: zeros need no special treatment.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.blocked_covariance import BlockedCovariance
from vcomp.estimators.engine import Derivatives, ExactEngine, InformationKind, Solution
from vcomp.estimators.forms import Columns, Covariance, Forms
from vcomp.estimators.nested import NestedCovariance
from vcomp.estimators.strata_effects import strata_solution
from vcomp.linalg.dense import solve, solve_positive
from vcomp.statistics.strata import Stratum, StratumStatistics

__all__ = ["StrataLikelihood", "stratum_covariance"]


@dataclass(frozen=True, slots=True)
class _StratumPoint:
    """Forms of one stratum with its fixed effects at one value of the components."""

    stratum: Stratum
    forms: Forms
    beta: FloatArray

    @property
    def XVX(self) -> FloatArray:
        """X'V⁻¹X of the columns in the stratum."""
        return self.forms.gram[1:, 1:]

    @property
    def contrast(self) -> FloatArray:
        """The combination of the columns that is y − Xβ̂."""
        return np.concatenate([[1.0], -self.beta])

    @property
    def rss(self) -> float:
        """The quadratic form y'P y of the stratum."""
        e = self.contrast
        return float(e @ self.forms.gram @ e)


class StrataLikelihood(ExactEngine):
    """Restricted or full log-likelihood from the statistics of orthogonal strata.

    Parameters
    ----------
    stats : the strata
    reml : restricted likelihood, or the full one (ML)
    """

    name: ClassVar[str] = "strata"
    kinds: ClassVar[tuple[InformationKind, ...]] = ("observed", "expected", "average")

    def __init__(self, stats: StratumStatistics, *, reml: bool) -> None:
        self.stats = stats
        self.reml = reml
        self._covariances = [stratum_covariance(stats, s) for s in stats.strata]
        self._last: tuple[bytes, list[_StratumPoint]] | None = None

    @property
    def reason(self) -> str:
        """Why this engine serves these data."""
        n, k = len(self.stats.strata), len(self.stats.shape)
        rest = "nested" if self.stats.remainder.parents is not None else "crossed"
        if not k:
            return "nested groups, eliminated from the innermost on"
        facets = "a fully crossed facet gives" if k == 1 else f"{k} fully crossed facets give"
        if self.stats.remainder.n_groupings == 1:
            return f"{facets} {n} orthogonal strata"
        return f"{facets} {n} orthogonal strata, the rest is {rest}"

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
        return float(sum(point.rss for point in self._ordinary))

    def mivque0(self) -> FloatArray:
        """Return the MIVQUE(0) estimates, which may be negative.

        They solve Σ_u tr(Q V_t Q V_u) σ²_u = y'Q V_t Q y with the residual maker Q of X.
        """
        right = sum(p.stratum.coefficients.T @ _squares(p) for p in self._ordinary)
        return solve(self.quadratic_forms(), np.asarray(right))

    def quadratic_forms(self) -> FloatArray:
        """Return tr(Q V_t Q V_u), whose rank says which components can be told apart."""
        forms = np.zeros((self.stats.n_terms + 1, self.stats.n_terms + 1))
        for point in self._ordinary:
            M = point.stratum.coefficients
            forms += M.T @ _expected(point, reml=True) @ M
        return forms

    def least_squares(self) -> FloatArray:
        """Return the ordinary least squares estimate of the fixed effects."""
        return self._beta(self._ordinary)

    def loglike(self, v: FloatArray) -> float:
        """Return the log-likelihood at components `v`, the residual last; equal to lme4's."""
        v = np.asarray(v, dtype=float)
        if self._last is not None and self._last[0] == v.tobytes():
            return self._loglike(
                [(p.stratum, p.forms.log_det, p.forms.gram) for p in self._last[1]]
            )
        values = []
        for stratum, covariance in zip(self.stats.strata, self._covariances, strict=True):
            values.append((stratum, *covariance.log_det_and_gram(stratum.coefficients @ v)))
        return self._loglike(values)

    def derivatives(self, v: FloatArray) -> Derivatives:
        """Return log-likelihood, score and average information at `v`, zeros allowed."""
        points = self._points(v)
        score = np.zeros(self.stats.n_terms + 1)
        average = np.zeros((score.size, score.size))
        for point in points:
            M = point.stratum.coefficients
            score += M.T @ (0.5 * (_squares(point) - _traces(point, reml=self.reml)))
            average += M.T @ (0.5 * _average(point)) @ M
        loglike = self._loglike([(p.stratum, p.forms.log_det, p.forms.gram) for p in points])
        return Derivatives(loglike, score, average)

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
        positive_only : of no effect, as components at zero cost nothing here
        """
        points, k = self._points(v), self.stats.n_terms + 1
        average, expected = np.zeros((k, k)), np.zeros((k, k))
        for point in points:
            M = point.stratum.coefficients
            average += M.T @ (0.5 * _average(point)) @ M
            expected += M.T @ (0.5 * _expected(point, reml=self.reml)) @ M
        if kind == "average":
            return average
        return expected if kind == "expected" else 2.0 * average - expected

    def fixed_effects(self, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return β̂ and its covariance matrix at `v`."""
        points = self._points(v)
        covariance = np.zeros((self.n_fixed, self.n_fixed))
        for point in points:
            columns = list(point.stratum.fixed)
            inverse = solve_positive(point.XVX, np.eye(len(columns)))
            covariance[np.ix_(columns, columns)] = inverse
        return self._beta(points), covariance

    def solution(self, v: FloatArray) -> Solution:
        """Return fixed effects and predicted effects at `v`."""
        return strata_solution(self.stats, self._covariances, np.asarray(v, dtype=float))

    # One point ------------------------------------------------------------------------------

    @cached_property
    def _ordinary(self) -> list[_StratumPoint]:
        """All strata at V = I."""
        v = np.zeros(self.stats.n_terms + 1)
        v[-1] = 1.0
        return self._evaluate(v)

    def _points(self, v: FloatArray) -> list[_StratumPoint]:
        v = np.asarray(v, dtype=float)
        if self._last is None or self._last[0] != v.tobytes():
            self._last = v.tobytes(), self._evaluate(v)
        return self._last[1]

    def _evaluate(self, v: FloatArray) -> list[_StratumPoint]:
        points = []
        for stratum, covariance in zip(self.stats.strata, self._covariances, strict=True):
            forms = covariance.forms(stratum.coefficients @ v)
            points.append(_StratumPoint(stratum, forms, _fixed_effects(forms.gram)))
        return points

    def _loglike(self, values: list[tuple[Stratum, float, FloatArray]]) -> float:
        """−2ℓ = log|V| + log|X'V⁻¹X| + y'Py + (N−p) log 2π; ML without the second, and N."""
        deviance = (self.n - (self.n_fixed if self.reml else 0)) * np.log(2.0 * np.pi)
        for stratum, log_det, gram in values:
            e = np.concatenate([[1.0], -_fixed_effects(gram)])
            deviance += stratum.multiplicity * log_det + e @ gram @ e
            if self.reml and e.size > 1:
                deviance += np.linalg.slogdet(gram[1:, 1:])[1]
        return float(-0.5 * deviance)

    def _beta(self, points: list[_StratumPoint]) -> FloatArray:
        beta = np.zeros(self.n_fixed)
        for point in points:
            beta[list(point.stratum.fixed)] = point.beta
        return beta


def stratum_covariance(stats: StratumStatistics, stratum: Stratum) -> Covariance:
    """Return what gives the forms of a stratum: a recursion over nested groups, or equations."""
    columns, remainder = stratum.columns, stats.remainder
    if remainder.parents is not None:
        return NestedCovariance(remainder, columns)
    sums = tuple(
        n[:, None, None] * means
        for n, means in zip(remainder.tables.group_n, columns.means, strict=True)
    )
    return BlockedCovariance(remainder.tables, Columns(sums, columns.within))


def _fixed_effects(gram: FloatArray) -> FloatArray:
    """Return β̂ of the columns after the first, which is y."""
    if gram.shape[0] == 1:
        return np.zeros(0)
    return solve_positive(gram[1:, 1:], gram[1:, 0])


def _squares(point: _StratumPoint) -> FloatArray:
    """Return y'P K_l P y."""
    e = point.contrast
    squares: FloatArray = point.forms.first @ e @ e
    return squares


def _traces(point: _StratumPoint, *, reml: bool) -> FloatArray:
    """Return tr(P K_l) over all vectors of the stratum (V⁻¹ in place of P for ML)."""
    traces = point.stratum.multiplicity * point.forms.traces
    if reml and point.beta.size:
        traces = traces - np.array([np.trace(U) for U in _relative(point)])
    return traces


def _relative(point: _StratumPoint) -> list[FloatArray]:
    """Return (X'V⁻¹X)⁻¹ X'V⁻¹K_l V⁻¹X of every grouping."""
    return [solve_positive(point.XVX, first[1:, 1:]) for first in point.forms.first]


def _average(point: _StratumPoint) -> FloatArray:
    """Return y'P K_l P K_m P y."""
    e = point.contrast
    plain: FloatArray = point.forms.second @ e @ e
    if not point.beta.size:
        return plain
    mixed = np.array([first[1:] @ e for first in point.forms.first])
    return plain - mixed @ solve_positive(point.XVX, mixed.T)


def _expected(point: _StratumPoint, *, reml: bool) -> FloatArray:
    """Return tr(P K_l P K_m) over all vectors of the stratum (V⁻¹ in place of P for ML)."""
    squares = point.stratum.multiplicity * point.forms.squares
    if not reml or not point.beta.size:
        return squares
    relative = _relative(point)
    size = squares.shape[0]
    taken = np.empty_like(squares)
    for i in range(size):
        for j in range(i + 1):
            twice = solve_positive(point.XVX, point.forms.second[i, j, 1:, 1:])
            both = np.vdot(relative[i], relative[j].T)
            taken[i, j] = taken[j, i] = 2.0 * np.trace(twice) - both
    return squares - taken
