"""Profile intervals by lme4, where R is installed with it.

One process of R for each batch of data sets: it fits the first, and refits it to the others.
``confint(method="profile")`` of lme4 1.1 is of the ML likelihood, also of a fit by REML: rows
have the estimator "ml".
"""

from __future__ import annotations

import io
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.coverage.methods import ALPHA, Found
from benchmarks.coverage.prepared import Prepared

METHOD = "lme4, profile"
PROGRAM = "Rscript"
_SCRIPT = Path(__file__).with_name("lme4_profile.R")
_BATCH = 25


@cache
def installed() -> bool:
    """Whether R is installed, with lme4."""
    if shutil.which(PROGRAM) is None:
        return False
    asked = subprocess.run([PROGRAM, "-e", "library(lme4)"], capture_output=True)
    return asked.returncode == 0


def by_lme4(prepared: Prepared, numbers: Sequence[int], workers: int = 1) -> Iterator[Found]:
    """Return the intervals of the components of each data set, in order.

    Parameters
    ----------
    prepared : the design
    numbers : of the data sets
    workers : processes of R at once
    """
    batches = [numbers[at : at + _BATCH] for at in range(0, len(numbers), _BATCH)]
    with ThreadPoolExecutor(workers) as pool:
        for found in pool.map(lambda batch: _of_batch(prepared, batch), batches):
            yield from found


def _of_batch(prepared: Prepared, numbers: Sequence[int]) -> list[Found]:
    names = [f"y{number}" for number in numbers]
    scores = [prepared.draw(number, rows=True).rows.y for number in numbers]
    table = pd.DataFrame(dict(prepared.cell.levels) | dict(zip(names, scores, strict=True)))
    lines = run_profile(prepared.cell.formula, table)
    places = {quantity: j for j, quantity in enumerate(prepared.names)}
    found: list[Found] = []
    for name in names:
        ends = np.full((2, len(places)), np.nan)
        own = lines[lines["response"] == name]
        ends[:, [places[component] for component in own["component"]]] = own[["low", "high"]].T
        found.append({("ml", METHOD): ends})
    return found


def run_profile(formula: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return lines of response, component, low and high of the columns y1, y2, … of a table.

    Raises
    ------
    subprocess.CalledProcessError
        If R fails; what it says is printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        table.to_csv(path, index=False)
        command = [PROGRAM, str(_SCRIPT), formula, str(path), str(1.0 - ALPHA)]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return pd.read_csv(io.StringIO(run.stdout))
