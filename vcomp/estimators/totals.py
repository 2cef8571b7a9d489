"""Forms of all rows, added up over orthogonal strata, and what REML and ML make of them.

The components of a stratum are linear in those of the model, c_s = M_s σ², so that forms of V⁻¹V_t
are M_s' times those of its own groupings. X may have parts in any strata: X'V⁻¹X adds up.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.forms import Forms
from vcomp.linalg.dense import Positive

__all__ = ["Totals"]


class Totals:
    """Forms of V⁻¹ on all rows, with the columns B = [y X].

    Parameters
    ----------
    n_components : k + 1, the residual counted
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
        """Add one stratum.

        Parameters
        ----------
        forms : of its covariance matrix and columns
        coefficients : (L + 1, k + 1) M
        multiplicity : how many independent vectors it has
        columns : places of its columns in B
        """
        M, here = coefficients, np.ix_(columns, columns)
        self.log_det += multiplicity * forms.log_det
        self.traces += multiplicity * (M.T @ forms.traces)
        self.squares += multiplicity * (M.T @ forms.squares @ M)
        self.gram[here] += forms.gram
        used, places = np.flatnonzero(M.any(axis=0)), np.array(columns)
        first = np.tensordot(M[:, used], forms.first, (0, 0))
        self.first[np.ix_(used, places, places)] += first
        half = np.tensordot(M[:, used], forms.second, (0, 0))
        second = np.tensordot(M[:, used], half, (0, 1)).swapaxes(0, 1)
        self.second[np.ix_(used, used, places, places)] += second

    # The fixed part ---------------------------------------------------------------------------

    @cached_property
    def XVX(self) -> Positive:
        """X'V⁻¹X, factored."""
        return Positive(self.gram[1:, 1:])

    @cached_property
    def beta(self) -> FloatArray:
        """Generalised least squares."""
        return self.XVX.solve(self.gram[1:, 0])

    @cached_property
    def contrast(self) -> FloatArray:
        """The combination of the columns that is y − Xβ̂."""
        return np.concatenate([[1.0], -self.beta])

    # Value, score, information ------------------------------------------------------------------

    def deviance(self, n: int, *, reml: bool) -> float:
        """Return −2ℓ = log|V| + log|X'V⁻¹X| + y'Py + (n−p) log 2π.

        For ML without the second term, and with n.
        """
        total = self.log_det + self.rss
        if reml:
            total += self.XVX.log_determinant()
            n -= self.beta.size
        return float(total + n * np.log(2.0 * np.pi))

    @property
    def rss(self) -> float:
        """The quadratic form y'P y."""
        return float(self.contrast @ self.gram @ self.contrast)

    @property
    def quadratics(self) -> FloatArray:
        """The quadratic forms y'P V_t P y."""
        forms: FloatArray = self.first @ self.contrast @ self.contrast
        return forms

    def fixed_traces(self) -> FloatArray:
        """Return what the fixed part takes from tr(V⁻¹V_t): tr((X'V⁻¹X)⁻¹ X'V⁻¹V_t V⁻¹X)."""
        if not self.beta.size:
            return np.zeros_like(self.traces)
        traces: FloatArray = np.einsum("ij,tji->t", self.XVX.inverse(), self.first[:, 1:, 1:])
        return traces

    def average(self) -> FloatArray:
        """Return y'P V_t P V_u P y, twice the average information."""
        plain: FloatArray = self.second @ self.contrast @ self.contrast
        if not self.beta.size:
            return plain
        mixed = self.first[:, 1:] @ self.contrast
        return plain - mixed @ self.XVX.solve(mixed.T)

    def expected(self, *, reml: bool) -> FloatArray:
        """Return tr(P V_t P V_u), twice the expected information; V⁻¹ in place of P for ML."""
        if not reml or not self.beta.size:
            return self.squares
        inverse = self.XVX.inverse()
        relative = inverse @ self.first[:, 1:, 1:]
        both = np.tensordot(relative, relative.swapaxes(1, 2), ((1, 2), (1, 2)))
        twice = np.tensordot(self.second[:, :, 1:, 1:], inverse, 2)
        expected: FloatArray = self.squares - 2.0 * twice + both
        return expected
