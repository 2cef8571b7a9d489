"""Any number of collections as the rows of two matrices, which is what kernels take."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray

__all__ = ["rows_of"]


def rows_of(
    means: FloatArray, true_means: FloatArray
) -> tuple[FloatArray, FloatArray, tuple[int, ...]]:
    """Return means and true means as (m, k) matrices, and the shape of one value a row.

    Examples
    --------
    >>> rows_of(np.zeros((5, 4, 3)), np.zeros(3))[1].shape
    (20, 3)
    """
    x, y = np.broadcast_arrays(means, true_means)
    k, shape = x.shape[-1], x.shape[:-1]
    rows = (np.ascontiguousarray(a, dtype=float).reshape(-1, k) for a in (x, y))
    return next(rows), next(rows), shape
