"""Replicates in threads: progress bar, time limit, and a random number stream for each."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from time import monotonic
from typing import Generic, TypeVar

import numpy as np

from vcomp.exceptions import EstimationError, is_real, is_whole
from vcomp.numerics.memory import THREADS, limited_blas
from vcomp.progress import progress_bar

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
