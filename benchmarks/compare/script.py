"""Run another program, which reads a file and prints its results as JSON."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.common import limit_processor_time, not_done, wall_limit
from benchmarks.compare.fit import PeerFit


def fit_by_script(
    program: str,
    script: str,
    name: str,
    formula: str,
    data: pd.DataFrame,
    *options: str,
    limit: float,
) -> PeerFit | str:
    """Return the fit of ``program script FORMULA DATA.csv OPTION …``, or why there is none.

    Parameters
    ----------
    program : such as ``"Rscript"``
    script : a file in this folder
    name : of what is run, for the reason
    limit : seconds of processor time
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.csv"
        data.to_csv(path, index=False)
        answer = run_script(program, script, name, formula, str(path), *options, limit=limit)
    return answer if isinstance(answer, str) else PeerFit(**answer)


def run_script(
    program: str, script: str, name: str, *arguments: str, limit: float
) -> dict[str, Any] | str:
    """Return what ``program script ARGUMENT …`` printed, or why there is nothing."""
    if shutil.which(program) is None:
        return f"{name}: {program} is not installed"
    command = [program, str(Path(__file__).with_name(script)), *arguments]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    limit_processor_time(limit, run.pid)
    try:
        printed, fault = run.communicate(timeout=wall_limit(limit))
    except subprocess.TimeoutExpired:
        run.kill()
        run.communicate()
        return f"{name} {not_done(limit)}"
    if run.returncode == -signal.SIGXCPU:
        return f"{name} {not_done(limit)}"
    if run.returncode != 0:
        return f"{name}: {_fault(fault)}"[:110]
    answer: dict[str, Any] = json.loads(printed)
    return answer


def _fault(printed: str) -> str:
    """Return the line of R that names the error, or the last one, which of Python does."""
    lines = [line for line in printed.splitlines() if line.strip()] or ["failed"]
    return next((line for line in lines if line.startswith("Error")), lines[-1])
