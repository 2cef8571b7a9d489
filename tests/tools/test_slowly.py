"""A command that runs at a share of its speed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.tools.slowly import run_slowly, session_members

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="lists processes as on Linux")

BUSY = """
import subprocess, sys, time
if len(sys.argv) > 2:  # in a process of its own, which is stopped too
    sys.exit(subprocess.run([sys.executable, *sys.argv[2:]]).returncode)
begun = time.monotonic()
while time.process_time() < 0.2:
    pass
open(sys.argv[1], "w").write(str(time.process_time() / (time.monotonic() - begun)))
sys.exit(3)
"""


@pytest.mark.parametrize("inside", [False, True])
def test_processes_have_their_share_and_the_code_is_kept(tmp_path, inside):
    script, found = tmp_path / "busy.py", tmp_path / "share"
    script.write_text(BUSY)
    command = [sys.executable, str(script), str(found)]
    assert run_slowly(command + command[1:] * inside, 0.1) == 3
    assert float(found.read_text()) < 0.5


def test_a_session_has_this_process():
    import os

    assert os.getpid() in session_members(os.getsid(0))
