"""How much memory there is, so that nothing larger is attempted, and work in parts that fit."""

from __future__ import annotations

import os
from collections.abc import Iterator

__all__ = ["available_bytes", "gib", "slices"]


def available_bytes() -> float:
    """Return the bytes that can be allocated without swapping, as the system estimates it."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return float(line.split()[1]) * 1024.0
    except OSError:
        pass
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * float(os.sysconf("SC_PHYS_PAGES")) / 2.0
    except (ValueError, OSError, AttributeError):
        return 4.0 * 2**30


def gib(n_bytes: float) -> str:
    """Return a size in words.

    Examples
    --------
    >>> gib(3 * 2**30)
    '3.0 GiB'
    """
    return f"{n_bytes / 2**30:,.1f} GiB"


def slices(count: int, width: int) -> Iterator[slice]:
    """Yield parts of `count` things, of `width` but for the last.

    Examples
    --------
    >>> list(slices(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    for first in range(0, count, width):
        yield slice(first, min(first + width, count))
