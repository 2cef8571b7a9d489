"""Maximum of a likelihood over positive semidefinite matrices, with its conditions.

Every matrix is Σ = LL', and the likelihood is maximised over the L. With the gradient G
(dℓ = tr G dΣ) and the average information A of the elements, a step solves

    [J'AJ − 2 (I ⊗ G)₋ + λD] dL = 2 G L,

J the derivatives of the elements by L. The second term is the curvature of LL' itself: also if Σ
loses rank the steps converge fast, as G is negative there. At a maximum GL = 0, and G has no
positive eigenvalue in the null space of Σ: the conditions of Karush, Kuhn and Tucker in the cone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.multivariate.covariance_components import elements

Kind = Literal["observed", "expected", "average"]


@dataclass(frozen=True, slots=True)
class Derivatives:
    """Log-likelihood of matrices Σ_t with its derivatives.

    Attributes
    ----------
    loglike : its value
    gradient : (k + 1, v, v) G with dℓ = Σ_t tr(G_t dΣ_t); 0 where variables are not linked
    average : (m, m) average information of the elements
    """

    loglike: float
    gradient: FloatArray
    average: FloatArray


class MatrixLikelihood(Protocol):
    """A restricted or full likelihood of one positive semidefinite matrix for each term."""

    linked: BoolArray  # (k + 1, v, v)
    n: int

    @property
    def reason(self) -> str:
        """Which algorithm computes it, and why."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The available kinds of information, the best first."""

    def loglike(self, S: FloatArray) -> float:
        """Return the log-likelihood; −∞ if it is not defined."""

    def derivatives(self, S: FloatArray) -> Derivatives:
        """Return the log-likelihood with gradient and average information."""

    def information(self, S: FloatArray, kind: Kind) -> FloatArray:
        """Return an information matrix of the elements."""


def pair_traces(A: FloatArray, B: FloatArray, a: LongArray, b: LongArray) -> FloatArray:
    """Return tr(E_p A E_q B) for the symmetric unit matrices of elements p and q.

    Parameters
    ----------
    A, B : (…, v, v)
    a, b : (m,) row and column of each element; E has ones there and across the diagonal

    Examples
    --------
    >>> pair_traces(np.eye(2), np.eye(2), np.array([0, 0]), np.array([0, 1]))
    array([[1., 0.],
           [0., 2.]])
    """
    half = np.where(a == b, 0.5, 1.0)
    p, q = a[:, None], b[:, None]
    c, d = a[None, :], b[None, :]
    found = A[..., q, c] * B[..., d, p] + A[..., p, c] * B[..., d, q]
    found = found + A[..., q, d] * B[..., c, p] + A[..., p, d] * B[..., c, q]
    traces: FloatArray = half[:, None] * half[None, :] * found
    return traces


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
"""Eigenvalues below this share of the variance are zero where the likelihood falls from there."""

_NEAR = 1e-7
"""Conditions of a maximum to which rounding may end an iteration."""

_ROUNDING = 1e-5
"""Decrements below this that hardly fall any more are rounding, and the end."""

_STUCK = 1e-4
"""Below this it is rounding as well if no step, however short, raises the likelihood."""

_NEWTON_BELOW = 0.05
"""Decrement below which the observed information takes over, where there is one."""

Block = tuple[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class ConeMaximum:
    """The end of an iteration.

    Attributes
    ----------
    S : (k + 1, v, v) matrices
    loglike, gradient : there
    tangent : (m, r) directions of the elements that keep the ranks
    ranks : of every term
    decrement : distance to the maximum in standard errors
    kkt_residual : largest violation of the conditions of a maximum
    converged : whether both are small
    iterations, evaluations : numbers of steps, and of evaluations of the likelihood
    """

    S: FloatArray
    loglike: float
    gradient: FloatArray
    tangent: FloatArray
    ranks: tuple[int, ...]
    decrement: float
    kkt_residual: float
    converged: bool
    iterations: int
    evaluations: int


@dataclass(frozen=True, slots=True)
class _Place:
    """Factors of all blocks, with the likelihood and its derivatives there."""

    factors: tuple[FloatArray, ...]
    S: FloatArray
    derivatives: Derivatives


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
    climb = _Climb(likelihood)
    here = climb.at(tuple(_factor(start[t][np.ix_(i, i)]) for t, i in climb.blocks))
    damping, steps, decrement, done = 1e-3, 0, np.inf, False
    while True:
        here, previous = climb.truncated(here), decrement
        H, g = climb.system(here, newton=decrement < _NEWTON_BELOW)
        decrement = _decrement(H, g)
        residual = climb.residual(here)
        stalled = decrement <= _ROUNDING and decrement > 0.5 * previous
        done = (decrement <= tol and residual <= _NEAR) or (stalled and residual <= _ROUNDING)
        if done or steps >= max_iter:
            break
        moved, damping = climb.move(here, H, g, damping)
        if moved is None:
            done = decrement <= _STUCK and residual <= _STUCK
            break
        here, steps = moved, steps + 1
    return ConeMaximum(
        S=here.S,
        loglike=here.derivatives.loglike,
        gradient=here.derivatives.gradient,
        tangent=climb.jacobian(here.factors),
        ranks=climb.ranks(here),
        decrement=decrement,
        kkt_residual=climb.residual(here),
        converged=done,
        iterations=steps,
        evaluations=climb.evaluations,
    )


class _Climb:
    """One maximisation: its likelihood and options, and the number of evaluations."""

    def __init__(self, likelihood: MatrixLikelihood) -> None:
        self.likelihood = likelihood
        self.blocks = _blocks(likelihood.linked)
        self.elements = elements(likelihood.linked)
        self.evaluations = 0

    def at(self, factors: tuple[FloatArray, ...]) -> _Place:
        """Return the place with given factors."""
        self.evaluations += 1
        S = self.matrices(factors)
        return _Place(factors, S, self.likelihood.derivatives(S))

    def matrices(self, factors: tuple[FloatArray, ...]) -> FloatArray:
        """Return the matrices of all terms."""
        S = np.zeros(self.likelihood.linked.shape)
        for (t, i), L in zip(self.blocks, factors, strict=True):
            S[t][np.ix_(i, i)] = L @ L.T
        return S

    def system(self, here: _Place, *, newton: bool) -> tuple[FloatArray, FloatArray]:
        """Return the curvature in the stacked factors, and the gradient.

        With `newton` the curvature is that of the likelihood, unless it is negative.
        """
        J = self.jacobian(here.factors)
        g = [
            2.0 * (here.derivatives.gradient[t][np.ix_(i, i)] @ L).T.ravel()
            for (t, i), L in zip(self.blocks, here.factors, strict=True)
        ]
        gradient = np.concatenate(g) if g else np.zeros(0)
        if newton and "observed" in self.likelihood.kinds and gradient.size:
            observed = self.likelihood.information(here.S, "observed")
            H = J.T @ observed @ J + self._bends(here, whole=True)
            values = np.linalg.eigvalsh(H)
            # Rotations of the factors have no curvature.
            if values[0] > -1e-9 * values[-1]:
                return H, gradient
        return J.T @ here.derivatives.average @ J + self._bends(here, whole=False), gradient

    def _bends(self, here: _Place, *, whole: bool) -> FloatArray:
        """Return −2 (I ⊗ G), or its positive semidefinite part."""
        width = sum(L.size for L in here.factors)
        bends, first = np.zeros((width, width)), 0
        for (t, i), L in zip(self.blocks, here.factors, strict=True):
            falls = -here.derivatives.gradient[t][np.ix_(i, i)]
            if not whole:
                falls = positive_part(falls)
            for _ in range(L.shape[1]):
                part = slice(first, first + len(i))
                bends[part, part] = 2.0 * falls
                first += len(i)
        return bends

    def jacobian(self, factors: tuple[FloatArray, ...]) -> FloatArray:
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

    def move(
        self, here: _Place, H: FloatArray, g: FloatArray, damping: float
    ) -> tuple[_Place | None, float]:
        """Return the next place and damping; None if no step raises the likelihood."""
        unit = np.diagonal(H).copy()
        unit[unit <= 0.0] = 1.0
        value = here.derivatives.loglike
        # Near the end a step is better than the value shows.
        lost = 1e-11 if g @ np.linalg.lstsq(H, g, rcond=1e-12)[0] < 1e-6 else 1e-13
        slack = lost * max(abs(value), float(self.likelihood.n))
        for _ in range(16):
            damped = H + damping * np.diag(unit)
            step = np.asarray(np.linalg.lstsq(damped, g, rcond=1e-14)[0], dtype=float)
            factors = self._stepped(here.factors, step)
            self.evaluations += 1
            S = self.matrices(factors)
            found = self.likelihood.loglike(S)
            if found >= value - (slack if damping < 1.0 else 0.0) and np.isfinite(found):
                # Of the same matrices, whose factors the likelihood may have kept.
                there = _Place(self._refactored(factors), S, self.likelihood.derivatives(S))
                return there, max(damping / 10.0, 1e-12)
            damping = max(10.0 * damping, 1e-6)
        return None, damping

    def truncated(self, here: _Place) -> _Place:
        """Return the place with lower ranks where eigenvalues vanish and the likelihood falls."""
        factors, lower = [], False
        for (t, i), L in zip(self.blocks, here.factors, strict=True):
            lengths = np.square(L).sum(axis=0)
            G = here.derivatives.gradient[t][np.ix_(i, i)]
            gone = np.zeros(L.shape[1], dtype=bool)
            if t < len(self.likelihood.linked) - 1:
                with np.errstate(invalid="ignore", divide="ignore"):
                    slopes = np.einsum("ac,ab,bc->c", L, G, L) / lengths
                gone = (lengths <= _RANK) & ~(slopes > 0.0)
            lower |= bool(gone.any())
            factors.append(L[:, ~gone])
        return self.at(tuple(factors)) if lower else here

    def residual(self, here: _Place) -> float:
        """Return the largest violation of the conditions of a maximum, without a unit."""
        worst = 0.0
        for (t, i), L in zip(self.blocks, here.factors, strict=True):
            G = here.derivatives.gradient[t][np.ix_(i, i)]
            if L.size:
                worst = max(worst, float(np.abs(L.T @ G @ L).max()))
            null = _null_space(L)
            if null.shape[1]:
                worst = max(worst, float(np.linalg.eigvalsh(null.T @ G @ null)[-1]))
        return float(worst / np.sqrt(self.likelihood.n))

    def ranks(self, here: _Place) -> tuple[int, ...]:
        """Return the rank of every term's matrix."""
        ranks = [0] * len(self.likelihood.linked)
        for (t, _), L in zip(self.blocks, here.factors, strict=True):
            ranks[t] += L.shape[1]
        return tuple(ranks)

    def _stepped(
        self, factors: tuple[FloatArray, ...], step: FloatArray
    ) -> tuple[FloatArray, ...]:
        moved, first = [], 0
        for L in factors:
            moved.append(L + step[first : first + L.size].reshape(L.shape[1], L.shape[0]).T)
            first += L.size
        return tuple(moved)

    def _refactored(self, factors: tuple[FloatArray, ...]) -> tuple[FloatArray, ...]:
        """Return factors with the same number of columns, which are orthogonal."""
        made = []
        for L in factors:
            U, s, _ = np.linalg.svd(L, full_matrices=False)
            made.append(U * s)
        return tuple(made)


def _blocks(linked: BoolArray) -> list[Block]:
    """Return for every term the sets of variables that are linked, directly or through others."""
    blocks: list[Block] = []
    for t, links in enumerate(linked):
        left = [a for a in range(len(links)) if links[a, a]]
        while left:
            found = [left[0]]
            for a in found:
                found += [b for b in left if links[a, b] and b not in found]
            blocks.append((t, tuple(sorted(found))))
            left = [a for a in left if a not in found]
    return blocks


def _factor(S: FloatArray) -> FloatArray:
    values, vectors = np.linalg.eigh(S)
    factor: FloatArray = vectors * np.sqrt(np.maximum(values, 0.0))
    return factor


def _null_space(L: FloatArray) -> FloatArray:
    if L.shape[1] == 0:
        return np.eye(L.shape[0])
    U, s, _ = np.linalg.svd(L, full_matrices=True)
    rank = int((s > 1e-7 * max(float(s[0]), 1e-300)).sum())
    return np.asarray(U[:, rank:])


def _decrement(H: FloatArray, g: FloatArray) -> float:
    if not g.size:
        return 0.0
    step = np.linalg.lstsq(H, g, rcond=1e-12)[0]
    return float(np.sqrt(max(float(g @ step), 0.0)))
