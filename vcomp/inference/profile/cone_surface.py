"""The maximum of a likelihood of covariance matrices at which a quantity has a given value.

Steps are those in the cone (:mod:`vcomp.estimators.likelihood.cone`), in the tangent plane of the
surface: with its multiplier λ, and W of dθ = Σ tr(W dΣ), the gradient is G − λW. After each step
the factors return to the surface by Newton's method. At a maximum (G − λW)L = 0, and G − λW has no
positive eigenvalue in the null space of Σ.

One of several residual variances may go to zero along a profile, where other effects reproduce the
scores of its level. It is then left next to zero, and the likelihood continued by its slope.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood import (
    ConePlace,
    ConeSearch,
    InformationKind,
    MatricesLikelihood,
    Parts,
    VanishedResidualError,
    elements,
    factor_of,
    positive_part,
    stepped,
    without_rotations,
)
from vcomp.exceptions import EstimationError
from vcomp.inference.profile.constrained import ConstraintSurface, NotReachedError

_RAISED = 0.01
"""Smallest eigenvalue from which a singular matrix starts."""

_TOLERANCE, _STALLED = 1e-7, 1e-4
"""Newton decrements at which a search ends, and at which it may if it is slow."""

_STEPS, _RETURNS = 99, 60

_ON_SURFACE = 1e-15
"""Distance from the surface, in the size of its terms, that is rounding error."""

_LEFT = 1e-11
"""The same at which a step is not on the surface."""


@dataclass(frozen=True, slots=True, eq=False)
class MatricesOnSurface:
    """The maximum of the likelihood on a surface.

    Attributes
    ----------
    S : (k + 1, q, q) matrices of the climb
    v : components
    loglike : log-likelihood
    multiplier : λ, dℓ = λ dθ
    """

    S: FloatArray
    v: FloatArray
    loglike: float
    multiplier: float


def maximise_matrices_on(
    likelihood: MatricesLikelihood, start: FloatArray, surface: ConstraintSurface
) -> MatricesOnSurface:
    """Return the maximum of the likelihood of matrices on a surface.

    Parameters
    ----------
    likelihood : of the matrices
    start : (k + 1, q, q) matrices, on the surface or off it
    surface : the constraint, of the components in their order

    Raises
    ------
    EstimationError
        If no step raises the likelihood before the conditions of a maximum are met.
    NotReachedError
        If the surface is not reached.
    """

    def search(of: MatricesLikelihood | NextToZero) -> MatricesOnSurface:
        search = SurfaceSearch(of, surface)
        path, done = search.start(start).climb(
            search.move, sought=(_TOLERANCE, 1e-6), stalled=(_STALLED, 1e-5), max_iter=_STEPS
        )
        end = path[-1]
        if not done:
            raise EstimationError(
                "the profile cannot be traced: no step along it raises the likelihood, although "
                f"the maximum is {end.decrement:.2g} standard errors away; use a Wald interval or "
                "the parametric bootstrap"
            )
        v = of.components(end.S)
        return MatricesOnSurface(end.S, v, end.loglike, search.multiplier)

    try:
        end, at_zero = without_vanished(likelihood, search)
        if at_zero is None:
            return end
        normal = end.multiplier * (likelihood.back.T @ surface.normal(end.v))
        S, more = at_zero.continued(end.S, normal)
    except np.linalg.LinAlgError:
        raise NotReachedError(
            "the profile cannot be traced: no covariance matrices were found at this value; use "
            "a Wald interval or the parametric bootstrap"
        ) from None
    return replace(end, S=S, loglike=end.loglike + more)


_NEAR_ZERO = 2e-6
"""Residual variance next to zero, of scores with standard deviations near 1."""

Found = TypeVar("Found")


def without_vanished(
    likelihood: MatricesLikelihood, search: Callable[[MatricesLikelihood | NextToZero], Found]
) -> tuple[Found, NextToZero | None]:
    """Return what a search finds, with the residual variances that go to zero left next to it.

    Parameters
    ----------
    likelihood : of all matrices
    search : of a maximum
    """
    of: MatricesLikelihood | NextToZero = likelihood
    groups: tuple[int, ...] = ()
    while True:
        try:
            found = search(of)
        except VanishedResidualError as error:
            groups = (*groups, error.group)
            of = NextToZero(likelihood, groups)
        else:
            return found, of if isinstance(of, NextToZero) else None


class NextToZero:
    """The likelihood of the other matrices where some residual variances are next to zero.

    Parameters
    ----------
    likelihood : of all matrices
    groups : numbers of these residual variances
    """

    def __init__(self, likelihood: MatricesLikelihood, groups: Sequence[int]) -> None:
        self.likelihood, self._at = likelihood, (-1, list(groups), list(groups))
        self.n, self.reason, self.kinds = likelihood.n, likelihood.reason, likelihood.kinds
        self.linked = likelihood.linked.copy()
        self.linked[self._at] = False
        self._every = tuple(np.array(elements(likelihood.linked)).T)
        self._kept = self.linked[self._every]
        self.back = likelihood.back[:, self._kept]

    def whole(self, S: FloatArray) -> FloatArray:
        """Return the matrices with these residual variances."""
        whole = S.copy()
        whole[self._at] = _NEAR_ZERO
        return whole

    def components(self, S: FloatArray) -> FloatArray:
        """Return the components, in their order."""
        return self.likelihood.components(self.whole(S))

    def loglike(self, S: FloatArray) -> float:
        """Return the log-likelihood; −∞ if it is not defined."""
        return self.likelihood.loglike(self.whole(S))

    def gradient(self, S: FloatArray) -> FloatArray:
        """Return the gradient of the log-likelihood."""
        return np.where(self.linked, self.likelihood.gradient(self.whole(S)), 0.0)

    def information(self, S: FloatArray, kind: InformationKind) -> FloatArray:
        """Return an information matrix of the elements that are left."""
        found = self.likelihood.information(self.whole(S), kind)
        return np.asarray(found[np.ix_(self._kept, self._kept)])

    def curvature(self, S: FloatArray) -> FloatArray:
        """Return the observed information."""
        return self.information(S, "observed")

    def continued(self, S: FloatArray, normal: FloatArray) -> tuple[FloatArray, float]:
        """Return all matrices, and the rise of the likelihood from next to zero to zero.

        Parameters
        ----------
        S : at the maximum
        normal : λ times the derivatives of the quantity by all elements; 0 without a quantity

        Raises
        ------
        LinAlgError
            If the likelihood rises with one of these residual variances.
        """
        whole = self.whole(S)
        slopes = (self.likelihood.gradient(whole)[self._every] - normal)[~self._kept]
        if (slopes > 0.0).any():
            raise np.linalg.LinAlgError("a residual variance is not at zero")
        return whole, float(-slopes.sum()) * _NEAR_ZERO


class SurfaceSearch(ConeSearch):
    """The search for a maximum on a surface.

    Parameters
    ----------
    likelihood, surface : as in :func:`maximise_matrices_on`
    """

    # Away from the maximum the average information is not near the curvature.
    near = np.inf
    updated_below = 0.0
    ridge = 0.01
    follows_gradient = False  # the multiplier is that of the last place

    likelihood: MatricesLikelihood | NextToZero

    def __init__(
        self, likelihood: MatricesLikelihood | NextToZero, surface: ConstraintSurface
    ) -> None:
        super().__init__(likelihood)
        self.surface, self.back, self.multiplier = surface, likelihood.back, 0.0
        self._bend = np.zeros((len(self.elements),) * 2)
        self._at = tuple(np.array(self.elements).T)

    def normal(self, S: FloatArray) -> FloatArray:
        """Return the derivatives of the quantity by the elements."""
        normal = self.back.T @ self.surface.normal(self.likelihood.components(S))
        if not np.isfinite(normal).all():
            raise np.linalg.LinAlgError("the quantity has no derivatives here")
        return np.asarray(normal)

    def start(self, S: FloatArray) -> ConePlace:
        """Return the place on the surface near matrices, which may be singular."""
        factors = tuple(factor_of(raised(part)) for part in self.parts(S))
        S = self.matrices(factors)
        J = self.jacobian(factors)
        H = J.T @ self.likelihood.information(S, "average") @ J
        H, _ = without_rotations(factors, H, np.zeros(len(H)))
        factors = self._onto_surface(factors, H)
        return self.place(factors, self.matrices(factors), None, damping=1e-3)

    def gradient(self, S: FloatArray) -> FloatArray:
        """Return G − λW, with the λ that makes it smallest along the factors."""
        G, n = self.likelihood.gradient(S), self.normal(S)
        t, a, b = self._at
        once = np.where(a == b, 1.0, 0.5)
        J = self.jacobian(tuple(factor_of(part) for part in self.parts(S)))
        M = J.T @ self.likelihood.information(S, "average") @ J
        c, g = J.T @ n, J.T @ (G[self._at] / once)
        # Columns that vanish do not decide on λ.
        x = np.linalg.solve(M + np.trace(M) / len(M) * np.eye(len(M)), c)
        self.multiplier = float(x @ g) / float(x @ c)
        W = np.zeros_like(G)
        W[t, a, b] = W[t, b, a] = once * n
        return G - self.multiplier * W

    def information(self, S: FloatArray, G: FloatArray, last: ConePlace | None) -> FloatArray:
        """Return the information of the elements, with the curvature of the surface."""
        found = super().information(S, G, last)
        return found if last is None else found + self.multiplier * self._bend

    def bounded(self, factors: Parts, S: FloatArray, H: FloatArray) -> FloatArray:
        """Return H, positive across the surface."""
        c = self.jacobian(factors).T @ self.normal(S)
        return H + (float(np.trace(np.abs(H))) / float(c @ c)) * np.outer(c, c)

    def system(
        self,
        factors: Parts,
        S: FloatArray,
        gradient_of_S: FloatArray,
        information: FloatArray,
        *,
        is_near: bool,
    ) -> tuple[FloatArray, FloatArray]:
        """Return curvature and gradient in the factors, whose step is along the surface."""
        H, g = super().system(factors, S, gradient_of_S, information, is_near=is_near)
        c = self.jacobian(factors).T @ self.normal(S)
        x = np.linalg.lstsq(H, c, rcond=1e-14)[0]
        more = float(x @ g) / float(x @ c)
        self.multiplier += more
        return H, g - more * c

    def moved(self, here: ConePlace, step: FloatArray) -> Parts | None:
        """Return the factors after a step, on the surface; None if it is not reached."""
        try:
            factors = self._onto_surface(stepped(here.factors, step), here.H)
        except np.linalg.LinAlgError:
            return None
        if not self.surface.is_flat:
            self._update_bend(here.S, self.matrices(factors))
        return factors

    def _onto_surface(self, factors: Parts, H: FloatArray) -> Parts:
        """Return factors on the surface, by Newton steps in the metric H."""
        best, least = factors, np.inf
        for _ in range(_RETURNS):
            S = self.matrices(factors)
            v, n = self.likelihood.components(S), self.normal(S)
            gap = self.surface.gap(v)
            size = float(np.abs(n) @ np.abs(S[self._at]))
            if not (np.isfinite(gap) and size > 0.0):
                break
            if abs(gap) < least * size:
                best, least = factors, abs(gap) / size
            elif least <= _LEFT:
                break
            if abs(gap) <= _ON_SURFACE * size:
                break
            c = self.jacobian(factors).T @ n
            x = np.linalg.lstsq(H, c, rcond=1e-14)[0]
            factors = stepped(factors, np.asarray((gap / float(x @ c)) * x, dtype=float))
        if least > _LEFT:
            raise np.linalg.LinAlgError("the surface is not reached")
        return best

    def _update_bend(self, before: FloatArray, after: FloatArray) -> None:
        """Update the curvature of the surface from the change of its normal."""
        step = (after - before)[self._at]
        self._bend = rank_one_update(self._bend, step, self.normal(after) - self.normal(before))


def rank_one_update(curvature: FloatArray, step: FloatArray, change: FloatArray) -> FloatArray:
    """Return a symmetric matrix B that differs by rank one, with B·step = change.

    It is the same matrix if there is none, up to rounding.

    Examples
    --------
    >>> B = rank_one_update(np.eye(2), np.array([1.0, 2.0]), np.array([5.0, 1.0]))
    >>> B, B @ [1.0, 2.0]
    (array([[ 9. , -2. ],
           [-2. ,  1.5]]), array([5., 1.]))
    """
    rest = change - curvature @ step
    along = float(rest @ step)
    if abs(along) <= 1e-8 * np.linalg.norm(rest) * np.linalg.norm(step):
        return curvature
    return curvature + np.outer(rest, rest) / along


def raised(S: FloatArray) -> FloatArray:
    """Return a matrix, with larger eigenvalues if it is singular."""
    values = np.linalg.eigvalsh(S)
    return S if values[0] > 1e-9 * max(values[-1], 1e-6) else positive_part(S, _RAISED)
