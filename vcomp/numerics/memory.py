"""Free memory, slices of work, and numbers of threads."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from threading import Lock
from typing import Any, TypeAlias

from vcomp.display import memory
from vcomp.exceptions import EstimationError, VcompError

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


def available_bytes(root: str = "/") -> float:
    """Return the bytes that this process can allocate without swapping.

    The least of what the system estimates to be free, what the control groups of the process
    leave (versions 1 and 2, with those above them), and its limit of address space
    (``ulimit -v``), less a reserve for threads and compilation.

    Parameters
    ----------
    root : folder that holds ``proc`` and ``sys``
    """
    free = []
    try:
        with open(f"{root}proc/meminfo", encoding="ascii") as lines:
            free += [1024.0 * float(x.split()[1]) for x in lines if x.startswith("MemAvailable:")]
    except OSError:
        pass
    for folder, (limit, used, evictable) in _control_groups(root):
        try:
            left = float(_text(f"{folder}/{limit}")) - float(_text(f"{folder}/{used}"))
        except (OSError, ValueError):  # the group is gone, or has no limit any more
            continue
        stat = _text(f"{folder}/memory.stat").splitlines()
        free.append(left + sum(float(x.split()[1]) for x in stat if x.startswith(evictable)))
    if resource is not None:
        most_addresses = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most_addresses != resource.RLIM_INFINITY:
            free.append(most_addresses - _address_space(root) - _RESERVED)
    if not free:
        try:
            return float(os.sysconf("SC_PAGE_SIZE")) * float(os.sysconf("SC_PHYS_PAGES")) / 2.0
        except (ValueError, OSError, AttributeError):
            return 4.0 * 2**30
    return max(min(free), 0.0)


_RESERVED = 2.0**28
"""Bytes of address space that are left for stacks of threads, their heaps and compiled code."""

_UNLIMITED = 2.0**60
"""Smallest limit of a control group of version 1 that means no limit."""

_Files: TypeAlias = tuple[str, str, str]
"""Names of the limit and the use of a group, and the entry of pages that can be dropped."""

_VERSION_1: _Files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ")
_VERSION_2: _Files = ("memory.max", "memory.current", "inactive_file ")


@cache
def _control_groups(root: str) -> tuple[tuple[str, _Files], ...]:
    """Return the folders of the control groups that limit the memory of this process.

    Inside a container the path of the process may be that of the host: the groups that are
    mounted are then the container's own.
    """
    groups = []
    try:
        lines = [line.split(":", 2) for line in _text(f"{root}proc/self/cgroup").splitlines()]
    except OSError:
        return ()
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if controllers and "memory" not in controllers.split(","):
            continue
        files = _VERSION_1 if controllers else _VERSION_2
        top = f"{root}sys/fs/cgroup/memory" if controllers else f"{root}sys/fs/cgroup"
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):
            folder = "/".join([top, *parts[:depth]])
            try:
                is_limit = float(_text(f"{folder}/{files[0]}")) < _UNLIMITED
                is_known = bool(_text(f"{folder}/{files[1]}") and _text(f"{folder}/memory.stat"))
            except (OSError, ValueError):  # no such folder; "max"
                continue
            if is_limit and is_known:
                groups.append((folder, files))
    return tuple(groups)


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _address_space(root: str) -> float:
    """Return the bytes of address space that this process uses; zero if the system hides them."""
    try:
        return float(_text(f"{root}proc/self/statm").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0.0


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
        raise error(f"{what} {memory(needed)}, and {memory(free)} are free; {advice}")


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
"""Order of a matrix below which one thread is used. Threads of BLAS wait busily for their next
work, also between products: on two idle cores fits of 10⁵ rows take as long with two threads as
with one, and twice the processor time. If another process uses one of the cores, a Cholesky factor
and inverse of order 1,000 takes 2 to 3 times as long as with one thread, of order 4,000 6 to 8
times."""


class _Threads:
    """Number of BLAS threads: one inside a limited part, all inside a part that needs them.

    Parts may be nested, and concurrent threads may leave them in any order. They are counted, as
    each would otherwise restore the one thread that another had set.
    """

    def __init__(self) -> None:
        self._lock, self._loaded = Lock(), 0
        self._limited, self._lifted = 0, 0
        self._limits: list[Any] = []

    @contextmanager
    def part(self, limited: bool) -> Iterator[None]:
        """Enter a part, and leave it."""
        self._move(limited, 1)
        try:
            yield
        finally:
            self._move(limited, -1)

    def _move(self, limited: bool, step: int) -> None:
        with self._lock:
            self._limited += step * limited
            self._lifted += step * (not limited)
            if not self._limited or self._lifted:
                while self._limits:
                    self._limits.pop().restore_original_limits()
                return
            # SciPy brings a library of its own, perhaps while others are limited.
            before, self._loaded = self._loaded, 1 + ("scipy.linalg" in sys.modules)
            if not self._limits or before < self._loaded:
                self._limits.append(_controller(self._loaded).limit(limits=1, user_api="blas"))


@cache
def _controller(_: int) -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


_THREADS = _Threads()


def limited_blas(order: int) -> AbstractContextManager[None]:
    """Return a context in which BLAS uses one thread for small matrices, all for large ones."""
    return _THREADS.part(order < _ONE_THREAD_BELOW)
