"""The rows of a design of any sizes: which level of each facet every score has."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vcomp._typing import LongArray
from vcomp.exceptions import PlanError, did_you_mean
from vcomp.notation import Design

__all__ = ["Layout", "check_sizes", "level_codes"]

Layout = dict[str, LongArray]
"""For every facet the level of each row, from 0; levels of nested facets are all different."""


def check_sizes(design: Design, sizes: Mapping[str, object]) -> dict[str, LongArray]:
    """Return the sizes of all facets, one number or a number for each level of those above.

    Raises
    ------
    PlanError
        If a facet has no size, an unknown one has one, or a size is not a whole number from 1 on.
    """
    for facet in sizes:
        if facet not in design.facets:
            raise PlanError(
                f"no facet {facet!r}{did_you_mean(facet, design.facets)}; facets are "
                f"{', '.join(design.facets)}"
            )
    missing = [f for f in design.facets if f not in sizes]
    if missing:
        raise PlanError(
            f"facet {missing[0]!r} has no size; give a number of levels to each of "
            f"{', '.join(design.facets)}"
        )
    return {facet: _whole_numbers(facet, sizes[facet]) for facet in design.facets}


def _whole_numbers(facet: str, size: object) -> LongArray:
    values = np.asarray(size)
    if values.dtype.kind not in "iu" or values.ndim > 1 or values.size == 0 or (values < 1).any():
        raise PlanError(
            f"the size of {facet!r} is a whole number from 1 on, or one for each level of what it "
            f"is nested in, not {size!r}"
        )
    return values.astype(np.int64)


def n_rows(design: Design, sizes: Mapping[str, LongArray]) -> float:
    """Return about how many rows there will be, before any is made."""
    return float(np.prod([float(sizes[f].mean()) for f in design.facets]))


def level_codes(design: Design, sizes: Mapping[str, LongArray]) -> Layout:
    """Return the levels of all facets in every row: all combinations that the nesting allows.

    Parameters
    ----------
    design : facets and their nesting
    sizes : of every facet, within those that it is nested in: one for all, or one for each
        combination of their levels, in the order in which they come

    Raises
    ------
    PlanError
        If a facet has several sizes, and not one for each combination.

    Examples
    --------
    >>> from vcomp.notation import parse_design
    >>> rows = level_codes(parse_design("d:t"), {"t": np.array(2), "d": np.array([1, 2])})
    >>> rows["t"], rows["d"]
    (array([0, 1, 1]), array([0, 1, 2]))
    """
    rows: Layout = {}
    length = 1
    for facet in design.outer_first:
        above = [f for f in design.outer_first if f in design.nested_in[facet]]
        combination, count = _combinations([rows[f] for f in above], length)
        size = sizes[facet]
        if size.ndim and size.size != count:
            raise PlanError(
                f"facet {facet!r} has {size.size:,} sizes, and "
                + (
                    f"{count:,} levels of {' and '.join(above)}"
                    if above
                    else "is nested in nothing"
                )
            )
        within = np.broadcast_to(size, count)
        first = np.cumsum(within) - within
        times = within[combination]
        repeated = np.repeat(np.arange(length), times)
        place = np.arange(repeated.size) - np.repeat(np.cumsum(times) - times, times)
        rows = {name: codes[repeated] for name, codes in rows.items()}
        rows[facet] = first[combination[repeated]] + place
        length = repeated.size
    return {facet: rows[facet] for facet in design.facets}


def _combinations(codes: list[LongArray], length: int) -> tuple[LongArray, int]:
    """Return a number for each combination of levels, from 0, and how many there are."""
    combined = np.zeros(length, dtype=np.int64)
    count = 1
    for one in codes:
        combined = combined * (int(one.max()) + 1) + one
        values, combined = np.unique(combined, return_inverse=True)
        count = values.size
    return combined, count


def groups_of(layout: Layout, facets: list[str]) -> tuple[LongArray, int]:
    """Return the group of each row under an effect, from 0, and the number of groups."""
    length = next(iter(layout.values())).size
    return _combinations([layout[f] for f in facets], length)
