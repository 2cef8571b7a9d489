"""Covariance matrices of published components."""

from __future__ import annotations

from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError


def covariance_of(cov: Any, names: list[str]) -> FloatArray:
    """Return a covariance matrix of components in the order of their names.

    Raises
    ------
    PlanError
        If it is not one, or has other components.
    """
    k = len(names)
    labels = getattr(cov, "columns", None)
    if labels is not None:
        strange = sorted(set(names).symmetric_difference(labels), key=str)
        if strange or set(cov.index) != set(names):
            raise PlanError(f"cov must have the components {names} as rows and columns")
        cov = cov.loc[names, names].to_numpy()
    try:
        matrix = np.asarray(cov, dtype=float)
    except (TypeError, ValueError):
        raise PlanError(f"cov is a matrix of numbers or a frame, not {cov!r}") from None
    if matrix.shape != (k, k):
        raise PlanError(f"cov must be {k} × {k}, one row a component, not of shape {matrix.shape}")
    if np.isinf(matrix).any() or not np.allclose(matrix, matrix.T, equal_nan=True):
        raise PlanError("cov must be symmetric, and finite or nan")
    if (np.diagonal(matrix) < 0).any():
        at = names[int(np.flatnonzero(np.diagonal(matrix) < 0)[0])]
        raise PlanError(f"cov has a negative variance for component {at!r}", term=at)
    known = ~np.isnan(np.diagonal(matrix))
    inside = matrix[np.ix_(known, known)]
    scale = np.sqrt(np.diagonal(inside))
    scale[scale == 0.0] = 1.0
    # Of correlations: the variances of components may differ by many orders of magnitude.
    if known.any() and np.linalg.eigvalsh(inside / np.outer(scale, scale))[0] < -1e-8:
        raise PlanError("cov is not a covariance matrix: some combination has a negative variance")
    return matrix
