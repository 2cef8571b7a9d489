"""Profiles of models with random slopes: of variances, covariances and correlations.

As :mod:`~vcomp.inference.profile.profile`, over positive semidefinite matrices in place of
components that are not negative. Where a variance is zero its covariances are zero as well, and
the likelihood is maximised over the matrices that are left.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood import (
    ConeMaximum,
    InformationKind,
    MatricesLikelihood,
    elements,
    loglike_margin,
    maximise_in_cone,
)
from vcomp.exceptions import EstimationError, check_alpha
from vcomp.inference.profile.cone_surface import (
    NextToZero,
    maximise_matrices_on,
    raised,
    without_vanished,
)
from vcomp.inference.profile.constrained import Constraint, Range
from vcomp.inference.profile.profile import coordinate_of
from vcomp.inference.profile.trace import (
    Coordinate,
    ProfileCurve,
    Trace,
    Visit,
    signed_root,
    trace_curve,
)

_ZERO = 1e-10
"""Eigenvalue of the weights of a quantity, as a share of the largest, that is rounding error."""

_NEXT_TO_ONE = 1e-6
"""Distance from ±1 at which the profile of a correlation is continued by its slope; the square of
it is left out."""


_NEXT_TO_ZERO = 1e-5
"""Residual variance, as a share of that of the scores, below which its profile is continued
by its slope."""

_ROUNDING = 1e-12
"""Distance of a correlation from ±1 that is rounding error of a singular matrix."""

_FARTHEST = 1.0
"""Largest first step on the coordinate: standard errors are large near a singular matrix."""


def profile_matrices(
    likelihood: MatricesLikelihood,
    v_hat: FloatArray,
    constraint: Constraint,
    *,
    alpha: float,
    name: str,
    points: int,
) -> ProfileCurve:
    """Return the profile of a quantity of the components of a model with random slopes.

    Parameters
    ----------
    likelihood : restricted or full
    v_hat : components at its maximum
    constraint : the quantity
    alpha : the interval has confidence 1 − alpha
    name : for messages and frames
    points : number of points between the ends, for plots, in addition to those of the search

    Raises
    ------
    PlanError
        If alpha is not between 0 and 1.
    EstimationError
        If the profile cannot be traced, or another maximum of the likelihood is found.
    """
    check_alpha(alpha)
    quantity = _MatrixQuantity(likelihood, constraint, v_hat)
    try:
        trace = quantity.trace(alpha)
        return trace_curve(trace, quantity.span, quantity.guess, name, alpha, points)
    except EstimationError as error:
        raise type(error)(f"{name}: {error}") from None


@dataclass
class _MatrixQuantity:
    """The profile of a quantity: its points, and first guesses of its ends."""

    likelihood: MatricesLikelihood
    constraint: Constraint
    v_hat: FloatArray

    @cached_property
    def estimate(self) -> float:
        """The quantity at the estimate, without rounding error at the ends of its range."""
        value, ends = self.constraint.value(self.v_hat), (self.span.low, self.span.high)
        if np.isfinite(ends).all():
            value = next((end for end in ends if abs(value - end) <= _ROUNDING), value)
        return float(np.clip(value, *ends))

    @cached_property
    def best(self) -> float:
        """The largest log-likelihood."""
        return self.likelihood.loglike_of(self.v_hat)

    @cached_property
    def span(self) -> Range:
        """The range of the quantity over positive semidefinite matrices and positive residuals."""
        found, r = self._closed_span, self.likelihood.n_residuals
        zeros = (found.zero_low, found.zero_high)
        attained = [None if zero is None or zero[-r:].any() else zero for zero in zeros]
        return Range(found.low, found.high, *attained)

    @cached_property
    def _closed_span(self) -> Range:
        """The range, with residual variances that are zero at its ends."""
        none = np.zeros(self.v_hat.size, dtype=bool)
        given = self.constraint.range(self.v_hat, none, 0)
        surface = self.constraint.surface(0.0)
        if not surface.is_flat:  # the ends of a correlation are those of singular matrices
            ends = [none if np.isfinite(end) else None for end in (given.low, given.high)]
            return Range(given.low, given.high, *ends)
        normal = surface.normal(self.v_hat)
        if not normal[self._covariances].any():
            return given
        values = np.concatenate([np.linalg.eigvalsh(w) for w in self._weights(normal)])
        values[np.abs(values) <= _ZERO * np.abs(values).max()] = 0.0
        zero, r = ~none, self.likelihood.n_residuals
        zero[-r:] = normal[-r:] != 0.0
        if (values >= 0.0).all():
            return Range(0.0, np.inf, zero, None)
        if (values <= 0.0).all():
            return Range(-np.inf, 0.0, None, zero)
        return Range(-np.inf, np.inf)

    @cached_property
    def _covariances(self) -> list[int]:
        matrices = self.likelihood.blocks.matrices
        return sorted(
            {p for m in matrices for i, row in enumerate(m.places) for p in row[i + 1 :]}
        )

    def _weights(self, normal: FloatArray) -> FloatArray:
        """Return W of n'dv = Σ tr(W dS), (k + 1, q, q)."""
        linked = self.likelihood.linked
        t, a, b = np.array(elements(linked)).T
        by_element = self.likelihood.back.T @ normal
        W = np.zeros(linked.shape)
        W[t, a, b] = W[t, b, a] = np.where(a == b, 1.0, 0.5) * by_element
        return W

    @cached_property
    def _inner(self) -> FloatArray:
        """Components of matrices of full rank, the estimated ones if they have it."""
        S = [raised(matrix) for matrix in self.likelihood.matrices_of(self.v_hat)]
        return self.likelihood.components(np.where(self.likelihood.linked, S, 0.0))

    @cached_property
    def deviation(self) -> float:
        """Standard error of the quantity by the average information, that of full rank."""
        v = self._inner
        n = self.constraint.surface(self.estimate).normal(v)
        information = self.likelihood.information_of(v, "average")
        scale = np.sqrt(np.maximum(np.diagonal(information), 1e-300))
        x = np.linalg.pinv(information / np.outer(scale, scale), rcond=1e-12) @ (n / scale)
        return float(np.sqrt(max(float(x @ (n / scale)), 0.0))) / self.constraint.slope_factor(v)

    def trace(self, alpha: float) -> Trace:
        """Return the trace with the estimate as its only point."""
        from scipy.special import ndtri

        distance = -float(ndtri(0.5 * alpha)) * self.deviation
        self.scale = coordinate_of(self.span, self.estimate, distance, distance)
        S = self.likelihood.matrices_of(self.v_hat)
        start = Visit(self.estimate, 0.0, 0.0, self.v_hat, S)
        return Trace(self.visit, self.edge, self.other, self.scale, [start])

    scale: Coordinate | None = None
    _last_visits: dict[float, Visit] = field(default_factory=dict)

    def guess(self, level: float) -> float:
        """Return t at which z is about at a level, by Wald's approximation."""
        assert self.scale is not None
        t = self.scale.t_of(self.estimate)
        step = level * self.deviation / self.scale.theta_of(t)[1]
        return t + float(np.clip(step, -_FARTHEST, _FARTHEST))

    def visit(self, theta: float, near: Visit) -> Visit:
        """Return the point of the profile at θ."""
        side = float(np.sign(theta - self.estimate))
        last = self._next_to_zero(side)
        if side * (theta - last) <= 0.0:
            return self._found(theta, near.point)
        # At zero the likelihood is finite where other effects reproduce the scores of a level.
        if side not in self._last_visits:
            self._last_visits[side] = self._found(last, near.point)
        return self._continued(self._last_visits[side], theta)

    def _next_to_zero(self, side: float) -> float:
        """Return the θ from which a profile is continued: a residual variance is next to zero."""
        span, r = self._closed_span, self.likelihood.n_residuals
        end, zero = (span.low, span.zero_low) if side < 0.0 else (span.high, span.zero_high)
        if zero is None or not zero[-r:].any():
            return side * np.inf
        least = float(self.v_hat[-r:][zero[-r:]].min())
        share = min(_NEXT_TO_ZERO * self.likelihood.unit / least, 0.1)
        if np.isfinite(end):
            return float(end + share * (self.estimate - end))
        return self.estimate / share

    def _continued(self, last: Visit, theta: float) -> Visit:
        """Return the point of the profile that is continued by its slope.

        Where a ratio has no limit, by the slope of its reciprocal.
        """
        step, end = theta - last.theta, self.span.low if theta < last.theta else self.span.high
        if np.isinf(end):
            step *= last.theta / theta
        loglike = self.best - 0.5 * last.z**2 + last.slope * step
        return replace(last, theta=theta, z=self._root(theta, loglike))

    def other(self, theta: float, near: Visit) -> Visit | None:
        """Return the best point at θ from other starts: the estimate, and without correlations."""
        units = np.eye(near.point.shape[1])
        starts = [self.likelihood.matrices_of(self.v_hat), near.point * units]
        found = []
        for start in starts:
            try:
                found.append(self._found(theta, start))
            except (np.linalg.LinAlgError, EstimationError):
                continue
        return min(found, key=lambda visit: abs(visit.z), default=None)

    @cached_property
    def _least(self) -> tuple[float, FloatArray] | None:
        """The least value of the profile of a correlation, and its matrices; None of others.

        Without one of its variances a correlation is any number.
        """
        if self.constraint.surface(0.0).is_flat or np.isinf(self.span.low):
            return None
        n, ends = self.constraint.surface(self.estimate).normal(self._inner), []
        for places in (matrix.places for matrix in self.likelihood.blocks.matrices):
            for i, j in combinations(range(len(places)), 2):
                if n[places[i][j]] != 0.0:
                    variances = np.eye(n.size)[[places[i][i], places[j][j]]]
                    ends += [self._without(self._weights(variance)) for variance in variances]
        return max(ends, key=lambda end: end[0])

    def _found(self, theta: float, start: FloatArray) -> Visit:
        least = self._least
        try:
            end = maximise_matrices_on(self.likelihood, start, self.constraint.surface(theta))
        except EstimationError:
            if least is None:
                raise
        else:
            if least is None or end.loglike > least[0]:
                slope = end.multiplier * self.constraint.slope_factor(end.v)
                return Visit(theta, self._root(theta, end.loglike), slope, end.v, end.S)
        loglike, S = least
        v = self.likelihood.components(S)
        return Visit(theta, self._root(theta, loglike), 0.0, v, S)

    def _root(self, theta: float, loglike: float) -> float:
        margin = loglike_margin(self.best, self.likelihood.n)
        return signed_root(theta - self.estimate, self.best - loglike, margin)

    def edge(self, side: float) -> Visit | None:
        """Return the point at the end of the range, None if it is not attained."""
        end = self.span.low if side < 0.0 else self.span.high
        zero = self.span.zero_low if side < 0.0 else self.span.zero_high
        if zero is None:
            return None
        if not zero.any():  # a correlation of ±1
            theta = end * (1.0 - _NEXT_TO_ONE)
            return self._continued(
                self._found(theta, self.likelihood.matrices_of(self.v_hat)), end
            )
        # A ratio is infinite where its denominator is zero.
        normal = np.asarray(zero, dtype=np.float64)
        if np.isfinite(end):
            normal = self.constraint.surface(end).normal(self.v_hat)
        loglike, S = self._without(self._weights(normal))
        v = self.likelihood.components(S)
        return Visit(end, self._root(end, loglike), 0.0, v, S)

    def _without(self, weights: FloatArray) -> tuple[float, FloatArray]:
        """Return the largest log-likelihood without some combinations of effects, and its S."""

        def search(of: MatricesLikelihood | NextToZero) -> tuple[ConeMaximum, FloatArray]:
            face = _Face(of, weights)
            found = maximise_in_cone(face, face.start(self.likelihood.matrices_of(self.v_hat)))
            return found, face.whole(found.S)

        (found, S), at_zero = without_vanished(self.likelihood, search)
        if not found.converged:
            raise EstimationError(
                "the maximum of the likelihood with a variance of zero was not found, so that it "
                "is not known whether the profile interval ends there; use a Wald interval"
            )
        if at_zero is None:
            return found.loglike, S
        S, more = at_zero.continued(S, np.zeros(1))
        return found.loglike + more, S


class _Face:
    """The likelihood of matrices NMN', in which some combinations of effects have no variance.

    Parameters
    ----------
    likelihood : of all matrices
    weights : W of the combinations without variance, (k + 1, q, q)
    """

    kinds: tuple[InformationKind, ...] = ("observed", "expected", "average")

    def __init__(self, likelihood: MatricesLikelihood | NextToZero, weights: FloatArray) -> None:
        self.likelihood, self.n, self.reason = likelihood, likelihood.n, likelihood.reason
        shape, self.linked = likelihood.linked.shape, np.zeros(likelihood.linked.shape, dtype=bool)
        self._bases = np.zeros(shape)
        for t, (W, links) in enumerate(zip(weights, likelihood.linked, strict=True)):
            used = np.flatnonzero(np.diagonal(links))
            values, vectors = np.linalg.eigh(W[np.ix_(used, used)])
            N = vectors[:, np.abs(values) <= _ZERO * np.abs(weights).max()]
            self._bases[t][np.ix_(used, np.arange(N.shape[1]))] = N
            self.linked[t, : N.shape[1], : N.shape[1]] = True
        own, inner = elements(likelihood.linked), elements(self.linked)
        self._own, at = tuple(np.array(own).T), tuple(np.array(inner).T)
        units = np.zeros((len(inner), *shape))
        units[np.arange(len(inner)), at[0], at[1], at[2]] = 1.0
        units[np.arange(len(inner)), at[0], at[2], at[1]] = 1.0
        self._slopes = np.column_stack([self.whole(unit)[self._own] for unit in units])

    def whole(self, M: FloatArray) -> FloatArray:
        """Return NMN'."""
        return self._bases @ M @ self._bases.swapaxes(1, 2)

    def start(self, S: FloatArray) -> FloatArray:
        """Return positive definite matrices near N'SN."""
        M = self._bases.swapaxes(1, 2) @ S @ self._bases
        raised = M + 0.01 * np.eye(M.shape[1])
        return np.where(self.linked, raised, 0.0)

    def loglike(self, M: FloatArray) -> float:
        """Return the log-likelihood; −∞ if it is not defined."""
        return self.likelihood.loglike(self.whole(M))

    def gradient(self, M: FloatArray) -> FloatArray:
        """Return the gradient of the log-likelihood."""
        G = self.likelihood.gradient(self.whole(M))
        return self._bases.swapaxes(1, 2) @ G @ self._bases

    def information(self, M: FloatArray, kind: InformationKind) -> FloatArray:
        """Return an information matrix of the elements of M."""
        found = self.likelihood.information(self.whole(M), kind)
        return self._slopes.T @ found @ self._slopes

    def curvature(self, M: FloatArray) -> FloatArray:
        """Return the observed information."""
        return self.information(M, "observed")
