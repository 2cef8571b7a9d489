"""Free memory, slices of work, and numbers of threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from vcomp.display import gib
from vcomp.exceptions import EstimationError, VcompError


def available_bytes() -> float:
    """Return the bytes that can be allocated without swapping, as estimated by the system."""
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


def check_memory(
    needed: float,
    what: str,
    advice: str,
    error: type[VcompError] = EstimationError,
    *,
    free_bytes: Callable[[], float] = available_bytes,
) -> None:
    """Refuse work that needs more than 80 % of the free memory.

    Parameters
    ----------
    needed : bytes
    what : beginning of the message, up to the verb: ``"tables of 9 rows need"``
    advice : end of the message
    error : class of the error
    free_bytes : returns the free memory

    Raises
    ------
    VcompError
        If more is needed; an error of the class `error`.
    """
    free = free_bytes()
    if needed > 0.8 * free:
        raise error(f"{what} {gib(needed)}, and {gib(free)} are free; {advice}")


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
"""Threads of a pass over rows. Memory limits its speed, so that more threads do not help."""

MANY_ROWS = 200_000
"""Number of rows below which starting threads takes longer than they save."""

_ONE_THREAD_BELOW = 10_000
"""Order of a matrix below which one thread is used. On an idle machine two threads are at most
twice as fast as one. If another process uses one of two cores, the threads wait for each other: a
Cholesky factor and inverse of order 1,000 then takes 2 to 3 times as long as with one thread, of
order 4,000 6 to 8 times as long."""


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
