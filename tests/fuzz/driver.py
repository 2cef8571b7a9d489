"""Run fuzzers: each case ends in a result or in a ``VcompError``, within ten seconds.

Case `k` of a fuzzer depends on its name and on `k` alone, so that a failure is repeated by its
number, and a run goes on where another one stopped.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, process_time
from typing import Any

import numpy as np

import vcomp

SECONDS = 10.0
"""Longest processor time of a case: a loaded machine makes none slow."""

WAITING = 10
"""Times as many seconds of the clock end a case that waits."""

EVERY = 20.0
"""Seconds after which the counts of a long run are stored."""


@dataclass(frozen=True, slots=True)
class Fuzzer:
    """Cases of one kind.

    Attributes
    ----------
    name : of the kind
    run : of a random generator and an empty folder, runs a case; a wrong number is an
        AssertionError
    """

    name: str
    run: Callable[[np.random.Generator, Path], Any]


@dataclass(slots=True)
class Counts:
    """What the cases of a fuzzer ended in."""

    result: int = 0
    refused: int = 0
    failed: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    failures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def cases(self) -> int:
        """Number of cases, which is also the number of the next one."""
        return self.result + self.refused + self.failed


class TooSlow(BaseException):
    """A case took too long; not an Exception, so that no code takes it for a damaged file."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TooSlow after some seconds of the processor, where the system has alarms."""
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def ring(*_: Any) -> None:
        raise TooSlow(f"more than {seconds:g} s of the processor, or {WAITING * seconds:g} s")

    limits = (
        (signal.ITIMER_PROF, signal.SIGPROF, seconds),
        (signal.ITIMER_REAL, signal.SIGALRM, WAITING * seconds),
    )
    before = [signal.signal(sign, ring) for _, sign, _ in limits]
    try:
        for timer, _, after in limits:
            signal.setitimer(timer, after)
        yield
    finally:
        for (timer, sign, _), handler in zip(limits, before, strict=True):
            signal.setitimer(timer, 0.0)
            signal.signal(sign, handler)


def generator(name: str, case: int) -> np.random.Generator:
    """Return the random generator of a case."""
    return np.random.default_rng([zlib.crc32(name.encode()), case])


def run_case(fuzzer: Fuzzer, case: int, folder: Path, seconds: float = SECONDS) -> str | None:
    """Run a case; return "refused" for a VcompError, None for a result.

    Raises
    ------
    BaseException
        Whatever else the case raises.
    """
    for left in folder.iterdir():
        left.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with within(seconds):
                fuzzer.run(generator(fuzzer.name, case), folder)
        except vcomp.VcompError:
            return "refused"
    return None


def run_cases(fuzzer: Fuzzer, cases: range, folder: Path, counts: Counts | None = None) -> Counts:
    """Run cases and return what they ended in, added to `counts`."""
    counts = Counts() if counts is None else counts
    for case in cases:
        begun = process_time()
        try:
            ended = run_case(fuzzer, case, folder)
            if ended is None:
                counts.result += 1
            else:
                counts.refused += 1
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            counts.failed += 1
            at = traceback.extract_tb(error.__traceback__)
            where = next(
                (f"{f.filename}:{f.lineno}" for f in reversed(at) if "vcomp" in f.filename), ""
            )
            said = f"{type(error).__name__}: {error}"[:300]
            counts.failures.append({"case": case, "error": said, "where": where})
        took = process_time() - begun
        counts.seconds += took
        counts.slowest = max(counts.slowest, took)
    return counts


def run_long(
    fuzzers: Sequence[Fuzzer], state: Path, folder: Path, goals: dict[str, int], hours: float
) -> dict[str, Counts]:
    """Run cases until each fuzzer has reached its goal or time is up; go on from a stored state.

    Parameters
    ----------
    state : JSON file of the counts, which is replaced every 20 seconds
    goals : number of cases of each fuzzer
    """
    found = {f.name: Counts() for f in fuzzers}
    if state.exists():
        stored = json.loads(state.read_text(encoding="utf-8"))
        found |= {name: Counts(**stored[name]) for name in found if name in stored}
    end, kept = monotonic() + 3600.0 * hours, monotonic()
    while monotonic() < end:
        open_ = [f for f in fuzzers if found[f.name].cases < goals[f.name]]
        if not open_:
            break
        # Shares of the goals are reached together, so that an early end leaves all kinds tested.
        fuzzer = min(open_, key=lambda f: found[f.name].cases / goals[f.name])
        counts = found[fuzzer.name]
        step = max(1, min(200, goals[fuzzer.name] // 1000))
        run_cases(fuzzer, range(counts.cases, counts.cases + step), folder, counts)
        if monotonic() - kept > EVERY:
            kept = monotonic()
            _store(found, state)
    _store(found, state)
    return found


def _store(found: dict[str, Counts], state: Path) -> None:
    from dataclasses import asdict

    beside = state.with_suffix(".next")
    beside.write_text(json.dumps({name: asdict(c) for name, c in found.items()}, indent=1))
    os.replace(beside, state)
