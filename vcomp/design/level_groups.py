"""Groups of the levels of a facet, such as the organisations that systems come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from vcomp._typing import LongArray
from vcomp.exceptions import DataError, did_you_mean

LevelGroups: TypeAlias = Mapping[Any, Any] | Callable[[Any], Any]
"""The group of each level: a mapping (a pandas Series by level too), or a function of its name."""


def group_codes(groups: Any, levels: Iterable[Any], facet: str) -> LongArray:
    """Return the group of each level, numbered in the order in which groups first come.

    Parameters
    ----------
    groups : mapping from levels to groups, pandas Series indexed by levels, or a function that
        returns the group of a level
    levels : of the facet
    facet : its name, for messages

    Raises
    ------
    DataError
        If `groups` is none of these, a level has no group, or all levels are of one group.

    Examples
    --------
    >>> group_codes({"bm25": "A", "bm25f": "A", "lm": "B"}, ["lm", "bm25", "bm25f"], "sys")
    array([0, 1, 1])
    >>> group_codes(lambda name: name[0], ["ax", "ay", "bx"], "sys")
    array([0, 0, 1])
    """
    names = list(levels)
    found = [_group_of(groups, name, facet) for name in names]
    numbers: dict[Any, int] = {}
    try:
        codes = [numbers.setdefault(group, len(numbers)) for group in found]
    except TypeError:
        raise DataError(f"groups of {facet!r} must be labels, not {found[0]!r}") from None
    if len(numbers) < 2:
        raise DataError(
            f"all {len(names)} levels of {facet!r} are in one group; two groups or more are needed"
        )
    return np.array(codes, dtype=np.int64)


def _group_of(groups: Any, level: Any, facet: str) -> Any:
    group = groups(level) if callable(groups) else _looked_up(groups, level, facet)
    if group is None or group != group:  # nan
        raise DataError(f"{level!r} of {facet!r} has no group; give each level one")
    return group


def _looked_up(groups: Any, level: Any, facet: str) -> Any:
    if not hasattr(groups, "keys"):
        raise DataError(
            f"groups of {facet!r} must be a mapping from its levels to groups, or a function of a "
            f"level, not {type(groups).__name__}"
        )
    known: Sequence[Any] = list(groups.keys())
    for key in (level, str(level)):
        if key in known:
            return groups[key]
    of_text = {str(key): key for key in known}
    if str(level) in of_text:
        return groups[of_text[str(level)]]
    raise DataError(
        f"{level!r} of {facet!r} has no group{did_you_mean(str(level), of_text)}; give each level "
        "one"
    )
