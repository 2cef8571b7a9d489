"""Groups of the levels of a facet, such as the organisations of systems, given by the user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from vcomp._typing import LongArray
from vcomp.data import Source
from vcomp.design.design import Design
from vcomp.exceptions import DataError, did_you_mean

LevelGroups: TypeAlias = Mapping[Any, Any] | Callable[[Any], Any]
"""The group of each level: a mapping (a pandas Series by level too), or a function of its name."""


def group_codes(groups: Any, levels: Iterable[Any], facet: str) -> LongArray:
    """Return the group of each level, numbered by first occurrence.

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
    labels = [_group_of(groups, name, facet) for name in names]
    numbers: dict[Any, int] = {}
    try:
        codes = [numbers.setdefault(group, len(numbers)) for group in labels]
    except TypeError:
        raise DataError(
            f"groups of {facet!r} must be labels, not {labels[0]!r}", column=facet
        ) from None
    if len(numbers) < 2:
        raise DataError(
            f"all {len(names)} levels of {facet!r} are in one group; two groups or more "
            "are needed",
            column=facet,
        )
    return np.array(codes, dtype=np.int64)


def codes_of_facet(groups: Any, design: Design, facet: str) -> LongArray:
    """Return the group of each level of a facet that is drawn by group.

    Parameters
    ----------
    groups : see :func:`group_codes`
    design : with the facet
    facet : its name

    Raises
    ------
    DataError
        If the facet is nested in another, a level has no group, or all levels are of one group.
    """
    above = design.structure.nested_in[facet]
    if above:
        raise DataError(
            f"{facet!r} is nested in {' and '.join(sorted(above))}, and levels that are drawn by "
            "group are not nested",
            column=facet,
        )
    levels = next(f.levels for f in design.facets if f.name == facet)
    return group_codes(groups, levels, facet)


def read_groups(source: Source, level: str, group: str) -> dict[str, Any]:
    """Return the group of each level, read from two columns of a table.

    Parameters
    ----------
    source : the table
    level, group : its columns of levels and of their groups

    Raises
    ------
    DataError
        If a level has several groups.
    """
    pairs = source.read([level, group]).drop_duplicates()
    several = pairs[level][pairs[level].duplicated()]
    if len(several):
        raise DataError(
            f"{str(several.iloc[0])!r} has several groups in column {group!r}", column=group
        )
    return dict(zip(map(str, pairs[level]), pairs[group], strict=True))


def _group_of(groups: Any, level: Any, facet: str) -> Any:
    group = groups(level) if callable(groups) else _looked_up(groups, level, facet)
    if group is None or group != group:  # nan
        raise DataError(
            f"{level!r} of {facet!r} has no group; give each level one", column=facet, level=level
        )
    return group


def _looked_up(groups: Any, level: Any, facet: str) -> Any:
    if not hasattr(groups, "keys"):
        raise DataError(
            f"groups of {facet!r} must be a mapping from its levels to groups, or a function of a "
            f"level, not {type(groups).__name__}",
            column=facet,
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
        "one",
        column=facet,
        level=level,
    )
