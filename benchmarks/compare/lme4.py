"""lme4 through Rscript, where R is installed with lme4 and jsonlite."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import pandas as pd

from benchmarks.compare.fit import PeerFit

__all__ = ["fit_lme4"]

_SCRIPT = Path(__file__).with_name("lme4.R")


def fit_lme4(formula: str, data: pd.DataFrame, *, reml: bool, limit: float) -> PeerFit | str:
    """Return the fit, or why there is none; only ``lmer`` itself is timed."""
    if shutil.which("Rscript") is None:
        return "R is not installed"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.csv"
        data.to_csv(path, index=False)
        command = ["Rscript", str(_SCRIPT), formula, str(path), "REML" if reml else "ML"]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return f"lme4 not done in {limit:.0f} s (--limit)"
    if run.returncode != 0:
        return f"lme4: {(run.stderr.strip().splitlines() or ['failed'])[-1]}"[:110]
    return PeerFit(**json.loads(run.stdout))
