"""Intervals of other packages, by name."""

from __future__ import annotations

from vcomp._plugins import plugin, refused
from vcomp.inference.intervals.limits import IntervalSource
from vcomp.inference.quantities import VarianceComponents


def plugged_source(interval: str, components: VarianceComponents) -> IntervalSource | None:
    """Return the source of intervals that an installed package declares; None if none does.

    Parameters
    ----------
    interval : name of an entry point of the group ``vcomp.intervals``, a function of components
    components : that the intervals are made from

    Raises
    ------
    VcompError
        If the package cannot be imported, or its function returns something else.
    """
    made = plugin("intervals", interval)
    if made is None:
        return None
    try:
        source = made(components)
    except TypeError:  # it takes something else
        source = None
    if not isinstance(source, IntervalSource):
        raise refused("intervals", interval, "a function of components that returns intervals")
    return source
