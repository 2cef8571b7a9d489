"""Compact letter display: groups of levels without a significant pair, and their letters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vcomp._typing import BoolArray, LongArray


def groups_of(distinct: BoolArray) -> list[LongArray]:
    """Return the maximal groups of levels without a significant pair.

    Levels that are not distinct share at least one group, and distinct ones none (Piepho, 2004).
    If only levels far enough apart are distinct, the groups are the longest runs of neighbours.

    Parameters
    ----------
    distinct : (k, k) whether the test of two levels is significant, symmetric; levels in the order
        of their means

    Returns
    -------
    list of arrays
        Places of the levels of each group, in order; a level that is distinct from all others is
        a group alone.

    References
    ----------
    Piepho, H.-P. (2004). An algorithm for a letter-based representation of all-pairwise
    comparisons. *Journal of Computational and Graphical Statistics*, 13, 456-466.

    Examples
    --------
    >>> distinct = np.array([[False, False, True], [False, False, False], [True, False, False]])
    >>> [group.tolist() for group in groups_of(distinct)]
    [[0, 1], [1, 2]]
    """
    alike = ~np.asarray(distinct, dtype=bool)
    open_pairs = np.triu(alike, 1)
    grouped = np.zeros(len(alike), dtype=bool)
    groups = []
    for level in range(len(alike)):
        while (later := np.flatnonzero(open_pairs[level])).size:
            members = _grown(alike, level, int(later[-1]))
            open_pairs[np.ix_(members, members)] = False
            grouped[members] = True
            groups.append(members)
        if not grouped[level]:
            groups.append(np.array([level]))
    return groups


def _grown(alike: BoolArray, first: int, last: int) -> LongArray:
    """Return a largest group with two levels: later levels join in their order."""
    members = np.zeros(len(alike), dtype=bool)
    members[[first, last]] = True
    could_join = alike[first] & alike[last] & ~members
    while could_join.any():
        later = np.flatnonzero(could_join[first:])
        joins = first + int(later[0]) if later.size else int(np.flatnonzero(could_join)[-1])
        members[joins] = True
        could_join &= alike[joins]
        could_join[joins] = False
    return np.flatnonzero(members)


def letters(groups: Sequence[LongArray], k: int) -> list[str]:
    """Return the letters of the groups of each level: a to z, then aa, ab and so on.

    Parameters
    ----------
    groups : of :func:`groups_of`
    k : number of levels

    Examples
    --------
    >>> letters([np.array([0, 1]), np.array([1, 2])], 3)
    ['a', 'ab', 'b']
    """
    between = "" if len(groups) <= _ALPHABET else " "
    of: list[list[str]] = [[] for _ in range(k)]
    for number, members in enumerate(groups):
        for level in members:
            of[level].append(_letter(number))
    return [between.join(names) for names in of]


_ALPHABET = 26


def _letter(number: int) -> str:
    """Return the name of a group, as spreadsheets name their columns."""
    name = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, _ALPHABET)
        name = chr(ord("a") + rest) + name
    return name
