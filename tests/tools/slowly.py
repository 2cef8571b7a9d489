"""Run a command at a share of its speed, as on a machine that does much else.

``python -m tests.tools.slowly 0.1 python -m pytest tests/cli``: the processes of the command run
10 of every 100 milliseconds and are stopped for the others (SIGSTOP), so that the machine is free
for other work. What starts a session of its own is not slowed down. Ends with the code of the
command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PERIOD = 0.1
"""Seconds between two starts of the processes."""


def run_slowly(command: list[str], share: float) -> int:
    """Return the exit code of a command, whose processes run a share of the time.

    Parameters
    ----------
    command : program and arguments
    share : of the time, above 0 and at most 1
    """
    process = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)
    members = [process.pid]
    try:
        while process.poll() is None:
            _send(signal.SIGCONT, members)
            time.sleep(PERIOD * share)
            if process.poll() is None:
                members = session_members(process.pid)
                _send(signal.SIGSTOP, members)
                time.sleep(PERIOD * (1.0 - share))
    finally:
        _send(signal.SIGCONT, members)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
    return process.returncode


def session_members(session: int) -> list[int]:
    """Return the processes of a session (Linux)."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == session:
            found.append(int(folder.name))
    return found


def _send(number: signal.Signals, processes: list[int]) -> None:
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    # Ends what it has started, stopped or not.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(run_slowly(sys.argv[2:], float(sys.argv[1])))
