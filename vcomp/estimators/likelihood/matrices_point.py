"""The likelihood at one value of the matrices and residual variances, on the scale of the data.

Next to a singular Λ its inverse has elements of 1e9 and more that hide the others: the equations
are then solved for the principal effects of each level (docs/decisions/0021-random-slopes.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.estimators.likelihood.engine import InformationKind
from vcomp.estimators.likelihood.equations import Equations
from vcomp.estimators.likelihood.point import Point

_FLOOR = 1e-9
"""Smallest eigenvalue of a matrix, in units of the error variance of a level's effect, at which
the likelihood is computed; its derivative corrects the value for the rest."""

_ROTATED = 1e2
"""Ratio of eigenvalues above which equations are solved for principal effects: else the matrix of
inverses has the largest of them everywhere, and informations lose the fourth power of the
ratio."""


class MatricesPoint:
    """The likelihood at one value of the matrices, on the scale of the data.

    Parameters
    ----------
    equations : of the effects
    matrices : positive semidefinite Λ_t of each bar
    residuals : σ² of each residual group
    reml : whether the likelihood is the restricted one
    """

    def __init__(
        self,
        equations: Equations,
        matrices: Sequence[FloatArray],
        residuals: FloatArray,
        *,
        reml: bool,
    ) -> None:
        self.equations, self.reml = equations, reml
        self.n_residuals = residuals.size
        eigen = [np.linalg.eigh(matrix) for matrix in matrices]
        known = equations.level_precisions(residuals)
        floored = [
            np.maximum(d, _FLOOR / np.einsum("ac,ab,bc->c", U, K, U))
            for K, (d, U) in zip(known, eigen, strict=True)
        ]
        if any(d.max() > _ROTATED * d.min() for d in floored):
            self._bases = [U for _, U in eigen]
            used = [np.diag(d) for d in floored]
            exact = [np.diag(d) for d, _ in eigen]
            equations = equations.rotated(self._bases)
        else:
            self._bases = [np.eye(d.size) for d in floored]
            used = [(U * d) @ U.T for d, (_, U) in zip(floored, eigen, strict=True)]
            exact = list(matrices)
        self._added = [
            np.where(np.any(d != e), A - B, 0.0)
            for A, B, d, (e, _) in zip(used, exact, floored, eigen, strict=True)
        ]
        self._kept = [e / d for d, (e, _) in zip(floored, eigen, strict=True)]
        self._principal = [U for _, U in eigen]
        self.point = Point(equations, residuals, used)

    def loglike(self) -> float:
        """Return the log-likelihood."""
        value = self.point.loglike(with_fixed=self.reml)
        if any(added.any() for added in self._added):
            pairs = zip(self._gradients, self._added, strict=True)
            value -= sum(float((G * added).sum()) for G, added in pairs)
        return value

    @cached_property
    def _gradients(self) -> list[FloatArray]:
        """G of dℓ = tr(G dΛ) of each bar, in the basis of the equations."""
        score, first, found = self.point.score(with_fixed=self.reml), self.n_residuals, []
        for pairs in self.equations.pairs:
            a, b = np.array(pairs).T
            G = np.zeros((a.max() + 1,) * 2)
            G[a, b] = 0.5 * score[first : first + a.size]
            found.append(G + G.T)
            first += a.size
        return found

    def gradients(self) -> list[FloatArray]:
        """Return G of dℓ = tr(G dΛ) of each bar."""
        pairs = zip(self._bases, self._gradients, strict=True)
        return [U @ G @ U.T for U, G in pairs]

    def residual_slopes(self) -> FloatArray:
        """Return the derivatives by the residual variances."""
        return self.point.score(with_fixed=self.reml)[: self.n_residuals]

    @cached_property
    def _turn(self) -> FloatArray:
        """Derivatives of the elements in the basis of the equations by those of the Λ_t."""
        first = self.n_residuals
        K = np.eye(first + sum(len(pairs) for pairs in self.equations.pairs))
        for U, pairs in zip(self._bases, self.equations.pairs, strict=True):
            own = slice(first, first + len(pairs))
            K[own, own] = congruence(U.T, pairs)
            first += len(pairs)
        return K

    def information(self, kind: InformationKind) -> FloatArray:
        """Return an information matrix of the elements, the residuals first."""
        if kind == "average":
            found = self.point.average()
        elif kind == "expected":
            found = self.point.expected(with_fixed=self.reml)
        else:
            found = 2.0 * self.point.average() - self.point.expected(with_fixed=self.reml)
        return self._turn.T @ found @ self._turn

    def fixed_forms(self) -> FloatArray:
        """Return X'V⁻¹V_jV⁻¹X of each element, the residuals first."""
        return np.tensordot(self._turn.T, self.point.fixed_forms(), 1)

    def second_fixed_forms(self) -> FloatArray:
        """Return the symmetric parts of X'V⁻¹V_iV⁻¹V_jV⁻¹X of all elements."""
        turned = np.tensordot(self._turn.T, self.point.second_fixed_forms(), 1)
        return np.tensordot(self._turn.T, turned.swapaxes(0, 1), 1)

    def effects(self, term: int) -> FloatArray:
        """Return the predicted effects of a bar, (levels, q)."""
        K = self._from_floored(term, 1.0)
        found: FloatArray = self.point.effects(term) @ self._bases[term].T @ K.T
        return found

    def combined_variances(self, weights: Sequence[Any], X: FloatArray) -> FloatArray:
        """Return the prediction error variances of combinations of effects, (m,).

        Parameters
        ----------
        weights : for each bar the group of each combination, (m,), −1 without one, and the (m, q)
            weights of its effects
        X : (m, p) columns of X, centred
        """
        from scipy.sparse import csr_array

        equations, rows, columns, values = self.point.equations, [], [], []
        effects = np.arange(equations.n_effects)
        for term, U, (groups, own) in zip(equations.sums.terms, self._bases, weights, strict=True):
            known = np.flatnonzero(groups >= 0)
            for c, value in zip(term, (own @ U).T, strict=True):
                rows.append(known)
                columns.append(effects[equations.places[c]][groups[known]])
                values.append(value[known])
        places = np.concatenate(rows), np.concatenate(columns)
        shape = len(X), equations.n_effects
        combined = csr_array((np.concatenate(values), places), shape=shape)
        return self.point.prediction_variances(combined, X)

    def predicted_columns(self, term: int) -> FloatArray:
        """Return the effects of a bar that the columns of X predict, (levels, q, p)."""
        K = self._from_floored(term, 1.0) @ self._bases[term]
        return np.asarray(K @ self.point.predicted_columns(term))

    def prediction_covariances(
        self, bars: Sequence[int], levels: Sequence[LongArray] | None = None, *, beta_known: bool
    ) -> FloatArray:
        """Return the covariance matrices of û − u of all effects of bars, (m, q, q).

        Parameters
        ----------
        bars : with the same levels
        levels : for each bar its number of each of the m levels; None if they have one order
        beta_known : whether the fixed effects are known, not estimated
        """
        from scipy.linalg import block_diag

        U = block_diag(*(self._from_floored(t, 0.5) @ self._bases[t] for t in bars))
        at = self._positions(bars, levels)
        found: FloatArray = U @ self.point.prediction_covariances(at, beta_known=beta_known) @ U.T
        return found

    def expected_products(self, bars: Sequence[int], levels: Sequence[LongArray]) -> FloatArray:
        """Return the expectations Z_h'PZ_h of the products of Z_h'Py, (m, q, q).

        Parameters
        ----------
        bars : with the same levels
        levels : for each bar its number of each of the m levels
        """
        from scipy.linalg import block_diag

        Q = block_diag(*(self.point.precision(t) for t in bars))
        U = block_diag(*(self._bases[t] for t in bars))
        inside = Q @ self.point.prediction_covariances(self._positions(bars, levels)) @ Q
        found: FloatArray = U @ (Q - inside) @ U.T
        return found

    def _positions(
        self, bars: Sequence[int], levels: Sequence[LongArray] | None
    ) -> list[LongArray]:
        """Return for each effect of bars its positions among the unknowns, by level."""
        own: Sequence[Any] = [slice(None)] * len(bars) if levels is None else levels
        return [
            positions[some]
            for t, some in zip(bars, own, strict=True)
            for positions in self.equations.positions(t)
        ]

    def _from_floored(self, term: int, power: float) -> FloatArray:
        """Return what effects of principal directions without variance are multiplied by."""
        U, kept = self._principal[term], np.maximum(self._kept[term], 0.0)
        return (U * kept**power) @ U.T


def congruence(A: FloatArray, pairs: Sequence[tuple[int, int]]) -> FloatArray:
    """Return the matrix that maps the elements of Λ to those of AΛA'.

    Parameters
    ----------
    A : (q, q)
    pairs : row and column of each element

    Examples
    --------
    >>> congruence(np.array([[1.0, 1.0], [0.0, 1.0]]), [(0, 0), (0, 1), (1, 1)])
    array([[1., 2., 1.],
           [0., 1., 1.],
           [0., 0., 1.]])
    """
    a, b = np.array(pairs).T
    columns = []
    for c, d in pairs:
        E = np.zeros(A.shape)
        E[c, d] = E[d, c] = 1.0
        columns.append((A @ E @ A.T)[a, b])
    return np.column_stack(columns)
