"""Run the study in processes, a part each, and keep its rows."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pandas as pd

from benchmarks.bias_study.cells import Part, parts_of
from benchmarks.system_tests.study import rows_of

KEPT = Path(__file__).with_name("results.csv")


def run(trials: int, workers: int, file: Path) -> pd.DataFrame:
    """Return the rows of all parts, and keep them in a file.

    Parameters
    ----------
    trials : collections of each part, truth and size
    workers : processes; the numbers are the same for any number of them
    file : CSV
    """
    rows: list[dict[str, object]] = []
    with ProcessPoolExecutor(workers) as pool:
        for number, found in enumerate(pool.map(partial(_rows, trials), parts_of()), start=1):
            rows += found
            print(f"{number} of {len(parts_of())} parts", flush=True)
    table = pd.DataFrame(rows)
    table.to_csv(file, index=False, float_format="%.8g")
    return table


def _rows(trials: int, part: Part) -> list[dict[str, object]]:
    return list(rows_of(part, trials))
