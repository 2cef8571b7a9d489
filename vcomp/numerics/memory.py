"""Free memory, sizes in words, parts that fit into caches, and the number of BLAS threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

_OF_A_VALUE = 24.0
"""Bytes of one value of a row: as read, as category, and as code with its sums."""


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


def bytes_of_rows(n_rows: float, n_columns: int) -> float:
    """Return the approximate memory of rows and of what is computed from them, in bytes.

    Examples
    --------
    >>> bytes_of_rows(1000, 5)
    120000.0
    """
    return _OF_A_VALUE * n_rows * n_columns


def rows_in_words(n_rows: float, n_columns: int) -> str:
    """Return the approximate memory of rows in words, in MiB if it is small.

    Examples
    --------
    >>> rows_in_words(1e9, 5), rows_in_words(1000, 5)
    ('111.8 GiB', '0.1 MiB')
    """
    n_bytes = bytes_of_rows(n_rows, n_columns)
    return gib(n_bytes) if n_bytes > 0.1 * 2**30 else f"{max(n_bytes / 2**20, 0.1):.1f} MiB"


def gib(n_bytes: float) -> str:
    """Return a number of bytes in GiB, as text.

    Examples
    --------
    >>> gib(3 * 2**30)
    '3.0 GiB'
    """
    return f"{n_bytes / 2**30:,.1f} GiB"


def slices(count: int, width: int) -> Iterator[slice]:
    """Yield slices of ``range(count)`` of length `width`; the last may be shorter.

    Examples
    --------
    >>> list(slices(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    for first in range(0, count, width):
        yield slice(first, min(first + width, count))


THREADS = 2
"""Threads of a pass over rows, whose speed memory limits: more do not help."""

MANY_ROWS = 200_000
"""Number of rows below which threads take longer to start than they save."""

_ONE_THREAD_BELOW = 10_000
"""Below this order two threads gain a factor of two at most, on an idle machine. Where another
process has one of two cores they wait for it: a Cholesky factor and inverse of order 1,000 then
take 2 to 3 times as long as with one thread, of order 4,000 6 to 8 times."""


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def limited_blas(order: int) -> AbstractContextManager[Any]:
    """Return a context in which BLAS uses one thread for small matrices, all for large ones."""
    if order >= _ONE_THREAD_BELOW:
        return nullcontext()
    context: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return context
