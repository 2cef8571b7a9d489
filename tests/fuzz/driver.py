"""Run fuzzers: each case ends in a result or in a ``VcompError``, within ten seconds.

Case `k` of a fuzzer depends on its name and on `k` alone, so that a failure is repeated by its
number, and a run goes on where another one stopped.
"""

from __future__ import annotations

import shutil
import signal
import threading
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

import vcomp

SECONDS = 10.0
"""Longest processor time of a case: a loaded machine makes none slow."""

WAITING = 10
"""Times as many seconds of the clock end a case that waits."""


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


@dataclass(frozen=True, slots=True)
class Ended:
    """How a case ended.

    Attributes
    ----------
    how : "result", "refused", "failed", or "aborted" if a library below vcomp ended the process
    seconds : of the processor
    error : what was raised, or the signal
    where : line of the library where the case failed
    """

    how: str
    seconds: float
    error: str = ""
    where: str = ""


@dataclass(slots=True)
class Counts:
    """What the cases of a fuzzer ended in."""

    result: int = 0
    refused: int = 0
    failed: int = 0
    aborted: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    failures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def cases(self) -> int:
        """Number of cases, which is also the number of the next one."""
        return self.result + self.refused + self.failed + self.aborted

    def add(self, case: int, ended: Ended) -> None:
        """Count a case."""
        setattr(self, ended.how, getattr(self, ended.how) + 1)
        if ended.error:
            self.failures.append({"case": case, "error": ended.error, "where": ended.where})
        self.seconds += ended.seconds
        self.slowest = max(self.slowest, ended.seconds)


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
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with within(seconds), chdir(folder):
                fuzzer.run(generator(fuzzer.name, case), folder)
        except vcomp.VcompError:
            return "refused"
    return None


def ended_case(fuzzer: Fuzzer, case: int, folder: Path) -> Ended:
    """Run a case and return how it ended."""
    begun = process_time()
    try:
        how = run_case(fuzzer, case, folder) or "result"
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        at = traceback.extract_tb(error.__traceback__)
        where = next(
            (f"{f.filename}:{f.lineno}" for f in reversed(at) if "vcomp" in f.filename), ""
        )
        said = f"{type(error).__name__}: {error}"[:300]
        return Ended("failed", process_time() - begun, said, where)
    return Ended(how, process_time() - begun)


def run_cases(fuzzer: Fuzzer, cases: range, folder: Path) -> Counts:
    """Run cases and return what they ended in."""
    counts = Counts()
    for case in cases:
        counts.add(case, ended_case(fuzzer, case, folder))
    return counts
