"""Maximum of a likelihood over positive semidefinite matrices, with its conditions.

Every matrix is Σ = LL', and the likelihood is maximised over the L. With the gradient G
(dℓ = tr G dΣ) and the average information A of the elements, a step solves

    [J'AJ − 2 (I ⊗ G)₋ + λD] dL = 2 G L,

J the derivatives of the elements by L. The second term is the curvature of LL' itself: also if Σ
loses rank the steps converge fast, as G is negative there. At a maximum GL = 0, and G has no
positive eigenvalue in the null space of Σ: the conditions of Karush, Kuhn and Tucker in the cone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Protocol

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.likelihood.climbing import Place
from vcomp.estimators.likelihood.cone_parts import (
    Parts,
    bends_of,
    factor_of,
    linked_blocks,
    newton_decrement,
    null_space,
    orthogonal,
    stepped,
    updated_information,
    without_rotations,
)
from vcomp.estimators.likelihood.engine import InformationKind
from vcomp.estimators.likelihood.starts import OtherStarts
from vcomp.numerics import is_positive, solve_positive


class MatrixLikelihood(Protocol):
    """A restricted or full likelihood of one positive semidefinite matrix for each term."""

    n: int

    @property
    def linked(self) -> BoolArray:
        """(k + 1, v, v) which elements there are."""

    @property
    def reason(self) -> str:
        """Which algorithm computes it, and why."""

    @property
    def kinds(self) -> tuple[InformationKind, ...]:
        """The available kinds of information, the best first."""

    def loglike(self, S: FloatArray) -> float:
        """Return the log-likelihood; −∞ if it is not defined."""

    def gradient(self, S: FloatArray) -> FloatArray:
        """Return the gradient G of the log-likelihood, (k + 1, v, v).

        It has dℓ = Σ_t tr(G_t dΣ_t), and is 0 where variables are not linked.
        """

    def information(self, S: FloatArray, kind: InformationKind) -> FloatArray:
        """Return an information matrix of the elements."""

    def curvature(self, S: FloatArray) -> FloatArray | None:
        """Return the observed information, or a closer approximation to it than the average one.

        None without such an approximation.
        """


def elements(linked: BoolArray) -> tuple[tuple[int, int, int], ...]:
    """Return term, row and column of every variance and covariance.

    Parameters
    ----------
    linked : (k + 1, v, v) whether two variables share levels of a term

    Examples
    --------
    >>> elements(np.array([[[True, True], [True, True]], [[True, False], [False, True]]]))
    ((0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 0, 0), (1, 1, 1))
    """
    n_terms, v, _ = linked.shape
    pairs = list(combinations_with_replacement(range(v), 2))
    return tuple((t, a, b) for t in range(n_terms) for a, b in pairs if linked[t, a, b])


def positive_part(matrix: FloatArray, least: float = 0.0) -> FloatArray:
    """Return the nearest symmetric matrix whose eigenvalues are not below `least`.

    Examples
    --------
    >>> positive_part(np.array([[1.0, 2.0], [2.0, 1.0]])).round(12)
    array([[1.5, 1.5],
           [1.5, 1.5]])
    """
    values, vectors = np.linalg.eigh(matrix)
    positive: FloatArray = (vectors * np.maximum(values, least)) @ vectors.T
    return 0.5 * (positive + positive.T)


_RANK = 1e-11
"""Share of the variance below which an eigenvalue is zero if the likelihood falls with it."""

_MANY_ROWS = 2_000
"""Number of rows at which the likelihood is maximised from one start only."""

_LEAST_SHARE = 0.02
"""Smallest share of the total in further starts: a zero matrix would keep its rank."""

_NEAR = 1e-3
"""Largest difference of elements of one maximum, of scores with standard deviations near 1."""

_ENDS_AT = 1e-5, 1e-5
"""Decrement and violation at a maximum, if rounding error ends the climb."""

_HIDDEN = 1e-9
"""Largest relative rounding error of a log-likelihood, where effects are nearly confounded."""

_APPROACHED = 1e-2
"""Decrement near a maximum, where directions of small variances are known."""

_NEWTON_BELOW, _UPDATED_BELOW = 0.2, 0.5
"""Decrements below which the observed information is used, or else updates of it."""

_POSITIVE = 1e-12
"""Smallest eigenvalue of a curvature of unit diagonal that is more than rounding error."""

_UPDATED_EXACTLY = 0.01
"""Decrement from which an update of the observed information leads as far as a new one."""


@dataclass(frozen=True, slots=True, eq=False)
class ConeMaximum:
    """The end of an iteration.

    Attributes
    ----------
    S : (k + 1, v, v) matrices
    loglike : log-likelihood at them
    tangent : (m, r) directions of the elements that keep the ranks
    ranks : of every term
    decrement : distance to the maximum in standard errors
    kkt_residual : largest violation of the conditions of a maximum
    converged : whether both are small
    iterations, evaluations : numbers of steps, and of evaluations of the likelihood
    drops : differences to the log-likelihood at lower maxima
    """

    S: FloatArray
    loglike: float
    tangent: FloatArray
    ranks: tuple[int, ...]
    decrement: float
    kkt_residual: float
    converged: bool
    iterations: int
    evaluations: int
    drops: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ConePlace(Place):
    """Factors, with the equations and the first damping of the next step.

    Attributes
    ----------
    factors : L of each block
    S : (k + 1, v, v) their matrices
    loglike, gradient : of the likelihood at them
    information : of the elements: the average one, near a maximum the curvature or its update
    H, g : equations of the step
    damping : the first one that is tried
    is_near : whether the previous place was near a maximum
    """

    factors: Parts
    S: FloatArray
    loglike: float
    gradient: FloatArray
    information: FloatArray
    H: FloatArray
    g: FloatArray
    damping: float
    is_near: bool

    @property
    def value(self) -> float:
        """The log-likelihood."""
        return self.loglike

    def leads_to(self, end: ConePlace) -> bool:
        """Whether the matrices are those of a known maximum."""
        return bool(np.abs(self.S - end.S).max() <= _NEAR)


def maximise_in_cone(
    likelihood: MatrixLikelihood, start: FloatArray, *, max_iter: int = 200, tol: float = 1e-9
) -> ConeMaximum:
    """Return the maximum over positive semidefinite matrices.

    Parameters
    ----------
    likelihood : of scores with standard deviations near 1
    start : (k + 1, v, v) positive definite matrices
    max_iter : largest number of steps
    tol : Newton decrement, in standard errors, at which the iteration ends
    """
    search = ConeSearch(likelihood)
    return search.maximum([search.start(start)], max_iter=max_iter, tol=tol)


_SINGULAR = 1e-10
"""Smallest eigenvalue at which the observed information is used; a smaller one may be rounding
error, and the average information is used. At a lower rank, directions that leave the rank have
the eigenvalue zero."""


def covariance_in_cone(
    likelihood: MatrixLikelihood, end: ConeMaximum, kind: InformationKind, back: FloatArray
) -> FloatArray:
    """Return the covariance matrix of the elements at the ranks of the maximum, (m, m).

    It is nan for elements that are fixed at these ranks.

    Parameters
    ----------
    likelihood, end : at its maximum
    kind : of the information
    back : (m, m) derivatives of the elements on the scale of the data with respect to those on
        the scale of the likelihood
    """
    J = end.tangent
    nothing = np.full((J.shape[0], J.shape[0]), np.nan)
    if not J.size:
        return nothing
    U, s, _ = np.linalg.svd(J, full_matrices=False)
    U = U[:, s > 1e-9 * s[0]]
    for choice in dict.fromkeys([kind, "average"]):
        inside = U.T @ likelihood.information(end.S, choice) @ U
        if choice != "average" and not is_positive(inside, _SINGULAR):
            continue
        try:
            cov = np.asarray(back @ U @ solve_positive(inside, (back @ U).T))
        except np.linalg.LinAlgError:
            continue
        fixed = np.abs(back @ U).max(axis=1) < 1e-9 * np.abs(back).max(axis=1)
        cov[fixed] = np.nan
        cov[:, fixed] = np.nan
        return np.asarray(0.5 * (cov + cov.T))
    return nothing


class ConeSearch:
    """One maximisation: its likelihood, and the number of evaluations.

    Parameters
    ----------
    likelihood : of scores with standard deviations near 1
    evaluations : number of those before it

    Attributes
    ----------
    near : decrement of the last place below which the observed information is used, if not the
        usual one
    updated_below : the same below which an update of it is used
    ridge : added to the average information, in units of its mean
    follows_gradient : whether a step whose rise the rounding error of the likelihood hides is
        judged by what is left of the gradient
    """

    near: float | None = None
    updated_below = _UPDATED_EXACTLY
    ridge = 0.0
    follows_gradient = True

    def __init__(self, likelihood: MatrixLikelihood, evaluations: int = 0) -> None:
        self.likelihood = likelihood
        self.blocks = linked_blocks(likelihood.linked)
        self.elements = elements(likelihood.linked)
        self.evaluations = evaluations

    def start(self, S: FloatArray) -> ConePlace:
        """Return the place at positive definite matrices."""
        factors = tuple(factor_of(part) for part in self.parts(S))
        return self.place(factors, S, None, damping=1e-3)

    def maximum(self, path: list[ConePlace], *, max_iter: int, tol: float) -> ConeMaximum:
        """Return the highest maximum that is found, of this climb or from other starts.

        Parameters
        ----------
        path : the first places of the climb
        max_iter, tol : as in :func:`maximise_in_cone`
        """
        likelihood, left = self.likelihood, max_iter - len(path) + 1

        def climbed(
            first: ConePlace, known: Sequence[ConePlace] = (), most: int = max_iter
        ) -> tuple[list[ConePlace], bool]:
            return first.climb(
                self.move,
                sought=(tol, 1e-7),
                stalled=(max(tol, _ENDS_AT[0]), _ENDS_AT[1]),
                max_iter=most,
                known=known,
            )

        rest, done = climbed(path[-1], most=left)
        path = [*path[:-1], *rest]
        others: list[ConePlace] = []
        full = self.ranks(self.parts(likelihood.linked.astype(float)))
        if likelihood.n < _MANY_ROWS and (not done or self.ranks(path[-1].factors) != full):
            starts = self.elsewhere(path[-1].S)
            path, done, others = Place.highest((path, done), starts, climbed)
            others = [
                end
                for end in others
                if max(end.decrement, end.violation) <= max(_ENDS_AT)
                and not end.leads_to(path[-1])
            ]
        end = path[-1]
        return ConeMaximum(
            S=end.S,
            loglike=end.loglike,
            tangent=self.jacobian(end.factors),
            ranks=self.ranks(end.factors),
            decrement=end.decrement,
            kkt_residual=end.violation,
            converged=done,
            iterations=len(path) - 1,
            evaluations=self.evaluations,
            drops=tuple(sorted(end.value - other.value for other in others)),
        )

    def approach(self, start: FloatArray, max_iter: int) -> list[ConePlace]:
        """Return the path of a climb that ends near a maximum.

        Parameters
        ----------
        start : (k + 1, v, v) positive definite matrices
        max_iter : largest number of steps
        """
        limits = _APPROACHED, np.inf
        first = self.start(start)
        return first.climb(self.move, sought=limits, stalled=limits, max_iter=max_iter)[0]

    def elsewhere(self, S: FloatArray) -> Iterator[ConePlace]:
        """Yield further starts: the sum of the matrices, shared among the terms."""
        total, linked = S.sum(axis=0), self.likelihood.linked
        if not total.any():
            return
        sizes = np.append(np.zeros(len(S) - 1), float(self.likelihood.n))
        starts = OtherStarts(np.zeros(len(S), dtype=bool), sizes)
        for shares in starts.elsewhere(np.trace(S, axis1=1, axis2=2), starts.free):
            weights = np.maximum(shares, _LEAST_SHARE)[:, None, None]
            try:
                yield self.start(np.where(linked, weights * total, 0.0))
            except np.linalg.LinAlgError:
                continue

    def place(
        self, factors: Parts, S: FloatArray, last: ConePlace | None, *, damping: float
    ) -> ConePlace:
        """Return the place with given factors, or with lower ranks.

        Parameters
        ----------
        factors, S : and their matrices
        last : the place before it, None at a start
        damping : the first one that is tried
        """
        G = self.gradient(S)
        kept = [~gone for gone in self._gone(factors, self.parts(G))]
        self.evaluations += 1
        if not all(columns.all() for columns in kept):
            factors = tuple(L[:, columns] for L, columns in zip(factors, kept, strict=True))
            S = self.matrices(factors)
            G = self.gradient(S)
            self.evaluations += 1
        near = _NEWTON_BELOW if self._is_exact else _UPDATED_BELOW
        is_near = last is not None and last.decrement < (self.near or near)
        information = self.information(S, G, last if is_near else None)
        H, g = self.system(factors, S, G, information, is_near=is_near)
        return ConePlace(
            factors=factors,
            S=S,
            loglike=self.likelihood.loglike(S),
            gradient=G,
            information=information,
            H=H,
            g=g,
            damping=damping,
            is_near=is_near,
            decrement=newton_decrement(H, g),
            violation=self._violation(factors, self.parts(G)),
        )

    def gradient(self, S: FloatArray) -> FloatArray:
        """Return the gradient of the objective."""
        return self.likelihood.gradient(S)

    def moved(self, here: ConePlace, step: FloatArray) -> Parts | None:
        """Return the factors after a step of their stacked columns; None without factors."""
        return stepped(here.factors, step)

    def bounded(self, factors: Parts, S: FloatArray, H: FloatArray) -> FloatArray:
        """Return the curvature H along the directions in which steps go."""
        return H

    def information(self, S: FloatArray, G: FloatArray, last: ConePlace | None) -> FloatArray:
        """Return the information of the elements, updated from the last place, if there is one."""
        if last is None:
            return self.likelihood.information(S, "average")
        known = None
        if not last.is_near or (self._is_exact and last.decrement > self.updated_below):
            known = self.likelihood.curvature(S)
        if known is not None:
            return known
        step, fall = S - last.S, last.gradient - G
        t, a, b = np.array(self.elements).T
        return updated_information(
            last.information, step[t, a, b], np.where(a == b, 1.0, 2.0) * fall[t, a, b]
        )

    @property
    def _is_exact(self) -> bool:
        """Whether the curvature is the observed information."""
        return "observed" in self.likelihood.kinds

    def parts(self, matrices: FloatArray) -> Parts:
        """Return the blocks of the matrices of all terms."""
        return tuple(matrices[t][np.ix_(i, i)] for t, i in self.blocks)

    def matrices(self, factors: Parts) -> FloatArray:
        """Return the matrices of all terms."""
        S = np.zeros(self.likelihood.linked.shape)
        for (t, i), L in zip(self.blocks, factors, strict=True):
            S[t][np.ix_(i, i)] = L @ L.T
        return S

    def system(
        self,
        factors: Parts,
        S: FloatArray,
        gradient_of_S: FloatArray,
        information: FloatArray,
        *,
        is_near: bool,
    ) -> tuple[FloatArray, FloatArray]:
        """Return curvature and gradient in the stacked factors, without rotations.

        Near a maximum the curvature is that of the likelihood, unless it is negative.
        """
        J, G = self.jacobian(factors), self.parts(gradient_of_S)
        gradient = np.concatenate(
            [2.0 * (g @ L).T.ravel() for g, L in zip(G, factors, strict=True)]
        )
        if not gradient.size:  # all matrices vanish beside a held residual
            return np.zeros((0, 0)), gradient
        if is_near:
            H = J.T @ information @ J + bends_of(factors, [-g for g in G])
            H, g = without_rotations(factors, H, gradient)
            H = self.bounded(factors, S, H)
            if is_positive(H, _POSITIVE):
                return H, g
            information = self.likelihood.information(S, "average")
        bends = bends_of(factors, [positive_part(-g) for g in G])
        H = J.T @ information @ J + bends
        H += self.ridge * np.trace(H) / len(H) * np.eye(len(H))
        return without_rotations(factors, H, gradient)

    def jacobian(self, factors: Parts) -> FloatArray:
        """Return the derivatives of the elements by the factors, column after column of each."""
        width = sum(L.size for L in factors)
        J = np.zeros((len(self.elements), width))
        place = {e: p for p, e in enumerate(self.elements)}
        first = 0
        for (t, i), L in zip(self.blocks, factors, strict=True):
            for column in range(L.shape[1]):
                for x, a in enumerate(i):
                    for y, b in enumerate(i):
                        row = place.get((t, min(a, b), max(a, b)))
                        if row is not None:
                            J[row, first + x] += L[y, column] * (2.0 if x == y else 1.0)
                first += len(i)
        return J

    def move(self, here: ConePlace) -> ConePlace | None:
        """Return the next place; None if no step raises the likelihood."""
        damping, unit = here.damping, np.sqrt(np.abs(np.diagonal(here.H)))
        unit[unit == 0.0] = 1.0
        scaled = here.H / np.outer(unit, unit)
        value, n = here.loglike, self.likelihood.n
        for trial in range(16):
            damped = scaled + damping * np.eye(unit.size)
            step = np.linalg.lstsq(damped, here.g / unit, rcond=1e-14)[0] / unit
            factors = self.moved(here, step)
            S = here.S if factors is None else self.matrices(factors)
            raised = -np.inf if factors is None else self.likelihood.loglike(S)
            rounding = 1e-13 if damping < 1.0 else 0.0
            least = Place.required(value, 0.0, here.decrement, n, rounding=rounding)
            if factors is not None and raised >= least and np.isfinite(raised):
                return self._following(here, factors, S, damping)
            hidden = value - _HIDDEN * max(abs(value), n) <= raised
            is_near = trial == 0 and here.decrement <= _APPROACHED
            if self.follows_gradient and factors is not None and hidden and is_near:
                found = self._following(here, factors, S, damping)
                if found.decrement <= 0.5 * here.decrement and found.violation <= _ENDS_AT[1]:
                    return found
            else:
                self.evaluations += 1
            damping = max(10.0 * damping, 1e-6)
        return None

    def _following(
        self, here: ConePlace, factors: Parts, S: FloatArray, damping: float
    ) -> ConePlace:
        """Return the place after a step."""
        # The likelihood may have kept values at the same matrices.
        own = tuple(orthogonal(L) for L in factors)
        return self.place(own, S, here, damping=max(damping / 10.0, 1e-12))

    def _gone(self, factors: Parts, gradients: Parts) -> Iterator[BoolArray]:
        """Yield which columns of each factor vanish: small ones that lower the likelihood."""
        last = len(self.likelihood.linked) - 1
        for (t, _), L, G in zip(self.blocks, factors, gradients, strict=True):
            lengths = np.square(L).sum(axis=0)
            with np.errstate(invalid="ignore", divide="ignore"):
                slopes = np.einsum("ac,ab,bc->c", L, G, L) / lengths
            yield (lengths <= _RANK) & ~(slopes > 0.0) & (t < last)

    def _violation(self, factors: Parts, gradients: Parts) -> float:
        """Return the largest violation of the conditions of a maximum, dimensionless."""
        worst = 0.0
        for L, G in zip(factors, gradients, strict=True):
            worst = max(worst, float(np.abs(L.T @ G @ L).max(initial=0.0)))
            null = null_space(L)
            if null.shape[1]:
                worst = max(worst, float(np.linalg.eigvalsh(null.T @ G @ null)[-1]))
        return float(worst / np.sqrt(self.likelihood.n))

    def ranks(self, factors: Parts) -> tuple[int, ...]:
        """Return the rank of every term's matrix."""
        ranks = [0] * len(self.likelihood.linked)
        for (t, _), L in zip(self.blocks, factors, strict=True):
            ranks[t] += L.shape[1]
        return tuple(ranks)
