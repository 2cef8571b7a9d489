"""Run cases in a process of their own, which may end at any of them.

A library below vcomp can end its process: pyarrow does so at some damaged files, and no Python
code prevents it. Such a case is recorded, and another process runs the next one.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import re
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.fuzz.driver import SECONDS, WAITING, Ended, Fuzzer, ended_case

LONGEST = 2.0 * WAITING * SECONDS
"""Seconds after which a process that gives no answer is killed: its alarms rang before."""

BELOW = ("parquet::", "arrow::")
"""What the last words hold of a process that a library below vcomp has ended."""


def _serve(
    connection: Connection, fuzzers: Sequence[Fuzzer], folder: Path, said: Path
) -> None:  # pragma: no cover (another process)
    """Answer the names and numbers of cases by how they end."""
    file = said.open("w")
    os.dup2(file.fileno(), 2)
    faulthandler.enable(file)
    named = {fuzzer.name: fuzzer for fuzzer in fuzzers}
    connection.send("ready")
    while True:
        try:
            name, case = connection.recv()
        except EOFError:
            return
        connection.send(ended_case(named[name], case, folder))


class Apart:
    """A process that runs cases, started again where one of them has ended it.

    Parameters
    ----------
    fuzzers : whose `run` can be pickled
    folder : for the files of the cases
    """

    def __init__(self, fuzzers: Sequence[Fuzzer], folder: Path) -> None:
        self.fuzzers, self.folder = fuzzers, folder / "cases"
        self._said = folder / "said.txt"
        self._process: Any = None

    def __enter__(self) -> Apart:
        self.folder.mkdir(exist_ok=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _start(self) -> None:
        # A fork would inherit threads of pyarrow and polars that do not run in it.
        spawn = multiprocessing.get_context("spawn")
        self._connection, other = spawn.Pipe()
        self._process = spawn.Process(
            target=_serve, args=(other, self.fuzzers, self.folder, self._said), daemon=True
        )
        self._process.start()
        other.close()
        self._connection.recv()

    def _stop(self) -> None:
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.join()
            self._process = None

    def ended_case(self, name: str, case: int) -> Ended:
        """Run a case, and return how it or its process ended."""
        if self._process is None:
            self._start()
        self._connection.send((name, case))
        try:
            if self._connection.poll(LONGEST):
                found: Ended = self._connection.recv()
                return found
            self._stop()
            return Ended("failed", 0.0, f"no answer within {LONGEST:g} s")
        except (EOFError, ConnectionError):
            self._process.join()
            code = self._process.exitcode
            self._stop()
            return self._ending(code)

    def _ending(self, code: int) -> Ended:
        said = self._said.read_text(errors="replace")
        # The stacks of all threads follow, that of the main thread last.
        message = said.split("Fatal Python error")[0].strip().replace("\n", " ")
        stacks = re.findall(r"most recent call first\):\n((?:  .*\n)*)", said)
        where = stacks[-1].split("\n")[0].strip() if stacks else ""
        name = signal.Signals(-code).name if code < 0 else f"code {code}"
        below = any(word in message for word in BELOW)
        return Ended("aborted" if below else "failed", 0.0, f"{name}: {message[-300:]}", where)
