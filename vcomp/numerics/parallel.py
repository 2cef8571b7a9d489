"""Free memory, numbers of threads, and replicates in threads with a random stream for each."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from threading import Lock
from time import monotonic
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from vcomp import display
from vcomp.exceptions import EstimationError, VcompError, is_real, is_whole
from vcomp.progress import progress_bar

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
        raise error(
            f"{what} {display.memory(needed)}, and {display.memory(free)} are free; {advice}"
        )


PATIENCE = 600.0
"""Expected seconds up to which work begins for which no time limit is given."""


def check_seconds(seconds: float, what: str, advice: str, patience: float = PATIENCE) -> None:
    """Refuse work that is expected to take longer than `patience`.

    Parameters
    ----------
    seconds : that are expected
    what : beginning of the message, up to the verb: ``"fits of these data take"``
    advice : end of the message
    patience : seconds

    Raises
    ------
    EstimationError
        If more are expected.
    """
    if seconds > patience:
        raise EstimationError(f"{what} about {display.number(seconds, 2)} seconds; {advice}")


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


Row = TypeVar("Row")
Item = TypeVar("Item")

_PORTION_SECONDS = 0.25
"""Target time of a portion of the replicates, after which interruptions are noticed."""

_MOST_AT_ONCE = 64
_SAVE_SECONDS = 30.0
"""Seconds between two saves of the results."""


@dataclass(frozen=True, slots=True)
class BatchedWork(Generic[Row]):
    """Work that computes several replicates at once, where that is faster than one by one.

    Attributes
    ----------
    work : returns the results of several numbers, in their order
    most : largest number at once
    """

    work: Callable[[Sequence[int]], Sequence[Row]]
    most: int


def check_time_limit(time_limit: float | None) -> None:
    """Refuse a time limit that is not a positive number of seconds.

    Raises
    ------
    EstimationError
        If `time_limit` is neither None nor a positive number.
    """
    is_number = is_real(time_limit)
    if time_limit is not None and not (is_number and float(time_limit) > 0.0):
        raise EstimationError(
            f"time_limit must be a positive number of seconds, not {time_limit!r}"
        )


def run(
    make: Callable[[], Callable[[int], Row] | BatchedWork[Row]],
    numbers: Sequence[int],
    *,
    workers: int = 1,
    time_limit: float | None = None,
    progress: bool | None = None,
    label: str = "replicates",
    save: Callable[[dict[int, Row]], None] | None = None,
    save_seconds: float = _SAVE_SECONDS,
) -> dict[int, Row]:
    """Return the results of replicates by number, without those not started before the time limit.

    BLAS uses one thread for each: sums in another order differ in the last bit, so that results
    would depend on the machine.

    Parameters
    ----------
    make : called once in each thread; returns the function that computes a replicate from its
        number, or a :class:`BatchedWork`
    numbers : numbers of the requested replicates
    workers : number of threads
    time_limit : seconds after which no replicate is started
    progress : whether to show a progress bar; None shows one if stderr is a terminal
    label : text of the bar
    save : called with all results now and then, and if an interruption or error ends the work
    save_seconds : time after which `save` is called again
    """
    done: dict[int, Row] = {}
    last = monotonic()
    with progress_bar(progress, len(numbers), label) as bar, limited_blas(0):
        try:
            for rows in _portions(make, numbers, workers, time_limit):
                done |= rows
                bar(len(rows))
                if save is not None and monotonic() - last > save_seconds:
                    save(done)
                    last = monotonic()
        except BaseException:
            if save is not None and done:
                save(done)
            raise
    return done


def _portions(
    make: Callable[[], Callable[[int], Row] | BatchedWork[Row]],
    numbers: Sequence[int],
    workers: int,
    time_limit: float | None,
) -> Iterator[dict[int, Row]]:
    """Yield the results of a portion of the replicates at a time, as threads finish them."""
    deadline = None if time_limit is None else monotonic() + time_limit
    queue = _Queue(numbers, deadline, workers)
    if workers == 1:
        work = queue.timed(make())
        while portion := queue.next():
            yield work(portion)
        return
    local = threading.local()

    def job(portion: Sequence[int]) -> dict[int, Row]:
        if not hasattr(local, "work"):
            local.work = queue.timed(make())
        return local.work(portion)

    with ThreadPoolExecutor(workers) as pool:
        running: set[Future[dict[int, Row]]] = set()
        try:
            while True:
                while len(running) < workers and (portion := queue.next()):
                    running.add(pool.submit(job, portion))
                if not running:
                    return
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield future.result()
        finally:
            queue.close()


class _Queue:
    """Distributes replicate numbers in portions of about equal time, none after the deadline.

    A portion is at most an equal part of the remaining numbers, so that all workers get some even
    if replicates are short.
    """

    def __init__(self, numbers: Sequence[int], deadline: float | None, workers: int = 1) -> None:
        self._numbers, self._at, self._deadline = numbers, 0, deadline
        self._workers = workers
        self.size = 1

    def next(self) -> Sequence[int]:
        """Return the next portion; empty at the end."""
        if self.is_late():
            return ()
        share = -(-(len(self._numbers) - self._at) // self._workers)
        portion = self._numbers[self._at : self._at + min(self.size, share)]
        self._at += len(portion)
        return portion

    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return self._deadline is not None and monotonic() >= self._deadline

    def timed(
        self, work: Callable[[int], Row] | BatchedWork[Row]
    ) -> Callable[[Sequence[int]], dict[int, Row]]:
        """Return the function that computes a portion and adapts the size of the next ones."""
        if isinstance(work, BatchedWork):
            self.size = max(self.size, work.most)

        def work_on(portion: Sequence[int]) -> dict[int, Row]:
            rows: dict[int, Row] = {}
            begun = monotonic()
            if isinstance(work, BatchedWork):
                for at in range(0, len(portion), work.most):
                    if self.is_late():
                        break
                    some = portion[at : at + work.most]
                    rows |= zip(some, work.work(some), strict=True)
                return rows
            for number in portion:
                if self.is_late():
                    break
                rows[number] = work(number)
            if rows:
                self.took((monotonic() - begun) / len(rows))
            return rows

        return work_on

    def took(self, seconds: float) -> None:
        """Adapt the size of portions to the time of one replicate."""
        self.size = int(min(max(_PORTION_SECONDS / max(seconds, 1e-9), 1.0), _MOST_AT_ONCE))

    def close(self) -> None:
        """Stop distributing, so that threads end."""
        self._deadline = -1.0


_WORTH_THREADS = 1e8
"""Multiplications of matrices below which starting threads takes longer than they save."""


def in_threads(
    work: Callable[[Item], Row], items: Sequence[Item], multiplications: float
) -> Iterator[Row]:
    """Yield the results of products of matrices for each item, in order, by two threads.

    Parameters
    ----------
    work : called with each item; it must not change what others use
    items : arguments of the calls
    multiplications : of all of it; a single thread does a few
    """
    if multiplications < _WORTH_THREADS or len(items) < 2:
        yield from map(work, items)
        return
    waiting: deque[Future[Row]] = deque()
    with ThreadPoolExecutor(THREADS) as pool:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > THREADS:  # few results wait in memory
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items of an iterable; a thread makes the next one meanwhile.

    Examples
    --------
    >>> list(ahead(n**2 for n in range(4)))
    [0, 1, 4, 9]
    """
    waiting, last = iter(items), object()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(next, waiting, last)
        while (item := future.result()) is not last:
            future = pool.submit(next, waiting, last)
            yield item  # type: ignore[misc]


def stream(seed: int, number: int) -> np.random.Generator:
    """Return the random number generator of one replicate.

    Parameters
    ----------
    seed : seed of all replicates
    number : number of the replicate, from 0

    Examples
    --------
    >>> stream(1, 5).normal() == stream(1, 5).normal()
    True
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(number,))))


def seed_from(rng: int | np.random.Generator | None) -> int:
    """Return a seed: `rng` itself, a number drawn from a generator, or 0 for None.

    Raises
    ------
    EstimationError
        If `rng` is not one of these.
    """
    check_rng(rng)
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**31))
    return 0 if rng is None else int(rng)


def check_count(value: object, name: str) -> int:
    """Return a number of replicates, responses or workers if it is valid.

    Raises
    ------
    EstimationError
        If it is not a whole number of at least 1.
    """
    if not is_whole(value) or int(value) < 1:
        raise EstimationError(f"{name} must be a whole number of at least 1, not {value!r}")
    return int(value)


def check_rng(rng: object) -> None:
    """Refuse a value that is neither a seed nor a generator.

    Raises
    ------
    EstimationError
        If `rng` is not None, a seed of at least 0, or a numpy Generator.
    """
    is_seed = is_whole(rng) and int(rng) >= 0
    if rng is not None and not is_seed and not isinstance(rng, np.random.Generator):
        raise EstimationError(
            f"rng must be a seed of at least 0 or a numpy Generator, not {rng!r}"
        )
