"""The forms of P in MINQUE's equations and in the covariance of their solution.

MINQUE at a prior w solves Σ_u tr(P V_t P V_u) σ²_u = y'P V_t P y with P of V = Σ w_t V_t
(docs/explanation/mathematics.md, eq. (2.12)). With few groups, an orthonormal basis of what Z adds
to X turns V into a small dense matrix S, P into S⁻¹, and the rest into a multiple of the identity;
components may then be negative as long as V is positive definite. Otherwise a likelihood engine
gives the forms at non-negative components: its expected information is half the matrix, and its
score is half of the right-hand side minus the matrix times w.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood import LikelihoodEngine
from vcomp.estimators.quadratic.spaces import Space
from vcomp.numerics import limited_blas, solve
from vcomp.statistics import CrossProducts

__all__ = [
    "Contrasts",
    "EngineForms",
    "PriorForms",
    "Priors",
]


_SINGULAR = 1e-6
"""A pivot of V below this fraction of the residual component counts as zero."""


@dataclass(frozen=True, slots=True)
class PriorForms:
    """MINQUE's equations at one prior.

    Attributes
    ----------
    w : (k + 1,) the prior, at the scale of the forms
    matrix : (k + 1, k + 1) tr(P V_t P V_u), the residual last
    right : (k + 1,) y'P V_t P y
    second : (k + 1, k + 1) y'P V_t P V_u P y
    """

    w: FloatArray
    matrix: FloatArray
    right: FloatArray
    second: FloatArray

    @property
    def solution(self) -> FloatArray:
        """The MINQUE estimates at this prior.

        Raises
        ------
        numpy.linalg.LinAlgError
            If the equations are linearly dependent.
        """
        return solve(self.matrix, self.right)

    @property
    def information(self) -> FloatArray:
        """Observed information of the restricted likelihood, eq. (5.6)."""
        return self.second - 0.5 * self.matrix


class Priors(Protocol):
    """A source of the equations at any prior."""

    def at(self, w: FloatArray) -> PriorForms:
        """Return the forms at components `w`, or at a multiple of them.

        Raises
        ------
        numpy.linalg.LinAlgError
            If the covariance matrix is not positive definite there.
        """

    def covariance(self, w: FloatArray, v: FloatArray) -> FloatArray | None:
        """Return the covariance of the right-hand side at prior `w` if `v` is true, eq. (2.13).

        None if it is known for v = w only, where it is twice the matrix.
        """


class Contrasts:
    """The data in an orthonormal basis of what the terms add to the fixed part.

    Parameters
    ----------
    stats : cross-products, centred
    """

    def __init__(self, stats: CrossProducts) -> None:
        from scipy.linalg import qr

        space = Space(stats, frozenset(range(stats.n_terms)))
        fixed = space.coordinates_of_fixed()
        p, rank = fixed.shape
        with limited_blas(rank):
            basis = qr(fixed.T)[0][:, p:] if p else np.eye(rank)
            Z = [basis.T @ space.coordinates(t).dense().T for t in range(stats.n_terms)]
        self._Z = np.concatenate(Z, axis=1)
        self._y = basis.T @ space.coordinates_of_response()
        self._starts = np.cumsum([0, *stats.sizes[:-1]])
        self._sizes = np.array(stats.sizes)
        self._n_outside = stats.n - rank
        self._rss_outside = max(stats.yy - space.reduction, 0.0)
        self._last: tuple[bytes, FloatArray] | None = None

    def at(self, w: FloatArray) -> PriorForms:
        """Return the forms at components `w`, which may be negative."""
        with limited_blas(self._y.size):
            P = self._inverse(w)
            outside = 1.0 / w[-1] ** 2
            PZ, Py = P @ self._Z, P @ self._y
            matrix = self._forms(PZ, P, self._n_outside * outside)
            ZPy = self._Z.T @ Py
            starts = self._starts.tolist()
            slices = [slice(a, b) for a, b in pairwise([*starts, ZPy.size])]
            f = np.column_stack([*(self._Z[:, s] @ ZPy[s] for s in slices), Py])
            second = f.T @ P @ f
        right = np.append(self._by_term(np.square(ZPy)), Py @ Py + self._rss_outside * outside)
        second[-1, -1] += self._rss_outside * outside / w[-1]
        return PriorForms(w, matrix, right, second)

    def covariance(self, w: FloatArray, v: FloatArray) -> FloatArray:
        """Return 2 tr(P V_t P V P V_u P V), with V at the components `v`."""
        with limited_blas(self._y.size):
            P = self._inverse(w)
            PZ = P @ self._Z
            D = (PZ * np.repeat(v[:-1], self._sizes)) @ PZ.T + v[-1] * (P @ P)
            outside = self._n_outside * (v[-1] / w[-1] ** 2) ** 2
            return 2.0 * self._forms(D @ self._Z, D, outside)

    def _forms(self, DZ: FloatArray, D: FloatArray, outside: float) -> FloatArray:
        """Return ‖Z_t'D Z_u‖² and, for the residual, ‖D Z_t‖² and ‖D‖², with the part outside."""
        k = self._sizes.size
        forms = np.empty((k + 1, k + 1))
        rows = np.add.reduceat(np.square(self._Z.T @ DZ), self._starts, axis=0)
        forms[:k, :k] = np.add.reduceat(rows, self._starts, axis=1)
        forms[:k, k] = forms[k, :k] = self._by_term(np.square(DZ).sum(axis=0))
        forms[k, k] = np.square(D).sum() + outside
        return forms

    def _by_term(self, values: FloatArray) -> FloatArray:
        sums: FloatArray = np.add.reduceat(values, self._starts)
        return sums

    def _inverse(self, w: FloatArray) -> FloatArray:
        """Return S⁻¹; the last one is kept, for forms and then their covariance."""
        from scipy.linalg import cho_factor, cho_solve

        key = w.tobytes()
        if self._last is None or self._last[0] != key:
            if not w[-1] > 0.0:
                raise np.linalg.LinAlgError("the residual component is not positive")
            S = (self._Z * np.repeat(w[:-1], self._sizes)) @ self._Z.T
            S[np.diag_indices_from(S)] += w[-1]
            factor = cho_factor(S, lower=True, overwrite_a=True, check_finite=False)
            # No pivot is below the residual component unless another component is negative.
            if np.square(np.diagonal(factor[0])).min(initial=w[-1]) < _SINGULAR * w[-1]:
                raise np.linalg.LinAlgError("V is singular to rounding")
            self._last = key, cho_solve(factor, np.eye(S.shape[0]), check_finite=False)
        return self._last[1]


@dataclass(frozen=True, slots=True)
class EngineForms:
    """The equations from an engine of the restricted likelihood, at non-negative components."""

    likelihood: LikelihoodEngine

    def at(self, w: FloatArray) -> PriorForms:
        """Return the forms at a multiple of components `w`, none of them negative.

        The multiple is that with y'P y = N − p: elsewhere the score would lose digits.
        """
        degrees = self.likelihood.n - self.likelihood.n_fixed
        first = self.likelihood.derivatives(w).score
        scaled = w * ((2.0 * float(w @ first) + degrees) / degrees)
        matrix = 2.0 * self.likelihood.information(scaled, "expected")
        here = self.likelihood.derivatives(scaled)
        right = 2.0 * here.score + matrix @ scaled
        return PriorForms(scaled, matrix, right, 2.0 * here.average)

    def covariance(self, w: FloatArray, v: FloatArray) -> None:
        """Return None: the covariance is known at the prior only."""
        return
