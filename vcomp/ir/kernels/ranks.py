"""The order of the systems in each of many rankings.

numpy sorts rows of whole numbers with the widest instructions that the processor has. So numbers
are written as whole ones of the same order, whose lowest bits are the number of the column, and
errors due to the replaced bits are corrected afterwards.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from vcomp._typing import FloatArray, LongArray

_ALL_BUT_SIGN = np.int64(2**63 - 1)


def falling_order(values: FloatArray) -> LongArray:
    """Return the columns of each row in the order of falling values; equal ones in any order.

    Parameters
    ----------
    values : (m, k) finite numbers; in a row with others the order has no meaning

    Returns
    -------
    order : (m, k) permutations of 0, …, k - 1

    Examples
    --------
    >>> falling_order(np.array([[0.2, 0.5, 0.3]])).tolist()
    [[1, 2, 0]]
    """
    n_bits = max(values.shape[1] - 1, 0).bit_length()
    order: LongArray = _keys(values, n_bits)
    order.sort(axis=1)
    _settle(values, n_bits, order)
    return order


@njit(cache=True, nogil=True)
def _keys(values: FloatArray, n_bits: int) -> LongArray:
    """Return whole numbers that rise where values fall, the lowest bits being the columns."""
    m, k = values.shape
    upper = ~((np.int64(1) << n_bits) - np.int64(1))
    keys = np.empty((m, k), np.int64)
    for row in range(m):
        bits = (-values[row]).view(np.int64)
        for j in range(k):
            rising = bits[j] ^ ((bits[j] >> 63) & _ALL_BUT_SIGN)
            keys[row, j] = (rising & upper) | j
    return keys


@njit(cache=True, nogil=True)
def _settle(values: FloatArray, n_bits: int, keys: LongArray) -> None:
    """Replace sorted keys by their columns, in the order of the values themselves.

    Values that differ in the lowest bits only may be out of order, close to their position.
    """
    m, k = keys.shape
    lowest = (np.int64(1) << n_bits) - np.int64(1)
    for row in range(m):
        order, x = keys[row], values[row]
        for p in range(k):
            column = order[p] & lowest
            q = p
            while q > 0 and x[order[q - 1]] < x[column]:
                order[q] = order[q - 1]
                q -= 1
            order[q] = column
