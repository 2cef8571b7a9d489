"""Products of sets of columns that are made a block of rows at a time and never there whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from vcomp._typing import FloatArray
from vcomp.kernels.sparse_products import add_products
from vcomp.linalg.sparse_table import over_threads

__all__ = ["Fill", "row_products"]

Fill = Callable[[int, int, FloatArray], None]
"""Writes the rows from one number up to another into an array of them."""

_BLOCK = 1024
"""Rows of a block: all sets of columns of one stay in a core's cache."""

_PARTS = 4
_ROWS_A_PART = 20_000
"""A part with fewer rows takes less time than to start a thread."""


def row_products(fills: Sequence[Fill], n_rows: int, width: int) -> FloatArray:
    """Return the sums over rows of the products of every two sets of columns.

    Sums do not depend on the number of threads.

    Parameters
    ----------
    fills : what writes each of the m sets
    n_rows, width : q rows and c columns that each set has

    Returns
    -------
    (m, m, c) array, symmetric

    Examples
    --------
    >>> x = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> row_products([lambda a, b, out: np.copyto(out, x[a:b])], 2, 2)
    array([[[10., 20.]]])
    """
    m = len(fills)
    n_parts = int(np.clip(n_rows // _ROWS_A_PART, 1, _PARTS))
    ends = [n_rows * k // n_parts for k in range(n_parts + 1)]
    sums = np.zeros((n_parts, m, m, width))

    def work(part: int, first: int, last: int) -> None:
        columns = np.empty((m, min(_BLOCK, last - first), width))
        for begin in range(first, last, _BLOCK):
            end = min(begin + _BLOCK, last)
            for fill, rows in zip(fills, columns, strict=True):
                fill(begin, end, rows[: end - begin])
            add_products(columns, end - begin, sums[part])

    over_threads(work, list(pairwise(ends)))
    total = sums.sum(axis=0)
    lower = np.tril_indices(m, -1)
    total[lower[1], lower[0]] = total[lower]
    return np.asarray(total)
