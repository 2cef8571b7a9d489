"""Combinations of levels, numbered: two columns of codes become one."""

from __future__ import annotations

import numpy as np

from vcomp._typing import IntArray, LongArray

__all__ = ["find_combinations", "number_combinations"]

_DIRECT = 1_000_000
"""Possible combinations up to which a table of them is made whatever the number of rows."""


def number_combinations(
    groups: IntArray, n_groups: int, codes: IntArray, n_levels: int
) -> tuple[LongArray, IntArray]:
    """Return numbers for the combinations that occur, in their order.

    Parameters
    ----------
    groups, codes : (n,) two columns of codes
    n_groups, n_levels : how many codes each has

    Returns
    -------
    keys : (m,) sorted, ``group * n_levels + code`` of each combination
    numbers : (n,) the combination of each row

    Examples
    --------
    >>> a, b = np.array([0, 1, 1, 0], np.int32), np.array([2, 0, 2, 2], np.int32)
    >>> keys, numbers = number_combinations(a, 2, b, 3)
    >>> keys.tolist(), numbers.tolist()
    ([2, 3, 5], [0, 1, 2, 0])
    """
    joined = groups.astype(np.int64) * n_levels + codes
    possible = n_groups * n_levels
    if possible > max(_DIRECT, 4 * joined.size):
        keys, numbers = np.unique(joined, return_inverse=True)
        return keys, numbers.astype(np.int32)
    # A table of all that is possible is several times faster than sorting the rows.
    occurs = np.zeros(possible, dtype=bool)
    occurs[joined] = True
    number = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
    return np.flatnonzero(occurs), number[joined]


def find_combinations(keys: LongArray, wanted: LongArray) -> IntArray:
    """Return where each key stands among the sorted `keys`, −1 where it does not.

    Examples
    --------
    >>> find_combinations(np.array([2, 3, 5]), np.array([5, 4, -1])).tolist()
    [2, -1, -1]
    """
    possible = int(keys[-1]) + 1
    if possible > max(_DIRECT, 4 * wanted.size):
        found = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
        return np.where(keys[found] == wanted, found, -1).astype(np.int32)
    # One place more than there are keys stands for what is not there.
    number = np.full(possible + 1, -1, dtype=np.int32)
    number[keys] = np.arange(keys.size, dtype=np.int32)
    return number[np.where((wanted < 0) | (wanted >= possible), possible, wanted)]
