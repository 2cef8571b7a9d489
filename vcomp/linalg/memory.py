"""How much memory there is, so that nothing larger is attempted."""

from __future__ import annotations

import os

__all__ = ["available_bytes", "gib"]


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
