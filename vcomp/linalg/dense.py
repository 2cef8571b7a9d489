"""Small dense systems."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray

__all__ = ["solve", "solve_positive"]


def solve(A: FloatArray, b: FloatArray) -> FloatArray:
    """Solve A x = b.

    Raises
    ------
    numpy.linalg.LinAlgError
        If A is singular.
    """
    return np.asarray(np.linalg.solve(A, b), dtype=np.float64)


def solve_positive(A: FloatArray, b: FloatArray) -> FloatArray:
    """Solve A x = b for a positive definite A, scaled to a unit diagonal first.

    Scaling keeps the digits of columns whose units differ by many decades.

    Raises
    ------
    numpy.linalg.LinAlgError
        If A is not positive definite.
    """
    if A.size == 0:
        return np.zeros_like(b)
    from scipy.linalg import cho_factor, cho_solve

    scale = np.sqrt(np.diagonal(A))
    factor = cho_factor(A / np.outer(scale, scale), lower=True, check_finite=False)
    by_row = scale if b.ndim == 1 else scale[:, None]
    x: FloatArray = cho_solve(factor, b / by_row, check_finite=False)
    return x / by_row
