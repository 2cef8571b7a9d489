"""Small dense systems: solves, positive definite factors, covariance of a solution."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray

__all__ = [
    "Positive",
    "covariance_of_solution",
    "solve",
    "solve_positive",
]


def solve(A: FloatArray, b: FloatArray) -> FloatArray:
    """Solve A x = b.

    Raises
    ------
    numpy.linalg.LinAlgError
        If A is singular.
    """
    return np.asarray(np.linalg.solve(A, b), dtype=np.float64)


def covariance_of_solution(A: FloatArray, covariance: FloatArray) -> FloatArray:
    """Return A⁻¹CA⁻ᵀ, exactly symmetric: the covariance of A⁻¹x if x has the covariance C.

    Examples
    --------
    >>> covariance_of_solution(np.array([[2.0]]), np.array([[8.0]]))
    array([[2.]])

    Raises
    ------
    numpy.linalg.LinAlgError
        If A is singular.
    """
    found = solve(A, solve(A, covariance).T)
    return 0.5 * (found + found.T)


class Positive:
    """A positive definite matrix factored once, scaled to a unit diagonal first.

    Scaling preserves digits if the units of columns differ by many decades.

    Parameters
    ----------
    A : (n, n), n may be 0

    Raises
    ------
    numpy.linalg.LinAlgError
        If it is not positive definite.
    """

    def __init__(self, A: FloatArray) -> None:
        diagonal = np.diagonal(A)
        if not (diagonal > 0.0).all():
            raise np.linalg.LinAlgError("the diagonal is not positive")
        self._scale = np.sqrt(diagonal)
        self._lower = np.linalg.cholesky(A / np.outer(self._scale, self._scale))

    def log_determinant(self) -> float:
        """Return the logarithm of the determinant."""
        return float(2.0 * np.log(np.diagonal(self._lower) * self._scale).sum())

    def solve(self, b: FloatArray) -> FloatArray:
        """Solve A x = b for a vector or columns b."""
        from scipy.linalg import cho_solve

        if b.size == 0:
            return np.zeros_like(b)
        by_row = self._scale if b.ndim == 1 else self._scale[:, None]
        x: FloatArray = cho_solve((self._lower, True), b / by_row, check_finite=False)
        return x / by_row

    def matrix(self) -> FloatArray:
        """Return the matrix itself."""
        product: FloatArray = self._lower @ self._lower.T
        product *= np.outer(self._scale, self._scale)
        return product

    def inverse(self) -> FloatArray:
        """Return the inverse."""
        return self.solve(np.eye(self._scale.size))


def solve_positive(A: FloatArray, b: FloatArray) -> FloatArray:
    """Solve A x = b for a positive definite A, scaled to a unit diagonal first.

    Raises
    ------
    numpy.linalg.LinAlgError
        If A is not positive definite.
    """
    return Positive(A).solve(b)
