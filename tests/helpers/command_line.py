"""The command line as a user meets it: what is printed where, and the exit code."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from inspect import signature
from unittest import mock

from click.testing import CliRunner

from vcomp.cli.main import cli, main

_MAIN = "from vcomp.cli.main import main; main()"

# Until click 8.2 errors are mixed with the output unless that is refused.
_SEPARATE = {"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {}


class _Main:
    """The program itself, in the place where click's runner expects a command.

    The runner replaces the standard streams; ``main`` turns errors and warnings into messages.
    """

    name = "vcomp"

    def main(self, args, prog_name):
        with mock.patch.object(sys, "argv", [prog_name, *args]):
            main()


def run(*arguments, check=True, warnings_are="error", charset="utf-8"):
    """Return output, errors and exit code of the program, which runs in this process.

    Parameters
    ----------
    arguments : of the command line
    check : whether the exit code has to be zero
    warnings_are : what ``python -W`` would be given
    charset : of the standard streams
    """
    # With its own filters, and without those of the test: as a new process has them.
    with warnings.catch_warnings():
        warnings.simplefilter(warnings_are)
        runner = CliRunner(charset=charset, **_SEPARATE)
        done = runner.invoke(_Main(), list(arguments), catch_exceptions=False)
    completed = subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)
    if check:
        assert completed.returncode == 0, completed.stderr
    return completed


def run_process(*arguments, check=True, warnings_are="error"):
    """Return what :func:`run` does, from a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", warnings_are, "-c", _MAIN, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done


def output_of(*arguments):
    """Return what a command prints; a mistake is raised, one of usage fails."""
    done = CliRunner(**_SEPARATE).invoke(cli, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output
